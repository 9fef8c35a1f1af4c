/*
   The kernel of a row of AFSAI, for afsai.cu: the CUDA twin of src/pc/afsai/afsai_host.cxx, which has the formulas. It computes the
   same rows. A group of lanes takes a row, which
   stays on the chip from the first index of its pattern to the last. Equations (2.x) are those of Isotton, Janna and Bernaschi,
   equations (3.x) those of Bernaschi, Bisson, Fantozzi and Janna.

   What differs from the host twin:
   - A row is held as a set of candidates (the columns j < i seen so far, found through a hash table), each with a chain of
     entries (value, owner) of A. Owner 0 is row i itself, owner p the p-th index of P. The chain of j is A[P + i, j]: a gradient
     is a walk along it, A[P, q] of a chosen q is known before row q of A is read, and no row of A is read twice.
   - Each new index borders the inverse W = L^{-1} of the Cholesky factor of A[P, P] instead of L, so that no triangular solve is
     left:
       y = W A[P, q],  l^2 = a_qq - y.y,  new row of W = [-(y^T W) / l, 1 / l],
       omega = -(gradient at q) / l,  psi -= omega^2,  g += omega * (new row of W).
   - The groups of a warp run in lockstep: each turn of the loop gives every group the next index of its own row or, if that row
     is complete, the next row. Rows are handed out dynamically. Rows that are too large for the work space are listed and done
     again with a larger one, at last in global memory; rows that single precision cannot do are done again in double.
   The order of a chain depends on P alone and ties go to the smaller column, so that the result does not depend on the schedule.
*/
#pragma once

#include "pc/afsai/afsai.h"
#include "pc/fsai.cuh"
#include "search.cuh"

namespace
{

constexpr int kRowBlock    = 64;   /* threads of a block of the row kernel: few, since shared memory limits the occupancy */
constexpr int kBankBytes   = 128;  /* bytes of shared memory that all banks together serve at once */
constexpr int kChunkOfRows = 8;    /* most rows that a warp takes at a time */
constexpr int kNeeds       = 1024; /* a need of a sampled row below this is counted exactly, a larger one as this - 1 */

/* What stands in the place of the length of a row of G while the row is not done. */
enum RowState : LocalInt { kRowPending = -1, kRowTooLarge = -2, kRowBadPivot = -3 };

/* Counters that the kernels write and the host reads. */
struct Tally {
  Count next;      /* next item of the work list */
  Count pool_used; /* may pass the pool's capacity: then rows are left pending */
  Count too_large, bad_pivot, diagonal, unfinished;
  Count max_A_row; /* entries of the longest row of A */
};

/* How many of the sampled rows needed a work space of each size. */
struct Needs {
  unsigned row[kNeeds], candidates[kNeeds], entries[kNeeds];
};

/* A scaled to unit diagonal, S A S with S = diag(A)^{-1/2}: a stored copy in single precision, computed on the fly in double. */
template <typename T>
struct ScaledMatrix;

template <>
struct ScaledMatrix<float> {
  const LocalInt  *i, *j;
  const float     *a;
  __device__ float Value(LocalInt k, LocalInt, LocalInt) const { return a[k]; }
};

template <>
struct ScaledMatrix<double> {
  const LocalInt    *i, *j;
  const PetscScalar *a;
  const PetscReal   *s;
  __device__ double Value(LocalInt k, LocalInt row, LocalInt column) const { return column == row ? 1 : a[k] * s[row] * s[column]; }
};

struct Rules {
  int    max_steps, step_size, initial_power;
  bool   stop_at_ratio, weighted, keep, given;
  double tolerance, prefilter, postfilter;
};

/* The sizes of one row's work space. */
struct Capacity {
  int row;        /* |P| */
  int candidates; /* distinct columns */
  int entries;    /* entries of A */
  int slots;      /* of the hash table, a power of two */
};

/* Finished rows are appended to a pool, in any order, and gathered into G at the end. */
struct Pool {
  LocalInt *j;
  void     *a;
  Count     base, capacity; /* this pool holds the offsets base .. base + capacity - 1 */
};
constexpr Count kNoLimit = ~0ull; /* capacity where no pool is used */

struct RowTask {
  const LocalInt  *rows; /* [items] work list, or null for rows first .. */
  LocalInt         first, items, chunk;
  Rules            rules;
  Capacity         capacity;
  size_t           work_stride; /* bytes of a group's work space */
  char            *global_work; /* null where the work spaces are in shared memory */
  bool             single;      /* whether the values are written in single precision */
  Pool             pool;
  const PetscReal *s;
  const LocalInt  *keep_i, *keep_j; /* the pattern to keep, or the given one to start with, which may have columns of no use */
  void            *keep_a;          /* the values of the pattern to keep */
  LocalInt        *length;          /* [n - first] */
  Count           *offset;          /* [n - first] */
  PetscReal       *d;               /* [n - first] */
  Tally           *tally;
  Needs           *needs; /* null where the rows are no sample */
};

/* Entries of a packed lower triangle, which is stored by rows. */
__host__ __device__ inline int Triangle(int rows)
{
  return rows * (rows + 1) / 2;
}

__device__ inline void StoreValue(void *a, bool single, Count k, double value)
{
  if (single) ((float *)a)[k] = (float)value;
  else ((double *)a)[k] = value;
}

/* The row that a group of lanes works on. Data members that are no pointers are the same in every lane of the group. */
template <typename T, typename Index, int GroupSize>
class Row {
public:
  static constexpr Index kNone       = (Index) ~(Index)0; /* end of a chain */
  static constexpr Index kFree       = kNone;             /* place of a candidate that is not in P and can be chosen */
  static constexpr Index kIneligible = kNone - 1;         /* place of a candidate that was seen through dropped entries only */
  static constexpr Index kQueued     = kNone - 2;         /* place of a candidate that is chosen, but not in P yet */
  static constexpr int   kEmpty      = -1;

  /* An entry of row i of A, or of a row of A in P, in the chain of its column. */
  struct __align__(2 * sizeof(T)) Entry {
    T     value;
    Index next, owner;
  };
  struct __align__(4 * sizeof(Index)) Candidate {
    int   column;
    Index head;  /* newest entry of the chain */
    Index place; /* its number in P, or kFree, kIneligible, kQueued */
  };
  static_assert(sizeof(Entry) % (2 * sizeof(T)) == 0 && sizeof(Candidate) % (4 * sizeof(Index)) == 0, "each moves in one access");

  static __host__ __device__ size_t Bytes(const Capacity &cap, bool weighted)
  {
    const size_t bytes = sizeof(Entry) * cap.entries + sizeof(Candidate) * cap.candidates +
                         sizeof(T) * (Triangle(cap.row) + 2 * cap.row + 1 + (weighted ? cap.candidates : 0)) +
                         sizeof(int) * cap.slots + sizeof(Index) * cap.row;
    /* the work spaces of the groups of a warp start at different banks */
    const size_t shift = GroupSize * sizeof(int) % kBankBytes;
    return (bytes + kBankBytes - shift - 1) / kBankBytes * kBankBytes + shift;
  }

  __device__ Row(const RowTask &task, const ScaledMatrix<T> &A, char *work) : task_(task), A_(A), lane_(threadIdx.x % GroupSize)
  {
    const Capacity &cap = task.capacity;
    entry_              = (Entry *)work;
    candidate_          = (Candidate *)(entry_ + cap.entries);
    W_                  = (T *)(candidate_ + cap.candidates);
    g_                  = W_ + Triangle(cap.row);
    y_                  = g_ + cap.row + 1;
    weight_             = y_ + cap.row;
    slot_               = (int *)(weight_ + (task.rules.weighted ? cap.candidates : 0));
    P_                  = (Index *)(slot_ + cap.slots);
  }

  bool active = false;

  /* Starts row i, with P empty, the pattern to keep or a given one. Collective over the warp; `mine` holds for the groups that
   * start a row. */
  __device__ void Begin(bool mine, LocalInt i)
  {
    if (mine) {
      row_           = i;
      k_             = 0;
      queued_        = 0;
      candidates_    = 0;
      entries_       = 0;
      steps_         = 0;
      powers_left_   = task_.rules.initial_power;
      psi_           = 1;
      psi_step_      = 1;
      psi_initial_   = 1;
      not_inserted_  = -1;
      step_begin_    = -1;
      active         = true;
      finished_      = false;
      next_inserted_ = i;
      for (int h = lane_; h < task_.capacity.slots; h += GroupSize) slot_[h] = kEmpty;
      if (lane_ == 0) g_[0] = 1;
    }
    __syncwarp();
    if (task_.rules.keep || task_.rules.given) Take(mine);
  }

  /* Chooses the entries of a new step, once the last step is complete. */
  __device__ void Choose(bool mine)
  {
    mine = mine && !finished_ && k_ == queued_;
    if (!__any_sync(kFullWarp, mine)) return;
    const Rules &rules = task_.rules;
    const bool   power = mine && powers_left_ > 0;
    if (rules.initial_power) ChooseAll(power);
    bool step = mine && !power;
    if (step && (steps_ == rules.max_steps || rules.keep)) {
      finished_ = true;
      step      = false;
    }
    if (step) {
      if (!steps_) psi_initial_ = psi_;
      psi_step_   = psi_;
      step_begin_ = k_;
      steps_++;
    }
    for (int s = 0; s < rules.step_size && __any_sync(kFullWarp, step); s++) step = ChooseLargest(step);
    if (mine && !power && k_ == queued_) finished_ = true;          /* no candidate is left */
    if (power) powers_left_ = k_ == queued_ ? 0 : powers_left_ - 1; /* without a candidate, further powers add none either */
  }

  /* Appends the next chosen index to P. */
  __device__ void Append(bool mine)
  {
    mine               = mine && !finished_ && k_ < queued_;
    const Index chosen = mine ? P_[k_] : 0;
    const Index first  = mine ? candidate_[chosen].head : kNone;
    T           square = 0;
    for (int r = lane_; mine && r < k_; r += GroupSize) {
      const T *W = W_ + Triangle(r);
      T        y = 0;
      for (Index e = first; e != kNone;) {
        const Entry entry = entry_[e];
        if (entry.owner > 0 && entry.owner <= r + 1) y += W[entry.owner - 1] * entry.value;
        e = entry.next;
      }
      y_[r] = y;
      square += y * y;
    }
    /* the gradient by which the index was chosen still holds if no other index was appended since */
    if (mine && k_ != step_begin_) gradient_ = ChainSum(first);
    square = GroupSum<GroupSize>(square);
    __syncwarp();
    if (!mine) return;
    const T pivot = 1 - square;
    const T l_inv = rsqrt(pivot);
    const T omega = -gradient_ * l_inv;
    const T psi   = psi_ - omega * omega;
    if (!(pivot > kSmallestPivot<T>) || !(psi > kSmallestPivot<T>)) {
      Give(kRowBadPivot);
      return;
    }
    T *W_new = W_ + Triangle(k_);
    for (int c = lane_; c < k_; c += GroupSize) {
      const T *W   = W_ + Triangle(c) + c;
      T        sum = 0;
#pragma unroll 4
      for (int r = c; r < k_; r++) {
        sum += y_[r] * *W;
        W += r + 1;
      }
      sum *= -l_inv;
      W_new[c] = sum;
      g_[c + 1] += omega * sum;
    }
    if (lane_ == 0) {
      W_new[k_]                = l_inv;
      g_[k_ + 1]               = omega * l_inv;
      candidate_[chosen].place = (Index)k_;
    }
    k_++;
    psi_ = psi;
    if (k_ == queued_ && StepsAreOver()) {
      finished_     = true;
      not_inserted_ = k_ - 1;
    } else {
      next_inserted_ = candidate_[chosen].column;
    }
  }

  /* The row of A that the next Insert() takes in, and the row whose index the next Append() appends; -1 if there is none. */
  __device__ LocalInt NextInserted(bool mine) const { return mine && !finished_ ? next_inserted_ : -1; }
  __device__ LocalInt NextToAppend(bool mine) const { return mine && !finished_ && k_ < queued_ ? candidate_[P_[k_]].column : -1; }

  /* The bounds of a row of A, and the lane's entry begin + lane, which is loaded ahead of the others. */
  struct Prefetched {
    LocalInt begin, end, column;
    T        value;
  };
  __device__ Prefetched Load(LocalInt row) const
  {
    Prefetched first = {0, 0, 0, 0};
    if (row < 0) return first;
    first.begin = A_.i[row];
    first.end   = A_.i[row + 1];
    if (first.begin + lane_ < first.end) {
      first.column = A_.j[first.begin + lane_];
      first.value  = A_.Value(first.begin + lane_, row, first.column);
    }
    return first;
  }

  /* Takes in the columns < i of a row of A, which becomes owner k. */
  __device__ void Insert(bool mine, const Prefetched &first)
  {
    const LocalInt source  = NextInserted(mine);
    const Index    owner   = (Index)k_;
    const bool     keep    = task_.rules.keep;
    const T        dropped = (T)task_.rules.prefilter;
    const unsigned below   = (1u << lane_) - 1u;
    const unsigned mask    = (unsigned)task_.capacity.slots - 1u;
    mine                   = source >= 0;
    for (LocalInt base = first.begin; __any_sync(kFullWarp, mine && base < first.end); base += GroupSize) {
      const LocalInt at     = base + lane_;
      LocalInt       column = first.column;
      T              value  = first.value;
      bool           taken  = mine && at < first.end;
      if (taken && base != first.begin) {
        column = A_.j[at];
        value  = A_.Value(at, source, column);
      }
      taken = taken && column < row_;

      unsigned h = Hash(column) & mask;
      int      c = kEmpty;
      if (taken) c = Find(column, h, mask);
      __syncwarp();
      const bool fresh           = taken && c == kEmpty && !keep;
      taken                      = taken && (fresh || c != kEmpty);
      const unsigned fresh_lanes = GroupBallot<GroupSize>(fresh), taken_lanes = GroupBallot<GroupSize>(taken);
      if (mine && (candidates_ + __popc(fresh_lanes) > task_.capacity.candidates ||
                   entries_ + __popc(taken_lanes) > task_.capacity.entries)) {
        Give(kRowTooLarge);
        mine = false;
      }
      if (mine && fresh) {
        c             = candidates_ + __popc(fresh_lanes & below);
        candidate_[c] = Candidate{(int)column, kNone, kIneligible};
        if (task_.rules.weighted) weight_[c] = (T)(1 / task_.s[column]);
        while (atomicCAS(slot_ + h, kEmpty, c) != kEmpty) h = (h + 1) & mask;
      }
      if (mine && taken) {
        const int e         = entries_ + __popc(taken_lanes & below);
        Candidate candidate = candidate_[c];
        entry_[e]           = Entry{value, candidate.head, owner};
        candidate.head      = (Index)e;
        if (candidate.place == kIneligible && fabs(value) > dropped) candidate.place = kFree;
        candidate_[c] = candidate;
      }
      if (mine) {
        candidates_ += __popc(fresh_lanes);
        entries_ += __popc(taken_lanes);
      }
      __syncwarp();
    }
    if (source >= 0) next_inserted_ = -1;
  }

  /* Filters, scales and writes the finished rows. */
  __device__ void Finish(bool mine)
  {
    mine = mine && finished_;
    if (!__any_sync(kFullWarp, mine)) return;
    const PetscReal *s     = task_.s;
    const LocalInt   local = mine ? row_ - task_.first : 0;
    if (task_.rules.postfilter > 0 && !task_.rules.keep) { /* (3.11) */
      double norm = 0;
      for (int p = lane_; mine && p < k_; p += GroupSize) {
        const double x = g_[p + 1] * s[candidate_[P_[p]].column];
        norm += x * x;
      }
      norm = GroupSum<GroupSize>(norm);
      if (mine) norm = task_.rules.postfilter * sqrt(norm + s[row_] * s[row_]);
      for (int p = lane_; mine && p < k_; p += GroupSize)
        if (fabs(g_[p + 1] * s[candidate_[P_[p]].column]) <= norm) g_[p + 1] = 0;
      __syncwarp();
    }

    /* psi = g~ A g~^T, (2.13), is of the g that is kept, so that diag(G A G^T) = 1 holds whatever the rounding errors of g */
    double     psi    = 0;
    int        length = 0;
    const bool all    = task_.rules.keep || !(task_.rules.postfilter > 0);
    bool       finite = true;
    for (int p = lane_; mine && p < k_; p += GroupSize) {
      const double g     = g_[p + 1];
      double       a_row = 0, rest = 0;
      for (Index e = candidate_[P_[p]].head; e != kNone;) {
        const Entry entry = entry_[e];
        if (entry.owner == 0) a_row += entry.value;
        else rest += (double)entry.value * g_[entry.owner];
        e = entry.next;
      }
      /* the last row of A was not inserted: by symmetry its entries in the other chains are this chain's, and its diagonal is 1 */
      if (p == not_inserted_) rest += rest + g;
      psi += g * (2 * a_row + rest);
      if (all || g_[p + 1] != 0) length++;
      finite = finite && isfinite((float)(g * s[candidate_[P_[p]].column] / s[row_]));
    }
    psi    = 1 + GroupSum<GroupSize>(psi);
    length = GroupSum<GroupSize>(length);
    finite = !GroupBallot<GroupSize>(mine && !finite);
    if (mine && (!(psi > kSmallestPivot<T>) || !finite)) {
      Give(kRowBadPivot);
      mine = false;
    }

    Count offset = 0;
    void *out_a  = task_.keep_a;
    if (task_.rules.keep) {
      if (mine) offset = task_.keep_i[local];
    } else {
      if (mine && lane_ == 0) offset = atomicAdd(&task_.tally->pool_used, (Count)length);
      offset = __shfl_sync(kFullWarp, offset, 0, GroupSize);
      out_a  = task_.pool.a;
      if (mine && offset + length > task_.pool.capacity) { /* the row is left pending */
        active = false;
        mine   = false;
      }
    }
    if (!mine) return;
    const double scale = 1 / s[row_];
    for (int p = lane_; p < k_; p += GroupSize) {
      const T g = g_[p + 1];
      if (!all && g == 0) continue;
      const int column = candidate_[P_[p]].column;
      int       rank   = 0;
      if (task_.rules.keep) rank = p;
      else
        for (int q = 0; q < k_; q++) rank += (all || g_[q + 1] != 0) && candidate_[P_[q]].column < column;
      if (!task_.rules.keep) task_.pool.j[offset + rank] = column;
      StoreValue(out_a, task_.single, offset + rank, g * s[column] * scale);
    }
    if (lane_ == 0) {
      task_.length[local] = length;
      task_.offset[local] = task_.pool.base + offset;
      task_.d[local]      = 1 / (task_.d[local] * psi);
      if (!task_.rules.keep && steps_ && steps_ == task_.rules.max_steps && psi_step_ - psi_ > (T)kAFSAISmallStep * psi_step_)
        atomicAdd(&task_.tally->unfinished, (Count)1);
      if (task_.needs) {
        atomicAdd(task_.needs->row + min(k_, kNeeds - 1), 1u);
        atomicAdd(task_.needs->candidates + min(candidates_, kNeeds - 1), 1u);
        atomicAdd(task_.needs->entries + min(entries_, kNeeds - 1), 1u);
      }
    }
    active = false;
  }

private:
  /* g . A[P, j] + a_ij along the chain of j, which is half of (2.15). */
  __device__ T ChainSum(Index e) const
  {
    T sum = 0;
    while (e != kNone) {
      const Entry entry = entry_[e];
      sum += entry.value * g_[entry.owner];
      e = entry.next;
    }
    return sum;
  }

  __device__ static unsigned Hash(LocalInt column)
  {
    const unsigned x = (unsigned)column * 2654435769u;
    return x ^ (x >> 15);
  }

  /* The candidate of a column; or kEmpty, and h is the slot where the candidate would go. */
  __device__ int Find(LocalInt column, unsigned &h, unsigned mask) const
  {
    int c;
    while ((c = slot_[h]) != kEmpty && candidate_[c].column != column) h = (h + 1) & mask;
    return c;
  }

  __device__ bool StepsAreOver() const
  {
    const Rules &rules = task_.rules;
    if (rules.keep) return true;
    if (powers_left_ > 0) return false;
    if (steps_ == rules.max_steps) return true;
    if (steps_ == 0) return false;
    return rules.stop_at_ratio ? psi_ <= (T)rules.tolerance * psi_initial_ : psi_step_ - psi_ < (T)rules.tolerance * psi_step_;
  }

  /* Queues the free candidate of the largest gradient, of equal ones the smallest column. False if no candidate is free. */
  __device__ bool ChooseLargest(bool mine)
  {
    T   best = 0, gradient = 0; /* of the lane's own candidates */
    int column = INT_MAX, c = kEmpty;
    for (int b = lane_; mine && b < candidates_; b += GroupSize) {
      const Candidate candidate = candidate_[b];
      if (candidate.place != kFree) continue;
      const T half    = ChainSum(candidate.head);
      T       measure = fabs(half);
      if (task_.rules.weighted) measure *= weight_[b];
      if (measure > best || (measure == best && candidate.column < column && c != kEmpty)) {
        best     = measure;
        gradient = half;
        column   = candidate.column;
        c        = b;
      }
    }
    const T        largest  = GroupMax<GroupSize>(best);
    const int      smallest = GroupMin<GroupSize>(best == largest ? column : INT_MAX);
    const unsigned winner   = GroupBallot<GroupSize>(c != kEmpty && best == largest && column == smallest);
    const int      from     = winner ? __ffs(winner) - 1 : 0;
    const int      best_c   = __shfl_sync(kFullWarp, c, from, GroupSize);
    gradient                = __shfl_sync(kFullWarp, gradient, from, GroupSize);
    mine                    = mine && winner;
    if (mine && queued_ == task_.capacity.row) {
      Give(kRowTooLarge);
      mine = false;
    }
    __syncwarp();
    if (mine) {
      if (lane_ == 0) {
        P_[queued_]              = (Index)best_c;
        candidate_[best_c].place = kQueued;
      }
      if (queued_ == k_) gradient_ = gradient;
      queued_++;
    }
    __syncwarp();
    return mine;
  }

  /* Queues all free candidates by ascending columns, which makes one more power of A. */
  __device__ void ChooseAll(bool mine)
  {
    int count = 0;
    for (int c = lane_; mine && c < candidates_; c += GroupSize) count += candidate_[c].place == kFree;
    count = GroupSum<GroupSize>(count);
    if (mine && queued_ + count > task_.capacity.row) {
      Give(kRowTooLarge);
      mine = false;
    }
    for (int c = lane_; mine && c < candidates_; c += GroupSize) {
      if (candidate_[c].place != kFree) continue;
      int rank = 0;
      for (int b = 0; b < candidates_; b++) rank += candidate_[b].place == kFree && candidate_[b].column < candidate_[c].column;
      P_[queued_ + rank] = (Index)c;
    }
    __syncwarp();
    for (int q = queued_ + lane_; mine && q < queued_ + count; q += GroupSize) candidate_[P_[q]].place = kQueued;
    if (mine) {
      queued_ += count;
      step_begin_ = -1;
    }
    __syncwarp();
  }

  /* Queues the pattern to keep, or what a given one has left of the diagonal. */
  __device__ void Take(bool mine)
  {
    const unsigned mask  = (unsigned)task_.capacity.slots - 1u;
    const LocalInt begin = mine ? task_.keep_i[row_ - task_.first] : 0;
    LocalInt       end   = mine ? task_.keep_i[row_ - task_.first + 1] : 0;
    if (!task_.rules.keep) end = LowerBound(task_.keep_j, begin, end, row_);
    const int count = (int)(end - begin);
    if (mine && (count > task_.capacity.row || count > task_.capacity.candidates)) {
      Give(kRowTooLarge);
      mine = false;
    }
    for (int c = lane_; mine && c < count; c += GroupSize) {
      const int column = (int)task_.keep_j[begin + c];
      candidate_[c]    = Candidate{column, kNone, kQueued};
      P_[c]            = (Index)c;
      unsigned h       = Hash(column) & mask;
      while (atomicCAS(slot_ + h, kEmpty, c) != kEmpty) h = (h + 1) & mask;
    }
    if (mine) candidates_ = queued_ = count;
    __syncwarp();
  }

  /* The row cannot be done here: a bad pivot in double precision leaves its diagonal, otherwise it is listed for another try. */
  __device__ void Give(RowState state)
  {
    active = false;
    if (lane_ != 0) return;
    const LocalInt local = row_ - task_.first;
    if (state == kRowTooLarge) {
      task_.length[local] = state;
      atomicAdd(&task_.tally->too_large, (Count)1);
    } else if (sizeof(T) == sizeof(double)) {
      GiveDiagonal(local);
    } else {
      task_.length[local] = state;
      atomicAdd(&task_.tally->bad_pivot, (Count)1);
    }
  }

  __device__ void GiveDiagonal(LocalInt local)
  {
    if (task_.rules.keep)
      for (LocalInt k = task_.keep_i[local]; k < task_.keep_i[local + 1]; k++) StoreValue(task_.keep_a, task_.single, k, 0);
    task_.length[local] = 0;
    task_.offset[local] = task_.pool.base;
    task_.d[local]      = 1 / task_.d[local];
    atomicAdd(&task_.tally->diagonal, (Count)1);
  }

  const RowTask         &task_;
  const ScaledMatrix<T> &A_;
  const int              lane_;

  Entry     *entry_;     /* [entries] */
  Candidate *candidate_; /* [candidates] */
  T         *W_;         /* [row (row + 1) / 2] */
  T         *g_;         /* [row + 1] 1 for row i itself, then g over P */
  T         *y_;         /* [row] */
  T         *weight_;    /* [candidates] sqrt(a_jj), where candidates are chosen by (2.15) without scaling */
  int       *slot_;      /* [slots] hash table of candidates */
  Index     *P_;         /* [row] candidates, in the order of their choice */

  LocalInt row_ = 0, next_inserted_ = -1;
  int      k_ = 0, queued_ = 0; /* |P| now, and once all that is chosen is appended */
  int      candidates_ = 0, entries_ = 0, steps_ = 0, powers_left_ = 0, not_inserted_ = -1;
  int      step_begin_ = -1; /* the |P| at which gradient_ is the gradient at P_[|P|] */
  T        gradient_   = 0;
  T        psi_ = 1, psi_step_ = 1, psi_initial_ = 1;
  bool     finished_ = false;
};

template <typename T, typename Index, int GroupSize>
__global__ void __launch_bounds__(kRowBlock) AFSAIRows(RowTask task, ScaledMatrix<T> A)
{
  extern __shared__ __align__(16) char shared_work[];

  const int                group = (int)(GridThread() / GroupSize);
  Row<T, Index, GroupSize> row(task, A,
                               sizeof(Index) == sizeof(int) ? task.global_work + group * task.work_stride
                                                            : shared_work + threadIdx.x / GroupSize * task.work_stride);

  const int warp_lane = threadIdx.x % kWarpSize;
  LocalInt  next = 0, end = 0; /* rows that this warp has taken */
  bool      more = true;
  while (true) {
    row.Finish(row.active);
    __syncwarp();

    const bool     idle         = !row.active;
    bool           starts       = false;
    const unsigned idle_leaders = __ballot_sync(kFullWarp, idle && warp_lane % GroupSize == 0);
    if (idle_leaders) {
      if (next >= end && more) {
        Count taken = 0;
        if (warp_lane == 0)
          taken = *(volatile Count *)&task.tally->pool_used > task.pool.capacity ? (Count)task.items
                                                                                 : atomicAdd(&task.tally->next, (Count)task.chunk);
        taken = __shfl_sync(kFullWarp, taken, 0);
        more  = taken < (Count)task.items;
        next  = more ? (LocalInt)taken : 0;
        end   = more ? (LocalInt)min((Count)task.items, taken + task.chunk) : 0;
      }
      const LocalInt item = next + __popc(idle_leaders & ((1u << (warp_lane / GroupSize * GroupSize)) - 1u));
      starts              = idle && item < end;
      row.Begin(starts, starts ? (task.rows ? task.rows[item] : task.first + item) : 0);
      next = min(end, next + (LocalInt)__popc(idle_leaders));
      if (!more && next >= end && !__any_sync(kFullWarp, row.active)) return;
    }

    const bool going = row.active && !starts;
    row.Choose(going);
    /* the row of A that will be inserted is known before its index is appended, so its first entries are loaded now */
    const LocalInt source = starts ? row.NextInserted(row.active) : row.NextToAppend(row.active);
    const auto     first  = row.Load(source);
    row.Append(row.active && !starts);
    __syncwarp();
    row.Insert(row.active, first);
  }
}

} // namespace
