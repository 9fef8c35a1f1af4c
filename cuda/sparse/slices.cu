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

/*
   Copies the entries into the order in which products read them: S is the type of the values in the matrix, V and I are the types
   of the values and columns in the copy. A warp takes a slice.
*/
template <typename S, typename V, typename I>
__global__ void FillSlices(CSR A, Slices to, Misfit *misfit)
{
  const LocalInt slice = (LocalInt)(GridThread() / kWarpSize);
  const int      lane  = threadIdx.x % kWarpSize;
  if (slice >= to.count) return;
  LocalInt  from = 0, at = to.even ? to.step[slice] * kWarpSize : to.start[slice];
  const int mine = LaneSteps(A, to, slice, &from), steps = __reduce_max_sync(kFullWarp, mine);
  bool      column_fits = true, value_fits = true;
  for (int k = 0; k < steps; k++, from += to.lanes) {
    const bool     in = k < mine;
    const LocalInt j = in ? A.j[from] : INT_MAX, least = __reduce_min_sync(kFullWarp, j);
    const S        a      = in ? ((const S *)A.a)[from] : S(0);
    const unsigned ballot = __ballot_sync(kFullWarp, in);
    const LocalInt here   = to.even ? at + EvenPlace(k, steps, lane) : at + __popc(ballot & ((1u << lane) - 1u));
    if (in || to.even) {
      const LocalInt column  = in ? j : least; /* padding points to an entry of the vector that is read anyway */
      ((I *)to.column)[here] = (I)(sizeof(I) == 2 ? column - least : column);
      ((V *)to.value)[here]  = (V)a;
      column_fits            = column_fits && (sizeof(I) > 2 || column - least < kDistances);
      value_fits             = value_fits && (double)(V)a == (double)a;
    }
    if (sizeof(I) == 2 && lane == 0) to.base[to.step[slice] + k] = least;
    if (!to.even) at += __popc(ballot);
  }
  if (!column_fits) misfit->column = 1;
  if (!value_fits && sizeof(V) < sizeof(S)) misfit->value = 1;
}

template <typename S, typename V>
PetscErrorCode Fill(const CSR &A, const Slices &to, Misfit *misfit, cudaStream_t stream)
{
  const int blocks = BlocksFor((long long)to.count * kWarpSize);

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
  if (A.precision == FINEPC_SINGLE && S->single) PetscCall((Fill<float, float>(A, *S, misfit, stream)));
  else if (A.precision == FINEPC_SINGLE) PetscCall((Fill<float, double>(A, *S, misfit, stream)));
  else if (S->single) PetscCall((Fill<double, float>(A, *S, misfit, stream)));
  else PetscCall((Fill<double, double>(A, *S, misfit, stream)));
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
  PetscCallCUDA(cudaMemsetAsync(found, 0, sizeof(*found), stream));
  PetscCall(PlaceAndFill(*A, steps, S, found, stream));
  if (kind != SLICES_COMPRESSED) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArrayCopy_CUDA(&misfit, found, sizeof(misfit), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  if (misfit.column) S->narrow = PETSC_FALSE;
  if (misfit.value) S->single = PETSC_FALSE;
  if (misfit.column || misfit.value) PetscCall(PlaceAndFill(*A, steps, S, found, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
