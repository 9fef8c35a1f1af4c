/* How the factors of the smoothers sfsai and afsai smooth in cycles of both kinds of hierarchies. */
#pragma once

#include "cmatch_ends.cuh"
#include "cmatch_rows.cuh"

/* Calls act(row, x_row + (W x)_row) for all rows of a factor W. */
template <typename T, int GroupSize, int Ahead, typename Act>
__global__ void __launch_bounds__(kBlockSize) CMATCHForFactor(Rows<T> W, const T *__restrict__ x, CMATCHSolverState solver, Act act)
{
  if (solver.Skip()) return;
  const LocalInt                       row  = (LocalInt)(GridThread() / GroupSize);
  const bool                           mine = row < W.n;
  RowAhead<T, GroupSize, Ahead, false> entries(W.i, W.j, W.a, mine, row, row);
  WaitForPrevious();
  LetNextStart();
  const T sum = entries.Sum(x, [](T a, T other) { return a * other; });
  if (mine && threadIdx.x % GroupSize == 0) act(row, x[row] + sum);
}

/* t = D (r + W r) */
template <typename T>
struct CMATCHStoreScaled {
  const T *d;
  T       *t;

  __device__ __forceinline__ void operator()(LocalInt i, T product) const { t[i] = d[i] * product; }
};

/* z' = e z + c M^{-1} r, x = x + beta z', where z and x are 0 if they are null; z' is stored if the polynomial goes on. */
template <typename T, typename To>
struct CMATCHFactorStep {
  const T *z_from, *x;
  T        c, e, beta;
  T       *z;
  To       to;

  __device__ __forceinline__ void operator()(LocalInt i, T product) const
  {
    const T z_i = (z_from ? e * z_from[i] : T(0)) + c * product;
    if (z) z[i] = z_i;
    to(i, (x ? x[i] : T(0)) + beta * z_i);
  }
};

/* A level that has a factor, and how its kernels are launched. */
template <typename T>
struct CMATCHFactorSmoother {
  const CMATCHFactor &factor;
  const T            *b;
  T *const r, *const x, *const z, *const t;
  const CMATCHToCaller<T> caller;
  const CMATCHSolverState solver;
  const bool              early;
  const cudaStream_t      stream;

  /*
     x = x + S (b - A x), or from the start x = 0; to the caller with `out`. residual(r_from, of) launches r = r_from - A of. t
     holds the product between the factors. The second factor reads nothing that its kernel writes, so that z and x stay in their
     arrays.
  */
  template <typename Residual>
  PetscErrorCode Smooth(const PolynomialSteps &p, bool zero, bool out, Residual residual) const
  {
    const T *from = b;

    PetscFunctionBegin;
    for (LocalInt k = 0; k < p.degree; k++) {
      const bool on   = k + 1 < p.degree;
      const auto step = [&](auto to) {
        return CMATCHFactorStep<T, decltype(to)>{k ? z : nullptr, zero && !k ? nullptr : x, (T)p.c[k], (T)p.e[k],
                                                 (T)p.beta[k],    on ? z : nullptr,         to};
      };
      if (k || !zero) {
        PetscCall(residual(from, k ? z : x));
        from = r;
      }
      PetscCall(ForRows(factor.W, from, CMATCHStoreScaled<T>{(const T *)factor.d, t}));
      if (out && !on) PetscCall(ForRows(factor.Wt, t, step(caller)));
      else PetscCall(ForRows(factor.Wt, t, step(CMATCHToVector<T>{x})));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  template <int GroupSize, int Ahead, typename Act>
  PetscErrorCode Launch(const CSR &W, const T *of, const Act &act) const
  {
    PetscFunctionBegin;
    PetscCall(LaunchEarly(early, CMATCHForFactor<T, GroupSize, Ahead, Act>, BlocksFor((long long)W.rows * GroupSize), kBlockSize,
                          stream, Rows<T>{W.rows, W.i, W.j, (const T *)W.a}, of, solver, act));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* The one place that chooses how many lanes take a row of a factor, by the mean row length. */
  template <typename Act>
  PetscErrorCode ForRows(const CSR &W, const T *of, const Act &act) const
  {
    const double mean = (double)W.nnz / W.rows;

    PetscFunctionBegin;
    if (mean <= 10) PetscCall((Launch<1, 4>(W, of, act)));
    else if (mean <= 24) PetscCall((Launch<4, 4>(W, of, act)));
    else PetscCall((Launch<8, 4>(W, of, act)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
};
