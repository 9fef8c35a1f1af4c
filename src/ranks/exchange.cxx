/* The exchange of ghosts, by PetscSF. */
#include "ranks/exchange.h"

#include "ranks/agree.h"
#include "sparse/bsr_mat.h"

PetscErrorCode ExchangeCreate(PetscMemType where, LocalInt count, Exchange *exchange)
{
  PetscFunctionBegin;
  PetscCall(ExchangeDestroy(exchange));
  exchange->where = where;
  exchange->count = count;
  PetscCall(ArrayCreate((size_t)count * sizeof(PetscScalar), where, (void **)&exchange->ghosts));
  exchange->columns = 1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode DropStaging(Exchange *exchange)
{
  PetscFunctionBegin;
  PetscCall(PetscFree(exchange->host_x));
  PetscCall(PetscFree(exchange->host_ghosts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeDestroy(Exchange *exchange)
{
  PetscFunctionBegin;
  PetscCall(PetscSFDestroy(&exchange->sf));
  PetscCall(PetscSFDestroy(&exchange->packed));
  for (void **array : {(void **)&exchange->ghosts, (void **)&exchange->rows, (void **)&exchange->block, (void **)&exchange->list,
                       (void **)&exchange->places, (void **)&exchange->packed_entries, (void **)&exchange->received})
    PetscCall(ArrayDestroy(exchange->where, array));
  PetscCall(DropStaging(exchange));
  *exchange = Exchange{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether PetscSF takes memory of the host in the place of the GPU's. */
static bool IsStaged_Exchange(const Exchange *exchange)
{
  return !kPetscHasCUDA && PetscMemTypeDevice(exchange->where);
}

/* The sizes of the two sides of a PetscSF. */
static PetscErrorCode GetSides(PetscSF sf, PetscInt *roots, PetscInt *leaves)
{
  PetscInt first, last;

  PetscFunctionBegin;
  PetscCall(PetscSFGetGraph(sf, roots, nullptr, nullptr, nullptr));
  PetscCall(PetscSFGetLeafRange(sf, &first, &last));
  *leaves = last + 1; /* 0 if there is none */
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeStaging_Exchange(LocalInt columns, Exchange *exchange)
{
  PetscInt rows, leaves, packed = 0, same;

  PetscFunctionBegin;
  PetscCall(DropStaging(exchange));
  PetscCall(GetSides(exchange->sf, &rows, &leaves));
  if (exchange->packed) PetscCall(GetSides(exchange->packed, &packed, &same));
  const size_t values = exchange->values;
  PetscCall(PetscMalloc(PetscMax(rows * values, (size_t)packed * columns) * sizeof(PetscScalar), &exchange->host_x));
  PetscCall(PetscMalloc(leaves * PetscMax((size_t)columns, values) * sizeof(PetscScalar), &exchange->host_ghosts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeMakeStaging(Exchange *exchange)
{
  PetscFunctionBegin;
  if (IsStaged_Exchange(exchange)) PetscCall(MakeStaging_Exchange(1, exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The same where an error of one rank has to be one of all, which leaves no PetscSF. */
static PetscErrorCode StageOnAll(Exchange *exchange)
{
  PetscFunctionBegin;
  if (!IsStaged_Exchange(exchange)) PetscFunctionReturn(PETSC_SUCCESS);
  const PetscErrorCode code =
    AgreeOnError(PetscObjectComm((PetscObject)exchange->sf), MakeStaging_Exchange(1, exchange), "make room for an exchange");
  if (code) PetscCall(PetscSFDestroy(&exchange->sf)); /* so that the next set-up makes all anew */
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeFromColumns(MPI_Comm comm, PetscLayout layout, const PetscInt columns[], Exchange *exchange)
{
  PetscFunctionBegin;
  PetscAssert(exchange->columns > 0, PETSC_COMM_SELF, PETSC_ERR_PLIB, "The exchange was not created");
  PetscCall(PetscSFCreate(comm, &exchange->sf));
  PetscCall(PetscSFSetGraphLayout(exchange->sf, layout, exchange->count, nullptr, PETSC_COPY_VALUES, columns));
  PetscCall(PetscSFSetUp(exchange->sf));
  PetscCall(PetscObjectGetId((PetscObject)exchange->sf, &exchange->id));
  PetscCall(StageOnAll(exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rank's own block of A, and a hash of the columns of other ranks. */
static PetscErrorCode Describe_Exchange(Mat A, PetscObjectId *block_id, PetscObjectState *hash)
{
  Mat             own, B;
  PetscInt        count, bs = 1;
  PetscBool       is_aij;
  const PetscInt *columns;

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATMPIAIJ, &is_aij));
  PetscCall(MatGetRankParts(A, &own, &B, &columns));
  PetscCall(MatGetLocalSize(B, nullptr, &count));
  if (!is_aij) PetscCall(MatGetBlockSize(B, &bs));
  PetscCall(PetscObjectGetId((PetscObject)B, block_id));
  *hash = (PetscObjectState)(HashNumbers(count / bs, columns) >> 1);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeFromMat(Mat A, const PetscInt columns[], Exchange *exchange)
{
  PetscFunctionBegin;
  PetscCall(MatGetGhostSF(A, exchange->count, columns, &exchange->sf));
  PetscCall(PetscObjectGetId((PetscObject)exchange->sf, &exchange->id));
  PetscCall(Describe_Exchange(A, &exchange->block_id, &exchange->hash));
  PetscCall(StageOnAll(exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeFitsMat(const Exchange *exchange, Mat A, PetscBool *fits)
{
  PetscObjectId    block_id;
  PetscObjectState hash;

  PetscFunctionBegin;
  PetscCall(Describe_Exchange(A, &block_id, &hash));
  *fits = (PetscBool)(exchange->sf && block_id == exchange->block_id && hash == exchange->hash);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeMakeLists(Exchange *exchange)
{
  PetscFunctionBegin;
  if (exchange->listed == exchange->id) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(NeighboursFromSF(exchange->sf, &exchange->lists));
  exchange->listed = exchange->id;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- by NCCL ------------------------------------------ */

/* The parts with the numbers that their ranks have for NCCL. */
static std::vector<Neighbours::Part> Numbered_Exchange(std::vector<Neighbours::Part> parts, const std::vector<PetscMPIInt> &numbers)
{
  for (Neighbours::Part &part : parts) part.rank = numbers[part.rank];
  return parts;
}

/* A list in the memory of the exchange, and room for its entries. */
static PetscErrorCode MakeList(const std::vector<LocalInt> &from, LocalInt width, PetscMemType where, LocalInt **list,
                               PetscScalar **entries)
{
  const size_t bytes = from.size() * sizeof(LocalInt);

  PetscFunctionBegin;
  PetscCall(ArrayCreate(bytes, where, (void **)list));
  PetscCall(ArrayCreate(from.size() * width * sizeof(PetscScalar), where, (void **)entries));
  if (bytes) PetscCall(ArrayCopy(*list, from.data(), bytes, where, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeUseNCCL(NCCL *nccl, const std::vector<PetscMPIInt> &numbers, bool all, LocalInt width, Exchange *exchange)
{
  const Neighbours &lists = exchange->lists;

  PetscFunctionBegin;
  exchange->to   = Numbered_Exchange(lists.to, numbers);
  exchange->from = Numbered_Exchange(lists.from, numbers);
  PetscCall(MakeList(lists.entries, width, exchange->where, &exchange->list, &exchange->packed_entries));
  PetscCall(MakeList(lists.places, width, exchange->where, &exchange->places, &exchange->received));
  exchange->nccl  = nccl;
  exchange->all   = all;
  exchange->width = width;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------ room for several columns -------------------------------- */

/* What each rank has done alone before an exchange. */
static PetscErrorCode Agree_Exchange(const Exchange *exchange, PetscErrorCode code)
{
  PetscFunctionBegin;
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)exchange->sf), code, "make room for an exchange of several vectors"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   What a rank does alone for `packed`: the list of the rows that it sends, and the place of each row in the list; and memory for
   what it learns.
*/
static PetscErrorCode ListRows_Exchange(Exchange *exchange, PetscInt **places, PetscInt **from, PetscSFNode **roots)
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
static PetscErrorCode ConnectPacked(Exchange *exchange, const PetscInt places[], PetscInt from[], PetscSFNode roots[])
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

static PetscErrorCode Pack_Exchange(Exchange *exchange)
{
  PetscInt    *places = nullptr, *from = nullptr;
  PetscSFNode *roots = nullptr;

  PetscFunctionBegin;
  PetscErrorCode code = Agree_Exchange(exchange, ListRows_Exchange(exchange, &places, &from, &roots));
  if (!code) code = ConnectPacked(exchange, places, from, roots);
  PetscCall(PetscFree(places));
  PetscCall(PetscFree(from));
  PetscCall(PetscFree(roots));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeRoom_Exchange(Exchange *exchange, LocalInt columns)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(exchange->where, (void **)&exchange->ghosts));
  PetscCall(ArrayDestroy(exchange->where, (void **)&exchange->block));
  PetscCall(ArrayCreate((size_t)columns * exchange->count * sizeof(PetscScalar), exchange->where, (void **)&exchange->ghosts));
  PetscCall(ArrayCreate((size_t)columns * exchange->sent * sizeof(PetscScalar), exchange->where, (void **)&exchange->block));
  if (IsStaged_Exchange(exchange)) PetscCall(MakeStaging_Exchange(columns, exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeNeedColumns(Exchange *exchange, LocalInt columns)
{
  PetscFunctionBegin;
  if (exchange->columns >= columns) PetscFunctionReturn(PETSC_SUCCESS);
  if (!exchange->packed) PetscCall(Pack_Exchange(exchange));
  exchange->columns = 0; /* until all ranks have it */
  PetscCall(Agree_Exchange(exchange, MakeRoom_Exchange(exchange, columns)));
  exchange->columns = columns;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the exchange --------------------------------------- */

static PetscErrorCode Fence_Exchange(const Exchange *exchange)
{
  PetscFunctionBegin;
  if (exchange->fence && PetscMemTypeDevice(exchange->where) && !IsStaged_Exchange(exchange)) PetscCall(ExchangeFence_CUDA());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Copies one side of an exchange between the array of the GPU and that of the host. */
enum class Side { X, GHOSTS };

static PetscErrorCode CopySide(const Exchange *exchange, PetscSF sf, Side side, MPI_Datatype type, void *array, bool to_host)
{
  char *const host = side == Side::X ? exchange->host_x : exchange->host_ghosts;
  PetscInt    roots, leaves;
  int         bytes;

  PetscFunctionBegin;
  PetscCall(GetSides(sf, &roots, &leaves));
  PetscCallMPI(MPI_Type_size(type, &bytes));
  const size_t all = (size_t)(side == Side::X ? roots : leaves) * bytes;
  if (to_host) PetscCall(ArrayCopy(host, array, all, PETSC_MEMTYPE_HOST, exchange->where));
  else PetscCall(ArrayCopy(array, host, all, exchange->where, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode BeginForward(const Exchange *exchange, PetscSF sf, MPI_Datatype type, const void *x, void *ghosts)
{
  PetscFunctionBegin;
  if (IsStaged_Exchange(exchange)) {
    PetscCall(CopySide(exchange, sf, Side::X, type, (void *)x, true));
    PetscCall(PetscSFBcastBegin(sf, type, exchange->host_x, exchange->host_ghosts, MPI_REPLACE));
  } else PetscCall(PetscSFBcastWithMemTypeBegin(sf, type, exchange->where, x, exchange->where, ghosts, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode EndForward(const Exchange *exchange, PetscSF sf, MPI_Datatype type, const void *x, void *ghosts)
{
  PetscFunctionBegin;
  if (IsStaged_Exchange(exchange)) {
    PetscCall(PetscSFBcastEnd(sf, type, exchange->host_x, exchange->host_ghosts, MPI_REPLACE));
    PetscCall(CopySide(exchange, sf, Side::GHOSTS, type, ghosts, false));
  } else PetscCall(PetscSFBcastEnd(sf, type, x, ghosts, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeBegin(const Exchange *exchange, MPI_Datatype type, const void *x, void *ghosts)
{
  int bytes;

  PetscFunctionBegin;
  if (!exchange->sf) PetscFunctionReturn(PETSC_SUCCESS);
  if (exchange->nccl) {
    PetscCallMPI(MPI_Type_size(type, &bytes));
    PetscCall(ExchangeByNCCL_CUDA(exchange, bytes / (LocalInt)sizeof(double), (const double *)x, (double *)ghosts));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(Fence_Exchange(exchange));
  PetscCall(BeginForward(exchange, exchange->sf, type, x, ghosts));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeEnd(const Exchange *exchange, MPI_Datatype type, const void *x, void *ghosts)
{
  PetscFunctionBegin;
  if (!exchange->sf || exchange->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(EndForward(exchange, exchange->sf, type, x, ghosts));
  PetscCall(Fence_Exchange(exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeBackBegin(const Exchange *exchange, MPI_Datatype type, const void *ghosts, void *x)
{
  const PetscMemType where = exchange->where;

  PetscFunctionBegin;
  if (!exchange->sf) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Fence_Exchange(exchange));
  if (IsStaged_Exchange(exchange)) {
    PetscCall(CopySide(exchange, exchange->sf, Side::X, type, x, true)); /* which keeps entries that are no ghosts */
    PetscCall(CopySide(exchange, exchange->sf, Side::GHOSTS, type, (void *)ghosts, true));
    PetscCall(PetscSFReduceBegin(exchange->sf, type, exchange->host_ghosts, exchange->host_x, MPI_REPLACE));
  } else PetscCall(PetscSFReduceWithMemTypeBegin(exchange->sf, type, where, ghosts, where, x, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeBackEnd(const Exchange *exchange, MPI_Datatype type, const void *ghosts, void *x)
{
  PetscFunctionBegin;
  if (!exchange->sf) PetscFunctionReturn(PETSC_SUCCESS);
  if (IsStaged_Exchange(exchange)) {
    PetscCall(PetscSFReduceEnd(exchange->sf, type, exchange->host_ghosts, exchange->host_x, MPI_REPLACE));
    PetscCall(CopySide(exchange, exchange->sf, Side::X, type, x, false));
  } else PetscCall(PetscSFReduceEnd(exchange->sf, type, ghosts, x, MPI_REPLACE));
  PetscCall(Fence_Exchange(exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A row of so many columns, to be freed; PetscSF compares types by what they are made of. */
static PetscErrorCode RowType(LocalInt columns, MPI_Datatype *row)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Type_contiguous(columns, MPIU_SCALAR, row));
  PetscCallMPI(MPI_Type_commit(row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeColumnsBegin(const Exchange *exchange, LocalInt columns, const PetscScalar *X, LocalInt ld)
{
  const auto   interleave = PetscMemTypeDevice(exchange->where) ? RowsInterleave_CUDA : RowsInterleave_Host;
  MPI_Datatype row;

  PetscFunctionBegin;
  if (columns == 1) PetscCall(ExchangeBegin(exchange, MPIU_SCALAR, X, exchange->ghosts));
  if (!exchange->sf || columns <= 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(interleave(exchange->sent, exchange->rows, columns, X, ld, exchange->block));
  PetscCall(Fence_Exchange(exchange));
  PetscCall(RowType(columns, &row));
  PetscCall(BeginForward(exchange, exchange->packed, row, exchange->block, exchange->ghosts));
  PetscCallMPI(MPI_Type_free(&row));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ExchangeColumnsEnd(const Exchange *exchange, LocalInt columns, const PetscScalar *X)
{
  MPI_Datatype row;

  PetscFunctionBegin;
  if (columns == 1) PetscCall(ExchangeEnd(exchange, MPIU_SCALAR, X, exchange->ghosts));
  if (!exchange->sf || columns <= 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(RowType(columns, &row));
  PetscCall(EndForward(exchange, exchange->packed, row, exchange->block, exchange->ghosts));
  PetscCallMPI(MPI_Type_free(&row));
  PetscCall(Fence_Exchange(exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}
