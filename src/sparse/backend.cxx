/* Where the rows of matrices of the host are used: what is asked, and the decision. */
#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include "consolidated.h"
#include "offloadimpl.h"
#include "ranks/agree.h"
#include "ranks/nccl.h"

const char *const FinePCBackends[] = {"auto", "host", "device", "FinePCBackend", "FINEPC_BACKEND_", nullptr};

static const char *const kConsolidates[] = {"auto", "false", "true", "Consolidate", "", nullptr};

/* ---------------------------------------- what is asked --------------------------------------- */

static constexpr char kAsked[] = "FinePCBackend";

struct Asked {
  FinePCBackend backend;
  PetscBool     known; /* by a setter, by the option of the type, or since -finepc_backend was looked for */
  Consolidate   consolidate;
  PetscBool     looked; /* for that */
  MatUsers     *used;   /* of the matrix that this object uses, or null */
};

static PetscErrorCode Leave_Backend(Asked *asked)
{
  MatUsers *used = asked->used;

  PetscFunctionBegin;
  asked->used = nullptr;
  if (!used || --used->count) PetscFunctionReturn(PETSC_SUCCESS);
  if (used->A) PetscCall(MatFreeCopies(used->A));
  else PetscCall(PetscFree(used));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode DestroyAsked(Asked *asked)
{
  PetscFunctionBegin;
  PetscCall(Leave_Backend(asked));
  PetscCall(PetscFree(asked));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatLeave(PetscObject user)
{
  Asked *asked = nullptr;

  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery(user, kAsked, (void **)&asked));
  if (asked) PetscCall(Leave_Backend(asked));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SetAsked(PetscObject object, FinePCBackend backend)
{
  Asked *asked;

  PetscFunctionBegin;
  PetscValidLogicalCollectiveEnum(object, backend, 2);
  PetscCheck(backend >= FINEPC_BACKEND_AUTO && backend <= FINEPC_BACKEND_DEVICE, PetscObjectComm(object), PETSC_ERR_ARG_OUTOFRANGE,
             "There is no backend %d", (int)backend);
  PetscCall(GetComposed<DestroyAsked>(object, kAsked, &asked));
  asked->backend = backend;
  asked->known   = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetOwn(PetscObject object, FinePCBackend *backend)
{
  Asked *asked = nullptr;

  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery(object, kAsked, (void **)&asked));
  *backend = asked ? asked->backend : FINEPC_BACKEND_AUTO;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCFinePCSetBackend - Says where a preconditioner of finepc uses the rows of a matrix that the host has

  Logically Collective

  Input Parameters:
+ pc      - the preconditioner context
- backend - `FINEPC_BACKEND_AUTO`, `FINEPC_BACKEND_HOST` or `FINEPC_BACKEND_DEVICE`

  Options Database Keys:
+ -finepc_backend <auto>    - for all preconditioners and solvers of finepc: `auto`, `host` or `device`
- -pc_cmatch_backend <auto> - for those of a type, here `PCCMATCH`

  Level: intermediate

  Notes:
  This function and the option of the type go before `-finepc_backend`. The next `PCSetUp()` heeds them.

  On the GPU the rows of a `MATAIJ`, `MATBAIJ` or `MATSBAIJ` are a copy, which is sent there when the matrix has changed. It is
  freed with the matrix, or after `PCReset()` of all that have used it. The preconditioner is set up and applied there. A solver of
  PETSc, whose vectors the host has, then sends one vector and fetches another at each application; `KSPCGFUSED` sends b once a
  solve and fetches x.

  It is an error if `FINEPC_BACKEND_DEVICE` is set and a rank has no GPU, or not enough memory there. Where `FINEPC_BACKEND_AUTO`
has chosen the GPU and its memory ends in the set-up, or when a fused solver begins a solve, the host does it, with a warning, and
has the matrix from then on. A matrix whose rows are on the GPU, such as `MATAIJCUSPARSE`, is used there in any case.

  Ranks that share a GPU come together, and one of them has the rows of all on the GPU: where the host has the matrix, and where the
GPU has it for `KSPCGFUSED` and `KSPGMRESFUSED`. `-finepc_consolidate false` keeps them apart, and `true` has ranks come together
that have a GPU each, or none, and with any solver.

.seealso: `FinePCBackend`, `PCFinePCGetBackend()`, `KSPFinePCSetBackend()`, `PCAFSAI`, `PCSFSAI`, `PCBISAI`, `PCRRB`, `PCCMATCH`
@*/
PetscErrorCode PCFinePCSetBackend(PC pc, FinePCBackend backend)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscCall(SetAsked((PetscObject)pc, backend));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCFinePCGetBackend - Gets what `PCFinePCSetBackend()` or the option of the type has said, or `FINEPC_BACKEND_AUTO`

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. backend - the backend

  Level: intermediate

.seealso: `FinePCBackend`, `PCFinePCSetBackend()`
@*/
PetscErrorCode PCFinePCGetBackend(PC pc, FinePCBackend *backend)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(pc, PC_CLASSID, 1);
  PetscAssertPointer(backend, 2);
  PetscCall(GetOwn((PetscObject)pc, backend));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  KSPFinePCSetBackend - Says where a solver of finepc works with a matrix and vectors that the host has

  Logically Collective

  Input Parameters:
+ ksp     - the Krylov space context
- backend - `FINEPC_BACKEND_AUTO`, `FINEPC_BACKEND_HOST` or `FINEPC_BACKEND_DEVICE`

  Options Database Keys:
+ -finepc_backend <auto>      - for all preconditioners and solvers of finepc: `auto`, `host` or `device`
- -ksp_cgfused_backend <auto> - for those of a type, here `KSPCGFUSED`

  Level: intermediate

  Notes:
  This function and the option of the type go before `-finepc_backend`. The next `KSPSolve()` heeds them. The preconditioner has a
  setting of its own, see `PCFinePCSetBackend()`.

  `KSPCGFUSED` and `KSPGMRESFUSED` work on the GPU with a `MATAIJ`, a `MATBAIJ` or a `MATSBAIJ` whose rows are sent there: they send
b, and x if there is a guess, and fetch x. During a solve a monitor gets x by `KSPBuildSolution()`.
`KSPRRBCG` works where `PCRRB` has its factor, and heeds the setting of that. Other solvers work on the host with such a matrix.

.seealso: `FinePCBackend`, `KSPFinePCGetBackend()`, `PCFinePCSetBackend()`, `KSPCGFUSED`
@*/
PetscErrorCode KSPFinePCSetBackend(KSP ksp, FinePCBackend backend)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(ksp, KSP_CLASSID, 1);
  PetscCall(SetAsked((PetscObject)ksp, backend));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  KSPFinePCGetBackend - Gets what `KSPFinePCSetBackend()` or the option of the type has said, or `FINEPC_BACKEND_AUTO`

  Not Collective

  Input Parameter:
. ksp - the Krylov space context

  Output Parameter:
. backend - the backend

  Level: intermediate

.seealso: `FinePCBackend`, `KSPFinePCSetBackend()`
@*/
PetscErrorCode KSPFinePCGetBackend(KSP ksp, FinePCBackend *backend)
{
  PetscFunctionBegin;
  PetscValidHeaderSpecific(ksp, KSP_CLASSID, 1);
  PetscAssertPointer(backend, 2);
  PetscCall(GetOwn((PetscObject)ksp, backend));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode BackendFromOptions(PetscObject object, OptionItems PetscOptionsObject)
{
  FinePCBackend backend;
  PetscBool     given, follows;
  char          key[64];

  PetscFunctionBegin;
  PetscCall(PetscStrcmp(object->type_name, KSPRRBCG, &follows)); /* it works where the factor of PCRRB is */
  if (follows) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GetOwn(object, &backend));
  PetscCall(PetscSNPrintf(key, sizeof(key), "-%s_%s_backend", object->classid == KSP_CLASSID ? "ksp" : "pc", object->type_name));
  PetscOptionsHeadBegin(PetscOptionsObject, "finepc options");
  PetscCall(PetscOptionsEnum(key, "where rows are used that the host has",
                             object->classid == KSP_CLASSID ? "KSPFinePCSetBackend" : "PCFinePCSetBackend", FinePCBackends,
                             (PetscEnum)backend, (PetscEnum *)&backend, &given));
  PetscOptionsHeadEnd();
  if (given) PetscCall(SetAsked(object, backend));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What was asked for of this object, or else of all of them, which is looked for once. */
static PetscErrorCode GetAsked(PetscObject object, Asked **asked)
{
  PetscBool given;
  PetscEnum consolidate;

  PetscFunctionBegin;
  PetscCall(GetComposed<DestroyAsked>(object, kAsked, asked));
  PetscCall(PetscOptionsGetEnum(object->options, nullptr, "-finepc_consolidate", kConsolidates, &consolidate, &given));
  (*asked)->consolidate = given ? (Consolidate)consolidate : Consolidate::AUTO;
  (*asked)->looked      = PETSC_TRUE;
  if ((*asked)->known) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(
    PetscOptionsGetEnum(object->options, nullptr, "-finepc_backend", FinePCBackends, (PetscEnum *)&(*asked)->backend, &given));
  (*asked)->known = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the decision --------------------------------------- */

/* Fewer rows are solved on one core of a host in less time than CUDA takes to start, 0.15 to 0.3 s. Once it has started, a solve on
 * the GPU is faster from some 3000 rows on, or from 10000 where the host has 16 cores (docs/matrices.md). */
static constexpr PetscInt kOffloadRows = 20000;

/* Whether A is of a type whose rows the host has, and the GPU may use. */
static PetscErrorCode IsOfHost(Mat A, PetscBool *is)
{
  PetscFunctionBegin; /* types that derive from these may have their values elsewhere, and one that is bound to the CPU stays there
                       */
  PetscCall(
    PetscObjectTypeCompareAny((PetscObject)A, is, MATSEQAIJ, MATMPIAIJ, MATSEQBAIJ, MATMPIBAIJ, MATSEQSBAIJ, MATMPISBAIJ, ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether A is of a type of several ranks whose rows the GPU has, unless it is bound to the CPU, which may be so on some ranks. */
static PetscErrorCode IsOfDevice(Mat A, PetscBool *is)
{
  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, is, MATMPIAIJCUSPARSE, MATMPIBAIJCUDA, ""));
  if (!kHasCUDA) *is = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Entries of this rank's rows, in both triangles. */
static PetscErrorCode CountOwnEntries_Backend(Mat A, double *entries)
{
  MatInfo   info;
  PetscBool upper;

  PetscFunctionBegin;
  PetscCall(MatGetInfo(A, MAT_LOCAL, &info));
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &upper, MATSEQSBAIJ, MATMPISBAIJ, ""));
  *entries = (upper ? 2 : 1) * info.nz_used;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Whether the GPU can be used and has room for rows with so many entries, and for what is made of them, or why not; without waiting
   for others.
*/
static PetscErrorCode LookForRoom(double entries, FinePCBackend asked, char why[])
{
  constexpr double kTimes = 8; /* the rows: a hierarchy takes some three times their memory, long factors more */
  size_t           free;

  PetscFunctionBegin;
  PetscCall(DeviceOpen_CUDA(why));
  if (why[0] || asked == FINEPC_BACKEND_DEVICE) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(DeviceFreeBytes_CUDA(&free));
  const double rows = entries * (sizeof(PetscScalar) + sizeof(LocalInt));
  if ((double)free < kTimes * rows)
    PetscCall(PetscSNPrintf(why, kDeviceText, "the GPU has %g MB of memory left, and %g MB may be needed", (double)free / 1e6,
                            kTimes * rows / 1e6));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether ranks that have other matrices may use this GPU, too; without waiting for other ranks. */
static PetscErrorCode LookForOthers(MPI_Comm comm, char why[])
{
  PetscMPIInt size, world;
  int         devices;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &world));
  PetscCall(DeviceCount_CUDA(&devices));
  if (size < world && world > devices) PetscCall(PetscStrncpy(why, "ranks with other matrices may share the GPU", kDeviceText));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What is to be decided about, and what is known so far. */
struct Question {
  Mat           A;
  MPI_Comm      comm;
  PetscMPIInt   size;
  PetscInt      rows; /* of all ranks */
  FinePCBackend asked;
  Consolidate   consolidate;
  PetscBool     of_device; /* the GPU has the rows */
  PetscBool     by_solver; /* a solver of finepc's asks, or its preconditioner */
  MatGroup     *group;     /* of ranks that come together, or null */

  PetscInt PerGPU() const { return rows / (group ? group->group.groups : size); }
};

/* Why the GPU cannot have the rows of each rank, or of each leader. */
static PetscErrorCode LookForRoomOnAll(const Question &q, char why[])
{
  double         entries = 0;
  PetscErrorCode code    = CountOwnEntries_Backend(q.A, &entries);

  PetscFunctionBegin;
  if (q.group) PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &entries, 1, MPI_DOUBLE, MPI_SUM, q.group->group.comm));
  if (!code && (!q.group || q.group->group.Leads())) code = LookForRoom(entries, q.asked, why);
  PetscCall(NCCLAgree(q.comm, why, code, "look for room on its GPU"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode IsSmall(const Question &q, char why[], PetscBool *small)
{
  PetscFunctionBegin;
  *small = (PetscBool)(q.asked == FINEPC_BACKEND_AUTO && q.PerGPU() < kOffloadRows);
  if (*small)
    PetscCall(PetscSNPrintf(why, kDeviceText,
                            "a GPU would have fewer than %" PetscInt_FMT " rows, which a host solves before CUDA has started",
                            kOffloadRows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Ranks come together where they share a GPU, or where that is asked for. The names of the GPUs say whether they share one,
   without a use of the GPUs themselves, which takes memory of each of them. Parallel blocks of the host are solved by groups of one
   rank where each has a GPU, since a group has the single entries of its rows.
*/
static PetscErrorCode ComeTogether(Question *q, char why[])
{
  char      name[kGroupText] = "", why_not[kGroupText] = "";
  PetscBool share = PETSC_FALSE, blocks = PETSC_FALSE;

  PetscFunctionBegin;
  if (q->size == 1) PetscFunctionReturn(PETSC_SUCCESS);
  if (!why[0]) {
    PetscCall(RanksShareGPU(q->comm, DeviceName_CUDA(sizeof(name), name), name, &share));
    PetscCall(PetscObjectTypeCompareAny((PetscObject)q->A, &blocks, MATMPIBAIJ, MATMPISBAIJ, ""));
  }
  if (((share || blocks) && q->consolidate != Consolidate::OFF) || q->consolidate == Consolidate::ON) {
    PetscCall(MatGroupCreate(q->A, name, &q->group, why_not));
    if (!q->group) PetscCall(PetscInfo(q->A, "ranks do not come together: %s\n", why_not));
  }
  if (share && !q->group && q->asked == FINEPC_BACKEND_AUTO)
    PetscCall(PetscStrncpy(why, q->of_device ? why_not : "ranks share a GPU", kDeviceText));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Decides why the host uses the rows, the same on all ranks, or for the GPU. It has failed if a GPU would have been used if there
   were one, or if it could be.
*/
static PetscErrorCode Decide_Backend(Question *q, MatDecision *decision)
{
  const bool       may    = q->asked == FINEPC_BACKEND_AUTO;
  char *const      why    = decision->why;
  PetscBool *const failed = &decision->failed;

  PetscFunctionBegin;
  why[0] = 0;
  if (q->asked == FINEPC_BACKEND_HOST) PetscCall(PetscStrncpy(why, "the host was asked for", kDeviceText));
  else if (may && q->rows < kOffloadRows) PetscCall(IsSmall(*q, why, &decision->small));
  else {
    PetscCall(NCCLAgree(q->comm, why, DeviceLookFor_CUDA(why), "look for its GPU"));
    *failed = (PetscBool)(why[0] != 0);
    if (!why[0] && may) PetscCall(LookForOthers(q->comm, why));
    PetscCall(NCCLAgree(q->comm, why));
    decision->apart = (PetscBool)(why[0] && !*failed);
  }
  const bool free = !why[0];
  PetscCall(ComeTogether(q, why));
  if (free && why[0]) decision->apart = PETSC_TRUE;
  if (!why[0]) PetscCall(IsSmall(*q, why, &decision->small));
  if (!why[0]) {
    PetscCall(LookForRoomOnAll(*q, why));
    *failed = (PetscBool)(why[0] != 0);
  }
  if (why[0] && (q->consolidate != Consolidate::ON || q->asked == FINEPC_BACKEND_DEVICE)) PetscCall(MatGroupRelease(&q->group));
  PetscCheck(!why[0] || q->asked != FINEPC_BACKEND_DEVICE, q->comm, PETSC_ERR_SUP, "The backend device is not possible: %s", why);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Decides whether ranks come together to use rows that the GPU has, or why not, though they share a GPU. The leaders have copies of
   all rows there then. They do not by themselves for a preconditioner of PETSc's solvers, whose vectors would go by way of the host
   for each application: with 121^3 unknowns on one H200 that takes 3 to 6 ms, and 0.2 to 0.9 where each rank applies its part.
*/
static PetscErrorCode DecideTogether(Question *q, char why[])
{
  PetscBool bound;

  PetscFunctionBegin;
  if (q->size == 1 || q->consolidate == Consolidate::OFF) PetscFunctionReturn(PETSC_SUCCESS);
  if (!(kPetscHasCUDA && q->by_solver) && q->consolidate != Consolidate::ON) /* without CUDA such a type is on the host */
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatBoundToCPU(q->A, &bound));
  if (bound && kPetscHasCUDA) PetscCall(PetscStrncpy(why, "the matrix is bound to the CPU", kDeviceText));
  PetscCall(NCCLAgree(q->comm, why, why[0] ? PETSC_SUCCESS : DeviceLookFor_CUDA(why), "look for its GPU"));
  if (why[0]) { /* then its products are on the host, or on that of some rank */
    why[0] = 0;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(ComeTogether(q, why));
  if (q->group) PetscCall(LookForRoomOnAll(*q, why));
  if (why[0]) PetscCall(MatGroupRelease(&q->group));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ReleaseGroup(MatGroup *group)
{
  PetscFunctionBegin;
  PetscCall(MatGroupRelease(&group));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The matrix keeps the group, or where memory ends on one rank, none of them does. */
static PetscErrorCode KeepGroup(Mat A, MatGroup *group)
{
  PetscFunctionBegin;
  group->users++; /* since it is destroyed by all ranks together */
  const PetscErrorCode mine = ComposeData<ReleaseGroup>((PetscObject)A, kMatGroup, group),
                       code = AgreeOnError(PetscObjectComm((PetscObject)A), mine, "keep its group");
  if (code) PetscCall(PetscObjectCompose((PetscObject)A, kMatGroup, nullptr));
  PetscCall(MatGroupRelease(&group));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Once in a program, by the first process of these; of those that are alone by the first one of all. */
static PetscErrorCode Warn_Backend(MPI_Comm comm, const char why[])
{
  static bool warned = false;
  PetscMPIInt rank, size;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCallMPI(MPI_Comm_rank(size > 1 ? comm : PETSC_COMM_WORLD, &rank));
  if (!rank && !warned)
    PetscCall(PetscFPrintf(PETSC_COMM_SELF, PETSC_STDERR,
                           "finepc works on the host: %s. With -finepc_backend host it does so without a warning.\n", why));
  warned = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether A has its entries on all ranks, without which nothing can be said about the room that it takes. */
static PetscErrorCode IsAssembled(Mat A, PetscBool *assembled)
{
  PetscMPIInt all;

  PetscFunctionBegin;
  PetscCall(MatAssembled(A, assembled));
  all = *assembled;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, PetscObjectComm((PetscObject)A)));
  *assembled = (PetscBool)all;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Decides anew, or, as long as A is not assembled, not yet. */
static PetscErrorCode MakeDecision(Mat A, PetscObject user, PetscBool by_solver, const Asked *asked, MatDecision *decision)
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)A);
  Question       q{A, comm, 1, 0, asked->backend, asked->consolidate, PETSC_FALSE, by_solver, nullptr};
  PetscBool      assembled;

  PetscFunctionBegin;
  PetscCall(IsAssembled(A, &assembled));
  if (!assembled) PetscFunctionReturn(PETSC_SUCCESS);
  *decision = MatDecision{};
  PetscCall(PetscObjectCompose((PetscObject)A, kMatGroup, nullptr));
  PetscCallMPI(MPI_Comm_size(comm, &q.size));
  PetscCall(MatGetSize(A, &q.rows, nullptr));
  PetscCall(IsOfDevice(A, &q.of_device));
  if (q.of_device) q.asked = FINEPC_BACKEND_AUTO; /* the backend is for rows that the host has */
  PetscCall(q.of_device ? DecideTogether(&q, decision->why) : Decide_Backend(&q, decision));
  const PetscBool on_device = (PetscBool)!decision->why[0];
  if (decision->failed) PetscCall(Warn_Backend(comm, decision->why));
  if (q.group) q.group->offloaded = on_device;
  if (q.group) PetscCall(KeepGroup(A, q.group));
  decision->made      = PETSC_TRUE;
  decision->asked     = asked->backend;
  decision->together  = asked->consolidate;
  decision->of_device = q.of_device;
  decision->by_solver = q.by_solver;
  decision->offloaded = (PetscBool)(on_device && !q.of_device);
  PetscCall(PetscInfo(user, "rows of the matrix, which the %s has, are used on the %s%s%s%s\n", q.of_device ? "GPU" : "host",
                      on_device || q.of_device ? "GPU" : "host", q.group ? " of one rank for several" : "", on_device ? "" : ": ",
                      decision->why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatMayFallBack(Mat A, PetscBool *may)
{
  MatDecision *decision = nullptr;
  MatGroup    *group;

  PetscFunctionBegin;
  *may = PETSC_FALSE;
  PetscCall(PetscObjectContainerQuery((PetscObject)A, kMatDecision, (void **)&decision));
  if (!decision || decision->fixed) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetGroup(A, &group));
  *may = (PetscBool)(decision->of_device ? group != nullptr : decision->offloaded && decision->asked == FINEPC_BACKEND_AUTO);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatFallBack(Mat A, PetscObject user, PetscErrorCode code, PetscBool *fell)
{
  MatDecision *decision = nullptr;
  int          worst    = (int)code;

  PetscFunctionBegin;
  PetscCall(MatMayFallBack(A, fell));
  if (!*fell) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, PetscObjectComm((PetscObject)A)));
  *fell = (PetscBool)(worst == PETSC_ERR_MEM);
  if (!*fell) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscObjectContainerQuery((PetscObject)A, kMatDecision, (void **)&decision));
  if (decision->of_device) { /* each rank has its rows there, and uses them by itself */
    PetscCall(PetscObjectCompose((PetscObject)A, kMatGroup, nullptr));
    PetscCall(PetscStrncpy(decision->why, "the memory of the GPU was not enough", kDeviceText));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const Asked host{FINEPC_BACKEND_HOST, PETSC_TRUE, decision->together, PETSC_TRUE, nullptr};
  PetscCall(MakeDecision(A, user, decision->by_solver, &host, decision));
  decision->asked  = FINEPC_BACKEND_AUTO;
  decision->failed = PETSC_TRUE;
  PetscCall(PetscStrncpy(decision->why, "the memory of the GPU was not enough", kDeviceText));
  PetscCall(Warn_Backend(PetscObjectComm((PetscObject)A), decision->why));
  PetscFunctionReturn(PETSC_SUCCESS);
}

HiddenMemoryErrors::HiddenMemoryErrors(bool hide) : pushed_(hide && !PetscPushErrorHandler(Handle, this))
{
}

HiddenMemoryErrors::~HiddenMemoryErrors()
{
  if (pushed_) (void)PetscPopErrorHandler();
}

/* The handler below this one gets what is not hidden. */
PetscErrorCode HiddenMemoryErrors::Handle(MPI_Comm comm, int line, const char *function, const char *file, PetscErrorCode code,
                                          PetscErrorType type, const char *message, void *context)
{
  if (code == PETSC_ERR_MEM) return code;
  (void)PetscPopErrorHandler();
  const PetscErrorCode handled             = message ? PetscError(comm, line, function, file, code, type, "%s", message)
                                                     : PetscError(comm, line, function, file, code, type, nullptr);
  ((HiddenMemoryErrors *)context)->pushed_ = !PetscPushErrorHandler(Handle, context);
  return handled;
}

/* When the matrix ends. */
static PetscErrorCode DestroyUsers(MatUsers *users)
{
  PetscFunctionBegin;
  users->A = nullptr;
  if (!users->count) PetscCall(PetscFree(users));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The user uses A, and no longer the matrix before. */
static PetscErrorCode Use_Backend(Mat A, MatUsers *users, Asked *of)
{
  PetscFunctionBegin;
  users->A = A;
  if (of->used == users) PetscFunctionReturn(PETSC_SUCCESS);
  users->count++;
  PetscCall(Leave_Backend(of));
  of->used = users;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Choose_Backend(Mat A, PetscObject user, PetscBool by_solver, bool apart)
{
  MatDecision *decision = nullptr;
  MatUsers    *users    = nullptr;
  Asked       *of       = nullptr;
  MatGroup    *group    = nullptr;
  PetscBool    of_host, of_device;

  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery(user, kAsked, (void **)&of));
  PetscCall(PetscObjectContainerQuery((PetscObject)A, kMatDecision, (void **)&decision));
  PetscCall(PetscObjectContainerQuery((PetscObject)A, kMatUsers, (void **)&users));
  const bool there = of, asked_before = of && of->known && of->looked, decided_before = decision,
             used_before = users; /* so on all ranks, or on none */
  if (!asked_before || !decided_before || !used_before) {
    PetscErrorCode code = GetAsked(user, &of);
    if (!code) code = GetComposed((PetscObject)A, kMatDecision, &decision);
    if (!code) code = GetComposed<DestroyUsers>((PetscObject)A, kMatUsers, &users);
    code = AgreeOnError(PetscObjectComm((PetscObject)A), code, "keep where rows are used");
    if (code && !there) PetscCall(PetscObjectCompose(user, kAsked, nullptr)); /* so that ranks have the same the next time */
    if (code && there && !asked_before) of->looked = PETSC_FALSE;
    if (code && !decided_before) PetscCall(PetscObjectCompose((PetscObject)A, kMatDecision, nullptr));
    if (code && !used_before) PetscCall(PetscObjectCompose((PetscObject)A, kMatUsers, nullptr));
    PetscCall(code);
  }
  PetscCall(Use_Backend(A, users, of));
  if (decision->fixed) PetscFunctionReturn(PETSC_SUCCESS);
  if (!kHasCUDA && of->backend != FINEPC_BACKEND_DEVICE && of->consolidate != Consolidate::ON) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(IsOfHost(A, &of_host));
  PetscCall(IsOfDevice(A, &of_device));
  PetscCall(MatGetGroup(A, &group));
  Asked mine = *of;
  if (apart && mine.consolidate == Consolidate::AUTO) mine.consolidate = Consolidate::OFF;
  const bool asks = of_host && of->backend != FINEPC_BACKEND_AUTO && of->backend != decision->asked, /* auto takes what is there */
    unites        = mine.consolidate != Consolidate::AUTO && mine.consolidate != decision->together,
             solves = of_device && by_solver && !decision->by_solver && !group && decision->together != Consolidate::OFF;
  if (!of_host && !of_device) *decision = MatDecision{};
  else if (!decision->made || decision->of_device != of_device || asks || unites || solves)
    PetscCall(MakeDecision(A, user, by_solver, &mine, decision));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatChooseBackend(Mat A, PetscObject user)
{
  PetscFunctionBegin;
  PetscCall(Choose_Backend(A, user, (PetscBool)(user->classid == KSP_CLASSID), false));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatChooseBackendInSolver(Mat A, PC pc)
{
  PetscFunctionBegin;
  PetscCall(Choose_Backend(A, (PetscObject)pc, PETSC_TRUE, false));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MatChooseBackendApart(Mat A, PC pc)
{
  PetscFunctionBegin;
  PetscCall(Choose_Backend(A, (PetscObject)pc, PETSC_FALSE, true));
  PetscFunctionReturn(PETSC_SUCCESS);
}
