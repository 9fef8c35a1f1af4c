#include "matrices.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "stencil.h"

PetscScalar HostMatrix::At(LocalInt row, LocalInt column) const
{
  for (LocalInt k = i[row]; k < i[row + 1]; k++)
    if (j[k] == column) return a[k];
  return 0;
}

CSRView HostMatrix::View() const
{
  CSRView view;
  view.n     = n;
  view.nnz   = nnz();
  view.i     = i.data();
  view.j     = j.data();
  view.a     = a.data();
  view.where = PETSC_MEMTYPE_HOST;
  return view;
}

/* xorshift64* */
std::uint64_t Random::Next()
{
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return state_ * 2685821657736338717ull;
}

using Rows = std::vector<std::vector<std::pair<LocalInt, PetscScalar>>>;

HostMatrix FromRows(const Rows &rows)
{
  HostMatrix A;
  A.n = (LocalInt)rows.size();
  for (auto row : rows) {
    std::sort(row.begin(), row.end());
    for (const auto &entry : row) {
      A.j.push_back(entry.first);
      A.a.push_back(entry.second);
    }
    A.i.push_back(A.nnz());
  }
  return A;
}

HostMatrix FromDiagonal(const std::vector<double> &values)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows;
  for (double value : values) rows.push_back({{(LocalInt)rows.size(), value}});
  return FromRows(rows);
}

HostMatrix WithEntry(HostMatrix A, LocalInt row, LocalInt column, double value)
{
  for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++)
    if (A.j[k] == column) A.a[k] = value;
  return A;
}

HostMatrix Ring(LocalInt n, LocalInt width, bool both_sides)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
  for (LocalInt row = 0; row < n; row++) {
    rows[row] = {{row, 2.5 + row % 3}, {(row + width) % n, -1.}};
    if (both_sides) rows[row].push_back({(row + n - width) % n, -1.});
  }
  return FromRows(rows);
}

HostMatrix FromDense(LocalInt n, const std::vector<PetscScalar> &a)
{
  Rows rows(n);
  for (LocalInt row = 0; row < n; row++)
    for (LocalInt column = 0; column < n; column++)
      if (a[row * n + column] != 0) rows[row].emplace_back(column, a[row * n + column]);
  return FromRows(rows);
}

/* Calls pair(p, q) for all neighbours p > q of a grid. */
template <typename Pair>
static void ForNeighbours(LocalInt nx, LocalInt ny, LocalInt nz, bool corners, const Pair &pair)
{
  for (LocalInt z = 0; z < nz; z++)
    for (LocalInt y = 0; y < ny; y++)
      for (LocalInt x = 0; x < nx; x++)
        for (LocalInt dz = -1; dz <= 0; dz++)
          for (LocalInt dy = -1; dy <= 1; dy++)
            for (LocalInt dx = -1; dx <= 1; dx++) {
              const LocalInt shift = (dz * ny + dy) * nx + dx, distance = std::abs(dx) + std::abs(dy) + std::abs(dz);
              const bool     inside = x + dx >= 0 && x + dx < nx && y + dy >= 0 && y + dy < ny && z + dz >= 0;
              const bool     before = dz < 0 || (dz == 0 && (dy < 0 || (dy == 0 && dx < 0)));
              const LocalInt p      = (z * ny + y) * nx + x;
              if (inside && before && (corners || distance == 1)) pair(p, p + shift);
            }
}

HostMatrix FiniteVolumes(LocalInt nx, LocalInt ny, const std::function<double(LocalInt, LocalInt)> &k)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(nx * ny);
  for (LocalInt row = 0; row < nx * ny; row++) {
    double diagonal = 0;
    for (LocalInt to : {row - nx, row - 1, row + 1, row + nx}) {
      if (to < 0 || to >= nx * ny || (to / nx != row / nx && to % nx != row % nx)) continue;
      const double here = k(row % nx, row / nx), there = k(to % nx, to / nx), a = 2 * here * there / (here + there);
      rows[row].push_back({to, -a});
      diagonal += a;
    }
    rows[row].push_back({row, diagonal});
  }
  return FromRows(rows);
}

HostMatrix Inclusions(LocalInt nx, LocalInt ny, double contrast)
{
  return FiniteVolumes(nx, ny, [contrast](LocalInt x, LocalInt y) { return x % 10 > 4 && y % 10 > 4 ? contrast : 1.; });
}

HostMatrix Poisson(LocalInt nx, LocalInt ny, LocalInt nz)
{
  const Stencil  stencil = StarStencil(nx > 1, ny > 1, nz > 1);
  const PetscInt grid[3] = {nx, ny, nz};
  HostMatrix     A;
  A.n = nx * ny * nz;
  for (LocalInt row = 0; row < A.n; row++) {
    PetscInt       columns[7];
    PetscScalar    values[7];
    const PetscInt count = StencilRow(stencil, grid, row, columns, values);
    A.j.insert(A.j.end(), columns, columns + count);
    A.a.insert(A.a.end(), values, values + count);
    A.i.push_back(A.nnz());
  }
  return A;
}

/* From the off-diagonal entries, of both triangles. */
static HostMatrix WithDominantDiagonal(Rows rows, Random &random)
{
  std::vector<double> scale(rows.size());
  for (double &s : scale) s = std::pow(10., random.Between(-2, 2));
  for (size_t row = 0; row < rows.size(); row++) {
    double sum = rows[row].empty() ? 1 : 0;
    for (auto &entry : rows[row]) {
      sum += std::fabs(entry.second);
      entry.second *= scale[row] * scale[entry.first];
    }
    rows[row].emplace_back((LocalInt)row, (1 + kDominance) * sum * scale[row] * scale[row]);
  }
  return FromRows(rows);
}

static void AddPair(Rows &rows, Random &random, LocalInt p, LocalInt q)
{
  const double value = random.Between(0.1, 1) * (random.Between(-1, 1) < 0 ? -1 : 1);
  rows[p].emplace_back(q, value);
  rows[q].emplace_back(p, value);
}

HostMatrix RandomStencil(LocalInt nx, LocalInt ny, LocalInt nz, bool corners, std::uint64_t seed)
{
  Random random(seed);
  Rows   rows(nx * ny * nz);
  ForNeighbours(nx, ny, nz, corners, [&](LocalInt p, LocalInt q) { AddPair(rows, random, p, q); });
  return WithDominantDiagonal(rows, random);
}

HostMatrix RandomGraph(LocalInt n, LocalInt row_length, std::uint64_t seed)
{
  Random            random(seed);
  Rows              rows(n);
  std::vector<char> taken(n);
  for (LocalInt p = 1; p < n; p++) {
    const LocalInt wanted = std::min(p, (row_length - 1) / 2);
    std::fill(taken.begin(), taken.end(), 0);
    for (LocalInt e = 0; e < wanted; e++) {
      const LocalInt q = (LocalInt)(random.Next() >> 33) % p;
      if (!taken[q]) AddPair(rows, random, p, q);
      taken[q] = 1;
    }
  }
  return WithDominantDiagonal(rows, random);
}

HostMatrix RandomDense(LocalInt n, std::uint64_t seed)
{
  Random random(seed);
  Rows   rows(n);
  for (LocalInt p = 1; p < n; p++)
    for (LocalInt q = 0; q < p; q++) AddPair(rows, random, p, q);
  return WithDominantDiagonal(rows, random);
}

HostMatrix RandomArrow(LocalInt n, std::uint64_t seed)
{
  Random random(seed);
  Rows   rows(n);
  for (LocalInt p = 1; p < n; p++) AddPair(rows, random, p, 0);
  for (LocalInt p = 1; p < n - 1; p++) AddPair(rows, random, n - 1, p);
  return WithDominantDiagonal(rows, random);
}

HostMatrix Star(LocalInt n, LocalInt hub, bool chain)
{
  Rows rows(n);
  for (LocalInt row = 0; row < n; row++) {
    rows[row].push_back({row, row == hub ? n : chain ? 3. : 2.});
    if (row == hub) continue;
    rows[row].push_back({hub, -1.});
    rows[hub].push_back({row, -1.});
    for (LocalInt column : {row - 1, row + 1})
      if (chain && column >= 0 && column < n && column != hub) rows[row].push_back({column, -0.5});
  }
  return FromRows(rows);
}

HostMatrix Hub(LocalInt n)
{
  HostMatrix A;
  A.n            = n;
  const auto add = [&](LocalInt column, PetscScalar value) {
    A.j.push_back(column);
    A.a.push_back(value);
  };
  for (LocalInt row = 0; row < n - 1; row++) {
    add(row, 1);
    add(n - 1, 0.5 / n * (1 + row % 7));
    A.i.push_back(A.nnz());
  }
  for (LocalInt column = 0; column < n - 1; column++) add(column, A.a[2 * column + 1]);
  add(n - 1, 8);
  A.i.push_back(A.nnz());
  return A;
}

/* PETSc's binary format: big-endian, a class id, rows, columns, entries, row lengths, columns, values. */
template <typename T>
static std::vector<T> ReadBigEndian(FILE *file, size_t count)
{
  std::vector<T>             values(count);
  std::vector<unsigned char> bytes(count * sizeof(T));
  REQUIRE(std::fread(bytes.data(), 1, bytes.size(), file) == bytes.size());
  for (size_t k = 0; k < count; k++) {
    std::reverse(&bytes[k * sizeof(T)], &bytes[k * sizeof(T)] + sizeof(T));
    std::memcpy(&values[k], &bytes[k * sizeof(T)], sizeof(T));
  }
  return values;
}

HostMatrix Shared(const std::string &name)
{
  const char       *folder  = std::getenv("FINEPC_TEST_DATA");
  const std::string command = "xz -dc '" + std::string(folder ? folder : FINEPC_TEST_DATA_FOLDER) + "/" + name + ".petsc.xz'";
  FILE             *file    = popen(command.c_str(), "r");
  REQUIRE(file != nullptr);
  INFO(command);
  const auto head = ReadBigEndian<std::int32_t>(file, 4);
  REQUIRE(head[0] == MAT_FILE_CLASSID);
  REQUIRE(head[1] == head[2]);
  HostMatrix A;
  A.n = head[1];
  for (std::int32_t length : ReadBigEndian<std::int32_t>(file, head[1])) A.i.push_back(A.i.back() + length);
  REQUIRE(A.i.back() == head[3]);
  const auto j = ReadBigEndian<std::int32_t>(file, head[3]);
  A.j.assign(j.begin(), j.end());
  A.a = ReadBigEndian<double>(file, head[3]);
  pclose(file);
  return A;
}

CSRCopy::CSRCopy(const HostMatrix &A, PetscMemType where)
{
  view       = A.View();
  view.where = where;
  void *i = nullptr, *j = nullptr, *a = nullptr;
  MUST(ArrayCreate(A.i.size() * sizeof(LocalInt), where, &i));
  MUST(ArrayCreate(A.j.size() * sizeof(LocalInt), where, &j));
  MUST(ArrayCreate(A.a.size() * sizeof(PetscScalar), where, &a));
  MUST(ArrayCopy(i, A.i.data(), A.i.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(j, A.j.data(), A.j.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(a, A.a.data(), A.a.size() * sizeof(PetscScalar), where, PETSC_MEMTYPE_HOST));
  view.i = (const LocalInt *)i;
  view.j = (const LocalInt *)j;
  view.a = (const PetscScalar *)a;
}

CSRCopy::~CSRCopy()
{
  for (const void *data : {(const void *)view.i, (const void *)view.j, (const void *)view.a}) {
    void *memory = const_cast<void *>(data);
    PetscCallAbort(PETSC_COMM_SELF, ArrayDestroy(view.where, &memory));
  }
}

PetscRows::PetscRows(const std::vector<LocalInt> &from_i, const std::vector<LocalInt> &from_j, PetscInt begin, PetscInt end) :
    j(from_j.begin() + from_i[begin], from_j.begin() + from_i[end])
{
  for (PetscInt row = begin; row <= end; row++) i.push_back(from_i[row] - from_i[begin]);
}

MatObject CreateMat(const HostMatrix &A, MatType type, MPI_Comm comm, PetscInt mine)
{
  MatObject mat;
  PetscInt  begin, end;

  MUST(MatCreate(comm, mat.put()));
  MUST(MatSetSizes(mat, mine, mine, A.n, A.n));
  MUST(MatSetType(mat, type));
  MUST(MatSetUp(mat));
  MUST(MatGetOwnershipRange(mat, &begin, &end));
  const PetscRows rows(A.i, A.j, begin, end);
  MUST(MatSeqAIJSetPreallocationCSR(mat, rows.i.data(), rows.j.data(), A.a.data() + A.i[begin]));
  MUST(MatMPIAIJSetPreallocationCSR(mat, rows.i.data(), rows.j.data(), A.a.data() + A.i[begin]));
  return mat;
}

VecObject CreateVec(LocalInt n, VecType type, std::uint64_t seed)
{
  VecObject    x;
  PetscScalar *array;
  Random       random(seed);

  MUST(VecCreate(PETSC_COMM_SELF, x.put()));
  MUST(VecSetSizes(x, n, n));
  MUST(VecSetType(x, type));
  MUST(VecGetArrayWrite(x, &array));
  for (LocalInt k = 0; k < n; k++) array[k] = random.Between(-1, 1);
  MUST(VecRestoreArrayWrite(x, &array));
  return x;
}

void ReplaceByCSR(Mat A, const HostMatrix &rows)
{
  PetscInt    begin, end;
  PetscMPIInt size;
  MUST(MatGetOwnershipRange(A, &begin, &end));
  MUST(MPI_Comm_size(PetscObjectComm((PetscObject)A), &size));
  const PetscRows    mine(rows.i, rows.j, begin, end);
  const PetscScalar *a = rows.a.data() + rows.i[begin];
  if (size > 1) MUST(MatMPIAIJSetPreallocationCSR(A, mine.i.data(), mine.j.data(), a));
  else MUST(MatSeqAIJSetPreallocationCSR(A, mine.i.data(), mine.j.data(), a));
}

void ReplaceByCOO(Mat A, const HostMatrix &rows)
{
  std::vector<PetscInt> i, j;
  PetscInt              begin, end;
  MUST(MatGetOwnershipRange(A, &begin, &end));
  for (PetscInt row = begin; row < end; row++)
    for (LocalInt k = rows.i[row]; k < rows.i[row + 1]; k++) {
      i.push_back(row);
      j.push_back(rows.j[k]);
    }
  MUST(MatSetPreallocationCOO(A, (PetscCount)i.size(), i.data(), j.data()));
  MUST(MatSetValuesCOO(A, rows.a.data() + rows.i[begin], INSERT_VALUES));
}

bool SameBits(const std::vector<double> &x, const std::vector<double> &y)
{
  return x.size() == y.size() && (x.empty() || !std::memcmp(x.data(), y.data(), x.size() * sizeof(double)));
}
