/*
   CUDA twin of src/pc/halo_host.cxx: a thread takes an entry, or a group of lanes a row, and lists are compacted and sorted by CUB.
   The host waits for the lengths of lists.
*/
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>

#include "pc/halo.h"
#include "scratch.cuh"
#include "search.cuh"

namespace
{

/* ------------------------------------ the plan of a gathering --------------------------------- */

/* wanted[row] layers of rows are wanted from an own row on, which are 0 of all rows before. */
__global__ void Want(LocalInt count, const GlobalInt *rows, const GlobalInt *depth, GlobalInt begin, LocalInt *wanted)
{
  const LocalInt k = (LocalInt)GridThread();
  if (k < count) wanted[rows[k] - begin] = (LocalInt)depth[k];
}

/* From the rows from which so many layers are wanted to what they are coupled to. */
__global__ void WantNext(HaloRows A, LocalInt layers, LocalInt *wanted, LocalInt *onward, LocalInt *more)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row >= A.own.n || wanted[row] != layers) return;
  for (LocalInt k = A.own.i[row]; k < A.own.i[row + 1]; k++)
    if (wanted[A.own.j[k]] < layers - 1) {
      atomicMax(&wanted[A.own.j[k]], layers - 1);
      *more = 1;
    }
  for (LocalInt k = A.others.i[row]; k < A.others.i[row + 1]; k++) atomicMax(&onward[A.others.j[k]], layers - 1);
}

struct IsWanted {
  const LocalInt *wanted;
  __device__ bool operator()(LocalInt row) const { return wanted[row] > 0; }
};

/* length[k] is that of row rows[k], and length[count] is 0. */
template <typename T>
__global__ void RowLengths(HaloRows A, LocalInt count, const GlobalInt *rows, T *length)
{
  const LocalInt k = (LocalInt)GridThread();
  if (k > count) return;
  const LocalInt r = k < count ? (LocalInt)(rows[k] - A.begin) : 0;
  length[k]        = k < count ? A.own.i[r + 1] - A.own.i[r] + A.others.i[r + 1] - A.others.i[r] : 0;
}

/* The places of the entries of the rows, in the order of the columns. */
template <int GroupSize>
__global__ void ListRows(HaloRows A, LocalInt count, const GlobalInt *rows, const LocalInt *start, LocalInt *places)
{
  const LocalInt k    = (LocalInt)(GridThread() / GroupSize);
  const int      lane = threadIdx.x % GroupSize;
  if (k >= count) return;
  const LocalInt r = (LocalInt)(rows[k] - A.begin), own = A.own.i[r], others = A.others.i[r];
  const LocalInt own_length = A.own.i[r + 1] - own, before = LowerBound(A.others.j, others, A.others.i[r + 1], A.before) - others;
  for (LocalInt e = lane; e < start[k + 1] - start[k]; e += GroupSize) {
    const bool is_own    = e >= before && e < before + own_length;
    places[start[k] + e] = is_own ? own + e - before : A.own.nnz + others + (e < before ? e : e - own_length);
  }
}

__global__ void NamePlaces(HaloRows A, LocalInt count, const LocalInt *places, GlobalInt *columns)
{
  const LocalInt k = (LocalInt)GridThread();
  if (k >= count) return;
  const LocalInt place = places[k];
  columns[k]           = place < A.own.nnz ? A.begin + A.own.j[place] : A.columns[A.others.j[place - A.own.nnz]];
}

/* Where a number is in an ascending list, or -1. */
__device__ inline LocalInt PlaceOf(LocalInt n, const GlobalInt *sorted, GlobalInt number)
{
  const LocalInt k = LowerBound(sorted, (LocalInt)0, n, number);
  return k < n && sorted[k] == number ? k : -1;
}

/* length[row] is that of a gathered row, and length[rows] is 0. */
__global__ void GatheredLengths(HaloGathered gathered, LocalInt *length)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row <= gathered.rows) length[row] = row < gathered.rows ? (LocalInt)gathered.length[row] : 0;
}

constexpr LocalInt kLeftOut = -1, kCut = -2; /* what a column becomes that is left out, and one within the bounds */

__global__ void LocalColumns(HaloGathered gathered, GlobalInt begin, GlobalInt end, LocalInt bound_count, const GlobalInt *bounds,
                             LocalInt *local)
{
  const LocalInt k = (LocalInt)GridThread();
  if (k >= gathered.nnz) return;
  const GlobalInt column = gathered.columns[k];
  LocalInt        to;
  if (column >= begin && column < end) to = gathered.rows + (LocalInt)(column - begin);
  else {
    to = PlaceOf(gathered.rows, gathered.row, column);
    if (to < 0) to = LowerBound(bounds, (LocalInt)0, bound_count, column + 1) % 2 ? kCut : kLeftOut;
  }
  local[k] = to;
}

/* kept[row] is the number of entries that stay, and kept[rows] is 0. */
__global__ void CountKept(LocalInt rows, const LocalInt *start, const LocalInt *local, LocalInt *kept, char *cut)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row > rows) return;
  LocalInt count  = 0;
  bool     is_cut = false;
  for (LocalInt k = row < rows ? start[row] : 0; row < rows && k < start[row + 1]; k++) {
    count += local[k] >= 0;
    is_cut = is_cut || local[k] == kCut;
  }
  kept[row] = count;
  if (row < rows) cut[row] = is_cut;
}

__global__ void FillKept(LocalInt rows, const LocalInt *start, const LocalInt *local, CSR foreign, LocalInt *keep)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row >= rows) return;
  LocalInt at = foreign.i[row];
  for (LocalInt k = start[row]; k < start[row + 1]; k++) {
    if (local[k] < 0) continue;
    foreign.j[at] = local[k];
    keep[at++]    = k;
  }
}

__global__ void FindColumns(LocalInt count, const GlobalInt *columns, LocalInt n, const GlobalInt *rows, LocalInt *local)
{
  const LocalInt c = (LocalInt)GridThread();
  if (c < count) local[c] = PlaceOf(n, rows, columns[c]);
}

/* Counts the entries of each row in columns that have a local number, with 0 at the end, or fills them in. */
template <bool Fill>
__global__ void GhostRows(CSRView others, const LocalInt *local, LocalInt *count, CSR ghosts, LocalInt *places)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row > others.n) return;
  LocalInt found = 0;
  for (LocalInt k = row < others.n ? others.i[row] : 0; row < others.n && k < others.i[row + 1]; k++) {
    const LocalInt to = local[others.j[k]];
    if (to < 0) continue;
    if (Fill) {
      ghosts.j[ghosts.i[row] + found] = to;
      places[ghosts.i[row] + found]   = k;
    }
    found++;
  }
  if (!Fill) count[row] = found;
}

/* ------------------------------------------ the values ---------------------------------------- */

template <typename T>
__global__ void PickValues(LocalInt count, const LocalInt *index, LocalInt n, const T *a, const T *b, T *to)
{
  const long long k = GridThread();
  if (k < count) to[k] = index[k] < n ? a[index[k]] : b[index[k] - n];
}

/* The rows from `first` on, and their starts. L has the foreign rows already. */
template <int GroupSize>
__global__ void AssembleOwnRows(CSRView own, CSR ghosts, LocalInt first, LocalInt foreign_nnz, CSR L)
{
  const LocalInt row  = (LocalInt)(GridThread() / GroupSize);
  const int      lane = threadIdx.x % GroupSize;
  if (row >= own.n) return;
  PetscScalar *const a     = (PetscScalar *)L.a;
  const LocalInt     begin = foreign_nnz + ghosts.i[row] + own.i[row], before = ghosts.i[row + 1] - ghosts.i[row],
                 length = own.i[row + 1] - own.i[row];
  if (!lane) L.i[first + row + 1] = begin + before + length;
  for (LocalInt k = lane; k < before; k += GroupSize) {
    L.j[begin + k] = ghosts.j[ghosts.i[row] + k];
    a[begin + k]   = ((const PetscScalar *)ghosts.a)[ghosts.i[row] + k];
  }
  for (LocalInt k = lane; k < length; k += GroupSize) {
    L.j[begin + before + k] = first + own.j[own.i[row] + k];
    a[begin + before + k]   = own.a[own.i[row] + k];
  }
}

/* count[row] is the number of entries before column `first`, and count[rows] is 0. */
__global__ void CountForeign(CSR W, LocalInt first, LocalInt *count)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row < W.rows) count[row] = LowerBound(W.j, W.i[row], W.i[row + 1], first) - W.i[row];
  if (row == W.rows) count[row] = 0;
}

__global__ void OwnStarts(CSR W, const LocalInt *foreign_i, LocalInt *own_i)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row <= W.rows) own_i[row] = W.i[row] - foreign_i[row];
}

template <typename T, int GroupSize>
__global__ void SplitRows(CSR W, LocalInt first, bool keep, CSR own, CSR foreign)
{
  const LocalInt row  = (LocalInt)(GridThread() / GroupSize);
  const int      lane = threadIdx.x % GroupSize;
  if (row >= W.rows) return;
  const LocalInt begin = W.i[row], before = foreign.i[row + 1] - foreign.i[row];
  for (LocalInt k = lane; k < W.i[row + 1] - begin; k += GroupSize) {
    const bool     is_own = k >= before;
    const CSR     &part   = is_own ? own : foreign;
    const LocalInt to     = is_own ? own.i[row] + k - before : foreign.i[row] + k;
    ((T *)part.a)[to]     = ((const T *)W.a)[begin + k];
    if (!keep) part.j[to] = W.j[begin + k] - (is_own ? first : 0);
  }
}

/* --------------------------------- the factor's part on other ranks --------------------------- */

/* The row of each entry, whether a row and a column have entries, and how many rows have one in a column that is cut. */
__global__ void MarkEntries(CSR W, const char *cut, LocalInt *row_of, LocalInt *row_used, LocalInt *column_used, LocalInt *limited)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row >= W.rows) return;
  bool is_cut = false;
  for (LocalInt k = W.i[row]; k < W.i[row + 1]; k++) {
    row_of[k]           = row;
    column_used[W.j[k]] = 1;
    is_cut              = is_cut || (cut && cut[W.j[k]]);
  }
  row_used[row] = W.i[row] < W.i[row + 1];
  if (is_cut) atomicAdd(limited, 1);
}

/* place[k] = k; the columns of W get their new numbers. */
__global__ void Renumber(CSR W, const LocalInt *number, LocalInt *place)
{
  const LocalInt k = (LocalInt)GridThread();
  if (k >= W.nnz) return;
  W.j[k]   = number[W.j[k]];
  place[k] = k;
}

/* Column and row in the matrix of the entries in their new order. */
__global__ void NameEntries(LocalInt nnz, const LocalInt *order, const LocalInt *column, const LocalInt *old_column,
                            const LocalInt *row_of, const GlobalInt *rows, GlobalInt begin, GlobalInt *numbers)
{
  const LocalInt k = (LocalInt)GridThread();
  if (k >= nnz) return;
  numbers[2 * (size_t)k]     = rows[old_column[column[k]]];
  numbers[2 * (size_t)k + 1] = begin + row_of[order[k]];
}

/* The parts of the entries that have come, which get their numbers. */
__global__ void ReadNumbers(LocalInt count, const GlobalInt *numbers, GlobalInt begin, LocalInt *row, GlobalInt *column,
                            LocalInt *place)
{
  const LocalInt k = (LocalInt)GridThread();
  if (k >= count) return;
  row[k]    = (LocalInt)(numbers[2 * (size_t)k] - begin);
  column[k] = numbers[2 * (size_t)k + 1];
  place[k]  = k;
}

/* The row starts of W, whose entries have these rows, ascending. */
__global__ void FindStarts(CSR W, const LocalInt *row_of)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row <= W.rows) W.i[row] = LowerBound(row_of, (LocalInt)0, W.nnz, row);
}

__global__ void NameColumns(CSR W, const GlobalInt *numbers, const LocalInt *place, const GlobalInt *columns)
{
  const LocalInt k = (LocalInt)GridThread();
  if (k < W.nnz) W.j[k] = PlaceOf(W.columns, columns, numbers[2 * (size_t)place[k] + 1]);
}

/* ----------------------------------------- for the host --------------------------------------- */

/* The number of bits that a sort of numbers below n looks at. */
int BitsOf(LocalInt n)
{
  int bits = 1;
  while (bits < 31 && (n >> bits)) bits++;
  return bits;
}

/* The lengths of rows of this rank and their starts, and how many entries they have. */
struct ListedRows {
  GlobalInt *rows;
  LocalInt  *length, *start, total = 0;

  PetscErrorCode Count(const HaloRows &A, LocalInt count, const GlobalInt on_host[], Buffer<char> *work, cudaStream_t stream)
  {
    CubScratch scratch;
    Layout     layout;
    const auto scan = [&](void *memory, size_t &bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, length, start, count + 1, stream);
    };

    PetscFunctionBegin;
    PetscCall(scratch.Measure(scan));
    scratch.Place(&layout);
    layout.Place(&rows, count);
    layout.Place(&length, count + 1);
    layout.Place(&start, count + 1);
    PetscCall(layout.Allocate(work));
    PetscCall(ArrayCopy_CUDA(rows, on_host, count * sizeof(GlobalInt), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
    RowLengths<<<BlocksFor((long long)count + 1), kBlockSize, 0, stream>>>(A, count, rows, length);
    FinePCCheckLaunch();
    PetscCall(scratch.Run(scan));
    PetscCall(ArrayCopy_CUDA(&total, start + count, sizeof(total), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
};

} // namespace

/* ------------------------------------ the plan of a gathering --------------------------------- */

/*
   The host orders a pass over all rows for each number of layers, the largest first, and does not wait for it, but now and then it
   asks whether the last pass has found anything.
*/
PetscErrorCode HaloFollow_CUDA(const HaloRows *A, LocalInt count, const GlobalInt on_host[], const GlobalInt depth_on_host[],
                               std::vector<GlobalInt> *reached, std::vector<LocalInt> *onward)
{
  constexpr LocalInt                        kPasses = 16; /* between two questions */
  const PetscMemType                        host = PETSC_MEMTYPE_HOST, device = PETSC_MEMTYPE_CUDA;
  const LocalInt                            n = A->own.n;
  const thrust::counting_iterator<LocalInt> all(0);
  cudaStream_t                              stream;
  GlobalInt                                *rows, *depth;
  LocalInt                                 *wanted, *to, *chosen, *counted, *more, found = 1, number = 0;
  std::vector<LocalInt>                     local;
  Buffer<char>                              work;
  CubScratch                                scratch;
  Layout                                    layout;

  PetscFunctionBegin;
  reached->clear();
  onward->assign(A->count, 0);
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  const auto choose = [&](void *memory, size_t &bytes) {
    return cub::DeviceSelect::If(memory, bytes, all, chosen, counted, n, IsWanted{wanted}, stream);
  };
  wanted = to = chosen = counted = nullptr;
  PetscCall(scratch.Measure(choose));
  scratch.Place(&layout);
  layout.Place(&rows, count);
  layout.Place(&depth, count);
  layout.Place(&wanted, n);
  layout.Place(&to, A->count);
  layout.Place(&chosen, n);
  layout.Place(&counted, 1);
  layout.Place(&more, 1);
  PetscCall(layout.Allocate(&work));
  PetscCall(ArrayCopy_CUDA(rows, on_host, count * sizeof(GlobalInt), device, host));
  PetscCall(ArrayCopy_CUDA(depth, depth_on_host, count * sizeof(GlobalInt), device, host));
  PetscCallCUDA(cudaMemsetAsync(wanted, 0, n * sizeof(LocalInt), stream));
  if (A->count) PetscCallCUDA(cudaMemsetAsync(to, 0, A->count * sizeof(LocalInt), stream));
  Want<<<BlocksFor(count), kBlockSize, 0, stream>>>(count, rows, depth, A->begin, wanted);
  FinePCCheckLaunch();
  LocalInt layers = (LocalInt)*std::max_element(depth_on_host, depth_on_host + count);
  for (LocalInt pass = 1; layers > 1; pass++, layers--) {
    PetscCallCUDA(cudaMemsetAsync(more, 0, sizeof(*more), stream));
    WantNext<<<BlocksFor(n), kBlockSize, 0, stream>>>(*A, layers, wanted, to, more);
    FinePCCheckLaunch();
    if (pass % kPasses) continue;
    PetscCall(ArrayCopy_CUDA(&found, more, sizeof(found), host, device));
    if (found) continue;
    LocalInt next = 1; /* the rows before lead nowhere: on with those from which fewer layers are wanted */
    for (LocalInt k = 0; k < count; k++)
      if (depth_on_host[k] < layers) next = std::max(next, (LocalInt)depth_on_host[k]);
    layers = next + 1;
  }
  PetscCall(scratch.Run(choose));
  PetscCall(ArrayCopy_CUDA(&number, counted, sizeof(number), host, device));
  local.resize(number);
  PetscCall(ArrayCopy_CUDA(local.data(), chosen, number * sizeof(LocalInt), host, device));
  PetscCall(ArrayCopy_CUDA(onward->data(), to, A->count * sizeof(LocalInt), host, device));
  for (LocalInt row : local) reached->push_back(A->begin + row);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloLengths_CUDA(const HaloRows *A, LocalInt count, const GlobalInt on_host[], std::vector<GlobalInt> *lengths)
{
  const PetscMemType host = PETSC_MEMTYPE_HOST, device = PETSC_MEMTYPE_CUDA;
  cudaStream_t       stream;
  GlobalInt         *rows, *length;
  Buffer<char>       work;
  Layout             layout;

  PetscFunctionBegin;
  lengths->resize(count);
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  layout.Place(&rows, count);
  layout.Place(&length, (size_t)count + 1);
  PetscCall(layout.Allocate(&work));
  PetscCall(ArrayCopy_CUDA(rows, on_host, count * sizeof(GlobalInt), device, host));
  RowLengths<<<BlocksFor((long long)count + 1), kBlockSize, 0, stream>>>(*A, count, rows, length);
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(lengths->data(), length, count * sizeof(GlobalInt), host, device));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloPlaces_CUDA(const HaloRows *A, LocalInt count, const GlobalInt on_host[], LocalInt *total, LocalInt **places)
{
  cudaStream_t stream;
  ListedRows   listed;
  Buffer<char> work;

  PetscFunctionBegin;
  *total = 0;
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  PetscCall(listed.Count(*A, count, on_host, &work, stream));
  *total = listed.total;
  PetscCall(ArrayCreate_CUDA(*total * sizeof(LocalInt), (void **)places));
  ListRows<kScanGroup>
    <<<BlocksFor((long long)count * kScanGroup), kBlockSize, 0, stream>>>(*A, count, listed.rows, listed.start, *places);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloColumns_CUDA(const HaloRows *A, LocalInt count, const LocalInt places[], GlobalInt columns[])
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  NamePlaces<<<BlocksFor(count), kBlockSize, 0, stream>>>(*A, count, places, columns);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloNumber_CUDA(const HaloGathered *gathered, GlobalInt begin, GlobalInt end, LocalInt bound_count,
                               const GlobalInt *bounds, CSR *foreign, LocalInt **keep, char **cut)
{
  const PetscMemType device = PETSC_MEMTYPE_CUDA;
  const LocalInt     first = gathered->rows, columns = first + (LocalInt)(end - begin);
  const int          blocks = BlocksFor((long long)first + 1);
  cudaStream_t       stream;
  LocalInt          *length, *start, *local, *kept, *kept_start, nnz = 0;
  Buffer<char>       work;
  CubScratch         scratch;
  Layout             layout;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  if (!first) {
    PetscCall(CSRCreate(0, columns, 0, FINEPC_DOUBLE, device, foreign));
    PetscCallCUDA(cudaMemsetAsync(foreign->i, 0, sizeof(*foreign->i), stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const auto scan = [&](const LocalInt *from, LocalInt *to) {
    return [=](void *memory, size_t &bytes) { return cub::DeviceScan::ExclusiveSum(memory, bytes, from, to, first + 1, stream); };
  };
  PetscCall(scratch.Measure(scan(nullptr, nullptr)));
  scratch.Place(&layout);
  for (LocalInt **numbers : {&length, &start, &kept, &kept_start}) layout.Place(numbers, (size_t)first + 1);
  layout.Place(&local, gathered->nnz);
  PetscCall(layout.Allocate(&work));
  PetscCall(ArrayCreate_CUDA(first, (void **)cut));
  GatheredLengths<<<blocks, kBlockSize, 0, stream>>>(*gathered, length);
  FinePCCheckLaunch();
  PetscCall(scratch.Run(scan(length, start)));
  if (gathered->nnz) {
    LocalColumns<<<BlocksFor(gathered->nnz), kBlockSize, 0, stream>>>(*gathered, begin, end, bound_count, bounds, local);
    FinePCCheckLaunch();
  }
  CountKept<<<blocks, kBlockSize, 0, stream>>>(first, start, local, kept, *cut);
  FinePCCheckLaunch();
  PetscCall(scratch.Run(scan(kept, kept_start)));
  PetscCall(ArrayCopy_CUDA(&nnz, kept_start + first, sizeof(nnz), PETSC_MEMTYPE_HOST, device));
  PetscCall(CSRCreate(first, columns, nnz, FINEPC_DOUBLE, device, foreign));
  PetscCall(ArrayCreate_CUDA(nnz * sizeof(LocalInt), (void **)keep));
  PetscCall(ArrayCopy_CUDA(foreign->i, kept_start, ((size_t)first + 1) * sizeof(LocalInt), device, device));
  FillKept<<<blocks, kBlockSize, 0, stream>>>(first, start, local, *foreign, *keep);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloGhosts_CUDA(const HaloRows *A, LocalInt first, const GlobalInt *rows, CSR *ghosts, LocalInt **places)
{
  const PetscMemType device = PETSC_MEMTYPE_CUDA;
  const LocalInt     n      = A->own.n;
  const int          blocks = BlocksFor((long long)n + 1);
  cudaStream_t       stream;
  LocalInt          *local, *count, *start, nnz = 0;
  Buffer<char>       work;
  CubScratch         scratch;
  Layout             layout;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  const auto scan = [&](void *memory, size_t &bytes) {
    return cub::DeviceScan::ExclusiveSum(memory, bytes, count, start, n + 1, stream);
  };
  PetscCall(scratch.Measure(scan));
  scratch.Place(&layout);
  layout.Place(&local, A->count);
  layout.Place(&count, (size_t)n + 1);
  layout.Place(&start, (size_t)n + 1);
  PetscCall(layout.Allocate(&work));
  if (A->count) {
    FindColumns<<<BlocksFor(A->count), kBlockSize, 0, stream>>>(A->count, A->columns, first, rows, local);
    FinePCCheckLaunch();
  }
  GhostRows<false><<<blocks, kBlockSize, 0, stream>>>(A->others, local, count, *ghosts, nullptr);
  FinePCCheckLaunch();
  PetscCall(scratch.Run(scan));
  PetscCall(ArrayCopy_CUDA(&nnz, start + n, sizeof(nnz), PETSC_MEMTYPE_HOST, device));
  PetscCall(CSRCreate(n, first, nnz, FINEPC_DOUBLE, device, ghosts));
  PetscCall(ArrayCreate_CUDA(nnz * sizeof(LocalInt), (void **)places));
  PetscCall(ArrayCopy_CUDA(ghosts->i, start, ((size_t)n + 1) * sizeof(LocalInt), device, device));
  GhostRows<true><<<blocks, kBlockSize, 0, stream>>>(A->others, local, nullptr, *ghosts, *places);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the values ---------------------------------------- */

PetscErrorCode HaloPick_CUDA(FinePCPrecision precision, LocalInt count, const LocalInt *index, LocalInt n, const void *a,
                             const void *b, void *to)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  if (precision == FINEPC_SINGLE)
    PickValues<<<BlocksFor(count), kBlockSize, 0, stream>>>(count, index, n, (const float *)a, (const float *)b, (float *)to);
  else PickValues<<<BlocksFor(count), kBlockSize, 0, stream>>>(count, index, n, (const double *)a, (const double *)b, (double *)to);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloAssemble_CUDA(const CSRView *own, const CSR *foreign, const CSR *ghosts, CSR *L)
{
  const PetscMemType where = PETSC_MEMTYPE_CUDA;
  const LocalInt     first = foreign->rows, rows = first + own->n;
  cudaStream_t       stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(CSRCreate(rows, rows, foreign->nnz + ghosts->nnz + own->nnz, FINEPC_DOUBLE, where, L));
  PetscCall(ArrayCopy_CUDA(L->i, foreign->i, (first + 1) * sizeof(LocalInt), where, where));
  PetscCall(ArrayCopy_CUDA(L->j, foreign->j, foreign->nnz * sizeof(LocalInt), where, where));
  PetscCall(ArrayCopy_CUDA(L->a, foreign->a, foreign->nnz * sizeof(PetscScalar), where, where));
  if (!own->n) PetscFunctionReturn(PETSC_SUCCESS);
  AssembleOwnRows<kScanGroup>
    <<<BlocksFor((long long)own->n * kScanGroup), kBlockSize, 0, stream>>>(*own, *ghosts, first, foreign->nnz, *L);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloSplit_CUDA(const CSR *W, LocalInt first, PetscBool keep, CSR *own, CSR *foreign)
{
  const PetscMemType where  = PETSC_MEMTYPE_CUDA;
  const int          blocks = BlocksFor((long long)W->rows + 1), group_blocks = BlocksFor((long long)W->rows * kScanGroup);
  cudaStream_t       stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  if (!keep) {
    Buffer<LocalInt> count, starts;
    CubScratch       scratch;
    LocalInt         nnz  = 0;
    const auto       scan = [&](void *memory, size_t &bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, count.data(), starts.data(), W->rows + 1, stream);
    };

    PetscCall(count.Allocate(W->rows + 1));
    PetscCall(starts.Allocate(W->rows + 1));
    CountForeign<<<blocks, kBlockSize, 0, stream>>>(*W, first, count.data());
    FinePCCheckLaunch();
    PetscCall(scratch.Run(scan));
    PetscCall(ArrayCopy_CUDA(&nnz, starts.data() + W->rows, sizeof(nnz), PETSC_MEMTYPE_HOST, where));
    PetscCall(CSRCreate(W->rows, W->rows, W->nnz - nnz, W->precision, where, own));
    PetscCall(CSRCreate(W->rows, first, nnz, W->precision, where, foreign));
    PetscCall(ArrayCopy_CUDA(foreign->i, starts.data(), starts.bytes(), where, where));
    OwnStarts<<<blocks, kBlockSize, 0, stream>>>(*W, foreign->i, own->i);
    FinePCCheckLaunch();
  }
  if (!W->rows) PetscFunctionReturn(PETSC_SUCCESS);
  if (W->precision == FINEPC_SINGLE)
    SplitRows<float, kScanGroup><<<group_blocks, kBlockSize, 0, stream>>>(*W, first, keep, *own, *foreign);
  else SplitRows<double, kScanGroup><<<group_blocks, kBlockSize, 0, stream>>>(*W, first, keep, *own, *foreign);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------- the factor's part on other ranks --------------------------- */

PetscErrorCode HaloCompress_CUDA(CSR *W, const GlobalInt *rows, GlobalInt begin, const char *cut, HaloEntries *entries)
{
  const PetscMemType                        host = PETSC_MEMTYPE_HOST, device = PETSC_MEMTYPE_CUDA;
  const LocalInt                            nnz = W->nnz;
  const thrust::counting_iterator<LocalInt> from_zero(0);
  cudaStream_t                              stream;
  LocalInt                                 *row_of, *row_used, *column_used, *number, *old_column, *place, *column, *counted;
  LocalInt                                  counts[3]; /* rows, columns, and rows that are limited */
  GlobalInt                                *numbers;
  Buffer<char>                              work;
  Buffer<LocalInt>                          touched;
  CubScratch                                scratch;
  Layout                                    layout;

  PetscFunctionBegin;
  if (!nnz) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  const auto choose_rows = [&](void *memory, size_t &bytes) {
    return cub::DeviceSelect::Flagged(memory, bytes, from_zero, row_used, touched.data(), counted, W->rows, stream);
  };
  const auto choose_columns = [&](void *memory, size_t &bytes) {
    return cub::DeviceSelect::Flagged(memory, bytes, from_zero, column_used, old_column, counted + 1, W->columns, stream);
  };
  const auto scan = [&](void *memory, size_t &bytes) {
    return cub::DeviceScan::ExclusiveSum(memory, bytes, column_used, number, W->columns, stream);
  };
  const auto sort = [&](void *memory, size_t &bytes) {
    return cub::DeviceRadixSort::SortPairs(memory, bytes, W->j, column, place, entries->order, nnz, 0, BitsOf(W->columns), stream);
  };
  PetscCall(scratch.Measure(choose_rows));
  PetscCall(scratch.Measure(choose_columns));
  PetscCall(scratch.Measure(scan));
  PetscCall(scratch.Measure(sort));
  scratch.Place(&layout);
  layout.Place(&row_used, W->rows);
  for (LocalInt **of_columns : {&column_used, &number, &old_column}) layout.Place(of_columns, W->columns);
  for (LocalInt **of_entries : {&row_of, &place, &column}) layout.Place(of_entries, nnz);
  layout.Place(&counted, 3);
  layout.Place(&numbers, 2 * (size_t)nnz);
  PetscCall(layout.Allocate(&work));
  PetscCall(touched.Allocate(PetscMin(nnz, W->rows)));
  PetscCall(ArrayCreate_CUDA(nnz * sizeof(LocalInt), (void **)&entries->order));
  PetscCallCUDA(cudaMemsetAsync(column_used, 0, W->columns * sizeof(LocalInt), stream));
  PetscCallCUDA(cudaMemsetAsync(counted, 0, sizeof(counts), stream));
  MarkEntries<<<BlocksFor(W->rows), kBlockSize, 0, stream>>>(*W, cut, row_of, row_used, column_used, counted + 2);
  FinePCCheckLaunch();
  PetscCall(scratch.Run(choose_rows));
  PetscCall(scratch.Run(choose_columns));
  PetscCall(scratch.Run(scan));
  Renumber<<<BlocksFor(nnz), kBlockSize, 0, stream>>>(*W, number, place);
  FinePCCheckLaunch();
  PetscCall(scratch.Run(sort));
  NameEntries<<<BlocksFor(nnz), kBlockSize, 0, stream>>>(nnz, entries->order, column, old_column, row_of, rows, begin, numbers);
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(counts, counted, sizeof(counts), host, device));
  entries->touched = counts[0];
  entries->limited = counts[2];
  entries->columns.resize(counts[1]);
  entries->numbers.resize(2 * (size_t)nnz);
  PetscCall(ArrayCreate_CUDA(counts[0] * sizeof(LocalInt), (void **)&entries->rows));
  PetscCall(ArrayCopy_CUDA(entries->rows, touched.data(), counts[0] * sizeof(LocalInt), device, device));
  PetscCall(ArrayCopy_CUDA(entries->columns.data(), old_column, counts[1] * sizeof(LocalInt), host, device));
  PetscCall(ArrayCopy_CUDA(entries->numbers.data(), numbers, 2 * (size_t)nnz * sizeof(GlobalInt), host, device));
  W->columns = counts[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloTranspose_CUDA(LocalInt n, GlobalInt begin, LocalInt count, const GlobalInt on_host[], FinePCPrecision precision,
                                  CSR *W, HaloTransposed *transposed)
{
  const PetscMemType host = PETSC_MEMTYPE_HOST, device = PETSC_MEMTYPE_CUDA;
  const int          blocks = BlocksFor(count);
  cudaStream_t       stream;
  LocalInt          *row, *row_of, *came, *touched, *counted, counts[2]; /* rows and columns */
  GlobalInt         *numbers, *column, *sorted;
  Buffer<char>       work;
  CubScratch         scratch;
  Layout             layout;

  PetscFunctionBegin;
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceGetStream(&stream));
  const auto sort_rows = [&](void *memory, size_t &bytes) {
    return cub::DeviceRadixSort::SortPairs(memory, bytes, row, row_of, came, transposed->place, count, 0, BitsOf(n), stream);
  };
  const auto sort_columns = [&](void *memory, size_t &bytes) {
    return cub::DeviceRadixSort::SortKeys(memory, bytes, column, sorted, count, 0, (int)(8 * sizeof(GlobalInt)), stream);
  };
  const auto unique_rows = [&](void *memory, size_t &bytes) {
    return cub::DeviceSelect::Unique(memory, bytes, row_of, touched, counted, count, stream);
  };
  const auto unique_columns = [&](void *memory, size_t &bytes) {
    return cub::DeviceSelect::Unique(memory, bytes, sorted, column, counted + 1, count, stream);
  };
  PetscCall(scratch.Measure(sort_rows));
  PetscCall(scratch.Measure(sort_columns));
  PetscCall(scratch.Measure(unique_rows));
  PetscCall(scratch.Measure(unique_columns));
  scratch.Place(&layout);
  layout.Place(&numbers, 2 * (size_t)count);
  for (LocalInt **of_entries : {&row, &row_of, &came, &touched}) layout.Place(of_entries, count);
  for (GlobalInt **of_entries : {&column, &sorted}) layout.Place(of_entries, count);
  layout.Place(&counted, 2);
  PetscCall(layout.Allocate(&work));
  PetscCall(ArrayCreate_CUDA(count * sizeof(LocalInt), (void **)&transposed->place));
  PetscCall(ArrayCopy_CUDA(numbers, on_host, 2 * (size_t)count * sizeof(GlobalInt), device, host));
  ReadNumbers<<<blocks, kBlockSize, 0, stream>>>(count, numbers, begin, row, column, came);
  FinePCCheckLaunch();
  PetscCall(scratch.Run(sort_rows));
  PetscCall(scratch.Run(sort_columns));
  PetscCall(scratch.Run(unique_rows));
  PetscCall(scratch.Run(unique_columns));
  PetscCall(ArrayCopy_CUDA(counts, counted, sizeof(counts), host, device));
  PetscCall(CSRCreate(n, counts[1], count, precision, device, W));
  FindStarts<<<BlocksFor((long long)n + 1), kBlockSize, 0, stream>>>(*W, row_of);
  FinePCCheckLaunch();
  NameColumns<<<blocks, kBlockSize, 0, stream>>>(*W, numbers, transposed->place, column);
  FinePCCheckLaunch();
  transposed->touched = counts[0];
  transposed->columns.resize(counts[1]);
  PetscCall(ArrayCreate_CUDA(counts[0] * sizeof(LocalInt), (void **)&transposed->rows));
  PetscCall(ArrayCopy_CUDA(transposed->rows, touched, counts[0] * sizeof(LocalInt), device, device));
  PetscCall(ArrayCopy_CUDA(transposed->columns.data(), column, counts[1] * sizeof(GlobalInt), host, device));
  PetscFunctionReturn(PETSC_SUCCESS);
}
