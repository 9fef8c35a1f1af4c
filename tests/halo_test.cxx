/*
   A factor that reaches other ranks: with enough hops and layers it is that of one rank, whatever the layout of the rows, and it is
   applied, refilled, viewed and reset as any other. Tag [mpi] has these cases run on 2 and more ranks.
*/
#include <petsc/private/petscimpl.h>
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

  if (Ranks() > 1) MUST(MatCreateRedundantMatrix(A, Ranks(), PETSC_COMM_SELF, MAT_INITIAL_MATRIX, copy.put()));
  const Mat whole = Ranks() > 1 ? (Mat)copy : A;
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

HostMatrix Factor(PC pc, const Type &type, bool transpose = false)
{
  MatObject G;
  MUST(PCSetUp(pc));
  MUST(type.get_factors(pc, transpose ? nullptr : G.put(), transpose ? G.put() : nullptr));
  return Gathered(G);
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
      MatObject       G;
      MUST(PCSetUp(one));
      MUST(type.get_factors(one, G.put(), nullptr));
      HostMatrix      expected;
      const PetscInt *columns;
      for (PetscInt row = 0, length; row < A.n; row++) {
        const PetscScalar *values;
        MUST(MatGetRow(G, row, &length, &columns, &values));
        expected.j.insert(expected.j.end(), columns, columns + length);
        expected.a.insert(expected.a.end(), values, values + length);
        MUST(MatRestoreRow(G, row, &length, &columns, &values));
        expected.i.push_back((PetscInt)expected.j.size());
      }
      expected.n = A.n;
      CheckSameFactor(Factor(several, type), expected, tolerance);

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
