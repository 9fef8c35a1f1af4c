/* What PCCMATCH does for systems with several unknowns at each point: where the modes come from, the set-up, and the view. */
#include <petsc/private/pcimpl.h>

#include <algorithm>
#include <cmath>

#include "cmatch_uneven.h"
#include "entry.h"
#include "finepcimpl.h"
#include "sparse/memory.h"

/* -------------------------------------- whether there are nodes ------------------------------- */

/*
   The block size, the largest one of nodes of different sizes, and why a hierarchy is one of rows nevertheless, as far as all ranks
   know. `together`: it is one of all ranks.
*/
static PetscErrorCode GetBlockSize(PC pc, bool together, PetscInt *bs)
{
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;

  PetscFunctionBegin;
  *bs              = cmatch->block_size;
  cmatch->why_rows = nullptr;
  cmatch->sizes.clear();
  if (!*bs) {
    PetscCall(MatGetBlockSize(pc->pmat, bs));
    if (*bs == 1) PetscCall(PCCMATCHChooseSizes(pc, together, bs));
  }
  if (*bs == 1) PetscFunctionReturn(PETSC_SUCCESS);
  if (*bs > kCMATCHMostUnknowns) cmatch->why_rows = "nodes have at most 6 unknowns";
  else if (!CMATCHNodesPossible(cmatch->params)) cmatch->why_rows = "nodes have a dense coarsest level";
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHChooseNodes(PC pc, const CSRView *A, LocalInt *k)
{
  const PC_CMATCH *cmatch = (const PC_CMATCH *)pc->data;
  PetscInt         bs;

  PetscFunctionBegin;
  PetscCall(GetBlockSize(pc, false, &bs));
  PetscCheck(!cmatch->sizes.empty() || A->n % bs == 0, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "-pc_cmatch_block_size is %" PetscInt_FMT ", which does not divide the %" LocalInt_FMT " rows of this rank", bs, A->n);
  *k = bs == 1 || cmatch->why_rows ? 0 : (LocalInt)bs;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The sums of the coordinates of own nodes, and how many there are. */
static std::array<double, 4> SumCoordinates(const PC_CMATCH *cmatch)
{
  const size_t          dim = (size_t)cmatch->dimension, nodes = dim ? cmatch->coordinates.size() / dim : 0;
  std::array<double, 4> sums{0, 0, 0, (double)nodes};

  for (size_t i = 0; i < nodes; i++)
    for (size_t d = 0; d < dim; d++) sums[d] += cmatch->coordinates[i * dim + d];
  return sums;
}

PetscErrorCode PCCMATCHChooseNodesTogether(PC pc, PCLocalPhase *phase, LocalInt rows, CMATCHNodesChoice *choice)
{
  enum { UNEVEN, SUMS, COUNTS = SUMS + 4 };
  PC_CMATCH *cmatch      = (PC_CMATCH *)pc->data;
  double     all[COUNTS] = {};
  PetscInt   bs;

  PetscFunctionBegin;
  PetscCall(GetBlockSize(pc, true, &bs));
  if (bs == 1 || cmatch->why_rows) PetscFunctionReturn(PETSC_SUCCESS);
  const std::array<double, 4> sums = SumCoordinates(cmatch);
  all[UNEVEN]                      = rows % bs != 0;
  std::copy(sums.begin(), sums.end(), all + SUMS);
  phase->outcome->exchanging = true;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, all, COUNTS, MPI_DOUBLE, MPI_SUM, phase->comm));
  phase->outcome->exchanging = false;
  if (all[UNEVEN] > 0) cmatch->why_rows = "ranks have parts of nodes";
  else choice->k = (LocalInt)bs;
  std::copy(all + SUMS, all + COUNTS, choice->coordinates.begin());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------------- modes ------------------------------------------- */

/* PCSetCoordinates() */
PetscErrorCode PCSetCoordinates_CMATCH(PC pc, PetscInt dim, PetscInt nodes, PetscReal coordinates[])
{
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;

  PetscFunctionBegin;
  PetscCheck(dim >= 1 && dim <= 3 && nodes >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_OUTOFRANGE,
             "Coordinates of %" PetscInt_FMT " nodes in %" PetscInt_FMT " dimensions", nodes, dim);
  cmatch->coordinates.assign(coordinates, coordinates + (size_t)dim * nodes);
  cmatch->dimension = dim;
  cmatch->kept_modes.reset();
  cmatch->consolidated.shared = false;
  pc->failedreason            = PC_NOERROR;
  pc->setupcalled             = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Puts the coordinates of this rank's nodes where the leader reads them. */
static PetscErrorCode PutCoordinates(const PC_CMATCH *cmatch, const MatGroup *g)
{
  PetscFunctionBegin;
  PetscCheck((PetscInt)cmatch->coordinates.size() == g->n, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "PCSetCoordinates() was given %" PetscInt_FMT " nodes on this rank, but the matrix has %" PetscInt_FMT " rows",
             (PetscInt)cmatch->coordinates.size() / PetscMax(cmatch->dimension, 1), g->n);
  PetscCall(PetscArraycpy(g->b + g->first, cmatch->coordinates.data(), g->n));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether a set-up of all rows would use coordinates, as GetModes() does; the same on all ranks. */
static PetscErrorCode UsesCoordinates(PC pc, const MatGroup *g, PetscInt *dimension, bool *uses)
{
  const PC_CMATCH *cmatch = (const PC_CMATCH *)pc->data;
  MatNullSpace     near_null_space;
  PetscBool        constants = PETSC_FALSE;
  PetscInt         bs, count = 0;

  PetscFunctionBegin;
  PetscCall(GetBlockSize(pc, true, &bs));
  PetscCall(MatGetNearNullSpace(pc->pmat, &near_null_space));
  if (near_null_space) PetscCall(MatNullSpaceGetVecs(near_null_space, &constants, &count, nullptr));
  PetscInt all[2] = {cmatch->dimension, g->n % PetscMax(bs, 1) != 0};
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, all, 2, MPIU_INT, MPI_MAX, PetscObjectComm((PetscObject)pc)));
  *dimension = all[0];
  *uses      = !all[1] && !cmatch->why_rows && all[0] == bs && bs >= 2 && bs <= 3 && count + constants < 2;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHShareCoordinates(PC pc, MatGroup *g, PC of_leader)
{
  const MPI_Comm   comm   = PetscObjectComm((PetscObject)pc);
  const PC_CMATCH *cmatch = (const PC_CMATCH *)pc->data;
  PetscErrorCode   code   = PETSC_SUCCESS;
  PetscInt         dimension;
  bool             uses;

  PetscFunctionBegin;
  PetscCall(UsesCoordinates(pc, g, &dimension, &uses));
  if (uses) PetscCall(AgreeOnError(comm, PutCoordinates(cmatch, g), "bring the coordinates of its nodes"));
  PetscCall(RankGroupMeet(&g->group));
  if (g->group.Leads()) { /* without coordinates it forgets those of an earlier set-up */
    const PetscInt nodes = uses ? g->all / dimension : 0;
    if (uses || ((const PC_CMATCH *)of_leader->data)->dimension)
      code = PCSetCoordinates(of_leader, PetscMax(dimension, 1), nodes, g->b);
  }
  PetscCall(RankGroupMeet(&g->group));
  PetscCall(AgreeOnError(comm, code, "bring the coordinates of its nodes"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The modes of the rank's rows, row by row in the memory of the matrix, with what the twins take. They stay until the vectors of
   which they were made are others or have changed, since it takes long to send these to a GPU.
*/
class CMATCHKeptModes {
public:
  /* The vectors of which modes are made, by what tells them from others, and the size of the result */
  struct Source {
    LocalInt                                                rows, k;
    PetscMemType                                            where;
    PetscBool                                               constants;
    std::vector<std::pair<PetscObjectId, PetscObjectState>> vectors;

    bool operator==(const Source &other) const
    {
      return rows == other.rows && k == other.k && where == other.where && constants == other.constants && vectors == other.vectors;
    }
  };

  explicit CMATCHKeptModes(const Source &source, const CMATCHUnevenNodes *uneven = nullptr) :
      view{source.k, 0, nullptr}, source_(source), where_(source.where)
  {
    view.coming  = &coming_;
    view.row     = uneven ? uneven->map : nullptr;
    coming_.rows = uneven ? uneven->rows : source.rows;
  }
  CMATCHKeptModes(const CMATCHKeptModes &)            = delete;
  CMATCHKeptModes &operator=(const CMATCHKeptModes &) = delete;
  ~CMATCHKeptModes()
  {
    PetscCallAbort(PETSC_COMM_SELF, Await());
    PetscCallAbort(PETSC_COMM_SELF, ArrayDestroy(where_, &B_));
  }

  LocalInt       rows() const { return source_.rows; }
  LocalInt       given() const { return coming_.rows; } /* those of the user's vectors */
  const Source  &source() const { return source_; }
  size_t         bytes() const { return (size_t)rows() * view.m * sizeof(double); }
  PetscErrorCode Begin(LocalInt m)
  {
    PetscFunctionBegin;
    PetscCall(ArrayCreate((size_t)rows() * m * sizeof(double), where_, &B_));
    view.m = m;
    view.B = (const double *)B_;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* All modes, row by row on the host */
  PetscErrorCode PutAll(const std::vector<double> &B)
  {
    PetscFunctionBegin;
    PetscCall(ArrayCopy(B_, B.data(), B.size() * sizeof(double), where_, PETSC_MEMTYPE_HOST));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* Mode c from an array in some memory, or without one 1 in each row, or, with `unknown`, in the rows of this unknown. */
  PetscErrorCode Put(LocalInt c, const PetscScalar *from, PetscMemType memory, LocalInt unknown = -1)
  {
    void *copy = nullptr;

    PetscFunctionBegin;
    if (!PetscMemTypeDevice(where_) && !(from && PetscMemTypeDevice(memory))) {
      for (LocalInt row = 0; row < rows(); row++) {
        const LocalInt of                        = view.row ? view.row[row] : row;
        const bool     one                       = unknown < 0 || row % view.k == unknown;
        ((double *)B_)[(size_t)row * view.m + c] = of < 0 ? 0 : from ? PetscRealPart(from[of]) : one;
      }
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (from && PetscMemTypeDevice(where_) && !PetscMemTypeDevice(memory)) {
      sent_mode_[sent_]   = c;
      sent_from_[sent_++] = from;
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (from && !PetscMemTypeDevice(where_)) {
      const size_t of_mode = given() * sizeof(PetscScalar);
      PetscCall(ArrayCreate(of_mode, where_, &copy));
      PetscErrorCode code = ArrayCopy(copy, from, of_mode, where_, memory);
      if (!code) code = Put(c, (const PetscScalar *)copy, where_);
      PetscCall(ArrayDestroy(where_, &copy));
      PetscCall(code);
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    PetscCall(CMATCHPutMode_CUDA(rows(), &view, c, from, unknown, (double *)B_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Sends what Put() was given on the host to the GPU; until Await() the arrays may not change. */
  PetscErrorCode Send()
  {
    PetscFunctionBegin;
    if (sent_) PetscCall(CMATCHSendModes_CUDA(rows(), &view, sent_, sent_mode_, sent_from_, (double *)B_));
    sent_ = 0;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscErrorCode Await()
  {
    PetscFunctionBegin;
    if (coming_.arrived) PetscCall(CMATCHAwaitModes_CUDA(rows(), &view, (double *)B_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  CMATCHModes view;

private:
  const Source       source_;
  const PetscMemType where_;
  void              *B_ = nullptr;

  CMATCHComingModes  coming_;
  int                sent_ = 0; /* modes that Send() sends */
  LocalInt           sent_mode_[kCMATCHMostModes];
  const PetscScalar *sent_from_[kCMATCHMostModes];
};

/*
   The vectors of a null space, with the constants if it has them; nothing if that are fewer than two. More than kCMATCHMostModes
   are not used.
*/
static PetscErrorCode TakeNullSpace(MatNullSpace space, CMATCHKeptModes *modes)
{
  PetscBool  constants;
  PetscInt   count;
  const Vec *vectors;

  PetscFunctionBegin;
  if (!space) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatNullSpaceGetVecs(space, &constants, &count, &vectors));
  const PetscInt all = PetscMin(count + (constants ? 1 : 0), (PetscInt)kCMATCHMostModes);
  if (all < 2) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(modes->Begin((LocalInt)all));
  for (LocalInt c = 0; c < all; c++) {
    const PetscInt     from = c - (constants ? 1 : 0);
    const PetscScalar *array;
    PetscMemType       memory;
    PetscInt           n;
    if (from < 0) {
      PetscCall(modes->Put(c, nullptr, PETSC_MEMTYPE_HOST));
      continue;
    }
    PetscCall(VecGetLocalSize(vectors[from], &n));
    PetscCheck(n == modes->given(), PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
               "A vector of the near null space has %" PetscInt_FMT " entries on this rank, but the matrix has %" LocalInt_FMT
               " rows: both must have the same layout",
               n, modes->given());
    PetscCall(VecGetArrayReadAndMemType(vectors[from], &array, &memory));
    const PetscErrorCode code = modes->Put(c, array, memory);
    PetscCall(VecRestoreArrayReadAndMemType(vectors[from], &array));
    PetscCall(code);
  }
  PetscCall(modes->Send());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rigid body modes of nodes at these coordinates, which count from their mean; `sums` are those of all nodes. */
static PetscErrorCode TakeCoordinates(const PC_CMATCH *cmatch, const std::array<double, 4> &sums, CMATCHKeptModes *modes)
{
  const LocalInt      k = modes->view.k, dim = (LocalInt)cmatch->dimension, nodes = modes->rows() / k, m = dim == 2 ? 3 : 6;
  std::vector<double> x  = cmatch->coordinates, B;
  const auto          at = [&](LocalInt i, LocalInt r, LocalInt c) -> double          &{ return B[((size_t)i * k + r) * m + c]; };

  PetscFunctionBegin;
  if (!(sums[3] > 0) || k != dim || k < 2 || k > 3) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(x.size() == (size_t)nodes * dim, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "PCSetCoordinates() was given %" PetscInt_FMT " nodes on this rank, but the matrix has %" LocalInt_FMT,
             (PetscInt)x.size() / dim, nodes);
  for (LocalInt i = 0; i < nodes; i++)
    for (LocalInt d = 0; d < dim; d++) x[(size_t)i * dim + d] -= sums[d] / sums[3];
  PetscCall(modes->Begin(m));
  B.assign((size_t)nodes * k * m, 0.);
  for (LocalInt i = 0; i < nodes; i++) {
    const double *const place = &x[(size_t)i * dim];
    for (LocalInt r = 0; r < k; r++) at(i, r, r) = 1;
    if (dim == 2) {
      at(i, 0, 2) = -place[1];
      at(i, 1, 2) = place[0];
      continue;
    }
    for (LocalInt c = 0; c < 3; c++) { /* the rotation about axis c */
      const LocalInt a = (c + 1) % 3, b = (c + 2) % 3;
      at(i, a, 3 + c) = -place[b];
      at(i, b, 3 + c) = place[a];
    }
  }
  PetscCall(modes->PutAll(B));
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct Spaces {
  MatNullSpace near_null_space, null_space;
};
static PetscErrorCode GetSpaces(PC pc, Spaces *spaces)
{
  PetscFunctionBegin;
  PetscCall(MatGetNearNullSpace(pc->pmat, &spaces->near_null_space));
  if (!spaces->near_null_space) PetscCall(MatGetNearNullSpace(pc->mat, &spaces->near_null_space));
  PetscCall(MatGetNullSpace(pc->pmat, &spaces->null_space));
  if (!spaces->null_space) PetscCall(MatGetNullSpace(pc->mat, &spaces->null_space));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The near null space comes first, then coordinates, then the null space, and else each unknown has its constants. Of nodes of
   different sizes one does not know which unknowns they have, so that coordinates say nothing.
*/
static PetscErrorCode GetModes(PC pc, const Spaces &spaces, const std::array<double, 4> &sums, CMATCHKeptModes *modes)
{
  PC_CMATCH     *cmatch = (PC_CMATCH *)pc->data;
  const LocalInt k      = modes->view.k;

  PetscFunctionBegin;
  cmatch->modes = "the near null space";
  PetscCall(TakeNullSpace(spaces.near_null_space, modes));
  if (!modes->view.m && !modes->view.row) {
    cmatch->modes = "rigid body modes of the coordinates";
    PetscCall(TakeCoordinates(cmatch, sums, modes));
  }
  if (!modes->view.m) {
    cmatch->modes = "the null space";
    PetscCall(TakeNullSpace(spaces.null_space, modes));
  }
  if (!modes->view.m) {
    cmatch->modes = nullptr;
    PetscCall(modes->Begin(k));
    for (LocalInt c = 0; c < k; c++) PetscCall(modes->Put(c, nullptr, PETSC_MEMTYPE_HOST, c));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- set-up ------------------------------------------- */

/* Whether aggregates and patterns can stay, of a hierarchy of all ranks or of one. */
static bool CanKeepNodes(const PC_CMATCH *cmatch, bool global, const CSRView *A, const CMATCHModes &modes)
{
  const CMATCHHierarchy *H = cmatch->hierarchy;

  return cmatch->reuse_pattern && cmatch->same_nonzeros && H && cmatch->complete && cmatch->has_work && H->where == A->where &&
         H->level[0].n == A->n && H->row == modes.row && H->nodes && H->nodes->level[0].k == modes.k && H->nodes->m == modes.m &&
         !cmatch->ranks == !global;
}

/* What is known of w, of which nodes have none. */
static void ForgetNearNull(PC_CMATCH *cmatch)
{
  cmatch->params.singular = PETSC_FALSE;
  cmatch->params.zero     = 1;
  cmatch->params.negative = (PetscBool)cmatch->diagonal.negative;
  cmatch->near_null       = NearNull::CONSTANTS;
}

PetscErrorCode PCCMATCHTakeModes(PC pc, const CSRView *A, const CMATCHNodesChoice &choice, LocalInt ghosts, CMATCHRanksModes *to,
                                 PetscBool *keep)
{
  PC_CMATCH      *cmatch = (PC_CMATCH *)pc->data;
  const LocalInt  k = choice.k, rows = A->n, with_ghosts = rows + ghosts * k;
  CMATCHKeptModes modes({rows, k, A->where, PETSC_FALSE, {}});
  Spaces          spaces;

  PetscFunctionBegin;
  ForgetNearNull(cmatch);
  PetscCall(GetSpaces(pc, &spaces));
  PetscCall(GetModes(pc, spaces, choice.coordinates, &modes));
  PetscCall(modes.Await());
  *keep          = (PetscBool)CanKeepNodes(cmatch, true, A, modes.view);
  const size_t m = (size_t)modes.view.m;
  to->m          = modes.view.m;
  PetscCall(to->B.Assign(A->where, with_ghosts * m, modes.view.B, rows * m));
  PetscCall(to->diagonal.Assign(A->where, with_ghosts, nullptr, 0));
  double *const B = to->B.data(), *const diagonal = to->diagonal.data();
  if (PetscMemTypeDevice(A->where)) {
    PetscCall(CMATCHTakeModes_CUDA(A, to->m, B, diagonal, to->largest));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (LocalInt row = 0; row < rows; row++) {
    diagonal[row] = 0;
    for (LocalInt e = A->i[row]; e < A->i[row + 1]; e++)
      if (A->j[e] == row) diagonal[row] = A->a[e];
  }
  for (size_t e = 0; e < rows * m; e++)
    if (std::isfinite(B[e])) to->largest[e % m] = PetscMax(to->largest[e % m], std::fabs(B[e]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* As FindMisfits() of rows, but for the finest level alone. */
PetscErrorCode PCCMATCHFindMisfitsOfNodes(PC_CMATCH *cmatch, PCLocalPhase *together, bool *fits)
{
  enum { NODES, AGGREGATES, LOOSE, PIECES, LEFT, COUNTS };
  const CMATCHNodes      *N           = cmatch->hierarchy->nodes;
  const CMATCHNodesLevel &level       = N->level[0];
  PetscInt64              sum[COUNTS] = {level.n, level.coarse, (PetscInt64)N->fit.loose - N->first_fit.loose,
                                         (PetscInt64)N->fit.pieces - N->first_fit.pieces, N->coupled};

  PetscFunctionBegin;
  if (together) {
    together->outcome->exchanging = true;
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sum, COUNTS, MPIU_INT64, MPI_SUM, together->comm));
    together->outcome->exchanging = false;
  }
  const CMATCHMisfit loose  = {0, CMATCH_LOOSE, PetscMax(sum[LOOSE], 0), sum[NODES], kCMATCHMisfits};
  const CMATCHMisfit pieces = {0, CMATCH_PIECES, PetscMax(sum[PIECES], 0), sum[AGGREGATES], kCMATCHMisfits};
  cmatch->misfit = (PetscReal)loose.count * (PetscReal)pieces.of > (PetscReal)pieces.count * (PetscReal)loose.of ? loose : pieces;
  if (sum[LEFT]) cmatch->misfit = {0, CMATCH_LEFT, sum[LEFT], sum[NODES], 0};
  *fits = !sum[LEFT] && (cmatch->misfit.count <= kCMATCHFewMisfits ||
                         (PetscReal)cmatch->misfit.count <= kCMATCHMisfits * (PetscReal)cmatch->misfit.of);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ComputeNodes(PC pc, const CSRView *A, const CMATCHModes *modes)
{
  PC_CMATCH *cmatch  = (PC_CMATCH *)pc->data;
  const auto compute = PetscMemTypeDevice(A->where) ? CMATCHNodesCompute_CUDA : CMATCHNodesCompute_Host;

  PetscFunctionBegin;
  ForgetNearNull(cmatch);
  cmatch->reused   = CanKeepNodes(cmatch, false, A, *modes);
  cmatch->anew     = false;
  cmatch->misfit   = CMATCHMisfit{};
  cmatch->complete = false;
  cmatch->has_work = cmatch->reuse_pattern;
  PetscErrorCode code =
    compute(A, modes, &cmatch->params, (PetscBool)cmatch->reused, cmatch->reuse_pattern, &cmatch->hierarchy, &cmatch->stats);
  if (!code && cmatch->reused) {
    /* the patterns of other values may not do: a coarse operator has failed, or aggregates do not fit */
    bool fits = true;
    if (!cmatch->stats.failure && cmatch->hierarchy->levels > 1) PetscCall(PCCMATCHFindMisfitsOfNodes(cmatch, nullptr, &fits));
    cmatch->anew = !fits;
    if (cmatch->anew || cmatch->stats.failure == CMATCH_COARSEST ||
        (cmatch->stats.failure == CMATCH_BLOCK_NOT_POSITIVE && cmatch->stats.level)) {
      cmatch->reused = false;
      code           = compute(A, modes, &cmatch->params, PETSC_FALSE, cmatch->reuse_pattern, &cmatch->hierarchy, &cmatch->stats);
    }
  }
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The vectors that GetModes() would take from a null space */
static PetscErrorCode AddSource(MatNullSpace space, CMATCHKeptModes::Source *source)
{
  PetscInt         count;
  const Vec       *vectors;
  PetscObjectId    id;
  PetscObjectState state;

  PetscFunctionBegin;
  if (!space) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatNullSpaceGetVecs(space, &source->constants, &count, &vectors));
  for (PetscInt c = 0; c < count; c++) {
    PetscCall(PetscObjectGetId((PetscObject)vectors[c], &id));
    PetscCall(PetscObjectStateGet((PetscObject)vectors[c], &state));
    source->vectors.emplace_back(id, state);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The modes as they are now, those of the last set-up if they are the same. */
static PetscErrorCode UpdateModes(PC pc, const CSRView *A, LocalInt k)
{
  PC_CMATCH              *cmatch = (PC_CMATCH *)pc->data;
  CMATCHKeptModes::Source source{A->n, k, A->where, PETSC_FALSE, {}};
  Spaces                  spaces;

  PetscFunctionBegin;
  PetscCall(GetSpaces(pc, &spaces));
  PetscCall(AddSource(spaces.null_space, &source));
  source.vectors.emplace_back(0, source.constants);
  PetscCall(AddSource(spaces.near_null_space, &source));
  if (cmatch->kept_modes && cmatch->kept_modes->source() == source) PetscFunctionReturn(PETSC_SUCCESS);
  cmatch->kept_modes.reset();
  std::shared_ptr<CMATCHKeptModes> modes = std::make_shared<CMATCHKeptModes>(source, cmatch->uneven.get());
  PetscCall(GetModes(pc, spaces, SumCoordinates(cmatch), modes.get()));
  cmatch->kept_modes = modes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ComputeWithModes(PC pc, const CSRView *A, LocalInt k)
{
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;

  PetscFunctionBegin;
  PetscCall(UpdateModes(pc, A, k));
  PetscErrorCode code = PetscLogEventBegin(FinePC_CMATCHHierarchy, pc, pc->pmat, 0, 0);
  if (!code) code = CallGuarded(ComputeNodes, pc, A, (const CMATCHModes *)&cmatch->kept_modes->view);
  const PetscErrorCode arrived = cmatch->kept_modes->Await(); /* the program may change its vectors from now on */
  if (code || arrived) cmatch->kept_modes.reset();            /* which may not be complete */
  PetscCall(code);
  PetscCall(arrived);
  PetscCall(PetscLogEventEnd(FinePC_CMATCHHierarchy, pc, pc->pmat, 0, 0));
  cmatch->modes_bytes = cmatch->kept_modes->bytes();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHComputeNodes(PC pc, const CSRView *A, LocalInt k)
{
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;
  CSR        padded{};

  PetscFunctionBegin;
  if (cmatch->sizes.empty()) {
    PetscCall(PCCMATCHFreeSizes(cmatch));
    PetscCall(ComputeWithModes(pc, A, k));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscErrorCode code = CallGuarded(PCCMATCHPad, cmatch, A, k, &padded);
  if (!code) {
    const CSRView view{padded.rows, padded.nnz, padded.i, padded.j, (const PetscScalar *)padded.a, padded.where};
    code = ComputeWithModes(pc, &view, k);
  }
  if (!code) cmatch->stats.work_bytes += CSRBytes(&padded);
  if (!code) cmatch->modes_bytes += cmatch->uneven->Bytes();
  PetscCall(CSRDestroy(&padded));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscLogDouble CMATCHNodesFlops(const CMATCHHierarchy *H)
{
  const PetscLogDouble degree = CMATCHNodesSteps(H->params).degree;
  PetscLogDouble       flops  = 0;

  for (LocalInt l = 0; l < H->levels; l++) {
    const CMATCHNodesLevel &level  = H->nodes->level[l];
    const CMATCHFactor     &factor = H->level[l].factor;
    const PetscLogDouble    k = level.k, n = level.n * k, product = 2 * k * k * level.blocks;
    const PetscLogDouble    step = product + (factor.d ? 4. * factor.W.nnz + 3 * n : 2 * k * n) + 4 * n;

    if (H->level[l].transfer == CMATCH_PASSED) continue;
    if (l < H->several || l + 1 < H->levels) flops += 2 * degree * step + 4 * k * H->nodes->m * level.P_blocks + 2 * n;
    else flops += H->inverted ? 2 * n * n : kCMATCHStalledDegree * step;
  }
  return flops;
}

/* ------------------------------------------- view --------------------------------------------- */

/* What the view shows of a level of nodes, of this rank, or of a hierarchy of all ranks, of all of them. */
struct NodesSums {
  PetscInt64 nodes, unknowns, blocks, coarse, left, cut, dead, raised; /* sums */
  PetscInt64 k, largest, least;                                        /* of all ranks, the least with the other sign */
  PetscReal  lambda;                                                   /* the largest */
};

static PetscErrorCode SumNodes(PC pc, std::vector<NodesSums> *levels)
{
  constexpr int           kSums = 8, kMosts = 4;
  const PC_CMATCH        *cmatch = (const PC_CMATCH *)pc->data;
  const CMATCHHierarchy  *H      = cmatch->hierarchy;
  const LocalInt          count  = cmatch->ranks ? cmatch->all_levels : H->levels;
  const MPI_Comm          comm   = PetscObjectComm((PetscObject)pc);
  std::vector<PetscInt64> sums; /* of all levels, since each reduction makes ranks wait */
  std::vector<double>     mosts;

  PetscFunctionBegin;
  for (LocalInt l = 0; l < count; l++) {
    const CMATCHNodesLevel level = l < H->levels ? H->nodes->level[l] : CMATCHNodesLevel{};
    const bool             next  = l < H->several || l + 1 < H->levels;
    sums.insert(sums.end(), {level.n, (PetscInt64)level.n * level.k, level.blocks, level.coarse, level.left, level.cut, level.dead,
                             level.raised});
    mosts.insert(mosts.end(), {(double)level.k, (double)level.largest,
                               next && level.coarse ? -(double)level.least : -PETSC_MAX_REAL, (double)level.lambda});
  }
  if (cmatch->ranks) {
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums.data(), (PetscMPIInt)sums.size(), MPIU_INT64, MPI_SUM, comm));
    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, mosts.data(), (PetscMPIInt)mosts.size(), MPI_DOUBLE, MPI_MAX, comm));
  }
  for (LocalInt l = 0; l < count; l++) {
    const PetscInt64 *const sum  = &sums[(size_t)l * kSums];
    const double *const     most = &mosts[(size_t)l * kMosts];
    levels->push_back({sum[0], sum[1], sum[2], sum[3], sum[4], sum[5], sum[6], sum[7], (PetscInt64)most[0], (PetscInt64)most[1],
                       sum[3] ? (PetscInt64)-most[2] : 0, most[3]});
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHViewNodes(PC pc, PetscViewer viewer)
{
  const PC_CMATCH       *cmatch   = (const PC_CMATCH *)pc->data;
  const CMATCHHierarchy *H        = cmatch->hierarchy;
  const CMATCHNodes     *N        = H->nodes;
  const CMATCHParams    &params   = H->params;
  static const char     *graphs[] = {"axial weights", "traces of blocks", "norms of blocks"};
  PetscReal              entries = 0, rows = 0;
  std::vector<NodesSums> levels;

  PetscFunctionBegin;
  PetscCall(SumNodes(pc, &levels));
  PetscCall(PetscViewerASCIIPrintf(viewer, "hierarchy of nodes with %" LocalInt_FMT " unknowns, %" LocalInt_FMT " modes: %s\n",
                                   N->level[0].k, N->m, cmatch->modes ? cmatch->modes : "the constants of each unknown"));
  if (cmatch->uneven)
    PetscCall(PetscViewerASCIIPrintf(viewer, "nodes of different sizes: unknowns that they lack %" LocalInt_FMT "\n",
                                     H->level[0].n - cmatch->uneven->rows));
  if (!cmatch->modes && N->level[0].k <= 3)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "for elasticity the rigid body modes save many iterations: MatNullSpaceCreateRigidBody() "
                                     "and MatSetNearNullSpace(), or PCSetCoordinates()\n"));
  if (params.coarsening == PC_CMATCH_MATCHING)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "nodes matched by %s in %" PetscInt_FMT " sweeps, %" PetscInt_FMT
                                     " below the finest level; at most %" LocalInt_FMT " blocks in a row of the prolongator\n",
                                     graphs[N->graph], CMATCHNodesSweeps(params, *N, 0), CMATCHNodesSweeps(params, *N, 1),
                                     kCMATCHSlots));
  else
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "nodes around an independent set, by %s; at most %" LocalInt_FMT
                                     " blocks in a row of the prolongator\n",
                                     graphs[N->graph], kCMATCHSlots));
  PetscCall(
    PetscViewerASCIIPrintf(viewer, "smoother of nodes: %s, %s polynomial of degree %" LocalInt_FMT "\n",
                           CMATCHHasFactors(params) ? PCCMATCHSmoothers[params.smoother] : "block Jacobi",
                           PCCMATCHSmoothers[params.smoother == PC_CMATCH_CHEBYSHEV4 ? PC_CMATCH_CHEBYSHEV4 : PC_CMATCH_CHEBYSHEV],
                           CMATCHNodesSteps(params).degree));
  PetscCall(PetscViewerASCIIPrintf(
    viewer,
    "level     nodes  unknowns  blocks a row | aggregate    least  largest     left  cut rows     dead   raised  eigenvalue\n"));
  for (size_t l = 0; l < levels.size(); l++) {
    const NodesSums &level = levels[l];

    rows += (PetscReal)level.unknowns;
    entries += (PetscReal)(level.blocks * level.k * level.k);
    PetscCall(PetscViewerASCIIPrintf(viewer, "%5d %9" PetscInt64_FMT " %9" PetscInt64_FMT " %13.1f |", (int)l, level.nodes,
                                     level.unknowns, level.nodes ? (double)level.blocks / (double)level.nodes : 0.));
    PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_FALSE));
    if (l + 1 < levels.size())
      PetscCall(PetscViewerASCIIPrintf(viewer,
                                       " %9.2f %8" PetscInt64_FMT " %8" PetscInt64_FMT " %8" PetscInt64_FMT " %9" PetscInt64_FMT
                                       " %8" PetscInt64_FMT " %8" PetscInt64_FMT " %11.3f",
                                       level.coarse ? (double)(level.nodes - level.left) / (double)level.coarse : 0., level.least,
                                       level.largest, level.left, level.cut, level.dead, level.raised, (double)level.lambda));
    PetscCall(PetscViewerASCIIPrintf(viewer, "\n"));
    PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_TRUE));
  }
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "aggregate: nodes of the mean one, of the smallest and of the largest; nodes left to the "
                                   "smoother; rows of the prolongator that were cut; dead unknowns of the next level, whose "
                                   "mode depends on others; diagonal blocks that were raised; the estimate of the largest "
                                   "eigenvalue of block Jacobi\n"));
  PetscCall(PetscViewerASCIIPrintf(viewer, "levels %d, operator complexity %.3f, grid complexity %.3f\n", (int)levels.size(),
                                   (double)(entries / PetscMax((PetscReal)(levels[0].blocks * levels[0].k * levels[0].k), 1)),
                                   (double)(rows / PetscMax((PetscReal)levels[0].unknowns, 1))));
  PetscFunctionReturn(PETSC_SUCCESS);
}
