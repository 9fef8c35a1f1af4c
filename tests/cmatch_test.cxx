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
#include <numeric>
#include <set>
#include <tuple>
#include <vector>
#include <random>

#include <petscsys.h>
#include <petscblaslapack.h>

#include "covering.h"
#include "matrices.h"
#include "pc/cmatch/cmatch.h"
#include "pc/fsai.h"

namespace
{

using Vector = std::vector<double>;
using Rows   = std::vector<std::vector<std::pair<LocalInt, PetscScalar>>>;

constexpr double kUnit = 0x1p-53; /* of double precision */
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

/* ------------------------------------------ matrices ------------------------------------------ */

/* The rows of a symmetric matrix from its couplings: each p < q is given once. */
class Couplings {
public:
  explicit Couplings(LocalInt n) : rows_(n), diagonal_(n, 0.) { }
  /* Adds a to the couplings of p with q, and takes it off both diagonal entries, so that it adds nothing to the row sums. */
  void Add(LocalInt p, LocalInt q, double a)
  {
    rows_[p].push_back({q, a});
    rows_[q].push_back({p, a});
    diagonal_[p] -= a;
    diagonal_[q] -= a;
  }
  void       AddDiagonal(LocalInt p, double a) { diagonal_[p] += a; }
  HostMatrix Matrix() const
  {
    Rows rows = rows_;
    for (size_t p = 0; p < rows.size(); p++) rows[p].push_back({(LocalInt)p, diagonal_[p]});
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
using Coefficient = std::function<double(LocalInt x, LocalInt y, LocalInt z)>;
HostMatrix Volumes(std::array<LocalInt, 3> cells, const Coefficient &k, bool walls_hold = true,
                   std::array<double, 3> spacing = {1, 1, 1})
{
  const LocalInt nx = cells[0], ny = cells[1], nz = cells[2];
  Couplings      A(nx * ny * nz);
  for (LocalInt z = 0; z < nz; z++)
    for (LocalInt y = 0; y < ny; y++)
      for (LocalInt x = 0; x < nx; x++) {
        const LocalInt row = (z * ny + y) * nx + x, at[3] = {x, y, z}, stride[3] = {1, nx, nx * ny};
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

double One(LocalInt, LocalInt, LocalInt)
{
  return 1;
}

/* Cubes of `cube` cells in the colours of a checkerboard, of which one conducts better. */
Coefficient Checkerboard(double contrast, LocalInt cube)
{
  return [=](LocalInt x, LocalInt y, LocalInt z) { return (x / cube + y / cube + z / cube) % 2 ? contrast : 1.; };
}

/* Conductivities of some orders of magnitude, the same in every call. */
Coefficient Scattered(double orders, std::uint64_t seed)
{
  return [=](LocalInt x, LocalInt y, LocalInt z) {
    Random random(seed + 1 + (std::uint64_t)x + 1009 * ((std::uint64_t)y + 1013 * (std::uint64_t)z));
    for (int skip = 0; skip < 3; skip++) random.Next();
    return std::pow(10., random.Between(0, orders));
  };
}

/* Poisson's matrix of a square, and a last row that is coupled to everything. */
HostMatrix Hub(LocalInt nx, LocalInt ny)
{
  const LocalInt n = nx * ny;
  Couplings      A(n + 1);
  for (LocalInt row = 0; row < n; row++) {
    if (row % nx + 1 < nx) A.Add(row, row + 1, -1);
    if (row + nx < n) A.Add(row, row + nx, -1);
    A.Add(row, n, -0.25 - 0.125 * (row % 3));
  }
  A.AddDiagonal(0, 1);
  return A.Matrix();
}

/* Two chains that know nothing of each other, isolated rows, and rows that their diagonal entry dominates. */
HostMatrix Parts(LocalInt n)
{
  Couplings A(n);
  for (LocalInt row = 0; row < n; row++) {
    if (row % 7 == 3) {
      A.AddDiagonal(row, 2);
      continue;
    }
    for (LocalInt to = row + 1; to <= row + 4 && to < n; to++)
      if (to % 7 != 3 && to % 2 == row % 2) A.Add(row, to, -1 - 0.25 * (row % 3));
    A.AddDiagonal(row, row % 11 == 5 ? 1e3 : 0.01);
  }
  return A.Matrix();
}

/* A chain whose couplings grow, with equal diagonal entries: in a round of the matching only the last pair can find each other. */
HostMatrix GrowingChain(LocalInt n)
{
  Rows rows(n);
  for (LocalInt row = 0; row < n; row++) {
    rows[row].push_back({row, 2.1});
    if (row + 1 == n) continue;
    const double a = -0.5 - 0.5 * row / n;
    rows[row].push_back({row + 1, a});
    rows[row + 1].push_back({row, a});
  }
  return FromRows(rows);
}

/* A chain of pairs: weak couplings, below the threshold of large levels, are between them. */
HostMatrix ChainOfPairs(LocalInt n)
{
  Couplings A(n);
  for (LocalInt row = 0; row + 1 < n; row++) A.Add(row, row + 1, row % 2 ? -0.05 : -1);
  if (n) A.AddDiagonal(0, 1);
  return A.Matrix();
}

/* A tree in which every row but the first is coupled with parent(row) < row. */
template <typename Parent>
HostMatrix Tree(LocalInt n, Parent parent)
{
  Couplings A(n);
  for (LocalInt row = 1; row < n; row++) A.Add(parent(row), row, -1 - 0.01 * (row % 5));
  for (LocalInt row = 0; row < n; row++) A.AddDiagonal(row, 1e-3);
  return A.Matrix();
}

/* A chain with a tooth of so many rows at each row of it. */
HostMatrix Comb(LocalInt n, LocalInt tooth)
{
  return Tree(n, [=](LocalInt row) { return row % (tooth + 1) ? row - 1 : row - tooth - 1; });
}

HostMatrix RandomTree(LocalInt n, unsigned seed)
{
  std::mt19937 random(seed);
  return Tree(n, [&](LocalInt row) { return (LocalInt)(random() % (unsigned)row); });
}

/* Every row is left to the smoother. */
HostMatrix DominatedChain(LocalInt n)
{
  Couplings A(n);
  for (LocalInt row = 0; row + 1 < n; row++) A.Add(row, row + 1, row % 2 ? -0.03 : 0.04);
  for (LocalInt row = 0; row < n; row++) A.AddDiagonal(row, 1);
  return A.Matrix();
}

/* The first row and the last one are coupled with all, and the others with nothing else. */
HostMatrix Arrow(LocalInt n)
{
  Couplings A(n);
  for (LocalInt row = 1; row < n; row++) A.Add(0, row, -1);
  for (LocalInt row = 1; row + 1 < n; row++) A.Add(row, n - 1, -0.5);
  A.AddDiagonal(0, 1);
  return A.Matrix();
}

HostMatrix Diagonal(const Vector &d)
{
  Rows rows(d.size());
  for (size_t row = 0; row < d.size(); row++) rows[row] = {{(LocalInt)row, d[row]}};
  return FromRows(rows);
}

/* A with one entry changed, which need not be there before, or without one. */
HostMatrix With(const HostMatrix &A, LocalInt row, LocalInt column, double value)
{
  Rows rows(A.n);
  for (LocalInt i = 0; i < A.n; i++)
    for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++)
      if (i != row || A.j[k] != column) rows[i].push_back({A.j[k], A.a[k]});
  rows[row].push_back({column, value});
  return FromRows(rows);
}

HostMatrix Without(const HostMatrix &A, LocalInt row, LocalInt column)
{
  Rows rows(A.n);
  for (LocalInt i = 0; i < A.n; i++)
    for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++)
      if (i != row || A.j[k] != column) rows[i].push_back({A.j[k], A.a[k]});
  return FromRows(rows);
}

/* Random couplings of both signs on about row_length places a row; the row sums are those of the couplings of one sign, and more.
 */
HostMatrix SignedGraph(LocalInt n, LocalInt row_length, double positive, std::uint64_t seed)
{
  Random    random(seed);
  Couplings A(n);
  for (LocalInt p = 1; p < n; p++) {
    std::set<LocalInt> to;
    for (LocalInt e = 0; e < std::min(p, row_length / 2); e++)
      to.insert(p - 1 - (LocalInt)(random.Next() >> 33) % std::min<LocalInt>(p, 50));
    for (LocalInt q : to) {
      const double a = random.Between(0.1, 1) * std::pow(10., random.Between(-1, 1));
      if (random.Between(0, 1) >= positive) A.Add(q, p, -a);
      else {
        A.Add(q, p, a);
        A.AddDiagonal(p, 2 * a);
        A.AddDiagonal(q, 2 * a);
      }
    }
  }
  for (LocalInt p = 0; p < n; p++) A.AddDiagonal(p, 0.01 * random.Between(0, 1) + (n == 1));
  return A.Matrix();
}

/* diag(w) A diag(w), or with `inverse` diag(w)^{-1} A diag(w)^{-1} */
HostMatrix Scaled(HostMatrix A, const Vector &w, bool inverse = false)
{
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const double factor = w[row] * w[A.j[k]];
      A.a[k]              = inverse ? A.a[k] / factor : A.a[k] * factor;
    }
  return A;
}

HostMatrix Times(double factor, HostMatrix A)
{
  for (PetscScalar &a : A.a) a *= factor;
  return A;
}

/* The same nonzeros, with smaller entries beside the diagonal and larger ones on it: dominated by the diagonal as before, and more.
 */
HostMatrix OtherValues(HostMatrix A, std::uint64_t seed)
{
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      Random random(seed + (std::uint64_t)std::min(row, A.j[k]) * 7919 + (std::uint64_t)std::max(row, A.j[k]));
      for (int skip = 0; skip < 3; skip++) random.Next();
      A.a[k] *= A.j[k] == row ? random.Between(1, 1.01) : random.Between(0.4, 1);
    }
  return A;
}

Vector RandomValues(LocalInt n, std::uint64_t seed, double low = -1, double high = 1)
{
  Random random(seed);
  Vector x(n);
  for (double &value : x) value = random.Between(low, high);
  return x;
}

/* A near null space with zeros and with entries of both signs */
Vector AnyNearNull(LocalInt n, std::uint64_t seed)
{
  Vector w = RandomValues(n, seed, 0.5, 2);
  for (LocalInt i = 0; i < n; i++) {
    if (i % 5 == 2) w[i] = -w[i];
    if (i % 17 == 4) w[i] = 0;
  }
  return w;
}

/* The same without zeros */
Vector NonzeroNearNull(LocalInt n, std::uint64_t seed)
{
  Vector w = AnyNearNull(n, seed);
  for (double &entry : w)
    if (entry == 0) entry = 1.25;
  return w;
}

Vector Multiply(const HostMatrix &A, const Vector &x)
{
  Vector y(A.n, 0.);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) y[row] += A.a[k] * x[A.j[k]];
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

bool AllFinite(const Vector &x)
{
  return std::all_of(x.begin(), x.end(), [](double value) { return std::isfinite(value); });
}

/* ------------------------------------------ the twins ----------------------------------------- */

/* A level on the host. Its values are in double, which holds those of both precisions. */
struct HostLevel {
  LocalInt              n, nnz, coarse = 0, width = 0, P_nnz = 0;
  LocalInt              left, largest = 0, singles = 0, joined = 0, cut = 0, plain = 0, wide = 0;
  CMATCHFit             fit;
  std::vector<LocalInt> A_i, A_j, aggregate, P_j, R_i, R_j;
  Vector                A_a, s, d, l, P_a, R_a;

  /* the factor of the smoother, if it has one */
  std::vector<LocalInt> W_i, W_j, Wt_i, Wt_j;
  Vector                W_a, Wt_a, factor_d;
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
    MUST((PetscMemTypeDevice(where_) ? CMATCHComputeHierarchy_CUDA
                                     : CMATCHComputeHierarchy_Host)(&copy.view, (const PetscScalar *)w_copy, &params,
                                                                    (PetscBool)keep, (PetscBool)work, &H_, &stats));
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
    for (LocalInt number = 0; number < H_->levels; number++) {
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
      if (from.factor.d) {
        const CSR &W = from.factor.W, &Wt = from.factor.Wt;
        REQUIRE((W.rows == from.n && W.columns == from.n && Wt.rows == from.n && Wt.nnz == W.nnz && W.where == where_));
        REQUIRE((W.precision == params_.precision && Wt.precision == params_.precision && Wt.where == where_));
        to.W_i      = Integers(W.i, from.n + 1);
        to.W_j      = Integers(W.j, W.nnz);
        to.W_a      = Values(W.a, W.nnz);
        to.Wt_i     = Integers(Wt.i, from.n + 1);
        to.Wt_j     = Integers(Wt.j, Wt.nnz);
        to.Wt_a     = Values(Wt.a, Wt.nnz);
        to.factor_d = Values(from.factor.d, from.n);
      }
      to.fit = from.fit;
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
  std::vector<LocalInt> Integers(const LocalInt *data, size_t size) const
  {
    std::vector<LocalInt> values(size, -77);
    MUST(ArrayCopy(values.data(), data, size * sizeof(LocalInt), PETSC_MEMTYPE_HOST, where_));
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
  LocalInt         n_ = 0;
  CMATCHHierarchy *H_ = nullptr;
};

/*
   Asserts that two hierarchies have the same bits. Which rows are wide is a matter of the twin, and so are the last digits of the
   factors of smoothers.
*/
void CheckSame(const Twin &x, const Twin &y, bool factors = true)
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
    if (x->has_fit && y->has_fit) {
      CHECK(a.fit.loose == b.fit.loose);
      CHECK(a.fit.pieces == b.fit.pieces);
      CHECK(a.fit.left == b.fit.left);
    }
    CHECK((a.aggregate == b.aggregate));
    CHECK((a.P_j == b.P_j));
    CHECK(SameBits(a.P_a, b.P_a));
    CHECK((a.R_i == b.R_i));
    CHECK((a.R_j == b.R_j));
    CHECK(SameBits(a.R_a, b.R_a));
    CHECK(a.factor_d.size() == b.factor_d.size());
    if (!factors || x->where != y->where) continue;
    CHECK((a.W_i == b.W_i));
    CHECK((a.W_j == b.W_j));
    CHECK(SameBits(a.W_a, b.W_a));
    CHECK(SameBits(a.factor_d, b.factor_d));
  }
}

CMATCHParams Precision(FinePCPrecision precision, LocalInt coarse_size = 256)
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
  all.push_back({"one row", Diagonal({3})});
  for (LocalInt n : {0, 2, 31, 32, 33, 1000}) all.push_back({"chain of " + std::to_string(n), Poisson(n)});
  for (LocalInt n : {2, 31, 32, 33, 500}) {
    all.push_back({"random graph of " + std::to_string(n), RandomGraph(n, 7, n)});
    all.push_back({"signed graph of " + std::to_string(n), SignedGraph(n, 8, 0.2, n)});
  }
  all.push_back({"Poisson 2D", Poisson(25, 23)});
  all.push_back({"Poisson 3D", Poisson(8, 7, 9)});
  all.push_back({"checkerboard", Volumes({8, 8, 8}, Checkerboard(1e4, 3))});
  all.push_back({"scattered", Volumes({22, 23, 1}, Scattered(6, 3))});
  all.push_back({"anisotropic", Volumes({24, 25, 1}, One, true, {1, 1e-3, 1})});
  all.push_back({"27 points of both signs", RandomStencil(6, 7, 8, true, 5)});
  all.push_back({"signed graph with long rows", SignedGraph(300, 40, 0.1, 6)});
  all.push_back({"hub", Hub(17, 18)});
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

constexpr FinePCPrecision kPrecisions[] = {FINEPC_SINGLE, FINEPC_DOUBLE};

/* Every option of the set-up, with few rows on the coarsest level so that small matrices have several levels. */
std::vector<NamedParams> SetupVariants()
{
  std::vector<NamedParams> all;
  const auto               add = [&](const std::string &name, const std::function<void(CMATCHParams *)> &set) {
    CMATCHParams params = Precision(FINEPC_SINGLE, 20);
    set(&params);
    all.push_back({name, params});
  };
  add("default", [](CMATCHParams *) { });
  for (LocalInt sweeps : {1, 2, 5}) add(std::to_string(sweeps) + " sweeps", [=](CMATCHParams *params) { params->sweeps = sweeps; });
  for (LocalInt row : {1, 2, 8, 64})
    add(std::to_string(row) + " a row of P", [=](CMATCHParams *params) { params->prolongator_row = row; });
  add("strength 0", [](CMATCHParams *params) { params->strength = 0; });
  add("strength 0.5", [](CMATCHParams *params) { params->strength = 0.5; });
  add("mis2", [](CMATCHParams *params) { params->coarsening = PC_CMATCH_MIS2; });
  add("mis2, strength 0.5, 2 a row of P", [](CMATCHParams *params) {
    params->coarsening      = PC_CMATCH_MIS2;
    params->strength        = 0.5;
    params->prolongator_row = 2;
  });
  add("sfsai", [](CMATCHParams *params) { params->smoother = PC_CMATCH_SFSAI; });
  add("afsai", [](CMATCHParams *params) { params->smoother = PC_CMATCH_AFSAI; });
  add("chebyshev 2", [](CMATCHParams *params) {
    params->smoother = PC_CMATCH_CHEBYSHEV;
    params->degree   = 2;
  });
  add("to 1 row", [](CMATCHParams *params) { params->coarse_size = 1; });
  add("to 256 rows", [](CMATCHParams *params) { params->coarse_size = 256; });
  add("2 levels", [](CMATCHParams *params) { params->max_levels = 2; });
  add("1 level", [](CMATCHParams *params) { params->max_levels = 1; });
  return all;
}

/* Matrices with options of the set-up, in both precisions, without a near null vector and with one. */
struct SetupCase {
  std::string  name;
  HostMatrix   A;
  CMATCHParams params;
  bool         with_w;
};
std::vector<SetupCase> SetupCases()
{
  std::vector<SetupCase> all;
  for (const auto &[m, variant, precision, with_w] : Covering(SmallMatrices(), SetupVariants(), kPrecisions, kBoth)) {
    const char *in = precision == FINEPC_SINGLE ? " in single" : " in double";
    all.push_back({m.name + ", " + variant.name + in + (with_w ? ", with w" : ""), m.A, variant.params, with_w});
    all.back().params.precision = precision;
  }
  return all;
}

/* Every option of the cycle. */
std::vector<NamedParams> CycleVariants(FinePCPrecision precision, LocalInt coarse_size)
{
  std::vector<NamedParams> all;
  for (PCCMATCHSmoother smoother : {PC_CMATCH_L1JACOBI, PC_CMATCH_CHEBYSHEV, PC_CMATCH_CHEBYSHEV4})
    for (LocalInt degree : {1, 2, 3, 4}) {
      const char  *smoothers[] = {"l1jacobi", "chebyshev", "chebyshev4"};
      CMATCHParams params      = Precision(precision, coarse_size);
      params.smoother          = smoother;
      params.degree            = degree;
      all.push_back({std::string(smoothers[smoother]) + " " + std::to_string(degree), params});
    }
  const auto add = [&](const std::string &name, const std::function<void(CMATCHParams *)> &set) {
    CMATCHParams params = Precision(precision, coarse_size);
    set(&params);
    all.push_back({name, params});
  };
  add("pcg", [](CMATCHParams *params) { params->coarse = PC_CMATCH_PCG; });
  add("relaxation 1", [](CMATCHParams *params) { params->relaxation = 1; });
  add("2 levels", [](CMATCHParams *params) { params->max_levels = 2; });
  add("mis2", [](CMATCHParams *params) { params->coarsening = PC_CMATCH_MIS2; });
  for (LocalInt degree : {1, 3}) {
    add("sfsai " + std::to_string(degree), [degree](CMATCHParams *params) {
      params->smoother = PC_CMATCH_SFSAI;
      params->degree   = degree;
    });
    add("afsai " + std::to_string(degree), [degree](CMATCHParams *params) {
      params->smoother = PC_CMATCH_AFSAI;
      params->degree   = degree;
    });
  }
  return all;
}

/* ---------------------------------- a naive matching, and roots ------------------------------- */

/* What the aggregates are made from: an operator in single precision whose diagonal is apart. */
struct Graph {
  std::vector<std::map<LocalInt, float>> a;
  std::vector<float>                     d;

  LocalInt n() const { return (LocalInt)d.size(); }
};

/* The hash of an edge, by which ties are broken. */
std::uint32_t Hash(LocalInt i, LocalInt j)
{
  std::uint32_t h = (std::uint32_t)std::min(i, j) * 0x9E3779B1u ^ (std::uint32_t)std::max(i, j) * 0x85EBCA77u;
  h               = (h ^ h >> 15) * 0x2C1B3C6Du;
  h               = (h ^ h >> 12) * 0x297A2D39u;
  return h ^ h >> 15;
}

struct Aggregates {
  std::vector<LocalInt> of; /* -1: left to the smoother */
  LocalInt              coarse = 0, left = 0, joined = 0;
  bool                  rounds_ran_out = false;
};

std::vector<bool> LeftToSmoother(const Graph &M)
{
  std::vector<bool> left;
  for (LocalInt i = 0; i < M.n(); i++) {
    double sum = 0;
    for (const auto &entry : M.a[i]) sum += std::fabs((double)entry.second);
    left.push_back(!(sum > 0 && sum >= kCMATCHDominated * (double)M.d[i]));
  }
  return left;
}

/* The edges that may be used, with their weights. */
using Edges = std::vector<std::map<LocalInt, float>>;
Edges AllowedEdges(const Graph &M, float strength, const std::vector<bool> &left)
{
  Edges              all(M.n()), allowed(M.n());
  std::vector<float> largest(M.n(), 0.f);
  for (LocalInt i = 0; i < M.n(); i++)
    for (const auto &entry : M.a[i]) {
      const LocalInt j   = entry.first;
      const float    sum = M.d[i] + M.d[j], c = sum > 0 ? -2.0f * entry.second / sum : 0.f;
      if (left[i] || left[j] || !(c > 0)) continue;
      all[i][j]  = c;
      largest[i] = std::max(largest[i], c);
    }
  for (LocalInt i = 0; i < M.n(); i++)
    for (const auto &edge : all[i])
      if (edge.second >= strength * largest[i] && edge.second >= strength * largest[edge.first]) allowed[i].insert(edge);
  return allowed;
}

/*
   The matching takes the edges from the heaviest one on, if both ends are free. Pairs and their rounds are those of the handshake:
   two vertices find each other in the first round in which every heavier edge at one of them has lost an end.
*/
struct Pairs {
  std::vector<LocalInt> mate;
  bool                  rounds_ran_out = false;
};
Pairs GreedyMatching(const Edges &edges)
{
  const int                                                         never = std::numeric_limits<int>::max();
  std::vector<std::tuple<float, std::uint32_t, LocalInt, LocalInt>> sorted;
  const LocalInt                                                    n = (LocalInt)edges.size();
  Pairs                                                             pairs{std::vector<LocalInt>(n, -1)};
  std::vector<int>                                                  round(n, never), ready(n, 0);
  for (LocalInt i = 0; i < n; i++)
    for (const auto &edge : edges[i])
      if (i < edge.first) sorted.push_back({-edge.second, ~Hash(i, edge.first), i, edge.first});
  std::sort(sorted.begin(), sorted.end());
  for (const auto &edge : sorted) {
    const LocalInt i = std::get<2>(edge), j = std::get<3>(edge);
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
  const LocalInt        n        = M->n();
  const bool            small    = n < kCMATCHSmall;
  const float           strength = (float)(small ? std::min(params.strength, kCMATCHSmallStrength) : params.strength);
  std::vector<bool>     left     = LeftToSmoother(*M);
  std::vector<LocalInt> size(n, 1), room(n, 1 << 20);
  Aggregates            result;
  for (LocalInt i = 0; i < n; i++) result.of.push_back(i);
  result.left = (LocalInt)std::count(left.begin(), left.end(), true);
  if (result.left == n) return result;
  for (LocalInt sweep = 0; sweep < params.sweeps; sweep++) {
    const LocalInt vertices = M->n();
    Edges          edges    = AllowedEdges(*M, strength, left);
    for (LocalInt i = 0; i < vertices && sweep == 0 && !small; i++)
      room[i] = std::min(std::max(2 * ((LocalInt)edges[i].size() + 1), kCMATCHLeastRoom), kCMATCHMostRoom);
    for (LocalInt i = 0; i < vertices; i++)
      for (auto edge = edges[i].begin(); edge != edges[i].end();)
        edge = size[i] + size[edge->first] > std::max(room[i], room[edge->first]) ? edges[i].erase(edge) : std::next(edge);
    const Pairs pairs = GreedyMatching(edges);
    result.rounds_ran_out |= pairs.rounds_ran_out;

    /* The members of a pair in the order in which their rows are summed up; single vertices join in rounds. */
    std::map<LocalInt, std::vector<LocalInt>> members; /* by the smaller end of a pair, or a vertex that stays alone */
    std::vector<bool>                         free(vertices);
    std::map<LocalInt, LocalInt>              load;
    for (LocalInt i = 0; i < vertices; i++) {
      free[i] = pairs.mate[i] < 0 && !left[i];
      if (pairs.mate[i] <= i) continue;
      members[i] = {i, pairs.mate[i]};
      load[i]    = size[i] + size[pairs.mate[i]];
    }
    for (LocalInt round = 0; round < kCMATCHJoins; round++) {
      std::map<LocalInt, std::pair<float, LocalInt>> proposals; /* by pair: the largest weight, and minus its vertex */
      for (LocalInt i = 0; i < vertices; i++) {
        std::tuple<float, std::uint32_t, LocalInt> best{0.f, 0u, 0};
        for (const auto &edge : edges[i]) {
          const LocalInt j = edge.first;
          if (!free[i] || pairs.mate[j] < 0) continue;
          if (load[std::min(j, pairs.mate[j])] + size[i] > std::max(room[i], room[j])) continue;
          best = std::max(best, std::make_tuple(edge.second, Hash(i, j), -j));
        }
        if (std::get<0>(best) == 0) continue;
        const LocalInt j     = -std::get<2>(best);
        auto          &there = proposals.insert({std::min(j, pairs.mate[j]), {0.f, 0}}).first->second;
        there                = std::max(there, {std::get<0>(best), -i});
      }
      for (const auto &proposal : proposals) {
        const LocalInt i = -proposal.second.second;
        members[proposal.first].push_back(i);
        load[proposal.first] += size[i];
        free[i] = false;
        result.joined++;
      }
    }
    for (LocalInt i = 0; i < vertices; i++)
      if (free[i]) members[i] = {i};

    /* the next operator */
    std::vector<LocalInt> aggregate(vertices, -1), next_size, next_room;
    LocalInt              number = 0;
    for (const auto &group : members) {
      next_size.push_back(0);
      next_room.push_back(0);
      for (LocalInt i : group.second) {
        aggregate[i] = number;
        next_size.back() += size[i];
        next_room.back() = std::max(next_room.back(), room[i]);
      }
      number++;
    }
    Graph coarse;
    for (const auto &group : members) {
      std::map<LocalInt, double> row;
      double                     diagonal = 0;
      for (LocalInt i : group.second) {
        diagonal += (double)M->d[i];
        for (const auto &entry : M->a[i]) {
          const LocalInt to = aggregate[entry.first];
          if (to == coarse.n()) diagonal += (double)entry.second;
          else if (to >= 0) row[to] += (double)entry.second;
        }
      }
      coarse.a.emplace_back();
      for (const auto &entry : row) coarse.a.back()[entry.first] = (float)entry.second;
      coarse.d.push_back((float)diagonal);
    }
    *M = coarse;
    for (LocalInt &to : result.of)
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
  const LocalInt          n        = M.n();
  const float             strength = (float)(n < kCMATCHSmall ? std::min(params.strength, kCMATCHSmallStrength) : params.strength);
  const std::vector<bool> left     = LeftToSmoother(M);
  const Edges             edges    = AllowedEdges(M, strength, left);
  std::vector<std::pair<std::uint32_t, LocalInt>> order;
  std::set<LocalInt>                              roots;
  std::vector<LocalInt>                           root(n, -1);
  Aggregates                                      result;
  for (LocalInt i = 0; i < n; i++)
    if (!left[i]) order.push_back({Hash(i, i + 7), i});
  std::sort(order.begin(), order.end());
  for (const auto &next : order) {
    const LocalInt i    = next.second;
    bool           near = false;
    for (const auto &one : edges[i]) {
      near |= roots.count(one.first) > 0;
      for (const auto &two : edges[one.first]) near |= roots.count(two.first) > 0;
    }
    if (!near) roots.insert(i);
  }
  for (LocalInt i : roots) {
    root[i] = i;
    for (const auto &edge : edges[i]) root[edge.first] = i;
  }
  for (int pass = 0; pass < 2; pass++) {
    const std::vector<LocalInt> before = root;
    for (LocalInt i = 0; i < n; i++) {
      std::tuple<float, std::uint32_t, LocalInt> best{0.f, 0u, 0};
      for (const auto &edge : edges[i])
        if (before[i] < 0 && before[edge.first] >= 0)
          best = std::max(best, std::make_tuple(edge.second, Hash(i, edge.first), -edge.first));
      if (std::get<0>(best) == 0) continue;
      root[i] = before[-std::get<2>(best)];
      result.joined++;
    }
  }
  std::map<LocalInt, LocalInt> number;
  for (LocalInt i = 0; i < n; i++) {
    if (!left[i] && root[i] < 0) root[i] = i;
    if (root[i] == i) number[i] = result.coarse++;
  }
  for (LocalInt i = 0; i < n; i++) result.of.push_back(left[i] ? -1 : number.at(root[i]));
  result.left = (LocalInt)std::count(left.begin(), left.end(), true);
  return result;
}

/* W A W scaled as on the finest level, entry by entry. */
double FinestValue(const HostMatrix &A, LocalInt row, LocalInt k, double scale, const Vector &w)
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
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const float value = (float)FinestValue(A, row, k, twin->scale, w);
      if (A.j[k] == row) M.d[row] = value;
      else M.a[row][A.j[k]] = value;
    }
  for (size_t l = 0; l < levels.size(); l++) {
    const HostLevel &level = levels[l];
    CAPTURE(l, level.n);
    const bool ends = l + 1 == levels.size();
    if (level.n <= params.coarse_size || (LocalInt)l + 1 == params.max_levels) {
      CHECK(ends);
      CHECK(twin.stats.end == (level.n <= params.coarse_size ? CMATCH_END_SIZE : CMATCH_END_LEVELS));
      continue;
    }
    const bool few = params.coarse == PC_CMATCH_DENSE && level.n <= std::min<LocalInt>(4 * params.coarse_size, 2048);
    if (l > 0 && few && level.n > 2. * levels[l - 1].n / std::pow(2., (double)params.sweeps)) {
      CHECK(ends);
      CHECK(twin.stats.end == CMATCH_END_SLOW);
      continue;
    }
    if (params.coarsening == PC_CMATCH_MIS2) {
      M = Graph();
      for (LocalInt row = 0; row < level.n; row++) {
        M.a.emplace_back();
        for (LocalInt k = level.A_i[row]; k < level.A_i[row + 1]; k++) M.a.back()[level.A_j[k]] = (float)level.A_a[k];
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
    std::map<LocalInt, LocalInt> sizes;
    for (LocalInt aggregate : expected.of)
      if (aggregate >= 0) sizes[aggregate]++;
    LocalInt largest = 0, singles = 0;
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
std::vector<std::pair<LocalInt, double>> OperatorRow(const HostLevel &L, LocalInt i)
{
  std::vector<std::pair<LocalInt, double>> row{{i, L.d[i]}};
  for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) row.push_back({L.A_j[k], L.A_a[k]});
  return row;
}

std::vector<std::pair<LocalInt, double>> ProlongatorRow(const HostLevel &L, LocalInt i)
{
  std::vector<std::pair<LocalInt, double>> row;
  for (size_t e = (size_t)i * L.width; e < (size_t)(i + 1) * L.width && L.P_j[e] >= 0; e++) row.push_back({L.P_j[e], L.P_a[e]});
  return row;
}

/* Rows are in order, columns ascend and are no diagonal ones, P is filled up by -1 and 0, and R is its transpose. */
void CheckStructure(const HostLevel &L, bool last)
{
  bool good = L.A_i[0] == 0 && L.A_i[L.n] == L.nnz;
  for (LocalInt i = 0; i < L.n; i++)
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++)
      good = good && L.A_j[k] >= 0 && L.A_j[k] < L.n && L.A_j[k] != i && (k == L.A_i[i] || L.A_j[k - 1] < L.A_j[k]);
  CHECK(good);
  CHECK(AllFinite(L.A_a));
  CHECK(AllFinite(L.s));
  CHECK(std::all_of(L.d.begin(), L.d.end(), [](double d) { return d > 0 && std::isfinite(d); }));
  CHECK(std::all_of(L.l.begin(), L.l.end(), [](double l) { return l > 0 && std::isfinite(l); }));
  if (last) return;
  std::vector<std::vector<std::pair<LocalInt, double>>> columns(L.coarse);
  LocalInt                                              entries = 0;
  for (LocalInt i = 0; i < L.n; i++) {
    bool ended = false;
    for (LocalInt e = 0; e < L.width; e++) {
      const LocalInt column = L.P_j[(size_t)i * L.width + e];
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
  for (LocalInt c = 0; c < L.coarse && good; c++) {
    good = good && L.R_i[c + 1] - L.R_i[c] == (LocalInt)columns[c].size();
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
  LocalInt              to   = 0;
  bool                  good = L.n == A.n && L.nnz == A.nnz() - A.n;
  int                   exponent;
  for (double &entry : w)
    if (entry == 0) entry = 1;
  REQUIRE(good);
  for (LocalInt row = 0; row < A.n; row++) {
    long double sum  = 0;
    double      size = 0;
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
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
    of_s =
      std::max(of_s, (double)std::fabs(L.s[row] - sum) / (u * (double)std::fabs(sum) + 1e-15 * (A.i[row + 1] - A.i[row]) * size));
  }
  CHECK(good);
  CHECK(of_s <= 1);
  if (A.n == 0) return;
  CHECK(largest >= std::ldexp(0.5, kCMATCHExponent));
  CHECK(largest < std::ldexp(1., kCMATCHExponent));
  CHECK(std::frexp(twin->scale, &exponent) == 0.5);
}

/*
   d and l are what s and the entries make them, up to the rounding of s to the precision. Where there is nothing beside d, l is
   1 / d times the root of the polynomial.
*/
void CheckDiagonal(const HostLevel &L, FinePCPrecision precision, double root)
{
  const double u    = Unit(precision);
  double       of_d = 0, of_l = 0;
  for (LocalInt i = 0; i < L.n; i++) {
    long double d = L.s[i], l1 = L.d[i];
    double      size = 0;
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
      d -= L.A_a[k];
      l1 += std::fabs(L.A_a[k]);
      size += std::fabs(L.A_a[k]);
    }
    of_d = std::max(of_d, (double)std::fabs(L.d[i] - d) / (u * (L.d[i] + std::fabs(L.s[i])) + 1e-14 * size));
    of_l = std::max(of_l, (double)std::fabs(L.l[i] * l1 / (size < 1e-17 * L.d[i] ? root : 1) - 1) / (u + 1e-14));
  }
  CHECK(of_d <= 1.01);
  CHECK(of_l <= 1.01);
}

/*
   A row of P by the formulas. With `stored` these columns are there already, from a matrix with other values. `sum` is what the
   Jacobi step makes of the ones, 1 - q S.
*/
struct ProlongatorReference {
  std::map<LocalInt, double> p;
  bool                       cut = false, plain = false;
  double                     sum = 1, size = 0; /* size: the entries before the cut, by magnitude */
};
ProlongatorReference ReferenceRow(const HostLevel &L, LocalInt i, const CMATCHParams &params, const std::set<LocalInt> *stored)
{
  ProlongatorReference row;
  const LocalInt       own = L.aggregate[i];
  if (own < 0) return row;
  std::map<LocalInt, double> v, kept;
  double                     strongest = 0, dropped = 0;
  for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) strongest = std::max(strongest, -L.A_a[k]);
  const double least = Stored(params.precision, Stored(params.precision, kCMATCHFilter) * strongest);
  for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
    if (strongest == 0 || -L.A_a[k] >= least) kept[L.A_j[k]] = L.A_a[k];
    else dropped += L.A_a[k];
  }
  const double d  = L.d[i] + dropped > kCMATCHLeastDiagonal * L.d[i] ? L.d[i] + dropped : L.d[i];
  double       l1 = std::fabs(d), S = d;
  for (const auto &entry : kept) l1 += std::fabs(entry.second);
  const double D = std::max(d, l1 / 2), q = D > 0 ? kCMATCHOmega / D : kCMATCHOmega;
  v[own] = 1 - q * d;
  for (const auto &entry : kept) {
    const LocalInt to = L.aggregate[entry.first];
    if (to < 0) continue;
    v[to] -= q * entry.second;
    S += entry.second;
  }
  row.sum = 1 - q * S;
  for (const auto &entry : v) row.size += std::fabs(entry.second);

  std::vector<std::tuple<double, std::uint32_t, LocalInt>> order; /* the largest ones come first */
  std::set<LocalInt>                                       take;
  for (const auto &entry : v) {
    if (entry.second == 0) continue;
    if (stored) row.cut |= stored->count(entry.first) == 0;
    else order.push_back({-std::fabs(entry.second), ~Hash(i, entry.first), entry.first});
  }
  if (stored) take = *stored;
  else {
    row.cut = (LocalInt)order.size() > params.prolongator_row;
    std::sort(order.begin(), order.end());
    for (size_t e = 0; e < order.size() && (LocalInt)e < params.prolongator_row; e++) take.insert(std::get<2>(order[e]));
  }
  double of_taken = 0;
  for (LocalInt column : take) {
    row.p[column] = v.count(column) ? v[column] : 0;
    of_taken += row.p[column];
  }
  row.plain = take.empty();
  if (row.cut) {
    const double factor = row.sum / of_taken;
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
  LocalInt cut = 0, plain = 0;
  bool     same_pattern = true;
  CHECK(L.width == params.prolongator_row);
  for (LocalInt i = 0; i < L.n; i++) {
    const auto         row = ProlongatorRow(L, i);
    std::set<LocalInt> columns;
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
    if (!expected.plain && !row.empty()) of_sums = std::max(of_sums, std::fabs(sum - expected.sum) / (u * size + slack));
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
  const LocalInt n = L.n, coarse = L.coarse;
  const double   u = Unit(params.precision), double_error = 1e-14, least = params.precision == FINEPC_SINGLE ? 1e-44 : 0;
  REQUIRE(C.n == coarse);
  std::vector<long double> product((size_t)coarse * coarse, 0);
  std::vector<bool>        stored((size_t)coarse * coarse, false);
  Vector                   size((size_t)coarse * coarse, 0.), p(n, 0.), p_size(n, 0.);
  for (LocalInt i = 0; i < n; i++)
    for (const auto &entry : ProlongatorRow(L, i)) {
      p[i] += entry.second;
      p_size[i] += std::fabs(entry.second);
    }
  std::vector<long double> sums(coarse, 0);
  Vector                   sums_size(coarse, 0.);
  for (LocalInt i = 0; i < n; i++) {
    std::map<LocalInt, long double> AP;
    std::map<LocalInt, double>      AP_size;
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
      for (const auto &entry : AP) product[(size_t)of_R.first * coarse + entry.first] += of_R.second * entry.second;
      for (const auto &entry : AP_size) {
        size[(size_t)of_R.first * coarse + entry.first] += std::fabs(of_R.second) * entry.second;
        stored[(size_t)of_R.first * coarse + entry.first] = true;
      }
      sums[of_R.first] += of_R.second * y;
      sums_size[of_R.first] += std::fabs(of_R.second) * (y_size + double_error * std::fabs((double)y));
    }
  }
  double of_entries = 0, of_sums = 0, of_diagonal = 0;
  bool   only_there = true;
  for (LocalInt row = 0; row < coarse; row++) {
    /* An aggregate that is in no row of P, or, with patterns that are kept, only with zeros, has the equation x = b. */
    if (std::all_of(L.R_a.data() + L.R_i[row], L.R_a.data() + L.R_i[row + 1], [](double value) { return value == 0; })) {
      CHECK(C.s[row] == 1);
      CHECK(C.d[row] == 1);
      CHECK(std::all_of(C.A_a.data() + C.A_i[row], C.A_a.data() + C.A_i[row + 1], [](double value) { return value == 0; }));
      continue;
    }
    Vector difference(coarse, 0.);
    for (LocalInt column = 0; column < coarse; column++) difference[column] = (double)product[(size_t)row * coarse + column];
    for (LocalInt k = C.A_i[row]; k < C.A_i[row + 1]; k++) {
      difference[C.A_j[k]] -= C.A_a[k];
      only_there = only_there && stored[(size_t)row * coarse + C.A_j[k]];
    }
    double whole = 0;
    for (LocalInt column = 0; column < coarse; column++) {
      const double of_column = size[(size_t)row * coarse + column];
      whole += of_column;
      if (column == row) continue;
      if (of_column == 0) only_there = only_there && difference[column] == 0;
      else of_entries = std::max(of_entries, std::fabs(difference[column]) / ((2.01 * u + double_error) * of_column + least));
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

/*
   Asserts that the factor of a smoother, G^T G with G = diag(d)^{1/2} (I + W), is what it should be: its inverses of the diagonal
   are those of (I + W) A (I + W)^T but for one factor omega, Wt is the transpose of W, and with sfsai (I + W) A is 0 in the pattern
   of W, which is the lower triangle of A. Rows with nothing beside their diagonal entry are solved exactly.
*/
void CheckFactor(const HostLevel &L, const CMATCHParams &params, bool last)
{
  const bool has = !last && (params.smoother == PC_CMATCH_SFSAI || params.smoother == PC_CMATCH_AFSAI);
  CHECK(L.factor_d.empty() == (!has || L.n == 0));
  if (L.factor_d.empty()) return;
  const double u = Unit(FINEPC_SINGLE), root = CMATCHSmootherSteps(params).root; /* The set-up is in single. */
  std::vector<std::map<LocalInt, double>> A(L.n), G(L.n), Gt(L.n);
  double                                  omega = 0, of_d = 0, of_equations = 0, of_alone = 0;
  bool                                    pattern = true, transposed = true;
  for (LocalInt i = 0; i < L.n; i++) {
    for (const auto &entry : OperatorRow(L, i)) A[i][entry.first] = entry.second;
    for (LocalInt k = L.W_i[i]; k < L.W_i[i + 1]; k++) {
      G[i][L.W_j[k]] = L.W_a[k];
      pattern        = pattern && L.W_j[k] < i && (params.smoother == PC_CMATCH_AFSAI || A[i].count(L.W_j[k]));
    }
    for (LocalInt k = L.Wt_i[i]; k < L.Wt_i[i + 1]; k++) Gt[i][L.Wt_j[k]] = L.Wt_a[k];
    LocalInt lower = 0;
    for (const auto &entry : A[i]) lower += entry.first < i;
    pattern = pattern && (params.smoother == PC_CMATCH_AFSAI || (LocalInt)G[i].size() == lower);
  }
  for (LocalInt i = 0; i < L.n; i++) {
    for (const auto &entry : G[i]) transposed = transposed && Gt[entry.first].count(i) && Gt[entry.first][i] == entry.second;
    if (A[i].size() == 1) {
      of_alone = std::max(of_alone, std::fabs(L.factor_d[i] * L.d[i] / root - 1));
      continue;
    }
    std::map<LocalInt, double> GA, size; /* (I + W) A, and the magnitudes of its terms */
    G[i][i] = 1;
    for (const auto &entry : G[i])
      for (const auto &of_A : A[entry.first]) {
        GA[of_A.first] += entry.second * of_A.second;
        size[of_A.first] += std::fabs(entry.second * of_A.second);
      }
    double psi = 0, psi_size = 0;
    for (const auto &entry : G[i]) {
      psi += entry.second * GA[entry.first];
      psi_size += std::fabs(entry.second) * size[entry.first];
      if (entry.first != i && params.smoother == PC_CMATCH_SFSAI)
        of_equations = std::max(of_equations, std::fabs(GA[entry.first]) / (u * size[entry.first]));
    }
    if (omega == 0) omega = L.factor_d[i] * psi;
    of_d = std::max(of_d, std::fabs(L.factor_d[i] * psi / omega - 1) / (u * psi_size / psi));
  }
  CHECK(pattern);
  CHECK(transposed);
  CHECK(of_alone <= 2 * u);
  /* What was computed in single precision is kept if its pivots are large enough. */
  CHECK(of_equations <= 1 / kFSAISmallestPivotSingle);
  CHECK(of_d <= 1 / kFSAISmallestPivotSingle);
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
    const bool polynomial = l + 1 == levels.size() && twin.stats.end != CMATCH_END_DOMINATED &&
                            twin.params().coarse == PC_CMATCH_DENSE && !twin->inverted;
    CheckDiagonal(levels[l], twin.params().precision,
                  polynomial ? PolynomialChebyshev(kCMATCHStalledDegree).root : CMATCHSmootherSteps(twin.params()).root);
    CheckFactor(levels[l], twin.params(), l + 1 == levels.size() && twin.stats.end != CMATCH_END_DOMINATED);
    if (l + 1 == levels.size()) continue;
    CheckProlongator(levels[l], twin.params(), keep);
    CheckGalerkin(levels[l], levels[l + 1], twin.params());
  }
}

/* ------------------------------------------- cycles ------------------------------------------- */

/* A dense matrix by rows. */
struct Dense {
  LocalInt rows = 0, columns = 0;
  Vector   a;

  Dense() = default;
  Dense(LocalInt m, LocalInt n) : rows(m), columns(n), a((size_t)m * n, 0.) { }
  double &operator()(LocalInt i, LocalInt j) { return a[(size_t)i * columns + j]; }
  double  operator()(LocalInt i, LocalInt j) const { return a[(size_t)i * columns + j]; }
};

Vector operator*(const Dense &A, const Vector &x)
{
  Vector y(A.rows, 0.);
  for (LocalInt i = 0; i < A.rows; i++)
    for (LocalInt j = 0; j < A.columns; j++) y[i] += A(i, j) * x[j];
  return y;
}

Dense operator*(const Dense &A, const Dense &B)
{
  Dense C(A.rows, B.columns);
  for (LocalInt i = 0; i < A.rows; i++)
    for (LocalInt k = 0; k < A.columns; k++)
      for (LocalInt j = 0; j < B.columns && A(i, k) != 0; j++) C(i, j) += A(i, k) * B(k, j);
  return C;
}

Dense Transposed(const Dense &A)
{
  Dense B(A.columns, A.rows);
  for (LocalInt i = 0; i < A.rows; i++)
    for (LocalInt j = 0; j < A.columns; j++) B(j, i) = A(i, j);
  return B;
}

Dense ToDense(const HostMatrix &A)
{
  Dense B(A.n, A.n);
  for (LocalInt row = 0; row < A.n; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) B(row, A.j[k]) = A.a[k];
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
  for (LocalInt i = 0; i < A.rows; i++)
    for (LocalInt j = 0; j < A.rows; j++) eigen.vectors(i, j) = (A(i, j) + A(j, i)) / 2;
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
  for (LocalInt i = 0; i < A.rows; i++)
    for (LocalInt k = 0; k < A.rows; k++) left(i, k) *= f(eigen.values[k]);
  return left * eigen.vectors;
}

/* T_k(x) */
double ChebyshevT(LocalInt k, double x)
{
  if (std::fabs(x) <= 1) return std::cos(k * std::acos(x));
  return (x < 0 && k % 2 ? -1 : 1) * std::cosh(k * std::acosh(std::fabs(x)));
}

/* The polynomial p of a smoother, whose errors are p(M^{-1} A) times those before, by what it is made for. */
double ErrorPolynomial(const CMATCHParams &params, double x)
{
  const LocalInt k = params.degree;
  if (params.smoother == PC_CMATCH_L1JACOBI) return std::pow(1 - params.relaxation * x, k);
  if (params.smoother != PC_CMATCH_CHEBYSHEV4) { /* the factored smoothers have it, too */
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
  for (LocalInt i = 1; i < steps.degree; i++) {
    r -= x * z;
    z = steps.e[i] * z + steps.c[i] * r;
    sum += steps.beta[i] * z;
  }
  return 1 - x * sum;
}

/* S of x + S (b - A x), dense, for a smoother with M^{-1} = G^T G and the error polynomial p */
Dense DenseSmoother(const Dense &A, const Dense &G, const std::function<double(double)> &p)
{
  return Transposed(G) * (FunctionOf(G * (A * Transposed(G)),
                                     [&](double x) {
                                       const double at = std::fabs(x) > 1e-7 ? x : 1e-7; /* The limit at 0 is -p'(0). */
                                       return (1 - p(at)) / at;
                                     }) *
                          G);
}

/* G of M^{-1} = G^T G, from the factor of a level or from l */
Dense DenseRoot(const HostLevel &L)
{
  Dense G(L.n, L.n);
  for (LocalInt i = 0; i < L.n; i++) {
    const double root = std::sqrt(L.factor_d.empty() ? L.l[i] : L.factor_d[i]);
    G(i, i)           = root;
    for (LocalInt k = L.W_i.empty() ? 0 : L.W_i[i]; k < (L.W_i.empty() ? 0 : L.W_i[i + 1]); k++) G(i, L.W_j[k]) = root * L.W_a[k];
  }
  return G;
}

Dense DenseOperator(const HostLevel &L)
{
  Dense A(L.n, L.n);
  for (LocalInt i = 0; i < L.n; i++) {
    A(i, i) = L.s[i];
    for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) {
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
      for (LocalInt i = 0; i < L.n && L.coarse; i++)
        for (const auto &entry : ProlongatorRow(L, i)) P(i, entry.first) = entry.second;
      A.push_back(DenseOperator(L));
      S.push_back(DenseSmoother(A.back(), DenseRoot(L), p));
      P_.push_back(P);
      R_.push_back(Transposed(P));
    }
    const HostLevel &L    = levels.back();
    double           mean = 0;
    for (LocalInt i = 0; i < L.n; i++) mean += A.back()(i, i) / L.n;
    CMATCHParams polynomial = params_;
    polynomial.smoother     = PC_CMATCH_CHEBYSHEV;
    polynomial.degree       = kCMATCHStalledDegree;
    if (twin.stats.end == CMATCH_END_DOMINATED) {
      const Dense again = S.back() * (A.back() * S.back());
      last_             = S.back();
      for (size_t k = 0; k < last_.a.size(); k++) last_.a[k] += S.back().a[k] - again.a[k];
    } else if (params_.coarse == PC_CMATCH_DENSE && L.n > kCMATCHLargestDense) {
      last_ = DenseSmoother(A.back(), DenseRoot(L), [&](double x) { return ErrorPolynomial(polynomial, x); });
    } else if (params_.singular) { /* without the eigenvector that belongs to the eigenvalue of 0 */
      last_ = FunctionOf(A.back(), [mean](double x) { return std::fabs(x) > 1e-5 * mean ? 1 / x : 0; });
    } else last_ = FunctionOf(A.back(), [](double x) { return 1 / x; });
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
  Vector Visit(size_t l, const Vector &b) const
  {
    if (l + 1 == A.size()) return last_ * b;
    Vector x = S[l] * b;
    x        = x + P_[l] * Visit(l + 1, R_[l] * (b - A[l] * x));
    return x + S[l] * (b - A[l] * x);
  }

  CMATCHParams       params_;
  Vector             w_;
  double             scale_;
  std::vector<Dense> P_, R_;
  Dense              last_; /* what solves on the last level */
};

/* M^{-1}, one column after the other */
Dense DenseInverse(Twin *twin, LocalInt n)
{
  Dense M(n, n);
  for (LocalInt j = 0; j < n; j++) {
    Vector unit(n, 0.);
    unit[j]        = 1;
    const Vector z = twin->Apply(unit);
    for (LocalInt i = 0; i < n; i++) M(i, j) = z[i];
  }
  return M;
}

/*
   Flexible conjugate gradients for A x = b from x = 0 until the true residual is 1e-8 of b. M^{-1} need not be symmetric to the
   last digit, or even linear.
*/
struct Solution {
  LocalInt iterations;
  double   residual;
};
Solution Solve(const HostMatrix &A, const Vector &b, Twin *twin, LocalInt most = 200)
{
  Vector x(b.size(), 0.), r = b, p, q;
  double pq = 1;
  for (LocalInt iteration = 0;; iteration++) {
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
  for (LocalInt l = 0; l < twin->levels; l++) entries += (double)(twin->level[l].n + twin->level[l].nnz);
  return entries / (double)(twin->level[0].n + twin->level[0].nnz);
}

} // namespace

/* ----------------------------------------- polynomials ---------------------------------------- */

TEST_CASE("cmatch: the lower end a* of the Chebyshev polynomials", "[cmatch]")
{
  CHECK(PolynomialLowerEnd(1) == Approx(1. / 3).epsilon(1e-14));
  const double digits[] = {0.33333, 0.18054, 0.11593, 0.08208}; /* D'Ambra, Durastante, Filippone, Massei, Thomas (2024) */
  for (LocalInt k = 1; k <= 4; k++) CHECK(std::fabs(PolynomialLowerEnd(k) - digits[k - 1]) <= 5e-6);
  for (LocalInt k = 1; k <= kMostDegree; k++) {
    const double a = PolynomialLowerEnd(k), theta = std::acosh((1 + a) / (1 - a));
    CAPTURE(k, a);
    CHECK(std::sqrt(a) * std::sinh(2 * k * theta) == Approx(4. * k).epsilon(1e-10));
    if (k > 1) CHECK(a < PolynomialLowerEnd(k - 1));
  }
}

/* The bound of the V-cycle with a smoother of error polynomial p is 1 / (1 + 1 / g), g = max of x p^2 / (1 - p^2) over (0, 1]. */
static double VCycleBound(const std::function<double(double)> &p)
{
  double largest = 0;
  for (int step = 1; step <= 100000; step++) {
    const double x = step * 1e-5, squared = p(x) * p(x);
    largest = std::max(largest, x * squared / (1 - squared));
  }
  return largest;
}

TEST_CASE("cmatch: the Chebyshev smoother has the polynomial of [a*, 1], which is the best one of its kind", "[cmatch]")
{
  for (LocalInt k = 1; k <= kMostDegree; k++) {
    const PolynomialSteps steps = PolynomialChebyshev(k);
    CAPTURE(k);
    REQUIRE(steps.degree == k);
    const auto on = [k](double a) {
      return [=](double x) { return ChebyshevT(k, (1 + a - 2 * x) / (1 - a)) / ChebyshevT(k, (1 + a) / (1 - a)); };
    };
    const double a     = PolynomialLowerEnd(k);
    double       worst = 0;
    for (int step = 0; step <= 1000; step++) {
      const double x = step / 1000.;
      worst          = std::max(worst, std::fabs(ErrorPolynomial(steps, x) - on(a)(x)));
    }
    CHECK(worst <= 1e-12);
    if (k > 6) continue;
    const double least = VCycleBound(on(a));
    CHECK(least < VCycleBound(on(a * 0.98)));
    CHECK(least < VCycleBound(on(a * 1.02)));
  }
}

TEST_CASE("cmatch: the smoother of the fourth kind is the best polynomial of its degree", "[cmatch]")
{
  /* Lottes (2023), table of the coefficients beta */
  const std::vector<Vector> betas = {{1.125},
                                     {1.02387287570313, 1.26408905371085},
                                     {1.00842544782028, 1.08867839208730, 1.33753125909618},
                                     {1.00391310427285, 1.04035811188593, 1.14863498546254, 1.38268869241000}};
  for (LocalInt k = 1; k <= kMostDegree; k++) {
    const PolynomialSteps steps = PolynomialChebyshev4(k), first_kind = PolynomialChebyshev(k);
    CAPTURE(k);
    REQUIRE(steps.degree == k);
    for (LocalInt i = 0; i < k && k <= 4; i++) CHECK(std::fabs(steps.beta[i] - betas[k - 1][i]) <= 1e-13);
    /*
       x p^2 / (1 - p^2) has the same value g in k + 1 places, of which one is the limit at 0. A polynomial with p(0) = 1 and a
       smaller maximum would cross p once more than its degree allows.
    */
    const auto at = [&](double x) {
      return x * std::pow(ErrorPolynomial(steps, x), 2) / (1 - std::pow(ErrorPolynomial(steps, x), 2));
    };
    const auto   cosine = [](int step) { return (1 - std::cos(PETSC_PI * step / 40000)) / 2; };
    const double g = at(1e-9), of_first_kind = VCycleBound([&](double x) { return ErrorPolynomial(first_kind, x); });
    LocalInt     maxima = 1;
    double       worst  = 0;
    for (int step = 100; step <= 40000; step++) {
      const double here = at(cosine(step));
      if (here < at(cosine(step - 1)) || (step < 40000 && here < at(cosine(step + 1)))) continue;
      maxima++;
      worst = std::max(worst, std::fabs(here / g - 1));
    }
    CHECK(maxima == k + 1);
    CHECK(worst <= 1e-6);
    CHECK(VCycleBound([&](double x) { return ErrorPolynomial(steps, x); }) <= g * (1 + 1e-6));
    CHECK(g < of_first_kind * (1 + 1e-6));
    CMATCHParams params;
    params.smoother = PC_CMATCH_CHEBYSHEV4;
    params.degree   = k;
    for (int step = 0; step <= 100; step++)
      CHECK(std::fabs(ErrorPolynomial(steps, step / 100.) - ErrorPolynomial(params, step / 100.)) <= 1e-11);
  }
}

TEST_CASE("cmatch: l1-Jacobi is the power of a step", "[cmatch]")
{
  for (LocalInt k = 1; k <= kMostDegree; k++)
    for (double relaxation : {0.5, 1., 1.5}) {
      const PolynomialSteps steps = PolynomialRichardson(k, relaxation);
      CAPTURE(k, relaxation);
      REQUIRE(steps.degree == k);
      for (int step = 0; step <= 100; step++)
        CHECK(std::fabs(ErrorPolynomial(steps, step / 100.) - std::pow(1 - relaxation * step / 100, k)) <= 1e-13);
    }
  /* Of degree 1, with the default relaxation, it is the Chebyshev smoother. */
  const PolynomialSteps chebyshev = PolynomialChebyshev(1), jacobi = PolynomialRichardson(1, CMATCHParams().relaxation);
  CHECK(chebyshev.c[0] * chebyshev.beta[0] == Approx(jacobi.c[0] * jacobi.beta[0]).epsilon(1e-14));
}

/* An equation of its own, d x = b, is solved by root / d in the place of M^{-1}. */
TEST_CASE("cmatch: the root of a polynomial is the smallest one", "[cmatch]")
{
  for (LocalInt k = 1; k <= kMostDegree; k++)
    for (const PolynomialSteps &steps :
         {PolynomialRichardson(k, 1.5), PolynomialRichardson(k, 0.5), PolynomialChebyshev(k), PolynomialChebyshev4(k)}) {
      CAPTURE(k, steps.root);
      CHECK(std::fabs(ErrorPolynomial(steps, steps.root)) <= 1e-13);
      for (int step = 0; step < 1000; step++) REQUIRE(ErrorPolynomial(steps, steps.root * step / 1000) > -1e-14);
    }
}

/* Conjugate gradients with a random diagonal preconditioner, against the eigenvalues of the dense matrix. */
TEST_CASE("cmatch: the largest Ritz value", "[cmatch]")
{
  for (std::uint64_t seed : {1, 2, 3})
    for (bool singular : {false, true}) {
      CAPTURE(seed, singular);
      const HostMatrix A = Volumes({5, 6, 1}, Scattered(2, seed), !singular);
      const LocalInt   n = A.n;
      const Vector     m = RandomValues(n, seed + 3, 0.1, 1);
      Vector           root(n), x = RandomValues(n, seed + 6), r = Multiply(A, x), p(n, 0.), rz, pq;
      for (LocalInt i = 0; i < n; i++) root[i] = std::sqrt(m[i]);
      const double largest = Decompose(ToDense(Scaled(A, root))).values.back();
      for (LocalInt step = 0; step <= n; step++) {
        Vector z = r;
        for (LocalInt i = 0; i < n; i++) z[i] *= m[i];
        rz.push_back(Dot(r, z));
        if (step == n) break;
        p              = z + (step ? rz[step] / rz[step - 1] : 0) * p;
        const Vector q = Multiply(A, p);
        pq.push_back(Dot(p, q));
        r = r - (rz[step] / pq[step]) * q;
      }
      double before = 0;
      for (LocalInt steps = 0; steps <= n; steps++) {
        const double value = LargestRitzValue(steps, rz.data(), pq.data());
        CHECK(value >= before * (1 - 1e-13));
        CHECK(value <= largest * (1 + 1e-12));
        before = value;
      }
      CHECK(LargestRitzValue(0, rz.data(), pq.data()) == 0);
      CHECK(LargestRitzValue(1, rz.data(), pq.data()) == Approx(pq[0] / rz[0]).epsilon(1e-12));
      CHECK(LargestRitzValue(n, rz.data(), pq.data()) == Approx(largest).epsilon(1e-10));
      rz[4] = 0; /* What comes behind is nothing. */
      CHECK(LargestRitzValue(n, rz.data(), pq.data()) == LargestRitzValue(4, rz.data(), pq.data()));
    }
}

/* ------------------------------------------ aggregates ---------------------------------------- */

TEST_CASE("cmatch: aggregates are those of a naive matching", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (const SetupCase &c : SetupCases()) {
      if (c.params.prolongator_row != 4) continue; /* This does not change the aggregates. */
      CAPTURE(backend.name, c.name);
      const Vector w = c.with_w ? AnyNearNull(c.A.n, 11) : Vector();
      const Twin   twin(c.A, c.params, backend.where, w);
      REQUIRE(twin.stats.failure == CMATCH_OK);
      CheckAggregates(c.A, twin, w);
    }
}

TEST_CASE("cmatch: aggregates of large levels have a size limit and the whole threshold", "[cmatch]")
{
  const std::vector<NamedMatrix> matrices = {{"anisotropic", Volumes({100, 90, 1}, One, true, {1, 1e-3, 1})},
                                             {"checkerboard", Volumes({21, 22, 23}, Checkerboard(1e4, 4))},
                                             {"scattered", Volumes({110, 80, 1}, Scattered(4, 4))},
                                             {"chain of pairs", ChainOfPairs(8200)},
                                             {"signed graph", SignedGraph(8500, 9, 0.15, 12)}};
  for (const Backend &backend : Backends())
    for (const NamedMatrix &m : matrices)
      for (LocalInt sweeps : {1, 3, 5})
        for (PCCMATCHCoarsening coarsening : {PC_CMATCH_MATCHING, PC_CMATCH_MIS2}) {
          if (coarsening == PC_CMATCH_MIS2 && sweeps != 3) continue;
          CAPTURE(backend.name, m.name, sweeps, coarsening);
          CMATCHParams params = Precision(FINEPC_SINGLE);
          params.sweeps       = sweeps;
          params.coarsening   = coarsening;
          const Twin twin(m.A, params, backend.where);
          REQUIRE(twin.stats.failure == CMATCH_OK);
          CheckAggregates(m.A, twin, {});
          if (coarsening == PC_CMATCH_MATCHING) CHECK(twin->level[0].largest <= kCMATCHMostRoom);
        }
}

/* What a matching is, without saying how it is found: no two vertices that stay alone have an edge that could join them. */
TEST_CASE("cmatch: the matching is maximal, and pairs are made along edges that may be used", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (const NamedMatrix &m : SmallMatrices()) {
      if (m.name == "growing chain") continue; /* There the rounds end before the matching is complete. */
      CAPTURE(backend.name, m.name);
      CMATCHParams params = Precision(FINEPC_SINGLE, 1);
      params.sweeps       = 1;
      const Twin twin(m.A, params, backend.where);
      REQUIRE(twin.stats.failure == CMATCH_OK);
      const HostLevel L = twin.Levels()[0];
      if (twin->levels == 1) continue;
      std::vector<LocalInt> size(L.coarse, 0);
      Graph                 M;
      for (LocalInt i = 0; i < L.n; i++) {
        M.a.emplace_back();
        for (LocalInt k = L.A_i[i]; k < L.A_i[i + 1]; k++) M.a.back()[L.A_j[k]] = (float)L.A_a[k];
        M.d.push_back((float)(m.A.At(i, i) * twin->scale));
        if (L.aggregate[i] >= 0) size[L.aggregate[i]]++;
      }
      const std::vector<bool> left  = LeftToSmoother(M);
      const Edges             edges = AllowedEdges(M, (float)kCMATCHSmallStrength, left);
      LocalInt                alone = 0, apart = 0, too_large = 0;
      for (LocalInt i = 0; i < L.n; i++) {
        const LocalInt own = L.aggregate[i];
        CHECK((own < 0) == left[i]);
        if (own < 0) continue;
        bool within = size[own] == 1;
        for (const auto &edge : edges[i]) {
          within = within || L.aggregate[edge.first] == own;
          alone += size[own] == 1 && size[L.aggregate[edge.first]] == 1;
        }
        apart += !within;
        too_large += size[own] > kCMATCHMembers;
      }
      CHECK(alone == 0);
      CHECK(apart == 0);
      CHECK(too_large == 0);
    }
}

/* -------------------------------- operators and prolongators ---------------------------------- */

TEST_CASE("cmatch: operators are P^T A P with the prolongators of the formulas", "[cmatch][long]")
{
  for (const Backend &backend : Backends())
    for (const SetupCase &c : SetupCases()) {
      CAPTURE(backend.name, c.name);
      const Vector w = c.with_w ? AnyNearNull(c.A.n, 13) : Vector();
      const Twin   twin(c.A, c.params, backend.where, w);
      CheckOperators(c.A, twin, w);
    }
}

/*
   Where A maps w to 0, it is in the range of P on each level: the row sums of P are 1, and W P maps the ones to w. Up to the
   rounding of P, the row sums of the coarse operators stay 0.
*/
TEST_CASE("cmatch: w is in the range of P on each level", "[cmatch]")
{
  struct Jumps {
    std::string name;
    HostMatrix  A;
    double      contrast; /* Its reciprocal is the part of the entries of strong connections that weak ones have. */
  };
  const std::vector<Jumps> matrices = {{"2D", Volumes({30, 31, 1}, One, false), 1},
                                       {"3D", Volumes({11, 10, 9}, One, false), 1},
                                       {"checkerboard", Volumes({12, 12, 12}, Checkerboard(1e4, 3), false), 1e4},
                                       {"scattered", Volumes({40, 25, 1}, Scattered(5, 5), false), 1e5}};
  for (const Backend &backend : Backends())
    for (const Jumps &m : matrices)
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
        for (LocalInt row : {2, 4, 64})
          for (bool with_w : {false, true}) {
            CAPTURE(backend.name, m.name, precision, row, with_w);
            const Vector w         = NonzeroNearNull(m.A.n, 14);
            CMATCHParams params    = Precision(precision, 10);
            params.prolongator_row = row;
            params.singular        = PETSC_TRUE;
            const Twin twin(with_w ? Scaled(m.A, w, true) : m.A, params, backend.where, with_w ? w : Vector());
            REQUIRE(twin.stats.failure == CMATCH_OK);
            const std::vector<HostLevel> levels = twin.Levels();
            CHECK(levels.size() > 2);
            const double u    = Unit(precision);
            double       of_P = 0, of_s = 0;
            for (size_t l = 0; l < levels.size(); l++) {
              for (LocalInt i = 0; i < levels[l].n; i++) {
                double entries = levels[l].d[i];
                for (LocalInt k = levels[l].A_i[i]; k < levels[l].A_i[i + 1]; k++) entries += std::fabs(levels[l].A_a[k]);
                of_s = std::max(of_s, std::fabs(levels[l].s[i]) / entries);
                if (l + 1 == levels.size()) continue;
                double sum = 0, size = 0;
                for (const auto &entry : ProlongatorRow(levels[l], i)) {
                  sum += entry.second;
                  size += std::fabs(entry.second);
                }
                of_P = std::max(of_P, std::fabs(sum - 1) / size);
              }
            }
            CHECK(of_P <= 2 * u + 16 * kUnit * m.contrast);
            CHECK(of_s <= 4 * u + 16 * kUnit * m.contrast);
          }
}

TEST_CASE("cmatch: rows of the identity whose columns stay", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (const NamedMatrix &m : SmallMatrices())
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
        for (LocalInt coarse_size : {10, 2048}) {
          CAPTURE(backend.name, m.name, precision, coarse_size);
          /* Every seventh row becomes a row of the identity: its entries are 0, or are not stored, or its column is 0, too. */
          const auto                                                 gone  = [](LocalInt row) { return row % 7 == 2; };
          HostMatrix                                                 zeros = m.A, both = m.A;
          std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(m.A.n);
          for (LocalInt row = 0; row < m.A.n; row++)
            for (LocalInt k = m.A.i[row]; k < m.A.i[row + 1]; k++) {
              const LocalInt column = m.A.j[k];
              if (gone(row)) zeros.a[k] = both.a[k] = column == row ? 1 : 0;
              else if (gone(column)) both.a[k] = 0;
              if (!gone(row) || column == row) rows[row].push_back({column, zeros.a[k]});
            }
          CMATCHParams params = Precision(precision, coarse_size);
          const Vector r      = RandomValues(m.A.n, 16);
          Twin         x(zeros, params, backend.where), y(both, params, backend.where);
          Twin         z(FromRows(rows), params, backend.where);
          CHECK(x.stats.failure == y.stats.failure);
          CHECK(x.stats.failure == z.stats.failure);
          if (x.stats.failure) continue;
          const double tolerance = precision == FINEPC_SINGLE ? 1e-4 : 1e-9;
          const Vector solution  = x.Apply(r);
          CHECK(Difference(solution, z.Apply(r)) <= tolerance);
          if (x->levels == 1 && x->inverted) { /* what the rows of the identity say goes to the others */
            const Vector reached = Multiply(zeros, solution);
            for (LocalInt row = 0; row < m.A.n; row++)
              if (precision == FINEPC_DOUBLE) CHECK(std::abs(reached[row] - r[row]) <= 1e-6 * Norm(r));
          }
          CheckOperators(zeros, x, {}, false);
        }
}

/* Powers of 2 are exact: they may stand in w or in the matrix, and only the sizes of w's entries beside each other matter. */
TEST_CASE("cmatch: a near null vector scales the matrix and nothing else", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (const NamedMatrix &m : SmallMatrices())
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
        CAPTURE(backend.name, m.name, precision);
        const CMATCHParams params = Precision(precision, 20);
        const Vector       r      = RandomValues(m.A.n, 15);
        Vector             w, with_zeros, larger;
        Random             random(16);
        for (LocalInt i = 0; i < m.A.n; i++) {
          w.push_back(std::ldexp(random.Between(-1, 1) < 0 ? -1. : 1., (int)(random.Next() >> 40) % 5));
          if (i % 3 == 0) w.back() = 1;
          with_zeros.push_back(i % 3 == 0 ? 0. : w.back());
          larger.push_back(1024 * w.back());
        }
        if (m.A.n == 0) continue;
        Twin   scaled(Scaled(m.A, w), params, backend.where), by_w(m.A, params, backend.where, w);
        Twin   ones(m.A, params, backend.where, Vector(m.A.n, 1.)), none(m.A, params, backend.where);
        Twin   zeros(m.A, params, backend.where, with_zeros), large(m.A, params, backend.where, larger);
        Vector r_scaled = r;
        for (LocalInt i = 0; i < m.A.n; i++) r_scaled[i] *= w[i];
        CHECK(SameBits(by_w.NearNull(), w));
        CHECK(by_w->w != nullptr);
        CHECK(none->w == nullptr);
        Vector z = scaled.Apply(r_scaled);
        for (LocalInt i = 0; i < m.A.n; i++) z[i] *= w[i];
        CHECK(SameBits(z, by_w.Apply(r)));
        CheckSame(by_w, zeros);
        CheckSame(none, ones);
        CHECK(SameBits(by_w.Apply(r), zeros.Apply(r)));
        CHECK(SameBits(none.Apply(r), ones.Apply(r)));
        CHECK(SameBits(by_w.Apply(r), large.Apply(r)));
        const std::vector<HostLevel> a = scaled.Levels(), b = by_w.Levels(), c = large.Levels();
        REQUIRE(a.size() == b.size());
        REQUIRE(a.size() == c.size());
        for (size_t l = 0; l < a.size(); l++) {
          CHECK(SameBits(a[l].A_a, b[l].A_a));
          CHECK(SameBits(a[l].s, b[l].s));
          CHECK(SameBits(a[l].P_a, b[l].P_a));
          CHECK(SameBits(a[l].A_a, c[l].A_a));
        }
      }
}

/* --------------------------------- the same again, and refills -------------------------------- */

TEST_CASE("cmatch: the same bits in each set-up and each application", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (const SetupCase &c : SetupCases()) {
      CAPTURE(backend.name, c.name);
      const Vector w = c.with_w ? AnyNearNull(c.A.n, 17) : Vector(), r = RandomValues(c.A.n, 18);
      Twin         first(c.A, c.params, backend.where, w), second(c.A, c.params, backend.where, w);
      REQUIRE(first.stats.failure == CMATCH_OK);
      CheckSame(first, second);
      const Vector z = first.Apply(r);
      CHECK(AllFinite(z));
      CHECK(SameBits(z, first.Apply(r)));
      CHECK(SameBits(z, second.Apply(r)));
      /*
         Refills with the same values, with memory of the set-up and without. The adaptive factors of afsai come from another
         computation if their pattern is there, in single precision.
      */
      const bool same_factors = c.params.smoother != PC_CMATCH_AFSAI;
      second.Compute(c.A, c.params, w, true);
      CheckSame(first, second, same_factors);
      second.Compute(c.A, c.params, w, true, false);
      CheckSame(first, second, same_factors);
      const Vector z_second = second.Apply(r);
      second.Compute(c.A, c.params, w, true, false);
      CheckSame(first, second, same_factors);
      CHECK(SameBits(z_second, second.Apply(r)));
      if (same_factors) CHECK(SameBits(z, z_second));
      CHECK(first->bytes > 0);
      if (c.A.n > 1) CHECK(first->apply_bytes > (size_t)c.A.nnz() * sizeof(float));
      CHECK(first->where == backend.where);
    }
}

TEST_CASE("cmatch: a refill keeps aggregates and patterns, and makes the operators of the new values", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (const SetupCase &c : SetupCases()) {
      CAPTURE(backend.name, c.name);
      const HostMatrix other = OtherValues(c.A, 19);
      const Vector     w = c.with_w ? AnyNearNull(c.A.n, 20) : Vector(), other_w = c.with_w ? AnyNearNull(c.A.n, 21) : Vector();
      const Vector     r = RandomValues(c.A.n, 22);
      Twin             twin(c.A, c.params, backend.where, w), again(c.A, c.params, backend.where, w);
      const std::vector<HostLevel> before = twin.Levels();
      twin.Compute(other, c.params, other_w, true);
      again.Compute(other, c.params, other_w, true, false);
      if (twin.stats.failure) {
        /* A row of P that has one column can lose it with other values, and with it a row of the coarse operator. */
        CHECK(c.params.prolongator_row == 1);
        CHECK(twin.stats.failure == CMATCH_DIAGONAL_NOT_POSITIVE);
        CHECK(twin.stats.level > 0);
        continue;
      }
      CheckOperators(other, twin, other_w, true);
      const std::vector<HostLevel> after = twin.Levels();
      REQUIRE(before.size() == after.size());
      for (size_t l = 0; l < before.size(); l++) {
        CHECK((before[l].aggregate == after[l].aggregate));
        CHECK((before[l].A_i == after[l].A_i));
        CHECK((before[l].A_j == after[l].A_j));
        CHECK((before[l].P_j == after[l].P_j));
        CHECK((before[l].R_i == after[l].R_i));
        CHECK((before[l].R_j == after[l].R_j));
        CHECK((before[l].W_i == after[l].W_i));
        CHECK((before[l].W_j == after[l].W_j));
      }
      CheckSame(twin, again);
      const Vector z = twin.Apply(r);
      CHECK(AllFinite(z));
      CHECK(SameBits(z, again.Apply(r)));
      twin.Compute(c.A, c.params, w, true); /* there and back */
      const Twin fresh(c.A, c.params, backend.where, w);
      CheckSame(twin, fresh, c.params.smoother != PC_CMATCH_AFSAI);
    }
}

TEST_CASE("cmatch: a hierarchy in the place of another one, of a failed one, and two at once", "[cmatch]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    const std::vector<NamedMatrix> matrices = SmallMatrices();
    const std::vector<NamedParams> variants = SetupVariants();
    Twin                           twin(Poisson(20, 20), CMATCHParams(), backend.where);
    HostMatrix                     bad = Poisson(9, 9);
    bad.a[bad.i[40]]                   = kNaN;
    for (size_t k = 0; k < matrices.size(); k++) {
      const HostMatrix &A      = matrices[k].A;
      CMATCHParams      params = variants[k % variants.size()].params;
      const Vector      r      = RandomValues(A.n, 23);
      CAPTURE(matrices[k].name, variants[k % variants.size()].name);
      params.precision = kPrecisions[k % 2];
      twin.Compute(A, params);
      Twin fresh(A, params, backend.where);
      CheckSame(twin, fresh);
      CHECK(SameBits(twin.Apply(r), fresh.Apply(r)));
      if (k % 3 == 0) {
        twin.Compute(bad, params);
        CHECK(twin.stats.failure == CMATCH_NOT_FINITE);
      }
    }
  }
}

/* -------------------------------------------- cycles ------------------------------------------ */

/* Definite matrices, well enough conditioned for a comparison of inverses, with a near null vector. */
struct CycleSystem {
  std::string name;
  HostMatrix  A;
  Vector      w;
};
static std::vector<CycleSystem> CycleSystems()
{
  std::vector<CycleSystem> all = {{"Poisson", Poisson(9, 8), {}},
                                  {"anisotropic", Volumes({9, 10, 1}, One, true, {1, 0.05, 1}), {}},
                                  {"scattered", Volumes({4, 4, 5}, Scattered(2, 24)), {}},
                                  {"signed graph", SignedGraph(80, 8, 0.2, 25), {}}};
  all.push_back({"dominated", DominatedChain(60), {}});
  all.push_back(all[0]);
  all.back().name = "Poisson with w";
  all.back().w    = NonzeroNearNull(all[0].A.n, 26);
  all.back().A    = Scaled(all.back().A, all.back().w, true);
  return all;
}

TEST_CASE("cmatch: cycles are those of the formulas with dense matrices", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (const auto &[system, variant, precision] : Covering(CycleSystems(), CycleVariants(FINEPC_SINGLE, 3), kPrecisions)) {
      CAPTURE(backend.name, precision, system.name, variant.name);
      CMATCHParams params = variant.params;
      params.precision    = precision;
      Twin twin(system.A, params, backend.where, system.w);
      REQUIRE(twin.stats.failure == CMATCH_OK);
      if (system.name == "dominated") REQUIRE(twin.stats.end == CMATCH_END_DOMINATED);
      else if (params.max_levels > 2) REQUIRE(twin->levels >= 3);
      const ReferenceCycle reference(twin);
      for (std::uint64_t seed : {27, 28}) {
        const Vector r = RandomValues(system.A.n, seed);
        CHECK(Difference(twin.Apply(r), reference(r)) <= (precision == FINEPC_SINGLE ? 1e-5 : 1e-12));
      }
    }
}

/*
   With E the error of a smoothing step and C that of the coarse correction, the error of a V-cycle is E C E, and that of two in
   turn is its square: with an exact solution of P^T A P the eigenvalues of M^{-1} A are in (0, 1] for every smoother here. Errors
   that E maps into the range of P are gone after one cycle of two levels: 1 is an eigenvalue as often as there are coarse rows.
*/
TEST_CASE("cmatch: the inverse is symmetric, and M^{-1} A has eigenvalues in (0, 1]", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (const CycleSystem &system : CycleSystems()) {
        const LocalInt n    = system.A.n;
        const Dense    A    = ToDense(system.A);
        const Eigen    of_A = Decompose(A);
        const double   cond = of_A.values.back() / of_A.values.front();
        const Dense    root = FunctionOf(A, [](double x) { return std::sqrt(x); });
        for (const NamedParams &variant : CycleVariants(precision, 3)) {
          const CMATCHParams &params = variant.params;
          CAPTURE(backend.name, precision, system.name, variant.name);
          Twin        twin(system.A, params, backend.where, system.w);
          const Dense M    = DenseInverse(&twin, n);
          double      size = 0, unsymmetric = 0;
          for (LocalInt i = 0; i < n; i++)
            for (LocalInt j = 0; j < n; j++) {
              size        = std::max(size, std::fabs(M(i, j)));
              unsymmetric = std::max(unsymmetric, std::fabs(M(i, j) - M(j, i)));
            }
          CHECK(unsymmetric <= 20 * Unit(precision) * size);
          const Vector values = Decompose(root * (M * root)).values;
          CHECK(values.front() > 0.05);
          CHECK(values.back() <= 1 + 8 * Unit(precision) * cond);
          if (twin->levels == 2 && twin->inverted) {
            const LocalInt ones = (LocalInt)std::count_if(values.begin(), values.end(),
                                                          [&](double x) { return std::fabs(x - 1) <= 8 * Unit(precision) * cond; });
            CHECK(ones >= twin->level[0].coarse);
          }
        }
      }
}

/*
   A Chebyshev polynomial of degree k grows fast where x is more than 1: up to 1 + a* it is below 1, and beyond the cycle is not
   definite.
*/
TEST_CASE("cmatch: factored smoothers have eigenvalues of M^{-1} A up to 1 + a*", "[cmatch]")
{
  std::vector<CycleSystem> systems = CycleSystems();
  systems.push_back({"Poisson 3D", Poisson(6, 7, 6), {}});
  systems.push_back({"smaller signed graph", SignedGraph(32, 8, 0.2, 32), {}});
  for (const Backend &backend : Backends())
    for (const CycleSystem &system : systems)
      for (PCCMATCHSmoother smoother : {PC_CMATCH_SFSAI, PC_CMATCH_AFSAI})
        for (LocalInt degree : {1, 4, 16}) {
          CAPTURE(backend.name, system.name, smoother, degree);
          CMATCHParams params = Precision(FINEPC_DOUBLE, 3);
          params.smoother     = smoother;
          params.degree       = degree;
          Twin twin(system.A, params, backend.where, system.w);
          for (const HostLevel &L : twin.Levels()) {
            if (L.factor_d.empty()) continue;
            const Dense  G      = DenseRoot(L);
            const Vector values = Decompose(G * (DenseOperator(L) * Transposed(G))).values;
            CAPTURE(L.n);
            CHECK(values.front() > 0);
            CHECK(values.back() >= 0.6);
            CHECK(values.back() <= 1 + PolynomialLowerEnd(degree));
          }
          const Vector x = RandomValues(system.A.n, 62), y = RandomValues(system.A.n, 63), Mx = twin.Apply(x), My = twin.Apply(y);
          CHECK(Dot(x, Mx) > 0);
          CHECK(Dot(y, My) > 0);
          CHECK(std::fabs(Dot(x, My) - Dot(y, Mx)) <= 1e-12 * Norm(x) * Norm(My));
          CHECK(Solve(system.A, x, &twin).iterations <= 20);
        }
}

TEST_CASE("cmatch: the inverse, where the finest level is the coarsest one", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (const NamedMatrix &m : SmallMatrices())
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
        for (bool with_w : {false, true}) {
          if (m.A.n == 0 || m.A.n > 200) continue;
          CAPTURE(backend.name, m.name, precision, with_w);
          CMATCHParams params = Precision(precision, 500);
          const Vector y      = RandomValues(m.A.n, 30);
          Twin         twin(m.A, params, backend.where, with_w ? AnyNearNull(m.A.n, 31) : Vector());
          CHECK(twin->levels == 1);
          CHECK(twin->inverted);
          CHECK(twin.stats.end == CMATCH_END_SIZE);
          /*
             Rounding counts by the condition of D^{-1/2} A D^{-1/2} for errors of D^{1/2} x, where D is the diagonal of A. The
             diagonal entries are differences of row sums and entries of W A W, which may be larger.
          */
          Vector root(m.A.n), inverse_root(m.A.n), w = twin.NearNull();
          double ratio = 0;
          for (LocalInt i = 0; i < m.A.n; i++) {
            root[i]         = std::sqrt(m.A.At(i, i));
            inverse_root[i] = 1 / root[i];
          }
          for (LocalInt i = 0; i < m.A.n; i++) {
            double sum = 0;
            for (LocalInt k = m.A.i[i]; k < m.A.i[i + 1]; k++) sum += std::fabs(m.A.a[k] * w[i] * w[m.A.j[k]]);
            ratio = std::max(ratio, sum / std::pow(w[i] * root[i], 2));
          }
          const Vector values = Decompose(ToDense(Scaled(m.A, inverse_root))).values;
          Vector       x      = y;
          for (LocalInt i = 0; i < m.A.n; i++) x[i] *= inverse_root[i];
          Vector z = twin.Apply(Multiply(m.A, x));
          for (LocalInt i = 0; i < m.A.n; i++) z[i] *= root[i];
          CHECK(Difference(z, y) <= 2 * (values.back() + ratio) * Unit(precision) / values.front());
        }
}

/* ----------------------------------------- iterations ----------------------------------------- */

/* A number of iterations that was measured, with what rounding may add. */
static LocalInt About(LocalInt iterations)
{
  return iterations + std::max<LocalInt>(1, iterations / 20);
}

/* What the host twin needs. What the prototype of the method needs is beside it. */
TEST_CASE("cmatch: iterations, complexity and work memory of elliptic problems", "[cmatch]")
{
  struct Problem {
    std::string name;
    HostMatrix  A;
    LocalInt    matching, mis2; /* iterations */
  };
  const std::vector<Problem> problems = {
    {"Poisson 32^3", Volumes({32, 32, 32}, One), 13, 17},                           /* 13 */
    {"Poisson 48^3", Volumes({48, 48, 48}, One), 14, 16},                           /* 14 */
    {"Poisson 127^2", Volumes({127, 127, 1}, One), 18, 18},                         /* 18 */
    {"Poisson 255^2", Volumes({255, 255, 1}, One), 19, 24},                         /* 19 */
    {"anisotropic 127^2", Volumes({127, 127, 1}, One, true, {1, 1e-3, 1}), 41, 42}, /* 43, since only one level is large */
    {"anisotropic 127^2, turned", Volumes({127, 127, 1}, One, true, {1e-3, 1, 1}), 41, 41},
    {"anisotropic 255^2", Volumes({255, 255, 1}, One, true, {1, 1e-3, 1}), 29, 25}, /* 29 */
    {"checkerboard 40^3", Volumes({40, 40, 40}, Checkerboard(1e4, 8)), 14, 15},     /* 14 */
  };
  for (const Backend &backend : Backends())
    for (PCCMATCHCoarsening coarsening : {PC_CMATCH_MATCHING, PC_CMATCH_MIS2})
      for (const Problem &problem : problems) {
        CAPTURE(backend.name, problem.name, coarsening);
        CMATCHParams params = Precision(FINEPC_SINGLE);
        params.coarsening   = coarsening;
        Twin           twin(problem.A, params, backend.where);
        const Solution solution = Solve(problem.A, Multiply(problem.A, Vector(problem.A.n, 1.)), &twin);
        CHECK(solution.residual <= 1e-8);
        CHECK(solution.iterations <= About(coarsening == PC_CMATCH_MATCHING ? problem.matching : problem.mis2));
        CHECK(OperatorComplexity(twin) > 1.3);
        CHECK(OperatorComplexity(twin) < 1.8);
        const size_t A_bytes = problem.A.nnz() * (sizeof(LocalInt) + sizeof(PetscScalar)) + problem.A.n * sizeof(LocalInt);
        CHECK(twin.stats.work_bytes > 0);
        CHECK(twin.stats.work_bytes <=
              PetscMax(2 * A_bytes, (size_t)1 << 20) + (PetscMemTypeDevice(backend.where) ? (size_t)1 << 20 : 0));
      }
}

/* Single precision, in difference form, costs no iterations, although some of these systems are almost singular. */
TEST_CASE("cmatch: single precision needs the iterations of double precision", "[cmatch]")
{
  const std::vector<NamedMatrix> matrices = {{"Poisson", Volumes({24, 24, 24}, One)},
                                             {"checkerboard", Volumes({24, 24, 24}, Checkerboard(1e4, 8))},
                                             {"scattered", Volumes({20, 21, 22}, Scattered(6, 60))},
                                             {"held by one cell",
                                              With(Volumes({24, 24, 24}, Scattered(3, 61), false), 0, 0, 2000)}};
  for (const Backend &backend : Backends())
    for (const NamedMatrix &m : matrices) {
      CAPTURE(backend.name, m.name);
      Twin         in_single(m.A, Precision(FINEPC_SINGLE), backend.where), in_double(m.A, Precision(FINEPC_DOUBLE), backend.where);
      const Vector b       = Multiply(m.A, Vector(m.A.n, 1.));
      const Solution first = Solve(m.A, b, &in_single), second = Solve(m.A, b, &in_double);
      CHECK(first.residual <= 1e-8);
      CHECK(second.residual <= 1e-8);
      CHECK(first.iterations <= second.iterations + 2);
    }
}

TEST_CASE("cmatch: higher degrees save iterations", "[cmatch]")
{
  const HostMatrix A = Volumes({100, 100, 1}, One);
  const Vector     b = Multiply(A, Vector(A.n, 1.));
  for (const Backend &backend : Backends()) {
    std::map<std::string, LocalInt> iterations;
    for (const NamedParams &variant : CycleVariants(FINEPC_SINGLE, 30)) {
      CAPTURE(backend.name, variant.name);
      Twin           twin(A, variant.params, backend.where);
      const Solution solution = Solve(A, b, &twin);
      CHECK(solution.residual <= 1e-8);
      if (variant.params.max_levels > 2) CHECK(twin->levels == 4);
      iterations[variant.name] = solution.iterations;
    }
    CHECK(iterations.at("l1jacobi 1") <= About(19));
    CHECK(iterations.at("relaxation 1") > iterations.at("l1jacobi 1"));
    CHECK(iterations.at("pcg") <= iterations.at("l1jacobi 1") + 1);
    CHECK(iterations.at("2 levels") <= About(16));
    for (const char *smoother : {"l1jacobi ", "chebyshev ", "chebyshev4 "})
      for (int degree : {2, 3, 4}) {
        const std::string name = smoother + std::to_string(degree), less = smoother + std::to_string(degree - 1);
        CAPTURE(name);
        CHECK(iterations.at(name) < iterations.at(less));
      }
    CHECK(iterations.at("chebyshev 4") <= About(11));
    CHECK(iterations.at("chebyshev4 4") <= About(11));
  }
}

/* ------------------------------------------ singular ------------------------------------------ */

/* Pure Neumann problems, whose null space is w if it is given, and the constants otherwise. */
struct Neumann {
  std::string name;
  HostMatrix  A;
  Vector      w;
  LocalInt    iterations; /* about so many */
};
static std::vector<Neumann> NeumannProblems()
{
  std::vector<Neumann> all = {{"2D", Volumes({60, 61, 1}, One, false), {}, 22},
                              {"3D", Volumes({16, 15, 14}, One, false), {}, 15},
                              {"scattered", Volumes({50, 40, 1}, Scattered(4, 5), false), {}, 37}};
  for (int k = 0; k < 3; k++) {
    const Vector w = NonzeroNearNull(all[k].A.n, 40);
    all.push_back({all[k].name + " with w", Scaled(all[k].A, w, true), w, all[k].iterations});
  }
  return all;
}

TEST_CASE("cmatch: singular matrices with their null space", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (const Neumann &m : NeumannProblems())
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
        for (PCCMATCHCoarse coarse : {PC_CMATCH_DENSE, PC_CMATCH_PCG}) {
          CAPTURE(backend.name, m.name, precision, coarse);
          CMATCHParams params = Precision(precision, 50);
          params.singular     = PETSC_TRUE;
          params.coarse       = coarse;
          Twin twin(m.A, params, backend.where, m.w);
          REQUIRE(twin.stats.failure == CMATCH_OK);
          const Vector   x = RandomValues(m.A.n, 41), y = RandomValues(m.A.n, 55), Mx = twin.Apply(x), My = twin.Apply(y);
          const Solution solution = Solve(m.A, Multiply(m.A, x), &twin, 100);
          CHECK(solution.residual <= 1e-8);
          CHECK(solution.iterations <= About(m.iterations));
          CHECK(Dot(x, Mx) > 0);
          CHECK(Dot(y, My) > 0);
          if (coarse == PC_CMATCH_DENSE) CHECK(std::fabs(Dot(x, My) - Dot(y, Mx)) <= 100 * Unit(precision) * Norm(x) * Norm(My));
        }
}

/* One level is the pseudo-inverse, in the scaling of w: it takes the null space to 0, and gives solutions that are orthogonal to
 * it. */
TEST_CASE("cmatch: the inverse in the complement of the null space", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (LocalInt n : {1, 2, 33, 256})
        for (bool with_w : {false, true}) {
          CAPTURE(backend.name, precision, n, with_w);
          const Vector     w = with_w ? NonzeroNearNull(n, 56) : Vector(n, 1.);
          const HostMatrix A = Scaled(n == 1 ? Diagonal({2}) : Volumes({n % 4 ? n : n / 4, n % 4 ? 1 : 4, 1}, One, false), w, true);
          CMATCHParams     params = Precision(precision);
          params.singular         = PETSC_TRUE;
          Twin twin(A, params, backend.where, with_w ? w : Vector());
          REQUIRE(twin.stats.failure == CMATCH_OK);
          CHECK(twin->inverted);
          Vector inverse_w(n);
          for (LocalInt i = 0; i < n; i++) inverse_w[i] = 1 / w[i];
          const double size = Norm(twin.Apply(RandomValues(n, 57)));
          CHECK(Norm(twin.Apply(inverse_w)) <= 1000 * Unit(precision) * size);
          if (n == 1) continue;
          const Vector b = Multiply(A, RandomValues(n, 58)), z = twin.Apply(b);
          CHECK(Difference(Multiply(A, z), b) <= 100 * Unit(precision) * n);
          CHECK(std::fabs(Dot(z, inverse_w)) <= 1000 * Unit(precision) * Norm(z) * Norm(inverse_w));
        }
}

/* Nobody has said that these are singular. The right-hand side is in the range, and there are solutions to find. */
TEST_CASE("cmatch: singular matrices without their null space", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (const Neumann &m : NeumannProblems())
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
        CAPTURE(backend.name, m.name, precision);
        Twin twin(m.A, Precision(precision, 50), backend.where, m.w);
        REQUIRE(twin.stats.failure == CMATCH_OK);
        CHECK(twin.stats.parts == 1);
        CHECK(twin.stats.raised == 0);
        const Solution solution = Solve(m.A, Multiply(m.A, RandomValues(m.A.n, 41)), &twin, 100);
        CHECK(solution.residual <= 1e-8);
        CHECK(solution.iterations <= m.iterations + 2);
      }
}

/* A square whose walls hold, and beside it closed chains of so many rows: the ones on each chain are in the null space. */
static HostMatrix Pockets(const std::vector<LocalInt> &sizes)
{
  const HostMatrix square = Volumes({30, 30, 1}, One);
  Couplings        A(std::accumulate(sizes.begin(), sizes.end(), square.n));
  LocalInt         first = square.n;
  for (LocalInt i = 0; i < square.n; i++)
    for (LocalInt k = square.i[i]; k < square.i[i + 1]; k++) {
      if (square.j[k] > i) A.Add(i, square.j[k], square.a[k]);
      if (square.j[k] == i) A.AddDiagonal(i, 4 - (square.i[i + 1] - square.i[i] - 1));
    }
  for (LocalInt size : sizes) {
    for (LocalInt k = 1; k < size; k++) A.Add(first + k - 1, first + k, -0.37);
    first += size;
  }
  return A.Matrix();
}

/* Of a singular component nothing is left to be corrected when it has become a row, and the ones on it before. */
TEST_CASE("cmatch: singular components beside a regular one", "[cmatch][components]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (PCCMATCHCoarse coarse : {PC_CMATCH_DENSE, PC_CMATCH_PCG})
        for (const std::vector<LocalInt> &sizes :
             {std::vector<LocalInt>{2}, {3}, {5}, {9}, {20}, {35}, {2, 3, 3, 4, 7, 8, 9, 12, 15, 20, 35, 50}}) {
          CAPTURE(backend.name, precision, coarse, sizes.size(), sizes[0]);
          const HostMatrix A      = Pockets(sizes);
          CMATCHParams     params = Precision(precision, 60);
          params.coarse           = coarse;
          Twin twin(A, params, backend.where);
          REQUIRE(twin.stats.failure == CMATCH_OK);
          CHECK(twin.stats.ended + twin.stats.parts == (LocalInt)sizes.size());
          CHECK(twin.stats.raised == 0);
          const Solution solution = Solve(A, Multiply(A, RandomValues(A.n, 81)), &twin, 100);
          CHECK(solution.residual <= 1e-8);
          CHECK(solution.iterations <= (sizes.back() < 10 ? 24 : 42));
          /* and again on the patterns that are there */
          const Vector x = RandomValues(A.n, 82), before = twin.Apply(x);
          twin.Compute(A, params, {}, true);
          CHECK(twin.stats.ended + twin.stats.parts == (LocalInt)sizes.size());
          CHECK(SameBits(twin.Apply(x), before));
        }
}

TEST_CASE("cmatch: singular components with factored smoothers, to one row, and without a regular one", "[cmatch][components]")
{
  std::vector<LocalInt> many(200, 3);
  for (LocalInt k = 0; k < 100; k++) many[k] = 4 + k % 9;
  for (const Backend &backend : Backends()) {
    const HostMatrix A = Pockets({3, 9, 20});
    for (PCCMATCHSmoother smoother : {PC_CMATCH_SFSAI, PC_CMATCH_AFSAI, PC_CMATCH_CHEBYSHEV})
      for (PCCMATCHCoarsening coarsening : {PC_CMATCH_MATCHING, PC_CMATCH_MIS2}) {
        CAPTURE(backend.name, smoother, coarsening);
        CMATCHParams params = Precision(FINEPC_SINGLE, 1);
        params.smoother     = smoother;
        params.coarsening   = coarsening;
        Twin twin(A, params, backend.where);
        REQUIRE(twin.stats.failure == CMATCH_OK);
        const Solution solution = Solve(A, Multiply(A, RandomValues(A.n, 83)), &twin, 100);
        CHECK(solution.residual <= 1e-8);
        CHECK(solution.iterations <= 40);
      }
    /* a chain for each size, and the ones on all of them are in the null space */
    Couplings chains(std::accumulate(many.begin(), many.end(), 0));
    LocalInt  first = 0;
    for (LocalInt size : many) {
      for (LocalInt k = 1; k < size; k++) chains.Add(first + k - 1, first + k, -0.37);
      first += size;
    }
    for (bool singular : {false, true}) {
      CAPTURE(backend.name, singular);
      CMATCHParams params = Precision(FINEPC_SINGLE, 20);
      params.singular     = singular ? PETSC_TRUE : PETSC_FALSE;
      const HostMatrix B  = chains.Matrix();
      Twin             twin(B, params, backend.where);
      REQUIRE(twin.stats.failure == CMATCH_OK);
      const Solution solution = Solve(B, Multiply(B, RandomValues(B.n, 84)), &twin, 100);
      CHECK(solution.residual <= 1e-8);
      CHECK(solution.iterations <= 30);
    }
  }
}

/* Neumann's problem on a square of nx times nx cells, and a multiple of the identity */
static HostMatrix ShiftedNeumann(LocalInt nx, double shift)
{
  HostMatrix A = Volumes({nx, nx, 1}, One, false);
  for (LocalInt i = 0; i < A.n; i++)
    for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++)
      if (A.j[k] == i) A.a[k] += shift;
  return A;
}

/* The smaller the shift, the more the coarsest operator is a matter of rounding. */
TEST_CASE("cmatch: almost singular matrices", "[cmatch][components]")
{
  for (const Backend &backend : Backends())
    for (double shift : {1e-5, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12})
      for (LocalInt nx : {18, 26, 32, 38, 44, 52, 60}) {
        CAPTURE(backend.name, shift, nx);
        const HostMatrix A = ShiftedNeumann(nx, shift);
        Twin             twin(A, Precision(FINEPC_SINGLE, 300), backend.where);
        REQUIRE(twin.stats.failure == CMATCH_OK);
        const Solution solution = Solve(A, Multiply(A, RandomValues(A.n, 85)), &twin, 100);
        CHECK(solution.residual <= 1e-8);
        CHECK(solution.iterations <= 28);
      }
}

/* One cell of so many is stiffer than the others, or softer. */
static Coefficient RandomCells(double contrast, std::uint64_t seed)
{
  return [=](LocalInt x, LocalInt y, LocalInt z) {
    Random random(seed + 1 + (std::uint64_t)x + 1009 * ((std::uint64_t)y + 1013 * (std::uint64_t)z));
    for (int skip = 0; skip < 3; skip++) random.Next();
    return random.Between(0, 1) < 0.3 ? contrast : 1.;
  };
}

TEST_CASE("cmatch: random stiff or soft cells leave the cycle definite", "[cmatch][components]")
{
  const std::vector<double>                  jumps      = {1e4, 1e6, 1e8, 1e-4, 1e-6, 1e-8};
  const std::vector<FinePCPrecision>         precisions = {FINEPC_SINGLE, FINEPC_DOUBLE};
  const std::vector<std::array<LocalInt, 3>> grids      = {{40, 40, 1}, {10, 11, 9}};
  for (const auto &[backend, jump, precision, cells, seed] :
       Covering(Backends(), jumps, precisions, grids, std::vector<std::uint64_t>{1, 2, 3})) {
    CAPTURE(backend.name, jump, precision, cells[2], seed);
    const HostMatrix A = Volumes(cells, RandomCells(jump, seed));
    Twin             twin(A, Precision(precision, 50), backend.where);
    REQUIRE(twin.stats.failure == CMATCH_OK);
    CHECK(twin.stats.raised == 0);
    const Solution solution = Solve(A, Multiply(A, RandomValues(A.n, 87)), &twin, 150);
    CHECK(solution.residual <= 1e-8);
    CHECK(solution.iterations <= (jump > 1 ? 90 : 40));
  }
  /* The whole inverse. In single precision the largest jump leaves some cells of one component without a correction. */
  for (const auto &[backend, jump, precision, seed] : Covering(Backends(), jumps, precisions, std::vector<std::uint64_t>{1, 2})) {
    CAPTURE(backend.name, jump, precision, seed);
    const HostMatrix A = Volumes({12, 11, 1}, RandomCells(jump, seed));
    Twin             twin(A, Precision(precision, 10), backend.where);
    REQUIRE(twin.stats.failure == CMATCH_OK);
    const Dense  root   = FunctionOf(ToDense(A), [](double x) { return std::sqrt(x); });
    const Vector values = Decompose(root * (DenseInverse(&twin, A.n) * root)).values;
    CHECK(values.front() > (jump * Unit(precision) < 1 ? 0.05 : -1e-6));
  }
}

TEST_CASE("cmatch: jumps beyond single precision", "[cmatch][components]")
{
  for (const Backend &backend : Backends())
    for (double jump : {1e9, 1e-9, 1e12, 1e-12}) {
      CAPTURE(backend.name, jump);
      const HostMatrix A = Volumes({60, 60, 1}, Checkerboard(jump, 6));
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
        Twin twin(A, Precision(precision, 300), backend.where);
        REQUIRE(twin.stats.failure == CMATCH_OK);
        const Vector x = RandomValues(A.n, 86), Mx = twin.Apply(x);
        CHECK(AllFinite(Mx));
        CHECK(Dot(x, Mx) > 0);
        const Solution solution = Solve(A, Multiply(A, x), &twin, 50);
        CHECK(solution.residual <= 1e-8); /* that of the solution */
        CHECK(solution.iterations <= 25);
      }
    }
}

/* What is a little indefinite is taken for rounding, and what is more than that is refused. */
TEST_CASE("cmatch: the diagonal of the coarsest operator is raised where rounding has made it indefinite", "[cmatch][components]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    Twin twin(ShiftedNeumann(12, -1e-7), Precision(FINEPC_SINGLE), backend.where);
    CHECK(twin.stats.failure == CMATCH_OK);
    CHECK(twin.stats.raised == kCMATCHRaise);
    twin.Compute(ShiftedNeumann(12, -1e-5), Precision(FINEPC_SINGLE));
    CHECK(twin.stats.failure == CMATCH_OK);
    CHECK(twin.stats.raised == kCMATCHRaise * kCMATCHRaiseMore);
    twin.Compute(ShiftedNeumann(12, -1e-2), Precision(FINEPC_SINGLE));
    CHECK(twin.stats.failure == CMATCH_COARSEST);
  }
}

/* A zero of w counts as so much as it is told, and so does what rounding has left of one. */
TEST_CASE("cmatch: zeros of the near null vector", "[cmatch][components]")
{
  for (const Backend &backend : Backends())
    for (double size : {1e-3, 1., 64.}) {
      CAPTURE(backend.name, size);
      const HostMatrix A  = Volumes({20, 20, 1}, One);
      Vector           w  = Vector(A.n, size);
      w[7]                = 0;
      w[100]              = 1e-17 * size;
      w[200]              = -1e-17 * size;
      CMATCHParams params = Precision(FINEPC_SINGLE, 20);
      params.zero         = size;
      Twin twin(A, params, backend.where, w);
      REQUIRE(twin.stats.failure == CMATCH_OK);
      CHECK(SameBits(twin.NearNull(), Vector(A.n, size)));
    }
}

/* ------------------------------------- failures and endings ----------------------------------- */

TEST_CASE("cmatch: the first unusable row is named", "[cmatch]")
{
  const HostMatrix A = Poisson(20, 15);
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (bool keep : {false, true}) {
        CAPTURE(backend.name, precision, keep);
        Twin       twin(A, Precision(precision, 20), backend.where);
        const auto fails = [&](const HostMatrix &bad, CMATCHFailure failure, LocalInt row, const Vector &w = {}) {
          CAPTURE(failure, row);
          if (keep) twin.Compute(A, Precision(precision, 20), w.empty() ? w : Vector(A.n, 1.));
          twin.Compute(bad, Precision(precision, 20), w, keep && bad.nnz() == A.nnz());
          CHECK(twin.stats.failure == failure);
          CHECK(twin.stats.level == 0);
          CHECK(twin.stats.row == row);
        };
        for (double value : {kNaN, kInfinity, -kInfinity}) {
          fails(With(With(A, 250, 250, value), 77, 77, value), CMATCH_NOT_FINITE, 77);
          fails(With(With(A, 250, 251, value), 299, 299, value), CMATCH_NOT_FINITE, 250);
          fails(With(A, 0, 1, value), CMATCH_NOT_FINITE, 0);
          Vector w(A.n, 1.);
          w[123] = w[200] = value;
          fails(A, CMATCH_NOT_FINITE, 123, w);
          fails(With(A, 122, 122, -1), CMATCH_DIAGONAL_NOT_POSITIVE, 122, w);
          fails(With(A, 123, 123, -1), CMATCH_NOT_FINITE, 123, w);
        }
        for (double value : {0., -0., -1e-300, -1.}) {
          fails(With(With(A, 298, 298, value), 33, 33, value), CMATCH_DIAGONAL_NOT_POSITIVE, 33);
          fails(With(With(A, 298, 298, value), 33, 34, kNaN), CMATCH_NOT_FINITE, 33);
          fails(With(With(A, 33, 33, value), 298, 298, kNaN), CMATCH_DIAGONAL_NOT_POSITIVE, 33);
          fails(With(With(A, 33, 33, value), 33, 32, kNaN), CMATCH_NOT_FINITE, 33); /* both in one row */
        }
        fails(Without(Without(A, 64, 64), 65, 65), CMATCH_DIAGONAL_MISSING, 64);
        fails(Without(With(A, 65, 65, -1), 64, 64), CMATCH_DIAGONAL_MISSING, 64);
        fails(Without(With(A, 63, 63, -1), 64, 64), CMATCH_DIAGONAL_NOT_POSITIVE, 63);
        fails(Without(With(A, 64, 65, kNaN), 64, 64), CMATCH_NOT_FINITE, 64);
        fails(Without(A, 299, 299), CMATCH_DIAGONAL_MISSING, 299);
        if (precision == FINEPC_SINGLE) {
          fails(With(With(A, 12, 11, 1e60), 11, 12, 1e60), CMATCH_TOO_LARGE, 11);
          for (LocalInt row : {5, 200}) { /* What is left of this diagonal entry is 0. */
            fails(With(A, row, row, 1e-60), CMATCH_TOO_LARGE, row);
            fails(With(With(With(A, 12, 11, 1e60), 11, 12, 1e60), row, row, 1e-60), CMATCH_TOO_LARGE, std::min<LocalInt>(row, 11));
          }
          fails(With(With(With(A, 12, 11, 1e60), 11, 12, 1e60), 200, 200, 0), CMATCH_DIAGONAL_NOT_POSITIVE, 200);
        }
        twin.Compute(A, Precision(precision, 20)); /* It is good again. */
        CHECK(twin.stats.failure == CMATCH_OK);
        CHECK(twin.stats.end == CMATCH_END_SIZE);
      }
}

/* Diagonal entries of very different size: what underflows in single precision must be named, and must not become infinite. */
TEST_CASE("cmatch: matrices of a wide range", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (int exponent : {20, 30, 37, 38, 39, 40, 45, 60, 100, 200}) {
        CAPTURE(backend.name, precision, exponent);
        HostMatrix A      = Poisson(20, 15);
        double     factor = std::pow(10., exponent);
        for (LocalInt row : {0, 150}) A = With(A, row, row, factor);
        Twin twin(A, Precision(precision, 20), backend.where);
        if (twin.stats.failure) {
          CHECK(precision == FINEPC_SINGLE);
          CHECK(exponent >= 38);
          CHECK(twin.stats.failure == CMATCH_TOO_LARGE);
          CHECK(twin.stats.row == 1);
          continue;
        }
        CHECK((precision == FINEPC_DOUBLE || exponent < 60));
        CheckStructure(twin.Levels()[0], twin->levels == 1);
        Vector b = RandomValues(A.n, 33);
        CHECK(AllFinite(twin.Apply(b)));
        if (exponent <= 30) {
          const Solution solution = Solve(A, b, &twin);
          CHECK(solution.residual <= 1e-8);
        }
      }
}

/* In single precision the entry beside the second diagonal entry is 20 more than it is, and the difference of sums is -19. */
TEST_CASE("cmatch: a diagonal entry that is lost in the sums is taken as it is", "[cmatch]")
{
  const HostMatrix A = FromDense(2, {1e18, 9e8 - 20, 9e8 - 20, 1});
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
      CAPTURE(backend.name, precision);
      CMATCHParams params = Precision(precision);
      params.coarse       = PC_CMATCH_PCG;
      Twin twin(A, params, backend.where);
      REQUIRE(twin.stats.failure == CMATCH_OK);
      CHECK(twin.Levels()[0].d[1] == twin->scale);
      CHECK(AllFinite(twin.Apply({1, 1})));
    }
}

TEST_CASE("cmatch: coarse operators that are not positive", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
      CAPTURE(backend.name, precision);
      /* Pairs [2 -1; -1 2]; in two of them -3 stands in the place of -1, and the pair's row of the next level sums to -2. */
      Rows rows(100);
      for (LocalInt row = 0; row < 100; row++)
        rows[row] = {{row, 2.}, {row % 2 ? row - 1 : row + 1, row / 2 == 17 || row / 2 == 40 ? -3. : -1.}};
      CMATCHParams params = Precision(precision, 20);
      Twin         twin(FromRows(rows), params, backend.where);
      CHECK(twin.stats.failure == CMATCH_DIAGONAL_NOT_POSITIVE);
      CHECK(twin.stats.level == 1);
      CHECK(twin.stats.row == 17);
      params.coarse_size = 100;
      twin.Compute(FromRows(rows), params);
      CHECK(twin.stats.failure == CMATCH_COARSEST);
      CHECK(twin.stats.level == 0);
      CHECK(twin.stats.row == 35);
      params.coarse = PC_CMATCH_PCG; /* knows no pivots */
      twin.Compute(FromRows(rows), params);
      CHECK(twin.stats.failure == CMATCH_OK);
      CHECK(AllFinite(twin.Apply(RandomValues(100, 34))));
    }
}

/* How the coarsening can end; whatever it is, conjugate gradients converge with what is there. */
TEST_CASE("cmatch: every end of the coarsening", "[cmatch]")
{
  struct Ending {
    std::string                         name;
    HostMatrix                          A;
    std::function<void(CMATCHParams *)> set;
    CMATCHEnd                           end;
    LocalInt                            levels; /* 0: any number */
    bool                                inverted;
    LocalInt                            iterations;
  };
  const auto                as_is   = [](CMATCHParams *) { };
  const std::vector<Ending> endings = {
    {"size", Poisson(30, 30), as_is, CMATCH_END_SIZE, 2, true, 15},
    {"one level of 256 rows", Poisson(16, 16), as_is, CMATCH_END_SIZE, 1, true, 2},
    {"isolated rows", Diagonal(RandomValues(5000, 35, 0.01, 10)), as_is, CMATCH_END_DOMINATED, 1, false, 2},
    {"isolated rows, as few as could be inverted", Diagonal(RandomValues(300, 35, 0.01, 10)), as_is, CMATCH_END_DOMINATED, 1, false,
     2},
    {"dominated rows", DominatedChain(5000), as_is, CMATCH_END_DOMINATED, 1, false, 8},
    {"arrow", Arrow(1000), as_is, CMATCH_END_STALLED, 1, true, 2},
    {"arrow of more rows than are inverted", Arrow(5000), as_is, CMATCH_END_STALLED, 1, false, 15},
    {"random arrow", RandomArrow(3000, 36), as_is, CMATCH_END_STALLED, 1, false, 30},
    {"growing chain", GrowingChain(1500), [](CMATCHParams *params) { params->sweeps = 1; }, CMATCH_END_STALLED, 1, true, 2},
    {"two levels", Poisson(60, 60), [](CMATCHParams *params) { params->max_levels = 2; }, CMATCH_END_LEVELS, 2, true, 22},
    {"one level", Poisson(60, 60), [](CMATCHParams *params) { params->max_levels = 1; }, CMATCH_END_LEVELS, 1, false, 60},
    {"one level of 2048 rows", Poisson(32, 64), [](CMATCHParams *params) { params->max_levels = 1; }, CMATCH_END_LEVELS, 1, true,
     2},
    {"one level of 2049 rows", Poisson(2049), [](CMATCHParams *params) { params->max_levels = 1; }, CMATCH_END_LEVELS, 1, false,
     300},
    {"two levels and pcg", Poisson(60, 60),
     [](CMATCHParams *params) {
       params->max_levels = 2;
       params->coarse     = PC_CMATCH_PCG;
     },
     CMATCH_END_LEVELS, 2, false, 22},
    {"slow", Volumes({20, 20, 20}, Scattered(6, 3)), [](CMATCHParams *params) { params->coarse_size = 20; }, CMATCH_END_SLOW, 4,
     true, 40},
    {"hub", Hub(60, 60), as_is, CMATCH_END_SIZE, 0, true, 30},
    {"parts", Parts(3000), as_is, CMATCH_END_SIZE, 0, true, 40},
  };
  for (const Backend &backend : Backends())
    for (const Ending &ending : endings)
      for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
        CAPTURE(backend.name, ending.name, precision);
        CMATCHParams params = Precision(precision);
        ending.set(&params);
        Twin twin(ending.A, params, backend.where);
        REQUIRE(twin.stats.failure == CMATCH_OK);
        CHECK(twin.stats.end == ending.end);
        CHECK((ending.levels == 0 || twin->levels == ending.levels));
        CHECK(twin->inverted == (PetscBool)ending.inverted);
        const Solution solution = Solve(ending.A, RandomValues(ending.A.n, 37), &twin, 400);
        CHECK(solution.residual <= 1e-8);
        CHECK(solution.iterations <= ending.iterations);
      }
}

/* ------------------------------------------- scaling ------------------------------------------ */

TEST_CASE("cmatch: powers of 2 in the matrix and in the residual are powers of 2 in the result", "[cmatch]")
{
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (const NamedMatrix &m :
           {NamedMatrix{"Poisson", Poisson(20, 21)}, NamedMatrix{"signed graph", SignedGraph(500, 9, 0.2, 38)}})
        for (const NamedParams &variant : CycleVariants(precision, 20)) {
          CAPTURE(backend.name, precision, m.name, variant.name);
          const Vector r = RandomValues(m.A.n, 39);
          Twin         twin(m.A, variant.params, backend.where);
          const Vector z = twin.Apply(r);
          CHECK(AllFinite(z));
          for (const auto &powers : {std::pair<int, int>{80, -200}, {-300, 0}, {0, -900}, {300, 600}, {1, 1}, {-200, 300}}) {
            CAPTURE(powers.first, powers.second);
            Twin         scaled(Times(std::ldexp(1., powers.first), m.A), variant.params, backend.where);
            const Vector expected = std::ldexp(1., powers.second - powers.first) * z;
            CHECK(scaled->scale == std::ldexp(twin->scale, -powers.first));
            CHECK(SameBits(scaled.Apply(std::ldexp(1., powers.second) * r), expected));
          }
        }
}

TEST_CASE("cmatch: residuals of zeros, with a number that is none, and at the ends of the range", "[cmatch]")
{
  const HostMatrix A = Poisson(30, 31);
  for (const Backend &backend : Backends())
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (const NamedParams &variant : CycleVariants(precision, 20)) {
        CAPTURE(backend.name, precision, variant.name);
        Twin         twin(A, variant.params, backend.where);
        const Vector zero(A.n, 0.), r = RandomValues(A.n, 42), z = twin.Apply(r);
        for (double value : twin.Apply(zero)) REQUIRE(value == 0);
        for (double value : {kNaN, kInfinity, -kInfinity})
          for (LocalInt row : {(LocalInt)0, A.n / 2, A.n - 1}) {
            Vector bad = r;
            bad[row]   = value;
            CHECK(!AllFinite(twin.Apply(bad)));
          }
        CHECK(SameBits(z, twin.Apply(r))); /* Nothing of it stays. */
        const Vector least = twin.Apply(Vector(A.n, 4e-324)), large = twin.Apply(Vector(A.n, 1e306)),
                     ones = twin.Apply(Vector(A.n, 1.));
        CHECK(AllFinite(least));
        CHECK(Difference(1e-306 * large, ones) <= 1e-5);
        Vector one_row(A.n, 0.);
        one_row[17] = 1;
        CHECK(Norm(twin.Apply(one_row)) > 0);
      }
}

/* --------------------------------------------- twins ------------------------------------------ */

/*
   Asserts that the hierarchies are the same, and that the cycles of both agree. An error of 1 unit of the residual makes one of
   less than 300 units of the result on most of these systems. Where rounding matters more, the difference in single precision may
   be some times that between single and double precision on the host. The inverses of the twins in double precision have errors
   that grow with their condition. The smoother afsai may find
   other patterns where rounding decides. `values` are the matrices of the set-up and of the refill after it, if there was one.
*/
static void CheckTwins(Twin *host, Twin *device, const std::vector<const HostMatrix *> &values, const Vector &w)
{
  const HostMatrix &A      = *values.front();
  CMATCHParams      params = host->params();
  CheckSame(*host, *device);
  if (host->stats.failure) return;
  const Vector r = RandomValues(A.n, 43), z = device->Apply(r);
  CHECK(SameBits(z, device->Apply(r)));
  if (params.smoother == PC_CMATCH_AFSAI) {
    CHECK(AllFinite(z));
    return;
  }
  const Vector expected   = host->Apply(r);
  const double difference = Difference(z, expected);
  double       tolerance  = params.precision == FINEPC_SINGLE ? 1000 * Unit(FINEPC_SINGLE) : 100000 * Unit(FINEPC_DOUBLE);
  if (params.precision == FINEPC_SINGLE && difference > tolerance) {
    params.precision = FINEPC_DOUBLE;
    Twin exact(A, params, PETSC_MEMTYPE_HOST, w);
    if (values.size() > 1) exact.Compute(*values.back(), params, w, true);
    tolerance = 5 * Difference(exact.Apply(r), expected);
  }
  CHECK(difference <= tolerance);
}

/*
   Each kernel with as little work as it can have, for tools that watch every access. In the hub's rows of the coarse operators the
   tables of the products are full, which the general path is for.
*/
static void CompareTwice(const NamedMatrix &m, const CMATCHParams &params, const Vector &w)
{
  CAPTURE(m.name, params.precision);
  Twin host(m.A, params, PETSC_MEMTYPE_HOST, w), device(m.A, params, PETSC_MEMTYPE_CUDA, w);
  CheckTwins(&host, &device, {&m.A}, w);
  if (m.name == "hub") CHECK(device->level[0].wide > 0);
  const HostMatrix other = OtherValues(m.A, 44);
  host.Compute(other, params, w, true);
  device.Compute(other, params, w, true);
  CheckTwins(&host, &device, {&m.A, &other}, w);
}

static bool IsFactored(const CMATCHParams &params)
{
  return params.smoother == PC_CMATCH_SFSAI || params.smoother == PC_CMATCH_AFSAI;
}

TEST_CASE("cmatch: the kernels of factored smoothers, on a small system", "[cmatch][gpu][sanitizer][factors]")
{
  NEEDS_DEVICE();
  for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
    for (const NamedParams &variant : CycleVariants(precision, 4))
      if (IsFactored(variant.params)) CompareTwice({"grid", Poisson(17, 15)}, variant.params, {});
}

TEST_CASE("cmatch: every kernel, on small systems", "[cmatch][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const auto        compare = CompareTwice;
  const NamedMatrix grid = {"grid", Poisson(17, 15)}, hub = {"hub", Hub(100, 110)}, parts = {"parts", Parts(200)},
                    isolated = {"isolated", Diagonal(Vector(50, 2.))}, arrow = {"arrow", Arrow(2100)};
  NamedMatrix stay = {"columns stay", Poisson(7, 8)};
  for (LocalInt row = 0; row < stay.A.n; row += 7)
    for (LocalInt k = stay.A.i[row]; k < stay.A.i[row + 1]; k++)
      if (stay.A.j[k] != row) stay.A.a[k] = 0;
  for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
    for (const NamedMatrix &m : {grid, parts, isolated, arrow}) compare(m, Precision(precision, 10), {});
    compare(stay, Precision(precision, 60), {}); /* one level, with entries in columns of isolated rows */
    compare(hub, Precision(precision, 40), {});
    compare(grid, Precision(precision, 10), AnyNearNull(grid.A.n, 45));
    for (const NamedParams &variant : CycleVariants(precision, 4))
      if (!IsFactored(variant.params)) compare(grid, variant.params, {});
    for (LocalInt row : {1, 8, 64}) {
      CMATCHParams params    = Precision(precision, 10);
      params.prolongator_row = row;
      compare(grid, params, {});
    }
    CMATCHParams params = Precision(precision, 10);
    params.singular     = PETSC_TRUE;
    compare({"Neumann", Volumes({15, 16, 1}, One, false)}, params, {});
    params.coarse = PC_CMATCH_PCG;
    compare({"Neumann", Volumes({15, 16, 1}, One, false)}, params, {});
  }
}

/* Two levels, since those below are small. */
TEST_CASE("cmatch: the kernels of large levels", "[cmatch][gpu][sanitizer][large]")
{
  NEEDS_DEVICE();
  CMATCHParams params = Precision(FINEPC_SINGLE);
  params.max_levels   = 2;
  CompareTwice({"chain", Tree(140000, [](LocalInt row) { return row - 1; })}, params, {});
}

TEST_CASE("cmatch: twins, every option of the set-up", "[cmatch][gpu]")
{
  NEEDS_DEVICE();
  std::vector<NamedMatrix> matrices = SmallMatrices();
  matrices.push_back({"larger hub", Hub(90, 91)});
  matrices.push_back({"larger signed graph", SignedGraph(9000, 11, 0.2, 46)});
  matrices.push_back({"larger graph", RandomGraph(8100, 9, 47)});
  matrices.push_back({"larger checkerboard", Volumes({24, 25, 26}, Checkerboard(1e4, 8))});
  matrices.push_back({"larger anisotropic", Volumes({127, 128, 1}, One, true, {1e-3, 1, 1})});
  matrices.push_back({"larger parts", Parts(20000)});
  matrices.push_back({"larger 27 points", RandomStencil(21, 20, 20, true, 48)});
  matrices.push_back({"larger arrow", Arrow(9000)});
  matrices.push_back({"isolated", Diagonal(RandomValues(9000, 49, 0.1, 1))});
  matrices.push_back({"dominated", DominatedChain(9000)});
  matrices.push_back({"chain of pairs", ChainOfPairs(9001)});
  Twin device_old(Poisson(5), CMATCHParams(), PETSC_MEMTYPE_CUDA);
  for (const NamedMatrix &m : matrices)
    for (const auto &[variant, precision, with_w] : Covering(SetupVariants(), kPrecisions, kBoth)) {
      CAPTURE(m.name, variant.name, precision, with_w);
      CMATCHParams params    = variant.params;
      params.precision       = precision;
      const Vector     w     = with_w && m.A.n <= 1000 ? AnyNearNull(m.A.n, 50) : Vector();
      const HostMatrix other = OtherValues(m.A, 51);
      Twin             host(m.A, params, PETSC_MEMTYPE_HOST, w), device(m.A, params, PETSC_MEMTYPE_CUDA, w);
      CheckTwins(&host, &device, {&m.A}, w);
      device_old.Compute(m.A, params, w);
      CheckTwins(&host, &device_old, {&m.A}, w);
      if (host.stats.failure) continue;
      host.Compute(other, params, w, true);
      device.Compute(other, params, w, true);
      CheckTwins(&host, &device, {&m.A, &other}, w);
    }
}

/* Few entries a row, whose operators on aggregates need more than the work memory has at once. */
TEST_CASE("cmatch: twins of singular components", "[cmatch][gpu][components][sanitizer]")
{
  NEEDS_DEVICE();
  const HostMatrix A = Pockets({2, 3, 5, 9, 20, 35});
  for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
    for (PCCMATCHCoarse coarse : {PC_CMATCH_DENSE, PC_CMATCH_PCG}) {
      CAPTURE(precision, coarse);
      CMATCHParams params = Precision(precision, 60);
      params.coarse       = coarse;
      Twin on_host(A, params, PETSC_MEMTYPE_HOST), on_device(A, params, PETSC_MEMTYPE_CUDA);
      CheckSame(on_host, on_device);
      CHECK(on_host.stats.ended == on_device.stats.ended);
      CHECK(on_host.stats.parts == on_device.stats.parts);
      const Vector r = Multiply(A, RandomValues(A.n, 87));
      CHECK(Difference(on_device.Apply(r), on_host.Apply(r)) <= (precision == FINEPC_SINGLE ? 1e-5 : 1e-12));
    }
}

TEST_CASE("cmatch: twins of long chains and trees", "[cmatch][gpu]")
{
  NEEDS_DEVICE();
  const auto before = [](LocalInt row) { return row - 1; };
  for (const NamedMatrix &m : {NamedMatrix{"chain", Tree(14250, before)}, NamedMatrix{"longer chain", Tree(60001, before)},
                               NamedMatrix{"uneven chain", GrowingChain(14250)}, NamedMatrix{"comb", Comb(15592, 1)},
                               NamedMatrix{"comb of long teeth", Comb(30000, 7)}, NamedMatrix{"tree", RandomTree(30000, 53)},
                               NamedMatrix{"larger tree", RandomTree(70000, 54)}, NamedMatrix{"parts", Parts(40000)}})
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (LocalInt sweeps : {1, 2, 3}) {
        CAPTURE(m.name, precision, sweeps);
        CMATCHParams params = Precision(precision);
        params.sweeps       = sweeps;
        Twin host(m.A, params, PETSC_MEMTYPE_HOST), device(m.A, params, PETSC_MEMTYPE_CUDA);
        CheckTwins(&host, &device, {&m.A}, {});
      }
}

TEST_CASE("cmatch: twins, every option of the cycle", "[cmatch][gpu]")
{
  NEEDS_DEVICE();
  for (const NamedMatrix &m :
       {NamedMatrix{"Poisson", Poisson(40, 41)}, NamedMatrix{"3D", Poisson(31, 32, 33)},
        NamedMatrix{"checkerboard", Volumes({20, 20, 20}, Checkerboard(1e4, 4))}, NamedMatrix{"hub", Hub(50, 51)},
        NamedMatrix{"signed graph", SignedGraph(1000, 9, 0.2, 52)}, NamedMatrix{"parts", Parts(1000)},
        NamedMatrix{"arrow", Arrow(3000)}, NamedMatrix{"no rows", HostMatrix()}})
    for (FinePCPrecision precision : {FINEPC_SINGLE, FINEPC_DOUBLE})
      for (const NamedParams &variant : CycleVariants(precision, 20)) {
        CAPTURE(m.name, precision, variant.name);
        Twin host(m.A, variant.params, PETSC_MEMTYPE_HOST), device(m.A, variant.params, PETSC_MEMTYPE_CUDA);
        CheckTwins(&host, &device, {&m.A}, {});
      }
}

TEST_CASE("cmatch: twins in another stream", "[cmatch][gpu]")
{
  NEEDS_DEVICE();
  const HostMatrix   A = Poisson(40, 39), other = OtherValues(A, 53);
  const Vector       r      = RandomValues(A.n, 54);
  const CMATCHParams params = Precision(FINEPC_SINGLE, 20);
  Twin               usual(A, params, PETSC_MEMTYPE_CUDA);
  const Vector       z = usual.Apply(r);
  Vector             z_other, z_again;
  {
    const OtherStream stream;
    Twin              twin(A, params, PETSC_MEMTYPE_CUDA);
    z_other = twin.Apply(r);
    stream.Synchronize();
    CheckSame(twin, usual);
    z_again = usual.Apply(r);
    stream.Synchronize();
    twin.Compute(other, params, {}, true);
  }
  CHECK(SameBits(z, z_other));
  CHECK(SameBits(z, z_again));
  CHECK(SameBits(z, usual.Apply(r)));
}
