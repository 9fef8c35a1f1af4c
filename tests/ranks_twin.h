/* Twins of PCCMATCH's hierarchies of all ranks, made as PCCMATCH makes them, on the host or on the GPU. */
#pragma once

#include <cmath>
#include <cstdlib>

#include "device.h"
#include "pc/cmatch/cmatch_face.h"
#include "sparse/csr_mat.h"
#include "spread.h"

/* A copy of rows in the memory of a twin. */
class RowsCopy {
public:
  RowsCopy(const CSRView &from, PetscMemType where) : view(from)
  {
    MUST(CSRCreate(from.n, from.n, from.nnz, FINEPC_DOUBLE, where, &copy_));
    if (from.n) MUST(ArrayCopy(copy_.i, from.i, ((size_t)from.n + 1) * sizeof(LocalInt), where, from.where));
    MUST(ArrayCopy(copy_.j, from.j, from.nnz * sizeof(LocalInt), where, from.where));
    MUST(ArrayCopy(copy_.a, from.a, from.nnz * sizeof(PetscScalar), where, from.where));
    view = CSRView{from.n, from.nnz, copy_.i, copy_.j, (const PetscScalar *)copy_.a, where};
  }
  RowsCopy(const RowsCopy &)            = delete;
  RowsCopy &operator=(const RowsCopy &) = delete;
  ~RowsCopy() { PetscCallAbort(PETSC_COMM_SELF, CSRDestroy(&copy_)); }
  CSRView view;

private:
  CSR copy_{};
};

/* A hierarchy of all ranks, made as PCCMATCH makes it. */
class RanksTwin {
public:
  explicit RanksTwin(PetscMemType where) : where_(where) { }
  RanksTwin(const RanksTwin &)            = delete;
  RanksTwin &operator=(const RanksTwin &) = delete;
  ~RanksTwin()
  {
    PetscCallAbort(PETSC_COMM_SELF, CMATCHRanksDestroy(&ranks_));
    PetscCallAbort(PETSC_COMM_SELF, PetscMemTypeDevice(where_) ? CMATCHDestroy_CUDA(&H) : CMATCHDestroy_Host(&H));
  }

  /* What the hierarchy is made of beside the matrix, of all rows: w, if there is one, or the modes of nodes with k rows. */
  struct Data {
    std::vector<double> w = {};
    LocalInt            k = 1, m = 0;
    std::vector<double> B = {}, diagonal = {}; /* [rows][m], and of the matrix */
  };

  /* False if a rank has failed. */
  bool Compute(Mat A, const CMATCHParams &params, const Data &of, bool keep)
  {
    const bool     on_device = PetscMemTypeDevice(where_);
    CMATCHEntries  w_copy;
    PCLocalOutcome outcome;
    PCLocalPhase   phase{PETSC_COMM_WORLD, &outcome, false};
    CSRMat         own, others;
    double         largest = 0;
    if (!keep) {
      MUST(CMATCHRanksDestroy(&ranks_));
      MUST(on_device ? CMATCHDestroy_CUDA(&H) : CMATCHDestroy_Host(&H));
      MUST(CMATCHRanksCreate(A, on_device ? ExchangedMemory() : PETSC_MEMTYPE_HOST, of.k, &params, &ranks_));
      MUST(CMATCHRanksConnect(A, ranks_));
    }
    MUST(MatGetOwnershipRange(A, &ranks_->first, nullptr));
    MUST(MatGetCSR(A, &own));
    MUST(MatGetOtherCSR(A, &others));
    {
      const RowsCopy own_copy(own.A, where_), others_copy(others.A, where_);
      if (!of.w.empty()) Place(of.w, 1, own.A.n, false, &w_copy);
      if (of.m) TakeModes(of, own.A.n);
      MUST((on_device ? CMATCHLargestDiagonal_CUDA : CMATCHLargestDiagonal_Host)(&own_copy.view, w_copy.data(), params.zero,
                                                                                 &largest));
      MPI_Allreduce(MPI_IN_PLACE, &largest, 1, MPI_DOUBLE, MPI_MAX, PETSC_COMM_WORLD);
      CMATCHRanksSetUp *setup;
      const CMATCHModes modes = ranks_->modes.View(of.k);
      if (of.m)
        MUST((on_device ? CMATCHNodesRanksCreate_CUDA : CMATCHNodesRanksCreate_Host)(&params, &modes, (PetscBool)keep, PETSC_TRUE,
                                                                                     &ranks_->stats, &H, &setup));
      else
        MUST((on_device ? CMATCHRanksCreate_CUDA : CMATCHRanksCreate_Host)(&params, (PetscBool)keep, &ranks_->stats, &H, &setup));
      ranks_->setup.reset(setup);
      ranks_->keep      = (PetscBool)keep;
      ranks_->keep_work = PETSC_TRUE;
      H->level[0].first = ranks_->first / of.k;
      H->level[0].all   = ranks_->level[0].all;
      MUST(setup->Begin(&own_copy.view, &others_copy.view, ranks_->ghost, w_copy.data(), largest));
    }
    MUST(MatRestoreCSR(&others));
    MUST(MatRestoreCSR(&own));
    int failed = ranks_->stats.failure != CMATCH_OK;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
    if (!failed) {
      MUST(CMATCHRanksMakeLevels(&phase, H, ranks_));
      REQUIRE(outcome.code == PETSC_SUCCESS);
      failed = ranks_->stats.failure != CMATCH_OK;
    }
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
    if (!failed && !keep) MUST(CMATCHRanksConnectByMPI(&phase, ranks_));
    stats = ranks_->stats;
    ranks_->setup.reset();
    return !failed;
  }

  /* How many ranks have rows of a level that this one has. */
  int SizeOf(LocalInt l) const { return ranks_->level[l].size; }

  /* Exchanges of the cycle by NCCL from now on; false where that is not possible. */
  bool UseNCCL()
  {
    const char *why;
    MUST(NCCLOf(PETSC_COMM_WORLD, &ranks_->nccl, &why));
    if (!ranks_->nccl) return false;
    MUST(CMATCHRanksMakeRoom(ranks_, H));
    MUST(CMATCHConnect_CUDA(H, PETSC_COMM_WORLD, &direct));
    return true;
  }

  std::vector<double> Apply(const std::vector<double> &r)
  {
    const Array from(r, where_), to(std::vector<double>(r.size(), std::nan("")), where_);
    MUST((PetscMemTypeDevice(where_) ? CMATCHApply_CUDA : CMATCHApply_Host)(H, from, to));
    return to.Values();
  }

  std::vector<char> Bytes(const void *from, size_t bytes) const
  {
    std::vector<char> copy(bytes);
    if (bytes) MUST(ArrayCopy(copy.data(), from, bytes, PETSC_MEMTYPE_HOST, where_));
    return copy;
  }

  CMATCHHierarchy *H = nullptr;
  CMATCHStats      stats{};
  bool             direct = false; /* kernels write to the other GPUs themselves */

private:
  /* So many values of each own row, and behind them those of ghosts, or of all rows of the nodes that these are in. */
  void Place(const std::vector<double> &of_all, size_t each, LocalInt rows, bool nodes, CMATCHEntries *to) const
  {
    const auto          first = of_all.begin() + (ptrdiff_t)(ranks_->first * each);
    std::vector<double> mine(first, first + (ptrdiff_t)(rows * each));
    const PetscInt      k = nodes ? ranks_->k : 1;
    for (PetscInt g : nodes ? ranks_->ghost_nodes : ranks_->ghost)
      mine.insert(mine.end(), of_all.begin() + (ptrdiff_t)(g * k * each), of_all.begin() + (ptrdiff_t)((g + 1) * k * each));
    MUST(to->Assign(where_, mine.size(), nullptr, 0));
    MUST(ArrayCopy(to->data(), mine.data(), mine.size() * sizeof(double), where_, PETSC_MEMTYPE_HOST));
  }

  void TakeModes(const Data &of, LocalInt rows)
  {
    CMATCHRanksModes &modes = ranks_->modes;
    modes.m                 = of.m;
    Place(of.B, of.m, rows, true, &modes.B);
    Place(of.diagonal, 1, rows, true, &modes.diagonal);
    for (size_t e = 0; e < of.B.size(); e++)
      if (std::isfinite(of.B[e])) modes.largest[e % of.m] = std::max(modes.largest[e % of.m], std::fabs(of.B[e]));
  }

  PetscMemType where_;
  CMATCHRanks *ranks_ = nullptr;
};

/* The largest difference of all ranks, relative to the largest entry of all. */
inline double DifferenceOfAll(const std::vector<double> &x, const std::vector<double> &y)
{
  double most[2] = {0, 0};
  for (size_t i = 0; i < x.size(); i++) {
    const double difference = std::fabs(x[i] - y[i]);
    if (!(difference <= most[0])) most[0] = std::isfinite(difference) ? difference : 1e300;
    most[1] = std::max(most[1], std::fabs(y[i]));
  }
  MPI_Allreduce(MPI_IN_PLACE, most, 2, MPI_DOUBLE, MPI_MAX, PETSC_COMM_WORLD);
  return most[1] > 0 ? most[0] / most[1] : most[0];
}

/* Rows on few ranks, by these options. */
inline CMATCHParams Params(PetscInt gather_rows, PetscInt gather_ranks, PetscInt factor)
{
  CMATCHParams params;
  params.coarse_size   = 20;
  params.gather_rows   = gather_rows;
  params.gather_ranks  = gather_ranks;
  params.gather_factor = factor;
  return params;
}

template <typename Change>
CMATCHParams With(CMATCHParams params, Change change)
{
  change(params);
  return params;
}

/* Other values in the same nonzeros, which are those of a symmetric matrix if the first ones are */
inline HostMatrix Changed(HostMatrix A)
{
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt e = A.i[row]; e < A.i[row + 1]; e++) {
      A.a[e] *= 1 + 0.01 * ((row + A.j[e]) % 5);
      if (A.j[e] == row) A.a[e] *= 1.05;
    }
  return A;
}

/* The blocks of the operator of a level of nodes, by rows */
template <typename Twin>
std::vector<char> OperatorOf(const Twin &twin, LocalInt l)
{
  const CMATCHNodesLevel &L       = twin.H->nodes->level[l];
  const size_t            value   = FinePCPrecisionBytes(twin.H->params.precision);
  const size_t            entries = (size_t)L.k * L.k;
  std::vector<char>       blocks(L.blocks * entries * value);
  const std::vector<char> A_i = twin.Bytes(L.A_i, (L.n + 1) * sizeof(LocalInt));
  const std::vector<char> A_a = twin.Bytes(L.A_a, (L.slice ? (size_t)L.steps * kCMATCHSlice : L.blocks) * entries * value);
  std::vector<char>       slice((CMATCHSliceCount(L.n) + 1) * sizeof(LocalInt));
  if (L.slice) slice = twin.Bytes(L.slice, slice.size());
  const LocalInt *const begin = (const LocalInt *)A_i.data(), *const start = (const LocalInt *)slice.data();
  for (LocalInt i = 0; i < L.n; i++)
    for (LocalInt e = 0; e < begin[i + 1] - begin[i]; e++)
      for (LocalInt r = 0; r < L.k; r++)
        for (LocalInt c = 0; c < L.k; c++)
          std::copy_n(&A_a[CMATCHNodesPlace(L, i, begin[i], start[i / kCMATCHSlice], e, r, c) * value], value,
                      &blocks[(((size_t)(begin[i] + e) * L.k + r) * L.k + c) * value]);
  return blocks;
}

/*
   Set-ups on the host and on the GPU give the same, anew and with new values, and so do their cycles up to rounding, and the cycle
   with NCCL to the last bit. `compute` makes a hierarchy, or says that a rank has failed.
*/
inline void CompareTwins(const CMATCHParams                                                        &params,
                         const std::function<void(const RanksTwin &host, const RanksTwin &device)> &check,
                         const std::function<bool(RanksTwin *, bool keep)>                         &compute)
{
  RanksTwin  host(PETSC_MEMTYPE_HOST), device(PETSC_MEMTYPE_CUDA), nccl(PETSC_MEMTYPE_CUDA);
  const bool single = params.precision == FINEPC_SINGLE;
  for (const bool keep : {false, true}) {
    CAPTURE(keep);
    const bool made = compute(&host, keep);
    REQUIRE(compute(&device, keep) == made);
    CHECK(device.stats.failure == host.stats.failure);
    CHECK(device.stats.level == host.stats.level);
    CHECK(device.stats.row == host.stats.row);
    if (!made) return;
    check(host, device);
    Random              random(91 + Rank());
    std::vector<double> r(host.H->level[0].n);
    for (double &value : r) value = random.Between(-1, 1);
    const auto z = device.Apply(r), again = device.Apply(r);
    CHECK(SameBits(z, again));
    CHECK(DifferenceOfAll(z, host.Apply(r)) <= (single ? 1e-4 : 1e-11));
    /* NCCL brings the same values, in the graph of the set-up before, too */
    REQUIRE(compute(&nccl, keep));
    if (!keep && !nccl.UseNCCL()) break;
    /* symmetric matrices have all that kernels need for exchanges of their own */
    if (const char *words = std::getenv("FINEPC_EMULATOR_WORDS"); words && *words != 's') CHECK(nccl.direct == (*words == '1'));
    CHECK(SameBits(nccl.Apply(r), z));
    for (double &value : r) value *= -1.5;
    CHECK(SameBits(nccl.Apply(r), device.Apply(r)));
    nccl.H->size = device.H->size = 3; /* a solver knows the size of the vector */
    CHECK(SameBits(nccl.Apply(r), device.Apply(r)));
    nccl.H->size = device.H->size = -1;
  }
}
