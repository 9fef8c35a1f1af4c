/* The lists of an exchange: from PETSc's description of it, and what becomes of them. */
#include "ranks/neighbours.h"

#include <algorithm>
#include <numeric>

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
  *lists      = Neighbours{};
  lists->from = PartsOf_Neighbours(from_count, from_ranks, from_offset);
  lists->to   = PartsOf_Neighbours(to_count, to_ranks, to_offset);
  if (to_count) lists->entries.assign(roots, roots + to_offset[to_count]);
  if (from_count) lists->places.assign(leaves, leaves + from_offset[from_count]);
  NeighboursTakePieces(&lists->from, &lists->places);
  PetscFunctionReturn(PETSC_SUCCESS);
}

void NeighboursTakePieces(std::vector<Neighbours::Part> *parts, std::vector<LocalInt> *list)
{
  if (list->empty()) return;
  for (const Neighbours::Part &part : *parts)
    for (LocalInt k = part.begin; k < part.end; k++)
      if ((*list)[k] != (*list)[part.begin] + (k - part.begin)) return;
  for (Neighbours::Part &part : *parts) {
    const LocalInt first = (*list)[part.begin];
    part                 = {part.rank, first, first + part.end - part.begin};
  }
  list->clear();
}

/* Other ranks' parts of a list, and the rank's own one. */
static void SplitParts(std::vector<Neighbours::Part> *parts, std::vector<LocalInt> *list, PetscMPIInt rank,
                       const std::vector<PetscMPIInt> &number, std::vector<LocalInt> *own)
{
  std::vector<Neighbours::Part> others;
  std::vector<LocalInt>         entries;
  own->clear();
  for (const Neighbours::Part &part : *parts) {
    std::vector<LocalInt> *const to    = part.rank == rank ? own : &entries;
    const size_t                 begin = to->size();
    to->resize(begin + part.end - part.begin);
    if (list->empty()) std::iota(to->begin() + begin, to->end(), part.begin);
    else std::copy(list->begin() + part.begin, list->begin() + part.end, to->begin() + begin);
    if (part.rank != rank) others.push_back({number[part.rank], (LocalInt)begin, (LocalInt)to->size()});
  }
  *parts = std::move(others);
  *list  = std::move(entries);
}

void NeighboursSplit(Neighbours *lists, PetscMPIInt rank, const std::vector<PetscMPIInt> &number)
{
  SplitParts(&lists->to, &lists->entries, rank, number, &lists->own_from);
  SplitParts(&lists->from, &lists->places, rank, number, &lists->own_to);
}

void NeighboursReverse(Neighbours *lists)
{
  std::swap(lists->to, lists->from);
  std::swap(lists->entries, lists->places);
  std::swap(lists->own_from, lists->own_to);
}

/* Each number of the list as many numbers. */
static std::vector<LocalInt> Widened_Neighbours(const std::vector<LocalInt> &list, LocalInt columns)
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
  for (const std::vector<LocalInt> *list : {&lists.entries, &lists.places, &lists.own_from, &lists.own_to})
    for (LocalInt number : *list) most = PetscMax(most, number);
  for (const std::vector<Neighbours::Part> *parts : {&lists.to, &lists.from})
    for (const Neighbours::Part &part : *parts) most = PetscMax(most, part.end);
  PetscCall(LocalIntCast(((PetscInt64)most + 1) * columns, "entries of several right-hand sides", &most));
  wide->entries  = Widened_Neighbours(lists.entries, columns);
  wide->places   = Widened_Neighbours(lists.places, columns);
  wide->own_from = Widened_Neighbours(lists.own_from, columns);
  wide->own_to   = Widened_Neighbours(lists.own_to, columns);
  wide->to       = lists.to;
  wide->from     = lists.from;
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

size_t NeighboursCount(const std::vector<Neighbours::Part> &parts)
{
  size_t count = 0;
  for (const Neighbours::Part &part : parts) count += part.end - part.begin;
  return count;
}
