/*
   The candidates of PCAUTO. Each is a PC of its own, which is made, set up and applied as in any program; the errors of its set-up
   are those of the candidate alone.
*/
#include <petsc/private/pcimpl.h>

#include <petsctime.h>

#include <algorithm>
#include <sstream>

#include "options.h"
#include "ranks/agree.h"
#include "sparse/offload.h"
#include "auto.h"

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

std::string AUTOWithPrefix(const std::string &key, const std::string &prefix)
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
      key                        = AUTOWithPrefix(key, prefix);
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
static PetscErrorCode Make_AUTO(PC pc, const AUTOCandidate &candidate, const std::string &own, PC *made)
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
  if (!record->pc) PetscCall(Make_AUTO(pc, record->candidate, own, &record->pc));
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
static std::string WhyNot_AUTO(PC made, PetscErrorCode code, const char text[])
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
    if (bad) record.why = WhyNot_AUTO(record.pc, code, silence.Text());
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
static bool Suits_AUTO(const PC_AUTO *s, const AUTORecord &record)
{
  return !s->given.empty() || AUTOHolds(record.candidate, AUTOWords(s->seen, s->free));
}

int AUTOFirstFresh(const PC_AUTO *s)
{
  for (size_t k = 0; k < s->records.size(); k++) {
    const AUTORecord &record = s->records[k];

    if (!record.now && !record.failed && !record.candidate.fallback && Suits_AUTO(s, record)) return (int)k;
  }
  return -1;
}

int AUTOBestLeft(const PC_AUTO *s, bool limited)
{
  int        best = -1;
  const auto cost = [&](int k) { return s->records[k].left + s->records[k].candidate.set_up; };

  for (int k = 0; k < (int)s->records.size(); k++) {
    const AUTORecord &record = s->records[k];

    if (record.left <= 0 || record.limited != limited || k == s->acting || !Suits_AUTO(s, record)) continue;
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
      if (!s->records[k].now && s->records[k].failed == failed && Suits_AUTO(s, s->records[k])) next = (int)k;
    if (next < 0 && !failed) next = AUTOBestLeft(s, true);
  }
  return next;
}

/* The candidates for what was seen; what is known of those that were there before stays. */
static PetscErrorCode Order_AUTO(PC pc)
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

/* Takes the steps that tell whether the matrix is definite, which take as long as some iterations. */
static PetscErrorCode ProbeAndOrder_AUTO(PC pc)
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
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)pc), CallGuarded(Order_AUTO, pc), "choose a preconditioner"));
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
  if (next >= 0 && s->records[next].candidate.set_up > 0) PetscCall(ProbeAndOrder_AUTO(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AUTOMakeSure(PC pc)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;
  bool     found;

  PetscFunctionBegin;
  if (!s->seen.doubtful) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ProbeAndOrder_AUTO(pc));
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

PetscErrorCode AUTOFreeRecords(PC_AUTO *s)
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

PetscErrorCode AUTOBeginAnew(PC pc)
{
  PC_AUTO       *s = (PC_AUTO *)pc->data;
  PetscLogDouble begin, end;

  PetscFunctionBegin;
  PetscCall(AUTOFreeRecords(s));
  PetscCall(MatChooseBackend(pc->pmat, (PetscObject)pc));
  PetscCall(PetscTime(&begin));
  PetscCall(AUTOLook(pc->pmat, &s->seen));
  PetscCall(PetscTime(&end));
  s->counts.look_seconds = end - begin;
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)pc), CallGuarded(Order_AUTO, pc), "choose a preconditioner"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AUTOSetFree(PC pc, bool is_free)
{
  PC_AUTO *s = (PC_AUTO *)pc->data;
  bool     found;

  PetscFunctionBegin;
  s->free = is_free;
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)pc), CallGuarded(Order_AUTO, pc), "choose a preconditioner"));
  AUTOForgetSolve(s);
  if (s->acting < 0) PetscCall(AUTOTakeNext(pc, &found));
  PetscFunctionReturn(PETSC_SUCCESS);
}
