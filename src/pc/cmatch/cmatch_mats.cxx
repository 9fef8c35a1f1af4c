/* The levels of PCCMATCH as PETSc matrices, on the host and in double precision, without the scaling of the hierarchy. */
#include <petsc/private/pcimpl.h>

#include <algorithm>

#include "ranks/agree.h"
#include "cmatch_face.h"
#include "entry.h"

/* Copies values of the hierarchy to the host, in double precision. */
static PetscErrorCode FetchValues(const CMATCHHierarchy *H, const void *from, size_t count, std::vector<PetscScalar> *values)
{
  const size_t bytes = count * FinePCPrecisionBytes(H->params.precision);

  PetscFunctionBegin;
  values->resize(count);
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  if (H->params.precision == FINEPC_DOUBLE) {
    PetscCall(ArrayCopy(values->data(), from, bytes, PETSC_MEMTYPE_HOST, H->where));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  std::vector<float> single(count);
  PetscCall(ArrayCopy(single.data(), from, bytes, PETSC_MEMTYPE_HOST, H->where));
  values->assign(single.begin(), single.end());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same of integers. */
static PetscErrorCode FetchIntegers(const CMATCHHierarchy *H, const LocalInt *from, size_t count, std::vector<LocalInt> *integers)
{
  PetscFunctionBegin;
  integers->resize(count);
  if (count) PetscCall(ArrayCopy(integers->data(), from, count * sizeof(*from), PETSC_MEMTYPE_HOST, H->where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rows of this rank, as MatSetPreallocationCSR functions take them: columns are numbers in the matrix, and ascending. */
struct Rows {
  std::vector<PetscInt>                         i, j; /* i has its 0 from Begin() on */
  std::vector<PetscScalar>                      a;
  std::vector<std::pair<PetscInt, PetscScalar>> row;

  void Begin(LocalInt n)
  {
    i.reserve((size_t)n + 1);
    i.push_back(0);
  }
  void Add(PetscInt column, PetscScalar value) { row.emplace_back(column, value); }
  void EndRow()
  {
    std::sort(row.begin(), row.end(), [](const auto &x, const auto &y) { return x.first < y.first; });
    for (const auto &[column, value] : row) {
      j.push_back(column);
      a.push_back(value);
    }
    row.clear();
    i.push_back((PetscInt)j.size());
  }
};

/* Makes a MATAIJ of these rows, on one rank or on all ranks, of which this one has so many columns, or below 0 as many as rows. */
static PetscErrorCode CreateMat(MPI_Comm comm, PetscInt columns, const Rows &rows, Mat *mat)
{
  const PetscInt n = (PetscInt)rows.i.size() - 1;

  PetscFunctionBegin;
  PetscCall(MatCreate(comm, mat));
  PetscCall(MatSetSizes(*mat, n, columns < 0 ? n : columns, PETSC_DETERMINE, PETSC_DETERMINE));
  PetscCall(MatSetType(*mat, MATAIJ));
  PetscCall(MatSeqAIJSetPreallocationCSR(*mat, rows.i.data(), rows.j.data(), rows.a.data()));
  PetscCall(MatMPIAIJSetPreallocationCSR(*mat, rows.i.data(), rows.j.data(), rows.a.data()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Of nodes of different sizes, the row of the matrix that each unknown of the finest level has, or below 0; otherwise nothing. */
static PetscErrorCode FetchRows(const CMATCHHierarchy *H, LocalInt l, std::vector<LocalInt> *row)
{
  PetscFunctionBegin;
  if (!l && H->row) PetscCall(FetchIntegers(H, H->row, H->level[0].n, row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The operator of a level of nodes, and its prolongator from the next one, by single entries. */
static PetscErrorCode FillNodesOperator(const CMATCHHierarchy *H, LocalInt l, Rows *rows)
{
  const CMATCHNodesLevel  &level = H->nodes->level[l];
  const CMATCHLevel       &ranks = H->level[l];
  const LocalInt           n = level.n, k = level.k;
  std::vector<LocalInt>    begin, column, start((size_t)CMATCHSliceCount(n) + 1), row;
  std::vector<PetscScalar> value;

  PetscFunctionBegin;
  PetscCall(FetchRows(H, l, &row));
  PetscCall(FetchIntegers(H, level.A_i, (size_t)n + 1, &begin));
  PetscCall(FetchIntegers(H, level.A_j, level.blocks, &column));
  if (level.slice) PetscCall(FetchIntegers(H, level.slice, start.size(), &start));
  PetscCall(FetchValues(H, level.A_a, (level.slice ? (size_t)level.steps * kCMATCHSlice : (size_t)level.blocks) * k * k, &value));
  rows->Begin(n * k);
  for (LocalInt i = 0; i < n; i++)
    for (LocalInt r = 0; r < k; r++) {
      if (!row.empty() && row[i * k + r] < 0) continue;
      for (LocalInt e = 0; e < begin[i + 1] - begin[i]; e++) {
        const LocalInt j    = column[begin[i] + e];
        const PetscInt node = j < n ? ranks.first + j : ranks.ghost[j - n];
        for (LocalInt c = 0; c < k; c++) {
          const PetscInt to = row.empty() ? node * k + c : row[node * k + c];
          if (to < 0) continue;
          rows->Add(to, value[CMATCHNodesPlace(level, i, begin[i], start[i / kCMATCHSlice], e, r, c)] / H->scale);
        }
      }
      rows->EndRow();
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FillNodesProlongator(const CMATCHHierarchy *H, LocalInt l, Rows *rows)
{
  const CMATCHNodesLevel  &level = H->nodes->level[l];
  const CMATCHLevel       &ranks = H->level[l];
  const LocalInt           n = level.n, k = level.k, m = H->nodes->level[l + 1].k;
  const size_t             slots = (size_t)n * kCMATCHSlots;
  std::vector<LocalInt>    column, row;
  std::vector<PetscScalar> value;

  PetscFunctionBegin;
  PetscCall(FetchRows(H, l, &row));
  PetscCall(FetchIntegers(H, level.P_j, slots, &column));
  PetscCall(FetchValues(H, level.P_a, slots * k * m, &value));
  rows->Begin(n * k);
  for (LocalInt i = 0; i < n; i++)
    for (LocalInt r = 0; r < k; r++) {
      if (!row.empty() && row[i * k + r] < 0) continue;
      for (size_t e = (size_t)i * kCMATCHSlots; e < (size_t)(i + 1) * kCMATCHSlots && column[e] >= 0; e++) {
        const PetscInt to = column[e] < level.coarse ? ranks.first_coarse + column[e] : ranks.column[column[e] - level.coarse];
        for (LocalInt c = 0; c < m; c++) rows->Add(to * m + c, value[(e * k + r) * m + c]);
      }
      rows->EndRow();
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The operator of a level: its entries beside the diagonal with the diagonal between them. The hierarchy has scale W A W on the
   finest level, of which w undoes W = diag(w); w is null for ones and on the other levels.
*/
static PetscErrorCode FillOperator(const CMATCHHierarchy *H, const CMATCHLevel *level, const PetscScalar w[], Rows *rows)
{
  const LocalInt           n = level->n;
  std::vector<LocalInt>    begin, column;
  std::vector<PetscScalar> value, diagonal;

  PetscFunctionBegin;
  if (H->nodes && n) {
    PetscCall(FillNodesOperator(H, (LocalInt)(level - H->level), rows));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(FetchIntegers(H, level->A_i, n ? (size_t)n + 1 : 0, &begin));
  PetscCall(FetchIntegers(H, level->A_j, level->nnz, &column));
  PetscCall(FetchValues(H, level->A_a, level->nnz, &value));
  PetscCall(FetchValues(H, level->d, n, &diagonal));
  rows->Begin(n);
  for (LocalInt row = 0; row < n; row++) {
    const PetscScalar w_row = w ? w[row] : 1;

    rows->Add(level->first + row, diagonal[row] / (H->scale * w_row * w_row));
    for (LocalInt k = begin[row]; k < begin[row + 1]; k++)
      rows->Add(column[k] < n ? level->first + column[k] : level->ghost[column[k] - n],
                value[k] / (H->scale * w_row * (w ? w[column[k]] : 1)));
    rows->EndRow();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHCountForeignRows(const CMATCHHierarchy *H, LocalInt l, PetscInt64 *count)
{
  std::vector<LocalInt>    begin, column;
  std::vector<PetscScalar> value, d;

  PetscFunctionBegin;
  *count = 0;
  if (l >= H->levels || !H->level[l].n) PetscFunctionReturn(PETSC_SUCCESS);
  const CMATCHLevel &level = H->level[l];
  const LocalInt     n     = level.n;
  PetscCall(FetchIntegers(H, level.A_i, (size_t)n + 1, &begin));
  PetscCall(FetchIntegers(H, level.A_j, level.nnz, &column));
  PetscCall(FetchValues(H, level.A_a, level.nnz, &value));
  PetscCall(FetchValues(H, level.d, n, &d));
  for (LocalInt row = 0; row < n; row++) {
    PetscReal own = 0, foreign = 0; /* the largest weights c_ij, which are positive for negative entries */
    for (LocalInt k = begin[row]; k < begin[row + 1]; k++) {
      const bool      here   = column[k] < n;
      const PetscReal weight = PetscRealPart(-2 * value[k] / (d[row] + d[here ? column[k] : row]));
      if (here) own = PetscMax(own, weight);
      else foreign = PetscMax(foreign, weight);
    }
    *count += foreign > 0 && foreign >= own;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The prolongator to a level from the next one; W P on the finest level. */
static PetscErrorCode FillProlongator(const CMATCHHierarchy *H, const CMATCHLevel *level, const PetscScalar w[], Rows *rows)
{
  const LocalInt           n = level->n, width = level->width, coarse = level->coarse;
  std::vector<LocalInt>    column;
  std::vector<PetscScalar> value;

  PetscFunctionBegin;
  if (H->nodes && n) {
    PetscCall(FillNodesProlongator(H, (LocalInt)(level - H->level), rows));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(FetchIntegers(H, level->P_j, (size_t)n * width, &column));
  PetscCall(FetchValues(H, level->P_a, (size_t)n * width, &value));
  rows->Begin(n);
  for (LocalInt row = 0; row < n; row++) {
    for (LocalInt k = row * width; k < (row + 1) * width && column[k] >= 0; k++)
      rows->Add(column[k] < coarse ? level->first_coarse + column[k] : level->column[column[k] - coarse],
                value[k] * (w ? w[row] : 1));
    rows->EndRow();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

namespace
{

/* What is made of a hierarchy, for the caller once all of it is there. */
struct Levels {
  MPI_Comm                 comm;
  const CMATCHHierarchy   *H;
  LocalInt                 all;            /* levels */
  std::vector<PetscScalar> w    = {};      /* empty for ones */
  Mat                     *A    = nullptr; /* [all] */
  Mat                     *P    = nullptr; /* [all - 1] */
  CMATCHLevel              none = {};      /* of levels in which this rank has no part */

  const CMATCHLevel *At(LocalInt l) const { return l < H->levels ? &H->level[l] : &none; }
};

} // namespace

/* What a rank does alone before the matrices are made together. */
static PetscErrorCode Prepare_CMATCH(bool operators, bool prolongators, Levels *levels)
{
  const CMATCHHierarchy *H = levels->H;

  PetscFunctionBegin;
  if (H->w) {
    levels->w.resize((size_t)H->level[0].n + H->level[0].ghosts);
    PetscCall(ArrayCopy(levels->w.data(), H->w, levels->w.size() * sizeof(PetscScalar), PETSC_MEMTYPE_HOST, H->where));
  }
  if (operators) PetscCall(PetscCalloc1(levels->all, &levels->A));
  if (prolongators) PetscCall(PetscCalloc1(PetscMax(levels->all - 1, 0), &levels->P));
  PetscFunctionReturn(PETSC_SUCCESS);
}

using Fill = PetscErrorCode (*)(const CMATCHHierarchy *, const CMATCHLevel *, const PetscScalar *, Rows *);

/* Makes a matrix of level l, of which this rank has so many columns. Memory for its rows may end on one rank alone. */
static PetscErrorCode MakeLevel(const Levels &levels, LocalInt l, Fill fill, PetscInt columns, Mat *mat)
{
  const PetscScalar *const w = l || levels.w.empty() ? nullptr : levels.w.data();
  Rows                     rows;

  PetscFunctionBegin;
  PetscCall(AgreeOnError(levels.comm, CallGuarded(fill, levels.H, levels.At(l), w, &rows), "copy a level to the host"));
  PetscCall(CreateMat(levels.comm, columns, rows, mat));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeLevels_CMATCH(bool operators, bool prolongators, Levels *levels)
{
  PetscFunctionBegin;
  PetscCall(
    AgreeOnError(levels->comm, CallGuarded(Prepare_CMATCH, operators, prolongators, levels), "copy its hierarchy to the host"));
  for (LocalInt l = 0; l < levels->all && operators; l++) PetscCall(MakeLevel(*levels, l, FillOperator, -1, &levels->A[l]));
  for (LocalInt l = 0; l + 1 < levels->all && prolongators; l++)
    PetscCall(MakeLevel(*levels, l, FillProlongator, levels->At(l + 1)->n, &levels->P[l]));
  if (!levels->H->nodes) PetscFunctionReturn(PETSC_SUCCESS);
  PetscInt unknowns[kCMATCHMostLevels] = {}; /* of a node of each level, which a rank without the level does not know */
  for (LocalInt l = 0; l < levels->all && l < levels->H->levels; l++)
    unknowns[l] = !l && levels->H->row ? 1 : levels->H->nodes->level[l].k;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, unknowns, levels->all, MPIU_INT, MPI_MAX, levels->comm));
  for (LocalInt l = 0; l < levels->all; l++) {
    if (operators) PetscCall(MatSetBlockSize(levels->A[l], unknowns[l]));
    if (prolongators && l + 1 < levels->all) PetscCall(MatSetBlockSizes(levels->P[l], unknowns[l], unknowns[l + 1]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode DestroyMats(LocalInt count, Mat *mats)
{
  PetscFunctionBegin;
  for (LocalInt l = 0; l < count && mats; l++) PetscCall(MatDestroy(&mats[l]));
  PetscCall(PetscFree(mats));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHGetHierarchy_CMATCH(PC pc, PetscInt *levels, Mat *A[], Mat *P[])
{
  const PC_CMATCH       *cmatch = (const PC_CMATCH *)pc->data;
  const CMATCHHierarchy *H      = cmatch->hierarchy;
  const MPI_Comm         comm   = cmatch->ranks ? PetscObjectComm((PetscObject)pc) : PETSC_COMM_SELF;

  PetscFunctionBegin;
  PetscCall(PCLocalCheckFactorHere(pc));
  PetscCheck(pc->setupcalled && !pc->failedreason && cmatch->complete, PetscObjectComm((PetscObject)pc), PETSC_ERR_ORDER,
             "The hierarchy exists after a PCSetUp() that did not fail");
  Levels               made{comm, H, cmatch->ranks ? cmatch->all_levels : H->levels};
  const PetscErrorCode code = MakeLevels_CMATCH(A != nullptr, P != nullptr, &made);
  if (code) {
    PetscCall(DestroyMats(made.all, made.A));
    PetscCall(DestroyMats(made.all - 1, made.P));
  }
  PetscCall(code);
  if (levels) *levels = made.all;
  if (A) *A = made.A;
  if (P) *P = made.P;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@C
  PCCMATCHGetHierarchy - Gets the operators of all levels of `PCCMATCH` and the prolongators between them

  Collective

  Input Parameter:
. pc - the preconditioner context, which is set up

  Output Parameters:
+ levels - the number of levels; or `NULL` if it is not wanted
. A      - an array of `levels` operators, of which A[0] is the matrix; or `NULL` if they are not wanted
- P      - an array of `levels` - 1 prolongators, of which P[l] leads from level l + 1 to level l; or `NULL` if they are not wanted

  Level: advanced

  Notes:
  A[l + 1] = P[l]^T A[l] P[l] up to the rounding of `PCCMATCHSetPrecision()`. With a near null vector w, the columns of P[0] combine
  parts of w, and those of the other prolongators combine parts of the constants. Rows that are left to the smoother are empty rows
  of P. In a hierarchy of nodes, see `PCCMATCHSetBlockSize()`, the matrices have block sizes, A[0] and the rows of P[0] only if all
  nodes have the same number of unknowns, and the columns of P combine parts of the modes.

  The matrices are copies of type `MATSEQAIJ` on `PETSC_COMM_SELF`, on the host and in double precision, wherever the hierarchy is
  stored. The caller destroys each of them with `MatDestroy()`, and frees both arrays with `PetscFree()`.

  On several ranks with one common hierarchy, see `PCCMATCHSetReach()`, the matrices are of type `MATMPIAIJ` on the communicator of
  the preconditioner, and ranks that have no part in a level own none of its rows. Otherwise each rank gets the hierarchy of its own
  diagonal block.

.seealso: `PCCMATCH`, `PCCMATCHSetPrecision()`, `PCGetCoarseOperators()`, `PCGetInterpolations()`
@*/
PetscErrorCode PCCMATCHGetHierarchy(PC pc, PetscInt *levels, Mat *A[], Mat *P[])
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscUseMethod(pc, "PCCMATCHGetHierarchy_C", (PC, PetscInt *, Mat *[], Mat *[]), (pc, levels, A, P));
  PetscFunctionReturn(PETSC_SUCCESS);
}
