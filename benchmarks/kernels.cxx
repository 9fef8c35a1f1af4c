static char help[] =
  "Measures kernels of set-ups by themselves on one GPU, beside tables of Bernaschi, Bisson, Fantozzi, Janna 2016.\n"
  "  -cholesky   -pattern   -blocks   (none: all)   -json out.json   -md out.md\n\n";

/*
  The paper of the static FSAI: Bernaschi, Bisson, Fantozzi, Janna, A factored sparse approximate inverse preconditioned conjugate
  gradient solver on graphics processing units, SIAM J. Sci. Comput. 38 (2016) C53-C72; its GPU is one of the two of a Kepler K80.
  Block matrices are in block_kernels.cxx.
*/
#include "cholesky.h"
#include "kernels.h"
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include "pc/sfsai/sfsai.h"
#include "sparse/csr_mat.h"

static const char    kProgram[] = "finepc_kernels";
static constexpr int kSkipped   = 77; /* exit status where there is no device, by which ctest knows a skipped test */

/* ----------------------------- batches of Cholesky factorisations ----------------------------- */

/* Table 3 of the paper, 13,000 systems; its GFlop are counted by a profiler */
struct PaperCholesky {
  PetscInt       n;
  PetscLogDouble ms[2], gflops[2]; /* single, double */
};
static constexpr PetscInt      kPaperBatch      = 13000;
static constexpr PaperCholesky kPaperCholesky[] = {
  {16, {0.84, 1.11}, {39.81, 31.82}},       {32, {1.85, 2.57}, {112.08, 82.10}},       {64, {4.99, 6.55}, {280.61, 214.83}},
  {96, {10.28, 18.83}, {431.25, 235.89}},   {128, {18.77, 62.95}, {540.75, 161.49}},   {160, {45.16, 80.90}, {457.06, 255.34}},
  {192, {70.31, 146.33}, {495.81, 238.37}}, {224, {109.36, 187.54}, {497.71, 290.37}}, {256, {136.61, 446.06}, {587.13, 179.87}},
};

/* How many times faster than cuSOLVER our factorisation is meant to be */
static PetscLogDouble CholeskyAsked(PetscInt n)
{
  return n <= 128 ? 3. : 1.;
}

struct CholeskyResult {
  PetscInt                    n         = 0;
  FinePCPrecision             precision = FINEPC_SINGLE;
  std::vector<PetscLogDouble> own, cusolver; /* seconds */
  PetscLogDouble              own_residual = 0., cusolver_residual = 0., difference = 0.;
  PetscInt                    own_bad = 0, cusolver_bad = 0; /* systems whose info is not 0 */
  std::string                 status, note;
};

/* Operations of LAPACK's POTRF, as LAPACK counts them */
static PetscLogDouble CholeskyFlops(PetscInt n)
{
  const PetscLogDouble m = (PetscLogDouble)n;

  return m * m * m / 3. + m * m / 2. + m / 6.;
}

static constexpr PetscInt kDistinct = 16; /* number of different matrices in a batch, which repeats them */
static constexpr PetscInt kChecked  = 9;  /* number of systems in a batch whose factors are checked */

/*
   Symmetric, entries in [-1, 1), the diagonal 2 sqrt(n) to 2 sqrt(n) + 1: the eigenvalues off it are within 2 sqrt(n / 3) for large
   n
*/
template <typename T>
static std::vector<T> MakeMatrices(PetscInt n, PetscInt count)
{
  const size_t                           size = (size_t)n * n;
  std::vector<T>                         A(size * count);
  std::mt19937                           generator((unsigned)n);
  std::uniform_real_distribution<double> uniform(-1., 1.);

  for (PetscInt b = 0; b < count; b++) {
    T *const own = A.data() + size * b;

    for (PetscInt c = 0; c < n; c++) {
      own[(size_t)c * n + c] = (T)(2. * std::sqrt((double)n) + 0.5 * (1. + uniform(generator)));
      for (PetscInt r = c + 1; r < n; r++) own[(size_t)c * n + r] = own[(size_t)r * n + c] = (T)uniform(generator);
    }
  }
  return A;
}

/* ||A - L L^T||_F / ||A||_F over the lower triangle, column-major */
template <typename T>
static PetscLogDouble CholeskyResidual(PetscInt n, const T *A, const T *L)
{
  std::vector<double> column((size_t)n);
  PetscLogDouble      sum = 0., norm = 0.;

  for (PetscInt c = 0; c < n; c++) {
    for (PetscInt r = c; r < n; r++) column[r] = (double)A[(size_t)c * n + r];
    for (PetscInt r = c; r < n; r++) norm += column[r] * column[r];
    for (PetscInt k = 0; k <= c; k++) {
      const T *const L_k = L + (size_t)k * n;
      for (PetscInt r = c; r < n; r++) column[r] -= (double)L_k[r] * (double)L_k[c];
    }
    for (PetscInt r = c; r < n; r++) sum += column[r] * column[r];
  }
  return std::sqrt(sum / norm);
}

/* max |L - K| / max |K| over the lower triangles */
template <typename T>
static PetscLogDouble CholeskyDifference(PetscInt n, const T *L, const T *K)
{
  PetscLogDouble difference = 0., most = 0.;

  for (PetscInt c = 0; c < n; c++) {
    for (size_t k = (size_t)c * n + c; k < (size_t)(c + 1) * n; k++) {
      const PetscLogDouble d = std::fabs((double)L[k] - (double)K[k]);
      if (std::isnan(d)) return d;
      difference = std::max(difference, d);
      most       = std::max(most, std::fabs((double)K[k]));
    }
  }
  return difference / most;
}

static cusolverStatus_t PotrfBatched(cusolverDnHandle_t handle, int n, float **A, int *info, int count)
{
  return cusolverDnSpotrfBatched(handle, CUBLAS_FILL_MODE_LOWER, n, A, n, info, count);
}

static cusolverStatus_t PotrfBatched(cusolverDnHandle_t handle, int n, double **A, int *info, int count)
{
  return cusolverDnDpotrfBatched(handle, CUBLAS_FILL_MODE_LOWER, n, A, n, info, count);
}

/* Number in the batch of the k-th system that is checked: the first, the last, and some between them */
static PetscInt CheckedSystem(PetscInt k, PetscInt batch)
{
  return (PetscInt)((size_t)k * (batch - 1) / (kChecked - 1));
}

/* The factors of the checked systems, and how many systems failed */
template <typename T>
static PetscErrorCode FetchFactors(PetscInt n, PetscInt batch, const DeviceArray &factors, const DeviceArray &info,
                                   std::vector<T> *L, PetscInt *bad)
{
  const size_t     size = (size_t)n * n;
  std::vector<int> codes((size_t)batch);

  PetscFunctionBeginUser;
  L->resize(size * kChecked);
  for (PetscInt k = 0; k < kChecked; k++)
    PetscCall(CopyToHost(L->data() + size * k, factors.at(size * sizeof(T) * (size_t)CheckedSystem(k, batch)), size * sizeof(T)));
  PetscCall(CopyToHost(codes.data(), info.data, codes.size() * sizeof(int)));
  *bad = (PetscInt)std::count_if(codes.begin(), codes.end(), [](int code) { return code != 0; });
  PetscFunctionReturn(PETSC_SUCCESS);
}

template <typename T>
static PetscErrorCode MeasureCholeskyIn(PetscInt batch, PetscInt repeats, CholeskyResult *result)
{
  const PetscInt       n = result->n, distinct = PetscMin(kDistinct, batch);
  const size_t         size = (size_t)n * n * sizeof(T), bytes = size * batch;
  const std::vector<T> matrices = MakeMatrices<T>(n, distinct);
  std::vector<T>       own, cusolver;
  std::vector<T *>     pointers;
  DeviceArray          A, L, info, delay, device_pointers; /* freed at the end of the scope, also after an error */
  cusolverDnHandle_t   handle;
  cudaStream_t         stream;

  PetscFunctionBeginUser;
  static_assert(sizeof(LocalInt) == sizeof(int), "cuSOLVER and CholeskyBatched_CUDA share one info array");
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCall(A.Create(bytes));
  PetscCall(L.Create(bytes));
  PetscCall(info.Create((size_t)batch * sizeof(int)));
  PetscCall(delay.Create(2 * kDelay));
  PetscCallCUDA(cudaMemsetAsync(delay.data, 0, 2 * kDelay, stream));
  PetscCall(CopyToDevice(A.data, matrices.data(), size * distinct));
  for (size_t made = size * distinct; made < bytes;) { /* what is there is copied behind itself: system b is matrix b % distinct */
    const size_t some = std::min(made, bytes - made);
    PetscCall(CopyOnDevice(A.at(made), A.data, some));
    made += some;
  }
  for (PetscInt b = 0; b < batch; b++) pointers.push_back((T *)L.at(size * b));
  PetscCall(device_pointers.Create(pointers.size() * sizeof(T *)));
  PetscCall(CopyToDevice(device_pointers.data, pointers.data(), pointers.size() * sizeof(T *)));

  const auto prepare = [&]() {
    PetscFunctionBeginUser;
    PetscCallCUDA(cudaMemsetAsync(info.data, 0xff, (size_t)batch * sizeof(int), stream)); /* an info that is not written is not 0 */
    PetscCall(CopyOnDevice(delay.at(kDelay), delay.data, kDelay));
    PetscCall(CopyOnDevice(L.data, A.data, bytes));
    PetscFunctionReturn(PETSC_SUCCESS);
  };
  PetscCall(TimeOnDevice(
    repeats, prepare, [&]() { return CholeskyBatched_CUDA(result->precision, n, batch, L.data, (LocalInt *)info.data); },
    &result->own));
  PetscCall(FetchFactors(n, batch, L, info, &own, &result->own_bad));

  PetscCallCUSOLVER(cusolverDnCreate(&handle));
  PetscCallCUSOLVER(cusolverDnSetStream(handle, stream));
  const auto call = [&]() {
    PetscFunctionBeginUser;
    PetscCallCUSOLVER(PotrfBatched(handle, n, (T **)device_pointers.data, (int *)info.data, batch));
    PetscFunctionReturn(PETSC_SUCCESS);
  };
  PetscCall(TimeOnDevice(repeats, prepare, call, &result->cusolver));
  PetscCall(FetchFactors(n, batch, L, info, &cusolver, &result->cusolver_bad));
  PetscCallCUSOLVER(cusolverDnDestroy(handle));

  const PetscLogDouble rounding = (8. + std::sqrt((PetscLogDouble)n)) * std::numeric_limits<T>::epsilon();
  bool                 good     = !result->own_bad && !result->cusolver_bad;
  for (PetscInt k = 0; k < kChecked; k++) {
    const T *const own_k = own.data() + (size_t)n * n * k, *const cusolver_k = cusolver.data() + (size_t)n * n * k,
                   *const A_k          = matrices.data() + (size_t)n * n * (CheckedSystem(k, batch) % distinct);
    const PetscLogDouble  residuals[2] = {CholeskyResidual(n, A_k, own_k), CholeskyResidual(n, A_k, cusolver_k)},
                         difference    = CholeskyDifference(n, own_k, cusolver_k);

    /* a comparison with a NaN is false, so a NaN is not good */
    good                      = good && residuals[0] <= rounding && residuals[1] <= rounding && difference <= 10. * rounding;
    result->own_residual      = std::max(residuals[0], result->own_residual);
    result->cusolver_residual = std::max(residuals[1], result->cusolver_residual);
    result->difference        = std::max(difference, result->difference);
  }
  if (result->own_bad) result->note += Format("info not 0 in %d systems; ", (int)result->own_bad);
  if (result->cusolver_bad) result->note += Format("cuSOLVER's info not 0 in %d systems; ", (int)result->cusolver_bad);
  result->status = good ? "ok" : "wrong";
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode MeasureCholesky(PetscInt batch, PetscInt repeats, CholeskyResult *result)
{
  PetscFunctionBeginUser;
  if (result->precision == FINEPC_SINGLE) PetscCall(MeasureCholeskyIn<float>(batch, repeats, result));
  else PetscCall(MeasureCholeskyIn<double>(batch, repeats, result));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------- patterns of powers ------------------------------------- */

/* Table 1 of the paper: Cube3D, 190,581 rows, 7,531,389 nonzeros, tau = 0 */
struct PaperPattern {
  PetscInt       power;
  PetscLogDouble entries, ms;
};
static constexpr PaperPattern kPaperPattern[] = {
  {2, 19880688., 17.7},   {3, 60114684., 98.0},    {4, 134573295., 351.6},
  {5, 250615200., 701.0}, {6, 413949594., 1448.7}, {7, 628388562., 2711.5},
};
static constexpr PetscLogDouble kPatternAsked = 10.; /* times the paper's entries per second */

struct PatternResult {
  PetscInt                    power   = 0;
  PetscLogDouble              entries = 0.; /* of the lower triangle, diagonal included */
  std::vector<PetscLogDouble> seconds;
  PetscLogDouble              bytes = 0.; /* of G as the function returns it */
  std::string                 status, note;
};

/*
   Lower triangle of the power-th power of a full box stencil, whose rows reach `power` neighbours in every direction; 0 for other
   systems
*/
static PetscLogDouble BoxEntries(const System &system, PetscInt power)
{
  PetscLogDouble pairs = 1.;

  if (system.kind != "poisson2d9" && system.kind != "poisson3d27") return 0.;
  for (const PetscInt n : system.grid) {
    PetscLogDouble line = (PetscLogDouble)n;
    for (PetscInt s = 1; s <= PetscMin(power, n - 1); s++) line += 2. * (PetscLogDouble)(n - s);
    pairs *= line;
  }
  return (pairs + (PetscLogDouble)system.rows) / 2.;
}

static PetscErrorCode MeasurePattern(const Backend &backend, const System &system, PetscInt repeats, PatternResult *result)
{
  const PetscInt warm = 1;
  CSRMat         mat;
  SFSAIParams    params;

  PetscFunctionBeginUser;
  params.power = result->power; /* prefilter and max_row are 0, so that no scaling is needed */
  PetscCall(MatGetCSR(system.A, &mat));
  PetscCheck(PetscMemTypeDevice(mat.A.where), PETSC_COMM_SELF, PETSC_ERR_PLIB, "The matrix is not on the device");
  for (PetscInt repeat = 0; repeat < warm + repeats; repeat++) {
    PetscLogDouble start, end;
    FSAIStats      stats = FSAIStats{};
    CSR            G     = CSR{};

    PetscCall(TimeSynchronized(backend, &start));
    PetscCall(SFSAIPattern_CUDA(&mat.A, 0, nullptr, nullptr, &params, &G, &stats));
    PetscCall(TimeSynchronized(backend, &end));
    if (repeat >= warm) result->seconds.push_back(end - start);
    result->entries = (PetscLogDouble)G.nnz + (PetscLogDouble)G.rows;
    result->bytes   = (PetscLogDouble)CSRBytes(&G);
    PetscCall(CSRDestroy(&G));
  }
  PetscCall(MatRestoreCSR(&mat));
  const PetscLogDouble expected = BoxEntries(system, result->power);
  result->status                = expected > 0. && result->entries != expected ? "wrong" : "ok";
  if (result->status != "ok") result->note += Format("there should be %.0f entries; ", expected);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- the report ----------------------------------------- */

struct KernelConfig {
  Backend                  backend;
  Output                   output;
  PetscBool                cholesky = PETSC_FALSE, pattern = PETSC_FALSE, blocks = PETSC_FALSE;
  std::vector<PetscInt>    sizes, powers;
  std::vector<std::string> block_systems;
  PetscInt                 batch   = kPaperBatch;
  PetscInt                 repeats = 10;
  std::string              system  = "poisson3d27:58";
};

struct KernelResults {
  std::vector<CholeskyResult> cholesky;
  System                      system; /* of the patterns; its matrix no longer exists when the report is written */
  std::vector<PatternResult>  pattern;
  std::vector<BlockResult>    blocks;
};

static const std::vector<Column> kCholeskyColumns = {
  {"n", 4},           {"precision", -9}, {"ms", 9},    {"GFlop/s", 9},       {"floor %", 7},        {"cuSOLVER ms", 11},
  {"GFlop/s", 9},     {"ratio", 6},      {"asked", 5}, {"paper K80 ms", 12}, {"paper GFlop/s", 13}, {"residual", 8},
  {"difference", 10}, {"status", -6},    {"note", -4},
};

static const std::vector<Column> kPatternColumns = {
  {"k", 2},     {"nnz", 11},  {"ms", 9},   {"Gnnz/s", 8},  {"paper nnz", 11}, {"paper K80 ms", 12}, {"paper Gnnz/s", 12},
  {"ratio", 7}, {"asked", 5}, {"G MB", 8}, {"status", -6}, {"note", -4},
};

static const PaperCholesky *CholeskyOfPaper(const KernelConfig &config, PetscInt n)
{
  const auto *found =
    std::find_if(std::begin(kPaperCholesky), std::end(kPaperCholesky), [&](const PaperCholesky &row) { return row.n == n; });

  return config.batch == kPaperBatch && found != std::end(kPaperCholesky) ? found : nullptr;
}

static const PaperPattern *PatternOfPaper(PetscInt power)
{
  const auto *found =
    std::find_if(std::begin(kPaperPattern), std::end(kPaperPattern), [&](const PaperPattern &row) { return row.power == power; });

  return found != std::end(kPaperPattern) ? found : nullptr;
}

static PetscLogDouble PaperRate(const PaperPattern &row)
{
  return row.entries / (1e-3 * row.ms);
}

static PetscLogDouble CholeskyRate(const KernelConfig &config, PetscInt n, PetscLogDouble seconds)
{
  return Quotient(1e-9 * CholeskyFlops(n) * (PetscLogDouble)config.batch, seconds);
}

/* The time to read and write the lower triangles once at the copy bandwidth, divided by the time of the factorisation */
static PetscLogDouble CholeskyFloor(const KernelConfig &config, const CholeskyResult &result)
{
  const PetscLogDouble n = (PetscLogDouble)result.n, entry = (PetscLogDouble)FinePCPrecisionBytes(result.precision);

  return FloorFraction(config.backend, n * (n + 1.) * entry * (PetscLogDouble)config.batch, Best(result.own));
}

static std::string CholeskyRow(const KernelConfig &config, const CholeskyResult &result)
{
  const PetscLogDouble       own = Best(result.own), cusolver = Best(result.cusolver);
  const PaperCholesky *const paper   = CholeskyOfPaper(config, result.n);
  const int                  p       = result.precision == FINEPC_SINGLE ? 0 : 1;
  const bool                 checked = !result.status.empty() && result.status != "failed";

  return MarkdownCells(kCholeskyColumns, {
                                           Format("%d", (int)result.n),
                                           FinePCPrecisions[result.precision],
                                           Cell("%.4f", 1e3 * own, own > 0.),
                                           Cell("%.1f", CholeskyRate(config, result.n, own), own > 0.),
                                           Cell("%.0f", 100. * CholeskyFloor(config, result), own > 0.),
                                           Cell("%.4f", 1e3 * cusolver, cusolver > 0.),
                                           Cell("%.1f", CholeskyRate(config, result.n, cusolver), cusolver > 0.),
                                           Cell("%.2f", Quotient(cusolver, own), own > 0. && cusolver > 0.),
                                           Cell("%.0f", CholeskyAsked(result.n), true),
                                           Cell("%.2f", paper ? paper->ms[p] : 0., paper),
                                           Cell("%.2f", paper ? paper->gflops[p] : 0., paper),
                                           Cell("%.0e", result.own_residual, checked),
                                           Cell("%.0e", result.difference, checked),
                                           result.status,
                                           result.note,
                                         });
}

static std::string PatternRow(const PatternResult &result)
{
  const PetscLogDouble      best = Best(result.seconds), rate = Quotient(result.entries, best);
  const PaperPattern *const paper = PatternOfPaper(result.power);

  return MarkdownCells(kPatternColumns, {
                                          Format("%d", (int)result.power),
                                          Cell("%.0f", result.entries, best > 0.),
                                          Cell("%.3f", 1e3 * best, best > 0.),
                                          Cell("%.3f", 1e-9 * rate, best > 0.),
                                          Cell("%.0f", paper ? paper->entries : 0., paper),
                                          Cell("%.1f", paper ? paper->ms : 0., paper),
                                          Cell("%.3f", paper ? 1e-9 * PaperRate(*paper) : 0., paper),
                                          Cell("%.2f", paper ? rate / PaperRate(*paper) : 0., paper && best > 0.),
                                          Cell("%.0f", kPatternAsked, paper),
                                          Cell("%.1f", 1e-6 * result.bytes, best > 0.),
                                          result.status,
                                          result.note,
                                        });
}

static std::string CholeskyHeader(const KernelConfig &config)
{
  return Format("Cholesky factorisations of %d systems of n unknowns at a time, the best of %d, restored before each. GFlop = "
                "n^3/3 + n^2/2 + n/6 a\n"
                "system; floor: the lower triangles read and written once at the copy bandwidth; ratio: cuSOLVER's time "
                "(potrfBatched, lower) over ours.\n\n",
                (int)config.batch, (int)config.repeats) +
         MarkdownHeader(kCholeskyColumns);
}

static std::string PatternHeader(const KernelConfig &config, const System &system)
{
  return Format("Pattern of the lower triangle after k symbolic products, nothing filtered, %s, %.0f rows, %.0f nonzeros; the "
                "best of %d, memory\n"
                "allocated and G returned in each. The paper's matrix is Cube3D, 190581 rows, 7531389 nonzeros; ratio: entries "
                "per second over the paper's.\n\n",
                system.name.c_str(), (double)system.rows, system.nnz, (int)config.repeats) +
         MarkdownHeader(kPatternColumns);
}

static std::string MarkdownReport(const KernelConfig &config, const KernelResults &results)
{
  std::string text = MachineText(kProgram, config.backend, config.output);

  if (config.cholesky) {
    text += "\n" + CholeskyHeader(config);
    for (const auto &result : results.cholesky) text += CholeskyRow(config, result);
  }
  if (!results.pattern.empty()) {
    text += "\n" + PatternHeader(config, results.system);
    for (const auto &result : results.pattern) text += PatternRow(result);
  }
  if (!results.blocks.empty()) {
    text += "\n" + BlockHeader(config.repeats);
    for (const auto &result : results.blocks) text += BlockRow(config.backend, result);
    text += "\n" + BlockILUHeader();
    for (const auto &result : results.blocks) text += BlockILURow(result);
    text += "\n" + BlockSweepsHeader();
    for (const auto &result : results.blocks) text += BlockSweepsRows(result);
  }
  return text;
}

static Json CholeskyJson(const KernelConfig &config, const CholeskyResult &result)
{
  const PaperCholesky *const paper = CholeskyOfPaper(config, result.n);
  const int                  p     = result.precision == FINEPC_SINGLE ? 0 : 1;
  Json                       json;

  json["n"]               = result.n;
  json["precision"]       = FinePCPrecisions[result.precision];
  json["status"]          = result.status;
  json["note"]            = result.note;
  json["s"]               = Rounded(Best(result.own));
  json["gflops"]          = Rounded(CholeskyRate(config, result.n, Best(result.own)));
  json["floor_fraction"]  = Rounded(CholeskyFloor(config, result));
  json["cusolver_s"]      = Rounded(Best(result.cusolver));
  json["cusolver_gflops"] = Rounded(CholeskyRate(config, result.n, Best(result.cusolver)));
  json["ratio"]           = Rounded(Quotient(Best(result.cusolver), Best(result.own)));
  json["asked_ratio"]     = CholeskyAsked(result.n);
  if (paper) {
    json["paper_s"]      = Rounded(1e-3 * paper->ms[p]);
    json["paper_gflops"] = paper->gflops[p];
  }
  json["residual"]          = Rounded(result.own_residual);
  json["cusolver_residual"] = Rounded(result.cusolver_residual);
  json["difference"]        = Rounded(result.difference);
  json["all_s"]             = RoundedAll(result.own);
  json["cusolver_all_s"]    = RoundedAll(result.cusolver);
  return json;
}

static Json PatternJson(const PatternResult &result)
{
  const PaperPattern *const paper = PatternOfPaper(result.power);
  const PetscLogDouble      rate  = Quotient(result.entries, Best(result.seconds));
  Json                      json;

  json["power"]     = result.power;
  json["status"]    = result.status;
  json["note"]      = result.note;
  json["nnz"]       = (std::int64_t)result.entries;
  json["s"]         = Rounded(Best(result.seconds));
  json["nnz_per_s"] = Rounded(rate);
  json["bytes"]     = Rounded(result.bytes);
  if (paper) {
    json["paper_nnz"]       = (std::int64_t)paper->entries;
    json["paper_s"]         = Rounded(1e-3 * paper->ms);
    json["paper_nnz_per_s"] = Rounded(PaperRate(*paper));
    json["ratio"]           = Rounded(rate / PaperRate(*paper));
    json["asked_ratio"]     = kPatternAsked;
  }
  json["all_s"] = RoundedAll(result.seconds);
  return json;
}

static Json ReportJson(const KernelConfig &config, const KernelResults &results)
{
  Json json = MachineJson(kProgram, config.backend, config.output), cholesky = Json::array(), pattern = Json::array(),
       blocks = Json::array();

  for (const auto &result : results.cholesky) cholesky.push_back(CholeskyJson(config, result));
  for (const auto &result : results.pattern) pattern.push_back(PatternJson(result));
  for (const auto &result : results.blocks) blocks.push_back(BlocksJson(config.backend, result));
  json["repeats"] = config.repeats;
  if (config.cholesky) {
    json["cholesky"]["batch"]   = config.batch;
    json["cholesky"]["results"] = cholesky;
  }
  if (!results.pattern.empty()) {
    json["pattern"]["system"]  = results.system.name;
    json["pattern"]["rows"]    = results.system.rows;
    json["pattern"]["nnz"]     = (std::int64_t)results.system.nnz;
    json["pattern"]["results"] = pattern;
  }
  if (!results.blocks.empty()) json["blocks"] = blocks;
  return json;
}

static PetscErrorCode ReportFiles(const KernelConfig &config, const KernelResults &results)
{
  PetscFunctionBeginUser;
  if (!config.output.json_file.empty()) PetscCall(WriteJson(config.output.json_file, ReportJson(config, results)));
  if (!config.output.md_file.empty()) PetscCall(WriteFile(config.output.md_file, MarkdownReport(config, results)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------------- main -------------------------------------------- */

static constexpr PetscInt kMaxList = 64;

/* Somewhat more than a million unknowns each, with every size of a block up to 8 */
static const std::vector<std::string> kBlockSystems = {"block3d7:100:1", "block3d7:80:2", "block3d7:70:3", "block3d7:64:4",
                                                       "block3d7:60:5",  "block3d7:56:6", "block3d7:54:7", "block3d7:51:8"};

static PetscErrorCode ConfigFromOptions(KernelConfig *config)
{
  PetscInt  sizes[kMaxList], powers[kMaxList], n_sizes = kMaxList, n_powers = kMaxList;
  char      system[PETSC_MAX_PATH_LEN];
  char     *systems[kMaxList];
  PetscInt  n_systems = kMaxList;
  PetscBool set_sizes, set_powers, set_systems;

  PetscFunctionBeginUser;
  PetscCall(OutputFromOptions(&config->output));
  PetscCall(PetscStrncpy(system, config->system.c_str(), sizeof(system)));
  PetscOptionsBegin(PETSC_COMM_WORLD, nullptr, "Kernels", "");
  PetscCall(PetscOptionsBool("-cholesky", "Batches of Cholesky factorisations", "", config->cholesky, &config->cholesky, nullptr));
  PetscCall(PetscOptionsBool("-pattern", "Patterns of powers", "", config->pattern, &config->pattern, nullptr));
  PetscCall(PetscOptionsBool("-blocks", "Block matrices", "", config->blocks, &config->blocks, nullptr));
  PetscCall(PetscOptionsStringArray("-block_systems", "Systems of the block matrices, separated by commas", "", systems, &n_systems,
                                    &set_systems));
  PetscCall(PetscOptionsIntArray("-sizes", "Unknowns of a system", "", sizes, &n_sizes, &set_sizes));
  PetscCall(PetscOptionsBoundedInt("-batch", "Systems at a time", "", config->batch, &config->batch, nullptr, 1));
  PetscCall(PetscOptionsIntArray("-powers", "Symbolic products", "", powers, &n_powers, &set_powers));
  PetscCall(
    PetscOptionsString("-system", "System of the patterns, as in finepc_bench", "", system, system, sizeof(system), nullptr));
  PetscCall(
    PetscOptionsBoundedInt("-repeats", "Timings, of which the best counts", "", config->repeats, &config->repeats, nullptr, 1));
  PetscOptionsEnd();
  config->system = system;
  if (!config->cholesky && !config->pattern && !config->blocks) config->cholesky = config->pattern = config->blocks = PETSC_TRUE;
  if (set_systems) {
    config->block_systems.assign(systems, systems + n_systems);
    for (PetscInt k = 0; k < n_systems; k++) PetscCall(PetscFree(systems[k]));
  } else config->block_systems = kBlockSystems;
  if (set_sizes) config->sizes.assign(sizes, sizes + n_sizes);
  else {
    for (const auto &row : kPaperCholesky) config->sizes.push_back(row.n);
  }
  if (set_powers) config->powers.assign(powers, powers + n_powers);
  else {
    for (const auto &row : kPaperPattern) config->powers.push_back(row.power);
  }
  for (const PetscInt n : config->sizes)
    PetscCheck(n >= 1 && n <= kCholeskyLargest, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT,
               "-sizes are from 1 to %" LocalInt_FMT ", not %" PetscInt_FMT, kCholeskyLargest, n);
  for (const PetscInt power : config->powers)
    PetscCheck(power >= 0, PETSC_COMM_SELF, PETSC_ERR_USER_INPUT, "-powers are at least 0, not %" PetscInt_FMT, power);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RunCholesky(const KernelConfig &config, KernelResults *results)
{
  PetscFunctionBeginUser;
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "\n%s", CholeskyHeader(config).c_str()));
  for (const auto precision : {FINEPC_SINGLE, FINEPC_DOUBLE}) {
    for (const PetscInt n : config.sizes) {
      CholeskyResult result;

      result.n         = n;
      result.precision = precision;
      PetscCall(Guarded([&](CholeskyResult *to) { return MeasureCholesky(config.batch, config.repeats, to); }, &result));
      PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s", CholeskyRow(config, result).c_str()));
      results->cholesky.push_back(result);
      PetscCall(ReportFiles(config, *results)); /* after every row, so that a crash loses one row only */
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RunPattern(const KernelConfig &config, KernelResults *results)
{
  System *const system = &results->system;

  PetscFunctionBeginUser;
  PetscCall(SystemCreate(PETSC_COMM_WORLD, config.system, config.backend, system));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "\n%s", PatternHeader(config, *system).c_str()));
  for (const PetscInt power : config.powers) {
    PatternResult result;

    result.power = power;
    PetscCall(Guarded([&](PatternResult *to) { return MeasurePattern(config.backend, *system, config.repeats, to); }, &result));
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s", PatternRow(result).c_str()));
    results->pattern.push_back(result);
    PetscCall(ReportFiles(config, *results));
    /* There was most likely too little memory. Some of it may not have been freed, and larger powers need more. */
    if (result.status == "failed") break;
  }
  PetscCall(SystemDestroy(system));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RunBlocks(const KernelConfig &config, KernelResults *results)
{
  PetscFunctionBeginUser;
  for (const auto &spec : config.block_systems) {
    BlockResult result;

    PetscCall(Guarded([&](BlockResult *to) { return MeasureBlocks(config.backend, spec, config.repeats, to); }, &result));
    results->blocks.push_back(result);
    PetscCall(ReportFiles(config, *results));
  }
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "\n%s", BlockHeader(config.repeats).c_str()));
  for (const auto &result : results->blocks)
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s", BlockRow(config.backend, result).c_str()));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "\n%s", BlockILUHeader().c_str()));
  for (const auto &result : results->blocks) PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s", BlockILURow(result).c_str()));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "\n%s", BlockSweepsHeader().c_str()));
  for (const auto &result : results->blocks) PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s", BlockSweepsRows(result).c_str()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  KernelConfig  config;
  KernelResults results;
  int           devices = 0;
  PetscMPIInt   size;

  PetscFunctionBeginUser;
  PetscCall(PetscInitialize(&argc, &argv, nullptr, help));
  PetscCall(FinePCInitializePackage());
  PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &size));
  PetscCheck(size == 1, PETSC_COMM_WORLD, PETSC_ERR_WRONG_MPI_SIZE, "%s measures one device: run it on one rank", kProgram);
  PetscCall(ConfigFromOptions(&config));
  if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
    (void)cudaGetLastError();
    PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s needs a CUDA device, and there is none: nothing measured\n", kProgram));
    PetscCall(PetscFinalize());
    return kSkipped;
  }
  PetscCall(BackendSetUp("cuda", PETSC_TRUE, &config.backend));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s", MachineText(kProgram, config.backend, config.output).c_str()));
  if (config.cholesky) PetscCall(RunCholesky(config, &results));
  if (config.pattern) PetscCall(RunPattern(config, &results));
  if (config.blocks) PetscCall(RunBlocks(config, &results));
  PetscCall(PetscFinalize());
  const auto ok = [](const auto &result) { return result.status == "ok"; };
  return std::all_of(results.cholesky.begin(), results.cholesky.end(), ok) &&
             std::all_of(results.pattern.begin(), results.pattern.end(), ok) &&
             std::all_of(results.blocks.begin(), results.blocks.end(), ok)
           ? 0
           : 1;
}
