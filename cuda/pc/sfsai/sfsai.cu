/*
   CUDA twin of src/pc/sfsai/sfsai_host.cxx: the same pattern and values.

   What differs from the host twin:
   - Row i of B_k, (3.9), depends on row i of B_{k-1} only, so all k products of a row are one breadth-first search over columns
     <= i, by a team of threads with a hash table in shared memory; no B_p is ever stored. The table maps words, 32 columns
     each, to bit masks: grids and blocks of unknowns fill words, which makes it small and the sorting of its keys cheap. Rows
     that outgrow a table are done again with a larger one, at last by blocks with tables in global memory. Rows are first
     counted, then, once G has its memory, found again and written; what fits a pool of limited size is kept in between.
   - Systems are gathered and solved in one kernel, never written out as a batch: up to 32 by a group of lanes in registers, by
     Gauss-Jordan elimination in which the lanes that Cholesky's factorisation leaves idle solve for the row of G; larger ones
     by a block in tiles in shared memory; the largest by as many blocks as the work space has room for systems in global memory.
   - Rows are bucketed by the size of their system with a radix sort that keeps their order.
   - With a postfilter G is computed in chunks of rows, so that the unfiltered one never is in memory as a whole.
   Nothing depends on the schedule.
*/
#include <cub/cub.cuh>
#include <cuda/std/functional>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <vector>

#include "pc/sfsai/sfsai.h"
#include "buffer.cuh"
#include "sparse/dense.cuh"

namespace
{

using Count = unsigned long long;

constexpr int kWordBits = 32; /* columns of a word of the pattern's table */

/* ---------------------------------------- the pattern ----------------------------------------- */

constexpr int    kTeamBlock     = 128; /* threads of a block of which every warp takes a row */
constexpr int    kLargeTeam     = 256; /* threads of a block that takes a row */
constexpr int    kLevels        = 9;   /* sizes of work space */
constexpr int    kFirstLarge    = 3;   /* first level of whole blocks */
constexpr int    kFirstInGlobal = 4;
constexpr int    kGrowth        = 8;    /* from one size in global memory to the next */
constexpr int    kAhead         = 4;    /* columns that a lane asks for before it uses any */
constexpr int    kSampleRows    = 2048; /* rows tried first, where there are many, to see which level to start from */
constexpr int    kSampleShare   = 16;   /* at most one row in so many is sampled */
constexpr double kPoolMargin    = 1.1;  /* room in the pool over what the sample says */

struct TableSize {
  int slots; /* words, a power of two */
  int list;  /* columns */
};
constexpr TableSize kTableSizes[] = {{128, 192}, {256, 512}, {512, 1536}, {2048, 6144}, {65536, 262144}};

/* Words that a row may have: what so many threads add between the check and the count still leaves an empty slot. */
__host__ __device__ constexpr int MostWords(int slots, int threads)
{
  return slots - (slots / 4 > 2 * threads + 1 ? slots / 4 : 2 * threads + 1);
}

constexpr int      kNoWord     = INT_MAX; /* sorts behind all words */
constexpr unsigned kNotKept    = ~0u;     /* for a place in the pool */
constexpr int      kWeightBits = 63;      /* of a double that is not negative */

/*
   What a search does with the row that it has found: add its length to the tally's entries; note its length, and keep it
   where the pool has room; write it.
*/
enum PatternUse { PATTERN_SAMPLE, PATTERN_COUNT, PATTERN_WRITE };

struct PatternTally {
  Count too_large, capped, entries, pool_used;
  int   longest, longer;
};

struct IsLonger {
  PetscInt       entries;
  __device__ int operator()(PetscInt length) const { return length > entries; }
};

struct PatternTask {
  const PetscInt  *i, *j; /* A~, or the pattern that is given */
  const PetscInt  *rows;  /* work list, or null for first .. */
  PetscInt         first, items;
  PetscInt         power;
  PetscInt         max_row; /* 0: no cap */
  TableSize        size;
  size_t           work_stride; /* bytes of one team's work space */
  char            *global_work; /* where they are not in shared memory */
  int              level, next_level;
  unsigned char   *row_level; /* [n] the level that can do the row */
  PetscInt        *length;    /* [n] out, when counting */
  PetscInt        *pool;      /* [pool_size] */
  Count            pool_size;
  unsigned        *place; /* [n] in the pool, or kNotKept */
  const PetscInt  *G_i;   /* [n + 1] when writing */
  PetscInt        *G_j;   /* the entries from base on */
  PetscInt         base;
  CSRView          A; /* for the weights of a cap */
  const PetscReal *s;
  PetscReal        prefilter;
  PatternTally    *tally;
};

/* A count that the threads of a team raise together: in the registers of a warp, in shared memory for a block. */
template <int Threads>
class TeamCounter {
public:
  __device__ void Bind(int *shared) { shared_ = shared; }
  __device__ void Reset(int value) /* the team has to meet before the next use */
  {
    value_ = value;
    if (Threads > kWarpSize && threadIdx.x == 0) *shared_ = value;
  }
  /* The calling thread's number, if its predicate holds. Collective over the warp. */
  __device__ int Add(bool predicate)
  {
    const unsigned ballot = __ballot_sync(kFullWarp, predicate);
    const int      lane   = threadIdx.x % kWarpSize;
    int            at     = value_;
    if (Threads == kWarpSize) value_ += __popc(ballot);
    else if (ballot) {
      if (lane == 0) at = atomicAdd(shared_, __popc(ballot));
      at = __shfl_sync(kFullWarp, at, 0);
    }
    return at + __popc(ballot & ((1u << lane) - 1u));
  }
  __device__ int Value() const { return Threads == kWarpSize ? value_ : *(volatile int *)shared_; }

private:
  int *shared_ = nullptr;
  int  value_  = 0;
};

/* The search for one row after the other by a team of so many threads. */
template <int Threads, PatternUse Use>
class PatternSearch {
public:
  static constexpr int kCounters = 5;

  static __host__ __device__ size_t Bytes(const TableSize &size, bool weights)
  {
    const size_t bytes = (weights ? 2 * sizeof(double) * size.list : 0) + (sizeof(int) + sizeof(unsigned)) * size.slots +
                         sizeof(int) * (size.list + kCounters);
    return (bytes + sizeof(double) - 1) / sizeof(double) * sizeof(double);
  }

  __device__ PatternSearch(const PatternTask &task, char *work, int *counters) : task_(task), t_(threadIdx.x % Threads)
  {
    weight_ = (double *)work;
    key_    = (int *)(weight_ + (task.max_row ? 2 * task.size.list : 0));
    mask_   = (unsigned *)(key_ + task.size.slots);
    list_   = (int *)(mask_ + task.size.slots);
    columns_.Bind(counters);
    appended_.Bind(counters + 1);
    words_.Bind(counters + 2);
    overflow_ = counters + 3;
    place_    = (unsigned *)(counters + 4);
  }

  __device__ void Do(PetscInt row)
  {
    Begin(row);
    int  begin = 0, end = 1;
    bool too_large = false;
    for (PetscInt p = 0; p < task_.power && begin < end && !too_large; p++) {
      Expand(begin, end, p + 1 < task_.power);
      Sync();
      begin     = end;
      end       = appended_.Value();
      too_large = *(volatile int *)overflow_ || words_.Value() > MostWords(task_.size.slots, Threads);
      Sync();
    }
    const int  found = columns_.Value();
    const bool cut   = task_.max_row && found > task_.max_row;
    if (cut && found > task_.size.list) too_large = true;
    if (too_large) {
      if (t_ == 0) {
        if (Use == PATTERN_COUNT) task_.row_level[row] = (unsigned char)task_.next_level;
        atomicAdd(&task_.tally->too_large, (Count)1);
      }
    } else {
      const int length = (cut ? (int)task_.max_row : found) - 1;
      if (Use == PATTERN_SAMPLE && t_ == 0) atomicAdd(&task_.tally->entries, (Count)length);
      if (Use == PATTERN_COUNT) {
        if (t_ == 0) {
          task_.length[row]    = (PetscInt)length;
          task_.row_level[row] = (unsigned char)task_.level;
          if (cut) atomicAdd(&task_.tally->capped, (Count)1);
        }
        const unsigned place = task_.pool_size ? PlaceInPool(row, length) : kNotKept;
        if (place != kNotKept) Write(row, found, cut, task_.pool + place);
      }
      if (Use == PATTERN_WRITE) Write(row, found, cut, task_.G_j + (task_.G_i[row] - task_.base));
    }
    Sync();
  }

private:
  __device__ void Write(PetscInt row, int found, bool cut, PetscInt *out)
  {
    SortWords();
    if (cut) {
      Emit(list_, found);
      Sync();
      EmitLargest(row, found, out);
    } else Emit(out, found - 1); /* without row itself, the last one */
  }

  __device__ unsigned PlaceInPool(PetscInt row, int length)
  {
    if (t_ == 0) {
      const Count    at    = atomicAdd(&task_.tally->pool_used, (Count)length);
      const unsigned place = at + length <= task_.pool_size ? (unsigned)at : kNotKept;
      task_.place[row]     = place;
      *place_              = place;
    }
    Sync();
    return *(volatile unsigned *)place_;
  }

  __device__ static void Sync()
  {
    if (Threads == kWarpSize) __syncwarp();
    else __syncthreads();
  }

  __device__ void Begin(PetscInt row)
  {
    row_ = row;
    for (int h = t_; h < task_.size.slots; h += Threads) {
      key_[h]  = kNoWord;
      mask_[h] = 0;
    }
    columns_.Reset(1);
    appended_.Reset(1);
    words_.Reset(1);
    Sync();
    if (t_ == 0) {
      *overflow_  = 0;
      list_[0]    = (int)row;
      const int h = Hash(row / kWordBits);
      key_[h]     = (int)(row / kWordBits);
      mask_[h]    = 1u << row % kWordBits;
    }
    Sync();
  }

  __device__ unsigned Hash(int word) const { return (unsigned)word * 2654435769u >> __clz(task_.size.slots - 1); }

  /* Whether the column is new, and whether its word is. */
  __device__ bool Insert(int column, bool &new_word)
  {
    const int      word = column / kWordBits;
    const unsigned bit  = 1u << column % kWordBits;
    unsigned       h    = Hash(word);
    new_word            = false;
    while (true) {
      int key = ((volatile int *)key_)[h];
      if (key == kNoWord) {
        key      = atomicCAS(key_ + h, kNoWord, word);
        new_word = key == kNoWord;
        if (new_word) break;
      }
      if (key == word) break;
      h = (h + 1) & (unsigned)(task_.size.slots - 1);
    }
    if (((volatile unsigned *)mask_)[h] & bit) return false;
    return !(atomicOr(mask_ + h, bit) & bit);
  }

  /*
     The columns <= row of the rows of A~ in list [begin, end) join; they are listed if they are to be expanded in turn. A warp
     takes 32 rows at a time and hands out their entries evenly.
  */
  __device__ void Expand(int begin, int end, bool listed)
  {
    const int lane = t_ % kWarpSize;
    for (int base = begin + t_ - lane; base < end && !__any_sync(kFullWarp, *(volatile int *)overflow_); base += Threads) {
      PetscInt start  = 0;
      int      length = 0;
      if (base + lane < end) {
        const int source = list_[base + lane];
        start            = task_.i[source];
        length           = (int)(task_.i[source + 1] - start);
      }
      int last = length; /* entries of this row and the ones before it */
#pragma unroll
      for (int offset = 1; offset < kWarpSize; offset *= 2) {
        const int before = __shfl_up_sync(kFullWarp, last, offset);
        if (lane >= offset) last += before;
      }
      const int      all   = __shfl_sync(kFullWarp, last, kWarpSize - 1);
      const PetscInt shift = start - (last - length);
      for (int done = 0; done < all; done += kAhead * kWarpSize) {
        int column[kAhead];
#pragma unroll
        for (int a = 0; a < kAhead; a++) {
          const int k = done + a * kWarpSize + lane;
          column[a]   = INT_MAX;
          if (done + a * kWarpSize >= all) continue;
          int owner = 0; /* the first lane whose `last` is above k */
#pragma unroll
          for (int step = kWarpSize / 2; step > 0; step /= 2)
            if (__shfl_sync(kFullWarp, last, owner + step - 1) <= k) owner += step;
          const PetscInt e = k + __shfl_sync(kFullWarp, shift, owner);
          if (k < all) column[a] = (int)task_.j[e];
        }
#pragma unroll
        for (int a = 0; a < kAhead; a++)
          if (done + a * kWarpSize < all) Join(column[a], listed);
      }
    }
  }

  /* One column a lane, or INT_MAX. Collective over the warp. */
  __device__ void Join(int column, bool listed)
  {
    bool fresh = false, new_word = false;
    if (words_.Value() > MostWords(task_.size.slots, Threads)) *overflow_ = 1;
    else fresh = column <= row_ && Insert(column, new_word);
    __syncwarp();
    words_.Add(new_word);
    columns_.Add(fresh);
    if (!listed) return;
    const int at = appended_.Add(fresh);
    if (fresh && at < task_.size.list) list_[at] = column;
    else if (fresh) *overflow_ = 1;
  }

  /* The words of the table in front, ascending. */
  __device__ void SortWords()
  {
    const int words = words_.Value();
    Sync();
    words_.Reset(0);
    Sync();
    for (int base = 0; base < task_.size.slots; base += Threads) { /* slots is a multiple of Threads: whole warps */
      const int      key  = key_[base + t_];
      const unsigned mask = mask_[base + t_];
      Sync();
      const int at = words_.Add(key != kNoWord);
      if (key != kNoWord) {
        key_[at]  = key;
        mask_[at] = mask;
      }
    }
    int padded = 2;
    while (padded < words) padded *= 2;
    Sync();
    for (int k = words + t_; k < padded; k += Threads) key_[k] = kNoWord;
    for (int size = 2; size <= padded; size *= 2) /* bitonic */
      for (int stride = size / 2; stride > 0; stride /= 2) {
        Sync();
        for (int pair = t_; pair < padded / 2; pair += Threads) {
          const int a = 2 * pair - (pair & (stride - 1)), b = a + stride;
          const int key_a = key_[a], key_b = key_[b];
          if (key_a > key_b != !(a & size)) continue;
          const unsigned mask_a = mask_[a];
          key_[a]               = key_b;
          mask_[a]              = mask_[b];
          key_[b]               = key_a;
          mask_[b]              = mask_a;
        }
      }
    Sync();
  }

  /* The first `count` columns, ascending; by the team's first warp. */
  template <typename Index>
  __device__ void Emit(Index *out, int count) const
  {
    if (t_ >= kWarpSize) return;
    int written = 0;
    for (int base = 0; written < count; base += kWarpSize) {
      const int word = base + t_ < task_.size.slots ? key_[base + t_] : kNoWord;
      unsigned  mask = word != kNoWord && base + t_ < words_.Value() ? mask_[base + t_] : 0;
      int       at   = __popc(mask), all;
#pragma unroll
      for (int offset = 1; offset < kWarpSize; offset *= 2) {
        const int before = __shfl_up_sync(kFullWarp, at, offset);
        if (t_ >= offset) at += before;
      }
      all = __shfl_sync(kFullWarp, at, kWarpSize - 1);
      at += written - __popc(mask);
      for (; mask && at < count; mask &= mask - 1, at++) out[at] = (Index)(word * kWordBits + __ffs(mask) - 1);
      written += all;
    }
  }

  /* Of the columns in list_, row itself and the max_row - 1 others of the largest path weights. */
  __device__ void EmitLargest(PetscInt row, int found, PetscInt *out)
  {
    double *before = weight_, *after = weight_ + task_.size.list; /* the products */
    for (int c = t_; c < found; c += Threads) before[c] = c == found - 1;
    for (PetscInt p = 0; p < task_.power; p++) {
      Sync();
      for (int c = t_; c < found; c += Threads) after[c] = WeightedRow(list_[c], found, before);
      double *const swap = before;
      before             = after;
      after              = swap;
    }
    Sync();
    /* the least weight that stays, bit by bit: as integers, doubles that are not negative have the same order */
    const int others = found - 1, wanted = task_.max_row - 1;
    Count     least = 0;
    for (int bit = kWeightBits - 1; bit >= 0; bit--) {
      const Count tried = least | (Count)1 << bit;
      if (CountWeights(before, others, tried) >= wanted) least = tried;
    }
    int equals = wanted - CountWeights(before, others, least + 1); /* so many of that weight itself, the smaller columns */
    if (t_ >= kWarpSize) return;
    int written = 0;
    for (int base = 0; base < others; base += kWarpSize) {
      const unsigned below  = (1u << t_) - 1u;
      const Count    weight = base + t_ < others ? (Count)__double_as_longlong(before[base + t_]) : 0;
      const unsigned equal  = __ballot_sync(kFullWarp, base + t_ < others && weight == least);
      const bool     kept   = base + t_ < others && (weight > least || (weight == least && __popc(equal & below) < equals));
      const unsigned ballot = __ballot_sync(kFullWarp, kept);
      if (kept) out[written + __popc(ballot & below)] = list_[base + t_];
      written += __popc(ballot);
      equals = max(0, equals - __popc(equal));
    }
  }

  /* How many weights are at least so much, as integers. */
  __device__ int CountWeights(const double *weight, int count, Count least)
  {
    int mine = 0;
    for (int c = t_; c < count; c += Threads) mine += (Count)__double_as_longlong(weight[c]) >= least;
    mine = GroupSum<kWarpSize>(mine);
    if (Threads == kWarpSize) return mine;
    int *const sum = (int *)place_;
    Sync();
    if (t_ == 0) *sum = 0;
    Sync();
    if (t_ % kWarpSize == 0) atomicAdd(sum, mine);
    Sync();
    return *(volatile int *)sum;
  }

  /* sum over s in the pattern of |a~_cs| weight_s, in the order of row c, not contracted: as the host twin */
  __device__ double WeightedRow(int c, int found, const double *weight) const
  {
    const CSRView   &A   = task_.A;
    const PetscReal *s   = task_.s;
    double           sum = 0;
    for (PetscInt e = A.i[c]; e < A.i[c + 1] && A.j[e] <= row_; e++) {
      const int column = (int)A.j[e];
      double    a      = 1;
      if (column != c) {
        a = __dmul_rn(__dmul_rn(fabs(A.a[e]), s[c]), s[column]);
        if (task_.prefilter > 0 && !(a > task_.prefilter)) continue;
      }
      int low = 0, high = found - 1;
      while (low < high) {
        const int middle = (low + high) / 2;
        if (list_[middle] < column) low = middle + 1;
        else high = middle;
      }
      if (list_[low] == column) sum = __dadd_rn(sum, __dmul_rn(weight[low], a));
    }
    return sum;
  }

  const PatternTask   &task_;
  const int            t_;
  double              *weight_; /* [2 list] where there is a cap */
  int                 *key_;    /* [slots] */
  unsigned            *mask_;   /* [slots] */
  int                 *list_;   /* [list] columns to expand, later all columns of a row that is cut */
  int                 *overflow_;
  unsigned            *place_; /* of the row in the pool */
  TeamCounter<Threads> columns_, appended_, words_;
  PetscInt             row_ = 0;
};

template <int Threads, PatternUse Use, bool InShared>
__global__ void __launch_bounds__(Threads == kWarpSize ? kTeamBlock : Threads) SFSAIPatternRows(PatternTask task)
{
  using Search = PatternSearch<Threads, Use>;
  extern __shared__ __align__(16) char shared_work[];

  const int   team = (int)(GridThread() / Threads), teams = (int)((long long)gridDim.x * blockDim.x / Threads);
  char *const work = InShared ? shared_work + threadIdx.x / Threads * task.work_stride : task.global_work + team * task.work_stride;
  __shared__ int counters[Threads == kWarpSize ? kTeamBlock / kWarpSize : 1][Search::kCounters];
  Search         search(task, work, counters[threadIdx.x / Threads]);
  for (PetscInt item = team; item < task.items; item += teams) {
    const PetscInt row = task.rows ? task.rows[item] : task.first + item;
    if (Use == PATTERN_WRITE && (task.row_level[row] != task.level || (task.pool_size && task.place[row] != kNotKept))) continue;
    search.Do(row);
  }
}

/* Rows first .. end - 1 that are in the pool. */
template <int GroupSize>
__global__ void SFSAIGatherPattern(PetscInt first, PetscInt end, const PetscInt *pool, const unsigned *place, const PetscInt *G_i,
                                   PetscInt base, PetscInt *G_j)
{
  const PetscInt row = first + (PetscInt)(GridThread() / GroupSize);
  if (row >= end || place[row] == kNotKept) return;
  const PetscInt *const from  = pool + place[row];
  const PetscInt        begin = G_i[row], length = G_i[row + 1] - begin;
  for (PetscInt k = threadIdx.x % GroupSize; k < length; k += GroupSize) G_j[begin - base + k] = from[k];
}

/* Entries of a row of A~, the diagonal being one whatever its size; of its strictly lower triangle. */
struct Selection {
  CSRView          A;
  const PetscReal *s;
  PetscReal        prefilter;
  bool             lower;
  __device__ bool  operator()(PetscInt row, PetscInt k) const
  {
    const PetscInt column = A.j[k];
    if (lower && column >= row) return false;
    return column == row || !(prefilter > 0) || __dmul_rn(__dmul_rn(fabs(A.a[k]), s[row]), s[column]) > prefilter;
  }
};

template <int GroupSize>
__global__ void SFSAISelectCount(Selection in, PetscInt *length)
{
  const PetscInt row   = (PetscInt)(GridThread() / GroupSize);
  int            count = 0;
  if (row < in.A.n)
    for (PetscInt k = in.A.i[row] + threadIdx.x % GroupSize; k < in.A.i[row + 1]; k += GroupSize) count += in(row, k);
  count = GroupSum<GroupSize>(count);
  if (row < in.A.n && threadIdx.x % GroupSize == 0) length[row] = count;
}

/* Rows first .. end - 1, to entry i[row] - base on. */
template <int GroupSize>
__global__ void SFSAISelectWrite(Selection in, PetscInt first, PetscInt end, const PetscInt *i, PetscInt base, PetscInt *j)
{
  const PetscInt row  = first + (PetscInt)(GridThread() / GroupSize);
  const int      lane = threadIdx.x % GroupSize;
  const bool     mine = row < end;
  PetscInt       to   = mine ? i[row] - base : 0;
  const PetscInt last = mine ? in.A.i[row + 1] : 0;
  for (PetscInt k = mine ? in.A.i[row] : 0; __any_sync(kFullWarp, k < last); k += GroupSize) {
    const bool     taken  = k + lane < last && in(row, k + lane);
    const unsigned ballot = GroupBallot<GroupSize>(taken);
    if (taken) j[to + __popc(ballot & ((1u << lane) - 1u))] = in.A.j[k + lane];
    to += __popc(ballot);
  }
}

__global__ void SFSAISampleRows(PetscInt items, PetscInt rows, PetscInt *list)
{
  const long long k = GridThread();
  if (k < items) list[k] = (PetscInt)((2 * k + 1) * rows / (2 * items));
}

struct LevelIs {
  const unsigned char *row_level;
  int                  level;
  __device__ bool      operator()(PetscInt row) const { return row_level[row] == level; }
};

/* Steps 1 and 2 of the method: the rows are counted, then written wherever G has its memory. */
class Pattern {
public:
  Pattern(const CSRView &A, const CSRView *S, const PetscReal *s, const SFSAIParams &params, FSAIStats &stats, WorkMeter *meter) :
      A_(A), S_(S), s_(s), params_(params), stats_(stats), meter_(meter), work_(meter), filtered_i_(meter), filtered_j_(meter),
      tables_(meter)
  {
  }

  PetscErrorCode CountRows()
  {
    PetscFunctionBegin;
    PetscCall(PetscGetCurrentCUDAStream(&stream_));
    if (!OfLowerTriangle()) {
      PetscCall(SharedMemoryLimit(&shared_limit_));
      first_level_ = NextLevel(-1);
      PetscCall(Prefilter());
      PetscCall(Sample());
    }
    PetscCall(AllocateWork());
    if (OfLowerTriangle()) {
      SFSAISelectCount<kScanGroup><<<BlocksFor((long long)A_.n * kScanGroup), kBlockSize, 0, stream_>>>(Lower(), length_);
      FinePCCheckLaunch();
    } else PetscCall(Search());
    size_t bytes = cub_bytes_;
    PetscCallCUDA(
      cub::DeviceReduce::Reduce(cub_, bytes, length_, &tally_->entries, A_.n, ::cuda::std::plus<Count>(), (Count)0, stream_));
    PetscCallCUDA(cub::DeviceReduce::Max(cub_, bytes, length_, &tally_->longest, A_.n, stream_));
    PetscCall(ReadTally());
    stats_.capped_rows = (PetscInt)host_.capped;
    longest            = host_.longest;
    PetscCheck(
      host_.entries <= (Count)PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
      "The pattern of G has %llu entries, more than PetscInt can count: lower -pc_sfsai_power, raise -pc_sfsai_prefilter or "
      "set -pc_sfsai_max_row",
      host_.entries);
    nnz = (PetscInt)host_.entries;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* An error, which names the first, if a row has more entries than `most`, diagonal included. */
  PetscErrorCode CheckLongest(PetscInt most)
  {
    PetscFunctionBegin;
    if (longest < most) PetscFunctionReturn(PETSC_SUCCESS);
    std::vector<PetscInt> length(A_.n);
    PetscCall(ArrayCopy_CUDA(length.data(), length_, A_.n * sizeof(PetscInt), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    const auto row = std::find_if(length.begin(), length.end(), [=](PetscInt entries) { return entries >= most; });
    SETERRQ(PETSC_COMM_SELF, PETSC_ERR_SUP,
            "Row %" PetscInt_FMT " of G would have %" PetscInt_FMT " entries, and at most %" PetscInt_FMT " can be solved: %s",
            (PetscInt)(row - length.begin()), *row + 1, most, S_ ? kSFSAIRemedyPattern : kSFSAIRemedy);
  }

  /* How many rows have more entries than that, diagonal included. */
  PetscErrorCode CountLonger(PetscInt most, PetscInt *rows)
  {
    size_t     bytes  = cub_bytes_;
    const auto longer = thrust::make_transform_iterator((const PetscInt *)length_, IsLonger{most - 1});

    PetscFunctionBegin;
    PetscCallCUDA(cub::DeviceReduce::Sum(cub_, bytes, longer, &tally_->longer, A_.n, stream_));
    PetscCall(ReadTally());
    *rows = host_.longer;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  void UseScaling(const PetscReal *s) { s_ = s; } /* which has moved */

  /* G_i [n + 1] from the counts. */
  PetscErrorCode Scan(PetscInt *G_i)
  {
    size_t bytes = cub_bytes_;

    PetscFunctionBegin;
    PetscCallCUDA(cudaMemsetAsync(length_ + A_.n, 0, sizeof(PetscInt), stream_));
    PetscCallCUDA(cub::DeviceScan::ExclusiveSum(cub_, bytes, length_, G_i, A_.n + 1, stream_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Rows first .. end - 1, entry G_i[first] being G_j[0]. */
  PetscErrorCode Fill(PetscInt first, PetscInt end, const PetscInt *G_i, PetscInt base, PetscInt *G_j)
  {
    PetscFunctionBegin;
    const int blocks = BlocksFor((long long)(end - first) * kScanGroup);
    if (OfLowerTriangle()) {
      SFSAISelectWrite<kScanGroup><<<blocks, kBlockSize, 0, stream_>>>(Lower(), first, end, G_i, base, G_j);
      FinePCCheckLaunch();
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (pool_size_) {
      SFSAIGatherPattern<kScanGroup><<<blocks, kBlockSize, 0, stream_>>>(first, end, pool_, place_, G_i, base, G_j);
      FinePCCheckLaunch();
      if (host_.pool_used <= pool_size_) PetscFunctionReturn(PETSC_SUCCESS);
    }
    G_i_  = G_i;
    G_j_  = G_j;
    base_ = base;
    for (int level = first_level_; level < kLevels; level++) {
      PetscInt items = end - first;
      if (!level_rows_[level]) continue;
      if (level > first_level_) PetscCall(SelectLevel(level, first, end, &items));
      if (items) PetscCall(Run<PATTERN_WRITE>(level, level > first_level_ ? list_ : nullptr, first, items));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscInt nnz = 0, longest = 0; /* strictly lower entries, of all rows and of the longest */

private:
  bool      Filters() const { return !S_ && params_.prefilter > 0; }
  bool      Caps() const { return !S_ && params_.max_row > 0; }
  bool      OfLowerTriangle() const { return S_ || (params_.power == 1 && !Caps()); } /* nothing to search */
  Selection Lower() const { return Selection{S_ ? *S_ : A_, s_, S_ ? 0 : params_.prefilter, true}; }

  /* Lengths of all rows. */
  PetscErrorCode Search()
  {
    PetscInt items = A_.n;

    PetscFunctionBegin;
    for (int level = first_level_; items; level = NextLevel(level)) {
      PetscCheck(level < kLevels, PETSC_COMM_SELF, PETSC_ERR_PLIB, "A row of the pattern does not fit into any work space");
      const PetscInt *const rows = level > first_level_ ? list_ : nullptr;
      PetscCall(Run<PATTERN_COUNT>(level, rows, 0, items));
      PetscCall(ReadTally());
      level_rows_[level] = items - (PetscInt)host_.too_large;
      items              = (PetscInt)host_.too_large;
      if (items) PetscCall(SelectLevel(NextLevel(level), 0, A_.n, &items));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Where rows are many, the level that most of a sample of them need, to start from, and from their lengths the size of the pool.
  */
  PetscErrorCode Sample()
  {
    const PetscInt items = kSampleRows;
    Buffer<char>   work(meter_);
    Layout         layout;

    PetscFunctionBegin;
    if (A_.n / kSampleShare < items) PetscFunctionReturn(PETSC_SUCCESS);
    const size_t tally = layout.Place<PatternTally>(1), list = layout.Place<PetscInt>(items);
    PetscCall(work.Allocate(layout.bytes()));
    tally_               = (PatternTally *)(work.data() + tally);
    PetscInt *const rows = (PetscInt *)(work.data() + list);
    SFSAISampleRows<<<BlocksFor(items), kBlockSize, 0, stream_>>>(items, A_.n, rows);
    FinePCCheckLaunch();
    for (; first_level_ < kFirstInGlobal; first_level_ = NextLevel(first_level_)) {
      PetscCallCUDA(cudaMemsetAsync(tally_, 0, sizeof(*tally_), stream_));
      PetscCall(Run<PATTERN_SAMPLE>(first_level_, rows, 0, items));
      PetscCall(ReadTally());
      if (host_.too_large <= (Count)items / 2) break;
    }
    if (first_level_ == kFirstInGlobal) PetscFunctionReturn(PETSC_SUCCESS);
    const size_t wanted = (size_t)(kPoolMargin * A_.n * (double)host_.entries / (double)(items - host_.too_large)) + 1;
    pool_size_          = std::min(wanted, params_.work_limit / sizeof(PetscInt));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode AllocateWork()
  {
    size_t need;

    PetscFunctionBegin;
    PetscCallCUDA(
      cub::DeviceSelect::If(nullptr, need, thrust::counting_iterator<PetscInt>(0), list_, list_, A_.n, LevelIs{}, stream_));
    cub_bytes_ = need;
    PetscCallCUDA(
      cub::DeviceReduce::Reduce(nullptr, need, length_, &tally_->entries, A_.n, ::cuda::std::plus<Count>(), (Count)0, stream_));
    cub_bytes_ = std::max(cub_bytes_, need);
    PetscCallCUDA(cub::DeviceReduce::Max(nullptr, need, length_, &tally_->longest, A_.n, stream_));
    cub_bytes_ = std::max(cub_bytes_, need);
    PetscCallCUDA(cub::DeviceReduce::Sum(nullptr, need, thrust::make_transform_iterator((const PetscInt *)length_, IsLonger{}),
                                         &tally_->longer, A_.n, stream_));
    cub_bytes_ = std::max(cub_bytes_, need);
    PetscCallCUDA(cub::DeviceScan::ExclusiveSum(nullptr, need, length_, length_, A_.n + 1, stream_));
    cub_bytes_ = std::max(cub_bytes_, need);

    Layout       layout;
    const size_t tally = layout.Place<PatternTally>(1), length = layout.Place<PetscInt>(A_.n + 1),
                 list = layout.Place<PetscInt>(A_.n + 1), row_level = layout.Place<unsigned char>(A_.n),
                 place = layout.Place<unsigned>(A_.n), cub = layout.Place<char>(cub_bytes_),
                 pool = layout.Place<PetscInt>(pool_size_);
    PetscCall(work_.Allocate(layout.bytes()));
    tally_     = (PatternTally *)(work_.data() + tally);
    length_    = (PetscInt *)(work_.data() + length);
    list_      = (PetscInt *)(work_.data() + list);
    row_level_ = (unsigned char *)(work_.data() + row_level);
    place_     = (unsigned *)(work_.data() + place);
    pool_      = (PetscInt *)(work_.data() + pool);
    cub_       = work_.data() + cub;
    PetscCallCUDA(cudaMemsetAsync(tally_, 0, sizeof(*tally_), stream_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* i_, j_ = the pattern of A~ */
  PetscErrorCode Prefilter()
  {
    const int       blocks = BlocksFor((long long)A_.n * kScanGroup);
    const Selection in     = {A_, s_, params_.prefilter, false};
    Buffer<char>    scan(meter_);
    size_t          bytes;
    PetscInt        kept;

    PetscFunctionBegin;
    i_ = A_.i;
    j_ = A_.j;
    if (!Filters()) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(filtered_i_.Allocate(A_.n + 1));
    PetscInt *const i = filtered_i_.data();
    PetscCallCUDA(cub::DeviceScan::ExclusiveSum(nullptr, bytes, i, i, A_.n + 1, stream_));
    PetscCall(scan.Allocate(bytes));
    SFSAISelectCount<kScanGroup><<<blocks, kBlockSize, 0, stream_>>>(in, i);
    FinePCCheckLaunch();
    PetscCallCUDA(cudaMemsetAsync(i + A_.n, 0, sizeof(PetscInt), stream_));
    PetscCallCUDA(cub::DeviceScan::ExclusiveSum(scan.data(), bytes, i, i, A_.n + 1, stream_));
    PetscCall(ArrayCopy_CUDA(&kept, i + A_.n, sizeof(kept), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscCall(filtered_j_.Allocate(kept));
    SFSAISelectWrite<kScanGroup><<<blocks, kBlockSize, 0, stream_>>>(in, 0, A_.n, i, 0, filtered_j_.data());
    FinePCCheckLaunch();
    i_ = i;
    j_ = filtered_j_.data();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ReadTally()
  {
    PetscFunctionBegin;
    PetscCall(ArrayCopy_CUDA(&host_, tally_, sizeof(host_), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* list_ = the rows first .. end - 1 of a level. */
  PetscErrorCode SelectLevel(int level, PetscInt first, PetscInt end, PetscInt *items)
  {
    size_t          bytes = cub_bytes_;
    PetscInt *const count = list_ + A_.n;
    const LevelIs   is    = {row_level_, level};

    PetscFunctionBegin;
    PetscCallCUDA(
      cub::DeviceSelect::If(cub_, bytes, thrust::counting_iterator<PetscInt>(first), list_, count, end - first, is, stream_));
    PetscCall(ArrayCopy_CUDA(items, count, sizeof(PetscInt), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The next level for which a block has enough shared memory. */
  int NextLevel(int level) const
  {
    do level++;
    while (level < kFirstInGlobal && PatternSearch<kWarpSize, PATTERN_COUNT>::Bytes(Size(level), Caps()) *
                                         (level < kFirstLarge ? kTeamBlock / kWarpSize : 1) >
                                       shared_limit_);
    return level;
  }

  /* In global memory as much as A needs at last: every word and every column. */
  TableSize Size(int level) const
  {
    if (level < kFirstInGlobal) return kTableSizes[level];
    Count slots = kTableSizes[kFirstInGlobal].slots, list = kTableSizes[kFirstInGlobal].list;
    for (int l = kFirstInGlobal; l < level; l++) {
      slots *= kGrowth;
      list *= kGrowth;
    }
    int enough = 8 * kLargeTeam;
    while (MostWords(enough, kLargeTeam) < A_.n / kWordBits + 1) enough *= 2;
    return TableSize{(int)std::min<Count>(slots, enough), (int)std::min<Count>(list, std::max<PetscInt>(A_.n, 1))};
  }

  template <PatternUse Use>
  PetscErrorCode Run(int level, const PetscInt *rows, PetscInt first, PetscInt items)
  {
    PetscFunctionBegin;
    PetscCallCUDA(cudaMemsetAsync(&tally_->too_large, 0, sizeof(tally_->too_large), stream_));
    if (level < kFirstLarge) PetscCall((Launch<kWarpSize, Use, true>(level, rows, first, items)));
    else if (level < kFirstInGlobal) PetscCall((Launch<kLargeTeam, Use, true>(level, rows, first, items)));
    else PetscCall((Launch<kLargeTeam, Use, false>(level, rows, first, items)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <int Threads, PatternUse Use, bool InShared>
  PetscErrorCode Launch(int level, const PetscInt *rows, PetscInt first, PetscInt items)
  {
    constexpr int kThreads = Threads == kWarpSize ? kTeamBlock : Threads, kTeams = kThreads / Threads;
    const auto    kernel = SFSAIPatternRows<Threads, Use, InShared>;
    PatternTask   task   = {};
    int           processors, blocks_of_processor;

    PetscFunctionBegin;
    task.i                   = i_;
    task.j                   = j_;
    task.rows                = rows;
    task.first               = first;
    task.items               = items;
    task.power               = params_.power;
    task.max_row             = Caps() ? params_.max_row : 0;
    task.size                = Size(level);
    task.work_stride         = PatternSearch<Threads, Use>::Bytes(task.size, Caps());
    task.level               = level;
    task.next_level          = NextLevel(level);
    task.row_level           = row_level_;
    task.length              = length_;
    task.pool                = pool_;
    task.pool_size           = pool_size_;
    task.place               = place_;
    task.G_i                 = G_i_;
    task.G_j                 = G_j_;
    task.base                = base_;
    task.A                   = A_;
    task.s                   = s_;
    task.prefilter           = params_.prefilter;
    task.tally               = tally_;
    const size_t block_bytes = InShared ? task.work_stride * kTeams : 0;
    PetscCall(ProcessorCount(&processors));
    PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)block_bytes));
    PetscCallCUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_of_processor, kernel, kThreads, block_bytes));
    PetscInt64 blocks =
      std::min<PetscInt64>((PetscInt64)processors * std::max(1, blocks_of_processor), ((PetscInt64)items + kTeams - 1) / kTeams);
    if (!InShared) {
      blocks = std::max<PetscInt64>(1, std::min<PetscInt64>(blocks, (PetscInt64)(params_.work_limit / task.work_stride)));
      if (tables_.size() < blocks * task.work_stride) PetscCall(tables_.Allocate(blocks * task.work_stride));
      task.global_work = tables_.data();
    }
    PetscCall(PetscLogGpuTimeBegin());
    kernel<<<(int)blocks, kThreads, block_bytes, stream_>>>(task);
    FinePCCheckLaunch();
    PetscCall(PetscLogGpuTimeEnd());
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  const CSRView     &A_;
  const CSRView     *S_;
  const PetscReal   *s_;
  const SFSAIParams &params_;
  FSAIStats         &stats_;
  WorkMeter *const   meter_;
  cudaStream_t       stream_ = nullptr;
  Buffer<char>       work_; /* holds the arrays that follow */
  PatternTally      *tally_     = nullptr;
  PetscInt          *length_    = nullptr;           /* [n + 1] */
  PetscInt          *list_      = nullptr;           /* [n + 1] */
  unsigned char     *row_level_ = nullptr;           /* [n] */
  unsigned          *place_     = nullptr;           /* [n] */
  PetscInt          *pool_      = nullptr;           /* [pool_size_] rows that are kept until G has its memory */
  char              *cub_       = nullptr;           /* [cub_bytes_] */
  size_t             cub_bytes_ = 0, pool_size_ = 0; /* no pool where no sample said how large */
  Buffer<PetscInt>   filtered_i_, filtered_j_;       /* A~ */
  Buffer<char>       tables_;                        /* of rows in global memory */
  const PetscInt    *i_ = nullptr, *j_ = nullptr;
  int                first_level_  = 0;
  size_t             shared_limit_ = 0;
  const PetscInt    *G_i_          = nullptr;
  PetscInt          *G_j_ = nullptr, base_ = 0;
  PatternTally       host_                = {};
  PetscInt           level_rows_[kLevels] = {};
};

/* ----------------------------------------- the values ----------------------------------------- */

/*
   Sizes of systems, row i with its own index counted: up to 8, 16, 32 in registers; then in shared memory by blocks of more
   and more threads; the last in global memory.
*/
constexpr int kClasses = 7, kRegisterClasses = 3, kGlobalClass = kClasses - 1;
constexpr int kClassBits      = 3; /* of a sort key */
constexpr int kRegisterSize[] = {8, 16, 32};
constexpr int kSharedSize[]   = {4 * kTile, 8 * kTile}; /* of the first classes in shared memory; the last one takes what fits */
constexpr int kRegisterBlock  = 128;                    /* threads of a block of which a group takes a row */
constexpr int kGatherGroup    = 8;                      /* lanes that read a row of A for a block */
template <typename T>
constexpr int kBlocksAtOnce = sizeof(T) == sizeof(float) ? 4 : 2; /* of kSystemThreads, for which there are registers */
static_assert(kClasses <= 1 << kClassBits, "a key holds every class");

struct ClassLimits {
  int largest[kClasses];
};

/* Counters that the kernels write and the host reads. */
struct Tally {
  int   rows[kClasses], largest[kClasses]; /* of the bucketed rows: how many, and the largest system */
  Count bad_pivot, diagonal, dropped;
};

struct ValueTask {
  CSRView          A;
  const PetscReal *s;
  const PetscInt  *rows;
  PetscInt         items;
  const PetscInt  *G_i;
  PetscInt        *G_j; /* the entries from base on; the postfilter marks what it drops */
  void            *G_a;
  PetscInt         base;
  PetscReal       *d;      /* [n] diag(A) in, 1 / psi out */
  PetscInt        *length; /* [n] entries kept; null: no postfilter */
  PetscInt        *bad;    /* [n] list of rows that single precision cannot do */
  Tally           *tally;
  double           postfilter;
  bool             single;      /* precision of the values written */
  int              largest;     /* system of this launch */
  char            *global_work; /* where systems are not in shared memory */
  size_t           work_stride;
};

constexpr PetscInt kDropped = -1; /* for a column of G */

template <typename T>
constexpr T kSmallestPivot = (T)(sizeof(T) == sizeof(float) ? kFSAISmallestPivotSingle : kFSAISmallestPivotDouble);

__device__ inline void StoreValue(const ValueTask &task, PetscInt k, double value)
{
  if (task.single) ((float *)task.G_a)[k - task.base] = (float)value;
  else ((double *)task.G_a)[k - task.base] = value;
}

/*
   What is left of a row that cannot be solved: in single a place in the list of another try, in double the diagonal. By so many
   threads.
*/
template <typename T>
__device__ inline void GiveUp(const ValueTask &task, PetscInt row, int thread, int threads)
{
  if constexpr (sizeof(T) == sizeof(float)) {
    if (thread == 0) task.bad[atomicAdd(&task.tally->bad_pivot, (Count)1)] = row;
  } else {
    for (PetscInt k = task.G_i[row] + thread; k < task.G_i[row + 1]; k += threads) {
      StoreValue(task, k, 0);
      if (task.length) task.G_j[k - task.base] = kDropped;
    }
    if (thread == 0) {
      task.d[row] = 1 / task.d[row];
      if (task.length) task.length[row] = 0;
      atomicAdd(&task.tally->diagonal, (Count)1);
    }
  }
}

/* First of the ascending P[0 .. size - 1] that is not below column, or the last; size a power of two. */
template <int Size>
__device__ inline int LowerBound(const int *P, int column)
{
  int at = 0;
#pragma unroll
  for (int step = Size / 2; step > 0; step /= 2)
    if (P[at + step - 1] < column) at += step;
  return at;
}

/*
   A group of N lanes a row. The system stands at the end of N places, the identity before it: place N - 1 is row i itself.
   Only the lower triangle of A[P, P] is read, S A S without its unit diagonal is kept whole in shared memory.
*/
template <typename T, int N>
struct GroupWork {
  double s[N], g[N];
  T      S[N][N], column[2 * N];
  int    P[N];
};

template <typename T, int N>
__global__ void __launch_bounds__(kRegisterBlock) SFSAISolveInRegisters(ValueTask task)
{
  extern __shared__ __align__(16) char shared_work[];

  GroupWork<T, N> &work  = ((GroupWork<T, N> *)shared_work)[threadIdx.x / N];
  const long long  item  = GridThread() / N;
  const int        lane  = threadIdx.x % N;
  const bool       mine  = item < task.items;
  const PetscInt   row   = mine ? task.rows[item] : 0;
  const PetscInt   start = mine ? task.G_i[row] : 0;
  const int        size = mine ? (int)(task.G_i[row + 1] - start) + 1 : 1, first = N - size; /* first place that is used */
  const bool       used  = mine && lane >= first;
  const PetscInt   place = start - task.base + lane - first; /* of the lane's entry of G */
  const int        q     = lane == N - 1 ? (int)row : used ? (int)task.G_j[place] : -1;
  const double     s_q   = used ? task.s[q] : 0;
  work.P[lane]           = q;
  work.s[lane]           = s_q;
#pragma unroll
  for (int c = 0; c < N; c++) work.S[c][lane] = 0;
  __syncwarp();

  /* gather */
  if (used)
    for (PetscInt k = task.A.i[q]; k < task.A.i[q + 1]; k++) {
      const int column = (int)task.A.j[k];
      if (column >= q) break;
      const int c = LowerBound<N>(work.P, column);
      if (work.P[c] != column) continue;
      const T value   = (T)(task.A.a[k] * s_q * work.s[c]);
      work.S[lane][c] = value;
      work.S[c][lane] = value;
    }
  __syncwarp();

  T a[N], inverse;
#pragma unroll
  for (int c = 0; c < N; c++) a[c] = c == lane ? T(1) : work.S[c][lane];
  const int    begin  = N == kWarpSize ? first : GroupMin<kWarpSize>(first);
  const int    bad    = Eliminate<N, false>(a, work.column, begin, kSmallestPivot<T>, inverse);
  double       g      = lane == N - 1 ? 1. : used ? (double)(-a[N - 1] * inverse) : 0.;
  const double own    = g * s_q; /* entry of the unscaled row, times s_i */
  bool         failed = bad < N || !isfinite((float)(own / work.s[N - 1]));

  if (task.postfilter > 0) { /* (3.11) */
    const double norm = sqrt(GroupSum<N>(own * own));
    if (lane != N - 1 && fabs(own) <= task.postfilter * norm) g = 0;
  }
  work.g[lane] = g;
  __syncwarp();
  /* psi = g~ A g~^T of the g that is kept: (3.13), and whatever the rounding before, diag(G A G^T) = 1 */
  double sum = g;
  for (int c = begin; c < N; c++) sum += (double)work.S[c][lane] * work.g[c];
  const double psi      = GroupSum<N>(g * sum);
  failed                = failed || !(psi > kSmallestPivot<T>);
  failed                = GroupBallot<N>(failed);
  const bool     kept   = used && lane != N - 1 && !(task.length && g == 0);
  const unsigned ballot = GroupBallot<N>(kept);
  if (!mine) return;
  if (failed) {
    GiveUp<T>(task, row, lane, N);
    return;
  }
  if (used && lane != N - 1) {
    StoreValue(task, place + task.base, own / work.s[N - 1]);
    if (!kept) task.G_j[place] = kDropped;
  }
  if (lane == 0) {
    task.d[row] = 1 / (task.d[row] * psi);
    if (task.length) {
      task.length[row] = __popc(ballot);
      if (__popc(ballot) < size - 1) atomicAdd(&task.tally->dropped, (Count)(size - 1 - __popc(ballot)));
    }
  }
}

/* A block a row, or one after the other where the systems are in global memory; the system's last index is row i itself. */
template <typename T, bool InShared>
class BlockRow {
public:
  using Cholesky = BlockCholesky<T, InShared>;

  static size_t SharedBytes(int n)
  {
    const int padded = Cholesky::Tiles(n) * kTile;
    return Padded(Cholesky::SharedBytes(n)) + Padded(padded * sizeof(T)) + Padded(n * sizeof(int)) + kSums * sizeof(double);
  }

  __device__ BlockRow(const ValueTask &task, PetscInt row, char *shared, T *global) :
      task_(task), row_(row), n_((int)(task.G_i[row + 1] - task.G_i[row]) + 1), start_(task.G_i[row]), cholesky_(shared, n_, global)
  {
    y_   = (T *)(shared + Padded(Cholesky::SharedBytes(n_)));
    P_   = (int *)((char *)y_ + Padded(Cholesky::Tiles(n_) * kTile * sizeof(T)));
    sum_ = (double *)((char *)P_ + Padded(n_ * sizeof(int)));
  }

  __device__ void Do()
  {
    const PetscReal *s = task_.s;
    for (int r = threadIdx.x; r < n_; r += blockDim.x) P_[r] = r == n_ - 1 ? (int)row_ : (int)task_.G_j[start_ - task_.base + r];
    cholesky_.Clear();
    ForEachEntry([&](int r, int c, T value) { cholesky_.Set(r, c, value); });
    __syncthreads();
    const int bad = cholesky_.Factorize(kSmallestPivot<T>); /* of which psi is the last but for its square root */
    if (bad != INT_MAX) {
      GiveUp<T>(task_, row_, threadIdx.x, blockDim.x);
      return;
    }
    /* L^T g~ = l_nn e_n, by (3.6) and (3.7) */
    for (int r = threadIdx.x; r < Cholesky::Tiles(n_) * kTile; r += blockDim.x) y_[r] = r == n_ - 1 ? cholesky_.Get(r, r) : T(0);
    cholesky_.SolveTransposed(y_);
    if (threadIdx.x == 0) y_[n_ - 1] = 1;
    __syncthreads();

    const double s_row  = s[row_];
    double       norm   = 0;
    int          finite = 1;
    for (int r = threadIdx.x; r < n_; r += blockDim.x) {
      const double own = y_[r] * s[P_[r]];
      norm += own * own;
      finite = finite && isfinite((float)(own / s_row));
    }
    finite = __syncthreads_and(finite);
    if (task_.postfilter > 0) { /* (3.11) */
      norm = task_.postfilter * sqrt(BlockSum(norm));
      for (int r = threadIdx.x; r < n_ - 1; r += blockDim.x)
        if (fabs(y_[r] * s[P_[r]]) <= norm) y_[r] = 0;
      __syncthreads();
    }
    double part = 0; /* of psi, as in SFSAISolveInRegisters */
    for (int r = threadIdx.x; r < n_; r += blockDim.x) part += (double)y_[r] * y_[r];
    ForEachEntry([&](int r, int c, T value) { part += 2 * (double)value * y_[r] * y_[c]; });
    const double psi = BlockSum(part);
    if (!finite || !(psi > kSmallestPivot<T>)) {
      GiveUp<T>(task_, row_, threadIdx.x, blockDim.x);
      return;
    }
    int kept = 0;
    for (int base = 0; base < n_ - 1; base += blockDim.x) {
      const int  r    = base + threadIdx.x;
      const bool used = r < n_ - 1, drop = used && task_.length && y_[r] == 0;
      if (used) StoreValue(task_, start_ + r, y_[r] * s[P_[r]] / s_row);
      if (drop) task_.G_j[start_ - task_.base + r] = kDropped;
      kept += __syncthreads_count(used && !drop);
    }
    if (threadIdx.x == 0) {
      task_.d[row_] = 1 / (task_.d[row_] * psi);
      if (task_.length) {
        task_.length[row_] = kept;
        atomicAdd(&task_.tally->dropped, (Count)(n_ - 1 - kept));
      }
    }
  }

private:
  static constexpr int              kSums = 32; /* warps of a block, at most */
  static __host__ __device__ size_t Padded(size_t bytes) { return (bytes + 15) / 16 * 16; }

  /* Entries (r, c), c < r, of S A S over P, by groups of lanes. */
  template <typename Use>
  __device__ void ForEachEntry(Use use) const
  {
    for (int r = threadIdx.x / kGatherGroup; r < n_; r += blockDim.x / kGatherGroup) {
      const int    q   = P_[r];
      const double s_q = task_.s[q];
      for (PetscInt k = task_.A.i[q] + threadIdx.x % kGatherGroup; k < task_.A.i[q + 1]; k += kGatherGroup) {
        const int column = (int)task_.A.j[k];
        if (column >= q) break;
        int low = 0, high = r;
        while (low < high) {
          const int middle = (low + high) / 2;
          if (P_[middle] < column) low = middle + 1;
          else high = middle;
        }
        if (P_[low] == column) use(r, low, (T)(task_.A.a[k] * s_q * task_.s[column]));
      }
    }
  }

  __device__ double BlockSum(double x)
  {
    x = GroupSum<kWarpSize>(x);
    if (threadIdx.x % kWarpSize == 0) sum_[threadIdx.x / kWarpSize] = x;
    __syncthreads();
    double sum = 0;
    for (unsigned w = 0; w < blockDim.x / kWarpSize; w++) sum += sum_[w];
    __syncthreads();
    return sum;
  }

  const ValueTask &task_;
  const PetscInt   row_;
  const int        n_;
  const PetscInt   start_;
  Cholesky         cholesky_;
  T               *y_;
  int             *P_;
  double          *sum_;
};

template <typename T, bool InShared>
__global__ void __launch_bounds__(kSystemThreads, kBlocksAtOnce<T>) SFSAISolveInBlocks(ValueTask task)
{
  extern __shared__ __align__(16) char shared_work[];

  for (PetscInt item = blockIdx.x; item < task.items; item += gridDim.x) {
    BlockRow<T, InShared>(task, task.rows[item], shared_work, (T *)(task.global_work + blockIdx.x * task.work_stride)).Do();
    __syncthreads();
  }
}

/* Sort keys: the class of each row. */
__global__ void SFSAIClasses(PetscInt items, const PetscInt *rows, PetscInt first, const PetscInt *G_i, ClassLimits limits,
                             unsigned char *key, PetscInt *row_out, Tally *tally)
{
  __shared__ int count[kClasses], largest[kClasses];

  if (threadIdx.x < kClasses) count[threadIdx.x] = largest[threadIdx.x] = 0;
  __syncthreads();
  const long long k = GridThread();
  if (k < items) {
    const PetscInt row  = rows ? rows[k] : first + (PetscInt)k;
    const int      size = (int)(G_i[row + 1] - G_i[row]) + 1;
    int            c    = 0;
    while (c < kClasses - 1 && size > limits.largest[c]) c++;
    key[k]     = (unsigned char)c;
    row_out[k] = row;
    atomicAdd(count + c, 1);
    atomicMax(largest + c, size);
  }
  __syncthreads();
  if (threadIdx.x < kClasses && count[threadIdx.x]) {
    atomicAdd(tally->rows + threadIdx.x, count[threadIdx.x]);
    atomicMax(tally->largest + threadIdx.x, largest[threadIdx.x]);
  }
}

/* What the postfilter has left of rows first .. end - 1: entry to[row - first] on. */
template <typename S, int GroupSize>
__global__ void SFSAICompact(PetscInt first, PetscInt end, const PetscInt *from, PetscInt base, const PetscInt *from_j,
                             const S *from_a, const PetscInt *to, PetscInt *j, S *a)
{
  const PetscInt row  = first + (PetscInt)(GridThread() / GroupSize);
  const int      lane = threadIdx.x % GroupSize;
  const bool     mine = row < end;
  PetscInt       at   = mine ? to[row - first] : 0;
  const PetscInt last = mine ? from[row + 1] : 0;
  for (PetscInt k = mine ? from[row] : 0; __any_sync(kFullWarp, k < last); k += GroupSize) {
    const bool     kept   = k + lane < last && from_j[k + lane - base] != kDropped;
    const unsigned ballot = GroupBallot<GroupSize>(kept);
    const PetscInt place  = at + __popc(ballot & ((1u << lane) - 1u));
    if (kept) {
      j[place] = from_j[k + lane - base];
      a[place] = from_a[k + lane - base];
    }
    at += __popc(ballot);
  }
}

__global__ void SFSAIAddOffset(PetscInt items, PetscInt offset, PetscInt *x)
{
  const long long k = GridThread();
  if (k < items) x[k] += offset;
}

/* One set-up on the device. What new values on a kept pattern need is in the SFSAIWork that outlives it. */
class SetUp {
public:
  SetUp(const CSRView &A, const CSRView *S, const SFSAIParams &params, bool keep, CSR &G, PetscReal *d, SFSAIWork &work,
        FSAIStats &stats) : A_(A), S_(S), params_(params), keep_(keep), G_(G), d_(d), kept_(work), stats_(stats)
  {
  }

  PetscErrorCode Run()
  {
    PetscFunctionBegin;
    PetscCall(PetscGetCurrentCUDAStream(&stream_));
    PetscCall(NeedWork(0));
    PetscCall(FSAIScaling_CUDA(&A_, 0, s_, d_, fsai_work_, &stats_));
    if (stats_.failure) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCallCUDA(cudaMemsetAsync(tally_, 0, sizeof(Tally), stream_));
    if (keep_) PetscCall(Solve(0, A_.n, G_.i, G_.j, G_.a, 0, nullptr));
    else {
      Pattern pattern(A_, S_, s_, params_, stats_, &meter_);
      PetscCall(pattern.CountRows());
      PetscInt most = 0, rows = 0;
      PetscCall(LargestRow<BlockRow<double, false>>(kSFSAILargestRow, &most));
      PetscCall(pattern.CheckLongest(most));
      PetscCall(LargestRow<BlockRow<double, true>>(kSFSAILargestRow, &most));
      PetscCall(pattern.CountLonger(most, &rows));
      if (rows) { /* what a later set-up on this pattern may need too, when it redoes rows in double */
        const size_t stride = SystemBytes(pattern.longest + 1);
        PetscCall(NeedWork(stride * std::min<size_t>(rows, std::max<size_t>(1, params_.work_limit / stride))));
        pattern.UseScaling(s_);
      }
      if (params_.postfilter > 0) PetscCall(Filtered(pattern));
      else {
        PetscCall(CSRCreate(A_.n, A_.n, pattern.nnz, params_.factor_precision, PETSC_MEMTYPE_CUDA, &G_));
        PetscCall(pattern.Scan(G_.i));
        PetscCall(pattern.Fill(0, A_.n, G_.i, 0, G_.j));
        PetscCall(Solve(0, A_.n, G_.i, G_.j, G_.a, 0, nullptr));
        stats_.max_row = pattern.longest + 1;
      }
    }
    PetscCall(FSAIMeanLog_CUDA(A_.n, d_, fsai_work_, &stats_.log_psi_after));
    stats_.log_psi_after = -stats_.log_psi_after; /* d = 1 / psi */
    stats_.work_bytes    = meter_.peak + kept_.bytes;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  /* in global memory, of either precision */
  static size_t SystemBytes(PetscInt size) { return (size_t)PetscSqr((PetscInt64)size) * sizeof(double); }

  /* The largest system, in whole tiles, for which a block of this kind has enough shared memory. */
  template <typename Block>
  static PetscErrorCode LargestRow(PetscInt most, PetscInt *largest)
  {
    size_t limit;

    PetscFunctionBegin;
    PetscCall(SharedMemoryLimit(&limit));
    for (*largest = kTile; *largest + kTile <= most && Block::SharedBytes((int)*largest + kTile) <= limit;) *largest += kTile;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The arrays of a set-up, and so many bytes for systems in global memory. */
  PetscErrorCode NeedWork(size_t systems_bytes)
  {
    size_t need;

    PetscFunctionBegin;
    PetscCallCUDA(cub::DeviceRadixSort::SortPairs(nullptr, need, key_, key_, list_, list_, A_.n, 0, kClassBits, stream_));
    cub_bytes_ = need;
    Layout       layout;
    const size_t s = layout.Place<PetscReal>(A_.n), tally = layout.Place<Tally>(1), list = layout.Place<PetscInt>(A_.n),
                 sorted = layout.Place<PetscInt>(A_.n), bad = layout.Place<PetscInt>(A_.n), key = layout.Place<unsigned char>(A_.n),
                 sorted_key = layout.Place<unsigned char>(A_.n), cub = layout.Place<char>(cub_bytes_),
                 fsai = layout.Place<char>(FSAIWorkBytes_CUDA(A_.n)), systems = layout.Place<char>(systems_bytes);
    if (kept_.bytes < layout.bytes()) {
      void *larger;

      PetscCall(ArrayCreate_CUDA(layout.bytes(), &larger));
      if (s_) { /* what is there stays */
        PetscCall(ArrayCopy_CUDA(larger, kept_.data, systems, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
        PetscCallCUDA(cudaStreamSynchronize(stream_));
      }
      PetscCall(ArrayDestroy_CUDA(&kept_.data));
      kept_ = SFSAIWork{larger, layout.bytes(), PETSC_MEMTYPE_CUDA};
    }
    char *const data = (char *)kept_.data;
    s_               = (PetscReal *)(data + s);
    tally_           = (Tally *)(data + tally);
    list_            = (PetscInt *)(data + list);
    sorted_          = (PetscInt *)(data + sorted);
    bad_             = (PetscInt *)(data + bad);
    key_             = (unsigned char *)(data + key);
    sorted_key_      = (unsigned char *)(data + sorted_key);
    cub_             = data + cub;
    fsai_work_       = data + fsai;
    systems_         = data + systems;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ReadTally()
  {
    PetscFunctionBegin;
    PetscCall(ArrayCopy_CUDA(&host_, tally_, sizeof(host_), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Rows first .. end - 1 on their pattern: in the set-up's precision, then in double what that cannot do. */
  PetscErrorCode Solve(PetscInt first, PetscInt end, const PetscInt *i, PetscInt *j, void *a, PetscInt base, PetscInt *length)
  {
    ValueTask task = {};

    PetscFunctionBegin;
    task.A          = A_;
    task.s          = s_;
    task.G_i        = i;
    task.G_j        = j;
    task.G_a        = a;
    task.base       = base;
    task.d          = d_;
    task.length     = length;
    task.postfilter = length ? params_.postfilter : 0;
    task.single     = params_.factor_precision == FINEPC_SINGLE;
    if (params_.setup_precision == FINEPC_SINGLE) {
      PetscCall(SolveRows<float>(task, nullptr, first, end - first));
      PetscCall(ReadTally());
      const PetscInt items = (PetscInt)host_.bad_pivot;
      stats_.double_rows += items;
      if (items) {
        PetscCallCUDA(cudaMemsetAsync(&tally_->bad_pivot, 0, sizeof(tally_->bad_pivot), stream_));
        PetscCall(SolveRows<double>(task, bad_, 0, items));
        PetscCall(ReadTally());
      }
    } else {
      PetscCall(SolveRows<double>(task, nullptr, first, end - first));
      PetscCall(ReadTally());
    }
    stats_.diagonal_rows = (PetscInt)host_.diagonal;
    stats_.dropped       = (PetscInt)host_.dropped;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <typename T>
  PetscErrorCode SolveRows(ValueTask task, const PetscInt *rows, PetscInt first, PetscInt items)
  {
    size_t      bytes     = cub_bytes_;
    PetscInt    in_shared = 0;
    ClassLimits limits;

    PetscFunctionBegin;
    PetscCall((LargestRow<BlockRow<T, true>>(kSFSAILargestRow, &in_shared)));
    for (int c = 0; c < kRegisterClasses; c++) limits.largest[c] = kRegisterSize[c];
    for (int c = kRegisterClasses; c < kGlobalClass - 1; c++) limits.largest[c] = kSharedSize[c - kRegisterClasses];
    limits.largest[kGlobalClass - 1] = (int)in_shared;
    limits.largest[kGlobalClass]     = (int)kSFSAILargestRow;
    PetscCallCUDA(cudaMemsetAsync(tally_, 0, offsetof(Tally, bad_pivot), stream_));
    SFSAIClasses<<<BlocksFor(items), kBlockSize, 0, stream_>>>(items, rows, first, task.G_i, limits, key_, list_, tally_);
    FinePCCheckLaunch();
    PetscCallCUDA(cub::DeviceRadixSort::SortPairs(cub_, bytes, key_, sorted_key_, list_, sorted_, items, 0, kClassBits, stream_));
    PetscCall(ReadTally());
    task.tally     = tally_;
    task.bad       = bad_;
    task.s         = s_;
    PetscInt begin = 0;
    for (int c = 0; c < kClasses; c++) {
      task.rows    = sorted_ + begin;
      task.items   = host_.rows[c];
      task.largest = host_.largest[c];
      begin += task.items;
      if (!task.items) continue;
      PetscCall(PetscLogGpuTimeBegin());
      switch (c) {
      case 0: PetscCall((LaunchRegisters<T, kRegisterSize[0]>(task))); break;
      case 1: PetscCall((LaunchRegisters<T, kRegisterSize[1]>(task))); break;
      case 2: PetscCall((LaunchRegisters<T, kRegisterSize[2]>(task))); break;
      case kGlobalClass: PetscCall((LaunchBlocks<T, false>(task))); break;
      default: PetscCall((LaunchBlocks<T, true>(task)));
      }
      PetscCall(PetscLogGpuTimeEnd());
    }
    if (!rows) stats_.large_rows += host_.rows[kGlobalClass];
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <typename T, int N>
  PetscErrorCode LaunchRegisters(const ValueTask &task)
  {
    const auto   kernel = SFSAISolveInRegisters<T, N>;
    const size_t bytes  = sizeof(GroupWork<T, N>) * (kRegisterBlock / N);

    PetscFunctionBegin;
    PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    kernel<<<BlocksFor((long long)task.items * N, kRegisterBlock), kRegisterBlock, bytes, stream_>>>(task);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <typename T, bool InShared>
  PetscErrorCode LaunchBlocks(ValueTask &task)
  {
    const auto   kernel = SFSAISolveInBlocks<T, InShared>;
    const size_t bytes  = BlockRow<T, InShared>::SharedBytes(task.largest);
    int          blocks = task.items;

    PetscFunctionBegin;
    PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    if (!InShared) {
      const char *const end = (const char *)kept_.data + kept_.bytes;
      task.global_work      = systems_;
      task.work_stride      = SystemBytes(task.largest);
      blocks                = (int)std::min<size_t>(blocks, (size_t)(end - systems_) / task.work_stride);
    }
    kernel<<<blocks, ThreadsForSystem(task.largest), bytes, stream_>>>(task);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Steps 2 to 4 chunk by chunk, each chunk's rows filtered before the next is made. */
  PetscErrorCode Filtered(Pattern &pattern)
  {
    const size_t       value_bytes = FinePCPrecisionBytes(params_.factor_precision);
    const size_t       most = std::max<size_t>(params_.work_limit / (sizeof(PetscInt) + value_bytes), (size_t)pattern.longest);
    Buffer<char>       work(&meter_);
    std::vector<Piece> pieces;
    PetscInt64         nnz = 0;
    size_t             cub_bytes;

    PetscFunctionBegin;
    const size_t room = std::min<size_t>(most, (size_t)pattern.nnz);
    Layout       layout;
    PetscCallCUDA(cub::DeviceScan::ExclusiveSum(nullptr, cub_bytes, list_, list_, A_.n + 1, stream_));
    const size_t at_i = layout.Place<PetscInt>(A_.n + 1), at_length = layout.Place<PetscInt>(A_.n + 1),
                 at_final = layout.Place<PetscInt>(A_.n + 1), at_cub = layout.Place<char>(cub_bytes),
                 at_j = layout.Place<PetscInt>(room),
                 at_a = layout.Place<double>((room * value_bytes + sizeof(double) - 1) / sizeof(double));
    PetscCall(work.Allocate(layout.bytes()));
    PetscInt *const i = (PetscInt *)(work.data() + at_i), *const length = (PetscInt *)(work.data() + at_length),
                    *const final_i = (PetscInt *)(work.data() + at_final), *const j = (PetscInt *)(work.data() + at_j);
    void *const a = work.data() + at_a;
    PetscCall(pattern.Scan(i));
    for (PetscInt first = 0, end = 0; first < A_.n; first = end) {
      PetscInt base, limit, kept;

      PetscCall(ReadInt(i + first, &base));
      PetscCall(EndOfChunk(i, first, base + (PetscInt64)most, &end));
      PetscCall(ReadInt(i + end, &limit));
      PetscCall(pattern.Fill(first, end, i, base, j));
      PetscCall(Solve(first, end, i, j, a, base, length));
      PetscCallCUDA(cudaMemsetAsync(length + end, 0, sizeof(PetscInt), stream_));
      PetscCallCUDA(
        cub::DeviceScan::ExclusiveSum(work.data() + at_cub, cub_bytes, length + first, final_i + first, end - first + 1, stream_));
      PetscCall(ReadInt(final_i + end, &kept));
      pieces.push_back(Piece{Buffer<char>(&meter_), kept});
      PetscCall(pieces.back().data.Allocate(kept * (sizeof(PetscInt) + value_bytes)));
      PetscCall(Compact(first, end, i, base, j, a, final_i + first, pieces.back()));
      SFSAIAddOffset<<<BlocksFor(end - first), kBlockSize, 0, stream_>>>(end - first, (PetscInt)nnz, final_i + first);
      FinePCCheckLaunch();
      nnz += kept;
    }
    PetscCall(CSRCreate(A_.n, A_.n, (PetscInt)nnz, params_.factor_precision, PETSC_MEMTYPE_CUDA, &G_));
    PetscCall(ArrayCopy_CUDA(G_.i, final_i, A_.n * sizeof(PetscInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    PetscInt at = 0;
    for (const Piece &piece : pieces) {
      PetscCall(ArrayCopy_CUDA(G_.j + at, piece.data.data() + piece.entries * value_bytes, piece.entries * sizeof(PetscInt),
                               PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
      PetscCall(ArrayCopy_CUDA((char *)G_.a + at * value_bytes, piece.data.data(), piece.entries * value_bytes, PETSC_MEMTYPE_CUDA,
                               PETSC_MEMTYPE_CUDA));
      at += piece.entries;
    }
    PetscCall(ArrayCopy_CUDA(G_.i + A_.n, &at, sizeof(at), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
    /* the longest row is found with the buckets' kernel: a limit of no class is below it */
    PetscCallCUDA(cudaMemsetAsync(tally_, 0, sizeof(Tally), stream_));
    SFSAIClasses<<<BlocksFor(A_.n), kBlockSize, 0, stream_>>>(A_.n, nullptr, 0, G_.i, ClassLimits{{INT_MAX}}, key_, list_, tally_);
    FinePCCheckLaunch();
    PetscCall(ReadTally());
    stats_.max_row = host_.largest[0];
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  struct Piece {
    Buffer<char> data; /* values, then columns */
    PetscInt     entries;
  };

  PetscErrorCode Compact(PetscInt first, PetscInt end, const PetscInt *i, PetscInt base, const PetscInt *j, const void *a,
                         const PetscInt *to, const Piece &piece)
  {
    const int       blocks = BlocksFor((long long)(end - first) * kScanGroup);
    PetscInt *const to_j   = (PetscInt *)(piece.data.data() + piece.entries * FinePCPrecisionBytes(params_.factor_precision));

    PetscFunctionBegin;
    if (params_.factor_precision == FINEPC_SINGLE)
      SFSAICompact<float, kScanGroup>
        <<<blocks, kBlockSize, 0, stream_>>>(first, end, i, base, j, (const float *)a, to, to_j, (float *)piece.data.data());
    else
      SFSAICompact<double, kScanGroup>
        <<<blocks, kBlockSize, 0, stream_>>>(first, end, i, base, j, (const double *)a, to, to_j, (double *)piece.data.data());
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ReadInt(const PetscInt *from, PetscInt *value)
  {
    PetscFunctionBegin;
    PetscCall(ArrayCopy_CUDA(value, from, sizeof(*value), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The largest end with i[end] <= limit, but one row at least. */
  PetscErrorCode EndOfChunk(const PetscInt *i, PetscInt first, PetscInt64 limit, PetscInt *end)
  {
    PetscInt low = first + 1, high = A_.n, value = 0;

    PetscFunctionBegin;
    PetscCall(ReadInt(i + high, &value));
    if (value <= limit) low = high;
    while (low < high) {
      const PetscInt middle = low + (high - low + 1) / 2;
      PetscCall(ReadInt(i + middle, &value));
      if (value <= limit) low = middle;
      else high = middle - 1;
    }
    *end = low;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  const CSRView     &A_;
  const CSRView     *S_;
  const SFSAIParams &params_;
  const bool         keep_;
  CSR               &G_;
  PetscReal         *d_;
  SFSAIWork         &kept_;
  FSAIStats         &stats_;
  WorkMeter          meter_;
  cudaStream_t       stream_ = nullptr;
  Tally              host_   = {};

  /* in kept_ */
  PetscReal     *s_      = nullptr; /* [n] */
  Tally         *tally_  = nullptr;
  PetscInt      *list_   = nullptr; /* [n] */
  PetscInt      *sorted_ = nullptr; /* [n] rows by class */
  PetscInt      *bad_    = nullptr; /* [n] */
  unsigned char *key_ = nullptr, *sorted_key_ = nullptr;
  char          *cub_       = nullptr; /* [cub_bytes_] */
  char          *fsai_work_ = nullptr;
  char          *systems_   = nullptr;
  size_t         cub_bytes_ = 0;
};

} // namespace

PetscErrorCode SFSAIPattern_CUDA(const CSRView *A, const CSRView *S, const PetscReal *s, const SFSAIParams *params, CSR *G,
                                 FSAIStats *stats)
{
  PetscFunctionBegin;
  if (!A->n) {
    PetscCall(CSRCreate(0, 0, 0, params->factor_precision, PETSC_MEMTYPE_CUDA, G));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  Pattern pattern(*A, S, s, *params, *stats, nullptr);
  PetscCall(pattern.CountRows());
  PetscCall(CSRCreate(A->n, A->n, pattern.nnz, params->factor_precision, PETSC_MEMTYPE_CUDA, G));
  PetscCall(pattern.Scan(G->i));
  PetscCall(pattern.Fill(0, A->n, G->i, 0, G->j));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SFSAIComputeFactor_CUDA(const CSRView *A, const CSRView *S, const SFSAIParams *params, PetscBool keep, CSR *G,
                                       PetscReal *d, SFSAIWork *work, FSAIStats *stats)
{
  PetscFunctionBegin;
  *stats = FSAIStats{};
  if (!A->n) {
    if (!keep) PetscCall(CSRCreate(0, 0, 0, params->factor_precision, PETSC_MEMTYPE_CUDA, G));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(SetUp(*A, S, *params, keep, *G, d, *work, *stats).Run());
  PetscFunctionReturn(PETSC_SUCCESS);
}
