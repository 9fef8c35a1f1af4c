/* What the tests of KSPGMRESFUSED share: solves beside those of PETSc's KSPGMRES, and systems. */
#pragma once

#include <string>
#include <vector>

#include "pc_support.h"
#include "recorder.h"
#include "spread.h"

const std::string kModified = kKSPHasOrthogonalization ? "-ksp_orthogonalization mgs " : "-ksp_gmres_modifiedgramschmidt ";
const std::string kRefinement =
  kKSPHasOrthogonalization ? "-ksp_orthogonalization_cgs_refinement_type " : "-ksp_gmres_cgs_refinement_type ";
const std::string kPETSc = "-ksp_type gmres " + kModified + "-ksp_pc_side right ";
const std::string kOurs  = "-ksp_type gmresfused ";

const std::vector<const char *> kSides = {"right", "left"};
std::string                     Side(const char *side);

/* Upwind differences of -laplace u + (peclet, peclet / 2) grad u on a grid. */
HostMatrix Convection(LocalInt nx, LocalInt ny, double peclet);
/* Every entry beside the diagonal is multiplied by a number of its own. */
HostMatrix Unsymmetric(HostMatrix A, std::uint64_t seed);
/* Blocks on the GPUs of all ranks, of which each has as many block rows as the share says. */
MatObject BlocksOfRanks(const HostBlocks &H, const Share &share = Even);

/* Whether the view of the first rank has the text; collective. */
bool Views(KSP ksp, const std::string &text);
