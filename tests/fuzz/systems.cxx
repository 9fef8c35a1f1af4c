/* Matrices: good ones of several kinds, and what can be wrong with them. */
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "fuzz.h"

std::uint64_t Random::Next()
{
  std::uint64_t z = state_ += 0x9e3779b97f4a7c15u; /* splitmix64 of Steele, Lea and Flood */
  z               = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z               = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

namespace
{

/* Couples two rows, and makes their diagonal entries as much larger. */
void Couple(System *s, PetscInt i, PetscInt j, double a, std::vector<double> *diagonal)
{
  s->entries.push_back({i, j, -a});
  s->entries.push_back({j, i, -a});
  (*diagonal)[i] += std::fabs(a);
  (*diagonal)[j] += std::fabs(a);
}

void AddDiagonal(System *s, const std::vector<double> &diagonal, double more)
{
  for (PetscInt i = 0; i < s->rows; i++) s->entries.push_back({i, i, diagonal[i] + more});
}

struct GridTask {
  std::vector<PetscInt> n;                        /* points in each of three directions */
  bool                  corners          = false; /* all neighbours, and not 3, 5 or 7 points */
  bool                  constant         = false;
  double                jump             = 1;
  int                   singular_percent = 0;
};

/* Coefficients of one sign, jumping if `jump` is above 1. */
System GridOf(const GridTask &task, Random &random)
{
  const std::vector<PetscInt> &n    = task.n;
  const double                 jump = task.jump;
  System                       s;
  s.name = "grid " + std::to_string(n[0]) + " x " + std::to_string(n[1]) + " x " + std::to_string(n[2]) +
           (task.corners ? ", corners" : "") + (jump > 1 ? ", jumps" : "");
  s.rows = n[0] * n[1] * n[2];
  s.good = jump < 1e3;
  std::vector<double> diagonal(s.rows, 0.);
  for (PetscInt z = 0; z < n[2]; z++)
    for (PetscInt y = 0; y < n[1]; y++)
      for (PetscInt x = 0; x < n[0]; x++)
        for (PetscInt d = 14; d < 27; d++) { /* the neighbours that come later */
          const PetscInt dx = d % 3 - 1, dy = d / 3 % 3 - 1, dz = d / 9 - 1;
          if (!task.corners && std::abs(dx) + std::abs(dy) + std::abs(dz) > 1) continue;
          if (x + dx < 0 || x + dx >= n[0] || y + dy < 0 || y + dy >= n[1] || z + dz >= n[2]) continue;
          const double a = (task.constant ? 1 : random.Between(0.5, 2)) * (jump > 1 && random.Chance(30) ? jump : 1);
          Couple(&s, (z * n[1] + y) * n[0] + x, ((z + dz) * n[1] + y + dy) * n[0] + x + dx, a, &diagonal);
        }
  s.constants = random.Chance(task.singular_percent) && s.rows > 1;
  if (s.constants) s.good = false;
  AddDiagonal(&s, diagonal, s.constants ? 0 : random.Between(0.05, 1));
  if (s.constants) s.name += ", singular";
  return s;
}

System Grid(Random &random)
{
  static const std::vector<std::vector<PetscInt>> sizes = {{1, 1, 1},   {2, 1, 1},   {31, 1, 1}, {100, 1, 1}, {6, 5, 1},
                                                           {16, 16, 1}, {20, 11, 1}, {33, 3, 1}, {5, 4, 6},   {8, 8, 4}};
  GridTask                                        task;
  task.n                = random.Of(sizes);
  task.corners          = random.Chance(25);
  task.constant         = random.Chance(50);
  task.jump             = random.Chance(30) ? std::pow(10, random.Between(1, 8)) : 1;
  task.singular_percent = 10;
  return GridOf(task, random);
}

/* Couplings at random, of either sign; sometimes one row with all columns, or two parts, or nothing beside the diagonal. */
System Graph(Random &random)
{
  System         s;
  const PetscInt kind = random.Below(5);
  s.rows              = random.Of(std::vector<PetscInt>{0, 1, 2, 7, 31, 32, 33, 64, 150, 300});
  s.name = std::vector<std::string>{"graph", "arrow", "two parts", "diagonal", "dense"}[kind] + " " + std::to_string(s.rows);
  if (kind == 4) s.rows = std::min(s.rows, (PetscInt)40);
  std::vector<double>                     diagonal(s.rows, 0.);
  std::set<std::pair<PetscInt, PetscInt>> seen;
  const auto                              couple = [&](PetscInt i, PetscInt j) {
    if (i > j) std::swap(i, j);
    if (i != j && seen.insert({i, j}).second) Couple(&s, i, j, random.Between(-1, 1), &diagonal);
  };
  for (PetscInt i = 0; i < s.rows; i++) {
    if (kind == 4)
      for (PetscInt j = 0; j < i; j++) couple(i, j);
    if (kind == 1) couple(0, i);
    if (kind == 3) continue;
    const PetscInt half = s.rows / 2;
    for (int k = 0; k < 3; k++) {
      PetscInt j = random.Below(s.rows);
      if (kind == 2) j = half ? (i < half ? j % half : half + j % (s.rows - half)) : i;
      couple(i, j);
    }
  }
  AddDiagonal(&s, diagonal, 0.1);
  return s;
}

/* Unknowns in blocks: each entry becomes a block, the diagonal stays dominant. */
System InBlocks(const System &points, Random &random)
{
  System s     = points;
  s.block_size = random.Of(std::vector<PetscInt>{2, 3, 4, 5, 8});
  if (points.rows * s.block_size > 600 || points.constants) return points;
  s.name += ", blocks of " + std::to_string(s.block_size);
  s.rows = points.rows * s.block_size;
  s.entries.clear();
  for (const Entry &e : points.entries)
    for (PetscInt r = 0; r < s.block_size; r++)
      for (PetscInt c = 0; c < s.block_size; c++) {
        const bool   main  = r == c;
        const double value = e.row == e.column ? (main ? e.value : 0.02 * e.value) : (main ? e.value / 2 : e.value * 0.03);
        s.entries.push_back({e.row * s.block_size + r, e.column * s.block_size + c, value});
      }
  return s;
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

/* Makes the matrix a nasty one. */
void Spoil(System *s, Random &random)
{
  static const std::vector<std::string> kinds = {"nan",           "infinity",      "huge",
                                                 "tiny",          "denormal",      "scaled",
                                                 "no diagonal",   "zero diagonal", "negative diagonal",
                                                 "indefinite",    "identity rows", "zero row",
                                                 "no row",        "unsymmetric",   "zeros",
                                                 "not assembled", "large number"};
  if (!s->rows || s->entries.empty()) return;
  const std::string kind = random.Of(kinds);
  const PetscInt    row  = random.Below(s->rows);
  s->good                = false;
  s->constants           = false;
  s->name += ", " + kind;
  const auto put  = [&](double value) { s->entries[(size_t)random.Below((PetscInt)s->entries.size())].value = value; };
  const auto drop = [&](auto &&which) {
    s->entries.erase(std::remove_if(s->entries.begin(), s->entries.end(), which), s->entries.end());
  };
  if (kind == "nan") put(kNaN);
  else if (kind == "infinity") put(random.Chance(50) ? kInfinity : -kInfinity);
  else if (kind == "large number") put(random.Chance(50) ? 1e300 : -1e30);
  else if (kind == "huge" || kind == "tiny" || kind == "denormal") {
    const double factor = kind == "huge" ? 1e250 : kind == "tiny" ? 1e-250 : 1e-310;
    for (Entry &e : s->entries) e.value *= factor;
  } else if (kind == "scaled") {
    std::vector<double> scale(s->rows);
    const double        range = random.Between(1, 12);
    for (double &x : scale) x = std::pow(10, random.Between(-range, range));
    for (Entry &e : s->entries) e.value *= scale[e.row] * scale[e.column];
  } else if (kind == "no diagonal") drop([&](const Entry &e) { return e.row == row && e.column == row; });
  else if (kind == "no row") drop([&](const Entry &e) { return e.row == row; });
  else if (kind == "not assembled") s->assembled = false;
  else
    for (Entry &e : s->entries) {
      const bool diagonal = e.row == e.column;
      if (kind == "zero diagonal" && diagonal && e.row == row) e.value = 0;
      if (kind == "negative diagonal" && diagonal && e.row == row) e.value = -e.value;
      if (kind == "indefinite" && diagonal) e.value *= 0.3;
      if (kind == "identity rows" && e.row % 3 == row % 3) e.value = diagonal; /* their columns stay */
      if (kind == "zero row" && e.row == row) e.value = 0;
      if (kind == "unsymmetric" && !diagonal && e.row > e.column) e.value *= 0.3;
      if (kind == "zeros" && !diagonal && random.Chance(30)) e.value = 0;
    }
}

} // namespace

System MakeSystem(Random &random)
{
  System s = random.Chance(60) ? Grid(random) : Graph(random);
  if (random.Chance(30)) s = InBlocks(s, random);
  while (random.Chance(40)) Spoil(&s, random);
  return s;
}

System MakeGoodSystem(const std::string &pc, bool large, Random &random)
{
  static const std::vector<std::vector<PetscInt>> flat = {{1, 1, 1},   {7, 5, 1},   {16, 16, 1},  {33, 20, 1},
                                                          {64, 65, 1}, {90, 40, 1}, {100, 100, 1}},
                                                  deep = {{1, 1, 1}, {31, 1, 1}, {3, 4, 5}, {8, 8, 8}, {13, 11, 9}, {20, 20, 20}},
                                                  large_flat = {{500, 500, 1}, {700, 300, 1}},
                                                  large_deep = {{60, 60, 60}, {90, 50, 40}};
  GridTask   task;
  const bool is_flat = pc == "rrb" || random.Chance(50);
  task.n             = random.Of(large ? (is_flat ? large_flat : large_deep) : is_flat ? flat : deep);
  if (pc == "rrb") return GridOf(task, random);
  task.corners = !large && random.Chance(25);
  if (!large && random.Chance(15)) return Graph(random);
  const System s = GridOf(task, random);
  return random.Chance(pc == "bisai" ? 60 : 15) ? InBlocks(s, random) : s;
}

System WithOtherValues(const System &system, Random &random)
{
  System       s      = system;
  const double factor = random.Between(0.5, 2);
  for (Entry &e : s.entries) e.value *= factor;
  if (random.Chance(30)) {
    System spoilt = s;
    Spoil(&spoilt, random);
    if (spoilt.entries.size() == s.entries.size() && spoilt.assembled) s = spoilt;
  }
  return s;
}

/* How many block rows each rank has: about as many, or none on some of the ranks. */
static PetscInt MyRows(const System &s, Random &random, MPI_Comm comm)
{
  PetscMPIInt rank, size;
  PetscInt    left = s.rows / s.block_size, mine = 0;

  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const bool even = random.Chance(60);
  for (PetscMPIInt r = 0; r < size; r++) {
    const PetscInt share = r == size - 1 ? left : even ? left / (size - r) : random.Below(left + 1);
    if (r == rank) mine = share;
    left -= share;
  }
  return mine * s.block_size;
}

/* The same for both of two entries that mirror each other. */
static double Noise(const System &s, const Entry &e)
{
  if (s.noise == 0) return 1;
  Random random((std::uint64_t)std::min(e.row, e.column) << 32 ^ (std::uint64_t)std::max(e.row, e.column) ^
                (std::uint64_t)s.trial << 58);
  return 1 + s.noise * random.Between(-1, 1);
}

PetscErrorCode SetValues(const System &s, Mat A)
{
  PetscInt first, last;

  PetscFunctionBegin;
  PetscCall(MatGetOwnershipRange(A, &first, &last));
  for (const Entry &e : s.entries)
    if (e.row >= first && e.row < last) PetscCall(MatSetValue(A, e.row, e.column, e.value * Noise(s, e), INSERT_VALUES));
  if (s.assembled) {
    PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CreateMat(const System &s, MatType type, Random &random, Mat *A)
{
  const MPI_Comm comm = PETSC_COMM_WORLD;
  const PetscInt mine = MyRows(s, random, comm);

  PetscFunctionBegin;
  PetscCall(MatCreate(comm, A));
  PetscCall(MatSetSizes(*A, mine, mine, s.rows, s.rows));
  PetscCall(MatSetBlockSize(*A, s.block_size));
  PetscCall(MatSetType(*A, type));
  PetscCall(MatSetUp(*A));
  PetscCall(MatSetOption(*A, MAT_IGNORE_LOWER_TRIANGULAR, PETSC_TRUE)); /* of use to sbaij alone */
  PetscCall(SetValues(s, *A));
  if (s.constants) {
    MatNullSpace space;

    PetscCall(MatNullSpaceCreate(comm, PETSC_TRUE, 0, nullptr, &space));
    PetscCall(MatSetNullSpace(*A, space));
    PetscCall(MatNullSpaceDestroy(&space));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}
