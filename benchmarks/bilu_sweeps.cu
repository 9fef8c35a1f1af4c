/*
   Block ILU(0) by fixed-point sweeps over all blocks at once (Chow, Patel, named in bilu_sweeps.h), for finepc_kernels alone. The
   equations of the factor (src/pc/bisai/bilu_host.cxx),

     L_ij = (A_ij - sum_{k < j} L_ik U_kj) U_jj^{-1}    for j < i, (i, j) in S,
     U_ij =  A_ij - sum_{k < i} L_ik U_kj               for j >= i, (i, j) in S,

   have on the right what the sweep before has left. The guess is L_ij = A_ij A_jj^{-1}, U_ij = A_ij. Each block depends on blocks
   that come before it in the elimination, so that enough sweeps end at the factor, whatever the guess. Sweeps in place would save
   memory, but they would save no sweep where no three rows are neighbours of each other: there L_ij depends on U_jj alone, and U_ij
   on nothing.

   A thread takes a row of a block, which depends on the same row of A_ij and of the L_ik alone. Values lie as in BlockLU, with
   U_ii^{-1} in the place of U_ii. A second kernel inverts the U_ii of a sweep, each thread one of them.
*/
#include <cfloat>
#include <cub/device/device_scan.cuh>

#include "scratch.cuh"
#include "search.cuh"
#include "sparse/block.cuh"
#include "bilu_sweeps.h"

struct BILUSweeps {
  BlockLU          F;         /* of the factor by levels, the places */
  Buffer<LocalInt> rows;      /* [nnz] the row of each block */
  Buffer<LocalInt> begin;     /* [nnz + 1] where the pairs of each block begin */
  Buffer<int2>     pairs;     /* blocks L_ik and U_kj */
  Buffer<double>   values[2]; /* [nnz * bs * bs] */
  Buffer<double>   pivots;    /* [n * bs * bs] U_ii */
};

namespace
{

static_assert(kLargestSwept == kLargestCompiled, "a thread has a block in registers, whose size is known to the compiler");

struct SweepTask {
  BSRView         A;
  const LocalInt *diagonal, *rows, *begin; /* begin is null where nothing is subtracted */
  const int2     *pairs;
  const double   *from;
  double         *to, *pivots;
};

/*
   The products that are subtracted from each block of A: how many there are or, to fill, which ones, when it is known where those
   of a block begin. Each thread takes a row.
*/
__global__ void BILUFindPairs(BSRView A, BlockLU F, bool fill, LocalInt *rows, LocalInt *begin, int2 *pairs)
{
  const LocalInt i = (LocalInt)GridThread();
  if (i >= A.n) return;
  for (LocalInt m = A.i[i]; m < A.i[i + 1]; m++) {
    const LocalInt j     = A.j[m];
    LocalInt       count = 0;
    for (LocalInt l = F.place[LU_L][i]; l < F.place[LU_L_END][i] && A.j[l] < j; l++) {
      const LocalInt k = A.j[l], end = F.place[LU_U_END][k], block = LowerBound(A.j, F.place[LU_U][k], end, j);
      if (block == end || A.j[block] != j) continue;
      if (fill) pairs[begin[m] + count] = make_int2(l, block);
      count++;
    }
    if (!fill) {
      begin[m] = count;
      rows[m]  = i;
    }
  }
}

/* A sweep. Each thread takes a row of a block. */
template <int BS>
__global__ void __launch_bounds__(kBlockSize) BILUSweep(SweepTask task)
{
  constexpr int   kSize  = BS * BS;
  const long long thread = GridThread(), m = thread / BS;
  const int       r = (int)(thread % BS);
  if (m >= task.A.nnz) return;
  const LocalInt i = task.rows[m], j = task.A.j[m];
  double         sum[BS]; /* row r of A_ij - sum L_ik U_kj */
#pragma unroll
  for (int c = 0; c < BS; c++) sum[c] = task.A.a[m * kSize + c * BS + r];
  for (LocalInt p = task.begin ? task.begin[m] : 0; task.begin && p < task.begin[m + 1]; p++) {
    const double *const L = task.from + (size_t)task.pairs[p].x * kSize + r, *const U = task.from + (size_t)task.pairs[p].y * kSize;
#pragma unroll
    for (int t = 0; t < BS; t++) {
      const double L_rt = L[t * BS];
#pragma unroll
      for (int c = 0; c < BS; c++) sum[c] -= L_rt * U[c * BS + t];
    }
  }
  double *const to = (i == j ? task.pivots + (size_t)i * kSize : task.to + m * kSize) + r;
  if (j >= i) {
#pragma unroll
    for (int c = 0; c < BS; c++) to[c * BS] = sum[c];
    return;
  }
  const double *const inverse = task.from + (size_t)task.diagonal[j] * kSize;
#pragma unroll
  for (int c = 0; c < BS; c++) {
    double L_rc = 0;
#pragma unroll
    for (int t = 0; t < BS; t++) L_rc += sum[t] * inverse[c * BS + t];
    to[c * BS] = L_rc;
  }
}

/*
   a[c][r] = a^{-1} by Gauss and Jordan, in the registers of a thread: all indices are known to the compiler. A row below that has a
   larger pivot changes places with the row of the pivot. The same columns of the inverse change places afterwards, the last ones
   first.
*/
template <int BS>
__device__ bool Invert(double (&a)[BS][BS])
{
  unsigned long long exchanged = 0;
#pragma unroll
  for (int p = 0; p < BS; p++) {
#pragma unroll
    for (int r = p + 1; r < BS; r++) {
      const bool exchange = fabs(a[p][r]) > fabs(a[p][p]);
      if (exchange) exchanged |= 1ull << (p * BS + r);
#pragma unroll
      for (int c = 0; c < BS; c++) {
        const double upper = a[c][p];
        a[c][p]            = exchange ? a[c][r] : upper;
        a[c][r]            = exchange ? upper : a[c][r];
      }
    }
    const double pivot = a[p][p];
    if (!(fabs(pivot) > 0 && fabs(pivot) <= DBL_MAX)) return false;
    a[p][p] = 1;
#pragma unroll
    for (int c = 0; c < BS; c++) a[c][p] /= pivot;
#pragma unroll
    for (int r = 0; r < BS; r++) {
      if (r == p) continue;
      const double factor = a[p][r];
      a[p][r]             = 0;
#pragma unroll
      for (int c = 0; c < BS; c++) a[c][r] -= factor * a[c][p];
    }
  }
#pragma unroll
  for (int p = BS - 1; p >= 0; p--) {
#pragma unroll
    for (int other = BS - 1; other > p; other--) {
      const bool exchange = exchanged >> (p * BS + other) & 1;
#pragma unroll
      for (int r = 0; r < BS; r++) {
        const double left = a[p][r];
        a[p][r]           = exchange ? a[other][r] : left;
        a[other][r]       = exchange ? left : a[other][r];
      }
    }
  }
  return true;
}

/* Inverts the U_ii of a sweep. Where a U_ii on the way to the factor has no inverse, the inverse of the sweep before stays. */
template <int BS>
__global__ void __launch_bounds__(kBlockSize) BILUInvertPivots(SweepTask task)
{
  constexpr int  kSize = BS * BS;
  const LocalInt i     = (LocalInt)GridThread();
  if (i >= task.A.n) return;
  const double *const pivot = task.pivots + (size_t)i * kSize, *const before = task.from + (size_t)task.diagonal[i] * kSize;
  double *const to = task.to + (size_t)task.diagonal[i] * kSize;
  double        a[BS][BS];
#pragma unroll
  for (int k = 0; k < kSize; k++) a[k / BS][k % BS] = pivot[k];
  const bool good = Invert<BS>(a);
#pragma unroll
  for (int k = 0; k < kSize; k++) to[k] = good ? a[k / BS][k % BS] : before[k];
}

/* The guess takes two sweeps that subtract nothing: the first one gives A_jj^{-1} to the second. */
template <int BS>
PetscErrorCode RunSweeps(const BILUSweeps *s, const BSRView &A, LocalInt sweeps, cudaStream_t stream, const double **factor)
{
  constexpr LocalInt kGuess = 2;
  int                now    = 0;

  PetscFunctionBegin;
  for (LocalInt sweep = 0; sweep < kGuess + sweeps; sweep++) {
    const SweepTask task{A,
                         s->F.place[LU_DIAGONAL],
                         s->rows.data(),
                         sweep < kGuess ? nullptr : s->begin.data(),
                         s->pairs.data(),
                         s->values[now].data(),
                         s->values[1 - now].data(),
                         s->pivots.data()};

    BILUSweep<BS><<<BlocksFor((long long)A.nnz * BS), kBlockSize, 0, stream>>>(task);
    FinePCCheckLaunch();
    BILUInvertPivots<BS><<<BlocksFor(A.n), kBlockSize, 0, stream>>>(task);
    FinePCCheckLaunch();
    now = 1 - now;
  }
  *factor = s->values[now].data();
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode BILUSweepsCreate_CUDA(const BSRView *A, const BlockLU *F, BILUSweeps **sweeps)
{
  BILUSweeps  *s = new BILUSweeps;
  CubScratch   scratch;
  LocalInt     pairs;
  cudaStream_t stream;

  PetscFunctionBegin;
  *sweeps = s; /* belongs to the caller after an error, too */
  PetscCheck(A->n > 0 && A->bs <= kLargestSwept, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "Sweeps take blocks of 1 to %" LocalInt_FMT " rows, not %" LocalInt_FMT, kLargestSwept, A->bs);
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  s->F = *F;
  PetscCall(s->rows.Allocate(A->nnz));
  PetscCall(s->begin.Allocate(A->nnz + 1));
  for (auto &values : s->values) PetscCall(values.Allocate((size_t)A->nnz * A->bs * A->bs));
  PetscCall(s->pivots.Allocate((size_t)A->n * A->bs * A->bs));
  /* the first sweep of a guess reads these values; what it makes of them is overwritten by the second one */
  PetscCallCUDA(cudaMemsetAsync(s->values[0].data(), 0, s->values[0].bytes(), stream));
  PetscCallCUDA(cudaMemsetAsync(s->begin.data() + A->nnz, 0, sizeof(LocalInt), stream));
  BILUFindPairs<<<BlocksFor(A->n), kBlockSize, 0, stream>>>(*A, *F, false, s->rows.data(), s->begin.data(), nullptr);
  FinePCCheckLaunch();
  PetscCall(scratch.Run([&](void *memory, size_t &bytes) {
    return cub::DeviceScan::ExclusiveSum(memory, bytes, s->begin.data(), s->begin.data(), A->nnz + 1, stream);
  }));
  PetscCall(ArrayCopy_CUDA(&pairs, s->begin.data() + A->nnz, sizeof(pairs), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscCall(s->pairs.Allocate(pairs));
  BILUFindPairs<<<BlocksFor(A->n), kBlockSize, 0, stream>>>(*A, *F, true, s->rows.data(), s->begin.data(), s->pairs.data());
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BILUSweepsDestroy_CUDA(BILUSweeps **sweeps)
{
  PetscFunctionBegin;
  delete *sweeps;
  *sweeps = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BILUSweepsRun_CUDA(BILUSweeps *s, const BSRView *A, LocalInt sweeps, const PetscScalar **factor)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(WithBlockSize(A->bs, [&](auto size) -> PetscErrorCode {
    if constexpr (size == 0)
      SETERRQ(PETSC_COMM_SELF, PETSC_ERR_SUP, "Sweeps take blocks of 1 to %" LocalInt_FMT " rows, not %" LocalInt_FMT,
              kLargestSwept, A->bs);
    else return RunSweeps<size>(s, *A, sweeps, stream, factor);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
