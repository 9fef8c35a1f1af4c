/*
   The factors of sfsai and afsai on the emulated device, whose own kernels are too much for the emulator: the host twins compute
   them, in the memory of the device, so that what uses factors is emulated.
*/
#include "pc/afsai/afsai.h"
#include "pc/sfsai/sfsai.h"

/* Lets `compute` make G, of which it gets the arrays as if they were on the host, where they are. */
template <typename Compute>
static PetscErrorCode OnHost(const CSRView *A, PetscBool keep, CSR *G, const Compute &compute)
{
  CSRView view = *A;
  CSR     made = keep ? *G : CSR{};

  PetscFunctionBegin;
  view.where = made.where = PETSC_MEMTYPE_HOST;
  PetscCall(compute(&view, &made));
  if (keep || !made.i) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CSRCreate(made.rows, made.columns, made.nnz, made.precision, A->where, G));
  PetscCall(ArrayCopy(G->i, made.i, ((size_t)made.rows + 1) * sizeof(LocalInt), A->where, made.where));
  PetscCall(ArrayCopy(G->j, made.j, made.nnz * sizeof(LocalInt), A->where, made.where));
  PetscCall(ArrayCopy(G->a, made.a, made.nnz * FinePCPrecisionBytes(made.precision), A->where, made.where));
  PetscCall(CSRDestroy(&made));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SFSAIComputeFactor_CUDA(const SFSAIRows &of, const SFSAIParams *params, PetscBool keep, CSR *G, PetscReal *d,
                                       SFSAIWork *, FSAIStats *stats)
{
  SFSAIWork work{};

  PetscFunctionBegin;
  PetscCall(OnHost(of.A, keep, G, [&](const CSRView *view, CSR *made) {
    return SFSAIComputeFactor_Host({view, of.first, of.S}, params, keep, made, d, &work, stats);
  }));
  PetscCall(ArrayDestroy(work.where, &work.data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AFSAIComputeFactor_CUDA(const CSRView *A, LocalInt first, const CSRView *S, const AFSAIParams *params,
                                       PetscBool keep, CSR *G, PetscReal *d, FSAIStats *stats)
{
  PetscFunctionBegin;
  PetscCall(OnHost(A, keep, G, [&](const CSRView *view, CSR *made) {
    return AFSAIComputeFactor_Host(view, first, S, params, keep, made, d, stats);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
