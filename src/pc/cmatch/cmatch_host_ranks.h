/*
   What the host twins of both kinds of hierarchies do alike on several ranks: numbers of aggregates, and rows that go to other
   ranks. For a hierarchy of nodes a row is one of blocks, and n is the number of nodes.
*/
#pragma once

#include "cmatch_host.h"
#include "cmatch_ranks.h"

/* Rows that go to other ranks. Their columns are numbers on the next level. */
struct CMATCHRowsOut {
  int                    width = kCMATCHRowSums, block = 1; /* see CMATCHRowData */
  std::vector<LocalInt>  i    = {0};                        /* [rows + 1] row starts */
  std::vector<GlobalInt> j    = {};                         /* columns */
  std::vector<double>    a    = {};                         /* [entries][block] values */
  std::vector<double>    sums = {};                         /* [rows][width - 1] without the count of entries */

  LocalInt Rows() const { return (LocalInt)i.size() - 1; }
  void     EndRow() { i.push_back((LocalInt)j.size()); }
};

/* The same in the order of a list, one neighbour after the other. */
struct CMATCHPackedRows {
  std::vector<double>    sums, a;
  std::vector<GlobalInt> j;
};

/* Rows that have come, one for each contribution, in the order of rows and ranks; entries are in the order in which they came. */
struct CMATCHRowsIn {
  int                   width = kCMATCHRowSums, block = 1;
  std::vector<LocalInt> start, length, at; /* of contributions, with the row that each is; empty if none are expected */
  CMATCHPackedRows      in;

  const double *Sums(LocalInt k) const { return &in.sums[(size_t)at[k] * width + 1]; }
};

/* Numbers a rank's own rows of a level, and its ghosts behind them. */
struct CMATCHNumbering {
  GlobalInt                     first;
  LocalInt                      rows;
  const std::vector<GlobalInt> &ghost;

  bool IsOwn(GlobalInt number) const { return number >= first && number < first + rows; }

  /* The column of a number, or -1 if it is none. */
  LocalInt operator()(GlobalInt number) const
  {
    if (IsOwn(number)) return (LocalInt)(number - first);
    const auto found = std::lower_bound(ghost.begin(), ghost.end(), number);
    return found != ghost.end() && *found == number ? rows + (LocalInt)(found - ghost.begin()) : -1;
  }
};

class CMATCHRanksTwin : public CMATCHRanksSetUp {
public:
  PetscErrorCode MakeRoom(LocalInt rows, int kinds, const LocalInt entries[], CMATCHRowData to[]) override;

protected:
  explicit CMATCHRanksTwin(PetscBool kept) : keep(kept) { }

  /* The number on the next level of a column of P, or of the products. */
  static GlobalInt NumberOf(const CMATCHLevel &level, const CMATCHColumns &L, LocalInt c)
  {
    return c < level.coarse ? level.first_coarse + c : L.column[c - level.coarse];
  }

  /* Such rows of an array, of so many entries each. */
  template <typename V>
  static void Pack(const std::vector<LocalInt> &rows, const V *from, LocalInt width, std::vector<V> *to)
  {
    to->clear();
    for (LocalInt row : rows) to->insert(to->end(), from + (size_t)row * width, from + (size_t)(row + 1) * width);
  }

  /* Packs rows, of which row r of the list is row first + r, or an empty one behind the last row. */
  static PetscErrorCode PackRows(const CMATCHRowsOut &, LocalInt first, const CMATCHRowList &, CMATCHPackedRows *,
                                 CMATCHSentRows *);

  /* What Number() and Prolong() give of numbers. */
  CMATCHHalo ShareNumbers(LocalInt n, const CMATCHLevel &, const CMATCHColumns &, const std::vector<LocalInt> &send);
  CMATCHHalo ShareColumns(LocalInt n, const CMATCHLevel &, const CMATCHColumns &, const std::vector<LocalInt> &send);

  /* The aggregates of ghosts become columns behind the own ones. */
  void NumberGhosts(LocalInt n, const CMATCHLevel &, CMATCHColumns *) const;
  /* Foreign aggregates are those that are columns of P. They come before the others, which the rows of P have not kept. */
  static void NumberForeign(CMATCHLevel *, CMATCHColumns *);
  /* The rows of P of ghosts get columns; those that are neither own nor foreign aggregates come behind these. */
  void NumberColumns(LocalInt n, const CMATCHLevel &, CMATCHColumns *) const;
  /* The rows of M, with the numbers of aggregates for columns. Columns of ghosts that are left are no columns any more. */
  void SendM(LocalInt n, const CMATCHLevel &, const CMATCHGraph &M);

  /* The numbers of contributions, which come to these rows, and where those to each row begin. */
  static void NumberContributions(LocalInt rows, const std::vector<LocalInt> &to, std::vector<LocalInt> *place, CMATCHLevel *,
                                  CMATCHColumns *);
  /* Rows that have come become contributions with these numbers. */
  static void PlaceRows(const std::vector<LocalInt> &place, CMATCHRowsIn *);
  /* The ghosts of the next level are the columns of its rows that other ranks have; those of the own products are marked. */
  void FindGhosts(const CMATCHLevel &, const CMATCHColumns &, const CMATCHNumbering &next, const std::vector<char> &used,
                  std::vector<GlobalInt> *ghost) const;
  /* M of the next level, from the own rows and those that have come. The diagonal of nodes is the sum of their positive weights. */
  CMATCHGraph NextM(const CMATCHLevel &, const CMATCHNumbering &column, const std::vector<LocalInt> &add_i, bool nodes) const;

  const PetscBool        keep;
  std::vector<GlobalInt> number_of, P_numbers;       /* [n + ghosts] of aggregates, and [n + ghosts][width] of columns of P */
  std::vector<GlobalInt> packed_numbers;             /* of rows that are sent */
  CMATCHRowsOut          M_sent;                     /* of M, all own rows */
  CMATCHPackedRows       packed[CMATCH_ROW_KINDS];   /* what is sent */
  CMATCHRowsIn           received[CMATCH_ROW_KINDS]; /* contributions */
};
