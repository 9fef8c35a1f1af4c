/*
   What a cycle of CMATCH on several ranks communicates: by NCCL, for which its lists become messages, or by PetscSF, which MPI
   carries out.
*/
#include <algorithm>
#include <numeric>

#include "cmatch_ranks_face.h"
#include "entry.h"
#include "ranks/exchange.h"

/* --------------------------------- exchanges of a cycle by MPI -------------------------------- */

namespace
{

MPI_Datatype ValueType(FinePCPrecision precision)
{
  return precision == FINEPC_SINGLE ? MPI_FLOAT : MPI_DOUBLE;
}

/* PetscSF may work in another stream. */
PetscErrorCode Fence(PetscMemType where)
{
  PetscFunctionBegin;
  if (PetscMemTypeDevice(where)) PetscCall(ExchangeFence_CUDA());
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Values of roots go to their leaves, all in the same memory. */
PetscErrorCode FromRootsBegin(PetscSF sf, PetscMemType where, MPI_Datatype unit, const void *roots, void *leaves)
{
  PetscFunctionBegin;
  PetscCall(Fence(where));
  PetscCall(PetscSFBcastWithMemTypeBegin(sf, unit, where, roots, where, leaves, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FromRootsEnd(PetscSF sf, PetscMemType where, MPI_Datatype unit, const void *roots, void *leaves)
{
  PetscFunctionBegin;
  PetscCall(PetscSFBcastEnd(sf, unit, roots, leaves, MPI_REPLACE));
  PetscCall(Fence(where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode FromRoots(PetscSF sf, PetscMemType where, MPI_Datatype unit, const void *roots, void *leaves)
{
  PetscFunctionBegin;
  PetscCall(FromRootsBegin(sf, where, unit, roots, leaves));
  PetscCall(FromRootsEnd(sf, where, unit, roots, leaves));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Values of leaves go to their roots, of which each has one leaf at most. */
PetscErrorCode ToRootsBegin(PetscSF sf, PetscMemType where, MPI_Datatype unit, const void *leaves, void *roots)
{
  PetscFunctionBegin;
  PetscCall(Fence(where));
  PetscCall(PetscSFReduceWithMemTypeBegin(sf, unit, where, leaves, where, roots, MPI_REPLACE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ToRootsEnd(PetscSF sf, PetscMemType where, MPI_Datatype unit, const void *leaves, void *roots)
{
  PetscFunctionBegin;
  PetscCall(PetscSFReduceEnd(sf, unit, leaves, roots, MPI_REPLACE));
  PetscCall(Fence(where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloBegin(void *context, LocalInt l, void *x)
{
  const auto             *ranks = (const CMATCHRanks *)context;
  const CMATCHRanksLevel &level = ranks->level[l];

  PetscFunctionBegin;
  PetscCall(FromRootsBegin(level.halo, ranks->where, ValueType(ranks->precision), x,
                           (char *)x + (size_t)level.rows * FinePCPrecisionBytes(ranks->precision)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloEnd(void *context, LocalInt l, void *x)
{
  const auto             *ranks = (const CMATCHRanks *)context;
  const CMATCHRanksLevel &level = ranks->level[l];

  PetscFunctionBegin;
  PetscCall(FromRootsEnd(level.halo, ranks->where, ValueType(ranks->precision), x,
                         (char *)x + (size_t)level.rows * FinePCPrecisionBytes(ranks->precision)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloOfDoubles(void *context, LocalInt l, double *x)
{
  const auto             *ranks = (const CMATCHRanks *)context;
  const CMATCHRanksLevel &level = ranks->level[l];

  PetscFunctionBegin;
  PetscCall(FromRoots(level.halo, ranks->where, MPI_DOUBLE, x, x + level.rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DownBegin(void *context, LocalInt l, const void *values, void *contributions)
{
  const auto *ranks = (const CMATCHRanks *)context;

  PetscFunctionBegin;
  PetscCall(ToRootsBegin(ranks->level[l].multi, ranks->where, ValueType(ranks->precision), values, contributions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode DownEnd(void *context, LocalInt l, const void *values, void *contributions)
{
  const auto *ranks = (const CMATCHRanks *)context;

  PetscFunctionBegin;
  PetscCall(ToRootsEnd(ranks->level[l].multi, ranks->where, ValueType(ranks->precision), values, contributions));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Up(void *context, LocalInt l, const void *x, void *values)
{
  const auto *ranks = (const CMATCHRanks *)context;

  PetscFunctionBegin;
  PetscCall(FromRoots(ranks->level[l].coarse, ranks->where, ValueType(ranks->precision), x, values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Sum(void *context, LocalInt l, double *value)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_DOUBLE, MPI_SUM, ((const CMATCHRanks *)context)->level[l].comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Largest(void *context, LocalInt l, double *value)
{
  PetscFunctionBegin;
  PetscCallMPI(MPI_Allreduce(MPI_IN_PLACE, value, 1, MPI_DOUBLE, MPI_MAX, ((const CMATCHRanks *)context)->level[l].comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

void CMATCHRanksGiveExchange(CMATCHRanks *ranks, CMATCHHierarchy *H)
{
  H->exchange = {ranks, HaloBegin, HaloEnd, DownBegin, DownEnd, Up, Sum, Largest, HaloOfDoubles, -1};
}

PetscErrorCode CMATCHRanksHalo(const CMATCHRanks *ranks, PetscScalar *x)
{
  PetscFunctionBegin;
  PetscCall(FromRoots(ranks->level[0].halo, ranks->where, MPIU_SCALAR, x, x + ranks->level[0].rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------- exchanges of a cycle by NCCL ------------------------------- */

/* Other ranks' parts of a list, and the rank's own one. An empty list stands for the numbers from 0 on. */
static void SplitParts(const std::vector<Neighbours::Part> &parts, const std::vector<LocalInt> &list, PetscMPIInt rank,
                       const std::vector<PetscMPIInt> &number, std::vector<Neighbours::Part> *others,
                       std::vector<LocalInt> *entries, std::vector<LocalInt> *own)
{
  LocalInt count = 0;
  for (const Neighbours::Part &part : parts) count += part.rank == rank ? 0 : part.end - part.begin;
  entries->reserve(count);
  for (const Neighbours::Part &part : parts) {
    std::vector<LocalInt> *const to    = part.rank == rank ? own : entries;
    const size_t                 begin = to->size();
    if (list.empty()) {
      to->resize(begin + part.end - part.begin);
      std::iota(to->begin() + begin, to->end(), part.begin);
    } else to->insert(to->end(), list.begin() + part.begin, list.begin() + part.end);
    if (part.rank != rank) others->push_back({number[part.rank], (LocalInt)begin, (LocalInt)to->size()});
  }
}

/* Where each part is a piece of the vector, it becomes a part of that, and no list is needed. */
static void TakePieces(std::vector<Neighbours::Part> *parts, std::vector<LocalInt> *entries)
{
  for (const Neighbours::Part &part : *parts)
    for (LocalInt k = part.begin; k < part.end; k++)
      if ((*entries)[k] != (*entries)[part.begin] + (k - part.begin)) return;
  for (Neighbours::Part &part : *parts) {
    const LocalInt first = (*entries)[part.begin];
    part                 = {part.rank, first, first + part.end - part.begin};
  }
  entries->clear();
}

PetscErrorCode CMATCHMessagesOf(const CMATCHRanksLevel &level, CMATCHKind kind, const std::vector<PetscMPIInt> &number,
                                CMATCHMessages *messages)
{
  Neighbours lists;

  PetscFunctionBegin;
  *messages         = CMATCHMessages{};
  CMATCHMessages &m = *messages;
  if (kind == CMATCH_HALO) lists = level.ghosts;
  else {
    const bool           down = kind == CMATCH_DOWN;
    const CMATCHRowList &to = down ? level.send : level.receive, &from = down ? level.receive : level.send;
    lists = {to.parts, from.parts, to.rows, down ? level.place : from.rows};
  }
  SplitParts(lists.to, lists.entries, level.rank, number, &m.to, &m.sent, &m.own_from);
  SplitParts(lists.from, lists.places, level.rank, number, &m.from, &m.came, &m.own_to);
  TakePieces(&m.to, &m.sent);
  if (kind != CMATCH_DOWN) TakePieces(&m.from, &m.came);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The numbers of a level's ranks among those of the finest one. */
static PetscErrorCode NumberRanks(const CMATCHRanksLevel &level, MPI_Comm all, std::vector<PetscMPIInt> *number)
{
  std::vector<PetscMPIInt> own(level.size);
  MPI_Group                group, all_group;

  PetscFunctionBegin;
  number->resize(level.size);
  std::iota(own.begin(), own.end(), 0);
  PetscCallMPI(MPI_Comm_group(level.comm, &group));
  PetscCallMPI(MPI_Comm_group(all, &all_group));
  PetscCallMPI(MPI_Group_translate_ranks(group, level.size, own.data(), all_group, number->data()));
  PetscCallMPI(MPI_Group_free(&group));
  PetscCallMPI(MPI_Group_free(&all_group));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksMakeRoom(CMATCHRanks *ranks, CMATCHHierarchy *H)
{
  std::vector<CMATCHLevelMessages> messages(H->several);
  std::vector<PetscMPIInt>         number;

  PetscFunctionBegin;
  for (LocalInt l = 0; l < H->several; l++) {
    const CMATCHRanksLevel &level = ranks->level[l];
    PetscCall(NumberRanks(level, ranks->level[0].comm, &number));
    for (const CMATCHKind kind : {CMATCH_HALO, CMATCH_DOWN, CMATCH_UP})
      PetscCall(CMATCHMessagesOf(level, kind, number, &messages[l][kind]));
  }
  PetscCall(CMATCHMakeRoom_CUDA(H, ranks->nccl, &messages));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- the PetscSFs of a cycle -------------------------------- */

/* What the PetscSFs of a level are made from: for each row that is sent its root, and numbers of contributions on both sides. */
struct SFLists {
  std::vector<PetscSFNode> remote;
  std::vector<PetscInt>    place, number; /* of contributions that come, and of those that are sent */
  CMATCHDelivery           numbers{PETSC_MEMTYPE_HOST};
};

/* Makes room for the lists of all levels, which is what can fail on one rank alone. */
static PetscErrorCode MakeSFLists(const CMATCHRanks *ranks, std::vector<SFLists> *all_lists)
{
  PetscFunctionBegin;
  all_lists->resize(ranks->level.size());
  for (size_t l = 0; l < ranks->level.size() && ranks->level[l].size > 1; l++) {
    const CMATCHRanksLevel &level = ranks->level[l];
    SFLists                &lists = (*all_lists)[l];
    lists.remote.resize(level.send.rows.size());
    lists.place.assign(level.place.begin(), level.place.end());
    lists.number.resize(level.number.size());
    PetscCall(lists.numbers.Add(level.receive.parts, lists.place.data(), level.send.parts, lists.number.data(), MPIU_INT));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A PetscSF from rows that are sent, which are its leaves, to these roots of their owners. */
static PetscErrorCode CreateSF(const CMATCHRanksLevel &level, PetscInt roots, const PetscInt number[], PetscSFNode remote[],
                               PetscSF *sf)
{
  PetscFunctionBegin;
  for (const Neighbours::Part &part : level.send.parts)
    for (LocalInt q = part.begin; q < part.end; q++) remote[level.send.rows[q]] = PetscSFNode{part.rank, number[q]};
  PetscCall(PetscSFCreate(level.comm, sf));
  PetscCall(PetscSFSetGraph(*sf, roots, (PetscInt)level.send.rows.size(), nullptr, PETSC_OWN_POINTER, remote, PETSC_COPY_VALUES));
  PetscCall(PetscSFSetUp(*sf));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksConnectByMPI(PCLocalPhase *phase, CMATCHRanks *ranks)
{
  std::vector<SFLists> all_lists;

  PetscFunctionBegin;
  PetscCall(PCLocalPhaseStep(phase, CallGuarded(MakeSFLists, (const CMATCHRanks *)ranks, &all_lists), nullptr));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  for (size_t l = 0; l < ranks->level.size() && ranks->level[l].size > 1; l++) {
    CMATCHRanksLevel &level = ranks->level[l];
    SFLists          &lists = all_lists[l];
    PetscCall(CreateSF(level, level.next.rows, level.number.data(), lists.remote.data(), &level.coarse));
    PetscCall(lists.numbers.Deliver(level));
    PetscCall(CreateSF(level, (PetscInt)level.place.size(), lists.number.data(), lists.remote.data(), &level.multi));
  }
  phase->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}
