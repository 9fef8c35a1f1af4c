/* Local numbers: what fits into 32 bits and what does not, and the copies that a Mat keeps where PETSc's numbers have 64 bits. */
#include "matrices.h"
#include "sparse/csr_mat.h"

namespace
{

constexpr bool kCopies = sizeof(PetscInt) != sizeof(LocalInt);

/* The pattern that a Mat lends, on the host. */
HostMatrix Lent(Mat A)
{
  CSRMat     csr;
  HostMatrix found;
  MUST(MatGetCSR(A, &csr));
  found.n = csr.A.n;
  found.i.resize(csr.A.n + 1);
  found.j.resize(csr.A.nnz);
  MUST(ArrayCopy(found.i.data(), csr.A.i, found.i.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, csr.A.where));
  MUST(ArrayCopy(found.j.data(), csr.A.j, found.j.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, csr.A.where));
  MUST(MatRestoreCSR(&csr));
  return found;
}

/* Where the columns are that a Mat lends. */
const LocalInt *PlaceOf(Mat A)
{
  CSRMat csr;
  MUST(MatGetCSR(A, &csr));
  const LocalInt *place = csr.A.j;
  MUST(MatRestoreCSR(&csr));
  return place;
}

bool SamePattern(const HostMatrix &A, const HostMatrix &B)
{
  return A.n == B.n && A.i == B.i && A.j == B.j;
}

} // namespace

TEST_CASE("local numbers: what does not fit is an error that says what it is", "[indices]")
{
  const PetscInt64 largest = 2147483647;
  LocalInt         number  = -1;
  for (PetscInt64 fits : {(PetscInt64)0, (PetscInt64)1, largest - 1, largest}) {
    MUST(LocalIntCast(fits, "rows", &number));
    CHECK(number == fits);
  }
  for (PetscInt64 large : {largest + 1, 2 * largest, 4 * largest, (PetscInt64)1 << 40}) {
    Errors errors;
    number = -1;
    CHECK(LocalIntCast(large, "nonzeros", &number) == PETSC_ERR_ARG_OUTOFRANGE);
    CHECK(number == -1);
    CHECK(Contains(errors.text, "This rank has " + std::to_string(large) + " nonzeros"));
    CHECK(Contains(errors.text, "at most 2147483647"));
    CHECK(Contains(errors.text, "using more ranks"));
  }
}

TEST_CASE("local numbers: copies of PETSc's numbers", "[indices][sanitizer]")
{
  for (const Backend &backend : Backends())
    for (size_t count : {0, 1, 31, 32, 33, 255, 256, 257, 1000}) {
      CAPTURE(backend.name, count);
      std::vector<PetscInt> numbers(count);
      std::vector<LocalInt> expected(count), found(count, -1);
      void                 *from, *to;
      for (size_t k = 0; k < count; k++) numbers[k] = expected[k] = (LocalInt)(k % 3 ? LOCAL_INT_MAX - k : k);
      MUST(ArrayCreate(count * sizeof(PetscInt), backend.where, &from));
      MUST(ArrayCreate(count * sizeof(LocalInt), backend.where, &to));
      MUST(ArrayCopy(from, numbers.data(), count * sizeof(PetscInt), backend.where, PETSC_MEMTYPE_HOST));
      MUST(
        (PetscMemTypeDevice(backend.where) ? LocalIntCopy_CUDA : LocalIntCopy_Host)(count, (const PetscInt *)from, (LocalInt *)to));
      MUST(ArrayCopy(found.data(), to, count * sizeof(LocalInt), PETSC_MEMTYPE_HOST, backend.where));
      CHECK(found == expected);
      const PetscInts lent(expected.data(), count);
      CHECK(std::equal(numbers.begin(), numbers.end(), (const PetscInt *)lent));
      MUST(ArrayDestroy(backend.where, &from));
      MUST(ArrayDestroy(backend.where, &to));
    }
}

TEST_CASE("local numbers: a Mat lends its pattern, and the new one after a change", "[indices]")
{
  const HostMatrix A = RandomGraph(200, 7, 1);
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const MatObject mat = CreateMat(A, backend.mat);
    CHECK(SamePattern(Lent(mat), A));
    const LocalInt *before = PlaceOf(mat);
    MUST(MatScale(mat, 2));
    CHECK(SamePattern(Lent(mat), A));
    CHECK(PlaceOf(mat) == before); /* graphs on the GPU keep this address */

    /* one entry more */
    const PetscInt    row = 0, column = 199;
    const PetscScalar value = 1;
    REQUIRE(A.At(0, 199) == 0);
    MUST(MatSetOption(mat, MAT_NEW_NONZERO_LOCATIONS, PETSC_TRUE));
    MUST(MatSetOption(mat, MAT_NEW_NONZERO_ALLOCATION_ERR, PETSC_FALSE));
    MUST(MatSetValues(mat, 1, &row, 1, &column, &value, INSERT_VALUES));
    MUST(MatAssemblyBegin(mat, MAT_FINAL_ASSEMBLY));
    MUST(MatAssemblyEnd(mat, MAT_FINAL_ASSEMBLY));
    HostMatrix more = A;
    more.j.insert(more.j.begin() + more.i[1], 199);
    for (size_t k = 1; k < more.i.size(); k++) more.i[k]++;
    CHECK(SamePattern(Lent(mat), more));

    /* a matrix of another size in its place */
    MatObject        other    = CreateMat(RandomGraph(150, 5, 2), backend.mat);
    const HostMatrix of_other = Lent(other);
    Mat              handed   = nullptr;
    MUST(MatDuplicate(other, MAT_COPY_VALUES, &handed));
    MUST(MatHeaderReplace(mat, &handed));
    CHECK(SamePattern(Lent(mat), of_other));
  }
}

TEST_CASE("local numbers: the copy goes with its Mat, and there is none where PETSc's numbers are local ones", "[indices]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    CreateMat(RandomGraph(20, 3, 1), backend.mat); /* PETSc keeps some memory from the first matrix of a type on */
    const PetscLogDouble before = HostBytes();
    {
      const MatObject mat = CreateMat(RandomGraph(200, 7, 1), backend.mat);
      CSRMat          csr;
      const PetscInt *i, *j;
      PetscInt        n;
      PetscBool       done;
      MUST(MatGetHostCSR(mat, &csr));
      MUST(MatGetRowIJ(mat, 0, PETSC_FALSE, PETSC_FALSE, &n, &i, &j, &done));
      CHECK(((const void *)i != csr.A.i) == kCopies);
      CHECK(((const void *)j != csr.A.j) == kCopies);
      MUST(MatRestoreRowIJ(mat, 0, PETSC_FALSE, PETSC_FALSE, &n, &i, &j, &done));
      MUST(MatRestoreCSR(&csr));
    }
    CHECK(HostBytes() == before);
  }
}
