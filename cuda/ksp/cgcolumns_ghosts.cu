/* Several right-hand sides on several GPUs: the product with the columns of the operators that other ranks own. */
#include "cgcolumns_sums.cuh"

namespace
{

/*
   What becomes of a row's sums over the columns of other ranks, `sum` for a lane's two columns, at this place of the block vectors:
   for the operator w = w + B ghosts, with the change of the sums p.w.
*/
struct AddToOperator {
  const double2 *p;
  double2       *w;

  __device__ __forceinline__ void Begin(const CGColumnsState *, int) { }
  __device__ __forceinline__ void Add(LocalInt, ptrdiff_t at, double2 sum, double2 &change) const
  {
    const double2 own = p[at];
    w[at]             = {w[at].x + sum.x, w[at].y + sum.y};
    change.x += own.x * sum.x;
    change.y += own.y * sum.y;
  }
  /* The sums that the change is one of. */
  template <int Columns>
  __device__ __forceinline__ static double *Sums(CGColumnsState *state)
  {
    return state->own.steps;
  }
};

/* t = t - a D W1 ghosts, or at the start t = t + D W1 ghosts, with the change of r.z = t.(D^-1 t) */
struct AddToFirst {
  bool          first;
  const double *d;
  double2      *t;
  double2       scale;

  __device__ __forceinline__ void Begin(const CGColumnsState *state, int pair)
  {
    scale = first ? double2{1, 1} : double2{-state->s[2 * pair].a, -state->s[2 * pair + 1].a};
  }
  __device__ __forceinline__ void Add(LocalInt row, ptrdiff_t at, double2 sum, double2 &change) const
  {
    const double  d_row = d[row], inverse = 1 / d_row;
    const double2 before = t[at], more = {scale.x * d_row * sum.x, scale.y * d_row * sum.y};
    t[at] = {before.x + more.x, before.y + more.y};
    change.x += more.x * (2 * before.x + more.x) * inverse;
    change.y += more.y * (2 * before.y + more.y) * inverse;
  }
  template <int Columns>
  __device__ __forceinline__ static double *Sums(CGColumnsState *state)
  {
    return state->own.norms;
  }
};

/* The next direction z + b p, or z at the start, where z = z + W2 ghosts, with the change of z.z */
struct AddToSecond {
  bool           first;
  const double2 *p;
  double2       *next;
  double2        b;

  __device__ __forceinline__ void Begin(const CGColumnsState *state, int pair)
  {
    if (!first) b = {state->b[2 * pair], state->b[2 * pair + 1]};
  }
  __device__ __forceinline__ void Add(LocalInt, ptrdiff_t at, double2 sum, double2 &change) const
  {
    const double2 now = next[at];
    double2       z   = now;
    if (!first) {
      const double2 along = p[at];
      z                   = {now.x - b.x * along.x, now.y - b.y * along.y};
    }
    next[at] = {now.x + sum.x, now.y + sum.y};
    change.x += sum.x * (2 * z.x + sum.x);
    change.y += sum.y * (2 * z.y + sum.y);
  }
  template <int Columns>
  __device__ __forceinline__ static double *Sums(CGColumnsState *state)
  {
    return state->own.steps + Columns;
  }
};

/*
   The row's entries begin .. end - 1 times the ghosts of the two columns that the calling lane has. Some entries' ghosts are asked
   for at once.
*/
template <int Columns, typename V>
__device__ __forceinline__ double2 MultiplyRow(const CGGhostRows &B, LocalInt begin, LocalInt end, int pair, unsigned turn)
{
  constexpr int  kAtOnce = 4;
  const V *const a       = (const V *)B.a;
  double2        sum     = {0, 0};
  for (LocalInt e = begin; e < end; e += kAtOnce) {
    double  value[kAtOnce];
    double2 ghost[kAtOnce];
    size_t  at[kAtOnce];
#pragma unroll
    for (int t = 0; t < kAtOnce; t++) {
      const LocalInt entry = min(e + t, end - 1); /* the last one stands for those that are not there */
      value[t]             = (double)a[entry];
      at[t]                = (size_t)B.j[entry] * Columns + 2 * pair;
    }
    if (B.words) {
      bool come;
      do {
        uint4 words[kAtOnce][2];
        come = true;
#pragma unroll
        for (int t = 0; t < kAtOnce; t++)
#pragma unroll
          for (int k = 0; k < 2; k++) words[t][k] = LoadWord(B.words + at[t] + k);
#pragma unroll
        for (int t = 0; t < kAtOnce; t++) {
          come     = come && MayGoOn(words[t][0], turn) && MayGoOn(words[t][1], turn);
          ghost[t] = {NumberOf(words[t][0]), NumberOf(words[t][1])};
        }
      } while (!come);
    } else {
#pragma unroll
      for (int t = 0; t < kAtOnce; t++) ghost[t] = *(const double2 *)(B.values + at[t]);
    }
#pragma unroll
    for (int t = 0; t < kAtOnce; t++)
      if (e + t < end) {
        sum.x += value[t] * ghost[t].x;
        sum.y += value[t] * ghost[t].y;
      }
  }
  return sum;
}

/* The rows that have entries times the ghosts; the Columns / 2 lanes that have a row of block vectors have a row of B. */
template <int Columns, typename V, typename Product>
__global__ void __launch_bounds__(kCGBlock) MultiplyGhosts(CGGhostRows B, Product product, double *partial, CGColumnsState *state)
{
  using L                     = ColumnLanes<Columns>;
  const int         pair      = L::Pair();
  const long long   stride    = (long long)gridDim.x * (kCGBlock / L::row);
  double2           change[1] = {{0, 0}};
  __shared__ double total[Columns];
  WaitForPrevious();
  LetNextStart();
  if (!state->running) return;
  const unsigned turn = B.words ? *state->peers.turn : 0;
  product.Begin(state, pair);
  for (long long k = GridThread() / L::row; k < B.count; k += stride) {
    const LocalInt row = B.rows[k];
    product.Add(row, (ptrdiff_t)row * L::row + pair, MultiplyRow<Columns, V>(B, B.i[row], B.i[row + 1], pair, turn), change[0]);
  }
  if (!SumColumnsLast<Columns>(change, partial, &state->ticket, total)) return;
  double *const sums = Product::template Sums<Columns>(state);
  if (threadIdx.x < Columns) sums[threadIdx.x] += total[threadIdx.x];
}

template <typename Product>
PetscErrorCode Launch_CGColumns(CGColumnsWork *work, bool early, const CGGhosts &ghosts, Product product, cudaStream_t stream)
{
  const CGGhostRows    &B       = ghosts.rows;
  const long long       threads = (long long)B.count * (work->width / 2);
  const int             blocks  = std::min(BlocksFor(threads, kCGBlock), work->processors * kCGBlocksOnChip);
  double *const         partial = work->partial.data();
  CGColumnsState *const state   = work->mailbox.state();

  PetscFunctionBegin;
  if (!B.count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CGColumnsWithWidth(work->width, [&](auto width) {
    return B.single
             ? LaunchEarly(early, MultiplyGhosts<width, float, Product>, blocks, kCGBlock, stream, B, product, partial, state)
             : LaunchEarly(early, MultiplyGhosts<width, double, Product>, blocks, kCGBlock, stream, B, product, partial, state);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CGColumnsLaunchGhosts(CGColumnsWork *work, bool early, const double *p, double *w, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Launch_CGColumns(work, early, work->ghosts, AddToOperator{(const double2 *)p, (double2 *)w}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsLaunchFirstGhosts(CGColumnsWork *work, bool early, bool first, const double *d, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Launch_CGColumns(work, early, work->ghosts1, AddToFirst{first, d, (double2 *)work->t, {}}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGColumnsLaunchSecondGhosts(CGColumnsWork *work, bool early, bool first, const double *p, double *next,
                                           cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Launch_CGColumns(work, early, work->ghosts2, AddToSecond{first, (const double2 *)p, (double2 *)next, {}}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

bool CGColumnsAreDirect(const CGColumnsWork *work)
{
  if (!work->peers) return false;
  for (const CGGhosts *ghosts : {&work->ghosts, &work->ghosts1, &work->ghosts2})
    if (ghosts->ByMessages()) return false;
  return true;
}
