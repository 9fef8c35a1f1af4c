/*
   Lets a call of MPI fail: a library to be loaded before a program by LD_PRELOAD. With FINEPC_FAIL="RANK FUNCTION N" the N-th call
   of the function on that rank, counted from 1, returns MPI_ERR_OTHER and does nothing; of the function's calls those alone count
   that libfinepc.so makes, itself or through PETSc. It prints how many of each function there have been when the program ends MPI.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
  const char *function;
  int         calls;
} made[16];

/* Whether a frame of the stack is in libfinepc.so. */
static int IsCalledByFinePC(void)
{
  void     *frames[64];
  Dl_info   where;
  const int count = backtrace(frames, sizeof(frames) / sizeof(*frames));

  for (int k = 0; k < count; k++)
    if (dladdr(frames[k], &where) && where.dli_fname && strstr(where.dli_fname, "libfinepc.so")) return 1;
  return 0;
}

static int Fails(const char *function)
{
  const char *const wish = getenv("FINEPC_FAIL");
  char              name[32];
  int               rank, at, mine, k = 0;

  if (!wish || sscanf(wish, "%d %31s %d", &at, name, &mine) != 3) return 0;
  if (mine && strcmp(name, function)) return 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != at || !IsCalledByFinePC()) return 0;
  while (made[k].function && strcmp(made[k].function, function)) k++;
  made[k].function = function;
  return ++made[k].calls == mine;
}

#define REPLACED(name, parameters, arguments)                \
  int name parameters                                        \
  {                                                          \
    return Fails(#name) ? MPI_ERR_OTHER : P##name arguments; \
  }

REPLACED(MPI_Irecv, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r), (b, n, t, from, tag, c, r))
REPLACED(MPI_Isend, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r), (b, n, t, to, tag, c, r))
REPLACED(MPI_Issend, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r), (b, n, t, to, tag, c, r))
REPLACED(MPI_Send_init, (const void *b, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r),
         (b, n, t, to, tag, c, r))
REPLACED(MPI_Recv_init, (void *b, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r), (b, n, t, from, tag, c, r))
REPLACED(MPI_Startall, (int n, MPI_Request r[]), (n, r))
REPLACED(MPI_Waitall, (int n, MPI_Request r[], MPI_Status s[]), (n, r, s))
REPLACED(MPI_Allreduce, (const void *a, void *b, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c), (a, b, n, t, op, c))
REPLACED(MPI_Allgather, (const void *a, int n, MPI_Datatype t, void *b, int m, MPI_Datatype u, MPI_Comm c), (a, n, t, b, m, u, c))
REPLACED(MPI_Comm_split, (MPI_Comm c, int color, int key, MPI_Comm *made), (c, color, key, made))

int MPI_Finalize(void)
{
  for (int k = 0; made[k].function; k++) printf("finepc made %d calls of %s\n", made[k].calls, made[k].function);
  return PMPI_Finalize();
}
