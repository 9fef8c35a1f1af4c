/* The factors of the smoothers sfsai and afsai, and rows that are alone: what cmatch_fsai.cu does for other files. */
#pragma once

#include "cmatch.cuh"

/*
   Whether nothing beside the diagonal of a row counts in the sum of l_i. The sum of magnitudes stays what it is as long as each of
   them is lost in it.
*/
template <typename T>
__device__ bool CMATCHIsAlone(LocalInt begin, LocalInt end, const T *A_a, T diagonal)
{
  for (LocalInt k = begin; k < end; k++)
    if ((double)diagonal + fabs((double)A_a[k]) != (double)diagonal) return false;
  return true;
}

/*
   The factors of the levels that are smoothed, if the smoother has factors; with keep, new values on their patterns. The factor of
   a level on several ranks is to be scaled then, by all ranks together, with work that is taken before from the arena, so that no
   memory is needed.
*/
PetscErrorCode CMATCHFactorSmoothers(CMATCHSetup *, bool keep);
struct CMATCHScaleWork {
  double *r = nullptr, *z = nullptr, *p = nullptr, *q = nullptr; /* vectors with room for any level on several ranks */
  double *partial = nullptr;
};
PetscErrorCode CMATCHTakeScaleWork(CMATCHSetup *, CMATCHScaleWork *);
PetscErrorCode CMATCHScaleFactor(CMATCHSetup *, LocalInt level, const CMATCHScaleWork &);
PetscErrorCode CMATCHDestroyFactors(CMATCHHierarchyCUDA *);

/*
   The factor of a level and its d = 1 / psi, from the rank's rows, of which the longest row of the lower triangle is known, without
   its scale; with keep, its values alone. There may be a failure.
*/
PetscErrorCode CMATCHMakeFactor(CMATCHSetup *, LocalInt level, const CSRView &A, LocalInt longest, double *d, bool keep);

/* Frees the memory that is kept for new values. */
PetscErrorCode CMATCHFreeFactorWork(CMATCHHierarchyCUDA *);
