/*
   What every preconditioner of a rank's own diagonal block does: options, view, life cycle, vectors and matrices of either memory,
   bad matrices, nesting, several ranks. Each case is written once for all types; what differs is in Types() of pc_support.cxx.
*/
#include <petsc/private/pcimpl.h>
#include <petscdmda.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstring>
#include <numeric>
#include <set>

#include "covering.h"
#include "pc/local.h"
#include "pc/pcinverse.h"
#include "pc_support.h"
#include "spread.h"

namespace
{

/* The first row of a rank's block. */
PetscInt FirstRow(Mat A, int rank)
{
  const PetscInt *ranges;
  MUST(MatGetOwnershipRanges(A, &ranges));
  return ranges[rank];
}

/* Each set-up increases this number. */
PetscObjectState StateOf(PC pc)
{
  return Got(PetscObjectStateGet, (PetscObject)pc);
}

PC_Local *LocalOf(PC pc)
{
  return (PC_Local *)pc->data;
}

/* KSPSolve() of something that does not fit Solve(), which works with the solution. */
KSPConvergedReason ReasonOfSolve(KSP ksp)
{
  Mat A;
  MUST(KSPGetOperators(ksp, &A, nullptr));
  const VecObject b = RightVec(A), x = RightVec(A);
  MUST(KSPSolve(ksp, b, x));
  return ::ReasonOf(ksp);
}

std::string BackendLine(const Kind &kind)
{
  return std::string("backend ") + (kind.OnDevice() ? "CUDA" : "host");
}

/*
   Random numbers in columns that are ld apart; what is between two columns is NaN, and on the device, too, where the matrix belongs
   there.
*/
MatObject CreateDense(PetscInt n, PetscInt columns, PetscInt ld, MatType type, std::uint64_t seed)
{
  MatObject          X;
  PetscScalar       *x;
  const PetscScalar *uploaded;
  PetscMemType       where;
  Random             random(seed);
  MUST(MatCreate(PETSC_COMM_SELF, X.put()));
  MUST(MatSetSizes(X, n, columns, n, columns));
  MUST(MatSetType(X, type));
  MUST(MatDenseSetLDA(X, ld));
  MUST(MatSetUp(X));
  MUST(MatDenseGetArrayWrite(X, &x));
  for (PetscInt k = 0; k < ld * columns; k++) x[k] = k % ld < n ? random.Between(-1, 1) : std::nan("");
  MUST(MatDenseRestoreArrayWrite(X, &x));
  MUST(MatDenseGetArrayReadAndMemType(X, &uploaded, &where));
  MUST(MatDenseRestoreArrayReadAndMemType(X, &uploaded));
  return X;
}

std::vector<double> Column(Mat X, PetscInt column)
{
  const PetscScalar *x;
  PetscInt           n, ld;
  MUST(MatGetSize(X, &n, nullptr));
  MUST(MatDenseGetLDA(X, &ld));
  MUST(MatDenseGetArrayRead(X, &x));
  const std::vector<double> values(x + (size_t)column * ld, x + (size_t)column * ld + n);
  MUST(MatDenseRestoreArrayRead(X, &x));
  return values;
}

/* Whether what is between two columns is still NaN. */
bool GapsUntouched(Mat X)
{
  const PetscScalar *x;
  PetscInt           n, columns, ld;
  bool               untouched = true;
  MUST(MatGetSize(X, &n, &columns));
  MUST(MatDenseGetLDA(X, &ld));
  MUST(MatDenseGetArrayRead(X, &x));
  for (PetscInt k = 0; k < ld * columns; k++) untouched = untouched && (k % ld < n || std::isnan(x[k]));
  MUST(MatDenseRestoreArrayRead(X, &x));
  return untouched;
}

VecObject VecOf(const std::vector<double> &values, VecType type)
{
  VecObject x = CreateVec((PetscInt)values.size(), type, 1);
  SetValues(x, values);
  return x;
}

/* On the device the order of a sum depends on the number of columns that a type takes at once. */
double RoundingOfColumns(PC pc, const Kind &kind)
{
  return kind.OnDevice() && LocalOf(pc)->columns_at_once > 1 ? 1e-13 : 0;
}

/* A column of PCMatApply() beside PCApply() */
void CheckColumn(PC pc, const Kind &kind, const std::vector<double> &column, const std::vector<double> &expected)
{
  const double rounding = RoundingOfColumns(pc, kind);
  if (rounding > 0) CHECK(Difference(column, expected) <= rounding);
  else CHECK(SameBits(column, expected));
}

} // namespace

/* ------------------------------------------ options ------------------------------------------- */

namespace
{

/* What -help says about the value of a key, now and before: PETSc 3.18 and 3.19 do not write these two words for all kinds. */
std::string ValueInHelp(const std::string &help, const std::string &key)
{
  const size_t numbers = help.find(key.substr(1) + ": <"), names = help.find(key.substr(1) + " <");
  const size_t at = std::min(numbers, names);
  if (at == std::string::npos) return "no line about " + key;
  const size_t begin = help.find('<', at), end = help.find('>', at);
  std::string  text = help.substr(begin + 1, end - begin - 1);
  if (text.rfind("now ", 0) == std::string::npos) text = "now " + text.replace(text.find(" : "), 3, " : formerly ");
  return text;
}

std::string BothInHelp(const std::string &value)
{
  return "now " + value + " : formerly " + value;
}

} // namespace

TEST_CASE("-help shows every key with its default and its setter", "[local][pc][options]")
{
  for (const Type &type : Types()) {
    const MatObject   A    = type.kinds()[0].Create(type.good());
    const PCObject    pc   = MakePC(A, type);
    const std::string help = HelpText(pc);
    CAPTURE(type.name, help);
    for (const OptionOf &option : type.options) {
      CHECK(ValueInHelp(help, type.Keys(option.key)) == BothInHelp(option.value));
      CHECK(Contains(help, "(" + type.Setter(option.key) + ")"));
    }
    /* There is no key that the table of the tests lacks. */
    const std::string all  = "pc_" + std::string(type.name) + "_";
    size_t            keys = 0;
    for (size_t at = help.find(all); at != std::string::npos; at = help.find(all, at + 1)) keys++;
    CHECK(keys == type.options.size() + 1); /* and the one that all types have */
    CHECK(ValueInHelp(help, "-" + all + "backend") == BothInHelp("auto"));
    CHECK(Contains(help, "(PCFinePCSetBackend)"));
  }
}

TEST_CASE("a key of the options database and its setter do the same", "[local][pc][options]")
{
  for (const Type &type : Types()) {
    const MatObject A = type.kinds()[0].Create(type.good());
    for (const OptionOf &option : type.options) {
      CAPTURE(type.name, option.key);
      const PCObject by_key = MakePC(A, type, option.Change()), by_setter = MakePC(A, type);
      MUST(option.set(by_setter));
      for (PC pc : {(PC)by_key, (PC)by_setter}) {
        const std::string help = HelpText(pc);
        for (const OptionOf &other : type.options)
          CHECK(ValueInHelp(help, type.Keys(other.key)) == BothInHelp(&other == &option ? option.other : other.value));
      }
    }
  }
}

TEST_CASE("values that an option cannot have are refused by key and range, and the old one stays", "[local][pc][options]")
{
  for (const Type &type : Types()) {
    const MatObject A  = type.kinds()[0].Create(type.good());
    const PCObject  pc = MakePC(A, type), fresh = MakePC(A, type);
    for (const OptionOf &option : type.options)
      for (const Refused &refused : option.refused) {
        CAPTURE(type.name, option.key, refused.value, refused.message);
        const std::string key = type.Keys(option.key);
        {
          const Options scope(refused.set ? "" : key + " " + refused.value);
          Errors        errors;
          CHECK((refused.set ? refused.set(pc) : PCSetFromOptions(pc)) != 0);
          CAPTURE(errors.text);
          if (refused.message.empty()) CHECK(Contains(errors.text, refused.value)); /* PETSc names the word that it cannot read. */
          else {
            CHECK(Contains(errors.text, key + " "));
            CHECK(Contains(errors.text, refused.message));
          }
        }
        CHECK(ValueInHelp(HelpText(pc), key) == BothInHelp(option.value));
      }
    CHECK(SameBits(Applied(pc), Applied(fresh)));
  }
}

TEST_CASE("an option that is changed after the set-up takes effect", "[local][pc][options]")
{
  for (const Type &type : Types())
    for (const Kind &kind : type.kinds())
      for (const std::string pattern : type.patterns)
        for (const OptionOf &option : type.options) {
          CAPTURE(type.name, kind.name, pattern, option.key);
          if (Contains(pattern, option.key)) continue;
          const std::string with = pattern + " " + option.with;
          const MatObject   A    = kind.Create(option.matrix ? option.matrix() : type.good());
          const PCObject    pc = MakePC(A, type, with), fresh = MakePC(A, type, with + " " + option.Change());
          const auto        before = Applied(pc);
          const auto        state  = StateOf(pc);
          const std::string text   = ViewText((PC)pc);
          MUST(option.set(pc));
          MUST(PCSetUp(pc));
          MUST(PCSetUp(fresh));
          CHECK((StateOf(pc) > state) == (option.useless != Useless::Nothing)); /* There was another set-up, or there was none. */
          CHECK(SameBits(Applied(pc), Applied(fresh)));
          if (option.shown) CHECK(Contains(ViewText((PC)pc), option.shown) != Contains(text, option.shown));
          else CHECK(!SameBits(Applied(pc), before));
          if (option.useless == Useless::Nothing) CHECK(SameBits(Applied(pc), before));
          if (type.kept) CHECK(Contains(ViewText((PC)pc), type.kept) == (option.useless == Useless::Values));

          /* The same value again is no change. */
          const auto last = StateOf(pc);
          MUST(option.set(pc));
          MUST(PCSetUp(pc));
          CHECK(StateOf(pc) == last);
        }
}

/* ------------------------------------- the exact inverse -------------------------------------- */

TEST_CASE("options that make it the inverse: one iteration", "[local][pc]")
{
  for (const Type &type : Types())
    for (const Kind &kind : type.kinds())
      for (const char *options : type.exact)
        for (const HostBlocks &H : type.exact_for()) {
          CAPTURE(type.name, kind.name, options, H.n);
          const MatObject A        = kind.Create(H);
          const Solution  solution = Solve(MakeKSP(A, type, options));
          CHECK(solution.reason == KSP_CONVERGED_RTOL);
          CHECK(solution.iterations == 1);
          CHECK(solution.true_residual <= 1e-10);
        }
}

/* ------------------------------------------- views -------------------------------------------- */

TEST_CASE("the view says what will be done, and what was done", "[local][pc][view]")
{
  ForEachKind([&](const Type &type, const Kind &kind) {
    const MatObject A     = kind.Create(type.good());
    const KSPObject ksp   = MakeKSP(A, type);
    const auto      check = [&](bool built) {
      const std::string text = ViewText((KSP)ksp);
      CAPTURE(built, text);
      CHECK(Contains(text, std::string("type: ") + type.name));
      for (const char *line : type.view_always) CHECK(Contains(text, line));
      for (const char *line : type.view_before) CHECK(Contains(text, line) == !built);
      for (const char *line : type.view_after) CHECK(Contains(text, line) == built);
      CHECK(Contains(text, "backend") == built);
      CHECK(Contains(text, BackendLine(kind)) == built);
      CHECK(!Contains(text, "block-local"));
      CHECK(!Contains(text, "set-up failed"));
    };
    check(false);
    CHECK(Solve(ksp).reason == KSP_CONVERGED_RTOL);
    check(true);
    MUST(PCReset(PCOf(ksp)));
    check(false);
  });
}

TEST_CASE("types, keys and events are registered", "[local][pc]")
{
  for (const Type &type : Types()) {
    PCObject      pc;
    PetscLogEvent event;
    MUST(PCCreate(PETSC_COMM_SELF, pc.put()));
    MUST(PCSetType(pc, type.name));
    for (const char *name : {type.event, "FinePCTranspose"}) {
      CAPTURE(name);
      MUST(PetscLogEventGetId(name, &event));
      CHECK(event > 0);
    }
    MUST(FinePCInitializePackage()); /* A second call does nothing. */
  }
}

/* ----------------------------------------- life cycle ----------------------------------------- */

TEST_CASE("two instances at once do not see each other", "[local][pc][cycle]")
{
  ForEachKind(&Type::fresh, [&](const Type &type, const Kind &kind, const char *options) {
    const MatObject A = kind.Create(type.good()), B = kind.Create(type.size());
    const PCObject  alone_A = MakePC(A, type, options), alone_B = MakePC(B, type, type.others);
    const auto      x_A = Applied(alone_A);
    const auto      x_B = Applied(alone_B);
    CHECK(SameBits(Applied(alone_A), x_A));
    const PCObject pc_A = MakePC(A, type, options), pc_B = MakePC(B, type, type.others);
    for (int repeat = 0; repeat < 3; repeat++) {
      MUST(PCSetUp(pc_A));
      MUST(PCSetUp(pc_B));
      for (int apply = 0; apply < 3; apply++) {
        CHECK(SameBits(Applied(pc_A), x_A));
        CHECK(SameBits(Applied(pc_B), x_B));
      }
      Touch(A);
      Touch(B);
    }
  });
}

TEST_CASE("reset, other sizes, destroy: nothing is left over", "[local][pc][cycle]")
{
  ForEachKind(&Type::variants, [&](const Type &type, const Kind &kind, const char *options) {
    const MatObject A = kind.Create(type.good()), B = kind.Create(type.size()), C = kind.Create(HostBlocks()),
                    D     = kind.Create(type.pattern());
    PetscLogDouble before = 0;
    for (int repeat = 0; repeat < 3; repeat++) {
      {
        const PCObject pc = MakePC(A, type, options);
        PetscLogDouble bytes;
        MUST(PCReset(pc)); /* A reset comes before any set-up. */
        MUST(PCSetOperators(pc, A, A));
        const auto x = Applied(pc);
        for (Mat other : {(Mat)B, (Mat)A, (Mat)C, (Mat)A}) {
          if (other == C && kILUOfNoRowsIsLost && std::string(type.name) == "bisai") continue; /* PETSc's own */
          MUST(PCReset(pc));
          MUST(PCFinePCGetApplyBytes(pc, &bytes));
          CHECK(bytes == 0);
          MUST(PCSetOperators(pc, other, other));
          CHECK(Finite(Applied(pc)));
          CHECK(Finite(Applied(pc, true)));
          if (other == A) CHECK(SameBits(Applied(pc), x));
        }
        for (Mat other : {(Mat)D, (Mat)A}) { /* PETSc allows another matrix of the same size without a reset. */
          MUST(PCSetOperators(pc, other, other));
          MUST(PCSetUp(pc));
        }
        CHECK(SameBits(Applied(pc), x));
      }
      if (repeat == 1) before = HostBytes();
      CHECK(HostBytes() > 0);
      if (repeat == 2) CHECK(HostBytes() == before);
    }
  });
}

TEST_CASE("device memory is given back", "[local][pc][cycle][gpu]")
{
  NEEDS_DEVICE();
  for (const Type &type : Types()) {
    const HostBlocks large = type.large();
    for (const Kind &kind : type.kinds()) {
      if (!kind.OnDevice()) continue;
      CAPTURE(type.name, kind.name);
      const MatObject A = kind.Create(large);
      const VecObject x = CreateVec(large.n * large.bs, VECSTANDARD, 1), y = CreateVec(large.n * large.bs, VECCUDA, 2);
      PetscLogDouble  before = 0;
      for (int repeat = 0; repeat < 20; repeat++) {
        const PCObject pc = MakePC(A, type);
        Applied(pc);
        Applied(pc, true);
        MUST(PCApply(pc, x, y)); /* This goes by way of copies, which have memory of their own. */
        Touch(A);
        MUST(PCSetUp(pc));
        if (repeat == 4) before = DeviceBytes();
      }
      CHECK(DeviceBytes() - before < 16e6); /* One factor has more than 4e6 bytes, so that 15 lost ones would show. */
    }
  }
}

TEST_CASE("new values are a fresh set-up, in the old memory", "[local][pc][cycle]")
{
  for (const Type &type : Types())
    for (const Kind &kind : type.kinds())
      for (const std::string options : type.fresh) {
        CAPTURE(type.name, kind.name, options);
        const MatObject A    = kind.Create(type.good());
        const PCObject  pc   = MakePC(A, type, options);
        PetscLogDouble  host = 0, device = 0;
        const bool      keeps = type.kept && !Contains(options, "-@reuse_pattern false");
        MUST(PCSetUp(pc));
        CHECK(!Contains(ViewText((PC)pc), "kept from the last set-up"));
        for (int step = 0; step < 4; step++) {
          const auto       before = Applied(pc);
          const HostBlocks B      = Changed(type.good(), 300 + step);
          SetValues(A, B);
          MUST(PCSetUp(pc));
          if (keeps) CHECK(Contains(ViewText((PC)pc), type.kept));
          else CHECK(!Contains(ViewText((PC)pc), "kept from the last set-up"));
          const auto x = Applied(pc);
          {
            const MatObject same  = kind.Create(B);
            const PCObject  fresh = MakePC(same, type, options);
            CHECK(SameBits(x, Applied(fresh)));
          }
          CHECK(!SameBits(x, before));
          if (step == 1) host = HostBytes();
          if (step > 1 && (keeps || !type.kept)) CHECK(HostBytes() == host); /* A new pattern may need more memory, or less. */
          if (step == 1 && kind.OnDevice()) device = DeviceBytes();
          if (step > 1 && kind.OnDevice() && (keeps || !type.kept)) CHECK(DeviceBytes() == device);
        }

        /* Another matrix has other nonzeros. */
        const MatObject B     = kind.Create(type.pattern());
        const PCObject  fresh = MakePC(B, type, options);
        MUST(PCSetOperators(pc, B, B));
        CHECK(SameBits(Applied(pc), Applied(fresh)));
        CHECK(!Contains(ViewText((PC)pc), "kept from the last set-up"));
      }
}

namespace
{

/* The rows of A and of `more` in A, by a second preallocation of single entries. */
void AddByCOO(Mat A, Mat more)
{
  std::vector<PetscInt>    i, j;
  std::vector<PetscScalar> a;
  PetscInt                 begin, end, count;
  const PetscInt          *columns;
  const PetscScalar       *values;
  MUST(MatGetOwnershipRange(A, &begin, &end));
  for (Mat from : {A, more})
    for (PetscInt row = begin; row < end; row++) {
      MUST(MatGetRow(from, row, &count, &columns, &values));
      i.insert(i.end(), count, row);
      j.insert(j.end(), columns, columns + count);
      a.insert(a.end(), values, values + count);
      MUST(MatRestoreRow(from, row, &count, &columns, &values));
    }
  MUST(MatSetPreallocationCOO(A, (PetscCount)i.size(), i.data(), j.data()));
  MUST(MatSetValuesCOO(A, a.data(), INSERT_VALUES));
}

} // namespace

TEST_CASE("other nonzeros in place are a fresh set-up, whatever the nonzero state says", "[local][pc][cycle][mpi]")
{
  enum Way { AXPY, TRANSPOSE, COO };
  for (const Type &type : Types()) {
    if (type.name == std::string(PCRRB)) continue; /* all matrices on a grid have the same nonzeros */
    const bool               is_bisai = type.name == std::string(PCBISAI);
    const HostBlocks         good     = type.ranks();
    std::vector<std::string> options  = {is_bisai ? "-@factor petsc" : "-@reuse_pattern"};
    if (is_bisai) options.push_back("-@factor finepc -@sweeps 1");
    else if (type.get_factors) options.push_back("-@reuse_pattern -@overlap 2");
    for (const Kind &kind : type.kinds())
      for (const std::string &choice : options)
        for (Way way : {AXPY, TRANSPOSE, COO}) {
          if (way != AXPY && (std::string(kind.name).find("aij") != 0 || choice != options.back())) continue;
          CAPTURE(type.name, kind.name, choice, (int)way);
          MatObject       A       = kind.Create(good, PETSC_COMM_WORLD), copy;
          const MatObject B       = kind.Create(Far(good.n, good.bs), PETSC_COMM_WORLD);
          const PCObject  pc      = MakePC(A, type, choice);
          Mat             changed = A;
          Applied(pc);
          if (way == COO) AddByCOO(A, B);
          else MUST(MatAXPY(A, 1, B, DIFFERENT_NONZERO_PATTERN));
          for (int k = 0; k < 2 && way == TRANSPOSE; k++) MUST(MatTranspose(A, MAT_INPLACE_MATRIX, &changed));
          MUST(PCSetUp(pc));
          CHECK(!Contains(ViewText((PC)pc), "kept from the last set-up"));
          MUST(MatDuplicate(A, MAT_COPY_VALUES, copy.put()));
          const PCObject fresh = MakePC(copy, type, choice);
          CHECK(SameBits(Applied(pc), Applied(fresh)));
        }
  }
}

/* Sizes and numbers of nonzeros are the same, and nothing but the columns tells one matrix from the next one. */
TEST_CASE("as many nonzeros in other columns are a fresh set-up", "[local][pc][cycle][mpi]")
{
  constexpr LocalInt n = 240;
  for (PCType name : {PCAFSAI, PCSFSAI, PCBISAI, PCCMATCH})
    for (const Backend &backend : Backends()) {
      const Type              &type    = TypeOf(name);
      std::vector<std::string> options = {""};
      if (name == std::string(PCBISAI)) options = {"-@factor petsc", "-@factor finepc -@sweeps 1"};
      else options = {"-@reuse_pattern"};
      if (type.get_factors && name != std::string(PCBISAI)) options.push_back("-@reuse_pattern -@overlap 2");
      for (const std::string &choice : options) {
        const MatObject A  = CreateMat(Ring(n, 2), backend.mat, PETSC_COMM_WORLD);
        const PCObject  pc = MakePC(A, type, choice);
        Applied(pc);
        for (LocalInt width : {3, 7, 3, 2}) {
          CAPTURE(name, backend.name, choice, width);
          ReplaceByCSR(A, Ring(n, width));
          MUST(PCSetUp(pc));
          CHECK(!Contains(ViewText((PC)pc), "kept from the last set-up"));
          const MatObject copy  = CreateMat(Ring(n, width), backend.mat, PETSC_COMM_WORLD);
          const PCObject  fresh = MakePC(copy, type, choice);
          CHECK(SameBits(Applied(pc), Applied(fresh)));
        }
      }
    }
}

TEST_CASE("KSPSetReusePreconditioner freezes the factor", "[local][pc][cycle]")
{
  ForEachKind(&Type::variants, [&](const Type &type, const Kind &kind, const char *options) {
    const MatObject A   = kind.Create(type.good());
    const KSPObject ksp = MakeKSP(A, type, options);
    CHECK(Solve(ksp).reason == KSP_CONVERGED_RTOL);
    const auto before = Applied(PCOf(ksp));
    MUST(KSPSetReusePreconditioner(ksp, PETSC_TRUE));
    ChangeValues(A, 0.7);
    CHECK(Solve(ksp).reason > 0);
    CHECK(SameBits(Applied(PCOf(ksp)), before));
    MUST(KSPSetReusePreconditioner(ksp, PETSC_FALSE));
    CHECK(Solve(ksp).reason > 0);
    CHECK(!SameBits(Applied(PCOf(ksp)), before));
  });
}

TEST_CASE("empty and 1 x 1 systems are solved", "[local][pc]")
{
  ForEachKind(&Type::variants, [&](const Type &type, const Kind &kind, const char *options) {
    const MatObject empty = kind.Create(HostBlocks()), one = kind.Create(Blocks(FromDense(1, {3})));
    const KSPObject none = MakeKSP(empty, type, options);
    CHECK(Solve(none).reason > 0);
    CHECK(Applied(PCOf(none)).empty());
    CHECK(Applied(PCOf(none), true).empty());
    CHECK(Contains(ViewText((KSP)none), BackendLine(kind)));
    const Solution solution = Solve(MakeKSP(one, type, options));
    CHECK(solution.reason > 0);
    CHECK(solution.iterations <= (type.single_diagonal ? 2 : 1));
    CHECK(solution.true_residual <= (type.single_diagonal ? 1e-8 : 1e-15));
  });
}

/* ------------------------------------ vectors and columns ------------------------------------- */

TEST_CASE("several right-hand sides are those of PCApply one by one", "[local][pc]")
{
  for (const Type &type : Types())
    for (const Kind &kind : type.kinds())
      for (const char *options : {"", type.others}) {
        const HostBlocks H  = type.good();
        const MatObject  A  = kind.Create(H);
        const PCObject   pc = MakePC(A, type, options);
        const PetscInt   n  = H.n * H.bs;
        MUST(PCSetUp(pc));
        for (MatType dense : {HostBackend().dense, kind.backend->dense})
          for (PetscInt columns : {1, 3, 4, 5, 7, 9})
            for (PetscInt gap : {0, 7}) {
              CAPTURE(type.name, kind.name, options, dense, columns, gap);
              const MatObject X = CreateDense(n, columns, n + gap, dense, 4),
                              Y = CreateDense(n, columns, n + (gap ? 2 : 0), dense, 5);
              MUST(PCMatApply(pc, X, Y));
              for (PetscInt c = 0; c < columns; c++) {
                const VecObject x = VecOf(Column(X, c), kind.backend->vec), y = CreateVec(n, kind.backend->vec, 6);
                MUST(PCApply(pc, x, y));
                CheckColumn(pc, kind, Column(Y, c), Values(y));
              }
              CHECK(GapsUntouched(Y));
            }
      }
}

/*
   KSPMatSolve() applies the preconditioner to all columns at once where there is no solver, and solves for them one by one where
   there is.
*/
TEST_CASE("KSPMatSolve", "[local][pc]")
{
  for (const Type &type : Types())
    for (const Kind &kind : type.kinds())
      for (const std::string options : {"", type.others})
        for (bool alone : {true, false}) {
          CAPTURE(type.name, kind.name, options, alone);
          const HostBlocks H   = type.good();
          const MatObject  A   = kind.Create(H);
          const KSPObject  ksp = MakeKSP(A, type,
                                         options + (alone             ? " -ksp_type preonly -ksp_pc_side left"
                                                    : options.empty() ? ""
                                                                      : " -ksp_norm_type unpreconditioned"));
          const PetscInt   n = H.n * H.bs, columns = 5;
          const MatObject  B = CreateDense(n, columns, n, kind.backend->dense, 6),
                          X  = CreateDense(n, columns, n, kind.backend->dense, 7);
          MUST(KSPMatSolve(ksp, B, X));
          PetscReal all = 0, all_b = 0;
          for (PetscInt c = 0; c < columns; c++) {
            const VecObject b = VecOf(Column(B, c), kind.backend->vec), x = VecOf(Column(X, c), kind.backend->vec),
                            r = CreateVec(n, kind.backend->vec, 8);
            PetscReal b_norm;
            if (alone) {
              MUST(PCApply(PCOf(ksp), b, r));
              CHECK(Difference(Column(X, c), Values(r)) <= RoundingOfColumns(PCOf(ksp), kind));
              continue;
            }
            MUST(VecNorm(b, NORM_2, &b_norm));
            all += PetscSqr(ResidualOf(A, b, x) * b_norm);
            all_b += b_norm * b_norm;
          }
          if (!alone)
            CHECK(std::sqrt(all) <= 1e-5 * std::sqrt(all_b)); /* What the solver asks for is small in the preconditioned norm. */
        }
}

/* The products <x, M^{-1} y> and <M^{-T} x, y> are the same number. Where M is symmetric its transpose is the same to the bit. */
TEST_CASE("the transpose", "[local][pc]")
{
  ForEachKind(&Type::variants, [&](const Type &type, const Kind &kind, const char *options) {
    const MatObject A  = kind.Create(type.good());
    const PCObject  pc = MakePC(A, type, options);
    const VecObject x = RightVec(A, 11), y = RightVec(A, 12), Mx = RightVec(A), My = RightVec(A);
    const double    allowed = type.asymmetry ? type.asymmetry(options) : 1e-13;
    MUST(PCSetUp(pc));
    for (int repeat = 0; repeat < 2; repeat++) {
      PetscScalar one, other;
      PetscReal   size, x_norm;
      MUST(PCApply(pc, y, My));
      MUST(PCApplyTranspose(pc, x, Mx));
      MUST(VecDot(My, x, &one));
      MUST(VecDot(y, Mx, &other));
      MUST(VecNorm(My, NORM_2, &size));
      MUST(VecNorm(x, NORM_2, &x_norm));
      if (allowed > 0) CHECK(std::fabs(one - other) <= allowed * size * x_norm);
      CHECK(SameBits(Applied(pc, true), Applied(pc)) == (std::strcmp(type.name, PCBISAI) != 0));
    }
  });
}

TEST_CASE("apply allocates nothing and waits for nothing", "[local][pc][cycle]")
{
  ForEachKind(&Type::variants, [&](const Type &type, const Kind &kind, const char *options) {
    const HostBlocks H = type.good();
    const PetscInt   n = H.n * H.bs;
    const MatObject  A = kind.Create(H), X = CreateDense(n, 6, n, kind.backend->dense, 4),
                    Y  = CreateDense(n, 6, n, kind.backend->dense, 5);
    const PCObject  pc = MakePC(A, type, options);
    const VecObject x = RightVec(A), y = RightVec(A, 2);
    PetscErrorCode  code = PETSC_SUCCESS;
    MUST(PCSetUp(pc));
    const std::vector<std::function<void()>> calls = {
      [&] { code = PCApply(pc, x, y); },
      [&] { code = PCApplyTranspose(pc, x, y); },
      [&] { code = PCMatApply(pc, X, Y); },
    };
    for (const auto &call : calls) {
      call(); /* The first call may make work space. */
      MUST(code);
      if (!kind.OnDevice()) CHECK(CountAllocations(call) == 0);
      else {
        if (std::strcmp(type.name, PCRRB) && std::strcmp(type.name, PCCMATCH))
          CHECK(AsynchronousOnDevice(call)); /* The others launch a graph, which cannot be captured. */
        MUST(code);
        CHECK(WaitsForNothingOnDevice(call));
      }
      MUST(code);
    }
  });
}

/* The set-up, applications, transposes and a second matrix are on a stream that is not in order with the default one. */
TEST_CASE("another stream than the default", "[local][pc][cycle][gpu]")
{
  NEEDS_DEVICE();
  for (const Type &type : Types()) {
    const HostBlocks H = type.large();
    for (const Kind &kind : type.kinds())
      for (const char *options : type.fresh) {
        if (!kind.OnDevice()) continue;
        if (Contains(options, "-@levels 1") && !Contains(options, "-@levels 100"))
          continue; /* The exact factorization of a large matrix needs more levels. */
        CAPTURE(type.name, kind.name, options);
        const MatObject                  A = kind.Create(H), B = kind.Create(H);
        const VecObject                  x = RightVec(A), y = RightVec(A);
        std::vector<std::vector<double>> expected, got;
        ChangeValues(B, 0.4);
        for (Mat mat : {(Mat)A, (Mat)B}) {
          const PCObject pc = MakePC(mat, type, options);
          for (bool transpose : {false, true}) { /* Vectors and matrices are on the device from here on. */
            MUST((transpose ? PCApplyTranspose : PCApply)(pc, x, y));
            expected.push_back(Values(y));
          }
        }
        {
          const OtherStream other;
          const PCObject    pc = MakePC(A, type, options);
          for (Mat mat : {(Mat)A, (Mat)B}) {
            MUST(PCSetOperators(pc, mat, mat));
            for (bool transpose : {false, true}) {
              MUST((transpose ? PCApplyTranspose : PCApply)(pc, x, y));
              other.Synchronize();
              got.push_back(Values(y));
            }
          }
        }
        REQUIRE(got.size() == expected.size());
        for (size_t k = 0; k < got.size(); k++) CHECK(SameBits(got[k], expected[k]));
      }
  }
}

/* ------------------------------------- host and device ---------------------------------------- */

TEST_CASE("host matrix after device matrix, and back", "[local][pc][cycle][gpu]")
{
  NEEDS_DEVICE();
  for (const Type &type : Types())
    for (const Kind &host_kind : type.kinds())
      for (const Kind &device_kind : type.kinds()) {
        if (host_kind.OnDevice() || !device_kind.OnDevice()) continue;
        const MatObject host = host_kind.Create(type.good()), device = device_kind.Create(type.good());
        for (const char *options : type.variants) {
          CAPTURE(type.name, host_kind.name, device_kind.name, options);
          const PCObject pc       = MakePC(host, type, options);
          const auto     expected = Applied(pc);
          for (int repeat = 0; repeat < 3; repeat++)
            for (const Kind *kind : {&device_kind, &host_kind}) {
              const Mat A = kind == &host_kind ? (Mat)host : (Mat)device;
              MUST(PCSetOperators(pc, A, A));
              MUST(PCSetUp(pc));
              CHECK(Contains(ViewText((PC)pc), BackendLine(*kind)));
              CHECK(Difference(Applied(pc), expected) <= 1e-5);
            }
        }
      }
}

TEST_CASE("a device matrix that is bound to the CPU is preconditioned there", "[local][pc][cycle][gpu]")
{
  NEEDS_DEVICE();
  ForEachKind(&Type::variants, [&](const Type &type, const Kind &kind, const char *options) {
    if (std::strcmp(kind.name, "aijcusparse")) return;
    CAPTURE(type.name, options);
    const MatObject A  = kind.Create(type.good());
    const PCObject  pc = MakePC(A, type, options);
    MUST(PCSetUp(pc));
    CHECK(Contains(ViewText((PC)pc), "backend CUDA"));
    const auto expected = Applied(pc);
    for (bool bound : {true, false}) {
      MUST(MatBindToCPU(A, bound ? PETSC_TRUE : PETSC_FALSE));
      Touch(A);
      MUST(PCSetUp(pc));
      CHECK(Contains(ViewText((PC)pc), bound ? "backend host" : "backend CUDA"));
      CHECK(Difference(Applied(pc), expected) <= 1e-5);
    }
  });
}

TEST_CASE("vectors and dense matrices of the other memory than the factor's", "[local][pc][gpu]")
{
  NEEDS_DEVICE();
  ForEachKind([&](const Type &type, const Kind &kind) {
    const HostBlocks H        = type.good();
    const PetscInt   n        = H.n * H.bs;
    const MatObject  A        = kind.Create(H);
    const PCObject   pc       = MakePC(A, type);
    const auto       expected = Applied(pc), turned = Applied(pc, true);
    for (const Backend &x_backend : Backends())
      for (const Backend &y_backend : Backends()) {
        CAPTURE(type.name, kind.name, x_backend.name, y_backend.name);
        const VecObject x = CreateVec(n, x_backend.vec, 1), y = CreateVec(n, y_backend.vec, 2);
        MUST(PCApply(pc, x, y));
        CHECK(SameBits(Values(y), expected));
        MUST(PCApplyTranspose(pc, x, y));
        CHECK(SameBits(Values(y), turned));
        for (PetscInt columns : {1, 3, 4, 5, 9}) {
          CAPTURE(columns);
          const MatObject X = CreateDense(n, columns, n + 7, x_backend.dense, 4),
                          Y = CreateDense(n, columns, n + 2, y_backend.dense, 5);
          MUST(PCMatApply(pc, X, Y));
          for (PetscInt c = 0; c < columns; c++) {
            const VecObject column = VecOf(Column(X, c), kind.backend->vec);
            MUST(PCApply(pc, column, y));
            CHECK(Difference(Column(Y, c), Values(y)) <= RoundingOfColumns(pc, kind));
          }
          CHECK(GapsUntouched(Y));
        }
      }
  });
}

/*
   A copy from pinned memory does not wait for the device. The stream is held up, so that the copy has not begun when PCApply()
   returns, unless PCApply() waits for it.
*/
TEST_CASE("a host vector in pinned memory is the program's again after PCApply", "[local][pc][gpu]")
{
  NEEDS_DEVICE();
  for (const Type &type : Types()) {
    const HostBlocks H = type.large();
    const PetscInt   n = H.n * H.bs;
    for (const Kind &kind : type.kinds()) {
      if (!kind.OnDevice()) continue;
      CAPTURE(type.name, kind.name);
      const MatObject   A      = kind.Create(H);
      const PCObject    pc     = MakePC(A, type);
      const auto        values = Values(RightVec(A));
      const PinnedArray pinned(n), columns((size_t)n * 2);
      const VecObject   y = CreateVec(n, VECCUDA, 2);
      const MatObject   Y = CreateDense(n, 2, n, MATDENSECUDA, 3);
      VecObject         x;
      MatObject         X;
      MUST(VecCreateSeqWithArray(PETSC_COMM_SELF, 1, n, pinned.begin(), x.put()));
      MUST(MatCreateSeqDense(PETSC_COMM_SELF, n, 2, columns.begin(), X.put()));
      Assemble(X);
      const auto expected = Applied(pc), turned = Applied(pc, true);
      std::fill(pinned.begin(), pinned.end(), 0);
      std::fill(columns.begin(), columns.end(), 0);
      MUST(PCApply(pc, x, y)); /* The memory for the copies is made here, so that it is not what the program waits for below. */
      MUST(PCMatApply(pc, X, Y));
      for (bool transpose : {false, true}) {
        std::copy(values.begin(), values.end(), pinned.begin());
        MUST(PetscObjectStateIncrease((PetscObject)(Vec)x));
        HoldStream(100);
        MUST((transpose ? PCApplyTranspose : PCApply)(pc, x, y));
        std::fill(pinned.begin(), pinned.end(), std::nan(""));
        CHECK(SameBits(Values(y), transpose ? turned : expected));
      }
      for (int c = 0; c < 2; c++) std::copy(values.begin(), values.end(), columns.begin() + (size_t)c * n);
      HoldStream(100);
      MUST(PCMatApply(pc, X, Y));
      std::fill(columns.begin(), columns.end(), std::nan(""));
      for (int c = 0; c < 2; c++) CheckColumn(pc, kind, Column(Y, c), expected);
    }
  }
}

/* ---------------------------------------- bad matrices ---------------------------------------- */

TEST_CASE("an unusable matrix: KSPSolve says so, and a good one works afterwards", "[local][pc][bad]")
{
  for (const Type &type : Types())
    for (const auto &[kind, options, bad] : Covering(type.kinds(), type.variants, type.bad)) {
      CAPTURE(type.name, kind.name, options, bad.text);
      const MatObject A = kind.Create(bad.Spoiled(type.good())), good = kind.Create(type.good());
      const KSPObject ksp = MakeKSP(A, type, options);
      for (int repeat = 0; repeat < 2; repeat++) {
        CHECK(ReasonOfSolve(ksp) == KSP_DIVERGED_PC_FAILED);
        CHECK(ReasonOf(PCOf(ksp)) == bad.reason);
        const std::string view = ViewText((KSP)ksp);
        CAPTURE(view);
        CHECK(Contains(view, std::string("set-up failed: ") + PCFailedReasons[bad.reason] + "\n"));
        CHECK(Contains(view, bad.Text()));
        CHECK(!Contains(view, BackendLine(kind)));

        MUST(KSPSetOperators(ksp, good, good));
        const Solution solution = Solve(ksp);
        CHECK(solution.reason == KSP_CONVERGED_RTOL);
        CHECK(ReasonOf(PCOf(ksp)) == PC_NOERROR);
        CHECK(!Contains(ViewText((KSP)ksp), "set-up failed"));
        CHECK(solution.iterations == Solve(MakeKSP(good, type, options)).iterations);
        MUST(KSPSetOperators(ksp, A, A));
      }

      /* On request it is an error that names the row. */
      const KSPObject strict = MakeKSP(A, type, std::string("-ksp_error_if_not_converged ") + options);
      const VecObject b = RightVec(A), x = RightVec(A);
      Errors          errors;
      CHECK(KSPSolve(strict, b, x) != 0);
      CHECK(Contains(errors.text, bad.Text()));
    }
}

TEST_CASE("good, bad and good values on one pattern", "[local][pc][cycle][bad]")
{
  for (const Type &type : Types())
    for (const auto &[kind, options, bad] : Covering(type.kinds(), type.variants, type.bad)) {
      if (!bad.same_nonzeros) continue;
      CAPTURE(type.name, kind.name, options, bad.text);
      const HostBlocks good     = type.good();
      const MatObject  A        = kind.Create(good);
      const PCObject   pc       = MakePC(A, type, options);
      const auto       expected = Applied(pc);
      for (int repeat = 0; repeat < 2; repeat++) {
        SetValues(A, bad.Spoiled(good));
        MUST(PCSetUp(pc));
        CHECK(ReasonOf(pc) == bad.reason);
        CHECK(Contains(ViewText((PC)pc), "set-up failed: "));
        CHECK(Contains(ViewText((PC)pc), bad.Text()));
        SetValues(A, good);
        MUST(PCSetUp(pc));
        CHECK(ReasonOf(pc) == PC_NOERROR);
        CHECK(!Contains(ViewText((PC)pc), "set-up failed"));
        CHECK(SameBits(Applied(pc), expected));
      }
    }
}

/* Inf is how a PC tells a solver in the middle of an iteration that there is no factor. */
TEST_CASE("after a failure there is no factor, and applying gives Inf", "[local][pc][bad]")
{
  ForEachKind([&](const Type &type, const Kind &kind) {
    const HostBlocks H  = type.good();
    const PetscInt   n  = H.n * H.bs;
    const MatObject  A  = kind.Create(type.bad[1].Spoiled(H));
    const PCObject   pc = MakePC(A, type);
    PetscLogDouble   bytes;
    MUST(PCSetUp(pc));
    MUST(PCFinePCGetApplyBytes(pc, &bytes));
    CHECK(bytes == 0);
    for (bool transpose : {false, true}) CHECK(Infinite(Applied(pc, transpose)));
    for (const Backend &backend : Backends()) {
      const VecObject x = CreateVec(n, backend.vec, 1), y = CreateVec(n, backend.vec, 2);
      MUST(PCApply(pc, x, y));
      CHECK(Infinite(Values(y)));
      const MatObject X = CreateDense(n, 3, n + 7, backend.dense, 4), Y = CreateDense(n, 3, n + 2, backend.dense, 5);
      MUST(PCMatApply(pc, X, Y));
      for (PetscInt c = 0; c < 3; c++) CHECK(Infinite(Column(Y, c)));
      CHECK(GapsUntouched(Y));
    }
    if (!type.get_factors) return;
    Mat    factor = nullptr;
    Errors errors;
    CHECK(type.get_factors(pc, &factor, nullptr) != 0);
  });
}

TEST_CASE("after a failure a changed option begins anew, also where the factor is to be kept", "[local][pc][bad]")
{
  for (const Type &type : Types())
    for (const Kind &kind : type.kinds())
      for (const OptionOf &option : type.options) {
        CAPTURE(type.name, kind.name, option.key);
        const MatObject A  = kind.Create(type.bad[1].Spoiled(type.good()));
        const PCObject  pc = MakePC(A, type, option.with);
        MUST(PCSetUp(pc));
        CHECK(ReasonOf(pc) == type.bad[1].reason);
        MUST(PCSetReusePreconditioner(pc, PETSC_TRUE));
        MUST(option.set(pc));
        MUST(PCSetUp(pc));
        CHECK(Infinite(Applied(pc)) == (ReasonOf(pc) != PC_NOERROR));
        if (option.useless == Useless::Nothing) CHECK(ReasonOf(pc) == type.bad[1].reason);
      }
}

TEST_CASE("wrong kinds of matrices are refused with a remedy", "[local][pc][bad]")
{
  for (const Type &type : Types()) {
    const MatObject A      = CreateAIJ(type.good(), MATAIJ);
    const auto      refuse = [&](Mat mat, const std::string &text) {
      const PCObject pc = MakePC(mat, type);
      for (int repeat = 0; repeat < 2; repeat++) {
        Errors errors;
        CHECK(PCSetUp(pc) != 0);
        CAPTURE(errors.text);
        CHECK(Contains(errors.text, text));
      }
      /* The same object works after a refusal. */
      MUST(PCReset(pc));
      MUST(PCSetOperators(pc, A, A));
      CHECK(Finite(Applied(pc)));
    };
    for (MatType kind : {MATBAIJ, MATSBAIJ, MATDENSE}) {
      CAPTURE(type.name, kind);
      if (Contains(type.remedy, "MATBAIJ") && !std::strcmp(kind, MATBAIJ)) continue;
      if (Contains(type.remedy, "MATSBAIJ") && !std::strcmp(kind, MATSBAIJ)) continue;
      MatObject symmetric, converted;
      MUST(MatDuplicate(A, MAT_COPY_VALUES, symmetric.put()));
      MUST(MatSetOption(symmetric, MAT_SYMMETRIC, PETSC_TRUE)); /* MATSBAIJ asks for symmetry. */
      MUST(MatConvert(symmetric, kind, MAT_INITIAL_MATRIX, converted.put()));
      refuse(converted, std::string("Matrix type seq") + kind + " " + type.remedy);
    }
    const std::string takes = std::string(type.remedy).substr(0, std::string(type.remedy).find(": ") + 2);
    MatObject         nest, one, transposed, adjoint, shell, wide;
    Mat               blocks[4] = {A, nullptr, nullptr, A};
    MUST(MatCreateNest(PETSC_COMM_SELF, 2, nullptr, 2, nullptr, blocks, nest.put()));
    MUST(MatCreateNest(PETSC_COMM_SELF, 1, nullptr, 1, nullptr, blocks, one.put()));
    for (Mat mat : {(Mat)nest, (Mat)one})
      refuse(mat,
             "Matrix type nest " + takes + "use MatConvert() to MATAIJ, MatNestGetSubMat() if it has one block, or PCFIELDSPLIT");
    MUST(MatCreateTranspose(A, transposed.put()));
    refuse(transposed,
           "Matrix type transpose " + takes + "assemble it by MatTranspose() of the matrix that MatTransposeGetMat() gives");
    MUST(MatCreateHermitianTranspose(A, adjoint.put()));
    refuse(adjoint, "Matrix type hermitiantranspose " + takes + "assemble it by MatTranspose() of the matrix that MatHermitian");
    MUST(MatCreateShell(PETSC_COMM_SELF, 10, 10, 10, 10, nullptr, shell.put()));
    MUST(MatSetUp(shell));
    refuse(shell,
           "Matrix type shell " + takes + "give an assembled matrix to precondition with as the second one of KSPSetOperators()");
    MUST(MatCreateSeqAIJ(PETSC_COMM_SELF, 10, 12, 1, nullptr, wide.put()));
    Assemble(wide);
    refuse(wide, "The matrix must be square, but is 10 by 12");
  }
}

TEST_CASE("a matrix that is not assembled is an error with its remedy", "[local][pc][bad]")
{
  for (const Type &type : Types())
    for (const Backend &backend : Backends())
      for (const auto reuse : {PC_FINEPC_REUSE_NEVER, PC_FINEPC_REUSE_AUTO, PC_FINEPC_REUSE_ALWAYS}) {
        CAPTURE(type.name, backend.name, (int)reuse);
        const PetscInt n = 30;
        MatObject      A;
        MUST(MatCreate(PETSC_COMM_SELF, A.put()));
        MUST(MatSetSizes(A, n, n, n, n));
        MUST(MatSetType(A, backend.mat));
        MUST(MatSetUp(A));
        for (PetscInt row = 0; row < n; row++) MUST(MatSetValue(A, row, row, 2, INSERT_VALUES));
        const PCObject pc = MakePC(A, type);
        MUST(PCFinePCSetReuse(pc, reuse));
        for (int repeat = 0; repeat < 2; repeat++) {
          Errors errors;
          CHECK(PCSetUp(pc) == PETSC_ERR_ARG_WRONGSTATE);
          CHECK(Contains(errors.text, "The matrix is not assembled: call MatAssemblyBegin() and MatAssemblyEnd()"));
        }
        Assemble(A);
        CHECK(Finite(Applied(pc)));
      }
}

/* ------------------------------------------ symmetry ------------------------------------------ */

namespace
{

constexpr PetscInt kSide = 40; /* points of a side of the grid below */

bool OnBoundary(PetscInt point)
{
  return point % kSide == 0 || point % kSide == kSide - 1 || point / kSide == 0 || point / kSide == kSide - 1;
}

/*
   Poisson's matrix on a square with rows of the identity for its boundary. The couplings of other rows to the boundary stay if they
   are one-sided, and become zeros if not; they are stored in either case.
*/
HostMatrix WithBoundary(bool one_sided, PetscInt64 *couplings)
{
  HostMatrix A = Poisson(kSide, kSide);

  *couplings = 0;
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const PetscInt column = A.j[k];

      if (OnBoundary(row)) A.a[k] = column == row;
      else if (OnBoundary(column)) {
        ++*couplings;
        if (!one_sided) A.a[k] = 0;
      }
    }
  return A;
}

std::string printed;

PetscErrorCode KeepPrinted(FILE *, const char format[], va_list arguments)
{
  char   line[8192];
  size_t length;

  PetscFunctionBegin;
  PetscCall(PetscVSNPrintf(line, sizeof(line), format, &length, arguments));
  printed += line;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What PetscInfo() says while a call runs. */
std::string InfoOf(const std::function<void()> &call)
{
  const auto print = PetscVFPrintf;
  printed.clear();
  MUST(PetscInfoSetFile(nullptr, nullptr)); /* the standard output, of which nothing is seen */
  MUST(PetscInfoAllow(PETSC_TRUE));
  PetscVFPrintf = KeepPrinted;
  call();
  PetscVFPrintf = print;
  MUST(PetscInfoAllow(PETSC_FALSE));
  return printed;
}

} // namespace

TEST_CASE("couplings that one row alone has are counted, and told once", "[local][pc][symmetry]")
{
  PetscInt64       couplings;
  const HostMatrix one_sided = WithBoundary(true, &couplings), symmetric = WithBoundary(false, &couplings);
  const auto       line = [](const Type &type, PetscInt64 count) {
    const char *const fate = !std::strcmp(type.name, PCCMATCH) ? "kept" : "left out";
    return "symmetry: " + (count ? std::to_string(count) + " couplings one-sided: " + fate : "no coupling one-sided") +
           ", no pair of entries unequal";
  };
  for (const Type &type : Types()) {
    if (!std::strcmp(type.name, PCBISAI)) continue; /* the one type that needs no symmetry */
    for (const Kind &kind : type.kinds()) {
      CAPTURE(type.name, kind.name);
      const MatObject   A = kind.Create(Blocks(one_sided)), B = kind.Create(Blocks(symmetric));
      const std::string text = std::to_string(couplings) + " couplings are one-sided";
      const PCObject    pc = MakePC(A, type), other = MakePC(B, type);
      CHECK(Contains(InfoOf([&] { MUST(PCSetUp(pc)); }), text));
      MUST(PCSetUp(other));
      CHECK(Contains(ViewText((PC)pc), line(type, couplings)));
      CHECK(Contains(ViewText((PC)pc), "unless the guess has the boundary values"));
      CHECK(Contains(ViewText((PC)other), line(type, 0)));
      CHECK(!Contains(ViewText((PC)other), "boundary values"));
      Touch(A);
      CHECK(!Contains(InfoOf([&] { MUST(PCSetUp(pc)); }), text));
      CHECK(Contains(ViewText((PC)pc), line(type, couplings)));
    }
  }
}

/*
   P (I + W) for vectors and dense matrices, and (I + W^T) P for the transpose, where P is what the type makes of the matrix without
   one-sided couplings, and W are the negative couplings to rows of the identity. For rrb W is left out.
*/
TEST_CASE("couplings that one row alone has are left out of the factor, and carried over beside it", "[local][pc][symmetry]")
{
  PetscInt64       couplings;
  const HostMatrix one_sided = WithBoundary(true, &couplings), symmetric = WithBoundary(false, &couplings);
  const PetscInt   n = one_sided.n, columns = kInverseColumns + 3;
  const auto       carry = [&](const std::vector<double> &x, bool transpose) {
    std::vector<double> y = x;
    for (PetscInt row = 0; row < n; row++)
      for (PetscInt k = one_sided.i[row]; k < one_sided.i[row + 1]; k++) {
        if (OnBoundary(row) || !OnBoundary(one_sided.j[k])) continue;
        if (transpose) y[one_sided.j[k]] -= one_sided.a[k] * x[row];
        else y[row] -= one_sided.a[k] * x[one_sided.j[k]];
      }
    return y;
  };
  for (const Type &type : Types()) {
    const bool rrb = !std::strcmp(type.name, PCRRB);
    if (!rrb && std::strcmp(type.name, PCAFSAI) && std::strcmp(type.name, PCSFSAI)) continue;
    for (const Kind &kind : type.kinds())
      for (const char *options : type.variants) {
        CAPTURE(type.name, kind.name, options);
        const MatObject A = kind.Create(Blocks(one_sided)), B = kind.Create(Blocks(symmetric));
        const PCObject  pc = MakePC(A, type, options), other = MakePC(B, type, options);
        VecObject       x, y;
        MUST(MatCreateVecs(A, x.put(), y.put()));
        const auto applied = [&](PC by, const std::vector<double> &values, bool transpose) {
          SetValues(x, values);
          MUST(transpose ? PCApplyTranspose(by, x, y) : PCApply(by, x, y));
          return Values(y);
        };
        for (int set_up = 0; set_up < 2; set_up++) {
          MUST(PCSetUp(pc));
          MUST(PCSetUp(other));
          Random              random(3);
          std::vector<double> r(n);
          for (double &value : r) value = random.Between(-1, 1);
          const std::vector<double> z = applied(pc, r, false), zt = applied(pc, r, true);
          if (rrb) {
            CHECK(SameBits(z, applied(other, r, false)));
            CHECK(SameBits(zt, applied(other, r, false)));
          } else {
            CHECK(Difference(z, applied(other, carry(r, false), false)) <= 1e-14);
            CHECK(Difference(zt, carry(applied(other, r, false), true)) <= 1e-14);
          }
          MatObject    X, Y;
          PetscScalar *array;
          MUST(MatCreateSeqDense(PETSC_COMM_SELF, n, columns, nullptr, X.put()));
          MUST(MatDenseGetArrayWrite(X, &array));
          for (PetscInt c = 0; c < columns; c++)
            for (PetscInt row = 0; row < n; row++) array[c * n + row] = (1 + c) * r[row];
          MUST(MatDenseRestoreArrayWrite(X, &array));
          MUST(MatDuplicate(X, MAT_DO_NOT_COPY_VALUES, Y.put()));
          MUST(PCMatApply(pc, X, Y));
          for (PetscInt c = 0; c < columns; c++) {
            std::vector<double> expected = z;
            for (double &value : expected) value *= 1 + c;
            CHECK(Difference(Column(Y, c), expected) <= 1e-14);
          }
          Touch(A);
          Touch(B);
        }
      }
  }
}

/* As PETSc's ksp ex45 has it: boundary values that are not in the initial guess. */
TEST_CASE("boundary rows whose columns stay: CG converges", "[local][pc][symmetry]")
{
  PetscInt64 couplings;
  HostMatrix one_sided = WithBoundary(true, &couplings);
  for (PetscInt row = 0; row < one_sided.n; row++)
    for (PetscInt k = one_sided.i[row]; k < one_sided.i[row + 1]; k++)
      if (one_sided.j[k] == row && OnBoundary(row)) one_sided.a[k] = 4;
  for (const char *name : {PCAFSAI, PCSFSAI})
    for (const Kind &kind : Types()[0].kinds())
      for (double boundary : {0., 4.}) {
        CAPTURE(name, kind.name, boundary);
        const MatObject     A = kind.Create(Blocks(one_sided));
        const VecObject     x = RightVec(A), b = RightVec(A);
        std::vector<double> values;
        for (PetscInt row = 0; row < one_sided.n; row++) values.push_back(OnBoundary(row) ? boundary * (1 + row % 3) : 0.01);
        SetValues(b, values);
        const auto iterations = [&](PCType type) {
          const KSPObject ksp = MakeKSP(A, "-ksp_type cg -ksp_rtol 1e-8 -ksp_max_it 2000", type);
          MUST(KSPSolve(ksp, b, x));
          CHECK(ReasonOf(ksp) == KSP_CONVERGED_RTOL);
          return IterationsOf(ksp);
        };
        const PetscInt with_jacobi = iterations(PCJACOBI);
        CHECK(2 * iterations(name) < 3 * with_jacobi / 2);
      }
}

TEST_CASE("entries that differ from their partners are counted", "[local][pc][symmetry]")
{
  HostMatrix A = Poisson(20, 15);
  for (PetscInt row : {7, 100, 250})
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] == row + 1) A.a[k] *= row == 7 ? 1 + 1e-12 : row == 100 ? 1.25 : 1.01; /* the first is rounding */
  for (const Type &type : Types()) {
    if (!std::strcmp(type.name, PCBISAI) || !std::strcmp(type.name, PCRRB)) continue; /* for rrb such entries are an error */
    for (const Kind &kind : type.kinds()) {
      CAPTURE(type.name, kind.name);
      const MatObject mat = kind.Create(Blocks(A));
      const PCObject  pc  = MakePC(mat, type);
      MUST(PCSetUp(pc));
      const std::string text = ViewText((PC)pc);
      CAPTURE(text);
      CHECK(Contains(text, "symmetry: no coupling one-sided, 2 pairs of entries unequal"));
      CHECK(Contains(text, "not symmetric, entries differ by up to 0.2 of the larger one: CG may fail"));
    }
  }
}

/* ------------------------------------------ nesting ------------------------------------------- */

namespace
{

PetscErrorCode ComputeLaplacian(KSP ksp, Mat, Mat A, void *)
{
  DM            da;
  DMDALocalInfo info;

  PetscFunctionBegin;
  PetscCall(KSPGetDM(ksp, &da));
  PetscCall(DMDAGetLocalInfo(da, &info));
  for (PetscInt y = info.ys; y < info.ys + info.ym; y++)
    for (PetscInt x = info.xs; x < info.xs + info.xm; x++) {
      MatStencil  row = {}, columns[5] = {};
      PetscScalar values[5];
      PetscInt    n = 0;
      row.i         = x;
      row.j         = y;
      for (const auto &shift : {std::pair<int, int>{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}}) {
        if (x + shift.first < 0 || x + shift.first >= info.mx || y + shift.second < 0 || y + shift.second >= info.my) continue;
        columns[n].i = x + shift.first;
        columns[n].j = y + shift.second;
        values[n++]  = shift.first || shift.second ? -1 : 4;
      }
      PetscCall(MatSetValuesStencil(A, 1, &row, n, columns, values, INSERT_VALUES));
    }
  PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ComputeRHS(KSP, Vec b, void *)
{
  PetscFunctionBegin;
  PetscCall(VecSet(b, 1));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

TEST_CASE("smoother in PCMG", "[local][pc][nest][mpi]")
{
  ForEachBackend(Types(), [&](const Type &type, const Backend &backend) {
    const Options options(type.Keys("-ksp_type cg -ksp_rtol 1e-8 -ksp_norm_type unpreconditioned -pc_type mg -pc_mg_galerkin both "
                                    "-pc_mg_levels 3 -mg_levels_pc_type # -mg_levels_ksp_type chebyshev"));
    KSPObject     ksp;
    Object<DM, DMDestroy> da;
    MUST(DMDACreate2d(PETSC_COMM_WORLD, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR, 33, 33, PETSC_DECIDE, PETSC_DECIDE,
                      1, 1, nullptr, nullptr, da.put()));
    MUST(DMSetMatType(da, backend.mat));
    MUST(DMSetVecType(da, backend.vec));
    MUST(DMSetUp(da));
    MUST(KSPCreate(PETSC_COMM_WORLD, ksp.put()));
    MUST(KSPSetDM(ksp, da));
    MUST(KSPSetComputeOperators(ksp, ComputeLaplacian, nullptr));
    MUST(KSPSetComputeRHS(ksp, ComputeRHS, nullptr));
    MUST(KSPSetFromOptions(ksp));
    MUST(KSPSolve(ksp, nullptr, nullptr));
    CHECK(ReasonOf(ksp) == KSP_CONVERGED_RTOL);
    CHECK(IterationsOf(ksp) <= 12);
    const std::string text = ViewText((KSP)ksp);
    if (Rank() == 0) CHECK(Contains(text, std::string("type: ") + type.name));
  });
}

TEST_CASE("sub-preconditioner of PCFIELDSPLIT", "[local][pc][nest]")
{
  for (const Backend &backend : Backends())
    for (const std::string name : {PCAFSAI, PCSFSAI, PCCMATCH}) { /* the others need a grid, or blocks */
      CAPTURE(backend.name, name);
      const MatObject A = CreateMat(Poisson(20, 20), backend.mat);
      MUST(MatSetBlockSize(A, 2));
      const auto solve = [&](const std::string &sub) {
        const Options   scope("-ksp_type cg -ksp_norm_type unpreconditioned -pc_type fieldsplit -pc_fieldsplit_block_size 2 "
                                "-pc_fieldsplit_type additive -fieldsplit_0_pc_type " +
                              sub + " -fieldsplit_1_pc_type " + sub);
        const KSPObject ksp      = MakeKSP(A, "", PCNONE);
        const Solution  solution = Solve(ksp);
        CHECK(solution.reason == KSP_CONVERGED_RTOL);
        CHECK(solution.true_residual <= 1e-7);
        CHECK(Contains(ViewText((KSP)ksp), "type: " + sub));
        return solution.iterations;
      };
      CHECK(solve(name) < solve(PCJACOBI));
    }
}

TEST_CASE("sub-preconditioner of PCBJACOBI, PCASM and PCCOMPOSITE", "[local][pc][nest]")
{
  ForEachKind([&](const Type &type, const Kind &kind) {
    const MatObject   A      = kind.Create(type.good());
    const std::string solver = *type.solver ? type.solver : "-ksp_type cg -ksp_norm_type unpreconditioned ";
    const Solution    alone  = Solve(MakeKSP(A, type, solver));
    for (const std::string options : {"-pc_type bjacobi -pc_bjacobi_blocks 3 -sub_pc_type #",
                                      "-pc_type asm -pc_asm_blocks 3 -pc_asm_overlap 1 -pc_asm_type basic -sub_pc_type #",
                                      "-pc_type composite -pc_composite_pcs #,jacobi", "-pc_type bjacobi -sub_pc_type #",
                                      "-pc_type ksp -ksp_ksp_type cg -ksp_ksp_max_it 3 -ksp_pc_type # -ksp_type fcg"}) {
      CAPTURE(options);
      if (*type.solver && Contains(options, "fcg")) continue; /* CG is for symmetric matrices. */
      const Options   scope(type.Keys(solver + options));
      const KSPObject ksp      = MakeKSP(A, "", PCNONE);
      const Solution  solution = Solve(ksp);
      CHECK(solution.reason == KSP_CONVERGED_RTOL);
      CHECK(solution.true_residual <= 1e-7);
      CHECK(Contains(ViewText((KSP)ksp), std::string("type: ") + type.name));
      if (type.get_factors) CHECK(solution.iterations <= 3 * alone.iterations);
      else { /* A factor of parts of the grid is worse than one of the grid by far, and still better than a diagonal. */
        std::string diagonal = options;
        diagonal.replace(diagonal.find('#'), 1, PCJACOBI);
        const Options other(solver + diagonal);
        CHECK(solution.iterations < Solve(MakeKSP(A, "", PCNONE)).iterations);
      }
    }

    /* With one block PCBJACOBI is the same preconditioner. */
    const Options  scope(type.Keys("-sub_pc_type #"));
    const PCObject block = MakePC(A, "", PCBJACOBI), whole = MakePC(A, type);
    MUST(PCSetUp(block));
    MUST(PCSetUpOnBlocks(block));
    CHECK(SameBits(Applied(block), Applied(whole)));
  });
}

/* --------------------------------- ranks: any number of them ---------------------------------- */

TEST_CASE("several ranks: each its diagonal block, and the view says so", "[local][pc][mpi]")
{
  for (const Type &type : Types())
    for (const Kind &kind : type.kinds())
      for (const std::string options : type.variants) {
        CAPTURE(type.name, kind.name, options);
        const MatObject A   = kind.Create(type.ranks(), PETSC_COMM_WORLD);
        std::string     sub = type.Keys("-sub_pc_type # " + options);
        for (size_t at = sub.find(" -pc_"); at != std::string::npos; at = sub.find(" -pc_")) sub.replace(at, 5, " -sub_pc_");
        const Options   scope(type.solver + sub);
        const KSPObject ksp = MakeKSP(A, type, options + type.block_local + " " + sub), blocks = MakeKSP(A, "", PCBJACOBI);
        const Solution  mine = Solve(ksp), theirs = Solve(blocks);
        CHECK(mine.reason == KSP_CONVERGED_RTOL);
        /*
           On a GPU PCBJACOBI has vectors of MATSEQBAIJ, which are on the host. The other twin computes there, in single precision.
        */
        if (Ranks() > 1 && Contains(kind.name, "device vectors")) {
          CHECK(Difference(Applied(PCOf(ksp)), Applied(PCOf(blocks))) <= 1e-5);
          CHECK(std::abs((PetscInt)mine.history.size() - (PetscInt)theirs.history.size()) <= 1);
        } else {
          CHECK(SameBits(Applied(PCOf(ksp)), Applied(PCOf(blocks))));
          CHECK(SameBits(mine.history, theirs.history));
        }
        const std::string text = ViewText((KSP)ksp);
        if (Rank() == 0) {
          CAPTURE(text);
          CHECK(Contains(text, "block-local: each of " + std::to_string(Ranks()) +
                                 " ranks preconditions with its own diagonal block") == (Ranks() > 1));
          CHECK(Contains(text, type.view_ranks));
        }
        if (type.get_factors && !Contains(options, "sweeps") && !Contains(options, "ordering"))
          CHECK(Difference(AppliedFactors(PCOf(ksp), type), Applied(PCOf(ksp))) <= 1e-12);
      }
}

/* The text is the same on all ranks, and names the rank whose block it is, or the row by its number in the matrix. */
TEST_CASE("several ranks: one rank's bad row is everybody's failure", "[local][pc][bad][mpi]")
{
  std::vector<int> owners(Ranks());
  std::iota(owners.begin(), owners.end(), 0);
  for (const Type &type : Types())
    for (const auto &[kind, bad, owner] : Covering(type.kinds(), type.bad, owners)) {
      CAPTURE(type.name, kind.name, bad.text, owner);
      const HostBlocks H     = type.ranks();
      const MatObject  good  = kind.Create(H, PETSC_COMM_WORLD);
      const PetscInt   first = FirstRow(good, owner) / H.bs;
      const MatObject  A     = kind.Create(bad.Spoiled(H, first), PETSC_COMM_WORLD);
      const KSPObject  ksp   = MakeKSP(A, type, type.block_local),
                      strict = MakeKSP(A, type, std::string("-ksp_error_if_not_converged") + type.block_local);
      const std::string text = bad.Text(Ranks() > 1 ? owner : -1, FirstRow(good, owner));
      for (int repeat = 0; repeat < 2; repeat++) {
        CHECK(ReasonOfSolve(ksp) == KSP_DIVERGED_PC_FAILED);
        CHECK(ReasonOf(PCOf(ksp)) == bad.reason);
        CHECK(Contains(LocalOf(PCOf(ksp))->failure, text));
        CHECK(Infinite(Applied(PCOf(ksp)))); /* This is true of the ranks that have a factor, too. */
        const std::string view = ViewText((KSP)ksp);
        CAPTURE(view);
        if (Rank() == 0) {
          CHECK(Contains(view, std::string("set-up failed: ") + PCFailedReasons[bad.reason] + "\n"));
          CHECK(Contains(view, text));
        }
        MUST(KSPSetOperators(ksp, good, good));
        CHECK(ReasonOfSolve(ksp) == KSP_CONVERGED_RTOL);
        CHECK(std::string(LocalOf(PCOf(ksp))->failure).empty());
        MUST(KSPSetOperators(ksp, A, A));
      }
      const VecObject b = RightVec(A), x = RightVec(A);
      Errors          errors;
      CHECK(KSPSolve(strict, b, x) != 0);
      CHECK(Contains(errors.text, text));
    }
}

TEST_CASE("several ranks: the first of two bad blocks is the one that is named", "[local][pc][bad][mpi]")
{
  if (Ranks() == 1) return;
  ForEachKind([&](const Type &type, const Kind &kind) {
    const HostBlocks H    = type.ranks();
    const MatObject  good = kind.Create(H, PETSC_COMM_WORLD);
    const int        last = Ranks() - 1;
    const MatObject  A =
      kind.Create(type.bad[2].Spoiled(type.bad[1].Spoiled(H, FirstRow(good, last) / H.bs), FirstRow(good, last - 1) / H.bs),
                  PETSC_COMM_WORLD);
    const PCObject pc = MakePC(A, type, type.block_local);
    MUST(PCSetUp(pc));
    CHECK(Contains(LocalOf(pc)->failure, type.bad[2].Text(last - 1, FirstRow(good, last - 1))));
    CHECK(ReasonOf(pc) == type.bad[2].reason); /* The reason is that of the rank whose text is shown. */
  });
}

namespace
{

/*
   These functions compute nothing. On the last rank the first leaves an error with its text in the outcome, and the second reports
   an error of its own.
*/
PetscErrorCode FailWithText(PC, PCLocalOutcome *outcome)
{
  PetscFunctionBegin;
  if (Rank() < Ranks() - 1) PetscFunctionReturn(PETSC_SUCCESS);
  outcome->code = PETSC_ERR_USER;
  PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text), "The block of rank %d is not wanted", Rank()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FailWithoutText(PC, PCLocalOutcome *)
{
  PetscFunctionBegin;
  PetscCheck(Rank() < Ranks() - 1, PETSC_COMM_SELF, PETSC_ERR_USER, "This block is not wanted");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Here the other ranks have a failure, which counts less than the error of the last one. */
PetscErrorCode FailWithTextAfterFailure(PC pc, PCLocalOutcome *outcome)
{
  PetscFunctionBegin;
  PetscCall(FailWithText(pc, outcome));
  if (outcome->code) PetscFunctionReturn(PETSC_SUCCESS);
  outcome->reason = PC_FACTOR_OTHER;
  PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text), "Only a failure"));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

/* No rank waits for another, and afterwards the same object works. */
TEST_CASE("several ranks: an error of one rank alone is one of all", "[local][pc][bad][mpi][two]")
{
  const int         last  = Ranks() - 1;
  const std::string rank  = std::to_string(last);
  const std::string text  = "The block of rank " + rank + " is not wanted",
                    other = "The block of rank " + rank + " could not be factored: see its own message";
  struct Case {
    PetscErrorCode (*compute)(PC, PCLocalOutcome *);
    std::string text;
  };
  ForEachKind([&](const Type &type, const Kind &kind) {
    const MatObject A        = kind.Create(type.ranks(), PETSC_COMM_WORLD);
    const PCObject  pc       = MakePC(A, type);
    const auto      original = LocalOf(pc)->compute;
    const auto      expected = Applied(pc);
    for (const Case &c : {Case{FailWithText, text}, Case{FailWithTextAfterFailure, text},
                          Case{FailWithoutText, Rank() == last ? "This block is not wanted" : other}}) {
      CAPTURE(c.text);
      LocalOf(pc)->compute = c.compute;
      Touch(A);
      for (int repeat = 0; repeat < 2; repeat++) {
        Errors errors;
        CHECK(PCSetUp(pc) == PETSC_ERR_USER);
        CHECK(Contains(errors.text, c.text));
        CHECK(!Contains(errors.text, "Only a failure"));
      }
      LocalOf(pc)->compute = original;
      MUST(PCSetUp(pc)); /* The set-up that ended with an error counts for nothing, so that this one is not skipped. */
      CHECK(SameBits(Applied(pc), expected));
    }
  });
}

namespace
{

/* For a scope, PETSc's allocation of this number, counted from 1, is an error on one rank. */
class FailingMalloc {
public:
  FailingMalloc(int rank, int number)
  {
    malloc_       = PetscTrMalloc;
    left_         = Rank() == rank ? number : 0;
    PetscTrMalloc = Malloc;
  }
  ~FailingMalloc() { PetscTrMalloc = malloc_; }
  FailingMalloc(const FailingMalloc &)            = delete;
  FailingMalloc &operator=(const FailingMalloc &) = delete;

  /* Whether so many allocations have been asked for, on the rank where one fails. */
  bool Reached(int rank) const
  {
    int reached = left_ <= 0;
    MPI_Bcast(&reached, 1, MPI_INT, rank, PETSC_COMM_WORLD);
    return reached;
  }

private:
  static PetscErrorCode Malloc(size_t size, PetscBool clear, int line, const char function[], const char file[], void **memory)
  {
    if (left_ > 0 && --left_ == 0)
      return PetscError(PETSC_COMM_SELF, line, function, file, PETSC_ERR_MEM, PETSC_ERROR_INITIAL, "Full");
    return malloc_(size, clear, line, function, file, memory);
  }

  static PetscErrorCode (*malloc_)(size_t, PetscBool, int, const char[], const char[], void **);
  static int left_;
};
PetscErrorCode (*FailingMalloc::malloc_)(size_t, PetscBool, int, const char[], const char[], void **);
int FailingMalloc::left_;

} // namespace

TEST_CASE("several ranks: a matrix that is not assembled on one rank is an error of all", "[local][pc][bad][mpi]")
{
  for (const Type &type : Types())
    for (const Kind &kind : type.kinds())
      for (const int rank : std::set<int>{0, Ranks() - 1}) {
        CAPTURE(type.name, kind.name, rank);
        const MatObject A        = kind.Create(type.ranks(), PETSC_COMM_WORLD);
        const PCObject  pc       = MakePC(A, type);
        const PetscInt  row      = FirstRow(A, rank);
        PetscScalar     diagonal = 0;
        const auto      expected = Applied(pc);
        if (Rank() == rank) MUST(MatGetValue(A, row, row, &diagonal));
        if (Rank() == rank) MUST(MatSetValue(A, row, row, diagonal, INSERT_VALUES));
        ((PC)pc)->setupcalled = PETSC_FALSE; /* as a changed option makes it, on all ranks */
        for (int repeat = 0; repeat < 2; repeat++) {
          Errors errors;
          CHECK(PCSetUp(pc) == PETSC_ERR_ARG_WRONGSTATE);
          CHECK(Contains(errors.text, "The matrix is not assembled: call MatAssemblyBegin() and MatAssemblyEnd()"));
        }
        Assemble(A);
        CHECK(SameBits(Applied(pc), expected));
      }
}

/* Wherever one rank's set-up meets an error, no rank waits for another, all have an error, and afterwards the same object works. */
TEST_CASE("several ranks: an error at any place of one rank's set-up is one of all", "[local][pc][bad][mpi]")
{
  std::vector<int> ranks{0};
  if (Ranks() > 1) ranks.push_back(Ranks() - 1);
  for (const Type &type : Types()) {
    const std::string variants[] = {type.block_local, type.others + std::string(type.block_local)};
    for (const auto &[kind, options, rank] : Covering(type.kinds(), variants, ranks)) {
      CAPTURE(type.name, kind.name, options, rank);
      const MatObject A        = kind.Create(type.ranks(), PETSC_COMM_WORLD);
      const PCObject  fresh    = MakePC(A, type, options);
      const auto      expected = Applied(fresh);
      /* PETSc's factorization leaves memory behind after an error. */
      const bool by_petsc = !std::strcmp(type.name, PCBISAI) && !Contains(options, "-@factor finepc");
      for (bool again : {false, true}) /* the first set-up, and one with new values */
        for (int number = 1, reached = 1; reached; number++) {
          CAPTURE(again, number);
          const PetscLogDouble before = HostBytes();
          PCObject             pc     = MakePC(A, type, options);
          if (again) MUST(PCSetUp(pc));
          if (again) Touch(A);
          {
            Errors               errors;
            const FailingMalloc  failing(rank, number);
            const PetscErrorCode code = PCSetUp(pc);
            reached                   = failing.Reached(rank);
            CAPTURE(errors.text);
            REQUIRE((code != PETSC_SUCCESS) == (bool)reached);
          }
          if (!reached) break;
          CHECK(SameBits(Applied(pc), expected));
          pc.Reset();
          if (!by_petsc) CHECK(HostBytes() == before);
          REQUIRE(number < 1000);
        }
    }
  }
}

TEST_CASE("vectors of another size than the factor are an error", "[local][pc]")
{
  ForEachKind([&](const Type &type, const Kind &kind) {
    const MatObject A = kind.Create(type.good()), other = kind.Create(type.size());
    const PCObject  pc = MakePC(A, type);
    const VecObject x = RightVec(A), y = RightVec(A), other_x = RightVec(other), other_y = RightVec(other);
    MUST(PCSetUp(pc));
    for (const auto &vectors : {std::pair<Vec, Vec>{other_x, y}, {x, other_y}, {other_x, other_y}}) {
      Errors errors;
      CHECK(PCApplyTranspose(pc, vectors.first, vectors.second) == PETSC_ERR_ARG_SIZ);
      CHECK(Contains(errors.text, "The preconditioner was set up for"));
    }
    MUST(PCApplyTranspose(pc, x, y));
  });
}

namespace
{

/* The number in a view that stands after the last of these texts, each of which is looked for behind the one before. */
double NumberAfter(const std::string &text, const std::vector<std::string> &before)
{
  size_t at = 0;
  for (const std::string &part : before) {
    at = text.find(part, at);
    REQUIRE(at != std::string::npos);
    at += part.size();
  }
  return std::stod(text.substr(at));
}

} // namespace

/*
   A well, an earth node, a condition on an integral: what the set-ups take is in proportion to the entries of A, and not to the
   square of the rows. tests/sfsai_pc_test.cxx has the same of sfsai.
*/
TEST_CASE("a dense row that reaches all ranks", "[local][pc][dense][mpi]")
{
  constexpr LocalInt n = 6000;
  for (const Backend &backend : Backends())
    for (const auto &[name, options] : {std::pair<PCType, const char *>{PCAFSAI, "-pc_afsai_overlap 1"},
                                        {PCSFSAI, "-pc_sfsai_overlap 1"},
                                        {PCCMATCH, ""},
                                        {PCBISAI, "-ksp_type gmres -ksp_pc_side right"}})
      for (LocalInt hub : {0, n / 2, n - 1}) {
        CAPTURE(backend.name, name, hub);
        const MatObject A        = CreateMat(Star(n, hub), backend.mat, PETSC_COMM_WORLD);
        const Solution  solution = Solve(MakeKSP(A, options, name));
        CHECK(solution.reason > 0);
        CHECK(solution.iterations <= 20);
      }
}

TEST_CASE("a dense row", "[local][pc][dense]")
{
  constexpr LocalInt n = 20000;
  for (const Backend &backend : Backends())
    for (LocalInt hub : {0, n / 2, n - 1})
      for (bool chain : kBoth) {
        CAPTURE(backend.name, hub, chain);
        const HostMatrix H = Star(n, hub, chain);
        const MatObject  A = CreateMat(H, backend.mat);
        /* device memory: at least 64 MiB of work space, and more of it for the row that looks at all columns */
        const double memory = PetscMemTypeDevice(backend.where) ? 280e6 : 100. * H.nnz();
        const auto   view   = [&](const KSPObject &ksp) {
          const Solution solution = Solve(ksp);
          CHECK(solution.reason > 0);
          CHECK(solution.iterations <= 20);
          return ViewText(PCOf(ksp));
        };
        {
          const std::string text = view(MakeKSP(A, "", PCAFSAI));
          CAPTURE(text);
          CHECK(NumberAfter(text, {"G: ", "rows, "}) <= H.nnz());
          CHECK(NumberAfter(text, {"row size: ", "max "}) <= 21);
          CHECK(NumberAfter(text, {"set-up memory beyond A, G and its transpose: "}) <= memory);
        }
        {
          const std::string text = view(MakeKSP(A, "-ksp_type gmres -ksp_pc_side right", PCBISAI));
          CAPTURE(text);
          CHECK(NumberAfter(text, {"\n", "blocks of the matrix; NL "}) + NumberAfter(text, {"blocks of the matrix; NL ", "NU "}) <=
                H.nnz());
          CHECK(NumberAfter(text, {"set-up memory beyond these: "}) <= memory);
        }
        {
          const std::string text = view(MakeKSP(A, "", PCCMATCH));
          CAPTURE(text);
          CHECK(NumberAfter(text, {"operator complexity "}) <= 2);
          CHECK(NumberAfter(text, {"set-up memory beyond A and the hierarchy: "}) <= memory);
        }
        const PCObject pc = MakePC(A, "", PCRRB);
        Errors         errors;
        CHECK(PCSetUp(pc) != 0);
        CHECK(Contains(errors.text, "Row 0 has an entry in column "));
      }
}

TEST_CASE("several ranks: some of them without rows", "[local][pc][mpi]")
{
  ForEachKind(&Type::variants, [&](const Type &type, const Kind &kind, const char *options) {
    const MatObject A        = kind.Create(type.few(), PETSC_COMM_WORLD);
    const KSPObject ksp      = MakeKSP(A, type, options);
    const Solution  solution = Solve(ksp);
    CHECK(solution.reason > 0);
    CHECK(solution.iterations <= 2);
    CHECK(solution.true_residual <= (type.single_diagonal ? 1e-8 : 1e-12));
    const std::string text = ViewText((KSP)ksp);
    if (Rank() == 0) CHECK(Contains(text, std::string("type: ") + type.name));
    if (!type.get_factors) return;
    MatObject first, second;
    MUST(type.get_factors(PCOf(ksp), first.put(), second.put()));
  });
}
