/* Rows of several ranks that one of them uses. */
#include <petsc/private/matimpl.h>
#include <petsc/private/vecimpl.h>

#include <algorithm>

#include "ranks/agree.h"
#include "entry.h"
#include "bsr_mat.h"
#include "consolidated.h"
#include "csr_mat.h"
#include "finepcimpl.h"
#include "offload.h"

/* ------------------------------------------- life cycle --------------------------------------- */

/* Copies between the GPU and the memory that ranks share go straight. */
static PetscErrorCode Pin_MatGroup(const MatGroup &g, const SharedMemory &memory, size_t bytes, PetscBool *pinned)
{
  PetscFunctionBegin;
  if (g.offloaded && g.group.Leads() && !*pinned) PetscCall(MemoryPin_CUDA(memory.data, bytes, pinned));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Unpin_MatGroup(const SharedMemory &memory, PetscBool *pinned)
{
  PetscFunctionBegin;
  if (*pinned) PetscCall(MemoryUnpin_CUDA(memory.data));
  *pinned = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode DestroyRows(MatGroup *g)
{
  PetscFunctionBegin;
  PetscCall(VecDestroy(&g->rows_b));
  PetscCall(VecDestroy(&g->rows_x));
  PetscCall(MatDestroy(&g->rows));
  PetscCall(Unpin_MatGroup(g->entries, &g->pinned_entries));
  PetscCall(SharedMemoryDestroy(&g->entries));
  g->pattern = MatPattern{};
  g->state   = -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGroupRelease(MatGroup **group)
{
  MatGroup *g = *group;

  PetscFunctionBegin;
  *group = nullptr;
  if (!g || --g->users > 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DestroyRows(g));
  PetscCall(MatDestroy(&g->own));
  PetscCall(MatFreePatternWork(&g->pattern));
  PetscCall(Unpin_MatGroup(g->vectors, &g->pinned_vectors));
  PetscCall(SharedMemoryDestroy(&g->vectors));
  PetscCall(RankGroupDestroy(&g->group));
  delete g;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows before those of this rank in its group, and all of them. */
static PetscErrorCode CountInGroup(const RankGroup *group, PetscInt own, PetscInt *before, PetscInt *all)
{
  PetscInt64 count = own, sum;

  PetscFunctionBegin;
  PetscCallMPI(MPIU_Allreduce(&count, &sum, 1, MPIU_INT64, MPI_SUM, group->comm));
  PetscCheck(sum <= PETSC_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
             "The ranks that come together have %" PetscInt64_FMT " entries, more than indices can count", sum);
  *all    = (PetscInt)sum;
  *before = 0;
  PetscCallMPI(MPI_Exscan(&own, before, 1, MPIU_INT, MPI_SUM, group->comm));
  if (!group->rank) *before = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGroupCreate(Mat A, const char gpu[], MatGroup **group, char why[])
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)A);
  MatGroup      *g    = new (std::nothrow) MatGroup;

  PetscFunctionBegin;
  *group                    = nullptr;
  const PetscErrorCode code = AgreeOnError(comm, g ? PETSC_SUCCESS : PETSC_ERR_MEM, "keep what ranks have together");
  if (code) delete g;
  PetscCall(code);
  g->users                  = 1;
  const PetscErrorCode made = RankGroupCreate(comm, gpu, &g->group, why);
  if (made || why[0]) {
    PetscCall(MatGroupRelease(&g));
    PetscCall(made);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(MatGetLocalSize(A, &g->n, nullptr));
  PetscCall(CountInGroup(&g->group, g->n, &g->first, &g->all));
  PetscCall(SharedMemoryCreate(&g->group, 2 * g->all * sizeof(PetscScalar) + sizeof(GroupMessage), &g->vectors));
  g->b       = (PetscScalar *)g->vectors.data;
  g->x       = g->b + g->all;
  g->message = (GroupMessage *)(g->x + g->all);
  *group     = g;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------------------- rows ------------------------------------------- */

/* The rows of this rank: its own columns, and those of other ranks. */
struct Parts {
  CSRMat          own, other;
  const PetscInt *columns; /* the numbers of the latter */
  PetscInt        first;   /* that of the first one of the former */
};

static PetscErrorCode GetParts_Consolidated(Mat A, Parts *parts)
{
  Mat own, other;

  PetscFunctionBegin;
  *parts = Parts{};
  PetscCall(MatGetOwnershipRangeColumn(A, &parts->first, nullptr));
  PetscCall(MatGetRankParts(A, &own, &other, &parts->columns));
  PetscCall(MatGetPartOnHost(own, &parts->own));
  PetscCall(MatGetPartOnHost(other, &parts->other));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RestoreParts(Parts *parts)
{
  PetscFunctionBegin;
  PetscCall(MatRestoreCSR(&parts->own));
  PetscCall(MatRestoreCSR(&parts->other));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Calls put(column, value) for the entries of a row: those of ranks before, its own, and those of ranks behind. */
template <typename Put>
static void ForEntries_MatGroup(const Parts &parts, LocalInt row, Put put)
{
  const CSRView &own = parts.own.A, &other = parts.other.A;

  for (const bool before : {true, false}) {
    for (LocalInt k = other.i[row]; k < other.i[row + 1]; k++) {
      const PetscInt column = parts.columns[other.j[k]];
      if ((column < parts.first) == before) put(column, other.a[k]);
    }
    if (!before) continue;
    for (LocalInt k = own.i[row]; k < own.i[row + 1]; k++) put(parts.first + own.j[k], own.a[k]);
  }
}

/* Calls put(k, column, value) for the entries of a row: those of part k of the group, by the numbers that its columns have there.
 */
template <typename Put>
static void ForEntriesOfGroup(const MatGroup &g, const Parts &parts, LocalInt row, Put put)
{
  ForEntries_MatGroup(parts, row, [&](PetscInt column, PetscScalar value) {
    const PetscInt own = column - g.group_first;
    if (own >= 0 && own < g.all) put(0, own, value);
    else put(1, column, value);
  });
}

static void WriteRows(const Parts &parts, MatGroup *g)
{
  PetscInt at[2] = {g->part[0].first, g->part[1].first};

  for (LocalInt row = 0; row < (LocalInt)g->n; row++) {
    ForEntriesOfGroup(*g, parts, row, [&](int k, PetscInt column, PetscScalar value) {
      g->part[k].j[at[k]]   = column;
      g->part[k].a[at[k]++] = value;
    });
    for (int k = 0; k < 2; k++) g->part[k].i[g->first + row + 1] = at[k];
  }
  for (int k = 0; !g->group.rank && k < 2; k++) g->part[k].i[0] = 0;
}

/* Rows without entries in columns of other ranks follow one another in either memory. */
static void WriteValues(const Parts &parts, MatGroup *g)
{
  const CSRView &own = parts.own.A, &other = parts.other.A;
  PetscInt       at[2] = {g->part[0].first, g->part[1].first};

  for (LocalInt row = 0, end; row < (LocalInt)g->n; row = end) {
    for (end = row; end < (LocalInt)g->n && other.i[end + 1] == other.i[row]; end++) continue;
    std::copy(own.a + own.i[row], own.a + own.i[end], g->part[0].a + at[0]);
    at[0] += own.i[end] - own.i[row];
    if (end == (LocalInt)g->n) break;
    ForEntriesOfGroup(*g, parts, end++, [&](int k, PetscInt, PetscScalar value) { g->part[k].a[at[k]++] = value; });
  }
}

/* Counts the entries of the group; an error is one of all its ranks. */
static PetscErrorCode CountEntries(const Parts &parts, MatGroup *g)
{
  PetscFunctionBegin;
  g->group_first = parts.first - g->first;
  for (MatGroupPart &part : g->part) part.nnz = 0;
  for (LocalInt row = 0; row < (LocalInt)g->n; row++)
    ForEntriesOfGroup(*g, parts, row, [&](int k, PetscInt, PetscScalar) { g->part[k].nnz++; });
  for (MatGroupPart &part : g->part) PetscCall(CountInGroup(&g->group, part.nnz, &part.first, &part.all));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes room for the entries of the group. */
static PetscErrorCode MakeRoom_MatGroup(MatGroup *g)
{
  size_t bytes = 0;

  PetscFunctionBegin;
  for (MatGroupPart &part : g->part) {
    bytes += (size_t)part.all * (sizeof(PetscScalar) + sizeof(PetscInt)) + (g->all + 1) * sizeof(PetscInt);
  }
  PetscCall(SharedMemoryCreate(&g->group, bytes, &g->entries));
  PetscCall(Pin_MatGroup(*g, g->entries, bytes, &g->pinned_entries));
  char *at = g->entries.data;
  for (MatGroupPart &part : g->part) {
    part.a = (PetscScalar *)at;
    at += part.all * sizeof(PetscScalar);
  }
  for (MatGroupPart &part : g->part) {
    part.j = (PetscInt *)at;
    part.i = part.j + part.all;
    at += (part.all + g->all + 1) * sizeof(PetscInt);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscInt zero_id = -1; /* of what says that a vector is 0, as long as its state is the same */

/* KSPSolve() zeroes x, for which one rank takes longer than all ranks together. */
static PetscErrorCode SetUnlessZero(Vec v, PetscScalar alpha)
{
  PetscInt     zero = 0, n;
  PetscBool    known;
  PetscScalar *array;

  PetscFunctionBegin;
  PetscCall(PetscObjectComposedDataGetInt((PetscObject)v, zero_id, zero, known));
  if (known && zero && alpha == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecGetLocalSize(v, &n));
  PetscCall(VecGetArrayWrite(v, &array));
  std::fill(array, array + n, alpha);
  PetscCall(VecRestoreArrayWrite(v, &array));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGroupKnowZero(const MatGroup *g)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectComposedDataSetInt((PetscObject)g->rows_x, zero_id, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On leaders: the matrix of what is written, which stays in that memory, and the vectors. */
static PetscErrorCode MakeRows(Mat A, MatGroup *g)
{
  const MPI_Comm     comm = g->group.same;
  const MatGroupPart own = g->part[0], other = g->part[1];
  PetscInt           bs, rows;

  PetscFunctionBegin;
  PetscCall(MatGetBlockSize(A, &bs));
  PetscCall(MatGetSize(A, &rows, nullptr));
  if (g->group.groups == 1) PetscCall(MatCreateSeqAIJWithArrays(comm, g->all, g->all, own.i, own.j, own.a, &g->rows));
  else
    PetscCall(
      MatCreateMPIAIJWithSplitArrays(comm, g->all, g->all, rows, rows, own.i, own.j, own.a, other.i, other.j, other.a, &g->rows));
  PetscCall(MatSetBlockSize(g->rows, bs));
  PetscCall(MatPropagateSymmetryOptions(A, g->rows));
  for (Vec *v : {&g->rows_b, &g->rows_x}) {
    PetscScalar *const array = v == &g->rows_b ? g->b : g->x;

    if (g->group.groups == 1) PetscCall(VecCreateSeqWithArray(comm, bs, g->all, array, v));
    else PetscCall(VecCreateMPIWithArray(comm, bs, g->all, rows, array, v));
  }
  if (zero_id < 0) PetscCall(PetscObjectComposedDataRegister(&zero_id));
  g->rows_x->ops->set = Entry<SetUnlessZero>;
  PetscCall(MatSetOffloaded(g->rows, g->offloaded));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The values are there: this increases the states of the matrix. */
static PetscErrorCode SetValues_MatGroup(MatGroup *g)
{
  Mat          parts[2] = {g->rows, nullptr};
  PetscScalar *a;

  PetscFunctionBegin;
  if (g->group.groups > 1) PetscCall(MatMPIAIJGetSeqAIJ(g->rows, &parts[0], &parts[1], nullptr));
  for (Mat part : parts) {
    if (!part) continue;
    PetscCall(MatSeqAIJGetArray(part, &a));
    PetscCall(MatSeqAIJRestoreArray(part, &a));
  }
  if (g->group.groups > 1) PetscCall(PetscObjectStateIncrease((PetscObject)g->rows));
  PetscCall(MatSendValuesNext(g->rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ null spaces --------------------------------------- */

PetscErrorCode MatGroupPut(const MatGroup *g, Vec v, PetscScalar *to)
{
  const PetscScalar *array;

  PetscFunctionBegin;
  PetscCall(PetscLogEventBegin(FinePC_SendVec, v, 0, 0, 0));
  PetscCall(VecGetArrayRead(v, &array));
  PetscCall(PetscArraycpy(to + g->first, array, g->n));
  PetscCall(VecRestoreArrayRead(v, &array));
  PetscCall(PetscLogEventEnd(FinePC_SendVec, v, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGroupTake(const MatGroup *g, const PetscScalar *from, Vec v)
{
  PetscScalar *array;
  PetscInt     n;

  PetscFunctionBegin;
  PetscCall(VecGetLocalSize(v, &n));
  PetscCheck(n == g->n, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The matrix has %" PetscInt_FMT " rows on this rank, but the vector has %" PetscInt_FMT, g->n, n);
  PetscCall(PetscLogEventBegin(FinePC_SendVec, v, 0, 0, 0));
  PetscCall(VecGetArrayWrite(v, &array));
  PetscCall(PetscArraycpy(array, from + g->first, g->n));
  PetscCall(VecRestoreArrayWrite(v, &array));
  PetscCall(PetscLogEventEnd(FinePC_SendVec, v, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A copy of b on a leader. */
static PetscErrorCode CopyB(const MatGroup *g, Vec *copy)
{
  PetscFunctionBegin;
  PetscCall(VecDuplicate(g->rows_b, copy));
  PetscCall(VecCopy(g->rows_b, *copy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* On leaders *made is a null space of their vectors. The error of a leader is that of this rank alone. */
static PetscErrorCode ConsolidateNullSpace(MatGroup *g, MatNullSpace from, MatNullSpace *made)
{
  const Vec       *vectors;
  std::vector<Vec> copies;
  PetscBool        constants;
  PetscInt         count;
  PetscErrorCode   code = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(MatNullSpaceGetVecs(from, &constants, &count, &vectors));
  for (PetscInt k = 0; k < count; k++) {
    Vec copy = nullptr;

    PetscCall(MatGroupPut(g, vectors[k], g->b));
    PetscCall(RankGroupMeet(&g->group));
    if (g->group.Leads() && !code) code = CopyB(g, &copy);
    if (copy) copies.push_back(copy);
    PetscCall(RankGroupMeet(&g->group));
  }
  if (g->group.Leads() && !code) code = MatNullSpaceCreate(g->group.same, constants, count, copies.data(), made);
  for (Vec &copy : copies) PetscCall(VecDestroy(&copy));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Those of A that are others than before. */
static PetscErrorCode ConsolidateNullSpaces(Mat A, MatGroup *g)
{
  using Get                 = PetscErrorCode (*)(Mat, MatNullSpace *);
  using Set                 = PetscErrorCode (*)(Mat, MatNullSpace);
  constexpr int kKinds      = 3;
  const Get     get[kKinds] = {MatGetNullSpace, MatGetTransposeNullSpace, MatGetNearNullSpace};
  const Set     set[kKinds] = {MatSetNullSpace, MatSetTransposeNullSpace, MatSetNearNullSpace};

  PetscFunctionBegin;
  for (int kind = 0; kind < kKinds; kind++) {
    MatNullSpace   from, made = nullptr;
    PetscErrorCode code = PETSC_SUCCESS;
    PetscObjectId  id   = 0;

    PetscCall(get[kind](A, &from));
    if (from) PetscCall(PetscObjectGetId((PetscObject)from, &id));
    if (id == g->nullspaces[kind]) continue; /* so on all ranks */
    if (from) code = CallGuarded(ConsolidateNullSpace, g, from, &made);
    if (!code && g->group.Leads()) code = set[kind](g->rows, made);
    PetscCall(MatNullSpaceDestroy(&made));
    g->nullspaces[kind] = id;
    code                = AgreeOnError(PetscObjectComm((PetscObject)A), code, "copy a null space");
    if (code) g->nullspaces[kind] = -1; /* on all ranks */
    PetscCall(code);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- the update --------------------------------------- */

/* The matrix as a MATMPIAIJ, whose rows can be read. */
static PetscErrorCode GetAIJ(Mat A, MatGroup *g, Mat *aij)
{
  PetscBool is;

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATMPIAIJ, &is));
  *aij = A;
  if (is) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatDestroy(&g->own));
  PetscCall(MatConvertBlocks(A, MAT_INITIAL_MATRIX, &g->own));
  *aij = g->own;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Collective, but for what PETSc needs memory for. */
static PetscErrorCode WriteAll(Mat aij, bool pattern, MatGroup *g)
{
  Parts parts{};

  PetscFunctionBegin;
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)aij), GetParts_Consolidated(aij, &parts), "read its rows"));
  PetscErrorCode code = PETSC_SUCCESS;
  if (pattern) code = AgreeOnError(PetscObjectComm((PetscObject)aij), CountEntries(parts, g), "count the entries of its group");
  if (pattern && !code) {
    PetscCall(MakeRoom_MatGroup(g));
    WriteRows(parts, g);
  } else if (!code) WriteValues(parts, g);
  PetscCall(RestoreParts(&parts));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether this rank's rows have the nonzeros that they had. */
static PetscErrorCode LookAtRows_MatGroup(Mat A, MatGroup *g, PetscBool *same)
{
  PetscBool assembled;

  PetscFunctionBegin;
  PetscCall(MatAssembled(A, &assembled));
  PetscCheck(assembled, PETSC_COMM_SELF, PETSC_ERR_ARG_WRONGSTATE,
             "The matrix is not assembled: call MatAssemblyBegin() and MatAssemblyEnd()");
  PetscCall(MatFollowPattern(A, &g->pattern, same));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGroupUpdate(Mat A, MatGroup *g)
{
  const MPI_Comm   comm = PetscObjectComm((PetscObject)A);
  PetscObjectId    id;
  PetscObjectState state;
  PetscBool        same = PETSC_FALSE;
  Mat              aij  = nullptr;
  PetscErrorCode   code = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(PetscObjectGetId((PetscObject)A, &id));
  PetscCall(PetscObjectStateGet((PetscObject)A, &state));
  code     = LookAtRows_MatGroup(A, g, &same);
  int news = !same || !g->entries.data ? 2 : g->id != id || g->state != state; /* other values, or with 2 another pattern, too */
  PetscCall(AgreeOnError(comm, code, "look at its rows", &news));
  if (news) {
    const MatPattern pattern = g->pattern;

    if (news == 2) PetscCall(DestroyRows(g));
    g->pattern = pattern;
    if (news == 2) std::fill(std::begin(g->nullspaces), std::end(g->nullspaces), 0);
    g->state = -1; /* until all is there */
    PetscCall(Pin_MatGroup(*g, g->vectors, 2 * g->all * sizeof(PetscScalar), &g->pinned_vectors));
    PetscCall(PetscLogEventBegin(FinePC_SendMat, A, 0, 0, 0));
    PetscCall(GetAIJ(A, g, &aij));
    PetscCall(WriteAll(aij, news == 2, g));
    PetscCall(PetscLogEventEnd(FinePC_SendMat, A, 0, 0, 0));
    PetscCall(RankGroupMeet(&g->group));
    if (g->group.Leads()) code = news == 2 ? MakeRows(A, g) : SetValues_MatGroup(g);
    code = AgreeOnError(comm, code, "make the matrix of its group");
    if (code) PetscCall(DestroyRows(g));
    PetscCall(code);
    g->id    = id;
    g->state = state;
  }
  PetscCall(ConsolidateNullSpaces(A, g));
  PetscFunctionReturn(PETSC_SUCCESS);
}
