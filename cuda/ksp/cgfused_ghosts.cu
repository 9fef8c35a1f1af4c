/* The columns of other ranks: what becomes of the products with the ghosts. */
#include "cgfused.cuh"

namespace
{

/*
   What becomes of a row's sum over the columns of other ranks: for the operator w = w + B ghosts, with the change of the sum p.w.
   Another product with ghosts is another such struct.
*/
struct AddToOperator {
  static constexpr int kSums = 1;

  const double *p;
  double       *w;

  __device__ void AddRow(LocalInt row, double sum, double (&sums)[kSums]) const
  {
    w[row] += sum;
    sums[0] += p[row] * sum;
  }
  /* One thread calls it with the sums over all rows. */
  __device__ void Finish(CGState *state, const double (&sums)[kSums]) const
  {
    double all[1]    = {state->own_delta + sums[0]};
    state->own.delta = all[0];
    if (state->s.direct) SumOverRanks(state->peers, all, &state->all.delta);
  }
};

/* t = t + D W1 ghosts */
struct AddToFirst {
  static constexpr int kSums = 1; /* of which nothing follows */

  const double *d;
  double       *t;

  __device__ void AddRow(LocalInt row, double sum, double (&)[kSums]) const { t[row] += d[row] * sum; }
  __device__ void Finish(CGState *, const double (&)[kSums]) const { }
};

/*
   z = z + W2 ghosts, with the changes of the sums z.z and z.r, which the product with the rank's own columns has left for all
   ranks.
*/
struct AddToSecond {
  static constexpr int kSums = 2;

  const double *r;
  double       *z;

  __device__ void AddRow(LocalInt row, double sum, double (&sums)[kSums]) const
  {
    const double before = z[row];
    z[row]              = before + sum;
    sums[0] += sum * (2 * before + sum);
    sums[1] += sum * r[row];
  }
  __device__ void Finish(CGState *state, const double (&sums)[kSums]) const
  {
    const double nn = state->test.norm == CG_NORM_PRECONDITIONED ? sums[0] : 0;
    LeaveSums(state, state->own.nn + nn, state->own.rz + sums[1]);
  }
};

} // namespace

template <typename Product>
static PetscErrorCode Launch_CGFused(CGFusedWork *work, bool early, const CGGhosts &ghosts, Product product, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(CGGhostsMultiply(early, work->processors * kCGBlocksOnChip, ghosts.rows, product, work->partial.data(),
                             work->mailbox.state(), stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchGhosts(CGFusedWork *work, bool early, const PetscScalar *p, PetscScalar *w, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Launch_CGFused(work, early, work->ghosts, AddToOperator{p, w}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchFirstGhosts(CGFusedWork *work, bool early, PetscScalar *t, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (work->ghosts1.rows.count) PetscCall(Launch_CGFused(work, early, work->ghosts1, AddToFirst{work->d, t}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedLaunchSecondGhosts(CGFusedWork *work, bool early, const PetscScalar *r, PetscScalar *z, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (work->ghosts2.rows.count) PetscCall(Launch_CGFused(work, early, work->ghosts2, AddToSecond{r, z}, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}
