/*
   A factor that reaches other ranks: with enough hops and layers it is that of one rank, whatever the layout of the rows, and it is
   applied, refilled, viewed and reset as any other. Tag [mpi] has these cases run on 2 and more ranks.
*/
#include <petsc/private/pcimpl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "pc/fsai_face.h"
#include "pc/sfsai/sfsai.h"
#include "pc_support.h"
#include "spread.h"

namespace
{

const PC_FSAI *DataOf(PC pc)
{
  return (const PC_FSAI *)pc->data;
}

/* This rank's rows of a vector of all. */
std::vector<double> Own(const std::vector<double> &all, Mat A)
{
  PetscInt begin, end;
  MUST(MatGetOwnershipRange(A, &begin, &end));
  return std::vector<double>(all.begin() + begin, all.begin() + end);
}

/* Differences are relative to the largest entry of all ranks. */
double Apart(const std::vector<double> &mine, const std::vector<double> &expected)
{
  double worst[2] = {mine.size() == expected.size() ? 0. : 1e300, 1e-300};
  for (size_t k = 0; k < std::min(mine.size(), expected.size()); k++) {
    worst[0] = Larger(worst[0], std::fabs(mine[k] - expected[k]));
    worst[1] = std::max(worst[1], std::fabs(expected[k]));
  }
  MPI_Allreduce(MPI_IN_PLACE, worst, 2, MPI_DOUBLE, MPI_MAX, PETSC_COMM_WORLD);
  return worst[0] / worst[1];
}

/* Between a factor of one rank and one of several. The same loops run on the host; lanes of other rows add in other orders. */
double Tolerance(const Backend &backend, const std::string &options)
{
  if (!PetscMemTypeDevice(backend.where)) return 1e-14;
  return Contains(options, "setup_precision double") ? 1e-10 : 1e-4;
}

std::vector<std::string> AllVariants(const Type &type)
{
  if (!std::strcmp(type.name, PCAFSAI))
    return {"",
            "-@setup_precision double -@factor_precision double",
            "-@max_steps 3 -@step_size 3",
            "-@initial_power 2 -@max_steps 2",
            "-@postfilter 0.05 -@prefilter 0.01",
            "-@tolerance 0 -@max_steps 6"};
  return {"", "-@setup_precision double -@factor_precision double", "-@power 3", "-@power 1 -@postfilter 0.05",
          "-@power 3 -@max_row 6 -@prefilter 0.01"};
}

/* More than four ranks share few processors. */
std::vector<std::string> Variants(const Type &type)
{
  auto variants = AllVariants(type);
  if (Ranks() > 4) variants.resize(2);
  return variants;
}

} // namespace

/* --------------------------------------- the same factor -------------------------------------- */

static void CheckSequential(const Backend &backend, const HostMatrix &A, const Layout &layout)
{
  for (const Type &type : FSAITypes())
    for (const std::string &variant : Variants(type)) {
      CAPTURE(type.name, backend.name, layout.name, variant);
      const MatObject alone = CreateMat(A, backend.mat), all = Spread(A, backend.mat, layout.share);
      const PCObject  one = MakePC(alone, type, variant), several = MakePC(all, type, kAll + variant);
      const double    tolerance = Tolerance(backend, variant);
      CheckSameFactor(Factor(several, type), Factor(one, type), tolerance);

      /* applied: G^T G x as the factors say, and as one rank does */
      const std::vector<double> y = Applied(several), z = Applied(one);
      CHECK(Apart(y, Own(z, all)) <= 10 * tolerance);
      CHECK(Apart(Applied(several, true), y) == 0);
      CHECK(Apart(AppliedFactors(several, type), y) <= 1e-6);
    }
}

TEST_CASE("with enough hops and layers the factor of several ranks is that of one", "[halo][fsai][pc][mpi][four][eight][slow]")
{
  for (const Layout &layout : Layouts()) {
    CheckSequential(HostBackend(), RandomStencil(5, 4, 6, false, 3), layout);
    CheckSequential(HostBackend(), RandomGraph(90, 7, 4), layout);
  }
  CheckSequential(HostBackend(), RandomStencil(6, 6, 5, true, 5), Layouts()[0]);
}

TEST_CASE("the same on GPUs", "[halo][fsai][pc][gpu][mpi][eight]")
{
  NEEDS_DEVICE();
  for (const Layout &layout : Layouts()) {
    CheckSequential(DeviceBackend(), RandomStencil(5, 4, 6, false, 3), layout);
    CheckSequential(DeviceBackend(), RandomGraph(90, 7, 4), layout);
  }
}

TEST_CASE("the same on GPUs, on a small matrix", "[halo][fsai][pc][gpu][mpi][sanitizer][factors]")
{
  NEEDS_DEVICE();
  CheckSequential(DeviceBackend(), RandomStencil(4, 3, 3, false, 3), Layouts()[0]);
}

TEST_CASE("a pattern that is given may reach other ranks", "[halo][sfsai][pc][mpi][four][eight]")
{
  const Type &type = TypeOf(PCSFSAI);
  for (const Backend &backend : Backends())
    for (const Layout &layout : Layouts()) {
      CAPTURE(backend.name, layout.name);
      const HostMatrix A = RandomGraph(80, 6, 5), S = RandomGraph(80, 11, 6);
      const MatObject  alone = CreateMat(A, backend.mat), all = Spread(A, backend.mat, layout.share);
      const MatObject  S_alone = CreateMat(S, backend.mat), S_all = Spread(S, backend.mat, layout.share);
      const PCObject   one = MakePC(alone, type), several = MakePC(all, type, "-@overlap 1000");
      MUST(PCSFSAISetPattern(one, S_alone));
      MUST(PCSFSAISetPattern(several, S_all));
      const std::vector<double> z = Applied(one), y = Applied(several);
      CHECK(Apart(y, Own(z, all)) <= 10 * Tolerance(backend, ""));
      const std::string text = ViewText((PC)several);
      CAPTURE(text);
      if (!Rank()) CHECK(Contains(text, "within 1000 hops, and of their rows those of the columns of the pattern\n"));
      const MatObject S_new_alone = CreateMat(A, backend.mat), S_new = Spread(A, backend.mat, layout.share);
      MUST(PCSFSAISetPattern(one, S_new_alone));
      MUST(PCSFSAISetPattern(several, S_new));
      const std::vector<double> z_new = Applied(one), y_new = Applied(several);
      CHECK(Apart(y_new, Own(z_new, all)) <= 10 * Tolerance(backend, ""));
    }
}

/* The steps find their columns in the rows of other ranks that the couplings lead to from the border and from the pattern. */
TEST_CASE("a first pattern that is given may reach other ranks, and the steps from there", "[halo][afsai][pc][mpi][four][eight]")
{
  const Type &type = TypeOf(PCAFSAI);
  for (const Backend &backend : Backends())
    for (const Layout &layout : Layouts())
      for (const std::string steps : {"-@max_steps 0 ", "-@max_steps 1 ", "-@max_steps 4 -@tolerance 0 "}) {
        CAPTURE(backend.name, layout.name, steps);
        const HostMatrix A = RandomGraph(80, 6, 5), S = RandomGraph(80, 5, 6);
        const MatObject  alone = CreateMat(A, backend.mat), all = Spread(A, backend.mat, layout.share);
        const MatObject  S_alone = CreateMat(S, backend.mat), S_all = Spread(S, backend.mat, layout.share);
        const PCObject   one = MakePC(alone, type, steps), several = MakePC(all, type, kAll + steps);
        MUST(PCAFSAISetPattern(one, S_alone));
        MUST(PCAFSAISetPattern(several, S_all));
        CheckSameFactor(Factor(several, type), Factor(one, type), Tolerance(backend, ""));
        CHECK(DataOf(several)->limited == 0);
        CHECK(ErrorOfDiagonal(several, type) <= 1e-6);
      }
}

TEST_CASE("rows that start with a given pattern are counted where the layers may have cut them", "[halo][afsai][pc][view][mpi]")
{
  if (Ranks() == 1) return;
  const Type &type = TypeOf(PCAFSAI);
  for (const Backend &backend : Backends()) {
    const HostMatrix stencil = RandomStencil(5, 5, 24, false, 9);
    const MatObject  A       = Spread(stencil, backend.mat, Even);
    for (int layers : {1, 2}) {
      CAPTURE(backend.name, layers);
      const PCObject pc = MakePC(A, type, "-@overlap 1 -@max_steps 2 -@tolerance 0 -@halo_layers " + std::to_string(layers));
      MUST(PCAFSAISetPattern(pc, A));
      MUST(PCSetUp(pc));
      PetscInt64 limited = DataOf(pc)->limited, gathered = DataOf(pc)->halo.First();
      MPI_Allreduce(MPI_IN_PLACE, &limited, 1, MPIU_INT64, MPI_SUM, PETSC_COMM_WORLD);
      MPI_Allreduce(MPI_IN_PLACE, &gathered, 1, MPIU_INT64, MPI_SUM, PETSC_COMM_WORLD);
      CHECK((limited > 0) == (layers < 2));
      CHECK(gathered == 25 * (layers + 1) * (Ranks() - 1)); /* planes of each rank's lower neighbour */
      const std::string text = ViewText((PC)pc);
      CAPTURE(text);
      if (Rank()) continue;
      CHECK(Contains(text, "those of the columns of the pattern, and those within " + std::to_string(layers) + " coupling"));
      CHECK(Contains(text, "rows of G that the limit of couplings may have cut: " + std::to_string(limited) + "\n"));
    }
  }
}

TEST_CASE("entries of a given pattern that no hop leads to are counted in the view", "[halo][fsai][pc][view][mpi]")
{
  if (Ranks() == 1) return;
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends())
      for (const char *overlap : {"0", "1"}) {
        CAPTURE(type.name, backend.name, overlap);
        const HostMatrix A = RandomGraph(80, 6, 5), S = RandomGraph(80, 11, 6);
        const MatObject  all = Spread(A, backend.mat, Even), pattern = Spread(S, backend.mat, Even);
        const PCObject   pc = MakePC(all, type, std::string("-@overlap ") + overlap);
        MUST((std::strcmp(type.name, PCAFSAI) ? PCSFSAISetPattern : PCAFSAISetPattern)(pc, pattern));
        MUST(PCSetUp(pc));
        PetscInt   begin, end;
        PetscInt64 left_out = 0;
        MUST(MatGetOwnershipRange(all, &begin, &end));
        for (PetscInt row = begin; row < end && *overlap == '0'; row++)
          for (LocalInt k = S.i[row]; k < S.i[row + 1]; k++) left_out += S.j[k] < begin;
        CHECK(DataOf(pc)->left_out == left_out);
        MPI_Allreduce(MPI_IN_PLACE, &left_out, 1, MPIU_INT64, MPI_SUM, PETSC_COMM_WORLD);
        CHECK((left_out > 0) == (*overlap == '0'));
        const std::string text = ViewText((PC)pc);
        CAPTURE(text);
        if (!Rank()) CHECK(Contains(text, "that are not reached, left out: " + std::to_string(left_out) + "\n"));
      }
}

TEST_CASE("couplings of rows that were made rows of the identity, across ranks", "[halo][fsai][pc][mpi]")
{
  HostMatrix A = RandomStencil(6, 5, 5, false, 8);
  for (LocalInt row : {3, 37, 74, 75, 76, 110, 149})
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) A.a[k] = A.j[k] == row;
  ForEachBackend(FSAITypes(), [&](const Type &type, const Backend &backend) {
    const MatObject alone = CreateMat(A, backend.mat), all = Spread(A, backend.mat, Even);
    const PCObject  one = MakePC(alone, type), several = MakePC(all, type, kAll);
    MUST(PCSetUp(one));
    MUST(PCSetUp(several));
    const PC_FSAI *mine = DataOf(several), *theirs = DataOf(one);
    PetscInt64     found = mine->symmetry.one_sided;
    MPI_Allreduce(MPI_IN_PLACE, &found, 1, MPIU_INT64, MPI_SUM, PETSC_COMM_WORLD);
    CHECK(theirs->symmetry.one_sided > 20);
    CHECK(found == theirs->symmetry.one_sided); /* each coupling is counted on one rank */
    CheckSameFactor(Factor(several, type), Factor(one, type), Tolerance(backend, ""));
  });
}

/* With all ranks in reach a smoother is that of the whole level, so that it does better than one of blocks. */
TEST_CASE("a smoother may reach other ranks", "[halo][fsai][pc][mpi]")
{
  if (Ranks() == 1) return;
  const MatObject A = Spread(Poisson(12, 12, 12), MATAIJ, Even);
  for (const Type &type : FSAITypes()) {
    const std::string smoother = std::string("-mg_levels_pc_type ") + type.name,
                      reach    = std::string(" -mg_levels_pc_") + type.name + "_overlap 1000 -mg_levels_pc_" + type.name +
                              "_halo_layers 10000";
    PetscInt its[2];
    for (const bool reaches : {false, true}) {
      CAPTURE(type.name, reaches);
      const std::string options = "-ksp_type cg -ksp_rtol 1e-8 -mg_levels_ksp_type richardson " + smoother + (reaches ? reach : "");
      const Options     scope(options); /* the smoothers of the levels are made in the set-up */
      const KSPObject   ksp = MakeKSP(A, "", PCGAMG);
      CHECK(Solve(ksp).reason > 0);
      MUST(KSPGetIterationNumber(ksp, &its[reaches]));
      const std::string text = ViewText(ksp);
      CAPTURE(text);
      if (!Rank()) CHECK(Contains(text, "reaches lower-numbered ranks within 1000 hops") == reaches);
    }
    CAPTURE(type.name, its[0], its[1]);
    CHECK(its[1] <= its[0]);
    if (kGAMGIsThatOfThePages) CHECK(its[1] < its[0]);
  }
}

/* ------------------------------------------ limits -------------------------------------------- */

TEST_CASE("without hops the factor is that of PCBJACOBI with a sequential one", "[halo][fsai][pc][mpi][four][eight]")
{
  ForEachBackend(FSAITypes(), [&](const Type &type, const Backend &backend) {
    const HostMatrix A   = RandomStencil(6, 6, 6, false, 4);
    const MatObject  all = Spread(A, backend.mat, Even);
    const PCObject   own = MakePC(all, type, "-@overlap 0");
    const Options    options(std::string("-sub_pc_type ") + type.name);
    const PCObject   blocks = MakePC(all, "", PCBJACOBI);
    CHECK(SameBits(Applied(own), Applied(blocks)));
  });
}

TEST_CASE("more layers and hops only add to the rows that are gathered", "[halo][fsai][pc][mpi]")
{
  const HostMatrix A = RandomStencil(5, 5, 24, false, 9);
  ForEachBackend(FSAITypes(), [&](const Type &type, const Backend &backend) {
    const MatObject       all = Spread(A, backend.mat, Even);
    std::vector<PetscInt> before;
    LocalInt              limited_before = LOCAL_INT_MAX;
    for (const char *options : {"-@overlap 1 -@halo_layers 1", "-@overlap 1 -@halo_layers 2", "-@overlap 2 -@halo_layers 2",
                                "-@overlap 2 -@halo_layers 8", "-@overlap 1000 -@halo_layers 10000"}) {
      CAPTURE(type.name, backend.name, options);
      const PCObject pc = MakePC(all, type, std::string("-@postfilter 0 ") + options);
      MUST(PCSetUp(pc));
      const PC_FSAI               *fsai = DataOf(pc);
      const std::vector<PetscInt> &rows = fsai->halo.rows;
      CHECK(std::is_sorted(rows.begin(), rows.end()));
      CHECK(std::includes(rows.begin(), rows.end(), before.begin(), before.end()));
      for (PetscInt row : rows) CHECK(row < fsai->halo.begin);
      CHECK(fsai->limited <= limited_before);
      /* a layer of this grid is a plane of 25 points, of which each rank has six or more */
      if (Contains(options, "overlap 1 ") && Rank()) CHECK((LocalInt)rows.size() == 25 * (Contains(options, "layers 1") ? 1 : 2));
      if (Contains(options, "10000")) CHECK((fsai->limited == 0 && (PetscInt)rows.size() == fsai->halo.begin));
      CHECK(ErrorOfDiagonal(pc, type) <= 1e-6);
      before         = rows;
      limited_before = fsai->limited;
    }
  });
}

/* Such a rank may have to send, or nothing to do with others; in either case all ranks take part in the exchange. */
TEST_CASE("a rank that needs nothing of others knows in which memory its own rows are", "[halo][fsai][pc][mpi]")
{
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends())
      for (const bool apart : {false, true}) { /* the last row is coupled to none */
        CAPTURE(type.name, backend.name, apart);
        HostMatrix A = RandomStencil(5, 4, 6, false, 3);
        if (apart) {
          A.n++;
          A.i.push_back(A.nnz() + 1);
          A.j.push_back(A.n - 1);
          A.a.push_back(1);
        }
        const Share     last = [](LocalInt n, int rank, int size) { return rank < size - 1 ? Even(n - 1, rank, size - 1) : 1; };
        const MatObject all  = Spread(A, backend.mat, apart && Ranks() > 1 ? last : Even);
        const PCObject  pc   = MakePC(all, type, kAll);
        MUST(PCSetUp(pc));
        const PCInverse &M = DataOf(pc)->inverse;
        for (const PCInverseGhosts *ghosts : {&M.ghosts1, &M.ghosts2}) {
          CHECK(ghosts->exchange.where == M.where);
          CHECK(ghosts->exchange.columns == 1);
          CHECK((bool)ghosts->exchange.sf == (Ranks() > (apart ? 2 : 1)));
        }
        if (Rank() == 0) CHECK(M.ghosts1.exchange.count == 0);
        if (Rank() == Ranks() - 1) CHECK(M.ghosts2.exchange.count == 0);
        if (Rank() == Ranks() - 1 && apart) CHECK(M.ghosts1.exchange.count == 0);
        CHECK(Apart(Applied(pc), AppliedFactors(pc, type)) <= 1e-6);
      }
}

/* The numbers of the columns are those of the matrix, and may have 64 bits. */
TEST_CASE("the bytes of a factor's part on other ranks", "[halo][fsai][pc][indices][mpi]")
{
  for (const Type &type : FSAITypes()) {
    const MatObject all = Spread(RandomStencil(5, 4, 6, false, 3), MATAIJ, Even);
    const PCObject  pc  = MakePC(all, type, kAll);
    MUST(PCSetUp(pc));
    for (const PCInverseGhosts *ghosts : {&DataOf(pc)->inverse.ghosts1, &DataOf(pc)->inverse.ghosts2}) {
      const size_t entries = ghosts->W.nnz * (sizeof(LocalInt) + FinePCPrecisionBytes(ghosts->W.precision));
      CHECK(PCInverseGhostBytes(ghosts) ==
            entries + 2 * ghosts->touched * sizeof(*ghosts->rows) + ghosts->exchange.count * sizeof(*ghosts->columns));
    }
  }
}

/* ---------------------------------------- life of a PC ---------------------------------------- */

/* Other values that every pattern fits. */
static HostBlocks Scaled(HostBlocks A, double factor)
{
  for (double &value : A.a) value *= factor;
  return A;
}

TEST_CASE("new values on the same nonzeros: only values travel, and the factor is that of a new PC", "[halo][fsai][pc][mpi][two]")
{
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends())
      for (const char *reuse : {"0", "1"})
        for (const Layout &layout : Layouts()) {
          CAPTURE(type.name, backend.name, reuse, layout.name);
          const std::string options = std::string(kAll) + "-@reuse_pattern " + reuse;
          const HostBlocks  good = Blocks(RandomStencil(5, 4, 6, false, 3)), changed = Scaled(good, 1.5);
          const MatObject   A     = Spread(RandomStencil(5, 4, 6, false, 3), backend.mat, layout.share);
          const PCObject    pc    = MakePC(A, type, options);
          const Traffic     whole = TrafficOf([&] { MUST(PCSetUp(pc)); });
          const auto        first = Applied(pc);
          const PC_FSAI    *fsai  = DataOf(pc);
          const LocalInt   *plan = fsai->halo.send, *pattern = fsai->inverse.ghosts1.W.j;
          const PetscSF     exchange = fsai->inverse.ghosts1.exchange.sf;
          SetValues(A, changed);
          const Traffic refill = TrafficOf([&] { MUST(PCSetUp(pc)); });
          CHECK(fsai->halo.send == plan);
          double values[2] = {(double)fsai->halo.blocks.to.size(), (double)fsai->halo.Sent() * sizeof(PetscScalar)};
          if (*reuse == '1') {
            CHECK((fsai->inverse.ghosts1.W.j == pattern && fsai->inverse.ghosts1.exchange.sf == exchange));
            values[0] += (double)fsai->transposed.blocks.to.size();
            values[1] += (double)NeighboursCount(fsai->transposed.blocks.to) * FinePCPrecisionBytes(fsai->inverse.W1.precision);
          }
          MPI_Allreduce(MPI_IN_PLACE, values, 2, MPI_DOUBLE, MPI_SUM, PETSC_COMM_WORLD);
          CAPTURE(whole.messages, whole.bytes, refill.messages, refill.bytes, values[0], values[1]);
          if (*reuse == '1') CHECK((refill.messages == values[0] && refill.bytes == values[1]));
          else CHECK((refill.messages >= values[0] && refill.bytes >= values[1])); /* the factor's columns travel, too */
          if (values[0] > 0) CHECK((refill.messages < whole.messages && refill.bytes < whole.bytes));
          if (Ranks() > 1) CHECK((bool)fsai->reused == (*reuse == '1'));
          const PCObject fresh = MakePC(A, type, options);
          if (!std::strcmp(type.name, PCSFSAI) || *reuse == '0') CHECK(SameBits(Applied(pc), Applied(fresh)));
          CHECK(!SameBits(Applied(pc), first) == !first.empty());
          SetValues(A, good); /* and back: a pattern that was searched is solved in the order of its columns when it is kept */
          if (!std::strcmp(type.name, PCAFSAI) && *reuse == '1') CHECK(Apart(Applied(pc), first) <= 1e-5);
          else CHECK(SameBits(Applied(pc), first));
          MUST(PCReset(pc));
          MUST(PCSetOperators(pc, A, A));
          MUST(PCSetUp(pc));
          CHECK(SameBits(Applied(pc), first));
        }
}

TEST_CASE("new values after a filter that leaves no entry in columns of other ranks", "[halo][fsai][pc][mpi]")
{
  ForEachBackend(FSAITypes(), [&](const Type &type, const Backend &backend) {
    const HostBlocks good = Blocks(RandomStencil(9, 3, 1, false, 3)), changed = Scaled(good, 1.5);
    const MatObject  A     = Spread(RandomStencil(9, 3, 1, false, 3), backend.mat, Even);
    const PCObject   pc    = MakePC(A, type, std::string(kAll) + "-@postfilter 1 -@reuse_pattern 1");
    const auto       first = Applied(pc);
    CHECK(!DataOf(pc)->inverse.ghosts1.exchange.sf);
    SetValues(A, changed);
    MUST(PCSetUp(pc));
    if (Ranks() > 1) CHECK((bool)DataOf(pc)->reused);
    CHECK(!SameBits(Applied(pc), first) == !first.empty());
    SetValues(A, good);
    CHECK(Apart(Applied(pc), first) <= 1e-5);
  });
}

/* Right-hand sides that fit A. */
static MatObject RightVecs(Mat A, LocalInt columns, MatType type)
{
  MatObject X;
  PetscInt  rows;
  MUST(MatGetLocalSize(A, &rows, nullptr));
  MUST(MatCreate(PETSC_COMM_WORLD, X.put()));
  MUST(MatSetSizes(X, rows, PETSC_DECIDE, PETSC_DETERMINE, columns));
  MUST(MatSetType(X, type));
  MUST(MatSetUp(X));
  for (LocalInt c = 0; c < columns; c++) {
    Vec x;
    MUST(MatDenseGetColumnVecWrite(X, c, &x));
    MUST(VecCopy(RightVec(A, 3 + c), x));
    MUST(MatDenseRestoreColumnVecWrite(X, c, &x));
  }
  MUST(MatAssemblyBegin(X, MAT_FINAL_ASSEMBLY));
  MUST(MatAssemblyEnd(X, MAT_FINAL_ASSEMBLY));
  return X;
}

/* The columns are those of PCApply(), and each neighbour gets a message for all of them, or for as many as go at once. */
static void CheckSeveral(PC pc, Mat A, LocalInt columns, MatType dense)
{
  CAPTURE(columns, dense);
  const MatObject X = RightVecs(A, columns, dense);
  MatObject       Y;
  VecObject       y;
  MUST(MatDuplicate(X, MAT_DO_NOT_COPY_VALUES, Y.put()));
  MUST(MatCreateVecs(A, nullptr, y.put()));
  MUST(PCMatApply(pc, X, Y)); /* it may prepare for so many columns */
  const Traffic block = TrafficOf([&] { MUST(PCMatApply(pc, X, Y)); });
  Traffic       column{};
  for (LocalInt c = 0; c < columns; c++) {
    const VecObject x = RightVec(A, 3 + c);
    Vec             y_c;
    column = TrafficOf([&] { MUST(PCApply(pc, x, y)); });
    MUST(MatDenseGetColumnVecRead(Y, c, &y_c));
    CHECK(Apart(Values(y_c), Values(y)) <= 1e-14);
    MUST(MatDenseRestoreColumnVecRead(Y, c, &y_c));
  }
  const LocalInt exchanges = (columns + kInverseExchangedColumns - 1) / kInverseExchangedColumns;
  CHECK(block.messages == exchanges * column.messages);
  CHECK(block.bytes == columns * column.bytes);
}

TEST_CASE("several vectors at once and one after the other, across ranks", "[halo][fsai][pc][mpi]")
{
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends())
      for (const Layout &layout : Layouts()) {
        CAPTURE(type.name, backend.name, layout.name);
        const HostMatrix stencil = RandomStencil(5, 4, 6, false, 3);
        const MatObject  A       = Spread(stencil, backend.mat, layout.share);
        const PCObject   pc      = MakePC(A, type, std::string(kAll) + "-@reuse_pattern 1");
        MUST(PCSetUp(pc));
        for (LocalInt columns : {0, 1, 5, 2, 9, 4, 17}) CheckSeveral(pc, A, columns, backend.dense);
        CheckSeveral(pc, A, 9, MATDENSE); /* on the host, wherever the factor is */
        SetValues(A, Changed(Blocks(stencil), 4));
        MUST(PCSetUp(pc));
        CheckSeveral(pc, A, 3, backend.dense);
        MUST(PCReset(pc));
        MUST(PCSetOperators(pc, A, A));
        CheckSeveral(pc, A, 4, backend.dense);
      }
  if (Ranks() == 1) return;
  const MatObject A  = Spread(RandomStencil(5, 4, 6, false, 3), HostBackend().mat, Even);
  const PCObject  pc = MakePC(A, TypeOf(PCAFSAI), kAll);
  MUST(PCSetUp(pc));
  const VecObject x = RightVec(A);
  VecObject       y;
  MUST(VecDuplicate(x, y.put()));
  CHECK(TrafficOf([&] { MUST(PCApply(pc, x, y)); }).messages >= 2); /* of lower-numbered ranks for G, of others for G^T */
}

TEST_CASE("a row that is bad is named by its number in the matrix, on all ranks", "[halo][fsai][pc][mpi]")
{
  const double nan = std::nan("");
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends())
      for (LocalInt bad : {0, 29, 44, 45, 67, 89}) {
        CAPTURE(type.name, backend.name, bad);
        HostMatrix A = RandomGraph(90, 7, 4), spoiled = A;
        for (LocalInt k = A.i[bad]; k < A.i[bad + 1]; k++)
          if (A.j[k] == bad) spoiled.a[k] = bad % 2 ? nan : -1;
        const MatObject mat = Spread(spoiled, backend.mat, Even);
        const PCObject  pc  = MakePC(mat, type, kAll);
        MUST(PCSetUp(pc));
        CHECK(ReasonOf(pc) != PC_NOERROR);
        const std::string text = DataOf(pc)->failure;
        CAPTURE(text);
        CHECK(Contains(text, "Row " + std::to_string(bad) + " has "));
        CHECK(Infinite(Applied(pc)));
        SetValues(mat, Blocks(A)); /* and all is well again */
        const MatObject good = Spread(A, backend.mat, Even);
        CHECK(SameBits(Applied(pc), Applied(MakePC(good, type, kAll))));
      }
}

TEST_CASE("with a matrix of blocks the factor stays in the rank's block, and the view says so", "[halo][fsai][pc][mpi]")
{
  if (Ranks() == 1) return;
  for (const Type &type : FSAITypes()) {
    const MatObject A  = TypeOf(PCBISAI).kinds()[0].Create(Grid(), PETSC_COMM_WORLD);
    const PCObject  pc = MakePC(A, type, "-@overlap 1"), own = MakePC(A, type);
    MUST(PCSetUp(pc));
    const std::string text = ViewText((PC)pc);
    CAPTURE(type.name, text);
    if (!Rank()) CHECK((Contains(text, "reaches no other rank") && Contains(text, "block-local")));
    CHECK(SameBits(Applied(pc), Applied(own)));
  }
}

/* ------------------------------------------- view --------------------------------------------- */

/* Both are of this rank, and are counted here in the whole factor. */
static void CheckDensityAndBytes(PC pc, const Type &type, Mat A)
{
  struct Part { /* of G on one side of the border */
    size_t             entries = 0;
    std::set<LocalInt> own, foreign; /* numbers of rows and columns that have such entries */
  } below, above;
  const HostMatrix G     = Factor(pc, type);
  const size_t     entry = sizeof(LocalInt) + FinePCPrecisionBytes(DataOf(pc)->inverse.W1.precision);
  PetscInt         begin, end;
  MatInfo          info;
  size_t           own = 0;
  PetscReal        density;
  PetscLogDouble   bytes;
  MUST(MatGetOwnershipRange(A, &begin, &end));
  MUST(MatGetInfo(A, MAT_LOCAL, &info));
  for (LocalInt row = 0; row < G.n; row++)
    for (LocalInt k = G.i[row]; k < G.i[row + 1]; k++) {
      const LocalInt column = G.j[k];
      const bool     my_row = row >= begin && row < end, my_column = column >= begin && column < end;
      Part          *part = my_row ? &below : &above;
      own += my_row && my_column && row != column;
      if (my_row == my_column) continue;
      part->entries++;
      part->own.insert(my_row ? row : column);
      part->foreign.insert(my_row ? column : row);
    }
  const size_t rows = end - begin, touched = below.own.size() + above.own.size(),
               ghosts = below.foreign.size() + above.foreign.size();
  MUST(PCFinePCGetDensity(pc, &density));
  MUST(PCFinePCGetApplyBytes(pc, &bytes));
  CHECK(density == (double)(own + below.entries + rows) / info.nz_used);
  CHECK(bytes == (double)((2 * own + below.entries + above.entries) * entry + 2 * (rows + 1 + touched) * sizeof(LocalInt) +
                          ghosts * (sizeof(PetscInt) + 2 * sizeof(PetscScalar)) + 5 * rows * sizeof(PetscScalar)));
}

TEST_CASE("what the view says about a factor that reaches other ranks", "[halo][fsai][pc][view][mpi]")
{
  ForEachBackend(FSAITypes(), [&](const Type &type, const Backend &backend) {
    const MatObject A  = Spread(RandomStencil(5, 5, 24, false, 9), backend.mat, Even);
    const PCObject  pc = MakePC(A, type, "-@overlap 1 -@halo_layers 2");
    CAPTURE(type.name, backend.name);
    for (bool set_up : {false, true}) {
      if (set_up) MUST(PCSetUp(pc));
      PetscBool before, after;
      MUST(PCLocalIsOnDevice(pc, &before));
      const std::string text = ViewText((PC)pc);
      MUST(PCLocalIsOnDevice(pc, &after));
      CHECK(before == after); /* who looks does not change the path of a solve */
      CHECK(after == (set_up && Ranks() == 1 && PetscMemTypeDevice(backend.where)));
      CAPTURE(text);
      if (Rank()) continue;
      CHECK(Contains(text, "reaches lower-numbered ranks within 1 hop, and of their rows those within 2 couplings"));
      CHECK(!Contains(text, "block-local"));
      CHECK(Contains(text, "gathered rows of other ranks:") == (set_up && Ranks() > 1));
    }
    PetscInt64 gathered = DataOf(pc)->halo.First(), nnz[2] = {DataOf(pc)->inverse.W1.nnz, DataOf(pc)->inverse.ghosts1.W.nnz};
    PetscInt64 back = DataOf(pc)->inverse.ghosts2.W.nnz;
    MPI_Allreduce(MPI_IN_PLACE, &gathered, 1, MPIU_INT64, MPI_SUM, PETSC_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, nnz, 2, MPIU_INT64, MPI_SUM, PETSC_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &back, 1, MPIU_INT64, MPI_SUM, PETSC_COMM_WORLD);
    const PetscInt64 own       = (PetscInt64)DataOf(pc)->inverse.W1.nnz + DataOf(pc)->inverse.rows,
                     bytes_own = (PetscInt64)HaloBytes(&DataOf(pc)->halo);
    PetscInt64 own_nnz[2], bytes_most, limited = DataOf(pc)->limited;
    MPI_Allreduce(&own, &own_nnz[0], 1, MPIU_INT64, MPI_MIN, PETSC_COMM_WORLD);
    MPI_Allreduce(&own, &own_nnz[1], 1, MPIU_INT64, MPI_MAX, PETSC_COMM_WORLD);
    MPI_Allreduce(&bytes_own, &bytes_most, 1, MPIU_INT64, MPI_MAX, PETSC_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &limited, 1, MPIU_INT64, MPI_SUM, PETSC_COMM_WORLD);
    PetscInt64       kept_most = (PetscInt64)PCFSAIKeptBytes(DataOf(pc));
    const PetscInt64 places    = DataOf(pc)->inverse.ghosts1.W.nnz + DataOf(pc)->inverse.ghosts2.W.nnz;
    const CSR       &whole     = DataOf(pc)->whole; /* of sfsai, which keeps its pattern unless it is told not to */
    CHECK(kept_most == (PetscInt64)((whole.i ? CSRBytes(&whole) : 0) + places * sizeof(LocalInt)));
    MPI_Allreduce(MPI_IN_PLACE, &kept_most, 1, MPIU_INT64, MPI_MAX, PETSC_COMM_WORLD);
    CHECK(gathered == 50 * (Ranks() - 1)); /* two planes of each rank's lower neighbour */
    CHECK(nnz[1] == back);
    CheckDensityAndBytes(pc, type, A);
    const std::string text = ViewText((PC)pc);
    CAPTURE(text);
    if (Rank() || Ranks() == 1) return;
    CHECK(Contains(text, std::to_string(gathered) + " in all"));
    CHECK(Contains(text, std::to_string(nnz[1]) + " of its nonzeros are in columns of other ranks"));
    CHECK(Contains(text, "rows of G that the limit of couplings may have cut: " + std::to_string(limited) + "\n"));
    CHECK(Contains(text, "in a rank's own columns"));
    CHECK(Contains(text, "it gathers rows of 0 to 1 ranks, and 0 to 1 ranks gather rows of its own"));
    CHECK(Contains(text, " to " + std::to_string(bytes_most) + " bytes\n"));
    CHECK(Contains(text, " to " + std::to_string(kept_most) + " bytes a rank\n"));
    CHECK((own_nnz[0] > 0 && Contains(text, "beside " + std::to_string(own_nnz[0]) + " to " + std::to_string(own_nnz[1]))));
  });
}

/* ------------------------------------------ twins --------------------------------------------- */

namespace
{

/* Rows first .. of the factor on a static pattern. What is to be computed is NaN before. */
HostFactor FactorRows(const HostMatrix &A, LocalInt first, const SFSAIParams &params, PetscMemType where, const HostMatrix *S)
{
  const HostMatrix none;
  const CSRCopy    copy(A, where), pattern(S ? *S : none, where);
  const LocalInt   rows    = A.n - first;
  const auto       compute = PetscMemTypeDevice(where) ? SFSAIComputeFactor_CUDA : SFSAIComputeFactor_Host;
  CSR              G       = {}, host;
  SFSAIWork        work    = {};
  void            *d       = nullptr;
  HostFactor       F;

  F.stats = FSAIStats{};
  MUST(ArrayCreate(rows * sizeof(PetscReal), where, &d));
  for (PetscBool keep : {PETSC_FALSE, PETSC_TRUE}) { /* the second time on the pattern that is there */
    if (keep && params.postfilter > 0) continue;
    const std::vector<char> nan(std::max(rows * sizeof(PetscReal), G.nnz * FinePCPrecisionBytes(G.precision)), '\xff');
    MUST(ArrayCopy(d, nan.data(), rows * sizeof(PetscReal), where, PETSC_MEMTYPE_HOST));
    if (keep) MUST(ArrayCopy(G.a, nan.data(), G.nnz * FinePCPrecisionBytes(G.precision), where, PETSC_MEMTYPE_HOST));
    MUST(compute({&copy.view, first, S ? &pattern.view : nullptr}, &params, keep, &G, (PetscReal *)d, &work, &F.stats));
  }
  REQUIRE((G.rows == rows && G.columns == A.n));
  MUST(CSRDuplicate(&G, PETSC_MEMTYPE_HOST, &host));
  F.first = first;
  F.rows  = rows;
  F.i.assign(host.i, host.i + rows + 1);
  F.j.assign(host.j, host.j + host.nnz);
  for (LocalInt k = 0; k < host.nnz; k++)
    F.a.push_back(host.precision == FINEPC_SINGLE ? ((const float *)host.a)[k] : ((const double *)host.a)[k]);
  F.d.resize(rows);
  MUST(ArrayCopy(F.d.data(), d, rows * sizeof(PetscReal), PETSC_MEMTYPE_HOST, where));
  MUST(CSRDestroy(&host));
  MUST(CSRDestroy(&G));
  MUST(ArrayDestroy(where, &d));
  MUST(ArrayDestroy(work.where, &work.data));
  return F;
}

/* The rows of S from `first` on. */
HostMatrix RowsFrom(const HostMatrix &S, LocalInt first)
{
  HostMatrix part;
  part.n = S.n - first;
  part.i.clear();
  for (LocalInt row = first; row <= S.n; row++) part.i.push_back(S.i[row] - S.i[first]);
  part.j.assign(S.j.begin() + S.i[first], S.j.end());
  part.a.assign(S.a.begin() + S.i[first], S.a.end());
  return part;
}

void CheckRowsOf(const HostFactor &whole, const HostFactor &part, double tolerance)
{
  double worst = 0;
  for (LocalInt row = 0; row < part.rows; row++) {
    const LocalInt of_whole = part.first + row, begin = whole.i[of_whole];
    REQUIRE(part.Length(row) == whole.Length(of_whole));
    for (LocalInt k = part.i[row], w = begin; k < part.i[row + 1]; k++, w++) {
      REQUIRE(part.j[k] == whole.j[w]);
      worst = Larger(worst, std::fabs(part.a[k] - whole.a[w]) / std::max(1., std::fabs(whole.a[w])));
    }
    worst = Larger(worst, std::fabs(part.d[row] / whole.d[of_whole] - 1));
  }
  CHECK(worst <= tolerance);
}

} // namespace

TEST_CASE("sfsai: rows of a factor from any row on are those of the whole one", "[halo][sfsai][sanitizer][factors]")
{
  const HostMatrix A = RandomStencil(5, 4, 4, true, 3), S = RandomGraph(A.n, 9, 4);
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (int variant = 0; variant < 6; variant++) {
        SFSAIParams params;
        params.setup_precision = params.factor_precision = precision;
        params.power                                     = variant == 1 ? 1 : variant == 2 ? 3 : 2;
        if (variant == 3) params.max_row = 7;
        if (variant == 4) params.postfilter = 0.05;
        if (variant == 5) params.prefilter = 0.02;
        for (LocalInt first : {0, 1, 31, 32, 79}) {
          CAPTURE(backend.name, precision, variant, first);
          CheckRowsOf(FactorRows(A, 0, params, backend.where, nullptr), FactorRows(A, first, params, backend.where, nullptr),
                      PetscMemTypeDevice(backend.where) ? 1e-5 : 0);
          const HostMatrix part = RowsFrom(S, first);
          CheckRowsOf(FactorRows(A, 0, params, backend.where, &S), FactorRows(A, first, params, backend.where, &part),
                      PetscMemTypeDevice(backend.where) ? 1e-5 : 0);
        }
      }
}

TEST_CASE("sfsai: many rows from any row on", "[halo][sfsai][gpu]") /* enough for the sample that sizes the pool */
{
  NEEDS_DEVICE();
  const HostMatrix A = RandomStencil(60, 60, 60, false, 3);
  for (PetscReal postfilter : {0., 0.02}) {
    SFSAIParams params;
    params.postfilter = postfilter;
    params.work_limit = postfilter > 0 ? (size_t)4 << 20 : params.work_limit; /* several chunks */
    CheckRowsOf(FactorRows(A, 0, params, PETSC_MEMTYPE_CUDA, nullptr), FactorRows(A, 12345, params, PETSC_MEMTYPE_CUDA, nullptr),
                1e-5);
  }
}

/* A matrix of the library with the arrays of a HostMatrix, in memory of either kind. */
static CSR Copied(const HostMatrix &A, LocalInt columns, FinePCPrecision precision, PetscMemType where)
{
  CSR                      W = {};
  const std::vector<float> single(A.a.begin(), A.a.end());
  MUST(CSRCreate(A.n, columns, A.nnz(), precision, where, &W));
  MUST(ArrayCopy(W.i, A.i.data(), (A.n + 1) * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(W.j, A.j.data(), A.nnz() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  if (precision == FINEPC_SINGLE) MUST(ArrayCopy(W.a, single.data(), A.nnz() * sizeof(float), where, PETSC_MEMTYPE_HOST));
  else MUST(ArrayCopy(W.a, A.a.data(), A.nnz() * sizeof(double), where, PETSC_MEMTYPE_HOST));
  return W;
}

static HostMatrix OnHost(const CSR &W)
{
  HostMatrix A;
  CSR        host;
  MUST(CSRDuplicate(&W, PETSC_MEMTYPE_HOST, &host));
  A.n = W.rows;
  A.i.assign(host.i, host.i + W.rows + 1);
  A.j.assign(host.j, host.j + W.nnz);
  for (LocalInt k = 0; k < W.nnz; k++)
    A.a.push_back(W.precision == FINEPC_SINGLE ? ((const float *)host.a)[k] : ((const double *)host.a)[k]);
  MUST(CSRDestroy(&host));
  return A;
}

TEST_CASE("a matrix that is split by columns, and rows that become one matrix", "[halo][csr][sanitizer]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (LocalInt n : {1, 31, 33, 700})
        for (LocalInt first : {(LocalInt)0, n / 3, n - 1}) {
          CAPTURE(backend.name, precision, n, first);
          const bool       on_device = PetscMemTypeDevice(backend.where);
          const HostMatrix A = RandomGraph(n, 6, 2), part = RowsFrom(A, first);
          CSR              W = Copied(part, n, precision, backend.where), own = {}, foreign = {}, L = {};
          MUST((on_device ? HaloSplit_CUDA : HaloSplit_Host)(&W, first, PETSC_FALSE, &own, &foreign));
          MUST((on_device ? HaloSplit_CUDA : HaloSplit_Host)(&W, first, PETSC_TRUE, &own, &foreign));
          REQUIRE((own.rows == part.n && own.columns == part.n && foreign.columns == first && own.nnz + foreign.nnz == part.nnz()));
          const HostMatrix right = OnHost(own), left = OnHost(foreign);
          for (LocalInt row = 0; row < part.n; row++) {
            std::vector<LocalInt> columns(left.j.begin() + left.i[row], left.j.begin() + left.i[row + 1]);
            for (LocalInt k = right.i[row]; k < right.i[row + 1]; k++) columns.push_back(first + right.j[k]);
            CHECK(columns == std::vector<LocalInt>(part.j.begin() + part.i[row], part.j.begin() + part.i[row + 1]));
          }
          if (precision == FINEPC_DOUBLE && first) { /* and back, with the first rows of A as foreign ones */
            HostMatrix top;
            top.n = first;
            top.i.assign(A.i.begin(), A.i.begin() + first + 1);
            top.j.assign(A.j.begin(), A.j.begin() + A.i[first]);
            top.a.assign(A.a.begin(), A.a.begin() + A.i[first]);
            CSR           rows = Copied(top, n, FINEPC_DOUBLE, backend.where);
            const CSRView view{own.rows, own.nnz, own.i, own.j, (const PetscScalar *)own.a, own.where};
            MUST((on_device ? HaloAssemble_CUDA : HaloAssemble_Host)(&view, &rows, &foreign, &L));
            const HostMatrix joined = OnHost(L);
            CHECK((joined.i == A.i && joined.j == A.j && joined.a == A.a));
            MUST(CSRDestroy(&L));
            MUST(CSRDestroy(&rows));
          }
          MUST(CSRDestroy(&W));
          MUST(CSRDestroy(&own));
          MUST(CSRDestroy(&foreign));
        }
}

TEST_CASE("values picked from two arrays, products added to some rows, and rows of vectors", "[halo][csr][sanitizer]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (LocalInt n : {1, 32, 500})
        for (LocalInt columns : {1, 3, 4}) {
          CAPTURE(backend.name, precision, n, columns);
          const bool            on_device = PetscMemTypeDevice(backend.where);
          HostMatrix            A         = RandomGraph(n, 5, 7);
          std::vector<LocalInt> rows;
          HostMatrix            W; /* every third row of A */
          W.n = n;
          for (LocalInt row = 0; row < n; row++) {
            if (row % 3 == 0) {
              rows.push_back(row);
              W.j.insert(W.j.end(), A.j.begin() + A.i[row], A.j.begin() + A.i[row + 1]);
              for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) W.a.push_back((float)A.a[k]);
            }
            W.i.push_back((LocalInt)W.j.size());
          }
          Random              random(5);
          std::vector<double> d(n), x(n * columns), y(n * columns), expected;
          for (auto *v : {&d, &x, &y})
            for (double &value : *v) value = random.Between(-1, 1);
          expected = y;
          for (LocalInt c = 0; c < columns; c++)
            for (LocalInt row : rows) {
              double sum = 0;
              for (LocalInt k = W.i[row]; k < W.i[row + 1]; k++) sum += W.a[k] * x[W.j[k] * columns + c];
              expected[row + c * n] += d[row] * sum;
            }
          CSR   G       = Copied(W, n, precision, backend.where);
          void *d_there = nullptr, *x_there = nullptr, *y_there = nullptr, *rows_there = nullptr, *index = nullptr, *to = nullptr,
               *packed_there = nullptr;
          const auto send    = [&](const void *from, size_t bytes, void **there) {
            MUST(ArrayCreate(bytes, backend.where, there));
            MUST(ArrayCopy(*there, from, bytes, backend.where, PETSC_MEMTYPE_HOST));
          };
          send(d.data(), n * sizeof(double), &d_there);
          send(x.data(), x.size() * sizeof(double), &x_there);
          send(y.data(), y.size() * sizeof(double), &y_there);
          send(rows.data(), rows.size() * sizeof(LocalInt), &rows_there);
          const auto          add = on_device ? CSRMultiplyAdd_CUDA : CSRMultiplyAdd_Host;
          std::vector<double> result(y.size());
          for (const bool all : {false, true}) { /* the rows without entries stay as they are */
            MUST(ArrayCopy(y_there, y.data(), y.size() * sizeof(double), backend.where, PETSC_MEMTYPE_HOST));
            MUST(add(&G, all ? n : (LocalInt)rows.size(), all ? nullptr : (const LocalInt *)rows_there,
                     (const PetscScalar *)d_there, columns, (const PetscScalar *)x_there, (PetscScalar *)y_there, n));
            MUST(ArrayCopy(result.data(), y_there, y.size() * sizeof(double), PETSC_MEMTYPE_HOST, backend.where));
            CHECK(Difference(result, expected) <= 1e-14);
          }

          std::vector<double> packed(rows.size() * columns, std::nan("")), row_by_row;
          for (LocalInt row : rows)
            for (LocalInt c = 0; c < columns; c++) row_by_row.push_back(y[row + c * n]);
          MUST(ArrayCopy(y_there, y.data(), y.size() * sizeof(double), backend.where, PETSC_MEMTYPE_HOST));
          send(packed.data(), packed.size() * sizeof(double), &packed_there);
          MUST((on_device ? RowsInterleave_CUDA : RowsInterleave_Host)((LocalInt)rows.size(), (const LocalInt *)rows_there, columns,
                                                                       (const PetscScalar *)y_there, n,
                                                                       (PetscScalar *)packed_there));
          MUST(ArrayCopy(packed.data(), packed_there, packed.size() * sizeof(double), PETSC_MEMTYPE_HOST, backend.where));
          CHECK(SameBits(packed, row_by_row));

          std::vector<LocalInt> places; /* of W's values, and of the same values once more behind them */
          for (LocalInt k = 0; k < G.nnz; k++) places.push_back((k * 7) % (2 * G.nnz));
          const size_t bytes = FinePCPrecisionBytes(precision);
          send(places.data(), places.size() * sizeof(LocalInt), &index);
          MUST(ArrayCreate(places.size() * bytes, backend.where, &to));
          MUST((on_device ? HaloPick_CUDA : HaloPick_Host)(precision, (LocalInt)places.size(), (const LocalInt *)index, G.nnz, G.a,
                                                           G.a, to));
          std::vector<char> picked(places.size() * bytes);
          MUST(ArrayCopy(picked.data(), to, picked.size(), PETSC_MEMTYPE_HOST, backend.where));
          for (size_t k = 0; k < places.size(); k++) {
            const double value =
              precision == FINEPC_SINGLE ? ((const float *)picked.data())[k] : ((const double *)picked.data())[k];
            CHECK(value == W.a[places[k] % G.nnz]);
          }
          MUST(CSRDestroy(&G));
          for (void **there : {&d_there, &x_there, &y_there, &rows_there, &index, &to, &packed_there})
            MUST(ArrayDestroy(backend.where, there));
        }
}

/* ---------------------------------- twins: the plan and its lists ----------------------------- */

namespace
{

/* Numbers in memory of either kind, as long as this object lives. */
template <typename T>
class There {
public:
  There(const std::vector<T> &numbers, PetscMemType where) : where_(where)
  {
    MUST(ArrayCreate(numbers.size() * sizeof(T), where, (void **)&data_));
    MUST(ArrayCopy(data_, numbers.data(), numbers.size() * sizeof(T), where, PETSC_MEMTYPE_HOST));
  }
  There(const There &)            = delete;
  There &operator=(const There &) = delete;
  ~There() { MUST(ArrayDestroy(where_, (void **)&data_)); }
  T *data() const { return data_; }

private:
  PetscMemType where_;
  T           *data_ = nullptr;
};

/* What a twin has created, which is destroyed. */
template <typename T>
std::vector<T> Taken(T *array, size_t count, PetscMemType where)
{
  std::vector<T> numbers(count);
  MUST(ArrayCopy(numbers.data(), array, count * sizeof(T), PETSC_MEMTYPE_HOST, where));
  MUST(ArrayDestroy(where, (void **)&array));
  return numbers;
}

/* The rows begin .. end - 1 of a matrix as a rank has them. */
struct RankRows {
  HostMatrix             own, others;
  std::vector<GlobalInt> columns;

  RankRows(const HostMatrix &A, LocalInt begin, LocalInt end)
  {
    own.n = others.n  = end - begin;
    const auto is_own = [=](LocalInt column) { return column >= begin && column < end; };
    for (LocalInt k = A.i[begin]; k < A.i[end]; k++)
      if (!is_own(A.j[k])) columns.push_back(A.j[k]);
    SortUnique(&columns);
    for (LocalInt row = begin; row < end; row++) {
      for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
        HostMatrix &part = is_own(A.j[k]) ? own : others;
        part.j.push_back(is_own(A.j[k]) ? A.j[k] - begin
                                        : (LocalInt)(std::lower_bound(columns.begin(), columns.end(), A.j[k]) - columns.begin()));
        part.a.push_back(A.a[k]);
      }
      own.i.push_back(own.nnz());
      others.i.push_back(others.nnz());
    }
  }
};

CSRView ViewOf(const CSR &W)
{
  return CSRView{W.rows, W.nnz, W.i, W.j, (const PetscScalar *)W.a, W.where};
}

struct PlanTwins {
  decltype(&HaloFollow_Host)    follow;
  decltype(&HaloLengths_Host)   lengths;
  decltype(&HaloPlaces_Host)    places;
  decltype(&HaloColumns_Host)   columns;
  decltype(&HaloNumber_Host)    number;
  decltype(&HaloGhosts_Host)    ghosts;
  decltype(&HaloCompress_Host)  compress;
  decltype(&HaloTranspose_Host) transpose;
};

PlanTwins TwinsOf(PetscMemType where)
{
  if (PetscMemTypeDevice(where))
    return {HaloFollow_CUDA, HaloLengths_CUDA, HaloPlaces_CUDA,   HaloColumns_CUDA,
            HaloNumber_CUDA, HaloGhosts_CUDA,  HaloCompress_CUDA, HaloTranspose_CUDA};
  return {HaloFollow_Host, HaloLengths_Host, HaloPlaces_Host,   HaloColumns_Host,
          HaloNumber_Host, HaloGhosts_Host,  HaloCompress_Host, HaloTranspose_Host};
}

/* The rows that own couplings lead to, and the layers wanted from others, as they become when each coupling is followed in turn. */
void CheckFollow(const HostMatrix &A, const HaloRows &rows, const RankRows &rank, const std::vector<GlobalInt> &seeds,
                 const std::vector<GlobalInt> &depth, decltype(&HaloFollow_Host) follow)
{
  std::vector<LocalInt>  wanted(A.n, 0), onward, expected_onward;
  std::vector<GlobalInt> reached, expected;
  bool                   changed = true;
  for (size_t k = 0; k < seeds.size(); k++) wanted[seeds[k]] = (LocalInt)depth[k];
  while (changed) {
    changed = false;
    for (GlobalInt row = rows.begin; row < rows.end; row++)
      for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
        if (wanted[A.j[k]] < wanted[row] - 1) {
          wanted[A.j[k]] = wanted[row] - 1;
          changed        = true;
        }
  }
  for (GlobalInt row = rows.begin; row < rows.end; row++)
    if (wanted[row]) expected.push_back(row);
  for (GlobalInt column : rank.columns) expected_onward.push_back(wanted[column]);
  MUST(follow(&rows, (LocalInt)seeds.size(), seeds.data(), depth.data(), &reached, &onward));
  CHECK((reached == expected && onward == expected_onward));
}

/* All steps of a plan of the rank that has the rows begin .. end - 1, against what they are said to do, entry by entry. */
void CheckPlan(const HostMatrix &A, LocalInt begin, LocalInt end, PetscMemType where)
{
  const PlanTwins        twins = TwinsOf(where);
  const RankRows         rank(A, begin, end);
  const auto             length = [&](LocalInt row) { return A.i[row + 1] - A.i[row]; };
  CSR                    own    = Copied(rank.own, end - begin, FINEPC_DOUBLE, where);
  CSR                    others = Copied(rank.others, (LocalInt)rank.columns.size(), FINEPC_DOUBLE, where);
  const There<GlobalInt> columns(rank.columns, where);
  const LocalInt before = (LocalInt)(std::lower_bound(rank.columns.begin(), rank.columns.end(), begin) - rank.columns.begin());
  const HaloRows rows{ViewOf(own), ViewOf(others), begin, end, (LocalInt)rank.columns.size(), before, columns.data()};

  /* from every ninth own row others are reached, from some within more layers than from others */
  std::vector<GlobalInt> seeds, depth;
  for (LocalInt row = begin; row < end; row += 9) {
    seeds.push_back(row);
    depth.push_back(1 + row % 4);
  }
  CheckFollow(A, rows, rank, seeds, depth, twins.follow);
  if (!depth.empty())
    depth.back() = 100; /* where there is nothing left to follow for a long time, and then again from the others */
  CheckFollow(A, rows, rank, seeds, depth, twins.follow);

  /* every third own row is sent */
  std::vector<GlobalInt> asked, expected, numbers, names;
  std::vector<double>    values;
  LocalInt               total   = -1;
  LocalInt              *created = nullptr;
  for (LocalInt row = begin; row < end; row += 3) asked.push_back(row);
  for (GlobalInt row : asked) expected.push_back(length(row));
  MUST(twins.lengths(&rows, (LocalInt)asked.size(), asked.data(), &numbers));
  CHECK(numbers == expected);
  for (GlobalInt row : asked) {
    names.insert(names.end(), A.j.begin() + A.i[row], A.j.begin() + A.i[row + 1]);
    values.insert(values.end(), A.a.begin() + A.i[row], A.a.begin() + A.i[row + 1]);
  }
  MUST(twins.places(&rows, (LocalInt)asked.size(), asked.data(), &total, &created));
  GlobalInt *named_there = nullptr;
  MUST(ArrayCreate(names.size() * sizeof(GlobalInt), where, (void **)&named_there));
  MUST(twins.columns(&rows, total, created, named_there));
  CHECK(Taken(named_there, names.size(), where) == names);
  const std::vector<LocalInt> places = Taken(created, values.size(), where);
  CHECK(total == (LocalInt)values.size());
  for (size_t k = 0; k < values.size(); k++)
    CHECK(values[k] == (places[k] < rank.own.nnz() ? rank.own.a[places[k]] : rank.others.a[places[k] - rank.own.nnz()]));

  /* the rows before `begin` of even number, but for every tenth, are gathered */
  std::vector<GlobalInt> lengths, came_columns, sorted;
  for (LocalInt row = 0; row < begin; row += 2)
    if (row % 10) sorted.push_back(row);
  for (GlobalInt row : sorted) {
    lengths.push_back(length(row));
    came_columns.insert(came_columns.end(), A.j.begin() + A.i[row], A.j.begin() + A.i[row + 1]);
  }
  const auto find = [&](GlobalInt number) {
    const auto found = std::lower_bound(sorted.begin(), sorted.end(), number);
    return found != sorted.end() && *found == number ? (LocalInt)(found - sorted.begin()) : -1;
  };
  const LocalInt         first = (LocalInt)sorted.size(), nnz = (LocalInt)came_columns.size();
  const There<GlobalInt> rows_there(sorted, where), lengths_there(lengths, where), columns_there(came_columns, where);

  /* and get their numbers */
  const std::vector<GlobalInt> bounds = {begin / 4, begin / 3, begin / 2, begin};
  const There<GlobalInt>       bounds_there(bounds, where);
  const HaloGathered           gathered{first, nnz, rows_there.data(), lengths_there.data(), columns_there.data()};
  CSR                          foreign{}, ghosts{};
  LocalInt                    *kept   = nullptr;
  char                        *is_cut = nullptr;
  HostMatrix                   pattern;
  std::vector<LocalInt>        keep;
  std::vector<char>            cut;
  LocalInt                     place = 0;
  pattern.n                          = first;
  for (GlobalInt row : sorted) {
    cut.push_back(0);
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++, place++) {
      const LocalInt c = A.j[k], to = c >= begin && c < end ? first + c - begin : find(c);
      if (to < 0 && ((c >= bounds[0] && c < bounds[1]) || (c >= bounds[2] && c < bounds[3]))) cut.back() = 1;
      if (to < 0) continue;
      pattern.j.push_back(to);
      keep.push_back(place);
    }
    pattern.i.push_back(pattern.nnz());
  }
  MUST(twins.number(&gathered, begin, end, 4, bounds_there.data(), &foreign, &kept, &is_cut));
  REQUIRE((foreign.rows == first && foreign.columns == first + end - begin && foreign.nnz == pattern.nnz()));
  CHECK(Taken(kept, keep.size(), where) == keep);
  CHECK(Taken(is_cut, cut.size(), where) == cut);
  const auto same = [&](const CSR &W, const HostMatrix &expects) {
    const HostMatrix host = OnHost(W);
    CHECK((host.i == expects.i && host.j == expects.j));
  };
  same(foreign, pattern);

  /* the own rows in their columns */
  HostMatrix own_pattern;
  keep.clear();
  own_pattern.n = end - begin;
  for (LocalInt row = 0; row < end - begin; row++) {
    for (LocalInt k = rank.others.i[row]; k < rank.others.i[row + 1]; k++) {
      if (find(rank.columns[rank.others.j[k]]) < 0) continue;
      own_pattern.j.push_back(find(rank.columns[rank.others.j[k]]));
      keep.push_back(k);
    }
    own_pattern.i.push_back(own_pattern.nnz());
  }
  kept = nullptr;
  MUST(twins.ghosts(&rows, first, rows_there.data(), &ghosts, &kept));
  REQUIRE((ghosts.rows == end - begin && ghosts.columns == first && ghosts.nnz == own_pattern.nnz()));
  CHECK(Taken(kept, keep.size(), where) == keep);
  same(ghosts, own_pattern);

  /* these as the foreign part of a factor, without the columns that have no entries, and its entries by columns */
  const There<char>      cut_there(cut, where);
  HaloEntries            entries;
  std::vector<LocalInt>  used, touched;
  std::vector<GlobalInt> named;
  LocalInt               limited = 0;
  for (LocalInt c = 0; c < first; c++) {
    bool any = false;
    for (LocalInt row = 0; row < own_pattern.n; row++)
      for (LocalInt k = own_pattern.i[row]; k < own_pattern.i[row + 1]; k++) {
        if (own_pattern.j[k] != c) continue;
        any = true;
        named.push_back(sorted[c]);
        named.push_back(begin + row);
      }
    if (any) used.push_back(c);
  }
  for (LocalInt row = 0; row < own_pattern.n; row++) {
    bool any = false;
    for (LocalInt k = own_pattern.i[row]; k < own_pattern.i[row + 1]; k++) any = any || cut[own_pattern.j[k]];
    limited += any;
    if (own_pattern.i[row] < own_pattern.i[row + 1]) touched.push_back(row);
  }
  if (ghosts.nnz) {
    MUST(twins.compress(&ghosts, rows_there.data(), begin, cut_there.data(), &entries));
    CHECK((entries.columns == used && entries.numbers == named && entries.limited == limited));
    CHECK(Taken(entries.rows, entries.touched, where) == touched);
    const std::vector<LocalInt> order      = Taken(entries.order, own_pattern.nnz(), where);
    const HostMatrix            new_ghosts = OnHost(ghosts);
    REQUIRE(ghosts.columns == (LocalInt)used.size());
    for (LocalInt k = 0; k < own_pattern.nnz(); k++) {
      CHECK(used[new_ghosts.j[k]] == own_pattern.j[k]);
      CHECK(sorted[own_pattern.j[order[k]]] == named[2 * k]);
    }

    /* which a rank with the rows 0 .. begin - 1 gets, the later ones first */
    std::vector<GlobalInt> later;
    HaloTransposed         transposed;
    CSR                    W{};
    for (size_t k = named.size() / 2; k-- > 0;) later.insert(later.end(), {named[2 * k], (GlobalInt)(named.size() / 2 - k)});
    MUST(twins.transpose(begin, 0, (LocalInt)later.size() / 2, later.data(), FINEPC_SINGLE, &W, &transposed));
    const HostMatrix            of_rows = OnHost(W);
    const std::vector<LocalInt> came_at = Taken(transposed.place, W.nnz, where);
    std::vector<LocalInt>       with_entries;
    REQUIRE((W.rows == begin && W.nnz == (LocalInt)later.size() / 2 && W.columns == (LocalInt)transposed.columns.size()));
    CHECK((W.columns == W.nnz && std::is_sorted(transposed.columns.begin(), transposed.columns.end())));
    for (LocalInt row = 0; row < begin; row++) {
      if (of_rows.i[row] < of_rows.i[row + 1]) with_entries.push_back(row);
      for (LocalInt k = of_rows.i[row]; k < of_rows.i[row + 1]; k++) {
        CHECK((k == of_rows.i[row] || of_rows.j[k] > of_rows.j[k - 1]));
        CHECK((later[2 * came_at[k]] == row && later[2 * came_at[k] + 1] == transposed.columns[of_rows.j[k]]));
      }
    }
    CHECK(Taken(transposed.rows, transposed.touched, where) == with_entries);
    MUST(CSRDestroy(&W));
  }
  for (CSR *W : {&own, &others, &foreign, &ghosts}) MUST(CSRDestroy(W));
}

} // namespace

TEST_CASE("the plan to gather rows, and the lists of a factor's entries on other ranks", "[halo][plan][sanitizer]")
{
  for (const Backend &backend : Backends())
    for (LocalInt n : {5, 40, 150})
      for (LocalInt row_length : {1, 6, 20}) {
        const HostMatrix A = RandomGraph(n, row_length, n + row_length);
        for (const auto &[begin, end] : {std::pair{0, n / 2}, {n / 3, 2 * n / 3}, {n / 2, n}, {n / 2, n / 2}, {n - 1, n}}) {
          CAPTURE(backend.name, n, row_length, begin, end);
          CheckPlan(A, begin, end, backend.where);
        }
      }
}

TEST_CASE("the plan to gather rows of a large matrix",
          "[halo][plan][gpu]") /* more than one block, and more than one of CUB's tiles */
{
  NEEDS_DEVICE();
  CheckPlan(RandomGraph(4000, 9, 3), 1500, 3000, PETSC_MEMTYPE_CUDA);
}

/* ----------------------------------------- on a stream ---------------------------------------- */

TEST_CASE("an exchange beside a stream that others do not wait for is refused", "[halo][fsai][pc][gpu][mpi]")
{
  NEEDS_DEVICE();
  for (const Type &type : FSAITypes()) {
    CAPTURE(type.name);
    const MatObject           A        = Spread(RandomStencil(12, 12, 12, false, 3), DeviceBackend().mat, Even);
    const PCObject            pc       = MakePC(A, type, kAll);
    const std::vector<double> expected = Applied(pc);
    const VecObject           x = RightVec(A, 11), y = RightVec(A);
    {
      const OtherStream scope;
      Errors            errors;
      CHECK((int)PCApply(pc, x, y) == (Ranks() > 1 ? PETSC_ERR_SUP : PETSC_SUCCESS));
      CHECK(Contains(errors.text, "PETSC_STREAM_DEFAULT") == (Ranks() > 1));
    }
    CHECK(SameBits(Applied(pc), expected));
  }
}

TEST_CASE("cgfused with a factor that reaches other ranks has the iterates of CG", "[halo][fsai][cgfused][mpi]")
{
  ForEachBackend(FSAITypes(), [&](const Type &type, const Backend &backend) {
    const std::string options = "-ksp_rtol 1e-8 -ksp_norm_type unpreconditioned -@overlap 1 -@setup_precision double "
                                "-@factor_precision double ";
    const MatObject   A       = Spread(RandomStencil(12, 12, 12, false, 3), backend.mat, Even);
    const KSPObject   cg = MakeKSP(A, type, options), fused = MakeKSP(A, type, options + "-ksp_type cgfused");
    const Solution    theirs = Solve(cg), mine = Solve(fused);
    CHECK(mine.reason == theirs.reason);
    CHECK(std::abs(mine.iterations - theirs.iterations) <= 1);
    CHECK(mine.true_residual < 1e-7);
  });
}

/* Numbers of rows, as large as PetscInt has them. */
TEST_CASE("halo: numbers in the matrix keep all their bits on their way", "[halo][indices][mpi]")
{
  const PetscInt        rows = sizeof(PetscInt) == 8 ? (PetscInt)3000000000LL : 300000000; /* of each rank */
  const PetscMPIInt     size = Ranks(), next = (Rank() + 1) % size;
  std::vector<PetscInt> ranges(1, 0);
  for (PetscMPIInt r = 0; r < size; r++) ranges.push_back(ranges.back() + rows);
  for (PetscMPIInt r = 0; r < size; r++)
    for (PetscInt row : {ranges[r], ranges[r] + rows / 2, ranges[r + 1] - 1}) CHECK(HaloOwner(size, ranges.data(), row) == r);

  MPI_Comm comm;
  MUST(PetscCommDuplicate(PETSC_COMM_WORLD, &comm, nullptr));
  PCLocalOutcome                 outcome;
  PCLocalPhase                   phase{comm, &outcome, false};
  const std::vector<HaloList>    send = {{next, {ranges[next], ranges[next + 1] - 1, ranges[next] + Rank()}}};
  std::vector<HaloList>          received;
  const PetscMPIInt              before  = (Rank() + size - 1) % size;
  const std::vector<PetscMPIInt> senders = {before};
  for (const std::vector<PetscMPIInt> *known : {(const std::vector<PetscMPIInt> *)nullptr, &senders}) {
    MUST(HaloSendLists(&phase, PETSC_SUCCESS, HaloSize{PCAFSAI, 0, 0}, known, send, &received));
    REQUIRE(received.size() == 1);
    CHECK(received[0].rank == before);
    CHECK(received[0].numbers == std::vector<PetscInt>{ranges[Rank()], ranges[Rank() + 1] - 1, ranges[Rank()] + before});
  }
  MUST(PetscCommDestroy(&comm));
}
