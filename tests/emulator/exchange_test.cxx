/*
   Exchanges between GPUs with turns of their own, as a cycle of multigrid has them: by words, by messages, and where some exchanges
   have no room for words, see FINEPC_EMULATOR_WORDS in nccl.cxx. That of solvers, with the turns of sums, is part of their tests.
*/
#include <petscsf.h>

#include <algorithm>
#include <numeric>

#include "ranks/exchange.cuh"
#include "support.h"

namespace
{

int Rank()
{
  int rank;
  MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
  return rank;
}

int Ranks()
{
  int size;
  MPI_Comm_size(PETSC_COMM_WORLD, &size);
  return size;
}

/* This rank's rows, some of which go to each rank and to itself, and the lists for that. */
struct Rows {
  std::vector<double> x, expected; /* the rows, and the ghosts that come */
  Neighbours          lists;
};

/* Every rank needs each `stride`-th row of all ranks, in their order or, if `turned`, from the end. */
Rows RowsOf(PetscInt stride, bool turned, bool pieces)
{
  std::vector<PetscMPIInt> number(Ranks());
  std::vector<PetscInt>    wanted;
  PetscLayout              layout;
  PetscSF                  sf;
  PetscInt                 first;
  Rows                     rows;

  std::iota(number.begin(), number.end(), 0);
  for (PetscInt r = 0, begin = 0; r < Ranks(); begin += 300 + 7 * r, r++)
    for (PetscInt k = Rank() % stride; k < 300 + 7 * r; k += stride) wanted.push_back(begin + k);
  if (turned) std::reverse(wanted.begin(), wanted.end());
  MUST(PetscLayoutCreate(PETSC_COMM_WORLD, &layout));
  MUST(PetscLayoutSetLocalSize(layout, 300 + 7 * Rank()));
  MUST(PetscLayoutSetUp(layout));
  MUST(PetscLayoutGetRange(layout, &first, nullptr));
  MUST(PetscSFCreate(PETSC_COMM_WORLD, &sf));
  MUST(PetscSFSetGraphLayout(sf, layout, (PetscInt)wanted.size(), nullptr, PETSC_COPY_VALUES, wanted.data()));
  MUST(NeighboursFromSF(sf, &rows.lists));
  NeighboursSplit(&rows.lists, Rank(), number);
  if (pieces) NeighboursTakePieces(&rows.lists.from, &rows.lists.places);
  for (PetscInt k = 0; k < 300 + 7 * Rank(); k++) rows.x.push_back(1 + (double)(first + k));
  for (PetscInt row : wanted) rows.expected.push_back(1 + (double)row);
  MUST(PetscSFDestroy(&sf));
  MUST(PetscLayoutDestroy(&layout));
  return rows;
}

template <typename T>
class Vector {
public:
  explicit Vector(size_t size) : size_(size) { MUST(ArrayCreate_CUDA(size * sizeof(T), (void **)&data_)); }
  ~Vector() { PetscCallAbort(PETSC_COMM_SELF, ArrayDestroy_CUDA((void **)&data_)); }
  Vector(const Vector &)            = delete;
  Vector &operator=(const Vector &) = delete;
  void    Set(const std::vector<double> &x, double factor)
  {
    for (size_t k = 0; k < size_; k++) data_[k] = (T)(x[k] * factor); /* the emulated device has memory of the host */
  }
  bool Is(const std::vector<double> &x, double factor) const
  {
    for (size_t k = 0; k < size_; k++)
      if (data_[k] != (T)(x[k] * factor)) return false;
    return true;
  }
  T *data() const { return data_; }

private:
  size_t size_;
  T     *data_ = nullptr;
};

/* There and back, as the lists and their reverse say it, with other numbers in each round. */
template <typename T>
void CheckRounds(ExchangeRanks *ranks, const Rows &rows, bool aside)
{
  constexpr int           kBack[] = {1, -1};
  std::vector<Neighbours> lists   = {rows.lists, rows.lists};
  WorkMeter               meter;
  DeviceExchanges         of(&meter, true);
  Vector<T>               x(rows.x.size()), ghosts(rows.expected.size()), back(rows.x.size());
  bool                    direct;
  cudaStream_t            stream = nullptr;

  NeighboursReverse(&lists[1]);
  of.bytes = sizeof(T);
  MUST(DeviceExchangesMakeRoom(ranks, &of, lists, kBack, 2));
  MUST(DeviceExchangesConnect(ranks, &of, PETSC_COMM_WORLD, &direct));
  for (int round = 1; round <= 4; round++) {
    x.Set(rows.x, round);
    back.Set(rows.x, 0);
    MUST(DeviceExchangeBegin(ranks, of, 0, nullptr, x.data(), ghosts.data(), aside, stream));
    MUST(DeviceExchangeEnd(ranks, of, 0, ghosts.data(), aside, stream));
    MUST(DeviceExchangeBegin(ranks, of, 1, nullptr, ghosts.data(), back.data(), aside, stream));
    MUST(DeviceExchangeEnd(ranks, of, 1, back.data(), aside, stream));
    CHECK(ghosts.Is(rows.expected, round));
    std::vector<double> returned(rows.x.size(), 0);
    for (const auto *list : {&rows.lists.entries, &rows.lists.own_from})
      for (LocalInt entry : *list) returned[entry] = rows.x[entry];
    CHECK(back.Is(returned, round));
  }
  MPI_Barrier(PETSC_COMM_WORLD); /* no rank gives words back that another one still writes */
  DeviceExchangesForget(ranks, &of);
}

} // namespace

TEST_CASE("exchange: GPUs bring entries there and back", "[exchange][mpi][emulated]")
{
  ExchangeRanks ranks;
  NCCL         *nccl;
  const char   *why;
  MUST(NCCLOf(PETSC_COMM_WORLD, &nccl, &why));
  REQUIRE(nccl);
  ExchangeRanksUse(&ranks, nccl);
  for (PetscInt stride : {1, 3, 250})
    for (bool turned : {false, true})
      for (bool aside : {true, false}) {
        CAPTURE(stride, turned, aside, Rank());
        const Rows rows = RowsOf(stride, turned, aside);
        CheckRounds<double>(&ranks, rows, aside);
        CheckRounds<float>(&ranks, rows, aside);
      }
  MUST(ExchangeRanksDestroy(&ranks));
}
