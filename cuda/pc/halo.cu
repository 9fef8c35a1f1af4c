/* CUDA twin of src/pc/halo_host.cxx: a thread takes an entry, or a group of lanes a row. */
#include <cub/cub.cuh>

#include "pc/halo.h"
#include "scratch.cuh"
#include "search.cuh"

namespace
{

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

__global__ void FillRows(CSR W, LocalInt *rows)
{
  const LocalInt row = (LocalInt)GridThread();
  if (row >= W.rows) return;
  for (LocalInt k = W.i[row]; k < W.i[row + 1]; k++) rows[k] = row;
}

} // namespace

PetscErrorCode HaloPick_CUDA(FinePCPrecision precision, LocalInt count, const LocalInt *index, LocalInt n, const void *a,
                             const void *b, void *to)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
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
  PetscCall(PetscGetCurrentCUDAStream(&stream));
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
  PetscCall(PetscGetCurrentCUDAStream(&stream));
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

PetscErrorCode HaloRowsOf_CUDA(const CSR *W, LocalInt *rows)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  if (!W->nnz) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  FillRows<<<BlocksFor(W->rows), kBlockSize, 0, stream>>>(*W, rows);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloFence_CUDA()
{
  cudaStream_t stream;
  unsigned     flags;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUDA(cudaStreamGetFlags(stream, &flags));
  PetscCheck(!(flags & cudaStreamNonBlocking), PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A factor that reaches other ranks needs a device context of the stream type PETSC_STREAM_DEFAULT, since PETSc's "
             "exchange may run in another stream: use -pc_afsai_overlap 0 or -pc_sfsai_overlap 0");
  if (stream) PetscCallCUDA(cudaDeviceSynchronize());
  PetscFunctionReturn(PETSC_SUCCESS);
}
