/*
   The hierarchy of nodes on the GPU: the cycle. It is that of rows, on several ranks, too, with blocks in the place of entries, and
   plain products. There slices without columns of ghosts are computed while the entries of ghosts are under way.
*/
#include "cmatch_factor_step.cuh"
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
  if (solver.Skip()) return;
  const double factor =
    solver.square ? CMATCHPowerFor(*solver.square, 2) : CMATCHPowerFor(__longlong_as_double((long long)control->largest), 1);
  if (u == 0) control->factor = factor;
  if (u >= n) return;
  const double *const r = ends.R();
  const long long     i = u / k;
  b[u]                  = (T)(ends.Get(r, u) * factor);
  if (!first.x) return;
  const T *const D = first.D + u * k;
  T              z = 0;
  for (LocalInt q = 0; q < k; q++) z += D[q] * (T)(ends.Get(r, i * k + q) * factor);
  z *= first.c;
  first.x[u] = first.beta * z;
  if (first.z) first.z[u] = z;
}

/* z = scale 2^-q x, where the last kernel does not do so */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) EndCycle(LocalInt n, const T *x, CMATCHSolverState solver, CMATCHToCaller<T> to)
{
  const long long u = GridThread();
  if (solver.Skip()) return;
  WaitForPrevious();
  LetNextStart();
  if (u < n) to((LocalInt)u, x[u]);
}

/*
   A product y = A x, and what is made of it: the residual r = r_from - y, and with D a step of a smoother,

     z' = e z_from + c D r,   x' = x + beta z',

   where r_from is b at first, and z_from is null in the first step. What is null is not stored.
*/
template <typename T, typename To>
struct Step {
  const T *r_from, *z_from, *x, *D;
  T        c, e, beta;
  T       *r, *z;
  To       to;
};

/* A block takes a slice, or one of a list. */
template <typename T, int K, typename To>
__global__ void __launch_bounds__(kCMATCHSliceThreads)
  MultiplyNodes(CMATCHSlices<T> A, const LocalInt *list, const T *__restrict__ y_of, Step<T, To> step, CMATCHSolverState solver)
{
  __shared__ T   part[kCMATCHSliceThreads];
  const LocalInt k = K ? K : A.k;
  T              D[K ? K : kCMATCHMostModes], r = 0, z = 0, x = 0;
  if (solver.Skip()) return;

  CMATCHSliceRow<T, K> row(A, list ? list[blockIdx.x] : (LocalInt)blockIdx.x);
  if (row.mine && step.D)
    for (LocalInt q = 0; q < k; q++) D[q] = step.D[(size_t)row.u * k + q];
  WaitForPrevious();
  LetNextStart();
  if (row.mine) {
    r = step.r_from[row.u];
    if (step.D) x = step.x[row.u];
    if (step.z_from) z = step.z_from[row.u];
  }
  r -= row.AddUp(row.Multiply(y_of), part);
  if (row.mine && step.r) step.r[row.u] = r;
  if (!step.D) return;
  if (row.first) part[threadIdx.x] = r; /* no other thread has read that */
  __syncthreads();
  if (!row.mine) return;
  const T *const of_node = part + threadIdx.x / k * k;
  T              Dr      = 0;
  for (LocalInt q = 0; q < k; q++) Dr += D[q] * of_node[q];
  z = step.e * z + step.c * Dr;
  if (step.z) step.z[row.u] = z;
  step.to(row.u, x + step.beta * z);
}

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
  Restrict(Transfer<T> R, const T *__restrict__ r, T *b, FirstStep<T> first, CMATCHSolverState solver)
{
  const LocalInt node = (LocalInt)(GridThread() / kWarpSize), k = K ? K : R.k, m = M ? M : R.m;
  const int      lane = threadIdx.x % kWarpSize, q = lane % kGroup;
  T              sum = 0;
  if (solver.Skip()) return;
  WaitForPrevious();
  LetNextStart();
  if (node >= R.n) return;
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

/*
   b on the next level, from the rank's own part, of `mine` nodes, and contributions in the order of ranks; and the first step of
   its smoother. Where these are in another order, `order` says where each of them is. A warp takes a node.
*/
template <typename T>
struct Contributions {
  LocalInt        nodes, mine, m;
  const T        *own;
  const LocalInt *add_i, *order;
  const T        *added;
};

template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  AddContributions(Contributions<T> from, T *b, FirstStep<T> first, CMATCHSolverState solver)
{
  const LocalInt c = (LocalInt)(GridThread() / kWarpSize), m = from.m;
  const int      q   = threadIdx.x % kWarpSize;
  T              sum = 0;
  if (solver.Skip() || c >= from.nodes) return;
  if (q < m) {
    if (c < from.mine) sum = from.own[(size_t)c * m + q];
    for (LocalInt k = from.add_i[c]; k < from.add_i[c + 1]; k++)
      sum += from.added[(size_t)(from.order ? from.order[k] : k) * m + q];
    b[(size_t)c * m + q] = sum;
  }
  if (!first.x) return;
  const T z = first.c * TimesInverse(first.D + (size_t)c * m * m, m, q, sum);
  if (q >= m) return;
  first.x[(size_t)c * m + q] = first.beta * z;
  if (first.z) first.z[(size_t)c * m + q] = z;
}

/* x = x + P e, with e as an array or a CMATCHSharedCorrection. A thread takes an unknown. */
template <typename T, int K, int M, typename Correction>
__global__ void __launch_bounds__(kBlockSize) Interpolate(Transfer<T> P, const Correction e, T *x, CMATCHSolverState solver)
{
  const LocalInt  k = K ? K : P.k, m = M ? M : P.m;
  const long long u = GridThread(), i = u / k;
  const bool      mine = i < P.n;
  int4            j{-1, -1, -1, -1};
  if (solver.Skip()) return;
  if (mine) j = ((const int4 *)P.P_j)[i];
  WaitForPrevious();
  LetNextStart();
  if (!mine) return;
  const LocalInt columns[kCMATCHSlots] = {j.x, j.y, j.z, j.w};
  const T *const row                   = P.P_a + ((size_t)i * kCMATCHSlots * k + u % k) * m;
  T              sum                   = x[u];
#pragma unroll
  for (int s = 0; s < kCMATCHSlots; s++) {
    if (columns[s] < 0) continue;
    for (LocalInt q = 0; q < m; q++) sum += row[(size_t)s * k * m + q] * e[columns[s] * m + q];
  }
  x[u] = sum;
}

/* ------------------------------------------ launches ------------------------------------------ */

template <typename T>
class Cycle {
public:
  Cycle(CMATCHHierarchyCUDA *H, const CMATCHCaller &ends, const CMATCHSolverState &solver, cudaStream_t stream) :
      H_(H), N_(H->nodes), ends_(ends), solver_(solver), stream_(stream), steps_(CMATCHNodesSteps(H->params))
  {
  }

  PetscErrorCode Run()
  {
    const LocalInt n = H_->level[0].n;

    PetscFunctionBegin;
    /* the kernel before may be the caller's, which does not know that this one could start early */
    PetscCall(LaunchEarly(false, BeginCycle<T>, BlocksFor(PetscMax(n, 1)), kBlockSize, stream_, n, N_->level[0].k, ends_, solver_,
                          V(0).b, First(0), H_->control));
    PetscCall(Visit(0));
    if (!ended_ && n)
      PetscCall(
        LaunchEarly(Early(0), EndCycle<T>, BlocksFor(n), kBlockSize, stream_, n, (const T *)V(0).x[now_[0]], solver_, Caller()));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode RunAlone()
  {
    const LocalInt l = H_->several;

    PetscFunctionBegin;
    PetscCall(AddUp(l - 1));
    PetscCall(Visit(l));
    H_->graph_x = now_[l];
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
  bool              Several(LocalInt l) const { return l < H_->several; }
  /* Kernels on several ranks follow exchanges, which do not know that a kernel could start early. */
  bool            Early(LocalInt l) const { return H_->early && !Several(l); }
  bool            Last(LocalInt l) const { return !Several(l) && l + 1 == H_->levels; }
  bool            Passed(LocalInt l) const { return H_->level[l].transfer == CMATCH_PASSED; }
  bool            Inverted(LocalInt l) const { return Last(l) && H_->inverted; }
  PolynomialSteps Steps(LocalInt l) const { return Last(l) ? PolynomialChebyshev(kCMATCHStalledDegree) : steps_; }
  /* A factor smooths the level, and not D. */
  bool Factored(LocalInt l) const { return H_->level[l].factor.d; }
  /* The first step of a level from zero, which the kernel that makes b does, but for a level with a factor. */
  FirstStep<T> First(LocalInt l)
  {
    now_[l] = 0;
    if (Inverted(l) || Factored(l) || Passed(l)) return {nullptr, T(0), T(0), nullptr, nullptr};
    const PolynomialSteps p = Steps(l);
    return {D(l), (T)p.c[0], (T)p.beta[0], V(l).x[0], p.degree > 1 ? V(l).z[0] : nullptr};
  }

  template <typename To>
  PetscErrorCode Multiply(LocalInt l, const T *x, const Step<T, To> &step)
  {
    const CMATCHLevelCUDA &of = H_->device[l];

    PetscFunctionBegin;
    if (!Several(l)) {
      PetscCall(MultiplySlices(l, CMATCHSliceCount(N_->level[l].n), nullptr, x, step));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    T *const ghosts = (T *)x + H_->level[l].n;
    PetscCall(CMATCHExchangeBegin(H_, l, CMATCH_HALO, x, ghosts, stream_));
    PetscCall(MultiplySlices(l, of.inners, of.inner, x, step));
    PetscCall(CMATCHExchangeEnd(H_, l, CMATCH_HALO, x, ghosts, stream_));
    PetscCall(MultiplySlices(l, of.borders, of.border, x, step));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* So many slices, or those of a list. */
  template <typename To>
  PetscErrorCode MultiplySlices(LocalInt l, LocalInt count, const LocalInt *list, const T *x, const Step<T, To> &step)
  {
    const CMATCHNodesLevel &L = N_->level[l];

    PetscFunctionBegin;
    if (!count) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(CMATCHForUnknowns(L.k, [&](auto k) {
      return LaunchEarly(Early(l), MultiplyNodes<T, k, To>, count, CMATCHSliceBlock(L, H_->processors), stream_, CMATCHSlices<T>(L),
                         list, x, step, solver_);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* x = x + S (b - A x) with the factor of a level, or from the start x = 0; to the caller with `out`. */
  PetscErrorCode SmoothByFactor(LocalInt l, const PolynomialSteps &p, bool zero, bool out)
  {
    const Vectors v = V(l);
    const CMATCHFactorSmoother<T>
      by{H_->level[l].factor, v.b, v.r, v.x[now_[l]], v.z[0], v.z[1], Caller(), solver_, Early(l), stream_};

    PetscFunctionBegin;
    PetscCall(by.Smooth(p, zero, out, [&](const T *r_from, const T *of) { return Residual(l, r_from, of); }));
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
        return Step<T, decltype(to)>{r,
                                     z,
                                     x,
                                     D(l),
                                     (T)p.c[step],
                                     (T)p.e[step],
                                     (T)p.beta[step],
                                     on ? v.r : nullptr,
                                     on ? v.z[step % 2] : nullptr,
                                     to};
      };
      if (out && !on) PetscCall(Multiply(l, z, with(Caller())));
      else PetscCall(Multiply(l, z, with(CMATCHToVector<T>{x})));
      r = v.r;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* x = S b, of which the first step is there, but for a level with a factor */
  PetscErrorCode SmoothFirst(LocalInt l, const PolynomialSteps &p)
  {
    PetscFunctionBegin;
    if (Factored(l)) PetscCall(SmoothByFactor(l, p, true, false));
    else PetscCall(SmoothOnwards(l, p, V(l).b, false));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* x = x + S (b - A x); to the caller with `out` */
  PetscErrorCode SmoothAgain(LocalInt l, const PolynomialSteps &p, bool out)
  {
    const Vectors  v    = V(l);
    const bool     on   = p.degree > 1;
    const T *const x    = v.x[now_[l]];
    const auto     with = [&](auto to) {
      return Step<T, decltype(to)>{v.b, nullptr, x, D(l), (T)p.c[0], T(0), (T)p.beta[0], on ? v.r : nullptr, on ? v.z[0] : nullptr,
                                   to};
    };

    PetscFunctionBegin;
    if (out) ended_ = true;
    if (Factored(l)) {
      PetscCall(SmoothByFactor(l, p, false, out));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (out && !on) PetscCall(Multiply(l, x, with(Caller())));
    else PetscCall(Multiply(l, x, with(CMATCHToVector<T>{v.x[1 - now_[l]]})));
    now_[l] = 1 - now_[l];
    PetscCall(SmoothOnwards(l, p, v.r, out));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* A level whose b and first step are there: its x is x[now] afterwards. */
  PetscErrorCode Visit(LocalInt l)
  {
    const Vectors           v = V(l);
    const CMATCHNodesLevel &L = N_->level[l];
    const PolynomialSteps   p = Steps(l);

    PetscFunctionBegin;
    if (Inverted(l)) {
      PetscCall(CMATCHLaunchCoarsest(H_, v.x[0], solver_, stream_));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (Several(l)) {
      PetscCall(VisitShared(l, p));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(SmoothFirst(l, p));
    if (Last(l)) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(Residual(l, v.b, v.x[now_[l]]));
    PetscCall(RestrictSome(l, 0, L.coarse, v.r, V(l + 1).b, First(l + 1)));
    PetscCall(Visit(l + 1));
    using Array = const T *__restrict__;
    PetscCall(Correct<Array>(l, V(l + 1).x[now_[l + 1]]));
    PetscCall(SmoothAgain(l, p, l == 0));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* r = r_from - A of */
  PetscErrorCode Residual(LocalInt l, const T *r_from, const T *of)
  {
    PetscFunctionBegin;
    PetscCall(Multiply(l, of, Step<T, CMATCHToVector<T>>{r_from, nullptr, nullptr, nullptr, T(0), T(0), T(0), V(l).r}));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* R r for the aggregates from `begin` to `end` - 1, and the first step of the smoother there. */
  PetscErrorCode RestrictSome(LocalInt l, LocalInt begin, LocalInt end, const T *r, T *to, const FirstStep<T> &first)
  {
    const CMATCHNodesLevel &L    = N_->level[l];
    const LocalInt          next = N_->level[l + 1].k;

    PetscFunctionBegin;
    if (begin == end) PetscFunctionReturn(PETSC_SUCCESS);
    const Transfer<T> R{end - begin, L.k, next, L.R_i + begin, L.R_j, nullptr, (const T *)L.P_a};
    PetscCall(CMATCHForSizes(L.k, next, [&](auto k, auto m) {
      return LaunchEarly(Early(l), Restrict<T, k, m>, BlocksFor((long long)R.n * kWarpSize), kBlockSize, stream_, R, r, to, first,
                         solver_);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* x = x + P e */
  template <typename Correction>
  PetscErrorCode Correct(LocalInt l, Correction e)
  {
    const CMATCHNodesLevel &L    = N_->level[l];
    const LocalInt          next = N_->level[l + 1].k;
    const Transfer<T>       P{L.n, L.k, next, nullptr, nullptr, L.P_j, (const T *)L.P_a};

    PetscFunctionBegin;
    if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(CMATCHForSizes(L.k, next, [&](auto k, auto m) {
      return LaunchEarly(Early(l), Interpolate<T, k, m, Correction>, BlocksFor((long long)L.n * L.k), kBlockSize, stream_, P, e,
                         V(l).x[now_[l]], solver_);
    }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* ------------------------------------- several ranks ---------------------------------------- */

  /* b of the next level, from the own part and contributions. */
  PetscErrorCode AddUp(LocalInt l)
  {
    const CMATCHLevelCUDA &of = H_->device[l];

    PetscFunctionBegin;
    if (!of.rows) PetscFunctionReturn(PETSC_SUCCESS);
    const Contributions<T> from{of.rows,  H_->level[l].mine, N_->level[l + 1].k, (const T *)of.values,
                                of.add_i, of.order,          (const T *)of.added};
    const FirstStep<T>     first = First(l + 1);
    PetscCall(LaunchEarly(false, AddContributions<T>, BlocksFor((long long)of.rows * kWarpSize), kBlockSize, stream_, from,
                          V(l + 1).b, first, solver_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The correction of the next level, where this rank has nodes of it. */
  PetscErrorCode SolveNext(LocalInt l, const T **e)
  {
    PetscFunctionBegin;
    *e = nullptr;
    if (!H_->device[l].rows) PetscFunctionReturn(PETSC_SUCCESS);
    if (Several(l + 1) || H_->ranks.nccl) { /* a graph cannot be launched while another one is captured */
      PetscCall(AddUp(l));
      PetscCall(Visit(l + 1));
    } else {
      PetscCallCUDA(cudaGraphLaunch(H_->graph, stream_));
      now_[l + 1] = H_->graph_x;
    }
    *e = V(l + 1).x[now_[l + 1]];
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Visit() of a level on several ranks. */
  PetscErrorCode VisitShared(LocalInt l, const PolynomialSteps &p)
  {
    const Vectors          v    = V(l);
    const CMATCHLevel     &L    = H_->level[l];
    const CMATCHLevelCUDA &of   = H_->device[l];
    const LocalInt         mine = L.mine * N_->level[l + 1].k; /* values */
    const FirstStep<T>     nothing{nullptr, T(0), T(0), nullptr, nullptr};
    T *const values = (T *)of.values, *const added = (T *)of.added;
    const T *r = v.r, *e;

    PetscFunctionBegin;
    if (!Passed(l)) {
      PetscCall(SmoothFirst(l, p));
      PetscCall(Residual(l, v.b, v.x[now_[l]]));
    } else {
      r = v.b;
      PetscCallCUDA(cudaMemsetAsync(v.x[now_[l]], 0, L.n * sizeof(T), stream_));
    }
    PetscCall(RestrictSome(l, L.mine, L.coarse + L.foreign, r, values + mine, nothing));
    PetscCall(CMATCHExchangeBegin(H_, l, CMATCH_DOWN, values + mine, added, stream_));
    PetscCall(RestrictSome(l, 0, L.mine, r, values, nothing));
    PetscCall(CMATCHExchangeEnd(H_, l, CMATCH_DOWN, values + mine, added, stream_));
    PetscCall(SolveNext(l, &e));
    PetscCall(CMATCHExchangeBegin(H_, l, CMATCH_UP, e, values + mine, stream_));
    PetscCall(CMATCHExchangeEnd(H_, l, CMATCH_UP, e, values + mine, stream_));
    PetscCall(Correct(l, CMATCHSharedCorrection<T>{mine, e, values}));
    if (!Passed(l)) PetscCall(SmoothAgain(l, p, l == 0));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  CMATCHHierarchyCUDA    *H_;
  const CMATCHNodes      *N_;
  const CMATCHCaller      ends_;
  const CMATCHSolverState solver_;
  cudaStream_t            stream_;
  const PolynomialSteps   steps_;
  int                     now_[kCMATCHMostLevels] = {};    /* which of x[2] has the iterate */
  bool                    ended_                  = false; /* the last step has given z to the caller */
};

} // namespace

PetscErrorCode CMATCHNodesLaunchCycle(CMATCHHierarchyCUDA *H, const CMATCHCaller &ends, const CMATCHSolverState &solver,
                                      cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(
    CMATCHWithPrecision(H->params.precision, [&](auto zero) { return Cycle<decltype(zero)>(H, ends, solver, stream).Run(); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesLaunchAlone(CMATCHHierarchyCUDA *H, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
    return Cycle<decltype(zero)>(H, CMATCHCaller{}, CMATCHSolverState{}, stream).RunAlone();
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
