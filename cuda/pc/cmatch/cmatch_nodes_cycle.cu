/* The hierarchy of nodes on the GPU: the cycle. It is that of rows, with blocks in the place of entries, and plain products. */
#include "cmatch_ends.cuh"
#include "cmatch_nodes_rows.cuh"

namespace
{

constexpr int kGroup  = 8; /* lanes that have the unknowns of a node in transfers */
constexpr int kGroups = kWarpSize / kGroup;

/* (D b)_r of a node, whose b_r is in lane `first` + r. All lanes of the warp take part. */
template <typename T>
__device__ __forceinline__ T TimesInverse(const T *D, LocalInt k, int r, T b)
{
  T sum = 0;
  for (LocalInt q = 0; q < k; q++) {
    const T b_q = __shfl_sync(kFullWarp, b, (int)q);
    if (r < k) sum += D[r * k + q] * b_q;
  }
  return sum;
}

/* The first step of a smoother from zero, x = beta z, z = c D b; of what is null nothing is stored. */
template <typename T>
struct FirstStep {
  const T *D;
  T        c, beta;
  T       *x, *z;
};

/* b = 2^q r, and the first step. A thread takes an unknown. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  BeginCycle(LocalInt n, LocalInt k, CMATCHCaller ends, CMATCHSolverState solver, T *b, FirstStep<T> first, CMATCHControl *control)
{
  const long long u = GridThread();
  WaitForPrevious();
  LetNextStart();
  const bool   skip = solver.stage && *solver.stage >= solver.stop;
  const double factor =
    solver.square ? CMATCHPowerFor(*solver.square, 2) : CMATCHPowerFor(__longlong_as_double((long long)control->largest), 1);
  if (u == 0) {
    control->factor = factor;
    control->skip   = skip;
  }
  if (skip || u >= n) return;
  const double *const r = ends.R();
  const long long     i = u / k;
  b[u]                  = (T)(r[u] * factor);
  if (!first.x) return;
  const T *const D = first.D + u * k;
  T              z = 0;
  for (LocalInt q = 0; q < k; q++) z += D[q] * (T)(r[i * k + q] * factor);
  z *= first.c;
  first.x[u] = first.beta * z;
  if (first.z) first.z[u] = z;
}

/* z = scale 2^-q x, where the last kernel does not do so */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) EndCycle(LocalInt n, const T *x, CMATCHToCaller<T> to)
{
  const long long u = GridThread();
  WaitForPrevious();
  LetNextStart();
  if (!to.control->skip && u < n) to((LocalInt)u, x[u]);
}

/* Calls act(i, lane, (A x)_i,lane, k) with all lanes of a warp for each node i. */
template <typename T, int K, typename Act>
__global__ void __launch_bounds__(kBlockSize)
  ForNodes(CMATCHBlockRows<T> A, const T *__restrict__ x, const CMATCHControl *control, Act act)
{
  const LocalInt          i    = (LocalInt)(GridThread() / kWarpSize);
  const bool              mine = i < A.n;
  CMATCHBlocksAhead<T, K> row(A, mine ? i : 0, mine);
  WaitForPrevious();
  LetNextStart();
  if (control->skip || !mine) return;
  act(i, (int)(threadIdx.x % kWarpSize), row.Multiply(x), K ? K : A.k);
}

/* r = b - A x */
template <typename T>
struct StoreResidual {
  const T *b;
  T       *r;

  __device__ __forceinline__ void operator()(LocalInt i, int p, T product, LocalInt k) const
  {
    if (p < k) r[(size_t)i * k + p] = b[(size_t)i * k + p] - product;
  }
};

/* The first step of a smoother from x: r = b - A x, z = c D r, x = x + beta z; r and z are stored if the polynomial goes on. */
template <typename T, typename To>
struct SmoothFrom {
  const T *b, *x, *D;
  T        c, beta;
  T       *r, *z;
  To       to;

  __device__ __forceinline__ void operator()(LocalInt i, int p, T product, LocalInt k) const
  {
    const size_t u   = (size_t)i * k + p;
    const T      r_u = p < k ? b[u] - product : T(0), z_u = c * TimesInverse(D + (size_t)i * k * k, k, p, r_u);
    if (p >= k) return;
    if (r) r[u] = r_u;
    if (z) z[u] = z_u;
    to((LocalInt)u, x[u] + beta * z_u);
  }
};

/* A further step: r = r - A z, z' = e z + c D r, x = x + beta z'; r and z' are stored if the polynomial goes on. */
template <typename T, typename To>
struct SmoothOn {
  const T *D, *r_from, *z_from, *x;
  T        c, e, beta;
  T       *r, *z;
  To       to;

  __device__ __forceinline__ void operator()(LocalInt i, int p, T product, LocalInt k) const
  {
    const size_t u   = (size_t)i * k + p;
    const T      r_u = p < k ? r_from[u] - product : T(0), Dr = TimesInverse(D + (size_t)i * k * k, k, p, r_u);
    if (p >= k) return;
    const T z_u = e * z_from[u] + c * Dr;
    if (r) r[u] = r_u;
    if (z) z[u] = z_u;
    to((LocalInt)u, x[u] + beta * z_u);
  }
};

/* Rows of R, whose blocks are in P */
template <typename T>
struct Transfer {
  LocalInt        n, k, m; /* n rows of R, or of P */
  const LocalInt *R_i, *R_j, *P_j;
  const T        *P_a;
};

/* b = R r on the next level, and the first step of its smoother. A warp takes a node there, a group every fourth block. */
template <typename T, int K, int M>
__global__ void __launch_bounds__(kBlockSize)
  Restrict(Transfer<T> R, const T *__restrict__ r, T *b, FirstStep<T> first, const CMATCHControl *control)
{
  const LocalInt node = (LocalInt)(GridThread() / kWarpSize), k = K ? K : R.k, m = M ? M : R.m;
  const int      lane = threadIdx.x % kWarpSize, q = lane % kGroup;
  T              sum = 0;
  WaitForPrevious();
  LetNextStart();
  if (control->skip || node >= R.n) return;
#pragma unroll 4
  for (LocalInt e = R.R_i[node] + lane / kGroup; e < R.R_i[node + 1]; e += kGroups) {
    const LocalInt at = R.R_j[e];
    const T *const P = R.P_a + (size_t)at * k * m, *const of = r + (size_t)(at / kCMATCHSlots) * k;
    if (q < m)
      for (LocalInt p = 0; p < k; p++) sum += P[p * m + q] * of[p];
  }
  sum += __shfl_xor_sync(kFullWarp, sum, kGroup);
  sum += __shfl_xor_sync(kFullWarp, sum, 2 * kGroup);
  if (lane < m) b[(size_t)node * m + lane] = sum;
  if (!first.x) return;
  const T z = first.c * TimesInverse(first.D + (size_t)node * m * m, m, lane, sum);
  if (lane >= m) return;
  first.x[(size_t)node * m + lane] = first.beta * z;
  if (first.z) first.z[(size_t)node * m + lane] = z;
}

/* x = x + P e. A thread takes an unknown. */
template <typename T, int K, int M>
__global__ void __launch_bounds__(kBlockSize)
  Interpolate(Transfer<T> P, const T *__restrict__ e, T *x, const CMATCHControl *control)
{
  const LocalInt  k = K ? K : P.k, m = M ? M : P.m;
  const long long u = GridThread(), i = u / k;
  const bool      mine = i < P.n;
  int4            j{-1, -1, -1, -1};
  if (mine) j = ((const int4 *)P.P_j)[i];
  WaitForPrevious();
  LetNextStart();
  if (control->skip || !mine) return;
  const LocalInt columns[kCMATCHSlots] = {j.x, j.y, j.z, j.w};
  const T *const row                   = P.P_a + ((size_t)i * kCMATCHSlots * k + u % k) * m;
  T              sum                   = x[u];
#pragma unroll
  for (int s = 0; s < kCMATCHSlots; s++) {
    if (columns[s] < 0) continue;
    for (LocalInt q = 0; q < m; q++) sum += row[(size_t)s * k * m + q] * e[(size_t)columns[s] * m + q];
  }
  x[u] = sum;
}

/* ------------------------------------------ launches ------------------------------------------ */

template <typename T>
class Cycle {
public:
  Cycle(CMATCHHierarchyCUDA *H, const CMATCHCaller &ends, cudaStream_t stream) :
      H_(H), N_(H->nodes), ends_(ends), stream_(stream), steps_(CMATCHNodesSteps(H->params))
  {
  }

  PetscErrorCode Run(const CMATCHSolverState &solver)
  {
    const LocalInt n = H_->level[0].n;

    PetscFunctionBegin;
    /* the kernel before may be the caller's, which does not know that this one could start early */
    PetscCall(LaunchEarly(false, BeginCycle<T>, BlocksFor(n), kBlockSize, stream_, n, N_->level[0].k, ends_, solver, V(0).b,
                          First(0), H_->control));
    PetscCall(Visit(0));
    if (!ended_)
      PetscCall(LaunchEarly(H_->early, EndCycle<T>, BlocksFor(n), kBlockSize, stream_, n, (const T *)V(0).x[now_[0]], Caller()));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  struct Vectors {
    T *b, *r, *x[2], *z[2];
  };
  Vectors V(LocalInt l) const
  {
    const CMATCHVectors &v = H_->device[l].vectors;
    return {(T *)v.b, (T *)v.r, {(T *)v.x[0], (T *)v.x[1]}, {(T *)v.z[0], (T *)v.z[1]}};
  }
  CMATCHToCaller<T> Caller() const { return {ends_, nullptr, H_->control}; }
  const T          *D(LocalInt l) const { return (const T *)N_->level[l].D; }
  bool              Last(LocalInt l) const { return l + 1 == H_->levels; }
  bool              Inverted(LocalInt l) const { return Last(l) && H_->inverted; }
  PolynomialSteps   Steps(LocalInt l) const { return Last(l) ? PolynomialChebyshev(kCMATCHStalledDegree) : steps_; }
  /* The first step of a level from zero, which the kernel that makes b does. */
  FirstStep<T> First(LocalInt l)
  {
    now_[l] = 0;
    if (Inverted(l)) return {nullptr, T(0), T(0), nullptr, nullptr};
    const PolynomialSteps p = Steps(l);
    return {D(l), (T)p.c[0], (T)p.beta[0], V(l).x[0], p.degree > 1 ? V(l).z[0] : nullptr};
  }

  template <int K, typename Act>
  PetscErrorCode Launch(LocalInt l, const T *x, const Act &act)
  {
    const CMATCHNodesLevel  &L = N_->level[l];
    const CMATCHBlockRows<T> A{L.n, L.k, L.A_i, L.A_j, (const T *)L.A_a};

    PetscFunctionBegin;
    PetscCall(LaunchEarly(H_->early, ForNodes<T, K, Act>, BlocksFor((long long)L.n * kWarpSize), kBlockSize, stream_, A, x,
                          H_->control, act));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  template <typename Act>
  PetscErrorCode ForRows(LocalInt l, const T *x, const Act &act)
  {
    PetscFunctionBegin;
    switch (N_->level[l].k) {
    case 2: PetscCall(Launch<2>(l, x, act)); break;
    case 3: PetscCall(Launch<3>(l, x, act)); break;
    case 6: PetscCall(Launch<6>(l, x, act)); break;
    default: PetscCall(Launch<0>(l, x, act)); break;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Steps 1, 2, .. of a polynomial; r is b before the first of them if it starts from zero. To the caller with `out`. */
  PetscErrorCode SmoothOnwards(LocalInt l, const PolynomialSteps &p, const T *r, bool out)
  {
    const Vectors v = V(l);
    T *const      x = v.x[now_[l]];

    PetscFunctionBegin;
    for (LocalInt step = 1; step < p.degree; step++) {
      const bool     on   = step + 1 < p.degree;
      const T *const z    = v.z[(step + 1) % 2];
      const auto     with = [&](auto to) {
        return SmoothOn<T, decltype(to)>{D(l),
                                         r,
                                         z,
                                         x,
                                         (T)p.c[step],
                                         (T)p.e[step],
                                         (T)p.beta[step],
                                         on ? v.r : nullptr,
                                         on ? v.z[step % 2] : nullptr,
                                         to};
      };
      if (out && !on) PetscCall(ForRows(l, z, with(Caller())));
      else PetscCall(ForRows(l, z, with(CMATCHToVector<T>{x})));
      r = v.r;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* x = x + S (b - A x); to the caller with `out` */
  PetscErrorCode SmoothAgain(LocalInt l, const PolynomialSteps &p, bool out)
  {
    const Vectors  v    = V(l);
    const bool     on   = p.degree > 1;
    const T *const x    = v.x[now_[l]];
    const auto     with = [&](auto to) {
      return SmoothFrom<T, decltype(to)>{v.b, x, D(l), (T)p.c[0], (T)p.beta[0], on ? v.r : nullptr, on ? v.z[0] : nullptr, to};
    };

    PetscFunctionBegin;
    if (out && !on) PetscCall(ForRows(l, x, with(Caller())));
    else PetscCall(ForRows(l, x, with(CMATCHToVector<T>{v.x[1 - now_[l]]})));
    now_[l] = 1 - now_[l];
    PetscCall(SmoothOnwards(l, p, v.r, out));
    if (out) ended_ = true;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* A level whose b and first step are there: its x is x[now] afterwards. */
  PetscErrorCode Visit(LocalInt l)
  {
    const Vectors           v = V(l);
    const CMATCHNodesLevel &L = N_->level[l];
    const PolynomialSteps   p = Steps(l);
    const Transfer<T>       P{L.n, L.k, N_->m, L.R_i, L.R_j, L.P_j, (const T *)L.P_a};

    PetscFunctionBegin;
    if (Inverted(l)) {
      PetscCall(CMATCHLaunchCoarsest(H_, v.x[0], stream_));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(SmoothOnwards(l, p, v.b, false));
    if (Last(l)) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(ForRows(l, v.x[now_[l]], StoreResidual<T>{v.b, v.r}));
    PetscCall(CMATCHForSizes(L.k, N_->m, [&](auto k, auto m) {
      Transfer<T> R = P;
      R.n           = L.coarse;
      PetscFunctionBegin;
      PetscCall(LaunchEarly(H_->early, Restrict<T, k, m>, BlocksFor((long long)R.n * kWarpSize), kBlockSize, stream_, R,
                            (const T *)v.r, V(l + 1).b, First(l + 1), H_->control));
      PetscCall(Visit(l + 1));
      PetscCall(LaunchEarly(H_->early, Interpolate<T, k, m>, BlocksFor((long long)L.n * L.k), kBlockSize, stream_, P,
                            (const T *)V(l + 1).x[now_[l + 1]], v.x[now_[l]], H_->control));
      PetscFunctionReturn(PETSC_SUCCESS);
    }));
    PetscCall(SmoothAgain(l, p, l == 0));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  CMATCHHierarchyCUDA  *H_;
  const CMATCHNodes    *N_;
  const CMATCHCaller    ends_;
  cudaStream_t          stream_;
  const PolynomialSteps steps_;
  int                   now_[kCMATCHMostLevels] = {};    /* which of x[2] has the iterate */
  bool                  ended_                  = false; /* the last step has given z to the caller */
};

} // namespace

PetscErrorCode CMATCHNodesLaunchCycle(CMATCHHierarchyCUDA *H, const CMATCHCaller &ends, const CMATCHSolverState &solver,
                                      cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(
    CMATCHWithPrecision(H->params.precision, [&](auto zero) { return Cycle<decltype(zero)>(H, ends, stream).Run(solver); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
