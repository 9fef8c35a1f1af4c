#include "blocks.h"

#include <algorithm>
#include <cmath>

const PetscScalar *HostBlocks::Find(LocalInt row, LocalInt column) const
{
  for (LocalInt k = i[row]; k < i[row + 1]; k++)
    if (j[k] == column) return Block(k);
  return nullptr;
}

BSRView HostBlocks::View() const
{
  return BSRView{bs, n, nnz(), i.data(), j.data(), a.data(), PETSC_MEMTYPE_HOST};
}

HostBlocks RandomBlocks(const HostMatrix &pattern, LocalInt bs, std::uint64_t seed)
{
  const size_t bs2 = (size_t)bs * bs;
  Random       random(seed);
  HostBlocks   A;
  A.bs = bs;
  A.n  = pattern.n;
  A.i  = pattern.i;
  A.j  = pattern.j;
  A.a.resize(A.j.size() * bs2);
  for (double &value : A.a) value = random.Between(-1, 1);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt r = 0; r < bs; r++) {
      double       sum      = 0;
      PetscScalar *diagonal = nullptr;
      for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
        for (LocalInt c = 0; c < bs; c++) {
          PetscScalar *const entry = &A.a[k * bs2 + c * bs + r];
          if (A.j[k] == row && c == r) diagonal = entry;
          else sum += std::fabs(*entry);
        }
      REQUIRE(diagonal != nullptr);
      *diagonal = (sum + 0.1) / kBlockDominance * (random.Between(-1, 1) < 0 ? -1 : 1) * random.Between(1, 2);
    }
  return A;
}

HostMatrix Scalars(const HostBlocks &A, bool drop_zeros)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows((size_t)A.n * A.bs);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
      for (LocalInt c = 0; c < A.bs; c++)
        for (LocalInt r = 0; r < A.bs; r++) {
          const PetscScalar value = A.Block(k)[c * A.bs + r];
          if (value != 0 || !drop_zeros) rows[row * A.bs + r].emplace_back(A.j[k] * A.bs + c, value);
        }
  return FromRows(rows);
}

HostBlocks TransposeOf(const HostBlocks &A)
{
  HostBlocks At;
  At.bs = A.bs;
  At.n  = A.n;
  for (LocalInt column = 0; column < A.n; column++) {
    for (LocalInt row = 0; row < A.n; row++) {
      const PetscScalar *block = A.Find(row, column);
      if (!block) continue;
      At.j.push_back(row);
      for (LocalInt c = 0; c < A.bs; c++)
        for (LocalInt r = 0; r < A.bs; r++) At.a.push_back(block[r * A.bs + c]);
    }
    At.i.push_back((LocalInt)At.j.size());
  }
  return At;
}

/*
   On several ranks, PETSc's own split of the block rows. PETSc gets the blocks by rows: if MAT_ROW_ORIENTED is false, which the two
   parts of a parallel matrix lose when it is preallocated again, 3.19 and 3.20 transpose them.
*/
MatObject CreateBAIJ(const HostBlocks &A, MPI_Comm comm)
{
  MatObject                mat;
  PetscInt                 begin, end;
  std::vector<PetscScalar> values;
  MUST(MatCreate(comm, mat.put()));
  MUST(MatSetSizes(mat, PETSC_DECIDE, PETSC_DECIDE, A.n * A.bs, A.n * A.bs));
  MUST(MatSetBlockSize(mat, A.bs));
  MUST(MatSetType(mat, MATBAIJ));
  MUST(MatSetUp(mat));
  MUST(MatGetOwnershipRange(mat, &begin, &end));
  begin /= A.bs;
  end /= A.bs;
  for (LocalInt k = A.i[begin]; k < A.i[end]; k++)
    for (LocalInt r = 0; r < A.bs; r++)
      for (LocalInt c = 0; c < A.bs; c++) values.push_back(A.Block(k)[c * A.bs + r]);
  const PetscRows rows(A.i, A.j, begin, end);
  MUST(MatSeqBAIJSetPreallocationCSR(mat, A.bs, rows.i.data(), rows.j.data(), values.data()));
  MUST(MatMPIBAIJSetPreallocationCSR(mat, A.bs, rows.i.data(), rows.j.data(), values.data()));
  return mat;
}

MatObject CreateAIJ(const HostBlocks &A, MatType type, MPI_Comm comm)
{
  const HostMatrix S = Scalars(A);
  MatObject        mat;
  PetscInt         begin, end;
  MUST(MatCreate(comm, mat.put()));
  MUST(MatSetSizes(mat, PETSC_DECIDE, PETSC_DECIDE, S.n, S.n));
  MUST(MatSetBlockSize(mat, A.bs));
  MUST(MatSetType(mat, type));
  MUST(MatSetUp(mat));
  MUST(MatGetOwnershipRange(mat, &begin, &end));
  const PetscRows rows(S.i, S.j, begin, end);
  MUST(MatSeqAIJSetPreallocationCSR(mat, rows.i.data(), rows.j.data(), S.a.data() + S.i[begin]));
  MUST(MatMPIAIJSetPreallocationCSR(mat, rows.i.data(), rows.j.data(), S.a.data() + S.i[begin]));
  return mat;
}

BlocksCopy::BlocksCopy(const HostBlocks &A, PetscMemType where)
{
  MUST(BSRCreate(A.bs, A.n, A.n, A.nnz(), FINEPC_DOUBLE, where, &copy_));
  MUST(ArrayCopy(copy_.i, A.i.data(), A.i.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(copy_.j, A.j.data(), A.j.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(copy_.a, A.a.data(), A.a.size() * sizeof(PetscScalar), where, PETSC_MEMTYPE_HOST));
  view = BSRViewOf(&copy_);
}

BlocksCopy::~BlocksCopy()
{
  PetscCallAbort(PETSC_COMM_SELF, BSRDestroy(&copy_));
}

/* L by rows, then U from its last row on, each row's diagonal last. */
BlockLU SendLU(const HostLU &LU, PetscMemType where)
{
  const LocalInt           bs = LU.L.bs, n = LU.L.n, nnz = LU.L.nnz() + LU.U.nnz() + n;
  const size_t             bs2 = (size_t)bs * bs;
  std::vector<LocalInt>    place[LU_PLACES], j(LU.L.j);
  std::vector<PetscScalar> a(LU.L.a);
  BlockLU                  F{};
  for (auto &p : place) p.resize(n);
  for (LocalInt row = 0; row < n; row++) {
    place[LU_L][row]     = LU.L.i[row];
    place[LU_L_END][row] = LU.L.i[row + 1];
  }
  for (LocalInt row = n - 1; row >= 0; row--) {
    place[LU_U][row] = (LocalInt)j.size();
    j.insert(j.end(), LU.U.j.begin() + LU.U.i[row], LU.U.j.begin() + LU.U.i[row + 1]);
    a.insert(a.end(), LU.U.a.begin() + LU.U.i[row] * bs2, LU.U.a.begin() + LU.U.i[row + 1] * bs2);
    place[LU_U_END][row] = place[LU_DIAGONAL][row] = (LocalInt)j.size();
    j.push_back(row);
    a.insert(a.end(), LU.inverse.a.begin() + row * bs2, LU.inverse.a.begin() + (row + 1) * bs2);
  }
  MUST(BlockLUCreate(bs, n, nnz, where, &F));
  for (int p = 0; p < LU_PLACES; p++) MUST(ArrayCopy(F.place[p], place[p].data(), n * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(F.j, j.data(), j.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(F.a, a.data(), a.size() * sizeof(PetscScalar), where, PETSC_MEMTYPE_HOST));
  return F;
}

HostLU FetchLU(const BlockLU &F)
{
  const size_t             bs2 = (size_t)F.bs * F.bs;
  std::vector<LocalInt>    place[LU_PLACES], j(F.nnz);
  std::vector<PetscScalar> a(F.nnz * bs2);
  HostLU                   LU;
  for (int p = 0; p < LU_PLACES; p++) {
    place[p].resize(F.n);
    MUST(ArrayCopy(place[p].data(), F.place[p], F.n * sizeof(LocalInt), PETSC_MEMTYPE_HOST, F.where));
  }
  MUST(ArrayCopy(j.data(), F.j, F.nnz * sizeof(LocalInt), PETSC_MEMTYPE_HOST, F.where));
  MUST(ArrayCopy(a.data(), F.a, a.size() * sizeof(PetscScalar), PETSC_MEMTYPE_HOST, F.where));
  const auto take = [&](HostBlocks &T, const LocalInt begin, const LocalInt end) {
    T.j.insert(T.j.end(), j.begin() + begin, j.begin() + end);
    T.a.insert(T.a.end(), a.begin() + begin * bs2, a.begin() + end * bs2);
    T.i.push_back((LocalInt)T.j.size());
  };
  for (HostBlocks *T : {&LU.L, &LU.U, &LU.inverse}) {
    T->bs = F.bs;
    T->n  = F.n;
  }
  for (LocalInt row = 0; row < F.n; row++) {
    take(LU.L, place[LU_L][row], place[LU_L_END][row]);
    take(LU.U, place[LU_U][row], place[LU_U_END][row]);
    take(LU.inverse, place[LU_DIAGONAL][row], place[LU_DIAGONAL][row] + 1);
  }
  return LU;
}

HostLU ComputeLU(const HostBlocks &A, PetscMemType where, const HostBlocks *refill, LocalInt sweeps)
{
  const bool       device = PetscMemTypeDevice(where);
  const BlocksCopy copy(A, where);
  BlockLU          F{};
  BILUPlan        *plan = nullptr;
  BILUStats        stats{};
  HostLU           LU;
  PoisonMemory(where, (A.a.size() + 1000) * 2 * sizeof(double));
  MUST((device ? BILUAnalyse_CUDA : BILUAnalyse_Host)(&copy.view, sweeps, &F, &plan, &stats));
  if (!stats.failure) MUST((device ? BILUFactor_CUDA : BILUFactor_Host)(&copy.view, sweeps, plan, &F, &stats));
  if (!stats.failure && refill) {
    const BlocksCopy     other(*refill, where);
    const PetscLogDouble before = device ? DeviceBytes() : 0;
    MUST((device ? BILUFactor_CUDA : BILUFactor_Host)(&other.view, sweeps, plan, &F, &stats));
    if (device) CHECK(DeviceBytes() == before);
  }
  if (!stats.failure) LU = FetchLU(F);
  LU.stats = stats;
  MUST(BlockLUDestroy(&F));
  if (device) MUST(BILUPlanDestroy_CUDA(&plan));
  else MUST(BILUPlanDestroy_Host(&plan));
  return LU;
}

HostInverse ComputeInverse(const HostLU &LU, BISAITriangle triangle, bool diagonal, const BISAIParams &params, PetscMemType where,
                           const HostLU *refill)
{
  const bool     device     = PetscMemTypeDevice(where);
  const LocalInt power      = params.power;
  BlockLU        F          = SendLU(LU, where);
  const bool     by_columns = BISAIByColumns(params.side, triangle);
  BISAIColumns   columns{};
  BISAIWork      work{};
  BSR            N{}, host{};
  HostInverse    inverse;
  PoisonMemory(where, (LU.L.a.size() + LU.U.a.size() + LU.inverse.a.size() + 1000) * 4 * sizeof(double));
  MUST((device ? BISAIPattern_CUDA : BISAIPattern_Host)(&F, triangle, (PetscBool)diagonal, power, params.factor_precision, &N,
                                                        &inverse.stats));
  if (by_columns)
    MUST((device ? BISAIFindColumns_CUDA : BISAIFindColumns_Host)(&F, triangle, (PetscBool)diagonal, &N, &columns, &inverse.stats));
  const BISAIColumns *const given = by_columns ? &columns : nullptr;
  MUST(
    (device ? BISAIInvert_CUDA : BISAIInvert_Host)(&F, triangle, (PetscBool)diagonal, &params, given, &N, &work, &inverse.stats));
  if (refill) {
    const HostLU        &other  = *refill;
    BlockLU              again  = SendLU(other, where);
    const PetscLogDouble before = device ? DeviceBytes() : 0;
    MUST((device ? BISAIInvert_CUDA : BISAIInvert_Host)(&again, triangle, (PetscBool)diagonal, &params, given, &N, &work,
                                                        &inverse.stats));
    if (device) CHECK(DeviceBytes() == before);
    MUST(BlockLUDestroy(&again));
  }
  MUST(BISAIColumnsDestroy(&columns));
  MUST(BSRCopy(&N, PETSC_MEMTYPE_HOST, &host));
  inverse.N.bs = host.bs;
  inverse.N.n  = host.rows;
  inverse.N.i.assign(host.i, host.i + host.rows + 1);
  inverse.N.j.assign(host.j, host.j + host.nnz);
  for (size_t k = 0; k < (size_t)host.nnz * host.bs * host.bs; k++)
    inverse.N.a.push_back(host.precision == FINEPC_SINGLE ? (double)((float *)host.a)[k] : ((double *)host.a)[k]);
  MUST(ArrayDestroy(work.where, &work.data));
  MUST(BSRDestroy(&host));
  MUST(BSRDestroy(&N));
  MUST(BlockLUDestroy(&F));
  return inverse;
}

double DifferenceOf(const HostBlocks &A, const HostBlocks &B)
{
  const size_t bs2   = (size_t)A.bs * A.bs;
  double       worst = 0;
  REQUIRE(A.bs == B.bs);
  REQUIRE(A.i == B.i);
  REQUIRE(A.j == B.j);
  for (LocalInt row = 0; row < A.n; row++) {
    double largest = 0, off = 0;
    for (size_t k = A.i[row] * bs2; k < A.i[row + 1] * bs2; k++) {
      const double here = std::fabs(A.a[k] - B.a[k]);
      off               = here <= off ? off : here; /* NaN stays */
      largest           = std::max(largest, std::fabs(B.a[k]));
    }
    const double relative = off == 0 ? 0 : off / largest;
    worst                 = relative <= worst ? worst : relative;
  }
  return worst;
}
