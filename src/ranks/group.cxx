/* Groups of ranks that share memory. */
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "agree.h"
#include "entry.h"
#include "group.h"

/* ----------------------------------------- shared memory -------------------------------------- */

PetscErrorCode SharedMemoryCreate(const RankGroup *group, size_t bytes, SharedMemory *memory)
{
  MPI_Aint size;
  int      unit;
  void    *own;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Win_allocate_shared(group->Leads() ? (MPI_Aint)std::max<size_t>(bytes, 1) : 0, 1, MPI_INFO_NULL, group->comm,
                                       &own, &memory->window));
  PetscCallMPI(MPI_Win_shared_query(memory->window, group->leader, &size, &unit, &memory->data));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode SharedMemoryDestroy(SharedMemory *memory)
{
  PetscFunctionBegin;
  if (memory->window != MPI_WIN_NULL) PetscCallMPI(MPI_Win_free(&memory->window));
  *memory = SharedMemory{};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------- meetings ----------------------------------------- */

/* How many ranks have come, to all meetings so far. */
using Arrivals = std::atomic<long>;
static_assert(Arrivals::is_always_lock_free, "processes share it");

PetscErrorCode RankGroupMeet(RankGroup *group)
{
  constexpr int  kYields = 200;
  constexpr long kSleep  = 20000; /* nanoseconds: a set-up or a solve takes milliseconds */
  auto          *came    = (Arrivals *)group->meeting;
  const long     all     = ++group->meetings * group->size;

  PetscFunctionBegin;
  came->fetch_add(1, std::memory_order_acq_rel);
  for (int looks = 0; came->load(std::memory_order_acquire) < all; looks++)
    if (looks < kYields) sched_yield();
    else {
      const timespec time{0, kSleep};
      nanosleep(&time, nullptr);
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------------- groups ------------------------------------------ */

/* The ranks of a machine are dealt out to its GPUs in their order. */
struct Deal {
  PetscMPIInt group  = 0; /* that of this rank */
  PetscMPIInt leader = 0; /* among the ranks of the machine */
  PetscMPIInt groups = 1; /* of the machine */
};

/*
   As many groups as there are different names, of ranks that follow one another, led by ranks with different names: a rank need not
   be on the GPU whose leader has its rows.
*/
static PetscErrorCode DealOut(PetscMPIInt rank, const std::vector<char> *names_of_ranks, PetscInt asked, Deal *deal)
{
  std::vector<std::string> names;

  PetscFunctionBegin;
  for (size_t at = 0; at < names_of_ranks->size(); at += kGroupText) names.push_back(names_of_ranks->data() + at);
  const PetscMPIInt        size = (PetscMPIInt)names.size();
  std::vector<std::string> different(names);
  std::sort(different.begin(), different.end());
  different.erase(std::unique(different.begin(), different.end()), different.end());
  deal->groups = std::min((PetscMPIInt)(asked ? asked : (PetscInt)different.size()), size);
  std::vector<std::string> taken;
  for (PetscMPIInt group = 0; group < deal->groups; group++) {
    const PetscMPIInt begin = (PetscMPIInt)((PetscInt64)size * group / deal->groups),
                      end   = (PetscMPIInt)((PetscInt64)size * (group + 1) / deal->groups);
    PetscMPIInt leader      = begin;
    while (leader < end && !asked && std::count(taken.begin(), taken.end(), names[leader])) leader++;
    if (leader == end) { /* no rank of the group is on a GPU that is left: all of them go to one */
      *deal = Deal{};
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    taken.push_back(names[leader]);
    if (rank < begin || rank >= end) continue;
    deal->group  = group;
    deal->leader = leader - begin;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeRoomForNames(PetscMPIInt size, std::vector<char> *names)
{
  PetscFunctionBegin;
  names->resize(kGroupText * size);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The names that the ranks of the machine give, of kGroupText bytes each; an error if one of them has none. */
static PetscErrorCode GetNames(MPI_Comm comm, MPI_Comm machine, PetscErrorCode code, const char gpu[], std::vector<char> *names)
{
  PetscMPIInt size;
  char        own[kGroupText] = "";

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_size(machine, &size));
  if (!code) code = CallGuarded(MakeRoomForNames, size, names);
  PetscCall(AgreeOnError(comm, code, "list the GPUs of its machine"));
  PetscCall(PetscStrncpy(own, gpu, kGroupText));
  PetscCallMPI(MPI_Allgather(own, (PetscMPIInt)kGroupText, MPI_CHAR, names->data(), (PetscMPIInt)kGroupText, MPI_CHAR, machine));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscBool AreDistinct(int count, const char names[], size_t length)
{
  for (int i = 0; i < count; i++)
    for (int j = 0; j < i; j++)
      if (!std::strncmp(names + i * length, names + j * length, length)) return PETSC_FALSE;
  return PETSC_TRUE;
}

PetscErrorCode RanksShareGPU(MPI_Comm comm, PetscErrorCode named, const char gpu[], PetscBool *share)
{
  std::vector<char> names;
  MPI_Comm          machine;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
  const PetscErrorCode code = GetNames(comm, machine, named, gpu, &names);
  PetscCallMPI(MPI_Comm_free(&machine));
  PetscCall(code);
  int any = !AreDistinct((int)(names.size() / kGroupText), names.data(), kGroupText);
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_LOR, comm));
  *share = (PetscBool)any;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Whether the ranks of each machine follow one another, so that the rows of a group do. */
static PetscErrorCode FollowOneAnother(MPI_Comm comm, MPI_Comm machine, bool *follow)
{
  PetscMPIInt rank, size, ends[2], all;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(machine, &size));
  ends[0] = -rank;
  ends[1] = rank;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, ends, 2, MPI_INT, MPI_MAX, machine));
  all = ends[1] + ends[0] + 1 == size;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, comm));
  *follow = all;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeComms(MPI_Comm comm, MPI_Comm machine, const Deal &deal, RankGroup *group)
{
  PetscMPIInt rank;
  int         leads;

  PetscFunctionBegin;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_split(machine, deal.group, rank, &group->comm));
  PetscCallMPI(MPI_Comm_rank(group->comm, &group->rank));
  PetscCallMPI(MPI_Comm_size(group->comm, &group->size));
  group->leader = deal.leader;
  leads         = group->Leads();
  PetscCallMPI(MPI_Comm_split(comm, leads, rank, &group->same));
  PetscCallMPI(MPIU_Allreduce(&leads, &group->groups, 1, MPI_INT, MPI_SUM, comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MakeMeeting(RankGroup *group)
{
  SharedMemory memory;

  PetscFunctionBegin;
  PetscCall(SharedMemoryCreate(group, sizeof(Arrivals), &memory));
  group->window  = memory.window;
  group->meeting = memory.data;
  if (group->Leads()) new (group->meeting) Arrivals(0);
  PetscCallMPI(MPI_Barrier(group->comm));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_RankGroup(MPI_Comm comm, MPI_Comm machine, const char gpu[], RankGroup *group, char why[])
{
  std::vector<char> names;
  Deal              deal;
  PetscMPIInt       rank;
  PetscInt          asked  = 0;
  bool              follow = false;

  PetscFunctionBegin;
  PetscCall(FollowOneAnother(comm, machine, &follow));
  if (!follow) {
    PetscCall(PetscStrncpy(why, "the ranks of a machine do not follow one another", kGroupText));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(PetscOptionsGetInt(nullptr, nullptr, "-test_groups", &asked, nullptr)); /* of a machine, for tests */
  PetscCall(GetNames(comm, machine, PETSC_SUCCESS, gpu, &names));
  PetscCallMPI(MPI_Comm_rank(machine, &rank));
  PetscCall(
    AgreeOnError(comm, CallGuarded(DealOut, rank, (const std::vector<char> *)&names, asked, &deal), "deal out ranks to GPUs"));
  PetscCall(MakeComms(comm, machine, deal, group));
  PetscCall(MakeMeeting(group));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RankGroupCreate(MPI_Comm comm, const char gpu[], RankGroup *group, char why[])
{
  MPI_Comm machine;

  PetscFunctionBegin;
  why[0] = 0;
  PetscCallMPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine));
  const PetscErrorCode code = Create_RankGroup(comm, machine, gpu, group, why);
  PetscCallMPI(MPI_Comm_free(&machine));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RankGroupDestroy(RankGroup *group)
{
  PetscFunctionBegin;
  if (group->window != MPI_WIN_NULL) PetscCallMPI(MPI_Win_free(&group->window));
  if (group->comm != MPI_COMM_NULL) PetscCallMPI(MPI_Comm_free(&group->comm));
  if (group->same != MPI_COMM_NULL) PetscCallMPI(MPI_Comm_free(&group->same));
  *group = RankGroup{};
  PetscFunctionReturn(PETSC_SUCCESS);
}
