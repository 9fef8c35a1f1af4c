/*
   Preconditioners of single entries on matrices of blocks, MATBAIJ, MATBAIJCUDA and MATSBAIJ, and on the subtypes of MATAIJ: all is
   as with MATAIJ. Among the kinds of local_pc_test.cxx are matrices of blocks of one entry.
*/
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "blocks.h"
#include "pc_support.h"
#include "sparse/bsr_csr.h"

namespace
{

/* Symmetric, with a random block for each entry of the pattern, which is symmetric, and dominated by its diagonal. */
HostBlocks SymmetricBlocks(const HostMatrix &pattern, PetscInt bs, std::uint64_t seed)
{
  const HostBlocks B = RandomBlocks(pattern, bs, seed), Bt = TransposeOf(B);
  HostBlocks       A = B;
  for (size_t k = 0; k < A.a.size(); k++) A.a[k] += Bt.a[k];
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt r = 0; r < bs; r++) {
      double sum = 0;
      for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++)
        for (PetscInt c = 0; c < bs; c++) sum += A.j[k] == row && c == r ? 0 : std::fabs(A.Block(k)[c * bs + r]);
      A.Find(row, row)[r * bs + r] = 1.1 * sum + 0.1;
    }
  return A;
}

/* Of the blocks of A those on and above the diagonal. */
HostBlocks UpperOf(const HostBlocks &A)
{
  HostBlocks U;
  U.bs = A.bs;
  U.n  = A.n;
  for (PetscInt row = 0; row < A.n; row++) {
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] >= row) {
        U.j.push_back(A.j[k]);
        U.a.insert(U.a.end(), A.Block(k), A.Block(k) + A.bs * A.bs);
      }
    U.i.push_back(U.nnz());
  }
  return U;
}

MatObject CreateSBAIJ(const HostBlocks &A, MPI_Comm comm)
{
  MatObject mat;
  PetscInt  begin, end, longest = 1;
  for (PetscInt row = 0; row < A.n; row++) longest = std::max<PetscInt>(longest, A.i[row + 1] - A.i[row]);
  MUST(MatCreate(comm, mat.put()));
  MUST(MatSetSizes(mat, PETSC_DECIDE, PETSC_DECIDE, A.n * A.bs, A.n * A.bs));
  MUST(MatSetBlockSize(mat, A.bs));
  MUST(MatSetType(mat, MATSBAIJ));
  MUST(MatSeqSBAIJSetPreallocation(mat, A.bs, longest, nullptr));
  MUST(MatMPISBAIJSetPreallocation(mat, A.bs, longest, nullptr, longest, nullptr));
  MUST(MatSetOption(mat, MAT_IGNORE_LOWER_TRIANGULAR, PETSC_TRUE));
  MUST(MatGetOwnershipRange(mat, &begin, &end));
  SetValues(mat, A);
  return mat;
}

struct BlockKind {
  Kind        kind;
  const char *aij; /* the type of MATAIJ with which it is compared */
};

std::vector<BlockKind> BlockKinds()
{
  std::vector<BlockKind> kinds = {{{"baij", &HostBackend(), [](const HostBlocks &A, MPI_Comm comm) { return CreateBAIJ(A, comm); }},
                                   MATAIJ},
                                  {{"sbaij", &HostBackend(), CreateSBAIJ}, MATAIJ}};
  if (DeviceFound())
    kinds.push_back({{"baijcuda", &DeviceBackend(),
                      [](const HostBlocks &A, MPI_Comm comm) {
                        MatObject mat = CreateBAIJ(A, comm), converted;
                        MUST(MatConvert(mat, MATBAIJCUDA, MAT_INITIAL_MATRIX, converted.put()));
                        return converted;
                      }},
                     MATAIJCUSPARSE});
  return kinds;
}

const PCType kTypes[] = {PCAFSAI, PCSFSAI, PCCMATCH};

/* What a view says about a set-up that has failed, without the matrix. */
std::string FailureOf(PC pc)
{
  const std::string text = ViewText(pc);
  const size_t      at   = text.find("set-up failed");
  return at == std::string::npos ? "" : text.substr(at, text.find("linear system matrix") - at);
}

/* The copy on the host. */
HostMatrix Fetch(const CSR &A)
{
  CSR        host;
  HostMatrix result;
  MUST(CSRDuplicate(&A, PETSC_MEMTYPE_HOST, &host));
  result.n = host.rows;
  result.i.assign(host.i, host.i + host.rows + 1);
  result.j.assign(host.j, host.j + host.nnz);
  result.a.assign((double *)host.a, (double *)host.a + host.nnz);
  MUST(CSRDestroy(&host));
  return result;
}

} // namespace

TEST_CASE("points: the single entries of blocks, and new values of them", "[points][sanitizer]")
{
  for (PetscInt n : {0, 1, 31, 33, 200})
    for (PetscInt bs : {1, 2, 3, 4, 5, 6, 32}) {
      if (n > 33 && bs > 6) continue;
      const HostBlocks A = n ? SymmetricBlocks(RandomGraph(n, 4, 300), bs, 301) : HostBlocks{}, B = Changed(A, 302);
      const HostMatrix expected = Scalars(A), changed = Scalars(B);
      for (const Backend &backend : Backends())
        for (bool upper : {false, true}) {
          if (upper && PetscMemTypeDevice(backend.where)) continue;
          CAPTURE(n, bs, backend.name, upper);
          const auto       make = upper ? CSRFromUpperBSR : PetscMemTypeDevice(backend.where) ? CSRFromBSR_CUDA : CSRFromBSR_Host;
          const BlocksCopy first(upper ? UpperOf(A) : A, backend.where), second(upper ? UpperOf(B) : B, backend.where);
          CSR              points{};
          MUST(make(&first.view, PETSC_FALSE, &points));
          HostMatrix found = Fetch(points);
          CHECK(found.i == expected.i);
          CHECK(found.j == expected.j);
          CHECK(SameBits(found.a, expected.a));
          const void *const memory = points.i;
          MUST(make(&second.view, PETSC_TRUE, &points));
          found = Fetch(points);
          CHECK(points.i == memory);
          CHECK(found.i == expected.i);
          CHECK(found.j == expected.j);
          CHECK(SameBits(found.a, changed.a));
          MUST(CSRDestroy(&points));
        }
    }
}

TEST_CASE("points: a matrix of blocks gives the factor and the iterations of MATAIJ, and says so",
          "[points][afsai][sfsai][cmatch][pc]")
{
  for (PCType type : kTypes)
    for (const BlockKind &b : BlockKinds())
      for (PetscInt bs : {1, 2, 3, 4, 5, 6}) {
        CAPTURE(type, b.kind.name, bs);
        const HostBlocks  A    = SymmetricBlocks(RandomStencil(13, 11, 1, false, 310), bs, 311);
        const MatObject   mine = b.kind.Create(A), theirs = CreateAIJ(A, b.aij);
        const KSPObject   x = MakeKSP(mine, "", type), y = MakeKSP(theirs, "", type);
        const Solution    of_mine = Solve(x), of_theirs = Solve(y);
        const std::string line =
          "matrix of blocks of " + std::to_string(bs) + " x " + std::to_string(bs) + ", whose single entries are copied: ";
        CHECK(of_mine.reason == KSP_CONVERGED_RTOL);
        CHECK(of_mine.iterations == of_theirs.iterations);
        CHECK(SameBits(Applied(PCOf(x)), Applied(PCOf(y))));
        CHECK(Contains(ViewText(PCOf(x)), line));
        CHECK(!Contains(ViewText(PCOf(y)), "single entries"));

        /* new values that the pattern fits, in the same memory */
        for (double factor : {1.1, 3.}) {
          HostBlocks B = A;
          for (double &value : B.a) value *= factor;
          SetValues(mine, B);
          SetValues(theirs, B);
          const PetscLogDouble host = HostBytes(), device = DeviceBytes();
          MUST(PCSetUp(PCOf(x)));
          CHECK(HostBytes() == host);
          CHECK(DeviceBytes() == device);
          MUST(PCSetUp(PCOf(y)));
          CHECK(SameBits(Applied(PCOf(x)), Applied(PCOf(y))));
        }

        /* another size of blocks, MATAIJ, and back */
        const MatObject other = b.kind.Create(SymmetricBlocks(RandomGraph(A.n * bs, 4, 314), 1, 315));
        for (Mat next : {(Mat)other, (Mat)theirs, (Mat)mine}) {
          MUST(PCSetOperators(PCOf(x), next, next));
          MUST(PCSetUp(PCOf(x)));
          CHECK(Contains(ViewText(PCOf(x)), "single entries are copied") == (next != theirs));
          const PCObject fresh = MakePC(next, "", type);
          MUST(PCSetUp(fresh));
          CHECK(SameBits(Applied(PCOf(x)), Applied(fresh)));
        }
        MUST(PCReset(PCOf(x)));
        CHECK(!Contains(ViewText(PCOf(x)), "single entries"));
      }
}

TEST_CASE("points: each rank takes the single entries of its own block", "[points][afsai][sfsai][cmatch][pc][mpi]")
{
  for (PCType type : kTypes)
    for (const BlockKind &b : BlockKinds())
      for (PetscInt bs : {1, 2, 3, 6}) {
        CAPTURE(type, b.kind.name, bs);
        const HostBlocks  A    = SymmetricBlocks(RandomStencil(14, 15, 1, false, 320), bs, 321);
        const MatObject   mine = b.kind.Create(A, PETSC_COMM_WORLD), theirs = CreateAIJ(A, b.aij, PETSC_COMM_WORLD);
        const char *const own =
          std::strcmp(type, PCCMATCH) ? "" : "-pc_cmatch_reach local"; /* otherwise there is a hierarchy of all ranks */
        const PCObject x = MakePC(mine, own, type), y = MakePC(theirs, own, type);
        MUST(PCSetUp(x));
        MUST(PCSetUp(y));
        CHECK(SameBits(Applied(x), Applied(y)));
        const HostBlocks B = Changed(A, 322);
        SetValues(mine, B);
        SetValues(theirs, B);
        MUST(PCSetUp(x));
        MUST(PCSetUp(y));
        CHECK(SameBits(Applied(x), Applied(y)));
      }
}

TEST_CASE("points: a matrix of blocks fails as MATAIJ does", "[points][afsai][sfsai][cmatch][pc][bad]")
{
  const double inf = std::numeric_limits<double>::infinity();
  for (PCType type : kTypes)
    for (const BlockKind &b : BlockKinds())
      for (PetscInt bs : {1, 2, 3, 4, 5, 6})
        for (double value : {0., -3., inf}) {
          CAPTURE(type, b.kind.name, bs, value);
          const HostBlocks good                  = SymmetricBlocks(RandomStencil(9, 8, 1, false, 330), bs, 331);
          HostBlocks       bad                   = good;
          bad.Find(7, 7)[(bs - 1) * bs + bs - 1] = value; /* the last diagonal entry of the block */
          const MatObject mine = b.kind.Create(bad), theirs = CreateAIJ(bad, b.aij);
          const PCObject  x = MakePC(mine, "", type), y = MakePC(theirs, "", type);
          MUST(PCSetUp(x));
          MUST(PCSetUp(y));
          CHECK(ReasonOf(y) != PC_NOERROR);
          CHECK(ReasonOf(x) == ReasonOf(y));
          CHECK(FailureOf(x) == FailureOf(y));
          CHECK(Contains(FailureOf(x), "Row " + std::to_string(8 * bs - 1)));
          SetValues(mine, good);
          MUST(PCSetUp(x));
          CHECK(ReasonOf(x) == PC_NOERROR);
          CHECK(Finite(Applied(x)));
        }
}

/* A subtype of MATAIJ that no GPU has keeps its entries as MATAIJ does, and is read on the host. */
TEST_CASE("points: subtypes of MATAIJ give what MATAIJ gives", "[points][afsai][sfsai][bisai][rrb][cmatch][pc]")
{
  const HostMatrix A = Diffusion(24, 20, true, 340);
  for (const Type &type : Types())
    for (MatType kind : {MATAIJPERM, MATAIJSELL, MATAIJCRL}) {
      CAPTURE(type.name, kind);
      const MatObject plain = CreateAIJ(Blocks(A), MATAIJ);
      MatObject       mat;
      MUST(MatConvert(plain, kind, MAT_INITIAL_MATRIX, mat.put()));
      const KSPObject x = MakeKSP(mat, type), y = MakeKSP(plain, type);
      const Solution  of_mat = Solve(x), of_plain = Solve(y);
      CHECK(of_mat.reason > 0);
      CHECK(of_mat.iterations == of_plain.iterations);
      CHECK(SameBits(Applied(PCOf(x)), Applied(PCOf(y))));
      const HostBlocks B = Changed(Blocks(A), 341);
      SetValues(mat, B);
      SetValues(plain, B);
      MUST(PCSetUp(PCOf(x)));
      MUST(PCSetUp(PCOf(y)));
      CHECK(SameBits(Applied(PCOf(x)), Applied(PCOf(y))));
    }
}
