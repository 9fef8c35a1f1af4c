/* PCBISAI as PETSc sees it: limiting cases, options, views, life cycle, bad matrices, nesting, ranks, convergence. */
#include <petsc/private/matimpl.h>

#if defined(FINEPC_HAVE_CUDA)
  #include <petscdevice_cuda.h>
#endif

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>

#include "blocks.h"
#include "pc_support.h"

namespace
{

const HostBlocks &Grid()
{
  static const HostBlocks A = RandomBlocks(RandomStencil(9, 8, 1, false, 200), 3, 201);
  return A;
}

/* The kinds of matrices that it takes. */
struct Kind {
  const char                                            *name;
  const char                                            *backend;
  std::function<MatObject(const HostBlocks &, MPI_Comm)> create;
};

std::vector<Kind> Kinds()
{
  std::vector<Kind> kinds = {
    {"baij", "host", [](const HostBlocks &A, MPI_Comm comm) { return CreateBAIJ(A, comm); }},
    {"aij", "host", [](const HostBlocks &A, MPI_Comm comm) { return CreateAIJ(A, MATAIJ, comm); }},
  };
  kinds.push_back({"baijcuda", DeviceFound() ? "CUDA" : "host", [](const HostBlocks &A, MPI_Comm comm) {
                     const MatObject mat = CreateBAIJ(A, comm);
                     MatObject       converted;
                     MUST(MatConvert(mat, MATBAIJCUDA, MAT_INITIAL_MATRIX, converted.put()));
                     return converted;
                   }});
  if (DeviceFound()) {
    kinds.push_back({"aijcusparse", "CUDA", [](const HostBlocks &A, MPI_Comm comm) { return CreateAIJ(A, MATAIJCUSPARSE, comm); }});
    kinds.push_back({"baij with device vectors", "CUDA", [](const HostBlocks &A, MPI_Comm comm) {
                       MatObject mat = CreateBAIJ(A, comm);
                       MUST(MatSetVecType(mat, VECCUDA));
                       return mat;
                     }});
  }
  return kinds;
}

PCObject MakeBISAI(Mat A, const std::string &options = "")
{
  return MakePC(A, options, PCBISAI);
}

KSPObject MakeGMRES(Mat A, const std::string &options, PCType type)
{
  return MakeKSP(A, "-ksp_type gmres -ksp_pc_side right " + options, type);
}

/* The same nonzeros, other values. */
HostBlocks Changed(const HostBlocks &A, std::uint64_t seed)
{
  HostBlocks B = A;
  Random     random(seed);
  for (double &value : B.a) value *= random.Between(0.8, 1.2);
  return B;
}

void SetValues(Mat mat, const HostBlocks &A)
{
  PetscInt begin, end;
  MUST(MatGetOwnershipRange(mat, &begin, &end));
  MUST(MatSetOption(mat, MAT_ROW_ORIENTED, PETSC_FALSE));
  for (PetscInt row = begin / A.bs; row < end / A.bs; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++)
      MUST(MatSetValuesBlocked(mat, 1, &row, 1, &A.j[k], A.Block(k), INSERT_VALUES));
  MUST(MatAssemblyBegin(mat, MAT_FINAL_ASSEMBLY));
  MUST(MatAssemblyEnd(mat, MAT_FINAL_ASSEMBLY));
}

/* NU NL x with the inverses that the user gets. */
std::vector<double> AppliedFactors(PC pc)
{
  Mat       A;
  MatObject NL, NU;
  VecObject w, y;
  MUST(PCGetOperators(pc, nullptr, &A));
  MUST(PCBISAIGetFactors(pc, NL.put(), NU.put()));
  const VecObject x = RightVec(NL);
  MUST(VecDuplicate(x, w.put()));
  MUST(VecDuplicate(x, y.put()));
  MUST(MatMult(NL, x, w));
  MUST(MatMult(NU, w, y));
  return Values(y);
}

} // namespace

/* --------------------------------------- limiting cases --------------------------------------- */

/* Powers and sweeps that are large enough: the triangular solves, hence the iterates, of PCILU. */
TEST_CASE("bisai: exact inverses give the iterates of PCILU", "[bisai][pc]")
{
  struct Case {
    const char *bisai, *ilu;
    HostMatrix  pattern;
  };
  const HostMatrix grid = RandomStencil(9, 8, 1, false, 210);
  for (const Kind &kind : Kinds())
    for (const Case &c :
         {Case{"-pc_bisai_power 4", "", Poisson(5)}, Case{"-pc_bisai_sweeps 20", "", grid},
          Case{"-pc_bisai_sweeps 30 -pc_bisai_factor cuda", "", grid},
          Case{"-pc_bisai_power 2 -pc_bisai_sweeps 40 -pc_bisai_factor_levels 1", "-pc_factor_levels 1", grid},
          Case{"-pc_bisai_sweeps 80 -pc_bisai_factor_levels 2", "-pc_factor_levels 2", grid},
          Case{"-pc_bisai_sweeps 40 -pc_bisai_factor_mat_ordering_type rcm", "-pc_factor_mat_ordering_type rcm", grid},
          Case{"-pc_bisai_sweeps 80 -pc_bisai_factor_levels 1 -pc_bisai_factor_mat_ordering_type nd",
               "-pc_factor_levels 1 -pc_factor_mat_ordering_type nd", grid}})
      for (PetscInt bs : {1, 2, 3, 4, 5, 9}) {
        CAPTURE(kind.name, c.bisai, bs);
        const HostBlocks A   = RandomBlocks(c.pattern, bs, 211);
        const MatObject  mat = kind.create(A, PETSC_COMM_SELF), baij = CreateBAIJ(A);
        const KSPObject  mine  = MakeGMRES(mat, std::string("-pc_bisai_factor_precision double ") + c.bisai, PCBISAI),
                        theirs = MakeGMRES(baij, c.ilu, PCILU);
        const Solution x = Solve(mine), y = Solve(theirs);
        CHECK(Difference(Applied(PCOf(mine)), Applied(PCOf(theirs))) <= 1e-12);
        REQUIRE(x.history.size() == y.history.size());
        for (size_t k = 0; k < x.history.size(); k++) CHECK(std::fabs(x.history[k] - y.history[k]) <= 1e-9 * y.history[0]);
      }
}

TEST_CASE("bisai: MATBAIJ, MATAIJ with a block size, and both sources of the factor", "[bisai][pc]")
{
  for (PetscInt bs : {1, 3, 7})
    for (const char *precision : {"single", "double"}) {
      const HostBlocks  A       = RandomBlocks(RandomGraph(50, 5, 220), bs, 221);
      const std::string options = std::string("-pc_bisai_power 2 -pc_bisai_factor_precision ") + precision;
      const MatObject   baij    = CreateBAIJ(A);
      const PCObject    first   = MakeBISAI(baij, options);
      MUST(PCSetUp(first));
      const auto expected = Applied(first);
      for (const Kind &kind : Kinds())
        for (const char *factor : {"petsc", "cuda"}) {
          CAPTURE(bs, precision, kind.name, factor);
          const MatObject mat = kind.create(A, PETSC_COMM_SELF);
          const PCObject  pc  = MakeBISAI(mat, options + " -pc_bisai_factor " + factor);
          MUST(PCSetUp(pc));
          if (!std::strcmp(factor, "petsc") && !std::strcmp(kind.backend, "host")) CHECK(SameBits(Applied(pc), expected));
          CHECK(Difference(Applied(pc), expected) <= (std::strcmp(precision, "single") ? 1e-11 : 1e-5));
          CHECK(Difference(Applied(pc), AppliedFactors(pc)) <= 1e-12);
        }
    }
}

TEST_CASE("bisai: blocks of a MATAIJ that are stored in part are filled up", "[bisai][pc]")
{
  HostBlocks A = Grid();
  Random     random(230);
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++)
      for (PetscInt e = 0; e < 9; e++)
        if (A.j[k] != row && random.Between(0, 1) < 0.5) A.a[(size_t)k * 9 + e] = 0;
  const MatObject baij = CreateBAIJ(A);
  MatObject       part;
  const PCObject  whole = MakeBISAI(baij);
  MUST(PCSetUp(whole));
  HostMatrix S = Scalars(A, true);
  part         = CreateMat(S, MATAIJ);
  MUST(MatSetBlockSize(part, 3));
  const PCObject pc = MakeBISAI(part);
  MUST(PCSetUp(pc));
  CHECK(SameBits(Applied(pc), Applied(whole)));
}

TEST_CASE("bisai: empty and one-block systems", "[bisai][pc]")
{
  for (const Kind &kind : Kinds())
    for (const char *options : {"", "-pc_bisai_factor cuda", "-pc_bisai_sweeps 2", "-pc_bisai_power 3"}) {
      CAPTURE(kind.name, options);
      HostBlocks empty;
      empty.bs             = 2;
      const MatObject none = kind.create(empty, PETSC_COMM_SELF),
                      one  = kind.create(RandomBlocks(Poisson(1), 4, 240), PETSC_COMM_SELF);
      const PCObject pc    = MakeBISAI(none, options);
      MUST(PCSetUp(pc));
      CHECK(Applied(pc).empty());
      const Solution solution = Solve(MakeGMRES(one, options, PCBISAI));
      CHECK(solution.reason > 0);
      CHECK(solution.iterations <= 2); /* the inverse is stored in single precision */
    }
}

/* ----------------------------------------- transposes ----------------------------------------- */

/* M^{-1} column by column, by PCApply(). */
TEST_CASE("bisai: PCApplyTranspose is the transpose of PCApply", "[bisai][pc][transpose]")
{
  for (const Kind &kind : Kinds())
    for (PetscInt bs : {1, 3, 9})
      for (const char *options :
           {"", "-pc_bisai_power 2 -pc_bisai_factor_precision double", "-pc_bisai_sweeps 2",
            "-pc_bisai_factor cuda -pc_bisai_power_upper 3", "-pc_bisai_factor_mat_ordering_type rcm -pc_bisai_factor_levels 1",
            "-pc_bisai_factor_mat_ordering_type nd -pc_bisai_sweeps 1 -pc_bisai_factor_precision double"}) {
        CAPTURE(kind.name, bs, options);
        const MatObject     mat = kind.create(RandomBlocks(RandomGraph(25, 5, 250), bs, 251), PETSC_COMM_SELF);
        const PCObject      pc  = MakeBISAI(mat, options);
        const VecObject     x   = RightVec(mat, 252);
        const auto          v   = Values(x);
        const PetscInt      n   = (PetscInt)v.size();
        VecObject           unit, y;
        std::vector<double> expected(n), size(n);
        MUST(PCSetUp(pc));
        MUST(VecDuplicate(x, unit.put()));
        MUST(VecDuplicate(x, y.put()));
        for (PetscInt column = 0; column < n; column++) {
          MUST(VecSet(unit, 0));
          MUST(VecSetValue(unit, column, 1, INSERT_VALUES));
          MUST(VecAssemblyBegin(unit));
          MUST(VecAssemblyEnd(unit));
          MUST(PCApply(pc, unit, y));
          const auto values = Values(y);
          for (PetscInt row = 0; row < n; row++) {
            expected[column] += values[row] * v[row];
            size[column] += std::fabs(values[row] * v[row]);
          }
        }
        for (int repeat = 0; repeat < 2; repeat++) {
          MUST(VecSet(y, std::nan("")));
          MUST(PCApplyTranspose(pc, x, y));
          const auto values = Values(y);
          double     worst  = 0;
          for (PetscInt row = 0; row < n; row++) {
            const double error = std::fabs(values[row] - expected[row]) / (1e-3 + size[row]);
            worst              = error <= worst ? worst : error;
          }
          CHECK(worst <= 1e-12); /* the stored numbers are the same ones, whatever their precision */
        }
        CHECK(Contains(ViewText((PC)pc), "bytes of transposes, made for PCApplyTranspose()"));
      }
}

TEST_CASE("bisai: transposes have the values of the last set-up, in the old memory", "[bisai][pc][transpose][cycle]")
{
  for (const Kind &kind : Kinds())
    for (const char *options : {"", "-pc_bisai_factor cuda -pc_bisai_sweeps 1",
                                "-pc_bisai_power 2 -pc_bisai_factor_precision double -pc_bisai_factor_mat_ordering_type rcm"}) {
      CAPTURE(kind.name, options);
      const MatObject mat = kind.create(Grid(), PETSC_COMM_SELF);
      const PCObject  pc  = MakeBISAI(mat, options);
      const VecObject x   = RightVec(mat);
      VecObject       y;
      PetscLogDouble  host = 0, device = 0;
      MUST(VecDuplicate(x, y.put()));
      MUST(PCSetUp(pc));
      CHECK(!Contains(ViewText((PC)pc), "transposes"));
      for (int step = 0; step < 4; step++) {
        const auto before = Applied(pc, true);
        SetValues(mat, Changed(Grid(), 320 + step));
        MUST(PCSetUp(pc));
        const auto values = Applied(pc, true);
        CHECK(!SameBits(values, before));
        {
          const MatObject same  = kind.create(Changed(Grid(), 320 + step), PETSC_COMM_SELF);
          const PCObject  fresh = MakeBISAI(same, options);
          CHECK(SameBits(values, Applied(fresh, true)));
          CHECK(SameBits(Applied(pc), Applied(fresh)));
        }
        if (step == 1) host = HostBytes();
        if (step == 1 && DeviceFound()) device = DeviceBytes();
        if (step == 3) CHECK(HostBytes() == host);
        if (step == 3 && DeviceFound()) CHECK(DeviceBytes() == device);
      }
      PetscErrorCode code = PETSC_SUCCESS;
      if (!std::strcmp(kind.backend, "host")) CHECK(CountAllocations([&] { code = PCApplyTranspose(pc, x, y); }) == 0);
      else {
        MUST(PCApplyTranspose(pc, x, y));
        CHECK(AsynchronousOnDevice([&] { code = PCApplyTranspose(pc, x, y); }));
      }
      MUST(code);
      const MatObject other = kind.create(RandomBlocks(RandomGraph(Grid().n, 6, 330), 3, 331), PETSC_COMM_SELF);
      MUST(PCSetOperators(pc, other, other));
      MUST(PCSetUp(pc));
      const PCObject fresh = MakeBISAI(other, options);
      CHECK(SameBits(Applied(pc, true), Applied(fresh, true)));
    }
}

/* BiCG needs the transpose; inside PCBJACOBI and on several ranks, too. */
TEST_CASE("bisai: BiCG converges as with PCILU", "[bisai][pc][transpose][mpi]")
{
  for (const Kind &kind : Kinds())
    for (const char *options : {"-pc_bisai_power 2", "-pc_bisai_factor cuda -pc_bisai_sweeps 1"}) {
      CAPTURE(kind.name, options);
      const HostBlocks  H = RandomBlocks(RandomStencil(12, 10, 1, false, 350), 3, 351);
      const MatObject   A = kind.create(H, PETSC_COMM_WORLD);
      const Options     scope("-sub_pc_type ilu");
      const std::string bicg = "-ksp_type bicg ";
      const Solution    mine = Solve(MakeKSP(A, bicg + options, PCBISAI)),
                     exact   = Solve(MakeKSP(CreateBAIJ(H, PETSC_COMM_WORLD), bicg, PCBJACOBI));
      CHECK(mine.reason == KSP_CONVERGED_RTOL);
      CHECK(mine.true_residual <= 1e-6);
      CHECK(mine.iterations >= exact.iterations);
      CHECK(mine.iterations <= 2 * exact.iterations + 2);
    }
}

/* ------------------------------------------ options ------------------------------------------- */

TEST_CASE("bisai: every key sets what its getter gives", "[bisai][pc][options]")
{
  const MatObject A = CreateBAIJ(Grid());
  const PCObject
    defaults = MakeBISAI(A),
    pc =
      MakeBISAI(A,
                "-pc_bisai_power 3 -pc_bisai_power_lower 2 -pc_bisai_power_upper 4 -pc_bisai_factor cuda -pc_bisai_factor_levels 2 "
                "-pc_bisai_factor_shift_type inblocks -pc_bisai_factor_shift_amount 0.125 "
                "-pc_bisai_factor_mat_ordering_type rcm -pc_bisai_factor_precision double -pc_bisai_sweeps 5");
  const auto check = [](PC object, PetscInt power, PetscInt lower, PetscInt upper, PCBISAIFactor factor, PetscInt levels,
                        MatFactorShiftType shift, PetscReal amount, const char *ordering, FinePCPrecision precision,
                        PetscInt sweeps) {
    PetscInt           integer;
    PetscReal          real;
    PCBISAIFactor      source;
    MatFactorShiftType type;
    MatOrderingType    order;
    FinePCPrecision    stored;
    MUST(PCBISAIGetPower(object, &integer));
    CHECK(integer == power);
    MUST(PCBISAIGetPowerLower(object, &integer));
    CHECK(integer == lower);
    MUST(PCBISAIGetPowerUpper(object, &integer));
    CHECK(integer == upper);
    MUST(PCBISAIGetFactor(object, &source));
    CHECK(source == factor);
    MUST(PCBISAIGetFactorLevels(object, &integer));
    CHECK(integer == levels);
    MUST(PCBISAIGetFactorShiftType(object, &type));
    CHECK(type == shift);
    MUST(PCBISAIGetFactorShiftAmount(object, &real));
    CHECK(real == amount);
    MUST(PCBISAIGetFactorMatOrderingType(object, &order));
    CHECK(std::string(order) == ordering);
    MUST(PCBISAIGetFactorPrecision(object, &stored));
    CHECK(stored == precision);
    MUST(PCBISAIGetSweeps(object, &integer));
    CHECK(integer == sweeps);
  };
  check(defaults, 1, 0, 0, PC_BISAI_FACTOR_PETSC, 0, MAT_SHIFT_NONE, 100.0 * PETSC_MACHINE_EPSILON, MATORDERINGNATURAL,
        FINEPC_SINGLE, 0);
  check(pc, 3, 2, 4, PC_BISAI_FACTOR_CUDA, 2, MAT_SHIFT_INBLOCKS, 0.125, MATORDERINGRCM, FINEPC_DOUBLE, 5);

  /* and so does every setter, starting from the defaults */
  MUST(PCBISAISetPower(defaults, 3));
  MUST(PCBISAISetPowerLower(defaults, 2));
  MUST(PCBISAISetPowerUpper(defaults, 4));
  MUST(PCBISAISetFactor(defaults, PC_BISAI_FACTOR_CUDA));
  MUST(PCBISAISetFactorLevels(defaults, 2));
  MUST(PCBISAISetFactorShiftType(defaults, MAT_SHIFT_INBLOCKS));
  MUST(PCBISAISetFactorShiftAmount(defaults, 0.125));
  MUST(PCBISAISetFactorMatOrderingType(defaults, MATORDERINGRCM));
  MUST(PCBISAISetFactorPrecision(defaults, FINEPC_DOUBLE));
  MUST(PCBISAISetSweeps(defaults, 5));
  check(defaults, 3, 2, 4, PC_BISAI_FACTOR_CUDA, 2, MAT_SHIFT_INBLOCKS, 0.125, MATORDERINGRCM, FINEPC_DOUBLE, 5);
}

TEST_CASE("bisai: values out of range are refused, and the old ones stay", "[bisai][pc][options]")
{
  const MatObject A = CreateBAIJ(Grid());
  for (const char *option : {"-pc_bisai_power 0", "-pc_bisai_power 5", "-pc_bisai_power many", "-pc_bisai_power_lower -1",
                             "-pc_bisai_power_upper 5", "-pc_bisai_factor host", "-pc_bisai_factor_levels -1",
                             "-pc_bisai_factor_shift_type some", "-pc_bisai_factor_shift_amount -1",
                             "-pc_bisai_factor_shift_amount nan", "-pc_bisai_factor_precision half", "-pc_bisai_sweeps -1"}) {
    CAPTURE(option);
    PCObject          pc = MakeBISAI(A);
    const Options     scope(option);
    const std::string key(option, std::strchr(option, ' '));
    Errors            errors;
    CHECK(PCSetFromOptions(pc) != 0);
    const std::string word(option + key.size() + 1);
    CHECK(Contains(errors.text, std::isalpha(word[0]) ? word : key)); /* it names the key, or the word that PETSc cannot read */
  }
  const PCObject pc = MakeBISAI(A);
  {
    Errors errors;
    CHECK(PCBISAISetPower(pc, 0) != 0);
    CHECK(PCBISAISetPowerLower(pc, 5) != 0);
    CHECK(PCBISAISetPowerUpper(pc, -1) != 0);
    CHECK(PCBISAISetFactor(pc, (PCBISAIFactor)7) != 0);
    CHECK(PCBISAISetFactorLevels(pc, -1) != 0);
    CHECK(PCBISAISetFactorShiftType(pc, (MatFactorShiftType)9) != 0);
    CHECK(PCBISAISetFactorShiftAmount(pc, std::nan("")) != 0);
    CHECK(PCBISAISetFactorMatOrderingType(pc, "") != 0);
    CHECK(PCBISAISetFactorPrecision(pc, (FinePCPrecision)9) != 0);
    CHECK(PCBISAISetSweeps(pc, -1) != 0);
    CHECK(Contains(errors.text, "must be"));
  }
  const PCObject fresh = MakeBISAI(A);
  MUST(PCSetUp(pc));
  MUST(PCSetUp(fresh));
  CHECK(SameBits(Applied(pc), Applied(fresh)));
}

TEST_CASE("bisai: setters do nothing to other types, getters say so", "[bisai][pc][options]")
{
  const MatObject A  = CreateBAIJ(Grid());
  const PCObject  pc = MakePC(A, "", PCJACOBI), changed = MakeBISAI(A);
  PetscInt        power;
  MUST(PCBISAISetPower(pc, 3));
  MUST(PCSetType(changed, PCJACOBI));
  Errors errors;
  CHECK(PCBISAIGetPower(pc, &power) != 0);
  CHECK(PCBISAIGetPower(changed, &power) != 0);
}

TEST_CASE("bisai: an option that is changed after the set-up takes effect", "[bisai][pc][options]")
{
  struct Change {
    const char                       *options;
    std::function<PetscErrorCode(PC)> set;
  };
  for (const Kind &kind : Kinds())
    for (const Change &change :
         {Change{"-pc_bisai_power 3", [](PC pc) { return PCBISAISetPower(pc, 3); }},
          Change{"-pc_bisai_power_lower 2", [](PC pc) { return PCBISAISetPowerLower(pc, 2); }},
          Change{"-pc_bisai_power_upper 2", [](PC pc) { return PCBISAISetPowerUpper(pc, 2); }},
          Change{"-pc_bisai_factor_levels 1", [](PC pc) { return PCBISAISetFactorLevels(pc, 1); }},
          Change{"-pc_bisai_factor_mat_ordering_type rcm",
                 [](PC pc) { return PCBISAISetFactorMatOrderingType(pc, MATORDERINGRCM); }},
          Change{"-pc_bisai_factor_precision double", [](PC pc) { return PCBISAISetFactorPrecision(pc, FINEPC_DOUBLE); }},
          Change{"-pc_bisai_sweeps 1", [](PC pc) { return PCBISAISetSweeps(pc, 1); }}}) {
      CAPTURE(kind.name, change.options);
      const MatObject A  = kind.create(Grid(), PETSC_COMM_SELF);
      const PCObject  pc = MakeBISAI(A), fresh = MakeBISAI(A, change.options);
      MUST(PCSetUp(pc));
      const auto before = Applied(pc);
      MUST(change.set(pc));
      MUST(PCSetUp(pc));
      MUST(PCSetUp(fresh));
      CHECK(SameBits(Applied(pc), Applied(fresh)));
      CHECK(!SameBits(Applied(pc), before));
    }
}

TEST_CASE("bisai: another source of the factor after the set-up takes effect", "[bisai][pc][options]")
{
  for (const Kind &kind : Kinds()) {
    CAPTURE(kind.name);
    const MatObject A    = kind.create(Grid(), PETSC_COMM_SELF);
    const PCObject  pc   = MakeBISAI(A, "-pc_bisai_factor_precision double"),
                   fresh = MakeBISAI(A, "-pc_bisai_factor cuda -pc_bisai_factor_precision double");
    MUST(PCSetUp(pc));
    MUST(PCSetUp(fresh));
    const auto before = Applied(pc), expected = Applied(fresh);
    for (int repeat = 0; repeat < 2; repeat++) {
      MUST(PCBISAISetFactor(pc, PC_BISAI_FACTOR_CUDA));
      MUST(PCSetUp(pc));
      CHECK(Contains(ViewText((PC)pc), std::strcmp(kind.backend, "host") ? "factors by CUDA" : "factors by the host twin"));
      CHECK(SameBits(Applied(pc), expected));
      MUST(PCBISAISetFactor(pc, PC_BISAI_FACTOR_PETSC));
      MUST(PCSetUp(pc));
      CHECK(Contains(ViewText((PC)pc), "factors by PETSc"));
      CHECK(SameBits(Applied(pc), before));
    }
  }
}

/* A zero pivot at first, that of a number or that of a block's first column. */
TEST_CASE("bisai: shifts that are changed after the set-up take effect", "[bisai][pc][options]")
{
  for (const Kind &kind : Kinds())
    for (PetscInt bs : {1, 2, 3}) {
      CAPTURE(kind.name, bs);
      HostBlocks A = RandomBlocks(RandomStencil(6, 6, 1, false, 380), bs, 381);
      std::fill_n(A.Find(0, 0), bs, 0.);
      const MatObject mat = kind.create(A, PETSC_COMM_SELF);
      const PCObject  pc  = MakeBISAI(mat, "-pc_bisai_factor_shift_amount 0.5");
      MUST(PCSetUp(pc));
      CHECK(Contains(ViewText((PC)pc), "PETSc's factorization met a singular diagonal block"));
      auto before = Applied(pc);
      for (const char *options : {"-pc_bisai_factor_shift_type inblocks -pc_bisai_factor_shift_amount 0.5",
                                  "-pc_bisai_factor_shift_type inblocks -pc_bisai_factor_shift_amount 0.25"}) {
        const PCObject fresh = MakeBISAI(mat, options);
        if (Contains(options, "0.25")) MUST(PCBISAISetFactorShiftAmount(pc, 0.25));
        else MUST(PCBISAISetFactorShiftType(pc, MAT_SHIFT_INBLOCKS));
        MUST(PCSetUp(pc));
        MUST(PCSetUp(fresh));
        CHECK(!Contains(ViewText((PC)pc), "PETSc's factorization met a singular diagonal block"));
        CHECK(SameBits(Applied(pc), Applied(fresh)));
        CHECK(!SameBits(Applied(pc), before));
        before = Applied(pc);
      }
    }
}

/* PETSc takes the two types' nonzeros for the same. */
TEST_CASE("bisai: a matrix that is converted in place", "[bisai][pc][cycle]")
{
  MatObject      A  = CreateBAIJ(Grid());
  const PCObject pc = MakeBISAI(A);
  MUST(PCSetUp(pc));
  for (MatType type : {MATBAIJCUDA, MATBAIJ, MATBAIJCUDA}) {
    CAPTURE(type);
    Mat converted = A;
    MUST(MatConvert(converted, type, MAT_INPLACE_MATRIX, &converted));
    MUST(MatScale(A, 1.5));
    MUST(PCSetOperators(pc, A, A));
    MUST(PCSetUp(pc));
    const PCObject fresh = MakeBISAI(A);
    MUST(PCSetUp(fresh));
    CHECK(Difference(Applied(pc), Applied(fresh)) <= 1e-12);
  }
}

TEST_CASE("bisai: choices that do not go together are refused with a remedy", "[bisai][pc][options][bad]")
{
  const MatObject A = CreateBAIJ(Grid());
  for (const char *options :
       {"-pc_bisai_factor_levels 1", "-pc_bisai_factor_shift_type inblocks", "-pc_bisai_factor_mat_ordering_type rcm"}) {
    CAPTURE(options);
    const PCObject pc = MakeBISAI(A, std::string("-pc_bisai_factor cuda ") + options);
    {
      Errors errors;
      CHECK(PCSetUp(pc) != 0);
      CHECK(Contains(errors.text, "use -pc_bisai_factor petsc"));
    }
    MUST(PCBISAISetFactor(pc, PC_BISAI_FACTOR_PETSC));
    MUST(PCSetUp(pc));
    CHECK(Finite(Applied(pc)));
  }
}

/* ------------------------------------------- views -------------------------------------------- */

TEST_CASE("bisai: the view says what was done", "[bisai][pc][view]")
{
  for (const Kind &kind : Kinds()) {
    CAPTURE(kind.name);
    const MatObject A   = kind.create(Grid(), PETSC_COMM_SELF);
    const PCObject  pc  = MakeBISAI(A, "-pc_bisai_power_lower 2 -pc_bisai_factor_levels 1"),
                   ours = MakeBISAI(A, "-pc_bisai_factor cuda -pc_bisai_sweeps 3 -pc_bisai_factor_precision double");
    CHECK(Contains(ViewText((PC)pc), "patterns of power 2 of L, 1 of U; relaxation sweeps 0"));
    CHECK(!Contains(ViewText((PC)pc), "backend"));
    MUST(PCSetUp(pc));
    MUST(PCSetUp(ours));
    const std::string text = ViewText((PC)pc), other = ViewText((PC)ours);
    CAPTURE(text, other);
    CHECK(Contains(text, "factors by PETSc, on the host: ILU(1), ordering natural, shift type NONE"));
    CHECK(Contains(text, std::string("backend ") + kind.backend +
                           ", block size 3, inverses stored in single precision, patterns made at the last set-up"));
    CHECK(Contains(text, "72 block rows, 326 blocks of the matrix"));
    CHECK(Contains(text, "singular diagonal blocks replaced 0, block rows fallen back to the diagonal: NL 0, NU 0"));
    CHECK(Contains(other, "patterns of power 1 of L, 1 of U; relaxation sweeps 3"));
    CHECK(Contains(other, std::strcmp(kind.backend, "host")
                            ? "factors by CUDA: ILU(0) in 16 levels of rows"
                            : "factors by the host twin of the CUDA ILU(0), since the matrix is on the host"));
    CHECK(Contains(other, "inverses stored in double precision"));
    /* with the unit diagonal of NL */
    CHECK(Contains(other, "NL 199 blocks, at most 2 a row, NU 199 blocks, at most 2 a row beside the diagonal"));
    Applied(ours);
    CHECK(Contains(ViewText((PC)ours), "patterns made at the last set-up")); /* an apply sets up nothing */
    Touch(A);
    MUST(PCSetUp(ours));
    CHECK(Contains(ViewText((PC)ours), "patterns kept from the last set-up"));
    MatObject NL;
    MUST(PCBISAIGetFactors(ours, NL.put(), nullptr));
  }
}

TEST_CASE("bisai: the view counts what was replaced", "[bisai][pc][view][bad]")
{
  HostBlocks A = Grid();
  for (PetscInt e = 0; e < 9; e++) A.Find(0, 0)[e] = 1 + (e % 3 == e / 3 ? 1e-15 : 0); /* singular to rounding */
  for (const Kind &kind : Kinds())
    for (const char *options : {"", "-pc_bisai_factor cuda"}) {
      CAPTURE(kind.name, options);
      const MatObject mat = kind.create(A, PETSC_COMM_SELF);
      const PCObject  pc  = MakeBISAI(mat, options);
      for (int repeat = 0; repeat < 2; repeat++) {
        MUST(PCSetUp(pc));
        CHECK(Contains(ViewText((PC)pc), "singular diagonal blocks replaced 1, block rows fallen back"));
        CHECK(Finite(Applied(pc)));
        Touch(mat);
      }
    }
}

/* ----------------------------------------- life cycle ----------------------------------------- */

TEST_CASE("bisai: new values on the old pattern, in the old memory, are a fresh set-up", "[bisai][pc][cycle]")
{
  for (const Kind &kind : Kinds())
    for (const char *options : {"", "-pc_bisai_power 3 -pc_bisai_factor cuda", "-pc_bisai_sweeps 2",
                                "-pc_bisai_factor_levels 1 -pc_bisai_factor_mat_ordering_type rcm",
                                "-pc_bisai_factor cuda -pc_bisai_factor_precision double -pc_bisai_sweeps 1"}) {
      CAPTURE(kind.name, options);
      const MatObject mat  = kind.create(Grid(), PETSC_COMM_SELF);
      const PCObject  pc   = MakeBISAI(mat, options);
      PetscLogDouble  host = 0, device = 0;
      MUST(PCSetUp(pc));
      for (int step = 0; step < 4; step++) {
        const HostBlocks B      = Changed(Grid(), 300 + step);
        const auto       before = Applied(pc);
        SetValues(mat, B);
        MUST(PCSetUp(pc));
        CHECK(Contains(ViewText((PC)pc), "patterns kept from the last set-up"));
        const auto x = Applied(pc);
        {
          const MatObject same  = kind.create(B, PETSC_COMM_SELF);
          const PCObject  fresh = MakeBISAI(same, options);
          MUST(PCSetUp(fresh));
          CHECK(SameBits(x, Applied(fresh)));
        }
        CHECK(!SameBits(x, before));
        if (step == 1) host = HostBytes();
        if (step == 1 && DeviceFound()) device = DeviceBytes();
        if (step == 3) CHECK(HostBytes() == host);
        if (step == 3 && DeviceFound()) CHECK(DeviceBytes() == device);
      }
    }
}

/* As a program does it: the same KSP, new values, a solve; and a KSP of their own for the same values. */
TEST_CASE("bisai: the iterates of a time loop are those of fresh solvers", "[bisai][pc][cycle]")
{
  for (const Kind &kind : Kinds())
    for (const char *factor : {"petsc", "cuda"})
      for (const char *others : {"", " -pc_bisai_power 2 -pc_bisai_sweeps 1 -pc_bisai_factor_precision double"}) {
        CAPTURE(kind.name, factor, others);
        const std::string options = std::string("-pc_bisai_factor ") + factor + others;
        const MatObject   mat     = kind.create(Grid(), PETSC_COMM_SELF);
        const KSPObject   ksp     = MakeGMRES(mat, options, PCBISAI);
        REQUIRE(Solve(ksp).reason == KSP_CONVERGED_RTOL);
        std::vector<double> last;
        for (int step = 0; step < 3; step++) {
          CAPTURE(step);
          SetValues(mat, Changed(Grid(), 390 + step));
          MUST(KSPSetOperators(ksp, mat, mat));
          const Solution  mine   = Solve(ksp);
          const MatObject same   = kind.create(Changed(Grid(), 390 + step), PETSC_COMM_SELF);
          const Solution  theirs = Solve(MakeGMRES(same, options, PCBISAI));
          CHECK(Contains(ViewText((KSP)ksp), "patterns kept from the last set-up"));
          CHECK(mine.reason == KSP_CONVERGED_RTOL);
          REQUIRE(mine.history.size() == theirs.history.size());
          if (!std::strcmp(kind.backend, "host")) CHECK(SameBits(mine.history, theirs.history));
          for (size_t k = 0; k < mine.history.size(); k++)
            CHECK(std::fabs(mine.history[k] - theirs.history[k]) <= 1e-12 * theirs.history[0]);
          CHECK(!SameBits(mine.history, last));
          last = mine.history;
        }
      }
}

/* Set-up, apply, new values, apply, transposes; everything on a stream that is not in order with the default one. */
TEST_CASE("bisai: another stream than the default", "[bisai][pc][cycle][gpu]")
{
  NEEDS_DEVICE();
  for (const Kind &kind : Kinds())
    for (const char *options : {"", "-pc_bisai_factor cuda -pc_bisai_power 2", "-pc_bisai_factor cuda -pc_bisai_sweeps 2",
                                "-pc_bisai_factor_mat_ordering_type rcm -pc_bisai_factor_levels 1"}) {
      CAPTURE(kind.name, options);
      const HostBlocks   H = RandomBlocks(RandomStencil(60, 50, 1, false, 395), 3, 396);
      const MatObject    A = kind.create(H, PETSC_COMM_SELF), B = kind.create(Changed(H, 397), PETSC_COMM_SELF);
      const VecObject    x = RightVec(A);
      VecObject          y;
      PetscDeviceContext old_context, context;
      MUST(VecDuplicate(x, y.put()));
      std::vector<std::vector<double>> expected;
      for (Mat mat : {(Mat)A, (Mat)B}) {
        const PCObject pc = MakeBISAI(mat, options);
        MUST(PCApply(pc, x, y)); /* vectors and matrices are on the device from here on */
        expected.push_back(Values(y));
        MUST(PCApplyTranspose(pc, x, y));
        expected.push_back(Values(y));
      }
      MUST(PetscDeviceContextGetCurrentContext(&old_context));
      MUST(PetscDeviceContextSynchronize(old_context));
      MUST(PetscDeviceContextDuplicate(old_context, &context));
      MUST(PetscDeviceContextSetStreamType(context, PETSC_STREAM_NONBLOCKING));
      MUST(PetscDeviceContextSetUp(context));
      MUST(PetscDeviceContextSetCurrentContext(context));
      std::vector<std::vector<double>> got;
      {
        const PCObject pc = MakeBISAI(A, options);
        for (Mat mat : {(Mat)A, (Mat)B}) {
          MUST(PCSetOperators(pc, mat, mat));
          for (bool transpose : {false, true}) {
            MUST((transpose ? PCApplyTranspose : PCApply)(pc, x, y));
            MUST(PetscDeviceContextSynchronize(context));
            got.push_back(Values(y));
          }
        }
      }
      MUST(PetscDeviceContextSynchronize(context));
      MUST(PetscDeviceContextSetCurrentContext(old_context));
      MUST(PetscDeviceContextDestroy(&context));
      REQUIRE(got.size() == expected.size());
      for (size_t k = 0; k < got.size(); k++) CHECK(SameBits(got[k], expected[k]));
    }
}

TEST_CASE("bisai: reset, other sizes, destroy: nothing is left over", "[bisai][pc][cycle]")
{
  for (const Kind &kind : Kinds())
    for (const char *options :
         {"", "-pc_bisai_factor cuda -pc_bisai_power 2", "-pc_bisai_sweeps 1 -pc_bisai_factor_mat_ordering_type rcm"}) {
      CAPTURE(kind.name, options);
      HostBlocks      empty;
      const MatObject A     = kind.create(Grid(), PETSC_COMM_SELF),
                      B     = kind.create(RandomBlocks(RandomGraph(40, 5, 310), 5, 311), PETSC_COMM_SELF),
                      C     = kind.create(empty, PETSC_COMM_SELF),
                      D     = kind.create(RandomBlocks(RandomGraph(Grid().n, 6, 312), 3, 313), PETSC_COMM_SELF);
      PetscLogDouble before = 0;
      for (int repeat = 0; repeat < 3; repeat++) {
        {
          const PCObject pc = MakeBISAI(A, options);
          MUST(PCReset(pc)); /* before any set-up */
          MUST(PCSetOperators(pc, A, A));
          MUST(PCSetUp(pc));
          const auto x = Applied(pc);
          for (Mat other : {(Mat)B, (Mat)A, (Mat)C, (Mat)A}) {
            MUST(PCReset(pc));
            MUST(PCSetOperators(pc, other, other));
            MUST(PCSetUp(pc));
            CHECK(Finite(Applied(pc)));
            if (other == A) CHECK(SameBits(Applied(pc), x));
          }
          for (Mat other : {(Mat)D, (Mat)A}) { /* without a reset between, which PETSc allows for the same size */
            MUST(PCSetOperators(pc, other, other));
            MUST(PCSetUp(pc));
          }
          CHECK(SameBits(Applied(pc), x));
        }
        if (repeat == 1) before = HostBytes();
        if (repeat == 2) CHECK(HostBytes() == before);
      }
    }
}

TEST_CASE("bisai: two instances at once do not see each other", "[bisai][pc][cycle]")
{
  for (const Kind &kind : Kinds()) {
    CAPTURE(kind.name);
    const MatObject A = kind.create(Grid(), PETSC_COMM_SELF),
                    B = kind.create(RandomBlocks(RandomGraph(90, 5, 320), 2, 321), PETSC_COMM_SELF);
    const PCObject a = MakeBISAI(A, "-pc_bisai_power 2"), b = MakeBISAI(B, "-pc_bisai_factor cuda -pc_bisai_sweeps 1");
    MUST(PCSetUp(a));
    const auto x = Applied(a);
    MUST(PCSetUp(b));
    const auto y = Applied(b);
    CHECK(SameBits(Applied(a), x));
    Touch(A);
    MUST(PCSetUp(a));
    CHECK(SameBits(Applied(b), y));
    CHECK(SameBits(Applied(a), x));
  }
}

TEST_CASE("bisai: apply allocates nothing and does not wait", "[bisai][pc][cycle]")
{
  for (const Kind &kind : Kinds())
    for (const char *options : {"", "-pc_bisai_sweeps 2", "-pc_bisai_factor_mat_ordering_type rcm"}) {
      CAPTURE(kind.name, options);
      const MatObject A  = kind.create(Grid(), PETSC_COMM_SELF);
      const PCObject  pc = MakeBISAI(A, options);
      const VecObject x  = RightVec(A);
      VecObject       y;
      MUST(VecDuplicate(x, y.put()));
      MUST(PCSetUp(pc));
      MUST(PCApply(pc, x, y));
      PetscErrorCode code = PETSC_SUCCESS;
      if (!std::strcmp(kind.backend, "host")) CHECK(CountAllocations([&] { code = PCApply(pc, x, y); }) == 0);
      else CHECK(AsynchronousOnDevice([&] { code = PCApply(pc, x, y); }));
      MUST(code);
    }
}

TEST_CASE("bisai: vectors of the other memory than the factor's", "[bisai][pc][gpu]")
{
  NEEDS_DEVICE();
  for (const Kind &kind : Kinds()) {
    const MatObject A  = kind.create(Grid(), PETSC_COMM_SELF);
    const PCObject  pc = MakeBISAI(A);
    MUST(PCSetUp(pc));
    const auto expected = Applied(pc), turned = Applied(pc, true);
    for (const Backend &x_backend : Backends())
      for (const Backend &y_backend : Backends()) {
        CAPTURE(kind.name, x_backend.name, y_backend.name);
        const PetscInt  n = Grid().n * Grid().bs;
        const VecObject x = CreateVec(n, x_backend.vec, 1), y = CreateVec(n, y_backend.vec, 2);
        MUST(PCApply(pc, x, y));
        CHECK(SameBits(Values(y), expected));
        MUST(PCApplyTranspose(pc, x, y));
        CHECK(SameBits(Values(y), turned));
      }
  }
}

/* A copy from pinned memory does not wait. With much to do before it on the GPU, it would not have begun when PCApply() returns. */
TEST_CASE("bisai: a vector on the host, in pinned memory, is the program's again after PCApply", "[bisai][pc][gpu]")
{
  NEEDS_DEVICE();
#if defined(FINEPC_HAVE_CUDA)
  const MatObject A     = CreateAIJ(Grid(), MATAIJCUSPARSE),
                  large = CreateAIJ(RandomBlocks(RandomStencil(250, 250, 1, false, 400), 3, 401), MATAIJCUSPARSE);
  const PCObject  pc = MakeBISAI(A), busy = MakeBISAI(large, "-pc_bisai_factor cuda -pc_bisai_power 4");
  const PetscInt  n      = Grid().n * Grid().bs;
  const auto      values = Values(RightVec(A));
  const VecObject y = CreateVec(n, VECCUDA, 2), from = RightVec(large);
  VecObject       x, to;
  void           *memory = nullptr;
  MUST(PCSetUp(pc));
  MUST(PCSetUp(busy));
  MUST(VecDuplicate(from, to.put()));
  MUST(PCApply(busy, from, to));
  const auto expected = Applied(pc), turned = Applied(pc, true);
  REQUIRE(cudaMallocHost(&memory, n * sizeof(double)) == cudaSuccess);
  double *const pinned = (double *)memory;
  MUST(VecCreateSeqWithArray(PETSC_COMM_SELF, 1, n, pinned, x.put()));
  for (bool transpose : {false, true}) {
    std::copy(values.begin(), values.end(), pinned);
    MUST(PetscObjectStateIncrease((PetscObject)(Vec)x));
    for (int k = 0; k < 200; k++) MUST(PCApply(busy, from, to)); /* more than they take to launch */
    MUST((transpose ? PCApplyTranspose : PCApply)(pc, x, y));
    std::fill_n(pinned, n, std::nan(""));
    CHECK(SameBits(Values(y), transpose ? turned : expected));
  }
  x.Reset();
  REQUIRE(cudaFreeHost(memory) == cudaSuccess);
#endif
}

TEST_CASE("bisai: host matrix after device matrix, and back; bound to the CPU", "[bisai][pc][cycle][gpu]")
{
  NEEDS_DEVICE();
  for (const char *options : {"-pc_bisai_power 2", "-pc_bisai_factor cuda"}) {
    CAPTURE(options);
    const MatObject host = CreateAIJ(Grid(), MATAIJ), device = CreateAIJ(Grid(), MATAIJCUSPARSE);
    const PCObject  pc = MakeBISAI(host, options);
    MUST(PCSetUp(pc));
    const auto expected = Applied(pc);
    for (int repeat = 0; repeat < 3; repeat++) {
      MUST(PCSetOperators(pc, device, device));
      MUST(PCSetUp(pc));
      CHECK(Contains(ViewText((PC)pc), "backend CUDA"));
      CHECK(Difference(Applied(pc), expected) <= 1e-5);
      MUST(PCSetOperators(pc, host, host));
      MUST(PCSetUp(pc));
      CHECK(Contains(ViewText((PC)pc), "backend host"));
      CHECK(Difference(Applied(pc), expected) <= 1e-5);
    }
    MUST(PCSetOperators(pc, device, device));
    MUST(MatBindToCPU(device, PETSC_TRUE));
    MUST(PCSetUp(pc));
    CHECK(Contains(ViewText((PC)pc), "backend host"));
    MUST(MatBindToCPU(device, PETSC_FALSE));
  }
}

/* A Newton loop whose matrix lives on the GPU: after a change there, the values on the host are old, and stay so. */
TEST_CASE("bisai: new values of a device matrix do not go through the host", "[bisai][pc][cycle][gpu]")
{
  NEEDS_DEVICE();
  const MatObject A = CreateAIJ(Grid(), MATAIJCUSPARSE), B = CreateAIJ(Grid(), MATAIJCUSPARSE);
  const PCObject  pc = MakeBISAI(A, "-pc_bisai_factor cuda"), fresh = MakeBISAI(B, "-pc_bisai_factor cuda");
  MUST(PCSetUp(pc));
  MUST(MatScale(A, 2));
  MUST(MatScale(B, 2));
  REQUIRE(((Mat)A)->offloadmask == PETSC_OFFLOAD_GPU);
  MUST(PCSetUp(pc));
  CHECK(((Mat)A)->offloadmask == PETSC_OFFLOAD_GPU);
  MUST(PCSetUp(fresh));
  CHECK(SameBits(Applied(pc), Applied(fresh)));
}

/* ---------------------------------------- bad matrices ---------------------------------------- */

TEST_CASE("bisai: an unusable matrix: KSPSolve says so, and a good one works afterwards", "[bisai][pc][bad]")
{
  struct Case {
    HostBlocks  A;
    const char *text;
  };
  const HostBlocks &good       = Grid();
  HostBlocks        not_finite = good, zero = good, missing;
  not_finite.Find(7, 8)[4] = std::nan("");
  for (PetscInt k = zero.i[5]; k < zero.i[6]; k++)
    for (PetscInt c = 0; c < 3; c++) zero.a[(size_t)k * 9 + c * 3 + 1] = 0;
  missing.bs = 3;
  missing.n  = good.n;
  for (PetscInt row = 0; row < good.n; row++) {
    for (PetscInt k = good.i[row]; k < good.i[row + 1]; k++) {
      if (row == 9 && good.j[k] == 9) continue;
      missing.j.push_back(good.j[k]);
      missing.a.insert(missing.a.end(), good.Block(k), good.Block(k + 1));
    }
    missing.i.push_back((PetscInt)missing.j.size());
  }
  for (const Kind &kind : Kinds())
    for (const char *factor : {"petsc", "cuda"})
      for (const Case &c : {Case{not_finite, "Row 22 has an entry that is not finite"}, Case{zero, "Row 16 is zero"},
                            Case{missing, "Block row 9 has no diagonal block"}}) {
        CAPTURE(kind.name, factor, c.text);
        const MatObject    bad = kind.create(c.A, PETSC_COMM_SELF), fine = kind.create(good, PETSC_COMM_SELF);
        const KSPObject    ksp = MakeGMRES(bad, std::string("-pc_bisai_factor ") + factor, PCBISAI);
        const VecObject    b   = RightVec(bad);
        VecObject          x;
        KSPConvergedReason reason;
        MUST(VecDuplicate(b, x.put()));
        MUST(KSPSolve(ksp, b, x));
        MUST(KSPGetConvergedReason(ksp, &reason));
        CHECK(reason == KSP_DIVERGED_PC_FAILED);
        CHECK(Contains(ViewText((KSP)ksp), "set-up failed"));
        {
          Mat    early = nullptr;
          Errors errors;
          CHECK(PCBISAIGetFactors(PCOf(ksp), &early, nullptr) != 0);
        }
        MUST(KSPSetOperators(ksp, fine, fine));
        CHECK(Solve(ksp).reason > 0);

        const KSPObject strict = MakeGMRES(bad, std::string("-ksp_error_if_not_converged -pc_bisai_factor ") + factor, PCBISAI);
        Errors          errors;
        CHECK(KSPSolve(strict, b, x) != 0);
        CHECK(Contains(errors.text, c.text));
      }
}

namespace
{

/* What makes block row 0, or the last pivot on the way, singular: exactly, or to rounding. */
enum class Singular { First, Last, Nearly };

HostBlocks SingularBlock(Singular kind, PetscInt bs)
{
  HostBlocks A = RandomBlocks(RandomStencil(6, 6, 1, false, 340), bs, 341);
  if (kind == Singular::Last) { /* the last row is that of a line of two: A_ii = A_ij A_jj^{-1} A_ji with blocks of one number */
    const PetscInt j = A.n - 2, i = A.n - 1;
    for (PetscInt k = A.i[j]; k < A.i[j + 1]; k++)
      if (A.j[k] != j && A.j[k] != i) std::fill_n(A.a.begin() + (size_t)k * bs * bs, bs * bs, 0.);
    for (PetscInt k = A.i[i]; k < A.i[i + 1]; k++)
      if (A.j[k] != j && A.j[k] != i) std::fill_n(A.a.begin() + (size_t)k * bs * bs, bs * bs, 0.);
    for (PetscInt e = 0; e < bs * bs; e++)
      for (std::pair<PetscInt, PetscInt> at :
           {std::make_pair(j, j), std::make_pair(j, i), std::make_pair(i, j), std::make_pair(i, i)})
        A.Find(at.first, at.second)[e] = e / bs == e % bs ? 2 : 0;
  } else
    for (PetscInt e = 0; e < bs * bs; e++)
      A.Find(0, 0)[e] = bs == 1 ? 0 : 1 + (kind == Singular::Nearly && e % bs == e / bs ? 1e-15 : 0);
  if (kind == Singular::Nearly && bs == 1) A.Find(0, 0)[0] = 1e-18;
  return A;
}

} // namespace

/*
   PETSc gives up a block whose last pivot is zero: then the factor is the one that the CUDA source has on the host, to the last bit
   there.
*/
TEST_CASE("bisai: singular diagonal blocks are replaced with both sources of the factor, and the view says so", "[bisai][pc][bad]")
{
  for (const Kind &kind : Kinds())
    for (Singular singular : {Singular::First, Singular::Last, Singular::Nearly})
      for (PetscInt bs : {1, 2, 3, 5, 9})
        for (const char *options :
             {"-pc_bisai_factor_precision double", "-pc_bisai_power 2 -pc_bisai_factor_precision double -pc_bisai_sweeps 1",
              "-ksp_error_if_not_converged"}) {
          CAPTURE(kind.name, (int)singular, bs, options);
          const MatObject mat  = kind.create(SingularBlock(singular, bs), PETSC_COMM_SELF),
                          baij = CreateBAIJ(SingularBlock(singular, bs));
          const KSPObject ksp  = MakeGMRES(mat, options, PCBISAI),
                          ours = MakeGMRES(baij, std::string("-pc_bisai_factor cuda ") + options, PCBISAI);
          MUST(KSPSetUp(ksp));
          MUST(KSPSetUp(ours));
          const std::string text = ViewText((KSP)ksp), other = ViewText((KSP)ours);
          CAPTURE(text, other);
          CHECK(
            Contains(text,
                     "PETSc's factorization met a singular diagonal block: the factors were computed anew by the host twin of the "
                     "CUDA factorization"));
          CHECK(!Contains(other, "PETSc's factorization"));
          /* a single small number is no singular block for us */
          for (const std::string &view : {text, other})
            CHECK(Contains(view, singular == Singular::Nearly && bs == 1 ? "singular diagonal blocks replaced 0,"
                                                                         : "singular diagonal blocks replaced 1,"));
          const auto x = Applied(PCOf(ksp)), y = Applied(PCOf(ours));
          CHECK(Finite(x));
          if (!std::strcmp(kind.backend, "host")) CHECK(SameBits(x, y));
          /*
             a raised pivot is 1e-8 of its block and takes rounding that much up; the U of the relaxation is the inverse of one with
             such pivots
          */
          if (!Contains(options, "sweeps")) CHECK(Difference(x, y) <= (Contains(options, "double") ? 1e-6 : 1e-5));
        }
}

/* The layouts that are kept between set-ups hold either factor. */
TEST_CASE("bisai: good, singular and good values on one pattern are fresh set-ups", "[bisai][pc][cycle][bad]")
{
  const HostBlocks good = RandomBlocks(RandomStencil(6, 6, 1, false, 340), 3, 342);
  for (const Kind &kind : Kinds())
    for (const char *options :
         {"", "-pc_bisai_sweeps 1 -pc_bisai_power 2", "-pc_bisai_factor cuda", "-pc_bisai_factor cuda -pc_bisai_sweeps 2",
          "-pc_bisai_factor_mat_ordering_type rowlength -pc_bisai_factor_shift_type inblocks"}) {
      CAPTURE(kind.name, options);
      const MatObject mat = kind.create(good, PETSC_COMM_SELF);
      const PCObject  pc  = MakeBISAI(mat, options);
      MUST(PCSetUp(pc));
      for (const HostBlocks &values : {SingularBlock(Singular::First, 3), good, SingularBlock(Singular::Nearly, 3),
                                       SingularBlock(Singular::Last, 3), Changed(good, 343)}) {
        SetValues(mat, values);
        MUST(PCSetUp(pc));
        CHECK(Contains(ViewText((PC)pc), "patterns kept from the last set-up"));
        const MatObject same  = kind.create(values, PETSC_COMM_SELF);
        const PCObject  fresh = MakeBISAI(same, options);
        MUST(PCSetUp(fresh));
        CHECK(Finite(Applied(pc)));
        CHECK(SameBits(Applied(pc), Applied(fresh)));
        for (const char *line :
             {"singular diagonal blocks replaced 0", "singular diagonal blocks replaced 1", "PETSc's factorization met"})
          CHECK(Contains(ViewText((PC)pc), line) == Contains(ViewText((PC)fresh), line));
      }
    }
}

/* Bad rows make the set-up fail, and what was kept goes with it. */
TEST_CASE("bisai: good, unusable and good values on one pattern", "[bisai][pc][cycle][bad]")
{
  HostBlocks bad    = Grid();
  bad.Find(7, 7)[4] = std::nan("");
  for (const Kind &kind : Kinds())
    for (const char *options : {"", "-pc_bisai_factor cuda", "-pc_bisai_factor cuda -pc_bisai_sweeps 1"}) {
      CAPTURE(kind.name, options);
      const MatObject mat = kind.create(Grid(), PETSC_COMM_SELF);
      const PCObject  pc  = MakeBISAI(mat, options);
      MUST(PCSetUp(pc));
      const auto expected = Applied(pc);
      for (int repeat = 0; repeat < 2; repeat++) {
        PCFailedReason reason;
        SetValues(mat, bad);
        MUST(PCSetUp(pc));
        MUST(PCGetFailedReason(pc, &reason));
        CHECK(reason == PC_FACTOR_OTHER);
        const std::string text = ViewText((PC)pc);
        CAPTURE(text);
        CHECK(Contains(text, "set-up failed: "));
        CHECK(Contains(text, "Row 22 has an entry that is not finite"));
        SetValues(mat, Grid());
        MUST(PCSetUp(pc));
        MUST(PCGetFailedReason(pc, &reason));
        CHECK(reason == PC_NOERROR);
        CHECK(!Contains(ViewText((PC)pc), "set-up failed"));
        CHECK(SameBits(Applied(pc), expected));
      }
    }
}

TEST_CASE("bisai: singular diagonal blocks with fill, orderings and shifts", "[bisai][pc][bad]")
{
  for (const Kind &kind : Kinds())
    for (Singular singular : {Singular::First, Singular::Last, Singular::Nearly})
      for (const char *options : {"-pc_bisai_factor_levels 1", "-pc_bisai_factor_mat_ordering_type rowlength",
                                  "-pc_bisai_factor_levels 2 -pc_bisai_factor_mat_ordering_type rcm -pc_bisai_sweeps 1",
                                  "-pc_bisai_factor_shift_type inblocks"}) {
        CAPTURE(kind.name, (int)singular, options);
        const MatObject mat        = kind.create(SingularBlock(singular, 2), PETSC_COMM_SELF);
        const KSPObject ksp        = MakeGMRES(mat, options, PCBISAI),
                        strict     = MakeGMRES(mat, std::string("-ksp_error_if_not_converged ") + options, PCBISAI);
        const Solution    solution = Solve(ksp);
        const std::string text     = ViewText((KSP)ksp);
        CAPTURE(text);
        CHECK(solution.reason != KSP_DIVERGED_PC_FAILED);
        CHECK(Contains(
          text, "PETSc's factorization met a singular diagonal block: the factors were computed anew by the host twin of the CUDA "
                "factorization"));
        if (!Contains(options, "mat_ordering")) CHECK(Contains(text, "singular diagonal blocks replaced 1,"));
        CHECK(Finite(Applied(PCOf(ksp))));
        MUST(KSPSetUp(strict));
      }
}

/* All entries in other units: single precision, the default, says that it cannot, and double can. */
TEST_CASE("bisai: numbers beyond the range of single precision are a failure with a remedy", "[bisai][pc][bad]")
{
  for (const Kind &kind : Kinds())
    for (const char *factor : {"petsc", "cuda"})
      for (double unit : {1e-45, 1e45}) {
        CAPTURE(kind.name, factor, unit);
        HostBlocks A = Grid();
        for (double &value : A.a) value *= unit;
        const std::string options = std::string("-pc_bisai_factor ") + factor;
        const MatObject   mat     = kind.create(A, PETSC_COMM_SELF);
        const KSPObject   ksp     = MakeGMRES(mat, options, PCBISAI),
                        wide      = MakeGMRES(mat, options + " -pc_bisai_factor_precision double -pc_bisai_sweeps 1", PCBISAI),
                        strict    = MakeGMRES(mat, options + " -ksp_error_if_not_converged", PCBISAI);
        const VecObject b         = RightVec(mat);
        VecObject       x;
        for (int repeat = 0; repeat < 2; repeat++) {
          CHECK(Solve(ksp).reason == KSP_DIVERGED_PC_FAILED);
          const std::string text = ViewText((KSP)ksp);
          CAPTURE(text);
          CHECK(Contains(text, "set-up failed: FACTOR_OTHER"));
          CHECK(Contains(text,
                         "72 diagonal blocks of the inverse of U and 0 entries of L and U are too large or too small for single "
                         "precision: use -pc_bisai_factor_precision double"));
          MUST(PCBISAISetFactorPrecision(PCOf(ksp), FINEPC_DOUBLE));
          CHECK(Solve(ksp).reason == KSP_CONVERGED_RTOL);
          MUST(PCBISAISetFactorPrecision(PCOf(ksp), FINEPC_SINGLE));
        }
        CHECK(Solve(wide).reason == KSP_CONVERGED_RTOL);
        MUST(VecDuplicate(b, x.put()));
        Errors errors;
        CHECK(KSPSolve(strict, b, x) != 0);
        CHECK(Contains(errors.text, "use -pc_bisai_factor_precision double"));
      }
}

/* NL has a row to fall back to, the L of the relaxation has not. */
TEST_CASE("bisai: an entry of L beyond single precision: a fallback without sweeps, a failure with them", "[bisai][pc][bad]")
{
  HostBlocks A;
  A.bs = 1;
  A.n  = 2;
  A.i  = {0, 1, 3};
  A.j  = {0, 0, 1};
  A.a  = {1, 1e39, 1};
  for (const Kind &kind : Kinds())
    for (const char *factor : {"petsc", "cuda"}) {
      CAPTURE(kind.name, factor);
      const std::string options = std::string("-pc_bisai_factor ") + factor;
      const MatObject   mat     = kind.create(A, PETSC_COMM_SELF);
      const PCObject    plain = MakeBISAI(mat, options), relaxed = MakeBISAI(mat, options + " -pc_bisai_sweeps 1"),
                     wide = MakeBISAI(mat, options + " -pc_bisai_sweeps 1 -pc_bisai_factor_precision double");
      PCFailedReason reason;
      MUST(PCSetUp(plain));
      CHECK(Contains(ViewText((PC)plain), "block rows fallen back to the diagonal: NL 1, NU 0"));
      CHECK(Finite(Applied(plain)));
      MUST(PCSetUp(relaxed));
      MUST(PCGetFailedReason(relaxed, &reason));
      CHECK(reason == PC_FACTOR_OTHER);
      CHECK(
        Contains(ViewText((PC)relaxed),
                 "0 diagonal blocks of the inverse of U and 1 entries of L and U are too large or too small for single precision: "
                 "use -pc_bisai_factor_precision double"));
      MUST(PCSetUp(wide));
      MUST(PCGetFailedReason(wide, &reason));
      CHECK(reason == PC_NOERROR);
      CHECK(Finite(Applied(wide)));
    }
}

TEST_CASE("bisai: wrong kinds of matrices are refused with a remedy", "[bisai][pc][bad]")
{
  MatObject dense, wide, large;
  MUST(MatCreateSeqDense(PETSC_COMM_SELF, 6, 6, nullptr, dense.put()));
  MUST(MatCreateSeqAIJ(PETSC_COMM_SELF, 6, 8, 1, nullptr, wide.put()));
  MUST(MatCreateSeqBAIJ(PETSC_COMM_SELF, 33, 66, 66, 1, nullptr, large.put()));
  for (Mat A : {(Mat)dense, (Mat)wide, (Mat)large}) {
    MUST(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
    MUST(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  }
  struct Case {
    Mat         A;
    const char *text;
  };
  for (const Case &c : {Case{dense, "-mat_type baij"}, Case{wide, "must be square"}, Case{large, "MatSetBlockSize()"}}) {
    CAPTURE(c.text);
    const PCObject pc = MakeBISAI(c.A);
    Errors         errors;
    CHECK(PCSetUp(pc) != 0);
    CHECK(Contains(errors.text, c.text));
  }
}

/* --------------------------------------- nesting, ranks --------------------------------------- */

TEST_CASE("bisai: sub-preconditioner of PCBJACOBI and PCASM", "[bisai][pc][nest]")
{
  for (const Kind &kind : Kinds()) {
    CAPTURE(kind.name);
    const MatObject A = kind.create(Grid(), PETSC_COMM_SELF);
    for (const char *options : {"-pc_type bjacobi -pc_bjacobi_blocks 3 -sub_pc_type bisai",
                                "-pc_type asm -pc_asm_blocks 3 -pc_asm_overlap 1 -sub_pc_type bisai",
                                "-pc_type bjacobi -sub_pc_type bisai -sub_pc_bisai_factor cuda"}) {
      CAPTURE(options);
      const KSPObject ksp = MakeGMRES(A, options, PCNONE);
      const Options   scope(options);
      const Solution  solution = Solve(ksp);
      CHECK(solution.reason == KSP_CONVERGED_RTOL);
      CHECK(solution.true_residual <= 1e-7);
      CHECK(Contains(ViewText((KSP)ksp), "type: bisai"));
      /* PCBJACOBI's several blocks of a MATAIJ lose its block size */
      const bool keeps_blocks = !Contains(kind.name, "aij") || Contains(kind.name, "baij") || !Contains(options, "bjacobi_blocks");
      CHECK(Contains(ViewText((KSP)ksp), keeps_blocks ? "block size 3" : "block size 1"));
    }
    const Options  scope("-sub_pc_type bisai");
    const PCObject block = MakePC(A, "", PCBJACOBI), whole = MakeBISAI(A);
    MUST(PCSetUp(block));
    MUST(PCSetUpOnBlocks(block));
    MUST(PCSetUp(whole));
    CHECK(SameBits(Applied(block), Applied(whole)));
  }
}

TEST_CASE("bisai: several ranks: each its diagonal block, and the view says so", "[bisai][pc][mpi]")
{
  PetscMPIInt size, rank;
  MPI_Comm_size(PETSC_COMM_WORLD, &size);
  MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
  const HostBlocks H = RandomBlocks(RandomStencil(12, 10, 1, false, 350), 3, 351);
  for (const Kind &kind : Kinds())
    for (const char *factor : {"petsc", "cuda"}) {
      CAPTURE(kind.name, factor);
      const MatObject A = kind.create(H, PETSC_COMM_WORLD);
      const Options   scope(std::string("-sub_pc_type bisai -sub_pc_bisai_factor ") + factor);
      const KSPObject blocks = MakeGMRES(A, "-pc_type bjacobi -sub_pc_type bisai", PCBJACOBI),
                      ksp    = MakeGMRES(A, std::string("-pc_bisai_factor ") + factor, PCBISAI);
      const Solution mine = Solve(ksp), theirs = Solve(blocks);
      CHECK(mine.reason == KSP_CONVERGED_RTOL);
      /* on a GPU PCBJACOBI has its own vectors, those of MATSEQBAIJ, which are on the host: the other twin, in single */
      if (size > 1 && std::strcmp(kind.backend, "host") && Contains(kind.name, "device vectors")) {
        CHECK(Difference(Applied(PCOf(ksp)), Applied(PCOf(blocks))) <= 1e-5);
        CHECK(std::abs((PetscInt)mine.history.size() - (PetscInt)theirs.history.size()) <= 1);
      } else {
        CHECK(SameBits(Applied(PCOf(ksp)), Applied(PCOf(blocks))));
        CHECK(SameBits(mine.history, theirs.history));
      }
      CHECK(Difference(Applied(PCOf(ksp)), AppliedFactors(PCOf(ksp))) <= 1e-12);
      const std::string text = ViewText((KSP)ksp);
      if (rank == 0) {
        CAPTURE(text);
        CHECK(Contains(text, "block-local: each of " + std::to_string(size) + " ranks preconditions with its own diagonal block") ==
              (size > 1));
        CHECK(Contains(text, "120 block rows"));
      }
    }
}

TEST_CASE("bisai: several ranks: one rank's bad row is everybody's failure", "[bisai][pc][mpi][bad]")
{
  for (const Kind &kind : Kinds())
    for (PetscInt row : {0, 60, 119}) {
      CAPTURE(kind.name, row);
      HostBlocks H = RandomBlocks(RandomStencil(12, 10, 1, false, 350), 3, 351);
      for (PetscInt k = H.i[row]; k < H.i[row + 1]; k++)
        for (PetscInt c = 0; c < 3; c++) H.a[(size_t)k * 9 + c * 3] = 0;
      const MatObject    A   = kind.create(H, PETSC_COMM_WORLD);
      const KSPObject    ksp = MakeGMRES(A, "", PCBISAI);
      const VecObject    b   = RightVec(A);
      VecObject          x;
      KSPConvergedReason reason;
      MUST(VecDuplicate(b, x.put()));
      MUST(KSPSolve(ksp, b, x));
      MUST(KSPGetConvergedReason(ksp, &reason));
      CHECK(reason == KSP_DIVERGED_PC_FAILED);
      const std::string text = ViewText((KSP)ksp);
      PetscMPIInt       rank, size;
      PetscInt          begin, end, owner = 0, of_rank;
      MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
      MPI_Comm_size(PETSC_COMM_WORLD, &size);
      MUST(MatGetOwnershipRange(A, &begin, &end));
      of_rank = begin <= 3 * row && 3 * row < end ? rank : 0;
      MPI_Allreduce(&of_rank, &owner, 1, MPIU_INT, MPI_SUM, PETSC_COMM_WORLD);
      if (rank == 0) CHECK(Contains(text, (size > 1 ? "rank " + std::to_string(owner) + ": " : std::string()) + "Row "));
    }
}

TEST_CASE("bisai: several ranks: some of them without rows", "[bisai][pc][mpi]")
{
  for (const Kind &kind : Kinds())
    for (const char *options : {"", "-pc_bisai_factor cuda -pc_bisai_power 2", "-pc_bisai_sweeps 2"}) {
      CAPTURE(kind.name, options);
      const MatObject A        = kind.create(RandomBlocks(Poisson(1), 3, 360), PETSC_COMM_WORLD);
      const KSPObject ksp      = MakeGMRES(A, options, PCBISAI);
      const Solution  solution = Solve(ksp);
      CHECK(solution.reason > 0);
      CHECK(solution.iterations <= 2);
    }
}

/* ---------------------------------------- convergence ----------------------------------------- */

/* The larger the power, the closer to PCILU; all better than block Jacobi. Each sweep brings it closer, too. */
TEST_CASE("bisai: iterations lie between block Jacobi's and PCILU's", "[bisai][pc][convergence]")
{
  const HostMatrix S = Poisson(40, 30); /* rows that are not dominated by their diagonal blocks by much */
  HostBlocks       H = RandomBlocks(S, 3, 370);
  Random           random(371);
  for (PetscInt row = 0; row < H.n; row++)
    for (PetscInt k = H.i[row]; k < H.i[row + 1]; k++)
      for (PetscInt c = 0; c < 3; c++)
        for (PetscInt r = 0; r < 3; r++)
          H.a[(size_t)k * 9 + c * 3 + r] =
            (r == c ? S.At(row, H.j[k]) * (1 - 0.2 * (H.j[k] > row)) : 0) + 0.05 * random.Between(-1, 1);
  const MatObject baij  = CreateBAIJ(H);
  const PetscInt  exact = Solve(MakeGMRES(baij, "", PCILU)).iterations, none = Solve(MakeGMRES(baij, "", PCPBJACOBI)).iterations;
  for (const Kind &kind : Kinds()) {
    CAPTURE(kind.name, exact, none);
    const MatObject A    = kind.create(H, PETSC_COMM_SELF);
    PetscInt        last = none;
    for (const char *options : {"-pc_bisai_power 1", "-pc_bisai_power 2", "-pc_bisai_power 3", "-pc_bisai_power 4"}) {
      CAPTURE(options, last);
      const Solution solution = Solve(MakeGMRES(A, options, PCBISAI));
      CHECK(solution.reason == KSP_CONVERGED_RTOL);
      CHECK(solution.true_residual <= 1e-7);
      CHECK(solution.iterations <= last);
      CHECK(solution.iterations >= exact);
      last = solution.iterations;
    }
    CHECK(last < none);
    last = none;
    for (const char *options : {"", "-pc_bisai_sweeps 1", "-pc_bisai_sweeps 3", "-pc_bisai_sweeps 9"}) {
      CAPTURE(options, last);
      const Solution solution = Solve(MakeGMRES(A, options, PCBISAI));
      CHECK(solution.reason == KSP_CONVERGED_RTOL);
      CHECK(solution.iterations <= last);
      last = solution.iterations;
    }
    CHECK(last <= exact + 1);
  }
}
