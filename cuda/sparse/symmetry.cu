/* CUDA twin of src/sparse/symmetry_host.cxx: a group of lanes takes a row, and each entry finds its partner by bisection. */
#include "launch.cuh"
#include "search.cuh"
#include "sparse/symmetry.h"

namespace
{

using Count = unsigned long long;

static_assert(sizeof(Count) == sizeof(PetscInt64) && sizeof(Count) == sizeof(PetscReal),
              "counts are added as unsigned numbers, and reals that are not negative have the order of their bits");

/* The value of an entry, or 0 if it is not stored. */
__device__ PetscScalar Entry(const CSRView &A, PetscInt row, PetscInt column)
{
  const PetscInt end = A.i[row + 1], k = LowerBound(A.j, A.i[row], end, column);
  return k < end && A.j[k] == column ? A.a[k] : 0;
}

template <int GroupSize>
__global__ void CheckSymmetry(CSRView A, PetscScalar *values, CSRSymmetry *symmetry)
{
  const PetscInt row = (PetscInt)(GridThread() / GroupSize);
  if (row >= A.n) return;
  const PetscReal noise = kSymmetryNoise * fabs(Entry(A, row, row));
  for (PetscInt k = A.i[row] + threadIdx.x % GroupSize; k < A.i[row + 1]; k += GroupSize) {
    const PetscInt    column = A.j[k];
    const PetscScalar a = A.a[k], other = column == row ? a : Entry(A, column, row);
    const PetscReal   apart = fabs(a - other), larger = fmax(fabs(a), fabs(other));
    const bool        alone = other == 0 && apart > noise && isfinite(apart);
    if (values) values[k] = alone ? 0 : a;
    if (alone) atomicAdd((Count *)&symmetry->one_sided, (Count)1);
    if (column < row || a == 0 || other == 0 || !(apart > kSymmetry * larger && apart > noise && isfinite(apart))) continue;
    atomicAdd((Count *)&symmetry->unequal, (Count)1);
    atomicMax((Count *)&symmetry->largest, (Count)__double_as_longlong(apart / larger));
  }
}

} // namespace

PetscErrorCode CSRSymmetry_CUDA(const CSRView *A, PetscScalar *values, CSRSymmetry *work, CSRSymmetry *symmetry)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  *symmetry = CSRSymmetry{};
  if (!A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUDA(cudaMemsetAsync(work, 0, sizeof(*work), stream));
  CheckSymmetry<kScanGroup><<<BlocksFor((long long)A->n * kScanGroup), kBlockSize, 0, stream>>>(*A, values, work);
  FinePCCheckLaunch();
  PetscCall(ArrayCopy_CUDA(symmetry, work, sizeof(*work), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}
