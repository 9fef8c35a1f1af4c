/*
   The life of the objects of a case: a random sequence of what programs do, good and bad. What must hold, whatever the matrix and
   the options are:

     - no crash, no endless loop, no exception (fuzz.cxx), and no loss of memory where there was no error;
     - a solve that says that it has converged has a small true residual, and one that has not says why, in finite numbers;
     - an error has a code that a user can have caused, a text, and is an error on all ranks;
     - a good matrix with the default options is solved;
     - the objects can be destroyed at any time.
*/
#include <petsc/private/petscimpl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

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

class Case {
public:
  Case(std::uint64_t seed, const Place &place, Report *report) : random_(seed), place_(place), report_(*report), log_(report->log)
  {
    MPI_Comm_size(PETSC_COMM_WORLD, &size_);
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
  bool Do(const std::string &what, Action &&action)
  {
    Messages messages;
    event_          = Event();
    event_.what     = what;
    const Code code = action();
    Note(what, code, messages.text);
    return !code;
  }
  void Note(const std::string &what, Code, const std::string &text);
  void Fault(const std::string &text) { report_.faults.push_back(text); }

  const char *MatTypeHere() const;
  Code        NewMatrix();
  Code        Start();
  Code        Create();
  Code        StartWell();
  void        SetSide();
  void        ActWell();
  void        Act();
  Code        Solve();
  Code        Judge(KSPConvergedReason, PetscReal guess);
  Code        Apply();
  Code        ManyColumns();
  Code        Build();
  Code        View();
  Code        NewOptions();
  Code        Second();
  Code        Destroy();

  Random       random_;
  const Place  place_;
  Report      &report_;
  std::string &log_;
  Event        event_;        /* what is being done */
  bool         well_ = false; /* every solve must converge */
  PetscMPIInt  size_;
  PetscOptions options_ = nullptr;
  System       system_;
  Choice       choice_;
  Mat          A_   = nullptr;
  KSP          ksp_ = nullptr, second_ = nullptr;
  Vec          x_ = nullptr, b_ = nullptr;
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
  case PETSC_ERR_FP: return true;
  default: return false;
  }
}

void Case::Note(const std::string &what, Code code, const std::string &text)
{
  int mine[2] = {(int)code, -(int)code}, most[2];

  log_ += what + (code ? ": error " + std::to_string((int)code) + " " + text.substr(0, 300) : "") + "\n";
  MPI_Allreduce(mine, most, 2, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
  event_.code = most[0];
  report_.events.push_back(event_);
  if (!most[0]) return;
  errors = true;
  if (most[1] == 0) Fault(what + ": an error on some of the ranks alone, on this one " + std::to_string((int)code));
  else if (code && !IsNamed(code))
    Fault(what + ": error " + std::to_string((int)code) + ", which is no mistake of a program: " + text);
  else if (code && text.find_first_not_of(' ') == std::string::npos) Fault(what + ": an error without a text");
}

/* ------------------------------------------ actions ------------------------------------------- */

/* Matrices of PETSc's other types stay on the host. */
const char *Case::MatTypeHere() const
{
  if (place_.device && choice_.mat == "aij") return MATAIJCUSPARSE;
  if (place_.reference && choice_.mat == "baijcuda") return MATBAIJ;
  return choice_.mat.c_str();
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
  system_.noise = place_.noise;
  system_.trial = place_.trial;
  PetscCall(CreateMat(system_, MatTypeHere(), random_, &A_));
  PetscCall(MatCreateVecs(A_, &x_, &b_));
  PetscCall(VecGetLocalSize(b_, &n));
  PetscCall(VecGetArrayWrite(b_, &random));
  PetscCall(VecGetOwnershipRange(b_, &first, nullptr));
  for (PetscInt i = 0; i < system_.rows; i++) { /* the same numbers on all ranks, of which each takes its own */
    const double value = kind == 0 ? 0 : size * random_.Between(-1, 1);
    if (i >= first && i < first + n) random[i - first] = value;
  }
  PetscCall(VecRestoreArrayWrite(b_, &random));
  if (size > 1) system_.good = false;
  if (system_.constants) { /* a right-hand side in the range */
    MatNullSpace space;

    PetscCall(MatGetNullSpace(A_, &space));
    PetscCall(MatNullSpaceRemove(space, b_));
  }
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

PetscErrorCode Case::Start()
{
  PetscFunctionBegin;
  PetscCall(Create());
  if (choice_.ksp == "bcgs") PetscCall(KSPSetPCSide(ksp_, PC_RIGHT));
  if (choice_.ksp != "minres") PetscCall(KSPSetNormType(ksp_, KSP_NORM_UNPRECONDITIONED));
  if (random_.Chance(10)) PetscCall(KSPSetErrorIfNotConverged(ksp_, PETSC_TRUE));
  if (random_.Chance(10)) PetscCall(KSPSetInitialGuessNonzero(ksp_, PETSC_TRUE));
  if (random_.Chance(5)) eigenvalues_ = PETSC_TRUE; /* KSPCG has no room for more iterations than at its set-up */
  if (choice_.ksp == "cgfused") PetscCall(KSPSetComputeEigenvalues(ksp_, eigenvalues_));
  PetscCall(PetscOptionsInsertString(options_, choice_.options.c_str()));
  PetscCall(KSPSetFromOptions(ksp_));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Norms that overflow or are not finite say nothing, and MINRES has reasons of its own. PETSc's solvers do not notice that the
   solution overflows, and take r.z = 0 for convergence whatever the norm is.
*/
PetscErrorCode Case::Judge(KSPConvergedReason reason, PetscReal guess)
{
  Vec          r;
  PetscReal    norm_r, norm_b, norm_x, norm_A, claimed, absolute;
  MatNullSpace space;

  PetscFunctionBegin;
  PetscCall(VecDuplicate(b_, &r));
  PetscCall(MatMult(A_, x_, r));
  PetscCall(VecAYPX(r, -1, b_));
  PetscCall(MatGetNullSpace(A_, &space));
  if (space) PetscCall(MatNullSpaceRemove(space, r));
  PetscCall(VecNorm(r, NORM_INFINITY, &norm_r)); /* squares might overflow */
  PetscCall(VecNorm(b_, NORM_INFINITY, &norm_b));
  PetscCall(VecNorm(x_, NORM_INFINITY, &norm_x));
  PetscCall(MatNorm(A_, NORM_INFINITY, &norm_A));
  PetscCall(VecDestroy(&r));
  PetscCall(KSPGetResidualNorm(ksp_, &claimed));
  PetscCall(KSPGetTolerances(ksp_, nullptr, &absolute, nullptr, nullptr));
  const bool ours = choice_.ksp == "cgfused" || choice_.ksp == "rrbcg";
  const bool told =
    reason == KSP_CONVERGED_RTOL ? ours || std::isfinite(norm_x) : reason == KSP_CONVERGED_ATOL && (ours || claimed <= absolute);
  const bool finite =
    std::all_of(system_.entries.begin(), system_.entries.end(), [](const Entry &e) { return std::isfinite(e.value); });
  if (told && finite && std::isfinite(norm_b) && std::isfinite(norm_A)) {
    /* a recurrence leaves the residual by rounding, in proportion to the largest iterate */
    const PetscReal bound = 1e3 * kRelativeTolerance * (norm_b + norm_A * guess) + 1e-9 * norm_A * norm_x + 1e-49;
    if (!(norm_r <= bound)) {
      char text[200];
      PetscCall(PetscSNPrintf(text, sizeof(text), "%s, but the true residual is %g, ||b|| %g, ||A|| %g, ||x|| %g",
                              KSPConvergedReasons[reason], (double)norm_r, (double)norm_b, (double)norm_A, (double)norm_x));
      Fault(text);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Case::Solve()
{
  KSPConvergedReason reason;
  PCFailedReason     failed;
  KSPNormType        norm;
  PC                 pc;
  PetscInt           its;
  PetscReal          guess;
  PetscBool          nonzero;

  PetscFunctionBegin;
  if (random_.Chance(50)) PetscCall(VecSet(x_, random_.Between(-1, 1)));
  if (!well_ && random_.Chance(2)) PetscCall(VecSet(x_, NAN));
  PetscCall(VecNorm(x_, NORM_INFINITY, &guess));
  PetscCall(KSPGetInitialGuessNonzero(ksp_, &nonzero));
  const bool sound = !nonzero || std::isfinite(guess);
  if (!nonzero || !sound) guess = 0;
  event_.solve = true;
  event_.good  = system_.good;
  PetscCall(KSPSolve(ksp_, b_, x_));
  report_.solves++;
  PetscCall(KSPGetConvergedReason(ksp_, &reason));
  PetscCall(KSPGetIterationNumber(ksp_, &its));
  PetscCall(KSPGetNormType(ksp_, &norm));
  PetscCall(KSPGetPC(ksp_, &pc));
  PetscCall(PCGetFailedReason(pc, &failed));
  event_.reason     = reason;
  event_.iterations = its;
  event_.failed     = failed;
  log_ += "  " + std::string(KSPConvergedReasons[reason]) + " in " + std::to_string(its) + "\n";
  if (!reason) Fault("the solve gives no reason");
  if (well_ && reason < 0) Fault("a good matrix is not solved: " + std::string(KSPConvergedReasons[reason]));
  if (reason == KSP_DIVERGED_PC_FAILED && failed == PC_NOERROR) Fault("the preconditioner does not say why it failed");
  const bool ours =
    choice_.pc == "afsai" || choice_.pc == "sfsai" || choice_.pc == "bisai" || choice_.pc == "rrb" || choice_.pc == "cmatch";
  const bool symmetric = choice_.pc != "bisai" && choice_.ksp != "bcgs" && choice_.ksp != "bicg";
  const bool restarts  = choice_.ksp == "gmresfused"; /* which may stagnate, as those of KSPGMRES in the same iterations */
  if (sound && system_.good && choice_.defaults && !changed_ && ours && (symmetric || size_ == 1) && !restarts && reason < 0)
    Fault("a good matrix with default options is not solved: " + std::string(KSPConvergedReasons[reason]));
  /*
     Right preconditioning applies M to a sum at the end, as PETSc does it, which a cycle in single precision rounds otherwise than
     its terms.
  */
  const bool linear = choice_.pc != "cmatch" || (choice_.ksp != "bcgs" && choice_.ksp != "gmresfused");
  const bool finepc = ours || choice_.ksp == "cgfused" || choice_.ksp == "gmresfused" ||
                      choice_.ksp == "rrbcg"; /* What PETSc does alone is not looked at. */
  /* PETSc's MINRES estimates the norm by recurrences, which hold for symmetric preconditioners, as that of bisai is not. */
  const bool computed = choice_.ksp != "minres" || choice_.pc != "bisai";
  if (finepc && computed && norm == KSP_NORM_UNPRECONDITIONED && linear) PetscCall(Judge(reason, guess));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Case::Apply()
{
  Vec       y;
  PC        pc;
  PetscBool transpose = random_.Chance(40) ? PETSC_TRUE : PETSC_FALSE, set;

  PetscFunctionBegin;
  PetscCall(KSPGetPC(ksp_, &pc));
  PetscCall(PCGetOperatorsSet(pc, nullptr, &set));
  if (!set) PetscFunctionReturn(PETSC_SUCCESS); /* PCApply() looks at the matrix */
  PetscCall(VecDuplicate(x_, &y));
  const Code code = transpose ? PCApplyTranspose(pc, b_, y) : PCApply(pc, b_, y);
  PetscCall(VecDestroy(&y));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Case::ManyColumns()
{
  Mat      X, Y;
  PC       pc;
  PetscInt m, M;
  VecType  type;

  PetscFunctionBegin;
  PetscCall(KSPGetPC(ksp_, &pc));
  PetscCall(MatGetLocalSize(A_, &m, nullptr));
  PetscCall(MatGetSize(A_, &M, nullptr));
  PetscCall(VecGetType(x_, &type));
  PetscCall(MatCreateDenseFromVecType(PETSC_COMM_WORLD, type, m, PETSC_DECIDE, M, random_.Of(std::vector<PetscInt>{1, 3, 17}),
                                      PETSC_DECIDE, nullptr, &X));
  PetscCall(MatSetRandom(X, nullptr));
  PetscCall(MatDuplicate(X, MAT_DO_NOT_COPY_VALUES, &Y));
  const Code code = PCMatApply(pc, X, Y);
  PetscCall(MatDestroy(&X));
  PetscCall(MatDestroy(&Y));
  PetscCall(code);
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
  PetscCall(KSPSetFromOptions(ksp_));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Another solver of the same matrix, or with the type as a preconditioner of blocks. */
PetscErrorCode Case::Second()
{
  PC  pc;
  Vec x;

  PetscFunctionBegin;
  PetscCall(KSPDestroy(&second_));
  PetscCall(KSPCreate(PETSC_COMM_WORLD, &second_));
  PetscCall(KSPSetOperators(second_, A_, A_));
  PetscCall(KSPSetType(second_, KSPBCGS));
  PetscCall(KSPGetPC(second_, &pc));
  PetscCall(KSPSetOptionsPrefix(second_, "second_"));
  /* an error in a block of one rank is an error of this rank alone, since the other ranks do not know of the block */
  const std::string nest = size_ > 1 ? "" : random_.Of(std::vector<std::string>{"", "bjacobi", "asm", "ksp"});
  PetscCall(PCSetType(pc, nest.empty() ? choice_.pc.c_str() : nest.c_str()));
  const std::string inner = nest == "ksp" ? "ksp_ksp_max_it 3 -second_ksp_pc_type " : "sub_pc_type ";
  if (!nest.empty()) PetscCall(PetscOptionsInsertString(options_, ("-second_" + inner + choice_.pc).c_str()));
  PetscCall(KSPSetTolerances(second_, 1e-3, PETSC_CURRENT, PETSC_CURRENT, 20));
  PetscCall(KSPSetFromOptions(second_));
  PetscCall(VecDuplicate(x_, &x));
  const Code code = KSPSolve(second_, b_, x);
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
  switch (random_.Below(18)) {
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
    Do("other values of " + system_.name, [&] { return SetValues(system_, A_); });
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
  case 10: Do("view", [&] { return View(); }); break;
  case 11:
  case 12: Do("options", [&] { return NewOptions(); }); break;
  case 13: {
    const Choice other = MakeChoice(random_);
    if (!system_.assembled && (other.pc == "jacobi" || other.pc == "none")) break; /* as in NewMatrix() */
    choice_.pc = other.pc;
    changed_   = true;
    Do("PCSetType " + other.pc, [&] { return PCSetType(pc, other.pc.c_str()); });
    break;
  }
  case 14: {
    const Choice other = MakeChoice(random_);
    choice_.ksp        = other.ksp;
    changed_           = true;
    Do("KSPSetType " + other.ksp, [&] {
      const Code code = KSPSetComputeEigenvalues(ksp_, other.ksp == "cgfused" ? eigenvalues_ : PETSC_FALSE);
      return code ? code : KSPSetType(ksp_, other.ksp.c_str());
    });
    break;
  }
  case 15:
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

} // namespace

void Live(std::uint64_t seed, const Place &place, Report *report)
{
  for (int attempt = 0; attempt < 3; attempt++) { /* what is made once, or kept for the next time, is there then */
    const PetscLogDouble before        = Bytes();
    const double         device_before = place.device ? DeviceBytesInUse() : 0;
    bool                 errors;
    *report = Report();
    {
      Case c(seed, place, report);
      c.Run();
      errors = c.errors;
    }
    const PetscLogDouble lost           = Bytes() - before;
    const double         lost_on_device = place.device ? DeviceBytesInUse() - device_before : 0;
    int                  mine           = errors || (lost <= 0 && lost_on_device <= 0) || !report->faults.empty(), all;
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
