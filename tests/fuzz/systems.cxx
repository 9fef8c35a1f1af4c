/* Matrices: good ones of several kinds, and what can be wrong with them. */
#include <petsc/private/petscimpl.h>

#include <algorithm>
#include <cstring>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
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
  double                flat             = 1; /* couplings in y and z have this factor */
  double                stretch          = 1; /* each column of cells is wider than the last one by this factor */
  double                shift            = 0; /* of the diagonal, or 0: any */
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
          double a = (task.constant ? 1 : random.Between(0.5, 2)) * (jump > 1 && random.Chance(30) ? jump : 1);
          if (!dx) a *= task.flat;
          if (task.stretch > 1) a *= std::pow(task.stretch, dx ? -(double)x : (double)x);
          Couple(&s, (z * n[1] + y) * n[0] + x, ((z + dz) * n[1] + y + dy) * n[0] + x + dx, a, &diagonal);
        }
  s.null_space = random.Chance(task.singular_percent) && s.rows > 1;
  if (s.null_space) s.good = false;
  if (s.null_space) s.end = s.rows;
  AddDiagonal(&s, diagonal, s.null_space ? 0 : task.shift > 0 ? task.shift : random.Between(0.05, 1));
  if (s.null_space) s.name += ", singular";
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

/* Beside a grid a chain of a few cells that is closed: the null vector is 1 there. */
System Pocket(const System &grid, Random &random)
{
  const PetscInt      cells = random.Of(std::vector<PetscInt>{2, 3, 5, 9, 20, 35});
  System              s     = grid;
  std::vector<double> diagonal(s.rows + cells, 0.);
  s.first = s.rows;
  s.end   = s.rows += cells;
  for (PetscInt i = s.first; i + 1 < s.end; i++) Couple(&s, i, i + 1, random.Chance(50) ? 0.37 : random.Between(0.1, 1), &diagonal);
  for (PetscInt i = s.first; i < s.end; i++) s.entries.push_back({i, i, diagonal[i]});
  s.null_space = random.Chance(50);
  s.name += ", pocket of " + std::to_string(cells);
  return s;
}

/* A cell that is closed: its row and its column are zeros, or not there. */
System ClosedCell(const System &grid, Random &random)
{
  System     s      = grid;
  const bool stored = random.Chance(50);
  s.first           = random.Below(s.rows);
  s.end             = s.first + 1;
  const auto closed = [&](const Entry &e) { return e.row == s.first || e.column == s.first; };
  if (!stored) s.entries.erase(std::remove_if(s.entries.begin(), s.entries.end(), closed), s.entries.end());
  for (Entry &e : s.entries)
    if (closed(e)) e.value = 0;
  s.name += stored ? ", a row of zeros" : ", an empty row";
  return s;
}

/* One or a few rows are coupled with all others, which know nothing of each other. */
System Star(Random &random)
{
  const PetscInt      hubs = random.Chance(60) ? 1 : 3, spokes = random.Of(std::vector<PetscInt>{30, 150, 400});
  const bool          last = random.Chance(30);
  System              s;
  std::vector<double> diagonal(hubs + spokes, 0.);
  s.rows = hubs + spokes;
  s.name = "star of " + std::to_string(spokes) + ", " + std::to_string(hubs) + (last ? " hubs last" : " hubs first");
  for (PetscInt hub = 0; hub < hubs; hub++)
    for (PetscInt spoke = 0; spoke < spokes; spoke++)
      Couple(&s, last ? spokes + hub : hub, last ? spoke : hubs + spoke, 1, &diagonal);
  AddDiagonal(&s, diagonal, 1);
  return s;
}

/* Symmetric systems that are singular in a small part or nearly so as a whole, have long rows, or whose directions are unlike. */
System Hard(Random &random)
{
  static const std::vector<std::vector<PetscInt>> sizes = {{6, 5, 1},   {16, 16, 1}, {33, 3, 1},
                                                           {33, 20, 1}, {30, 30, 1}, {9, 8, 10}};
  GridTask                                        task;
  const PetscInt                                  kind = random.Below(5);
  if (kind == 0) return Star(random);
  task.n        = random.Of(sizes);
  task.constant = random.Chance(50);
  if (kind == 1) task.shift = std::pow(10, -random.Between(5, 12));
  if (kind == 2) task.shift = std::pow(10, -random.Between(0, 5));
  if (kind == 2 && random.Chance(50)) task.stretch = random.Between(1.05, 1.4);
  else if (kind == 2) task.flat = std::pow(10, -random.Between(1, 6));
  System s = GridOf(task, random);
  if (kind == 1) s.end = s.rows;
  if (kind == 1) s.name += ", nearly singular";
  if (kind == 2) s.name += task.stretch > 1 ? ", stretched" : ", flat";
  if (kind == 3) s = Pocket(s, random);
  if (kind == 4) s = ClosedCell(s, random);
  s.good = false;
  s.hard = true;
  return s;
}

/* Unknowns in blocks: each entry becomes a block, the diagonal stays dominant. */
System InBlocks(const System &points, Random &random)
{
  System s     = points;
  s.block_size = random.Of(std::vector<PetscInt>{2, 3, 4, 5, 8});
  if (points.rows * s.block_size > 600 || points.end) return points;
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
                                                 "not assembled", "large number",  "one-sided",
                                                 "any order",     "halves"};
  if (!s->rows || s->entries.empty()) return;
  const std::string kind = random.Of(kinds);
  const PetscInt    row  = random.Below(s->rows);
  s->good                = false;
  s->hard                = false;
  s->null_space          = false;
  s->name += ", " + kind;
  const auto put  = [&](double value) { s->entries[(size_t)random.Below((PetscInt)s->entries.size())].value = value; };
  const auto drop = [&](auto &&leaves) {
    s->entries.erase(std::remove_if(s->entries.begin(), s->entries.end(), leaves), s->entries.end());
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
  else if (kind == "one-sided") drop([&](const Entry &e) { return e.row % 3 == row % 3 && e.row < e.column; });
  else if (kind == "not assembled") s->assembled = false;
  else if (kind == "any order") s->order = System::Order::Any;
  else if (kind == "halves") s->order = System::Order::Halves;
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
  System s = random.Chance(35) ? Hard(random) : random.Chance(60) ? Grid(random) : Graph(random);
  if (!s.hard && random.Chance(30)) s = InBlocks(s, random);
  while (random.Chance(s.hard ? 20 : 40)) Spoil(&s, random);
  if (random.Chance(8)) {
    s.sign = -1;
    s.name += ", negative";
    for (Entry &e : s.entries) e.value = -e.value;
  }
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

void FillEmptyRows(System *system)
{
  std::vector<bool> empty(system->rows, true);
  for (const Entry &e : system->entries) empty[e.row] = false;
  for (PetscInt row = 0; row < system->rows; row++)
    if (empty[row]) system->entries.push_back({row, row, 0});
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

System WithTimeStep(const System &system)
{
  System s = system;
  if (s.step == 0)
    for (const Entry &e : s.entries)
      if (e.row == e.column && std::isfinite(e.value)) s.step = std::max(s.step, 1e3 * std::fabs(e.value));
  if (s.step == system.step) s.step = 0;
  return s;
}

System WithCouplings(const System &system, bool elsewhere, Random &random)
{
  System                                          s = system;
  std::map<std::pair<PetscInt, PetscInt>, size_t> at;
  std::vector<std::pair<PetscInt, PetscInt>>      pairs;
  for (size_t k = 0; k < s.entries.size(); k++) at[{s.entries[k].row, s.entries[k].column}] = k;
  if (elsewhere && s.rows)
    for (PetscInt k = 0; k < s.rows; k++) pairs.push_back({random.Below(s.rows), random.Below(s.rows)});
  else
    for (const auto &entry : at) pairs.push_back(entry.first);
  const auto inside = [&](PetscInt i) { return i >= s.first && i < s.end; };
  const auto add    = [&](PetscInt i, PetscInt j, double value) {
    const auto found = at.insert({{i, j}, s.entries.size()});
    if (found.second) s.entries.push_back({i, j, 0.});
    s.entries[found.first->second].value += value;
  };
  for (const auto &[i, j] : pairs) {
    if (i >= j || inside(i) != inside(j)) continue;
    if (!elsewhere && (!at.count({j, i}) || !at.count({i, i}) || !at.count({j, j}))) continue;
    const double old = elsewhere ? 1 : s.entries[at[{i, j}]].value, a = s.sign * 0.2 * std::fabs(old) * random.Between(0, 1);
    add(i, j, -a);
    add(j, i, -a);
    add(i, i, a);
    add(j, j, a);
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

static double ValueOf(const System &s, const Entry &e)
{
  return (e.value + (e.row == e.column ? s.sign * s.step : 0)) * Noise(s, e);
}

namespace
{

/* Rows of a matrix, in an order of their own. */
struct Arrays {
  std::vector<PetscInt>    i, j;
  std::vector<PetscScalar> a;
  std::vector<size_t>      from;      /* the entries of the system */
  int                      parts = 1; /* that an entry is in, also where the order of the system is another one later */
};
const char *const kArrays = "finepc_fuzz_arrays";

PetscErrorCode DestroyArrays(Arrays *arrays)
{
  PetscFunctionBegin;
  delete arrays;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows first .. last - 1, by columns, or in an order that a hash says, twice where the system has halves. */
Arrays ArraysOf(const System &s, PetscInt first, PetscInt last)
{
  const auto hash = [&](size_t k) {
    return s.order == System::Order::Sorted ? (std::uint64_t)s.entries[k].column : Random(k).Next();
  };
  Arrays arrays;
  arrays.parts = s.order == System::Order::Halves ? 2 : 1;
  for (size_t k = 0; k < s.entries.size(); k++)
    for (int half = 0; half < arrays.parts; half++)
      if (s.entries[k].row >= first && s.entries[k].row < last) arrays.from.push_back(k);
  std::sort(arrays.from.begin(), arrays.from.end(), [&](size_t x, size_t y) {
    return std::make_pair(s.entries[x].row, hash(x)) < std::make_pair(s.entries[y].row, hash(y));
  });
  arrays.i.assign((size_t)(last - first) + 1, 0);
  for (size_t k : arrays.from) {
    arrays.i[(size_t)(s.entries[k].row - first) + 1]++;
    arrays.j.push_back(s.entries[k].column);
    arrays.a.push_back(ValueOf(s, s.entries[k]) / arrays.parts);
  }
  std::partial_sum(arrays.i.begin(), arrays.i.end(), arrays.i.begin());
  return arrays;
}

} // namespace

PetscErrorCode SetValues(const System &s, Mat A)
{
  PetscInt first, last;
  Arrays  *arrays = nullptr;

  PetscFunctionBegin;
  PetscCall(PetscObjectContainerQuery((PetscObject)A, kArrays, (void **)&arrays));
  PetscCall(MatGetOwnershipRange(A, &first, &last));
  if (arrays)
    for (size_t k = 0; k < arrays->a.size(); k++) arrays->a[k] = ValueOf(s, s.entries[arrays->from[k]]) / arrays->parts;
  else
    for (const Entry &e : s.entries)
      if (e.row >= first && e.row < last) PetscCall(MatSetValue(A, e.row, e.column, ValueOf(s, e), INSERT_VALUES));
  if (arrays) PetscCall(PetscObjectStateIncrease((PetscObject)A));
  if (s.assembled) {
    PetscCall(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY));
    PetscCall(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A sequential matrix of arrays that stay as they are. */
static PetscErrorCode CreateOfArrays(const System &s, Mat *A)
{
  Arrays *arrays = new Arrays(ArraysOf(s, 0, s.rows));

  PetscFunctionBegin;
  PetscCall(MatCreateSeqAIJWithArrays(PETSC_COMM_SELF, s.rows, s.rows, arrays->i.data(), arrays->j.data(), arrays->a.data(), A));
  PetscCall(PetscObjectContainerCompose((PetscObject)*A, kArrays, arrays, ContainerDestructor<DestroyArrays>));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode CreateSized(const System &s, MatType type, PetscInt mine, Mat *A)
{
  PetscFunctionBegin;
  PetscCall(MatCreate(PETSC_COMM_WORLD, A));
  PetscCall(MatSetSizes(*A, mine, mine, s.rows, s.rows));
  PetscCall(MatSetBlockSize(*A, s.block_size));
  PetscCall(MatSetType(*A, type));
  PetscCall(MatSetUp(*A));
  if (std::strstr(type, "sbaij"))
    PetscCall(MatSetOption(*A, MAT_IGNORE_LOWER_TRIANGULAR, PETSC_TRUE)); /* unknown to others in 3.18 */
  PetscCall(SetValues(s, *A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CreateMat(const System &s, MatType type, Random &random, Mat *A)
{
  const MPI_Comm comm = PETSC_COMM_WORLD;
  const PetscInt mine = MyRows(s, random, comm);

  PetscFunctionBegin;
  if (s.order != System::Order::Sorted && mine == s.rows && std::string(type) == MATAIJ && s.rows && s.assembled &&
      s.block_size == 1) {
    PetscMPIInt size;
    MPI_Comm_size(comm, &size);
    if (size == 1) {
      PetscCall(CreateOfArrays(s, A));
      PetscFunctionReturn(PETSC_SUCCESS);
    }
  }
  PetscCall(CreateSized(s, type, mine, A));
  if (s.null_space) {
    MatNullSpace space;
    Vec          v;
    PetscInt     first, last;

    PetscCall(MatCreateVecs(*A, &v, nullptr));
    PetscCall(VecGetOwnershipRange(v, &first, &last));
    for (PetscInt i = std::max(first, s.first); i < std::min(last, s.end); i++)
      PetscCall(VecSetValue(v, i, 1 / std::sqrt((double)(s.end - s.first)), INSERT_VALUES));
    PetscCall(VecAssemblyBegin(v));
    PetscCall(VecAssemblyEnd(v));
    if (s.end - s.first == s.rows) PetscCall(MatNullSpaceCreate(comm, PETSC_TRUE, 0, nullptr, &space));
    else PetscCall(MatNullSpaceCreate(comm, PETSC_FALSE, 1, &v, &space));
    PetscCall(MatSetNullSpace(*A, space));
    PetscCall(MatNullSpaceDestroy(&space));
    PetscCall(VecDestroy(&v));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ChangeNonzeros(const System &from, const System &to, Random &random, Mat *A, std::string *how)
{
  PetscInt first, last;

  PetscFunctionBegin;
  PetscCall(MatGetOwnershipRange(*A, &first, &last));
  switch (random.Below(3)) {
  case 0: {
    System  difference = to;
    MatType type;
    Mat     B;

    *how = "MatAXPY";
    for (size_t k = 0; k < from.entries.size(); k++) difference.entries[k].value -= from.entries[k].value;
    difference.step = 0;
    PetscCall(MatGetType(*A, &type));
    PetscCall(CreateSized(difference, type, last - first, &B));
    PetscCall(MatAXPY(*A, 1, B, DIFFERENT_NONZERO_PATTERN));
    PetscCall(MatDestroy(&B));
    PetscCall(SetValues(to, *A)); /* which rounding has made others */
    break;
  }
  case 1: {
    Arrays                arrays = ArraysOf(to, first, last);
    std::vector<PetscInt> rows;

    *how = "MatSetPreallocationCOO";
    for (size_t k : arrays.from) rows.push_back(to.entries[k].row);
    PetscCall(MatSetPreallocationCOO(*A, (PetscCount)rows.size(), rows.data(), arrays.j.data()));
    PetscCall(MatSetValuesCOO(*A, arrays.a.data(), INSERT_VALUES));
    break;
  }
  default: {
    const Arrays arrays = ArraysOf(to, first, last);

    *how = "MatAIJSetPreallocationCSR";
    PetscCall(MatSeqAIJSetPreallocationCSR(*A, arrays.i.data(), arrays.j.data(), arrays.a.data()));
    PetscCall(MatMPIAIJSetPreallocationCSR(*A, arrays.i.data(), arrays.j.data(), arrays.a.data()));
  }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* What a symmetric matrix stores of an unsymmetric system is PETSc's choice, and so it multiplies itself. */
PetscErrorCode Residual(const System &s, Mat A, Vec b, Vec x, Norms *norms, Vec residual)
{
  const PetscScalar       *of_x, *of_b;
  PetscScalar             *of_r;
  PetscInt                 first, last;
  PetscBool                symmetric;
  Vec                      all, r;
  VecScatter               scatter;
  MatNullSpace             space;
  std::vector<long double> sum, magnitude;
  long double              squares[3] = {0, 0, 0}; /* which do not overflow */

  PetscFunctionBegin;
  PetscCall(PetscObjectTypeCompareAny((PetscObject)A, &symmetric, MATSEQSBAIJ, MATMPISBAIJ, ""));
  PetscCall(VecGetOwnershipRange(b, &first, &last));
  PetscCall(VecScatterCreateToAll(x, &scatter, &all));
  PetscCall(VecScatterBegin(scatter, x, all, INSERT_VALUES, SCATTER_FORWARD));
  PetscCall(VecScatterEnd(scatter, x, all, INSERT_VALUES, SCATTER_FORWARD));
  PetscCall(VecScatterDestroy(&scatter));
  PetscCall(VecGetArrayRead(all, &of_x));
  PetscCall(VecGetArrayRead(b, &of_b));
  sum.assign(of_b, of_b + (last - first));
  for (long double value : sum) squares[0] += value * value;
  magnitude.assign((size_t)(last - first), 0);
  for (const Entry &e : s.entries) {
    if (e.row < first || e.row >= last) continue;
    const long double product = (long double)ValueOf(s, e) * of_x[e.column];
    sum[(size_t)(e.row - first)] -= product;
    magnitude[(size_t)(e.row - first)] += std::fabs(product);
  }
  PetscCall(VecRestoreArrayRead(b, &of_b));
  PetscCall(VecRestoreArrayRead(all, &of_x));
  PetscCall(VecDestroy(&all));
  PetscCall(VecDuplicate(b, &r));
  if (symmetric) {
    PetscCall(MatMult(A, x, r));
    PetscCall(VecAYPX(r, -1, b));
  } else {
    PetscCall(VecGetArrayWrite(r, &of_r));
    for (size_t k = 0; k < sum.size(); k++) of_r[k] = (double)sum[k];
    PetscCall(VecRestoreArrayWrite(r, &of_r));
  }
  PetscCall(MatGetNullSpace(A, &space));
  if (space) PetscCall(MatNullSpaceRemove(space, r));
  PetscCall(VecGetArrayRead(r, &of_b));
  for (size_t k = 0; k < sum.size(); k++) squares[1] += (long double)of_b[k] * of_b[k];
  for (long double m : magnitude) squares[2] += m * m;
  PetscCall(VecRestoreArrayRead(r, &of_b));
  if (residual) PetscCall(VecCopy(r, residual));
  PetscCall(VecDestroy(&r));
  MPI_Allreduce(MPI_IN_PLACE, squares, 3, MPI_LONG_DOUBLE, MPI_SUM, PetscObjectComm((PetscObject)A));
  norms->b    = (double)std::sqrt(squares[0]);
  norms->r    = (double)std::sqrt(squares[1]);
  norms->size = (double)std::sqrt(squares[2]);
  PetscFunctionReturn(PETSC_SUCCESS);
}
