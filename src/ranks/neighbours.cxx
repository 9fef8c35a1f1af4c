/* The lists of an exchange, from PETSc's description of it. */
#include "ranks/neighbours.h"

#include <algorithm>

#include "ranks/agree.h"
#include "entry.h"

/* Whether the places of each part follow one another. */
static bool AreInPieces(const std::vector<Neighbours::Part> &parts, const std::vector<LocalInt> &places)
{
  for (const Neighbours::Part &part : parts)
    for (LocalInt k = part.begin; k < part.end; k++)
      if (places[k] != places[part.begin] + (k - part.begin)) return false;
  return true;
}

/* The parts that have entries; offset [count + 1] */
static std::vector<Neighbours::Part> PartsOf_Neighbours(PetscMPIInt count, const PetscMPIInt ranks[], const PetscInt offset[])
{
  std::vector<Neighbours::Part> parts;
  for (PetscMPIInt k = 0; k < count; k++)
    if (offset[k + 1] > offset[k]) parts.push_back({ranks[k], (LocalInt)offset[k], (LocalInt)offset[k + 1]});
  return parts;
}

PetscErrorCode NeighboursFromSF(PetscSF sf, Neighbours *lists)
{
  PetscMPIInt        from_count, to_count;
  const PetscMPIInt *from_ranks, *to_ranks;
  const PetscInt    *from_offset, *to_offset, *leaves, *roots;

  PetscFunctionBegin;
  PetscCall(PetscSFSetUp(sf));
  PetscCall(PetscSFGetRootRanks(sf, &from_count, &from_ranks, &from_offset, &leaves, nullptr));
  PetscCall(PetscSFGetLeafRanks(sf, &to_count, &to_ranks, &to_offset, &roots));
  LocalInt count; /* offsets and places are at most that, or are places in what a rank has */
  PetscCall(LocalIntCast(from_count ? from_offset[from_count] : 0, "entries to receive", &count));
  PetscCall(LocalIntCast(to_count ? to_offset[to_count] : 0, "entries to send", &count));
  lists->from = PartsOf_Neighbours(from_count, from_ranks, from_offset);
  lists->to   = PartsOf_Neighbours(to_count, to_ranks, to_offset);
  lists->entries.clear();
  lists->places.clear();
  if (to_count) lists->entries.assign(roots, roots + to_offset[to_count]);
  if (from_count) lists->places.assign(leaves, leaves + from_offset[from_count]);
  if (AreInPieces(lists->from, lists->places)) {
    for (Neighbours::Part &part : lists->from) {
      const LocalInt first = lists->places[part.begin];
      part                 = {part.rank, first, first + part.end - part.begin};
    }
    lists->places.clear();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Each number of the list as many numbers. */
static std::vector<LocalInt> Widened(const std::vector<LocalInt> &list, LocalInt columns)
{
  std::vector<LocalInt> wide;
  wide.reserve(list.size() * columns);
  for (LocalInt number : list)
    for (LocalInt c = 0; c < columns; c++) wide.push_back(number * columns + c);
  return wide;
}

PetscErrorCode NeighboursWiden(const Neighbours &lists, LocalInt columns, Neighbours *wide)
{
  LocalInt most = 0;

  PetscFunctionBegin;
  for (const std::vector<LocalInt> *list : {&lists.entries, &lists.places})
    for (LocalInt number : *list) most = PetscMax(most, number);
  for (const std::vector<Neighbours::Part> *parts : {&lists.to, &lists.from})
    for (const Neighbours::Part &part : *parts) most = PetscMax(most, part.end);
  PetscCall(LocalIntCast(((PetscInt64)most + 1) * columns, "entries of several right-hand sides", &most));
  wide->entries = Widened(lists.entries, columns);
  wide->places  = Widened(lists.places, columns);
  wide->to      = lists.to;
  wide->from    = lists.from;
  for (std::vector<Neighbours::Part> *parts : {&wide->to, &wide->from})
    for (Neighbours::Part &part : *parts) part = {part.rank, part.begin * columns, part.end * columns};
  PetscFunctionReturn(PETSC_SUCCESS);
}

size_t NeighboursLeaves(const Neighbours &lists)
{
  size_t count = 0;
  for (LocalInt place : lists.places) count = std::max(count, (size_t)place + 1);
  if (lists.places.empty())
    for (const Neighbours::Part &part : lists.from) count = std::max(count, (size_t)part.end);
  return count;
}

static PetscErrorCode MakeRoom_Neighbours(const Neighbours *lists, std::vector<LocalInt> *told, std::vector<MPI_Request> *requests,
                                          std::vector<LocalInt> *there)
{
  PetscFunctionBegin;
  told->resize(lists->from.size());
  requests->resize(lists->from.size() + lists->to.size());
  there->assign(lists->to.size(), 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NeighboursTell(MPI_Comm comm, const Neighbours &lists, PetscBool ready, LocalInt first, PetscBool *all,
                              std::vector<LocalInt> *there)
{
  std::vector<LocalInt>    told;
  std::vector<MPI_Request> requests;
  MPI_Comm                 own;
  PetscMPIInt              tag, everywhere = ready;

  PetscFunctionBegin;
  PetscCall(AgreeOnError(comm, CallGuarded(MakeRoom_Neighbours, &lists, &told, &requests, there),
                         "make room for what its neighbours tell"));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &everywhere, 1, MPI_INT, MPI_LAND, comm));
  *all = (PetscBool)everywhere;
  if (!everywhere) PetscFunctionReturn(PETSC_SUCCESS);
  MPI_Request *next = requests.data();
  PetscCall(PetscCommDuplicate(comm, &own, &tag));
  for (size_t k = 0; k < lists.to.size(); k++)
    PetscCallMPI(MPI_Irecv(&(*there)[k], 1, MPI_INT, lists.to[k].rank, tag, own, next++));
  for (size_t k = 0; k < lists.from.size(); k++) {
    told[k] = first + lists.from[k].begin;
    PetscCallMPI(MPI_Isend(&told[k], 1, MPI_INT, lists.from[k].rank, tag, own, next++));
  }
  PetscCallMPI(MPI_Waitall((PetscMPIInt)requests.size(), requests.data(), MPI_STATUSES_IGNORE));
  PetscCall(PetscCommDestroy(&own));
  PetscFunctionReturn(PETSC_SUCCESS);
}
