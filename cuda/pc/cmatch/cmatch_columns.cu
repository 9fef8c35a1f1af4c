/*
   CMATCH on the GPU: a cycle for several right-hand sides at once, of a hierarchy of rows or of nodes on one rank.

   The entries of a row lie side by side, kCMATCHColumns of them, and a thread has N, so that neighbouring threads, as many lanes as
   that takes, have a row of the vectors: what a cycle reads of the hierarchy it reads once for all of them. N is 4 for rows, where
   instructions would take longer than memory with 2, and 2 for nodes, whose slices would not fill warps with 4. The steps are those
   of cmatch_cycle.cu and cmatch_nodes_cycle.cu, but for the order in which a row is added up.
*/
#include "cmatch_ends.cuh"
#include "cmatch_launch.cuh"
#include "cmatch_nodes_rows.cuh"
#include "cmatch_rows.cuh"

namespace
{

template <int N>
constexpr int kLanes = kCMATCHColumns / N;

/* The entries of a row of block vectors that a thread has. */
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Some {
  T c[N];

  __device__ __forceinline__ Some &operator+=(const Some &b)
  {
#pragma unroll
    for (int k = 0; k < N; k++) c[k] += b.c[k];
    return *this;
  }
};
template <typename T, int N>
__device__ __forceinline__ Some<T, N> operator-(const Some<T, N> &a, const Some<T, N> &b)
{
  Some<T, N> r;
#pragma unroll
  for (int k = 0; k < N; k++) r.c[k] = a.c[k] - b.c[k];
  return r;
}
template <typename T, int N>
__device__ __forceinline__ Some<T, N> operator*(T a, const Some<T, N> &b)
{
  Some<T, N> r;
#pragma unroll
  for (int k = 0; k < N; k++) r.c[k] = a * b.c[k];
  return r;
}

/* The thread's place in block vectors: that of row i is At<N>(i). */
template <int N>
__device__ __forceinline__ int Lane()
{
  return (int)threadIdx.x % kLanes<N>;
}
template <int N>
__device__ __forceinline__ size_t At(size_t i)
{
  return i * kLanes<N> + Lane<N>();
}

/* ------------------------------------- begin, steps, end -------------------------------------- */

/* What the kernels share: what r is multiplied by, a power of 2 for each column, and whether no column goes on. */
struct ColumnsControl {
  double factor[kCMATCHColumns];
  int    skip;
};

/* The vectors of the caller, [n][width] with the columns of the cycle from `first` on. */
struct ColumnsCaller {
  const double         *r;
  double               *z;
  const double         *w; /* [n] or null for ones */
  LocalInt              width, first;
  const CMATCHControl  *scale;
  const ColumnsControl *control;

  template <int N>
  __device__ __forceinline__ Some<double, N> R(size_t i) const
  {
    const auto r_i = ((const Some<double, N> *)(r + i * width + first))[Lane<N>()];
    return w ? w[i] * r_i : r_i;
  }
  template <typename T, int N>
  __device__ __forceinline__ void Put(size_t i, const Some<T, N> &x) const
  {
    const double    by = (w ? w[i] : 1.) * scale->scale;
    Some<double, N> x_i;
#pragma unroll
    for (int k = 0; k < N; k++) x_i.c[k] = by * (double)x.c[k] / control->factor[N * Lane<N>() + k];
    ((Some<double, N> *)(z + i * width + first))[Lane<N>()] = x_i;
  }
};

/* M^{-1} of a level's smoother: the entries l of rows, or blocks D of nodes of k unknowns. */
template <typename T>
struct Inverse {
  const T *l, *D;
  LocalInt k;
};

/* The first step of a smoother from zero: z = c M^{-1} b, x = beta z; z is stored if the polynomial goes on. Nothing without x. */
template <typename T, int N>
struct FirstStep {
  Inverse<T>  M;
  T           c, beta;
  Some<T, N> *x, *z;

  __device__ __forceinline__ void Store(size_t at, const Some<T, N> &Mb) const
  {
    const Some<T, N> z_i = c * Mb;
    x[at]                = beta * z_i;
    if (z) z[at] = z_i;
  }
};

/*
   What is made of a product y: the residual r = r_from - y, and if the step smooths z' = e z_from + c M^{-1} r and x' = x + beta
   z', which goes to `to` or to the caller. What is null is not stored, and z_from may be null.
*/
template <typename T, int N>
struct Step {
  const Some<T, N> *r_from, *z_from, *x;
  Inverse<T>        M;
  T                 c, e, beta;
  Some<T, N>       *r, *z, *to;
  ColumnsCaller     caller;
  bool              smooths;

  /* with M^{-1} r */
  __device__ __forceinline__ void Store(size_t i, const Some<T, N> &Mr) const
  {
    const size_t at  = At<N>(i);
    Some<T, N>   z_i = c * Mr;
    if (z_from) z_i += e * z_from[at];
    if (z) z[at] = z_i;
    Some<T, N> x_i = x[at];
    x_i += beta * z_i;
    if (to) to[at] = x_i;
    else caller.Put(i, x_i);
  }
};

/* Row r of a block of D, of k unknowns, times what the threads of its node have in `part`, of which the calling one has place t. */
template <typename T, int N>
__device__ __forceinline__ Some<T, N> TimesBlock(const T *row, LocalInt k, const Some<T, N> *part, int t)
{
  const Some<T, N> *const of_node = part + (size_t)(t / kLanes<N> / k * k) * kLanes<N> + Lane<N>();
  Some<T, N>              sum{};
  for (LocalInt q = 0; q < k; q++) sum += row[q] * of_node[q * kLanes<N>];
  return sum;
}

/* b = 2^q W r, and the first step. */
template <typename T, int N>
__global__ void __launch_bounds__(kBlockSize)
  BeginColumns(LocalInt n, ColumnsCaller caller, const double *square, const int *running, Some<T, N> *b, FirstStep<T, N> first,
               ColumnsControl *control)
{
  const size_t      i = (size_t)(GridThread() / kLanes<N>);
  __shared__ double factors[kCMATCHColumns];
  WaitForPrevious();
  LetNextStart();
  const bool skip = !*running;
  if (threadIdx.x < kCMATCHColumns) {
    const double factor = factors[threadIdx.x] = CMATCHPowerFor(square[caller.first + threadIdx.x], 2);
    if (blockIdx.x == 0) control->factor[threadIdx.x] = factor;
  }
  if (GridThread() == 0) control->skip = skip;
  __syncthreads();
  if (skip || i >= (size_t)n) return;
  const auto scaled = [&](size_t j) {
    const auto r = caller.template R<N>(j);
    Some<T, N> b_j;
#pragma unroll
    for (int k = 0; k < N; k++) b_j.c[k] = (T)(r.c[k] * factors[N * Lane<N>() + k]);
    return b_j;
  };
  const auto b_i = scaled(i);
  b[At<N>(i)]    = b_i;
  if (!first.x) return;
  Some<T, N> Mb{};
  if (first.M.D)
    for (LocalInt q = 0, k = first.M.k; q < k; q++) Mb += first.M.D[i * k + q] * scaled(i / k * k + q);
  else Mb = first.M.l[i] * b_i;
  first.Store(At<N>(i), Mb);
}

/* z = scale 2^-q W x, where the last kernel does not do so: the finest level is the coarsest one */
template <typename T, int N>
__global__ void __launch_bounds__(kBlockSize)
  EndColumns(LocalInt n, const Some<T, N> *x, ColumnsCaller caller, const ColumnsControl *control)
{
  const long long i = GridThread() / kLanes<N>;
  WaitForPrevious();
  LetNextStart();
  if (!control->skip && i < n) caller.Put((size_t)i, x[At<N>(i)]);
}

/* ------------------------------------------- rows --------------------------------------------- */

/*
   The entries of a row that a thread has, where `groups` groups of lanes, a power of 2, share a row. It asks for kAhead of them
   before it uses any, for the first ones in the constructor, which comes before the wait for the kernel ahead. Behind the row
   entries are 0, in the column of the diagonal or the first one.
*/
constexpr int kAhead = 4;

template <typename T, int N>
class ColumnsRow {
public:
  LocalInt row;
  bool     mine, first; /* whether there is such a row; whether the thread is of its first group */

  __device__ __forceinline__ ColumnsRow(const Rows<T> &A, int groups, bool diagonal) :
      row((LocalInt)(GridThread() / (kLanes<N> * groups))), mine(row < A.n),
      first(mine && (int)threadIdx.x / kLanes<N> % groups == 0), A_(A), groups_(groups), none_(diagonal && mine ? row : 0),
      end_(mine ? A.i[row + 1] : 0), k_(mine ? A.i[row] + (int)threadIdx.x / kLanes<N> % groups : 0)
  {
    Load();
  }

  /* The sum of term(a, v of the column), which all threads of the row get. All lanes of the warp take part. */
  template <typename Term>
  __device__ __forceinline__ Some<T, N> Sum(const Some<T, N> *__restrict__ v, Term term)
  {
    Some<T, N> sum{};
    while (k_ < end_) {
      Some<T, N> other[kAhead];
#pragma unroll
      for (int t = 0; t < kAhead; t++) other[t] = v[At<N>(column_[t])];
#pragma unroll
      for (int t = 0; t < kAhead; t++)
        if (k_ + t * groups_ < end_) sum += term(a_[t], other[t]);
      k_ += kAhead * groups_;
      if (k_ < end_) Load();
    }
    for (int offset = kLanes<N>; offset < kLanes<N> * groups_; offset *= 2)
#pragma unroll
      for (int t = 0; t < N; t++) sum.c[t] += __shfl_xor_sync(kFullWarp, sum.c[t], offset);
    return sum;
  }

private:
  __device__ __forceinline__ void Load()
  {
#pragma unroll
    for (int t = 0; t < kAhead; t++) {
      const LocalInt at = k_ + t * groups_;
      column_[t]        = at < end_ ? A_.j[at] : none_;
      a_[t]             = at < end_ ? A_.a[at] : T(0);
    }
  }

  const Rows<T>  A_;
  const int      groups_;
  const LocalInt none_, end_;
  LocalInt       k_, column_[kAhead];
  T              a_[kAhead];
};

/* A step with y = A v, by differences. */
template <typename T, int N>
__global__ void __launch_bounds__(kBlockSize)
  MultiplyRows(Rows<T> A, int groups, const T *s, const Some<T, N> *__restrict__ v, Step<T, N> step, const ColumnsControl *control)
{
  ColumnsRow<T, N> row(A, groups, true);
  const LocalInt   i   = row.row;
  const T          s_i = row.mine ? s[i] : T(0);
  WaitForPrevious();
  LetNextStart();
  if (control->skip) return;
  const Some<T, N> own = row.mine ? v[At<N>(i)] : Some<T, N>{};
  Some<T, N>       y   = row.Sum(v, [own](T a, const Some<T, N> &other) { return a * (other - own); });
  if (!row.first) return;
  y += s_i * own;
  const Some<T, N> r = step.r_from[At<N>(i)] - y;
  if (step.r) step.r[At<N>(i)] = r;
  if (step.smooths) step.Store(i, step.M.l[i] * r);
}

/* b = R r on the next level, and the first step of its smoother. */
template <typename T, int N>
__global__ void __launch_bounds__(kBlockSize) RestrictRows(Rows<T> R, int groups, const Some<T, N> *__restrict__ r, Some<T, N> *b,
                                                           FirstStep<T, N> first, const ColumnsControl *control)
{
  ColumnsRow<T, N> row(R, groups, false);
  const LocalInt   i = row.row;
  WaitForPrevious();
  LetNextStart();
  if (control->skip) return;
  const Some<T, N> sum = row.Sum(r, [](T a, const Some<T, N> &other) { return a * other; });
  if (!row.first) return;
  b[At<N>(i)] = sum;
  if (first.x) first.Store(At<N>(i), first.M.l[i] * sum);
}

/* Entry q of a correction of `each` entries, or 0 in a place that has none, with a column below 0. */
template <typename T, int N>
__device__ __forceinline__ Some<T, N> Correction(const Some<T, N> *__restrict__ e, LocalInt column, LocalInt each, LocalInt q)
{
  const Some<T, N> found = e[At<N>((size_t)max(column, 0) * each + q)];
  return column < 0 ? Some<T, N>{} : found;
}

/* x = x + P e */
template <typename T, int N>
__global__ void __launch_bounds__(kBlockSize)
  InterpolateRows(LocalInt n, LocalInt width, const LocalInt *P_j, const T *P_a, const Some<T, N> *__restrict__ e, Some<T, N> *x,
                  const ColumnsControl *control)
{
  const long long i = GridThread() / kLanes<N>;
  WaitForPrevious();
  LetNextStart();
  if (control->skip || i >= n) return;
  Some<T, N> sum = x[At<N>(i)];
#pragma unroll 4
  for (LocalInt k = 0; k < width; k++) sum += P_a[i * width + k] * Correction(e, P_j[i * width + k], 1, 0);
  x[At<N>(i)] = sum;
}

/* ------------------------------------------- nodes -------------------------------------------- */

/* The threads of a block that takes a slice: one group, or up to so many as several groups that share the steps. */
constexpr int kMostThreads = 1024;

/* A step with y = A v. A block takes a slice. The memory that it shares is short, since the rest of it is the first-level cache. */
template <typename T, int N, int K, bool Several>
__global__ void __launch_bounds__(Several ? kMostThreads : kCMATCHSlice *kCMATCHMostModes *kLanes<N>)
  MultiplyNodes(CMATCHSlices<T> A, const Some<T, N> *__restrict__ v, Step<T, N> step, const ColumnsControl *control)
{
  constexpr int kPart = Several ? kMostThreads : kCMATCHSlice * (K ? K : kCMATCHMostModes) * kLanes<N>;
  __shared__ Some<T, N> part[kPart];
  CMATCHSliceRow<T, K>  row(A, (LocalInt)blockIdx.x, kLanes<N>);
  const LocalInt        k = K ? K : A.k;
  const size_t          u = (size_t)row.u;
  Some<T, N>            r{};
  WaitForPrevious();
  LetNextStart();
  if (control->skip) return;
  const Some<T, N> y = row.AddUp(row.template Add<Some<T, N>>([v](T a, size_t at) { return a * v[At<N>(at)]; }), part);
  if (row.mine) {
    r = step.r_from[At<N>(u)] - y;
    if (step.r) step.r[At<N>(u)] = r;
  }
  if (!step.smooths) return;
  if (row.first) part[threadIdx.x] = r; /* no other thread has read that */
  __syncthreads();
  if (row.mine) step.Store(u, TimesBlock(step.M.D + u * k, k, part, (int)threadIdx.x));
}

/* Rows of R, whose blocks are in P. */
template <typename T>
struct Transfer {
  LocalInt        n, k, m; /* n rows of R, or of P */
  const LocalInt *R_i, *R_j, *P_j;
  const T        *P_a;
};

/* b = R r on the next level, and the first step of its smoother. A block takes some nodes there, each by several groups of threads.
 */
constexpr int kRestrictGroups = 8;

template <typename T, int N, int K, int M>
__global__ void __launch_bounds__(kBlockSize) RestrictNodes(Transfer<T> R, const Some<T, N> *__restrict__ r, Some<T, N> *b,
                                                            FirstStep<T, N> first, const ColumnsControl *control)
{
  __shared__ Some<T, N> part[kBlockSize];
  const LocalInt        k = K ? K : R.k, m = M ? M : R.m;
  const int       threads = (int)blockDim.x / kRestrictGroups, group = (int)threadIdx.x / threads, t = (int)threadIdx.x % threads;
  const long long u    = ((long long)blockIdx.x * threads + t) / kLanes<N>;
  const LocalInt  node = (LocalInt)(u / m), q = (LocalInt)(u % m);
  const bool      in = node < R.n;
  Some<T, N>      sum{};
  WaitForPrevious();
  LetNextStart();
  if (control->skip) return;
  const LocalInt end = in ? R.R_i[node + 1] : 0;
#pragma unroll 4
  for (LocalInt e = in ? R.R_i[node] + group : 0; e < end; e += kRestrictGroups) {
    const LocalInt          at = R.R_j[e];
    const T *const          P  = R.P_a + (size_t)at * k * m + q;
    const Some<T, N> *const of = r + (size_t)(at / kCMATCHSlots) * k * kLanes<N> + Lane<N>();
#pragma unroll
    for (LocalInt p = 0; p < k; p++) sum += P[p * m] * of[p * kLanes<N>];
  }
  part[threadIdx.x] = sum;
  __syncthreads();
  if (group == 0) {
    for (int g = 1; g < kRestrictGroups; g++) sum += part[g * threads + t];
    if (in) b[At<N>(u)] = sum;
    part[t] = sum; /* no other thread reads what it takes the place of */
  }
  if (!first.x) return;
  __syncthreads();
  if (in && group == 0) first.Store(At<N>(u), TimesBlock(first.M.D + (size_t)u * m, m, part, t));
}

/* x = x + P e */
template <typename T, int N, int K, int M>
__global__ void __launch_bounds__(kBlockSize)
  InterpolateNodes(Transfer<T> P, const Some<T, N> *__restrict__ e, Some<T, N> *x, const ColumnsControl *control)
{
  const LocalInt  k = K ? K : P.k, m = M ? M : P.m;
  const long long u = GridThread() / kLanes<N>, i = u / k;
  WaitForPrevious();
  LetNextStart();
  if (control->skip || i >= P.n) return;
  const T *const row       = P.P_a + ((size_t)i * kCMATCHSlots * k + u % k) * m;
  const int4     columns   = ((const int4 *)P.P_j)[i];
  const LocalInt column[4] = {columns.x, columns.y, columns.z, columns.w};
  Some<T, N>     sum       = x[At<N>(u)];
#pragma unroll
  for (int s = 0; s < kCMATCHSlots; s++)
#pragma unroll
    for (LocalInt q = 0; q < m; q++) sum += row[(size_t)s * k * m + q] * Correction(e, column[s], m, q);
  x[At<N>(u)] = sum;
}

/* --------------------------------------- coarsest level --------------------------------------- */

/* x = D b. A warp takes a row. */
template <typename T, int N>
__global__ void __launch_bounds__(kBlockSize)
  MultiplyDenseColumns(LocalInt n, const double *D, const Some<T, N> *b, Some<T, N> *x, const ColumnsControl *control)
{
  const LocalInt row                 = (LocalInt)(GridThread() / kWarpSize);
  const int      lane                = (int)threadIdx.x % kWarpSize;
  double         sum[kCMATCHColumns] = {};
  WaitForPrevious();
  LetNextStart();
  if (control->skip || row >= n) return;
  for (LocalInt j = lane; j < n; j += kWarpSize) {
    const double d = D[(size_t)row * n + j];
#pragma unroll
    for (int c = 0; c < kLanes<N>; c++) {
      const Some<T, N> b_j = b[(size_t)j * kLanes<N> + c];
#pragma unroll
      for (int k = 0; k < N; k++) sum[N * c + k] += d * (double)b_j.c[k];
    }
  }
#pragma unroll
  for (double &s : sum) s = GroupSum<kWarpSize>(s);
  if (lane) return;
#pragma unroll
  for (int c = 0; c < kCMATCHColumns; c++) ((T *)x)[(size_t)row * kCMATCHColumns + c] = (T)sum[c];
}

/* ------------------------------------------ launches ------------------------------------------ */

/* The vectors of the levels, in memory of the caller; what is not needed is null. */
template <typename T, int N>
struct Vectors {
  Some<T, N> *b = nullptr, *r = nullptr, *x[2] = {}, *z[2] = {};
};

template <typename T, bool Nodes>
class ColumnsCycle {
  static constexpr int N = Nodes ? 2 : 4;

public:
  ColumnsCycle(const CMATCHHierarchyCUDA *H, Layout *layout) :
      H_(H), N_(H->nodes), steps_(N_ ? CMATCHNodesSteps(H->params) : CMATCHSmootherSteps(H->params))
  {
    layout->Place(&control_, 1);
    for (LocalInt l = 0; l < H->levels; l++) {
      const size_t   size = (size_t)H->level[l].n * kLanes<N>;
      Vectors<T, N> &v    = v_[l];
      for (Some<T, N> **array : {&v.b, &v.x[0], &v.x[1]}) layout->Place(array, size);
      if (Steps(l).degree > 1 || !Last(l)) layout->Place(&v.r, size);
      if (Steps(l).degree > 1)
        for (Some<T, N> **array : {&v.z[0], &v.z[1]}) layout->Place(array, size);
    }
  }

  PetscErrorCode Run(const CMATCHColumnsCall &call, LocalInt begin, cudaStream_t stream)
  {
    const LocalInt n = H_->level[0].n;

    PetscFunctionBegin;
    stream_ = stream;
    caller_ = {call.r, call.z, H_->w, call.width, begin, H_->control, control_};
    /* the kernel before is the caller's, which does not know that this one could start early */
    PetscCall(LaunchEarly(false, BeginColumns<T, N>, Blocks(n), kBlockSize, stream_, n, caller_, call.square, call.running, v_[0].b,
                          First(0), control_));
    PetscCall(Visit(0));
    if (!ended_)
      PetscCall(LaunchEarly(H_->early, EndColumns<T, N>, Blocks(n), kBlockSize, stream_, n, (const Some<T, N> *)v_[0].x[now_[0]],
                            caller_, (const ColumnsControl *)control_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  static int Blocks(long long rows) { return BlocksFor(rows * kLanes<N>); }
  /*
     The one place that chooses how many threads take a row: so many that a thread has `most` entries, and fewer where the rows do
     not fill the GPU.
  */
  int Groups(LocalInt rows, LocalInt entries, int most) const
  {
    constexpr int kThreads = 1024, kFew = 4; /* of a processor that has enough to do; entries */
    int           groups = 1;
    while (groups < kWarpSize / kLanes<N> &&
           (double)entries >
             (double)rows * groups * ((double)rows * kLanes<N> * groups < (double)H_->processors * kThreads ? kFew : most))
      groups *= 2;
    return groups;
  }
  bool            Last(LocalInt l) const { return l + 1 == H_->levels; }
  bool            Solved(LocalInt l) const { return Last(l) && H_->inverse.size(); }
  PolynomialSteps Steps(LocalInt l) const
  {
    return Last(l) && (N_ || H_->end != CMATCH_END_DOMINATED) ? PolynomialChebyshev(kCMATCHStalledDegree) : steps_;
  }
  Inverse<T> M(LocalInt l) const
  {
    if (N_) return {nullptr, (const T *)N_->level[l].D, N_->level[l].k};
    return {(const T *)H_->level[l].l, nullptr, 1};
  }
  FirstStep<T, N> First(LocalInt l)
  {
    now_[l] = 0;
    if (Solved(l)) return {Inverse<T>{}, T(0), T(0), nullptr, nullptr};
    const PolynomialSteps p = Steps(l);
    return {M(l), (T)p.c[0], (T)p.beta[0], v_[l].x[0], p.degree > 1 ? v_[l].z[0] : nullptr};
  }

  PetscErrorCode Multiply(LocalInt l, const Some<T, N> *v, const Step<T, N> &step)
  {
    const CMATCHLevel &L = H_->level[l];

    PetscFunctionBegin;
    if constexpr (!Nodes) {
      const int groups = Groups(L.n, L.nnz, 64);
      PetscCall(LaunchEarly(H_->early, MultiplyRows<T, N>, Blocks((long long)L.n * groups), kBlockSize, stream_,
                            Rows<T>{L.n, L.A_i, L.A_j, (const T *)L.A_a}, groups, (const T *)L.s, v, step, control_));
    } else {
      const CMATCHNodesLevel &nodes  = N_->level[l];
      const int               slices = CMATCHSliceCount(nodes.n), threads = kCMATCHSlice * nodes.k * kLanes<N>;
      int                     groups = 1;
      while (slices < 4 * H_->processors && (groups + 1) * threads <= kMostThreads &&
             8 * groups * (double)nodes.n < (double)nodes.blocks)
        groups++;
      PetscCall(CMATCHForUnknowns(nodes.k, [&](auto k) {
        return LaunchEarly(H_->early, groups > 1 ? MultiplyNodes<T, N, k, true> : MultiplyNodes<T, N, k, false>, slices,
                           groups * threads, stream_, CMATCHSlices<T>(nodes), v, step, (const ColumnsControl *)control_);
      }));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The step number `step` of a polynomial, from r; the first one is from x. To the caller with `out`. */
  PetscErrorCode Smooth(LocalInt l, const PolynomialSteps &p, LocalInt step, const Some<T, N> *r, bool out)
  {
    const Vectors<T, N> &v  = v_[l];
    const bool           on = step + 1 < p.degree;
    Some<T, N> *const    x  = v.x[now_[l]];
    const Some<T, N>    *of = step ? v.z[(step + 1) % 2] : x;
    Step<T, N>           s{r, step ? of : nullptr, x, M(l), (T)p.c[step], (T)p.e[step], (T)p.beta[step]};

    PetscFunctionBegin;
    s.r       = on ? v.r : nullptr;
    s.z       = on ? v.z[step % 2] : nullptr;
    s.to      = out && !on ? nullptr : step ? x : v.x[1 - now_[l]];
    s.caller  = caller_;
    s.smooths = true;
    PetscCall(Multiply(l, of, s));
    if (!step) now_[l] = 1 - now_[l];
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* Steps from `step` on, of which the first one has r = b. */
  PetscErrorCode SmoothOnwards(LocalInt l, const PolynomialSteps &p, LocalInt step, bool out)
  {
    const Some<T, N> *r = v_[l].b;

    PetscFunctionBegin;
    for (; step < p.degree; step++) {
      PetscCall(Smooth(l, p, step, r, out));
      r = v_[l].r;
    }
    ended_ = out;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Restrict(LocalInt l, const FirstStep<T, N> &first)
  {
    const CMATCHLevel      &L = H_->level[l];
    Some<T, N> *const       b = v_[l + 1].b;
    const Some<T, N> *const r = v_[l].r;

    PetscFunctionBegin;
    if constexpr (!Nodes) {
      const LocalInt coarse = H_->level[l + 1].n;
      const int      groups = Groups(coarse, L.P_nnz, 8);
      PetscCall(LaunchEarly(H_->early, RestrictRows<T, N>, Blocks((long long)coarse * groups), kBlockSize, stream_,
                            Rows<T>{coarse, L.R_i, L.R_j, (const T *)L.R_a}, groups, r, b, first, control_));
    } else {
      const CMATCHNodesLevel &nodes = N_->level[l];
      const int               each  = N_->m * kLanes<N>;                                  /* threads of a group of a node */
      const int               some  = PetscMax(kBlockSize / (each * kRestrictGroups), 1); /* nodes of a block */
      PetscCall(CMATCHForSizes(nodes.k, N_->m, [&](auto k, auto m) {
        return LaunchEarly(H_->early, RestrictNodes<T, N, k, m>, (nodes.coarse + some - 1) / some, some * each * kRestrictGroups,
                           stream_, TransferOf(l, nodes.coarse), r, b, first, (const ColumnsControl *)control_);
      }));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscErrorCode Interpolate(LocalInt l)
  {
    const CMATCHLevel      &L = H_->level[l];
    Some<T, N> *const       x = v_[l].x[now_[l]];
    const Some<T, N> *const e = v_[l + 1].x[now_[l + 1]];

    PetscFunctionBegin;
    if constexpr (!Nodes) {
      PetscCall(LaunchEarly(H_->early, InterpolateRows<T, N>, Blocks(L.n), kBlockSize, stream_, L.n, L.width, L.P_j,
                            (const T *)L.P_a, e, x, control_));
    } else {
      PetscCall(CMATCHForSizes(N_->level[l].k, N_->m, [&](auto k, auto m) {
        return LaunchEarly(H_->early, InterpolateNodes<T, N, k, m>, Blocks(L.n), kBlockSize, stream_, TransferOf(l, N_->level[l].n),
                           e, x, (const ColumnsControl *)control_);
      }));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  Transfer<T> TransferOf(LocalInt l, LocalInt rows) const
  {
    const CMATCHNodesLevel &L = N_->level[l];
    return {rows, L.k, N_->m, L.R_i, L.R_j, L.P_j, (const T *)L.P_a};
  }

  /* A level whose b and first step are there: its x is x[now] afterwards. */
  PetscErrorCode Visit(LocalInt l)
  {
    const Vectors<T, N>  &v   = v_[l];
    const PolynomialSteps p   = Steps(l);
    const LocalInt        n   = H_->level[l].n;
    const bool            out = l == 0;
    Step<T, N>            residual{v.b};

    PetscFunctionBegin;
    if (Solved(l)) {
      PetscCall(LaunchEarly(H_->early, MultiplyDenseColumns<T, N>, BlocksFor((long long)n * kWarpSize), kBlockSize, stream_, n,
                            H_->inverse.data(), (const Some<T, N> *)v.b, v.x[0], (const ColumnsControl *)control_));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(SmoothOnwards(l, p, 1, false));
    if (Last(l)) {
      if (!N_ && H_->end == CMATCH_END_DOMINATED) PetscCall(SmoothOnwards(l, p, 0, out));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    residual.r = v.r;
    PetscCall(Multiply(l, v.x[now_[l]], residual));
    PetscCall(Restrict(l, First(l + 1)));
    PetscCall(Visit(l + 1));
    PetscCall(Interpolate(l));
    PetscCall(SmoothOnwards(l, p, 0, out));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  const CMATCHHierarchyCUDA *H_;
  const CMATCHNodes         *N_;
  const PolynomialSteps      steps_;
  ColumnsControl            *control_ = nullptr;
  Vectors<T, N>              v_[kCMATCHMostLevels];
  ColumnsCaller              caller_{};
  cudaStream_t               stream_                 = nullptr;
  int                        now_[kCMATCHMostLevels] = {};    /* which of x[2] has the iterate */
  bool                       ended_                  = false; /* the last step has given z to the caller */
};

template <typename T, bool Nodes>
PetscErrorCode LaunchColumns(const CMATCHHierarchyCUDA *H, const CMATCHColumnsCall &call, cudaStream_t stream)
{
  PetscFunctionBegin;
  for (LocalInt first = 0; first < call.width; first += kCMATCHColumns) {
    Layout                 layout;
    ColumnsCycle<T, Nodes> cycle(H, &layout);
    layout.Bind(call.memory);
    PetscCall(cycle.Run(call, first, stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

size_t CMATCHColumnsBytes(const CMATCHHierarchy *hierarchy)
{
  const CMATCHHierarchyCUDA *H     = (const CMATCHHierarchyCUDA *)hierarchy;
  size_t                     bytes = 0;

  (void)CMATCHWithPrecision(H->params.precision, [&](auto zero) {
    Layout layout;
    (void)ColumnsCycle<decltype(zero), false>(H, &layout); /* it is the same for nodes */
    bytes = layout.bytes();
    return PETSC_SUCCESS;
  });
  return bytes;
}

PetscErrorCode CMATCHLaunchColumns(const CMATCHHierarchy *hierarchy, const CMATCHColumnsCall &call, cudaStream_t stream)
{
  const CMATCHHierarchyCUDA *H = (const CMATCHHierarchyCUDA *)hierarchy;

  PetscFunctionBegin;
  PetscCall(CMATCHWithPrecision(H->params.precision, [&](auto zero) {
    PetscFunctionBegin;
    if (H->nodes) PetscCall((LaunchColumns<decltype(zero), true>(H, call, stream)));
    else PetscCall((LaunchColumns<decltype(zero), false>(H, call, stream)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
