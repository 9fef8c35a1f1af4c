/*
   What PCBISAI has beyond what all preconditioners do, which local_pc_test.cxx tests: PCILU as the limit, kinds of matrices, stored
   transposes, sources of the factor and shifts, singular blocks, numbers beyond single precision, convergence.
*/
#include <petsc/private/matimpl.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "blocks.h"
#include "covering.h"
#include "pc_support.h"
#include "pc/bisai/bisai_face.h"

namespace
{

std::vector<Kind> Kinds()
{
  return TypeOf(PCBISAI).kinds();
}

PCObject MakeBISAI(Mat A, const std::string &options = "")
{
  return MakePC(A, options, PCBISAI);
}

KSPObject MakeGMRES(Mat A, const std::string &options, PCType type)
{
  return MakeKSP(A, "-ksp_type gmres -ksp_pc_side right " + options, type);
}

} // namespace

/* --------------------------------------- limiting cases --------------------------------------- */

/* Powers and sweeps that are large enough give the triangular solves of PCILU, hence the same iterates. */
TEST_CASE("bisai: exact inverses give the iterates of PCILU", "[bisai][pc]")
{
  struct Case {
    const char *bisai, *ilu;
    HostMatrix  pattern;
  };
  const HostMatrix grid    = RandomStencil(9, 8, 1, false, 210);
  const Case       cases[] = {Case{"-pc_bisai_power 4", "", Poisson(5)},
                              Case{"-pc_bisai_sweeps 20", "", grid},
                              Case{"-pc_bisai_sweeps 30 -pc_bisai_factor cuda", "", grid},
                              Case{"-pc_bisai_power 2 -pc_bisai_sweeps 40 -pc_bisai_factor_levels 1", "-pc_factor_levels 1", grid},
                              Case{"-pc_bisai_sweeps 80 -pc_bisai_factor_levels 2", "-pc_factor_levels 2", grid},
                              Case{"-pc_bisai_sweeps 40 -pc_bisai_factor_mat_ordering_type rcm", "-pc_factor_mat_ordering_type rcm",
                             grid},
                              Case{"-pc_bisai_sweeps 80 -pc_bisai_factor_levels 1 -pc_bisai_factor_mat_ordering_type nd",
                             "-pc_factor_levels 1 -pc_factor_mat_ordering_type nd", grid}};
  for (const auto &[kind, c, bs] : Covering(Kinds(), cases, std::vector<PetscInt>{1, 2, 3, 4, 5, 9})) {
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
      const HostBlocks  A        = RandomBlocks(RandomGraph(50, 5, 220), bs, 221);
      const std::string options  = std::string("-pc_bisai_power 2 -pc_bisai_factor_precision ") + precision;
      const MatObject   baij     = CreateBAIJ(A);
      const PCObject    first    = MakeBISAI(baij, options);
      const auto        expected = Applied(first);
      for (const Kind &kind : Kinds())
        for (const char *factor : {"petsc", "cuda"}) {
          CAPTURE(bs, precision, kind.name, factor);
          const MatObject mat = kind.create(A, PETSC_COMM_SELF);
          const PCObject  pc  = MakeBISAI(mat, options + " -pc_bisai_factor " + factor);
          MUST(PCSetUp(pc));
          if (!std::strcmp(factor, "petsc") && !kind.OnDevice()) CHECK(SameBits(Applied(pc), expected));
          CHECK(Difference(Applied(pc), expected) <= (std::strcmp(precision, "single") ? 1e-11 : 1e-5));
          CHECK(Difference(Applied(pc), AppliedFactors(pc, TypeOf(PCBISAI))) <= 1e-12);
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
  CHECK(SameBits(Applied(pc), Applied(whole)));
}

/* ----------------------------------------- transposes ----------------------------------------- */

/* M^{-1} is computed column by column by PCApply(). */
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
          CHECK(worst <= 1e-12); /* The stored numbers are the same ones, whatever their precision. */
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
      if (!kind.OnDevice()) CHECK(CountAllocations([&] { code = PCApplyTranspose(pc, x, y); }) == 0);
      else {
        MUST(PCApplyTranspose(pc, x, y));
        CHECK(AsynchronousOnDevice([&] { code = PCApplyTranspose(pc, x, y); }));
      }
      MUST(code);
      const MatObject other = kind.create(RandomBlocks(RandomGraph(Grid().n, 6, 330), 3, 331), PETSC_COMM_SELF);
      MUST(PCSetOperators(pc, other, other));
      const PCObject fresh = MakeBISAI(other, options);
      CHECK(SameBits(Applied(pc, true), Applied(fresh, true)));
    }
}

/* BiCG needs the transpose. */
TEST_CASE("bisai: BiCG converges as with PCILU", "[bisai][pc][transpose][mpi][two]")
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
    CHECK(Got(PCBISAIGetPower, object) == power);
    CHECK(Got(PCBISAIGetPowerLower, object) == lower);
    CHECK(Got(PCBISAIGetPowerUpper, object) == upper);
    CHECK(Got(PCBISAIGetFactor, object) == factor);
    CHECK(Got(PCBISAIGetFactorLevels, object) == levels);
    CHECK(Got(PCBISAIGetFactorShiftType, object) == shift);
    CHECK(Got(PCBISAIGetFactorShiftAmount, object) == amount);
    CHECK(std::string(Got(PCBISAIGetFactorMatOrderingType, object)) == ordering);
    CHECK(Got(PCBISAIGetFactorPrecision, object) == precision);
    CHECK(Got(PCBISAIGetSweeps, object) == sweeps);
  };
  check(defaults, 1, 0, 0, PC_BISAI_FACTOR_AUTO, 0, MAT_SHIFT_NONE, 100.0 * PETSC_MACHINE_EPSILON, MATORDERINGNATURAL,
        FINEPC_SINGLE, 0);
  check(pc, 3, 2, 4, PC_BISAI_FACTOR_CUDA, 2, MAT_SHIFT_INBLOCKS, 0.125, MATORDERINGRCM, FINEPC_DOUBLE, 5);
}

TEST_CASE("bisai: another source of the factor after the set-up takes effect", "[bisai][pc][options]")
{
  for (const Kind &kind : Kinds()) {
    CAPTURE(kind.name);
    const MatObject A    = kind.create(Grid(), PETSC_COMM_SELF);
    const PCObject  pc   = MakeBISAI(A, "-pc_bisai_factor petsc -pc_bisai_factor_precision double"),
                   fresh = MakeBISAI(A, "-pc_bisai_factor finepc -pc_bisai_factor_precision double");
    const auto before = Applied(pc), expected = Applied(fresh);
    for (int repeat = 0; repeat < 2; repeat++) {
      MUST(PCBISAISetFactor(pc, PC_BISAI_FACTOR_CUDA)); /* the old name of PC_BISAI_FACTOR_FINEPC */
      MUST(PCSetUp(pc));
      CHECK(Contains(ViewText((PC)pc),
                     kind.OnDevice() ? "factors by finepc, on the GPU" : "factors by finepc, on the host as the matrix"));
      CHECK(SameBits(Applied(pc), expected));
      MUST(PCBISAISetFactor(pc, PC_BISAI_FACTOR_PETSC));
      MUST(PCSetUp(pc));
      CHECK(Contains(ViewText((PC)pc), "factors by PETSc"));
      CHECK(SameBits(Applied(pc), before));
    }
  }
}

/* The matrix has a zero pivot at first: a number, or the first column of a block. */
TEST_CASE("bisai: a shift that would be doubled for ever is refused", "[bisai][pc][options]")
{
  const MatObject mat = CreateMat(Poisson(4, 3), MATAIJ);
  const PCObject  pc  = MakeBISAI(mat, "-pc_bisai_factor_shift_type nonzero -pc_bisai_factor_shift_amount 0");
  Errors          errors;
  CHECK((int)PCSetUp(pc) == PETSC_ERR_ARG_OUTOFRANGE);
  CHECK(Contains(errors.text, "-pc_bisai_factor_shift_amount 0 would never end"));
  MUST(PCBISAISetFactorShiftAmount(pc, 1e-3));
  MUST(PCSetUp(pc));
}

TEST_CASE("bisai: shifts that are changed after the set-up take effect", "[bisai][pc][options]")
{
  for (const Kind &kind : Kinds())
    for (PetscInt bs : {1, 2, 3}) {
      CAPTURE(kind.name, bs);
      HostBlocks A = RandomBlocks(RandomStencil(6, 6, 1, false, 380), bs, 381);
      std::fill_n(A.Find(0, 0), bs, 0.);
      const MatObject mat = kind.create(A, PETSC_COMM_SELF);
      const PCObject  pc  = MakeBISAI(mat, "-pc_bisai_factor petsc -pc_bisai_factor_shift_amount 0.5");
      MUST(PCSetUp(pc));
      CHECK(Contains(ViewText((PC)pc), "PETSc's factorization met a singular diagonal block"));
      auto before = Applied(pc);
      for (const char *options : {"-pc_bisai_factor_shift_type inblocks -pc_bisai_factor_shift_amount 0.5",
                                  "-pc_bisai_factor_shift_type inblocks -pc_bisai_factor_shift_amount 0.25"}) {
        const PCObject fresh = MakeBISAI(mat, options);
        if (Contains(options, "0.25")) MUST(PCBISAISetFactorShiftAmount(pc, 0.25));
        else MUST(PCBISAISetFactorShiftType(pc, MAT_SHIFT_INBLOCKS));
        MUST(PCSetUp(pc));
        CHECK(!Contains(ViewText((PC)pc), "PETSc's factorization met a singular diagonal block"));
        CHECK(SameBits(Applied(pc), Applied(fresh)));
        CHECK(!SameBits(Applied(pc), before));
        before = Applied(pc);
      }
    }
}

/* PETSc takes the nonzeros of the two types for the same. */
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
    const PCObject fresh = MakeBISAI(A);
    CHECK(Difference(Applied(pc), Applied(fresh)) <= 1e-12);
  }
}

/* In the transpose of a pattern that is not symmetric rows have other columns, and other numbers of them. */
TEST_CASE("bisai: a matrix that is transposed in place", "[bisai][pc][cycle][mpi]")
{
  HostBlocks one_sided = RandomBlocks(RandomGraph(60, 5, 225), 3, 226), H;
  H.bs = one_sided.bs, H.n = one_sided.n;
  for (LocalInt row = 0; row < H.n; row++) {
    for (LocalInt k = one_sided.i[row]; k < one_sided.i[row + 1]; k++)
      if (one_sided.j[k] >= row || (one_sided.j[k] + row) % 3) {
        H.j.push_back(one_sided.j[k]);
        H.a.insert(H.a.end(), one_sided.Block(k), one_sided.Block(k) + H.bs * H.bs);
      }
    H.i.push_back((LocalInt)H.j.size());
  }
  for (const Kind &kind : Kinds())
    for (const char *options : {"-pc_bisai_factor petsc", "-pc_bisai_factor finepc -pc_bisai_sweeps 1"}) {
      CAPTURE(kind.name, options);
      const MatObject A       = kind.Create(H, PETSC_COMM_WORLD);
      const PCObject  pc      = MakeBISAI(A, options);
      Mat             changed = A;
      Applied(pc);
      for (bool transposed : {true, false, true}) {
        MUST(MatTranspose(A, MAT_INPLACE_MATRIX, &changed));
        REQUIRE(changed == (Mat)A);
        if (std::string(kind.name) == "baij with device vectors") MUST(MatSetVecType(A, VECCUDA)); /* PETSc has lost it */
        MUST(PCSetUp(pc));
        const MatObject copy  = kind.Create(transposed ? TransposeOf(H) : H, PETSC_COMM_WORLD);
        const PCObject  fresh = MakeBISAI(copy, options);
        CHECK(SameBits(Applied(pc), Applied(fresh)));
        /* the product of the matrix itself */
        const VecObject x = RightVec(A, 3), y = RightVec(A), z = RightVec(A);
        MUST(MatMult(A, x, y));
        MUST(MatMult(copy, x, z));
        CHECK(Difference(Values(y), Values(z)) <= 1e-14);
        MUST(MatMultTranspose(A, x, y));
        MUST(MatMultTranspose(copy, x, z));
        CHECK(Difference(Values(y), Values(z)) <= 1e-14);
      }
    }
}

TEST_CASE("bisai: choices that do not go together are refused with a remedy", "[bisai][pc][options][bad]")
{
  const MatObject A = CreateBAIJ(Grid());
  for (const char *options :
       {"-pc_bisai_factor_levels 1", "-pc_bisai_factor_shift_type inblocks", "-pc_bisai_factor_mat_ordering_type rcm"}) {
    CAPTURE(options);
    const PCObject pc = MakeBISAI(A, std::string("-pc_bisai_factor finepc ") + options);
    {
      Errors errors;
      CHECK(PCSetUp(pc) != 0);
      CHECK(Contains(errors.text, "use -pc_bisai_factor petsc"));
    }
    MUST(PCBISAISetFactor(pc, PC_BISAI_FACTOR_PETSC));
    CHECK(Finite(Applied(pc)));
  }
}

/*
   Where the matrix is decides unless an option that one factorization alone has does. The device is told to the function here, so
   that this needs none; the view of a set-up says it of the places that there are.
*/
TEST_CASE("bisai: whose factors auto takes", "[bisai][pc][options][view]")
{
  struct Case {
    const char *options;
    bool        by_petsc_on_host, by_petsc_on_device;
    std::string asked;
  };
  for (const Case &c :
       {Case{"", true, false, ""}, Case{"-pc_bisai_factor_shift_amount 0.5 -pc_bisai_factor_precision double", true, false, ""},
        Case{"-pc_bisai_factor_levels 1", true, true, ", for -pc_bisai_factor_levels 1"},
        Case{"-pc_bisai_factor_shift_type inblocks", true, true, ", for -pc_bisai_factor_shift_type INBLOCKS"},
        Case{"-pc_bisai_factor_mat_ordering_type rcm", true, true, ", for -pc_bisai_factor_mat_ordering_type rcm"},
        Case{"-pc_bisai_factor_sweeps 2", false, false, ", for -pc_bisai_factor_sweeps 2"}})
    for (const Kind &kind : Kinds()) {
      CAPTURE(kind.name, c.options);
      const MatObject A        = kind.create(Grid(), PETSC_COMM_SELF);
      const PCObject  pc       = MakeBISAI(A, c.options);
      bool            by_petsc = false;
      MUST(BISAIChooseFactor(pc, PETSC_MEMTYPE_HOST, &by_petsc));
      CHECK(by_petsc == c.by_petsc_on_host);
      MUST(BISAIChooseFactor(pc, PETSC_MEMTYPE_CUDA, &by_petsc));
      CHECK(by_petsc == c.by_petsc_on_device);
      const std::string before = ViewText((PC)pc);
      MUST(PCSetUp(pc));
      const std::string text = ViewText((PC)pc);
      CAPTURE(before, text);
      const std::string petsc = "factors by PETSc, on the host (auto" + c.asked + "): ILU(",
                        ours = "factors by finepc" + std::string(kind.OnDevice() ? ", on the GPU" : ", on the host as the matrix") +
                               " (auto" + c.asked + "): ILU(0)";
      CHECK(Contains(text, petsc) == (kind.OnDevice() ? c.by_petsc_on_device : c.by_petsc_on_host));
      CHECK(Contains(text, ours) == !Contains(text, petsc));
      if (c.asked.empty()) CHECK(Contains(before, "factors by finepc where the matrix is on a GPU, by PETSc otherwise (auto)\n"));
      else CHECK(Contains(before, "(auto" + c.asked + "): ILU("));
    }
}

TEST_CASE("bisai: auto follows options and places from one set-up to the next", "[bisai][pc][options][cycle]")
{
  for (const Kind &kind : Kinds()) {
    CAPTURE(kind.name);
    const MatObject A   = kind.create(Grid(), PETSC_COMM_SELF);
    const PCObject  pc  = MakeBISAI(A, "-pc_bisai_factor_precision double");
    const auto      set = [&](MatFactorShiftType shift, PetscInt sweeps) {
      MUST(PCBISAISetFactorShiftType(pc, shift));
      MUST(PCBISAISetFactorSweeps(pc, sweeps));
      MUST(PCSetUp(pc));
    };
    for (int repeat = 0; repeat < 2; repeat++) {
      set(MAT_SHIFT_NONE, 0);
      const auto exact = Applied(pc);
      CHECK(Contains(ViewText((PC)pc), kind.OnDevice() ? "factors by finepc" : "factors by PETSc"));
      set(MAT_SHIFT_INBLOCKS, 0);
      CHECK(Contains(ViewText((PC)pc), "factors by PETSc"));
      CHECK(Difference(Applied(pc), exact) <= 1e-12);
      set(MAT_SHIFT_NONE, 40);
      CHECK(Contains(ViewText((PC)pc), "factors by finepc"));
      CHECK(Difference(Applied(pc), exact) <= 1e-12);
    }
    Errors errors;
    MUST(PCBISAISetFactorLevels(pc, 1));
    CHECK(PCSetUp(pc) == PETSC_ERR_SUP);
    CHECK(Contains(errors.text, "-pc_bisai_factor_levels 1 takes PETSc's factorization and -pc_bisai_factor_sweeps 40 finepc's: "
                                "leave out one of them"));
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
    CHECK(Contains(text, "factors by PETSc, on the host (auto, for -pc_bisai_factor_levels 1): ILU(1), ordering natural, shift "
                         "type NONE"));
    CHECK(Contains(text, std::string("backend ") + (kind.OnDevice() ? "CUDA" : "host") +
                           ", block size 3, inverses stored in single precision, patterns made at the last set-up"));
    CHECK(Contains(text, "72 block rows, 326 blocks of the matrix"));
    CHECK(
      Contains(text, "singular diagonal blocks replaced 0, left with the diagonal block alone: NL 0 block rows, NU 0 block rows"));
    CHECK(Contains(other, "patterns of power 1 of L, 1 of U; relaxation sweeps 3"));
    CHECK(Contains(other, kind.OnDevice() ? "factors by finepc, on the GPU: ILU(0) in 16 levels of rows"
                                          : "factors by finepc, on the host as the matrix: ILU(0)"));
    CHECK(Contains(other, "inverses stored in double precision"));
    /* These numbers include the unit diagonal of NL. */
    CHECK(Contains(other, "NL 199 blocks, at most 2 a row, NU 199 blocks, at most 2 a row beside the diagonal"));
    Applied(ours);
    CHECK(Contains(ViewText((PC)ours), "patterns made at the last set-up")); /* An application sets up nothing. */
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
  for (PetscInt e = 0; e < 9; e++) A.Find(0, 0)[e] = 1 + (e % 3 == e / 3 ? 1e-15 : 0); /* This block is singular to rounding. */
  for (const Kind &kind : Kinds())
    for (const char *options : {"-pc_bisai_factor petsc", "-pc_bisai_factor cuda"}) {
      CAPTURE(kind.name, options);
      const MatObject mat = kind.create(A, PETSC_COMM_SELF);
      const PCObject  pc  = MakeBISAI(mat, options);
      for (int repeat = 0; repeat < 2; repeat++) {
        MUST(PCSetUp(pc));
        CHECK(Contains(ViewText((PC)pc), "singular diagonal blocks replaced 1, left"));
        CHECK(Finite(Applied(pc)));
        Touch(mat);
      }
    }
}

/* ----------------------------------------- life cycle ----------------------------------------- */

/* A program solves with the same KSP for new values again and again. A new KSP for the same values must do the same. */
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
          if (!kind.OnDevice()) CHECK(SameBits(mine.history, theirs.history));
          for (size_t k = 0; k < mine.history.size(); k++)
            CHECK(std::fabs(mine.history[k] - theirs.history[k]) <= 1e-12 * theirs.history[0]);
          CHECK(!SameBits(mine.history, last));
          last = mine.history;
        }
      }
}

#if PetscDefined(HAVE_DEVICE) /* otherwise a matrix does not know where its values are */
/* This is a Newton loop whose matrix lives on the GPU. After a change there, the values on the host are old, and stay so. */
TEST_CASE("bisai: new values of a device matrix do not go through the host", "[bisai][pc][cycle][gpu]")
{
  NEEDS_DEVICE();
  const MatObject A = CreateAIJ(Grid(), MATAIJCUSPARSE), B = CreateAIJ(Grid(), MATAIJCUSPARSE);
  const PCObject  pc = MakeBISAI(A, "-pc_bisai_factor cuda"), fresh = MakeBISAI(B, "-pc_bisai_factor cuda");
  MUST(PCSetUp(pc));
  MUST(MatScale(A, 2));
  MUST(MatScale(B, 2));
  REQUIRE(((Mat)A)->offloadmask == PETSC_OFFLOAD_GPU);
  CHECK(((Mat)A)->offloadmask == PETSC_OFFLOAD_GPU);
  CHECK(SameBits(Applied(pc), Applied(fresh)));
}
#endif

/* ---------------------------------------- bad matrices ---------------------------------------- */

namespace
{

/* What makes block row 0, or the last pivot on the way, singular: exactly, or to rounding. */
enum class Singular { First, Last, Nearly };

HostBlocks SingularBlock(Singular kind, PetscInt bs)
{
  HostBlocks A = RandomBlocks(RandomStencil(6, 6, 1, false, 340), bs, 341);
  if (kind == Singular::Last) { /* The last two rows are coupled with each other alone, so that A_ii = A_ij A_jj^{-1} A_ji. */
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
   PETSc gives up a block whose last pivot is zero. Then the factor is the one that the CUDA source has on the host, to the last bit
   there.
*/
TEST_CASE("bisai: singular diagonal blocks are replaced with both sources of the factor, and the view says so", "[bisai][pc][bad]")
{
  for (const auto &[kind, singular, bs, options] :
       Covering(Kinds(), std::vector{Singular::First, Singular::Last, Singular::Nearly}, std::vector<PetscInt>{1, 2, 3, 5, 9},
                std::vector{"-pc_bisai_factor_precision double",
                            "-pc_bisai_power 2 -pc_bisai_factor_precision double -pc_bisai_sweeps 1",
                            "-ksp_error_if_not_converged"})) {
    CAPTURE(kind.name, (int)singular, bs, options);
    const MatObject mat = kind.create(SingularBlock(singular, bs), PETSC_COMM_SELF), baij = CreateBAIJ(SingularBlock(singular, bs));
    const KSPObject ksp  = MakeGMRES(mat, std::string("-pc_bisai_factor petsc ") + options, PCBISAI),
                    ours = MakeGMRES(baij, std::string("-pc_bisai_factor cuda ") + options, PCBISAI);
    MUST(KSPSetUp(ksp));
    MUST(KSPSetUp(ours));
    const std::string text = ViewText((KSP)ksp), other = ViewText((KSP)ours);
    CAPTURE(text, other);
    CHECK(Contains(text, "PETSc's factorization met a singular diagonal block: the factors were computed anew by finepc, on the "
                         "host"));
    CHECK(!Contains(other, "PETSc's factorization"));
    /* A single small number is no singular block for PCBISAI. */
    for (const std::string &view : {text, other})
      CHECK(Contains(view, singular == Singular::Nearly && bs == 1 ? "singular diagonal blocks replaced 0,"
                                                                   : "singular diagonal blocks replaced 1,"));
    const auto x = Applied(PCOf(ksp)), y = Applied(PCOf(ours));
    CHECK(Finite(x));
    if (!kind.OnDevice()) CHECK(SameBits(x, y));
    /*
       A raised pivot is 1e-8 of its block and magnifies rounding by as much. The U of the relaxation is the inverse of one
       with such pivots.
    */
    if (!Contains(options, "sweeps")) CHECK(Difference(x, y) <= (Contains(options, "double") ? 1e-6 : 1e-5));
  }
}

/* The layouts that are kept between set-ups hold either factor. */
TEST_CASE("bisai: good, singular and good values on one pattern are fresh set-ups", "[bisai][pc][cycle][bad]")
{
  const HostBlocks good = RandomBlocks(RandomStencil(6, 6, 1, false, 340), 3, 342);
  for (const Kind &kind : Kinds())
    for (const char *options : {"-pc_bisai_factor petsc", "-pc_bisai_factor petsc -pc_bisai_sweeps 1 -pc_bisai_power 2",
                                "-pc_bisai_factor cuda", "-pc_bisai_factor cuda -pc_bisai_sweeps 2",
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
        CHECK(Finite(Applied(pc)));
        CHECK(SameBits(Applied(pc), Applied(fresh)));
        for (const char *line :
             {"singular diagonal blocks replaced 0", "singular diagonal blocks replaced 1", "PETSc's factorization met"})
          CHECK(Contains(ViewText((PC)pc), line) == Contains(ViewText((PC)fresh), line));
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
        CHECK(Contains(text,
                       "PETSc's factorization met a singular diagonal block: the factors were computed anew by finepc, on the "
                       "host"));
        if (!Contains(options, "mat_ordering")) CHECK(Contains(text, "singular diagonal blocks replaced 1,"));
        CHECK(Finite(Applied(PCOf(ksp))));
        MUST(KSPSetUp(strict));
      }
}

/* All entries are in other units. Single precision, the default, says that it cannot hold the numbers, and double precision can. */
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

/* A row of NL can fall back to the diagonal, a row of the L of the relaxation cannot. */
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
      MUST(PCSetUp(plain));
      CHECK(Contains(ViewText((PC)plain), "left with the diagonal block alone: NL 1 block rows, NU 0 block rows"));
      CHECK(Finite(Applied(plain)));
      MUST(PCSetUp(relaxed));
      CHECK(ReasonOf(relaxed) == PC_FACTOR_OTHER);
      CHECK(
        Contains(ViewText((PC)relaxed),
                 "0 diagonal blocks of the inverse of U and 1 entries of L and U are too large or too small for single precision: "
                 "use -pc_bisai_factor_precision double"));
      MUST(PCSetUp(wide));
      CHECK(ReasonOf(wide) == PC_NOERROR);
      CHECK(Finite(Applied(wide)));
    }
}

TEST_CASE("bisai: blocks that are too large are refused with a remedy", "[bisai][pc][bad]")
{
  MatObject large;
  MUST(MatCreateSeqBAIJ(PETSC_COMM_SELF, 33, 66, 66, 1, nullptr, large.put()));
  Assemble(large);
  const PCObject pc = MakeBISAI(large);
  Errors         errors;
  CHECK(PCSetUp(pc) != 0);
  CHECK(Contains(errors.text, "set a smaller block size with MatSetBlockSize()"));
}

/* ------------------------------------------ nesting ------------------------------------------- */

TEST_CASE("bisai: which block size the blocks of PCBJACOBI and PCASM have", "[bisai][pc][nest]")
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
      /* Several blocks that PCBJACOBI makes of a MATAIJ lose its block size. */
      const bool keeps_blocks = !Contains(kind.name, "aij") || Contains(kind.name, "baij") || !Contains(options, "bjacobi_blocks");
      CHECK(Contains(ViewText((KSP)ksp), keeps_blocks ? "block size 3" : "block size 1"));
    }
  }
}

/* ---------------------------------------- convergence ----------------------------------------- */

/*
   The larger the power, the closer the iterations are to those of PCILU, and all are better than block Jacobi. Each sweep brings
   them closer, too.
*/
TEST_CASE("bisai: iterations lie between block Jacobi's and PCILU's", "[bisai][pc][convergence]")
{
  const HostMatrix S = Poisson(40, 30); /* The diagonal blocks do not dominate the rows by much. */
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

/*
   A reservoir that is no grid with 5 or 7 points: by which of rows and columns L and U are inverted makes a difference. As in the
   benchmark, b = A 1; rounding may change a count by two in a hundred, which keeps all but the first two of these apart.
*/
TEST_CASE("bisai: sherman2 by rows, by columns, and one by each", "[bisai][pc][convergence]")
{
  const std::vector<std::pair<std::string, PetscInt>> counts = {{"rows", 134},
                                                                {"rows_columns", 133},
                                                                {"columns", 53},
                                                                {"columns_rows", 51}};
  const HostBlocks                                    H      = Blocks(Shared("sherman2"));
  for (const auto &[kind, of_side, factor] : Covering(Kinds(), counts, std::vector{"petsc", "finepc"})) {
    const auto &[side, count] = of_side;
    const MatObject A         = kind.create(H, PETSC_COMM_SELF);
    VecObject       x, b;
    MUST(MatCreateVecs(A, x.put(), b.put()));
    MUST(VecSet(x, 1));
    MUST(MatMult(A, x, b));
    CAPTURE(kind.name, factor, side);
    const std::string options = "-ksp_rtol 1e-8 -pc_bisai_side " + side + " -pc_bisai_factor " + factor;
    const KSPObject   ksp     = MakeGMRES(A, options, PCBISAI);
    MUST(KSPSolve(ksp, b, x));
    CHECK(ReasonOf(ksp) == KSP_CONVERGED_RTOL);
    CHECK(std::abs(IterationsOf(ksp) - count) <= 0.02 * count);
  }
}

TEST_CASE("bisai: the phases of a set-up in the log", "[bisai][pc][events]")
{
  const std::vector<std::string> names = {"BISAIConvert", "BISAIFactor",  "BISAIAnalyse",
                                          "BISAIInvert",  "BISAIPattern", "BISAIValues"};
  for (const char *options : {"-pc_bisai_factor finepc", "-pc_bisai_factor finepc -pc_bisai_factor_sweeps 2"}) {
    CAPTURE(options);
    const MatObject A  = CreateAIJ(RandomBlocks(RandomStencil(6, 6, 1, false, 480), 3, 481), MATAIJ);
    const PCObject  pc = MakeBISAI(A, options);
    CHECK(CountEvents(names, [&] { MUST(PCSetUp(pc)); }) == std::vector<int>{1, 1, 1, 1, 2, 2});
    ChangeValues(A, 0.3);
    CHECK(CountEvents(names, [&] { MUST(PCSetUp(pc)); }) == std::vector<int>{1, 1, 0, 1, 0, 2});
  }
}

/* What the options ask for together: sweeps belong to finepc's own factor. */
TEST_CASE("bisai: sweeps of the factor in the view, and with PETSc's factor", "[bisai][pc][bad]")
{
  const MatObject A  = CreateAIJ(RandomBlocks(RandomStencil(6, 6, 1, false, 482), 3, 483), MATAIJ);
  const PCObject  pc = MakeBISAI(A, "-pc_bisai_factor finepc -pc_bisai_factor_sweeps 3"),
                 bad = MakeBISAI(A, "-pc_bisai_factor petsc -pc_bisai_factor_sweeps 1");
  MUST(PCSetUp(pc));
  CHECK(Contains(ViewText((PC)pc), "ILU(0) by 3 sweeps over all rows"));
  Errors errors;
  CHECK(PCSetUp(bad) == PETSC_ERR_SUP);
  CHECK(Contains(errors.text, "use -pc_bisai_factor finepc"));
}
