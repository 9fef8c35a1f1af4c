/* Where cycles of both kinds of hierarchies begin and end. */
#pragma once

#include "cmatch.cuh"

/* Where r is and where z goes: given, or kept on the device, so that a captured cycle can have other vectors. */
struct CMATCHCaller {
  const double  *r;
  double        *z;
  const double **caller;

  const LocalInt *row = nullptr; /* see CMATCHHierarchy */

  __device__ const double *R() const { return r ? r : caller[0]; }
  __device__ double       *Z() const { return r ? z : (double *)caller[1]; }

  /* Entry i of a cycle, from R() and to Z() */
  __device__ __forceinline__ double Get(const double *from, long long i) const
  {
    if (!row) return from[i];
    return row[i] < 0 ? 0 : from[row[i]];
  }
  __device__ __forceinline__ void Put(long long i, double z_i) const
  {
    if (!row) Z()[i] = z_i;
    else if (row[i] >= 0) Z()[row[i]] = z_i;
  }
};

/* 2^q for vectors of this size, whose largest entry is then near 1 */
__device__ __forceinline__ double CMATCHPowerFor(double size, int share)
{
  int exponent = 0;
  if (!(size > 0) || !isfinite(size)) return 1;
  (void)frexp(size, &exponent);
  return ldexp(1., max(-1000, min(1000, -exponent / share)));
}

/* Where an iterate goes: to the caller, */
template <typename T>
struct CMATCHToCaller {
  CMATCHCaller         ends;
  const double        *w;
  const CMATCHControl *control;

  __device__ __forceinline__ void operator()(LocalInt i, T x) const
  {
    const double x_i = (double)x * control->scale / control->factor;
    ends.Put(i, w ? w[i] * x_i : x_i);
  }
};

/* or to a vector */
template <typename T>
struct CMATCHToVector {
  T *x;

  __device__ __forceinline__ void operator()(LocalInt i, T value) const { x[i] = value; }
};

/* The correction of a rank's own aggregates, so many values on the next level, and behind them what other ranks have sent. */
template <typename T>
struct CMATCHSharedCorrection {
  LocalInt mine;
  const T *__restrict__ const own, *__restrict__ const values;

  __device__ __forceinline__ T operator[](LocalInt j) const { return j < mine ? own[j] : values[j]; }
};

/* Launches a cycle of a hierarchy of nodes; the largest entry of r is known, unless the solver passes the size of r. */
PetscErrorCode CMATCHNodesLaunchCycle(CMATCHHierarchyCUDA *, const CMATCHCaller &, const CMATCHSolverState &, cudaStream_t);
/* The part of one rank alone of a hierarchy of several ranks: from what has come for its finest level to its correction there. */
PetscErrorCode CMATCHNodesLaunchAlone(CMATCHHierarchyCUDA *, cudaStream_t);
