/*
   What PCAUTO sees of a matrix. Each rank looks at its own diagonal block: at all rows, or at chunks of them that are spread
   evenly. Rows on a GPU are copied chunk by chunk. The numbers of all ranks are added up, so that all of them see the same.
*/
#include <finepc.h>

#include <algorithm>
#include <cmath>

#include "ranks/agree.h"
#include "options.h"
#include "sparse/bsr_mat.h"
#include "auto.h"

/* A rank looks at some so many entries, in at least so many rows, in so many chunks. */
static constexpr LocalInt kSampleEntries = 150000, kSampleRows = 1024, kChunks = 16;
/* Couplings that one row alone has are those of boundary conditions, if at most this share of all is so. */
static constexpr double kOneSided = 0.2;
/* A row is anisotropic if its couplings along one direction are so many times those across it; a matrix, if this share of its rows
 * is. */
static constexpr double kAnisotropy = 100, kAnisotropicShare = 0.05;
/* Blocks of a size that is guessed are as full as this. */
static constexpr double   kFull         = 0.7;
static constexpr LocalInt kLargestGuess = 6, kGuessBlocks = 2000;
/* Entries beyond this, and diagonal entries below its inverse, are not usual. */
static constexpr double kLarge = 1e100;

/* Consecutive rows, on the host: i [count + 1] counts from the first entry. */
struct Chunk {
  LocalInt           first, count;
  const LocalInt    *i, *j;
  const PetscScalar *a;
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

static void LookAtRow(const Chunk &c, LocalInt k, Sums *sums, Distances *distances)
{
  const LocalInt row      = c.first + k;
  PetscReal      diagonal = 0, others = 0;
  PetscInt64     beside = 0;

  for (LocalInt e = c.i[k]; e < c.i[k + 1]; e++) {
    const PetscReal value = PetscRealPart(c.a[e]);

    sums->not_usual += !(PetscAbsReal(value) <= kLarge);
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

/* The entry in this row and column, or 0; columns may have any order. */
static PetscReal ValueAt(const CSRView &A, LocalInt row, LocalInt column)
{
  const LocalInt *begin = A.j + A.i[row], *end = A.j + A.i[row + 1], *found = std::lower_bound(begin, end, column);

  if (found == end || *found != column) found = std::find(begin, end, column);
  return found == end ? 0 : PetscRealPart(A.a[found - A.j]);
}

/* Compares the entries of a row on the host with their mirror images, as CSRSymmetry_Host() does. */
static void CompareRow(const CSRView &A, LocalInt row, Sums *sums)
{
  const PetscReal noise = kSymmetryNoise * PetscAbsReal(ValueAt(A, row, row));

  for (LocalInt e = A.i[row]; e < A.i[row + 1]; e++) {
    const PetscReal value = PetscRealPart(A.a[e]);

    if (A.j[e] == row || PetscAbsReal(value) <= noise) continue;
    const PetscReal mirror = ValueAt(A, A.j[e], row), larger = std::max(PetscAbsReal(value), PetscAbsReal(mirror));

    if (mirror == 0) sums->one_sided++;
    else {
      sums->pairs++;
      sums->unequal += !(PetscAbsReal(value - mirror) <= std::max(kSymmetry * larger, noise));
    }
  }
}

/* The rows of a chunk on the host: those of the matrix, or a copy of them. */
static PetscErrorCode GetChunk(const CSRView &A, LocalInt first, LocalInt count, std::vector<LocalInt> *i, std::vector<LocalInt> *j,
                               std::vector<PetscScalar> *a)
{
  PetscFunctionBegin;
  i->resize((size_t)count + 1);
  PetscCall(ArrayCopy(i->data(), A.i + first, i->size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, A.where));
  const LocalInt begin = i->front(), entries = i->back() - begin;
  j->resize(entries);
  a->resize(entries);
  if (entries) PetscCall(ArrayCopy(j->data(), A.j + begin, j->size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, A.where));
  if (entries) PetscCall(ArrayCopy(a->data(), A.a + begin, a->size() * sizeof(PetscScalar), PETSC_MEMTYPE_HOST, A.where));
  for (LocalInt &start : *i) start -= begin;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The size of blocks that are nearly full, up to kLargestGuess, or 1. */
static LocalInt GuessBlockSize(const Chunk &c, LocalInt n)
{
  LocalInt best      = 1;
  double   best_full = 0;

  for (LocalInt size = 2; size <= kLargestGuess; size++) {
    std::vector<LocalInt> columns;
    PetscInt64            entries = 0, blocks = 0;
    const LocalInt        skip = (size - c.first % size) % size;

    if (n % size || n == size) continue;
    for (LocalInt k = skip; k + size <= c.count && blocks < kGuessBlocks; k += size) {
      columns.clear();
      for (LocalInt e = c.i[k]; e < c.i[k + size]; e++) columns.push_back(c.j[e] / size);
      entries += (PetscInt64)columns.size();
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

static PetscErrorCode CompareRows(const CSRView &A, LocalInt step, LocalInt length, Sums *sums)
{
  CSRSymmetry  symmetry{};
  CSRSymmetry *work = nullptr;

  PetscFunctionBegin;
  if (!PetscMemTypeDevice(A.where)) {
    for (LocalInt first = 0; first < A.n; first += step)
      for (LocalInt row = first; row < PetscMin(first + length, A.n); row++) CompareRow(A, row, sums);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(ArrayCreate(sizeof(*work), A.where, (void **)&work));
  const PetscErrorCode code = CSRSymmetry_CUDA(&A, 0, nullptr, work, &symmetry);
  PetscCall(ArrayDestroy(A.where, (void **)&work));
  PetscCall(code);
  sums->unequal   = symmetry.unequal;
  sums->one_sided = symmetry.one_sided;
  sums->pairs     = PetscMax((PetscInt64)A.nnz - A.n - symmetry.one_sided, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of the sample, chunk by chunk. */
static PetscErrorCode LookAtRows(const CSRView &A, Seen *seen)
{
  const LocalInt           mean   = A.n ? PetscMax(A.nnz / A.n, 1) : 1;
  const LocalInt           sample = PetscMax(kSampleEntries / mean, kSampleRows);
  const bool               all    = A.n <= sample;
  const LocalInt           step = all ? PetscMax(A.n, 1) : A.n / kChunks, length = all ? A.n : sample / kChunks;
  std::vector<LocalInt>    i, j;
  std::vector<PetscScalar> a;
  Distances                distances;

  PetscFunctionBegin;
  for (int pass = 0; pass < 2; pass++) {
    const LocalInt line = pass ? distances.Line(&seen->points) : 0;

    if (pass && !line) break;
    for (LocalInt first = 0; first < A.n; first += step) {
      const LocalInt count = PetscMin(length, A.n - first);

      PetscCall(GetChunk(A, first, count, &i, &j, &a));
      const Chunk c{first, count, i.data(), j.data(), a.data()};
      for (LocalInt k = 0; k < count; k++)
        if (pass) LookAtGrid(c, k, line, &seen->sums);
        else {
          LookAtRow(c, k, &seen->sums, &distances);
          seen->longest = PetscMax(seen->longest, c.i[k + 1] - c.i[k]);
        }
      if (!pass && !first) seen->block_size = GuessBlockSize(c, A.n);
    }
  }
  if (seen->sums.off_grid) seen->points = 0;
  PetscCall(CompareRows(A, step, length, &seen->sums));
  seen->sums.entries = A.nnz;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode LookHere(Mat A, Seen *seen)
{
  MatPoints points{};
  CSRMat    csr;

  PetscFunctionBegin;
  PetscCall(MatGetPoints(A, PETSC_FALSE, &points, &csr));
  const PetscErrorCode code = LookAtRows(csr.A, seen);
  PetscCall(MatRestoreCSR(&csr));
  PetscCall(CSRDestroy(&points.copy));
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What the program has told the matrix about itself goes before what is seen. */
static PetscErrorCode Conclude(Mat A, AUTOProperties *p)
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

PetscErrorCode AUTOLook(Mat A, AUTOProperties *p)
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)A);
  Seen           seen;
  MatNullSpace   modes;
  PetscInt       rows;
  PetscMPIInt    size;
  PetscMemType   where = PETSC_MEMTYPE_HOST;
  PetscBool      known;
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
  p->rows       = rows;
  p->one_rank   = size == 1;
  p->rows_known = known;
  if (known) code = CallGuarded(LookHere, A, &seen);
  PetscCall(AgreeOnError(comm, code, "look at its rows"));
  if (known) PetscCall(MatGetBSRMemType(A, &where));
  PetscInt64 sums[sizeof(Sums) / sizeof(PetscInt64)];
  PetscInt   least[5] = {seen.points, seen.block_size, -seen.points, PetscMemTypeDevice(where), -seen.longest};
  PetscCall(PetscMemcpy(sums, &seen.sums, sizeof(sums)));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, sums, (PetscMPIInt)std::size(sums), MPIU_INT64, MPI_SUM, comm));
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, least, 5, MPIU_INT, MPI_MIN, comm));
  PetscCall(PetscMemcpy(&seen.sums, sums, sizeof(sums)));
  p->stencil     = least[0] == -least[2] ? least[0] : 0;
  p->on_device   = least[3];
  p->longest_row = -least[4];
  if (p->block_size == 1) p->block_size = least[1];
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
  PetscCall(Conclude(A, p));
  PetscFunctionReturn(PETSC_SUCCESS);
}
