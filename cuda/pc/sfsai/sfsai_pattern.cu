/* sFSAI on the GPU: the pattern of all rows of G, which are searched by sfsai_search.cuh. */
#include <cub/cub.cuh>
#include <cuda/std/functional>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#include <algorithm>
#include <vector>

#include "scratch.cuh"
#include "sfsai_search.cuh"

namespace
{

constexpr int    kLevels      = 9;    /* sizes of the work space */
constexpr int    kFirstLarge  = 3;    /* first level at which a block takes a row */
constexpr int    kGrowth      = 8;    /* factor from one size in global memory to the next */
constexpr int    kSampleRows  = 2048; /* rows that are tried first, where there are many, to see which level to start from */
constexpr int    kSampleShare = 16;   /* at most one row in so many is sampled */
constexpr double kPoolMargin  = 1.1;  /* room in the pool in proportion to what the sample says */

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
  Pattern(const SFSAIRows &of, const PetscReal *s, const SFSAIParams &params, FSAIStats &stats, WorkMeter *meter) :
      A_(*of.A), own_(of.first), rows_(A_.n - own_), S_(of.S), s_(s), params_(params), stats_(stats), meter_(meter), work_(meter),
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
    FSAISampleRows<<<BlocksFor(items), kBlockSize, 0, stream_>>>(items, own_, rows_, rows);
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

std::unique_ptr<SFSAIPattern> SFSAIPatternOf(const SFSAIRows &of, const PetscReal *s, const SFSAIParams &params, FSAIStats &stats,
                                             WorkMeter *meter)
{
  return std::make_unique<Pattern>(of, s, params, stats, meter);
}

PetscErrorCode SFSAIPattern_CUDA(const SFSAIRows &of, const PetscReal *s, const SFSAIParams *params, CSR *G, FSAIStats *stats)
{
  const LocalInt rows = of.A->n - of.first;

  PetscFunctionBegin;
  if (!rows) {
    PetscCall(CSRCreate(0, of.A->n, 0, params->factor_precision, PETSC_MEMTYPE_CUDA, G));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  Pattern pattern(of, s, *params, *stats, nullptr);
  PetscCall(pattern.CountRows());
  PetscCall(CSRCreate(rows, of.A->n, pattern.nnz, params->factor_precision, PETSC_MEMTYPE_CUDA, G));
  PetscCall(pattern.Scan(G->i));
  PetscCall(pattern.Fill(0, rows, G->i, 0, G->j));
  PetscFunctionReturn(PETSC_SUCCESS);
}
