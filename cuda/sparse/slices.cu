/* Makes the sliced copies that slices.h describes. */
#include <cub/cub.cuh>

#include <climits>

#include "scratch.cuh"
#include "slices.cuh"

namespace
{

constexpr int kStepPad   = sizeof(int4) / sizeof(LocalInt) - 1; /* steps are read in pieces of 16 bytes */
constexpr int kDistances = 1 << 16;                             /* distances between columns that 16 bits hold are less than this */

/* Set where a copy turns out not to hold the numbers of the matrix. */
struct Misfit {
  int column; /* a column is farther from the smallest one of its step than 16 bits can say */
  int value;  /* a value is not a number of single precision */
};

/* The number of steps of the calling lane in a slice. The entry of its first step is entry *first of the matrix. */
__device__ inline int LaneSteps(const CSR &A, const Slices &to, LocalInt slice, LocalInt *first)
{
  const int      lane  = threadIdx.x % kWarpSize;
  const LocalInt place = slice * (kWarpSize / to.lanes) + lane / to.lanes;
  if (place >= A.rows) return 0;
  const LocalInt row = to.sorted ? to.order[place] : place;
  *first             = A.i[row] + lane % to.lanes;
  return (A.i[row + 1] - *first + to.lanes - 1) / to.lanes;
}

/*
   Sorts the rows of a window, which a block takes: the longest rows come first, rows of the same length stay in their order. Rows
   of kLongest entries or more count as equally long.
*/
__global__ void __launch_bounds__(kBlockSize) SortRows(CSR A, Slices to)
{
  constexpr int kItems = kSliceWindow / kBlockSize, kLongest = 1 << 16;
  using Sort = cub::BlockRadixSort<int, kBlockSize, kItems, LocalInt>;
  __shared__ typename Sort::TempStorage storage;
  int                                   shortness[kItems];
  LocalInt                              row[kItems];
  for (int k = 0; k < kItems; k++) {
    row[k]       = (LocalInt)blockIdx.x * kSliceWindow + (LocalInt)threadIdx.x * kItems + k;
    shortness[k] = row[k] < A.rows ? kLongest - min(A.i[row[k] + 1] - A.i[row[k]], kLongest) : kLongest + 1;
  }
  Sort(storage).Sort(shortness, row, 0, 17);
  for (int k = 0; k < kItems; k++) {
    const LocalInt place = (LocalInt)blockIdx.x * kSliceWindow + (LocalInt)threadIdx.x * kItems + k;
    if (place < A.rows) to.order[place] = row[k];
  }
}

/* The number of steps of each slice, and what an uneven copy has to know of its rows. A warp takes a slice. */
__global__ void MeasureSlices(CSR A, Slices to)
{
  const LocalInt slice = (LocalInt)(GridThread() / kWarpSize), rows = kWarpSize / to.lanes;
  const int      lane = threadIdx.x % kWarpSize;
  if (slice >= to.count) return;
  const LocalInt row = slice * rows + lane;
  LocalInt       unused;
  const int      steps = __reduce_max_sync(kFullWarp, LaneSteps(A, to, slice, &unused));
  if (slice == 0 && lane == 0) to.step[to.count] = 0; /* the scan reads it, and adds it to nothing */
  if (lane == 0) {
    to.step[slice]  = steps;
    to.start[slice] = A.i[slice * rows];
  }
  if (lane < rows && row < A.rows) to.length[row] = A.i[row + 1] - A.i[row];
}

/* Numbers of a lane that lie together in an even copy */
template <typename N>
struct alignas(sizeof(N) < 4 ? kSliceGroup * sizeof(N) : 16) LaneGroup {
  N of[kSliceGroup];
};

/* The entries of a slice, and where they go: S is the type of the values in the matrix, V and I are those of the copy. */
template <typename S, typename V, typename I>
class SliceFiller {
public:
  bool column_fits = true, value_fits = true;

  __device__ __forceinline__ SliceFiller(const CSR &A, const Slices &to, LocalInt slice) :
      A_(A), to_(to), at_(to.even ? to.step[slice] * kWarpSize : to.start[slice]), base_(to.step[slice])
  {
    mine_  = LaneSteps(A, to, slice, &from_);
    steps_ = __reduce_max_sync(kFullWarp, mine_);
  }

  /* Ends early where single precision does not do. */
  __device__ __forceinline__ void Run()
  {
    int k = 0;
    for (; to_.even && k + kSliceGroup <= steps_ && Fits(); k += kSliceGroup) FillGroup(k);
    for (; k < steps_ && Fits(); k++) FillStep(k);
  }

private:
  struct Entry {
    bool     in;
    LocalInt j;
    S        a;
  };
  __device__ __forceinline__ bool  Fits() const { return sizeof(V) >= sizeof(S) || __all_sync(kFullWarp, value_fits); }
  __device__ __forceinline__ Entry Get(int k) const
  {
    const bool     in = k < mine_;
    const LocalInt e  = from_ + k * to_.lanes;
    return {in, in ? A_.j[e] : INT_MAX, in ? ((const S *)A_.a)[e] : S(0)};
  }
  /* Of a step: the value and the column of the lane's entry. Padding points to an entry of the vector that is read anyway. */
  __device__ __forceinline__ void Convert(int k, const Entry &entry, V *value, I *column)
  {
    const LocalInt least = __reduce_min_sync(kFullWarp, entry.j), j = entry.in ? entry.j : least;
    *value      = (V)entry.a;
    *column     = (I)(sizeof(I) == 2 ? j - least : j);
    column_fits = column_fits && (sizeof(I) > 2 || j - least < kDistances);
    value_fits  = value_fits && (double)*value == (double)entry.a;
    if (sizeof(I) == 2 && threadIdx.x % kWarpSize == 0) to_.base[base_ + k] = least;
  }
  /* Steps of an even copy whose entries of a lane lie together, loaded and stored at once */
  __device__ __forceinline__ void FillGroup(int k)
  {
    const LocalInt here = at_ + EvenPlace(k, steps_, threadIdx.x % kWarpSize);
    Entry          entry[kSliceGroup];
    LaneGroup<V>   values;
    LaneGroup<I>   columns;
#pragma unroll
    for (int t = 0; t < kSliceGroup; t++) entry[t] = Get(k + t);
#pragma unroll
    for (int t = 0; t < kSliceGroup; t++) Convert(k + t, entry[t], &values.of[t], &columns.of[t]);
    *(LaneGroup<V> *)((V *)to_.value + here)  = values;
    *(LaneGroup<I> *)((I *)to_.column + here) = columns;
  }
  __device__ __forceinline__ void FillStep(int k)
  {
    const int      lane   = threadIdx.x % kWarpSize;
    const Entry    entry  = Get(k);
    const unsigned ballot = __ballot_sync(kFullWarp, entry.in);
    const LocalInt here   = at_ + (to_.even ? EvenPlace(k, steps_, lane) : __popc(ballot & ((1u << lane) - 1u)));
    V              value;
    I              column;
    Convert(k, entry, &value, &column);
    if (!to_.even) at_ += __popc(ballot);
    if (!entry.in && !to_.even) return;
    ((V *)to_.value)[here]  = value;
    ((I *)to_.column)[here] = column;
  }

  const CSR    &A_;
  const Slices &to_;
  LocalInt      at_, base_, from_ = 0;
  int           mine_, steps_;
};

constexpr int kFillBlocks = 16384; /* of a kernel that may find its copy of no use, so that it ends soon */

/* Copies the entries into the order in which products read them. A warp takes slices in turn. */
template <typename S, typename V, typename I>
__global__ void FillSlices(CSR A, Slices to, Misfit *misfit)
{
  const LocalInt warps = (LocalInt)(gridDim.x * (kBlockSize / kWarpSize));
  for (LocalInt slice = (LocalInt)(GridThread() / kWarpSize); slice < to.count; slice += warps) {
    /* the copy is of no use; lanes may read different values */
    if (__any_sync(kFullWarp, *(volatile int *)&misfit->column | *(volatile int *)&misfit->value)) return;
    SliceFiller<S, V, I> filler(A, to, slice);
    filler.Run();
    if (!filler.column_fits) misfit->column = 1;
    if (!filler.value_fits && sizeof(V) < sizeof(S)) misfit->value = 1;
  }
}

template <typename S, typename V>
PetscErrorCode Fill_Slices(const CSR &A, const Slices &to, Misfit *misfit, cudaStream_t stream)
{
  const int all = BlocksFor((long long)to.count * kWarpSize), blocks = sizeof(V) < sizeof(S) ? PetscMin(all, kFillBlocks) : all;

  PetscFunctionBegin;
  if (to.narrow) FillSlices<S, V, std::uint16_t><<<blocks, kBlockSize, 0, stream>>>(A, to, misfit);
  else FillSlices<S, V, LocalInt><<<blocks, kBlockSize, 0, stream>>>(A, to, misfit);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The scan, for CubScratch, that makes the numbers of steps in each slice those in all slices before. */
auto ScanSteps(const Slices *S, cudaStream_t stream)
{
  return [=](void *scratch, size_t &bytes) {
    return cub::DeviceScan::ExclusiveSum(scratch, bytes, S->step, S->step, S->count + 1, stream);
  };
}

/* Puts the rows into slices, sorted or not, and tells how many steps all slices have; even is whether an even copy is small enough.
 */
PetscErrorCode CutIntoSlices(const CSR &A, PetscBool sorted, CubScratch &scratch, Slices *S, LocalInt *steps, cudaStream_t stream)
{
  PetscFunctionBegin;
  S->sorted = sorted;
  if (sorted) {
    SortRows<<<BlocksFor(S->rows, kSliceWindow), kBlockSize, 0, stream>>>(A, *S);
    FinePCCheckLaunch();
  }
  MeasureSlices<<<BlocksFor((long long)S->count * kWarpSize), kBlockSize, 0, stream>>>(A, *S);
  FinePCCheckLaunch();
  PetscCall(scratch.Run(ScanSteps(S, stream)));
  PetscCall(ArrayCopy_CUDA(steps, S->step + S->count, sizeof(*steps), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  S->even = (PetscBool)((double)*steps * kWarpSize <= PetscMin(kSlicePadding * A.nnz, (double)LOCAL_INT_MAX));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Sees to it that the memory is large enough for the layout, and binds the layout to it. If it has to grow, what was in it is lost.
 */
PetscErrorCode BindLayout(const Layout &layout, void **memory, size_t *capacity)
{
  PetscFunctionBegin;
  if (*capacity < layout.bytes()) {
    PetscCall(ArrayDestroy_CUDA(memory));
    *capacity = 0;
    PetscCall(ArrayCreate_CUDA(layout.bytes(), memory));
    *capacity = layout.bytes();
  }
  layout.Bind(*memory);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Gives the arrays over steps and entries their room, and fills them. `steps` is the number of steps of all slices. */
PetscErrorCode PlaceAndFill(const CSR &A, LocalInt steps, Slices *S, Misfit *misfit, cudaStream_t stream)
{
  Layout entries;

  PetscFunctionBegin;
  entries.Place(&S->base, S->narrow ? steps : 0);
  entries.Place(&S->column, S->entries * (S->narrow ? sizeof(std::uint16_t) : sizeof(LocalInt)));
  entries.Place(&S->value, S->entries * (S->single ? sizeof(float) : sizeof(double)));
  PetscCall(BindLayout(entries, &S->memory[1], &S->capacity[1]));
  if (A.precision == FINEPC_SINGLE && S->single) PetscCall((Fill_Slices<float, float>(A, *S, misfit, stream)));
  else if (A.precision == FINEPC_SINGLE) PetscCall((Fill_Slices<float, double>(A, *S, misfit, stream)));
  else if (S->single) PetscCall((Fill_Slices<double, float>(A, *S, misfit, stream)));
  else PetscCall((Fill_Slices<double, double>(A, *S, misfit, stream)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

size_t SlicesBytes(const Slices *S)
{
  const size_t entry = (S->narrow ? sizeof(std::uint16_t) : sizeof(LocalInt)) + (S->single ? sizeof(float) : sizeof(double));
  const size_t steps = S->even ? S->entries / kWarpSize : 0; /* of an uneven copy they are not known here, and few bytes */

  return S->entries * entry + steps * (S->narrow ? sizeof(*S->base) : 0) +
         (S->even ? 0 : S->rows * sizeof(*S->length) + S->count * sizeof(*S->start)) +
         (S->sorted ? S->rows * sizeof(*S->order) : 0) + S->count * sizeof(*S->step);
}

PetscErrorCode SlicesDestroy_CUDA(Slices *S)
{
  PetscFunctionBegin;
  for (void *&memory : S->memory) PetscCall(ArrayDestroy_CUDA(&memory));
  *S = Slices{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SlicesUpdate_CUDA(const CSR *A, LocalInt lanes, SlicesKind kind, Slices *S)
{
  cudaStream_t stream;
  CubScratch   scratch;
  Layout       rows;
  Misfit       misfit{}, *found;
  LocalInt     steps;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  S->rows  = A->rows;
  S->lanes = lanes;
  S->count = (A->rows + kWarpSize / lanes - 1) / (kWarpSize / lanes);
  PetscCall(scratch.Measure(ScanSteps(S, stream)));
  rows.Place(&S->order, S->rows);
  rows.Place(&S->step, S->count + 1 + kStepPad);
  rows.Place(&S->start, S->count);
  rows.Place(&S->length, S->rows);
  rows.Place(&found, 1);
  scratch.Place(&rows);
  PetscCall(BindLayout(rows, &S->memory[0], &S->capacity[0]));
  PetscCallCUDA(cudaMemsetAsync(S->step + S->count + 1, 0, kStepPad * sizeof(LocalInt), stream));

  PetscCall(CutIntoSlices(*A, PETSC_FALSE, scratch, S, &steps, stream));
  if (!S->even && kind != SLICES_RESIDENT) PetscCall(CutIntoSlices(*A, PETSC_TRUE, scratch, S, &steps, stream));
  if (!S->even && S->sorted) PetscCall(CutIntoSlices(*A, PETSC_FALSE, scratch, S, &steps, stream)); /* sorted in vain */
  S->kind = kind;
  if (kind == SLICES_RESIDENT && (double)steps * kWarpSize * (sizeof(LocalInt) + sizeof(double)) > kSliceResidentBytes) {
    S->kind = SLICES_NONE;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (kind == SLICES_RESIDENT) S->even = PETSC_TRUE;
  S->entries = S->even ? steps * kWarpSize : A->nnz;
  /* a compressed copy is made as small as can be, and made again where some numbers do not fit */
  S->narrow = (PetscBool)(kind == SLICES_COMPRESSED);
  S->single = (PetscBool)(kind == SLICES_COMPRESSED || (kind == SLICES_PLAIN && A->precision == FINEPC_SINGLE));
  do {
    PetscCallCUDA(cudaMemsetAsync(found, 0, sizeof(*found), stream));
    PetscCall(PlaceAndFill(*A, steps, S, found, stream));
    if (kind != SLICES_COMPRESSED) break;
    PetscCall(ArrayCopy_CUDA(&misfit, found, sizeof(misfit), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    if (misfit.column) S->narrow = PETSC_FALSE;
    if (misfit.value) S->single = PETSC_FALSE;
  } while (misfit.column || misfit.value); /* what the blocks that came first have found: the other may follow */
  PetscFunctionReturn(PETSC_SUCCESS);
}
