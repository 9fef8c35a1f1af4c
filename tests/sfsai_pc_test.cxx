/*
   PCSFSAI's own options, above all the pattern that a user gives. What all types share is tested in local_pc_test.cxx, what both
   FSAI types share in fsai_pc_test.cxx.
*/
#include <algorithm>
#include <cmath>

#include "sparse/dense.h"
#include "spread.h"

namespace
{

const Type &SFSAI()
{
  return TypeOf(PCSFSAI);
}

/* Columns of this rank's rows of G, or of the lower triangle of a matrix and its diagonal. */
std::vector<std::vector<PetscInt>> LowerColumns(Mat A)
{
  PetscInt                           begin, end;
  std::vector<std::vector<PetscInt>> rows;
  MUST(MatGetOwnershipRange(A, &begin, &end));
  for (PetscInt row = begin; row < end; row++) {
    PetscInt        length;
    const PetscInt *columns;
    rows.emplace_back();
    MUST(MatGetRow(A, row, &length, &columns, nullptr));
    for (PetscInt k = 0; k < length; k++)
      if (columns[k] >= begin && columns[k] < row) rows.back().push_back(columns[k]);
    rows.back().push_back(row);
    MUST(MatRestoreRow(A, row, &length, &columns, nullptr));
  }
  return rows;
}

std::vector<std::vector<PetscInt>> FactorColumns(PC pc)
{
  MatObject G;
  PetscBool adaptive;
  MUST(PetscObjectTypeCompare((PetscObject)(PC)pc, PCAFSAI, &adaptive));
  MUST((adaptive ? PCAFSAIGetFactors : PCSFSAIGetFactors)(pc, G.put(), nullptr));
  return LowerColumns(G);
}

/* The types that take a pattern. With these options the pattern of the factor is the one that is given, and is kept. */
struct Giving {
  const char *type, *exact;
  PetscErrorCode (*set)(PC, Mat);
  PetscErrorCode (*get)(PC, Mat *);
  const char *setter, *view, *others; /* options that are not used while a pattern is given */

  const Type &Of() const { return TypeOf(type); }
};

const std::vector<Giving> &Givings()
{
  static const std::vector<Giving> all = {{PCSFSAI, "", PCSFSAISetPattern, PCSFSAIGetPattern, "PCSFSAISetPattern()",
                                           "pattern given by a matrix, postfilter 0.", "-@power 0 -@prefilter 1 -@max_row 1"},
                                          {PCAFSAI, "-@max_steps 0 -@reuse_pattern", PCAFSAISetPattern, PCAFSAIGetPattern,
                                           "PCAFSAISetPattern()", "first pattern given by a matrix, prefilter 0., postfilter 0.",
                                           "-@max_steps 0 -@reuse_pattern -@initial_power 1"}};
  return all;
}

/* A pattern that has nothing to do with Plate(). */
HostMatrix OtherPattern()
{
  return RandomGraph(Plate().n, 9, 41);
}

} // namespace

/* ------------------------------------------ options ------------------------------------------- */

TEST_CASE("sfsai: every key sets what its getter gives", "[sfsai][pc][options]")
{
  const MatObject A        = CreateMat(Plate(), MATAIJ);
  const PCObject  defaults = MakePC(A, SFSAI()),
                 pc        = MakePC(A, SFSAI(),
                                    "-@power 3 -@prefilter 0.125 -@postfilter 0.0625 -@max_row 7 -@setup_precision double "
                                           "-@factor_precision double "
                                           "-@reuse_pattern false");
  const auto check         = [](PC object, PetscInt power, PetscReal prefilter, PetscReal postfilter, PetscInt max_row,
                        FinePCPrecision precision, PetscBool reuse) {
    CHECK(Got(PCSFSAIGetPower, object) == power);
    CHECK(Got(PCSFSAIGetPrefilter, object) == prefilter);
    CHECK(Got(PCSFSAIGetPostfilter, object) == postfilter);
    CHECK(Got(PCSFSAIGetMaxRow, object) == max_row);
    CHECK(Got(PCSFSAIGetSetupPrecision, object) == precision);
    CHECK(Got(PCSFSAIGetFactorPrecision, object) == precision);
    CHECK(Got(PCSFSAIGetReusePattern, object) == reuse);
    CHECK(Got(PCSFSAIGetPattern, object) == nullptr);
  };
  check(defaults, PETSC_DETERMINE, 0, 0, PETSC_DETERMINE, FINEPC_SINGLE, PETSC_TRUE);
  check(pc, 3, 0.125, 0.0625, 7, FINEPC_DOUBLE, PETSC_FALSE);
}

TEST_CASE("setters do nothing to other types, getters say so", "[sfsai][afsai][bisai][rrb][pc][options]")
{
  const MatObject A  = CreateMat(Plate(), MATAIJ);
  const PCObject  pc = MakePC(A, "", PCJACOBI);
  PetscInt        power;
  for (const auto set : {PCSFSAISetPower, PCAFSAISetMaxSteps, PCBISAISetPower, PCRRBSetLevels}) MUST(set(pc, 3));
  MUST(PCSFSAISetPattern(pc, A));
  /* A PC that was of this type and is of another one has forgotten the methods. */
  const PCObject changed = MakePC(A, SFSAI());
  MUST(PCSetType(changed, PCJACOBI));
  Errors errors;
  for (const auto get : {PCSFSAIGetPower, PCAFSAIGetMaxSteps, PCBISAIGetPower, PCRRBGetLevels})
    for (PC other : {(PC)pc, (PC)changed}) CHECK(get(other, &power) != 0);
}

TEST_CASE("sfsai: the view counts what was cut and dropped", "[sfsai][pc][view]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A     = CreateMat(Plate(), backend.mat);
    const PCObject  whole = MakePC(A, SFSAI()), capped = MakePC(A, SFSAI(), "-@max_row 5"),
                   filtered = MakePC(A, SFSAI(), "-@postfilter 0.05");
    PetscInt cut = 0, dropped = 0;
    for (PC pc : {(PC)whole, (PC)capped, (PC)filtered}) MUST(PCSetUp(pc));
    for (const auto &row : FactorColumns(whole)) {
      cut += row.size() > 5;
      dropped += (PetscInt)row.size();
    }
    for (const auto &row : FactorColumns(filtered)) dropped -= (PetscInt)row.size();
    CHECK(cut > 0);
    CHECK(dropped > 0);
    CHECK(Contains(ViewText((PC)whole), "rows cut to the cap 0, entries dropped by the postfilter 0"));
    CHECK(Contains(ViewText((PC)capped), "prefilter 0., postfilter 0., at most 5 entries per row\n"));
    CHECK(Contains(ViewText((PC)filtered), "prefilter 0., postfilter 0.05, at most 768 entries per row by default\n"));
    for (int repeat = 0; repeat < 2; repeat++) { /* A pattern that is kept was cut or filtered, too. */
      CHECK(Contains(ViewText((PC)capped), "rows cut to the cap " + std::to_string(cut) + ", entries dropped by the postfilter 0"));
      CHECK(
        Contains(ViewText((PC)filtered), "rows cut to the cap 0, entries dropped by the postfilter " + std::to_string(dropped)));
      Touch(A);
      MUST(PCSetUp(capped));
      MUST(PCSetUp(filtered));
    }
    CHECK(Contains(ViewText((PC)capped), "pattern kept from the last set-up"));
  }
}

TEST_CASE("sfsai: a row that no kernel solves, and one whose system no memory holds, for which a cap is the remedy",
          "[sfsai][pc][bad]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A   = CreateMat(RandomArrow(kCholeskyLargest + 1, 42), backend.mat);
    const KSPObject ksp = MakeKSP(A, SFSAI(), "-@power 1 -@max_row 0");
    CHECK(Solve(ksp).reason == KSP_CONVERGED_RTOL);
    CHECK(ErrorOfDiagonal(PCOf(ksp), SFSAI()) <= 1e-6);

    const MatObject hub = CreateMat(Hub(2000000), backend.mat);
    const PCObject  pc  = MakePC(hub, SFSAI(), "-@power 1 -@max_row 0");
    {
      Errors errors;
      CHECK(PCSetUp(pc) != 0);
      CHECK(Contains(errors.text, "memory does not hold its system"));
      CHECK(Contains(errors.text, "lower -pc_sfsai_power, raise -pc_sfsai_prefilter"));
    }
    MUST(PCSFSAISetMaxRow(pc, 30));
    CHECK(Finite(Applied(pc)));
    CHECK(Contains(ViewText((PC)pc), "rows cut to the cap 1,"));
  }
}

/* ------------------------- the power and the cap that nobody asked for ------------------------ */

namespace
{

/* Points of a cube that are coupled with all points at most two away in each direction: up to 125 entries a row, as elements of a
   higher order have them. */
HostMatrix WideStencil(LocalInt m)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(m * m * m);
  for (LocalInt row = 0; row < m * m * m; row++) {
    const LocalInt x = row % m, y = row / m % m, z = row / (m * m);
    for (LocalInt c = std::max(z - 2, 0); c < std::min(z + 3, m); c++)
      for (LocalInt b = std::max(y - 2, 0); b < std::min(y + 3, m); b++)
        for (LocalInt a = std::max(x - 2, 0); a < std::min(x + 3, m); a++) {
          const LocalInt column = (c * m + b) * m + a;
          rows[row].push_back({column, column == row ? 126. : -1.});
        }
  }
  return FromRows(rows);
}

} // namespace

TEST_CASE("sfsai: without a power, rows that would be long have power 1, and without a cap, no row is endless", "[sfsai][pc]")
{
  const char *const chosen = "power 1, chosen since rows of power 2 would be long";
  for (const Backend &backend : Backends())
    for (const char *postfilter : {"", "-@postfilter 0.01"}) {
      CAPTURE(backend.name, postfilter);
      const auto set_up = [&](const HostMatrix &A, const std::string &options) {
        const MatObject mat = CreateMat(A, backend.mat);
        PCObject        pc  = MakePC(mat, SFSAI(), options + " " + postfilter);
        CHECK(Finite(Applied(pc)));
        return pc;
      };
      const PCObject first = set_up(Star(6000, 0), "");
      CHECK(Contains(ViewText((PC)first), chosen));
      if (!*postfilter) CHECK(Contains(ViewText((PC)first), "max 2\n"));
      CHECK(Contains(ViewText((PC)first), "rows cut to the cap 0,"));
      const PCObject last = set_up(Star(6000, 5999), "");
      CHECK(Contains(ViewText((PC)last), "power 2, chosen since its rows are short"));
      if (!*postfilter) CHECK(Contains(ViewText((PC)last), "max 768\n"));
      CHECK(Contains(ViewText((PC)last), "rows cut to the cap 1,"));
      const PCObject wide = set_up(WideStencil(13), ""), asked = set_up(WideStencil(13), "-@power 1");
      CHECK(Contains(ViewText((PC)wide), chosen));
      CHECK(SameBits(Applied(wide), Applied(asked)));
    }
}

/* Each rank chooses for its block: the first one has the star, the others have chains. */
TEST_CASE("sfsai: rows that would be long on one rank alone", "[sfsai][pc][mpi]")
{
  constexpr LocalInt                                         n    = 6000;
  const HostMatrix                                           star = Star(n, 0);
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows((size_t)n * Ranks());
  for (LocalInt row = 0; row < (LocalInt)rows.size(); row++) {
    for (LocalInt k = row < n ? star.i[row] : 0; row < n && k < star.i[row + 1]; k++) rows[row].push_back({star.j[k], star.a[k]});
    if (row < n) continue;
    rows[row].push_back({row, 3.});
    if (row > n) rows[row].push_back({row - 1, -1.});
    if (row + 1 < (LocalInt)rows.size()) rows[row].push_back({row + 1, -1.});
  }
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A   = Spread(FromRows(rows), backend.mat, Even);
    const KSPObject ksp = MakeKSP(A, SFSAI());
    CHECK(Solve(ksp).reason > 0);
    const std::string text = ViewText(ksp); /* collective */
    CAPTURE(text);
    if (Rank() == 0)
      CHECK(Contains(text, Ranks() > 1 ? "pattern of power 2, or 1 on ranks whose rows would be long, prefilter 0."
                                       : "power 1, chosen since rows of power 2 would be long"));
    if (Rank() == 0) CHECK(Contains(text, "rows cut to the cap 0,"));
  }
}

TEST_CASE("sfsai: without a power, usual matrices have power 2, to the last bit", "[sfsai][pc]")
{
  for (const Backend &backend : Backends())
    for (const char *name : {"", "s3rmt3m3", "bcsstk24", "ex15", "ani5_crop"}) {
      CAPTURE(backend.name, name);
      const MatObject A      = CreateMat(*name ? Shared(name) : Plate(), backend.mat);
      const PCObject  chosen = MakePC(A, SFSAI()), asked = MakePC(A, SFSAI(), "-@power 2 -@max_row 0");
      CHECK(SameBits(Applied(chosen), Applied(asked)));
      CHECK(Contains(ViewText((PC)chosen), "power 2, chosen since its rows are short"));
      CHECK(Contains(ViewText((PC)asked), "pattern of power 2, prefilter 0., postfilter 0., rows not capped"));
      Touch(A);
      MUST(PCSetUp(chosen)); /* the pattern stays, and so does what was said of it */
      CHECK(Contains(ViewText((PC)chosen), "power 2, chosen since its rows are short"));
    }
}

/* ------------------------------------ reuse of the pattern ------------------------------------ */

TEST_CASE("sfsai: a pattern that depends on values stays while it fits, unless it is asked for anew", "[sfsai][pc][cycle]")
{
  for (const Backend &backend : Backends())
    for (const char *options : {"-@prefilter 0.2", "-@postfilter 0.2"})
      for (bool reuse : {false, true}) {
        CAPTURE(backend.name, options, reuse);
        const MatObject A  = CreateMat(Poisson(12, 12), backend.mat);
        const PCObject  pc = MakePC(A, SFSAI(), std::string(options) + (reuse ? "" : " -@reuse_pattern false"));
        MUST(PCSetUp(pc));
        const auto before = FactorColumns(pc);
        ChangeValues(A, 0.01); /* The pattern fits. */
        MUST(PCSetUp(pc));
        if (reuse) CHECK(Contains(ViewText((PC)pc), "pattern kept from the last set-up"));
        if (reuse) CHECK(FactorColumns(pc) == before);
        CHECK(ErrorOfDiagonal(pc, SFSAI()) <= 1e-6);
        ChangeValues(A, 10); /* Couplings of 1/4 become small. */
        MUST(PCSetUp(pc));
        CHECK(FactorColumns(pc) != before);
        CHECK(ErrorOfDiagonal(pc, SFSAI()) <= 1e-6);
        const PCObject fresh = MakePC(A, SFSAI(), options);
        CHECK(SameBits(Applied(pc), Applied(fresh)));
      }
}

/* -------------------------------- a pattern given by the user --------------------------------- */

TEST_CASE("fsai: a given pattern, of either memory, in the place of the power", "[sfsai][afsai][pc][pattern]")
{
  for (const Backend &backend : Backends())
    for (const Backend &pattern_backend : Backends())
      for (const Giving &giving : Givings())
        for (const char *options : {giving.exact, giving.others}) {
          CAPTURE(backend.name, pattern_backend.name, giving.type, options);
          const Type     &type = giving.Of();
          const MatObject A    = CreateMat(Plate(), backend.mat);
          MatObject       S    = CreateMat(OtherPattern(), pattern_backend.mat);
          const PCObject  pc = MakePC(A, type, options), plain = MakePC(A, type, options);
          PetscInt        references;
          Mat             given;
          MUST(PCSetUp(pc));
          MUST(PCSetUp(plain));
          MUST(giving.set(pc, S));
          MUST(giving.set(pc, S)); /* The same pattern is given twice. */
          MUST(giving.get(pc, &given));
          CHECK(given == S);
          MUST(PetscObjectGetReference((PetscObject)(Mat)S, &references));
          CHECK(references == 2);
          MUST(PCSetUp(pc));
          CHECK(FactorColumns(pc) == LowerColumns(S));
          CHECK(ErrorOfDiagonal(pc, type) <= 1e-6);
          CHECK(Contains(ViewText((PC)pc), giving.view));
          const auto with_S = Applied(pc);

          /* The pattern is kept over resets, and lives as long as the PC. */
          const auto columns = LowerColumns(S);
          S.Reset();
          MUST(PCReset(pc));
          MUST(PCSetOperators(pc, A, A));
          MUST(PCSetUp(pc));
          CHECK(FactorColumns(pc) == columns);
          CHECK(SameBits(Applied(pc), with_S));

          /* Another pattern takes its place; then there is none. */
          const MatObject other = CreateMat(RandomGraph(Plate().n, 9, 44), pattern_backend.mat);
          MUST(giving.set(pc, other));
          MUST(PCSetUp(pc));
          CHECK(FactorColumns(pc) == LowerColumns(other));
          MUST(giving.set(pc, nullptr));
          MUST(giving.get(pc, &given));
          CHECK(given == nullptr);
          CHECK(SameBits(Applied(pc), Applied(plain)));
        }
}

TEST_CASE("fsai: a given pattern and new values", "[sfsai][afsai][pc][pattern][cycle]")
{
  for (const Backend &backend : Backends())
    for (const Backend &pattern_backend : Backends())
      for (const Giving &giving : Givings()) {
        CAPTURE(backend.name, pattern_backend.name, giving.type);
        const Type     &type = giving.Of();
        const MatObject A = CreateMat(Plate(), backend.mat), S = CreateMat(OtherPattern(), pattern_backend.mat);
        const PCObject  pc    = MakePC(A, type, giving.exact);
        const auto      check = [&](bool kept) {
          const PCObject fresh = MakePC(A, type, giving.exact);
          MUST(giving.set(fresh, S));
          CHECK(SameBits(Applied(pc), Applied(fresh)));
          CHECK(FactorColumns(pc) == LowerColumns(S));
          CHECK(Contains(ViewText((PC)pc), "pattern kept from the last set-up") == kept);
        };
        MUST(giving.set(pc, S));
        check(false);
        ChangeValues(A, 0.3);
        check(true);
        ChangeValues(S, 5); /* The values of the pattern do not matter. */
        ChangeValues(A, 0.3);
        check(true);

        /* The pattern gets an entry that it did not have, and A gets other values. */
        PetscInt column = 0;
        for (const std::vector<PetscInt> columns = LowerColumns(S)[100]; columns[column] == column;) column++;
        MUST(MatSetOption(S, MAT_NEW_NONZERO_LOCATION_ERR, PETSC_FALSE));
        MUST(MatSetOption(S, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
        MUST(MatSetOption(S, MAT_NEW_NONZERO_LOCATIONS, PETSC_TRUE));
        MUST(MatSetValue(S, 100, column, 1, INSERT_VALUES));
        Assemble(S);
        ChangeValues(A, 0.3);
        check(false);
        ChangeValues(A, 0.3);
        check(true);
      }
}

/* On several ranks the pattern is looked at before its columns name rows to gather, and no rank waits for one that has refused it.
 */
TEST_CASE("fsai: patterns that do not fit are refused with a reason", "[sfsai][afsai][pc][pattern][bad][mpi]")
{
  const auto share = [](LocalInt n, const Layout &layout) { return layout.share(n, Rank(), Ranks()); };
  for (const Backend &backend : Backends())
    for (const Giving &giving : Givings())
      for (const std::string overlap : {"", "-@overlap 1 "}) {
        CAPTURE(backend.name, giving.type, overlap);
        const std::string options = overlap + giving.exact;
        const MatObject   A = Spread(Plate(), backend.mat, Even), plate = Spread(Plate(), MATAIJ, Even);
        const auto        refuse = [&](Mat S, const std::string &text) {
          const PCObject pc = MakePC(A, giving.Of(), options);
          MUST(giving.set(pc, S));
          int said = 0;
          {
            Errors errors;
            CHECK(PCSetUp(pc) != 0);
            CAPTURE(text, errors.text);
            said = Contains(errors.text, text);
            if (said) CHECK(Contains(errors.text, giving.setter));
          }
          MPI_Allreduce(MPI_IN_PLACE, &said, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
          CHECK(said);                   /* by the ranks whose part does not fit */
          MUST(giving.set(pc, nullptr)); /* The PC works afterwards. */
          CHECK(Finite(Applied(pc)));
        };
        const std::string columns = " columns on this rank, but the operator has " + std::to_string(share(Plate().n, Layouts()[0]));
        for (const LocalInt n : {10, 3 * Plate().n}) {
          const std::string rows = std::to_string(share(n, Layouts()[0]));
          refuse(Spread(RandomGraph(n, 5, 45), backend.mat, Even), "has " + rows + " rows and " + rows + columns);
        }
        if (Ranks() > 1) refuse(Spread(Plate(), MATAIJ, Layouts()[1].share), "rows and"); /* as many rows, shared otherwise */
        MatObject dense, open;
        MUST(MatConvert(plate, MATDENSE, MAT_INITIAL_MATRIX, dense.put()));
        refuse(dense, "is not supported, only MATAIJ and its subtypes");
        const LocalInt n = share(Plate().n, Layouts()[0]);
        PetscInt       begin;
        MUST(MatCreateAIJ(PETSC_COMM_WORLD, n, n, PETSC_DETERMINE, PETSC_DETERMINE, 2, nullptr, 2, nullptr, open.put()));
        MUST(MatGetOwnershipRange(open, &begin, nullptr));
        MUST(MatSetValue(open, begin, 0, 1, INSERT_VALUES));
        refuse(open, "is not assembled");
        if (overlap.empty() || Ranks() == 1) continue;
        refuse(CreateMat(RandomGraph(n, 5, 45), MATAIJ), "has another communicator than the operator");
      }
}

TEST_CASE("sfsai: on the pattern of an adaptive factor it is that factor", "[sfsai][pc][pattern]")
{
  for (const Backend &backend : Backends())
    for (const Backend &pattern_backend : Backends())
      for (const char *options : {"", "-@setup_precision double -@factor_precision double"}) {
        CAPTURE(backend.name, pattern_backend.name, options);
        const MatObject A        = CreateMat(Plate(), backend.mat);
        const PCObject  adaptive = MakePC(A, TypeOf(PCAFSAI), options), pc = MakePC(A, SFSAI(), options);
        MatObject       theirs, S, mine;
        MUST(PCSetUp(adaptive));
        MUST(PCAFSAIGetFactors(adaptive, theirs.put(), nullptr));
        MUST(MatConvert(theirs, pattern_backend.mat, MAT_INITIAL_MATRIX, S.put()));
        MUST(PCSFSAISetPattern(pc, S));
        S.Reset();
        MUST(PCSetUp(pc));
        MUST(PCSFSAIGetFactors(pc, mine.put(), nullptr));
        REQUIRE(LowerColumns(mine) == LowerColumns(theirs));
        double worst = 0;
        for (PetscInt row = 0; row < Plate().n; row++) {
          PetscInt           length, their_length;
          const PetscInt    *columns;
          const PetscScalar *values, *their_values;
          MUST(MatGetRow(mine, row, &length, &columns, &values));
          MUST(MatGetRow(theirs, row, &their_length, nullptr, &their_values));
          REQUIRE(length == their_length);
          /* The difference is that of A scaled to unit diagonal. */
          for (PetscInt k = 0; k < length; k++)
            worst = std::max(worst, std::fabs(values[k] - their_values[k]) * std::sqrt(Plate().At(columns[k], columns[k])));
          MUST(MatRestoreRow(theirs, row, &their_length, nullptr, &their_values));
          MUST(MatRestoreRow(mine, row, &length, &columns, &values));
        }
        CHECK(worst <= (*options ? 1e-12 : 1e-5));
      }
}

TEST_CASE("sfsai: a row of a given pattern that is too long is an error about the pattern", "[sfsai][pc][pattern][bad]")
{
  const PetscInt    n    = 1000000;
  const std::string text = "Row 999999 of G would have 1000000 entries, and the ";
  const HostMatrix  H = Poisson(n, 1), P = Hub(n);
  for (const Backend &backend : Backends())
    for (const Backend &pattern_backend : Backends()) {
      CAPTURE(backend.name, pattern_backend.name);
      PetscLogDouble before = 0;
      for (int repeat = 0; repeat < 4; repeat++) {
        {
          const MatObject A = CreateMat(H, backend.mat), S = CreateMat(P, pattern_backend.mat);
          const PCObject  pc = MakePC(A, SFSAI());
          for (int attempt = 0; attempt < 2; attempt++) {
            MUST(PCSFSAISetPattern(pc, S));
            {
              Errors errors;
              CHECK(PCSetUp(pc) != 0);
              CAPTURE(errors.text);
              CHECK(Contains(errors.text, text));
              CHECK(Contains(errors.text, "PCSFSAISetPattern()"));
              CHECK(!Contains(errors.text, "power"));
              CHECK(!Contains(errors.text, "max_row"));
            }
            if (attempt || repeat % 2) continue; /* The objects end with the error, or work on without the pattern. */
            MUST(PCSFSAISetPattern(pc, nullptr));
            CHECK(Finite(Applied(pc)));
          }
        }
        if (repeat == 1) before = HostBytes();
        CHECK(HostBytes() > 0);
        if (repeat > 1) CHECK(HostBytes() == before); /* PETSc and CUDA keep some memory of the first time. */
      }
    }
}

/* The operator as its own pattern is what the power 1 finds, on any number of ranks. */
TEST_CASE("fsai: several ranks and a given pattern", "[sfsai][afsai][pc][pattern][mpi]")
{
  for (const Backend &backend : Backends())
    for (const Backend &pattern_backend : Backends())
      for (const Giving &giving : Givings())
        for (const char *overlap : {"", " -@overlap 1"}) {
          CAPTURE(backend.name, pattern_backend.name, giving.type, overlap);
          const Type       &type        = giving.Of();
          const std::string on_given    = std::string(giving.exact) + overlap;
          const std::string first_power = on_given + (giving.set == PCAFSAISetPattern ? " -@initial_power 1" : " -@power 1");
          const HostMatrix  H           = RandomStencil(30, 20, 1, false, 9);
          const MatObject A = CreateMat(H, backend.mat, PETSC_COMM_WORLD), S = CreateMat(H, pattern_backend.mat, PETSC_COMM_WORLD),
                          other = CreateMat(RandomGraph(H.n, 9, 46), pattern_backend.mat, PETSC_COMM_WORLD);
          const KSPObject given = MakeKSP(A, type, on_given), power = MakeKSP(A, type, first_power);
          MUST(giving.set(PCOf(given), S));
          const Solution mine = Solve(given), theirs = Solve(power);
          CHECK(mine.reason == KSP_CONVERGED_RTOL);
          CHECK(SameBits(mine.history, theirs.history));
          CHECK(SameBits(Applied(PCOf(given)), Applied(PCOf(power))));
          MUST(giving.set(PCOf(given), other));
          CHECK(Solve(given).reason == KSP_CONVERGED_RTOL);
          CHECK(FactorColumns(PCOf(given)) == LowerColumns(other));
        }
}

/* The steps go on from the pattern: each row keeps it, gets more, and is better than without them. */
TEST_CASE("afsai: steps begin with a given pattern", "[afsai][pc][pattern]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A = CreateMat(Plate(), backend.mat), S = CreateMat(OtherPattern(), backend.mat);
    const PCObject  pc   = MakePC(A, TypeOf(PCAFSAI), "-@max_steps 3 -@tolerance 0"),
                   steps = MakePC(A, TypeOf(PCAFSAI), "-@max_steps 3 -@tolerance 0");
    MUST(PCAFSAISetPattern(pc, S));
    MUST(PCSetUp(pc));
    MUST(PCSetUp(steps));
    const auto mine = FactorColumns(pc), given = LowerColumns(S), alone = FactorColumns(steps);
    size_t     more = 0;
    for (size_t row = 0; row < mine.size(); row++) {
      CHECK(std::includes(mine[row].begin(), mine[row].end(), given[row].begin(), given[row].end()));
      CHECK(mine[row].size() <= given[row].size() + 3);
      more += mine[row].size() > given[row].size();
    }
    CHECK(more > mine.size() / 2);
    CHECK(mine != alone);
    CHECK(ErrorOfDiagonal(pc, TypeOf(PCAFSAI)) <= 1e-6);
  }
}

/* New values on the pattern that is kept are computed without a search; with a postfilter both are one phase. */
TEST_CASE("sfsai: the phases of a set-up in the log", "[sfsai][pc][events]")
{
  const std::vector<std::string> names = {"SFSAIFactor", "SFSAIPattern", "SFSAIValues", "FinePCTranspose"};
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject A  = CreateMat(Plate(), backend.mat);
    const PCObject  pc = MakePC(A, SFSAI()), filtered = MakePC(A, SFSAI(), "-@postfilter 0.1");
    CHECK(CountEvents(names, [&] { MUST(PCSetUp(pc)); }) == std::vector<int>{1, 1, 1, 1});
    ChangeValues(A, 0.3);
    CHECK(CountEvents(names, [&] { MUST(PCSetUp(pc)); }) == std::vector<int>{1, 0, 1, 1});
    CHECK(CountEvents(names, [&] { MUST(PCSetUp(filtered)); })[2] == 1);
  }
}
