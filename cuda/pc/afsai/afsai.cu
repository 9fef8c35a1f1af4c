/*
   AFSAI on the GPU: the set-up of all rows, in work spaces that grow with what rows turn out to need. afsai_rows.cuh computes a
   row.
*/
#include <cub/cub.cuh>
#include <cuda/std/functional>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <vector>

#include "afsai_rows.cuh"
#include "scratch.cuh"
#include "sparse/transfer.cuh"

namespace
{

constexpr int    kShortRow    = 12;    /* mean row length of A up to which 8 lanes take a row of G */
constexpr int    kMediumRow   = 24;    /* mean row length of A up to which 16 lanes take a row of G */
constexpr int    kFirstRow    = 32;    /* largest |P| that the first work space has room for */
constexpr int    kLargestRow  = 30000; /* largest |P| at all: an int still indexes the packed triangle of W */
constexpr int    kGrowth      = 4;     /* factor from one work space size to the next */
constexpr int    kSampleRows  = 8192;  /* rows that are done first, where there are many, to see what the others will need */
constexpr int    kSampleShare = 8;     /* at most one row in so many is sampled */
constexpr double kEnough      = 0.99;  /* share of the sampled rows that the work space of the other rows would have had room for */
constexpr double kPoolMargin  = 1.05;  /* room for G in proportion to what the sample says */
constexpr size_t kLeastWork   = (size_t)64 << 20; /* bytes that work spaces in global memory may take, however small A is */

/* The strictly lower entries of G, of all rows and of the longest. */
struct Totals {
  Count    entries;
  LocalInt longest;
};

/* S A S in single precision; the diagonal is 1, and not only to rounding. */
template <int GroupSize>
__global__ void AFSAIScale(CSRView A, const PetscReal *s, float *scaled)
{
  const LocalInt row = (LocalInt)(GridThread() / GroupSize);
  if (row >= A.n) return;
  const PetscReal s_row = s[row];
  for (LocalInt k = A.i[row] + threadIdx.x % GroupSize; k < A.i[row + 1]; k += GroupSize)
    scaled[k] = A.j[k] == row ? 1 : (float)(A.a[k] * s_row * s[A.j[k]]);
}

/* The rows that lie in the pool go to their places in G. */
template <typename S, int GroupSize>
__global__ void AFSAIGather(LocalInt rows, const LocalInt *G_i, const Count *offset, Pool pool, LocalInt *G_j, S *G_a)
{
  const LocalInt row = (LocalInt)(GridThread() / GroupSize);
  if (row >= rows) return;
  const Count from = offset[row];
  if (from < pool.base || from >= pool.base + pool.capacity) return;
  const LocalInt begin = G_i[row], length = G_i[row + 1] - begin;
  for (LocalInt k = threadIdx.x % GroupSize; k < length; k += GroupSize) {
    G_j[begin + k] = pool.j[from - pool.base + k];
    G_a[begin + k] = ((const S *)pool.a)[from - pool.base + k];
  }
}

__global__ void FillRows(LocalInt items, const LocalInt *rows, LocalInt first, LocalInt value, LocalInt *length)
{
  const long long k = GridThread();
  if (k < items) length[rows ? rows[k] - first : k] = value;
}

struct RowIs {
  const LocalInt *length;
  LocalInt        first, state;
  __device__ bool operator()(LocalInt row) const { return length[row - first] == state; }
};

struct RowLength {
  const LocalInt  *i;
  __device__ Count operator()(LocalInt row) const { return (Count)(i[row + 1] - i[row]); }
};

/* One set-up on the device: its arrays, and the order in which kernels are launched. */
class SetUp {
public:
  SetUp(const CSRView &A, LocalInt first, const CSRView *S, const AFSAIParams &params, bool keep, CSR &G, PetscReal *d,
        FSAIStats &stats) :
      A_(A), first_(first), rows_(A.n - first), S_(keep ? nullptr : S), params_(params), keep_(keep), G_(G), d_(d), stats_(stats),
      work_(&meter_)
  {
  }

  PetscErrorCode Run()
  {
    PetscFunctionBegin;
    PetscCall(DeviceGetStream(&stream_));
    PetscCall(Prepare());
    if (stats_.failure) PetscFunctionReturn(PETSC_SUCCESS);
    if (params_.setup_precision == FINEPC_SINGLE) {
      PetscCall(ProcessAll<float>());
      if (host_.bad_pivot) {
        stats_.double_rows = (LocalInt)host_.bad_pivot;
        LocalInt items;
        PetscCall(Select(kRowBadPivot, &items));
        PetscCall(Process<double>(list_, items, FirstCapacity()));
      }
    } else PetscCall(ProcessAll<double>());
    stats_.diagonal_rows = (LocalInt)host_.diagonal;
    if (!keep_) stats_.unfinished = (LocalInt)host_.unfinished;
    if (!keep_) PetscCall(Assemble());
    PetscCall(FSAIMeanLog_CUDA(rows_, d_, fsai_, &stats_.log_psi_after));
    stats_.log_psi_after = -stats_.log_psi_after; /* d = 1 / psi */
    /* the pools are gone before G^T is made: up to the size of G^T they do not add to the peak */
    const size_t later = keep_ ? 0 : CSRBytes(&G_);
    stats_.work_bytes  = meter_.peak > later ? meter_.peak - later : 0;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  PetscErrorCode ReadTally()
  {
    PetscFunctionBegin;
    PetscCall(SmallRead(tally_, sizeof(Tally), &host_, stream_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscErrorCode WriteTally()
  {
    PetscFunctionBegin;
    PetscCallCUDA(cudaMemcpyAsync(tally_, &host_, sizeof(Tally), cudaMemcpyHostToDevice, stream_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* CUB's calls, as CubScratch takes them. */
  auto LongestRowOfA() const
  {
    const auto lengths = thrust::make_transform_iterator(thrust::counting_iterator<LocalInt>(0), RowLength{A_.i});
    return [=](void *memory, size_t &bytes) {
      return cub::DeviceReduce::Max(memory, bytes, lengths, &tally_->max_A_row, A_.n, stream_);
    };
  }
  auto SelectRows(LocalInt state, LocalInt *count) const
  {
    const thrust::counting_iterator<LocalInt> all(first_);
    const RowIs                               is = {length_, first_, state};
    return [=](void *memory, size_t &bytes) { return cub::DeviceSelect::If(memory, bytes, all, list_, count, rows_, is, stream_); };
  }
  auto SumLengths() const
  {
    return [=](void *memory, size_t &bytes) {
      return cub::DeviceReduce::Reduce(memory, bytes, length_, &totals_->entries, rows_, ::cuda::std::plus<Count>(), (Count)0,
                                       stream_);
    };
  }
  auto LongestRow() const
  {
    return [=](void *memory, size_t &bytes) {
      return cub::DeviceReduce::Max(memory, bytes, length_, &totals_->longest, rows_, stream_);
    };
  }
  auto ScanLengths(LocalInt *G_i) const
  {
    return
      [=](void *memory, size_t &bytes) { return cub::DeviceScan::ExclusiveSum(memory, bytes, length_, G_i, rows_ + 1, stream_); };
  }

  /* All arrays whose size is known at the start. */
  PetscErrorCode AllocateWork()
  {
    Layout layout;

    PetscFunctionBegin;
    PetscCall(scratch_.Measure(SelectRows(kRowPending, nullptr)));
    PetscCall(scratch_.Measure(LongestRowOfA()));
    PetscCall(scratch_.Measure(LongestRow()));
    PetscCall(scratch_.Measure(SumLengths()));
    PetscCall(scratch_.Measure(ScanLengths(nullptr)));
    layout.Place(&s_, A_.n);
    layout.Place(&offset_, rows_);
    layout.Place(&tally_, 1);
    layout.Place(&needs_, 1);
    layout.Place(&totals_, 1);
    layout.Place(&length_, rows_ + 1);
    layout.Place(&list_, rows_ + 1);
    layout.Place(&scaled_, params_.setup_precision == FINEPC_SINGLE ? A_.nnz : 0);
    scratch_.Place(&layout);
    layout.Place(&fsai_, FSAIWorkBytes_CUDA(rows_));
    PetscCall(layout.Allocate(&work_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode Prepare()
  {
    PetscFunctionBegin;
    PetscCall(AllocateWork());
    PetscCall(FSAIScaling_CUDA(&A_, first_, s_, d_, fsai_, &stats_));
    if (stats_.failure) PetscFunctionReturn(PETSC_SUCCESS);
    host_ = Tally{};
    PetscCall(WriteTally());
    if (params_.setup_precision == FINEPC_SINGLE) {
      AFSAIScale<kScanGroup><<<BlocksFor((long long)A_.n * kScanGroup), kBlockSize, 0, stream_>>>(A_, s_, scaled_);
      FinePCCheckLaunch();
    }
    PetscCall(scratch_.Run(LongestRowOfA()));
    FillRows<<<BlocksFor(rows_), kBlockSize, 0, stream_>>>(rows_, nullptr, first_, kRowPending, length_);
    FinePCCheckLaunch();
    PetscCall(ReadTally());
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* All rows. Where they are many, a sample is done first, which tells what work space and how much room in G the others need. */
  template <typename T>
  PetscErrorCode ProcessAll()
  {
    LocalInt items = PetscMin(kSampleRows, rows_ / kSampleShare);

    PetscFunctionBegin;
    if (items < kSampleRows / 2) {
      PetscCall(Process<T>(nullptr, rows_, FirstCapacity()));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    sampling_ = true;
    PetscCallCUDA(cudaMemsetAsync(needs_, 0, sizeof(Needs), stream_));
    FSAISampleRows<<<BlocksFor(items), kBlockSize, 0, stream_>>>(items, first_, rows_, list_);
    FinePCCheckLaunch();
    PetscCall(Process<T>(list_, items, FirstCapacity()));
    PetscCall(SmallRead(needs_, sizeof(Needs), &host_needs_, stream_));
    PetscCall(Select(kRowPending, &items));
    sampling_          = false;
    const Capacity cap = SampledCapacity();
    PetscCall(Process<T>(list_, items, cap));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows of a list, or all rows if it is null, with larger and larger work spaces. */
  template <typename T>
  PetscErrorCode Process(const LocalInt *rows, LocalInt items, Capacity cap)
  {
    PetscFunctionBegin;
    for (int level = 0;; level++) {
      PetscCall(ProcessLevel<T>(rows, items, level, cap));
      if (!host_.too_large) break;
      if (!level) stats_.large_rows += (LocalInt)host_.too_large;
      PetscCall(Select(kRowTooLarge, &items));
      rows = list_;

      const Capacity larger = Larger(cap);
      PetscCheck(
        larger.row > cap.row || larger.entries > cap.entries || larger.candidates > cap.candidates, PETSC_COMM_SELF, PETSC_ERR_SUP,
        "%" LocalInt_FMT
        " rows of G would have more than %d entries: lower -pc_afsai_initial_power, -pc_afsai_max_steps or -pc_afsai_step_size, "
        "or give PCAFSAISetPattern() a pattern of shorter rows",
        items, cap.row);
      cap = larger;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <typename T>
  PetscErrorCode ProcessLevel(const LocalInt *rows, LocalInt items, int level, const Capacity &cap)
  {
    PetscFunctionBegin;
    host_.too_large = 0;
    while (items) {
      host_.next = host_.pool_used = 0;
      PetscCall(WriteTally());
      if (!keep_) PetscCall(AddPool(items));
      RowTask task = Task(rows, items, cap);
      PetscCall(Launch<T>(task, level));
      PetscCall(ReadTally());
      if (keep_ || host_.pool_used <= task.pool.capacity) break;
      PetscCall(Select(kRowPending, &items));
      rows = list_;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  RowTask Task(const LocalInt *rows, LocalInt items, const Capacity &cap) const
  {
    RowTask task             = {};
    task.rows                = rows;
    task.first               = first_;
    task.items               = items;
    task.rules.max_steps     = (int)params_.max_steps;
    task.rules.step_size     = (int)params_.step_size;
    task.rules.initial_power = keep_ || S_ ? 0 : (int)params_.initial_power;
    task.rules.stop_at_ratio = params_.stop_rule == PC_AFSAI_STOP_RATIO;
    task.rules.weighted      = Weighted();
    task.rules.keep          = keep_;
    task.rules.given         = S_ != nullptr;
    task.rules.tolerance     = params_.tolerance;
    task.rules.prefilter     = params_.prefilter;
    task.rules.postfilter    = params_.postfilter;
    task.capacity            = cap;
    task.single              = params_.factor_precision == FINEPC_SINGLE;
    if (!keep_) task.pool = pools_.back().pool;
    else task.pool = Pool{nullptr, nullptr, 0, kNoLimit};
    task.s      = s_;
    task.keep_i = S_ ? S_->i : G_.i;
    task.keep_j = S_ ? S_->j : G_.j;
    task.keep_a = G_.a;
    task.length = length_;
    task.offset = offset_;
    task.d      = d_;
    task.tally  = tally_;
    task.needs  = sampling_ ? needs_ : nullptr;
    return task;
  }

  bool Weighted() const { return !keep_ && params_.selection == PC_AFSAI_SELECTION_GRADIENT; }

  /* The work space that is enough for every row. */
  Capacity Limits() const
  {
    const PetscInt64 most_entries = LOCAL_INT_MAX / 2;
    PetscInt64       row          = keep_ || S_ || params_.initial_power ? A_.n : (PetscInt64)params_.max_steps * params_.step_size;
    row                           = std::max<PetscInt64>(1, std::min<PetscInt64>(row, A_.n));
    const PetscInt64 entries = std::max<PetscInt64>(1, std::min<PetscInt64>((row + 1) * (PetscInt64)host_.max_A_row, most_entries));
    Capacity         limit;
    limit.row        = (int)std::min<PetscInt64>(row, kLargestRow);
    limit.entries    = (int)entries;
    limit.candidates = (int)std::min<PetscInt64>(entries, A_.n);
    limit.slots      = 0;
    return limit;
  }
  static Capacity WithSlots(Capacity cap)
  {
    for (cap.slots = kWarpSize; cap.slots < (PetscInt64)cap.candidates * 4 / 3 && cap.slots < (1 << 30); cap.slots *= 2);
    return cap;
  }
  Capacity FirstCapacity() const
  {
    const Capacity limit = Limits();
    const int      mean  = (int)((A_.nnz + A_.n - 1) / A_.n);
    Capacity       cap;
    cap.row        = std::min(limit.row, kFirstRow);
    cap.entries    = (int)std::min<PetscInt64>(limit.entries, (PetscInt64)(cap.row + 1) * mean);
    cap.candidates = std::min(limit.candidates, std::max(cap.row, cap.entries / 4 * 3 + kWarpSize / 4));
    return WithSlots(cap);
  }
  /* The smallest size that is enough for most of the sampled rows, or `unknown` where the sample does not tell. */
  static int Enough(const unsigned *needs, int unknown)
  {
    Count all = 0, served = 0;
    int   need = 0;
    for (int n = 0; n < kNeeds; n++) all += needs[n];
    while (need < kNeeds - 1 && served + needs[need] < kEnough * all) served += needs[need++];
    return all && need < kNeeds - 1 ? std::max(1, need) : unknown;
  }
  Capacity SampledCapacity() const
  {
    const Capacity limit = Limits(), first = FirstCapacity();
    Capacity       cap;
    cap.row        = std::min(limit.row, Enough(host_needs_.row, first.row));
    cap.entries    = std::min(limit.entries, Enough(host_needs_.entries, first.entries));
    cap.candidates = std::max(cap.row, std::min(limit.candidates, Enough(host_needs_.candidates, first.candidates)));
    return WithSlots(cap);
  }
  Capacity Larger(Capacity cap) const
  {
    const Capacity limit = Limits();
    cap.row              = (int)std::min<PetscInt64>(limit.row, (PetscInt64)cap.row * kGrowth);
    cap.entries          = (int)std::min<PetscInt64>(limit.entries, (PetscInt64)cap.entries * kGrowth);
    cap.candidates       = (int)std::min<PetscInt64>(limit.candidates, (PetscInt64)cap.candidates * kGrowth);
    return WithSlots(cap);
  }

  template <typename T>
  ScaledMatrix<T> Matrix() const;

  /* The one place that chooses the size of a group: by the mean row length of A at first, 32 lanes for rows done again. */
  template <typename T>
  PetscErrorCode Launch(RowTask &task, int level)
  {
    const LocalInt mean = A_.nnz / A_.n;
    size_t         shared_limit;

    PetscFunctionBegin;
    PetscCall(SharedMemoryLimit(&shared_limit));
    const bool fits8  = Row<T, unsigned short, 8>::Bytes(task.capacity, task.rules.weighted) * (kWarpSize / 8) <= shared_limit;
    const bool fits16 = Row<T, unsigned short, 16>::Bytes(task.capacity, task.rules.weighted) * (kWarpSize / 16) <= shared_limit;
    const bool fits32 = Row<T, unsigned short, 32>::Bytes(task.capacity, task.rules.weighted) <= shared_limit;
    if (level == 0 && mean <= kShortRow && fits8) PetscCall((LaunchRows<T, unsigned short, 8>(task)));
    else if (level == 0 && mean <= kMediumRow && fits16) PetscCall((LaunchRows<T, unsigned short, 16>(task)));
    else if (fits32) PetscCall((LaunchRows<T, unsigned short, 32>(task)));
    else PetscCall((LaunchRows<T, unsigned int, 32>(task)));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <typename T, typename Index, int GroupSize>
  PetscErrorCode LaunchRows(RowTask &task)
  {
    using Work               = Row<T, Index, GroupSize>;
    constexpr bool kInShared = sizeof(Index) < sizeof(int);
    const auto     kernel    = AFSAIRows<T, Index, GroupSize>;
    int            processors, blocks_of_processor;
    size_t         shared_limit;
    Buffer<char>   work(&meter_);

    PetscFunctionBegin;
    PetscCall(SharedMemoryLimit(&shared_limit));
    PetscCall(ProcessorCount(&processors));
    task.work_stride         = Work::Bytes(task.capacity, task.rules.weighted);
    const int    threads     = kInShared && task.work_stride * (kRowBlock / GroupSize) > shared_limit ? kWarpSize : kRowBlock;
    const int    groups      = threads / GroupSize; /* groups of a block */
    const size_t block_bytes = kInShared ? task.work_stride * groups : 0;
    if (kInShared) PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)block_bytes));
    PetscCallCUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_of_processor, kernel, threads, block_bytes));
    PetscInt64 blocks =
      std::min<PetscInt64>((PetscInt64)processors * blocks_of_processor, ((PetscInt64)task.items + groups - 1) / groups);
    if (!kInShared) {
      /* at most half the bytes of A or kLeastWork, whichever is larger, but always room for one block */
      const size_t block_work = task.work_stride * groups;
      const size_t budget     = std::max(kLeastWork, (size_t)A_.nnz * (sizeof(PetscScalar) + sizeof(LocalInt)) / 2);
      size_t       free_bytes;
      blocks = std::max<PetscInt64>(1, std::min<PetscInt64>(blocks, (PetscInt64)(budget / block_work)));
      PetscCall(DeviceFreeBytes_CUDA(&free_bytes));
      PetscCheck(blocks * block_work <= free_bytes, PETSC_COMM_SELF, PETSC_ERR_MEM,
                 "A row of G needs more work space (%zu bytes) than the device has free (%zu): lower -pc_afsai_initial_power, "
                 "-pc_afsai_max_steps or -pc_afsai_step_size, or give PCAFSAISetPattern() a pattern of shorter rows",
                 task.work_stride, free_bytes);
      PetscCall(work.Allocate(blocks * block_work));
      task.global_work = work.data();
    }
    const PetscInt64 warps = blocks * threads / kWarpSize;
    task.chunk =
      (LocalInt)std::max<PetscInt64>(kWarpSize / GroupSize, std::min<PetscInt64>(kChunkOfRows, task.items / (4 * warps)));
    PetscCall(PetscLogGpuTimeBegin());
    kernel<<<(int)blocks, threads, block_bytes, stream_>>>(task, Matrix<T>());
    FinePCCheckLaunch();
    PetscCall(PetscLogGpuTimeEnd());
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Adds a pool with room for the entries of `items` more rows, as the sample tells or, without a sample, by the size of A. */
  PetscErrorCode AddPool(LocalInt items)
  {
    PetscFunctionBegin;
    const Capacity limit  = Limits();
    PetscInt64     wanted = (PetscInt64)items * limit.row, bound = 2 * (PetscInt64)A_.nnz;
    Count          rows = 0, entries = 0;
    for (int n = 0; n < kNeeds; n++) {
      rows += host_needs_.row[n];
      entries += n * (Count)host_needs_.row[n];
    }
    if (rows) bound = (PetscInt64)(kPoolMargin * items * entries / rows);
    const Count capacity = (Count)std::max<PetscInt64>(1, std::min(wanted, std::max<PetscInt64>(bound, 2 * (PetscInt64)limit.row)));
    PoolMemory  memory(&meter_);
    const size_t a_bytes = capacity * FinePCPrecisionBytes(params_.factor_precision);
    PetscCall(memory.data.Allocate(a_bytes + capacity * sizeof(LocalInt)));
    memory.pool = Pool{(LocalInt *)(memory.data.data() + a_bytes), memory.data.data(), pool_base_, capacity};
    pool_base_ += capacity;
    pools_.push_back(std::move(memory));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* list_ = the rows in a state, ascending; they become pending. */
  PetscErrorCode Select(RowState state, LocalInt *items)
  {
    LocalInt *const count = list_ + rows_;

    PetscFunctionBegin;
    PetscCall(scratch_.Run(SelectRows(state, count)));
    PetscCall(SmallRead(count, sizeof(LocalInt), items, stream_));
    if (*items) {
      FillRows<<<BlocksFor(*items), kBlockSize, 0, stream_>>>(*items, list_, first_, kRowPending, length_);
      FinePCCheckLaunch();
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* G from the pools. */
  PetscErrorCode Assemble()
  {
    Totals totals;

    PetscFunctionBegin;
    PetscCall(scratch_.Run(SumLengths()));
    PetscCall(scratch_.Run(LongestRow()));
    PetscCall(SmallRead(totals_, sizeof(totals), &totals, stream_));
    PetscCheck(totals.entries <= (Count)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "G has %llu entries, more than 32 bits can count: lower -pc_afsai_max_steps", totals.entries);
    stats_.max_row = totals.longest + 1;

    PetscCall(CSRCreate(rows_, A_.n, (LocalInt)totals.entries, params_.factor_precision, PETSC_MEMTYPE_CUDA, &G_));
    PetscCallCUDA(cudaMemsetAsync(length_ + rows_, 0, sizeof(LocalInt), stream_));
    PetscCall(scratch_.Run(ScanLengths(G_.i)));
    const int blocks = BlocksFor((long long)rows_ * kScanGroup);
    for (const PoolMemory &memory : pools_) {
      if (params_.factor_precision == FINEPC_SINGLE)
        AFSAIGather<float, kScanGroup><<<blocks, kBlockSize, 0, stream_>>>(rows_, G_.i, offset_, memory.pool, G_.j, (float *)G_.a);
      else
        AFSAIGather<double, kScanGroup>
          <<<blocks, kBlockSize, 0, stream_>>>(rows_, G_.i, offset_, memory.pool, G_.j, (double *)G_.a);
      FinePCCheckLaunch();
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  struct PoolMemory {
    explicit PoolMemory(WorkMeter *meter) : data(meter) { }
    Buffer<char> data;
    Pool         pool;
  };

  const CSRView     &A_;
  const LocalInt     first_, rows_;
  const CSRView     *S_; /* the pattern that is given to start with, or null */
  const AFSAIParams &params_;
  const bool         keep_;
  CSR               &G_;
  PetscReal         *d_;
  FSAIStats         &stats_;
  WorkMeter          meter_;
  cudaStream_t       stream_ = nullptr;
  Tally              host_;
  Needs              host_needs_ = {};
  bool               sampling_   = false;

  Buffer<char>            work_;             /* holds the arrays that follow */
  PetscReal              *s_      = nullptr; /* [A.n] */
  Count                  *offset_ = nullptr; /* [rows] */
  Tally                  *tally_  = nullptr;
  Needs                  *needs_  = nullptr;
  Totals                 *totals_ = nullptr;
  LocalInt               *length_ = nullptr; /* [rows + 1] */
  LocalInt               *list_   = nullptr; /* [rows + 1] */
  float                  *scaled_ = nullptr; /* [A.nnz] in single precision */
  CubScratch              scratch_;
  char                   *fsai_ = nullptr; /* [FSAIWorkBytes_CUDA(rows)] */
  std::vector<PoolMemory> pools_;
  Count                   pool_base_ = 0;
};

template <>
ScaledMatrix<float> SetUp::Matrix<float>() const
{
  return {A_.i, A_.j, scaled_};
}

template <>
ScaledMatrix<double> SetUp::Matrix<double>() const
{
  return {A_.i, A_.j, A_.a, s_};
}

} // namespace

PetscErrorCode AFSAIComputeFactor_CUDA(const CSRView *A, LocalInt first, const CSRView *S, const AFSAIParams *params,
                                       PetscBool keep, CSR *G, PetscReal *d, FSAIStats *stats)
{
  PetscFunctionBegin;
  FSAIStatsBegin(keep, stats);
  if (A->n == first) {
    if (!keep) PetscCall(CSRCreate(0, A->n, 0, params->factor_precision, PETSC_MEMTYPE_CUDA, G));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(SetUp(*A, first, S, *params, keep, *G, d, *stats).Run());
  PetscFunctionReturn(PETSC_SUCCESS);
}
