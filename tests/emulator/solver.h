/* Solvers whose vectors are on the emulated device. */
#pragma once

/*
   While this is true, all vectors count as vectors on the GPU, and KSPGMRESFUSED on several ranks takes its matrix for one on their
   GPUs, with MPI between them.
*/
extern bool emulated_solvers;
