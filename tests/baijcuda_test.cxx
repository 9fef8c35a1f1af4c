/*
   MATBAIJCUDA beside MATBAIJ: the same products to rounding, with vectors of the host and of the device, whatever was done to both
   before. What is inherited is tried where it depends on the type's name or on the operations that are replaced.
*/
#include <finepc.h>
#include <petscdmda.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "pc_support.h"
#include "spread.h"

namespace
{

using DMObject = Object<DM, DMDestroy>;
using ISObject = Object<IS, ISDestroy>;

const MPI_Comm &World()
{
  return PETSC_COMM_WORLD;
}

bool OneRank()
{
  return Ranks() == 1;
}

bool HasType(Mat A, MatType type)
{
  PetscBool same;
  MUST(PetscObjectTypeCompare((PetscObject)A, type, &same));
  return same;
}

bool IsBAIJCUDA(Mat A)
{
  return HasType(A, OneRank() ? MATSEQBAIJCUDA : MATMPIBAIJCUDA);
}

/* A number of -1 .. 1 that belongs to a place. */
double Entry(PetscInt row, PetscInt column, PetscInt seed = 0)
{
  Random random((std::uint64_t)row * 1000003 + column * 97 + seed * 7919);
  (void)random.Next();
  return random.Between(-1, 1);
}

/* Block (row, column) of the pattern: neighbours, and here and there one far away. */
bool Coupled(PetscInt n, PetscInt row, PetscInt column)
{
  return std::abs(row - column) <= 1 || (row * 7 + column * 3) % n == 1;
}

enum class Allocation { enough, none };

/* n block rows, the same whatever the type and the number of ranks; diagonally dominant. */
MatObject BlockMatrix(MatType type, PetscInt bs, PetscInt n, Allocation allocation = Allocation::enough, PetscInt seed = 0)
{
  MatObject           A;
  PetscInt            begin, end;
  std::vector<double> block(bs * bs);
  MUST(MatCreate(World(), A.put()));
  MUST(MatSetSizes(A, PETSC_DECIDE, PETSC_DECIDE, n * bs, n * bs));
  MUST(MatSetBlockSize(A, bs));
  MUST(MatSetType(A, type));
  if (allocation == Allocation::enough) {
    PetscLayout layout;
    PetscInt    rows;
    MUST(MatGetLayouts(A, &layout, nullptr));
    MUST(PetscLayoutSetUp(layout));
    MUST(MatGetLocalSize(A, &rows, nullptr));
    const std::vector<PetscInt> here(rows / bs, rows / bs), elsewhere(rows / bs, n); /* more than is needed */
    MUST(MatXAIJSetPreallocation(A, bs, here.data(), elsewhere.data(), nullptr, nullptr));
  }
  MUST(MatSetUp(A));
  MUST(MatGetOwnershipRange(A, &begin, &end));
  for (PetscInt row = begin / bs; row < end / bs; row++)
    for (PetscInt column = 0; column < n; column++) {
      if (!Coupled(n, row, column)) continue;
      for (PetscInt p = 0; p < bs; p++)
        for (PetscInt q = 0; q < bs; q++)
          block[p * bs + q] = Entry(row * bs + p, column * bs + q, seed) + (row == column && p == q ? 8 * bs : 0);
      MUST(MatSetValuesBlocked(A, 1, &row, 1, &column, block.data(), INSERT_VALUES));
    }
  Assemble(A);
  return A;
}

/* Fits the columns of A, or with `left` its rows. */
VecObject VecFor(Mat A, VecType type, PetscInt seed, bool left = false)
{
  VecObject    x;
  PetscInt     rows, columns, begin, end;
  PetscScalar *array;
  MUST(MatGetLocalSize(A, &rows, &columns));
  MUST(VecCreate(PetscObjectComm((PetscObject)A), x.put()));
  MUST(VecSetSizes(x, left ? rows : columns, PETSC_DETERMINE));
  MUST(VecSetType(x, type));
  MUST(VecGetOwnershipRange(x, &begin, &end));
  MUST(VecGetArrayWrite(x, &array));
  for (PetscInt k = begin; k < end; k++) array[k - begin] = Entry(k, 3, seed);
  MUST(VecRestoreArrayWrite(x, &array));
  return x;
}

/* Of x and of y: both kinds, and mixtures */
struct VecTypes {
  VecType x, y;
};
std::vector<VecTypes> AllVecTypes()
{
  std::vector<VecTypes> types = {{VECSTANDARD, VECSTANDARD}};
  if (DeviceFound()) types.insert(types.end(), {{VECCUDA, VECCUDA}, {VECCUDA, VECSTANDARD}, {VECSTANDARD, VECCUDA}});
  return types;
}

void CheckClose(Vec y, Vec expected)
{
  const auto mine = Values(y), theirs = Values(expected);
  REQUIRE(mine.size() == theirs.size());
  if (!theirs.empty()) CHECK(Difference(mine, theirs) <= 1e-14);
}

/* All products of A are those of B. */
void CheckProducts(Mat A, Mat B)
{
  for (const VecTypes &types : AllVecTypes())
    for (int kind = 0; kind < 6; kind++) {
      const bool      transpose = kind >= 3;
      const VecObject x = VecFor(A, types.x, 1, transpose), z = VecFor(A, types.y, 2, !transpose),
                      y      = VecFor(A, types.y, 3, !transpose);
      const VecObject x_host = VecFor(A, VECSTANDARD, 1, transpose), z_host = VecFor(A, VECSTANDARD, 2, !transpose),
                      y_host = VecFor(A, VECSTANDARD, 3, !transpose);
      CAPTURE(types.x, types.y, kind);
      const auto multiply = [kind](Mat M, Vec from, Vec more, Vec to) {
        switch (kind) {
        case 0: return MatMult(M, from, to);
        case 1: return MatMultAdd(M, from, more, to);
        case 2: return MatMultAdd(M, from, to, to);
        case 3: return MatMultTranspose(M, from, to);
        case 4: return MatMultTransposeAdd(M, from, more, to);
        default: return MatMultTransposeAdd(M, from, to, to);
        }
      };
      MUST(multiply(A, x, z, y));
      MUST(multiply(B, x_host, z_host, y_host));
      CheckClose(y, y_host);
    }
}

struct Pair {
  MatObject mine, theirs;
};

Pair MakePair(PetscInt bs, PetscInt n, Allocation allocation = Allocation::enough)
{
  return {BlockMatrix(MATBAIJCUDA, bs, n, allocation), BlockMatrix(MATBAIJ, bs, n, allocation)};
}

std::string MatText(Mat A, PetscViewerFormat format)
{
  char       *text   = nullptr;
  size_t      length = 0;
  FILE       *memory = open_memstream(&text, &length);
  PetscViewer viewer;
  MUST(PetscViewerASCIIOpenWithFILE(PetscObjectComm((PetscObject)A), memory, &viewer));
  MUST(PetscViewerPushFormat(viewer, format));
  MUST(MatView(A, viewer));
  MUST(PetscViewerDestroy(&viewer));
  std::fclose(memory);
  const std::string result(text, length);
  std::free(text);
  return result;
}

/* From zero, with the options around; what comes out of it is the same for both types. */
struct Solved {
  KSPConvergedReason  reason;
  PetscInt            iterations;
  std::vector<double> x;
};
Solved SolveWith(Mat A, const std::string &options)
{
  const Options   database(options);
  KSPObject       ksp;
  const VecObject b = VecFor(A, VECSTANDARD, 5, true), x = VecFor(A, VECSTANDARD, 6);
  MUST(KSPCreate(World(), ksp.put()));
  MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetTolerances(ksp, 1e-10, PETSC_CURRENT, PETSC_CURRENT, PETSC_CURRENT));
  MUST(KSPSetFromOptions(ksp));
  MUST(KSPSolve(ksp, b, x));
  return {ReasonOf(ksp), IterationsOf(ksp), Values(x)};
}

} // namespace

TEST_CASE("baijcuda multiplies as baij", "[baijcuda][mpi][two][four]")
{
  for (PetscInt bs : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17})
    for (PetscInt n : {1, 5, 40})
      for (Allocation allocation : {Allocation::enough, Allocation::none}) {
        CAPTURE(bs, n, (int)allocation);
        const Pair pair = MakePair(bs, n, allocation);
        CHECK(IsBAIJCUDA(pair.mine));
        CheckProducts(pair.mine, pair.theirs);
      }
}

TEST_CASE("baijcuda notices values that have changed", "[baijcuda][mpi]")
{
  struct Change {
    const char                *name;
    std::function<void(Mat A)> act;
  };
  const PetscInt            bs = 3, n = 30;
  const std::vector<Change> changes = {
    {"set values",
     [&](Mat A) {
       PetscInt begin, end;
       MUST(MatGetOwnershipRange(A, &begin, &end));
       for (PetscInt row = begin; row < end; row++) MUST(MatSetValue(A, row, row, 50 + row, INSERT_VALUES));
       Assemble(A);
     }},
    {"add blocks",
     [&](Mat A) {
       const std::vector<double> block(bs * bs, 0.25);
       PetscInt                  begin, end;
       MUST(MatGetOwnershipRange(A, &begin, &end));
       for (PetscInt row = begin / bs; row < end / bs; row++) {
         const PetscInt column = (row + 1) % n; /* on the next rank for some */
         MUST(MatSetValuesBlocked(A, 1, &column, 1, &column, block.data(), ADD_VALUES));
       }
       Assemble(A);
     }},
    {"scale", [](Mat A) { MUST(MatScale(A, -2)); }},
    {"shift", [](Mat A) { MUST(MatShift(A, 3)); }},
    {"scale rows", [](Mat A) { MUST(MatDiagonalScale(A, VecFor(A, VECSTANDARD, 7, true), nullptr)); }},
    {"scale columns", [](Mat A) { MUST(MatDiagonalScale(A, nullptr, VecFor(A, VECSTANDARD, 8))); }},
    {"new nonzeros",
     [&](Mat A) {
       const std::vector<double> block(bs * bs, 0.5);
       PetscInt                  begin, end;
       MUST(MatSetOption(A, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
       MUST(MatGetOwnershipRange(A, &begin, &end));
       for (PetscInt row = begin / bs; row < end / bs; row++)
         for (PetscInt column : {(row + n / 2) % n, (row * row + 5) % n})
           MUST(MatSetValuesBlocked(A, 1, &row, 1, &column, block.data(), INSERT_VALUES));
       Assemble(A);
     }},
    {"axpy, same type",
     [&](Mat A) {
       MatType type;
       MUST(MatGetType(A, &type));
       const MatObject more = BlockMatrix(type, bs, n, Allocation::enough, 3);
       MUST(MatAXPY(A, 0.5, more, DIFFERENT_NONZERO_PATTERN));
       MUST(MatAXPY(A, 0.25, more, SUBSET_NONZERO_PATTERN));
     }},
    {"axpy, baij",
     [&](Mat A) {
       const MatObject more = BlockMatrix(MATBAIJ, bs, n, Allocation::enough, 4);
       MUST(MatAXPY(A, 0.5, more, DIFFERENT_NONZERO_PATTERN));
     }},
    {"axpy, same",
     [&](Mat A) {
       MatObject more;
       MUST(MatDuplicate(A, MAT_COPY_VALUES, more.put()));
       MUST(MatAXPY(A, -3, more, SAME_NONZERO_PATTERN));
     }},
    {"zero rows",
     [](Mat A) {
       PetscInt begin, end;
       MUST(MatGetOwnershipRange(A, &begin, &end));
       const PetscInt row = begin < end ? begin + 1 : 0;
       MUST(MatZeroRows(A, begin < end ? 1 : 0, &row, 4, nullptr, nullptr));
     }},
    {"rows, columns",
     [](Mat A) {
       PetscInt begin, end;
       MUST(MatGetOwnershipRange(A, &begin, &end));
       const PetscInt row = begin < end ? begin + 2 : 0;
       MUST(MatZeroRowsColumns(A, begin < end ? 1 : 0, &row, 5, nullptr, nullptr));
     }},
    {"zero entries", [](Mat A) { MUST(MatZeroEntries(A)); }},
  };
  const Pair pair = MakePair(bs, n);
  CheckProducts(pair.mine, pair.theirs);
  for (const Change &change : changes) {
    if (!kBAIJTakesNewBlocks && std::string(change.name) == "new nonzeros") continue;
    CAPTURE(change.name);
    change.act(pair.mine);
    change.act(pair.theirs);
    CHECK(IsBAIJCUDA(pair.mine));
    CheckProducts(pair.mine, pair.theirs);
  }
}

TEST_CASE("baijcuda: preallocated again, with another block size", "[baijcuda][mpi]")
{
  Pair pair = MakePair(2, 30);
  CheckProducts(pair.mine, pair.theirs);
  for (Mat A : {(Mat)pair.mine, (Mat)pair.theirs}) {
    const PetscInt bs = 2;
    PetscInt       begin, end;
    MUST(MatGetOwnershipRange(A, &begin, &end));
    const std::vector<PetscInt> most((end - begin) / bs, 4);
    MUST(MatXAIJSetPreallocation(A, bs, most.data(), most.data(), nullptr, nullptr));
    for (PetscInt row = begin; row < end; row++) {
      MUST(MatSetValue(A, row, row, 2, INSERT_VALUES));
      MUST(MatSetValue(A, row, (row * 5 + 1) % (30 * bs), Entry(row, 1), INSERT_VALUES));
    }
    Assemble(A);
  }
  CheckProducts(pair.mine, pair.theirs);
}

TEST_CASE("baijcuda: duplicates, copies, transposes and stored values", "[baijcuda][mpi]")
{
  const Pair pair = MakePair(4, 20);
  MatObject  copy, theirs, empty;
  CheckProducts(pair.mine, pair.theirs);

  MUST(MatDuplicate(pair.mine, MAT_COPY_VALUES, copy.put()));
  CHECK(IsBAIJCUDA(copy));
  CheckProducts(copy, pair.theirs);
  MUST(MatScale(copy, 3)); /* of its own */
  CheckProducts(pair.mine, pair.theirs);
  MUST(MatDuplicate(pair.theirs, MAT_COPY_VALUES, theirs.put()));
  MUST(MatScale(theirs, 3));
  CheckProducts(copy, theirs);

  MUST(MatDuplicate(pair.mine, MAT_DO_NOT_COPY_VALUES, empty.put()));
  MUST(MatZeroEntries(theirs));
  CheckProducts(empty, theirs);
  MUST(MatCopy(pair.mine, empty, SAME_NONZERO_PATTERN));
  CheckProducts(empty, pair.theirs);
  MUST(MatDuplicate(copy, MAT_COPY_VALUES, empty.put())); /* of a duplicate */
  MUST(MatDuplicate(pair.theirs, MAT_COPY_VALUES, theirs.put()));
  MUST(MatScale(theirs, 3));
  CheckProducts(empty, theirs);

  MUST(MatTranspose(pair.mine, MAT_INITIAL_MATRIX, copy.put()));
  MUST(MatTranspose(pair.theirs, MAT_INITIAL_MATRIX, theirs.put()));
  CHECK(IsBAIJCUDA(copy));
  CheckProducts(copy, theirs);
  Mat mine_again = pair.mine, theirs_again = pair.theirs;
  MUST(MatTranspose(mine_again, MAT_INPLACE_MATRIX, &mine_again));
  MUST(MatTranspose(theirs_again, MAT_INPLACE_MATRIX, &theirs_again));
  CheckProducts(pair.mine, pair.theirs);

  for (Mat A : {(Mat)pair.mine, (Mat)pair.theirs}) {
    MUST(MatSetOption(A, MAT_NEW_NONZERO_LOCATIONS, PETSC_FALSE));
    MUST(MatStoreValues(A));
    MUST(MatScale(A, 7));
  }
  CheckProducts(pair.mine, pair.theirs);
  for (Mat A : {(Mat)pair.mine, (Mat)pair.theirs}) {
    MUST(MatRetrieveValues(A));
    Touch(A); /* MatRetrieveValues() of older releases does not say so */
  }
  CheckProducts(pair.mine, pair.theirs);
}

TEST_CASE("baijcuda: conversions from and to baij and aij", "[baijcuda][mpi]")
{
  const Pair pair = MakePair(3, 24);
  MatObject  converted, again;
  for (MatType type : {OneRank() ? MATSEQBAIJ : MATMPIBAIJ, MATBAIJ, OneRank() ? MATSEQAIJ : MATMPIAIJ, MATAIJ}) {
    CAPTURE(type);
    MUST(MatConvert(pair.mine, type, MAT_INITIAL_MATRIX, converted.put()));
    CHECK_FALSE(IsBAIJCUDA(converted));
    MUST(MatConvert(converted, MATBAIJCUDA, MAT_INITIAL_MATRIX, again.put()));
    CHECK(IsBAIJCUDA(again));
    CheckProducts(again, pair.theirs);
    MUST(MatScale(converted, 2)); /* into the matrix that there is */
    Mat reused = again;
    MUST(MatConvert(converted, MATBAIJCUDA, MAT_REUSE_MATRIX, &reused));
    REQUIRE(reused == (Mat)again);
    MatObject twice;
    MUST(MatDuplicate(pair.theirs, MAT_COPY_VALUES, twice.put()));
    MUST(MatScale(twice, 2));
    CheckProducts(again, twice);
  }
}

TEST_CASE("baijcuda: conversions in place, and there and back", "[baijcuda][mpi]")
{
  for (MatType type : {MATBAIJ, MATAIJ}) {
    CAPTURE(type);
    const MatObject theirs = BlockMatrix(MATBAIJ, 3, 24);
    MatObject       start;
    MUST(MatConvert(theirs, type, MAT_INITIAL_MATRIX, start.put()));
    Mat A = start;
    MUST(MatConvert(A, MATBAIJCUDA, MAT_INPLACE_MATRIX, &A));
    REQUIRE(A == (Mat)start);
    CHECK(IsBAIJCUDA(A));
    CheckProducts(A, theirs);
    MUST(MatConvert(A, MATBAIJ, MAT_INPLACE_MATRIX, &A));
    CHECK(HasType(A, OneRank() ? MATSEQBAIJ : MATMPIBAIJ));
    CheckProducts(A, theirs);
    MUST(MatConvert(A, MATBAIJCUDA, MAT_INPLACE_MATRIX, &A));
    CheckProducts(A, theirs);
  }
}

TEST_CASE("baijcuda bound to the CPU, and unbound", "[baijcuda][mpi]")
{
  const Pair pair = MakePair(5, 20);
  CheckProducts(pair.mine, pair.theirs);
  MUST(MatSetBindingPropagates(pair.mine, PETSC_TRUE));
  for (PetscBool bound : {PETSC_TRUE, PETSC_FALSE}) {
    VecObject x, y;
    PetscBool vec_bound;
    MUST(MatBindToCPU(pair.mine, bound));
    CheckProducts(pair.mine, pair.theirs);
    MUST(MatCreateVecs(pair.mine, x.put(), y.put()));
    MUST(VecBoundToCPU(x, &vec_bound));
    if (DeviceFound()) CHECK(vec_bound == bound);
    const std::string text = MatText(pair.mine, PETSC_VIEWER_ASCII_INFO);
    if (Rank() == 0)
      CHECK(Contains(text, !DeviceFound() ? "products: on the host, there is no device"
                           : bound        ? "products: on the host, the matrix is bound to it"
                                          : "products: where the vectors are, copies on the device of "));
    CHECK_FALSE(Contains(text, "copies on the device of 0 MB")); /* there have been products */
  }
}

TEST_CASE("baijcuda by -mat_type, and its vectors", "[baijcuda][mpi]")
{
  const Options options("-mat_type baijcuda");
  MatObject     A;
  VecObject     x, y;
  MUST(MatCreate(World(), A.put()));
  MUST(MatSetSizes(A, PETSC_DECIDE, PETSC_DECIDE, 24, 24));
  MUST(MatSetFromOptions(A));
  CHECK(IsBAIJCUDA(A));
  MUST(MatSetUp(A));
  PetscBool bound;
  MUST(MatBoundToCPU(A, &bound));
  if (PetscDefined(HAVE_CUDA)) CHECK_FALSE(bound);
  MUST(MatCreateVecs(A, x.put(), y.put()));
  for (Vec v : {(Vec)x, (Vec)y}) {
    PetscBool cuda;
    MUST(PetscObjectTypeCompareAny((PetscObject)v, &cuda, VECSEQCUDA, VECMPICUDA, ""));
    CHECK((bool)cuda == DeviceFound());
  }
}

TEST_CASE("baijcuda: what PETSc does with baij", "[baijcuda][mpi]")
{
  const Pair pair = MakePair(3, 24);
  PetscReal  mine, theirs;
  MUST(MatNorm(pair.mine, NORM_FROBENIUS, &mine));
  MUST(MatNorm(pair.theirs, NORM_FROBENIUS, &theirs));
  CHECK(mine == theirs);
  PetscBool equal;
  MUST(MatEqual(pair.mine, pair.theirs, &equal));
  CHECK(equal);

  for (const VecTypes &types : AllVecTypes()) {
    const VecObject diagonal = VecFor(pair.mine, types.y, 1), expected = VecFor(pair.mine, VECSTANDARD, 2);
    MUST(MatGetDiagonal(pair.mine, diagonal));
    MUST(MatGetDiagonal(pair.theirs, expected));
    CheckClose(diagonal, expected);
  }

  PetscInt begin, end;
  MUST(MatGetOwnershipRange(pair.mine, &begin, &end));
  ISObject  rows;
  MatObject mine_part, theirs_part;
  MUST(ISCreateStride(World(), (end - begin) / 6 * 3, begin, 1, rows.put()));
  MUST(ISSetBlockSize(rows, 3));
  MUST(MatCreateSubMatrix(pair.mine, rows, rows, MAT_INITIAL_MATRIX, mine_part.put()));
  MUST(MatCreateSubMatrix(pair.theirs, rows, rows, MAT_INITIAL_MATRIX, theirs_part.put()));
  CheckProducts(mine_part, theirs_part);

  Mat mine_block, theirs_block;
  MUST(MatDiagonalScale(pair.mine, VecFor(pair.mine, VECSTANDARD, 7, true), nullptr));
  MUST(MatDiagonalScale(pair.theirs, VecFor(pair.mine, VECSTANDARD, 7, true), nullptr));
  for (int turn = 0; turn < 2; turn++) {
    MUST(MatGetDiagonalBlock(pair.mine, &mine_block));
    MUST(MatGetDiagonalBlock(pair.theirs, &theirs_block));
    CHECK(HasType(mine_block, MATSEQBAIJCUDA));
    CheckProducts(mine_block, theirs_block);
    for (Mat A : {(Mat)pair.mine, (Mat)pair.theirs}) MUST(MatDiagonalScale(A, nullptr, VecFor(A, VECSTANDARD, 8)));
  }
}

namespace
{

using Parts = std::vector<ISObject>;

/* Two sets of block rows for each rank, which overlap the rows of others; on the first rank none if asked. */
Parts OverlappingRows(Mat A, PetscInt bs, bool none_on_first)
{
  Parts    parts;
  PetscInt begin, end, all;
  if (none_on_first && !Rank()) return parts;
  MUST(MatGetOwnershipRange(A, &begin, &end));
  MUST(MatGetSize(A, &all, nullptr));
  const PetscInt middle = (begin / bs + end / bs) / 2, ends[] = {begin / bs, middle, end / bs};
  for (int part = 0; part < 2; part++) {
    const PetscInt first = std::max<PetscInt>(ends[part] - 2, 0), last = std::min<PetscInt>(ends[part + 1] + 1 + part, all / bs);
    ISObject       rows;
    MUST(ISCreateStride(PETSC_COMM_SELF, (last - first) * bs, first * bs, 1, rows.put()));
    MUST(ISSetBlockSize(rows, bs));
    parts.push_back(std::move(rows));
  }
  return parts;
}

/* Values that change, and the products with them, which make copies on the device. */
void ChangeValues(const Pair &pair, int turn)
{
  for (Mat A : {(Mat)pair.mine, (Mat)pair.theirs}) {
    MUST(MatScale(A, 1 + turn));
    MUST(MatDiagonalScale(A, VecFor(A, VECSTANDARD, 7 + turn, true), nullptr));
  }
}

} // namespace

TEST_CASE("baijcuda: submatrices of one rank, made and filled again", "[baijcuda][mpi]")
{
  bool registered = false; /* what is loaded or registered once is there */
  for (PetscInt bs : {1, 3, 4})
    for (bool none_on_first : {false, true})
      for (bool kept : {false, true}) { /* somebody else holds a submatrix */
        CAPTURE(bs, none_on_first, kept);
        const PetscLogDouble bytes = HostBytes(), device_bytes = DeviceFound() ? DeviceBytes() : 0;
        {
          const Pair      pair  = MakePair(bs, 40);
          const Parts     parts = OverlappingRows(pair.mine, bs, none_on_first);
          const PetscInt  n     = (PetscInt)parts.size();
          std::vector<IS> rows(parts.begin(), parts.end());
          Mat            *mine = nullptr, *theirs = nullptr;
          MatObject       held;
          for (int turn = 0; turn < 3; turn++) {
            const MatReuse reuse = turn ? MAT_REUSE_MATRIX : MAT_INITIAL_MATRIX;
            CAPTURE(turn);
            MUST(MatCreateSubMatrices(pair.mine, n, rows.data(), rows.data(), reuse, &mine));
            MUST(MatCreateSubMatrices(pair.theirs, n, rows.data(), rows.data(), reuse, &theirs));
            for (PetscInt k = 0; k < n; k++) {
              PetscBool equal;
              CHECK(HasType(mine[k], MATSEQBAIJCUDA));
              MUST(MatEqual(mine[k], theirs[k], &equal));
              CHECK(equal);
              CheckProducts(mine[k], theirs[k]);
            }
            ChangeValues(pair, turn);
          }
          if (kept && n) {
            MUST(PetscObjectReference((PetscObject)mine[n - 1]));
            *held.put() = mine[n - 1];
          }
          MatObject copy;
          if (n) MUST(MatDuplicate(theirs[n - 1], MAT_COPY_VALUES, copy.put()));
          MUST(MatDestroySubMatrices(n, &mine));
          MUST(MatDestroySubMatrices(n, &theirs));
          if (kept && n) CheckProducts(held, copy);
        }
        if (registered) CHECK(HostBytes() == bytes);
        if (registered && DeviceFound()) CHECK(DeviceBytes() <= device_bytes);
        registered = true;
      }
}

/* Whether PETSc fills submatrices of several ranks again: before 3.26 it finds that their size is another one. */
static bool FillsAgain(PetscInt bs)
{
  return OneRank() || bs == 1 || PETSC_VERSION_GE(3, 26, 0);
}

TEST_CASE("baijcuda: submatrices of all ranks, made and filled again", "[baijcuda][mpi]")
{
  for (PetscInt bs : {1, 3, 4}) {
    CAPTURE(bs);
    const Pair pair = MakePair(bs, 40);
    PetscInt   begin, end;
    ISObject   rows, columns;
    MatObject  mine, theirs;
    MUST(MatGetOwnershipRange(pair.mine, &begin, &end));
    const PetscInt half = (end - begin) / bs / 2 * bs;
    MUST(ISCreateStride(World(), half, begin, 1, rows.put()));
    MUST(ISCreateStride(World(), end - begin - half, begin + half, 1, columns.put()));
    for (IS is : {(IS)rows, (IS)columns}) MUST(ISSetBlockSize(is, bs));
    for (bool square : {true, false}) {
      const IS of_columns = square ? rows : columns;
      for (int turn = 0; turn < (FillsAgain(bs) ? 3 : 1); turn++) {
        const MatReuse reuse = turn ? MAT_REUSE_MATRIX : MAT_INITIAL_MATRIX;
        CAPTURE(square, turn);
        MUST(MatCreateSubMatrix(pair.mine, rows, of_columns, reuse, turn ? (Mat *)&mine : mine.put()));
        MUST(MatCreateSubMatrix(pair.theirs, rows, of_columns, reuse, turn ? (Mat *)&theirs : theirs.put()));
        CHECK(IsBAIJCUDA(mine));
        CheckProducts(mine, theirs);
        ChangeValues(pair, turn);
      }
    }
  }
}

/* The matrix is solved with, gets new values, and then new nonzeros. */
TEST_CASE("baijcuda within asm, block Jacobi with several blocks and fieldsplit", "[baijcuda][mpi]")
{
  for (const char *options :
       {"-pc_type asm -pc_asm_overlap 1 -sub_pc_type bisai", "-pc_type asm -pc_asm_overlap 2 -sub_pc_type bisai",
        "-pc_type asm -pc_asm_overlap 2 -pc_asm_local_blocks 2 -sub_pc_type bisai -sub_pc_bisai_factor finepc",
        "-pc_type asm -pc_asm_overlap 1 -pc_asm_local_type multiplicative -pc_asm_local_blocks 2 -sub_pc_type ilu",
        "-pc_type bjacobi -pc_bjacobi_local_blocks 2 -sub_pc_type bisai",
        "-pc_type fieldsplit -pc_fieldsplit_block_size 8 -pc_fieldsplit_0_fields 0,1,2,3 -pc_fieldsplit_1_fields 4,5,6,7 "
        "-fieldsplit_0_pc_type bjacobi -fieldsplit_0_sub_pc_type bisai "
        "-fieldsplit_1_pc_type bjacobi -fieldsplit_1_sub_pc_type bisai"}) {
    CAPTURE(options);
    /* PTScotch, where PETSc has it, divides equal graphs in ways that differ from call to call. */
    const Options database(std::string("-ksp_type gmres -mat_partitioning_type current ") + options);
    const Pair    pair = MakePair(4, 48);
    KSPObject     mine, theirs;
    for (KSPObject *ksp : {&mine, &theirs}) {
      const Mat A = ksp == &mine ? pair.mine : pair.theirs;
      MUST(KSPCreate(World(), ksp->put()));
      MUST(KSPSetOperators(*ksp, A, A));
      MUST(KSPSetTolerances(*ksp, 1e-10, PETSC_CURRENT, PETSC_CURRENT, PETSC_CURRENT));
      MUST(KSPSetFromOptions(*ksp));
    }
    const int turns = Contains(options, "fieldsplit") && !FillsAgain(4) ? 1 : kBAIJCountsNewBlocks ? 3 : 2;
    for (int turn = 0; turn < turns; turn++) {
      CAPTURE(turn);
      std::vector<double> x[2];
      PetscInt            iterations[2];
      for (int k = 0; k < 2; k++) {
        const KSP       ksp = k ? theirs : mine;
        const Mat       A   = k ? pair.theirs : pair.mine;
        const VecObject b = VecFor(A, VECSTANDARD, 5, true), y = VecFor(A, VECSTANDARD, 6);
        if (turn == 2) {
          PetscInt            begin, end;
          std::vector<double> block(16, 0.125);
          MUST(MatGetOwnershipRange(A, &begin, &end));
          MUST(MatSetOption(A, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
          const PetscInt row = begin / 4, column = (begin / 4 + 20) % 48;
          MUST(MatSetValuesBlocked(A, 1, &row, 1, &column, block.data(), ADD_VALUES));
          Assemble(A);
        }
        MUST(KSPSolve(ksp, b, y));
        CHECK(ReasonOf(ksp) > 0);
        iterations[k] = IterationsOf(ksp);
        x[k]          = Values(y);
      }
      CHECK(iterations[0] == iterations[1]);
      CHECK(Difference(x[0], x[1]) <= 1e-9);
      ChangeValues(pair, turn);
    }
    const PC  pc = PCOf(mine);
    KSP      *sub;
    PetscInt  n;
    PetscBool asm_type, bjacobi;
    Mat       part;
    MUST(PetscObjectTypeCompare((PetscObject)pc, PCASM, &asm_type));
    MUST(PetscObjectTypeCompare((PetscObject)pc, PCBJACOBI, &bjacobi));
    if (asm_type) MUST(PCASMGetSubKSP(pc, &n, nullptr, &sub));
    else if (bjacobi) MUST(PCBJacobiGetSubKSP(pc, &n, nullptr, &sub));
    else MUST(PCFieldSplitGetSubKSP(pc, &n, &sub));
    for (PetscInt k = 0; k < n; k++) {
      MUST(KSPGetOperators(sub[k], &part, nullptr));
      CHECK(HasType(part, asm_type || bjacobi || OneRank() ? MATSEQBAIJCUDA : MATMPIBAIJCUDA));
    }
    if (!asm_type && !bjacobi) MUST(PetscFree(sub));
  }
}

TEST_CASE("solvers take baijcuda as baij", "[baijcuda][mpi]")
{
  const Pair                pair = MakePair(4, 40);
  std::vector<const char *> all  = {"-ksp_type gmres -pc_type none",
                                    "-ksp_type gmres -pc_type jacobi",
                                    "-ksp_type gmres -pc_type pbjacobi",
                                    "-ksp_type bicg -pc_type jacobi",
                                    "-ksp_type gmres -pc_type bjacobi -sub_pc_type ilu -sub_pc_factor_levels 1",
                                    "-ksp_type gmres -pc_type bjacobi -sub_pc_type lu",
                                    "-ksp_type fgmres -pc_type bjacobi -sub_ksp_type gmres -sub_ksp_max_it 5 -sub_pc_type ilu",
                                    "-ksp_type gmres -pc_type asm -sub_pc_type ilu"};
  if (OneRank())
    all.insert(all.end(),
               {"-ksp_type gmres -pc_type ilu", "-ksp_type gmres -pc_type ilu -pc_factor_levels 2", "-ksp_type preonly -pc_type lu",
                "-ksp_type gmres -pc_type bjacobi -pc_bjacobi_blocks 2 -sub_pc_type lu", "-ksp_type gmres -pc_type sor"});
  for (const char *options : all) {
    CAPTURE(options);
    const Solved mine = SolveWith(pair.mine, options), theirs = SolveWith(pair.theirs, options);
    CHECK(mine.reason > 0);
    CHECK(mine.reason == theirs.reason);
    CHECK(mine.iterations == theirs.iterations);
    CHECK(Difference(mine.x, theirs.x) <= 1e-9);
  }
}

TEST_CASE("baijcuda from a DMDA", "[baijcuda][mpi]")
{
  for (PetscInt dimension : {2, 3}) {
    CAPTURE(dimension);
    Pair pair;
    for (MatType type : {MATBAIJCUDA, MATBAIJ}) {
      const Options  options(std::string("-dm_mat_type ") + type);
      DMObject       da;
      MatObject     &A   = std::strcmp(type, MATBAIJ) ? pair.mine : pair.theirs;
      const PetscInt dof = 3;
      if (dimension == 2)
        MUST(DMDACreate2d(World(), DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR, 7, 8, PETSC_DECIDE, PETSC_DECIDE, dof, 1,
                          nullptr, nullptr, da.put()));
      else
        MUST(DMDACreate3d(World(), DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DM_BOUNDARY_NONE, DMDA_STENCIL_STAR, 5, 4, 6, PETSC_DECIDE,
                          PETSC_DECIDE, PETSC_DECIDE, dof, 1, nullptr, nullptr, nullptr, da.put()));
      MUST(DMSetFromOptions(da));
      MUST(DMSetUp(da));
      MUST(DMCreateMatrix(da, A.put()));
      PetscInt                           begin, end;
      std::vector<std::vector<PetscInt>> columns_of;
      MUST(MatGetOwnershipRange(A, &begin, &end));
      for (PetscInt row = begin; row < end; row++) { /* all blocks that the DM has allocated */
        const PetscInt *columns;
        PetscInt        count;
        MUST(MatGetRow(A, row, &count, &columns, nullptr));
        columns_of.emplace_back(columns, columns + count);
        MUST(MatRestoreRow(A, row, &count, &columns, nullptr));
      }
      for (PetscInt row = begin; row < end; row++)
        for (PetscInt column : columns_of[row - begin]) MUST(MatSetValue(A, row, column, Entry(row, column), INSERT_VALUES));
      Assemble(A);
    }
    CHECK(IsBAIJCUDA(pair.mine));
    CheckProducts(pair.mine, pair.theirs);
  }
}

TEST_CASE("baijcuda on the device: no copies and no waiting while nothing changes, and memory that ends", "[baijcuda][gpu]")
{
  NEEDS_DEVICE();
  if (!OneRank()) return;
  PetscLogDouble first = 0;
  for (int turn = 0; turn < 2; turn++) { /* the first one starts what vectors need */
    {
      const MatObject A = BlockMatrix(MATBAIJCUDA, 8, 2000);
      const VecObject x = VecFor(A, VECCUDA, 1), y = VecFor(A, VECCUDA, 2);
      MUST(MatMult(A, x, y));
      MUST(MatMultTranspose(A, x, y));
      CHECK(AsynchronousOnDevice([&] {
        MUST(MatMult(A, x, y));
        MUST(MatMultAdd(A, x, y, y));
        MUST(MatMultTranspose(A, x, y));
      }));
      const PetscLogDouble with = DeviceBytes();
      MUST(MatBindToCPU(A, PETSC_TRUE));
      CHECK((DeviceBytes() < with || with == 0)); /* 0 where others use the GPU */
    }
    if (turn == 0) first = DeviceBytes();
  }
  CHECK(DeviceBytes() <= first);
}

/*
   The first rank alone lacks memory: of the host for its transposed blocks, or of its GPU, which is taken up first. All ranks get
   an error then, none waits for another, and the same matrix multiplies once there is memory.
*/
TEST_CASE("baijcuda on several devices: memory ends on one rank, and all of them get an error", "[baijcuda][memory][mpi][gpu]")
{
  NEEDS_DEVICE();
  const int rank = Rank();
  for (bool again : {false, true}) { /* also with copies of values that are no longer those of the matrix */
    bool failed = true;
    for (long n = 1; failed; n++) {
      CAPTURE(again, n);
      const MatObject A = BlockMatrix(MATBAIJCUDA, 4, 60), B = BlockMatrix(MATBAIJ, 4, 60);
      const VecObject x = VecFor(A, VECCUDA, 1), y = VecFor(A, VECCUDA, 2), b = VecFor(B, VECSTANDARD, 1),
                      z = VecFor(B, VECSTANDARD, 2);
      if (again)
        for (Mat M : {(Mat)A, (Mat)B}) MUST(MatScale(M, 0.5));
      if (again) MUST(MatMultTranspose(A, x, y));
      for (Mat M : {(Mat)A, (Mat)B}) MUST(MatScale(M, 3));
      failed = FailsOnAll(0, n, [&] { return MatMultTranspose(A, x, y); }, FailingMemory::Through::PETSc);
      MUST(MatMultTranspose(A, x, y));
      MUST(MatMultTranspose(B, b, z));
      CheckClose(y, z);
      if (!failed) CHECK((n > 1));
    }
  }
  for (bool transpose : {false, true}) {
    CAPTURE(transpose);
    const MatObject A = BlockMatrix(MATBAIJCUDA, 8, 500), B = BlockMatrix(MATBAIJ, 8, 500);
    const VecObject x = VecFor(A, VECCUDA, 1), y = VecFor(A, VECCUDA, 2), b = VecFor(B, VECSTANDARD, 1),
                    z       = VecFor(B, VECSTANDARD, 2);
    const auto     multiply = transpose ? MatMultTranspose : MatMult;
    PetscErrorCode code;
    MUST(VecScale(y, 2)); /* the vectors are on the GPU */
    MUST(VecScale(x, 1));
    {
      const Errors     errors;
      const FullDevice full(!rank);
      code = multiply(A, x, y);
    }
    CHECK((int)code == (int)PETSC_ERR_MEM);
    MUST(multiply(A, x, y));
    MUST(multiply(B, b, z));
    CheckClose(y, z);
  }
}

TEST_CASE("baijcuda on the device: blocks beyond 32 are an error that names the way out", "[baijcuda][gpu]")
{
  NEEDS_DEVICE();
  if (!OneRank()) return;
  const MatObject A = BlockMatrix(MATBAIJCUDA, 33, 3);
  const VecObject x = VecFor(A, VECCUDA, 1), y = VecFor(A, VECCUDA, 2);
  Errors          errors;
  CHECK(MatMult(A, x, y) != 0);
  CHECK(Contains(errors.text, "MatBindToCPU()"));
}

/* The matrix itself becomes the factor, and then is one of the host. */
TEST_CASE("baijcuda factored in place", "[baijcuda]")
{
  if (!OneRank()) return;
  for (MatFactorType type : {MAT_FACTOR_LU, MAT_FACTOR_ILU}) {
    CAPTURE((int)type);
    const MatObject mine = BlockMatrix(MATSEQBAIJCUDA, 3, 20), theirs = BlockMatrix(MATSEQBAIJ, 3, 20);
    ISObject        all;
    MatFactorInfo   info;
    const VecObject b = VecFor(mine, VECSTANDARD, 1), x = VecFor(mine, VECSTANDARD, 2), expected = VecFor(mine, VECSTANDARD, 3);
    MUST(ISCreateStride(PETSC_COMM_SELF, 20, 0, 1, all.put()));
    MUST(ISSetIdentity(all));
    MUST(MatFactorInfoInitialize(&info));
    info.fill = 4;
    for (Mat A : {(Mat)mine, (Mat)theirs}) {
      if (type == MAT_FACTOR_LU) MUST(MatLUFactor(A, all, all, &info));
      else MUST(MatILUFactor(A, all, all, &info));
    }
    MUST(MatSolve(mine, b, x));
    MUST(MatSolve(theirs, b, expected));
    CheckClose(x, expected);
  }
}

/* ----------------------------------- for compute-sanitizer ------------------------------------ */

TEST_CASE("baijcuda: every kernel, on small matrices", "[baijcuda][mpi][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (PetscInt bs : {1, 3, 9}) {
    CAPTURE(bs);
    const Pair pair = MakePair(bs, 10);
    CheckProducts(pair.mine, pair.theirs);
  }
}
