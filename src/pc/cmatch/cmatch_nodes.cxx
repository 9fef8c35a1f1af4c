/* What both twins of the hierarchy of nodes do on the host: the inverse of the coarsest level. */
#include <algorithm>
#include <cmath>
#include <vector>

#include <petscsys.h>
#include <petscblaslapack.h>

#include "cmatch_nodes.h"

/* An eigenvalue of the coarsest level counts as 0 up to this share of the largest one, and as a rounding error below 0. */
static constexpr double kSmallEigenvalue = 1e-13, kNegativeEigenvalue = 1e-5;

/*
   Eigenvalues w [n], ascending, and vectors V [n][n], a row each, of a symmetric matrix in the place of which V comes. Numbers that
   are not finite have none.
*/
static PetscErrorCode Eigenvectors(PetscBLASInt n, double *V, double *w, bool *found)
{
  std::vector<double> work(1);
  PetscBLASInt        info = 0, length = -1;

  PetscFunctionBegin;
  *found = std::all_of(V, V + (size_t)n * n, [](double a) { return std::isfinite(a); });
  if (!*found) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallBLAS("LAPACKsyev", LAPACKsyev_("V", "U", &n, V, &n, w, work.data(), &length, &info));
  length = (PetscBLASInt)work[0];
  work.resize((size_t)length);
  PetscCallBLAS("LAPACKsyev", LAPACKsyev_("V", "U", &n, V, &n, w, work.data(), &length, &info));
  *found = !info;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* D [n][n] becomes the inverse of its part that has eigenvalues beyond rounding. */
static PetscErrorCode InvertEigenvalues(PetscBLASInt n, double *D, PetscBool *done)
{
  const size_t        size = (size_t)n;
  std::vector<double> V(D, D + size * size), w(size);
  bool                found = false;

  PetscFunctionBegin;
  *done = PETSC_FALSE;
  PetscCall(Eigenvectors(n, V.data(), w.data(), &found));
  const double largest = w[size - 1];
  if (!found || !(largest > 0) || !(w[0] >= -kNegativeEigenvalue * largest)) PetscFunctionReturn(PETSC_SUCCESS);
  std::fill(D, D + size * size, 0.);
  for (size_t e = 0; e < size; e++) {
    const double *const v = &V[e * size];
    if (!(w[e] > kSmallEigenvalue * largest)) continue;
    for (size_t i = 0; i < size; i++)
      for (size_t j = 0; j < size; j++) D[i * size + j] += v[i] * v[j] / w[e];
  }
  *done = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of the components of D [n][n] */
static std::vector<std::vector<size_t>> Components(size_t n, const double *D)
{
  std::vector<std::vector<size_t>> components;
  std::vector<bool>                seen(n);

  for (size_t first = 0; first < n; first++) {
    if (seen[first]) continue;
    std::vector<size_t> rows(1, first);
    seen[first] = true;
    for (size_t at = 0; at < rows.size(); at++)
      for (size_t j = 0; j < n; j++)
        if (D[rows[at] * n + j] != 0 && !seen[j]) {
          seen[j] = true;
          rows.push_back(j);
        }
    components.push_back(std::move(rows));
  }
  return components;
}

namespace
{

/* A component of D, its diagonal entries scaled to 1, and its modes. */
class Body {
public:
  Body(size_t n, const double *D, std::vector<size_t> rows) : n_(n), rows_(std::move(rows)), D_(D)
  {
    for (size_t i : rows_) usable_ = usable_ && D[i * n + i] > 0;
    for (size_t i : rows_) root_.push_back(std::sqrt(D[i * n + i]));
  }

  /* Q [rows][count], orthonormal vectors of the modes B [n][m] that are apart */
  PetscErrorCode TakeModes(size_t m, const double *B)
  {
    std::vector<double> G(m * m), g(m);
    bool                found = false;

    PetscFunctionBegin;
    count_ = 0;
    if (!usable_) PetscFunctionReturn(PETSC_SUCCESS);
    for (size_t i = 0; i < rows_.size(); i++)
      for (size_t c = 0; c < m; c++)
        for (size_t d = 0; d < m; d++) G[c * m + d] += root_[i] * root_[i] * B[rows_[i] * m + c] * B[rows_[i] * m + d];
    PetscCall(Eigenvectors((PetscBLASInt)m, G.data(), g.data(), &found));
    if (!found) PetscFunctionReturn(PETSC_SUCCESS);
    const size_t first = (size_t)std::count_if(g.begin(), g.end(), [&](double e) { return !(e > kCMATCHDependent * g[m - 1]); });
    count_             = m - first; /* they ascend */
    Q_.assign(rows_.size() * count_, 0.);
    for (size_t i = 0; i < rows_.size(); i++)
      for (size_t e = 0; e < count_; e++) {
        double sum = 0;
        for (size_t c = 0; c < m; c++) sum += B[rows_[i] * m + c] * G[(first + e) * m + c];
        Q_[i * count_ + e] = root_[i] * sum / std::sqrt(g[first + e]);
      }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Adds v v' to D for each combination v of modes, of norm 1, of which D v is at most `smallest`. */
  PetscErrorCode Hold(double smallest, double *D, LocalInt *held)
  {
    const size_t        size = rows_.size();
    std::vector<double> R(size * count_), K(count_ * count_), k(count_);
    bool                found = false;

    PetscFunctionBegin;
    if (!count_) PetscFunctionReturn(PETSC_SUCCESS);
    for (size_t i = 0; i < size; i++)
      for (size_t j = 0; j < size; j++) {
        const double a = D_[rows_[i] * n_ + rows_[j]];
        if (a == 0) continue;
        for (size_t e = 0; e < count_; e++) R[i * count_ + e] += a / (root_[i] * root_[j]) * Q_[j * count_ + e];
      }
    for (size_t i = 0; i < size; i++)
      for (size_t e = 0; e < count_; e++)
        for (size_t f = 0; f < count_; f++) K[e * count_ + f] += R[i * count_ + e] * R[i * count_ + f];
    PetscCall(Eigenvectors((PetscBLASInt)count_, K.data(), k.data(), &found));
    for (size_t f = 0; f < count_ && found; f++) { /* squares have too few digits to tell */
      const std::vector<double> v = Combined(Q_, &K[f * count_]), D_v = Combined(R, &K[f * count_]);
      double                    sum = 0;
      for (double r : D_v) sum += r * r;
      if (!(std::sqrt(sum) <= smallest)) continue;
      for (size_t i = 0; i < size; i++)
        for (size_t j = 0; j < size; j++) D[rows_[i] * n_ + rows_[j]] += root_[i] * v[i] * v[j] * root_[j];
      ++*held;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  std::vector<double> Combined(const std::vector<double> &vectors, const double *by) const
  {
    std::vector<double> sum(rows_.size());
    for (size_t i = 0; i < sum.size(); i++)
      for (size_t e = 0; e < count_; e++) sum[i] += by[e] * vectors[i * count_ + e];
    return sum;
  }

  const size_t              n_;
  const std::vector<size_t> rows_;
  const double *const       D_;
  bool                      usable_ = true;
  size_t                    count_  = 0; /* vectors of Q */
  std::vector<double>       root_, Q_;
};

} // namespace

PetscErrorCode CMATCHNodesHold(LocalInt n, LocalInt m, const double *B, FinePCPrecision precision, double *D, LocalInt *held)
{
  const std::vector<double> from(D, D + (size_t)n * n);

  PetscFunctionBegin;
  *held = 0;
  for (std::vector<size_t> &rows : Components((size_t)n, D)) {
    Body body((size_t)n, from.data(), std::move(rows));
    PetscCall(body.TakeModes((size_t)m, B));
    PetscCall(body.Hold(kCMATCHFree[precision], D, held));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The inverse by Cholesky's factors, if all pivots are larger than this share of their diagonal entries. */
static PetscErrorCode InvertDefinite(PetscBLASInt n, double share, double *D, bool *done)
{
  const size_t        size = (size_t)n;
  std::vector<double> diagonal(size);
  PetscBLASInt        info = 0;

  PetscFunctionBegin;
  for (size_t i = 0; i < size; i++) diagonal[i] = D[i * size + i];
  PetscCallBLAS("LAPACKpotrf", LAPACKpotrf_("U", &n, D, &n, &info));
  *done = !info;
  for (size_t i = 0; i < size && *done; i++) *done = D[i * size + i] * D[i * size + i] > share * diagonal[i];
  if (!*done) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCallBLAS("LAPACKpotri", LAPACKpotri_("U", &n, D, &n, &info));
  *done = !info;
  /* The upper triangle of LAPACK's columns is the lower triangle of our rows. */
  for (size_t i = 0; i < size; i++)
    for (size_t j = 0; j < i; j++) D[j * size + i] = D[i * size + j];
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesInvert(LocalInt n, double *D, PetscBool *done)
{
  const std::vector<double> kept(D, D + (size_t)n * n);
  PetscBLASInt              rows;
  bool                      definite = false;

  PetscFunctionBegin;
  *done = PETSC_TRUE;
  if (n == 0) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscBLASIntCast(n, &rows));
  PetscCall(InvertDefinite(rows, kCMATCHSmallPivot, D, &definite));
  if (definite) PetscFunctionReturn(PETSC_SUCCESS);
  std::copy(kept.begin(), kept.end(), D);
  PetscCall(InvertEigenvalues(rows, D, done));
  PetscFunctionReturn(PETSC_SUCCESS);
}
