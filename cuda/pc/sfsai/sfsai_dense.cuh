/*
   Systems that are too large for a block of threads: cuSOLVER factorizes them in global memory, one after the other and in double
   precision.
*/
#pragma once

#include "pc/sfsai/sfsai.h"
#include "buffer.cuh"
#include "device/cusolver.cuh"

/* The slots of the table that finds columns among the n of a system: a power of two, so that at most half of them are used. */
__host__ __device__ constexpr int SlotsFor(int n)
{
  int slots = 2;
  while (slots < 2 * n) slots *= 2;
  return slots;
}

/* A row of G and the size of its system. */
struct DenseRow {
  LocalInt row = 0, size = 0;
};

/* A system of n unknowns, column-major, and what solves it. */
struct DenseSystem {
  LocalInt n;
  double  *A;     /* [n * n] of which the lower triangle counts; then its Cholesky factor */
  double  *y;     /* [n] the right-hand side, then the solution */
  int     *P;     /* [n] the columns of A that the unknowns are */
  int     *slots; /* [SlotsFor(n)] of the table of these columns */
  int     *info;  /* [2] of the factorization, 0 if every pivot is positive, and of the solution */
  void    *device_work;
  size_t   device_bytes, host_bytes;

  size_t MatrixBytes() const { return (size_t)n * n * sizeof(*A); }
};

/* cuSOLVER's calls. */
class DenseSolver {
public:
  DenseSolver()                               = default;
  DenseSolver(const DenseSolver &)            = delete;
  DenseSolver &operator=(const DenseSolver &) = delete;
  ~DenseSolver()
  {
    if (params_) (void)cusolverDnDestroyParams(params_);
    PetscCallAbort(PETSC_COMM_SELF, PetscFree(host_work_));
  }

  /* Names the arrays of a system of n unknowns, which is not larger than the memory of the device, in a layout. */
  PetscErrorCode Place(LocalInt n, Layout *layout, DenseSystem *system)
  {
    PetscFunctionBegin;
    if (!params_) {
      PetscCall(DeviceGetSolver(&handle_));
      PetscCallCUSOLVER(cusolverDnCreateParams(&params_));
    }
    *system   = DenseSystem{};
    system->n = n;
    PetscCallCUSOLVER(cusolverDnXpotrf_bufferSize(handle_, params_, CUBLAS_FILL_MODE_LOWER, n, CUDA_R_64F, nullptr, n, CUDA_R_64F,
                                                  &system->device_bytes, &system->host_bytes));
    layout->Place(&system->A, (size_t)n * n);
    layout->Place(&system->y, n);
    layout->Place(&system->P, n);
    layout->Place(&system->slots, SlotsFor(n));
    layout->Place(&system->info, 2);
    layout->Place(&system->device_work, system->device_bytes);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The factor in the place of A, and A^{-1} y in the place of y, which is no number if a pivot is not positive. */
  PetscErrorCode Solve(cudaStream_t stream, DenseSystem *system)
  {
    const LocalInt n = system->n;
    cudaStream_t   before;

    PetscFunctionBegin;
    if (host_bytes_ < system->host_bytes) {
      PetscCall(PetscFree(host_work_));
      PetscCall(PetscMalloc(system->host_bytes, &host_work_));
      host_bytes_ = system->host_bytes;
    }
    PetscCallCUSOLVER(cusolverDnGetStream(handle_, &before));
    PetscCallCUSOLVER(cusolverDnSetStream(handle_, stream));
    PetscCallCUSOLVER(cusolverDnXpotrf(handle_, params_, CUBLAS_FILL_MODE_LOWER, n, CUDA_R_64F, system->A, n, CUDA_R_64F,
                                       system->device_work, system->device_bytes, host_work_, system->host_bytes, system->info));
    PetscCallCUSOLVER(cusolverDnXpotrs(handle_, params_, CUBLAS_FILL_MODE_LOWER, n, 1, CUDA_R_64F, system->A, n, CUDA_R_64F,
                                       system->y, n, system->info + 1));
    PetscCallCUSOLVER(cusolverDnSetStream(handle_, before));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  cusolverDnHandle_t handle_     = nullptr; /* of all */
  cusolverDnParams_t params_     = nullptr;
  void              *host_work_  = nullptr;
  size_t             host_bytes_ = 0;
};
