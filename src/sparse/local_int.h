/*
   Numbers of rows, columns and entries of what one rank has. They take 32 bits in the factors and in the twins, also with a PETSc
   that was configured --with-64-bit-indices. Numbers in a whole matrix, and what users set and get, are PetscInt.
*/
#pragma once

#include <finepc.h>

#include <algorithm>
#include <climits>
#include <type_traits>
#include <vector>

#include "petsc_compat.h"

using LocalInt = int;
#define LocalInt_FMT  "d"
#define LOCAL_INT_MAX INT_MAX

/* What both twins call, so that the bits are the same. */
#ifdef __CUDACC__
  #define FINEPC_HOST_DEVICE __host__ __device__
#else
  #define FINEPC_HOST_DEVICE
#endif

/* An error that names `noun` if the number does not fit. */
PetscErrorCode LocalIntCast(PetscInt64 number, const char noun[], LocalInt *);

/* Numbers in ascending order, each of them once. */
template <typename Int>
void SortUnique(std::vector<Int> *numbers)
{
  std::sort(numbers->begin(), numbers->end());
  numbers->erase(std::unique(numbers->begin(), numbers->end()), numbers->end());
}

/* Local numbers on the host as a function of PETSc takes them, as long as this object lives. They are copied where they must be. */
class PetscInts {
public:
  PetscInts(const LocalInt *numbers, size_t count)
  {
    if (std::is_same_v<PetscInt, LocalInt>) numbers_ = (const PetscInt *)numbers;
    else {
      copy_.assign(numbers, numbers + count);
      numbers_ = copy_.data();
    }
  }
  PetscInts(const PetscInts &)            = delete;
  PetscInts &operator=(const PetscInts &) = delete;
  operator const PetscInt *() const { return numbers_; }

private:
  std::vector<PetscInt> copy_;
  const PetscInt       *numbers_;
};

/* Copies numbers that fit. Source and copy are in the same memory; the copy is complete, so that any stream may read it. */
PetscErrorCode LocalIntCopy_Host(size_t count, const PetscInt *from, LocalInt *to);
PetscErrorCode LocalIntCopy_CUDA(size_t count, const PetscInt *from, LocalInt *to);
