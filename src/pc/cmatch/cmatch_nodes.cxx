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

  /* Q, orthonormal vectors of modes B [n][m] that are apart, and K = (D Q)'(D Q) */
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
    for (size_t e = 0; e < m && found; e++) {
      if (!(g[e] > kCMATCHDependent * g[m - 1])) continue;
      for (size_t i = 0; i < rows_.size(); i++) {
        double sum = 0;
        for (size_t c = 0; c < m; c++) sum += B[rows_[i] * m + c] * G[e * m + c];
        Q_.push_back(root_[i] * sum / std::sqrt(g[e]));
      }
      count_++;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Adds v v' to D for each combination v of modes that D makes smaller than `smallest`. */
  PetscErrorCode Hold(double smallest, double *D, LocalInt *held)
  {
    const size_t        size = rows_.size();
    std::vector<double> R(count_ * size), K(count_ * count_), k(count_), v(size);
    bool                found = false;

    PetscFunctionBegin;
    if (!count_) PetscFunctionReturn(PETSC_SUCCESS);
    for (size_t i = 0; i < size; i++)
      for (size_t j = 0; j < size; j++) {
        const double a = D_[rows_[i] * n_ + rows_[j]] / (root_[i] * root_[j]);
        for (size_t e = 0; e < count_; e++) R[e * size + i] += a * Q_[e * size + j];
      }
    for (size_t e = 0; e < count_; e++)
      for (size_t f = 0; f < count_; f++)
        for (size_t i = 0; i < size; i++) K[e * count_ + f] += R[e * size + i] * R[f * size + i];
    PetscCall(Eigenvectors((PetscBLASInt)count_, K.data(), k.data(), &found));
    for (size_t f = 0; found && f < count_ && k[f] <= smallest * smallest; f++, ++*held) {
      std::fill(v.begin(), v.end(), 0.);
      for (size_t e = 0; e < count_; e++)
        for (size_t i = 0; i < size; i++) v[i] += K[f * count_ + e] * Q_[e * size + i];
      for (size_t i = 0; i < size; i++)
        for (size_t j = 0; j < size; j++) D[rows_[i] * n_ + rows_[j]] += root_[i] * v[i] * v[j] * root_[j];
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
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
