/* CUDA twin of src/pc/cmatch/cmatch_uneven_host.cxx. */
#include <cub/cub.cuh>

#include "pc/cmatch/cmatch_nodes.h"
#include "scratch.cuh"

namespace
{

constexpr int kGroup = 8; /* lanes that take a row */

__global__ void __launch_bounds__(kBlockSize) CountEntries(LocalInt n, CSRView A, const LocalInt *row, LocalInt *count)
{
  const long long u = GridThread();
  if (u > n) return;
  const LocalInt from = u < n ? row[u] : 0;
  count[u]            = u == n ? 0 : from < 0 ? 1 : A.i[from + 1] - A.i[from];
}

__global__ void __launch_bounds__(kBlockSize) PadRows(CSRView A, const LocalInt *row, const LocalInt *place, CSR padded)
{
  const LocalInt     u = (LocalInt)(GridThread() / kGroup), lane = (LocalInt)(threadIdx.x % kGroup);
  const bool         mine = u < padded.rows;
  const LocalInt     from = mine ? row[u] : 0, of = from < 0 ? ~from : from, begin = mine ? padded.i[u] : 0;
  PetscScalar *const a        = (PetscScalar *)padded.a;
  PetscScalar        diagonal = 0;
  for (LocalInt e = lane; mine && e < A.i[of + 1] - A.i[of]; e += kGroup) {
    const LocalInt    column = A.j[A.i[of] + e];
    const PetscScalar value  = A.a[A.i[of] + e];
    if (from < 0) diagonal += column == of ? value : 0;
    else {
      padded.j[begin + e] = place[column];
      a[begin + e]        = value;
    }
  }
  diagonal = GroupSum<kGroup>(diagonal);
  if (!mine || lane || from >= 0) return;
  padded.j[begin] = u;
  a[begin]        = diagonal;
}

} // namespace

PetscErrorCode CMATCHPad_CUDA(const CSRView *A, const LocalInt *row, const LocalInt *place, CSR *padded)
{
  const LocalInt n = padded->rows;
  CubScratch     scratch;
  cudaStream_t   stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  CountEntries<<<BlocksFor((long long)n + 1), kBlockSize, 0, stream>>>(n, *A, row, padded->i);
  FinePCCheckLaunch();
  PetscCall(scratch.Run([&](void *memory, size_t &bytes) {
    return cub::DeviceScan::ExclusiveSum(memory, bytes, padded->i, padded->i, n + 1, stream);
  }));
  PadRows<<<BlocksFor((long long)n * kGroup), kBlockSize, 0, stream>>>(*A, row, place, *padded);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}
