/* What the tests of all PCs share: solvers and vectors of a fixed kind, and what comes out of them. */
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compare.h"
#include "pc/pcinverse.h"

/* A type and what differs in the tests of all; in options, -@power stands for -pc_TYPE_power, and # for the type. */
struct Type {
  /* a key with its value, and the setter that does the same */
  using Change = std::pair<const char *, std::function<PetscErrorCode(PC)>>;

  PCType      name;
  const char *event; /* of its set-up */
  PetscErrorCode (*get_factors)(PC, Mat *, Mat *);
  std::vector<const char *> diagonal; /* options that leave PCJACOBI */
  std::vector<const char *> exact;    /* options that give the inverse */
  const char               *others;   /* options that are not the defaults */
  std::vector<const char *> view;     /* lines of the view that are its own */
  std::vector<Change>       changes;

  std::string Keys(const std::string &options) const;
};
const std::vector<Type> &Types();

/* KSPCG with a preconditioner, and whatever the options say; without any, those of the Options around. */
KSPObject MakeKSP(Mat, const std::string &options, PCType);
PCObject  MakePC(Mat, const std::string &options, PCType);
KSPObject MakeKSP(Mat, const Type &, const std::string &options = "");
PCObject  MakePC(Mat, const Type &, const std::string &options = "");
PC        PCOf(KSP);

/* This rank's part of a vector. */
std::vector<double> Values(Vec);
/* A vector that fits A, the same whatever its type and the number of ranks. */
VecObject RightVec(Mat, std::uint64_t seed = 1);
/* M^{-1} x of a fixed x */
std::vector<double> Applied(PC, bool transpose = false);
bool                SameBits(const std::vector<double> &, const std::vector<double> &);
bool                Finite(const std::vector<double> &);
/* Largest difference relative to the largest entry */
double Difference(const std::vector<double> &, const std::vector<double> &);

struct Solution {
  KSPConvergedReason  reason;
  PetscInt            iterations;
  double              true_residual; /* ||b - A x|| / ||b|| */
  std::vector<double> history;
};
Solution Solve(KSP);            /* A x = b with a random b, in the range if the matrix has a null space */
void     SetConstantsNull(Mat); /* MatSetNullSpace() */

const HostMatrix &Plate();
/* The same nonzeros, other values. */
void ChangeValues(Mat, double factor);
/* PETSc thinks that the values have changed. */
void       Touch(Mat);
PCInverse *InverseOf(PC);
/* ||diag(G A G^T) - 1|| of the factor that the user gets */
PetscReal ErrorOfDiagonal(PC, const Type &);
