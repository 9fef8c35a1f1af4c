/* Test matrices: plain CSR arrays on the host, and their way into kernels and Mats. */
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sparse/csr.h"
#include "support.h"

struct HostMatrix {
  PetscInt                 n = 0;
  std::vector<PetscInt>    i = std::vector<PetscInt>(1, 0), j;
  std::vector<PetscScalar> a;

  PetscInt    nnz() const { return (PetscInt)j.size(); }
  PetscScalar At(PetscInt row, PetscInt column) const; /* 0 where nothing is stored */
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
HostMatrix FromRows(const std::vector<std::vector<std::pair<PetscInt, PetscScalar>>> &);
HostMatrix FromDense(PetscInt n, const std::vector<PetscScalar> &);

/* Constant coefficients: 3, 5 or 7 points. */
HostMatrix Poisson(PetscInt nx, PetscInt ny = 1, PetscInt nz = 1);
/* -div(k grad u), 5 points, rows sum to 0 */
HostMatrix FiniteVolumes(PetscInt nx, PetscInt ny, const std::function<double(PetscInt x, PetscInt y)> &k);
HostMatrix Inclusions(PetscInt nx, PetscInt ny, double contrast); /* the same with squares of another conductivity */

/*
   SPD with random coefficients. The diagonal is (1 + kDominance) times the sum of the row's other magnitudes, and then A is
   scaled by a random diagonal from both sides. With unit diagonal, its eigenvalues are at least kDominance / (1 + kDominance).
*/
constexpr double kDominance = 0.1;
/* 3, 5, 7 points; 27 with corners */
HostMatrix RandomStencil(PetscInt nx, PetscInt ny, PetscInt nz, bool corners, std::uint64_t seed);
/* about row_length entries a row */
HostMatrix RandomGraph(PetscInt n, PetscInt row_length, std::uint64_t seed);
HostMatrix RandomDense(PetscInt n, std::uint64_t seed);
HostMatrix RandomArrow(PetscInt n, std::uint64_t seed); /* first and last row and column full */
HostMatrix Hub(PetscInt n);                             /* last row and column full, the rest diagonal; fit for millions of rows */

/* NAME.petsc.gz of tests/matrices. */
HostMatrix Shared(const std::string &name);

/* A's arrays where a kernel wants them, for a scope. */
class CSRCopy {
public:
  CSRCopy(const HostMatrix &, PetscMemType where);
  CSRCopy(const CSRCopy &)            = delete;
  CSRCopy &operator=(const CSRCopy &) = delete;
  ~CSRCopy();
  CSRView view;
};

MatObject CreateMat(const HostMatrix &, MatType, MPI_Comm = PETSC_COMM_SELF);
VecObject CreateVec(PetscInt n, VecType, std::uint64_t seed); /* sequential, entries in -1 .. 1 */
