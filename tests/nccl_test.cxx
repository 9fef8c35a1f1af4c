/* What is beside the kernels of an exchange by NCCL: who shares a GPU, lists of neighbours, and how a communicator is kept. */
#include <petscsf.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ksp/cgfused.h"
#include "matrices.h"
#include "support.h"
#if defined(FINEPC_HAVE_CUDA)
  #include "exchange.h"
#endif

namespace
{

using SFObject = Object<PetscSF, PetscSFDestroy>;

PetscMPIInt Rank()
{
  PetscMPIInt rank;
  MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
  return rank;
}

PetscMPIInt Size()
{
  PetscMPIInt size;
  MPI_Comm_size(PETSC_COMM_WORLD, &size);
  return size;
}

bool Distinct(const std::vector<std::string> &list)
{
  constexpr size_t  kLength = 16;
  std::vector<char> names(list.size() * kLength, '\0');
  for (size_t k = 0; k < list.size(); k++) list[k].copy(&names[k * kLength], kLength - 1);
  return AreDistinct((int)list.size(), names.data(), kLength);
}

/* An exchange in which this rank has `roots` entries and gets those with these global numbers, at these places or one by one. */
struct Exchange {
  SFObject              sf;
  PetscInt              roots, first = 0;
  std::vector<PetscInt> places, numbers;

  Exchange(PetscInt roots, std::vector<PetscInt> places, std::vector<PetscInt> numbers) :
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
std::vector<double> Expected(const Exchange &exchange)
{
  std::vector<double> ghosts(exchange.Leaves(), -1);
  for (size_t k = 0; k < exchange.numbers.size(); k++) ghosts[exchange.Place(k)] = EntryOf(exchange.numbers[k]);
  return ghosts;
}

std::vector<double> Roots(const Exchange &exchange)
{
  std::vector<double> x(exchange.roots);
  for (LocalInt k = 0; k < exchange.roots; k++) x[k] = EntryOf(exchange.first + k);
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
std::vector<Exchange> Exchanges()
{
  const PetscInt        roots = 20 + 7 * Rank(), rank = Rank(), size = Size();
  std::vector<PetscInt> first(size + 1, 0), others, backwards, spread;
  for (PetscInt r = 0; r < size; r++) first[r + 1] = first[r] + 20 + 7 * r;
  for (PetscInt r = 0; r < size; r++)
    for (PetscInt k = r % 3; k < 20 && r != rank; k += 1 + rank) others.push_back(first[r] + k);
  backwards.resize(others.size());
  std::iota(backwards.rbegin(), backwards.rend(), 0);
  for (size_t k = 0; k < others.size(); k++) spread.push_back((PetscInt)(k % 2 ? 2 * k : 2 * k + 1));
  std::vector<PetscInt> turned = others; /* the owners in another order, each with a piece of the leaves */
  std::rotate(turned.begin(), turned.begin() + (turned.empty() ? 0 : turned.size() / 2), turned.end());
  std::vector<Exchange> exchanges;
  exchanges.emplace_back(roots, std::vector<PetscInt>(), std::vector<PetscInt>());
  exchanges.emplace_back(roots, std::vector<PetscInt>(), others);
  exchanges.emplace_back(roots, std::vector<PetscInt>(), turned);
  exchanges.emplace_back(roots, backwards, others);
  exchanges.emplace_back(roots, spread, others);
  return exchanges;
}

} // namespace

TEST_CASE("nccl: ranks that share a GPU are found", "[nccl]")
{
  CHECK(Distinct({}));
  CHECK(Distinct({"0000:1B:00.0"}));
  CHECK(Distinct({"0000:1B:00.0", "0000:43:00.0", "0001:1B:00.0"}));
  CHECK(Distinct({"0000:1B:00.0", "0000:1B:00.01"})); /* a name that begins as another */
  CHECK(!Distinct({"0000:1B:00.0", "0000:1B:00.0"}));
  CHECK(!Distinct({"0000:1B:00.0", "0000:43:00.0", "0000:52:00.0", "0000:43:00.0"}));
}

TEST_CASE("nccl: the lists of an exchange bring what PETSc's exchange brings", "[nccl][mpi][two][four]")
{
  int kind = 0;
  for (const Exchange &exchange : Exchanges()) {
    CAPTURE(kind, Rank(), Size());
    Neighbours lists;
    MUST(NeighboursFromSF(exchange.sf, &lists));
    std::vector<double> theirs(exchange.Leaves(), -1), x = Roots(exchange);
    MUST(PetscSFBcastBegin(exchange.sf, MPI_DOUBLE, x.data(), theirs.data(), MPI_REPLACE));
    MUST(PetscSFBcastEnd(exchange.sf, MPI_DOUBLE, x.data(), theirs.data(), MPI_REPLACE));
    CHECK(theirs == Expected(exchange));
    CHECK(ByLists(x, exchange.Leaves(), lists) == theirs);
    for (const auto &parts : {lists.to, lists.from})
      for (const auto &part : parts) {
        CHECK(part.rank != Rank());
        CHECK(part.begin < part.end);
      }
    CHECK(lists.from.size() == (kind == 0 ? 0 : (size_t)Size() - 1));
    CHECK(lists.to.size() == (kind == 0 ? 0 : (size_t)Size() - 1));
    if (kind == 1) CHECK(lists.places.empty()); /* as cgfused has it: the owners' columns ascend */
    if (kind == 4 && Size() > 1) CHECK(lists.places.size() == exchange.numbers.size());
    kind++;
  }
}

TEST_CASE("nccl: the lists for several vectors bring all of them", "[nccl][mpi]")
{
  for (const Exchange &exchange : Exchanges())
    for (LocalInt columns : {1, 2, 5, 16}) {
      CAPTURE(columns, Rank(), Size());
      Neighbours lists, wide;
      MUST(NeighboursFromSF(exchange.sf, &lists));
      MUST(NeighboursWiden(lists, columns, &wide));
      CHECK(wide.places.empty() == lists.places.empty());
      CHECK(NeighboursLeaves(wide) == NeighboursLeaves(lists) * columns);
      CHECK(NeighboursLeaves(wide) <= exchange.Leaves() * columns);
      /* vector c has the entries of one vector times c + 1 */
      const std::vector<double> x = Roots(exchange), expected = Expected(exchange);
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

TEST_CASE("nccl: ranks tell one another where entries go", "[nccl][mpi]")
{
  for (const Exchange &exchange : Exchanges()) {
    Neighbours               lists;
    std::vector<LocalInt>    there;
    PetscBool                all;
    const LocalInt           first = 1000 * (Rank() + 1);
    std::vector<LocalInt>    back(Size(), -1);
    std::vector<MPI_Request> requests;
    MUST(NeighboursFromSF(exchange.sf, &lists));
    MUST(NeighboursTell(PETSC_COMM_WORLD, lists, PETSC_TRUE, first, &all, &there));
    CHECK(all);
    REQUIRE(there.size() == lists.to.size());
    /* each rank sends back what it was told, to be compared with what was meant */
    requests.resize(lists.to.size() + lists.from.size());
    for (size_t k = 0; k < lists.to.size(); k++)
      MPI_Isend(&there[k], 1, MPI_INT, lists.to[k].rank, 0, PETSC_COMM_WORLD, &requests[k]);
    for (size_t k = 0; k < lists.from.size(); k++)
      MPI_Irecv(&back[lists.from[k].rank], 1, MPI_INT, lists.from[k].rank, 0, PETSC_COMM_WORLD, &requests[lists.to.size() + k]);
    MPI_Waitall((int)requests.size(), requests.data(), MPI_STATUSES_IGNORE);
    for (const auto &part : lists.from) CHECK(back[part.rank] == first + part.begin);
    /* where one rank cannot, all know it */
    MUST(NeighboursTell(PETSC_COMM_WORLD, lists, (PetscBool)(Rank() != Size() - 1), first, &all, &there));
    CHECK(!all);
  }
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
  const Exchange exchange = std::move(Exchanges()[1]);
  Neighbours     lists;
  MUST(NeighboursFromSF(exchange.sf, &lists));
  for (const bool tell : {true, false}) {
    int failed = tell || !kHasCUDA;
    for (long n = 1; failed; n++) {
      CAPTURE(tell, n);
      std::vector<LocalInt> there;
      PetscBool             all;
      PetscErrorCode        code;
      MPI_Comm              comm;
      NCCL                 *nccl;
      const char           *why;
      MUST(MPI_Comm_dup(PETSC_COMM_WORLD, &comm));
      {
        const Errors        errors;
        const FailingMemory failing(FailingMemory::Through::New, Rank() == Size() - 1 ? n : 0);
        code   = tell ? NeighboursTell(comm, lists, PETSC_TRUE, 0, &all, &there) : NCCLOf(comm, &nccl, &why);
        failed = Rank() == Size() - 1 && failing.Failed();
      }
      MPI_Bcast(&failed, 1, MPI_INT, Size() - 1, PETSC_COMM_WORLD);
      CHECK((int)code == (int)(failed ? PETSC_ERR_MEM : PETSC_SUCCESS));
      if (!tell) { /* nothing half-made is found */
        MUST(NCCLOf(comm, &nccl, &why));
        CHECK((nccl || *why));
      }
      MUST(MPI_Comm_free(&comm));
      if (!failed) CHECK((n > 1 || (tell && Size() == 1)));
    }
  }
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
      for (const Exchange &exchange : Exchanges()) {
        Neighbours                lists;
        const std::vector<double> x = Roots(exchange);
        std::vector<double>       ghosts(exchange.Leaves(), -1);
        double                   *x_device, *ghosts_device;
        const size_t              x_bytes = x.size() * sizeof(double), bytes = ghosts.size() * sizeof(double);
        MUST(NeighboursFromSF(exchange.sf, &lists));
        MUST(ArrayCreate_CUDA(x_bytes, (void **)&x_device));
        MUST(ArrayCreate_CUDA(bytes, (void **)&ghosts_device));
        MUST(ArrayCopy_CUDA(x_device, x.data(), x_bytes, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
        MUST(ArrayCopy_CUDA(ghosts_device, ghosts.data(), bytes, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
#if defined(FINEPC_HAVE_CUDA)
        MUST(ExchangeOnce_CUDA(work, nccl, comm, &lists, x_device, ghosts_device));
#endif
        MUST(ArrayCopy_CUDA(ghosts.data(), ghosts_device, bytes, PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
        CHECK(ghosts == Expected(exchange));
        MUST(ArrayDestroy_CUDA((void **)&x_device));
        MUST(ArrayDestroy_CUDA((void **)&ghosts_device));
      }
    MUST(CGFusedDestroy_CUDA(&work));
  }
  MUST(MPI_Comm_free(&comm));
}
