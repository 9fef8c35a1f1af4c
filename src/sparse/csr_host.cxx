/* This file is the host twin of cuda/sparse/csr.cu. It also has the functions that serve both kinds of memory. */
#include <algorithm>
#include <utility>
#include <vector>

#include "csr.h"
#include "entry.h"

PetscErrorCode CSRCreate(LocalInt rows, LocalInt columns, LocalInt nnz, FinePCPrecision precision, PetscMemType where, CSR *W)
{
  const size_t alignment = 256, i_bytes = (rows + 1) * sizeof(LocalInt), j_bytes = nnz * sizeof(LocalInt);
  const size_t j_at = (i_bytes + alignment - 1) / alignment * alignment,
               a_at = j_at + (j_bytes + alignment - 1) / alignment * alignment;

  PetscFunctionBegin;
  W->rows      = rows;
  W->columns   = columns;
  W->nnz       = nnz;
  W->precision = precision;
  W->where     = where;
  PetscCall(ArrayCreate(a_at + nnz * FinePCPrecisionBytes(precision), where, (void **)&W->i));
  W->j = (LocalInt *)((char *)W->i + j_at);
  W->a = (char *)W->i + a_at;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRDestroy(CSR *W)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(W->where, (void **)&W->i));
  *W = CSR{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

size_t CSRBytes(const CSR *W)
{
  return (W->rows + 1) * sizeof(LocalInt) + W->nnz * (sizeof(LocalInt) + FinePCPrecisionBytes(W->precision));
}

PetscErrorCode CSRDuplicate(const CSR *W, PetscMemType where, CSR *copy)
{
  PetscFunctionBegin;
  PetscCall(CSRCreate(W->rows, W->columns, W->nnz, W->precision, where, copy));
  PetscCall(ArrayCopy(copy->i, W->i, (W->rows + 1) * sizeof(LocalInt), where, W->where));
  PetscCall(ArrayCopy(copy->j, W->j, W->nnz * sizeof(LocalInt), where, W->where));
  PetscCall(ArrayCopy(copy->a, W->a, W->nnz * FinePCPrecisionBytes(W->precision), where, W->where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRDiagonal_Host(const CSRView *A, PetscScalar *d)
{
  PetscFunctionBegin;
  for (LocalInt row = 0; row < A->n; row++) {
    d[row] = 0;
    for (LocalInt k = A->i[row]; k < A->i[row + 1]; k++)
      if (A->j[k] == row) d[row] += A->a[k];
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A matrix that grows row by row on the host. */
struct GrowingRows {
  std::vector<LocalInt>    i = std::vector<LocalInt>(1, 0), j;
  std::vector<PetscScalar> a;

  void Add(LocalInt column, PetscScalar value)
  {
    j.push_back(column);
    a.push_back(value);
  }
};

/* The rows become a CSR in memory of the given kind. */
static PetscErrorCode CreateFromRows(const GrowingRows &rows, LocalInt columns, PetscMemType where, CSR *W)
{
  const LocalInt n = (LocalInt)rows.i.size() - 1;

  PetscFunctionBegin;
  PetscCall(CSRCreate(n, columns, rows.i.back(), FINEPC_DOUBLE, where, W));
  PetscCall(ArrayCopy(W->i, rows.i.data(), rows.i.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  PetscCall(ArrayCopy(W->j, rows.j.data(), rows.j.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  PetscCall(ArrayCopy(W->a, rows.a.data(), rows.a.size() * sizeof(PetscScalar), where, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of A on the host: its own arrays, or a copy. */
struct RowsOnHost {
  std::vector<LocalInt>    i, j;
  std::vector<PetscScalar> a;
  CSRView                  A;
};

static PetscErrorCode CopyToHost(const CSRView *A, RowsOnHost *host)
{
  PetscFunctionBegin;
  host->A = *A;
  if (!PetscMemTypeDevice(A->where)) PetscFunctionReturn(PETSC_SUCCESS);
  host->i.resize((size_t)A->n + 1);
  host->j.resize(A->nnz);
  host->a.resize(A->nnz);
  if (A->n) PetscCall(ArrayCopy(host->i.data(), A->i, host->i.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, A->where));
  PetscCall(ArrayCopy(host->j.data(), A->j, host->j.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, A->where));
  PetscCall(ArrayCopy(host->a.data(), A->a, host->a.size() * sizeof(PetscScalar), PETSC_MEMTYPE_HOST, A->where));
  host->A = CSRView{A->n, A->nnz, host->i.data(), host->j.data(), host->a.data(), PETSC_MEMTYPE_HOST};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRCountUnsorted_Host(const CSRView *A, LocalInt *count)
{
  PetscFunctionBegin;
  *count = 0;
  for (LocalInt row = 0; row < A->n; row++)
    for (LocalInt k = A->i[row] + 1; k < A->i[row + 1]; k++) *count += A->j[k] <= A->j[k - 1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRSort(const CSRView *A, CSR *copy)
{
  RowsOnHost                                    host;
  GrowingRows                                   rows;
  std::vector<std::pair<LocalInt, PetscScalar>> entries;

  PetscFunctionBegin;
  PetscCall(CopyToHost(A, &host));
  for (LocalInt row = 0; row < A->n; row++) {
    entries.clear();
    for (LocalInt k = host.A.i[row]; k < host.A.i[row + 1]; k++) entries.emplace_back(host.A.j[k], host.A.a[k]);
    std::stable_sort(entries.begin(), entries.end(), [](const auto &p, const auto &q) { return p.first < q.first; });
    const size_t first = rows.j.size();
    for (const auto &entry : entries) {
      if (rows.j.size() > first && rows.j.back() == entry.first) rows.a.back() += entry.second;
      else rows.Add(entry.first, entry.second);
    }
    rows.i.push_back((LocalInt)rows.j.size());
  }
  PetscCall(CreateFromRows(rows, A->n, A->where, copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRIsolate(const CSRView *A, LocalInt count, const LocalInt *isolated, PetscScalar value, CSR *copy)
{
  RowsOnHost      host;
  GrowingRows     rows;
  const LocalInt *next = isolated, *const end = isolated + count;

  PetscFunctionBegin;
  PetscCall(CopyToHost(A, &host));
  for (LocalInt row = 0; row < A->n; row++) {
    const bool alone = next < end && *next == row;
    bool       there = false;
    if (alone) next++;
    for (LocalInt k = host.A.i[row]; k < host.A.i[row + 1]; k++) {
      const LocalInt j = host.A.j[k];
      if (alone && !there && j >= row) {
        rows.Add(row, value);
        there = true;
      }
      if (!alone || j != row) rows.Add(j, host.A.a[k]);
    }
    if (alone && !there) rows.Add(row, value);
    PetscCheck(rows.j.size() <= (size_t)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
               "A rank's rows have more entries than 32 bits can count");
    rows.i.push_back((LocalInt)rows.j.size());
  }
  PetscCall(CreateFromRows(rows, A->n, A->where, copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of W on the host, if there are any, and -1 on the diagonal of those that are masked, in whose columns nothing is left.
 */
static PetscErrorCode MaskRows(const CSR *W, LocalInt n, LocalInt count, const LocalInt *masked, GrowingRows *rows)
{
  PetscFunctionBegin;
  for (LocalInt row = 0; row < n; row++) {
    if (std::binary_search(masked, masked + count, row)) rows->Add(row, -1);
    else if (W->i)
      for (LocalInt k = W->i[row]; k < W->i[row + 1]; k++)
        if (!std::binary_search(masked, masked + count, W->j[k])) rows->Add(W->j[k], ((const PetscScalar *)W->a)[k]);
    rows->i.push_back((LocalInt)rows->j.size());
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CSRMask(const CSR *W, LocalInt n, LocalInt count, const LocalInt *masked, PetscMemType where, CSR *with)
{
  CSR         host{};
  GrowingRows rows;

  PetscFunctionBegin;
  if (W->i) PetscCall(CSRDuplicate(W, PETSC_MEMTYPE_HOST, &host));
  const PetscErrorCode code = CallGuarded(MaskRows, (const CSR *)&host, n, count, masked, &rows);
  PetscCall(CSRDestroy(&host));
  PetscCall(code);
  PetscCall(CreateFromRows(rows, n, where, with));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ValuesNegate_Host(size_t n, const PetscScalar *from, PetscScalar *to)
{
  PetscFunctionBegin;
  for (size_t k = 0; k < n; k++) to[k] = -from[k];
  PetscFunctionReturn(PETSC_SUCCESS);
}

static uint64_t Mix_CSR(uint64_t place, LocalInt number)
{
  uint64_t h = (place << 32 | (uint32_t)number) * 0x9e3779b97f4a7c15u;
  h          = (h ^ h >> 32) * 0xbf58476d1ce4e5b9u;
  return h ^ h >> 29;
}

PetscErrorCode CSRHash_Host(const CSRView *A, uint64_t *, uint64_t *hash)
{
  uint64_t sum = Mix_CSR(UINT32_MAX, A->n);

  PetscFunctionBegin;
  for (LocalInt row = 0; row < A->n && A->nnz; row++) sum += Mix_CSR((uint64_t)A->nnz + row, A->i[row]);
  for (LocalInt k = 0; k < A->nnz; k++) sum += Mix_CSR(k, A->j[k]);
  *hash = sum;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The rows of G are read in order, so the rows of Gt come out sorted. The row starts of Gt serve as cursors: afterwards each stands
   where the next row starts, and is moved back to its own row.
*/
template <typename S>
static void Transpose_CSR(const CSR &G, CSR &Gt)
{
  const S *G_a  = (const S *)G.a;
  S       *Gt_a = (S *)Gt.a;

  for (LocalInt row = 0; row < G.rows; row++) {
    for (LocalInt k = G.i[row]; k < G.i[row + 1]; k++) {
      const LocalInt to = Gt.i[G.j[k]]++;
      Gt.j[to]          = row;
      Gt_a[to]          = G_a[k];
    }
  }
  for (LocalInt row = Gt.rows; row > 0; row--) Gt.i[row] = Gt.i[row - 1];
  Gt.i[0] = 0;
}

PetscErrorCode CSRTranspose_Host(const CSR *G, PetscBool keep, CSR *Gt)
{
  PetscFunctionBegin;
  if (!keep) {
    PetscCall(CSRCreate(G->columns, G->rows, G->nnz, G->precision, PETSC_MEMTYPE_HOST, Gt));
    PetscCall(PetscArrayzero(Gt->i, Gt->rows + 1));
    for (LocalInt k = 0; k < G->nnz; k++) Gt->i[G->j[k] + 1]++;
    for (LocalInt row = 0; row < Gt->rows; row++) Gt->i[row + 1] += Gt->i[row];
  }
  if (G->precision == FINEPC_SINGLE) Transpose_CSR<float>(*G, *Gt);
  else Transpose_CSR<double>(*G, *Gt);
  PetscFunctionReturn(PETSC_SUCCESS);
}

constexpr int kColumnsAtOnce = 4; /* right-hand sides that share one reading of the matrix */

template <typename S, int Columns>
static void MultiplyColumns(const CSR &W, bool unit, const PetscScalar *d, const PetscScalar *X, LocalInt ldx, PetscScalar *Y,
                            LocalInt ldy)
{
  const S *a = (const S *)W.a;
  for (LocalInt row = 0; row < W.rows; row++) {
    PetscScalar sum[Columns] = {};
    for (LocalInt k = W.i[row]; k < W.i[row + 1]; k++)
      for (int c = 0; c < Columns; c++) sum[c] += (PetscScalar)a[k] * X[W.j[k] + (size_t)c * ldx];
    for (int c = 0; c < Columns; c++) {
      if (unit) sum[c] += X[row + (size_t)c * ldx];
      Y[row + (size_t)c * ldy] = d ? d[row] * sum[c] : sum[c];
    }
  }
}

template <typename S>
static void Multiply_CSR(const CSR &W, bool unit, const PetscScalar *d, LocalInt columns, const PetscScalar *X, LocalInt ldx,
                         PetscScalar *Y, LocalInt ldy)
{
  LocalInt c = 0;
  for (; c + kColumnsAtOnce <= columns; c += kColumnsAtOnce)
    MultiplyColumns<S, kColumnsAtOnce>(W, unit, d, X + (size_t)c * ldx, ldx, Y + (size_t)c * ldy, ldy);
  for (; c < columns; c++) MultiplyColumns<S, 1>(W, unit, d, X + (size_t)c * ldx, ldx, Y + (size_t)c * ldy, ldy);
}

PetscErrorCode CSRMultiply_Host(const CSR *W, PetscBool unit, const PetscScalar *d, LocalInt columns, const PetscScalar *X,
                                LocalInt ldx, PetscScalar *Y, LocalInt ldy)
{
  PetscFunctionBegin;
  if (W->precision == FINEPC_SINGLE) Multiply_CSR<float>(*W, unit, d, columns, X, ldx, Y, ldy);
  else Multiply_CSR<double>(*W, unit, d, columns, X, ldx, Y, ldy);
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename S>
static void MultiplyAdd(const CSR &W, LocalInt count, const LocalInt *rows, const PetscScalar *d, LocalInt columns,
                        const PetscScalar *X, PetscScalar *Y, LocalInt ldy)
{
  const S *a = (const S *)W.a;
  for (LocalInt r = 0; r < count; r++) {
    const LocalInt row = rows ? rows[r] : r;
    for (LocalInt c = 0; c < columns && W.i[row] < W.i[row + 1]; c++) {
      PetscScalar sum = 0;
      for (LocalInt k = W.i[row]; k < W.i[row + 1]; k++) sum += (PetscScalar)a[k] * X[(size_t)W.j[k] * columns + c];
      Y[row + (size_t)c * ldy] += d ? d[row] * sum : sum;
    }
  }
}

PetscErrorCode CSRMultiplyAdd_Host(const CSR *W, LocalInt count, const LocalInt *rows, const PetscScalar *d, LocalInt columns,
                                   const PetscScalar *X, PetscScalar *Y, LocalInt ldy)
{
  PetscFunctionBegin;
  if (W->precision == FINEPC_SINGLE) MultiplyAdd<float>(*W, count, rows, d, columns, X, Y, ldy);
  else MultiplyAdd<double>(*W, count, rows, d, columns, X, Y, ldy);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RowsInterleave_Host(LocalInt count, const LocalInt *rows, LocalInt columns, const PetscScalar *X, LocalInt ldx,
                                   PetscScalar *to)
{
  PetscFunctionBegin;
  for (LocalInt r = 0; r < count; r++)
    for (LocalInt c = 0; c < columns; c++) to[(size_t)r * columns + c] = X[rows[r] + (size_t)c * ldx];
  PetscFunctionReturn(PETSC_SUCCESS);
}
