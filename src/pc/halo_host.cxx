/* This file is the host twin of cuda/pc/halo.cu, in plain loops. */
#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include "halo.h"

namespace
{

/*
   Where a number is in an ascending list, or -1. A table over the range of the numbers answers at once; if it were many times as
   long as the list, a search does.
*/
class Places {
public:
  Places(LocalInt n, const GlobalInt *sorted) : n_(n), sorted_(sorted)
  {
    constexpr size_t kLongest = 16; /* entries of the table for each number */
    if (!n) return;
    const size_t range = (size_t)(sorted[n - 1] - sorted[0]) + 1;
    if (range > kLongest * n) return;
    table_.assign(range, -1);
    for (LocalInt k = 0; k < n; k++) table_[sorted[k] - sorted[0]] = k;
  }

  LocalInt Find(GlobalInt number) const
  {
    if (!n_ || number < sorted_[0] || number > sorted_[n_ - 1]) return -1;
    if (!table_.empty()) return table_[number - sorted_[0]];
    const GlobalInt *found = std::lower_bound(sorted_, sorted_ + n_, number);
    return *found == number ? (LocalInt)(found - sorted_) : -1;
  }

private:
  LocalInt              n_;
  const GlobalInt      *sorted_;
  std::vector<LocalInt> table_;
};

/* Calls f(column, place) for the entries of an own row in the order of their columns. */
template <typename F>
void ForRow(const HaloRows &A, LocalInt r, const F &f)
{
  LocalInt k = A.others.i[r];
  for (; k < A.others.i[r + 1] && A.others.j[k] < A.before; k++) f(A.columns[A.others.j[k]], A.own.nnz + k);
  for (LocalInt e = A.own.i[r]; e < A.own.i[r + 1]; e++) f(A.begin + A.own.j[e], e);
  for (; k < A.others.i[r + 1]; k++) f(A.columns[A.others.j[k]], A.own.nnz + k);
}

/* An array of plain memory with the numbers of a vector. */
template <typename T>
PetscErrorCode MakeArray(const std::vector<T> &numbers, T **array)
{
  PetscFunctionBegin;
  PetscCall(ArrayCreate_Host(numbers.size() * sizeof(T), (void **)array));
  std::copy(numbers.begin(), numbers.end(), *array);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode MakePattern(LocalInt columns, const std::vector<LocalInt> &i, const std::vector<LocalInt> &j,
                           FinePCPrecision precision, CSR *W)
{
  PetscFunctionBegin;
  PetscCall(CSRCreate((LocalInt)i.size() - 1, columns, (LocalInt)j.size(), precision, PETSC_MEMTYPE_HOST, W));
  std::copy(i.begin(), i.end(), W->i);
  std::copy(j.begin(), j.end(), W->j);
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

/* ------------------------------------ the plan of a gathering --------------------------------- */

PetscErrorCode HaloFollow_Host(const HaloRows *A, LocalInt count, const GlobalInt rows[], const GlobalInt depth[],
                               std::vector<GlobalInt> *reached, std::vector<LocalInt> *onward)
{
  std::vector<LocalInt>                     wanted(A->own.n, 0); /* layers from a row on */
  std::map<LocalInt, std::vector<LocalInt>> at;                  /* the rows from which so many are wanted */
  const auto                                want = [&](LocalInt row, LocalInt layers) {
    if (wanted[row] >= layers) return;
    wanted[row] = layers;
    at[layers].push_back(row);
  };

  PetscFunctionBegin;
  onward->assign(A->count, 0);
  for (LocalInt k = 0; k < count; k++) want((LocalInt)(rows[k] - A->begin), (LocalInt)depth[k]);
  for (; !at.empty() && at.rbegin()->first > 1; at.erase(std::prev(at.end()))) {
    const LocalInt layers = at.rbegin()->first;
    for (LocalInt row : at.rbegin()->second) { /* want() adds rows to another list */
      if (wanted[row] != layers) continue;
      for (LocalInt e = A->own.i[row]; e < A->own.i[row + 1]; e++) want(A->own.j[e], layers - 1);
      for (LocalInt e = A->others.i[row]; e < A->others.i[row + 1]; e++)
        (*onward)[A->others.j[e]] = PetscMax((*onward)[A->others.j[e]], layers - 1);
    }
  }
  reached->clear();
  for (LocalInt row = 0; row < A->own.n; row++)
    if (wanted[row]) reached->push_back(A->begin + row);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloLengths_Host(const HaloRows *A, LocalInt count, const GlobalInt rows[], std::vector<GlobalInt> *lengths)
{
  PetscFunctionBegin;
  lengths->clear();
  for (LocalInt k = 0; k < count; k++) {
    const LocalInt r = (LocalInt)(rows[k] - A->begin);
    lengths->push_back(A->own.i[r + 1] - A->own.i[r] + A->others.i[r + 1] - A->others.i[r]);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloPlaces_Host(const HaloRows *A, LocalInt count, const GlobalInt rows[], LocalInt *total, LocalInt **places)
{
  std::vector<LocalInt> found;

  PetscFunctionBegin;
  for (LocalInt k = 0; k < count; k++)
    ForRow(*A, (LocalInt)(rows[k] - A->begin), [&](GlobalInt, LocalInt place) { found.push_back(place); });
  PetscCall(LocalIntCast((PetscInt64)found.size(), "entries to send to other ranks", total));
  PetscCall(MakeArray(found, places));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloColumns_Host(const HaloRows *A, LocalInt count, const LocalInt places[], GlobalInt columns[])
{
  PetscFunctionBegin;
  for (LocalInt k = 0; k < count; k++)
    columns[k] = places[k] < A->own.nnz ? A->begin + A->own.j[places[k]] : A->columns[A->others.j[places[k] - A->own.nnz]];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloNumber_Host(const HaloGathered *gathered, GlobalInt begin, GlobalInt end, LocalInt bound_count,
                               const GlobalInt *bounds, CSR *foreign, LocalInt **keep, char **cut)
{
  const LocalInt        first = gathered->rows;
  const Places          places(first, gathered->row);
  std::vector<LocalInt> i(1, 0), j, kept;
  std::vector<char>     is_cut(first, 0);
  LocalInt              place = 0;

  PetscFunctionBegin;
  for (LocalInt row = 0; row < first; row++) {
    for (LocalInt k = 0; k < gathered->length[row]; k++, place++) {
      const GlobalInt column = gathered->columns[place];
      const LocalInt  to     = column >= begin && column < end ? first + (LocalInt)(column - begin) : places.Find(column);
      if (to < 0 && (std::upper_bound(bounds, bounds + bound_count, column) - bounds) % 2) is_cut[row] = 1;
      if (to < 0) continue;
      j.push_back(to);
      kept.push_back(place);
    }
    i.push_back((LocalInt)j.size());
  }
  PetscCall(MakePattern(first + (LocalInt)(end - begin), i, j, FINEPC_DOUBLE, foreign));
  PetscCall(MakeArray(kept, keep));
  PetscCall(MakeArray(is_cut, cut));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloGhosts_Host(const HaloRows *A, LocalInt first, const GlobalInt *rows, CSR *ghosts, LocalInt **places)
{
  const Places          foreign(first, rows);
  std::vector<LocalInt> local(A->count), i(1, 0), j, found;

  PetscFunctionBegin;
  for (LocalInt c = 0; c < A->count; c++) local[c] = foreign.Find(A->columns[c]);
  for (LocalInt r = 0; r < A->own.n; r++) {
    for (LocalInt k = A->others.i[r]; k < A->others.i[r + 1]; k++)
      if (local[A->others.j[k]] >= 0) {
        j.push_back(local[A->others.j[k]]);
        found.push_back(k);
      }
    i.push_back((LocalInt)j.size());
  }
  PetscCall(MakePattern(first, i, j, FINEPC_DOUBLE, ghosts));
  PetscCall(MakeArray(found, places));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ the values ---------------------------------------- */

template <typename T>
static void Pick_Halo(LocalInt count, const LocalInt *index, LocalInt n, const T *a, const T *b, T *to)
{
  for (LocalInt k = 0; k < count; k++) to[k] = index[k] < n ? a[index[k]] : b[index[k] - n];
}

PetscErrorCode HaloPick_Host(FinePCPrecision precision, LocalInt count, const LocalInt *index, LocalInt n, const void *a,
                             const void *b, void *to)
{
  PetscFunctionBegin;
  if (precision == FINEPC_SINGLE) Pick_Halo(count, index, n, (const float *)a, (const float *)b, (float *)to);
  else Pick_Halo(count, index, n, (const double *)a, (const double *)b, (double *)to);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloAssemble_Host(const CSRView *own, const CSR *foreign, const CSR *ghosts, CSR *L)
{
  const LocalInt     first = foreign->rows, rows = first + own->n;
  const PetscScalar *ghosts_a = (const PetscScalar *)ghosts->a;

  PetscFunctionBegin;
  PetscCall(CSRCreate(rows, rows, foreign->nnz + ghosts->nnz + own->nnz, FINEPC_DOUBLE, PETSC_MEMTYPE_HOST, L));
  PetscScalar *a = (PetscScalar *)L->a;
  PetscCall(PetscArraycpy(L->i, foreign->i, first + 1));
  PetscCall(PetscArraycpy(L->j, foreign->j, foreign->nnz));
  PetscCall(PetscArraycpy(a, (const PetscScalar *)foreign->a, foreign->nnz));
  for (LocalInt row = 0, to = foreign->nnz; row < own->n; row++) {
    for (LocalInt k = ghosts->i[row]; k < ghosts->i[row + 1]; k++, to++) {
      L->j[to] = ghosts->j[k];
      a[to]    = ghosts_a[k];
    }
    for (LocalInt k = own->i[row]; k < own->i[row + 1]; k++, to++) {
      L->j[to] = first + own->j[k];
      a[to]    = own->a[k];
    }
    L->i[first + row + 1] = to;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
static void SplitValues(const CSR &W, const CSR &own, const CSR &foreign)
{
  const T *W_a   = (const T *)W.a;
  T       *own_a = (T *)own.a, *foreign_a = (T *)foreign.a;

  for (LocalInt row = 0; row < W.rows; row++) {
    const LocalInt before = foreign.i[row + 1] - foreign.i[row];
    std::copy(W_a + W.i[row], W_a + W.i[row] + before, foreign_a + foreign.i[row]);
    std::copy(W_a + W.i[row] + before, W_a + W.i[row + 1], own_a + own.i[row]);
  }
}

PetscErrorCode HaloSplit_Host(const CSR *W, LocalInt first, PetscBool keep, CSR *own, CSR *foreign)
{
  PetscFunctionBegin;
  if (!keep) {
    const LocalInt nnz = (LocalInt)std::count_if(W->j, W->j + W->nnz, [=](LocalInt column) { return column < first; });
    PetscCall(CSRCreate(W->rows, W->rows, W->nnz - nnz, W->precision, PETSC_MEMTYPE_HOST, own));
    PetscCall(CSRCreate(W->rows, first, nnz, W->precision, PETSC_MEMTYPE_HOST, foreign));
    own->i[0] = foreign->i[0] = 0;
    for (LocalInt row = 0, to_own = 0, to_foreign = 0; row < W->rows; row++) {
      for (LocalInt k = W->i[row]; k < W->i[row + 1]; k++) {
        if (W->j[k] < first) foreign->j[to_foreign++] = W->j[k];
        else own->j[to_own++] = W->j[k] - first;
      }
      own->i[row + 1]     = to_own;
      foreign->i[row + 1] = to_foreign;
    }
  }
  if (W->precision == FINEPC_SINGLE) SplitValues<float>(*W, *own, *foreign);
  else SplitValues<double>(*W, *own, *foreign);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* --------------------------------- the factor's part on other ranks --------------------------- */

PetscErrorCode HaloCompress_Host(CSR *W, const GlobalInt *rows, GlobalInt begin, const char *cut, HaloEntries *entries)
{
  std::vector<LocalInt> start(W->columns + 1, 0), number(W->columns), row_of(W->nnz), order(W->nnz), touched;

  PetscFunctionBegin;
  for (LocalInt row = 0; row < W->rows; row++) {
    bool is_cut = false;
    for (LocalInt k = W->i[row]; k < W->i[row + 1]; k++) {
      row_of[k] = row;
      start[W->j[k] + 1]++;
      is_cut = is_cut || (cut && cut[W->j[k]]);
    }
    if (W->i[row] < W->i[row + 1]) touched.push_back(row);
    entries->limited += is_cut;
  }
  for (LocalInt c = 0; c < W->columns; c++) {
    number[c] = (LocalInt)entries->columns.size();
    if (start[c + 1]) entries->columns.push_back(c);
  }
  std::partial_sum(start.begin(), start.end(), start.begin());
  for (LocalInt k = 0; k < W->nnz; k++) order[start[W->j[k]]++] = k;
  for (LocalInt k : order) {
    entries->numbers.push_back(rows[W->j[k]]);
    entries->numbers.push_back(begin + row_of[k]);
  }
  for (LocalInt k = 0; k < W->nnz; k++) W->j[k] = number[W->j[k]];
  W->columns       = (LocalInt)entries->columns.size();
  entries->touched = (LocalInt)touched.size();
  PetscCall(MakeArray(order, &entries->order));
  PetscCall(MakeArray(touched, &entries->rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode HaloTranspose_Host(LocalInt n, GlobalInt begin, LocalInt count, const GlobalInt numbers[], FinePCPrecision precision,
                                  CSR *W, HaloTransposed *transposed)
{
  std::vector<GlobalInt> &columns = transposed->columns;
  std::vector<LocalInt>   i(n + 1, 0), next, j(count), place(count), touched;

  PetscFunctionBegin;
  for (LocalInt k = 0; k < count; k++) {
    i[numbers[2 * (size_t)k] - begin + 1]++;
    columns.push_back(numbers[2 * (size_t)k + 1]);
  }
  SortUnique(&columns);
  for (LocalInt row = 0; row < n; row++)
    if (i[row + 1]) touched.push_back(row);
  std::partial_sum(i.begin(), i.end(), i.begin());
  next = i;
  for (LocalInt k = 0; k < count; k++) {
    const LocalInt to = next[numbers[2 * (size_t)k] - begin]++;
    j[to]             = (LocalInt)(std::lower_bound(columns.begin(), columns.end(), numbers[2 * (size_t)k + 1]) - columns.begin());
    place[to]         = k;
  }
  transposed->touched = (LocalInt)touched.size();
  PetscCall(MakePattern((LocalInt)columns.size(), i, j, precision, W));
  PetscCall(MakeArray(place, &transposed->place));
  PetscCall(MakeArray(touched, &transposed->rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}
