/* Block matrices on the host, block by block, and their way into kernels. */
#pragma once

#include "compare.h"
#include "pc/bisai/bisai.h"

struct HostBlocks {
  LocalInt                 bs = 1, n = 0;
  std::vector<LocalInt>    i = std::vector<LocalInt>(1, 0), j;
  std::vector<PetscScalar> a; /* column-major blocks */

  LocalInt           nnz() const { return (LocalInt)j.size(); }
  const PetscScalar *Block(LocalInt k) const { return a.data() + (size_t)k * bs * bs; }
  const PetscScalar *Find(LocalInt row, LocalInt column) const; /* null where nothing is stored */
  PetscScalar       *Find(LocalInt row, LocalInt column)
  {
    return const_cast<PetscScalar *>(const_cast<const HostBlocks *>(this)->Find(row, column));
  }
  BSRView View() const;
};

/*
   The pattern of a matrix with a block of random numbers for each entry; not symmetric. The rows are dominated by their diagonal
   entries, the sum of the others being at most kBlockDominance of them.
*/
constexpr double kBlockDominance = 0.8;
HostBlocks       RandomBlocks(const HostMatrix &pattern, LocalInt bs, std::uint64_t seed);
HostMatrix       Scalars(const HostBlocks &, bool drop_zeros = false); /* the same, entry by entry */
HostBlocks       TransposeOf(const HostBlocks &);
MatObject        CreateBAIJ(const HostBlocks &, MPI_Comm = PETSC_COMM_SELF);
MatObject        CreateAIJ(const HostBlocks &, MatType, MPI_Comm = PETSC_COMM_SELF); /* with its block size */

/* The arrays of a matrix where a kernel wants them, for a scope. */
class BlocksCopy {
public:
  BlocksCopy(const HostBlocks &, PetscMemType where);
  BlocksCopy(const BlocksCopy &)            = delete;
  BlocksCopy &operator=(const BlocksCopy &) = delete;
  ~BlocksCopy();
  BSRView view;

private:
  BSR copy_{};
};

/* L and U of whoever computed them: strictly lower and upper blocks, and the inverses of U's diagonal blocks. */
struct HostLU {
  HostBlocks L, U, inverse;
  BILUStats  stats{};
};
BlockLU SendLU(const HostLU &, PetscMemType where); /* as PETSc keeps it */
HostLU  FetchLU(const BlockLU &);

/* BILUAnalyse and BILUFactor, then again for `refill` in the same memory. */
HostLU ComputeLU(const HostBlocks &, PetscMemType where, const HostBlocks *refill = nullptr, LocalInt sweeps = 0);

/* BISAIPattern and BISAIInvert: strictly triangular part and diagonal as the kernel left them. */
struct HostInverse {
  HostBlocks N; /* values in double, whatever their precision */
  BISAIStats stats{};
};
HostInverse ComputeInverse(const HostLU &, BISAITriangle, bool diagonal, const BISAIParams &, PetscMemType where,
                           const HostLU *refill = nullptr);

/* Largest difference of two blocks that should be the same, relative to the largest entry of their block row. */
double DifferenceOf(const HostBlocks &, const HostBlocks &);
