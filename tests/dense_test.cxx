/* Small dense systems in batches: residuals, what is read and written, pivots that are not positive. */
#include <algorithm>
#include <cmath>
#include <limits>

#include "compare.h"
#include "sparse/dense.h"
#if defined(FINEPC_HAVE_CUDA)
  #include "cholesky.h"
#endif

namespace
{

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/* Around the sizes where the CUDA twin changes its path, and one that is no multiple of anything. */
std::vector<LocalInt> Sizes()
{
  std::vector<LocalInt> sizes;
  for (LocalInt n = 1; n <= 40; n++) sizes.push_back(n);
  for (LocalInt n : {48,  63,  64,  65,  100, 127, 128, 129, 160, 191,  192,  193,
                     208, 224, 255, 256, 257, 288, 300, 511, 600, 1000, 1024, (int)kCholeskyLargest})
    sizes.push_back(n);
  return sizes;
}

/* More than a thread block takes where they are small. */
LocalInt Count(LocalInt n)
{
  return n <= 40 ? 37 : n <= 300 ? 3 : n <= 1024 ? 2 : 1;
}

/* The lower triangle of X diag(d) X^T, X lower triangular, everything column-major. */
std::vector<double> LowerProduct(LocalInt n, const std::vector<double> &X, const std::vector<double> &d)
{
  std::vector<double> product((size_t)n * n, 0);
  for (LocalInt c = 0; c < n; c++)
    for (LocalInt p = 0; p <= c; p++) {
      const double *X_p   = &X[(size_t)p * n];
      double       *to    = &product[(size_t)c * n];
      const double  value = X_p[c] * d[p];
      for (LocalInt r = c; r < n; r++) to[r] += value * X_p[r];
    }
  return product;
}

/*
   X diag(d) X^T with X unit lower triangular of condition 10 or less: system 0 with d = 1, system 1 with d down to `smallest`,
   system 2 with rows and columns scaled by 10^-3 .. 10^3, and so on. The lower triangle; above it is NaN.
*/
std::vector<double> RandomSystem(LocalInt n, LocalInt system, double smallest, std::vector<double> d = {})
{
  Random              random(1000 * n + system);
  std::vector<double> X((size_t)n * n, 0), scale(n, 1);
  if (d.empty())
    for (LocalInt k = 0; k < n; k++) d.push_back(system % 3 == 1 ? std::pow(smallest, random.Between(0, 1)) : 1);
  for (LocalInt c = 0; c < n; c++) {
    X[c + (size_t)c * n] = 1;
    for (LocalInt r = c + 1; r < n; r++) X[r + (size_t)c * n] = random.Between(-0.5, 0.5) / std::sqrt((double)n);
    if (system % 3 == 2) scale[c] = std::pow(10., random.Between(-3, 3));
  }
  std::vector<double> A = LowerProduct(n, X, d);
  for (LocalInt c = 0; c < n; c++)
    for (LocalInt r = 0; r < n; r++) A[r + (size_t)c * n] = r < c ? kNaN : A[r + (size_t)c * n] * scale[r] * scale[c];
  return A;
}

/* So many systems, one behind the other, in memory of that kind. */
PetscErrorCode Cholesky(FinePCPrecision precision, LocalInt n, LocalInt count, void *A, LocalInt *info, PetscMemType where)
{
  PetscFunctionBegin;
#if defined(FINEPC_HAVE_CUDA)
  if (PetscMemTypeDevice(where)) {
    PetscCall(CholeskyBatched_CUDA(precision, n, count, A, info));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
#endif
  CHECK_FALSE(PetscMemTypeDevice(where));
  const size_t bytes = (size_t)n * n * FinePCPrecisionBytes(precision);
  for (LocalInt k = 0; k < count; k++) PetscCall(CholeskyFactor_Host(precision, n, (char *)A + k * bytes, info + k));
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct Factors {
  std::vector<double>   L; /* all systems */
  std::vector<LocalInt> info;
  bool                  inside; /* what lies behind the last system is as it was */
  double                unit;   /* roundoff of the precision */
};

template <typename T>
Factors Factorize(LocalInt n, LocalInt count, const std::vector<double> &A, PetscMemType where)
{
  const FinePCPrecision precision = sizeof(T) == sizeof(float) ? FINEPC_SINGLE : FINEPC_DOUBLE;
  const size_t          guard     = 64;
  std::vector<T>        data(A.begin(), A.end());
  Factors               result;
  result.unit  = Unit(precision);
  void *memory = nullptr, *info = nullptr;

  data.resize(A.size() + guard, (T)-3);
  result.info.assign(count + guard, -3);
  MUST(ArrayCreate(data.size() * sizeof(T), where, &memory));
  MUST(ArrayCreate(result.info.size() * sizeof(LocalInt), where, &info));
  MUST(ArrayCopy(memory, data.data(), data.size() * sizeof(T), where, PETSC_MEMTYPE_HOST));
  MUST(ArrayCopy(info, result.info.data(), result.info.size() * sizeof(LocalInt), where, PETSC_MEMTYPE_HOST));
  MUST(Cholesky(precision, n, count, memory, (LocalInt *)info, where));
  MUST(ArrayCopy(data.data(), memory, data.size() * sizeof(T), PETSC_MEMTYPE_HOST, where));
  MUST(ArrayCopy(result.info.data(), info, result.info.size() * sizeof(LocalInt), PETSC_MEMTYPE_HOST, where));
  MUST(ArrayDestroy(where, &memory));
  MUST(ArrayDestroy(where, &info));
  result.inside = std::count(data.begin() + A.size(), data.end(), (T)-3) == (long)guard &&
                  std::count(result.info.begin() + count, result.info.end(), -3) == (long)guard;
  result.L.assign(data.begin(), data.begin() + A.size());
  result.info.resize(count);
  return result;
}

/*
   Largest |A - L L^T|_rc relative to its bound (n + 1) u sqrt(a_rr a_cc), which holds in any order of the sums; twice of it,
   as the product here is rounded, too. NaN, or an upper triangle that is not, gives infinity.
*/
template <typename T>
double Residual(LocalInt n, const double *A, const double *L)
{
  const double        u = sizeof(T) == sizeof(float) ? kUnitSingle : kUnitDouble;
  std::vector<double> lower(L, L + (size_t)n * n), a(A, A + (size_t)n * n);
  double              worst = 0;
  for (LocalInt c = 0; c < n; c++)
    for (LocalInt r = 0; r < c; r++) {
      if (!std::isnan(lower[r + (size_t)c * n])) return std::numeric_limits<double>::infinity();
      lower[r + (size_t)c * n] = 0;
    }
  const std::vector<double> product = LowerProduct(n, lower, std::vector<double>(n, 1));
  for (double &value : a) value = (T)value;
  for (LocalInt c = 0; c < n; c++)
    for (LocalInt r = c; r < n; r++) {
      const double off =
        std::fabs(a[r + (size_t)c * n] - product[r + (size_t)c * n]) / std::sqrt(a[r + (size_t)r * n] * a[c + (size_t)c * n]);
      if (!(off / (2 * (n + 1) * u) <= worst))
        worst = std::isnan(off) ? std::numeric_limits<double>::infinity() : off / (2 * (n + 1) * u);
    }
  return worst;
}

template <typename T>
void CheckResiduals(const Backend &backend)
{
  for (LocalInt n : Sizes()) {
    const LocalInt      count = Count(n);
    std::vector<double> A;
    for (LocalInt system = 0; system < count; system++) {
      const auto one = RandomSystem(n, system, sizeof(T) == sizeof(float) ? 1e-2 : 1e-8);
      A.insert(A.end(), one.begin(), one.end());
    }
    const Factors F     = Factorize<T>(n, count, A, backend.where);
    double        worst = 0;
    for (LocalInt system = 0; system < count; system++)
      worst = std::max(worst, Residual<T>(n, &A[(size_t)system * n * n], &F.L[(size_t)system * n * n]));
    CAPTURE(backend.name, sizeof(T), n);
    CHECK(worst <= 1);
    CHECK(F.info == std::vector<LocalInt>(count, 0));
    CHECK(F.inside);
  }
}

template <typename T>
void CheckPivots(const Backend &backend)
{
  for (LocalInt n : Sizes()) {
    if (n > 300 && n != 600) continue;
    CAPTURE(backend.name, sizeof(T), n);
    std::vector<double>   A;
    std::vector<LocalInt> expected;
    const auto            add = [&](LocalInt k, double d, bool exactly) { /* d is the k-th pivot */
                                                               std::vector<double> pivots(n, 1);
                                                               if (k && !exactly) pivots[k - 1] = d;
                                                               std::vector<double> one = RandomSystem(n, 0, 1, pivots);
                                                               if (exactly)
                                                                 for (LocalInt c = 0; c < n; c++)
                                                                   for (LocalInt r = c; r < n; r++)
                                                                     one[r + (size_t)c * n] = r != c ? 0 : r == k - 1 ? d : 1;
                                                               A.insert(A.end(), one.begin(), one.end());
                                                               expected.push_back(k);
    };
    for (LocalInt k : {(LocalInt)1, n / 2 + 1, n}) {
      add(0, 1, false); /* good ones between them */
      add(k, -0.5, false);
      add(k, 0, true);
      add(k, kNaN, true);
    }
    const Factors F = Factorize<T>(n, (LocalInt)expected.size(), A, backend.where);
    CHECK(F.info == expected);
    CHECK(F.inside);
    double worst = 0;
    for (size_t system = 0; system < expected.size(); system++)
      if (!expected[system]) worst = std::max(worst, Residual<T>(n, &A[system * n * n], &F.L[system * n * n]));
    CHECK(worst <= 1);
  }
}

} // namespace

/* [4 2; 2 10] = [2 0; 1 3] [2 1; 0 3] */
TEST_CASE("Cholesky by hand", "[dense]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    for (const Factors &F :
         {Factorize<float>(2, 1, {4, 2, 7, 10}, backend.where), Factorize<double>(2, 1, {4, 2, 7, 10}, backend.where)}) {
      const std::vector<double> L = {2, 1, 7, 3}; /* the device's roots are not rounded correctly */
      for (size_t k = 0; k < L.size(); k++) CHECK(F.L[k] == Approx(L[k]).epsilon(4 * F.unit));
      CHECK(F.info == std::vector<LocalInt>{0});
    }
  }
}

TEST_CASE("A = L L^T in every size, reading and writing the lower triangle only", "[dense][long]")
{
  for (const Backend &backend : Backends()) {
    CheckResiduals<float>(backend);
    CheckResiduals<double>(backend);
  }
}

TEST_CASE("the first pivot that is not positive is named, and only its system is lost", "[dense]")
{
  for (const Backend &backend : Backends()) {
    CheckPivots<float>(backend);
    CheckPivots<double>(backend);
  }
}

TEST_CASE("no systems, systems of size 0, and systems that are too large", "[dense]")
{
  for (const Backend &backend : Backends()) {
    CAPTURE(backend.name);
    CHECK(Factorize<double>(5, 0, {}, backend.where).inside);
    CHECK(Factorize<float>(0, 0, {}, backend.where).inside);
    Errors errors;
    CHECK(Cholesky(FINEPC_DOUBLE, kCholeskyLargest + 1, 1, nullptr, nullptr, backend.where) != 0);
    CHECK(Contains(errors.text, "The size of a system is " + std::to_string(kCholeskyLargest + 1) + ", but can be at most " +
                                  std::to_string(kCholeskyLargest)));
  }
}

#if defined(FINEPC_HAVE_CUDA)
TEST_CASE("Cholesky on the device does not wait", "[dense][gpu]")
{
  NEEDS_DEVICE();
  for (LocalInt n : {7, 20, 32, 100, 600}) {
    CAPTURE(n);
    void *A = nullptr, *info = nullptr;
    MUST(ArrayCreate((size_t)n * n * sizeof(double), PETSC_MEMTYPE_CUDA, &A));
    MUST(ArrayCreate(sizeof(LocalInt), PETSC_MEMTYPE_CUDA, &info));
    CHECK(AsynchronousOnDevice([&] {
      MUST(CholeskyBatched_CUDA(FINEPC_SINGLE, n, 1, A, (LocalInt *)info));
      MUST(CholeskyBatched_CUDA(FINEPC_DOUBLE, n, 1, A, (LocalInt *)info));
    }));
    MUST(ArrayDestroy(PETSC_MEMTYPE_CUDA, &A));
    MUST(ArrayDestroy(PETSC_MEMTYPE_CUDA, &info));
  }
}
#endif

/* ----------------------------------- for compute-sanitizer ------------------------------------ */

TEST_CASE("Cholesky: every kernel, on small systems", "[dense][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  for (LocalInt n : {1, 7, 16, 33, 64, 100, 200}) {
    std::vector<double> A;
    for (LocalInt system = 0; system < 3; system++) {
      const auto one = RandomSystem(n, 0, 0.1);
      A.insert(A.end(), one.begin(), one.end());
    }
    CAPTURE(n);
    const Factors F = Factorize<double>(n, 3, A, PETSC_MEMTYPE_CUDA), single = Factorize<float>(n, 3, A, PETSC_MEMTYPE_CUDA);
    CHECK(Residual<double>(n, A.data(), F.L.data()) <= 1);
    CHECK(Residual<float>(n, A.data(), single.L.data()) <= 1);
    CHECK((F.inside && single.inside));
  }
}
