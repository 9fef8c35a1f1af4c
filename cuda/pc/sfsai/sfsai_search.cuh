/*
   The search for the pattern of a row of G, for sfsai_pattern.cu: the CUDA twin of what src/pc/sfsai/sfsai_host.cxx does for a
   pattern, which has the formulas. The rows are the same, and the numbers of equations are those of Bernaschi, Bisson, Fantozzi and
   Janna.

   Row i of B_k, (3.9), depends on row i of B_{k-1} only. All k products of a row are therefore one breadth-first search over
   columns <= i, by a team of threads with a hash table in shared memory, and no B_p is ever stored. The table maps words of 32
   columns each to bit masks: the columns of grids and of blocks of unknowns fill words, which makes the table small and the
   sorting of its keys cheap. Rows that outgrow a table are done again with a larger one, at last by blocks with tables in global
   memory. Rows are first counted, then, once G has its memory, found again and written; what fits a pool of limited size is kept
   in between. Nothing depends on the schedule.
*/
#pragma once

#include <cub/cub.cuh>

#include "pc/fsai.cuh"
#include "search.cuh"
#include "sfsai.cuh"

namespace
{

using WarpScan = cub::WarpScan<int>; /* of whole warps, for which its TempStorage is empty */

constexpr int kWordBits      = 32;  /* columns of a word of the table */
constexpr int kTeamBlock     = 128; /* threads of a block of which every warp takes a row */
constexpr int kLargeTeam     = 256; /* threads of a block of which all take a row together */
constexpr int kFirstInGlobal = 4;   /* first level in global memory */
constexpr int kAhead         = 4;   /* columns that a lane asks for before it uses any */

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

} // namespace
