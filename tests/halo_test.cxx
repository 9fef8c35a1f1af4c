/*
   A factor that reaches other ranks: with enough hops and layers it is that of one rank, whatever the layout of the rows, and it is
   applied, refilled, viewed and reset as any other. Tag [mpi] has these cases run on 2 and more ranks.
*/
#include <petsc/private/pcimpl.h>
#include <petscdmda.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "pc/fsai_face.h"
#include "pc_support.h"

namespace
{

const char *const kAll = "-@overlap 1000 -@halo_layers 10000 ";

std::vector<Type> FSAITypes()
{
  return {TypeOf(PCAFSAI), TypeOf(PCSFSAI)};
}

int Ranks()
{
  int size;
  MPI_Comm_size(PETSC_COMM_WORLD, &size);
  return size;
}

int Rank()
{
  int rank;
  MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
  return rank;
}

/* How many of n rows each rank has. */
using Share = std::function<PetscInt(PetscInt n, int rank, int size)>;

struct Layout {
  const char *name;
  Share       share;
};

PetscInt Even(PetscInt n, int rank, int size)
{
  return n / size + (rank < n % size);
}

const std::vector<Layout> &Layouts()
{
  static const std::vector<Layout> layouts = {
    {"even", Even},
    {"last rank alone has most rows",
     [](PetscInt n, int rank, int size) {
       const PetscInt few = std::min<PetscInt>(3, n / size);
       return rank < size - 1 ? few : n - few * (size - 1);
     }},
    {"first rank has none", [](PetscInt n, int rank, int size) { return size == 1 ? n
                                                                        : rank    ? Even(n, rank - 1, size - 1)
                                                                                  : 0; }},
    {"last rank has none",
     [](PetscInt n, int rank, int size) { return size == 1         ? n
                                                 : rank < size - 1 ? Even(n, rank, size - 1)
                                                                   : 0; }},
    {"one rank has all", [](PetscInt n, int rank, int size) { return rank == size / 2 ? n : 0; }},
  };
  return layouts;
}

MatObject Spread(const HostMatrix &A, MatType type, const Share &share)
{
  MatObject             mat;
  PetscInt              begin, end;
  std::vector<PetscInt> i;

  const PetscInt rows = share(A.n, Rank(), Ranks());
  MUST(MatCreate(PETSC_COMM_WORLD, mat.put()));
  MUST(MatSetSizes(mat, rows, rows, A.n, A.n));
  MUST(MatSetType(mat, type));
  MUST(MatSetUp(mat));
  MUST(MatGetOwnershipRange(mat, &begin, &end));
  for (PetscInt row = begin; row <= end; row++) i.push_back(A.i[row] - A.i[begin]);
  MUST(MatSeqAIJSetPreallocationCSR(mat, i.data(), A.j.data() + A.i[begin], A.a.data() + A.i[begin]));
  MUST(MatMPIAIJSetPreallocationCSR(mat, i.data(), A.j.data() + A.i[begin], A.a.data() + A.i[begin]));
  return mat;
}

/* All rows of a matrix on every rank. */
HostMatrix Gathered(Mat A)
{
  MatObject          copy;
  HostMatrix         result;
  PetscInt           rows, length;
  const PetscInt    *columns;
  const PetscScalar *values;

  PetscMPIInt size;
  MPI_Comm_size(PetscObjectComm((PetscObject)A), &size);
  if (size > 1) MUST(MatCreateRedundantMatrix(A, size, PETSC_COMM_SELF, MAT_INITIAL_MATRIX, copy.put()));
  const Mat whole = size > 1 ? (Mat)copy : A;
  MUST(MatGetSize(whole, &rows, nullptr));
  result.n = rows;
  for (PetscInt row = 0; row < rows; row++) {
    MUST(MatGetRow(whole, row, &length, &columns, &values));
    result.j.insert(result.j.end(), columns, columns + length);
    result.a.insert(result.a.end(), values, values + length);
    MUST(MatRestoreRow(whole, row, &length, &columns, &values));
    result.i.push_back((PetscInt)result.j.size());
  }
  return result;
}

HostMatrix Factor(PC pc, const Type &type)
{
  MatObject G;
  MUST(PCSetUp(pc));
  MUST(type.get_factors(pc, G.put(), nullptr));
  return Gathered(G);
}

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
    const double off = std::fabs(mine[k] - expected[k]);
    worst[0]         = off <= worst[0] ? worst[0] : std::isnan(off) ? 1e300 : off;
    worst[1]         = std::max(worst[1], std::fabs(expected[k]));
  }
  MPI_Allreduce(MPI_IN_PLACE, worst, 2, MPI_DOUBLE, MPI_MAX, PETSC_COMM_WORLD);
  return worst[0] / worst[1];
}

void CheckSameFactor(const HostMatrix &mine, const HostMatrix &expected, double tolerance)
{
  REQUIRE(mine.n == expected.n);
  CHECK(mine.i == expected.i);
  CHECK(mine.j == expected.j);
  if (mine.j != expected.j) return;
  double worst = 0, largest = 1e-300;
  for (size_t k = 0; k < mine.a.size(); k++) {
    const double off = std::fabs(mine.a[k] - expected.a[k]);
    worst            = off <= worst ? worst : off;
    largest          = std::max(largest, std::fabs(expected.a[k]));
  }
  CHECK(worst <= tolerance * largest);
}

/* Between a factor of one rank and one of several. The same loops run on the host; lanes of other rows add in other orders. */
double Tolerance(const Backend &backend, const std::string &options)
{
  if (!PetscMemTypeDevice(backend.where)) return 1e-14;
  return Contains(options, "setup_precision double") ? 1e-10 : 1e-4;
}

std::vector<std::string> Variants(const Type &type)
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

TEST_CASE("with enough hops and layers the factor of several ranks is that of one", "[halo][fsai][pc][mpi]")
{
  for (const Layout &layout : Layouts()) {
    CheckSequential(HostBackend(), RandomStencil(5, 4, 6, false, 3), layout);
    CheckSequential(HostBackend(), RandomGraph(90, 7, 4), layout);
  }
  CheckSequential(HostBackend(), RandomStencil(6, 6, 5, true, 5), Layouts()[0]);
}

TEST_CASE("the same on GPUs", "[halo][fsai][pc][gpu][mpi][sanitizer]")
{
  NEEDS_DEVICE();
  for (const Layout &layout : Layouts()) CheckSequential(DeviceBackend(), RandomStencil(5, 4, 6, false, 3), layout);
  CheckSequential(DeviceBackend(), RandomGraph(90, 7, 4), Layouts()[0]);
}

TEST_CASE("a pattern that is given may reach other ranks", "[halo][sfsai][pc][mpi]")
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
      const MatObject S_new_alone = CreateMat(A, backend.mat), S_new = Spread(A, backend.mat, layout.share);
      MUST(PCSFSAISetPattern(one, S_new_alone));
      MUST(PCSFSAISetPattern(several, S_new));
      const std::vector<double> z_new = Applied(one), y_new = Applied(several);
      CHECK(Apart(y_new, Own(z_new, all)) <= 10 * Tolerance(backend, ""));
    }
}

TEST_CASE("couplings of rows that were made rows of the identity, across ranks", "[halo][fsai][pc][mpi]")
{
  HostMatrix A = RandomStencil(6, 5, 5, false, 8);
  for (PetscInt row : {3, 37, 74, 75, 76, 110, 149})
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) A.a[k] = A.j[k] == row;
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends()) {
      CAPTURE(type.name, backend.name);
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
    }
}

/* ------------------------------------------ limits -------------------------------------------- */

TEST_CASE("without hops the factor is that of PCBJACOBI with a sequential one", "[halo][fsai][pc][mpi]")
{
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends()) {
      CAPTURE(type.name, backend.name);
      const HostMatrix A   = RandomStencil(6, 6, 6, false, 4);
      const MatObject  all = Spread(A, backend.mat, Even);
      const PCObject   own = MakePC(all, type, "-@overlap 0");
      const Options    options(std::string("-sub_pc_type ") + type.name);
      const PCObject   blocks = MakePC(all, "", PCBJACOBI);
      CHECK(SameBits(Applied(own), Applied(blocks)));
    }
}

TEST_CASE("more layers and hops only add to the rows that are gathered", "[halo][fsai][pc][mpi]")
{
  const HostMatrix A = RandomStencil(5, 5, 24, false, 9);
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends()) {
      const MatObject       all = Spread(A, backend.mat, Even);
      std::vector<PetscInt> before;
      PetscInt              limited_before = PETSC_INT_MAX;
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
        if (Contains(options, "overlap 1 ") && Rank()) CHECK((PetscInt)rows.size() == 25 * (Contains(options, "layers 1") ? 1 : 2));
        if (Contains(options, "10000")) CHECK((fsai->limited == 0 && (PetscInt)rows.size() == fsai->halo.begin));
        CHECK(ErrorOfDiagonal(pc, type) <= 1e-6);
        before         = rows;
        limited_before = fsai->limited;
      }
    }
}

/* ---------------------------------------- life of a PC ---------------------------------------- */

TEST_CASE("new values on the same nonzeros: only values travel, and the factor is that of a new PC", "[halo][fsai][pc][mpi]")
{
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends())
      for (const char *reuse : {"0", "1"})
        for (const Layout &layout : Layouts()) {
          CAPTURE(type.name, backend.name, reuse, layout.name);
          const std::string options = std::string(kAll) + "-@reuse_pattern " + reuse;
          const HostBlocks  good = Blocks(RandomStencil(5, 4, 6, false, 3)), changed = Changed(good, 4);
          const MatObject   A     = Spread(RandomStencil(5, 4, 6, false, 3), backend.mat, layout.share);
          const PCObject    pc    = MakePC(A, type, options);
          const auto        first = Applied(pc);
          const PC_FSAI    *fsai  = DataOf(pc);
          const PetscInt   *plan = fsai->halo.send, *pattern = fsai->inverse.ghosts1.W.j;
          const PetscSF     exchange = fsai->inverse.ghosts1.exchange;
          SetValues(A, changed);
          MUST(PCSetUp(pc));
          CHECK(fsai->halo.send == plan);
          if (*reuse == '1') CHECK((fsai->inverse.ghosts1.W.j == pattern && fsai->inverse.ghosts1.exchange == exchange));
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

TEST_CASE("several vectors at once and one after the other, across ranks", "[halo][fsai][pc][mpi]")
{
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends())
      for (PetscInt columns : {1, 2, 4, 5, 9})
        for (const Layout &layout : Layouts()) {
          CAPTURE(type.name, backend.name, columns, layout.name);
          const MatObject A  = Spread(RandomGraph(90, 7, 4), backend.mat, layout.share);
          const PCObject  pc = MakePC(A, type, kAll);
          MatObject       X, Y;
          PetscInt        rows;
          MUST(PCSetUp(pc));
          MUST(MatGetLocalSize(A, &rows, nullptr));
          MUST(MatCreate(PETSC_COMM_WORLD, X.put()));
          MUST(MatSetSizes(X, rows, PETSC_DECIDE, PETSC_DETERMINE, columns));
          MUST(MatSetType(X, backend.dense));
          MUST(MatSetUp(X));
          for (PetscInt c = 0; c < columns; c++) {
            Vec x;
            MUST(MatDenseGetColumnVecWrite(X, c, &x));
            MUST(VecCopy(RightVec(A, 3 + c), x));
            MUST(MatDenseRestoreColumnVecWrite(X, c, &x));
          }
          MUST(MatAssemblyBegin(X, MAT_FINAL_ASSEMBLY));
          MUST(MatAssemblyEnd(X, MAT_FINAL_ASSEMBLY));
          MUST(MatDuplicate(X, MAT_DO_NOT_COPY_VALUES, Y.put()));
          MUST(PCMatApply(pc, X, Y));
          for (PetscInt c = 0; c < columns; c++) {
            VecObject y;
            Vec       y_c;
            MUST(MatCreateVecs(A, nullptr, y.put()));
            MUST(PCApply(pc, RightVec(A, 3 + c), y));
            MUST(MatDenseGetColumnVecRead(Y, c, &y_c));
            CHECK(Apart(Values(y_c), Values(y)) <= 1e-14);
            MUST(MatDenseRestoreColumnVecRead(Y, c, &y_c));
          }
        }
}

TEST_CASE("a row that is bad is named by its number in the matrix, on all ranks", "[halo][fsai][pc][mpi]")
{
  const double nan = std::nan("");
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends())
      for (PetscInt bad : {0, 29, 44, 45, 67, 89}) {
        CAPTURE(type.name, backend.name, bad);
        HostMatrix A = RandomGraph(90, 7, 4), spoiled = A;
        for (PetscInt k = A.i[bad]; k < A.i[bad + 1]; k++)
          if (A.j[k] == bad) spoiled.a[k] = bad % 2 ? nan : -1;
        const MatObject mat = Spread(spoiled, backend.mat, Even);
        const PCObject  pc  = MakePC(mat, type, kAll);
        PCFailedReason  reason;
        MUST(PCSetUp(pc));
        MUST(PCGetFailedReason(pc, &reason));
        CHECK(reason != PC_NOERROR);
        const std::string text = DataOf(pc)->failure;
        CAPTURE(text);
        CHECK(Contains(text, "Row " + std::to_string(bad) + " has "));
        CHECK(Infinite(Applied(pc)));
        SetValues(mat, Blocks(A)); /* and all is well again */
        const MatObject good = Spread(A, backend.mat, Even);
        CHECK(SameBits(Applied(pc), Applied(MakePC(good, type, kAll))));
      }
}

TEST_CASE("matrices whose rows cannot be gathered are refused with a remedy", "[halo][fsai][pc][mpi]")
{
  if (Ranks() == 1) return;
  for (const Type &type : FSAITypes()) {
    const MatObject A  = TypeOf(PCBISAI).kinds()[0].Create(Grid(), PETSC_COMM_WORLD);
    const PCObject  pc = MakePC(A, type, "-@overlap 1");
    Errors          errors;
    CHECK(PCSetUp(pc) == PETSC_ERR_SUP);
    CAPTURE(errors.text);
    if (!Rank()) CHECK(Contains(errors.text, std::string("-pc_") + type.name + "_overlap 0"));
  }
}

/* ----------------------------------------- convergence ---------------------------------------- */

/* Iterations of CG to a residual of 1e-8 for b = A 1. */
static PetscInt Iterations(Mat A, const Type &type, const std::string &options)
{
  KSPObject          ksp = MakeKSP(A, type, "-ksp_rtol 1e-8 -ksp_max_it 5000 -ksp_norm_type unpreconditioned " + options);
  VecObject          x, b, one;
  KSPConvergedReason reason;
  PetscInt           iterations;
  MUST(MatCreateVecs(A, x.put(), b.put()));
  MUST(VecDuplicate(x, one.put()));
  MUST(VecSet(one, 1));
  MUST(MatMult(A, one, b));
  MUST(KSPSolve(ksp, b, x));
  MUST(KSPGetConvergedReason(ksp, &reason));
  CHECK(reason > 0);
  MUST(KSPGetIterationNumber(ksp, &iterations));
  return iterations;
}

TEST_CASE("one hop and the default layers take about the iterations of one rank", "[halo][fsai][pc][mpi][long]")
{
  const std::pair<const char *, HostMatrix> systems[] = {{"Poisson, slabs", Poisson(24, 24, 24)},
                                                         {"bcsstk16", Shared("bcsstk16")},
                                                         {"s3rmt3m3", Shared("s3rmt3m3")}};
  for (const Type &type : FSAITypes())
    for (const auto &system : systems) {
      const MatObject alone = CreateMat(system.second, MATAIJ), all = Spread(system.second, MATAIJ, Even);
      const PetscInt  one = Iterations(alone, type, "");
      for (int hops : {1, 2}) {
        const PetscInt several = Iterations(all, type, "-@overlap " + std::to_string(hops));
        CAPTURE(type.name, system.first, hops, one, several);
        CHECK(several <= PetscMax(one + 2, (PetscInt)(one * (hops == 1 ? 1.03 : 1.01))));
      }
    }
}

TEST_CASE("what the view says about a factor that reaches other ranks", "[halo][fsai][pc][view][mpi]")
{
  for (const Type &type : FSAITypes())
    for (const Backend &backend : Backends()) {
      const MatObject A  = Spread(RandomStencil(5, 5, 24, false, 9), backend.mat, Even);
      const PCObject  pc = MakePC(A, type, "-@overlap 1 -@halo_layers 2");
      CAPTURE(type.name, backend.name);
      for (bool set_up : {false, true}) {
        if (set_up) MUST(PCSetUp(pc));
        const std::string text = ViewText((PC)pc);
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
      CHECK(gathered == 50 * (Ranks() - 1)); /* two planes of each rank's lower neighbour */
      CHECK(nnz[1] == back);
      const std::string text = ViewText((PC)pc);
      CAPTURE(text);
      if (Rank() || Ranks() == 1) continue;
      CHECK(Contains(text, std::to_string(gathered) + " in all"));
      CHECK(Contains(text, std::to_string(nnz[1]) + " of its nonzeros are in columns of other ranks"));
      PetscReal      density;
      PetscLogDouble bytes;
      MUST(PCFinePCGetDensity(pc, &density));
      MUST(PCFinePCGetApplyBytes(pc, &bytes));
      CHECK((density > 0.3 && bytes > 0));
    }
}
