/* Exchanges between ranks, by PetscSF and by lists of neighbours; and for NCCL who shares a GPU, and how a communicator is kept. */
#include <petscsf.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ksp/cgfused.h"
#include "device.h"
#include "ranks/group.h"
#include "matrices.h"
#include "spread.h"
#include "support.h"
#if defined(FINEPC_HAVE_CUDA)
  #include "exchange.h"
#endif

namespace
{

using SFObject = Object<PetscSF, PetscSFDestroy>;

bool Distinct(const std::vector<std::string> &list)
{
  constexpr size_t  kLength = 16;
  std::vector<char> names(list.size() * kLength, '\0');
  for (size_t k = 0; k < list.size(); k++) list[k].copy(&names[k * kLength], kLength - 1);
  return AreDistinct((int)list.size(), names.data(), kLength);
}

/* An exchange in which this rank has `roots` entries and gets those with these global numbers, at these places or one by one. */
struct Wish {
  SFObject              sf;
  PetscInt              roots, first = 0;
  std::vector<PetscInt> places, numbers;

  Wish(PetscInt roots, std::vector<PetscInt> places, std::vector<PetscInt> numbers) :
      roots(roots), places(std::move(places)), numbers(std::move(numbers))
  {
    PetscLayout layout;
    MUST(PetscLayoutCreate(PETSC_COMM_WORLD, &layout));
    MUST(PetscLayoutSetLocalSize(layout, roots));
    MUST(PetscLayoutSetUp(layout));
    MUST(PetscLayoutGetRange(layout, &first, nullptr));
    MUST(PetscSFCreate(PETSC_COMM_WORLD, sf.put()));
    MUST(PetscSFSetGraphLayout(sf, layout, (PetscInt)this->numbers.size(), this->places.empty() ? nullptr : this->places.data(),
                               PETSC_COPY_VALUES, this->numbers.data()));
    MUST(PetscLayoutDestroy(&layout));
  }
  PetscInt Place(size_t k) const { return places.empty() ? (PetscInt)k : places[k]; }
  size_t   Leaves() const { return 1 + 2 * numbers.size(); } /* room for places that are spread */
};

double EntryOf(PetscInt number)
{
  return 1 + 0.5 * (double)number;
}

/* Where each entry that is expected has arrived; -1 stands for nothing. */
std::vector<double> Expected(const Wish &wish)
{
  std::vector<double> ghosts(wish.Leaves(), -1);
  for (size_t k = 0; k < wish.numbers.size(); k++) ghosts[wish.Place(k)] = EntryOf(wish.numbers[k]);
  return ghosts;
}

std::vector<double> Roots(const Wish &wish)
{
  std::vector<double> x(wish.roots);
  for (LocalInt k = 0; k < wish.roots; k++) x[k] = EntryOf(wish.first + k);
  return x;
}

/* The exchange of x by the lists, with MPI. */
std::vector<double> ByLists(const std::vector<double> &x, size_t leaves, const Neighbours &lists)
{
  std::vector<double>      packed, ghosts(leaves, -1), received(lists.places.size());
  std::vector<MPI_Request> requests(lists.to.size() + lists.from.size());
  double *const            into = lists.places.empty() ? ghosts.data() : received.data();
  MPI_Request             *next = requests.data();
  for (LocalInt entry : lists.entries) packed.push_back(x[entry]);
  for (const auto &part : lists.from)
    MPI_Irecv(into + part.begin, (int)(part.end - part.begin), MPI_DOUBLE, part.rank, 0, PETSC_COMM_WORLD, next++);
  for (const auto &part : lists.to)
    MPI_Isend(packed.data() + part.begin, (int)(part.end - part.begin), MPI_DOUBLE, part.rank, 0, PETSC_COMM_WORLD, next++);
  MPI_Waitall((int)requests.size(), requests.data(), MPI_STATUSES_IGNORE);
  for (size_t k = 0; k < lists.places.size(); k++) ghosts[lists.places[k]] = received[k];
  return ghosts;
}

/* Exchanges of several kinds; each rank needs something of every other one but in the first of them. */
std::vector<Wish> Wishes()
{
  const PetscInt        roots = 20 + 7 * Rank(), rank = Rank(), size = Ranks();
  std::vector<PetscInt> first(size + 1, 0), others, backwards, spread;
  for (PetscInt r = 0; r < size; r++) first[r + 1] = first[r] + 20 + 7 * r;
  for (PetscInt r = 0; r < size; r++)
    for (PetscInt k = r % 3; k < 20 && r != rank; k += 1 + rank) others.push_back(first[r] + k);
  backwards.resize(others.size());
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  for (size_t k = 0; k < others.size(); k++) spread.push_back((PetscInt)(k % 2 ? 2 * k : 2 * k + 1));
  std::vector<PetscInt> turned = others; /* the owners in another order, each with a piece of the leaves */
  std::rotate(turned.begin(), turned.begin() + (turned.empty() ? 0 : turned.size() / 2), turned.end());
  std::vector<Wish> wishes;
  wishes.emplace_back(roots, std::vector<PetscInt>(), std::vector<PetscInt>());
  wishes.emplace_back(roots, std::vector<PetscInt>(), others);
  wishes.emplace_back(roots, std::vector<PetscInt>(), turned);
  wishes.emplace_back(roots, backwards, others);
  wishes.emplace_back(roots, spread, others);
  return wishes;
}

/* The exchange of such a PetscSF, on the host. */
struct Of {
  Exchange of;

  explicit Of(const Wish &wish)
  {
    of.sf = wish.sf;
    MUST(PetscObjectReference((PetscObject)of.sf));
    MUST(PetscObjectGetId((PetscObject)of.sf, &of.id));
    MUST(ExchangeMakeLists(&of));
  }
  ~Of() { PetscCallAbort(PETSC_COMM_SELF, ExchangeDestroy(&of)); }
};

template <typename T>
std::vector<T> As(const std::vector<double> &x)
{
  return {x.begin(), x.end()};
}

/* What the exchange brings of entries of this type, and takes back to where it came from. */
template <typename T>
void CheckThereAndBack(const Wish &wish, MPI_Datatype type)
{
  const Of             exchange(wish);
  const std::vector<T> x = As<T>(Roots(wish)), expected = As<T>(Expected(wish));
  std::vector<T>       ghosts(wish.Leaves(), -1), back(x.size(), -1);
  MUST(ExchangeBegin(&exchange.of, type, x.data(), ghosts.data()));
  MUST(ExchangeEnd(&exchange.of, type, x.data(), ghosts.data()));
  CHECK(ghosts == expected);
  MUST(ExchangeBackBegin(&exchange.of, type, ghosts.data(), back.data()));
  MUST(ExchangeBackEnd(&exchange.of, type, ghosts.data(), back.data()));
  for (size_t k = 0; k < x.size(); k++) CHECK((back[k] == x[k] || back[k] == -1));
  for (LocalInt entry : exchange.of.lists.entries) CHECK(back[entry] == x[entry]);
}

} // namespace

TEST_CASE("exchange: entries of any type come, and go back", "[exchange][mpi][two][four]")
{
  for (const Wish &wish : Wishes()) {
    CheckThereAndBack<double>(wish, MPI_DOUBLE);
    CheckThereAndBack<float>(wish, MPI_FLOAT);
    CheckThereAndBack<PetscInt>(wish, MPIU_INT);
  }
  const Exchange none;
  MUST(ExchangeBegin(&none, MPI_DOUBLE, nullptr, nullptr));
  MUST(ExchangeEnd(&none, MPI_DOUBLE, nullptr, nullptr));
}

/* All rows of a rank may go to itself, to another one, or nowhere. */
TEST_CASE("exchange: what a rank sends to itself is apart, in both directions", "[exchange][mpi][two][four]")
{
  std::vector<PetscMPIInt> number(Ranks());
  std::iota(number.begin(), number.end(), 0);
  for (int kind = 0; kind < 3; kind++) {
    std::vector<PetscInt> numbers;
    for (PetscInt r = 0, first = 0; r < Ranks(); first += 20 + 7 * r, r++)
      for (PetscInt k = Rank(); k < 20 + 7 * r; k += Ranks())
        if (kind == 0 || (kind == 1 && r == Rank())) numbers.push_back(first + k);
    const Wish          wish(20 + 7 * Rank(), {}, numbers);
    Neighbours          lists;
    std::vector<double> x = Roots(wish), back(x.size(), -1);
    MUST(NeighboursFromSF(wish.sf, &lists));
    NeighboursSplit(&lists, Rank(), number);
    for (const auto &part : lists.to) CHECK(part.rank != Rank());
    CHECK(lists.own_from.size() == lists.own_to.size());
    CHECK(lists.own_to.size() + lists.places.size() == numbers.size());
    std::vector<double> ghosts = ByLists(x, wish.Leaves(), lists);
    for (size_t k = 0; k < lists.own_to.size(); k++) ghosts[lists.own_to[k]] = x[lists.own_from[k]];
    CHECK(ghosts == Expected(wish));
    NeighboursReverse(&lists);
    back = ByLists(ghosts, x.size(), lists);
    for (size_t k = 0; k < lists.own_to.size(); k++) back[lists.own_to[k]] = ghosts[lists.own_from[k]];
    if (kind == 0) CHECK(back == x); /* each row is a ghost of one rank */
    NeighboursTakePieces(&lists.from, &lists.places);
    NeighboursReverse(&lists);
    NeighboursTakePieces(&lists.from, &lists.places);
    if (kind == 1) CHECK((lists.to.empty() && lists.from.empty()));
  }
}

TEST_CASE("exchange: a matrix has one until its columns of other ranks change", "[exchange][mpi][two]")
{
  const MatObject A = Spread(Poisson(12, 5, 1), MATAIJ, Even), B = Spread(Poisson(6, 5, 2), MATAIJ, Even);
  Exchange        exchange;
  PetscBool       fits;
  Mat             others;
  PetscInt        count;
  const PetscInt *columns;
  if (Ranks() == 1) {
    SkipTest();
    return;
  }
  MUST(MatMPIAIJGetSeqAIJ(A, nullptr, &others, &columns));
  MUST(MatGetLocalSize(others, nullptr, &count));
  MUST(ExchangeFitsMat(&exchange, A, &fits));
  CHECK(!fits);
  MUST(ExchangeCreate(PETSC_MEMTYPE_HOST, (LocalInt)count, &exchange));
  MUST(ExchangeFromMat(A, columns, &exchange));
  MUST(ExchangeFitsMat(&exchange, A, &fits));
  CHECK(fits);
  MUST(ExchangeFitsMat(&exchange, B, &fits));
  CHECK(!fits);
  MUST(ExchangeDestroy(&exchange));
}

TEST_CASE("nccl: ranks that share a GPU are found", "[nccl]")
{
  CHECK(Distinct({}));
  CHECK(Distinct({"0000:1B:00.0"}));
  CHECK(Distinct({"0000:1B:00.0", "0000:43:00.0", "0001:1B:00.0"}));
  CHECK(Distinct({"0000:1B:00.0", "0000:1B:00.01"})); /* a name that begins as another */
  CHECK(!Distinct({"0000:1B:00.0", "0000:1B:00.0"}));
  CHECK(!Distinct({"0000:1B:00.0", "0000:43:00.0", "0000:52:00.0", "0000:43:00.0"}));
}

TEST_CASE("exchange: the lists bring what PETSc's exchange brings", "[exchange][mpi][two][four]")
{
  int kind = 0;
  for (const Wish &wish : Wishes()) {
    CAPTURE(kind, Rank(), Ranks());
    Neighbours lists;
    MUST(NeighboursFromSF(wish.sf, &lists));
    std::vector<double> theirs(wish.Leaves(), -1), x = Roots(wish);
    MUST(PetscSFBcastBegin(wish.sf, MPI_DOUBLE, x.data(), theirs.data(), MPI_REPLACE));
    MUST(PetscSFBcastEnd(wish.sf, MPI_DOUBLE, x.data(), theirs.data(), MPI_REPLACE));
    CHECK(theirs == Expected(wish));
    CHECK(ByLists(x, wish.Leaves(), lists) == theirs);
    for (const auto &parts : {lists.to, lists.from})
      for (const auto &part : parts) {
        CHECK(part.rank != Rank());
        CHECK(part.begin < part.end);
      }
    CHECK(lists.from.size() == (kind == 0 ? 0 : (size_t)Ranks() - 1));
    CHECK(lists.to.size() == (kind == 0 ? 0 : (size_t)Ranks() - 1));
    if (kind == 1) CHECK(lists.places.empty()); /* as cgfused has it: the owners' columns ascend */
    if (kind == 4 && Ranks() > 1) CHECK(lists.places.size() == wish.numbers.size());
    kind++;
  }
}

TEST_CASE("exchange: the lists for several vectors bring all of them", "[exchange][mpi]")
{
  for (const Wish &wish : Wishes())
    for (LocalInt columns : {1, 2, 5, 16}) {
      CAPTURE(columns, Rank(), Ranks());
      Neighbours lists, wide;
      MUST(NeighboursFromSF(wish.sf, &lists));
      MUST(NeighboursWiden(lists, columns, &wide));
      CHECK(wide.places.empty() == lists.places.empty());
      CHECK(NeighboursLeaves(wide) == NeighboursLeaves(lists) * columns);
      CHECK(NeighboursLeaves(wide) <= wish.Leaves() * columns);
      /* vector c has the entries of one vector times c + 1 */
      const std::vector<double> x = Roots(wish), expected = Expected(wish);
      std::vector<double>       all_x, all_expected;
      for (double value : x)
        for (LocalInt c = 0; c < columns; c++) all_x.push_back((c + 1) * value);
      for (double value : expected)
        for (LocalInt c = 0; c < columns; c++) all_expected.push_back(value < 0 ? -1 : (c + 1) * value);
      CHECK(ByLists(all_x, all_expected.size(), wide) == all_expected);
    }
  Neighbours many, wide;
  many.to      = {{0, 0, 1}};
  many.entries = {LOCAL_INT_MAX / 4};
  Errors errors;
  CHECK((int)NeighboursWiden(many, 8, &wide) != 0);
  CHECK(Contains(errors.text, "entries of several right-hand sides"));
}

TEST_CASE("nccl: a communicator is kept, or the reason why there is none", "[nccl][mpi]")
{
  MPI_Comm    comm;
  NCCL       *first, *second;
  const char *why, *again;
  for (int round = 0; round < 2; round++) {
    MUST(MPI_Comm_dup(PETSC_COMM_WORLD, &comm));
    MUST(NCCLOf(comm, &first, &why));
    MUST(NCCLOf(comm, &second, &again));
    CHECK(first == second);
    CHECK(std::string(why) == again);
    CHECK((*why == '\0') == (first != nullptr));
    if (!kHasCUDA) CHECK(std::string(why) == "this finepc was built without CUDA");
    /* all ranks have the same reason */
    char theirs[kNCCLText] = "";
    std::strncpy(theirs, why, kNCCLText - 1);
    MUST(MPI_Bcast(theirs, kNCCLText, MPI_CHAR, 0, PETSC_COMM_WORLD));
    CHECK(std::string(why) == theirs);
    MUST(MPI_Comm_free(&comm)); /* which destroys it */
  }
}

/* PETSc's own code for GPUs ends the program where new fails, so that the communicator is tried without CUDA alone. */
TEST_CASE("nccl: the memory of one rank ends, and all of them get an error", "[nccl][memory][mpi]")
{
  bool failed = !kHasCUDA;
  for (long n = 1; failed; n++) {
    CAPTURE(n);
    MPI_Comm    comm;
    NCCL       *nccl;
    const char *why;
    MUST(MPI_Comm_dup(PETSC_COMM_WORLD, &comm));
    failed = FailsOnAll(Ranks() - 1, n, [&] { return NCCLOf(comm, &nccl, &why); });
    MUST(NCCLOf(comm, &nccl, &why)); /* nothing half-made is found */
    CHECK((nccl || *why));
    MUST(MPI_Comm_free(&comm));
    if (!failed) CHECK(n > 1);
  }
}

TEST_CASE("exchange: kernels that wait for another GPU end when the host gives up", "[exchange][gpu]")
{
  NEEDS_DEVICE();
  if (DeviceIsEmulated()) {
    SkipTest();
    return;
  }
#if defined(FINEPC_HAVE_CUDA)
  bool   waited    = false;
  double in_double = 0;
  float  in_single = 0;
  MUST(AwaitInVain_CUDA(&waited, &in_double, &in_single));
  CHECK(waited);
  CHECK(std::isnan(in_double));
  CHECK(std::isnan(in_single));
#endif
}

/* Each exchange by the kernels, and twice, since the second one finds what the first has left behind. */
TEST_CASE("nccl: an exchange by NCCL brings what PETSc's exchange brings", "[nccl][mpi][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  MPI_Comm    comm;
  NCCL       *nccl;
  const char *why;
  MUST(MPI_Comm_dup(PETSC_COMM_WORLD, &comm));
  MUST(NCCLOf(comm, &nccl, &why));
  if (!nccl) {
    MUST(PetscPrintf(PETSC_COMM_WORLD, "an exchange by NCCL is not tested: %s\n", why));
    SkipTest();
  } else {
    CGFusedWork *work;
    MUST(CGFusedCreate_CUDA(&work));
    for (int round = 0; round < 2; round++)
      for (const Wish &wish : Wishes()) {
        const Of                  exchange(wish);
        const std::vector<double> x = Roots(wish);
        std::vector<double>       ghosts(wish.Leaves(), -1);
        double                   *x_device, *ghosts_device;
        const size_t              x_bytes = x.size() * sizeof(double), bytes = ghosts.size() * sizeof(double);
        MUST(ArrayCreate_CUDA(x_bytes, (void **)&x_device));
        MUST(ArrayCreate_CUDA(bytes, (void **)&ghosts_device));
        MUST(ArrayCopy_CUDA(x_device, x.data(), x_bytes, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
        MUST(ArrayCopy_CUDA(ghosts_device, ghosts.data(), bytes, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
#if defined(FINEPC_HAVE_CUDA)
        MUST(ExchangeOnce_CUDA(work, nccl, &exchange.of, x_device, ghosts_device));
#endif
        MUST(ArrayCopy_CUDA(ghosts.data(), ghosts_device, bytes, PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
        CHECK(ghosts == Expected(wish));
        MUST(ArrayDestroy_CUDA((void **)&x_device));
        MUST(ArrayDestroy_CUDA((void **)&ghosts_device));
      }
    MUST(CGFusedDestroy_CUDA(&work));
  }
  MUST(MPI_Comm_free(&comm));
}
