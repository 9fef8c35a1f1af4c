/* PCBISAI is applied here: two approximate triangular inverses, each with its relaxation, or their transposes. */
#include <petsc/private/pcimpl.h>

#include "finepcimpl.h"
#include "sparse/bsr_csr.h"
#include "bisai_face.h"

static PetscErrorCode Multiply(const PC_BISAI *bisai, const BSR *W, const PetscScalar *x, const PetscScalar *z, PetscScalar *y,
                               PetscBool after_product)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(bisai->where)) PetscCall(BSRMultiply_CUDA(W, x, z, y, after_product));
  else PetscCall(BSRMultiply_Host(W, x, z, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes z = N v, and then z <- z + N (v - T z) for each sweep, where R is -T. */
static PetscErrorCode ApplyTriangle(const PC_BISAI *bisai, const BSR *N, const BSR *R, PetscBool unit, PetscBool after_product,
                                    const PetscScalar *v, PetscScalar *z)
{
  PetscScalar *const residual = bisai->vectors + VECTOR_RESIDUAL * (size_t)bisai->n * bisai->bs;

  PetscFunctionBegin;
  PetscCall(Multiply(bisai, N, v, unit ? v : nullptr, z, after_product));
  for (PetscInt sweep = 0; sweep < bisai->params.sweeps; sweep++) {
    PetscCall(Multiply(bisai, R, z, v, residual, PETSC_TRUE));
    PetscCall(Multiply(bisai, N, residual, z, z, PETSC_TRUE));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Permute(const PC_BISAI *bisai, const PetscInt *order, PetscBool scatter, const PetscScalar *x, PetscScalar *y)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(bisai->where)) PetscCall(BISAIPermute_CUDA(bisai->bs, bisai->n, order, scatter, x, y));
  else PetscCall(BISAIPermute_Host(bisai->bs, bisai->n, order, scatter, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes transposes with the values of the last set-up. If there are older transposes, their memory and patterns are used again. */
static PetscErrorCode NeedTransposes(PC pc)
{
  PC_BISAI  *bisai     = (PC_BISAI *)pc->data;
  const auto transpose = PetscMemTypeDevice(bisai->where) ? BSRTranspose_CUDA : BSRTranspose_Host;

  PetscFunctionBegin;
  if (bisai->turned) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogEventBegin(FinePC_Transpose, pc, 0, 0, 0));
  for (int t = 0; t < 2; t++) {
    PetscCall(transpose(&bisai->N[t], (PetscBool)(bisai->Nt[t].i != nullptr), &bisai->Nt[t]));
    if (bisai->params.sweeps) PetscCall(transpose(&bisai->R[t], (PetscBool)(bisai->Rt[t].i != nullptr), &bisai->Rt[t]));
  }
  PetscCall(PetscLogEventEnd(FinePC_Transpose, pc, 0, 0, 0));
  bisai->turned = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Computes y = NU NL x, or y = NL^T NU^T x with transpose, in the memory of the factors. With sweeps, each triangle is
   B = sum_k (I - N T)^k N instead of N. B^T is the same sum of N^T and T^T, so that the same loop serves for the transpose.
*/
PetscErrorCode BISAIApply(PC pc, PetscBool transpose, PetscInt, const PetscScalar *x, PetscInt, PetscScalar *y, PetscInt,
                          PetscLogDouble *flops)
{
  PC_BISAI          *bisai = (PC_BISAI *)pc->data;
  const size_t       rows = (size_t)bisai->n * bisai->bs, bs2 = (size_t)bisai->bs * bisai->bs;
  PetscScalar *const middle = bisai->vectors, *const in = bisai->vectors + VECTOR_IN * rows,
                     *const out = bisai->vectors + VECTOR_OUT * rows;
  const BSR *const N = transpose ? bisai->Nt : bisai->N, *const R = transpose ? bisai->Rt : bisai->R;
  const PetscInt *const from = bisai->order[transpose ? 1 : 0], *const to = bisai->order[transpose ? 0 : 1];
  const BISAITriangle first = transpose ? BISAI_UPPER : BISAI_LOWER, second = transpose ? BISAI_LOWER : BISAI_UPPER;
  /* Whether the unit diagonal is not stored, which is so for NL without sweeps. */
  const auto unit = [&](BISAITriangle t) { return (PetscBool)(t == BISAI_LOWER && !bisai->params.sweeps); };

  PetscFunctionBegin;
  if (transpose) PetscCall(NeedTransposes(pc));
  if (from) PetscCall(Permute(bisai, from, PETSC_FALSE, x, in));
  PetscCall(ApplyTriangle(bisai, &N[first], &R[first], unit(first), PETSC_FALSE, from ? in : x, middle));
  PetscCall(ApplyTriangle(bisai, &N[second], &R[second], unit(second), PETSC_TRUE, middle, to ? out : y));
  if (to) PetscCall(Permute(bisai, to, PETSC_TRUE, out, y));
  *flops = 0;
  for (int t = 0; t < 2; t++)
    *flops += 2.0 * bs2 * ((1 + bisai->params.sweeps) * (PetscLogDouble)N[t].nnz + bisai->params.sweeps * (PetscLogDouble)R[t].nnz);
  PetscFunctionReturn(PETSC_SUCCESS);
}
