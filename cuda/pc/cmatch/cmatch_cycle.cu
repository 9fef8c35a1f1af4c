/*
   CMATCH on the GPU: the cycle.

   On one rank it is one graph, and on several ranks with NCCL, too. Of a hierarchy of several ranks without NCCL the levels that
   one rank has alone are one graph, and the kernels of the others are launched one by one, with exchanges between them. Rows
   without columns of ghosts are computed while the entries of ghosts are under way, and R r of own aggregates while that of foreign
   ones is.
*/
#include "capture.cuh"
#include "cmatch_factor_step.cuh"
#include "cmatch_launch.cuh"
#include "sparse/transfer.cuh"

namespace
{

constexpr int kTransferGroup = 8; /* lanes of a row of R */

/* ---------------------------------------- begin and end --------------------------------------- */

__global__ void SetEnds(const double **caller, const double *r, double *z)
{
  caller[0] = r;
  caller[1] = z;
}

/* The largest magnitude of the entries of W r; entries that are no numbers do not count. */
__global__ void __launch_bounds__(kBlockSize) FindLargest(LocalInt n, CMATCHCaller ends, const double *w, unsigned long long *found)
{
  double largest = 0;
  for (long long i = GridThread(); i < n; i += (long long)gridDim.x * kBlockSize)
    largest = fmax(largest, fabs(w ? w[i] * ends.R()[i] : ends.Get(ends.R(), i)));
  largest = GroupMax<kWarpSize>(largest);
  if (threadIdx.x % kWarpSize == 0) atomicMax(found, (unsigned long long)__double_as_longlong(largest));
}

/* The same, when it is known. */
__global__ void SetLargest(double largest, CMATCHControl *control)
{
  control->largest = (unsigned long long)__double_as_longlong(largest);
}

/* The first step of a smoother from zero: x = beta z, z = c l b; z is stored if the polynomial goes on. */
template <typename T>
struct FirstStep {
  T  c, beta;
  T *x, *z;

  __device__ __forceinline__ void operator()(LocalInt i, T l, T b) const
  {
    const T z_i = c * l * b;
    if (x) x[i] = beta * z_i;
    if (z) z[i] = z_i;
  }
};

/* b = 2^q W r, and the first step. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) BeginCycle(LocalInt n, CMATCHCaller ends, const double *w, CMATCHSolverState solver,
                                                         const T *l, T *b, FirstStep<T> first, CMATCHControl *control)
{
  const long long i   = GridThread();
  const T         l_i = i < n ? l[i] : T(0);
  WaitForPrevious();
  LetNextStart();
  if (solver.Skip()) return;
  const double factor =
    solver.square ? CMATCHPowerFor(*solver.square, 2) : CMATCHPowerFor(__longlong_as_double((long long)control->largest), 1);
  if (i == 0) control->factor = factor;
  if (i >= n) return;
  const double r   = ends.R()[i];
  const T      b_i = (T)((w ? w[i] * r : r) * factor);
  b[i]             = b_i;
  first((LocalInt)i, l_i, b_i);
}

/* z = scale 2^-q W x, where the last kernel does not do so */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  EndCycle(LocalInt n, const T *x, const double *w, CMATCHCaller ends, CMATCHSolverState solver, const CMATCHControl *control)
{
  const long long i = GridThread();
  if (solver.Skip()) return;
  WaitForPrevious();
  LetNextStart();
  if (i >= n) return;
  const double x_i = (double)x[i] * control->scale / control->factor;
  ends.Z()[i]      = w ? w[i] * x_i : x_i;
}

/* ----------------------------------------- products ------------------------------------------- */

template <typename T>
struct Operator {
  LocalInt        n; /* rows, or rows in the list */
  const LocalInt *i, *j;
  const T        *a, *s, *l;
  const LocalInt *rows; /* the list, or null */
};

/* Calls act(row, (A x)_row, x_row) for all rows, or with Listed for those of a list, by differences. */
template <typename T, int GroupSize, int Ahead, bool Listed, typename Act>
__global__ void __launch_bounds__(kBlockSize) ForProducts(Operator<T> A, const T *__restrict__ x, CMATCHSolverState solver, Act act)
{
  if (solver.Skip()) return;
  const LocalInt                       at   = (LocalInt)(GridThread() / GroupSize);
  const bool                           mine = at < A.n;
  const LocalInt                       row  = Listed && mine ? A.rows[at] : at;
  RowAhead<T, GroupSize, Ahead, false> entries(A.i, A.j, A.a, mine, row, row);
  const T                              s = mine ? A.s[row] : T(0);
  WaitForPrevious();
  LetNextStart();
  const T own = mine ? x[row] : T(0);
  const T sum = entries.Sum(x, [own](T a, T other) { return a * (other - own); });
  if (mine && threadIdx.x % GroupSize == 0) act(row, s * own + sum, own);
}

/* r = b - A x */
template <typename T>
struct StoreResidual {
  const T *b;
  T       *r;

  __device__ __forceinline__ void operator()(LocalInt i, T product, T) const { r[i] = b[i] - product; }
};

/* The first step of a smoother from x: r = b - A x, z = c l r, x = x + beta z; r and z are stored if the polynomial goes on. */
template <typename T, typename To>
struct SmoothFrom {
  const T *b, *l;
  T        c, beta;
  T       *r, *z;
  To       to;

  __device__ __forceinline__ void operator()(LocalInt i, T product, T x) const
  {
    const T r_i = b[i] - product, z_i = c * l[i] * r_i;
    if (r) r[i] = r_i;
    if (z) z[i] = z_i;
    to(i, x + beta * z_i);
  }
};

/* A further step: r = r - A z, z' = e z + c l r, x = x + beta z'; r and z' are stored if the polynomial goes on. */
template <typename T, typename To>
struct SmoothOn {
  const T *l, *r_from, *x;
  T        c, e, beta;
  T       *r, *z;
  To       to;

  __device__ __forceinline__ void operator()(LocalInt i, T product, T z_before) const
  {
    const T r_i = r_from[i] - product, z_i = e * z_before + c * l[i] * r_i;
    if (r) r[i] = r_i;
    if (z) z[i] = z_i;
    to(i, x[i] + beta * z_i);
  }
};

/* ----------------------------------------- transfers ------------------------------------------ */

/* b = R r on the next level, and the first step of its smoother. A group takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  Restrict(Rows<T> R, const T *__restrict__ r, const T *l, T *b, FirstStep<T> first, CMATCHSolverState solver)
{
  if (solver.Skip()) return;
  constexpr int                             kAhead = 4;
  const LocalInt                            row    = (LocalInt)(GridThread() / kTransferGroup);
  const bool                                mine   = row < R.n;
  RowAhead<T, kTransferGroup, kAhead, true> entries(R.i, R.j, R.a, mine, row, 0);
  WaitForPrevious();
  LetNextStart();
  const T sum = entries.Sum(r, [](T a, T other) { return a * other; });
  if (!mine || threadIdx.x % kTransferGroup != 0) return;
  b[row] = sum;
  if (first.x || first.z) first(row, l[row], sum);
}

/*
   The parts of b on the next level: the rank's own one, of `mine` rows, and contributions in the order of ranks. Where these are in
   another order, `order` says where each of them is.
*/
template <typename T>
struct Contributions {
  LocalInt        mine;
  const T        *own;
  const LocalInt *add_i, *order;
  const T        *added;
};

/* b on the next level, and the first step there. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize)
  AddContributions(LocalInt rows, Contributions<T> from, const T *l, T *b, FirstStep<T> first, CMATCHSolverState solver)
{
  const long long c = GridThread();
  if (solver.Skip() || c >= rows) return;
  T sum = c < from.mine ? from.own[c] : T(0);
  for (LocalInt k = from.add_i[c]; k < from.add_i[c + 1]; k++) sum += from.added[from.order ? from.order[k] : k];
  b[c] = sum;
  if (first.x || first.z) first((LocalInt)c, l[c], sum);
}

/* Four entries of a row of P at once. */
template <typename T>
struct Four;
template <>
struct Four<float> {
  using Type = float4;
};
template <>
struct Four<double> {
  using Type = double4_16a;
};

/* x = x + P e, with e as an array or a CMATCHSharedCorrection. A thread takes a row. */
template <typename T, bool OfFour, typename Correction>
__global__ void __launch_bounds__(kBlockSize)
  Prolongate(LocalInt n, LocalInt width, const LocalInt *P_j, const T *P_a, const Correction e, T *x, CMATCHSolverState solver)
{
  const long long i = GridThread();
  if (solver.Skip()) return;
  if (OfFour) {
    int4                   j{-1, -1, -1, -1};
    typename Four<T>::Type a{};
    if (i < n) {
      j = ((const int4 *)P_j)[i];
      a = ((const typename Four<T>::Type *)P_a)[i];
    }
    WaitForPrevious();
    LetNextStart();
    if (i >= n) return;
    T sum = x[i];
    if (j.x >= 0) sum += a.x * e[j.x];
    if (j.y >= 0) sum += a.y * e[j.y];
    if (j.z >= 0) sum += a.z * e[j.z];
    if (j.w >= 0) sum += a.w * e[j.w];
    x[i] = sum;
  } else {
    WaitForPrevious();
    LetNextStart();
    if (i >= n) return;
    T sum = x[i];
    for (LocalInt k = 0; k < width; k++) {
      const LocalInt j = P_j[i * width + k];
      if (j >= 0) sum += P_a[i * width + k] * e[j];
    }
    x[i] = sum;
  }
}

/* ------------------------------------------ launches ------------------------------------------ */

/* The largest magnitude of the entries of W r of this rank. */
PetscErrorCode LaunchFindLargest(CMATCHHierarchyCUDA *H, const CMATCHCaller &ends, unsigned long long *found, cudaStream_t stream)
{
  const LocalInt n = H->level[0].n;

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemsetAsync(found, 0, sizeof(*found), stream));
  if (n)
    PetscCall(LaunchEarly(false, FindLargest, PetscMin(BlocksFor(n), 4 * H->processors), kBlockSize, stream, n, ends, H->w, found));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
class Cycle {
public:
  Cycle(CMATCHHierarchyCUDA *H, const CMATCHCaller &ends, const CMATCHSolverState &solver, cudaStream_t stream) :
      H_(H), ends_(ends), solver_(solver), stream_(stream), steps_(CMATCHSmootherSteps(H->params))
  {
  }

  PetscErrorCode Run()
  {
    const CMATCHLevel &L = H_->level[0];

    PetscFunctionBegin;
    PetscCall(FindLargest());
    /* the kernel before may be the caller's, which does not know that this one could start early */
    PetscCall(LaunchEarly(false, BeginCycle<T>, BlocksFor(PetscMax(L.n, 1)), kBlockSize, stream_, L.n, ends_, H_->w, solver_,
                          (const T *)L.l, V(0).b, First(0), H_->control));
    PetscCall(Visit(0));
    if (!ended_ && L.n)
      PetscCall(LaunchEarly(Early(0), EndCycle<T>, BlocksFor(L.n), kBlockSize, stream_, L.n, (const T *)V(0).x[now_[0]], H_->w,
                            ends_, solver_, H_->control));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The largest magnitude of the entries of W r, where the cycle finds it: with NCCL it is known when the graph is launched. */
  PetscErrorCode FindLargest()
  {
    PetscFunctionBegin;
    if (H_->several && !ByNCCL()) PetscCall(FindLargestOfAll());
    else if (!H_->several && !solver_.square) PetscCall(LaunchFindLargest(&H_->control->largest));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* With NCCL: a number of about the size of W r on all ranks, which is the sum of what each of them has as its largest entry. */
  PetscErrorCode FindSize()
  {
    PetscFunctionBegin;
    if (H_->size >= 0) PetscCall(LaunchEarly(false, SetLargest, 1, 1, stream_, H_->size, H_->control));
    else {
      PetscCall(LaunchFindLargest((unsigned long long *)&H_->control->own));
      PetscCall(NCCLSum(H_->ranks.nccl, &H_->control->own, (double *)&H_->control->largest, 1, stream_));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The part of one rank alone of a hierarchy of several ranks: from what has come for its finest level to its correction there. */
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
  Operator<T> A(LocalInt l) const
  {
    const CMATCHLevel &L = H_->level[l];
    return {L.n, L.A_i, L.A_j, (const T *)L.A_a, (const T *)L.s, (const T *)L.l, nullptr};
  }
  bool Several(LocalInt l) const { return l < H_->several; }
  bool ByNCCL() const { return H_->ranks.nccl; }
  /* Kernels on several ranks follow exchanges, which do not know that a kernel could start early. */
  bool Early(LocalInt l) const { return H_->early && !Several(l); }
  bool Last(LocalInt l) const { return !Several(l) && l + 1 == H_->levels; }
  bool Passed(LocalInt l) const { return H_->level[l].transfer == CMATCH_PASSED; }
  /* The coarsest level is solved by an inverse or by iterations, not by polynomials. */
  bool Solved() const { return H_->inverse.size() > 0 || H_->iteration.size() > 0; }
  /* The polynomial of a level: that of the coarsest one, where it is no smoother, stands for its solution. */
  PolynomialSteps Steps(LocalInt l) const
  {
    return Last(l) && H_->end != CMATCH_END_DOMINATED ? PolynomialChebyshev(kCMATCHStalledDegree) : steps_;
  }
  /* A factor smooths the level, and not l. */
  bool Factored(LocalInt l) const { return H_->level[l].factor.d; }
  /* The first step of a level from zero, which the kernel that makes b does, but for a level with a factor. */
  FirstStep<T> First(LocalInt l)
  {
    now_[l] = 0;
    if ((Last(l) && Solved()) || Factored(l) || Passed(l)) return {T(0), T(0), nullptr, nullptr};
    const PolynomialSteps p = Steps(l);
    return {(T)p.c[0], (T)p.beta[0], V(l).x[0], p.degree > 1 ? V(l).z[0] : nullptr};
  }

  template <int GroupSize, int Ahead, typename Act>
  PetscErrorCode Launch(LocalInt l, const T *x, const Act &act)
  {
    PetscFunctionBegin;
    if (!Several(l)) {
      PetscCall(LaunchEarly(Early(l), ForProducts<T, GroupSize, Ahead, false, Act>,
                            BlocksFor((long long)H_->level[l].n * GroupSize), kBlockSize, stream_, A(l), x, solver_, act));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    const CMATCHLevelCUDA &of     = H_->device[l];
    T *const               ghosts = (T *)x + H_->level[l].n;
    PetscCall(CMATCHExchangeBegin(H_, l, CMATCH_HALO, x, ghosts, stream_));
    PetscCall((LaunchListed<GroupSize, Ahead>(l, of.inners, of.inner, x, act)));
    PetscCall(CMATCHExchangeEnd(H_, l, CMATCH_HALO, x, ghosts, stream_));
    PetscCall((LaunchListed<GroupSize, Ahead>(l, of.borders, of.border, x, act)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  template <int GroupSize, int Ahead, typename Act>
  PetscErrorCode LaunchListed(LocalInt l, LocalInt count, const LocalInt *rows, const T *x, const Act &act)
  {
    Operator<T> listed = A(l);

    PetscFunctionBegin;
    if (!count) PetscFunctionReturn(PETSC_SUCCESS);
    listed.n    = count;
    listed.rows = rows;
    PetscCall(LaunchEarly(false, ForProducts<T, GroupSize, Ahead, true, Act>, BlocksFor((long long)count * GroupSize), kBlockSize,
                          stream_, listed, x, solver_, act));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* The one place that chooses how many lanes take a row, by the mean row length. */
  template <typename Act>
  PetscErrorCode ForRows(LocalInt l, const T *x, const Act &act)
  {
    const double mean = (double)H_->level[l].nnz / PetscMax(H_->level[l].n, 1);

    PetscFunctionBegin;
    if (mean <= 10) PetscCall((Launch<1, 4>(l, x, act)));
    else if (mean <= 24) PetscCall((Launch<4, 4>(l, x, act)));
    else if (mean <= 64) PetscCall((Launch<8, 4>(l, x, act)));
    else PetscCall((Launch<16, 4>(l, x, act)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* x = x + S (b - A x) with the factor of a level, or from the start x = 0; to the caller with `out`. */
  PetscErrorCode SmoothByFactor(LocalInt l, const PolynomialSteps &p, bool zero, bool out)
  {
    const Vectors                 v = V(l);
    const CMATCHFactorSmoother<T> by{H_->level[l].factor,         v.b,     v.r,      v.x[now_[l]], v.z[0], v.z[1],
                                     {ends_, H_->w, H_->control}, solver_, Early(l), stream_};

    PetscFunctionBegin;
    PetscCall(by.Smooth(p, zero, out, [&](const T *r_from, const T *of) { return ForRows(l, of, StoreResidual<T>{r_from, v.r}); }));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Steps 1, 2, .. of a polynomial; r is b before the first of them if it starts from zero. To the caller with `out`. */
  PetscErrorCode SmoothOnwards(LocalInt l, const PolynomialSteps &p, const T *r, bool out)
  {
    const Vectors v = V(l);

    PetscFunctionBegin;
    for (LocalInt k = 1; k < p.degree; k++) {
      const bool on   = k + 1 < p.degree;
      T *const   x    = v.x[now_[l]];
      const auto step = [&](auto to) {
        return SmoothOn<T, decltype(to)>{(const T *)H_->level[l].l, r, x, (T)p.c[k], (T)p.e[k], (T)p.beta[k], on ? v.r : nullptr,
                                         on ? v.z[k % 2] : nullptr, to};
      };
      if (out && !on) PetscCall(ForRows(l, v.z[(k + 1) % 2], step(CMATCHToCaller<T>{ends_, H_->w, H_->control})));
      else PetscCall(ForRows(l, v.z[(k + 1) % 2], step(CMATCHToVector<T>{x})));
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
    const Vectors v    = V(l);
    const bool    on   = p.degree > 1;
    T *const      x    = v.x[now_[l]];
    const auto    step = [&](auto to) {
      return SmoothFrom<T, decltype(to)>{v.b,
                                         (const T *)H_->level[l].l,
                                         (T)p.c[0],
                                         (T)p.beta[0],
                                         on ? v.r : nullptr,
                                         on ? v.z[0] : nullptr,
                                         to};
    };

    PetscFunctionBegin;
    if (out) ended_ = true;
    if (Factored(l)) {
      PetscCall(SmoothByFactor(l, p, false, out));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (out && !on) PetscCall(ForRows(l, x, step(CMATCHToCaller<T>{ends_, H_->w, H_->control})));
    else PetscCall(ForRows(l, x, step(CMATCHToVector<T>{v.x[1 - now_[l]]})));
    now_[l] = 1 - now_[l];
    PetscCall(SmoothOnwards(l, p, v.r, out));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* A level whose b and first step are there: its x is x[now] afterwards. */
  PetscErrorCode Visit(LocalInt l)
  {
    const Vectors         v   = V(l);
    const CMATCHLevel    &L   = H_->level[l];
    const PolynomialSteps p   = Steps(l);
    const bool            out = l == 0;

    PetscFunctionBegin;
    if (Last(l)) {
      if (Solved()) PetscCall(CMATCHLaunchCoarsest(H_, v.x[0], solver_, stream_));
      else {
        PetscCall(SmoothFirst(l, p));
        if (H_->end == CMATCH_END_DOMINATED) PetscCall(SmoothAgain(l, p, out));
      }
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (Several(l)) {
      PetscCall(VisitShared(l, p, out));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    const CMATCHLevel &N = H_->level[l + 1];
    PetscCall(SmoothFirst(l, p));
    PetscCall(ForRows(l, v.x[now_[l]], StoreResidual<T>{v.b, v.r}));
    const FirstStep<T> first = First(l + 1);
    PetscCall(LaunchEarly(H_->early, Restrict<T>, BlocksFor((long long)N.n * kTransferGroup), kBlockSize, stream_,
                          Rows<T>{N.n, L.R_i, L.R_j, (const T *)L.R_a}, v.r, (const T *)N.l, V(l + 1).b, first, solver_));
    PetscCall(Visit(l + 1));
    using Array = const T *__restrict__;
    PetscCall(Correct<Array>(l, V(l + 1).x[now_[l + 1]]));
    PetscCall(SmoothAgain(l, p, out));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* x = x + P e */
  template <typename Correction>
  PetscErrorCode Correct(LocalInt l, Correction e)
  {
    const CMATCHLevel &L = H_->level[l];
    T *const           x = V(l).x[now_[l]];

    PetscFunctionBegin;
    if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
    if (L.width == 4)
      PetscCall(LaunchEarly(Early(l), Prolongate<T, true, Correction>, BlocksFor(L.n), kBlockSize, stream_, L.n, L.width, L.P_j,
                            (const T *)L.P_a, e, x, solver_));
    else
      PetscCall(LaunchEarly(Early(l), Prolongate<T, false, Correction>, BlocksFor(L.n), kBlockSize, stream_, L.n, L.width, L.P_j,
                            (const T *)L.P_a, e, x, solver_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* ------------------------------------- several ranks ---------------------------------------- */

  PetscErrorCode LaunchFindLargest(unsigned long long *found)
  {
    PetscFunctionBegin;
    PetscCall(::LaunchFindLargest(H_, ends_, found, stream_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The largest magnitude of the entries of W r of all ranks. */
  PetscErrorCode FindLargestOfAll()
  {
    double largest;

    PetscFunctionBegin;
    if (H_->size >= 0) {
      PetscCall(LaunchEarly(false, SetLargest, 1, 1, stream_, H_->size, H_->control));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(LaunchFindLargest(&H_->control->largest));
    PetscCall(SmallRead(&H_->control->largest, sizeof(largest), &largest, stream_));
    PetscCall(CMATCHReduce(H_->level[0], MPI_MAX, &largest));
    PetscCallCUDA(cudaMemcpyAsync(&H_->control->largest, &largest, sizeof(largest), cudaMemcpyHostToDevice, stream_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* R r for the aggregates from `begin` to `end` - 1. */
  PetscErrorCode RestrictSome(LocalInt l, LocalInt begin, LocalInt end, const T *r)
  {
    const CMATCHLevel &L = H_->level[l];

    PetscFunctionBegin;
    if (begin == end) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(LaunchEarly(false, Restrict<T>, BlocksFor((long long)(end - begin) * kTransferGroup), kBlockSize, stream_,
                          Rows<T>{end - begin, L.R_i + begin, L.R_j, (const T *)L.R_a}, r, nullptr,
                          (T *)H_->device[l].values + begin, FirstStep<T>{T(0), T(0), nullptr, nullptr}, solver_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* b of the next level, from the own part and contributions. */
  PetscErrorCode AddUp(LocalInt l)
  {
    const CMATCHLevelCUDA &of   = H_->device[l];
    const LocalInt         mine = H_->level[l].mine;

    PetscFunctionBegin;
    if (!of.rows) PetscFunctionReturn(PETSC_SUCCESS);
    const FirstStep<T> first = First(l + 1);
    PetscCall(LaunchEarly(false, AddContributions<T>, BlocksFor(of.rows), kBlockSize, stream_, of.rows,
                          Contributions<T>{mine, (const T *)of.values, of.add_i, of.order, (const T *)of.added},
                          (const T *)H_->level[l + 1].l, V(l + 1).b, first, solver_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The correction of the next level, where this rank has rows of it. */
  PetscErrorCode SolveNext(LocalInt l, const T **e)
  {
    PetscFunctionBegin;
    *e = nullptr;
    if (!H_->device[l].rows) PetscFunctionReturn(PETSC_SUCCESS);
    if (Several(l + 1) || ByNCCL()) { /* a graph cannot be launched while another one is captured */
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
  PetscErrorCode VisitShared(LocalInt l, const PolynomialSteps &p, bool out)
  {
    const Vectors          v  = V(l);
    const CMATCHLevel     &L  = H_->level[l];
    const CMATCHLevelCUDA &of = H_->device[l];
    T *const values = (T *)of.values, *const added = (T *)of.added;
    const T *r = v.r, *e;

    PetscFunctionBegin;
    if (!Passed(l)) {
      PetscCall(SmoothFirst(l, p));
      PetscCall(ForRows(l, v.x[now_[l]], StoreResidual<T>{v.b, v.r}));
    } else {
      r = v.b;
      PetscCallCUDA(cudaMemsetAsync(v.x[now_[l]], 0, L.n * sizeof(T), stream_));
    }
    PetscCall(RestrictSome(l, L.mine, L.coarse + L.foreign, r));
    PetscCall(CMATCHExchangeBegin(H_, l, CMATCH_DOWN, values + L.mine, added, stream_));
    PetscCall(RestrictSome(l, 0, L.mine, r));
    PetscCall(CMATCHExchangeEnd(H_, l, CMATCH_DOWN, values + L.mine, added, stream_));
    PetscCall(SolveNext(l, &e));
    PetscCall(CMATCHExchangeBegin(H_, l, CMATCH_UP, e, values + L.mine, stream_));
    PetscCall(CMATCHExchangeEnd(H_, l, CMATCH_UP, e, values + L.mine, stream_));
    PetscCall(Correct(l, CMATCHSharedCorrection<T>{L.mine, e, values}));
    if (!Passed(l)) PetscCall(SmoothAgain(l, p, out));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  CMATCHHierarchyCUDA    *H_;
  CMATCHCaller            ends_;
  const CMATCHSolverState solver_;
  cudaStream_t            stream_;
  const PolynomialSteps   steps_;
  int                     now_[kCMATCHMostLevels] = {};    /* which of x[2] has the iterate */
  bool                    ended_                  = false; /* the last step has given z to the caller */
};

PetscErrorCode LaunchCycle(CMATCHHierarchyCUDA *H, CMATCHCaller ends, const CMATCHSolverState &solver, cudaStream_t stream)
{
  PetscFunctionBegin;
  ends.row = H->row;
  if (H->nodes) {
    PetscCall(CMATCHWithPrecision(H->params.precision,
                                  [&](auto zero) { return Cycle<decltype(zero)>(H, ends, solver, stream).FindLargest(); }));
    PetscCall(CMATCHNodesLaunchCycle(H, ends, solver, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(
    CMATCHWithPrecision(H->params.precision, [&](auto zero) { return Cycle<decltype(zero)>(H, ends, solver, stream).Run(); }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CMATCHPrepareCycle(CMATCHHierarchyCUDA *H, cudaStream_t stream)
{
  Layout layout;

  PetscFunctionBegin;
  if (H->common.size()) {
    PetscCallCUDA(cudaMemcpyAsync(&H->control->scale, &H->scale, sizeof(H->scale), cudaMemcpyHostToDevice, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  layout.Place(&H->control, 1);
  layout.Place(&H->caller, 2);
  PetscCall(layout.Allocate(&H->common));
  PetscCallCUDA(cudaMemcpyAsync(&H->control->scale, &H->scale, sizeof(H->scale), cudaMemcpyHostToDevice, stream));
  PetscCall(SupportsEarlyLaunch((const void *)Restrict<float>, &H->early));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHDestroyCycle(CMATCHHierarchyCUDA *H)
{
  PetscFunctionBegin;
  if (H->graph) PetscCallCUDA(cudaGraphExecDestroy(H->graph));
  PetscCall(CMATCHDestroyExchanges(H));
  if (H->capture) PetscCallCUDA(cudaStreamDestroy(H->capture));
  H->graph   = nullptr;
  H->capture = nullptr;
  H->common.Free();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHLaunch(CMATCHHierarchy *H, const double *r, double *z, const double *square, const int *stage, int stop,
                            cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchCycle((CMATCHHierarchyCUDA *)H, CMATCHCaller{r, z, nullptr}, CMATCHSolverState{square, stage, stop}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

long CMATCHGeneration(const CMATCHHierarchy *H)
{
  return ((const CMATCHHierarchyCUDA *)H)->generation;
}

PetscErrorCode CMATCHMakeGraph_CUDA(CMATCHHierarchy *hierarchy)
{
  CMATCHHierarchyCUDA *H       = (CMATCHHierarchyCUDA *)hierarchy;
  const bool           by_host = H->several && !H->ranks.nccl;

  PetscFunctionBegin;
  if (H->graph || (!H->level[0].n && !H->several)) PetscFunctionReturn(PETSC_SUCCESS);
  if (by_host && (H->levels == H->several || !H->device[H->several - 1].rows)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CaptureGraph(
    &H->capture,
    [&](cudaStream_t stream) {
      if (!by_host) return LaunchCycle(H, CMATCHCaller{nullptr, nullptr, H->caller}, CMATCHSolverState{}, stream);
      if (H->nodes) return CMATCHNodesLaunchAlone(H, stream);
      return CMATCHWithPrecision(H->params.precision, [&](auto zero) {
        return Cycle<decltype(zero)>(H, CMATCHCaller{}, CMATCHSolverState{}, stream).RunAlone();
      });
    },
    &H->graph));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHApply_CUDA(CMATCHHierarchy *hierarchy, const PetscScalar *r, PetscScalar *z)
{
  CMATCHHierarchyCUDA *H = (CMATCHHierarchyCUDA *)hierarchy;
  cudaStream_t         stream;

  PetscFunctionBegin;
  if (!H->level[0].n && !H->several) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHMakeGraph_CUDA(H));
  PetscCall(DeviceGetStream(&stream));
  if (H->several && !H->ranks.nccl) {
    PetscCall(LaunchCycle(H, CMATCHCaller{r, z, nullptr}, CMATCHSolverState{}, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (H->several)
    PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
      return Cycle<decltype(zero)>(H, CMATCHCaller{r, z, nullptr}, CMATCHSolverState{}, stream).FindSize();
    }));
  SetEnds<<<1, 1, 0, stream>>>(H->caller, r, z);
  FinePCCheckLaunch();
  PetscCallCUDA(cudaGraphLaunch(H->graph, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
