/* Solvers whose vectors are on the emulated device, and preconditioners whose matrices are. */
#pragma once

/* While this is true, all vectors count as vectors on the GPU, and KSPCGFUSED on one rank with PCJACOBI or PCNONE runs there. */
extern bool emulated_solvers;

/* While this is true, PCAFSAI and PCSFSAI take every MATAIJ for one on the GPU, and make their factors there. */
extern bool emulated_matrices;
