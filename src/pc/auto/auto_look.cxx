/*
   What PCAUTO sees of a matrix. Each rank looks at its own diagonal block: at all rows, or at chunks of them that are spread
   evenly. PETSc has the pattern on the host; of values on a GPU only those of the sample are copied, all at once. The numbers of
   all ranks are added up, so that all of them see the same.
*/
#include <finepc.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "ranks/agree.h"
#include "options.h"
#include "sparse/bsr_mat.h"
#include "sparse/offload.h"
#include "sparse/symmetry.h"
#include "auto.h"

/* A rank looks at some so many entries, in at least so many rows, in so many chunks, and at the mirror images of so many. */
static constexpr LocalInt kSampleEntries = 8192, kSampleRows = 128, kChunks = 32, kMirrors = 4096;
/* Couplings that one row alone has are those of boundary conditions, if at most this share of all is so. */
static constexpr double kOneSided = 0.2;
/* A row is anisotropic if its couplings along one direction are so many times those across it; a matrix, if this share of its rows
 * is. */
static constexpr double kAnisotropy = 100, kAnisotropicShare = 0.05;
/* Blocks of a size that is guessed are as full as this, in so many blocks with so many entries. */
static constexpr double   kFull         = 0.7;
static constexpr LocalInt kLargestGuess = 6, kGuessBlocks = 200, kGuessEntries = 2048;
/* Entries beyond this, and diagonal entries below its inverse, are not usual. */
static constexpr double kLarge = 1e100;

/* Consecutive rows of the sample: i [count + 1] are places in j and a. Of the first entries `mirror` has the places in a of their
 * mirror images, -1 for none. */
struct Chunk {
  LocalInt           first, count;
  const LocalInt    *i = nullptr, *j = nullptr, *mirror = nullptr;
  const PetscScalar *a = nullptr;
};

/* What is added up, in the order in which ranks send it. */
struct Sums {
  PetscInt64 rows, beside, not_positive, dominated, negative, zero, alone, pairs, unequal, one_sided, entries, off_grid,
    anisotropic, not_usual;
};

/* Distances of a coupling from the diagonal that have been seen; more than those of 9 points are none of a stencil. */
struct Distances {
  std::vector<LocalInt> seen;
  bool                  many = false;

  void Add(LocalInt distance)
  {
    if (many || std::find(seen.begin(), seen.end(), distance) != seen.end()) return;
    if (seen.size() == 4) many = true;
    else seen.push_back(distance);
  }
  /* The length of a line of the grid, or 0. */
  LocalInt Line(LocalInt *points)
  {
    std::sort(seen.begin(), seen.end());
    *points = 0;
    if (many || seen.empty() || seen[0] != 1) return 0;
    if (seen.size() == 2 && seen[1] > 2) *points = 5;
    if (seen.size() == 4 && seen[1] == seen[2] - 1 && seen[3] == seen[2] + 1 && seen[2] > 2) *points = 9;
    return !*points ? 0 : *points == 5 ? seen[1] : seen[2];
  }
};

/* Whether entry `e` of the row that begins at `begin` is one that types of PETSc's take. They count on sorted columns, gamg in its
 * transposes and ilu in its pattern. */
static bool IsUsual(LocalInt begin, LocalInt e, const LocalInt j[], const PetscScalar a[])
{
  return PetscAbsReal(PetscRealPart(a[e])) <= kLarge && (e == begin || j[e] > j[e - 1]);
}

static void LookAtRow(const Chunk &c, LocalInt k, Sums *sums, Distances *distances)
{
  const LocalInt row      = c.first + k;
  PetscReal      diagonal = 0, others = 0;
  PetscInt64     beside = 0;

  for (LocalInt e = c.i[k]; e < c.i[k + 1]; e++) {
    const PetscReal value = PetscRealPart(c.a[e]);

    sums->not_usual += !IsUsual(c.i[k], e, c.j, c.a);
    if (c.j[e] == row) diagonal += value;
    else if (value != 0) {
      beside++;
      sums->not_positive += value < 0;
      others += PetscAbsReal(value);
      distances->Add(PetscAbsInt(c.j[e] - row));
    }
  }
  sums->rows++;
  sums->beside += beside;
  sums->dominated += PetscAbsReal(diagonal) >= others * (1 - 1e-12);
  sums->negative += diagonal < 0;
  sums->zero += diagonal == 0;
  sums->not_usual += diagonal != 0 && !(PetscAbsReal(diagonal) >= 1 / kLarge && PetscAbsReal(diagonal) <= kLarge);
  sums->alone += !beside && diagonal != 0;
}

/* Whether the couplings along lines of the grid and across them differ by much, and couplings that are none of the grid. */
static void LookAtGrid(const Chunk &c, LocalInt k, LocalInt line, Sums *sums)
{
  const LocalInt row   = c.first + k;
  PetscReal      along = 0, across = 0;

  for (LocalInt e = c.i[k]; e < c.i[k + 1]; e++) {
    const LocalInt  distance = PetscAbsInt(c.j[e] - row);
    const PetscReal value    = PetscAbsReal(PetscRealPart(c.a[e]));

    if (!distance || value == 0) continue;
    if (PetscAbsInt(c.j[e] % line - row % line) > 1) sums->off_grid++;
    if (distance == 1) along = std::max(along, value);
    if (distance == line) across = std::max(across, value);
  }
  sums->anisotropic += along > kAnisotropy * across || across > kAnisotropy * along;
}

/* The rows of this rank: blocks, whose pattern is on the host and whose values are not always. */
struct Rows {
  LocalInt              bs = 1, n = 0; /* rows of a block, and all rows */
  PetscInt64            entries = 0;
  const LocalInt       *i = nullptr, *j = nullptr;
  const PetscScalar    *a     = nullptr;
  PetscMemType          where = PETSC_MEMTYPE_HOST;
  std::vector<LocalInt> own_i, own_j; /* where the host has no pattern otherwise */

  /* The place of the value in row r and column c of block k. */
  LocalInt Place(LocalInt k, LocalInt r, LocalInt c) const { return (k * bs + c) * bs + r; }
  /* The place of the entry in this row and column, or -1; columns may have any order. */
  LocalInt Find(LocalInt row, LocalInt column) const
  {
    const LocalInt  block = bs == 1 ? row : row / bs, wanted = bs == 1 ? column : column / bs; /* divisions take time */
    const LocalInt *begin = j + i[block], *end = j + i[block + 1], *found = begin;

    for (std::ptrdiff_t count = end - begin; count > 1;) { /* and so do branches that the processor does not foresee */
      const std::ptrdiff_t half = count / 2;

      found += found[half] <= wanted ? half : 0;
      count -= half;
    }
    if (found == end || *found != wanted) found = std::find(begin, end, wanted);
    return found == end ? -1 : Place((LocalInt)(found - j), row - block * bs, column - wanted * bs);
  }
  /* Whether the host has them entry by entry. */
  bool Lent() const { return bs == 1 && !PetscMemTypeDevice(where); }
};

/* Some rows of them: those of the matrix itself where they are lent, and otherwise copies. */
struct Sample {
  std::vector<Chunk>       chunks;
  std::vector<LocalInt>    mirror;   /* of all chunks */
  std::vector<LocalInt>    i, j, at; /* starts of rows, columns, and places of values; those of mirror images are behind them */
  std::vector<PetscScalar> a;
};

/* Compares the entries of a row with their mirror images, as CSRSymmetry_Host() does. */
static void CompareRow(const Chunk &c, LocalInt k, Sums *sums)
{
  const LocalInt row   = c.first + k;
  PetscReal      noise = 0;

  for (LocalInt e = c.i[k]; e < c.i[k + 1]; e++)
    if (c.j[e] == row) noise = kSymmetryNoise * PetscAbsReal(PetscRealPart(c.a[e]));
  for (LocalInt e = c.i[k]; e < c.i[k + 1]; e++) {
    const PetscReal value = PetscRealPart(c.a[e]);

    if (c.j[e] == row || PetscAbsReal(value) <= noise) continue;
    const LocalInt  mirror = c.mirror[e - c.i[0]];
    const PetscReal other  = mirror < 0 ? 0 : PetscRealPart(c.a[mirror]),
                    larger = std::max(PetscAbsReal(value), PetscAbsReal(other));

    if (other == 0) sums->one_sided++;
    else {
      sums->pairs++;
      sums->unequal += !(PetscAbsReal(value - other) <= std::max(kSymmetry * larger, noise));
    }
  }
}

/* The rows of a chunk, entry by entry. */
static void AddRows_AUTO(const Rows &A, const Chunk &c, Sample *s)
{
  for (LocalInt row = c.first; row < c.first + c.count; row++) {
    const LocalInt block = row / A.bs, begin = A.i[block], end = A.i[block + 1];
    const size_t   first = s->j.size();

    s->i.push_back((LocalInt)first);
    if (A.bs == 1) { /* most matrices */
      s->j.insert(s->j.end(), A.j + begin, A.j + end);
      s->at.resize(s->j.size());
      std::iota(s->at.begin() + (std::ptrdiff_t)first, s->at.end(), begin);
      continue;
    }
    for (LocalInt k = begin; k < end; k++)
      for (LocalInt column = 0; column < A.bs; column++) {
        s->j.push_back(A.j[k] * A.bs + column);
        s->at.push_back(A.Place(k, row - block * A.bs, column));
      }
  }
  s->i.push_back((LocalInt)s->j.size());
}

/* Finds the mirror images of the first entries of a chunk. */
static void AddMirrors(const Rows &A, const Chunk &c, LocalInt mirrors, Sample *s)
{
  const bool lent = A.Lent();

  for (LocalInt k = 0; k < c.count && c.i[k] - c.i[0] < mirrors; k++)
    for (LocalInt e = c.i[k]; e < c.i[k + 1]; e++) {
      const LocalInt place = A.Find(c.j[e], c.first + k);

      s->mirror.push_back(place < 0 || lent ? place : (LocalInt)s->at.size());
      if (place >= 0 && !lent) s->at.push_back(place);
    }
}

/* Chooses rows, and gets what the sample has of them. */
static PetscErrorCode TakeSample(const Rows &A, Sample *s)
{
  const LocalInt      mean   = A.n ? (LocalInt)PetscMax(A.entries / A.n, 1) : 1;
  const LocalInt      sample = PetscMax(kSampleEntries / mean, kSampleRows);
  const bool          all = A.n <= sample, lent = A.Lent();
  const LocalInt      chunks = all ? 1 : kChunks, length = all ? A.n : sample / kChunks;
  std::vector<size_t> begin; /* of each chunk in the mirror images */

  PetscFunctionBegin;
  if (!lent) {
    s->j.reserve(2 * kSampleEntries);
    s->at.reserve(2 * kSampleEntries + kMirrors);
  }
  for (LocalInt c = 0; c < chunks && A.n; c++) {
    const LocalInt first = (LocalInt)((PetscInt64)(A.n - length) * c / PetscMax(chunks - 1, 1)) / A.bs * A.bs;

    s->chunks.push_back(Chunk{first, length});
    if (!lent) AddRows_AUTO(A, s->chunks.back(), s);
  }
  s->mirror.reserve(2 * kMirrors);
  for (size_t c = 0; c < s->chunks.size(); c++) {
    Chunk &chunk = s->chunks[c];

    chunk.i = lent ? A.i + chunk.first : s->i.data() + c * ((size_t)length + 1);
    chunk.j = lent ? A.j : s->j.data();
    begin.push_back(s->mirror.size());
    AddMirrors(A, chunk, kMirrors / chunks, s);
  }
  s->a.resize(s->at.size());
  PetscCall(ArrayGather(s->at.size(), s->at.data(), A.a, A.where, s->a.data()));
  for (size_t c = 0; c < s->chunks.size(); c++) {
    s->chunks[c].mirror = s->mirror.data() + begin[c];
    s->chunks[c].a      = lent ? A.a : s->a.data();
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The size of blocks that are nearly full, up to kLargestGuess, or 1. */
static LocalInt GuessBlockSize(const std::vector<Chunk> &chunks, LocalInt n)
{
  LocalInt best      = 1;
  double   best_full = 0;

  for (LocalInt size = 2; size <= kLargestGuess; size++) {
    std::vector<LocalInt> columns;
    PetscInt64            entries = 0, blocks = 0;

    if (n % size || n == size) continue;
    for (const Chunk &c : chunks)
      for (LocalInt k = (size - c.first % size) % size; k + size <= c.count; k += size) {
        if (blocks >= kGuessBlocks || entries >= kGuessEntries) break;
        columns.clear();
        for (LocalInt e = c.i[k]; e < c.i[k + size]; e++) {
          const LocalInt column = c.j[e] / size;
          if (columns.empty() || columns.back() != column) columns.push_back(column); /* there is less to sort */
        }
        entries += c.i[k + size] - c.i[k];
        std::sort(columns.begin(), columns.end());
        blocks += std::unique(columns.begin(), columns.end()) - columns.begin();
      }
    const double full = blocks ? (double)entries / (double)(blocks * size * size) : 0;
    if (full < kFull || full < 0.9 * best_full) continue;
    best      = size;
    best_full = std::max(best_full, full);
  }
  return best;
}

/* What this rank sees. */
struct Seen {
  Sums     sums{};
  LocalInt points = 0, block_size = 1, longest = 0;
};

static PetscErrorCode LookAtRows_AUTO(const Rows &A, Seen *seen)
{
  Sample    s;
  Distances distances;

  PetscFunctionBegin;
  PetscCall(TakeSample(A, &s));
  const LocalInt mirrors = s.chunks.empty() ? 0 : kMirrors / (LocalInt)s.chunks.size();
  for (const Chunk &c : s.chunks)
    for (LocalInt k = 0; k < c.count; k++) {
      LookAtRow(c, k, &seen->sums, &distances);
      seen->longest = PetscMax(seen->longest, c.i[k + 1] - c.i[k]);
      if (c.i[k] - c.i[0] < mirrors) CompareRow(c, k, &seen->sums);
    }
  seen->block_size    = GuessBlockSize(s.chunks, A.n);
  const LocalInt line = distances.Line(&seen->points);
  for (const Chunk &c : s.chunks)
    for (LocalInt k = 0; k < c.count && line; k++) LookAtGrid(c, k, line, &seen->sums);
  if (seen->sums.off_grid) seen->points = 0;
  seen->sums.entries = A.entries;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Rows of single entries, of which the host may have no pattern. */
static PetscErrorCode RowsOf_AUTO(const CSRView &A, bool pattern_on_host, Rows *rows)
{
  PetscFunctionBegin;
  rows->n       = A.n;
  rows->entries = A.nnz;
  rows->i       = A.i;
  rows->j       = A.j;
  rows->a       = A.a;
  rows->where   = A.where;
  if (pattern_on_host || !PetscMemTypeDevice(A.where)) PetscFunctionReturn(PETSC_SUCCESS);
  rows->own_i.resize((size_t)A.n + 1);
  rows->own_j.resize(A.nnz);
  PetscCall(ArrayCopy(rows->own_i.data(), A.i, rows->own_i.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, A.where));
  PetscCall(ArrayCopy(rows->own_j.data(), A.j, rows->own_j.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, A.where));
  rows->i = rows->own_i.data();
  rows->j = rows->own_j.data();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Blocks that are on the GPU. */
static PetscErrorCode LookAtDeviceBlocks(Mat local, const BSRView &A, Seen *seen)
{
  const PetscInt *i, *j;
  PetscInt        n;
  Rows            rows;

  PetscFunctionBegin;
  PetscCall(MatLendRows(local, PETSC_TRUE, &n, &i, &j));
  rows.bs             = A.bs;
  rows.n              = A.n * A.bs;
  rows.entries        = (PetscInt64)A.nnz * A.bs * A.bs;
  rows.a              = A.a;
  rows.where          = A.where;
  PetscErrorCode code = MatGetLocalPattern(local, PETSC_MEMTYPE_HOST, A.n, A.nnz, i, j, &rows.i, &rows.j);
  if (!code) code = CallGuarded(LookAtRows_AUTO, (const Rows &)rows, seen);
  PetscCall(MatTakeRowsBack(local, PETSC_TRUE));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode LookAtLent(const CSRMat &csr, bool pattern_on_host, Seen *seen)
{
  Rows rows;

  PetscFunctionBegin;
  PetscCall(RowsOf_AUTO(csr.A, pattern_on_host, &rows));
  PetscCall(LookAtRows_AUTO(rows, seen));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode LookHere(Mat A, Seen *seen)
{
  MatPoints    points{};
  CSRMat       csr;
  Mat          local;
  PetscBool    is_aij;
  PetscMemType where;
  PetscErrorCode (*query)(Mat, const BSR **);

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_aij, MATSEQAIJ, MATMPIAIJ, ""));
  PetscCall(MatGetDiagonalBlock(A, &local));
  PetscCall(MatGetBSRMemType(A, &where));
  PetscCall(PetscObjectQueryFunction((PetscObject)local, kDeviceBlocksQuery, &query));
  if (query && PetscMemTypeDevice(where)) {
    const BSR *blocks;

    PetscCall((*query)(local, &blocks));
    PetscCall(LookAtDeviceBlocks(local, BSRViewOf(blocks), seen));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  if (is_aij) PetscCall(MatGetCSRToLook(A, &csr));
  else PetscCall(MatGetPoints(A, PETSC_FALSE, &points, &csr));
  const PetscErrorCode code = CallGuarded(LookAtLent, (const CSRMat &)csr, (bool)is_aij, seen);
  PetscCall(MatRestoreCSR(&csr));
  PetscCall(CSRDestroy(&points.copy));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Entries that are not usual, and rows whose diagonal entry is 0 or missing, or negative, or that stay singular */
enum OfAll { NOT_USUAL, ZERO, NEGATIVE, SINGULAR, OF_ALL };

/* The diagonal entry of a row, and the sum of the magnitudes of the others */
struct RowSums {
  PetscReal diagonal = 0, others = 0;

  RowSums(const CSRView &A, LocalInt row)
  {
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const PetscReal value = PetscRealPart(A.a[k]);
      if (A.j[k] == row) diagonal += value;
      else others += PetscAbsReal(value);
    }
  }
};

/*
   Rows that the shift of PETSc's icc leaves with a pivot of rounding size, with which such a factorization begins again and again.
   The shift is the most by which a row is not dominated, so that all rows are dominated with it, and some of them just so: their
   pivots vanish where no coupling leads, from row to row, to one that is dominated by more. A shift may be nothing for a part of a
   large scale.
*/
static PetscInt64 CountSingular(const CSRView &A)
{
  constexpr PetscReal    kRounding = 1e-8;
  PetscReal              shift     = 0;
  std::vector<PetscReal> scale(A.n);
  std::vector<LocalInt>  sound; /* rows with a pivot, in the order in which they are found */
  std::vector<char>      is_sound(A.n);

  sound.reserve(A.n);
  for (LocalInt row = 0; row < A.n; row++) {
    const RowSums sums(A, row);
    shift      = PetscMax(shift, sums.others - sums.diagonal);
    scale[row] = kRounding * (sums.diagonal + sums.others);
  }
  const auto add = [&](LocalInt row) {
    is_sound[row] = 1;
    sound.push_back(row);
  };
  for (LocalInt row = 0; row < A.n; row++) {
    const RowSums sums(A, row);
    if (sums.diagonal + shift - sums.others > scale[row]) add(row);
  }
  for (size_t k = 0; k < sound.size(); k++)
    for (LocalInt e = A.i[sound[k]]; e < A.i[sound[k] + 1]; e++)
      if (!is_sound[A.j[e]] && PetscAbsReal(PetscRealPart(A.a[e])) > scale[A.j[e]]) add(A.j[e]);
  return A.n - (PetscInt64)sound.size();
}

/* Counts them; rows of the `other` part of a matrix on several ranks have no diagonal. */
static void CountInAll(const CSRView &A, bool other, PetscInt64 count[])
{
  for (LocalInt row = 0; row < A.n; row++) {
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) count[NOT_USUAL] += !IsUsual(A.i[row], k, A.j, A.a);
    if (other) continue;
    const PetscReal diagonal = RowSums(A, row).diagonal;
    count[NOT_USUAL] += diagonal != 0 && !(PetscAbsReal(diagonal) >= 1 / kLarge);
    count[ZERO] += diagonal == 0;
    count[NEGATIVE] += diagonal < 0;
  }
  if (!other) count[SINGULAR] += CountSingular(A);
}

static PetscErrorCode CountInAllHere(Mat A, PetscInt64 count[])
{
  MatPoints points{};
  CSRMat    csr;
  Mat       other = nullptr;
  PetscBool is_aij, is_mpi;

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_aij, MATSEQAIJ, MATMPIAIJ, ""));
  PetscCall(PetscObjectBaseTypeCompare((PetscObject)A, MATMPIAIJ, &is_mpi));
  if (is_aij) PetscCall(MatGetHostCSR(A, &csr));
  else PetscCall(MatGetPoints(A, PETSC_FALSE, &points, &csr));
  CountInAll(csr.A, false, count);
  PetscCall(MatRestoreCSR(&csr));
  PetscCall(CSRDestroy(&points.copy));
  if (!is_mpi) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatMPIAIJGetSeqAIJ(A, nullptr, &other, nullptr));
  PetscCall(MatGetPartOnHost(other, &csr));
  CountInAll(csr.A, true, count);
  PetscCall(MatRestoreCSR(&csr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AUTOLookAtAll(Mat A, AUTOProperties *p)
{
  PetscInt64   count[OF_ALL] = {};
  PetscMemType where         = PETSC_MEMTYPE_HOST;
  PetscBool    is_aij;

  PetscFunctionBegin;
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &is_aij, MATSEQAIJ, MATMPIAIJ, ""));
  if (p->rows_known && !is_aij) PetscCall(MatGetBSRMemType(A, &where));
  if (!p->rows_known || PetscMemTypeDevice(where)) PetscFunctionReturn(PETSC_SUCCESS); /* such blocks have been seen in part */
  const PetscErrorCode code = CallGuarded(CountInAllHere, A, count);
  PetscCall(AgreeOnError(PetscObjectComm((PetscObject)A), code, "look at its rows"));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, count, OF_ALL, MPIU_INT64, MPI_SUM, PetscObjectComm((PetscObject)A)));
  p->not_usual         = count[NOT_USUAL];
  p->zero_diagonal     = count[ZERO];
  p->negative_diagonal = count[NEGATIVE];
  p->stay_singular     = count[SINGULAR];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What the program has set as properties of the matrix takes precedence over what is seen. */
static PetscErrorCode Conclude_AUTO(Mat A, AUTOProperties *p)
{
  PetscBool known, is;

  PetscFunctionBegin;
  const PetscInt64 couplings = p->pairs + p->one_sided;
  p->symmetric =
    p->rows_known && !p->unequal && (!p->one_sided || (p->alone && (double)p->one_sided <= kOneSided * (double)couplings));
  PetscCall(MatIsSymmetricKnown(A, &known, &is));
  if (known) p->symmetric = is;
  const bool mixed = p->negative_diagonal && p->negative_diagonal + p->zero_diagonal < p->looked_at;
  p->definite      = p->symmetric && p->rows_known && !mixed && p->zero_diagonal < p->looked_at;
  PetscCall(MatIsSPDKnown(A, &known, &is));
  if (known && is) p->symmetric = p->definite = true;
  if (known && !is && p->symmetric) p->definite = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The vectors of Probe_AUTO(). */
struct ProbeVectors {
  Vec d = nullptr, r = nullptr, z = nullptr, p = nullptr, Ap = nullptr;
};

/* Starts with all parts of the spectrum: a smooth one, and noise that does not depend on the number of ranks. */
static PetscErrorCode FillForProbe(Vec r)
{
  PetscInt     begin, end;
  PetscScalar *values;

  PetscFunctionBegin;
  PetscCall(VecGetOwnershipRange(r, &begin, &end));
  PetscCall(VecGetArrayWrite(r, &values));
  for (PetscInt k = begin; k < end; k++) {
    const uint64_t h  = ((uint64_t)k + 1) * 0x9e3779b97f4a7c15u;
    values[k - begin] = 0.5 + (PetscReal)((h ^ (h >> 29)) * 0xbf58476d1ce4e5b9u >> 11) / 9007199254740992.;
  }
  PetscCall(VecRestoreArrayWrite(r, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   A few steps of Lanczos' method for D^{-1} A, as the conjugate gradient method takes them: A is not definite if p.Ap < 0 for one
   of its directions, since the p.Ap are the pivots of the tridiagonal matrix.
*/
static PetscErrorCode ProbeWith(Mat A, const ProbeVectors &v, bool *indefinite)
{
  PetscReal rz, rz_before = 0, pAp, norm_p, norm_Ap;

  PetscFunctionBegin;
  *indefinite = false;
  PetscCall(MatGetDiagonal(A, v.d));
  PetscCall(VecAbs(v.d));
  PetscCall(VecReciprocal(v.d));
  PetscCall(FillForProbe(v.r));
  for (int step = 0; step < kProbeSteps; step++) {
    PetscCall(VecPointwiseMult(v.z, v.d, v.r));
    PetscCall(VecDot(v.r, v.z, &rz));
    if (step && !(rz > PETSC_SMALL * rz_before)) break;
    if (step) PetscCall(VecAYPX(v.p, rz / rz_before, v.z));
    else PetscCall(VecCopy(v.z, v.p));
    PetscCall(MatMult(A, v.p, v.Ap));
    PetscCall(VecDot(v.p, v.Ap, &pAp));
    if (!(pAp > 0)) {
      PetscCall(VecNorm(v.p, NORM_2, &norm_p));
      PetscCall(VecNorm(v.Ap, NORM_2, &norm_Ap));
      *indefinite = pAp < -PETSC_SMALL * norm_p * norm_Ap; /* rather than singular, or no number */
      break;
    }
    PetscCall(VecAXPY(v.r, -rz / pAp, v.Ap));
    rz_before = rz;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Probe_AUTO(Mat A, bool *indefinite)
{
  ProbeVectors v;

  PetscFunctionBegin;
  PetscCall(MatCreateVecs(A, &v.p, &v.Ap));
  PetscCall(VecDuplicate(v.p, &v.d));
  PetscCall(VecDuplicate(v.p, &v.r));
  PetscCall(VecDuplicate(v.p, &v.z));
  PetscCall(ProbeWith(A, v, indefinite));
  for (Vec *vec : {&v.d, &v.r, &v.z, &v.p, &v.Ap}) PetscCall(VecDestroy(vec));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AUTOProbe(Mat A, AUTOProperties *p)
{
  PetscFunctionBegin;
  if (p->doubtful) PetscCall(Probe_AUTO(A, &p->indefinite));
  p->doubtful = false;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode IsDoubtful(Mat A, const AUTOProperties &p, bool *doubtful)
{
  PetscBool known, is;

  PetscFunctionBegin;
  PetscCall(MatIsSPDKnown(A, &known, &is));
  *doubtful = p.definite && !known && !p.zero_diagonal && !p.negative_diagonal && p.dominated < p.looked_at;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode AUTOLook(Mat A, AUTOProperties *p)
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)A);
  Seen           seen;
  MatNullSpace   modes;
  PetscInt       rows;
  PetscMPIInt    size;
  PetscMemType   where = PETSC_MEMTYPE_HOST;
  PetscInt       mine;
  PetscBool      known, blocks;
  PetscErrorCode code = PETSC_SUCCESS;

  PetscFunctionBegin;
  *p = AUTOProperties{};
  PetscCallMPI(MPI_Comm_size(comm, &size));
  PetscCall(MatGetSize(A, &rows, nullptr));
  PetscCall(MatGetBlockSize(A, &p->block_size));
  PetscCall(MatGetNearNullSpace(A, &modes));
  if (modes) PetscCall(MatNullSpaceGetVecs(modes, nullptr, &p->modes, nullptr));
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &known, MATSEQAIJ, MATMPIAIJ, MATSEQBAIJ, MATMPIBAIJ, MATSEQSBAIJ,
                                          MATMPISBAIJ, ""));
  PetscCall(PetscObjectBaseTypeCompareAny((PetscObject)A, &blocks, MATSEQBAIJ, MATMPIBAIJ, MATSEQSBAIJ, MATMPISBAIJ, ""));
  PetscCall(MatGetLocalSize(A, &mine, nullptr));
  p->rows       = rows;
  p->one_rank   = size == 1;
  p->rows_known = known;
  if (known) code = CallGuarded(LookHere, A, &seen);
  PetscCall(AgreeOnError(comm, code, "look at its rows"));
  if (known) PetscCall(MatGetBSRMemType(A, &where));
  PetscInt64 sums[sizeof(Sums) / sizeof(PetscInt64)];
  const auto of_rows  = [mine](PetscInt value) { return mine ? value : PETSC_INT_MAX; }; /* a rank without rows has seen nothing */
  PetscInt   least[6] = {of_rows(seen.points),  of_rows(seen.block_size),
                         of_rows(-seen.points), PetscMemTypeDevice(where),
                         -seen.longest,         mine > 0 || !blocks || p->block_size == 1};
  PetscCall(PetscMemcpy(sums, &seen.sums, sizeof(sums)));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, (PetscMPIInt)std::size(sums), MPIU_INT64, MPI_SUM, comm));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, least, (PetscMPIInt)std::size(least), MPIU_INT, MPI_MIN, comm));
  PetscCall(PetscMemcpy(&seen.sums, sums, sizeof(sums)));
  p->stencil     = least[0] == -least[2] ? least[0] : 0;
  p->on_device   = least[3];
  p->longest_row = -least[4];
  p->no_blocks   = !least[5];
  if (p->block_size == 1 && rows) p->block_size = least[1];
  const Sums &s        = seen.sums;
  p->entries           = s.entries;
  p->looked_at         = s.rows;
  p->beside            = s.beside;
  p->not_positive      = s.not_positive;
  p->dominated         = s.dominated;
  p->negative_diagonal = s.negative;
  p->zero_diagonal     = s.zero;
  p->alone             = s.alone;
  p->not_usual         = s.not_usual;
  p->pairs             = s.pairs;
  p->unequal           = s.unequal;
  p->one_sided         = s.one_sided;
  p->anisotropic       = p->stencil && (double)s.anisotropic > kAnisotropicShare * (double)s.rows;
  PetscCall(Conclude_AUTO(A, p));
  PetscCall(IsDoubtful(A, *p, &p->doubtful));
  PetscFunctionReturn(PETSC_SUCCESS);
}
