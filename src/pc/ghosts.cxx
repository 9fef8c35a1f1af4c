/* The exchange of ghosts, by PetscSF. */
#include "ghosts.h"

#include "ranks/agree.h"
#include "halo.h"

PetscErrorCode GhostExchangeCreate(PetscMemType where, LocalInt count, GhostExchange *exchange)
{
  PetscFunctionBegin;
  *exchange       = GhostExchange{};
  exchange->where = where;
  exchange->count = count;
  PetscCall(ArrayCreate((size_t)count * sizeof(PetscScalar), where, (void **)&exchange->values));
  exchange->columns = 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GhostExchangeDestroy(GhostExchange *exchange)
{
  PetscFunctionBegin;
  PetscCall(PetscSFDestroy(&exchange->sf));
  PetscCall(PetscSFDestroy(&exchange->packed));
  for (void **array : {(void **)&exchange->values, (void **)&exchange->rows, (void **)&exchange->block})
    PetscCall(ArrayDestroy(exchange->where, array));
  *exchange = GhostExchange{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ room for several columns -------------------------------- */

/* What each rank has done alone before an exchange. */
static PetscErrorCode Agree_Ghosts(const GhostExchange *exchange, PetscErrorCode code)
{
  PetscFunctionBegin;
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)exchange->sf), code, "make room for an exchange of several vectors"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   What a rank does alone for `packed`: the list of the rows that it sends, and the place of each row in the list; and memory for
   what it learns.
*/
static PetscErrorCode ListRows(GhostExchange *exchange, PetscInt **places, PetscInt **from, PetscSFNode **roots)
{
  PetscMPIInt     ranks;
  const PetscInt *offset, *wanted;
  PetscInt        rows, ghosts, entries;
  LocalInt       *list, n;

  PetscFunctionBegin;
  PetscCall(PetscSFGetLeafRanks(exchange->sf, &ranks, nullptr, &offset, &wanted));
  PetscCall(PetscSFGetGraph(exchange->sf, &rows, &ghosts, nullptr, nullptr));
  PetscCall(LocalIntCast(rows, "rows", &n));
  entries = ranks ? offset[ranks] : 0;
  PetscCall(PetscCalloc1(rows, places));
  PetscCall(PetscMalloc1(ghosts, from));
  PetscCall(PetscMalloc1(ghosts, roots));
  for (PetscInt k = 0; k < entries; k++) (*places)[wanted[k]] = 1;
  exchange->sent = 0;
  for (LocalInt row = 0; row < n; row++) exchange->sent += (LocalInt)(*places)[row];
  PetscCall(PetscMalloc1(exchange->sent, &list));
  for (LocalInt row = 0, place = 0; row < n; row++)
    if ((*places)[row]) {
      list[place]    = row;
      (*places)[row] = place++;
    }
  const size_t bytes = (size_t)exchange->sent * sizeof(LocalInt);
  PetscCall(ArrayDestroy(exchange->where, (void **)&exchange->rows));
  PetscErrorCode code = ArrayCreate(bytes, exchange->where, (void **)&exchange->rows);
  if (!code) code = ArrayCopy(exchange->rows, list, bytes, exchange->where, PETSC_MEMTYPE_HOST);
  PetscCall(PetscFree(list));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The ghosts learn their places in the lists of their owners, which `packed` has as `roots`. */
static PetscErrorCode Connect_Ghosts(GhostExchange *exchange, const PetscInt places[], PetscInt from[], PetscSFNode roots[])
{
  PetscInt           ghosts;
  const PetscInt    *leaves;
  const PetscSFNode *owners;

  PetscFunctionBegin;
  PetscCall(PetscSFBcastBegin(exchange->sf, MPIU_INT, places, from, MPI_REPLACE));
  PetscCall(PetscSFBcastEnd(exchange->sf, MPIU_INT, places, from, MPI_REPLACE));
  PetscCall(PetscSFGetGraph(exchange->sf, nullptr, &ghosts, &leaves, &owners));
  for (PetscInt k = 0; k < ghosts; k++) {
    roots[k].rank  = owners[k].rank;
    roots[k].index = from[leaves ? leaves[k] : k];
  }
  PetscCall(PetscSFCreate(PetscObjectComm((PetscObject)exchange->sf), &exchange->packed));
  PetscCall(
    PetscSFSetGraph(exchange->packed, exchange->sent, ghosts, (PetscInt *)leaves, PETSC_COPY_VALUES, roots, PETSC_COPY_VALUES));
  PetscCall(PetscSFSetUp(exchange->packed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Pack(GhostExchange *exchange)
{
  PetscInt    *places = nullptr, *from = nullptr;
  PetscSFNode *roots = nullptr;

  PetscFunctionBegin;
  PetscErrorCode code = Agree_Ghosts(exchange, ListRows(exchange, &places, &from, &roots));
  if (!code) code = Connect_Ghosts(exchange, places, from, roots);
  PetscCall(PetscFree(places));
  PetscCall(PetscFree(from));
  PetscCall(PetscFree(roots));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeRoom_Ghosts(GhostExchange *exchange, LocalInt columns)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(exchange->where, (void **)&exchange->values));
  PetscCall(ArrayDestroy(exchange->where, (void **)&exchange->block));
  PetscCall(ArrayCreate((size_t)columns * exchange->count * sizeof(PetscScalar), exchange->where, (void **)&exchange->values));
  PetscCall(ArrayCreate((size_t)columns * exchange->sent * sizeof(PetscScalar), exchange->where, (void **)&exchange->block));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GhostExchangeNeedColumns(GhostExchange *exchange, LocalInt columns)
{
  PetscFunctionBegin;
  if (exchange->columns >= columns) PetscFunctionReturn(PETSC_SUCCESS);
  if (!exchange->packed) PetscCall(Pack(exchange));
  exchange->columns = 0; /* until all ranks have it */
  PetscCall(Agree_Ghosts(exchange, MakeRoom_Ghosts(exchange, columns)));
  exchange->columns = columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the exchange --------------------------------------- */

/* A row of so many columns, to be freed; PetscSF compares types by what they are made of. */
static PetscErrorCode RowType(LocalInt columns, MPI_Datatype *row)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Type_contiguous(columns, MPIU_SCALAR, row));
  PetscCallMPI(MPI_Type_commit(row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BeginPacked(const GhostExchange *exchange, LocalInt columns, const PetscScalar *X, LocalInt ld)
{
  const auto   interleave = PetscMemTypeDevice(exchange->where) ? RowsInterleave_CUDA : RowsInterleave_Host;
  MPI_Datatype row;

  PetscFunctionBegin;
  PetscCall(interleave(exchange->sent, exchange->rows, columns, X, ld, exchange->block));
  if (PetscMemTypeDevice(exchange->where)) PetscCall(HaloFence_CUDA());
  PetscCall(RowType(columns, &row));
  PetscCall(PetscSFBcastWithMemTypeBegin(exchange->packed, row, exchange->where, exchange->block, exchange->where, exchange->values,
                                         MPI_REPLACE));
  PetscCallMPI(MPI_Type_free(&row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode EndPacked(const GhostExchange *exchange, LocalInt columns)
{
  MPI_Datatype row;

  PetscFunctionBegin;
  PetscCall(RowType(columns, &row));
  PetscCall(PetscSFBcastEnd(exchange->packed, row, exchange->block, exchange->values, MPI_REPLACE));
  PetscCallMPI(MPI_Type_free(&row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GhostExchangeBegin(const GhostExchange *exchange, LocalInt columns, const PetscScalar *X, LocalInt ld)
{
  PetscFunctionBegin;
  if (!exchange->sf || !columns) PetscFunctionReturn(PETSC_SUCCESS);
  if (columns > 1) {
    PetscCall(BeginPacked(exchange, columns, X, ld));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (PetscMemTypeDevice(exchange->where)) PetscCall(HaloFence_CUDA());
  PetscCall(
    PetscSFBcastWithMemTypeBegin(exchange->sf, MPIU_SCALAR, exchange->where, X, exchange->where, exchange->values, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GhostExchangeEnd(const GhostExchange *exchange, LocalInt columns, const PetscScalar *X)
{
  PetscFunctionBegin;
  if (!exchange->sf || !columns) PetscFunctionReturn(PETSC_SUCCESS);
  if (columns > 1) PetscCall(EndPacked(exchange, columns));
  else PetscCall(PetscSFBcastEnd(exchange->sf, MPIU_SCALAR, X, exchange->values, MPI_REPLACE));
  if (PetscMemTypeDevice(exchange->where)) PetscCall(HaloFence_CUDA());
  PetscFunctionReturn(PETSC_SUCCESS);
}
