/*
   The PETSc face of PCAUTO: options, set-up, view and life cycle. A candidate is a PC of its own, which is made, set up and applied
   as in any program; the errors of its set-up are those of the candidate alone.
*/
#include <petsc/private/pcimpl.h>

#include <petsctime.h>

#include <algorithm>
#include <sstream>

#include "api.h"
#include "options.h"
#include "ranks/agree.h"
#include "sparse/offload.h"
#include "auto.h"

const char *const PCAUTOBys[] = {"counts", "time", "PCAUTOBy", "PC_AUTO_BY_", nullptr};

static const Option<PC> kOptions[] = {
  /* by

     Counted costs are those of the rules, the same on all ranks and in all runs. With `PC_AUTO_BY_TIME` the ranks agree on the
     largest of their times in seconds, and another run may decide differently. */
  {"-pc_auto_by", "by what candidates are compared", "PCAUTOSetBy", Field<&PC_AUTO::by>(OneOf(PCAUTOBys)), Invalidates::NOTHING},

  /* trials: 0 for none

     If a program solves repeatedly with the same nonzeros, other candidates are tried as far as this share allows, each in one
     solve. The better one is kept. */
  {"-pc_auto_trials", "the share of the work so far that trials of other candidates may take", "PCAUTOSetTrials",
   Field<&PC_AUTO::trials>(Between(0, 1)), Invalidates::NOTHING},
};
const OptionTable<PC> PC_AUTO::options{"Choice of a preconditioner", kOptions};

/* ------------------------------------------ candidates ---------------------------------------- */

/* Keeps the first message of errors, and shows none. */
class Silence {
public:
  Silence() { PetscCallAbort(PETSC_COMM_SELF, PetscPushErrorHandler(Handle, this)); }
  ~Silence() { PetscCallAbort(PETSC_COMM_SELF, PetscPopErrorHandler()); }
  Silence(const Silence &)               = delete;
  Silence    &operator=(const Silence &) = delete;
  const char *Text() const { return text_; }

private:
  static PetscErrorCode Handle(MPI_Comm, int, const char *, const char *, PetscErrorCode code, PetscErrorType type,
                               const char *text, void *context)
  {
    if (type == PETSC_ERROR_INITIAL && text && text[0]) (void)PetscStrncpy(((Silence *)context)->text_, text, sizeof(text_));
    return code;
  }

  char text_[256] = "";
};

PetscErrorCode AUTOCost(PC pc, double counted, PetscLogDouble seconds, double *cost)
{
  PetscFunctionBegin;
  *cost = counted;
  if (((const PC_AUTO *)pc->data)->by == PC_AUTO_BY_COUNTS) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallMPI(MPIU_Allreduce(&seconds, cost, 1, MPI_DOUBLE, MPI_MAX, PetscObjectComm((PetscObject)pc)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Options of matrices, which a candidate makes, have no prefix. */
static bool IsOfMatrix(const std::string &key)
{
  return key.rfind("-mat", 0) == 0;
}

static std::string WithPrefix(const std::string &key, const std::string &prefix)
{
  return IsOfMatrix(key) ? key : "-" + prefix + key.substr(1);
}

/* The options of a candidate are in the database while it is set up, unless the program has others there. Those of matrices are
 * read from the usual one. */
class CandidateOptions {
public:
  PetscErrorCode Insert(PetscOptions own, const std::string &prefix, const std::string &text)
  {
    std::istringstream in(text);
    PetscBool          there;

    PetscFunctionBegin;
    in.exceptions(std::ios::badbit); /* or it would not say that there is no memory */
    for (std::string key, value; in >> key;) {
      if (in.peek() == ' ') in.get();
      if (in && in.peek() != '-') in >> value;
      const PetscOptions options = IsOfMatrix(key) ? nullptr : own;
      key                        = WithPrefix(key, prefix);
      PetscCall(PetscOptionsHasName(options, nullptr, key.c_str(), &there));
      if (!there) {
        inserted_.emplace_back(options, key);
        PetscCall(PetscOptionsSetValue(options, key.c_str(), value.empty() ? nullptr : value.c_str()));
      }
      value.clear();
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  ~CandidateOptions()
  {
    for (const auto &[options, key] : inserted_) PetscCallAbort(PETSC_COMM_SELF, PetscOptionsClearValue(options, key.c_str()));
  }

private:
  std::vector<std::pair<PetscOptions, std::string>> inserted_;
};

/* Makes a candidate's PC. */
static PetscErrorCode Make(PC pc, const AUTOCandidate &candidate, const std::string &own, PC *made)
{
  const PC_AUTO *s = (const PC_AUTO *)pc->data;
  FinePCBackend  backend;

  PetscFunctionBegin;
  PetscCall(PCCreate(PetscObjectComm((PetscObject)pc), made));
  PetscCall(PetscObjectIncrementTabLevel((PetscObject)*made, (PetscObject)pc, 1));
  PetscCall(PetscObjectSetOptions((PetscObject)*made, ((PetscObject)pc)->options));
  PetscCall(PCSetOptionsPrefix(*made, own.c_str()));
  PetscCall(PCFinePCGetBackend(pc, &backend));
  if (backend != FINEPC_BACKEND_AUTO) PetscCall(PCFinePCSetBackend(*made, backend));
  if (pc->dm) PetscCall(PCSetDM(*made, pc->dm));
  PetscCall(PCSetOperators(*made, pc->mat, pc->pmat));
  std::istringstream in(candidate.options); /* the type comes first; an error of its creation would be one amid PETSc's options */
  std::string        key, type;
  in >> key >> type;
  PetscCall(PCSetType(*made, type.c_str()));
  PetscCall(PCFinePCSetReuse(*made, s->reuse));
  if (s->by == PC_AUTO_BY_COUNTS) PetscCall(PCReuseCount(*made, candidate.set_up / candidate.iteration));
  PetscCall(PCSetFromOptions(*made));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SetUpThis(PC pc, AUTORecord *record)
{
  CandidateOptions options;
  const char      *prefix;

  PetscFunctionBegin;
  PetscCall(PCGetOptionsPrefix(pc, &prefix));
  const std::string own = std::string(prefix ? prefix : "") + "auto_" + record->candidate.name + "_";
  PetscCall(options.Insert(((PetscObject)pc)->options, own, record->candidate.options));
  if (!record->pc) PetscCall(Make(pc, record->candidate, own, &record->pc));
  PetscCall(PCSetOperators(record->pc, pc->mat, pc->pmat));
  PetscCall(PCSetReusePreconditioner(record->pc, PETSC_FALSE));
  PetscCall(PCSetUp(record->pc));
  if (!record->pc->failedreason) PetscCall(PCSetUpOnBlocks(record->pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void AUTOForgetSolve(PC_AUTO *s)
{
  s->next = -1;
  for (AUTORecord &record : s->records) {
    record.now     = false;
    record.left    = 0;
    record.limited = false;
  }
}

PetscErrorCode AUTODrop(PC pc, int k)
{
  PetscFunctionBegin;
  PetscCall(PCDestroy(&((PC_AUTO *)pc->data)->records[k].pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Why a set-up has failed, on this rank or on another. */
static std::string WhyNot(PC made, PetscErrorCode code, const char text[])
{
  if (code) return text[0] ? text : "an error in the set-up";
  if (!made || !made->failedreason) return "the set-up failed on another rank";
  const bool ours = PCIsLocal(made);
  return ours ? ((const PC_Local *)made->data)->failure : PCFailedReasons[made->failedreason];
}

/*
   Whether a set-up of the candidate may be begun. Types of PETSc's may not return from it, or lose memory, where entries are
   infinite, zero on the diagonal or not sorted; the look has seen a sample, and values may be others since then.
*/
static PetscErrorCode MayBeSetUp(PC pc, const AUTOCandidate &candidate, bool *may)
{
  const PC_AUTO *s   = (const PC_AUTO *)pc->data;
  AUTOProperties all = s->seen;

  PetscFunctionBegin;
  all.not_usual = 1;
  *may          = AUTOHolds(candidate, AUTOWords(all, s->free)); /* such entries are nothing to it */
  if (*may) PetscFunctionReturn(PETSC_SUCCESS);
  all = s->seen;
  PetscCall(AUTOLookAtAll(pc->pmat, &all));
  const bool shifts =
    candidate.options.find("icc") != std::string::npos && candidate.options.find("shift_type") == std::string::npos;
  *may = AUTOHolds(candidate, AUTOWords(all, s->free)) && !(shifts && all.stay_singular);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AUTOTake(PC pc, int k, bool *works)
{
  PC_AUTO       *s      = (PC_AUTO *)pc->data;
  AUTORecord    &record = s->records[k];
  PetscLogDouble begin, end;
  bool           may;

  PetscFunctionBegin;
  PetscCall(MayBeSetUp(pc, record.candidate, &may));
  if (!may) {
    record.now    = true;
    record.left   = 0;
    record.failed = true;
    record.why    = "its set-up might not return: entries are infinite, zero on the diagonal or not sorted, or a part is singular";
    *works        = false;
    PetscCall(PetscInfo(pc, "%s: %s\n", record.candidate.name.c_str(), record.why.c_str()));
    PetscCall(AUTODrop(pc, k));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const bool refill = record.pc;
  PetscCall(PetscTime(&begin));
  {
    const Silence        silence;
    const PetscErrorCode code = CallGuarded(SetUpThis, pc, &record);
    int                  bad  = code || !record.pc || record.pc->failedreason;

    PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &bad, 1, MPI_INT, MPI_LOR, PetscObjectComm((PetscObject)pc)));
    *works = !bad;
    if (bad) record.why = WhyNot(record.pc, code, silence.Text());
  }
  PetscCall(PetscTime(&end));
  const bool frozen = *works && PCReuseIsFrozen(record.pc);
  record.now        = true;
  record.left       = 0;
  record.limited    = false;
  record.failed     = !*works;
  record.set_ups++;
  const double counted = frozen ? 0 : record.candidate.set_up / (refill ? 2 : 1);
  PetscCall(AUTOCost(pc, counted, end - begin, &record.set_up_cost));
  s->counts.work += record.set_up_cost;
  if (*works) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscInfo(pc, "%s: %s\n", record.candidate.name.c_str(), record.why.c_str()));
  PetscCall(AUTODrop(pc, k));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the candidate suits what is known by now. */
static bool Suits(const PC_AUTO *s, const AUTORecord &record)
{
  return !s->given.empty() || AUTOHolds(record.candidate, AUTOWords(s->seen, s->free));
}

int AUTOFirstFresh(const PC_AUTO *s)
{
  for (size_t k = 0; k < s->records.size(); k++) {
    const AUTORecord &record = s->records[k];

    if (!record.now && !record.failed && !record.candidate.fallback && Suits(s, record)) return (int)k;
  }
  return -1;
}

int AUTOBestLeft(const PC_AUTO *s, bool limited)
{
  int        best = -1;
  const auto cost = [&](int k) { return s->records[k].left + s->records[k].candidate.set_up; };

  for (int k = 0; k < (int)s->records.size(); k++) {
    const AUTORecord &record = s->records[k];

    if (record.left <= 0 || record.limited != limited || k == s->acting || !Suits(s, record)) continue;
    if (best < 0 || cost(k) < cost(best)) best = k;
  }
  return best;
}

/* The candidate that the course of the solve calls for, or the first one that has not been tried in this solve; then those that
 * were left, those to fall back to, those that were left at their limit, and those that have failed before. */
static int NextOf(PC_AUTO *s)
{
  int next = s->next;

  s->next = -1;
  if (next < 0) next = AUTOFirstFresh(s);
  if (next < 0) next = AUTOBestLeft(s);
  for (const bool failed : {false, true}) {
    for (size_t k = 0; k < s->records.size() && next < 0; k++)
      if (!s->records[k].now && s->records[k].failed == failed && Suits(s, s->records[k])) next = (int)k;
    if (next < 0 && !failed) next = AUTOBestLeft(s, true);
  }
  return next;
}

static PetscErrorCode Order(PC);

/* Takes the steps that tell whether the matrix is definite, which take as long as some iterations. */
static PetscErrorCode Probe_AUTO(PC pc)
{
  PC_AUTO       *s = (PC_AUTO *)pc->data;
  PetscLogDouble begin, end;

  PetscFunctionBegin;
  PetscCall(PetscTime(&begin));
  PetscCall(AUTOProbe(pc->pmat, &s->seen));
  PetscCall(PetscTime(&end));
  s->counts.look_seconds += end - begin;
  if (!s->seen.indefinite) PetscFunctionReturn(PETSC_SUCCESS);
  s->next = -1;
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)pc), CallGuarded(Order, pc), "choose a preconditioner"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Those steps come before a set-up that costs something. One that costs nothing may be followed by a solver that takes them. */
static PetscErrorCode ProbeBeforeSetUp(PC pc)
{
  PC_AUTO  *s          = (PC_AUTO *)pc->data;
  const int called_for = s->next;

  PetscFunctionBegin;
  if (!s->seen.doubtful) PetscFunctionReturn(PETSC_SUCCESS);
  const int next = NextOf(s);
  s->next        = called_for;
  if (next >= 0 && s->records[next].candidate.set_up > 0) PetscCall(Probe_AUTO(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AUTOMakeSure(PC pc)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;
  bool     found;

  PetscFunctionBegin;
  if (!s->seen.doubtful) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Probe_AUTO(pc));
  if (!s->seen.indefinite) PetscFunctionReturn(PETSC_SUCCESS);
  AUTOForgetSolve(s);
  if (s->acting >= 0) PetscCall(AUTODrop(pc, s->acting));
  s->acting = -1;
  PetscCall(AUTOTakeNext(pc, &found));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AUTOTakeNext(PC pc, bool *found)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;

  PetscFunctionBegin;
  *found = false;
  PetscCall(ProbeBeforeSetUp(pc));
  const int old = s->acting;
  for (int k = NextOf(s); k >= 0 && !*found; k = *found ? k : NextOf(s)) {
    if (s->acting >= 0) PetscCall(AUTODrop(pc, s->acting)); /* first, for the sake of memory */
    s->acting = -1;
    PetscCall(AUTOTake(pc, k, found));
    if (*found) s->acting = k;
  }
  if (s->acting >= 0 || old < 0) PetscFunctionReturn(PETSC_SUCCESS);
  bool works;
  PetscCall(AUTOTake(pc, old, &works));
  if (works) s->acting = old;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- set-up ------------------------------------------- */

/* The candidates for what was seen; what is known of those that were there before stays. */
static PetscErrorCode Order(PC pc)
{
  PC_AUTO                *s = (PC_AUTO *)pc->data;
  AUTOChoice              choice;
  std::vector<AUTORecord> records;
  std::string             acting = s->acting >= 0 ? s->records[s->acting].candidate.name : "";

  PetscFunctionBegin;
  PetscCall(AUTOChoose(AUTOWords(s->seen, s->free), &choice));
  if (!s->given.empty()) choice = AUTOChoice{s->given, "given", "not measured"};
  s->why      = choice.why;
  s->measured = choice.measured;
  s->acting   = -1;
  for (const AUTOCandidate &candidate : choice.candidates) {
    const auto old =
      std::find_if(s->records.begin(), s->records.end(), [&](const AUTORecord &r) { return r.candidate.name == candidate.name; });

    records.emplace_back();
    if (old != s->records.end()) std::swap(records.back(), *old);
    records.back().candidate        = candidate;
    records.back().candidate.set_up = AUTOSetUpFor(candidate, (double)s->seen.entries / (double)PetscMax(s->seen.rows, 1));
    if (candidate.name == acting) s->acting = (int)records.size() - 1;
  }
  std::swap(records, s->records);
  for (AUTORecord &left : records) PetscCall(PCDestroy(&left.pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode FreeRecords(PC_AUTO *s)
{
  PetscFunctionBegin;
  for (AUTORecord &record : s->records) PetscCall(PCDestroy(&record.pc));
  PetscCall(VecDestroy(&s->r));
  PetscCall(VecDestroy(&s->t));
  s->records.clear();
  s->acting = s->usual = -1;
  s->counts.solves = s->counts.set_ups = s->counts.taken_over = s->counts.trial_count = s->counts.its = 0;
  s->counts.work = s->counts.on_trials = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The nonzeros are others, or it is the first set-up. */
static PetscErrorCode BeginAnew(PC pc)
{
  PC_AUTO       *s = (PC_AUTO *)pc->data;
  PetscLogDouble begin, end;

  PetscFunctionBegin;
  PetscCall(FreeRecords(s));
  PetscCall(MatChooseBackend(pc->pmat, (PetscObject)pc));
  PetscCall(PetscTime(&begin));
  PetscCall(AUTOLook(pc->pmat, &s->seen));
  PetscCall(PetscTime(&end));
  s->counts.look_seconds = end - begin;
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)pc), CallGuarded(Order, pc), "choose a preconditioner"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AUTOSetFree(PC pc, bool is_free)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;
  bool     found;

  PetscFunctionBegin;
  s->free = is_free;
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)pc), CallGuarded(Order, pc), "choose a preconditioner"));
  AUTOForgetSolve(s);
  if (s->acting < 0) PetscCall(AUTOTakeNext(pc, &found));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCSetUp_AUTO(PC pc)
{
  PC_AUTO  *s = (PC_AUTO *)pc->data;
  PetscBool assembled, same = PETSC_FALSE;
  bool      found = false;

  PetscFunctionBegin;
  PetscCall(MatAssembled(pc->pmat, &assembled));
  PetscCheck(assembled, PetscObjectComm((PetscObject)pc), PETSC_ERR_ARG_WRONGSTATE,
             "The matrix is not assembled: call MatAssemblyBegin() and MatAssemblyEnd()");
  pc->failedreason       = PC_NOERROR;
  PetscErrorCode code    = CallGuarded(MatFollowPattern, pc->pmat, &s->nonzeros, &same);
  int            changed = !same || pc->flag != SAME_NONZERO_PATTERN || s->records.empty();
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)pc), code, "look at its nonzeros", &changed));
  if (changed) PetscCall(BeginAnew(pc));
  AUTOForgetSolve(s);
  s->counts.set_ups++;
  if (s->acting >= 0) PetscCall(AUTOTake(pc, s->acting, &found));
  if (!found) {
    s->acting = -1;
    PetscCall(AUTOTakeNext(pc, &found));
  }
  if (found) PetscFunctionReturn(PETSC_SUCCESS);
  pc->failedreason = PC_SUBPC_ERROR;
  PetscCheck(!pc->erroriffailure, PetscObjectComm((PetscObject)pc), PETSC_ERR_NOT_CONVERGED,
             "No candidate of PCAUTO can be set up: %s", s->records.empty() ? "" : s->records[0].why.c_str());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- applying ----------------------------------------- */

static PetscErrorCode GetActing(PC pc, PC *acting)
{
  const PC_AUTO *s = (const PC_AUTO *)pc->data;

  PetscFunctionBegin;
  PetscCheck(s->acting >= 0, PetscObjectComm((PetscObject)pc), PETSC_ERR_ORDER, "PCAUTO has no preconditioner yet: call PCSetUp()");
  *acting = s->records[s->acting].pc;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* In an application the candidate is not to be set up if the program wants it as it is. */
template <auto Apply, typename Vectors>
static PetscErrorCode PCApply_AUTO(PC pc, Vectors x, Vectors y)
{
  PC acting = nullptr;

  PetscFunctionBegin;
  PetscCall(GetActing(pc, &acting));
  PetscCall(PCSetReusePreconditioner(acting, pc->reusepreconditioner));
  PetscCall(Apply(acting, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PC PCActing(PC pc)
{
  if (!pc || pc->ops->apply != Entry<PCApply_AUTO<PCApply, Vec>>) return pc;
  const PC_AUTO *s = (const PC_AUTO *)pc->data;
  return s->acting >= 0 ? s->records[s->acting].pc : pc;
}

/* -------------------------------------------- view -------------------------------------------- */

static PetscErrorCode ViewSeen(const AUTOProperties &p, PetscLogDouble seconds, PetscViewer viewer)
{
  PetscFunctionBegin;
  PetscCall(PetscViewerASCIIPrintf(viewer, "seen: %" PetscInt64_FMT " rows, %s, in %.2g s\n", p.rows,
                                   p.on_device ? "used on a GPU" : "used on the host", (double)seconds));
  if (!p.rows_known) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "  the type of the matrix does not lend its rows\n"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "  %s%s: %" PetscInt64_FMT " of %" PetscInt64_FMT " couplings differ, %" PetscInt64_FMT
                                   " are one-sided\n",
                                   p.symmetric ? "symmetric" : "not symmetric",
                                   p.indefinite ? ", found to be indefinite"
                                   : p.definite ? ", taken as positive definite"
                                                : "",
                                   p.unequal, p.pairs + p.one_sided, p.one_sided));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "  of %" PetscInt64_FMT
                                   " rows: %.0f %% of the entries beside the diagonal are at most 0, %.0f %% of the "
                                   "rows are dominated by their diagonal\n",
                                   p.looked_at, 100. * p.not_positive / PetscMax(p.beside, 1),
                                   100. * p.dominated / PetscMax(p.looked_at, 1)));
  if (p.zero_diagonal || p.negative_diagonal)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  diagonal: zero in %" PetscInt64_FMT " rows, negative in %" PetscInt64_FMT "\n",
                                     p.zero_diagonal, p.negative_diagonal));
  if (p.block_size > 1 || p.modes)
    PetscCall(PetscViewerASCIIPrintf(viewer, "  blocks of %" PetscInt_FMT ", near null space of %" PetscInt_FMT " vectors\n",
                                     p.block_size, p.modes));
  if (p.stencil)
    PetscCall(
      PetscViewerASCIIPrintf(viewer, "  a %" PetscInt_FMT "-point stencil%s\n", p.stencil, p.anisotropic ? ", anisotropic" : ""));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ViewRecords(const PC_AUTO *s, PetscViewer viewer)
{
  PetscFunctionBegin;
  for (size_t k = 0; k < s->records.size(); k++) {
    const AUTORecord &r = s->records[k];

    if (r.set_ups == 0) continue;
    PetscCall(PetscViewerASCIIPrintf(viewer,
                                     "tried: %s, %" PetscInt_FMT " set-ups, %" PetscInt_FMT
                                     " solves, the last one of %" PetscInt_FMT " iterations%s%s\n",
                                     r.candidate.name.c_str(), r.set_ups, r.solves, r.its,
                                     r.failed     ? "; failed: "
                                     : r.left > 0 ? "; left: "
                                                  : "",
                                     r.failed || r.left > 0 ? r.why.c_str() : ""));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Which solver would be faster, if the one that it is used with is not. */
static PetscErrorCode ViewAdvice(const PC_AUTO *s, PetscViewer viewer)
{
  const bool  definite = s->seen.definite && !s->seen.indefinite, gmres = s->solver.find("gmres") != std::string::npos;
  const char *better = nullptr;

  PetscFunctionBegin;
  if (definite && (gmres || s->solver == KSPBCGS)) better = s->seen.on_device ? KSPCGFUSED : KSPCG;
  else if (definite && s->solver == KSPCG && s->seen.on_device) better = KSPCGFUSED;
  else if (!s->solver.empty() && !s->free && !s->seen.symmetric) better = s->seen.on_device ? KSPGMRESFUSED : KSPGMRES;
  else if (!s->free && s->seen.indefinite && s->solver != KSPMINRES) better = KSPMINRES;
  if (better)
    PetscCall(PetscViewerASCIIPrintf(viewer, "advice: -ksp_type %s suits this matrix better than %s\n", better, s->solver.c_str()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_AUTO(PC pc, PetscViewer viewer)
{
  const PC_AUTO *s = (const PC_AUTO *)pc->data;
  const char    *prefix;
  PetscBool      is_ascii;

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompare((PetscObject)viewer, PETSCVIEWERASCII, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer, "compares candidates by %s, trials take at most %g of the work\n", PCAUTOBys[s->by],
                                   (double)s->trials));
  if (s->records.empty()) {
    PetscCall(PetscViewerASCIIPrintf(viewer, "nothing is chosen yet\n"));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(ViewSeen(s->seen, s->counts.look_seconds, viewer));
  PetscCall(ViewRecords(s, viewer));
  PetscCall(PetscViewerASCIIPrintf(viewer,
                                   "since these nonzeros: %" PetscInt_FMT " solves, %" PetscInt_FMT " taken over, %" PetscInt_FMT
                                   " trials; they cost as much as %.0f %s\n",
                                   s->counts.solves, s->counts.taken_over, s->counts.trial_count,
                                   s->by == PC_AUTO_BY_COUNTS ? s->counts.work : 1e3 * s->counts.work,
                                   s->by == PC_AUTO_BY_COUNTS ? "iterations with jacobi" : "milliseconds"));
  PetscCall(ViewAdvice(s, viewer));
  if (s->acting < 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer, "chosen by the rule: %s (%s)\n", s->why.c_str(), s->measured.c_str()));
  PetscCall(PCGetOptionsPrefix(pc, &prefix));
  std::istringstream in(s->records[s->acting].candidate.options);
  std::string        fixing;
  for (std::string word; in >> word;) fixing += " " + (word[0] == '-' ? WithPrefix(word, prefix ? prefix : "") : word);
  PetscCall(PetscViewerASCIIPrintf(viewer, "these options fix the choice:%s\n", fixing.c_str()));
  PetscCall(PetscViewerASCIIPushTab(viewer));
  PetscCall(PCView(s->records[s->acting].pc, viewer));
  PetscCall(PetscViewerASCIIPopTab(viewer));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- life cycle ----------------------------------------- */

static PetscErrorCode PCReset_AUTO(PC pc)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;

  PetscFunctionBegin;
  PetscCall(FreeRecords(s));
  PetscCall(MatFreePatternWork(&s->nonzeros));
  s->nonzeros = MatPattern{};
  s->seen     = AUTOProperties{};
  s->free     = true;
  s->solver.clear();
  PetscCall(MatLeave((PetscObject)pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode SetReuse_AUTO(PC pc, PCFinePCReuse reuse)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;

  PetscFunctionBegin;
  PetscCheck(reuse >= PC_FINEPC_REUSE_AUTO && reuse <= PC_FINEPC_REUSE_NEVER, PetscObjectComm((PetscObject)pc),
             PETSC_ERR_ARG_OUTOFRANGE, "-pc_finepc_reuse has no value %d", (int)reuse);
  s->reuse = reuse;
  for (AUTORecord &record : s->records)
    if (record.pc) PetscCall(PCFinePCSetReuse(record.pc, reuse));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode GetLook_AUTO(PC pc, SolveLook **look)
{
  *look = ((const PC_AUTO *)pc->data)->look;
  return PETSC_SUCCESS;
}

static PetscErrorCode GetReuse_AUTO(PC pc, PCFinePCReuse *reuse)
{
  *reuse = ((const PC_AUTO *)pc->data)->reuse;
  return PETSC_SUCCESS;
}

static PetscErrorCode Compose_AUTO(PC pc, PetscBool compose)
{
  PetscFunctionBegin;
  PetscCall(PC_AUTO::options.Compose(pc, compose));
  PetscCall(
    ComposeMethods(pc, "PCFinePCSetReuse", compose ? Entry<SetReuse_AUTO> : nullptr, compose ? Entry<GetReuse_AUTO> : nullptr));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, "PCAUTOGetPC_C", compose ? Entry<GetActing> : nullptr));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, kAroundSolve, compose ? Entry<AroundSolve_AUTO> : nullptr));
  PetscCall(PetscObjectComposeFunction((PetscObject)pc, kSolveLook, compose ? Entry<GetLook_AUTO> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_AUTO(PC pc)
{
  PetscFunctionBegin;
  pc->data                = new PC_AUTO();
  pc->ops->setup          = Entry<PCSetUp_AUTO>;
  pc->ops->apply          = Entry<PCApply_AUTO<PCApply, Vec>>;
  pc->ops->applytranspose = Entry<PCApply_AUTO<PCApplyTranspose, Vec>>;
  pc->ops->matapply       = Entry<PCApply_AUTO<PCMatApply, Mat>>;
  pc->ops->presolve       = Entry<PCPreSolve_AUTO>;
  pc->ops->setfromoptions = Entry<SetFromOptionTable<PC_AUTO, PC>>;
  pc->ops->view           = Entry<PCView_AUTO>;
  pc->ops->reset          = Entry<PCReset_AUTO>;
  pc->ops->destroy        = Entry<DestroyData<PC_AUTO, PCReset_AUTO, Compose_AUTO, PC>>;
  PetscCall(Compose_AUTO(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@
  PCAUTOGetPC - Gets the preconditioner that a `PCAUTO` has chosen

  Not Collective

  Input Parameter:
. pc - the preconditioner context

  Output Parameter:
. taken - the preconditioner currently in use

  Level: intermediate

  Note:
  This is a borrowed reference: the preconditioner belongs to the `PCAUTO`, and exists from `PCSetUp()` until another one replaces
  it.

.seealso: `PCAUTO`
@*/
PetscErrorCode PCAUTOGetPC(PC pc, PC *taken)
{
  return CallGetter(pc, "PCAUTOGetPC_C", taken);
}

/*MC
  PCAUTO - "auto": examines the matrix, chooses a suitable preconditioner, monitors the solves, and chooses another one if they fail

  Options Database Keys:
+ -pc_auto_by <counts> - by what candidates are compared. `counts`: by iterations and the costs that its rules have for them, so
  that runs repeat; `time`: by seconds
. -pc_auto_trials <0.1> - the share of the work so far that trials of other candidates may take; between 0 and 1; 0 for none
- -pc_auto_backend <auto> - where rows are used that the host has: `auto`, `host` or `device`; see `PCFinePCSetBackend()`

  Level: beginner

  Notes:
  The first `PCSetUp()` with a matrix examines a sample of its rows: symmetry, signs, dominance of the diagonal, blocks, the near
  null space, stencils on two-dimensional grids, and the size. A table of rules gives an ordered list of candidates, with `PCJACOBI`
  and `PCNONE` at the end. The first one that can be set up is used. An error in the set-up of a candidate, such as running out of
  memory, is not an error of the program.

  In a `KSPSolve()` that tests a norm, a candidate is replaced by the next one if it does not converge, or if its norms fall so
  slowly that the set-up of the next one seems worthwhile. The next candidate continues from the current solution; the tolerance
  stays relative to the same norm as before. The iterations are added up, and each candidate may take as many as
  `KSPSetTolerances()` allows. The candidate that has worked is kept for the next solve.

  The candidate is kept for new values on the same nonzeros. With different nonzeros the choice starts again.

  A candidate reads options with a prefix, which follows that of the preconditioner itself: `-auto_cmatch_pc_cmatch_strength 0.2` is
  an option of the candidate `PCCMATCH`. `PCView()` shows what was found and tried, which options fix the choice, and which `KSP`
  would suit the matrix better.

.seealso: `PCAUTOGetPC()`, `PCCMATCH`, `PCSFSAI`, `PCAFSAI`, `PCBISAI`, `PCRRB`, `PCAUTOSetBy()`, `PCAUTOSetTrials()`
M*/

/*@C
  PCCreate_AUTO - Makes a preconditioner a `PCAUTO`, after registering finepc if nothing has done so; for `PCRegister()`

  Collective

  Input Parameter:
. pc - the preconditioner context

  Level: developer

.seealso: `PCAUTO`, `PCRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode PCCreate_AUTO(PC pc)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_AUTO>(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
