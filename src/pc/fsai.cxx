/* The PETSc faces of the factored sparse approximate inverses share these parts of a set-up, an apply and a view. */
#include <petsc/private/pcimpl.h>

#include "finepcimpl.h"
#include "fsai_face.h"
#include "options.h"
#include "sparse/csr_mat.h"

/* ------------------------------------------- set-up ------------------------------------------- */

/*
   Whether the old pattern can stay: the user wants to keep it, the nonzeros of A are the same, and the factor of so many rows is in
   the right memory and precision.
*/
static PetscBool CanKeepPattern_FSAI(PC pc, PetscInt rows, PetscMemType where, PetscBool reuse_pattern, FinePCPrecision factor)
{
  const CSR *G = &((const PC_FSAI *)pc->data)->inverse.W1;

  return (PetscBool)(reuse_pattern && ((const PC_Local *)pc->data)->same_nonzeros && G->i && G->rows == rows && G->where == where &&
                     G->precision == factor);
}

static PetscErrorCode FreeTransposed(PC_FSAI *fsai)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(fsai->inverse.where, (void **)&fsai->transposed.send));
  PetscCall(ArrayDestroy(fsai->inverse.where, (void **)&fsai->transposed.place));
  fsai->transposed = FSAITransposed{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Frees the factor. */
static PetscErrorCode FreeFactor_FSAI(PC_FSAI *fsai)
{
  PetscFunctionBegin;
  PetscCall(ArrayDestroy(fsai->inverse.where, (void **)&fsai->marks));
  PetscCall(FreeTransposed(fsai));
  PetscCall(CSRDestroy(&fsai->whole));
  PetscCall(PCInverseReset(&fsai->inverse));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeRoom_FSAI(PC pc, const CSRView *A)
{
  PC_FSAI       *fsai = (PC_FSAI *)pc->data;
  PCInverse     *M    = &fsai->inverse;
  const LocalInt rows = A->n - PCFSAIFirst(fsai);

  PetscFunctionBegin;
  PetscCall(PCLocalPlace(pc, A->where, rows));
  PetscCall(FreeFactor_FSAI(fsai));
  M->where        = A->where;
  M->rows         = rows;
  M->operator_nnz = fsai->distributed ? fsai->halo.nnz : A->nnz;
  PetscCall(ArrayCreate(rows * sizeof(*M->d), M->where, (void **)&M->d));
  /* a rank that needs nothing of others may have to send, and has to know in which memory */
  for (PCInverseGhosts *ghosts : {&M->ghosts1, &M->ghosts2}) PetscCall(PCInverseSetColumns(M, ghosts, 0, nullptr));
  PetscCall(PCInverseNeedWork(M, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIPrepare(PC pc, const CSRView *A, PetscBool reuse_pattern, FinePCPrecision factor, CSR **W1)
{
  PC_FSAI   *fsai = (PC_FSAI *)pc->data;
  PCInverse *M    = &fsai->inverse;

  PetscFunctionBegin;
  fsai->reused = fsai->distributed ? (PetscBool)fsai->may_keep : CanKeepPattern_FSAI(pc, A->n, A->where, reuse_pattern, factor);
  if (!fsai->reused) PetscCall(MakeRoom_FSAI(pc, A));
  M->carry_bytes = fsai->carry.W.nnz ? CSRBytes(&fsai->carry.W) : 0;
  *W1            = PCFSAIFirst(fsai) ? &fsai->whole : &M->W1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIFits(PC pc, const CSRView *A, bool depends_on_values, bool *fits)
{
  PC_FSAI       *fsai  = (PC_FSAI *)pc->data;
  const LocalInt rows  = fsai->inverse.rows;
  const auto     marks = PetscMemTypeDevice(A->where) ? FSAIMarks_CUDA : FSAIMarks_Host;
  LocalInt       changed;

  PetscFunctionBegin;
  *fits         = true;
  fsai->follows = depends_on_values;
  if (!fsai->reused && !fsai->anew) fsai->changed = fsai->compared = 0;
  if (!depends_on_values || fsai->stats.failure) PetscFunctionReturn(PETSC_SUCCESS);
  if (!fsai->reused || !fsai->marks) {
    if (!fsai->marks) PetscCall(ArrayCreate((2 * (size_t)rows + 1) * sizeof(*fsai->marks), A->where, (void **)&fsai->marks));
    PetscCall(marks(A, PCFSAIFirst(fsai), fsai->inverse.d, fsai->marks, nullptr));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(marks(A, PCFSAIFirst(fsai), fsai->inverse.d, fsai->marks, &changed));
  fsai->changed  = changed;
  fsai->compared = rows;
  if (fsai->distributed) PetscFunctionReturn(PETSC_SUCCESS);
  *fits = !(fsai->anew = !FSAIPatternFits(changed, rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode DescribeFailure_FSAI(PC pc, const char type[], PCLocalOutcome *outcome)
{
  static const char *const texts[] = {"", "has an entry that is not finite", "has no diagonal entry",
                                      "has a diagonal entry that is not positive"};
  const PC_FSAI           *fsai    = (const PC_FSAI *)pc->data;
  const FSAIStats         *stats   = &fsai->stats;
  PetscInt                 begin;

  PetscFunctionBegin;
  outcome->reason   = stats->failure == FSAI_NOT_FINITE ? PC_FACTOR_OTHER : PC_FACTOR_NUMERIC_ZEROPIVOT;
  outcome->diagonal = stats->failure != FSAI_NOT_FINITE;
  PetscCall(MatGetOwnershipRange(pc->pmat, &begin, nullptr));
  const PetscInt row = fsai->distributed ? fsai->halo.Global(stats->failure_row) : begin + stats->failure_row;
  PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text), "Row %" PetscInt_FMT " %s: %s needs a symmetric definite matrix",
                          row, texts[stats->failure], type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Takes the foreign columns out of W1. A factor whose pattern is not kept is not needed as a whole any more.
*/
static PetscErrorCode Split_FSAI(PC_FSAI *fsai, PetscBool reuse_pattern)
{
  PCInverse *M     = &fsai->inverse;
  const auto split = PetscMemTypeDevice(M->where) ? HaloSplit_CUDA : HaloSplit_Host;

  PetscFunctionBegin;
  if (fsai->reused && !M->ghosts1.W.i) { /* the pattern that is kept has no foreign entries: see CompressGhosts() */
    const CSR   &whole = fsai->whole;
    const size_t bytes = whole.nnz * FinePCPrecisionBytes(whole.precision);
    PetscCall(ArrayCopy(M->W1.a, whole.a, bytes, M->where, M->where));
  } else PetscCall(split(&fsai->whole, PCFSAIFirst(fsai), fsai->reused, &M->W1, &M->ghosts1.W));
  if (!reuse_pattern) PetscCall(CSRDestroy(&fsai->whole));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIComplete(PC pc, const char type[], PetscBool reuse_pattern, PCLocalOutcome *outcome)
{
  PC_FSAI   *fsai = (PC_FSAI *)pc->data;
  PCInverse *M    = &fsai->inverse;

  PetscFunctionBegin;
  if (fsai->stats.failure) {
    PetscCall(FreeFactor_FSAI(fsai));
    PetscCall(DescribeFailure_FSAI(pc, type, outcome));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (PCFSAIFirst(fsai)) {
    PetscCall(Split_FSAI(fsai, reuse_pattern));
    fsai->stats.work_bytes += ((size_t)fsai->halo.foreign.nnz + fsai->halo.nnz) * (sizeof(LocalInt) + sizeof(PetscScalar));
  }
  if (fsai->diagonal.negative)
    PetscCall((PetscMemTypeDevice(M->where) ? ValuesNegate_CUDA : ValuesNegate_Host)((size_t)M->rows, M->d, M->d));
  PetscCall(PetscLogEventBegin(FinePC_Transpose, pc, 0, 0, 0));
  if (PetscMemTypeDevice(M->where)) PetscCall(CSRTranspose_CUDA(&M->W1, fsai->reused, &M->W2));
  else PetscCall(CSRTranspose_Host(&M->W1, fsai->reused, &M->W2));
  PetscCall(PetscLogEventEnd(FinePC_Transpose, pc, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCReset_FSAI(PC pc)
{
  PC_FSAI *fsai = (PC_FSAI *)pc->data;

  PetscFunctionBegin;
  PetscCall(PCReset_Local(pc));
  PetscCall(FreeFactor_FSAI(fsai));
  PetscCall(HaloReset(&fsai->halo));
  fsai->distributed = fsai->may_keep = false;
  fsai->limited                      = 0;
  fsai->stats                        = FSAIStats{};
  fsai->reused                       = PETSC_FALSE;
  fsai->follows = fsai->anew = false;
  PetscCall(MatFreePatternWork(&fsai->given));
  fsai->left_out = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---------------------------------- a factor on several ranks --------------------------------- */

/* The single entries of blocks are copied from the rank's diagonal block alone, so that a factor of them stays there. */
static PetscErrorCode HasBlocks(PC pc, PetscBool *blocks)
{
  PetscFunctionBegin;
  *blocks = PETSC_FALSE;
  if (pc->pmat) PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)pc->pmat, blocks, MATMPIBAIJ, MATMPISBAIJ, ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Other types than these have no rows to gather. */
static PetscErrorCode CheckType(Mat A)
{
  PetscBool is_aij;

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATMPIAIJ, &is_aij));
  if (!is_aij)
    PetscCall(
      MatRefuseType(A, "MATAIJ, MATBAIJ, MATSBAIJ and their subtypes such as MATAIJCUSPARSE", "use MatConvert() or -mat_type aij"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAIGather(PC pc, const FSAIReach *reach, PCLocalPhase *phase)
{
  PC_FSAI     *fsai = (PC_FSAI *)pc->data;
  PetscMPIInt  size;
  PetscInt     rows;
  PetscMemType where = PETSC_MEMTYPE_HOST;
  PetscBool    blocks;

  PetscFunctionBegin;
  PetscCall(PCFSAIFollowGiven(pc, phase));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPI_Comm_size(phase->comm, &size));
  PetscCall(HasBlocks(pc, &blocks));
  const bool distributed = size > 1 && reach->overlap > 0 && (reach->layers > 0 || reach->pattern) && !blocks,
             as_before   = distributed == fsai->distributed;
  fsai->anew             = false;
  fsai->columns_at_once  = distributed ? kInverseExchangedColumns : kInverseColumns;
  if (!distributed) {
    if (!as_before) PetscCall(PCReset_FSAI(pc));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  fsai->distributed = true;
  fsai->deepest     = reach->deepest;
  PetscCall(CheckType(pc->pmat));
  bool search = true;
  if (!phase->outcome->code) {
    PetscCall(MatGetLocalSize(pc->pmat, &rows, nullptr));
    PetscCall(MatGetValuesMemType(pc->pmat, &where));
    const PetscBool reuse = (PetscBool)(reach->reuse_pattern && fsai->given_stays);
    search = !as_before || !CanKeepPattern_FSAI(pc, rows, where, reuse, reach->factor) || (fsai->halo.First() && !fsai->whole.i) ||
             where != fsai->halo.where;
  }
  PetscCall(PCLocalPhaseStep(phase, PETSC_SUCCESS, &search));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  fsai->may_keep = !search;
  const HaloWish wish{pc->pmat, reach->overlap, reach->layers, reach->pattern, reach->setter, reach->type};
  const bool     keep_plan = as_before && fsai->same_nonzeros && where == fsai->halo.where && (!reach->pattern || !search);
  PetscCall(PetscLogEventBegin(FinePC_HaloGather, pc, pc->pmat, 0, 0));
  PetscCall(HaloGather(phase, &wish, keep_plan, &fsai->halo));
  PetscCall(PetscLogEventEnd(FinePC_HaloGather, pc, pc->pmat, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The gathered rows and the rank's own ones become one matrix. */
static PetscErrorCode Extend_FSAI(PC pc, const CSRView *own, CSR *L, LocalInt *first)
{
  const PC_FSAI *fsai     = (const PC_FSAI *)pc->data;
  const auto     assemble = PetscMemTypeDevice(own->where) ? HaloAssemble_CUDA : HaloAssemble_Host;

  PetscFunctionBegin;
  *first = PCFSAIFirst(fsai);
  if (*first)
    PetscCall(HaloCheckMemory(CallGuarded(assemble, own, (const CSR *)&fsai->halo.foreign, (const CSR *)&fsai->halo.ghosts, L),
                              HaloSizeOf(&fsai->halo)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The foreign columns of W1 that have entries become those of ghosts1, and each rank that may own such columns gets a list of its
   row and the row of the entry, for each entry, from which ghosts2 is made.
*/
static PetscErrorCode CompressGhosts(PC pc, const PetscInt ranges[], std::vector<HaloList> *lists)
{
  PC_FSAI              *fsai     = (PC_FSAI *)pc->data;
  PCInverseGhosts      *ghosts   = &fsai->inverse.ghosts1;
  const Halo           &halo     = fsai->halo;
  const bool            may_cut  = halo.layers && halo.layers < fsai->deepest;
  const auto            compress = PetscMemTypeDevice(fsai->inverse.where) ? HaloCompress_CUDA : HaloCompress_Host;
  Neighbours           &blocks   = fsai->transposed.blocks;
  HaloEntries           entries;
  std::vector<PetscInt> columns; /* their numbers in the matrix */

  PetscFunctionBegin;
  fsai->limited = 0;
  for (PetscMPIInt rank : halo.lower) lists->push_back({rank, {}});
  if (!ghosts->W.nnz) {
    PetscCall(CSRDestroy(&ghosts->W));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const PetscErrorCode code = CallGuarded(compress, &ghosts->W, (const PetscInt *)halo.numbers, halo.begin,
                                          may_cut ? (const char *)halo.cut : nullptr, &entries);
  fsai->limited             = entries.limited;
  fsai->transposed.send     = entries.order;
  ghosts->rows              = entries.rows;
  ghosts->touched           = entries.touched;
  PetscCall(code);
  for (LocalInt column : entries.columns) columns.push_back(halo.rows[column]);
  PetscCall(PCInverseSetColumns(&fsai->inverse, ghosts, (LocalInt)columns.size(), columns.data()));
  const std::vector<PetscInt> &numbers = entries.numbers;
  LocalInt                     at = 0, end = 0;
  for (HaloList &list : *lists) {
    for (at = end; end < ghosts->W.nnz && numbers[2 * (size_t)end] < ranges[list.rank + 1];) end++;
    if (end == at) continue;
    list.numbers.assign(numbers.begin() + 2 * (size_t)at, numbers.begin() + 2 * (size_t)end);
    blocks.to.push_back({list.rank, at, end});
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   ghosts2 from the entries of higher-numbered ranks: entry (i, j) of W1 is entry (j, i) of W2. The lists come by ascending ranks,
   and so by ascending i for each j.
*/
static PetscErrorCode TransposeGhosts(PC pc, const std::vector<HaloList> *lists)
{
  PC_FSAI              *fsai      = (PC_FSAI *)pc->data;
  PCInverse            *M         = &fsai->inverse;
  PCInverseGhosts      *ghosts    = &M->ghosts2;
  Neighbours           &blocks    = fsai->transposed.blocks;
  const auto            transpose = PetscMemTypeDevice(M->where) ? HaloTranspose_CUDA : HaloTranspose_Host;
  std::vector<PetscInt> numbers;
  HaloTransposed        transposed;
  LocalInt              count = 0;

  PetscFunctionBegin;
  for (const HaloList &list : *lists) {
    if (list.numbers.empty()) continue;
    const LocalInt begin = count;
    numbers.insert(numbers.end(), list.numbers.begin(), list.numbers.end());
    PetscCall(LocalIntCast((PetscInt64)numbers.size() / 2, "entries of the factor of other ranks", &count));
    blocks.from.push_back({list.rank, begin, count});
  }
  if (!count) PetscFunctionReturn(PETSC_SUCCESS);
  const PetscErrorCode code = CallGuarded(transpose, M->rows, fsai->halo.begin, count, (const PetscInt *)numbers.data(),
                                          M->W1.precision, &ghosts->W, &transposed);
  fsai->transposed.place    = transposed.place;
  ghosts->rows              = transposed.rows;
  ghosts->touched           = transposed.touched;
  PetscCall(code);
  PetscCall(PCInverseSetColumns(M, ghosts, (LocalInt)transposed.columns.size(), transposed.columns.data()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The patterns of both parts that reach other ranks, and their exchanges, if any rank has such parts. */
static PetscErrorCode ConnectPatterns(PC pc, PCLocalPhase *phase)
{
  PC_FSAI              *fsai = (PC_FSAI *)pc->data;
  PCInverse            *M    = &fsai->inverse;
  const PetscInt       *ranges;
  PetscLayout           layout;
  std::vector<HaloList> lists, received;

  PetscFunctionBegin;
  PetscCall(MatGetOwnershipRanges(pc->pmat, &ranges));
  PetscCall(MatGetLayouts(pc->pmat, &layout, nullptr));
  PetscErrorCode code = CallGuarded(CompressGhosts, pc, ranges, &lists);
  bool           any  = M->ghosts1.W.nnz > 0;
  PetscCall(HaloSendLists(phase, code, HaloSizeOf(&fsai->halo), &fsai->halo.higher, lists, &received, &any));
  if (phase->stopped || !any) PetscFunctionReturn(PETSC_SUCCESS);
  code = CallGuarded(TransposeGhosts, pc, (const std::vector<HaloList> *)&received); /* a copy would be outside the guard */
  PetscCall(PCLocalPhaseStep(phase, HaloCheckMemory(code, HaloSizeOf(&fsai->halo)), nullptr));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  PetscCall(PCInverseConnect(&M->ghosts1, phase->comm, layout));
  PetscCall(PCInverseConnect(&M->ghosts2, phase->comm, layout));
  phase->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PickSent(PC_FSAI *fsai, HaloMessage *message)
{
  const PCInverse *M    = &fsai->inverse;
  const auto       pick = PetscMemTypeDevice(M->where) ? HaloPick_CUDA : HaloPick_Host;
  const CSR       &W    = M->ghosts1.W;

  PetscFunctionBegin;
  PetscCall(HaloMessageCreate(fsai->transposed.blocks, M->W1.precision == FINEPC_SINGLE ? MPI_FLOAT : MPI_DOUBLE,
                              FinePCPrecisionBytes(M->W1.precision), message));
  PetscCall(pick(M->W1.precision, W.nnz, fsai->transposed.send, W.nnz, W.a, nullptr, message->send));
  PetscCall(message->delivery.Ready());
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PlaceReceived(PC_FSAI *fsai, HaloMessage *message)
{
  const PCInverse *M    = &fsai->inverse;
  const auto       pick = PetscMemTypeDevice(M->where) ? HaloPick_CUDA : HaloPick_Host;
  const CSR       &W    = M->ghosts2.W;

  PetscFunctionBegin;
  PetscCall(message->delivery.Take());
  PetscCall(pick(M->W1.precision, W.nnz, fsai->transposed.place, W.nnz, message->received, nullptr, W.a));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The values of ghosts2 come from the ranks that have them in ghosts1. An error in the delivery: see HaloMessage. */
static PetscErrorCode ConnectValues(PC_FSAI *fsai, PCLocalPhase *phase)
{
  HaloMessage    message{fsai->inverse.where};
  PetscErrorCode code = PETSC_SUCCESS;

  PetscFunctionBegin;
  PetscCall(PCLocalPhaseStep(phase, HaloCheckMemory(CallGuarded(PickSent, fsai, &message), HaloSizeOf(&fsai->halo)), nullptr));
  if (!phase->stopped) {
    PetscCall(HaloMessageDeliver(phase, &message));
    code = HaloCheckMemory(CallGuarded(PlaceReceived, fsai, &message), HaloSizeOf(&fsai->halo));
  }
  PetscCall(HaloMessageDestroy(&message));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the pattern that all ranks have kept fits. If it does not, each of them finds another one. */
static PetscErrorCode AgreeOnFit(PC pc, PCLocalPhase *phase)
{
  PC_FSAI   *fsai   = (PC_FSAI *)pc->data;
  PetscInt64 sum[2] = {fsai->changed, fsai->compared};

  PetscFunctionBegin;
  if (!fsai->reused || !fsai->follows) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sum, 2, MPIU_INT64, MPI_SUM, phase->comm));
  phase->outcome->exchanging = false;
  fsai->changed              = sum[0];
  fsai->compared             = sum[1];
  fsai->anew                 = !FSAIPatternFits(sum[0], sum[1]);
  if (!fsai->anew) PetscFunctionReturn(PETSC_SUCCESS);
  fsai->may_keep            = false;
  const PetscErrorCode code = CallGuarded(fsai->compute, pc, phase->outcome);
  PetscCall(PCLocalPhaseStep(phase, code, nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Connect_FSAI(PC pc, PCLocalPhase *phase)
{
  PC_FSAI *fsai = (PC_FSAI *)pc->data;

  PetscFunctionBegin;
  if (!fsai->distributed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(AgreeOnFit(pc, phase));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscLogEventBegin(FinePC_HaloConnect, pc, 0, 0, 0));
  if (!fsai->reused) PetscCall(ConnectPatterns(pc, phase));
  if (!phase->stopped && fsai->inverse.ghosts1.exchange.sf) PetscCall(ConnectValues(fsai, phase));
  PetscCall(PetscLogEventEnd(FinePC_HaloConnect, pc, 0, 0, 0));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- apply -------------------------------------------- */

/* The `reserve` of PC_Local. Where the factor reaches other ranks, they agree within, too. */
static PetscErrorCode Reserve_FSAI(PC pc, PetscBool, LocalInt columns)
{
  PetscFunctionBegin;
  PetscCall(PCInverseNeedWork(&((PC_FSAI *)pc->data)->inverse, columns));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAISetOperations(PC pc, PC_FSAI *fsai, PC_Local::Compute compute, PC_Local::Apply apply,
                                   PetscErrorCode (*gather)(PC, PCLocalPhase *))
{
  PetscFunctionBegin;
  fsai->columns_at_once = kInverseColumns;
  fsai->gather          = gather;
  fsai->extend          = Extend_FSAI;
  fsai->connect         = Connect_FSAI;
  fsai->reserve         = Reserve_FSAI;
  PetscCall(PCLocalSetOperations(pc, fsai, compute, apply));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- view, what is built ------------------------------------ */

PetscErrorCode PCViewBegin_FSAI(PC pc, PetscViewer viewer, PetscInt overlap, PetscInt layers, PetscBool given, PetscBool *is_ascii)
{
  PC_FSAI  *fsai = (PC_FSAI *)pc->data;
  PetscBool blocks;
  char      near[96] = "";

  PetscFunctionBegin;
  PetscCall(HasBlocks(pc, &blocks));
  fsai->reaches_others = overlap > 0 && (layers > 0 || given) && !blocks;
  PetscCall(PCViewBegin_Local(pc, viewer, is_ascii));
  if (*is_ascii && blocks && overlap > 0)
    PetscCall(PetscViewerASCIIPrintf(viewer, "reaches no other rank, since the matrix is one of blocks: for that use MATAIJ\n"));
  if (!*is_ascii || !fsai->reaches_others) PetscFunctionReturn(PETSC_SUCCESS);
  if (layers)
    PetscCall(PetscSNPrintf(near, sizeof(near), "%swithin %" PetscInt_FMT " coupling%s of %sthe border",
                            given ? ", and those " : "", layers, layers > 1 ? "s" : "", given ? "these or of " : ""));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "reaches lower-numbered ranks within %" PetscInt_FMT " hop%s, and of their rows those %s%s\n",
                                   overlap, overlap > 1 ? "s" : "", given ? "of the columns of the pattern" : "", near));
  PetscFunctionReturn(PETSC_SUCCESS);
}

size_t PCFSAIKeptBytes(const PC_FSAI *fsai)
{
  const size_t places = (size_t)fsai->inverse.ghosts1.W.nnz + fsai->inverse.ghosts2.W.nnz;
  return places * sizeof(LocalInt) + (fsai->whole.i ? CSRBytes(&fsai->whole) : 0);
}

/* What was gathered, and the part of G in columns of other ranks. */
static PetscErrorCode ViewHalo(PC pc, PetscViewer viewer)
{
  enum { FROM, TO, ROWS, BYTES, KEPT, OWN, FOREIGN, RECEIVED, LIMITED, NUMBERS };
  const PC_FSAI   *fsai   = (const PC_FSAI *)pc->data;
  const PCInverse *M      = &fsai->inverse;
  const MPI_Comm   comm   = PetscObjectComm((PetscObject)pc);
  PetscInt64       mine[] = {(PetscInt64)fsai->halo.blocks.from.size(),
                             (PetscInt64)fsai->halo.blocks.to.size(),
                             fsai->halo.First(),
                             (PetscInt64)HaloBytes(&fsai->halo),
                             (PetscInt64)PCFSAIKeptBytes(fsai),
                             (PetscInt64)M->W1.nnz + M->rows,
                             M->ghosts1.W.nnz,
                             (PetscInt64)M->ghosts1.exchange.count + M->ghosts2.exchange.count,
                             fsai->limited};
  PetscInt64       least[NUMBERS], most[NUMBERS], sum[NUMBERS];

  PetscFunctionBegin;
  static_assert(PETSC_STATIC_ARRAY_LENGTH(mine) == NUMBERS);
  PetscCallMPI(MPIU_Allreduce(mine, least, NUMBERS, MPIU_INT64, MPI_MIN, comm));
  PetscCallMPI(MPIU_Allreduce(mine, most, NUMBERS, MPIU_INT64, MPI_MAX, comm));
  PetscCallMPI(MPIU_Allreduce(mine, sum, NUMBERS, MPIU_INT64, MPI_SUM, comm));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "gathered rows of other ranks: %" PetscInt64_FMT " in all, from %" PetscInt64_FMT
                                   " to %" PetscInt64_FMT " a rank, in %" PetscInt64_FMT " to %" PetscInt64_FMT " bytes\n",
                                   sum[ROWS], least[ROWS], most[ROWS], least[BYTES], most[BYTES]));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "kept to take new values on the same nonzeros: %" PetscInt64_FMT " to %" PetscInt64_FMT
                                   " bytes a rank\n",
                                   least[KEPT], most[KEPT]));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "neighbours of a rank: it gathers rows of %" PetscInt64_FMT " to %" PetscInt64_FMT
                                   " ranks, and %" PetscInt64_FMT " to %" PetscInt64_FMT " ranks gather rows of its own\n",
                                   least[FROM], most[FROM], least[TO], most[TO]));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "G: %" PetscInt64_FMT " of its nonzeros are in columns of other ranks, from %" PetscInt64_FMT
                                   " to %" PetscInt64_FMT " a rank, beside %" PetscInt64_FMT " to %" PetscInt64_FMT
                                   " in a rank's own columns; an application receives at most %" PetscInt64_FMT " numbers a rank\n",
                                   sum[FOREIGN], least[FOREIGN], most[FOREIGN], least[OWN], most[OWN], most[RECEIVED]));
  PetscCall(
    PetscViewerASCIIPrintf(viewer, "rows of G that the limit of couplings may have cut: %" PetscInt64_FMT "\n", sum[LIMITED]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How many rows have changed since the pattern was found, if that may matter, and what follows. */
static PetscErrorCode ViewFit(PC pc, PetscViewer viewer)
{
  const PC_FSAI *fsai    = (const PC_FSAI *)pc->data;
  PetscInt64     mine[3] = {fsai->changed, fsai->compared, fsai->anew}, sum[3];
  const bool     shared  = fsai->distributed;

  PetscFunctionBegin;
  PetscCallMPI(MPIU_Allreduce(mine, sum, 3, MPIU_INT64, MPI_SUM, PetscObjectComm((PetscObject)pc)));
  if (!fsai->follows || !sum[1]) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "rows that have changed since the pattern was found: %" PetscInt64_FMT " of %" PetscInt64_FMT
                                   "; beyond a share of %g it is found anew%s\n",
                                   shared ? mine[0] : sum[0], shared ? mine[1] : sum[1], (double)kFSAIChangedRows,
                                   sum[2] ? ", as in this set-up" : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What of a given pattern belongs to ranks that the factor does not reach. */
static PetscErrorCode ViewLeftOut(PC pc, PetscViewer viewer)
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)pc);
  PetscInt64     left_out;
  PetscMPIInt    size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  if (size == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPIU_Allreduce(&((const PC_FSAI *)pc->data)->left_out, &left_out, 1, MPIU_INT64, MPI_SUM, comm));
  PetscCall(
    PetscViewerASCIIPrintf(viewer,
                           "entries of the given pattern in columns of lower-numbered ranks that are not reached, left out: "
                           "%" PetscInt64_FMT "\n",
                           left_out));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCView_FSAI(PC pc, PetscViewer viewer)
{
  const PC_FSAI   *fsai  = (const PC_FSAI *)pc->data;
  const FSAIStats *stats = &fsai->stats;
  const PCInverse *M     = &fsai->inverse;
  MPI_Comm         comm  = PetscObjectComm((PetscObject)pc);

  PetscFunctionBegin;
  if (pc->setupcalled && pc->failedreason) PetscCall(PCViewFailure_Local(pc, viewer));
  else if (pc->setupcalled) {
    PetscInt64 count[5] = {stats->double_rows, stats->diagonal_rows, stats->large_rows, M->rows, M->W1.nnz + M->ghosts1.W.nnz},
               sum[5];
    PetscReal  logs[2] = {stats->log_psi_before * M->rows, stats->log_psi_after * M->rows}, log_sum[2];
    PetscInt64 max[2]  = {stats->max_row, (PetscInt64)stats->work_bytes}, most[2];

    PetscCallMPI(MPIU_Allreduce(count, sum, 5, MPIU_INT64, MPI_SUM, comm));
    PetscCallMPI(MPIU_Allreduce(logs, log_sum, 2, MPIU_REAL, MPIU_SUM, comm));
    PetscCallMPI(MPIU_Allreduce(max, most, 2, MPIU_INT64, MPI_MAX, comm));
    const PetscReal rows = (PetscReal)PetscMax(sum[3], 1);
    PetscCall(PCInverseView(M, comm, viewer));
    if (fsai->distributed) PetscCall(ViewHalo(pc, viewer));
    if (fsai->pattern) PetscCall(ViewLeftOut(pc, viewer));
    PetscCall(ViewFit(pc, viewer));
    PetscCall(PetscViewerASCIIPrintf(viewer, "row size: mean %g, max %" PetscInt64_FMT "\n",
                                     (double)((PetscReal)(sum[4] + sum[3]) / rows), most[0]));
    PetscCall(PetscViewerASCIIPrintf(
      viewer, "Kaporin number times det(A)^(1/n): %g with the diagonal alone, %g with G; ratio %g, the smaller the better\n",
      (double)PetscExpReal(log_sum[0] / rows), (double)PetscExpReal(log_sum[1] / rows),
      (double)PetscExpReal((log_sum[1] - log_sum[0]) / rows)));
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "rows solved again in double precision %" PetscInt64_FMT
                                     ", left with the diagonal entry alone %" PetscInt64_FMT
                                     ", too long for the fastest way to solve them %" PetscInt64_FMT "\n",
                                     sum[0], sum[1], sum[2]));
    if (sum[1])
      PetscCall(PetscViewerASCIIPrintf(
        viewer, "rows with the diagonal entry alone: the matrix is not positive definite there, or hardly, and CG may fail\n"));
    if (sum[2])
      PetscCall(PetscViewerASCIIPrintf(viewer,
                                       "long rows make the set-up slower: fewer steps, a lower power, a cap or a filter makes "
                                       "them shorter\n"));
    PetscCall(PCViewSymmetry_Local(pc, viewer));
    PetscCall(PetscViewerASCIIPrintf(viewer, "set-up memory beyond A, G and its transpose: %g bytes\n", (double)most[1]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetFactors(PC pc, Mat *G, Mat *Gt)
{
  PCInverse *M = &((PC_FSAI *)pc->data)->inverse;
  Mat        factor;

  PetscFunctionBegin;
  PetscCheck(pc->setupcalled && !pc->failedreason, PetscObjectComm((PetscObject)pc), PETSC_ERR_ORDER,
             "The factor exists after a PCSetUp() that did not fail");
  PetscCall(PCLocalCheckFactorHere(pc));
  PetscCall(MatCreateFromFactor(PetscObjectComm((PetscObject)pc), &M->W1, &M->ghosts1.W, M->ghosts1.columns, M->d, &factor));
  if (Gt) PetscCall(MatTranspose(factor, MAT_INITIAL_MATRIX, Gt));
  if (G) *G = factor;
  else PetscCall(MatDestroy(&factor));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetInverse_FSAI(PC pc, PCInverse **inverse)
{
  PetscFunctionBegin;
  *inverse = &((PC_FSAI *)pc->data)->inverse;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCFSAICompose(PC pc, const char get_factors[], const char set_pattern[], PetscBool compose)
{
  PetscFunctionBegin;
  if (!compose) PetscCall(MatDestroy(&((PC_FSAI *)pc->data)->pattern));
  PetscCall(
    ComposeMethods(pc, set_pattern, compose ? Entry<PCFSAISetPattern> : nullptr, compose ? Entry<PCFSAIGetPattern> : nullptr));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, get_factors, compose ? Entry<GetFactors> : nullptr));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, kInverseQuery, compose ? Entry<GetInverse_FSAI> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}
