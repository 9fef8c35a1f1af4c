/* Test matrices: plain CSR arrays on the host, and their way into kernels and Mats. */
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sparse/csr.h"
#include "support.h"

struct HostMatrix {
  LocalInt                 n = 0;
  std::vector<LocalInt>    i = std::vector<LocalInt>(1, 0), j;
  std::vector<PetscScalar> a;

  LocalInt    nnz() const { return (LocalInt)j.size(); }
  PetscScalar At(LocalInt row, LocalInt column) const; /* 0 where nothing is stored */
  CSRView     View() const;
};

/* Numbers that are the same on every machine. */
class Random {
public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) { }
  std::uint64_t Next();
  double        Between(double low, double high) { return low + (high - low) * (double)(Next() >> 11) * 0x1p-53; }

private:
  std::uint64_t state_;
};

/* Rows of (column, value) in any order, without repetition, become a matrix. */
HostMatrix FromRows(const std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> &);
HostMatrix FromDense(LocalInt n, const std::vector<PetscScalar> &);
HostMatrix FromDiagonal(const std::vector<double> &);
HostMatrix WithEntry(HostMatrix, LocalInt row, LocalInt column, double value); /* in the place of a stored one */
/* Each row is coupled with the rows that are `width` before and after it, in a ring, or with the one after it alone. */
HostMatrix Ring(LocalInt n, LocalInt width, bool both_sides = true);

/* Constant coefficients: 3, 5 or 7 points. */
HostMatrix Poisson(LocalInt nx, LocalInt ny = 1, LocalInt nz = 1);
/* -div(k grad u), 5 points, rows sum to 0 */
HostMatrix FiniteVolumes(LocalInt nx, LocalInt ny, const std::function<double(LocalInt x, LocalInt y)> &k);
HostMatrix Inclusions(LocalInt nx, LocalInt ny, double contrast); /* the same with squares of another conductivity */

/*
   SPD with random coefficients. The diagonal is (1 + kDominance) times the sum of the row's other magnitudes, and then A is
   scaled by a random diagonal from both sides. With unit diagonal, its eigenvalues are at least kDominance / (1 + kDominance).
*/
constexpr double kDominance = 0.1;
/* 3, 5, 7 points; 27 with corners */
HostMatrix RandomStencil(LocalInt nx, LocalInt ny, LocalInt nz, bool corners, std::uint64_t seed);
/* about row_length entries a row */
HostMatrix RandomGraph(LocalInt n, LocalInt row_length, std::uint64_t seed);
HostMatrix RandomDense(LocalInt n, std::uint64_t seed);
HostMatrix RandomArrow(LocalInt n, std::uint64_t seed); /* first and last row and column full */
HostMatrix Hub(LocalInt n);                             /* last row and column full, the rest diagonal; fit for millions of rows */
/* Row `hub` is coupled with all others, and these with nothing else, or with their neighbours. */
HostMatrix Star(LocalInt n, LocalInt hub, bool chain = false);

/* NAME.petsc.xz of tests/matrices. */
HostMatrix Shared(const std::string &name);

/* The rows begin .. end - 1 as functions of PETSc take them. */
struct PetscRows {
  PetscRows(const std::vector<LocalInt> &from_i, const std::vector<LocalInt> &from_j, PetscInt begin, PetscInt end);
  std::vector<PetscInt> i, j;
};

bool SameBits(const std::vector<double> &, const std::vector<double> &);

/* A copy of numbers in the memory of a twin. */
class Array {
public:
  Array(const std::vector<double> &values, PetscMemType where) : size_(values.size()), where_(where)
  {
    MUST(ArrayCreate(size_ * sizeof(double), where_, (void **)&data_));
    MUST(ArrayCopy(data_, values.data(), size_ * sizeof(double), where_, PETSC_MEMTYPE_HOST));
  }
  Array(const Array &)            = delete;
  Array &operator=(const Array &) = delete;
  ~Array() { PetscCallAbort(PETSC_COMM_SELF, ArrayDestroy(where_, (void **)&data_)); }

  operator double *() const { return data_; }
  std::vector<double> Values() const
  {
    std::vector<double> values(size_);
    MUST(ArrayCopy(values.data(), data_, size_ * sizeof(double), PETSC_MEMTYPE_HOST, where_));
    return values;
  }

private:
  size_t       size_;
  PetscMemType where_;
  double      *data_ = nullptr;
};

/* A's arrays where a kernel wants them, for a scope. */
class CSRCopy {
public:
  CSRCopy(const HostMatrix &, PetscMemType where);
  CSRCopy(const CSRCopy &)            = delete;
  CSRCopy &operator=(const CSRCopy &) = delete;
  ~CSRCopy();
  CSRView view;
};

/* With several ranks `mine` is how many rows this one has; without it the split is PETSc's. */
MatObject CreateMat(const HostMatrix &, MatType, MPI_Comm = PETSC_COMM_SELF, PetscInt mine = PETSC_DECIDE);
VecObject CreateVec(LocalInt n, VecType, std::uint64_t seed); /* sequential, entries in -1 .. 1 */

/* Other nonzeros in a Mat, whose states do not always tell: the rows of this matrix, as rows or as single entries. */
void ReplaceByCSR(Mat, const HostMatrix &);
void ReplaceByCOO(Mat, const HostMatrix &);
