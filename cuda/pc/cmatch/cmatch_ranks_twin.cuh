/*
   What the set-ups of both kinds of hierarchies on the GPU do alike on several ranks: numbers of aggregates, and rows that go to
   other ranks. For a hierarchy of nodes a row is one of blocks, and n is the number of nodes. cmatch_ranks.cu has it.
*/
#pragma once

#include "cmatch.cuh"

/* Copies between a list of the host and an array on the GPU. */
template <typename V>
PetscErrorCode Download(const V *from, std::vector<V> *to)
{
  PetscFunctionBegin;
  if (!to->empty()) PetscCall(ArrayCopy_CUDA(to->data(), from, to->size() * sizeof(V), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename V>
PetscErrorCode Upload(const std::vector<V> &from, V *to)
{
  PetscFunctionBegin;
  if (!from.empty()) PetscCall(ArrayCopy_CUDA(to, from.data(), from.size() * sizeof(V), PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The numbers on the next level of the columns of P, or of the products. */
struct CMATCHNumberOf {
  LocalInt         coarse;
  GlobalInt        first;
  const GlobalInt *column; /* of those behind the own ones */

  __device__ __forceinline__ GlobalInt operator()(LocalInt c) const { return c < coarse ? first + c : column[c - coarse]; }
};

/* The rows from `first` on, of which those from `rows` on are empty. */
struct CMATCHSentRowsCUDA {
  LocalInt        first, rows;
  const LocalInt *start, *length, *j;            /* length may be null, if row i ends where row i + 1 begins */
  const double   *a;                             /* [entries][block] */
  const double   *rs = nullptr, *size = nullptr; /* of rows; size may be null */
  int             block = 1;

  __device__ __forceinline__ LocalInt Length(LocalInt r) const
  {
    const LocalInt row = first + r;
    return row >= rows ? 0 : length ? length[row] : start[row + 1] - start[row];
  }
};

/* Rows that have come. Row k is the contribution with this number. */
struct CMATCHCameRows {
  int        width = kCMATCHRowSums, block = 1; /* see CMATCHRowData */
  LocalInt   entries = 0;
  double    *sums    = nullptr;              /* what has come beside the entries */
  double    *sum = nullptr, *size = nullptr; /* of rows; null if no rows come */
  LocalInt  *at    = nullptr;                /* where the sums of a contribution are, of nodes */
  LocalInt  *start = nullptr, *length = nullptr;
  GlobalInt *number = nullptr; /* columns */
  LocalInt  *j      = nullptr; /* the same, on the next level */
  double    *a      = nullptr; /* [entries][block] */
};

class CMATCHRanksTwinCUDA : public CMATCHRanksSetUp {
public:
  CMATCHRanksTwinCUDA(CMATCHHierarchyCUDA *hierarchy, PetscBool kept, CMATCHStats *made) :
      H(hierarchy), keep(kept), stats(*made), s(hierarchy, &hierarchy->params, made), level_mark(s.arena.mark())
  {
  }
  PetscErrorCode MakeRoom(LocalInt rows, int kinds, const LocalInt entries[], CMATCHRowData received[]) override;

protected:
  /* How many entries the rows of M on the aggregates have that were found, with the diagonal. */
  PetscErrorCode CountFound(PetscInt64 *entries);
  /* The numbers of own aggregates of n rows. */
  PetscErrorCode ShareNumbers(LocalInt n, const CMATCHLevel &, const std::vector<LocalInt> &send, CMATCHHalo *);
  /* The numbers of the columns of P of n rows, once the foreign ones are known. */
  PetscErrorCode ShareColumns(LocalInt n, const CMATCHLevel &, size_t sent, const LocalInt *list, CMATCHHalo *);

  /*
     Room in an outbox, whose contents are lost. A GPU-aware MPI lets the other process map the whole allocation that a message is
     part of, in a time that grows with its size, unless it has done so before. So what is sent lies in memory that is small and
     kept.
  */
  PetscErrorCode NeedOutbox(int which, size_t bytes);
  /* A list of rows on the device. */
  PetscErrorCode TakeList(const std::vector<LocalInt> &rows, LocalInt **list);
  /* Packs rows of so many bytes, as the list has them. */
  PetscErrorCode PackValues(int which, size_t rows, const LocalInt *list, size_t bytes, const void *from, void **packed);
  /* The list of rows that are sent, for this set-up and those that keep it, and room for the cycle's values, so many of each. */
  PetscErrorCode TakeSendList(const CMATCHLevel &, const CMATCHRowList &, LocalInt values, CMATCHLevelCUDA *);
  /* Begins to pack the rows that are sent, with room for what is beside the entries; packs the entries, when that is there. */
  PetscErrorCode BeginRows(CMATCHRowKind, const CMATCHLevelCUDA &, int width, CMATCHSentRows *);
  PetscErrorCode SendRows(CMATCHRowKind, const CMATCHLevelCUDA &, const CMATCHSentRowsCUDA &, const CMATCHNumberOf &,
                          CMATCHSentRows *);
  /* The rows of M */
  PetscErrorCode SendM(const CMATCHLevel &, const CMATCHLevelCUDA &, CMATCHSentRows *);
  /* Rows that have come become contributions with these numbers. */
  PetscErrorCode PlaceCame(LocalInt count, const LocalInt *place, const CMATCHCameRows &);
  /* The numbers of columns behind the own ones. */
  PetscErrorCode TakeColumns(const CMATCHLevelCUDA &);
  /* The aggregates of ghosts of n rows become columns behind the own ones. */
  PetscErrorCode NumberGhosts(LocalInt n, CMATCHLevel *, CMATCHLevelCUDA *);
  /*
     Foreign aggregates are those that are columns of P, in which the columns behind the own ones have so many entries. They come
     before the others, which the rows of P have not kept. `kept` becomes the entries in this order.
  */
  PetscErrorCode NumberForeign(LocalInt n, const std::vector<LocalInt> &entries, CMATCHLevel *, CMATCHLevelCUDA *,
                               std::vector<LocalInt> *kept);
  /* The rows of P of ghosts get columns; those that are neither own nor foreign aggregates come behind these. */
  PetscErrorCode NumberOthers(LocalInt n, CMATCHLevel *, CMATCHLevelCUDA *);
  /* The rows of M, with aggregates for columns of ghosts. Columns of ghosts that are left are no columns any more. */
  PetscErrorCode PlaceM(const CMATCHLevel &, LocalInt met_count);
  /* The numbers of contributions, which come to these rows, and where those to each row begin; each has so many values. */
  PetscErrorCode NumberContributions(LocalInt rows, const std::vector<LocalInt> &to, LocalInt values, std::vector<LocalInt> *place,
                                     CMATCHLevel *, CMATCHLevelCUDA *);
  /* The ghosts of the next level are the columns of its rows that other ranks have. */
  PetscErrorCode FindGhosts(LocalInt l, const CMATCHOwnedRows &next, std::vector<GlobalInt> *ghost);
  PetscErrorCode FindColumnsOf(LocalInt count, const GlobalInt *number, const CMATCHOwnedRows &next, size_t ghost_count,
                               const GlobalInt *ghosts, LocalInt *places);
  /* The columns on the next level of those with these numbers, which are behind the own ones; -1 for those that are none. */
  PetscErrorCode PlaceColumns(size_t count, const GlobalInt *number, const CMATCHOwnedRows &next, size_t ghost_count,
                              const GlobalInt *ghosts, LocalInt **places);
  /*
     What Next() begins with: contributions, with so many values of the cycle each, the ghosts of the next level, also on the
     device, and the places of columns behind the own ones there.
  */
  PetscErrorCode BeginNext(LocalInt l, const CMATCHOwnedRows &next, const CMATCHRowList &receive, LocalInt values,
                           std::vector<LocalInt> *place, std::vector<GlobalInt> *ghost, GlobalInt **ghosts, LocalInt **places);
  /* M of the next level, from the own rows and those that have come. The diagonal of nodes is the sum of their positive weights. */
  PetscErrorCode MergeM(LocalInt l, const CMATCHOwnedRows &next, const std::vector<GlobalInt> &ghost, const GlobalInt *ghosts,
                        bool nodes);

  CMATCHHierarchyCUDA *const H;
  const PetscBool            keep;
  CMATCHStats               &stats;
  CMATCHSetup                s;
  CMATCHArena::Mark          level_mark; /* what is taken behind it is of the level at hand */

  CMATCHTransfer         transfer = CMATCH_MATCHED; /* what Match() has found */
  CMATCHFound            found;
  GlobalInt             *numbers   = nullptr;                     /* [n + ghosts] of the aggregates on the next level, or -1 */
  GlobalInt             *P_numbers = nullptr;                     /* [n + ghosts][width] of the columns of P, and -1 behind them */
  std::vector<GlobalInt> met;                                     /* the numbers of the aggregates of ghosts, ascending */
  LocalInt              *ghost_place = nullptr;                   /* [ghosts] columns of their aggregates, in this order, or -1 */
  GlobalInt             *met_column = nullptr, *column = nullptr; /* numbers of columns behind the own ones, of M and of products */
  CMATCHMade             made, M; /* products, and the rows of M; of nodes a has blocks, and length is null */
  size_t                 made_entries = 0, M_entries = 0;
  CMATCHCameRows         came[CMATCH_ROW_KINDS];

private:
  /* Where the entries of rows with these sums begin, and behind the last row; adds up all of them if asked to. */
  PetscErrorCode OrderRows(LocalInt rows, int width, const double *sums, unsigned long long *all, LocalInt **at);
  PetscErrorCode NumberColumns(long long count, const LocalInt *columns, const CMATCHNumberOf &, GlobalInt *to);
  /* Begins a list that ListNumber() makes; brings it into ascending order, without repetitions, also to the host. */
  PetscErrorCode BeginList(size_t room, GlobalInt **list);
  PetscErrorCode EndList(GlobalInt *list, std::vector<GlobalInt> *on_host);
};
