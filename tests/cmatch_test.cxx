/*
   The twins of PCCMATCH: aggregates, prolongators and operators against a second, naive implementation of the formulas, cycles
   against the same formulas with dense matrices, polynomials against what they are made for, iterations, failures, and one twin
   against the other, which must have the same bits. What PETSc sees of this is tested in cmatch_pc_test.cxx.
*/
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include <petscblaslapack.h>

#include "matrices.h"
#include "pc/cmatch/cmatch.h"

namespace
{

using Vector = std::vector<double>;
using Rows   = std::vector<std::vector<std::pair<PetscInt, PetscScalar>>>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

/* ------------------------------------------ matrices ------------------------------------------ */

/* The rows of a symmetric matrix from its couplings: each p < q is given once. */
class Couplings {
public:
  explicit Couplings(PetscInt n) : rows_(n), diagonal_(n, 0.) { }
  /* Adds a to the couplings of p with q, and takes it off both diagonal entries, so that it adds nothing to the row sums. */
  void Add(PetscInt p, PetscInt q, double a)
  {
    rows_[p].push_back({q, a});
    rows_[q].push_back({p, a});
    diagonal_[p] -= a;
    diagonal_[q] -= a;
  }
  void AddDiagonal(PetscInt p, double a) { diagonal_[p] += a; }
  HostMatrix Matrix() const
  {
    Rows rows = rows_;
    for (size_t p = 0; p < rows.size(); p++) rows[p].push_back({(PetscInt)p, diagonal_[p]});
    return FromRows(rows);
  }

private:
  Rows   rows_;
  Vector diagonal_;
};

/*
   -div(k grad u) in cells, with harmonic means of k at the faces, times spacing[d] in direction d. The walls hold u, at the
   distance of a whole cell, or let nothing through.
*/
using Coefficient = std::function<double(PetscInt x, PetscInt y, PetscInt z)>;
HostMatrix Volumes(std::array<PetscInt, 3> cells, const Coefficient &k, bool walls_hold = true,
                   std::array<double, 3> spacing = {1, 1, 1})
{
  const PetscInt nx = cells[0], ny = cells[1], nz = cells[2];
  Couplings      A(nx * ny * nz);
  for (PetscInt z = 0; z < nz; z++)
    for (PetscInt y = 0; y < ny; y++)
      for (PetscInt x = 0; x < nx; x++) {
        const PetscInt row = (z * ny + y) * nx + x, at[3] = {x, y, z}, stride[3] = {1, nx, nx * ny};
        const double   here = k(x, y, z);
        for (int d = 0; d < 3; d++) {
          if (cells[d] == 1) continue;
          if (at[d] + 1 < cells[d]) {
            const double there = k(x + (d == 0), y + (d == 1), z + (d == 2));
            A.Add(row, row + stride[d], -2 * here * there / (here + there) * spacing[d]);
          }
          const int walls = (at[d] == 0) + (at[d] + 1 == cells[d]);
          if (walls_hold) A.AddDiagonal(row, walls * here * spacing[d]);
        }
      }
  return A.Matrix();
}

double One(PetscInt, PetscInt, PetscInt)
{
  return 1;
}

/* Cubes of `cube` cells in the colours of a checkerboard, of which one conducts better. */
Coefficient Checkerboard(double contrast, PetscInt cube)
{
  return [=](PetscInt x, PetscInt y, PetscInt z) { return (x / cube + y / cube + z / cube) % 2 ? contrast : 1.; };
}

/* Conductivities of some orders of magnitude, the same in every call. */
Coefficient Scattered(double orders, std::uint64_t seed)
{
  return [=](PetscInt x, PetscInt y, PetscInt z) {
    Random random(seed + 1 + (std::uint64_t)x + 1009 * ((std::uint64_t)y + 1013 * (std::uint64_t)z));
    for (int skip = 0; skip < 3; skip++) random.Next();
    return std::pow(10., random.Between(0, orders));
  };
}

/* Poisson's matrix of a square, and a last row that is coupled to everything. */
HostMatrix Hub(PetscInt nx, PetscInt ny)
{
  const PetscInt n = nx * ny;
  Couplings      A(n + 1);
  for (PetscInt row = 0; row < n; row++) {
    if (row % nx + 1 < nx) A.Add(row, row + 1, -1);
    if (row + nx < n) A.Add(row, row + nx, -1);
    A.Add(row, n, -0.25 - 0.125 * (row % 3));
  }
  A.AddDiagonal(0, 1);
  return A.Matrix();
}

/* Two chains that know nothing of each other, isolated rows, and rows that their diagonal entry dominates. */
HostMatrix Parts(PetscInt n)
{
  Couplings A(n);
  for (PetscInt row = 0; row < n; row++) {
    if (row % 7 == 3) {
      A.AddDiagonal(row, 2);
      continue;
    }
    for (PetscInt to = row + 1; to <= row + 4 && to < n; to++)
      if (to % 7 != 3 && to % 2 == row % 2) A.Add(row, to, -1 - 0.25 * (row % 3));
    A.AddDiagonal(row, row % 11 == 5 ? 1e3 : 0.01);
  }
  return A.Matrix();
}

/* A chain whose couplings grow: in a round of the matching only the last pair can find each other. */
HostMatrix GrowingChain(PetscInt n)
{
  Couplings A(n);
  for (PetscInt row = 0; row + 1 < n; row++) A.Add(row, row + 1, -std::pow(1.02, row));
  if (n) A.AddDiagonal(0, 0.5);
  return A.Matrix();
}

/* The first row and the last one are coupled with all, and the others with nothing else. */
HostMatrix Arrow(PetscInt n)
{
  Couplings A(n);
  for (PetscInt row = 1; row < n; row++) A.Add(0, row, -1);
  for (PetscInt row = 1; row + 1 < n; row++) A.Add(row, n - 1, -0.5);
  A.AddDiagonal(0, 1);
  return A.Matrix();
}

HostMatrix Diagonal(const Vector &d)
{
  Rows rows(d.size());
  for (size_t row = 0; row < d.size(); row++) rows[row] = {{(PetscInt)row, d[row]}};
  return FromRows(rows);
}

/* Random couplings of both signs on about row_length places a row; the row sums are those of the couplings of one sign, and more. */
HostMatrix SignedGraph(PetscInt n, PetscInt row_length, double positive, std::uint64_t seed)
{
  Random    random(seed);
  Couplings A(n);
  for (PetscInt p = 1; p < n; p++) {
    std::set<PetscInt> to;
    for (PetscInt e = 0; e < std::min(p, row_length / 2); e++) to.insert(p - 1 - (PetscInt)(random.Next() >> 33) % std::min<PetscInt>(p, 50));
    for (PetscInt q : to) {
      const double a = random.Between(0.1, 1) * std::pow(10., random.Between(-1, 1));
      if (random.Between(0, 1) >= positive) A.Add(q, p, -a);
      else {
        A.Add(q, p, a);
        A.AddDiagonal(p, 2 * a);
        A.AddDiagonal(q, 2 * a);
      }
    }
  }
  for (PetscInt p = 0; p < n; p++) A.AddDiagonal(p, 0.01 * random.Between(0, 1) + (n == 1));
  return A.Matrix();
}

/* diag(w) A diag(w), or with `inverse` diag(w)^{-1} A diag(w)^{-1} */
HostMatrix Scaled(HostMatrix A, const Vector &w, bool inverse = false)
{
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const double factor = w[row] * w[A.j[k]];
      A.a[k] = inverse ? A.a[k] / factor : A.a[k] * factor;
    }
  return A;
}

HostMatrix Times(double factor, HostMatrix A)
{
  for (PetscScalar &a : A.a) a *= factor;
  return A;
}

/* The same nonzeros, with other values of the same signs; the row sums of an M-matrix stay or grow. */
HostMatrix OtherValues(HostMatrix A, std::uint64_t seed)
{
  for (PetscInt row = 0; row < A.n; row++) {
    double less = 0;
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) {
      if (A.j[k] == row) continue;
      Random random(seed + (std::uint64_t)std::min(row, A.j[k]) * 7919 + (std::uint64_t)std::max(row, A.j[k]));
      for (int skip = 0; skip < 3; skip++) random.Next();
      const double change = A.a[k] * random.Between(-0.5, 0.5);
      A.a[k] += change;
      less -= change > 0 ? change : -std::fabs(change);
    }
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] == row) A.a[k] += std::max(0., less);
  }
  return A;
}

Vector RandomValues(PetscInt n, std::uint64_t seed, double low = -1, double high = 1)
{
  Random random(seed);
  Vector x(n);
  for (double &value : x) value = random.Between(low, high);
  return x;
}

/* A near null space with zeros and with entries of both signs */
Vector AnyNearNull(PetscInt n, std::uint64_t seed)
{
  Vector w = RandomValues(n, seed, 0.5, 2);
  for (PetscInt i = 0; i < n; i++) {
    if (i % 5 == 2) w[i] = -w[i];
    if (i % 17 == 4) w[i] = 0;
  }
  return w;
}

Vector Multiply(const HostMatrix &A, const Vector &x)
{
  Vector y(A.n, 0.);
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) y[row] += A.a[k] * x[A.j[k]];
  return y;
}

double Dot(const Vector &x, const Vector &y)
{
  double sum = 0;
  for (size_t k = 0; k < x.size(); k++) sum += x[k] * y[k];
  return sum;
}

double Norm(const Vector &x)
{
  return std::sqrt(Dot(x, x));
}

/* Norm of the difference relative to the norm of y; infinite where an entry is not finite. */
double Difference(const Vector &x, const Vector &y)
{
  double difference = 0, norm = 0;
  REQUIRE(x.size() == y.size());
  for (size_t k = 0; k < x.size(); k++) {
    if (!std::isfinite(x[k]) || !std::isfinite(y[k])) return kInfinity;
    difference += (x[k] - y[k]) * (x[k] - y[k]);
    norm += y[k] * y[k];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

bool SameBits(const Vector &x, const Vector &y)
{
  return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0);
}

bool AllFinite(const Vector &x)
{
  return std::all_of(x.begin(), x.end(), [](double value) { return std::isfinite(value); });
}

/* ------------------------------------------ the twins ----------------------------------------- */

/* A level on the host. Its values are in double, which holds those of both precisions. */
struct HostLevel {
  PetscInt              n, nnz, coarse = 0, width = 0, P_nnz = 0;
  PetscInt              left, largest = 0, singles = 0, joined = 0, cut = 0, plain = 0, wide = 0;
  std::vector<PetscInt> A_i, A_j, aggregate, P_j, R_i, R_j;
  Vector                A_a, s, d, l, P_a, R_a;
};

double Unit(FinePCPrecision precision)
{
  return precision == FINEPC_SINGLE ? 0x1p-24 : 0x1p-53;
}

/* x as the precision stores it */
double Stored(FinePCPrecision precision, double x)
{
  return precision == FINEPC_SINGLE ? (double)(float)x : x;
}

/* A twin's hierarchy of A; what an application gives is full of NaN before. */
class Twin {
public:
  Twin(const HostMatrix &A, const CMATCHParams &params, PetscMemType where, const Vector &w = {}) : where_(where)
  {
    Compute(A, params, w);
  }
  Twin(const Twin &)            = delete;
  Twin &operator=(const Twin &) = delete;
  ~Twin() { PetscCallAbort(PETSC_COMM_SELF, PetscMemTypeDevice(where_) ? CMATCHDestroy_CUDA(&H_) : CMATCHDestroy_Host(&H_)); }

  void Compute(const HostMatrix &A, const CMATCHParams &params, const Vector &w = {}, bool keep = false, bool work = true)
  {
    const CSRCopy copy(A, where_);
    void         *w_copy = nullptr;
    params_              = params;
    n_                   = A.n;
    MUST(ArrayCreate(w.size() * sizeof(double), where_, &w_copy));
    MUST(ArrayCopy(w_copy, w.data(), w.size() * sizeof(double), where_, PETSC_MEMTYPE_HOST));
    PoisonMemory(where_, ((size_t)1 << 20) + 64 * (size_t)A.nnz() * sizeof(double));
    std::memset((void *)&stats, 0x7f, sizeof(stats));
    MUST((PetscMemTypeDevice(where_) ? CMATCHComputeHierarchy_CUDA : CMATCHComputeHierarchy_Host)(
      &copy.view, (const PetscScalar *)w_copy, &params, (PetscBool)keep, (PetscBool)work, &H_, &stats));
    MUST(ArrayDestroy(where_, &w_copy));
  }
  Vector Apply(const Vector &r)
  {
    Vector z(r.size(), kNaN);
    if (!PetscMemTypeDevice(where_)) {
      MUST(CMATCHApply_Host(H_, r.data(), z.data()));
      return z;
    }
    const size_t bytes = r.size() * sizeof(double);
    void        *r_device, *z_device;
    MUST(ArrayCreate(bytes, where_, &r_device));
    MUST(ArrayCreate(bytes, where_, &z_device));
    MUST(ArrayCopy(r_device, r.data(), bytes, where_, PETSC_MEMTYPE_HOST));
    MUST(ArrayCopy(z_device, z.data(), bytes, where_, PETSC_MEMTYPE_HOST));
    MUST(CMATCHApply_CUDA(H_, (const PetscScalar *)r_device, (PetscScalar *)z_device));
    MUST(ArrayCopy(z.data(), z_device, bytes, PETSC_MEMTYPE_HOST, where_));
    MUST(ArrayDestroy(where_, &r_device));
    MUST(ArrayDestroy(where_, &z_device));
    return z;
  }
  std::vector<HostLevel> Levels() const
  {
    std::vector<HostLevel> levels(H_->levels);
    for (PetscInt number = 0; number < H_->levels; number++) {
      const CMATCHLevel &from = H_->level[number];
      HostLevel         &to   = levels[number];
      to.n                    = from.n;
      to.nnz                  = from.nnz;
      to.left                 = from.left;
      to.A_i                  = Integers(from.A_i, from.n + 1);
      to.A_j                  = Integers(from.A_j, from.nnz);
      to.A_a                  = Values(from.A_a, from.nnz);
      to.s                    = Values(from.s, from.n);
      to.d                    = Values(from.d, from.n);
      to.l                    = Values(from.l, from.n);
      if (number + 1 == H_->levels) continue;
      to.coarse    = from.coarse;
      to.width     = from.width;
      to.P_nnz     = from.P_nnz;
      to.largest   = from.largest;
      to.singles   = from.singles;
      to.joined    = from.joined;
      to.cut       = from.cut;
      to.plain     = from.plain;
      to.wide      = from.wide;
      to.aggregate = Integers(from.aggregate, from.n);
      to.P_j       = Integers(from.P_j, (size_t)from.n * from.width);
      to.P_a       = Values(from.P_a, (size_t)from.n * from.width);
      to.R_i       = Integers(from.R_i, from.coarse + 1);
      to.R_j       = Integers(from.R_j, from.P_nnz);
      to.R_a       = Values(from.R_a, from.P_nnz);
    }
    return levels;
  }
  /* w as the hierarchy has it, or ones */
  Vector NearNull() const
  {
    Vector w(n_, 1.);
    if (H_->w) MUST(ArrayCopy(w.data(), H_->w, n_ * sizeof(double), PETSC_MEMTYPE_HOST, where_));
    return w;
  }
  const CMATCHHierarchy *operator->() const { return H_; }
  const CMATCHParams    &params() const { return params_; }

  CMATCHStats stats;

private:
  std::vector<PetscInt> Integers(const PetscInt *data, size_t size) const
  {
    std::vector<PetscInt> values(size, -77);
    MUST(ArrayCopy(values.data(), data, size * sizeof(PetscInt), PETSC_MEMTYPE_HOST, where_));
    return values;
  }
  template <typename T>
  Vector ValuesOf(const void *data, size_t size) const
  {
    std::vector<T> values(size);
    MUST(ArrayCopy(values.data(), data, size * sizeof(T), PETSC_MEMTYPE_HOST, where_));
    return Vector(values.begin(), values.end());
  }
  Vector Values(const void *data, size_t size) const
  {
    return H_->params.precision == FINEPC_SINGLE ? ValuesOf<float>(data, size) : ValuesOf<double>(data, size);
  }

  PetscMemType     where_;
  CMATCHParams     params_;
  PetscInt         n_ = 0;
  CMATCHHierarchy *H_ = nullptr;
};

/* Asserts that two hierarchies have the same bits. Which rows are wide is a matter of the twin. */
void CheckSame(const Twin &x, const Twin &y)
{
  REQUIRE(x.stats.failure == y.stats.failure);
  CHECK(x.stats.level == y.stats.level);
  CHECK(x.stats.row == y.stats.row);
  if (x.stats.failure) return;
  CHECK(x.stats.end == y.stats.end);
  CHECK(x->scale == y->scale);
  CHECK(x->inverted == y->inverted);
  CHECK(SameBits(x.NearNull(), y.NearNull()));
  REQUIRE(x->levels == y->levels);
  const std::vector<HostLevel> of_x = x.Levels(), of_y = y.Levels();
  for (size_t l = 0; l < of_x.size(); l++) {
    const HostLevel &a = of_x[l], &b = of_y[l];
    CAPTURE(l);
    REQUIRE(a.n == b.n);
    REQUIRE(a.nnz == b.nnz);
    CHECK((a.A_i == b.A_i));
    CHECK((a.A_j == b.A_j));
    CHECK(SameBits(a.A_a, b.A_a));
    CHECK(SameBits(a.s, b.s));
    CHECK(SameBits(a.d, b.d));
    CHECK(SameBits(a.l, b.l));
    CHECK(a.left == b.left);
    CHECK(a.coarse == b.coarse);
    CHECK(a.width == b.width);
    CHECK(a.P_nnz == b.P_nnz);
    CHECK(a.largest == b.largest);
    CHECK(a.singles == b.singles);
    CHECK(a.joined == b.joined);
    CHECK(a.cut == b.cut);
    CHECK(a.plain == b.plain);
    CHECK((a.aggregate == b.aggregate));
    CHECK((a.P_j == b.P_j));
    CHECK(SameBits(a.P_a, b.P_a));
    CHECK((a.R_i == b.R_i));
    CHECK((a.R_j == b.R_j));
    CHECK(SameBits(a.R_a, b.R_a));
  }
}

CMATCHParams Precision(FinePCPrecision precision, PetscInt coarse_size = 256)
{
  CMATCHParams params;
  params.precision   = precision;
  params.coarse_size = coarse_size;
  return params;
}

struct NamedMatrix {
  std::string name;
  HostMatrix  A;
};

/* Definite matrices of every kind, of at most about 1000 rows. */
std::vector<NamedMatrix> SmallMatrices()
{
  std::vector<NamedMatrix> all;
  for (PetscInt n : {0, 1, 2, 31, 32, 33, 1000}) all.push_back({"chain of " + std::to_string(n), Poisson(n)});
  for (PetscInt n : {2, 31, 32, 33, 700}) {
    all.push_back({"random graph of " + std::to_string(n), RandomGraph(n, 7, n)});
    all.push_back({"signed graph of " + std::to_string(n), SignedGraph(n, 8, 0.2, n)});
  }
  all.push_back({"Poisson 2D", Poisson(31, 29)});
  all.push_back({"Poisson 3D", Poisson(10, 9, 11)});
  all.push_back({"checkerboard", Volumes({10, 10, 10}, Checkerboard(1e4, 3))});
  all.push_back({"scattered", Volumes({30, 30, 1}, Scattered(6, 3))});
  all.push_back({"anisotropic", Volumes({31, 32, 1}, One, true, {1, 1e-3, 1})});
  all.push_back({"27 points of both signs", RandomStencil(7, 8, 9, true, 5)});
  all.push_back({"signed graph with long rows", SignedGraph(400, 40, 0.1, 6)});
  all.push_back({"hub", Hub(20, 21)});
  all.push_back({"arrow", Arrow(200)});
  all.push_back({"random arrow", RandomArrow(150, 7)});
  all.push_back({"parts", Parts(500)});
  all.push_back({"growing chain", GrowingChain(300)});
  all.push_back({"dense", RandomDense(60, 8)});
  return all;
}

struct NamedParams {
  std::string  name;
  CMATCHParams params;
};

/* Every option of the set-up, with few rows on the coarsest level so that small matrices have several levels. */
std::vector<NamedParams> SetupVariants()
{
  std::vector<NamedParams> all;
  for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
    const auto add = [&](const std::string &name, const std::function<void(CMATCHParams *)> &set) {
      CMATCHParams params = Precision(precision, 20);
      set(&params);
      all.push_back({name + (precision == FINEPC_SINGLE ? " in single" : " in double"), params});
    };
    add("default", [](CMATCHParams *) {});
    for (PetscInt sweeps : {1, 2, 5})
      add(std::to_string(sweeps) + " sweeps", [=](CMATCHParams *params) { params->sweeps = sweeps; });
    for (PetscInt row : {1, 2, 8, 32})
      add(std::to_string(row) + " a row of P", [=](CMATCHParams *params) { params->prolongator_row = row; });
    add("strength 0", [](CMATCHParams *params) { params->strength = 0; });
    add("strength 0.5", [](CMATCHParams *params) { params->strength = 0.5; });
    add("unsmoothed", [](CMATCHParams *params) { params->smoothed_prolongator = PETSC_FALSE; });
    add("unsmoothed, K", [](CMATCHParams *params) {
      params->smoothed_prolongator = PETSC_FALSE;
      params->cycle                = PC_CMATCH_K;
    });
    add("mis2", [](CMATCHParams *params) { params->coarsening = PC_CMATCH_MIS2; });
    add("mis2, strength 0.5, 2 a row of P", [](CMATCHParams *params) {
      params->coarsening      = PC_CMATCH_MIS2;
      params->strength        = 0.5;
      params->prolongator_row = 2;
    });
    add("mis2, unsmoothed", [](CMATCHParams *params) {
      params->coarsening           = PC_CMATCH_MIS2;
      params->smoothed_prolongator = PETSC_FALSE;
    });
    add("to 1 row", [](CMATCHParams *params) { params->coarse_size = 1; });
    add("to 256 rows", [](CMATCHParams *params) { params->coarse_size = 256; });
    add("2 levels", [](CMATCHParams *params) { params->max_levels = 2; });
    add("1 level", [](CMATCHParams *params) { params->max_levels = 1; });
  }
  return all;
}

/* Every option of the cycle. */
std::vector<NamedParams> CycleVariants(FinePCPrecision precision, PetscInt coarse_size)
{
  std::vector<NamedParams> all;
  for (PCCMATCHSmoother smoother : {PC_CMATCH_L1JACOBI, PC_CMATCH_CHEBYSHEV, PC_CMATCH_CHEBYSHEV4})
    for (PetscInt degree : {1, 2, 3, 4})
      for (PCCMATCHCycle cycle : {PC_CMATCH_V, PC_CMATCH_W, PC_CMATCH_K}) {
        const char  *smoothers[] = {"l1jacobi", "chebyshev", "chebyshev4"}, *cycles[] = {"v", "w", "k"};
        CMATCHParams params = Precision(precision, coarse_size);
        params.smoother     = smoother;
        params.degree       = degree;
        params.cycle        = cycle;
        all.push_back({std::string(smoothers[smoother]) + " " + std::to_string(degree) + " " + cycles[cycle], params});
      }
  const auto add = [&](const std::string &name, const std::function<void(CMATCHParams *)> &set) {
    CMATCHParams params = Precision(precision, coarse_size);
    set(&params);
    all.push_back({name, params});
  };
  add("pcg", [](CMATCHParams *params) { params->coarse = PC_CMATCH_PCG; });
  add("pcg, k", [](CMATCHParams *params) {
    params->coarse = PC_CMATCH_PCG;
    params->cycle  = PC_CMATCH_K;
  });
  add("relaxation 1", [](CMATCHParams *params) { params->relaxation = 1; });
  add("unsmoothed", [](CMATCHParams *params) { params->smoothed_prolongator = PETSC_FALSE; });
  add("unsmoothed, k", [](CMATCHParams *params) {
    params->smoothed_prolongator = PETSC_FALSE;
    params->cycle                = PC_CMATCH_K;
  });
  add("2 levels", [](CMATCHParams *params) { params->max_levels = 2; });
  add("mis2, w", [](CMATCHParams *params) {
    params->coarsening = PC_CMATCH_MIS2;
    params->cycle      = PC_CMATCH_W;
  });
  return all;
}

/* ---------------------------------- a naive matching, and roots ------------------------------- */

/* What the aggregates are made from: an operator in single precision whose diagonal is apart. */
struct Graph {
  std::vector<std::map<PetscInt, float>> a;
  std::vector<float>                     d;

  PetscInt n() const { return (PetscInt)d.size(); }
};

/* The hash of an edge, by which ties are broken. */
std::uint32_t Hash(PetscInt i, PetscInt j)
{
  std::uint32_t h = (std::uint32_t)std::min(i, j) * 0x9E3779B1u ^ (std::uint32_t)std::max(i, j) * 0x85EBCA77u;
  h               = (h ^ h >> 15) * 0x2C1B3C6Du;
  h               = (h ^ h >> 12) * 0x297A2D39u;
  return h ^ h >> 15;
}

struct Aggregates {
  std::vector<PetscInt> of; /* -1: left to the smoother */
  PetscInt              coarse = 0, left = 0, joined = 0;
  bool                  rounds_ran_out = false;
};

std::vector<bool> LeftToSmoother(const Graph &M)
{
  std::vector<bool> left;
  for (PetscInt i = 0; i < M.n(); i++) {
    double sum = 0;
    for (const auto &entry : M.a[i]) sum += std::fabs((double)entry.second);
    left.push_back(!(sum >= kCMATCHDominated * (double)M.d[i]));
  }
  return left;
}

/* The edges that may be used, with their weights. */
using Edges = std::vector<std::map<PetscInt, float>>;
Edges AllowedEdges(const Graph &M, float strength, const std::vector<bool> &left)
{
  Edges              all(M.n()), allowed(M.n());
  std::vector<float> largest(M.n(), 0.f);
  for (PetscInt i = 0; i < M.n(); i++)
    for (const auto &entry : M.a[i]) {
      const PetscInt j   = entry.first;
      const float    sum = M.d[i] + M.d[j], c = sum > 0 ? -2.0f * entry.second / sum : 0.f;
      if (left[i] || left[j] || !(c > 0)) continue;
      all[i][j]  = c;
      largest[i] = std::max(largest[i], c);
    }
  for (PetscInt i = 0; i < M.n(); i++)
    for (const auto &edge : all[i])
      if (edge.second >= strength * largest[i] && edge.second >= strength * largest[edge.first]) allowed[i].insert(edge);
  return allowed;
}

/*
   The matching takes the edges from the heaviest one on, if both ends are free. Pairs and their rounds are those of the handshake:
   two vertices find each other in the first round in which every heavier edge at one of them has lost an end.
*/
struct Pairs {
  std::vector<PetscInt> mate;
  bool                  rounds_ran_out = false;
};
Pairs GreedyMatching(const Edges &edges)
{
  const int                                                       never = std::numeric_limits<int>::max();
  std::vector<std::tuple<float, std::uint32_t, PetscInt, PetscInt>> sorted;
  const PetscInt                                                  n = (PetscInt)edges.size();
  Pairs                                                           pairs{std::vector<PetscInt>(n, -1)};
  std::vector<int>                                                round(n, never), ready(n, 0);
  for (PetscInt i = 0; i < n; i++)
    for (const auto &edge : edges[i])
      if (i < edge.first) sorted.push_back({-edge.second, ~Hash(i, edge.first), i, edge.first});
  std::sort(sorted.begin(), sorted.end());
  for (const auto &edge : sorted) {
    const PetscInt i = std::get<2>(edge), j = std::get<3>(edge);
    int            gone = std::min(round[i], round[j]);
    if (pairs.mate[i] < 0 && pairs.mate[j] < 0) {
      const int heavier = std::max(ready[i], ready[j]);
      if (heavier < (int)kCMATCHRounds) {
        pairs.mate[i] = j;
        pairs.mate[j] = i;
        gone = round[i] = round[j] = heavier + 1;
      } else pairs.rounds_ran_out = true;
    }
    ready[i] = std::max(ready[i], gone);
    ready[j] = std::max(ready[j], gone);
  }
  return pairs;
}

/* The sweeps of the matching on M, which becomes the operator on the aggregates. */
Aggregates MatchingReference(const CMATCHParams &params, Graph *M)
{
  const PetscInt    n        = M->n();
  const bool        small    = n < kCMATCHSmall;
  const float       strength = (float)(small ? std::min(params.strength, kCMATCHSmallStrength) : params.strength);
  std::vector<bool> left     = LeftToSmoother(*M);
  std::vector<PetscInt> size(n, 1), room(n, 1 << 20);
  Aggregates            result;
  for (PetscInt i = 0; i < n; i++) result.of.push_back(i);
  result.left = (PetscInt)std::count(left.begin(), left.end(), true);
  if (result.left == n) return result;
  for (PetscInt sweep = 0; sweep < params.sweeps; sweep++) {
    const PetscInt vertices = M->n();
    Edges          edges    = AllowedEdges(*M, strength, left);
    for (PetscInt i = 0; i < vertices && sweep == 0 && !small; i++)
      room[i] = std::min(std::max(2 * (PetscInt)edges[i].size(), kCMATCHLeastRoom), kCMATCHMostRoom);
    for (PetscInt i = 0; i < vertices; i++)
      for (auto edge = edges[i].begin(); edge != edges[i].end();)
        edge = size[i] + size[edge->first] > std::max(room[i], room[edge->first]) ? edges[i].erase(edge) : std::next(edge);
    const Pairs pairs = GreedyMatching(edges);
    result.rounds_ran_out |= pairs.rounds_ran_out;

    /* The members of a pair in the order in which their rows are summed up; single vertices join in rounds. */
    std::map<PetscInt, std::vector<PetscInt>> members; /* by the smaller end of a pair, or a vertex that stays alone */
    std::vector<bool>                         free(vertices);
    std::map<PetscInt, PetscInt>              load;
    for (PetscInt i = 0; i < vertices; i++) {
      free[i] = pairs.mate[i] < 0 && !left[i];
      if (pairs.mate[i] <= i) continue;
      members[i] = {i, pairs.mate[i]};
      load[i]    = size[i] + size[pairs.mate[i]];
    }
    for (PetscInt round = 0; round < kCMATCHJoins; round++) {
      std::map<PetscInt, std::pair<float, PetscInt>> proposals; /* by pair: the largest weight, and minus its vertex */
      for (PetscInt i = 0; i < vertices; i++) {
        std::tuple<float, std::uint32_t, PetscInt> best{0.f, 0u, 0};
        for (const auto &edge : edges[i]) {
          const PetscInt j = edge.first;
          if (!free[i] || pairs.mate[j] < 0) continue;
          if (load[std::min(j, pairs.mate[j])] + size[i] > std::max(room[i], room[j])) continue;
          best = std::max(best, std::make_tuple(edge.second, Hash(i, j), -j));
        }
        if (std::get<0>(best) == 0) continue;
        const PetscInt j     = -std::get<2>(best);
        auto          &there = proposals.insert({std::min(j, pairs.mate[j]), {0.f, 0}}).first->second;
        there                = std::max(there, {std::get<0>(best), -i});
      }
      for (const auto &proposal : proposals) {
        const PetscInt i = -proposal.second.second;
        members[proposal.first].push_back(i);
        load[proposal.first] += size[i];
        free[i] = false;
        result.joined++;
      }
    }
    for (PetscInt i = 0; i < vertices; i++)
      if (free[i]) members[i] = {i};

    /* the next operator */
    std::vector<PetscInt> aggregate(vertices, -1), next_size, next_room;
    PetscInt              number = 0;
    for (const auto &group : members) {
      next_size.push_back(0);
      next_room.push_back(0);
      for (PetscInt i : group.second) {
        aggregate[i] = number;
        next_size.back() += size[i];
        next_room.back() = std::max(next_room.back(), room[i]);
      }
      number++;
    }
    Graph coarse;
    for (const auto &group : members) {
      std::map<PetscInt, double> row;
      double                     diagonal = 0;
      for (PetscInt i : group.second) {
        diagonal += (double)M->d[i];
        for (const auto &entry : M->a[i]) {
          const PetscInt to = aggregate[entry.first];
          if (to == coarse.n()) diagonal += (double)entry.second;
          else if (to >= 0) row[to] += (double)entry.second;
        }
      }
      coarse.a.emplace_back();
      for (const auto &entry : row) coarse.a.back()[entry.first] = (float)entry.second;
      coarse.d.push_back((float)diagonal);
    }
    *M = coarse;
    for (PetscInt &to : result.of)
      if (to >= 0) to = aggregate[to];
    size          = next_size;
    room          = next_room;
    result.coarse = number;
    left.assign(number, false);
    if (number == vertices || number <= params.coarse_size) break;
  }
  return result;
}

/* Roots in the order of a hash, no two within two edges, with their neighbours; others join the heaviest neighbour's aggregate. */
Aggregates RootReference(const CMATCHParams &params, const Graph &M)
{
  const PetscInt          n        = M.n();
  const float             strength = (float)(n < kCMATCHSmall ? std::min(params.strength, kCMATCHSmallStrength) : params.strength);
  const std::vector<bool> left     = LeftToSmoother(M);
  const Edges             edges    = AllowedEdges(M, strength, left);
  std::vector<std::pair<std::uint32_t, PetscInt>> order;
  std::set<PetscInt>                              roots;
  std::vector<PetscInt>                           root(n, -1);
  Aggregates                                      result;
  for (PetscInt i = 0; i < n; i++)
    if (!left[i]) order.push_back({Hash(i, i + 7), i});
  std::sort(order.begin(), order.end());
  for (const auto &next : order) {
    const PetscInt i    = next.second;
    bool           near = false;
    for (const auto &one : edges[i]) {
      near |= roots.count(one.first) > 0;
      for (const auto &two : edges[one.first]) near |= roots.count(two.first) > 0;
    }
    if (!near) roots.insert(i);
  }
  for (PetscInt i : roots) {
    root[i] = i;
    for (const auto &edge : edges[i]) root[edge.first] = i;
  }
  for (int pass = 0; pass < 2; pass++) {
    const std::vector<PetscInt> before = root;
    for (PetscInt i = 0; i < n; i++) {
      std::tuple<float, std::uint32_t, PetscInt> best{0.f, 0u, 0};
      for (const auto &edge : edges[i])
        if (before[i] < 0 && before[edge.first] >= 0)
          best = std::max(best, std::make_tuple(edge.second, Hash(i, edge.first), -edge.first));
      if (std::get<0>(best) == 0) continue;
      root[i] = before[-std::get<2>(best)];
      result.joined++;
    }
  }
  std::map<PetscInt, PetscInt> number;
  for (PetscInt i = 0; i < n; i++) {
    if (!left[i] && root[i] < 0) root[i] = i;
    if (root[i] == i) number[i] = result.coarse++;
  }
  for (PetscInt i = 0; i < n; i++) result.of.push_back(left[i] ? -1 : number.at(root[i]));
  result.left = (PetscInt)std::count(left.begin(), left.end(), true);
  return result;
}

/* W A W scaled as on the finest level, entry by entry. */
double FinestValue(const HostMatrix &A, PetscInt row, PetscInt k, double scale, const Vector &w)
{
  return w.empty() ? A.a[k] * scale : A.a[k] * scale * (w[row] * w[A.j[k]]);
}

/* Asserts that the aggregates of all levels are those of the references, and that the coarsening ends where it should. */
void CheckAggregates(const HostMatrix &A, const Twin &twin, Vector w)
{
  const CMATCHParams          &params = twin.params();
  const std::vector<HostLevel> levels = twin.Levels();
  Graph                        M;
  for (double &entry : w)
    if (entry == 0) entry = 1;
  M.a.resize(A.n);
  M.d.resize(A.n);
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const float value = (float)FinestValue(A, row, k, twin->scale, w);
      if (A.j[k] == row) M.d[row] = value;
      else M.a[row][A.j[k]] = value;
    }
  for (size_t l = 0; l < levels.size(); l++) {
    const HostLevel &level = levels[l];
    CAPTURE(l, level.n);
    const bool ends = l + 1 == levels.size();
    if (level.n <= params.coarse_size || (PetscInt)l + 1 == params.max_levels) {
      CHECK(ends);
      CHECK(twin.stats.end == (level.n <= params.coarse_size ? CMATCH_END_SIZE : CMATCH_END_LEVELS));
      continue;
    }
    if (params.coarsening == PC_CMATCH_MIS2) {
      M = Graph();
      for (PetscInt row = 0; row < level.n; row++) {
        M.a.emplace_back();
        for (PetscInt k = level.A_i[row]; k < level.A_i[row + 1]; k++) M.a.back()[level.A_j[k]] = (float)level.A_a[k];
        M.d.push_back((float)level.d[row]);
      }
    }
    const Aggregates expected = params.coarsening == PC_CMATCH_MIS2 ? RootReference(params, M) : MatchingReference(params, &M);
    CHECK(level.left == expected.left);
    if (ends) {
      if (expected.left == level.n) CHECK(twin.stats.end == CMATCH_END_DOMINATED);
      else {
        CHECK(twin.stats.end == CMATCH_END_STALLED);
        CHECK(expected.coarse >= kCMATCHStall * (level.n - expected.left));
      }
      continue;
    }
    CHECK(expected.coarse < kCMATCHStall * (level.n - expected.left));
    std::map<PetscInt, PetscInt> sizes;
    for (PetscInt aggregate : expected.of)
      if (aggregate >= 0) sizes[aggregate]++;
    PetscInt largest = 0, singles = 0;
    for (const auto &size : sizes) {
      largest = std::max(largest, size.second);
      singles += size.second == 1;
    }
    CHECK((level.aggregate == expected.of));
    REQUIRE(level.coarse == expected.coarse);
    CHECK(level.joined == expected.joined);
    CHECK(level.largest == largest);
    CHECK(level.singles == singles);
  }
}

/* --------------------------------- operators and prolongators --------------------------------- */

/* The entries beside the diagonal and d, as (column, value). */
std::vector<std::pair<PetscInt, double>> OperatorRow(const HostLevel &L, PetscInt i)
{
  std::vector<std::pair<PetscInt, double>> row{{i, L.d[i]}};
  for (PetscInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) row.push_back({L.A_j[k], L.A_a[k]});
  return row;
}

std::vector<std::pair<PetscInt, double>> ProlongatorRow(const HostLevel &L, PetscInt i)
{
  std::vector<std::pair<PetscInt, double>> row;
  for (size_t e = (size_t)i * L.width; e < (size_t)(i + 1) * L.width && L.P_j[e] >= 0; e++) row.push_back({L.P_j[e], L.P_a[e]});
  return row;
}

/* Rows are in order, columns ascend and are no diagonal ones, P is filled up by -1 and 0, and R is its transpose. */
void CheckStructure(const HostLevel &L, bool last)
{
  bool good = L.A_i[0] == 0 && L.A_i[L.n] == L.nnz;
  for (PetscInt i = 0; i < L.n; i++)
    for (PetscInt k = L.A_i[i]; k < L.A_i[i + 1]; k++)
      good = good && L.A_j[k] >= 0 && L.A_j[k] < L.n && L.A_j[k] != i && (k == L.A_i[i] || L.A_j[k - 1] < L.A_j[k]);
  CHECK(good);
  CHECK(AllFinite(L.A_a));
  CHECK(AllFinite(L.s));
  CHECK(std::all_of(L.d.begin(), L.d.end(), [](double d) { return d > 0 && std::isfinite(d); }));
  CHECK(std::all_of(L.l.begin(), L.l.end(), [](double l) { return l > 0 && std::isfinite(l); }));
  if (last) return;
  std::vector<std::vector<std::pair<PetscInt, double>>> columns(L.coarse);
  PetscInt                                              entries = 0;
  for (PetscInt i = 0; i < L.n; i++) {
    bool ended = false;
    for (PetscInt e = 0; e < L.width; e++) {
      const PetscInt column = L.P_j[(size_t)i * L.width + e];
      const double   value  = L.P_a[(size_t)i * L.width + e];
      good                  = good && column >= -1 && column < L.coarse && std::isfinite(value);
      if (column < 0) good = good && column == -1 && value == 0;
      else {
        good = good && !ended && (e == 0 || L.P_j[(size_t)i * L.width + e - 1] < column);
        entries++;
        if (good) columns[column].push_back({i, value});
      }
      ended = ended || column < 0;
    }
    good = good && (L.aggregate[i] < 0) == (L.P_j[(size_t)i * L.width] < 0);
  }
  CHECK(good);
  CHECK(L.P_nnz == entries);
  CHECK(L.R_i[0] == 0);
  for (PetscInt c = 0; c < L.coarse && good; c++) {
    good = good && L.R_i[c + 1] - L.R_i[c] == (PetscInt)columns[c].size();
    for (size_t k = 0; k < columns[c].size() && good; k++)
      good = L.R_j[L.R_i[c] + k] == columns[c][k].first && L.R_a[L.R_i[c] + k] == columns[c][k].second;
  }
  CHECK(good);
}

/* The finest level is the scaled matrix, whose largest diagonal entry is in [1/2, 1). */
void CheckFinest(const HostMatrix &A, const Twin &twin, const HostLevel &L, Vector w)
{
  const FinePCPrecision precision = twin.params().precision;
  const double          u         = Unit(precision);
  double                largest = 0, of_s = 0;
  PetscInt              to   = 0;
  bool                  good = L.n == A.n && L.nnz == A.nnz() - A.n;
  int                   exponent;
  for (double &entry : w)
    if (entry == 0) entry = 1;
  REQUIRE(good);
  for (PetscInt row = 0; row < A.n; row++) {
    long double sum = 0;
    double      size = 0;
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const double value = FinestValue(A, row, k, twin->scale, w);
      sum += value;
      size += std::fabs(value);
      if (A.j[k] == row) largest = std::max(largest, value);
      else {
        good = good && L.A_j[to] == A.j[k] && L.A_a[to] == Stored(precision, value);
        to++;
      }
    }
    good = good && L.A_i[row + 1] == to;
    of_s = std::max(of_s, (double)std::fabs(L.s[row] - sum) / (u * (double)std::fabs(sum) + 1e-15 * (A.i[row + 1] - A.i[row]) * size));
  }
  CHECK(good);
  CHECK(of_s <= 1);
  if (A.n == 0) return;
  CHECK(largest >= 0.5);
  CHECK(largest < 1);
  CHECK(std::frexp(twin->scale, &exponent) == 0.5);
}

/* d and l are what s and the entries make them, up to the rounding of s to the precision. */
void CheckDiagonal(const HostLevel &L, FinePCPrecision precision)
{
  const double u    = Unit(precision);
  double       of_d = 0, of_l = 0;
  for (PetscInt i = 0; i < L.n; i++) {
    long double d = L.s[i], l1 = L.d[i];
    double      size = 0;
    for (PetscInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
      d -= L.A_a[k];
      l1 += std::fabs(L.A_a[k]);
      size += std::fabs(L.A_a[k]);
    }
    of_d = std::max(of_d, (double)std::fabs(L.d[i] - d) / (u * (L.d[i] + std::fabs(L.s[i])) + 1e-14 * size));
    of_l = std::max(of_l, (double)std::fabs(L.l[i] * l1 - 1) / (u + 1e-14));
  }
  CHECK(of_d <= 1.01);
  CHECK(of_l <= 1.01);
}

/*
   A row of P by the formulas. With `stored` these columns are there already, from a matrix with other values. `sum` is what the
   Jacobi step makes of the ones, 1 - q S.
*/
struct ProlongatorReference {
  std::map<PetscInt, double> p;
  bool                       cut = false, plain = false;
  double                     sum = 1, size = 0; /* size: the entries before the cut, by magnitude */
};
ProlongatorReference ReferenceRow(const HostLevel &L, PetscInt i, const CMATCHParams &params, const std::set<PetscInt> *stored)
{
  ProlongatorReference row;
  const PetscInt       own = L.aggregate[i];
  if (own < 0) return row;
  if (!params.smoothed_prolongator) {
    row.p[own] = 1;
    return row;
  }
  std::map<PetscInt, double> v, kept;
  double                     strongest = 0, dropped = 0;
  for (PetscInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) strongest = std::max(strongest, -L.A_a[k]);
  const double least = Stored(params.precision, Stored(params.precision, kCMATCHFilter) * strongest);
  for (PetscInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
    if (strongest == 0 || -L.A_a[k] >= least) kept[L.A_j[k]] = L.A_a[k];
    else dropped += L.A_a[k];
  }
  const double d  = L.d[i] + dropped > kCMATCHLeastDiagonal * L.d[i] ? L.d[i] + dropped : L.d[i];
  double       l1 = std::fabs(d), S = d;
  for (const auto &entry : kept) l1 += std::fabs(entry.second);
  const double D = std::max(d, l1 / 2), q = D > 0 ? kCMATCHOmega / D : kCMATCHOmega;
  v[own] = 1 - q * d;
  for (const auto &entry : kept) {
    const PetscInt to = L.aggregate[entry.first];
    if (to < 0) continue;
    v[to] -= q * entry.second;
    S += entry.second;
  }
  row.sum = 1 - q * S;
  for (const auto &entry : v) row.size += std::fabs(entry.second);

  std::vector<std::tuple<double, std::uint32_t, PetscInt>> order; /* the largest ones come first */
  std::set<PetscInt>                                       take;
  for (const auto &entry : v) {
    if (stored) row.cut |= stored->count(entry.first) == 0;
    else if (entry.second != 0) order.push_back({-std::fabs(entry.second), ~Hash(i, entry.first), entry.first});
  }
  if (stored) take = *stored;
  else {
    row.cut = (PetscInt)order.size() > params.prolongator_row;
    std::sort(order.begin(), order.end());
    for (size_t e = 0; e < order.size() && (PetscInt)e < params.prolongator_row; e++) take.insert(std::get<2>(order[e]));
  }
  double of_taken = 0;
  bool   any      = false;
  for (PetscInt column : take) {
    row.p[column] = v.count(column) ? v[column] : 0;
    of_taken += row.p[column];
    any = any || row.p[column] != 0;
  }
  row.plain = !any;
  if (row.cut) {
    const double factor = any ? row.sum / of_taken : 0;
    row.plain           = !(factor > 0 && factor <= kCMATCHMostScaling);
    for (auto &entry : row.p) entry.second *= factor;
    if (!row.plain) row.size *= factor * (1 + row.size / std::fabs(of_taken));
  }
  if (row.plain) {
    row.cut = false;
    if (!stored) row.p = {{own, 0.}};
    for (auto &entry : row.p) entry.second = entry.first == own;
  }
  return row;
}

/* Asserts that P is what the formulas make of A_l and the aggregates. */
void CheckProlongator(const HostLevel &L, const CMATCHParams &params, bool keep)
{
  double   worst = 0, of_sums = 0;
  PetscInt cut = 0, plain = 0;
  bool     same_pattern = true;
  CHECK(L.width == (params.smoothed_prolongator ? params.prolongator_row : 1));
  for (PetscInt i = 0; i < L.n; i++) {
    const auto         row = ProlongatorRow(L, i);
    std::set<PetscInt> columns;
    double             sum = 0, size = 0;
    for (const auto &entry : row) columns.insert(entry.first);
    const ProlongatorReference expected = ReferenceRow(L, i, params, keep ? &columns : nullptr);
    const double               u = Unit(params.precision), slack = 1e-14 * (1 + expected.size);
    cut += expected.cut;
    plain += expected.plain;
    same_pattern = same_pattern && expected.p.size() == row.size();
    for (const auto &entry : row) {
      if (!expected.p.count(entry.first)) {
        same_pattern = false;
        continue;
      }
      const double value = expected.p.at(entry.first);
      worst              = std::max(worst, std::fabs(entry.second - value) / (u * std::fabs(value) + slack));
      sum += entry.second;
      size += std::fabs(entry.second);
    }
    if (!expected.plain && !row.empty() && params.smoothed_prolongator)
      of_sums = std::max(of_sums, std::fabs(sum - expected.sum) / (u * size + slack));
  }
  CHECK(same_pattern);
  CHECK(worst <= 1);
  CHECK(of_sums <= 1);
  CHECK(L.cut == cut);
  CHECK(L.plain == plain);
}

/* Asserts that the next level is P^T A P, entry by entry against a dense product, and that its row sums are P^T A P 1. */
void CheckGalerkin(const HostLevel &L, const HostLevel &C, const CMATCHParams &params)
{
  const PetscInt n = L.n, coarse = L.coarse;
  const double   u = Unit(params.precision), double_error = 1e-14;
  const double   factor = params.smoothed_prolongator || params.cycle == PC_CMATCH_K ? 1 : 1 / params.overcorrection;
  REQUIRE(C.n == coarse);
  std::vector<long double> product((size_t)coarse * coarse, 0);
  Vector                   size((size_t)coarse * coarse, 0.), p(n, 0.), p_size(n, 0.);
  for (PetscInt i = 0; i < n; i++)
    for (const auto &entry : ProlongatorRow(L, i)) {
      p[i] += entry.second;
      p_size[i] += std::fabs(entry.second);
    }
  std::vector<long double> sums(coarse, 0);
  Vector                   sums_size(coarse, 0.);
  for (PetscInt i = 0; i < n; i++) {
    std::map<PetscInt, long double> AP;
    std::map<PetscInt, double>      AP_size;
    long double                     y      = (long double)L.s[i] * p[i];
    double                          y_size = (u + double_error) * std::fabs(L.s[i]) * p_size[i];
    for (const auto &entry : OperatorRow(L, i)) {
      for (const auto &of_P : ProlongatorRow(L, entry.first)) {
        AP[of_P.first] += (long double)entry.second * of_P.second;
        AP_size[of_P.first] += std::fabs(entry.second * of_P.second);
      }
      if (entry.first == i) continue;
      y += (long double)entry.second * ((long double)p[entry.first] - p[i]);
      y_size += double_error * std::fabs(entry.second) * (p_size[entry.first] + p_size[i]);
    }
    for (const auto &of_R : ProlongatorRow(L, i)) {
      for (const auto &entry : AP) product[(size_t)of_R.first * coarse + entry.first] += of_R.second * entry.second * factor;
      for (const auto &entry : AP_size)
        size[(size_t)of_R.first * coarse + entry.first] += std::fabs(of_R.second) * entry.second * factor;
      sums[of_R.first] += of_R.second * y * factor;
      sums_size[of_R.first] += std::fabs(of_R.second) * (y_size + double_error * std::fabs((double)y)) * factor;
    }
  }
  double of_entries = 0, of_sums = 0, of_diagonal = 0;
  bool   only_there = true;
  for (PetscInt row = 0; row < coarse; row++) {
    if (L.R_i[row] == L.R_i[row + 1]) { /* This aggregate is in no row of P. */
      CHECK(C.s[row] == 1);
      CHECK(C.d[row] == 1);
      CHECK(C.A_i[row] == C.A_i[row + 1]);
      continue;
    }
    Vector difference(coarse, 0.);
    for (PetscInt column = 0; column < coarse; column++) difference[column] = (double)product[(size_t)row * coarse + column];
    for (PetscInt k = C.A_i[row]; k < C.A_i[row + 1]; k++) {
      difference[C.A_j[k]] -= C.A_a[k];
      only_there = only_there && size[(size_t)row * coarse + C.A_j[k]] >= 0;
    }
    double whole = 0;
    for (PetscInt column = 0; column < coarse; column++) {
      const double of_column = size[(size_t)row * coarse + column];
      whole += of_column;
      if (column == row) continue;
      if (of_column == 0) only_there = only_there && difference[column] == 0;
      else of_entries = std::max(of_entries, std::fabs(difference[column]) / ((2.01 * u + double_error) * of_column));
    }
    of_sums = std::max(of_sums, (double)std::fabs(C.s[row] - sums[row]) / (u * (double)std::fabs(sums[row]) + sums_size[row]));
    /* The diagonal entry comes from the row sum and the other entries, which all are rounded. */
    of_diagonal = std::max(of_diagonal, std::fabs(difference[row] - C.d[row]) / ((4 * u + double_error) * whole + sums_size[row]));
  }
  CHECK(only_there);
  CHECK(of_entries <= 1);
  CHECK(of_sums <= 1.01);
  CHECK(of_diagonal <= 1);
}

/* All that can be said about the operators of a hierarchy; `keep`: its patterns may come from other values. */
void CheckOperators(const HostMatrix &A, const Twin &twin, const Vector &w, bool keep = false)
{
  const std::vector<HostLevel> levels = twin.Levels();
  REQUIRE(twin.stats.failure == CMATCH_OK);
  CheckFinest(A, twin, levels[0], w);
  for (size_t l = 0; l < levels.size(); l++) {
    CAPTURE(l);
    CheckStructure(levels[l], l + 1 == levels.size());
    CheckDiagonal(levels[l], twin.params().precision);
    if (l + 1 == levels.size()) continue;
    CheckProlongator(levels[l], twin.params(), keep);
    CheckGalerkin(levels[l], levels[l + 1], twin.params());
  }
}

/* ------------------------------------------- cycles ------------------------------------------- */

/* A dense matrix by rows. */
struct Dense {
  PetscInt rows = 0, columns = 0;
  Vector   a;

  Dense() = default;
  Dense(PetscInt m, PetscInt n) : rows(m), columns(n), a((size_t)m * n, 0.) { }
  double &operator()(PetscInt i, PetscInt j) { return a[(size_t)i * columns + j]; }
  double  operator()(PetscInt i, PetscInt j) const { return a[(size_t)i * columns + j]; }
};

Vector operator*(const Dense &A, const Vector &x)
{
  Vector y(A.rows, 0.);
  for (PetscInt i = 0; i < A.rows; i++)
    for (PetscInt j = 0; j < A.columns; j++) y[i] += A(i, j) * x[j];
  return y;
}

Dense operator*(const Dense &A, const Dense &B)
{
  Dense C(A.rows, B.columns);
  for (PetscInt i = 0; i < A.rows; i++)
    for (PetscInt k = 0; k < A.columns; k++)
      for (PetscInt j = 0; j < B.columns && A(i, k) != 0; j++) C(i, j) += A(i, k) * B(k, j);
  return C;
}

Dense Transposed(const Dense &A)
{
  Dense B(A.columns, A.rows);
  for (PetscInt i = 0; i < A.rows; i++)
    for (PetscInt j = 0; j < A.columns; j++) B(j, i) = A(i, j);
  return B;
}

Dense ToDense(const HostMatrix &A)
{
  Dense B(A.n, A.n);
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++) B(row, A.j[k]) = A.a[k];
  return B;
}

Vector operator+(Vector x, const Vector &y)
{
  for (size_t k = 0; k < x.size(); k++) x[k] += y[k];
  return x;
}

Vector operator-(Vector x, const Vector &y)
{
  for (size_t k = 0; k < x.size(); k++) x[k] -= y[k];
  return x;
}

Vector operator*(double a, Vector x)
{
  for (double &value : x) value *= a;
  return x;
}

/* Eigenvalues in ascending order of the symmetric part of a matrix, and eigenvectors in the rows. */
struct Eigen {
  Vector values;
  Dense  vectors;
};
Eigen Decompose(const Dense &A)
{
  PetscBLASInt n = 0, info = 0, size = 0;
  Eigen        eigen{Vector(A.rows, 0.), Dense(A.rows, A.rows)};
  if (A.rows == 0) return eigen;
  for (PetscInt i = 0; i < A.rows; i++)
    for (PetscInt j = 0; j < A.rows; j++) eigen.vectors(i, j) = (A(i, j) + A(j, i)) / 2;
  MUST(PetscBLASIntCast(A.rows, &n));
  size = 4 * n;
  Vector work(size);
  LAPACKsyev_("V", "U", &n, eigen.vectors.a.data(), &n, eigen.values.data(), work.data(), &size, &info);
  REQUIRE(info == 0);
  return eigen;
}

/* f(A) for the symmetric part of A */
Dense FunctionOf(const Dense &A, const std::function<double(double)> &f)
{
  const Eigen eigen = Decompose(A);
  Dense       left  = Transposed(eigen.vectors);
  for (PetscInt i = 0; i < A.rows; i++)
    for (PetscInt k = 0; k < A.rows; k++) left(i, k) *= f(eigen.values[k]);
  return left * eigen.vectors;
}

/* T_k(x) */
double ChebyshevT(PetscInt k, double x)
{
  if (std::fabs(x) <= 1) return std::cos(k * std::acos(x));
  return (x < 0 && k % 2 ? -1 : 1) * std::cosh(k * std::acosh(std::fabs(x)));
}

/* The polynomial p of a smoother, whose errors are p(M^{-1} A) times those before, by what it is made for. */
double ErrorPolynomial(const CMATCHParams &params, double x)
{
  const PetscInt k = params.degree;
  if (params.smoother == PC_CMATCH_L1JACOBI) return std::pow(1 - params.relaxation * x, k);
  if (params.smoother == PC_CMATCH_CHEBYSHEV) {
    const double a = PolynomialLowerEnd(k);
    return ChebyshevT(k, (1 + a - 2 * x) / (1 - a)) / ChebyshevT(k, (1 + a) / (1 - a));
  }
  /* sqrt(x + g) p(x) is a multiple of T_{2k+1} of sqrt((x + g) / (1 + g)), see below. */
  const double f = PETSC_PI / (4 * k + 2), g = std::pow(std::tan(f), 2), y = std::sqrt((x + g) / (1 + g));
  return (k % 2 ? -1 : 1) * std::sqrt(g / (x + g)) * ChebyshevT(2 * k + 1, y);
}

/* The same by the steps. */
double ErrorPolynomial(const PolynomialSteps &steps, double x)
{
  double r = 1, z = steps.c[0] * r, sum = steps.beta[0] * z;
  for (PetscInt i = 1; i < steps.degree; i++) {
    r -= x * z;
    z = steps.e[i] * z + steps.c[i] * r;
    sum += steps.beta[i] * z;
  }
  return 1 - x * sum;
}

/* S of x + S (b - A x), dense, for a smoother with diag(l) */
Dense DenseSmoother(const Dense &A, const Vector &l, const std::function<double(double)> &p)
{
  const PetscInt n = A.rows;
  Dense          B(n, n);
  for (PetscInt i = 0; i < n; i++)
    for (PetscInt j = 0; j < n; j++) B(i, j) = std::sqrt(l[i] * l[j]) * A(i, j);
  Dense S = FunctionOf(B, [&](double x) {
    const double at = std::fabs(x) > 1e-7 ? x : 1e-7; /* The limit at 0 is -p'(0). */
    return (1 - p(at)) / at;
  });
  for (PetscInt i = 0; i < n; i++)
    for (PetscInt j = 0; j < n; j++) S(i, j) *= std::sqrt(l[i] * l[j]);
  return S;
}

Dense DenseOperator(const HostLevel &L)
{
  Dense A(L.n, L.n);
  for (PetscInt i = 0; i < L.n; i++) {
    A(i, i) = L.s[i];
    for (PetscInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
      A(i, L.A_j[k]) = L.A_a[k];
      A(i, i) -= L.A_a[k];
    }
  }
  return A;
}

/* The cycle of a hierarchy by the formulas of multigrid methods, with dense matrices in double. */
class ReferenceCycle {
public:
  explicit ReferenceCycle(const Twin &twin) : params_(twin.params()), w_(twin.NearNull()), scale_(twin->scale)
  {
    const std::vector<HostLevel> levels = twin.Levels();
    const auto                   p      = [this](double x) { return ErrorPolynomial(params_, x); };
    for (const HostLevel &L : levels) {
      Dense P(L.n, L.coarse);
      for (PetscInt i = 0; i < L.n && L.coarse; i++)
        for (const auto &entry : ProlongatorRow(L, i)) P(i, entry.first) = entry.second;
      A.push_back(DenseOperator(L));
      S.push_back(DenseSmoother(A.back(), L.l, p));
      P_.push_back(P);
      R_.push_back(Transposed(P));
    }
    const HostLevel &L    = levels.back();
    double           mean = 0;
    for (PetscInt i = 0; i < L.n; i++) mean += A.back()(i, i) / L.n;
    CMATCHParams polynomial = params_;
    polynomial.smoother     = PC_CMATCH_CHEBYSHEV;
    polynomial.degree       = kCMATCHStalledDegree;
    if (twin.stats.end == CMATCH_END_DOMINATED) {
      const Dense again = S.back() * (A.back() * S.back());
      last_             = S.back();
      for (size_t k = 0; k < last_.a.size(); k++) last_.a[k] += S.back().a[k] - again.a[k];
    } else if (params_.coarse == PC_CMATCH_DENSE && L.n > kCMATCHLargestDense) {
      last_ = DenseSmoother(A.back(), L.l, [&](double x) { return ErrorPolynomial(polynomial, x); });
    } else if (params_.singular) { /* without the eigenvector that belongs to the eigenvalue of 0 */
      last_ = FunctionOf(A.back(), [mean](double x) { return std::fabs(x) > 1e-5 * mean ? 1 / x : 0; });
    } else last_ = FunctionOf(A.back(), [mean](double x) { return 1 / (x + kCMATCHShift * mean); });
  }
  Vector operator()(const Vector &r) const
  {
    Vector b = r;
    for (size_t i = 0; i < b.size(); i++) b[i] *= w_[i];
    Vector x = Visit(0, b);
    for (size_t i = 0; i < x.size(); i++) x[i] *= w_[i] * scale_;
    return x;
  }

  std::vector<Dense> A, S; /* of each level */

private:
  Vector Once(size_t l, const Vector &b) const
  {
    if (l + 1 == A.size()) return last_ * b;
    Vector x = S[l] * b;
    x        = x + P_[l] * Visit(l + 1, R_[l] * (b - A[l] * x));
    return x + S[l] * (b - A[l] * x);
  }
  Vector Visit(size_t l, const Vector &b) const
  {
    const Vector c = Once(l, b);
    if (params_.cycle == PC_CMATCH_V || l < (size_t)kCMATCHTwiceFrom || l > (size_t)kCMATCHTwiceTo || l + 1 == A.size()) return c;
    const Vector Ac = A[l] * c;
    if (params_.cycle == PC_CMATCH_W) return c + Once(l, b - Ac);
    /* The K-cycle minimises the energy norm of the error among the multiples of c, and then over the plane of c and d. */
    const double cc = Dot(c, Ac), cb = Dot(c, b);
    if (!(cc > 0)) return c;
    const Vector r = b - (cb / cc) * Ac;
    if (Norm(r) <= 0.25 * Norm(b)) return (cb / cc) * c;
    const Vector d  = Once(l, r);
    const double cd = Dot(d, Ac), dd = Dot(d, A[l] * d), db = Dot(d, b), determinant = cc * dd - cd * cd;
    if (!(determinant > 0)) return (cb / cc) * c;
    return ((dd * cb - cd * db) / determinant) * c + ((cc * db - cd * cb) / determinant) * d;
  }

  CMATCHParams       params_;
  Vector             w_;
  double             scale_;
  std::vector<Dense> P_, R_;
  Dense              last_; /* what solves on the last level */
};

/* M^{-1}, one column after the other */
Dense DenseInverse(Twin *twin, PetscInt n)
{
  Dense M(n, n);
  for (PetscInt j = 0; j < n; j++) {
    Vector unit(n, 0.);
    unit[j]        = 1;
    const Vector z = twin->Apply(unit);
    for (PetscInt i = 0; i < n; i++) M(i, j) = z[i];
  }
  return M;
}

/*
   Flexible conjugate gradients for A x = b from x = 0 until the true residual is 1e-8 of b. M^{-1} need not be symmetric to the last
   digit, or even linear.
*/
struct Solution {
  PetscInt iterations;
  double   residual;
};
Solution Solve(const HostMatrix &A, const Vector &b, Twin *twin, PetscInt most = 200)
{
  Vector x(b.size(), 0.), r = b, p, q;
  double pq = 1;
  for (PetscInt iteration = 0;; iteration++) {
    const double residual = Norm(b - Multiply(A, x)) / Norm(b);
    if (residual <= 1e-8 || iteration == most || !std::isfinite(residual)) return {iteration, residual};
    const Vector z = twin->Apply(r);
    p              = iteration ? z - (Dot(z, q) / pq) * p : z;
    q              = Multiply(A, p);
    pq             = Dot(p, q);
    x              = x + (Dot(p, r) / pq) * p;
    r              = r - (Dot(p, r) / pq) * q;
  }
}

double OperatorComplexity(const Twin &twin)
{
  double entries = 0;
  for (PetscInt l = 0; l < twin->levels; l++) entries += (double)(twin->level[l].n + twin->level[l].nnz);
  return entries / (double)(twin->level[0].n + twin->level[0].nnz);
}

} // namespace
