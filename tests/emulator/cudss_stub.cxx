/*
   In the place of libcudss.so.1, for the emulator: dense factorizations of small matrices in memory that the emulator takes for
   that of a device. Calls out of order and arguments that cuDSS would refuse are refused. Beside the functions of cuDSS there are
   two for tests: how often a phase was executed, and how many bytes a factor may take.
*/
#include <cmath>
#include <cstdint>
#include <vector>

#ifndef STUB_MAJOR
  #define STUB_MAJOR 1
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace
{

enum { SUCCESS, NOT_INITIALIZED, ALLOC_FAILED, INVALID_VALUE, NOT_SUPPORTED };
enum { SOLVE_MODE = 4, IR_N_STEPS = 5, DETERMINISTIC = 24 };
constexpr double kSmall = 1e-13;

int     executed[11];
int64_t limit = INT64_MAX;

struct Matrix {
  bool          dense;
  int64_t       rows, columns, ld;
  const int    *i, *j;
  const double *a;
  int           type, view;
};
struct Config {
  int values[30] = {};
};
/* L, D and U in one array for a symmetric matrix, too; p are the rows of the pivots. */
struct Data {
  int64_t             n        = -1;
  bool                factored = false;
  int                 info = 0, replaced = 0, inertia[2] = {};
  std::vector<double> lu;
  std::vector<int>    p;
};

int64_t Bytes(const Matrix *A)
{
  return A->rows * A->rows * 8;
}

void Factor(const Matrix *A, Data *data)
{
  const int n    = (int)A->rows;
  auto     &lu   = data->lu;
  auto     &p    = data->p;
  data->factored = true;
  data->info = data->replaced = data->inertia[0] = data->inertia[1] = 0;
  lu.assign((size_t)n * n, 0);
  p.resize(n);
  for (int row = 0; row < n; row++)
    for (int k = A->i[row]; k < A->i[row + 1]; k++) {
      if (A->view == 2 && A->j[k] < row) continue; /* the upper triangle alone */
      lu[(size_t)row * n + A->j[k]] = A->a[k];
      if (A->view == 2) lu[(size_t)A->j[k] * n + row] = A->a[k];
    }
  for (int k = 0; k < n; k++) {
    p[k] = k;
    for (int row = k + 1; row < n && A->type == 0; row++)
      if (std::fabs(lu[(size_t)row * n + k]) > std::fabs(lu[(size_t)p[k] * n + k])) p[k] = row;
    for (int c = 0; c < n && p[k] != k; c++) std::swap(lu[(size_t)k * n + c], lu[(size_t)p[k] * n + c]);
    double &pivot = lu[(size_t)k * n + k];
    if (A->type == 3 && !(pivot > 0) && !data->info) data->info = k + 1;
    if (std::fabs(pivot) < kSmall) {
      pivot = kSmall;
      data->replaced++;
    }
    data->inertia[pivot < 0]++;
    for (int row = k + 1; row < n; row++) {
      const double l = lu[(size_t)row * n + k] /= pivot;
      for (int c = k + 1; c < n; c++) lu[(size_t)row * n + c] -= l * lu[(size_t)k * n + c];
    }
  }
}

void Solve(const Data *data, bool transposed, double *x)
{
  const int   n  = (int)data->n;
  const auto &lu = data->lu;
  const auto &p  = data->p;
  if (!transposed) {
    for (int k = 0; k < n; k++) std::swap(x[k], x[p[k]]);
    for (int k = 0; k < n; k++)
      for (int c = 0; c < k; c++) x[k] -= lu[(size_t)k * n + c] * x[c];
    for (int k = n - 1; k >= 0; k--) {
      for (int c = k + 1; c < n; c++) x[k] -= lu[(size_t)k * n + c] * x[c];
      x[k] /= lu[(size_t)k * n + k];
    }
  } else {
    for (int k = 0; k < n; k++) {
      for (int c = 0; c < k; c++) x[k] -= lu[(size_t)c * n + k] * x[c];
      x[k] /= lu[(size_t)k * n + k];
    }
    for (int k = n - 1; k >= 0; k--)
      for (int c = k + 1; c < n; c++) x[k] -= lu[(size_t)c * n + k] * x[c];
    for (int k = n - 1; k >= 0; k--) std::swap(x[k], x[p[k]]);
  }
}

/* An answer of so many numbers. */
template <typename T>
int Answer(const std::vector<T> &numbers, void *value, size_t bytes, size_t *written)
{
  *written = numbers.size() * sizeof(T);
  if (!bytes) return SUCCESS;
  if (!value || bytes < *written) return INVALID_VALUE;
  for (size_t k = 0; k < numbers.size(); k++) ((T *)value)[k] = numbers[k];
  return SUCCESS;
}

} // namespace

EXPORT int StubExecuted(int phase)
{
  int bit = 0;
  while (phase >> (bit + 1)) bit++;
  return executed[bit];
}
EXPORT void StubLimit(int64_t bytes)
{
  limit = bytes;
}

EXPORT int cudssGetProperty(int property, int *value)
{
  *value = property == 0 ? STUB_MAJOR : 0;
  return SUCCESS;
}
EXPORT int cudssCreate(void **handle)
{
  *handle = new int(0);
  return SUCCESS;
}
EXPORT int cudssDestroy(void *handle)
{
  delete (int *)handle;
  return SUCCESS;
}
EXPORT int cudssSetStream(void *handle, void *)
{
  return handle ? SUCCESS : NOT_INITIALIZED;
}
EXPORT int cudssSetThreadingLayer(void *, const char *)
{
  return NOT_SUPPORTED;
}
EXPORT int cudssConfigCreate(void **config)
{
  *config = new Config();
  return SUCCESS;
}
EXPORT int cudssConfigDestroy(void *config)
{
  delete (Config *)config;
  return SUCCESS;
}
EXPORT int cudssConfigSet(void *config, int parameter, const void *value, size_t bytes)
{
  if (parameter < 0 || parameter >= 30 || bytes != sizeof(int)) return INVALID_VALUE;
  ((Config *)config)->values[parameter] = *(const int *)value;
  return SUCCESS;
}
EXPORT int cudssDataCreate(void *, void **data)
{
  *data = new Data();
  return SUCCESS;
}
EXPORT int cudssDataDestroy(void *, void *data)
{
  delete (Data *)data;
  return SUCCESS;
}
EXPORT int cudssDataGet(void *, void *data, int parameter, void *value, size_t bytes, size_t *written)
{
  const Data *const d     = (const Data *)data;
  const int64_t     whole = 8 * d->n * d->n;
  if (parameter == 13) {
    std::vector<int64_t> estimates(16);
    estimates[0] = estimates[1] = estimates[5] = whole;
    estimates[4]                               = whole / 2;
    return Answer(estimates, value, bytes, written);
  }
  if (!d->factored) return INVALID_VALUE;
  if (parameter == 0) return Answer(std::vector<int>{d->info}, value, bytes, written);
  if (parameter == 1) return Answer(std::vector<int64_t>{d->n * d->n}, value, bytes, written);
  if (parameter == 2) return Answer(std::vector<int>{d->replaced}, value, bytes, written);
  if (parameter == 3) return Answer(std::vector<int>{d->inertia[0], d->inertia[1]}, value, bytes, written);
  return NOT_SUPPORTED;
}
EXPORT int cudssMatrixCreateDn(void **matrix, int64_t rows, int64_t columns, int64_t ld, const void *values, int type, int layout)
{
  if (type != 1 || layout || ld < rows || columns < 1) return INVALID_VALUE;
  *matrix = new Matrix{true, rows, columns, ld, nullptr, nullptr, (const double *)values, 0, 0};
  return SUCCESS;
}
EXPORT int cudssMatrixCreateCsr(void **matrix, int64_t rows, int64_t columns, int64_t nnz, const void *begins, const void *ends,
                                const void *j, const void *values, int offset_type, int index_type, int value_type, int type,
                                int view, int base)
{
  if (rows != columns || nnz < 0 || ends || offset_type != 10 || index_type != 10 || value_type != 1 || base) return INVALID_VALUE;
  *matrix = new Matrix{false, rows, columns, 0, (const int *)begins, (const int *)j, (const double *)values, type, view};
  return SUCCESS;
}
EXPORT int cudssMatrixDestroy(void *matrix)
{
  delete (Matrix *)matrix;
  return SUCCESS;
}
EXPORT int cudssExecute(void *handle, int phase, void *config, void *data, void *matrix, void *solution, void *rhs)
{
  const Matrix *const A = (const Matrix *)matrix, *const x = (const Matrix *)solution, *const b = (const Matrix *)rhs;
  const int *const with = ((const Config *)config)->values;
  Data *const      d    = (Data *)data;

  if (!handle || A->dense || !x->dense || !b->dense || x->columns != b->columns || x->rows != A->rows) return INVALID_VALUE;
  for (int bit = 0; bit < 11; bit++)
    if (phase >> bit & 1) executed[bit]++;
  if (phase == 3) {
    if (limit < 0) return ALLOC_FAILED;
    *d   = Data();
    d->n = A->rows;
    return SUCCESS;
  }
  if (d->n != A->rows) return INVALID_VALUE; /* was not analysed */
  if (phase == 4 || phase == 8) {
    if (phase == 8 && !d->factored) return INVALID_VALUE;
    if (Bytes(A) > limit) return ALLOC_FAILED;
    Factor(A, d);
    return SUCCESS;
  }
  if (phase != 0x3f0 || !d->factored) return INVALID_VALUE;
  if (with[DETERMINISTIC] && (x->columns > 1 || with[IR_N_STEPS])) return NOT_SUPPORTED;
  for (int64_t c = 0; c < x->columns; c++) {
    double *const y = (double *)x->a + c * x->ld;
    for (int64_t k = 0; k < A->rows; k++) y[k] = b->a[c * b->ld + k];
    Solve(d, with[SOLVE_MODE] == 1, y);
  }
  return SUCCESS;
}
