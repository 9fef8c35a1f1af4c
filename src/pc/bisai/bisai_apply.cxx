/* PCBISAI is applied here: two approximate triangular inverses, each with its relaxation, or their transposes. */
#include <petsc/private/pcimpl.h>

#include "finepcimpl.h"
#include "sparse/bsr_csr.h"
#include "bisai_face.h"

PetscErrorCode BISAINeedVectors(PC_BISAI *bisai, LocalInt columns)
{
  const int    vectors = bisai->params.sweeps || bisai->factors.order[0] || bisai->factors.order[1] ? VECTORS : 1;
  const size_t bytes   = (size_t)bisai->n * bisai->bs * sizeof(PetscScalar);

  PetscFunctionBegin;
  if (bisai->vectors.columns >= columns) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArrayDestroy(bisai->where, (void **)&bisai->vectors.data));
  bisai->vectors.columns = 0;
  PetscCall(ArrayCreate(vectors * columns * bytes, bisai->where, (void **)&bisai->vectors.data));
  bisai->vectors.columns = columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Some columns of block vectors, which lie `ld` values apart. */
struct Columns {
  PetscScalar *a;
  LocalInt     ld;
};

static Columns WorkColumns(const PC_BISAI *bisai, int number)
{
  const LocalInt rows = bisai->n * bisai->bs;
  return {bisai->vectors.data + (size_t)number * bisai->vectors.columns * rows, rows};
}

/* Y = Z + W X, or Y = W X if there is no Z. */
static PetscErrorCode Multiply_BISAI(const PC_BISAI *bisai, LocalInt columns, const BSR *W, Columns X, Columns Z, Columns Y,
                                     PetscBool after_product)
{
  const BSRVectors v{X.a, Z.a, Y.a, X.ld, Z.ld, Y.ld};

  PetscFunctionBegin;
  if (PetscMemTypeDevice(bisai->where)) PetscCall(BSRMultiply_CUDA(W, columns, v, after_product));
  else PetscCall(BSRMultiply_Host(W, columns, v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Computes Z = N V, and then Z <- Z + N (V - T Z) for each sweep, where R is -T. */
static PetscErrorCode ApplyTriangle(const PC_BISAI *bisai, LocalInt columns, const BSR *N, const BSR *R, PetscBool unit,
                                    PetscBool after_product, Columns V, Columns Z)
{
  const Columns residual = WorkColumns(bisai, VECTOR_RESIDUAL);

  PetscFunctionBegin;
  PetscCall(Multiply_BISAI(bisai, columns, N, V, unit ? V : Columns{nullptr, 0}, Z, after_product));
  for (PetscInt sweep = 0; sweep < bisai->params.sweeps; sweep++) {
    PetscCall(Multiply_BISAI(bisai, columns, R, Z, V, residual, PETSC_TRUE));
    PetscCall(Multiply_BISAI(bisai, columns, N, residual, Z, Z, PETSC_TRUE));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Permute_BISAI(const PC_BISAI *bisai, LocalInt columns, const LocalInt *order, PetscBool scatter, Columns X,
                                    Columns Y)
{
  const auto permute = PetscMemTypeDevice(bisai->where) ? BISAIPermute_CUDA : BISAIPermute_Host;

  PetscFunctionBegin;
  for (LocalInt c = 0; c < columns; c++)
    PetscCall(permute(bisai->bs, bisai->n, order, scatter, X.a + (size_t)c * X.ld, Y.a + (size_t)c * Y.ld));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Makes transposes with the values of the last set-up, unless they exist. If there are older transposes, their memory and patterns
   are used again.
*/
static PetscErrorCode NeedTransposes(PC pc)
{
  PC_BISAI  *bisai     = (PC_BISAI *)pc->data;
  const auto transpose = PetscMemTypeDevice(bisai->where) ? BSRTranspose_CUDA : BSRTranspose_Host;

  PetscFunctionBegin;
  if (bisai->transposes.current) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogEventBegin(FinePC_Transpose, pc, 0, 0, 0));
  for (int t = 0; t < 2; t++) {
    PetscCall(transpose(&bisai->N[t], (PetscBool)(bisai->transposes.N[t].i != nullptr), &bisai->transposes.N[t]));
    if (bisai->params.sweeps)
      PetscCall(transpose(&bisai->R[t], (PetscBool)(bisai->transposes.R[t].i != nullptr), &bisai->transposes.R[t]));
  }
  PetscCall(PetscLogEventEnd(FinePC_Transpose, pc, 0, 0, 0));
  bisai->transposes.current = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BISAIReserve(PC pc, PetscBool transpose, LocalInt columns)
{
  PetscFunctionBegin;
  if (transpose) PetscCall(NeedTransposes(pc));
  PetscCall(BISAINeedVectors((PC_BISAI *)pc->data, columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Computes Y = NU NL X, or Y = NL^T NU^T X with transpose, in the memory of the factors. With sweeps, each triangle is
   B = sum_k (I - N T)^k N instead of N. B^T is the same sum of N^T and T^T, so that the same loop serves for the transpose.
*/
PetscErrorCode PCApply_BISAI(PC pc, PetscBool transpose, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y,
                             LocalInt ldy, PetscLogDouble *flops)
{
  PC_BISAI        *bisai = (PC_BISAI *)pc->data;
  const size_t     bs2   = (size_t)bisai->bs * bisai->bs;
  const Columns    x{(PetscScalar *)X, ldx}, y{Y, ldy}; /* x is only read */
  const BSR *const N = transpose ? bisai->transposes.N : bisai->N, *const R = transpose ? bisai->transposes.R : bisai->R;
  const LocalInt *const from = bisai->factors.order[transpose ? 1 : 0], *const to = bisai->factors.order[transpose ? 0 : 1];
  const BISAITriangle first = transpose ? BISAI_UPPER : BISAI_LOWER, second = transpose ? BISAI_LOWER : BISAI_UPPER;
  /* Whether the unit diagonal is not stored, which is so for NL without sweeps. */
  const auto unit = [&](BISAITriangle t) { return (PetscBool)(t == BISAI_LOWER && !bisai->params.sweeps); };

  PetscFunctionBegin;
  const Columns middle = WorkColumns(bisai, VECTOR_MIDDLE), in = WorkColumns(bisai, VECTOR_IN),
                out = WorkColumns(bisai, VECTOR_OUT);
  if (from) PetscCall(Permute_BISAI(bisai, columns, from, PETSC_FALSE, x, in));
  PetscCall(ApplyTriangle(bisai, columns, &N[first], &R[first], unit(first), PETSC_FALSE, from ? in : x, middle));
  PetscCall(ApplyTriangle(bisai, columns, &N[second], &R[second], unit(second), PETSC_TRUE, middle, to ? out : y));
  if (to) PetscCall(Permute_BISAI(bisai, columns, to, PETSC_TRUE, out, y));
  *flops = 0;
  for (int t = 0; t < 2; t++)
    *flops += 2.0 * bs2 * ((1 + bisai->params.sweeps) * (PetscLogDouble)N[t].nnz + bisai->params.sweeps * (PetscLogDouble)R[t].nnz);
  *flops *= columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}
