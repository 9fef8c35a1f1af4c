/*
   The fused GMRES on one rank, or on a rank among several with NCCL, as the host sees it. A step from u_j, of one iteration or two,
   is

     w_0 = A M u_j, or M A u_j     a product with a copy of A, and the preconditioner's own kernels
     w_1 of w_0 likewise           where the step has two
     u_{j+1}, with two u_{j+2}, and the tests of the iterations of the step before, by gmresfused_iteration.cu

   As long as the method runs, the host knows j. A restart is a sequence of kernels that the host launches after each cycle: y, the
   correction of x, the residual, u_0. Nothing of this waits for the host, and what comes after a decision changes nothing. The
   decision that second products are of no use stops the method, too: then the host asks for j, and goes on with one product a step.

   On several ranks a product sends entries of the vector to other ranks ahead of the columns that the rank owns, and those of other
   ranks follow; see gmresfused_ranks.cu. All ranks decide from the same bits, and launch the same. With MPI the host decides, and
   has nothing but the products from here.
*/
#include "gmresfused_small.cuh"

namespace
{

/*
   Iterations between two looks at the state, at least for a small system, and at most. A look costs some microseconds, and what is
   launched beyond the end costs products and preconditioners: so their number is a part of the iterations until now.
*/
constexpr LocalInt kGMRESLaunches = 4, kGMRESMostLaunches = 8, kGMRESPart = 16;

/* Rows of a system that is small in this sense: an iteration of another one takes longer than the host needs to look. */
constexpr LocalInt kGMRESSmallRows = 100000;

/* ------------------------------------------ kernels ------------------------------------------- */

/* y = E A D x, where D and E are left out if null. */
template <int Lanes, bool Even, typename V>
__global__ void __launch_bounds__(kGMRESBlock, FusedBlocks<Even, V>())
  MultiplyRows(Slices A, int processors, const double *d, const double *x, const double *e, double *y, const GMRESState *state)
{
  FusedMultiply<Lanes, Even, V>(
    A, processors,
    [=]() {
      WaitForPrevious();
      LetNextStart();
      return state->s.stage == kCGRunning;
    },
    [=](LocalInt j) { return d ? d[j] * x[j] : x[j]; }, [=](LocalInt row, double sum) { y[row] = e ? e[row] * sum : sum; });
}

/* y = d x, where d is a matrix with diagonal blocks of bs rows, by columns. */
__global__ void __launch_bounds__(kGMRESBlock)
  MultiplyDiagonal(LocalInt n, LocalInt bs, const double *d, const double *x, double *y)
{
  const long long i = GridThread();
  WaitForPrevious();
  LetNextStart();
  if (i >= n) return;
  const double *const block = x + (i - i % bs);
  double              sum   = 0;
#pragma unroll 4
  for (LocalInt k = 0; k < bs; k++) sum += d[(size_t)k * n + i] * block[k];
  y[i] = sum;
}

/* x = 1 in row k of each block, and 0 elsewhere */
__global__ void __launch_bounds__(kGMRESBlock) SetUnit(LocalInt n, LocalInt bs, LocalInt k, double *x)
{
  const long long i = GridThread();
  if (i < n) x[i] = i % bs == k ? 1 : 0;
}

/* t = b - w, during a restart */
__global__ void __launch_bounds__(kGMRESBlock)
  SubtractVectors(LocalInt n, const double *b, const double *w, double *t, const GMRESState *state)
{
  const long long i = GridThread();
  WaitForPrevious();
  LetNextStart();
  if (state->s.stage == kCGRunning && i < n) t[i] = b[i] - w[i];
}

/*
   The coefficients of the correction in U: one block solves with R. After a full cycle the iterations of its last step end here
   first: this step has made so many vectors, up to number `full`, and there are so many parts of the square of the norm of each, or
   all [made] has the squares if it is not null. Otherwise `made` is zero.
*/
__global__ void __launch_bounds__(kGMRESBlock) SolveSmall(GMRESSmallArrays small, LocalInt full, LocalInt made, int parts,
                                                          const double *partial, const double *all, GMRESState *state)
{
  constexpr LocalInt kColumns = kGMRESMostRestart + 1;
  __shared__ double  c[kGMRESMostStep * kColumns], rotations[2 * kGMRESMostRestart];
  double *const      y = c;
  WaitForPrevious();
  LetNextStart();
  if (made && state->s.stage == kCGRunning) {
    const LocalInt first = full - made;
    double         squares[kGMRESMostStep];
#pragma unroll
    for (int s = 0; s < kGMRESMostStep; s++) {
      if (s >= made) break;
      squares[s] = all ? all[s] : AddPartial(parts, partial + s * parts);
      for (LocalInt k = threadIdx.x; k <= first + s; k += kGMRESBlock) c[s * kColumns + k] = small.c[s * (small.restart + 1) + k];
    }
    __syncthreads();
    EndStep(first, made, squares, c, kColumns, rotations, small, state);
    __syncthreads();
  }
  const LocalInt count = state->s.stage == kCGStopped ? 0 : state->s.column;
  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) y[k] = small.rhs[k];
  __syncthreads();
  for (LocalInt k = count - 1; k >= 0; k--) {
    const double *R = small.R + (size_t)k * small.rows;
    if (threadIdx.x == 0) y[k] /= R[k];
    __syncthreads();
    const double y_k = y[k];
    for (LocalInt i = threadIdx.x; i < k; i += kGMRESBlock) y[i] -= R[i] * y_k;
    __syncthreads();
  }
  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) small.c[k] = small.norm[k] > 0 ? y[k] / small.norm[k] : 0.;
}

/* What is left to do after the correction has been added to x. One thread of the grid calls it. */
__device__ void HaveSolution(GMRESState *state)
{
  state->s.column = 0;
  if (state->s.stage == kCGDecided) state->s.stage = kCGStopped;
}

/* to = U c, or with Add to = to + U c, where U c is multiplied by d, if that is not null. With Add the correction is done. */
template <bool Add, typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESDotBlocks)
  CorrectBasis(GMRESArray<V> u, GMRESSmallArrays small, const double *d, double *to, GMRESState *state)
{
  __shared__ double c[kGMRESMostRestart + 1];
  WaitForPrevious();
  LetNextStart();
  const LocalInt count = state->s.column;
  if (!count || state->s.stage == kCGStopped) return;
  for (LocalInt k = threadIdx.x; k < count; k += kGMRESBlock) c[k] = small.c[k];
  __syncthreads();
  for (long long i = 2 * GridThread(); i < u.n; i += 2LL * gridDim.x * kGMRESBlock) {
    BasisPairs<V>       pairs;
    const bool          both   = i + 1 < u.n;
    const double *const of[1]  = {c};
    double2             sum[1] = {};
    AddBasisPair<1>(u, count, of, (LocalInt)i, sum, pairs, false);
    const auto put = [&](long long at, double x) {
      const double scaled = d ? d[at] * x : x;
      to[at]              = Add ? to[at] + scaled : scaled;
    };
    put(i, sum[0].x);
    if (both) put(i + 1, sum[0].y);
  }
  if (Add && IsLastHere(&state->ticket)) HaveSolution(state);
}

/* x = x + w, and the correction is done. */
__global__ void __launch_bounds__(kGMRESBlock, kGMRESBlocks)
  AddCorrection(LocalInt n, const double *w, double *x, GMRESState *state)
{
  WaitForPrevious();
  LetNextStart();
  if (!state->s.column || state->s.stage == kCGStopped) return;
  for (long long i = GridThread(); i < n; i += (long long)gridDim.x * kGMRESBlock) x[i] += w[i];
  if (IsLastHere(&state->ticket)) HaveSolution(state);
}

/* The tests that KSPGMRES makes at the beginning of a cycle, with the norm of the residual. One thread of the grid calls it. */
__device__ void BeginCycle(double norm, const GMRESSmallArrays &small, GMRESState *state)
{
  GMRESScalars s = state->s;
  s.column = s.small_columns = 0;
  s.lacking                  = 0;
  if (!isfinite(norm)) Stop(s, GMRES_NOT_FINITE, norm);
  else if (s.norm > 0 && fabs(norm - s.norm) > s.breakdown * s.cycle_norm) Stop(s, GMRES_BREAKDOWN, norm);
  else {
    state->records[s.iteration % kCGRecords] = norm;
    s.norm = s.cycle_norm = norm;
    small.rhs[0]          = norm;
    if (norm == 0) Stop(s, GMRES_ZERO, 0);
    else if (Ends(state->test, s.iteration, norm)) Stop(s, GMRES_TEST, norm);
  }
  state->s = s;
}

/*
   u_0 = s (r - w), where w is left out if null, about a unit vector, and p the same unless null; its norm, and the tests. With
   `several` the square of the norm is left in `partial`, for the sum over the ranks.
*/
template <bool Several, typename V>
__global__ void __launch_bounds__(kGMRESBlock, kGMRESBlocks)
  RestartBasis(GMRESArray<V> u, const double *r, const double *w, double *p, double *partial, GMRESSmallArrays small,
               GMRESState *state)
{
  WaitForPrevious();
  LetNextStart();
  if (state->s.stage != kCGRunning) return;
  const double scale     = state->s.norm > 0 ? 1 / state->s.norm : 1.;
  double       square[1] = {0};
  for (long long i = GridThread(); i < u.n; i += (long long)gridDim.x * kGMRESBlock) {
    const V      stored = (V)(scale * (w ? r[i] - w[i] : r[i]));
    const double value  = (double)stored;
    u.at(0)[i]          = stored;
    if (p) p[i] = value;
    square[0] += value * value;
  }
  BlockSum(square);
  if (threadIdx.x == 0) partial[blockIdx.x] = square[0];
  if (Several || !IsLastBlock(&state->ticket)) return;
  square[0] = AddPartial((int)gridDim.x, partial);
  if (threadIdx.x == 0) BeginCycle(sqrt(square[0]) / scale, small, state);
}

/* What follows from the square of the norm over all ranks, by one thread. */
__global__ void BeginCycleOfRanks(GMRESSmallArrays small, GMRESState *state)
{
  WaitForPrevious();
  LetNextStart();
  if (state->s.stage != kCGRunning) return;
  const double scale = state->s.norm > 0 ? 1 / state->s.norm : 1.;
  BeginCycle(sqrt(small.all[0]) / scale, small, state);
}

/* ------------------------------------------ launches ------------------------------------------ */

/* Whether M is applied by kernels of its own, and not within others, as 1 and a diagonal matrix are. */
bool IsApart(const GMRESOperators &op)
{
  return op.apply || op.bs > 1;
}

/* y = E A D x, by the columns that the rank owns */
PetscErrorCode LaunchOwnProduct(GMRESFusedWork *work, const double *d, const double *x, const double *e, double *y,
                                cudaStream_t stream)
{
  const LocalInt n = work->basis.n;

  PetscFunctionBegin;
  if (work->op.blocks) {
    PetscCall(BSRMultiply_CUDA(&work->blocks, 1, BSRVectors{x, nullptr, y, n, 0, n}, PETSC_FALSE));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  const int blocks = FusedGrid(work->A, work->processors, FusedBlocks(work->A));
  PetscCall(SlicesWithLanes(work->A.lanes, [&](auto lanes) {
    return FusedWithKind(work->A, [&](auto even, auto value) {
      return LaunchEarly(work->early, MultiplyRows<lanes, even, decltype(value)>, blocks, kGMRESBlock, stream, work->A,
                         work->processors, d, x, e, y, work->mailbox.state());
    });
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = E A D x, by the product of this number in a step */
PetscErrorCode LaunchProduct_GMRESFused(GMRESFusedWork *work, LocalInt product, const double *d, const double *x, const double *e,
                                        double *y, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (work->nccl) PetscCall(GMRESLaunchSend(work, product, d, x, stream));
  PetscCall(LaunchOwnProduct(work, d, x, e, y, stream));
  if (work->nccl) PetscCall(GMRESLaunchGhosts(work, product, e, y, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* y = M x, where M is no 1 */
PetscErrorCode LaunchInverse_GMRESFused(GMRESFusedWork *work, const double *x, double *y, cudaStream_t stream)
{
  const GMRESOperators &op = work->op;
  const LocalInt        n  = work->basis.n;

  PetscFunctionBegin;
  if (op.apply) PetscCall(op.apply(op.pc, x, y));
  else PetscCall(LaunchEarly(work->early, MultiplyDiagonal, BlocksFor(n, kGMRESBlock), kGMRESBlock, stream, n, op.bs, op.d, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* w = A M u, or M A u, likewise. A diagonal M is part of a product by rows. */
PetscErrorCode LaunchOperator_GMRESFused(GMRESFusedWork *work, LocalInt product, const double *u, double *w, cudaStream_t stream)
{
  const GMRESOperators &op = work->op;
  const GMRESVectors   &v  = work->v;

  PetscFunctionBegin;
  if (!IsApart(op) && (!op.blocks || !op.d)) {
    PetscCall(LaunchProduct_GMRESFused(work, product, op.left ? nullptr : op.d, u, op.left ? op.d : nullptr, w, stream));
  } else if (op.left) {
    PetscCall(LaunchProduct_GMRESFused(work, product, nullptr, u, nullptr, v.t, stream));
    PetscCall(LaunchInverse_GMRESFused(work, v.t, w, stream));
  } else {
    PetscCall(LaunchInverse_GMRESFused(work, u, v.t, stream));
    PetscCall(LaunchProduct_GMRESFused(work, product, nullptr, v.t, nullptr, w, stream));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The coefficients of the correction, after the end of the last step of a full cycle. */
PetscErrorCode LaunchCoefficients(GMRESFusedWork *work, bool full, cudaStream_t stream)
{
  PetscFunctionBegin;
  if (full && work->nccl) PetscCall(GMRESLaunchSum(work, work->made, work->workers, stream));
  PetscCall(LaunchEarly(work->early, SolveSmall, 1, kGMRESBlock, stream, work->small, work->restart, full ? work->made : 0,
                        work->workers, work->partial.data(), work->nccl ? work->small.all : nullptr, work->mailbox.state()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* x = x + M U c, or x + U c with M on the left, after a full cycle or at the end; t and w are work. */
PetscErrorCode LaunchCorrection(GMRESFusedWork *work, bool full, cudaStream_t stream)
{
  const GMRESOperators &op    = work->op;
  const GMRESVectors   &v     = work->v;
  GMRESState *const     state = work->mailbox.state();
  const LocalInt        n     = work->basis.n;
  const int             grid  = std::min(BlocksFor(n, 2 * kGMRESBlock), work->processors * kGMRESDotBlocks);
  const bool            apply = IsApart(op) && !op.left;

  PetscFunctionBegin;
  PetscCall(LaunchCoefficients(work, full, stream));
  PetscCall(GMRESWithPrecision(work->basis, [&](auto u) {
    using V = std::remove_pointer_t<decltype(u.u)>;
    if (apply)
      return LaunchEarly(work->early, CorrectBasis<false, V>, grid, kGMRESBlock, stream, u, work->small, nullptr, v.t, state);
    return LaunchEarly(work->early, CorrectBasis<true, V>, grid, kGMRESBlock, stream, u, work->small, op.left ? nullptr : op.d, v.x,
                       state);
  }));
  if (!apply) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(LaunchInverse_GMRESFused(work, v.t, v.w[0], stream));
  PetscCall(LaunchEarly(work->early, AddCorrection, GMRESGrid(work, n), kGMRESBlock, stream, n, v.w[0], v.x, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* u_0 and its norm from the residual b - A x, or b without a guess: the beginning of a cycle unless the method has stopped. */
PetscErrorCode LaunchResidual_GMRESFused(GMRESFusedWork *work, bool guess, double *p, cudaStream_t stream)
{
  const GMRESOperators &op       = work->op;
  const GMRESVectors   &v        = work->v;
  GMRESState *const     state    = work->mailbox.state();
  const LocalInt        n        = work->basis.n;
  const bool            inverted = op.left && (op.apply || op.d);

  PetscFunctionBegin;
  if (guess) PetscCall(LaunchProduct_GMRESFused(work, 0, nullptr, v.x, nullptr, v.w[0], stream));
  if (inverted) {
    if (guess)
      PetscCall(
        LaunchEarly(work->early, SubtractVectors, BlocksFor(n, kGMRESBlock), kGMRESBlock, stream, n, v.b, v.w[0], v.t, state));
    PetscCall(LaunchInverse_GMRESFused(work, guess ? v.t : v.b, v.w[0], stream));
  }
  PetscCall(GMRESWithPrecision(work->basis, [&](auto u) {
    using V = std::remove_pointer_t<decltype(u.u)>;
    return LaunchEarly(work->early, work->nccl ? RestartBasis<true, V> : RestartBasis<false, V>, GMRESGrid(work, n), kGMRESBlock,
                       stream, u, inverted ? v.w[0] : v.b, inverted || !guess ? nullptr : v.w[0], p, work->partial.data(),
                       work->small, state);
  }));
  if (!work->nccl) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(GMRESLaunchSum(work, 1, GMRESGrid(work, n), stream));
  PetscCall(LaunchEarly(work->early, BeginCycleOfRanks, 1, 1, stream, work->small, state));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The next step is from the vector at this position, behind no step whose iterations are to end. */
void BeginAt(GMRESFusedWork *work, LocalInt position)
{
  work->position = position;
  work->fresh    = 1;
  work->made     = 0;
}

/* x, u_0 and the norm that a cycle begins with, after the last one */
PetscErrorCode LaunchRestart(GMRESFusedWork *work, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchCorrection(work, true, stream));
  PetscCall(LaunchResidual_GMRESFused(work, true, GMRESDoubleCopy(work), stream));
  BeginAt(work, 0);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A step of the cycle. */
PetscErrorCode LaunchStep_GMRESFused(GMRESFusedWork *work, cudaStream_t stream)
{
  const LocalInt products = std::min(work->step, work->restart - work->position);

  PetscFunctionBegin;
  for (LocalInt s = 0; s < products; s++)
    PetscCall(LaunchOperator_GMRESFused(work, s, s ? work->v.w[s - 1] : GMRESNewest(work), work->v.w[s], stream));
  PetscCall(GMRESLaunchOrthogonalization(work, products, stream));
  work->fresh = work->made = products;
  work->position += products;
  work->launched += products;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Some iterations, to the end of the cycle at most, and the restart after it unless the host makes it. */
PetscErrorCode LaunchIterations_GMRESFused(GMRESFusedWork *work, cudaStream_t stream)
{
  const bool     small = work->nccl ? (bool)work->op.small : work->basis.n < kGMRESSmallRows;
  const LocalInt least = small ? kGMRESLaunches : 1,
                 most  = std::min(std::max(work->launched / kGMRESPart, least), kGMRESMostLaunches);

  PetscFunctionBegin;
  for (const LocalInt end = std::min(work->position + most, work->restart); work->position < end;)
    PetscCall(LaunchStep_GMRESFused(work, stream));
  if (work->position == work->restart && work->watched) PetscCall(LaunchCoefficients(work, true, stream));
  else if (work->position == work->restart) PetscCall(LaunchRestart(work, stream));
  PetscCall(work->mailbox.Post(false, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

/* ------------------------------------------ the solve ----------------------------------------- */

/* Makes the copy of A, unless it is made. */
static PetscErrorCode CopyRows(GMRESFusedWork *work, const CSRView &A, PetscBool changed)
{
  const CSR csr{A.n, A.n, A.nnz, (LocalInt *)A.i, (LocalInt *)A.j, (void *)A.a, FINEPC_DOUBLE, A.where};

  PetscFunctionBegin;
  if (changed || !work->A.rows) PetscCall(SlicesUpdate_CUDA(&csr, FusedLanes(A.n, A.nnz), SLICES_COMPRESSED, &work->A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedUnit_CUDA(GMRESFusedWork *work, LocalInt n, LocalInt bs, LocalInt k, PetscScalar *x)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(work->mailbox.Wait()); /* what is left of the last solve may write to the vectors that the caller needs now */
  PetscCall(LaunchEarly(false, SetUnit, BlocksFor(n, kGMRESBlock), kGMRESBlock, stream, n, bs, k, x));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedPrepare_CUDA(GMRESFusedWork *work, const GMRESOperators *op, PetscBool changed)
{
  PetscFunctionBegin;
  PetscCall(work->mailbox.Wait());
  work->op   = *op;
  work->op.A = nullptr; /* its rows are lent for this call */
  PetscCall(GMRESMayStartEarly(&work->early));
  PetscCall(GMRESPrepareRanks(work, op, changed));
  if (op->blocks) {
    work->blocks    = *op->blocks;
    work->op.blocks = &work->blocks;
    PetscCall(SlicesDestroy_CUDA(&work->A));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(CopyRows(work, *op->A, changed));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedWait_CUDA(GMRESFusedWork *work)
{
  PetscFunctionBegin;
  PetscCall(work->mailbox.Wait());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedReserve_CUDA(GMRESFusedWork *work, const GMRESBasis *basis, LocalInt restart, LocalInt step)
{
  PetscFunctionBegin;
  PetscCall(work->mailbox.Wait());
  PetscCall(GMRESNeedSmall(work, basis->vectors));
  for (LocalInt s = 1; s <= step; s++) PetscCall(GMRESPrepareOrthogonalization(work, *basis, restart, s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedStart_CUDA(GMRESFusedWork *work, const GMRESBasis *basis, const GMRESVectors *v, PetscBool guess,
                                    PetscReal *norm)
{
  const GMRESState *seen;
  cudaStream_t      stream;
  GMRESScalars      s{};
  CGTest            test{};

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(work->mailbox.Wait());
  PetscCall(GMRESNeedSmall(work, basis->vectors));
  work->basis = *basis;
  work->v     = *v;
  s.stage     = kCGRunning;
  test.norm   = CG_NORM_NONE; /* the caller tests */
  test.last   = LOCAL_INT_MAX;
  PetscCall(work->mailbox.Begin(s, test, stream));
  PetscCall(LaunchResidual_GMRESFused(work, guess, v->p, stream));
  PetscCall(work->mailbox.Fetch(stream, &seen));
  *norm = seen->s.stop == GMRES_NOT_FINITE ? seen->s.value : seen->s.norm;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedBegin_CUDA(GMRESFusedWork *work, const GMRESStart *start)
{
  cudaStream_t stream;
  GMRESScalars s{};

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  work->step = std::min(start->step, start->restart);
  PetscCall(GMRESPrepareOrthogonalization(work, work->basis, start->restart, work->step));
  BeginAt(work, 0);
  work->restart  = start->restart;
  work->launched = 0;
  work->watched  = start->watched;
  s.iteration    = start->iteration;
  s.stage        = kCGRunning;
  s.norm = s.cycle_norm = start->norm;
  s.happy               = start->happy_tolerance;
  s.breakdown           = start->breakdown_tolerance;
  PetscCall(work->mailbox.Begin(s, start->test, stream));
  PetscCall(GMRESStore_CUDA(&work->basis, 0, 1 / start->norm, work->v.p));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedAdvance_CUDA(GMRESFusedWork *work, LocalInt *count, const PetscReal **norms, GMRESStop *stop,
                                      LocalInt *its, PetscReal *value)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  const auto is_full = [=]() { return work->watched && work->position == work->restart; };
  for (int ahead = 1; ahead <= kCGInFlight && !is_full(); ahead++)
    PetscCall(work->mailbox.KeepAhead(ahead, stream, [&]() { return LaunchIterations_GMRESFused(work, stream); }));
  PetscCall(work->mailbox.Report(count, norms, stop, its, value));
  if (*stop == GMRES_RUNNING && is_full() && work->mailbox.idle()) *stop = GMRES_FULL;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   What was launched beyond the stop has left the cycle as it was, but that vectors behind u_column, and p, are those of a step that
   does not count.
*/
PetscErrorCode GMRESFusedGoOn_CUDA(GMRESFusedWork *work)
{
  const PetscReal   one    = 1;
  GMRESBasis        newest = work->basis;
  const GMRESState *seen;
  cudaStream_t      stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(work->mailbox.Wait());
  PetscCall(work->mailbox.Fetch(stream, &seen));
  const CGTest test = seen->test;
  GMRESScalars s    = seen->s;
  s.stage           = kCGRunning;
  s.stop            = GMRES_RUNNING;
  BeginAt(work, s.column);
  work->step = 1;
  PetscCall(GMRESPrepareOrthogonalization(work, work->basis, work->restart, work->step));
  PetscCall(work->mailbox.Begin(s, test, stream));
  if (!GMRESDoubleCopy(work)) PetscFunctionReturn(PETSC_SUCCESS);
  newest.u = (float *)newest.u + (size_t)s.column * newest.ld;
  PetscCall(GMRESCombine_CUDA(work, &newest, 1, &one, GMRESDoubleCopy(work)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedFinish_CUDA(GMRESFusedWork *work)
{
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCall(LaunchCorrection(work, false, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedGetSmall_CUDA(GMRESFusedWork *work, GMRESSmall *small, LocalInt *columns)
{
  const size_t        rows = (size_t)small->restart + 1, ld = work->small.rows;
  std::vector<double> from(2 * ld * small->restart);
  GMRESScalars        s;
  cudaStream_t        stream;

  PetscFunctionBegin;
  PetscCall(DeviceGetStream(&stream));
  PetscCallCUDA(cudaMemcpyAsync(from.data(), work->small.H, ld * small->restart * sizeof(double), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaMemcpyAsync(from.data() + ld * small->restart, work->small.R, ld * small->restart * sizeof(double),
                                cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaMemcpyAsync(small->norm.data(), work->small.norm, rows * sizeof(double), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaMemcpyAsync(small->rhs.data(), work->small.rhs, rows * sizeof(double), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaMemcpyAsync(&s, &work->mailbox.state()->s, sizeof(s), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  *columns = s.small_columns;
  for (size_t j = 0; j < (size_t)*columns; j++)
    for (size_t k = 0; k < rows; k++) {
      small->H[j * rows + k] = k <= j + 1 ? from[j * ld + k] : 0;
      small->R[j * rows + k] = k <= j ? from[(small->restart + j) * ld + k] : 0;
    }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESFusedGetStatus_CUDA(const GMRESFusedWork *work, GMRESStatus *status)
{
  PetscFunctionBegin;
  status->bytes  = work->memory.now + work->A.capacity[0] + work->A.capacity[1];
  status->lanes  = work->op.blocks ? 0 : work->A.lanes;
  status->direct = (PetscBool)(work->nccl && GMRESIsDirect(work) && GMRESAreDirect(work));
  PetscFunctionReturn(PETSC_SUCCESS);
}
