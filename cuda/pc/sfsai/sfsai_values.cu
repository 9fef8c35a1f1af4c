/*
   sFSAI on the GPU: the values of all rows of G on a pattern, whose systems are solved by sfsai_systems.cuh.

   - Rows whose systems are nested are found first. Systems are bucketed by their size with a radix sort that keeps their order.
   - With a postfilter G is computed in chunks of rows, so that the unfiltered G never is in memory as a whole. Where there are
     several chunks, each but the last is computed twice: for the lengths of its rows first, then for their entries, once G has its
     memory.
   Nothing depends on the schedule.
*/
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "scratch.cuh"
#include "sfsai.cuh"
#include "sfsai_systems.cuh"

namespace
{

/* The largest systems of the classes by size, but for the last. */
struct ClassLimits {
  int largest[kSizeClasses];
};

/*
   The states of rows first .. end - 1: whether they are nested, see sfsai_systems.cuh. Rows of A begin to be rows of G at `own`. A
   thread takes a row, since the lengths alone tell of most rows that they are not.
*/
__global__ void SFSAIStates(LocalInt own, LocalInt first, LocalInt end, const LocalInt *G_i, const LocalInt *G_j, LocalInt base,
                            unsigned char *state)
{
  const LocalInt row    = first + (LocalInt)GridThread();
  bool           nested = (row - own) % kSFSAIMostShared != 0;
  if (row >= end) return;
  if (nested) {
    const LocalInt  length = G_i[row] - G_i[row - 1];
    const LocalInt *before = G_j + (G_i[row - 1] - base), *j = before + length;
    nested = G_i[row + 1] - G_i[row] == length + 1 && j[length] == row - 1;
    for (LocalInt k = 0; nested && k < length; k++) nested = j[k] == before[k];
  }
  state[row] = nested ? ROW_NESTED : 0;
}

/* Rows first .. first + items - 1, of which those that are bad alone are solved `again`. Without states no rows share a system. */
struct RowsToSolve {
  LocalInt             first, items;
  const LocalInt      *G_i;
  const unsigned char *state;
  bool                 again;

  __device__ int  Size(LocalInt row) const { return (int)(G_i[row + 1] - G_i[row]) + 1; }
  __device__ bool Has(LocalInt row) const { return row >= first && row < first + items && (!again || state[row] & ROW_BAD); }
  /* Whether the system of the next row solves a row, too. Systems of more than so many unknowns solve one row each. */
  __device__ bool Joins(LocalInt row, int most) const
  {
    return state && Has(row) && Has(row + 1) && state[row + 1] & ROW_NESTED && Size(row + 1) <= most;
  }
};

/* The classes of the systems, which are the sort keys of their last rows, how many rows they solve, and the tally of classes. */
__global__ void SFSAIClasses(RowsToSolve rows, ClassLimits limits, unsigned char *key, LocalInt *row_out, unsigned char *shared,
                             Tally *tally)
{
  __shared__ int count[kClasses], largest[kClasses], large;

  if (threadIdx.x < kClasses) count[threadIdx.x] = largest[threadIdx.x] = 0;
  if (threadIdx.x == 0) large = 0;
  __syncthreads();
  const long long k = GridThread();
  if (k < rows.items) {
    const LocalInt row  = rows.first + (LocalInt)k;
    const int      most = limits.largest[kGlobalClass], size = rows.Size(row);
    int            c = 0, solved = 0;
    while (c < kDenseClass && size > limits.largest[c]) c++;
    if (c >= kGlobalClass) atomicAdd(&large, 1);
    if (!rows.Has(row) || rows.Joins(row, most)) c = kNoClass;
    else {
      for (solved = 1; rows.Joins(row - solved, most);) solved++;
      if (solved > 1 && c < kRegisterClasses) c += kSizeClasses;
      atomicAdd(count + c, 1);
      atomicMax(largest + c, size);
    }
    key[k]     = (unsigned char)c;
    row_out[k] = row;
    if (shared) shared[row] = (unsigned char)solved;
  }
  __syncthreads();
  if (threadIdx.x < kClasses && count[threadIdx.x]) {
    atomicAdd(tally->systems + threadIdx.x, count[threadIdx.x]);
    atomicMax(tally->largest + threadIdx.x, largest[threadIdx.x]);
  }
  if (threadIdx.x == 0 && large) atomicAdd(&tally->large, large);
}

/* Copies what the postfilter has left of rows first .. end - 1 to G, whose i is there. */
template <typename S, int GroupSize>
__global__ void SFSAICompact(LocalInt first, LocalInt end, const LocalInt *from, LocalInt base, const LocalInt *from_j,
                             const S *from_a, CSR G)
{
  const LocalInt row  = first + (LocalInt)(GridThread() / GroupSize);
  const int      lane = threadIdx.x % GroupSize;
  const bool     mine = row < end;
  LocalInt       at   = mine ? G.i[row] : 0;
  const LocalInt last = mine ? from[row + 1] : 0;
  for (LocalInt k = mine ? from[row] : 0; __any_sync(kFullWarp, k < last); k += GroupSize) {
    const bool     kept   = k + lane < last && from_j[k + lane - base] != kDropped;
    const unsigned ballot = GroupBallot<GroupSize>(kept);
    const LocalInt place  = at + __popc(ballot & ((1u << lane) - 1u));
    if (kept) {
      G.j[place]        = from_j[k + lane - base];
      ((S *)G.a)[place] = from_a[k + lane - base];
    }
    at += __popc(ballot);
  }
}

/* One set-up on the device. The SFSAIWork outlives it, with the memory that new values on a kept pattern need. */
class SetUp {
public:
  SetUp(const SFSAIRows &of, const SFSAIParams &params, bool keep, CSR &G, PetscReal *d, SFSAIWork &work, FSAIStats &stats) :
      A_(*of.A), own_(of.first), rows_(A_.n - own_), S_(of.S), params_(params), keep_(keep), G_(G), d_(d), kept_(work),
      stats_(stats)
  {
  }

  PetscErrorCode Run()
  {
    std::optional<SFSAIPhase> phase;

    PetscFunctionBegin;
    PetscCall(DeviceGetStream(&stream_));
    PetscCall(NeedWork(0));
    PetscCall(FSAIScaling_CUDA(&A_, own_, s_, d_, fsai_work_, &stats_));
    if (stats_.failure) PetscFunctionReturn(PETSC_SUCCESS);
    PetscCallCUDA(cudaMemsetAsync(tally_, 0, sizeof(Tally), stream_));
    phase.emplace(keep_ ? params_.values_event : params_.pattern_event);
    if (keep_) PetscCall(Solve(0, rows_, G_.i, G_.j, G_.a, 0, nullptr, d_));
    else {
      const auto pattern = SFSAIPatternOf({&A_, own_, S_}, s_, params_, stats_, &meter_);
      PetscCall(pattern->CountRows());
      LocalInt in_shared = 0, in_blocks = 0, rows = 0;
      DenseRow dense;
      PetscCall(LargestRow<BlockSystem<double, true>>(kCholeskyLargest, &in_shared));
      PetscCall(LargestRow<BlockSystem<double, false>>(kCholeskyLargest, &in_blocks));
      PetscCall(pattern->CountLonger(in_shared, &rows));
      if (rows) { /* a later set-up on this pattern may need this memory, too, when it redoes rows in double */
        const LocalInt largest = pattern->longest + 1;
        if (largest > in_blocks) {
          dense.size = largest;
          PetscCall(pattern->FindLongest(&dense.row));
        }
        PetscCall(NeedSystems(rows, std::min(largest, in_blocks), dense));
        pattern->UseScaling(s_);
      }
      if (params_.postfilter > 0) {
        phase.emplace(params_.values_event); /* it searches again, chunk by chunk */
        PetscCall(Filtered(*pattern));
      } else {
        PetscCall(CSRCreate(rows_, A_.n, pattern->nnz, params_.factor_precision, PETSC_MEMTYPE_CUDA, &G_));
        PetscCall(pattern->Scan(G_.i));
        PetscCall(pattern->Fill(0, rows_, G_.i, 0, G_.j));
        phase.emplace(params_.values_event);
        PetscCall(Solve(0, rows_, G_.i, G_.j, G_.a, 0, nullptr, d_));
        stats_.max_row = pattern->longest + 1;
      }
    }
    PetscCall(FSAIMeanLog_CUDA(rows_, d_, fsai_work_, &stats_.log_psi_after));
    stats_.log_psi_after = -stats_.log_psi_after; /* d = 1 / psi */
    stats_.work_bytes    = meter_.peak + kept_.bytes;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  /* The largest system, in whole tiles and at most `most`, for which a block of this kind has enough shared memory. */
  template <typename Block>
  static PetscErrorCode LargestRow(LocalInt most, LocalInt *largest)
  {
    size_t limit;

    PetscFunctionBegin;
    PetscCall(SharedMemoryLimit(&limit));
    for (*largest = kTile; *largest + kTile <= most && Block::SharedBytes((int)*largest + kTile) <= limit;) *largest += kTile;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* CUB's call, as CubScratch takes it, that sorts list_ by classes into sorted_. */
  auto SortRows(LocalInt items) const
  {
    return [=](void *memory, size_t &bytes) {
      return cub::DeviceRadixSort::SortPairs(memory, bytes, key_, sorted_key_, list_, sorted_, items, 0, kClassBits, stream_);
    };
  }

  /*
     Sees that kept_ has room for the arrays of a set-up, and so many bytes for systems in global memory, of which that of `dense`
     is the largest if there is such a row.
  */
  PetscErrorCode NeedWork(size_t systems_bytes, const DenseRow &dense = DenseRow{})
  {
    Layout layout;

    PetscFunctionBegin;
    PetscCall(scratch_.Measure(SortRows(A_.n)));
    layout.Place(&s_, A_.n);
    layout.Place(&tally_, 1);
    layout.Place(&list_, A_.n);
    layout.Place(&sorted_, A_.n);
    layout.Place(&state_, A_.n);
    layout.Place(&shared_, A_.n);
    layout.Place(&key_, A_.n);
    layout.Place(&sorted_key_, A_.n);
    scratch_.Place(&layout);
    layout.Place(&fsai_work_, FSAIWorkBytes_CUDA(A_.n));
    layout.Place(&systems_, systems_bytes);
    if (kept_.bytes < layout.bytes()) {
      const PetscReal *const     s      = s_; /* this set-up has begun, and these arrays keep what is in them */
      const Tally *const         tally  = tally_;
      const LocalInt *const      sorted = sorted_;
      const unsigned char *const state = state_, *const shared = shared_;
      void     *old = kept_.data;
      SFSAIWork larger{nullptr, layout.bytes(), PETSC_MEMTYPE_CUDA};

      if (dense.size)
        PetscCall(SFSAICreateWork(larger.bytes, larger.where, dense.row, dense.size, S_ ? PETSC_TRUE : PETSC_FALSE, &larger));
      else PetscCall(ArrayCreate_CUDA(larger.bytes, &larger.data));
      kept_ = larger;
      layout.Bind(kept_.data);
      if (s) {
        PetscCall(ArrayCopy_CUDA(s_, s, A_.n * sizeof(*s), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
        PetscCall(ArrayCopy_CUDA(tally_, tally, sizeof(*tally), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
        PetscCall(ArrayCopy_CUDA(sorted_, sorted, items_ * sizeof(*sorted), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
        PetscCall(ArrayCopy_CUDA(state_ + first_, state + first_, items_, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
        PetscCall(ArrayCopy_CUDA(shared_ + first_, shared + first_, items_, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
        PetscCallCUDA(cudaStreamSynchronize(stream_));
      }
      PetscCall(ArrayDestroy_CUDA(&old));
    } else layout.Bind(kept_.data);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Sees that there is room for as many of so many systems in global memory as the limit of the work allows, but for one at least,
     and for the system of `dense` if there is such a row.
  */
  PetscErrorCode NeedSystems(LocalInt rows, LocalInt largest, const DenseRow &dense)
  {
    const size_t stride = SFSAISystemBytes(largest);
    size_t       wanted = rows ? std::min<size_t>(rows, std::max<size_t>(1, params_.work_limit / stride)) * stride : 0;

    PetscFunctionBegin;
    if (dense.size) {
      size_t      bytes = SFSAISystemBytes(dense.size), unused, total;
      Layout      layout;
      DenseSystem system;
      PetscCallCUDA(cudaMemGetInfo(&unused, &total));
      if (bytes <= total) { /* what is larger is an error below, and cuSOLVER need not know of it */
        PetscCall(dense_.Place(dense.size, &layout, &system));
        bytes = layout.bytes();
      }
      wanted = std::max(wanted, bytes);
    }
    if ((size_t)((const char *)kept_.data + kept_.bytes - systems_) < wanted) PetscCall(NeedWork(wanted, dense));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ReadTally()
  {
    PetscFunctionBegin;
    PetscCall(ArrayCopy_CUDA(&host_, tally_, sizeof(host_), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Rows first .. end - 1 of G on their pattern in the precision of the set-up; rows that fail in single are done again in double.
     The kernels know rows by their numbers in A, which is why what belongs to G begins so many rows earlier for them.
  */
  PetscErrorCode Solve(LocalInt first, LocalInt end, const LocalInt *i, LocalInt *j, void *a, LocalInt base, LocalInt *length,
                       PetscReal *d)
  {
    ValueTask task = {};

    PetscFunctionBegin;
    task.A          = A_;
    task.s          = s_;
    task.G_i        = i - own_;
    task.G_j        = j;
    task.G_a        = a;
    task.base       = base;
    task.d          = d - own_;
    task.length     = length ? length - own_ : nullptr;
    task.postfilter = length ? params_.postfilter : 0;
    task.single     = params_.factor_precision == FINEPC_SINGLE;
    SFSAIStates<<<BlocksFor(end - first), kBlockSize, 0, stream_>>>(own_, own_ + first, own_ + end, task.G_i, j, base, state_);
    FinePCCheckLaunch();
    if (params_.setup_precision == FINEPC_SINGLE) {
      PetscCall(SolveRows<float>(task, own_ + first, end - first, false));
      PetscCall(ReadTally());
      const LocalInt bad = (LocalInt)host_.bad_pivot;
      stats_.double_rows += bad;
      if (bad) {
        PetscCallCUDA(cudaMemsetAsync(&tally_->bad_pivot, 0, sizeof(tally_->bad_pivot), stream_));
        PetscCall(SolveRows<double>(task, own_ + first, end - first, true));
        PetscCall(ReadTally());
      }
    } else {
      PetscCall(SolveRows<double>(task, own_ + first, end - first, false));
      PetscCall(ReadTally());
    }
    stats_.diagonal_rows = (LocalInt)host_.diagonal;
    if (!keep_) stats_.dropped = (LocalInt)host_.dropped;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The largest systems of the classes in precision T. */
  template <typename T>
  static PetscErrorCode Classes(ClassLimits *limits)
  {
    LocalInt in_shared = 0, in_blocks = 0;

    PetscFunctionBegin;
    PetscCall((LargestRow<BlockSystem<T, true>>(kCholeskyLargest, &in_shared)));
    PetscCall((LargestRow<BlockSystem<double, false>>(kCholeskyLargest, &in_blocks)));
    for (int c = 0; c < kRegisterClasses; c++) limits->largest[c] = kRegisterSize[c];
    for (int c = kRegisterClasses; c < kGlobalClass - 1; c++) limits->largest[c] = kSharedSize[c - kRegisterClasses];
    limits->largest[kGlobalClass - 1] = (int)in_shared;
    limits->largest[kGlobalClass]     = (int)in_blocks;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Rows first .. first + items - 1, or those of them that are bad again, class by class. */
  template <typename T>
  PetscErrorCode SolveRows(ValueTask task, LocalInt first, LocalInt items, bool again)
  {
    ClassLimits limits;

    PetscFunctionBegin;
    PetscCall(Classes<T>(&limits));
    PetscCallCUDA(cudaMemsetAsync(tally_, 0, offsetof(Tally, bad_pivot), stream_));
    SFSAIClasses<<<BlocksFor(items), kBlockSize, 0, stream_>>>({first, items, task.G_i, state_, again}, limits, key_, list_,
                                                               shared_, tally_);
    FinePCCheckLaunch();
    PetscCall(scratch_.Run(SortRows(items)));
    first_ = first;
    items_ = items;
    PetscCall(ReadTally());
    std::vector<DenseRow> dense;
    PetscCall(ListDense(task.G_i, &dense));
    for (const DenseRow &row : dense) PetscCall(NeedSystems(0, 0, row));
    PetscCall(NeedSystems(host_.systems[kGlobalClass], host_.largest[kGlobalClass], DenseRow{}));
    task.tally     = tally_;
    task.state     = state_;
    task.shared    = shared_;
    task.s         = s_;
    LocalInt begin = 0;
    for (int c = 0; c < kClasses; c++) {
      task.rows    = sorted_ + begin;
      task.items   = host_.systems[c];
      task.largest = host_.largest[c];
      begin += task.items;
      if (!task.items) continue;
      PetscCall(PetscLogGpuTimeBegin());
      switch (c) {
      case 0: PetscCall((LaunchRegisters<T, kRegisterSize[0], false>(task))); break;
      case 1: PetscCall((LaunchRegisters<T, kRegisterSize[1], false>(task))); break;
      case 2: PetscCall((LaunchRegisters<T, kRegisterSize[2], false>(task))); break;
      case kSizeClasses: PetscCall((LaunchRegisters<T, kRegisterSize[0], true>(task))); break;
      case kSizeClasses + 1: PetscCall((LaunchRegisters<T, kRegisterSize[1], true>(task))); break;
      case kSizeClasses + 2: PetscCall((LaunchRegisters<T, kRegisterSize[2], true>(task))); break;
      case kGlobalClass: PetscCall((LaunchBlocks<T, false>(task))); break;
      case kDenseClass: PetscCall(SolveDense(task, dense)); break;
      default: PetscCall((LaunchBlocks<T, true>(task)));
      }
      PetscCall(PetscLogGpuTimeEnd());
    }
    if (!again) stats_.large_rows += host_.large;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows of the last class, which come after those of the other classes, with their sizes. */
  PetscErrorCode ListDense(const LocalInt *G_i, std::vector<DenseRow> *dense)
  {
    const LocalInt begin = std::accumulate(host_.systems, host_.systems + kDenseClass, 0), count = host_.systems[kDenseClass];
    std::vector<LocalInt> rows(count);

    PetscFunctionBegin;
    PetscCall(ArrayCopy_CUDA(rows.data(), sorted_ + begin, count * sizeof(LocalInt), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    for (LocalInt row : rows) {
      LocalInt ends[2];
      PetscCall(ArrayCopy_CUDA(ends, G_i + row, sizeof(ends), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
      dense->push_back(DenseRow{row, ends[1] - ends[0] + 1});
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Such rows one after the other, in the memory that NeedSystems() has seen to. */
  PetscErrorCode SolveDense(const ValueTask &task, const std::vector<DenseRow> &dense)
  {
    PetscFunctionBegin;
    for (const DenseRow &row : dense) {
      Layout      layout;
      DenseSystem system;

      PetscCall(dense_.Place(row.size, &layout, &system));
      layout.Bind(systems_);
      PetscCallCUDA(cudaMemsetAsync(system.A, 0, system.MatrixBytes(), stream_));
      SFSAIGatherDense<<<1, kSystemThreads, 0, stream_>>>(task, row.row, system);
      FinePCCheckLaunch();
      PetscCall(dense_.Solve(stream_, &system));
      SFSAIFinishDense<<<1, kSystemThreads, 0, stream_>>>(task, row.row, system);
      FinePCCheckLaunch();
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  template <typename T, int N, bool Several>
  PetscErrorCode LaunchRegisters(const ValueTask &task)
  {
    const auto   kernel = SFSAISolveInRegisters<T, N, Several>;
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
    const size_t bytes  = BlockSystem<T, InShared>::SharedBytes(task.largest);
    int          blocks = task.items;

    PetscFunctionBegin;
    PetscCallCUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes));
    if (!InShared) {
      const char *const end = (const char *)kept_.data + kept_.bytes;
      task.global_work      = systems_;
      task.work_stride      = SFSAISystemBytes(task.largest);
      blocks                = (int)std::min<size_t>(blocks, (size_t)(end - systems_) / task.work_stride);
    }
    kernel<<<blocks, ThreadsForSystem(task.largest), bytes, stream_>>>(task);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     G chunk by chunk. A first pass over the chunks finds d and the lengths of the rows that the postfilter leaves. Then G has its
     memory, and the chunks go there from the last one on, which is still at hand; the others are computed again, to the same bits.
  */
  PetscErrorCode Filtered(SFSAIPattern &pattern)
  {
    const size_t      value_bytes = FinePCPrecisionBytes(params_.factor_precision), entry_bytes = sizeof(LocalInt) + value_bytes;
    const size_t      limit = params_.work_limit - std::min(params_.work_limit, pattern.PoolBytes());
    const size_t      most  = std::max<size_t>(limit / entry_bytes, (size_t)pattern.longest * kSFSAIMostShared);
    const size_t      room  = std::min<size_t>(most, (size_t)pattern.nnz);
    LocalInt         *i = nullptr, *length = nullptr, *j = nullptr, end = 0, base = 0, nnz = 0;
    void             *a = nullptr;
    Buffer<char>      work(&meter_);
    Buffer<PetscReal> d_again(&meter_);
    CubScratch        scratch;
    Layout            layout;
    std::vector<LocalInt> firsts; /* of the chunks */
    const auto            scan = [&](void *memory, size_t &bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, length, length, rows_ + 1, stream_);
    };

    PetscFunctionBegin;
    PetscCall(scratch.Measure(scan));
    layout.Place(&i, rows_ + 1);
    layout.Place(&length, rows_ + 1);
    scratch.Place(&layout);
    layout.Place(&j, room);
    layout.Place(&a, room * value_bytes);
    PetscCall(layout.Allocate(&work));
    PetscCall(pattern.Scan(i));
    for (LocalInt first = 0; first < rows_; first = end) {
      firsts.push_back(first);
      PetscCall(ReadInt(i + first, &base));
      PetscCall(EndOfChunk(i, first, base + (PetscInt64)most, &end));
      PetscCall(pattern.Fill(first, end, i, base, j));
      PetscCall(Solve(first, end, i, j, a, base, length, d_));
      pattern.UseScaling(s_);
    }
    PetscCallCUDA(cudaMemsetAsync(length + rows_, 0, sizeof(LocalInt), stream_));
    PetscCall(scratch.Run(scan));
    PetscCall(ReadInt(length + rows_, &nnz));
    PetscCall(CSRCreate(rows_, A_.n, nnz, params_.factor_precision, PETSC_MEMTYPE_CUDA, &G_));
    PetscCall(ArrayCopy_CUDA(G_.i, length, (rows_ + 1) * sizeof(LocalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    const FSAIStats counted = stats_;
    if (firsts.size() > 1) {
      PetscCall(d_again.Allocate(rows_));
      PetscCall(ArrayCopy_CUDA(d_again.data(), d_, rows_ * sizeof(PetscReal), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA));
    }
    for (bool at_hand = true; !firsts.empty(); at_hand = false) {
      const LocalInt first = firsts.back();
      if (!at_hand) {
        PetscCall(ReadInt(i + first, &base));
        PetscCall(pattern.Fill(first, end, i, base, j));
        PetscCall(Solve(first, end, i, j, a, base, length, d_again.data()));
      }
      PetscCall(Compact(first, end, i, base, j, a));
      end = first;
      firsts.pop_back();
    }
    stats_ = counted;
    PetscCall(FindLongestRow());
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The rows first .. end - 1 of G, which begin at G_.i, from those of a chunk. */
  PetscErrorCode Compact(LocalInt first, LocalInt end, const LocalInt *i, LocalInt base, const LocalInt *j, const void *a)
  {
    const int blocks = BlocksFor((long long)(end - first) * kScanGroup);

    PetscFunctionBegin;
    if (params_.factor_precision == FINEPC_SINGLE)
      SFSAICompact<float, kScanGroup><<<blocks, kBlockSize, 0, stream_>>>(first, end, i, base, j, (const float *)a, G_);
    else SFSAICompact<double, kScanGroup><<<blocks, kBlockSize, 0, stream_>>>(first, end, i, base, j, (const double *)a, G_);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The longest row of G by the kernel of the classes: with a limit that no row passes, all rows are of the first class. */
  PetscErrorCode FindLongestRow()
  {
    PetscFunctionBegin;
    PetscCallCUDA(cudaMemsetAsync(tally_, 0, sizeof(Tally), stream_));
    SFSAIClasses<<<BlocksFor(rows_), kBlockSize, 0, stream_>>>({0, rows_, G_.i, nullptr, false}, ClassLimits{{INT_MAX}}, key_,
                                                               list_, nullptr, tally_);
    FinePCCheckLaunch();
    PetscCall(ReadTally());
    stats_.max_row = host_.largest[0];
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  PetscErrorCode ReadInt(const LocalInt *from, LocalInt *value)
  {
    PetscFunctionBegin;
    PetscCall(ArrayCopy_CUDA(value, from, sizeof(*value), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     The largest end with i[end] <= limit, of which whole runs of kSFSAIMostShared rows are left: a chunk holds one at least, so
     that the chunks have no influence on which rows share a system.
  */
  PetscErrorCode EndOfChunk(const LocalInt *i, LocalInt first, PetscInt64 limit, LocalInt *end)
  {
    using Row            = thrust::counting_iterator<LocalInt>;
    PetscErrorCode error = PETSC_SUCCESS;
    const auto     fits  = [&](LocalInt row) {
      LocalInt value = 0;
      if (!error) error = ReadInt(i + row, &value);
      return value <= limit;
    };

    PetscFunctionBegin;
    *end = rows_;
    if (!fits(rows_)) {
      *end = *std::partition_point(Row(first + 1), Row(rows_), fits) - 1;
      *end -= *end % kSFSAIMostShared;
    }
    PetscCall(error);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  const CSRView     &A_;
  const LocalInt     own_, rows_; /* the first row of A that is a row of G, and the rows of G */
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
  DenseSolver        dense_;
  LocalInt           first_ = 0, items_ = 0; /* the rows that are being solved, of which state_ and shared_ are set */

  /* the arrays in kept_ */
  PetscReal     *s_      = nullptr; /* [n] */
  Tally         *tally_  = nullptr;
  LocalInt      *list_   = nullptr;                    /* [n] */
  LocalInt      *sorted_ = nullptr;                    /* [n] rows by class; the first items_ are set */
  unsigned char *state_ = nullptr, *shared_ = nullptr; /* [n] of ValueTask */
  unsigned char *key_ = nullptr, *sorted_key_ = nullptr;
  CubScratch     scratch_;
  char          *fsai_work_ = nullptr;
  char          *systems_   = nullptr;
};

} // namespace

PetscErrorCode SFSAIComputeFactor_CUDA(const SFSAIRows &of, const SFSAIParams *params, PetscBool keep, CSR *G, PetscReal *d,
                                       SFSAIWork *work, FSAIStats *stats)
{
  PetscFunctionBegin;
  FSAIStatsBegin(keep, stats);
  if (of.A->n == of.first) {
    if (!keep) PetscCall(CSRCreate(0, of.A->n, 0, params->factor_precision, PETSC_MEMTYPE_CUDA, G));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(SetUp(of, *params, keep, *G, d, *work, *stats).Run());
  PetscFunctionReturn(PETSC_SUCCESS);
}
