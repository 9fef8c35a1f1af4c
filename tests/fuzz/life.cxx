/*
   The life of the objects of a case: a random sequence of what programs do, good and bad. What must hold, whatever the matrix and
   the options are:

     - no crash, no endless loop, no exception (fuzz.cxx), and no loss of memory where there was no error;
     - a solve that says that it has converged has a small true residual, computed from the entries of the matrix with more digits
       and with no more left than rounding leaves, and one that has not says why, in finite numbers;
     - an error has a code that a user can have caused, a text, and is an error on all ranks;
     - a good matrix with the default options is solved, and so is a hard one by conjugate gradients; new values and nonzeros in
       place change nothing about that;
     - the objects can be destroyed at any time.
*/
#include <petsc/private/petscimpl.h>

#include <algorithm>
#include <cmath>
#include <dlfcn.h>
#include <set>

#include "device.h"
#include "fuzz.h"

namespace
{

constexpr PetscReal kRelativeTolerance = 1e-8;
constexpr PetscInt  kMostIterations    = 1000;

/* Collects PETSc's messages, for a scope. */
class Messages {
public:
  Messages() { (void)PetscPushErrorHandler(Collect, this); }
  ~Messages() { (void)PetscPopErrorHandler(); }
  std::string text;

private:
  static PetscErrorCode Collect(MPI_Comm, int, const char *, const char *, PetscErrorCode code, PetscErrorType type,
                                const char *message, void *context)
  {
    if (type == PETSC_ERROR_INITIAL && message) ((Messages *)context)->text += std::string(message) + " ";
    return code;
  }
};

/* The options database, for a scope. */
class OptionsScope {
public:
  explicit OptionsScope(const std::string &text)
  {
    PetscCallAbort(PETSC_COMM_SELF, PetscOptionsCreate(&options_));
    PetscCallAbort(PETSC_COMM_SELF, PetscOptionsInsertString(options_, text.c_str()));
    PetscCallAbort(PETSC_COMM_SELF, PetscOptionsPush(options_));
  }
  ~OptionsScope()
  {
    (void)PetscOptionsPop();
    (void)PetscOptionsDestroy(&options_);
  }

private:
  PetscOptions options_;
};

/* What a solver says of a solve to a relative tolerance; `guess` is || |A| |x| || of a guess that is not 0. */
struct Claim {
  Vec                b, x;
  KSPConvergedReason reason;
  PetscInt           its;
  double             rtol, guess;
};

class Case {
public:
  Case(std::uint64_t seed, const Place &place, Report *report) :
      random_(seed), place_(place), report_(*report), log_(report->log), sent_(place.device && seed % 3 == 2)
  {
    MPI_Comm_size(PETSC_COMM_WORLD, &size_);
    together_ = size_ > 1 && seed % 4 < 2;
    PetscOptionsCreate(&options_);
    PetscOptionsPush(options_);
  }
  ~Case()
  {
    PetscOptionsPop();
    PetscOptionsDestroy(&options_);
  }
  void Run();
  void RunWell(bool large);
  bool errors = false; /* there has been one, in the course of which PETSc may have lost memory */

private:
  using Code = PetscErrorCode;

  /* Does something; an error is noted, and looked at. */
  template <typename Action>
  bool Do(const std::string &step, Action &&action)
  {
    Messages messages;
    event_          = Event();
    event_.step     = step;
    event_.chooses  = choice_.chooses;
    event_.singular = system_.name.find("singular") != std::string::npos;
    const Code code = action();
    Note(step, code, messages.text);
    return !code;
  }
  void Note(const std::string &step, Code, const std::string &text);
  void Fault(const std::string &text) { report_.faults.push_back(text); }

  const char *MatTypeHere() const;
  Code        ThrowProductAway();
  Code        NewMatrix();
  Code        VectorsToHost();
  Code        Start();
  Code        Create();
  Code        StartWell();
  Code        SetNorm();
  void        SetSide();
  void        ActWell();
  void        Act();
  bool        MustConverge() const;
  bool        HasEstimates() const { return choice_.ksp == "cgfused" || choice_.ksp == "gmresfused"; }
  Code        Solve();
  Code        NormOf(KSP, Vec, PetscReal *norm);
  Code        Judge(KSP, const std::string &type, bool steady, const Claim &);
  Code        Apply();
  Code        ManyColumns();
  Code        SolveColumns(Mat B, Mat X);
  Code        Estimate();
  Code        Build();
  Code        View();
  Code        NewOptions();
  Code        PlaceOptions();
  Code        NewValues();
  Code        NewNonzeros();
  bool        PetscFactors() const;
  Code        Second();
  Code        Destroy();

  Random       random_;
  const Place  place_;
  Report      &report_;
  std::string &log_;
  const bool   sent_;         /* the host has the matrix, and the GPU a copy of its rows */
  bool         together_;     /* the ranks come together, in one or two groups */
  Event        event_;        /* what is being done */
  bool         well_ = false; /* every solve must converge */
  PetscMPIInt  size_;
  PetscOptions options_ = nullptr;
  System       system_;
  Choice       choice_;
  Mat          A_   = nullptr;
  KSP          ksp_ = nullptr, second_ = nullptr;
  Vec          x_ = nullptr, b_ = nullptr;
  bool         apart_       = false; /* the vectors are on the host, wherever the matrix is */
  PetscInt     shell_calls_ = 0;
  PetscBool    eigenvalues_ = PETSC_FALSE;
  bool         changed_     = false; /* the matrix or the options are no longer those that the case began with */
};

/* The codes that stand for a mistake of the program, a matrix that a type cannot take, or what a type does not have. */
bool IsNamed(PetscErrorCode code)
{
  switch (code) {
  case PETSC_ERR_SUP:
  case PETSC_ERR_ORDER:
  case PETSC_ERR_ARG_SIZ:
  case PETSC_ERR_ARG_IDN:
  case PETSC_ERR_ARG_WRONG:
  case PETSC_ERR_ARG_OUTOFRANGE:
  case PETSC_ERR_ARG_WRONGSTATE:
  case PETSC_ERR_ARG_INCOMP:
  case PETSC_ERR_ARG_NOTSAMETYPE:
  case PETSC_ERR_USER_INPUT:
  case PETSC_ERR_USER:
  case PETSC_ERR_NOT_CONVERGED:
  case PETSC_ERR_CONV_FAILED:
  case PETSC_ERR_MAT_LU_ZRPVT:
  case PETSC_ERR_ARG_UNKNOWN_TYPE:
  case PETSC_ERR_MISSING_FACTOR: /* where a solver inside is left to PETSc, which takes ILU for a MATSBAIJ, too */
  case PETSC_ERR_FP: return true;
  default: return false;
  }
}

void Case::Note(const std::string &step, Code code, const std::string &text)
{
  int mine[2] = {(int)code, -(int)code}, most[2];

  log_ += step + (code ? ": error " + std::to_string((int)code) + " " + text.substr(0, 300) : "") + "\n";
  MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
  event_.code = most[0];
  event_.text = text;
  report_.events.push_back(event_);
  if (!most[0]) return;
  errors = true;
  if (most[1] == 0) Fault(step + ": an error on some of the ranks alone, on this one " + std::to_string((int)code));
  else if (code && !IsNamed(code))
    Fault(step + ": error " + std::to_string((int)code) + ", which is no mistake of a program: " + text);
  else if (code && text.find_first_not_of(' ') == std::string::npos) Fault(step + ": an error without a text");
}

/* ------------------------------------------ actions ------------------------------------------- */

bool IsOurs(const std::string &ksp)
{
  return ksp == "cgfused" || ksp == "gmresfused" || ksp == "rrbcg";
}

bool IsOurPC(const std::string &pc)
{
  return pc == "afsai" || pc == "sfsai" || pc == "bisai" || pc == "rrb" || pc == "cmatch";
}

/* Matrices of PETSc's other types stay on the host. */
const char *Case::MatTypeHere() const
{
  if (place_.device && choice_.mat == "aij" && !sent_) return MATAIJCUSPARSE;
  if (place_.reference && choice_.mat == "baijcuda") return MATBAIJ;
  return choice_.mat.c_str();
}

/* The first product of a small matrix may be wrong on a GPU; see docs/known-faults.md. */
PetscErrorCode Case::ThrowProductAway()
{
  Vec x, y;

  PetscFunctionBegin;
  if (!place_.device || sent_ || choice_.mat != "aij" || !system_.assembled) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatCreateVecs(A_, &x, &y));
  PetscCall(MatMult(A_, x, y));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What is right where the vectors are on the host and the matrix is not; with PETSc's own it is wrong, see docs/known-faults.md. */
bool TakesApart(const std::string &ksp, const std::string &pc)
{
  return IsOurs(ksp) && (IsOurPC(pc) || pc == "jacobi" || pc == "none");
}

/* Vectors of the host in the place of those that the matrix makes, which may be on a GPU. */
PetscErrorCode Case::VectorsToHost()
{
  PetscLayout rows;

  PetscFunctionBegin;
  PetscCall(MatGetLayouts(A_, &rows, nullptr));
  PetscCall(VecDestroy(&x_));
  PetscCall(VecDestroy(&b_));
  PetscCall(VecCreate(PETSC_COMM_WORLD, &b_));
  PetscCall(VecSetLayout(b_, rows));
  PetscCall(VecSetType(b_, VECMPI));
  PetscCall(VecDuplicate(b_, &x_));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Case::NewMatrix()
{
  PetscReal     *random;
  PetscInt       n, first;
  const PetscInt kind = random_.Below(20);
  const double   size = !well_ && random_.Chance(5) ? 1e200 : 1;

  PetscFunctionBegin;
  PetscCall(VecDestroy(&x_));
  PetscCall(VecDestroy(&b_));
  PetscCall(MatDestroy(&A_));
  if (choice_.pc == "jacobi" || choice_.pc == "none") system_.assembled = true; /* PETSc's own types do not look */
  if (place_.device || place_.reference) FillEmptyRows(&system_);
  system_.noise = place_.noise;
  system_.trial = place_.trial;
  PetscCall(CreateMat(system_, MatTypeHere(), random_, &A_));
  PetscCall(MatCreateVecs(A_, &x_, &b_));
  apart_ = random_.Chance(15) && choice_.mat == "aij" && TakesApart(choice_.ksp, choice_.pc);
  if (apart_ && place_.device) PetscCall(VectorsToHost());
  PetscCall(ThrowProductAway());
  PetscCall(VecGetLocalSize(b_, &n));
  PetscCall(VecGetOwnershipRange(b_, &first, nullptr));
  PetscCall(VecGetArrayWrite(b_, &random));
  std::vector<double> values((size_t)system_.rows); /* the same on all ranks, of which each takes its own */
  for (double &value : values) value = kind == 0 ? 0 : size * random_.Between(-1, 1);
  double mean = 0; /* where the matrix is singular, so that the right-hand side is in its range */
  for (PetscInt i = system_.first; i < system_.end; i++) mean += values[(size_t)i] / (double)(system_.end - system_.first);
  for (PetscInt i = system_.first; i < system_.end; i++) values[(size_t)i] -= mean;
  std::copy(values.begin() + first, values.begin() + first + n, random);
  PetscCall(VecRestoreArrayWrite(b_, &random));
  if (size > 1) system_.good = system_.hard = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The matrix, and a solver of the types that were chosen. */
PetscErrorCode Case::Create()
{
  PC pc;

  PetscFunctionBegin;
  PetscCall(NewMatrix());
  PetscCall(KSPCreate(PETSC_COMM_WORLD, &ksp_));
  PetscCall(KSPSetOperators(ksp_, A_, A_));
  PetscCall(KSPGetPC(ksp_, &pc));
  PetscCall(PCSetType(pc, choice_.pc.c_str()));
  PetscCall(KSPSetType(ksp_, choice_.ksp.c_str()));
  PetscCall(KSPSetTolerances(ksp_, kRelativeTolerance, PETSC_CURRENT, PETSC_CURRENT, kMostIterations));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Mostly the norm of the residual, and sometimes another one that the solver has. MINRES has its own. */
PetscErrorCode Case::SetNorm()
{
  std::vector<KSPNormType> others;

  PetscFunctionBegin;
  if (choice_.ksp == "cg" || choice_.ksp == "cgfused") others = {KSP_NORM_PRECONDITIONED, KSP_NORM_NATURAL};
  else if (choice_.ksp == "rrbcg") others = {KSP_NORM_NATURAL};
  else if (choice_.ksp != "minres") others = {KSP_NORM_PRECONDITIONED};
  const bool        true_one = others.empty() || !random_.Chance(25);
  const KSPNormType norm  = choice_.ksp == "minres" ? KSP_NORM_DEFAULT : true_one ? KSP_NORM_UNPRECONDITIONED : random_.Of(others);
  const bool        sided = choice_.ksp == "bcgs" || choice_.ksp == "gmresfused";
  PetscCall(KSPSetPCSide(ksp_, !sided ? PC_SIDE_DEFAULT : true_one ? PC_RIGHT : PC_LEFT));
  PetscCall(KSPSetNormType(ksp_, norm));
  if (!true_one) log_ += std::string("  -ksp_norm_type ") + KSPNormTypes[norm] + "\n";
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Where finepc works. */
PetscErrorCode Case::PlaceOptions()
{
  PetscFunctionBegin;
  if (sent_) PetscCall(PetscOptionsSetValue(options_, "-finepc_backend", "device"));
  if (size_ > 1) PetscCall(PetscOptionsSetValue(options_, "-finepc_consolidate", together_ ? "true" : "false"));
  if (together_ && size_ > 2) PetscCall(PetscOptionsSetValue(options_, "-test_groups", "2"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Case::Start()
{
  PetscFunctionBegin;
  PetscCall(Create());
  PetscCall(SetNorm());
  if (random_.Chance(10)) PetscCall(KSPSetErrorIfNotConverged(ksp_, PETSC_TRUE));
  if (random_.Chance(10)) PetscCall(KSPSetInitialGuessNonzero(ksp_, PETSC_TRUE));
  if (random_.Chance(10)) eigenvalues_ = PETSC_TRUE; /* KSPCG has no room for more iterations than at its set-up */
  if (HasEstimates()) PetscCall(KSPSetComputeEigenvalues(ksp_, eigenvalues_));
  PetscCall(PetscOptionsInsertString(options_, choice_.options.c_str()));
  PetscCall(PlaceOptions());
  PetscCall(KSPSetFromOptions(ksp_));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The norm that the solver tests, as it is for this vector. */
PetscErrorCode Case::NormOf(KSP ksp, Vec v, PetscReal *norm)
{
  KSPNormType  type;
  PC           pc;
  MatNullSpace space;
  PetscScalar  product;
  Vec          z;

  PetscFunctionBegin;
  PetscCall(KSPGetNormType(ksp, &type));
  if (type == KSP_NORM_UNPRECONDITIONED) {
    PetscCall(VecNorm(v, NORM_2, norm));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecDuplicate(v, &z));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(PCApply(pc, v, z));
  PetscCall(MatGetNullSpace(A_, &space));
  if (space) PetscCall(MatNullSpaceRemove(space, z));
  PetscCall(VecDot(v, z, &product));
  PetscCall(VecNorm(z, NORM_2, norm));
  if (type == KSP_NORM_NATURAL) *norm = std::sqrt(std::fabs(product));
  PetscCall(VecDestroy(&z));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Whoever says that he has converged is asked for the true residual, in the norm that he tests. Our solvers may leave what rounding
   leaves: in proportion to |A| |x|, and where the residual is a recurrence, as with conjugate gradients, to the number of
   iterations. PETSc's solvers are given more, since their residuals may follow much larger iterates, and are not asked at all where
   the preconditioner is not `steady`, one linear map, except for the flexible one. Neither do they notice that the solution
   overflows, and they take r.z = 0 for convergence whatever the norm is, or, with FGMRES, an M r of nothing. BCGS and MINRES are
   not asked, since on nearly singular and on indefinite matrices the recurrences of their residuals come to nothing while the true
   residual does not.
*/
PetscErrorCode Case::Judge(KSP ksp, const std::string &type, bool steady, const Claim &claim)
{
  const KSPConvergedReason reason = claim.reason;
  const double             guess  = claim.guess;
  PetscReal                claimed, absolute, norm_x, norm_b, largest = 0;
  PetscInt                 first, last;
  KSPNormType              norm;
  Norms                    norms;
  Vec                      r;

  PetscFunctionBegin;
  PetscCall(KSPGetNormType(ksp, &norm));
  PetscCall(KSPGetResidualNorm(ksp, &claimed));
  PetscCall(KSPGetTolerances(ksp, nullptr, &absolute, nullptr, nullptr));
  if (norm == KSP_NORM_NONE) PetscFunctionReturn(PETSC_SUCCESS);
  for (const Entry &e : system_.entries) largest = std::isfinite(e.value) ? std::max(largest, std::fabs(e.value)) : INFINITY;
  PetscCall(VecNorm(claim.b, NORM_INFINITY, &norm_b));
  PetscCall(VecNorm(claim.x, NORM_INFINITY, &norm_x));
  if (!std::isfinite(norm_b) || !std::isfinite(largest)) PetscFunctionReturn(PETSC_SUCCESS);
  const bool ours = IsOurs(type);
  if (!ours && ((!steady && type != "fgmres") || type == "bcgs" || type == "minres" || !std::isfinite(norm_x)))
    PetscFunctionReturn(PETSC_SUCCESS);
  if (reason != KSP_CONVERGED_RTOL && !(reason == KSP_CONVERGED_ATOL && (ours || (type != "fgmres" && claimed <= absolute))) &&
      !(ours && reason == KSP_CONVERGED_HAPPY_BREAKDOWN))
    PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(VecDuplicate(claim.b, &r));
  PetscCall(Residual(system_, A_, claim.b, claim.x, &norms, r));
  double scale = 1; /* of rounding: at most the norm of M, or its root, since signs at random have its Frobenius norm */
  if (norm != KSP_NORM_UNPRECONDITIONED) {
    PetscCall(NormOf(ksp, r, &norms.r));
    PetscCall(NormOf(ksp, claim.b, &norms.b));
    const double unit = largest > 0 ? largest : 1; /* of the size of A, so that M of it neither vanishes nor overflows */
    PetscCall(VecGetOwnershipRange(r, &first, &last));
    for (PetscInt i = first; i < last; i++)
      PetscCall(VecSetValue(r, i, Random((std::uint64_t)i).Chance(50) ? unit : -unit, INSERT_VALUES));
    PetscCall(VecAssemblyBegin(r));
    PetscCall(VecAssemblyEnd(r));
    PetscCall(NormOf(ksp, r, &scale));
    scale /= unit;
  }
  PetscCall(VecDestroy(&r));
  if (!std::isfinite(scale) || !std::isfinite(norms.b)) PetscFunctionReturn(PETSC_SUCCESS); /* M of a tiny matrix overflows */
  const double units = !ours ? 4e6 : type == "gmresfused" ? 100 : 100. + 10. * (double)claim.its;
  const double bound =
    10 * claim.rtol * (norms.b > 0 ? norms.b : scale * guess) + units * 0x1p-52 * scale * (norms.size + guess) + 1e-49;
  if (!(norms.r <= bound)) {
    char text[200];
    PetscCall(PetscSNPrintf(text, sizeof(text),
                            "%s says %s in %d, but the true residual is %g, ||b|| %g, || |A| |x| || %g, norm %s", type.c_str(),
                            KSPConvergedReasons[reason], (int)claim.its, norms.r, norms.b, scale * norms.size, KSPNormTypes[norm]));
    Fault(text);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Restarts may stagnate, as those of KSPGMRES in the same iterations; MINRES wants a positive preconditioner. */
bool Case::MustConverge() const
{
  if (!choice_.defaults || changed_ || !IsOurPC(choice_.pc) || choice_.ksp == "gmresfused") return false;
  if (system_.sign < 0 && choice_.ksp == "minres") return false;
  /* On the pattern of its factors an inverse of block ILU says little about jumps. */
  if (choice_.pc == "bisai" && system_.name.find("jumps") != std::string::npos) return false;
  if (system_.good) return (choice_.pc != "bisai" && choice_.ksp != "bcgs" && choice_.ksp != "bicg") || size_ == 1;
  return system_.hard && (choice_.ksp == "cg" || choice_.ksp == "cgfused") && choice_.pc != "bisai" && choice_.pc != "rrb";
}

PetscErrorCode Case::Solve()
{
  KSPConvergedReason reason;
  PCFailedReason     failed;
  PC                 pc;
  PetscInt           its;
  PetscReal          guess, norm_x, norm_b;
  PetscBool          nonzero;
  Norms              of_guess;

  PetscFunctionBegin;
  if (random_.Chance(50)) PetscCall(VecSet(x_, random_.Between(-1, 1)));
  if (!well_ && random_.Chance(2)) PetscCall(VecSet(x_, NAN));
  PetscCall(VecNorm(x_, NORM_INFINITY, &guess));
  PetscCall(VecNorm(b_, NORM_INFINITY, &norm_b));
  PetscCall(KSPGetInitialGuessNonzero(ksp_, &nonzero));
  const bool sound = !nonzero || std::isfinite(guess);
  if (nonzero && sound && system_.assembled) PetscCall(Residual(system_, A_, b_, x_, &of_guess));
  event_.solve = true;
  event_.ours  = IsOurPC(choice_.pc) || IsOurs(choice_.ksp);
  /* after a basis in single precision it is rounding that says how often the solver begins anew */
  event_.good         = system_.good && choice_.options.find("basis_precision single") == std::string::npos;
  const double radius = choice_.ksp == "cgfused" && random_.Chance(5) ? std::pow(10, random_.Between(-3, 3)) : 0;
  if (radius > 0) PetscCall(KSPCGSetRadius(ksp_, radius));
  const Code code = KSPSolve(ksp_, b_, x_);
  if (radius > 0) PetscCall(KSPCGSetRadius(ksp_, 0));
  PetscCall(code);
  report_.solves++;
  PetscCall(KSPGetConvergedReason(ksp_, &reason));
  PetscCall(KSPGetIterationNumber(ksp_, &its));
  PetscCall(KSPGetPC(ksp_, &pc));
  PetscCall(PCGetFailedReason(pc, &failed));
  event_.reason     = reason;
  event_.iterations = its;
  event_.failed     = failed;
  log_ += "  " + std::string(KSPConvergedReasons[reason]) + " in " + std::to_string(its) + "\n";
  if (!reason) Fault("the solve gives no reason");
  if (radius > 0) {
    log_ += "    with the radius " + std::to_string(radius) + "\n";
    PetscCall(VecNorm(x_, NORM_2, &norm_x));
    if (reason > 0 && !(norm_x <= radius * (1 + 1e-8))) Fault("a solution outside of the trust region");
    PetscFunctionReturn(PETSC_SUCCESS); /* it solves another problem than A x = b */
  }
  if (well_ && reason < 0) Fault("a good matrix is not solved: " + std::string(KSPConvergedReasons[reason]));
  if (reason == KSP_DIVERGED_PC_FAILED && failed == PC_NOERROR) Fault("the preconditioner does not say why it failed");
  /*
     PETSc compares the norm with that of the right-hand side, or where that is 0 with that of the guess. A guess that is constant
     has next to no residual where the matrix is nearly singular, and conjugate gradients, which make the error smaller in the
     norm of A, may make the residual larger by the root of the condition number on their way, whatever M is.
  */
  const bool diverged_guess = nonzero && reason == KSP_DIVERGED_DTOL && (!its || (norm_b == 0 && !system_.good));
  /* A pattern that is fixed knows nothing of couplings that differ by up to 1e9, and neither does PCJACOBI. */
  const bool slow = reason == KSP_DIVERGED_ITS && choice_.pc == "sfsai" && system_.name.find("stretched") != std::string::npos;
  if (sound && MustConverge() && reason < 0 && !diverged_guess && !slow)
    Fault(std::string(system_.good ? "a good" : "a hard") +
          " matrix with default options is not solved: " + KSPConvergedReasons[reason]);
  /*
     Right preconditioning applies M to a sum at the end, as PETSc does it, which a cycle in single precision rounds otherwise than
     its terms. PETSc's MINRES estimates the norm by recurrences, which hold for symmetric preconditioners, as that of bisai is not.
  */
  const bool steady = (choice_.pc != "cmatch" || choice_.ksp != "bcgs") && (choice_.pc != "bisai" || choice_.ksp != "minres");
  if (event_.ours || choice_.pc == "auto") /* What PETSc does alone is not looked at. */
    PetscCall(Judge(ksp_, choice_.ksp, steady, Claim{b_, x_, reason, its, kRelativeTolerance, of_guess.size}));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Case::Apply()
{
  Vec       y;
  PC        pc, chosen = nullptr;
  PetscBool transpose = random_.Chance(40) ? PETSC_TRUE : PETSC_FALSE, set, gamg = PETSC_FALSE;

  PetscFunctionBegin;
  PetscCall(KSPGetPC(ksp_, &pc));
  PetscCall(PCGetOperatorsSet(pc, nullptr, &set));
  if (!set) PetscFunctionReturn(PETSC_SUCCESS); /* PCApply() looks at the matrix */
  if (choice_.pc == "auto") PetscCall(PCAUTOGetPC(pc, &chosen));
  if (chosen) PetscCall(PetscObjectTypeCompare((PetscObject)chosen, PCGAMG, &gamg));
  if (gamg) transpose = PETSC_FALSE; /* an error there leaves it unusable; see docs/known-faults.md */
  PetscCall(VecDuplicate(x_, &y));
  const Code code = transpose ? PCApplyTranspose(pc, b_, y) : PCApply(pc, b_, y);
  PetscCall(VecDestroy(&y));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Case::ManyColumns()
{
  Mat       X, Y;
  PC        pc;
  PetscInt  m, M;
  VecType   type;
  PetscBool cuda;

  PetscFunctionBegin;
  PetscCall(KSPGetPC(ksp_, &pc));
  PetscCall(MatGetLocalSize(A_, &m, nullptr));
  PetscCall(MatGetSize(A_, &M, nullptr));
  PetscCall(VecGetType(x_, &type));
  PetscCall(PetscStrcmpAny(type, &cuda, VECCUDA, VECSEQCUDA, VECMPICUDA, ""));
  PetscCall(MatCreate(PETSC_COMM_WORLD, &X));
  PetscCall(MatSetSizes(X, m, PETSC_DECIDE, M, random_.Of(std::vector<PetscInt>{1, 3, 17})));
  PetscCall(MatSetType(X, cuda ? MATDENSECUDA : MATDENSE));
  PetscCall(MatSetUp(X));
  PetscCall(MatSetRandom(X, nullptr));
  PetscCall(MatDuplicate(X, MAT_DO_NOT_COPY_VALUES, &Y));
  /* after an error of a solver of PETSc's the column cannot be given back */
  const Code code = random_.Chance(50) || !IsOurs(choice_.ksp) ? PCMatApply(pc, X, Y) : SolveColumns(X, Y);
  PetscCall(MatDestroy(&X));
  PetscCall(MatDestroy(&Y));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Only cgfused says what has become of each column. With auto, M of a column may have been another one than that of the last. */
PetscErrorCode Case::SolveColumns(Mat B, Mat X)
{
  PC                        pc;
  PetscBool                 chooses;
  PetscInt                  count;
  KSPNormType               norm;
  const PetscInt           *its;
  const KSPConvergedReason *reasons;

  PetscFunctionBegin;
  PetscCall(KSPMatSolve(ksp_, B, X));
  PetscCall(KSPGetPC(ksp_, &pc));
  PetscCall(KSPGetNormType(ksp_, &norm));
  PetscCall(PetscObjectTypeCompare((PetscObject)pc, PCAUTO, &chooses));
  if (choice_.ksp != "cgfused" || (chooses && norm != KSP_NORM_UNPRECONDITIONED)) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(KSPCGFusedGetColumns(ksp_, &count, &its, &reasons));
  for (PetscInt c = 0; c < count; c++) {
    Claim claim{nullptr, nullptr, reasons[c], its[c], kRelativeTolerance, 0};
    Vec   column;
    PetscCall(VecDuplicate(b_, &claim.b));
    PetscCall(VecDuplicate(x_, &claim.x));
    PetscCall(MatDenseGetColumnVecRead(B, c, &column));
    PetscCall(VecCopy(column, claim.b));
    PetscCall(MatDenseRestoreColumnVecRead(B, c, &column));
    PetscCall(MatDenseGetColumnVecRead(X, c, &column));
    PetscCall(VecCopy(column, claim.x));
    PetscCall(MatDenseRestoreColumnVecRead(X, c, &column));
    const Code code = Judge(ksp_, choice_.ksp, true, claim);
    PetscCall(VecDestroy(&claim.b));
    PetscCall(VecDestroy(&claim.x));
    PetscCall(code);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The estimates of a solver, which is an error where they have not been asked for. */
PetscErrorCode Case::Estimate()
{
  PetscReal              largest, smallest;
  PetscInt               count;
  std::vector<PetscReal> real(kMostIterations + 1), imaginary(kMostIterations + 1);

  PetscFunctionBegin;
  PetscCall(KSPComputeExtremeSingularValues(ksp_, &largest, &smallest));
  PetscCall(KSPComputeEigenvalues(ksp_, kMostIterations, real.data(), imaginary.data(), &count));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a program gets out of a solver and a preconditioner. */
PetscErrorCode Case::Build()
{
  Vec v;
  PC  pc;
  Mat first = nullptr, second = nullptr;

  PetscFunctionBegin;
  PetscCall(KSPGetPC(ksp_, &pc));
  if (random_.Chance(50)) PetscCall(KSPBuildSolution(ksp_, nullptr, &v));
  else if (IsOurs(choice_.ksp) && (eigenvalues_ || random_.Chance(10))) PetscCall(Estimate());
  else if (choice_.pc == "afsai") PetscCall(PCAFSAIGetFactors(pc, &first, &second));
  else if (choice_.pc == "sfsai") PetscCall(PCSFSAIGetFactors(pc, &first, &second));
  else if (choice_.pc == "bisai") PetscCall(PCBISAIGetFactors(pc, &first, &second));
  PetscCall(MatDestroy(&first));
  PetscCall(MatDestroy(&second));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Case::View()
{
  PetscViewer viewer;

  PetscFunctionBegin;
  PetscCall(PetscViewerASCIIOpen(PETSC_COMM_WORLD, "/dev/null", &viewer));
  const Code code = KSPView(ksp_, viewer);
  PetscCall(PetscViewerDestroy(&viewer));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Case::NewOptions()
{
  const std::string options = OptionsOf(choice_.pc, random_);

  PetscFunctionBegin;
  log_ += "  " + options + "\n";
  changed_ = true;
  PetscCall(PetscOptionsClear(options_));
  PetscCall(PetscOptionsInsertString(options_, options.c_str()));
  PetscCall(PlaceOptions());
  PetscCall(KSPSetFromOptions(ksp_));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Other values in the same matrix, whose null space may be none any more: PETSc would project the right-hand side by it. */
PetscErrorCode Case::NewValues()
{
  PetscFunctionBegin;
  PetscCall(SetValues(system_, A_));
  if (system_.null_space) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatSetNullSpace(A_, nullptr));
  PetscCall(MatSetTransposeNullSpace(A_, nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Other nonzeros in the same matrix, and often the same system given to the solver again. */
PetscErrorCode Case::NewNonzeros()
{
  std::string  how = "MatTranspose";
  MatNullSpace space;

  PetscFunctionBegin;
  PetscCall(MatGetNullSpace(A_, &space));
  if (space) PetscCall(PetscObjectReference((PetscObject)space));
  PetscCall(MatSetNullSpace(A_, nullptr)); /* MatAXPY() loses it */
  if (random_.Chance(25)) {
    for (Entry &e : system_.entries) std::swap(e.row, e.column);
    PetscCall(MatTranspose(A_, MAT_INPLACE_MATRIX, &A_));
  } else {
    const System other = WithCouplings(system_, true, random_);
    PetscCall(ChangeNonzeros(system_, other, random_, &A_, &how));
    system_ = other;
  }
  PetscCall(MatSetNullSpace(A_, space));
  PetscCall(MatNullSpaceDestroy(&space));
  log_ += "  by " + how + "\n";
  PetscCall(ThrowProductAway());
  if (random_.Chance(70)) PetscCall(KSPSetOperators(ksp_, A_, A_));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A preconditioner of a program that is another one each time. */
PetscErrorCode ApplyShell(PC pc, Vec x, Vec y)
{
  PetscInt *calls;

  PetscFunctionBegin;
  PetscCall(PCShellGetContext(pc, &calls));
  PetscCall(VecCopy(x, y));
  PetscCall(VecScale(y, 1 + 0.5 * (double)((*calls)++ % 3)));
  if (*calls % 2) PetscCall(VecShift(y, 1e-3));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Preconditioners around the type, with the options of each, and whether they are linear maps where the type is. */
struct Wrapper {
  std::string name, options;                  /* # stands for the type */
  bool        steady = true, factors = false; /* PETSc factors the matrix in it */
};

/* Whether PETSc's ICC, the default for sbaij, comes to an end, and its ILU on all ranks alike: see docs/known-faults.md. */
bool Case::PetscFactors() const
{
  std::set<PetscInt> diagonal; /* rows that have a diagonal entry */
  bool               finite = true;
  for (const Entry &e : system_.entries) {
    finite = finite && std::isfinite(e.value);
    if (e.row == e.column) diagonal.insert(e.row);
  }
  return (finite || choice_.mat != "sbaij") && (size_ == 1 || (PetscInt)diagonal.size() == system_.rows);
}

/*
   Another solver of the same matrix, once, also with the type within another preconditioner, which may iterate or change by itself.
   An error in a block of one rank is an error of this rank alone, since the other ranks do not know of the block; so several ranks
   have this with matrices that make none.
*/
PetscErrorCode Case::Second()
{
  PC                         pc;
  Vec                        x;
  std::vector<Wrapper>       wrappers = {{"", ""}};
  const std::vector<Wrapper> all      = {{"bjacobi", "-second_sub_pc_type #"},
                                         {"asm", "-second_sub_pc_type #"},
                                         {"ksp", "-second_ksp_ksp_max_it 3 -second_ksp_pc_type #", false},
                                         {"bjacobi",
                                          "-second_sub_ksp_type cg -second_sub_ksp_max_it 4 "
                                               "-second_sub_pc_type #",
                                          false},
                                         {"composite", "-second_pc_composite_type multiplicative "
                                                            "-second_pc_composite_pcs #,jacobi"},
                                         {"composite",
                                          "-second_pc_composite_pcs ksp,# "
                                               "-second_sub_0_ksp_ksp_max_it 3",
                                          false, true},
                                         {"shell", "", false}};
  const bool                 safe     = system_.good || (system_.hard && choice_.pc != "bisai");
  constexpr double           rtol     = 1e-6;

  PetscFunctionBegin;
  /* The inner solver's ICC of PETSc reads through null pointers where there are no rows. */
  if (system_.rows && (size_ == 1 || (safe && choice_.pc != "rrb"))) wrappers.insert(wrappers.end(), all.begin(), all.end());
  if (size_ > 1 && safe && choice_.pc != "rrb" && choice_.mat != "dense") /* an error would be one of some ranks alone */
    wrappers.push_back({"telescope",
                        "-second_pc_telescope_reduction_factor 2 -second_telescope_ksp_type cg -second_telescope_ksp_max_it 3 "
                        "-second_telescope_pc_type #",
                        false});
  if (!PetscFactors())
    wrappers.erase(std::remove_if(wrappers.begin(), wrappers.end(), [](const Wrapper &w) { return w.factors; }), wrappers.end());
  const Wrapper wrapper = random_.Of(wrappers);
  std::string   type    = random_.Of(std::vector<std::string>{"bcgs", "gmres", "fgmres", "gmresfused", "gmresfused", "cgfused"});
  if (apart_ && !IsOurs(type)) type = "gmresfused";
  std::string options = wrapper.options;
  if (options.find('#') != std::string::npos) options.replace(options.find('#'), 1, choice_.pc);
  const OptionsScope scope(options);
  event_.ours = IsOurs(type) || (IsOurPC(choice_.pc) && wrapper.name != "shell"); /* what PETSc does alone is not looked at */
  log_ += "  -ksp_type " + type + " -pc_type " + (wrapper.name.empty() ? choice_.pc : wrapper.name) + " " + options + "\n";
  PetscCall(KSPDestroy(&second_));
  PetscCall(KSPCreate(PETSC_COMM_WORLD, &second_));
  PetscCall(KSPSetOperators(second_, A_, A_));
  PetscCall(KSPSetType(second_, type.c_str()));
  PetscCall(KSPGetPC(second_, &pc));
  PetscCall(KSPSetOptionsPrefix(second_, "second_"));
  PetscCall(PCSetType(pc, wrapper.name.empty() ? choice_.pc.c_str() : wrapper.name.c_str()));
  if (wrapper.name == "shell") {
    PetscCall(PCShellSetApply(pc, ApplyShell));
    PetscCall(PCShellSetContext(pc, &shell_calls_));
  }
  if (type != "cgfused" && type != "gmresfused") PetscCall(KSPSetPCSide(second_, PC_RIGHT));
  PetscCall(KSPSetNormType(second_, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPSetTolerances(second_, rtol, PETSC_CURRENT, PETSC_CURRENT, 60));
  PetscCall(KSPSetFromOptions(second_));
  PetscCall(VecDuplicate(x_, &x));
  PetscCall(VecZeroEntries(x));
  Code code = KSPSolve(second_, b_, x);
  /* GMRES of PETSc, too, applies M to a sum, which must be no larger than the terms. */
  const bool steady = wrapper.steady && choice_.pc != "cmatch" && system_.good;
  Claim      claim{b_, x, KSP_CONVERGED_ITERATING, 0, rtol, 0};
  if (!code) code = KSPGetConvergedReason(second_, &claim.reason);
  if (!code) code = KSPGetIterationNumber(second_, &claim.its);
  if (!code && (event_.ours || (choice_.pc == "auto" && wrapper.name.empty()))) code = Judge(second_, type, steady, claim);
  PetscCall(VecDestroy(&x));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Case::Destroy()
{
  PetscFunctionBegin;
  PetscCall(KSPDestroy(&second_));
  PetscCall(KSPDestroy(&ksp_));
  PetscCall(VecDestroy(&x_));
  PetscCall(VecDestroy(&b_));
  PetscCall(MatDestroy(&A_));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* One thing that programs do between their solves. */
void Case::Act()
{
  PC pc;
  (void)KSPGetPC(ksp_, &pc);
  switch (random_.Below(22)) {
  case 0: Do("KSPSetUp", [&] { return KSPSetUp(ksp_); }); break;
  case 1: Do("PCSetUp", [&] { return PCSetUp(pc); }); break;
  case 2: /* the matrix has to be given again */
    Do("KSPReset", [&] {
      const Code code = KSPReset(ksp_);
      return code ? code : KSPSetOperators(ksp_, A_, A_);
    });
    break;
  case 3: /* likewise; without operators there is a clear error */
    Do("PCReset", [&] {
      const Code code = PCReset(pc);
      return code || random_.Chance(5) ? code : KSPSetOperators(ksp_, A_, A_);
    });
    break;
  case 4:
  case 5:
    system_  = WithOtherValues(system_, random_);
    changed_ = true;
    Do("other values of " + system_.name, [&] { return NewValues(); });
    break;
  case 18:                         /* a time step, and back */
    if (system_.null_space) break; /* the null space that the matrix was given would be none */
    system_ = WithTimeStep(system_);
    Do(system_.step > 0 ? "a time step" : "steady", [&] { return SetValues(system_, A_); });
    break;
  case 19:
    system_ = WithCouplings(system_, false, random_);
    Do("stronger couplings", [&] { return SetValues(system_, A_); });
    break;
  case 20:
  case 21:
    if (choice_.mat != "aij" || !system_.assembled || system_.order != System::Order::Sorted) break;
    Do("other nonzeros in place", [&] { return NewNonzeros(); });
    break;
  case 6: /* another matrix; PETSc makes an error of another size on the ranks alone whose own size differs */
    system_  = MakeSystem(random_);
    changed_ = true;
    Do("another matrix: " + system_.name, [&] {
      Code code = random_.Chance(70) || size_ > 1 ? KSPReset(ksp_) : PETSC_SUCCESS;
      if (!code) code = NewMatrix();
      return code ? code : KSPSetOperators(ksp_, A_, A_);
    });
    break;
  case 7: Do("apply", [&] { return Apply(); }); break;
  case 8: Do("several columns", [&] { return ManyColumns(); }); break;
  case 9: Do("what is built", [&] { return Build(); }); break;
  case 10: /* ranks do not agree on whether a dense matrix is assembled; see docs/known-faults.md */
    if (size_ > 1 && choice_.mat == "dense" && !system_.assembled) break;
    Do("view", [&] { return View(); });
    break;
  case 11:
  case 12: Do("options", [&] { return NewOptions(); }); break;
  case 13: {
    const Choice other = MakeChoice(random_);
    if (!system_.assembled && (other.pc == "jacobi" || other.pc == "none")) break; /* as in NewMatrix() */
    if (apart_ && !TakesApart(choice_.ksp, other.pc)) break;
    choice_.pc      = other.pc;
    choice_.chooses = choice_.chooses || other.chooses;
    changed_        = true;
    Do("PCSetType " + other.pc, [&] { return PCSetType(pc, other.pc.c_str()); });
    break;
  }
  case 14: {
    const Choice other = MakeChoice(random_);
    if (apart_ && !TakesApart(other.ksp, choice_.pc)) break;
    choice_.ksp = other.ksp;
    changed_    = true;
    Do("KSPSetType " + other.ksp, [&] {
      Code code = KSPSetComputeEigenvalues(ksp_, HasEstimates() ? eigenvalues_ : PETSC_FALSE);
      if (!code) code = KSPSetType(ksp_, other.ksp.c_str());
      return code ? code : SetNorm();
    });
    break;
  }
  case 15:
    changed_ = true;
    Do("KSPSetReusePreconditioner", [&] { return KSPSetReusePreconditioner(ksp_, random_.Chance(50) ? PETSC_TRUE : PETSC_FALSE); });
    break;
  case 16: Do("a second solver", [&] { return Second(); }); break;
  case 17:
    Do("another tolerance", [&] {
      return KSPSetTolerances(ksp_, kRelativeTolerance, PETSC_CURRENT, PETSC_CURRENT,
                              random_.Of(std::vector<PetscInt>{0, 1, kMostIterations}));
    });
    changed_ = true;
    break;
  }
}

void Case::Run()
{
  system_ = MakeSystem(random_);
  choice_ = MakeChoice(random_);
  log_ += system_.name + "; -mat_type " + choice_.mat + " -ksp_type " + choice_.ksp + " -pc_type " + choice_.pc + " " +
          choice_.options + "\n";
  if (Do("beginning", [&] { return Start(); })) {
    Do("solve", [&] { return Solve(); });
    while (A_ && x_ && ksp_ && random_.Chance(80)) {
      Act();
      if (x_ && random_.Chance(60)) Do("solve", [&] { return Solve(); });
    }
  }
  if (!Do("end", [&] { return Destroy(); })) Fault("the objects cannot be destroyed");
}

/* ------------------------------------- a case that goes well ---------------------------------- */

/* The solvers that take the preconditioner. PETSc's GMRES applies a sum to the preconditioner, which rounds; see Solve(). */
std::string SolverFor(const std::string &pc, Random &random)
{
  if (pc == "bisai") return random.Of(std::vector<std::string>{"gmres", "bcgs"});
  if (pc == "cmatch") return random.Of(std::vector<std::string>{"cgfused", "cg", "fgmres"});
  if (pc == "rrb") return random.Of(std::vector<std::string>{"rrbcg", "rrbcg", "cgfused", "cg", "gmres"});
  return random.Of(std::vector<std::string>{"cgfused", "cgfused", "cg", "gmres"});
}

/* The residual that is tested is the true one. */
void Case::SetSide()
{
  PetscCallAbort(PETSC_COMM_SELF,
                 KSPSetPCSide(ksp_,
                              choice_.ksp == "gmres" || choice_.ksp == "fgmres" || choice_.ksp == "bcgs" ? PC_RIGHT : PC_LEFT));
}

PetscErrorCode Case::StartWell()
{
  PetscFunctionBegin;
  PetscCall(Create());
  SetSide();
  PetscCall(KSPSetNormType(ksp_, KSP_NORM_UNPRECONDITIONED));
  PetscCall(KSPSetFromOptions(ksp_));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* New values, a reset, another size, another solver. PETSc's GMRES uses freed memory after a reset. */
void Case::ActWell()
{
  const bool may_be_reset = choice_.ksp != "gmres" && choice_.ksp != "fgmres";
  PC         pc;
  (void)KSPGetPC(ksp_, &pc);
  switch (random_.Below(may_be_reset ? 6 : 3)) {
  case 0:
  case 1:
    system_.noise = 1e-3;
    system_.trial = (int)random_.Below(30);
    Do("other values of " + system_.name, [&] { return SetValues(system_, A_); });
    break;
  case 2:
    choice_.ksp = SolverFor(choice_.pc, random_);
    Do("KSPSetType " + choice_.ksp, [&] {
      const Code code = KSPSetType(ksp_, choice_.ksp.c_str());
      SetSide();
      return code;
    });
    break;
  case 3:
    Do("PCReset", [&] {
      const Code code = PCReset(pc);
      return code ? code : KSPSetOperators(ksp_, A_, A_);
    });
    break;
  case 4:
    Do("KSPReset", [&] {
      const Code code = KSPReset(ksp_);
      return code ? code : KSPSetOperators(ksp_, A_, A_);
    });
    break;
  case 5:
    if (TakesPoints(choice_.pc) && random_.Chance(25)) choice_.mat = random_.Of(std::vector<std::string>{"baij", "baijcuda"});
    system_ = MakeGoodSystem(choice_.pc, false, random_);
    Do("another matrix: " + system_.name, [&] {
      Code code = KSPReset(ksp_);
      if (!code) code = NewMatrix();
      return code ? code : KSPSetOperators(ksp_, A_, A_);
    });
    break;
  }
}

void Case::RunWell(bool large)
{
  well_      = true;
  choice_.pc = random_.Of(std::vector<std::string>{"afsai", "sfsai", "bisai", "cmatch", "rrb"});
  if (choice_.pc == "rrb" && size_ > 1) choice_.pc = "cmatch"; /* rows of several ranks are no whole lines of a grid here */
  choice_.ksp = SolverFor(choice_.pc, random_);
  choice_.mat = "aij";
  if (choice_.pc == "bisai" && random_.Chance(50)) choice_.mat = random_.Of(std::vector<std::string>{"baij", "baijcuda"});
  system_ = MakeGoodSystem(choice_.pc, large, random_);
  log_ += system_.name + "; -mat_type " + choice_.mat + " -ksp_type " + choice_.ksp + " -pc_type " + choice_.pc + "\n";
  if (Do("beginning", [&] { return StartWell(); })) {
    Do("solve", [&] { return Solve(); });
    for (int turn = 0; turn < 3 && !errors; turn++) {
      ActWell();
      if (!errors) Do("solve", [&] { return Solve(); });
    }
  }
  Do("end", [&] { return Destroy(); });
  if (errors) Fault("an error in a case that has none");
}

/* What PETSc has allocated, over all ranks. */
PetscLogDouble Bytes()
{
  PetscLogDouble mine = 0, most = 0;
  (void)PetscMallocGetCurrentUsage(&mine);
  MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_SUM, PETSC_COMM_WORLD);
  return most;
}

/* Where finepc_trace is loaded, the memory of this process alone, which others on the GPU do not disturb. */
double DeviceBytes()
{
  const auto traced = (double (*)())dlsym(RTLD_DEFAULT, "FinePCTracedDeviceBytes");
  return traced ? traced() : DeviceBytesInUse();
}

} // namespace

void Live(std::uint64_t seed, const Place &place, Report *report)
{
  PetscMPIInt ranks;
  MPI_Comm_size(PETSC_COMM_WORLD, &ranks);
  const PetscLogDouble own = kILUOfNoRowsIsLost ? 32 * PetscMax(ranks, 2) : 0; /* PETSc's, of matrices without rows */

  for (int attempt = 0; attempt < 3; attempt++) { /* what is made once, or kept for the next time, is there then */
    const PetscLogDouble before        = Bytes();
    const double         device_before = place.device ? DeviceBytes() : 0;
    bool                 errors;
    *report = Report();
    {
      Case c(seed, place, report);
      c.Run();
      errors = c.errors;
    }
    const PetscLogDouble lost           = Bytes() - before;
    const double         lost_on_device = place.device ? DeviceBytes() - device_before : 0;
    int                  mine           = errors || (lost <= own && lost_on_device <= 0) || !report->faults.empty(), all;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, PETSC_COMM_WORLD);
    if (all) return;
    if (attempt == 2 && !mine)
      report->faults.push_back("lost bytes, each time: " + std::to_string((long)lost) + ", and " +
                               std::to_string((long)lost_on_device) + " on the GPU");
  }
}

void LiveWell(std::uint64_t seed, const Place &place, bool large, Report *report)
{
  *report = Report();
  Case c(seed, place, report);
  c.RunWell(large);
}
