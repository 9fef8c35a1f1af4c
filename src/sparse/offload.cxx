/* What a matrix keeps of where its rows are used, and their copies on the GPU. */
#include <petscmat.h>

#include "offloadimpl.h"

/* ---------------------------------------- the decision ---------------------------------------- */

PetscErrorCode MatIsOffloaded(Mat A, PetscBool *offloaded)
{
  MatDecision *decision = nullptr;

  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery((PetscObject)A, kMatDecision, (void **)&decision));
  *offloaded = decision ? decision->offloaded : PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatViewDevice(Mat A, PetscViewer viewer, const char indent[])
{
  MatDecision *decision = nullptr;
  int          shown;

  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery((PetscObject)A, kMatDecision, (void **)&decision));
  shown = decision && (decision->failed || decision->apart);
  if (decision && decision->small) { /* which matters where there is a GPU */
    PetscBool found;
    PetscCall(DeviceFound_CUDA(&found));
    shown = found;
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &shown, 1, MPI_INT, MPI_LOR, PetscObjectComm((PetscObject)A)));
  }
  if (shown) PetscCall(PetscViewerASCIIPrintf(viewer, "%son the host: %s\n", indent, decision->why));
  if (decision && decision->of_device && decision->why[0])
    PetscCall(PetscViewerASCIIPrintf(viewer, "%sthe ranks share a GPU, but did not come together: %s\n", indent, decision->why));
  if (decision && decision->offloaded) PetscCall(DeviceView(viewer, indent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatViewBackend(Mat A, PetscViewer viewer)
{
  PetscLogDouble bytes[2];
  PetscBool      offloaded = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(MatViewDevice(A, viewer, ""));
  PetscCall(MatIsOffloaded(A, &offloaded));
  if (!offloaded) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetSentBytes(A, &bytes[0], &bytes[1]));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, bytes, 2, MPI_DOUBLE, MPI_SUM, PetscObjectComm((PetscObject)A)));
  PetscCall(
    PetscViewerASCIIPrintf(viewer,
                           "the GPU has a copy of the matrix, which the host has: %g bytes of rows; %g bytes were sent for it\n",
                           (double)bytes[0], (double)bytes[1]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatOffloadLike(Mat A, Mat other)
{
  MatDecision *decision, *from = nullptr;

  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery((PetscObject)other, kMatDecision, (void **)&from));
  PetscCall(GetComposed((PetscObject)A, kMatDecision, &decision));
  *decision = from ? *from : MatDecision{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetGroup(Mat A, MatGroup **group)
{
  PetscFunctionBegin;
  *group = nullptr;
  PetscCall(PetscObjectContainerQuery((PetscObject)A, kMatGroup, (void **)group));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatSetOffloaded(Mat A, PetscBool offloaded)
{
  MatDecision *decision;

  PetscFunctionBegin;
  PetscCall(GetComposed((PetscObject)A, kMatDecision, &decision));
  *decision      = MatDecision{};
  decision->made = decision->fixed = PETSC_TRUE;
  decision->offloaded              = offloaded;
  if (!offloaded) PetscCall(PetscStrncpy(decision->why, "the ranks have agreed on the host", kDeviceText));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the copies ---------------------------------------- */

static constexpr char kSent[] = "FinePCSentRows";

/* The copy of a sequential MATAIJ. */
struct SentRows {
  PetscObjectId    id, whole_id; /* of the Mat that was copied and of the one that it is a part of, or 0, and their states */
  PetscObjectState state, whole_state;
  LocalInt         n, nnz;
  LocalInt        *i; /* [n + 1], and behind them j [nnz] */
  PetscScalar     *a;
  PetscLogDouble   bytes;  /* that have been sent */
  PetscBool        refill; /* the pattern is known to be that of the copy, which the values alone are sent to */
};

static PetscErrorCode FreeArrays(SentRows *sent)
{
  PetscFunctionBegin;
  sent->state = -1;
  sent->n = sent->nnz = -1; /* until there is room */
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&sent->i));
  PetscCall(ArrayDestroy(PETSC_MEMTYPE_CUDA, (void **)&sent->a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode DestroySentRows(SentRows *sent)
{
  PetscFunctionBegin;
  PetscCall(FreeArrays(sent));
  PetscCall(PetscFree(sent));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Makes room for so many rows and entries. */
static PetscErrorCode MakeRoom_SentRows(LocalInt n, LocalInt nnz, SentRows *sent)
{
  PetscFunctionBegin;
  if (sent->i && sent->n == n && sent->nnz == nnz) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(FreeArrays(sent));
  PetscCall(ArrayCreate(((size_t)n + 1 + nnz) * sizeof(*sent->i), PETSC_MEMTYPE_CUDA, (void **)&sent->i));
  PetscCall(ArrayCreate((size_t)nnz * sizeof(*sent->a), PETSC_MEMTYPE_CUDA, (void **)&sent->a));
  sent->n   = n;
  sent->nnz = nnz;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Send_SentRows(const CSRView *A, SentRows *sent)
{
  const size_t rows = (A->n + 1) * sizeof(*A->i), entries = A->nnz * sizeof(*A->j), values = A->nnz * sizeof(*A->a);

  PetscFunctionBegin;
  const bool refill = sent->refill && sent->i && sent->n == A->n && sent->nnz == A->nnz;
  sent->refill      = PETSC_FALSE;
  PetscCall(MakeRoom_SentRows(A->n, A->nnz, sent));
  const ArrayTask arrays[] = {{sent->a, A->a, values}, {sent->i, A->i, rows}, {sent->i + A->n + 1, A->j, entries}};
  PetscCall(ArraysCopy(refill ? 1 : 3, arrays, PETSC_MEMTYPE_CUDA, A->where));
  const PetscLogDouble bytes = (PetscLogDouble)(values + (refill ? 0 : rows + entries));
  PetscCall(PetscLogCpuToGpu(bytes));
  sent->bytes += bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static CSRView RowsOf_SentRows(const SentRows *sent)
{
  return CSRView{sent->n, sent->nnz, sent->i, sent->i + sent->n + 1, sent->a, PETSC_MEMTYPE_CUDA};
}

PetscErrorCode MatGetSentRows(Mat A, Mat local, CSRView *rows, bool *current)
{
  SentRows        *sent;
  PetscObjectId    id, whole_id;
  PetscObjectState state, whole_state;

  PetscFunctionBegin;
  PetscCall(GetComposed<DestroySentRows>((PetscObject)local, kSent, &sent)); /* a new one has no id */
  PetscCall(PetscObjectGetId((PetscObject)local, &id));
  PetscCall(PetscObjectStateGet((PetscObject)local, &state));
  PetscCall(PetscObjectGetId((PetscObject)A, &whole_id));
  PetscCall(PetscObjectStateGet((PetscObject)A, &whole_state));
  const bool whole_changed = A != local && (sent->whole_id != whole_id || sent->whole_state != whole_state);
  *current                 = sent->id == id && sent->state == state && !whole_changed;
  if (!*current) sent->state = -1; /* until it is there */
  *rows = RowsOf_SentRows(sent);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatSendRows(Mat A, Mat local, const CSRView *host, CSRView *rows)
{
  SentRows *sent;

  PetscFunctionBegin;
  PetscCall(GetComposed<DestroySentRows>((PetscObject)local, kSent, &sent));
  PetscCall(Send_SentRows(host, sent));
  PetscCall(PetscObjectGetId((PetscObject)local, &sent->id));
  PetscCall(PetscObjectStateGet((PetscObject)local, &sent->state));
  if (A != local) { /* who uses the part by itself knows nothing of the whole */
    PetscCall(PetscObjectGetId((PetscObject)A, &sent->whole_id));
    PetscCall(PetscObjectStateGet((PetscObject)A, &sent->whole_state));
  }
  *rows = RowsOf_SentRows(sent);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The parts of A whose rows may be sent, and their copies, or null: copies of a matrix that is not AIJ are the preconditioner's. */
static PetscErrorCode FindSent(Mat A, Mat parts[2], SentRows *copies[2])
{
  PetscBool is_seq, is_mpi;

  PetscFunctionBegin;
  parts[0] = parts[1] = nullptr;
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATSEQAIJ, &is_seq));
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATMPIAIJ, &is_mpi));
  if (is_seq) parts[0] = A;
  if (is_mpi) PetscCall(MatMPIAIJGetSeqAIJ(A, &parts[0], &parts[1], nullptr));
  for (int p = 0; p < 2; p++) {
    copies[p] = nullptr;
    if (parts[p]) PetscCall(PetscObjectContainerQuery((PetscObject)parts[p], kSent, (void **)&copies[p]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatSendValuesNext(Mat A)
{
  Mat       parts[2];
  SentRows *copies[2];

  PetscFunctionBegin;
  PetscCall(FindSent(A, parts, copies));
  for (SentRows *sent : copies)
    if (sent && sent->state != -1) sent->refill = PETSC_TRUE; /* the copy is complete */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A part may be used by itself, too, as PCBJACOBI does: who leaves first leaves its copy to the other. */
PetscErrorCode MatFreeCopies(Mat A)
{
  Mat       parts[2];
  SentRows *copies[2];

  PetscFunctionBegin;
  PetscCall(FindSent(A, parts, copies));
  for (int p = 0; p < 2; p++) {
    SentRows *sent  = copies[p];
    MatUsers *users = nullptr;

    if (!sent) continue;
    PetscCall(PetscObjectContainerQuery((PetscObject)parts[p], kMatUsers, (void **)&users));
    if (parts[p] != A) sent->whole_id = 0;
    if (!sent->whole_id && (!users || !users->count)) PetscCall(FreeArrays(sent));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatGetSentBytes(Mat A, PetscLogDouble *bytes, PetscLogDouble *in_all)
{
  Mat       parts[2];
  SentRows *copies[2];

  PetscFunctionBegin;
  *bytes = *in_all = 0;
  PetscCall(FindSent(A, parts, copies));
  for (SentRows *sent : copies) {
    if (sent) *in_all += sent->bytes;
    if (sent && sent->n >= 0) *bytes += ((size_t)sent->n + 1 + sent->nnz) * sizeof(*sent->i) + sent->nnz * sizeof(*sent->a);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
