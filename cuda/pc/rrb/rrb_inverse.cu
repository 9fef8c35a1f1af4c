/* The inverse of the remainder of RRB on a GPU, which is what the levels leave: small enough to be dense. */
#include "rrb_factor.cuh"
#include "sparse/dense_inverse.cuh"

namespace
{

/* ------------------------------------- the dense operator ------------------------------------- */

__device__ void SetPair(double *M, LocalInt m, size_t p, size_t q, double value)
{
  M[p * m + q] = value;
  M[q * m + p] = value;
}

/*
   The remaining operator, where it is straight, as a dense matrix that was zero. Each thread writes the diagonal entry of a point
   and its couplings to points after it, both ways.
*/
__global__ void __launch_bounds__(kBlockSize) FillStraight(RRBElimination v, LocalInt m, double *M)
{
  const long long p = GridThread();
  if (p >= m) return;
  const LocalInt nx = v.g.nx, ny = v.g.ny, x = (LocalInt)p % nx, y = (LocalInt)p / nx;
  M[p * m + p] = v.S.c[p];
  if (x + 1 < nx) SetPair(M, m, p, p + 1, v.S.e[p]);
  if (y + 1 >= ny) return;
  SetPair(M, m, p, p + nx, v.S.n[p]);
  if (v.S.ne && x + 1 < nx) SetPair(M, m, p, p + nx + 1, v.S.ne[p]);
  if (v.S.ne && x > 0) SetPair(M, m, p, p + nx - 1, v.S.nw[p]);
}

/* The same where the remaining operator is skew. Each thread writes the points b2 and b1 of a cell. */
__global__ void __launch_bounds__(kBlockSize) FillSkew(RRBElimination v, LocalInt m, double *M)
{
  const long long cell = GridThread();
  const RRBGrid  &g    = v.g;
  if (cell >= (long long)g.cx * g.cy) return;
  const LocalInt I = (LocalInt)(cell % g.cx), J = (LocalInt)(cell / g.cx);
  for (int point : {kB2, kB1}) {
    if (!g.Has(point, I, J)) continue;
    const size_t p     = RRBHalfPlace(g, point, I, J);
    const int    other = point == kB2 ? kB1 : kB2;
    /* points (x + 1, y + 1) and (x - 1, y + 1) are of the other class, in cells I + up and I + up - 1 of line J + up */
    const LocalInt up = point == kB2 ? 0 : 1;
    M[p * m + p]      = v.Skew(point, kSkewC, I, J);
    if (g.Has(other, I + up, J + up)) SetPair(M, m, p, RRBHalfPlace(g, other, I + up, J + up), v.Skew(point, kSkewP, I, J));
    if (g.Has(other, I + up - 1, J + up)) SetPair(M, m, p, RRBHalfPlace(g, other, I + up - 1, J + up), v.Skew(point, kSkewQ, I, J));
    if (g.Has(point, I + 1, J)) SetPair(M, m, p, RRBHalfPlace(g, point, I + 1, J), v.Skew(point, kSkewH, I, J));
    if (g.Has(point, I, J + 1)) SetPair(M, m, p, RRBHalfPlace(g, point, I, J + 1), v.Skew(point, kSkewV, I, J));
  }
}

/* ----------------------------------------- the sweeps ----------------------------------------- */

/* The row of A that point p of the remainder stands for. */
__device__ LocalInt RemainderRow(const RRBElimination &v, LocalInt p)
{
  LocalInt x, y;
  if (v.g.half) {
    const LocalInt pair = v.g.cx + v.g.nx / 2, in_pair = p % pair;
    x = in_pair < v.g.cx ? 2 * in_pair : 2 * (in_pair - v.g.cx) + 1;
    y = 2 * (p / pair) + (in_pair < v.g.cx ? 0 : 1);
  } else {
    x = p % v.g.nx;
    y = p / v.g.nx;
  }
  return y * v.stride * v.nx + x * v.stride;
}

/* Reports pivots that fail. */
struct CheckPivot {
  RRBElimination v;
  LocalInt       but;

  __device__ void operator()(LocalInt p, double pivot) const
  {
    if (p == but && isfinite(pivot)) v.report->zero_pivots++;
    else RRBCheckPivot(v.report, RRBStage(v.level, true), RemainderRow(v, p), v.sign * pivot);
  }
};

} // namespace

size_t RRBInverseWork(LocalInt remainder)
{
  return DenseInverseWork(remainder);
}

PetscErrorCode RRBInvertRemainder(RRBFactorCUDA *F, RRBElimination v, double *work, cudaStream_t stream)
{
  const LocalInt m = F->remainder, but = F->singular ? m - 1 : -1; /* the last pivot of all, which is 0 but for rounding */
  double *const  M = F->inverse.data();

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(M, 0, F->inverse.bytes(), stream));
  if (v.g.half) FillSkew<<<BlocksFor((long long)v.g.cx * v.g.cy), kBlockSize, 0, stream>>>(v, m, M);
  else FillStraight<<<BlocksFor(m), kBlockSize, 0, stream>>>(v, m, M);
  FinePCCheckLaunch();
  PetscCall(DenseInvert(m, M, but, work, CheckPivot{v, but}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
