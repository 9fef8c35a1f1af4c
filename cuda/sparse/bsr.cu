/*
   CUDA twin of src/sparse/bsr_host.cxx.

   A block row, with its blocks one behind the other, is a dense column-major matrix of bs rows. A group of lanes takes some of its
   columns in a step. Each lane always has the same rows of a block, so that a step reads contiguously, and a lane keeps its sums to
   the end of the row. A warp has as many groups as fit, each with a block row. The block rows of a warp are called a slice.

   Blocks of 3 and 5 in single precision have no loads of 2 or 4 numbers, and a warp looks up more lines of L1 than L1 serves in the
   time that they take from memory. There, and where it is faster for blocks of 4, a thread block first copies all of its rows into
   shared memory, in one piece if they fit.
*/
#include <climits>

#include "block.cuh"
#include "bulk.cuh"
#include "slices.cuh"
#include "sparse/bsr.h"

namespace
{

constexpr int kMultiplyBlock = 128; /* threads of a thread block of the product */
constexpr int kBlocksOnChip  = 8;   /* thread blocks that a processor is to hold at once */
constexpr int kPiecesOnChip  = 12;  /* the same where they copy pieces: some add up while others wait for theirs */
constexpr int kGeneralAhead  = 4;   /* steps that a lane loads at once in the kernel for larger blocks */

/* The same for the columns of so many right-hand sides at once, whose sums need registers. */
template <int Columns>
constexpr int BlocksOnChip()
{
  return Columns > 1 ? kBlocksOnChip / 2 : kBlocksOnChip;
}
template <int Columns>
constexpr int PiecesOnChip()
{
  return Columns > 1 ? kPiecesOnChip / 3 : kPiecesOnChip;
}

/*
   The table that says how block rows meet lanes, for each block size up to kLargestCompiled and by the mean number of blocks in
   a row. For block sizes 2 to 5 these are the shapes that took least time, or up to 5 % more than that, with means of 4, 10 and 20
   blocks a row. Rows of 7 blocks keep shapes that load all their blocks at once. The table of pieces below goes before this one.
*/
struct Shape {
  int rows;    /* rows of a block that a lane loads together: 1, 2 or 4 */
  int columns; /* columns that a group takes in a step */
  int ahead;   /* steps that are loaded at once */
  int up_to;   /* the shape is for at most so many blocks in a mean row; kAny in the last shape */
};
constexpr int   kAny                                         = INT_MAX;
constexpr int   kShapes                                      = 3;
constexpr Shape kDoubleShapes[kLargestCompiled + 1][kShapes] = {
  {},
  {{1, 1, 4, 4}, {1, 1, 8, 8}, {1, 8, 4, kAny}},
  {{2, 2, 4, 4}, {2, 4, 6, 12}, {2, 16, 4, kAny}},
  {{1, 2, 6, 4}, {1, 3, 7, 7}, {1, 5, 6, kAny}},
  {{2, 4, 5, 5}, {2, 8, 4, 48}, {2, 16, 4, kAny}},
  {{1, 2, 10, 4}, {1, 5, 7, 7}, {1, 5, 7, kAny}},
  {{2, 3, 4, 2}, {2, 10, 3, 5}, {2, 10, 3, kAny}},
  {{1, 2, 7, 2}, {1, 4, 7, 4}, {1, 4, 7, kAny}},
  {{2, 4, 4, 2}, {2, 8, 4, 4}, {2, 8, 4, kAny}},
};
constexpr Shape kSingleShapes[kLargestCompiled + 1][kShapes] = {
  {},
  {{1, 1, 4, 4}, {1, 1, 8, 8}, {1, 8, 4, kAny}},
  {{2, 2, 6, 6}, {2, 4, 6, 24}, {2, 16, 4, kAny}},
  {{1, 2, 6, 4}, {1, 3, 7, 7}, {1, 5, 6, kAny}},
  {{4, 4, 5, 5}, {4, 8, 4, 48}, {4, 16, 4, kAny}},
  {{1, 2, 10, 4}, {1, 5, 7, 7}, {1, 2, 10, kAny}},
  {{2, 3, 4, 2}, {2, 10, 3, 5}, {2, 10, 3, kAny}},
  {{1, 2, 7, 2}, {1, 4, 7, 4}, {1, 4, 7, kAny}},
  {{4, 4, 4, 2}, {4, 8, 4, 4}, {4, 16, 4, kAny}},
};

template <typename S>
__host__ __device__ constexpr Shape ShapeOf(int bs, int kind)
{
  return sizeof(S) == sizeof(float) ? kSingleShapes[bs][kind] : kDoubleShapes[bs][kind];
}

/*
   The table of the products that copy pieces into shared memory first, for GPUs that have such copies: in single precision, by
   block size and mean. With means of 4, 7, 10, 20 and 27 blocks a row they took less time than those of the tables above; blocks of
   2, and longer rows of blocks of 4, gained 1 % at most.
*/
struct Pieces {
  int share; /* groups of a warp that have a block row together; 0 where there is no such product */
  int ahead; /* blocks for which a lane loads x at once */
  int up_to; /* as in the table above */
};
constexpr int    kPieces                                      = 2;
constexpr Pieces kSinglePieces[kLargestCompiled + 1][kPieces] = {
  {},                         /* block size 0 */
  {},                         /* 1 */
  {},                         /* 2 */
  {{1, 4, 10}, {2, 5, kAny}}, /* 3 */
  {{1, 4, 7}, {2, 5, 12}},    /* 4 */
  {{1, 4, 7}, {2, 5, kAny}},  /* 5 */
};

template <typename S>
__host__ __device__ constexpr Pieces PiecesOf(int bs, int kind)
{
  return sizeof(S) == sizeof(float) ? kSinglePieces[bs][kind] : Pieces{};
}

/* The largest power of two below the number of columns; 0 for one column. A sum over columns adds at this distance first. */
__host__ __device__ constexpr int HalfOf(int columns)
{
  int half = 1;
  while (2 * half < columns) half *= 2;
  return columns > 1 ? half : 0;
}

/* Keeps the compiler from computing an address anew at each use of it, which took more instructions than the products. */
template <typename T>
__device__ __forceinline__ T *Settled(T *address)
{
  asm("" : "+l"(address));
  return address;
}

/* How a warp is divided into groups, and the place of the calling lane in its group. */
template <typename S, int BlockSize, int Kind>
struct Place {
  static constexpr Shape shape  = ShapeOf<S>(BlockSize, Kind);
  static constexpr int   lanes  = BlockSize / shape.rows;                  /* lanes of a column */
  static constexpr int   group  = lanes * shape.columns;                   /* lanes of a group */
  static constexpr int   groups = kWarpSize / group;                       /* groups of a warp: block rows of a slice */
  static constexpr bool  whole  = shape.columns % BlockSize == 0;          /* the columns of a step are whole blocks */
  static constexpr int   blocks = shape.ahead * shape.columns / BlockSize; /* blocks that are loaded at once */

  static_assert(BlockSize % shape.rows == 0 && group <= kWarpSize, "the lanes of a group are some of a warp");
  static_assert(shape.ahead * shape.columns % BlockSize == 0, "a lane is in the same column of a block at each of its loads");

  int                row;    /* in the slice */
  int                column; /* in the step */
  int                first;  /* the first row of the lane in a block */
  const PetscScalar *x;      /* the entry that belongs to the lane's column, if that were in block column 0 */

  __device__ __forceinline__ explicit Place(const PetscScalar *x_begin)
  {
    const int lane = threadIdx.x % kWarpSize;
    row            = lane / group;
    column         = lane % group / lanes;
    first          = lane % lanes * shape.rows;
    x              = Settled(x_begin + (whole ? column % BlockSize : column));
  }
  __device__ __forceinline__ bool Idle() const { return group * groups < kWarpSize && row >= groups; }

  /* The block that the lane's column of step t is in, counted from the block that a cursor points to. */
  __device__ __forceinline__ int Block(int t) const
  {
    const int before = t * shape.columns / BlockSize, rest = t * shape.columns % BlockSize;
    return whole || rest + shape.columns <= BlockSize ? before : before + (rest + column) / BlockSize;
  }
  /* The entry of x for that column, `further` entries on; j is the block column of that block. */
  __device__ __forceinline__ PetscScalar Entry(int t, LocalInt j, ptrdiff_t further) const
  {
    return __ldg(further + (whole ? x + (ptrdiff_t)j * BlockSize : x + (ptrdiff_t)(j - Block(t)) * BlockSize + t * shape.columns));
  }
};

/* The blocks of the block row that the lane has in a slice. */
struct Row {
  LocalInt begin = 0, end = 0;

  template <typename Place>
  __device__ __forceinline__ void Open(const BSR &W, LocalInt first, const Place &place)
  {
    begin = end = 0;
    if (place.Idle() || first + place.row >= W.rows) return;
    begin = W.i[first + place.row];
    end   = W.i[first + place.row + 1];
  }
};

/* How far a lane has come in its block row. */
template <typename S, int BlockSize, int Kind>
struct Cursor {
  using P = Place<S, BlockSize, Kind>;
  const S        *a;     /* the first value of the next step */
  const LocalInt *j;     /* the block column of the next step */
  int             left;  /* steps that the lane has left */
  int             steps; /* steps that some lane of the slice has left */

  __device__ __forceinline__ void Start(const BSR &W, const Row &row, const P &place)
  {
    a     = Settled((const S *)W.a + ((size_t)row.begin * BlockSize + place.column) * BlockSize + place.first);
    j     = Settled(W.j + row.begin + (P::whole ? place.column / BlockSize : 0));
    left  = ((row.end - row.begin) * BlockSize - place.column + P::shape.columns - 1) / P::shape.columns;
    steps = __reduce_max_sync(kFullWarp, left);
  }
  __device__ __forceinline__ void Advance()
  {
    a += P::shape.ahead * P::shape.columns * BlockSize;
    j += P::blocks;
    left -= P::shape.ahead;
    steps -= P::shape.ahead;
  }
};

/* The entries of the next steps of a lane. Beyond the end of its row they are zeros, for which x is not read. */
template <typename S, int BlockSize, int Kind>
struct Batch {
  using P = Place<S, BlockSize, Kind>;
  LaneNumbers<P::shape.rows, S> a[P::shape.ahead];
  LocalInt                      j[P::shape.ahead];

  __device__ __forceinline__ void Load(const Cursor<S, BlockSize, Kind> &from, const P &place)
  {
#pragma unroll
    for (int t = 0; t < P::shape.ahead; t++)
      if (t < from.left) {
        j[t] = LoadOne<true>(from.j + place.Block(t));
        a[t].template Load<P::shape.rows, true>(from.a + t * P::shape.columns * BlockSize, 0);
      } else a[t] = {};
  }

  __device__ __forceinline__ void Add(int left, const P &place, ptrdiff_t further, double *sum) const
  {
    double x[P::shape.ahead];
#pragma unroll
    for (int t = 0; t < P::shape.ahead; t++) x[t] = t < left ? place.Entry(t, j[t], further) : 0.;
#pragma unroll
    for (int t = 0; t < P::shape.ahead; t++)
#pragma unroll
      for (int r = 0; r < P::shape.rows; r++) sum[r] += (double)a[t].Get(r) * x[t];
  }
};

/*
   y = z + W x, or W x if z is null, for a block size that has kernels of its own. A warp takes every n-th slice, where n is the
   number of warps. It loads its next entries, and where the rows of the slice after that are, before it adds up the rows that are
   done. Its first entries it loads before the kernel ahead has ended, if it is launched early.

   z may be x or y, because an entry of z is read by the lane that writes the same entry of y. x is read by __ldg(), though the
   kernel ahead may have written it while this one was starting: nothing of x is read before the wait, and what the caches of a
   processor still have of it is given up when a kernel starts.

   With several columns a lane has the sums of all of them, each made as if the column were the only one.
*/
template <typename S, int BlockSize, int Kind, int Columns>
__global__ void __launch_bounds__(kMultiplyBlock, BlocksOnChip<Columns>()) MultiplyBlocks(BSR W, BSRVectors v)
{
  using P = Place<S, BlockSize, Kind>;
  const P                    place(v.x);
  Row                        row, next;
  Cursor<S, BlockSize, Kind> cursor;
  Batch<S, BlockSize, Kind>  batch;
  double                     sum[Columns][P::shape.rows];
  const LocalInt             stride = (LocalInt)gridDim.x * (kMultiplyBlock / kWarpSize) * P::groups;
  LocalInt                   slice  = (LocalInt)(GridThread() / kWarpSize) * P::groups; /* its first row */
#pragma unroll
  for (int c = 0; c < Columns; c++)
#pragma unroll
    for (int r = 0; r < P::shape.rows; r++) sum[c][r] = 0;
  row.Open(W, slice, place);
  next.Open(W, slice + stride, place);
  cursor.Start(W, row, place);
  batch.Load(cursor, place);
  WaitForPrevious();
  LetNextStart();
#pragma unroll 1
  while (slice < W.rows) {
#pragma unroll
    for (int c = 0; c < Columns; c++) batch.Add(cursor.left, place, (ptrdiff_t)c * v.ldx, sum[c]);
    cursor.Advance();
    if (cursor.steps > 0) {
      batch.Load(cursor, place);
      continue;
    }
    cursor.Start(W, next, place);
    batch.Load(cursor, place);
    const LocalInt done = slice + place.row;
    slice += stride;
    next.Open(W, slice + stride, place);
#pragma unroll
    for (int c = 0; c < Columns; c++) {
#pragma unroll
      for (int r = 0; r < P::shape.rows; r++) {
#pragma unroll
        for (int half = HalfOf(P::shape.columns); half > 0; half /= 2) {
          const double other = __shfl_down_sync(kFullWarp, sum[c][r], half * P::lanes);
          if (place.column + half < P::shape.columns) sum[c][r] += other;
        }
      }
      if (place.column == 0 && !place.Idle() && done < W.rows) {
        const ptrdiff_t          to = (ptrdiff_t)done * BlockSize + place.first;
        const PetscScalar *const z  = v.z ? v.z + (ptrdiff_t)c * v.ldz + to : nullptr;
        PetscScalar *const       y  = v.y + (ptrdiff_t)c * v.ldy + to;
#pragma unroll
        for (int r = 0; r < P::shape.rows; r++) y[r] = z ? z[r] + sum[c][r] : sum[c][r];
      }
#pragma unroll
      for (int r = 0; r < P::shape.rows; r++) sum[c][r] = 0;
    }
  }
}

/* How a warp is divided where pieces are copied: a group has as many lanes as a block has columns, and takes a block in a step. */
template <typename S, int BlockSize, int Kind>
struct PiecePlace {
  static constexpr Pieces pieces = PiecesOf<S>(BlockSize, Kind);
  static constexpr int    lanes  = BlockSize * pieces.share; /* of a block row */
  static constexpr int    rows   = kWarpSize / lanes;        /* block rows of a warp */

  int column; /* of the block, and the row of the block whose sum the lane gets in the end */
  int group;  /* of those that have the block row */
  int row;    /* block row in the warp */

  __device__ __forceinline__ PiecePlace()
  {
    const int lane = threadIdx.x % kWarpSize;
    column         = lane % BlockSize;
    group          = lane % lanes / BlockSize;
    row            = lane / lanes;
  }
  __device__ __forceinline__ bool Idle() const { return rows * lanes < kWarpSize && row >= rows; }

  /* sum[p], with an index that the compiler does not know, from registers. */
  static __device__ __forceinline__ double Pick(const double *sum, int p)
  {
    double picked = sum[0];
#pragma unroll
    for (int r = 1; r < BlockSize; r++) picked = p == r ? sum[r] : picked;
    return picked;
  }
  /* From the sums of each lane for all rows of the block, that of all columns and groups for one row. Group 0 gets it. */
  __device__ __forceinline__ double Total(const double *sum) const
  {
    const int first = (int)(threadIdx.x % kWarpSize) - column;
    double    total = Pick(sum, column);
#pragma unroll
    for (int d = 1; d < BlockSize; d++) {
      const int to   = column >= d ? column - d : column - d + BlockSize;
      const int from = column + d < BlockSize ? column + d : column + d - BlockSize;
      total += __shfl_sync(kFullWarp, Pick(sum, to), first + from);
    }
#pragma unroll
    for (int half = HalfOf(pieces.share); half > 0; half /= 2) {
      const double other = __shfl_down_sync(kFullWarp, total, half * BlockSize);
      if (group + half < pieces.share) total += other;
    }
    return total;
  }
};

/*
   Shared memory of a thread block: the barrier, columns, and values of a piece. What is copied begins and ends at whole words, so
   it may have entries of the blocks before and behind; BSRCreate() has room for them behind the last block.
*/
template <typename S, int BlockSize>
struct Piece {
  static constexpr int block = (int)sizeof(S) * BlockSize * BlockSize; /* bytes */
  static_assert(kBulkWord == kBSRWord, "what is copied beyond the last block belongs to the matrix");

  CopyBarrier *barrier;
  char        *j, *a;

  static __host__ __device__ constexpr size_t Down(size_t bytes) { return bytes / kBulkWord * kBulkWord; }
  static __host__ __device__ constexpr size_t Up(size_t bytes) { return Down(bytes + kBulkWord - 1); }
  static __host__ __device__ constexpr size_t ColumnsAt() { return Up(sizeof(CopyBarrier)); }
  static __host__ __device__ constexpr size_t ValuesAt(int room) { return ColumnsAt() + Up(room * sizeof(LocalInt)) + kBulkWord; }
  static __host__ __device__ constexpr size_t Bytes(int room) { return ValuesAt(room) + Up((size_t)room * block) + kBulkWord; }
  static constexpr int RoomIn(size_t bytes) { return (int)((bytes - ColumnsAt() - 4 * kBulkWord) / (sizeof(LocalInt) + block)); }

  __device__ __forceinline__ Piece(char *shared, int room)
  {
    barrier = (CopyBarrier *)shared;
    j       = shared + ColumnsAt();
    a       = shared + ValuesAt(room);
  }
  /* By one thread: begins the copies of `count` blocks. */
  __device__ __forceinline__ void Begin(const BSR &W, LocalInt first, int count) const
  {
    const size_t   j_first = Down(first * sizeof(LocalInt)), a_first = Down((size_t)first * block), end = (size_t)first + count;
    const unsigned j_bytes = count ? (unsigned)(Up(end * sizeof(LocalInt)) - j_first) : 0;
    const unsigned a_bytes = count ? (unsigned)(Up(end * block) - a_first) : 0;
    barrier->Announce(j_bytes + a_bytes);
    if (!count) return;
    barrier->Begin(j, (const char *)W.j + j_first, j_bytes);
    barrier->Begin(a, (const char *)W.a + a_first, a_bytes);
  }
  /* Block `first` in the copies. */
  __device__ __forceinline__ const LocalInt *Columns(LocalInt first) const
  {
    return (const LocalInt *)(j + first * sizeof(LocalInt) % kBulkWord);
  }
  __device__ __forceinline__ const S *Values(LocalInt first) const { return (const S *)(a + (size_t)first * block % kBulkWord); }
};

/*
   The same product for the shapes of kSinglePieces. A thread block has some rows and is done; processors have the copies of several
   thread blocks under way. As above, W alone is read before the kernel ahead has ended, if this one is launched early.

   A lane adds up its column of every block that its group takes, for all rows of the block; the lanes of a block row exchange these
   sums at its end. The order of the additions does not depend on where a piece ends.
*/
template <typename S, int BlockSize, int Kind, int Columns>
__global__ void __launch_bounds__(kMultiplyBlock, PiecesOnChip<Columns>()) MultiplyPieces(BSR W, BSRVectors v, int room)
{
  using P                 = PiecePlace<S, BlockSize, Kind>;
  constexpr int     share = P::pieces.share, ahead = P::pieces.ahead, rows = kMultiplyBlock / kWarpSize * P::rows;
  constexpr int     width = BlockSize % 4 ? 1 : 4; /* numbers of a load */
  extern __shared__ __align__(16) char shared[];

  const P                   place;
  const Piece<S, BlockSize> piece(shared, room);
  const LocalInt first = (LocalInt)blockIdx.x * rows, row = first + (LocalInt)threadIdx.x / kWarpSize * P::rows + place.row;
  const bool     mine                              = !place.Idle() && row < W.rows;
  const PetscScalar *const x                       = v.x + place.column;
  double                   sum[Columns][BlockSize] = {};
  LocalInt                 at                      = W.i[first];       /* the first block of the piece */
  LocalInt                 left = W.i[min(first + rows, W.rows)] - at; /* blocks of this piece and of those after it */
  if (threadIdx.x == 0) {
    piece.barrier->Init();
    piece.Begin(W, at, min(left, room));
  }
  LocalInt next = mine ? W.i[row] - at + place.group : 0; /* the next block of the lane; 0 is the first of the piece */
  LocalInt stop = mine ? W.i[row + 1] - at : 0;
  __syncthreads(); /* the barrier is there */
  WaitForPrevious();
  LetNextStart();
#pragma unroll 1
  for (unsigned parity = 0;; parity ^= 1) {
    const int       blocks = max(0, (min(stop, room) - next + share - 1) / share); /* of the piece, for the lane */
    const LocalInt *j      = piece.Columns(at) + next;
    const S        *a      = piece.Values(at) + ((ptrdiff_t)next * BlockSize + place.column) * BlockSize;
    piece.barrier->Wait(parity);
#pragma unroll 1
    for (int k = blocks; k > 0; k -= ahead) {
      double entry[ahead][Columns];
#pragma unroll
      for (int t = 0; t < ahead; t++)
#pragma unroll
        for (int c = 0; c < Columns; c++)
          entry[t][c] = t < k ? __ldg(x + (ptrdiff_t)j[t * share] * BlockSize + (ptrdiff_t)c * v.ldx) : 0.;
#pragma unroll
      for (int t = 0; t < ahead; t++)
        if (t < k) {
          LaneNumbers<BlockSize, S> value;
#pragma unroll
          for (int p = 0; p < BlockSize; p += width)
            value.template Load<width, false>(a + t * share * BlockSize * BlockSize + p, p);
#pragma unroll
          for (int c = 0; c < Columns; c++)
#pragma unroll
            for (int p = 0; p < BlockSize; p++) sum[c][p] += (double)value.Get(p) * entry[t][c];
        }
      j += ahead * share;
      a += ahead * share * BlockSize * BlockSize;
    }
    if (left <= room) break;
    __syncthreads(); /* all threads have read the piece */
    at += room;
    left -= room;
    next += blocks * share - room;
    stop -= room;
    if (threadIdx.x == 0) piece.Begin(W, at, min(left, room));
  }
#pragma unroll
  for (int c = 0; c < Columns; c++) {
    const double total = place.Total(sum[c]);
    if (mine && place.group == 0) {
      const ptrdiff_t to             = (ptrdiff_t)row * BlockSize + place.column;
      v.y[to + (ptrdiff_t)c * v.ldy] = v.z ? v.z[to + (ptrdiff_t)c * v.ldz] + total : total;
    }
  }
}

/* The same for any block size up to the size of a warp: each warp takes a block row, and as many columns in a step as fit. */
template <typename S, int Columns>
__global__ void __launch_bounds__(kMultiplyBlock) MultiplyGeneral(BSR W, BSRVectors v)
{
  const LocalInt bs = W.bs, row = (LocalInt)(GridThread() / kWarpSize);
  const int      lane = threadIdx.x % kWarpSize, columns = kWarpSize / bs, at = lane / bs, p = lane % bs;
  if (row >= W.rows) return;
  const LocalInt total = (W.i[row + 1] - W.i[row]) * bs;
  const S       *a     = (const S *)W.a + (size_t)W.i[row] * bs * bs + p;
  LocalInt       k = W.i[row], q = at; /* block, and column in the block, of the lane's next step */
  double         sum[Columns];
#pragma unroll
  for (int c = 0; c < Columns; c++) sum[c] = 0;
  for (LocalInt c = at < columns ? at : total; c < total; c += columns * kGeneralAhead) {
    S        value[kGeneralAhead];
    LocalInt column[kGeneralAhead];
#pragma unroll
    for (int t = 0; t < kGeneralAhead; t++) {
      if (c + t * columns < total) {
        value[t]  = LoadOne<true>(a + (size_t)(c + t * columns) * bs);
        column[t] = LoadOne<true>(W.j + k) * bs + q;
      }
      q += columns;
      if (q >= bs) {
        q -= bs;
        k++;
      }
    }
#pragma unroll
    for (int t = 0; t < kGeneralAhead; t++)
      if (c + t * columns < total)
#pragma unroll
        for (int k = 0; k < Columns; k++) sum[k] += (double)value[t] * v.x[(ptrdiff_t)k * v.ldx + column[t]];
  }
  __syncwarp();
  const ptrdiff_t to = (ptrdiff_t)row * bs + p;
#pragma unroll
  for (int c = 0; c < Columns; c++) {
    for (int half = HalfOf(columns); half > 0; half /= 2) {
      const double other = __shfl_down_sync(kFullWarp, sum[c], half * bs);
      if (at + half < columns) sum[c] += other;
    }
    if (at == 0) v.y[(ptrdiff_t)c * v.ldy + to] = v.z ? v.z[(ptrdiff_t)c * v.ldz + to] + sum[c] : sum[c];
  }
}

template <typename S, int BlockSize, int Kind, int Columns>
PetscErrorCode LaunchBlocks(const BSR &W, const BSRVectors &v, bool early, cudaStream_t stream)
{
  const LocalInt slices = (W.rows - 1) / Place<S, BlockSize, Kind>::groups + 1;
  int            processors;

  PetscFunctionBegin;
  PetscCall(ProcessorCount(&processors));
  const int blocks = PetscMin(BlocksFor((long long)slices * kWarpSize, kMultiplyBlock), processors * BlocksOnChip<Columns>());
  if (early) PetscCall(SupportsEarlyLaunch((const void *)MultiplyBlocks<S, BlockSize, Kind, Columns>, &early));
  PetscCall(LaunchEarly(early, MultiplyBlocks<S, BlockSize, Kind, Columns>, blocks, kMultiplyBlock, stream, W, v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The blocks for which a thread block has room: those of its rows, if these are mean rows, and a quarter more where that keeps no
   other thread block off the processor, within kMostOfPiece bytes, with which six thread blocks fit.
*/
template <typename S, int BlockSize, int Kind, int Columns>
PetscErrorCode PieceRoom(LocalInt mean, int *room)
{
  using P                       = Piece<S, BlockSize>;
  constexpr size_t kMostOfPiece = 36 * 1024, kReserved = 1024; /* bytes; each thread block costs the reserved ones beside its own */
  constexpr int    rows  = kMultiplyBlock / kWarpSize * PiecePlace<S, BlockSize, Kind>::rows;
  const int        least = (int)PetscMin((PetscInt64)PetscMax(mean, 1) * rows, P::RoomIn(kMostOfPiece));
  int              device, on_processor;

  PetscFunctionBegin;
  PetscCallCUDA(cudaGetDevice(&device));
  PetscCallCUDA(cudaDeviceGetAttribute(&on_processor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
  const size_t fit = PetscMin((size_t)PiecesOnChip<Columns>(), on_processor / (P::Bytes(least) + kReserved));
  *room = PetscMax(least, PetscMin(least + least / 4, P::RoomIn(PetscMin(kMostOfPiece, on_processor / fit - kReserved))));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Launches the product of this shape of kSinglePieces, if the mean is one of it and if the kernel has code for this GPU. */
template <typename S, int BlockSize, int Kind, int Columns>
PetscErrorCode LaunchPieces(const BSR &W, const BSRVectors &v, LocalInt mean, bool early, cudaStream_t stream, bool *launched)
{
  PetscFunctionBegin;
  if constexpr (PiecesOf<S>(BlockSize, Kind).share > 0) {
    if (!*launched && mean <= PiecesOf<S>(BlockSize, Kind).up_to) {
      constexpr auto kernel = MultiplyPieces<S, BlockSize, Kind, Columns>;
      constexpr int  rows   = kMultiplyBlock / kWarpSize * PiecePlace<S, BlockSize, Kind>::rows;
      int            room;

      PetscCall(SupportsBulkCopies((const void *)kernel, launched)); /* and so it knows to wait */
      if (!*launched) PetscFunctionReturn(PETSC_SUCCESS);
      PetscCall((PieceRoom<S, BlockSize, Kind, Columns>(mean, &room)));
      PetscCall(LaunchWith(early, false, kernel, (W.rows - 1) / rows + 1, kMultiplyBlock, Piece<S, BlockSize>::Bytes(room), stream,
                           W, v, room));
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The product by the kernel for this block size; BlockSize 0 stands for all sizes that have none of their own. */
template <typename S, int BlockSize, int Columns>
PetscErrorCode Multiply_BSR(const BSR &W, const BSRVectors &v, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  if constexpr (BlockSize == 0) {
    MultiplyGeneral<S, Columns><<<BlocksFor((long long)W.rows * kWarpSize, kMultiplyBlock), kMultiplyBlock, 0, stream>>>(W, v);
    FinePCCheckLaunch();
  } else {
    const LocalInt mean     = W.nnz / W.rows + (W.nnz % W.rows != 0);
    bool           launched = false;

    static_assert(kPieces == 2 && kShapes == 3, "one branch for each");
    PetscCall((LaunchPieces<S, BlockSize, 0, Columns>(W, v, mean, early, stream, &launched)));
    PetscCall((LaunchPieces<S, BlockSize, 1, Columns>(W, v, mean, early, stream, &launched)));
    if (launched) PetscFunctionReturn(PETSC_SUCCESS);
    if (mean <= ShapeOf<S>(BlockSize, 0).up_to) PetscCall((LaunchBlocks<S, BlockSize, 0, Columns>(W, v, early, stream)));
    else if (mean <= ShapeOf<S>(BlockSize, 1).up_to) PetscCall((LaunchBlocks<S, BlockSize, 1, Columns>(W, v, early, stream)));
    else PetscCall((LaunchBlocks<S, BlockSize, 2, Columns>(W, v, early, stream)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode BSRMultiply_CUDA(const BSR *W, LocalInt columns, const BSRVectors &v, PetscBool after_product)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCheck(W->bs <= kWarpSize, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "Blocks of size %" LocalInt_FMT
             " are not multiplied on the device, only those up to %d: use MatBindToCPU(), or a matrix type of the host",
             W->bs, kWarpSize);
  if (!W->rows) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  const auto multiply = [&](auto at_once, LocalInt c) {
    const bool early = c || after_product; /* behind the columns before, too */
    BSRVectors now   = v;

    now.x += (size_t)c * v.ldx;
    if (v.z) now.z += (size_t)c * v.ldz;
    now.y += (size_t)c * v.ldy;
    return WithBlockSize(W->bs, [&](auto size) {
      return W->precision == FINEPC_SINGLE ? Multiply_BSR<float, size, at_once>(*W, now, early, stream)
                                           : Multiply_BSR<double, size, at_once>(*W, now, early, stream);
    });
  };
  LocalInt c = 0;
  for (; c + kBSRColumns <= columns; c += kBSRColumns) PetscCall(multiply(std::integral_constant<int, kBSRColumns>(), c));
  for (; c < columns; c++) PetscCall(multiply(std::integral_constant<int, 1>(), c));
  PetscFunctionReturn(PETSC_SUCCESS);
}
