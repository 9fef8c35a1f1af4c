/*
   CUDA twin of src/pc/sfsai/sfsai_host.cxx, the pattern of G: the same rows as the host twin's. The host twin has the formulas,
   whose numbers are those of Bernaschi, Bisson, Fantozzi and Janna.

   Row i of B_k, (3.9), depends on row i of B_{k-1} only. All k products of a row are therefore one breadth-first search over
   columns <= i, by a team of threads with a hash table in shared memory, and no B_p is ever stored. The table maps words of 32
   columns each to bit masks: the columns of grids and of blocks of unknowns fill words, which makes the table small and the
   sorting of its keys cheap. Rows that outgrow a table are done again with a larger one, at last by blocks with tables in global
   memory. Rows are first counted, then, once G has its memory, found again and written; what fits a pool of limited size is kept
   in between. Nothing depends on the schedule.
*/
#include <cub/cub.cuh>
#include <cuda/std/functional>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <vector>

#include "sfsai.cuh"
#include "scratch.cuh"
#include "search.cuh"

namespace
{

using Count = unsigned long long;

/* ------------------------------------- the search of a row ------------------------------------ */

using WarpScan = cub::WarpScan<int>; /* of whole warps, for which its TempStorage is empty */

constexpr int    kWordBits      = 32;   /* columns of a word of the table */
constexpr int    kTeamBlock     = 128;  /* threads of a block of which every warp takes a row */
constexpr int    kLargeTeam     = 256;  /* threads of a block of which all take a row together */
constexpr int    kLevels        = 9;    /* sizes of the work space */
constexpr int    kFirstLarge    = 3;    /* first level at which a block takes a row */
constexpr int    kFirstInGlobal = 4;    /* first level in global memory */
constexpr int    kGrowth        = 8;    /* factor from one size in global memory to the next */
constexpr int    kAhead         = 4;    /* columns that a lane asks for before it uses any */
constexpr int    kSampleRows    = 2048; /* rows that are tried first, where there are many, to see which level to start from */
constexpr int    kSampleShare   = 16;   /* at most one row in so many is sampled */
constexpr double kPoolMargin    = 1.1;  /* room in the pool in proportion to what the sample says */

struct TableSize {
  int slots; /* words, a power of two */
  int list;  /* columns */
};
/* Of the levels 0 .. kFirstInGlobal. */
constexpr TableSize kTableSizes[] = {{128, 192}, {256, 512}, {512, 1536}, {2048, 6144}, {65536, 262144}};

/*
   The words that a row may have. The threads of a team compare with this number before they insert a word and count the word
   afterwards: what all of them insert in between still leaves a slot empty.
*/
__host__ __device__ constexpr int MostWords(int slots, int threads)
{
  return slots - (slots / 4 > 2 * threads + 1 ? slots / 4 : 2 * threads + 1);
}

constexpr int      kNoWord     = INT_MAX; /* sorts behind all words */
constexpr unsigned kNotKept    = ~0u;     /* instead of a place in the pool */
constexpr int      kWeightBits = 63;      /* bits of a double that is not negative */

/* What a search does with the row that it has found. */
enum PatternUse {
  PATTERN_SAMPLE, /* adds its length to the tally's entries */
  PATTERN_COUNT,  /* stores its length, and keeps it where the pool has room */
  PATTERN_WRITE   /* writes it */
};

/* Counters that the kernels write and the host reads. */
struct PatternTally {
  Count  too_large, capped, entries, pool_used;
  double cost; /* of the rows, as SFSAICost() has it */
  int    longest, longer;
};

struct IsLonger {
  LocalInt       entries;
  __device__ int operator()(LocalInt length) const { return length > entries; }
};

/* SFSAICost() of a row, of which the length is that of its strictly lower part. */
struct CostOf {
  LocalInt          cap;
  __device__ double operator()(LocalInt length) const
  {
    const double entries = cap ? min(length + 1, cap) : length + 1;
    return entries * entries * entries;
  }
};

struct PatternTask {
  const LocalInt  *i, *j; /* A~, or the pattern that is given */
  const LocalInt  *rows;  /* [items] work list, or null for rows first .. */
  LocalInt         first, items;
  LocalInt         power;
  LocalInt         max_row; /* 0 where rows have no cap */
  TableSize        size;
  size_t           work_stride; /* bytes of a team's work space */
  char            *global_work; /* null where the work spaces are in shared memory */
  int              level, next_level;
  unsigned char   *row_level; /* [n] the level that can do the row */
  LocalInt        *length;    /* [n] set when rows are counted */
  LocalInt        *pool;      /* [pool_size] */
  Count            pool_size;
  unsigned        *place; /* [n] in the pool, or kNotKept */
  const LocalInt  *G_i;   /* [n + 1] when rows are written */
  LocalInt        *G_j;   /* the entries of G from base on */
  LocalInt         base;
  CSRView          A; /* with s and prefilter for the weights of a cap */
  const PetscReal *s;
  PetscReal        prefilter;
  PatternTally    *tally;
};

/* A count that the threads of a team raise together: a warp keeps it in registers, a block in shared memory. */
template <int Threads>
class TeamCounter {
public:
  __device__ void Bind(int *shared) { shared_ = shared; }
  /* The team has to synchronize before the next use. */
  __device__ void Reset(int value)
  {
    value_ = value;
    if (Threads > kWarpSize && threadIdx.x == 0) *shared_ = value;
  }
  /* Counts the threads whose predicate holds; they get consecutive numbers. Collective over the warp. */
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

/* A team of threads that searches one row after the other. */
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

  /* Finds a row and does with it what Use says. */
  __device__ void Do(LocalInt row)
  {
    Begin(row);
    int  begin = 0, end = 1;
    bool too_large = false;
    for (products_ = 0; products_ < task_.power && begin < end && !too_large; products_++) {
      Expand(begin, end, products_ + 1 < task_.power);
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
          task_.length[row]    = (LocalInt)length;
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
  __device__ void Write(LocalInt row, int found, bool cut, LocalInt *out)
  {
    SortWords();
    if (cut) {
      Emit(list_, found);
      Sync();
      EmitLargest(found, out);
    } else Emit(out, found - 1); /* without the diagonal, which is the last column */
  }

  /* Where the row goes in the pool, or kNotKept where the pool has no room for it. */
  __device__ unsigned PlaceInPool(LocalInt row, int length)
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

  /* A table that holds the diagonal alone. */
  __device__ void Begin(LocalInt row)
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

  /* Adds a column to the table. Says whether the column is new, and whether its word is. */
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
     Adds the columns <= row_ of those rows of A~ that list_ [begin, end) names, and lists the new ones if they are to be expanded
     in turn. A warp takes 32 rows at a time and deals their entries out evenly to its lanes.
  */
  __device__ void Expand(int begin, int end, bool listed)
  {
    const int lane = t_ % kWarpSize;
    for (int base = begin + t_ - lane; base < end && !__any_sync(kFullWarp, *(volatile int *)overflow_); base += Threads) {
      LocalInt start  = 0;
      int      length = 0;
      if (base + lane < end) {
        const int source = list_[base + lane];
        start            = task_.i[source];
        length           = (int)(task_.i[source + 1] - start);
      }
      WarpScan::TempStorage none;
      int                   last, all; /* entries of the rows up to the lane's own, and of all 32 */
      WarpScan(none).InclusiveSum(length, last, all);
      const LocalInt shift = start - (last - length);
      for (int done = 0; done < all; done += kAhead * kWarpSize) {
        int column[kAhead];
#pragma unroll
        for (int a = 0; a < kAhead; a++) {
          const int k = done + a * kWarpSize + lane;
          column[a]   = INT_MAX;
          if (done + a * kWarpSize >= all) continue;
          int owner = 0; /* the lane whose row has entry k: the first with last > k */
#pragma unroll
          for (int step = kWarpSize / 2; step > 0; step /= 2)
            if (__shfl_sync(kFullWarp, last, owner + step - 1) <= k) owner += step;
          const LocalInt e = k + __shfl_sync(kFullWarp, shift, owner);
          if (k < all) column[a] = (int)task_.j[e];
        }
#pragma unroll
        for (int a = 0; a < kAhead; a++)
          if (done + a * kWarpSize < all) Join(column[a], listed);
      }
    }
  }

  /* Every lane adds a column, or none where column is INT_MAX. Collective over the warp. */
  __device__ void Join(int column, bool listed)
  {
    bool fresh = false, new_word = false;
    if (words_.Value() > MostWords(task_.size.slots, Threads)) ReportOverflow();
    else fresh = column <= row_ && Insert(column, new_word);
    __syncwarp();
    words_.Add(new_word);
    columns_.Add(fresh);
    if (!listed) return;
    const int at = appended_.Add(fresh);
    if (fresh && at < task_.size.list) list_[at] = column;
    else if (fresh) ReportOverflow();
  }
  /* Other warps may look at the flag at the same time. */
  __device__ void ReportOverflow() { atomicExch(overflow_, 1); }

  /* Moves the words of the table to its front and sorts them. */
  __device__ void SortWords()
  {
    const int words = words_.Value();
    Sync();
    words_.Reset(0);
    Sync();
    for (int base = 0; base < task_.size.slots; base += Threads) { /* slots is a multiple of Threads, so that no warp is divided */
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
    for (int size = 2; size <= padded; size *= 2) /* bitonic sort */
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

  /* Writes the first `count` columns, ascending, by the first warp of the team. */
  template <typename Index>
  __device__ void Emit(Index *out, int count) const
  {
    if (t_ >= kWarpSize) return;
    int written = 0;
    for (int base = 0; written < count; base += kWarpSize) {
      const int             word = base + t_ < task_.size.slots ? key_[base + t_] : kNoWord;
      unsigned              mask = word != kNoWord && base + t_ < words_.Value() ? mask_[base + t_] : 0;
      int                   at, all; /* columns of the words before the lane's own, and of all 32 */
      WarpScan::TempStorage none;
      WarpScan(none).ExclusiveSum(__popc(mask), at, all);
      for (at += written; mask && at < count; mask &= mask - 1, at++) out[at] = (Index)(word * kWordBits + __ffs(mask) - 1);
      written += all;
    }
  }

  /* Writes the max_row - 1 columns of the largest path weights among the columns of list_, the diagonal left out. */
  __device__ void EmitLargest(int found, LocalInt *out)
  {
    double *before = weight_, *after = weight_ + task_.size.list; /* the products so far, and with one factor more */
    for (int c = t_; c < found; c += Threads) before[c] = c == found - 1;
    for (LocalInt p = 0; p < products_; p++) {
      Sync();
      for (int c = t_; c < found; c += Threads) after[c] = WeightedRow(list_[c], found, before);
      double *const swap = before;
      before             = after;
      after              = swap;
    }
    Sync();
    /* the least weight that stays is found bit by bit: doubles that are not negative have the same order as their bits */
    const int others = found - 1, wanted = task_.max_row - 1;
    Count     least = 0;
    for (int bit = kWeightBits - 1; bit >= 0; bit--) {
      const Count tried = least | (Count)1 << bit;
      if (CountWeights(before, others, tried) >= wanted) least = tried;
    }
    int equals = wanted - CountWeights(before, others, least + 1); /* so many columns of just that weight stay, the smallest ones */
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

  /* How many weights are at least `least`, compared as integers. */
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

  /* The sum over s in the pattern of |a~_cs| weight_s, added like the host twin in the order of row c and without contraction. */
  __device__ double WeightedRow(int c, int found, const double *weight) const
  {
    const CSRView   &A   = task_.A;
    const PetscReal *s   = task_.s;
    double           sum = 0;
    for (LocalInt e = A.i[c]; e < A.i[c + 1] && A.j[e] <= row_; e++) {
      const int column = (int)A.j[e];
      double    a      = 1;
      if (column != c) {
        a = __dmul_rn(__dmul_rn(fabs(A.a[e]), s[c]), s[column]);
        if (task_.prefilter > 0 && !(a > task_.prefilter)) continue;
      }
      const int at = LowerBound(list_, 0, found - 1, column);
      if (list_[at] == column) sum = __dadd_rn(sum, __dmul_rn(weight[at], a));
    }
    return sum;
  }

  const PatternTask   &task_;
  const int            t_;
  double              *weight_; /* [2 list] where rows have a cap */
  int                 *key_;    /* [slots] */
  unsigned            *mask_;   /* [slots] */
  int                 *list_;   /* [list] columns to expand, or at last all columns of a row that is cut */
  int                 *overflow_;
  unsigned            *place_; /* place of the row in the pool */
  TeamCounter<Threads> columns_, appended_, words_;
  LocalInt             row_ = 0, products_ = 0; /* the row, and the products until no column was new */
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
  for (LocalInt item = team; item < task.items; item += teams) {
    const LocalInt row = task.rows ? task.rows[item] : task.first + item;
    if (Use == PATTERN_WRITE && (task.row_level[row] != task.level || (task.pool_size && task.place[row] != kNotKept))) continue;
    search.Do(row);
  }
}

/* Copies those of the rows first .. end - 1 that are in the pool. */
template <int GroupSize>
__global__ void SFSAIGatherPattern(LocalInt first, LocalInt end, const LocalInt *pool, const unsigned *place, const LocalInt *G_i,
                                   LocalInt base, LocalInt *G_j)
{
  const LocalInt row = first + (LocalInt)(GridThread() / GroupSize);
  if (row >= end || place[row] == kNotKept) return;
  const LocalInt *const from  = pool + place[row];
  const LocalInt        begin = G_i[row], length = G_i[row + 1] - begin;
  for (LocalInt k = threadIdx.x % GroupSize; k < length; k += GroupSize) G_j[begin - base + k] = from[k];
}

/* Whether entry k of a row of A belongs to A~, as a diagonal entry always does, and with `lower` to its strictly lower triangle. */
struct Selection {
  CSRView          A;
  const PetscReal *s;
  PetscReal        prefilter;
  bool             lower;
  __device__ bool  operator()(LocalInt row, LocalInt k) const
  {
    const LocalInt column = A.j[k];
    if (lower && column >= row) return false;
    return column == row || !(prefilter > 0) || __dmul_rn(__dmul_rn(fabs(A.a[k]), s[row]), s[column]) > prefilter;
  }
};

/* ------------------------------------ the pattern of all rows --------------------------------- */

/* The lengths of the rows of a selection from row `first` on. */
template <int GroupSize>
__global__ void SFSAISelectCount(Selection in, LocalInt first, LocalInt *length)
{
  const LocalInt row   = first + (LocalInt)(GridThread() / GroupSize);
  int            count = 0;
  if (row < in.A.n)
    for (LocalInt k = in.A.i[row] + threadIdx.x % GroupSize; k < in.A.i[row + 1]; k += GroupSize) count += in(row, k);
  count = GroupSum<GroupSize>(count);
  if (row < in.A.n && threadIdx.x % GroupSize == 0) length[row] = count;
}

/* The columns of rows first .. end - 1 of a selection; those of a row begin at entry i[row] - base. */
template <int GroupSize>
__global__ void SFSAISelectWrite(Selection in, LocalInt first, LocalInt end, const LocalInt *i, LocalInt base, LocalInt *j)
{
  const LocalInt row  = first + (LocalInt)(GridThread() / GroupSize);
  const int      lane = threadIdx.x % GroupSize;
  const bool     mine = row < end;
  LocalInt       to   = mine ? i[row] - base : 0;
  const LocalInt last = mine ? in.A.i[row + 1] : 0;
  for (LocalInt k = mine ? in.A.i[row] : 0; __any_sync(kFullWarp, k < last); k += GroupSize) {
    const bool     taken  = k + lane < last && in(row, k + lane);
    const unsigned ballot = GroupBallot<GroupSize>(taken);
    if (taken) j[to + __popc(ballot & ((1u << lane) - 1u))] = in.A.j[k + lane];
    to += __popc(ballot);
  }
}

/* Rows that are spread evenly over those from `first` on. */
__global__ void SFSAISampleRows(LocalInt items, LocalInt first, LocalInt rows, LocalInt *list)
{
  const long long k = GridThread();
  if (k < items) list[k] = first + (LocalInt)((2 * k + 1) * rows / (2 * items));
}

struct LevelIs {
  const unsigned char *row_level;
  int                  level;
  __device__ bool      operator()(LocalInt row) const { return row_level[row] == level; }
};

class Pattern final : public SFSAIPattern {
private:
  /* CUB's calls, as CubScratch takes them. */
  auto SelectLevelRows(int level, LocalInt first, LocalInt end, LocalInt *count) const
  {
    const thrust::counting_iterator<LocalInt> all(first);
    const LevelIs                             is = {row_level_, level};
    return [=](void *memory, size_t &bytes) {
      return cub::DeviceSelect::If(memory, bytes, all, list_, count, end - first, is, stream_);
    };
  }
  auto SumLengths() const
  {
    return [=](void *memory, size_t &bytes) {
      return cub::DeviceReduce::Reduce(memory, bytes, length_ + own_, &tally_->entries, rows_, ::cuda::std::plus<Count>(), (Count)0,
                                       stream_);
    };
  }
  auto LongestRow() const
  {
    return [=](void *memory, size_t &bytes) {
      return cub::DeviceReduce::Max(memory, bytes, length_ + own_, &tally_->longest, rows_, stream_);
    };
  }
  auto SumCosts() const
  {
    const auto costs = thrust::make_transform_iterator((const LocalInt *)length_ + own_, CostOf{SFSAICap(params_)});
    return [=](void *memory, size_t &bytes) { return cub::DeviceReduce::Sum(memory, bytes, costs, &tally_->cost, rows_, stream_); };
  }
  auto LongerRows(LocalInt entries) const
  {
    const auto longer = thrust::make_transform_iterator((const LocalInt *)length_ + own_, IsLonger{entries});
    return
      [=](void *memory, size_t &bytes) { return cub::DeviceReduce::Sum(memory, bytes, longer, &tally_->longer, rows_, stream_); };
  }
  auto ScanLengths(LocalInt *length, LocalInt *i, LocalInt rows) const
  {
    return [=](void *memory, size_t &bytes) { return cub::DeviceScan::ExclusiveSum(memory, bytes, length, i, rows + 1, stream_); };
  }

public:
  Pattern(const CSRView &A, LocalInt first, const CSRView *S, const PetscReal *s, const SFSAIParams &params, FSAIStats &stats,
          WorkMeter *meter) :
      A_(A), own_(first), rows_(A.n - first), S_(S), s_(s), params_(params), stats_(stats), meter_(meter), work_(meter),
      filtered_i_(meter), filtered_j_(meter), tables_(meter)
  {
  }

  PetscErrorCode CountRows() override
  {
    PetscFunctionBegin;
    PetscCall(DeviceGetStream(&stream_));
    PetscCall(SharedMemoryLimit(&shared_limit_));
    do PetscCall(CountOnce());
    while (Revise());
    stats_.power       = (LocalInt)params_.power;
    stats_.capped_rows = (LocalInt)host_.capped;
    longest            = host_.longest;
    PetscCheck(
      host_.entries <= (Count)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
      "The pattern of G has %llu entries, more than 32 bits can count: lower -pc_sfsai_power, raise -pc_sfsai_prefilter or "
      "set -pc_sfsai_max_row",
      host_.entries);
    nnz = (LocalInt)host_.entries;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode FindLongest(LocalInt *row) override
  {
    std::vector<LocalInt> length(rows_);

    PetscFunctionBegin;
    PetscCall(ArrayCopy_CUDA(length.data(), length_ + own_, rows_ * sizeof(LocalInt), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    *row = (LocalInt)(std::max_element(length.begin(), length.end()) - length.begin());
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode CountLonger(LocalInt most, LocalInt *rows) override
  {
    PetscFunctionBegin;
    PetscCall(scratch_.Run(LongerRows(most - 1)));
    PetscCall(ReadTally());
    *rows = host_.longer;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  size_t PoolBytes() const override { return pool_size_ * sizeof(LocalInt); }
  void   UseScaling(const PetscReal *s) override { s_ = s; }

  PetscErrorCode Scan(LocalInt *G_i) override
  {
    PetscFunctionBegin;
    PetscCallCUDA(cudaMemsetAsync(length_ + A_.n, 0, sizeof(LocalInt), stream_));
    PetscCall(scratch_.Run(ScanLengths(length_ + own_, G_i, rows_)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Fill(LocalInt first, LocalInt end, const LocalInt *G_i, LocalInt base, LocalInt *G_j) override
  {
    PetscFunctionBegin;
    first += own_;
    end += own_;
    G_i -= own_; /* from here on rows are those of A */
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
      LocalInt items = end - first;
      if (!level_rows_[level]) continue;
      if (level > first_level_) PetscCall(SelectLevel(level, first, end, &items));
      if (items) PetscCall(Run<PATTERN_WRITE>(level, level > first_level_ ? list_ : nullptr, first, items));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  /* The lengths of the rows with the power and the cap as they are. */
  PetscErrorCode CountOnce()
  {
    PetscFunctionBegin;
    pool_size_ = 0;
    is_long_   = false;
    for (LocalInt &rows : level_rows_) rows = 0;
    if (!OfLowerTriangle()) {
      first_level_ = NextLevel(-1);
      PetscCall(Prefilter());
      PetscCall(Sample());
    }
    PetscCall(AllocateWork());
    if (OfLowerTriangle()) {
      SFSAISelectCount<kScanGroup><<<BlocksFor((long long)rows_ * kScanGroup), kBlockSize, 0, stream_>>>(Lower(), own_, length_);
      FinePCCheckLaunch();
    } else PetscCall(Search());
    if (is_long_) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(scratch_.Run(SumLengths()));
    PetscCall(scratch_.Run(LongestRow()));
    if (params_.automatic_power && !S_) PetscCall(scratch_.Run(SumCosts()));
    PetscCall(ReadTally());
    is_long_ = !S_ && SFSAIIsLong(params_, rows_, host_.cost);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Chooses another power, or a cap, where that is left to the set-up and the rows that were counted are long, as the host twin
     does. A search with a cap takes more room, and therefore rows are first counted without the cap that is not asked for.
  */
  bool Revise()
  {
    if (is_long_) params_.power = 1;
    else if (!S_ && params_.automatic_cap && !params_.max_row && host_.longest >= kSFSAIAutomaticCap)
      params_.max_row = kSFSAIAutomaticCap;
    else return false;
    return true;
  }

  bool Filters() const { return !S_ && params_.prefilter > 0; }
  bool Caps() const { return !S_ && params_.max_row > 0; }
  bool OfLowerTriangle() const { return S_ || (params_.power == 1 && !Caps()); } /* no row is searched */

  /* What is selected from: A, or S with the numbers that its rows have in A. */
  Selection Lower() const
  {
    Selection in = {A_, s_, params_.prefilter, true};
    if (S_) {
      in.A = *S_;
      in.A.i -= own_;
      in.A.n       = A_.n;
      in.prefilter = 0;
    }
    return in;
  }

  /* The most entries of the pool. With a postfilter a chunk of as many entries of G shares the limit with the pool. */
  size_t MostInPool() const
  {
    const size_t chunk = params_.postfilter > 0 ? sizeof(LocalInt) + FinePCPrecisionBytes(params_.factor_precision) : 0;
    return params_.work_limit / (sizeof(LocalInt) + chunk);
  }

  /* The lengths of all rows, by searches with larger and larger work spaces. */
  PetscErrorCode Search()
  {
    LocalInt items = rows_;

    PetscFunctionBegin;
    for (int level = first_level_; items; level = NextLevel(level)) {
      PetscCheck(level < kLevels, PETSC_COMM_SELF, PETSC_ERR_PLIB, "A row of the pattern does not fit into any work space");
      const LocalInt *const rows = level > first_level_ ? list_ : nullptr;
      PetscCall(Run<PATTERN_COUNT>(level, rows, own_, items));
      PetscCall(ReadTally());
      level_rows_[level] = items - (LocalInt)host_.too_large;
      items              = (LocalInt)host_.too_large;
      if (IsLongAfter(level, items)) break;
      if (items) PetscCall(SelectLevel(NextLevel(level), own_, A_.n, &items));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Whether the rows that are too large for a level cost too much for the power, whatever their length. */
  bool IsLongAfter(int level, LocalInt items)
  {
    const int words = MostWords(Size(level).slots, level < kFirstLarge ? kWarpSize : kLargeTeam);
    is_long_        = SFSAIIsLong(params_, rows_, items * SFSAICost(std::min(words, Size(level).list), SFSAICap(params_)));
    return is_long_;
  }

  /*
     Where there are many rows, a sample of them tells the level to start from, which is enough for at least half of the sample.
     The size of the pool follows from the lengths of these rows.
  */
  PetscErrorCode Sample()
  {
    const LocalInt items = kSampleRows;
    LocalInt      *rows  = nullptr;
    Buffer<char>   work(meter_);
    Layout         layout;

    PetscFunctionBegin;
    if (rows_ / kSampleShare < items) PetscFunctionReturn(PETSC_SUCCESS);
    layout.Place(&tally_, 1);
    layout.Place(&rows, items);
    PetscCall(layout.Allocate(&work));
    SFSAISampleRows<<<BlocksFor(items), kBlockSize, 0, stream_>>>(items, own_, rows_, rows);
    FinePCCheckLaunch();
    for (; first_level_ < kFirstInGlobal; first_level_ = NextLevel(first_level_)) {
      PetscCallCUDA(cudaMemsetAsync(tally_, 0, sizeof(*tally_), stream_));
      PetscCall(Run<PATTERN_SAMPLE>(first_level_, rows, 0, items));
      PetscCall(ReadTally());
      if (host_.too_large <= (Count)items / 2) break;
    }
    if (first_level_ == kFirstInGlobal) PetscFunctionReturn(PETSC_SUCCESS);
    const size_t wanted = (size_t)(kPoolMargin * rows_ * (double)host_.entries / (double)(items - host_.too_large)) + 1;
    pool_size_          = std::min(wanted, MostInPool());
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode AllocateWork()
  {
    Layout layout;

    PetscFunctionBegin;
    PetscCall(scratch_.Measure(SelectLevelRows(0, own_, A_.n, nullptr)));
    PetscCall(scratch_.Measure(SumLengths()));
    PetscCall(scratch_.Measure(LongestRow()));
    PetscCall(scratch_.Measure(SumCosts()));
    PetscCall(scratch_.Measure(LongerRows(0)));
    PetscCall(scratch_.Measure(ScanLengths(nullptr, nullptr, rows_)));
    layout.Place(&tally_, 1);
    layout.Place(&length_, A_.n + 1);
    layout.Place(&list_, A_.n + 1);
    layout.Place(&row_level_, A_.n);
    layout.Place(&place_, A_.n);
    scratch_.Place(&layout);
    layout.Place(&pool_, pool_size_);
    PetscCall(layout.Allocate(&work_));
    PetscCallCUDA(cudaMemsetAsync(tally_, 0, sizeof(*tally_), stream_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* i_, j_ = the pattern of A~, which is that of A where nothing is filtered. */
  PetscErrorCode Prefilter()
  {
    const int       blocks = BlocksFor((long long)A_.n * kScanGroup);
    const Selection in     = {A_, s_, params_.prefilter, false};
    CubScratch      scratch(meter_);
    LocalInt        kept;

    PetscFunctionBegin;
    i_ = A_.i;
    j_ = A_.j;
    if (!Filters()) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCall(filtered_i_.Allocate(A_.n + 1));
    LocalInt *const i = filtered_i_.data();
    SFSAISelectCount<kScanGroup><<<blocks, kBlockSize, 0, stream_>>>(in, 0, i);
    FinePCCheckLaunch();
    PetscCallCUDA(cudaMemsetAsync(i + A_.n, 0, sizeof(LocalInt), stream_));
    PetscCall(scratch.Run(ScanLengths(i, i, A_.n)));
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

  /* list_ = those of the rows first .. end - 1 that are of a level. */
  PetscErrorCode SelectLevel(int level, LocalInt first, LocalInt end, LocalInt *items)
  {
    LocalInt *const count = list_ + A_.n;

    PetscFunctionBegin;
    PetscCall(scratch_.Run(SelectLevelRows(level, first, end, count)));
    PetscCall(ArrayCopy_CUDA(items, count, sizeof(LocalInt), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The next level for which a block has enough shared memory, or the next one in global memory. */
  int NextLevel(int level) const
  {
    do level++;
    while (level < kFirstInGlobal && PatternSearch<kWarpSize, PATTERN_COUNT>::Bytes(Size(level), Caps()) *
                                         (level < kFirstLarge ? kTeamBlock / kWarpSize : 1) >
                                       shared_limit_);
    return level;
  }

  /* The size of a level. The last levels in global memory have room for every word and every column of A. */
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
    return TableSize{(int)std::min<Count>(slots, enough), (int)std::min<Count>(list, std::max<LocalInt>(A_.n, 1))};
  }

  template <PatternUse Use>
  PetscErrorCode Run(int level, const LocalInt *rows, LocalInt first, LocalInt items)
  {
    PetscFunctionBegin;
    PetscCallCUDA(cudaMemsetAsync(&tally_->too_large, 0, sizeof(tally_->too_large), stream_));
    if (level < kFirstLarge) PetscCall((Launch<kWarpSize, Use, true>(level, rows, first, items)));
    else if (level < kFirstInGlobal) PetscCall((Launch<kLargeTeam, Use, true>(level, rows, first, items)));
    else PetscCall((Launch<kLargeTeam, Use, false>(level, rows, first, items)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <int Threads, PatternUse Use, bool InShared>
  PetscErrorCode Launch(int level, const LocalInt *rows, LocalInt first, LocalInt items)
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

  const CSRView   &A_;
  const LocalInt   own_, rows_; /* the first row of A that is a row of G, and the rows of G */
  const CSRView   *S_;
  const PetscReal *s_;
  SFSAIParams      params_; /* with the power and the cap that are chosen */
  FSAIStats       &stats_;
  WorkMeter *const meter_;
  cudaStream_t     stream_  = nullptr;
  bool             is_long_ = false; /* the rows cost too much for the power */
  Buffer<char>     work_;            /* holds the arrays that follow */
  PatternTally    *tally_     = nullptr;
  LocalInt        *length_    = nullptr; /* [n + 1] */
  LocalInt        *list_      = nullptr; /* [n + 1] */
  unsigned char   *row_level_ = nullptr; /* [n] */
  unsigned        *place_     = nullptr; /* [n] */
  LocalInt        *pool_      = nullptr; /* [pool_size_] rows that are kept until G has its memory */
  size_t           pool_size_ = 0;       /* there is no pool where no sample gave its size */
  CubScratch       scratch_;
  Buffer<LocalInt> filtered_i_, filtered_j_;    /* A~ */
  Buffer<char>     tables_;                     /* work spaces in global memory */
  const LocalInt  *i_ = nullptr, *j_ = nullptr; /* A~ */
  int              first_level_  = 0;
  size_t           shared_limit_ = 0;
  const LocalInt  *G_i_          = nullptr;
  LocalInt        *G_j_ = nullptr, base_ = 0;
  PatternTally     host_                = {};
  LocalInt         level_rows_[kLevels] = {};
};
} // namespace

std::unique_ptr<SFSAIPattern> SFSAIPatternOf(const CSRView &A, LocalInt first, const CSRView *S, const PetscReal *s,
                                             const SFSAIParams &params, FSAIStats &stats, WorkMeter *meter)
{
  return std::make_unique<Pattern>(A, first, S, s, params, stats, meter);
}

PetscErrorCode SFSAIPattern_CUDA(const CSRView *A, LocalInt first, const CSRView *S, const PetscReal *s, const SFSAIParams *params,
                                 CSR *G, FSAIStats *stats)
{
  const LocalInt rows = A->n - first;

  PetscFunctionBegin;
  if (!rows) {
    PetscCall(CSRCreate(0, A->n, 0, params->factor_precision, PETSC_MEMTYPE_CUDA, G));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  Pattern pattern(*A, first, S, s, *params, *stats, nullptr);
  PetscCall(pattern.CountRows());
  PetscCall(CSRCreate(rows, A->n, pattern.nnz, params->factor_precision, PETSC_MEMTYPE_CUDA, G));
  PetscCall(pattern.Scan(G->i));
  PetscCall(pattern.Fill(0, rows, G->i, 0, G->j));
  PetscFunctionReturn(PETSC_SUCCESS);
}
