/*
   How the cycle of CMATCH on several ranks is connected: by NCCL, which takes lists, or by PetscSF, which MPI carries out.
*/
#include "cmatch_ranks_face.h"
#include "entry.h"

/* -------------------------------------------- by NCCL ----------------------------------------- */

Neighbours CMATCHListsOf(const CMATCHRanksLevel &level, CMATCHKind kind, const std::vector<PetscMPIInt> &number)
{
  Neighbours lists = level.halo.lists;

  if (kind == CMATCH_DOWN) lists = {level.send.parts, level.receive.parts, level.send.rows, level.place, {}, {}};
  if (kind == CMATCH_UP) lists = {level.receive.parts, level.send.parts, level.receive.rows, level.send.rows, {}, {}};
  NeighboursSplit(&lists, level.rank, number);
  NeighboursTakePieces(&lists.to, &lists.entries);
  if (kind != CMATCH_DOWN) NeighboursTakePieces(&lists.from, &lists.places);
  return lists;
}

PetscErrorCode CMATCHRanksMakeRoom(CMATCHRanks *ranks, CMATCHHierarchy *H)
{
  std::vector<Neighbours> lists;

  PetscFunctionBegin;
  for (LocalInt l = 0; l < H->several; l++)
    for (const CMATCHKind kind : {CMATCH_HALO, CMATCH_DOWN, CMATCH_UP})
      lists.push_back(CMATCHListsOf(ranks->level[l], kind, ranks->level[l].of_all));
  PetscCall(CMATCHMakeRoom_CUDA(H, ranks->nccl, &lists));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------------------- by MPI ----------------------------------------- */

PetscErrorCode CMATCHGiveSF(PetscMemType where, PetscSF sf, LocalInt values, Exchange *exchange)
{
  PetscFunctionBegin;
  exchange->sf     = sf;
  exchange->where  = where;
  exchange->fence  = true; /* PetscSF may work in another stream */
  exchange->values = values;
  PetscCall(PetscObjectGetId((PetscObject)sf, &exchange->id));
  PetscCall(ExchangeMakeStaging(exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksPrepareHalo(CMATCHRanks *ranks)
{
  CMATCHRanksLevel &level  = ranks->level[0];
  const LocalInt    values = ranks->k * PetscMax(ranks->modes.m, 1);

  PetscFunctionBegin;
  ranks->staging.clear();
  if (!ranks->has_w && !ranks->modes.m) PetscFunctionReturn(PETSC_SUCCESS);
  if (ranks->nccl && !level.halo.nccl) {
    PetscCall(ExchangeMakeLists(&level.halo));
    PetscCall(ExchangeUseNCCL(ranks->nccl, level.of_all, true, values, &level.halo));
  }
  if (!ranks->nccl && PetscMemTypeDevice(ranks->where) && !DeviceMemoryGoesToMPI())
    ranks->staging.resize((level.rows + ranks->ghost_nodes.size()) * ranks->k * ranks->modes.m);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksHalo(CMATCHRanks *ranks, LocalInt entries, PetscScalar *x)
{
  const CMATCHRanksLevel &level = ranks->level[0];
  const size_t            own   = (size_t)level.rows * entries;
  PetscScalar *const      host  = ranks->staging.data();
  MPI_Datatype            type  = MPIU_SCALAR;

  PetscFunctionBegin;
  if (entries > 1) {
    PetscCallMPI(MPI_Type_contiguous(entries, MPIU_SCALAR, &type));
    PetscCallMPI(MPI_Type_commit(&type));
  }
  if (!ranks->nccl && entries > level.halo.values && PetscMemTypeDevice(ranks->where) && !DeviceMemoryGoesToMPI()) {
    const size_t all = ranks->staging.size();
    PetscCall(ArrayCopy(host, x, own * sizeof(*x), PETSC_MEMTYPE_HOST, ranks->where));
    PetscCall(PetscSFBcastBegin(level.halo.sf, type, host, host + own, MPI_REPLACE));
    PetscCall(PetscSFBcastEnd(level.halo.sf, type, host, host + own, MPI_REPLACE));
    PetscCall(ArrayCopy(x + own, host + own, (all - own) * sizeof(*x), ranks->where, PETSC_MEMTYPE_HOST));
  } else {
    PetscCall(ExchangeBegin(&level.halo, type, x, x + own));
    PetscCall(ExchangeEnd(&level.halo, type, x, x + own));
  }
  if (entries > 1) PetscCallMPI(MPI_Type_free(&type));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What the PetscSFs of a level are made from: for each row that is sent its root, and numbers of contributions on both sides. */
struct SFLists {
  std::vector<PetscSFNode> remote;
  std::vector<PetscInt>    place, number; /* of contributions that come, and of those that are sent */
  Delivery                 numbers;
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
static PetscErrorCode Connect_CMATCHRanks(const CMATCHRanksLevel &level, LocalInt values, PetscInt roots, const PetscInt number[],
                                          PetscSFNode remote[], Exchange *exchange)
{
  PetscSF sf;

  PetscFunctionBegin;
  for (const Neighbours::Part &part : level.send.parts)
    for (LocalInt q = part.begin; q < part.end; q++) remote[level.send.rows[q]] = PetscSFNode{part.rank, number[q]};
  PetscCall(PetscSFCreate(level.comm, &sf));
  PetscCall(PetscSFSetGraph(sf, roots, (PetscInt)level.send.rows.size(), nullptr, PETSC_OWN_POINTER, remote, PETSC_COPY_VALUES));
  PetscCall(PetscSFSetUp(sf));
  PetscCall(CMATCHGiveSF(level.halo.where, sf, values, exchange));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHRanksConnectByMPI(PCLocalPhase *phase, CMATCHRanks *ranks)
{
  const LocalInt       values = CMATCHMostValues(*ranks);
  std::vector<SFLists> all_lists;

  PetscFunctionBegin;
  PetscCall(PCLocalPhaseStep(phase, CallGuarded(MakeSFLists, (const CMATCHRanks *)ranks, &all_lists), nullptr));
  if (phase->stopped) PetscFunctionReturn(PETSC_SUCCESS);
  phase->outcome->exchanging = true;
  for (size_t l = 0; l < ranks->level.size() && ranks->level[l].size > 1; l++) {
    CMATCHRanksLevel &level = ranks->level[l];
    SFLists          &lists = all_lists[l];
    PetscCall(Connect_CMATCHRanks(level, values, level.next.rows, level.number.data(), lists.remote.data(), &level.up));
    PetscCall(lists.numbers.Deliver(PetscObjectComm((PetscObject)level.halo.sf)));
    PetscCall(
      Connect_CMATCHRanks(level, values, (PetscInt)level.place.size(), lists.number.data(), lists.remote.data(), &level.down));
  }
  phase->outcome->exchanging = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}
