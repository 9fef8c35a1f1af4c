/* What PCCMATCH does for systems with several unknowns at each point: where the modes come from, the set-up, and the view. */
#include <petsc/private/pcimpl.h>

#include <cmath>

#include "cmatch_face.h"
#include "entry.h"
#include "finepcimpl.h"
#include "sparse/memory.h"

/* -------------------------------------- whether there are nodes ------------------------------- */

PetscErrorCode PCCMATCHChooseNodes(PC pc, const CSRView *A, LocalInt *k)
{
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;
  PetscInt   bs     = cmatch->block_size;

  PetscFunctionBegin;
  *k               = 0;
  cmatch->why_rows = nullptr;
  if (!bs) PetscCall(MatGetBlockSize(pc->pmat, &bs));
  if (bs == 1) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(A->n % bs == 0, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "-pc_cmatch_block_size is %" PetscInt_FMT ", which does not divide the %" LocalInt_FMT " rows of this rank", bs, A->n);
  if (bs > kCMATCHMostUnknowns) cmatch->why_rows = "nodes have at most 6 unknowns";
  else if (cmatch->ranks) cmatch->why_rows = "a hierarchy of nodes is one of one rank: compare -pc_cmatch_reach local";
  else if (!CMATCHNodesPossible(cmatch->params))
    cmatch->why_rows = "nodes have the coarsening matching, the coarsest level dense, and no factored smoother";
  else *k = (LocalInt)bs;
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
  cmatch->alone     = true; /* other processes do not get them */
  cmatch->kept_modes.reset();
  pc->failedreason = PC_NOERROR;
  pc->setupcalled  = PETSC_FALSE;
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

  explicit CMATCHKeptModes(const Source &source) : view{source.k, 0, nullptr}, source_(source), where_(source.where) { }
  CMATCHKeptModes(const CMATCHKeptModes &)            = delete;
  CMATCHKeptModes &operator=(const CMATCHKeptModes &) = delete;
  ~CMATCHKeptModes() { PetscCallAbort(PETSC_COMM_SELF, ArrayDestroy(where_, &B_)); }

  LocalInt       rows() const { return source_.rows; }
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
      for (LocalInt row = 0; row < rows(); row++)
        ((double *)B_)[(size_t)row * view.m + c] = from ? PetscRealPart(from[row]) : unknown < 0 || row % view.k == unknown;
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    if (from && PetscMemTypeDevice(where_) != PetscMemTypeDevice(memory)) {
      const size_t of_mode = rows() * sizeof(PetscScalar);
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

  CMATCHModes view;

private:
  const Source       source_;
  const PetscMemType where_;
  void              *B_ = nullptr;
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
    PetscCheck(n == modes->rows(), PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
               "A vector of the near null space has %" PetscInt_FMT " entries on this rank, but the matrix has %" LocalInt_FMT
               " rows: both must have the same layout",
               n, modes->rows());
    PetscCall(VecGetArrayReadAndMemType(vectors[from], &array, &memory));
    const PetscErrorCode code = modes->Put(c, array, memory);
    PetscCall(VecRestoreArrayReadAndMemType(vectors[from], &array));
    PetscCall(code);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rigid body modes of nodes at these coordinates, which count from their mean. */
static PetscErrorCode TakeCoordinates(const PC_CMATCH *cmatch, CMATCHKeptModes *modes)
{
  const LocalInt      k = modes->view.k, dim = (LocalInt)cmatch->dimension, nodes = modes->rows() / k, m = dim == 2 ? 3 : 6;
  std::vector<double> x  = cmatch->coordinates, B;
  const auto          at = [&](LocalInt i, LocalInt r, LocalInt c) -> double          &{ return B[((size_t)i * k + r) * m + c]; };

  PetscFunctionBegin;
  if (x.empty() || k != dim || k < 2 || k > 3) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(x.size() == (size_t)nodes * dim, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "PCSetCoordinates() was given %" PetscInt_FMT " nodes on this rank, but the matrix has %" LocalInt_FMT,
             (PetscInt)x.size() / dim, nodes);
  for (LocalInt d = 0; d < dim && nodes; d++) {
    double sum = 0;
    for (LocalInt i = 0; i < nodes; i++) sum += x[(size_t)i * dim + d];
    for (LocalInt i = 0; i < nodes; i++) x[(size_t)i * dim + d] -= sum / nodes;
  }
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

/* The near null space comes first, then coordinates, then the null space, and else each unknown has its constants. */
static PetscErrorCode GetModes(PC pc, const Spaces &spaces, CMATCHKeptModes *modes)
{
  PC_CMATCH     *cmatch = (PC_CMATCH *)pc->data;
  const LocalInt k      = modes->view.k;

  PetscFunctionBegin;
  cmatch->modes = "the near null space";
  PetscCall(TakeNullSpace(spaces.near_null_space, modes));
  if (!modes->view.m) {
    cmatch->modes = "rigid body modes of the coordinates";
    PetscCall(TakeCoordinates(cmatch, modes));
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

/* Whether aggregates and patterns can stay. */
static bool CanKeepNodes(const PC_CMATCH *cmatch, const CSRView *A, const CMATCHModes &modes)
{
  const CMATCHHierarchy *H = cmatch->hierarchy;

  return cmatch->reuse_pattern && cmatch->same_nonzeros && H && cmatch->complete && cmatch->has_work && H->where == A->where &&
         cmatch->rows == A->n && H->nodes && H->nodes->level[0].k == modes.k && H->nodes->m == modes.m;
}

/* As FindMisfits() of rows, but for the finest level alone: whether its aggregates, which were kept, fit. */
static bool NodesFit(PC_CMATCH *cmatch)
{
  const CMATCHNodes      *N     = cmatch->hierarchy->nodes;
  const CMATCHNodesLevel &level = N->level[0];
  const CMATCHMisfit      loose = {0, CMATCH_LOOSE, PetscMax(N->fit.loose - N->first_fit.loose, 0), level.n, kCMATCHMisfits};
  const CMATCHMisfit pieces = {0, CMATCH_PIECES, PetscMax(N->fit.pieces - N->first_fit.pieces, 0), level.coarse, kCMATCHMisfits};

  cmatch->misfit = (PetscReal)loose.count * (PetscReal)pieces.of > (PetscReal)pieces.count * (PetscReal)loose.of ? loose : pieces;
  if (N->coupled) cmatch->misfit = {0, CMATCH_LEFT, N->coupled, level.n, 0};
  return !N->coupled && (cmatch->misfit.count <= kCMATCHFewMisfits ||
                         (PetscReal)cmatch->misfit.count <= kCMATCHMisfits * (PetscReal)cmatch->misfit.of);
}

static PetscErrorCode ComputeNodes(PC pc, const CSRView *A, const CMATCHModes *modes)
{
  PC_CMATCH *cmatch  = (PC_CMATCH *)pc->data;
  const auto compute = PetscMemTypeDevice(A->where) ? CMATCHNodesCompute_CUDA : CMATCHNodesCompute_Host;

  PetscFunctionBegin;
  cmatch->params.singular = PETSC_FALSE;
  cmatch->params.zero     = 1;
  cmatch->params.negative = (PetscBool)cmatch->diagonal.negative;
  cmatch->near_null       = NearNull::CONSTANTS;
  cmatch->reused          = CanKeepNodes(cmatch, A, *modes);
  cmatch->anew            = false;
  cmatch->misfit          = CMATCHMisfit{};
  cmatch->complete        = false;
  cmatch->has_work        = cmatch->reuse_pattern;
  PetscErrorCode code =
    compute(A, modes, &cmatch->params, (PetscBool)cmatch->reused, cmatch->reuse_pattern, &cmatch->hierarchy, &cmatch->stats);
  if (!code && cmatch->reused) {
    /* the patterns of other values may not do: a coarse operator has failed, or aggregates do not fit */
    cmatch->anew = !cmatch->stats.failure && cmatch->hierarchy->levels > 1 && !NodesFit(cmatch);
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
  std::shared_ptr<CMATCHKeptModes> modes = std::make_shared<CMATCHKeptModes>(source);
  PetscCall(GetModes(pc, spaces, modes.get()));
  cmatch->kept_modes = modes;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHComputeNodes(PC pc, const CSRView *A, LocalInt k)
{
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;

  PetscFunctionBegin;
  PetscCall(CallGuarded(UpdateModes, pc, A, k));
  PetscCall(PetscLogEventBegin(FinePC_CMATCHHierarchy, pc, pc->pmat, 0, 0));
  const PetscErrorCode code = CallGuarded(ComputeNodes, pc, A, (const CMATCHModes *)&cmatch->kept_modes->view);
  PetscCall(PetscLogEventEnd(FinePC_CMATCHHierarchy, pc, pc->pmat, 0, 0));
  PetscCall(code);
  cmatch->modes_bytes = cmatch->kept_modes->bytes();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscLogDouble CMATCHNodesFlops(const CMATCHHierarchy *H)
{
  const PetscLogDouble degree = CMATCHNodesSteps(H->params).degree;
  PetscLogDouble       flops  = 0;

  for (LocalInt l = 0; l < H->levels; l++) {
    const CMATCHNodesLevel &level = H->nodes->level[l];
    const PetscLogDouble    k = level.k, n = level.n * k, product = 2 * k * k * level.blocks, step = product + 2 * k * n + 4 * n;

    if (l + 1 < H->levels) flops += 2 * degree * step + 4 * k * H->nodes->m * level.P_blocks + 2 * n;
    else flops += H->inverted ? 2 * n * n : kCMATCHStalledDegree * step;
  }
  return flops;
}

/* ------------------------------------------- view --------------------------------------------- */

PetscErrorCode PCCMATCHViewNodes(PC pc, PetscViewer viewer)
{
  const PC_CMATCH       *cmatch   = (const PC_CMATCH *)pc->data;
  const CMATCHHierarchy *H        = cmatch->hierarchy;
  const CMATCHNodes     *N        = H->nodes;
  const CMATCHParams    &params   = H->params;
  static const char     *graphs[] = {"axial weights", "traces of blocks", "norms of blocks"};
  PetscReal              entries = 0, rows = 0;

  PetscFunctionBegin;
  PetscCall(PetscViewerASCIIPrintf(viewer, "hierarchy of nodes with %" LocalInt_FMT " unknowns, %" LocalInt_FMT " modes: %s\n",
                                   N->level[0].k, N->m, cmatch->modes ? cmatch->modes : "the constants of each unknown"));
  if (!cmatch->modes && N->level[0].k <= 3)
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "for elasticity the rigid body modes save many iterations: MatNullSpaceCreateRigidBody() "
                                     "and MatSetNearNullSpace(), or PCSetCoordinates()\n"));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "nodes matched by %s in %" PetscInt_FMT " sweeps, %" PetscInt_FMT
                                   " below the finest level; at most %" LocalInt_FMT " blocks in a row of the prolongator\n",
                                   graphs[N->graph], CMATCHNodesSweeps(params, 0, N->m), CMATCHNodesSweeps(params, 1, N->m),
                                   kCMATCHSlots));
  PetscCall(
    PetscViewerASCIIPrintf(viewer, "smoother of nodes: block Jacobi, %s polynomial of degree %" LocalInt_FMT "\n",
                           PCCMATCHSmoothers[params.smoother == PC_CMATCH_CHEBYSHEV4 ? PC_CMATCH_CHEBYSHEV4 : PC_CMATCH_CHEBYSHEV],
                           CMATCHNodesSteps(params).degree));
  PetscCall(PetscViewerASCIIPrintf(
    viewer,
    "level     nodes  unknowns  blocks a row | aggregate    least  largest     left  cut rows     dead   raised  eigenvalue\n"));
  for (LocalInt l = 0; l < H->levels; l++) {
    const CMATCHNodesLevel &level = N->level[l];

    rows += (PetscReal)level.n * level.k;
    entries += (PetscReal)level.blocks * level.k * level.k;
    PetscCall(PetscViewerASCIIPrintf(viewer, "%5d %9" LocalInt_FMT " %9" LocalInt_FMT " %13.1f |", (int)l, level.n,
                                     level.n * level.k, level.n ? (double)level.blocks / level.n : 0.));
    PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_FALSE));
    if (l + 1 < H->levels)
      PetscCall(PetscViewerASCIIPrintf(viewer,
                                       " %9.2f %8" LocalInt_FMT " %8" LocalInt_FMT " %8" LocalInt_FMT " %9" LocalInt_FMT
                                       " %8" LocalInt_FMT " %8" LocalInt_FMT " %11.3f",
                                       level.coarse ? (double)(level.n - level.left) / level.coarse : 0., level.least,
                                       level.largest, level.left, level.cut, level.dead, level.raised, (double)level.lambda));
    PetscCall(PetscViewerASCIIPrintf(viewer, "\n"));
    PetscCall(PetscViewerASCIIUseTabs(viewer, PETSC_TRUE));
  }
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "aggregate: nodes of the mean one, of the smallest and of the largest; nodes left to the "
                                   "smoother; rows of the prolongator that were cut; dead unknowns of the next level, whose "
                                   "mode depends on others; diagonal blocks that were raised; the estimate of the largest "
                                   "eigenvalue of block Jacobi\n"));
  PetscCall(PetscViewerASCIIPrintf(viewer, "levels %" LocalInt_FMT ", operator complexity %.3f, grid complexity %.3f\n", H->levels,
                                   (double)(entries / PetscMax((PetscReal)N->level[0].blocks * N->level[0].k * N->level[0].k, 1)),
                                   (double)(rows / PetscMax((PetscReal)N->level[0].n * N->level[0].k, 1))));
  PetscFunctionReturn(PETSC_SUCCESS);
}
