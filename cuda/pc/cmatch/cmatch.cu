/* CUDA twin of src/pc/cmatch/cmatch_host.cxx: the set-up as a whole, and the finest level. */
#include <cmath>

#include "cmatch.cuh"
#include "cmatch_fsai.cuh"
#include "sparse/transfer.cuh"

namespace
{

constexpr int    kGroup    = 8; /* lanes of a row */
constexpr double kShortRow = 4; /* up to so many entries beside the diagonal half a group copies a row */

/*
   The work memory that a set-up reserves: a multiple of the bytes of A, in double precision or with longer rows of P the second
   one, and at least so many bytes; besides the room that rows of small operators may need. Where that is not enough it gets more.
*/
constexpr double kWork = 1.95, kMoreWork = 2.95;
constexpr size_t kLeastWork = 1 << 20;

/* ---------------------------------------- finest level ---------------------------------------- */

__device__ double NearNull(const double *w, LocalInt i)
{
  return w ? w[i] : 1.;
}

/* w without zeros; a thread takes an entry */
__global__ void __launch_bounds__(kBlockSize) CopyNearNull(LocalInt n, double zero, const double *from, double *w)
{
  const long long i = GridThread();
  if (i < n) w[i] = CMATCHNearNullEntry(from[i], zero);
}

/* The first unusable row, and the largest scaled diagonal entry. A thread takes a row. */
__global__ void __launch_bounds__(kBlockSize) CheckRows(CSRView A, const double *w, double sign, CMATCHReport *report)
{
  const long long row     = GridThread();
  double          largest = 0;
  if (row < A.n) {
    bool   finite = isfinite(NearNull(w, row)), stored = false;
    double diagonal = 0;
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const LocalInt column = A.j[k];
      const double   a      = A.a[k];
      finite                = finite && isfinite(a);
      if (column != row) continue;
      stored   = true;
      diagonal = sign * a;
    }
    const CMATCHFailure failure = !finite           ? CMATCH_NOT_FINITE
                                  : !stored         ? CMATCH_DIAGONAL_MISSING
                                  : !(diagonal > 0) ? CMATCH_DIAGONAL_NOT_POSITIVE
                                                    : CMATCH_OK;
    if (failure != CMATCH_OK) atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageCheck, row, failure));
    else largest = diagonal * NearNull(w, row) * NearNull(w, row);
  }
  /* the bits of numbers that are not negative are in the order of the numbers */
  __shared__ unsigned long long of_block;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  largest = GroupMax<kWarpSize>(largest);
  if (threadIdx.x % kWarpSize == 0 && largest > 0) atomicMax(&of_block, (unsigned long long)__double_as_longlong(largest));
  __syncthreads();
  if (threadIdx.x == 0 && of_block) atomicMax(&report->largest, of_block);
}

/* The entries beside the diagonal, and the row sums, of scale W A W. A group takes a row. */
template <int GroupSize, typename T>
__global__ void __launch_bounds__(kBlockSize)
  CopyFinest(CSRView A, const double *w, double scale, CMATCHFinest<T> to, CMATCHReport *report)
{
  const long long group = GridThread() / GroupSize;
  const int       lane  = threadIdx.x % GroupSize;
  const bool      mine  = group < A.n;
  const LocalInt  row   = (LocalInt)group;
  const LocalInt  begin = mine ? A.i[row] : 0, end = mine ? A.i[row + 1] : 0;
  const int       longest = (int)__reduce_max_sync(kFullWarp, end - begin);
  const double    w_row   = mine ? NearNull(w, row) : 1.;
  double          sum     = 0;
  bool            passed = false, finite = true; /* the diagonal entry was in a part of the row before */
  if (lane == 0 && group <= A.n) to.A_i[group] = mine ? begin - row : A.nnz - A.n; /* every row before has its diagonal entry */
  for (int k = 0; k < longest; k += GroupSize) {
    const LocalInt at             = begin + k + lane;
    const bool     there          = at < end;
    const LocalInt column         = there ? A.j[at] : -1;
    double         value          = there ? A.a[at] * scale : 0.;
    const bool     diagonal_entry = there && column == row;
    const unsigned ballot         = GroupBallot<GroupSize>(diagonal_entry);
    if (w && there) value = value * (w_row * w[column]);
    AddInOrder<GroupSize>(value, &sum);
    finite = finite && isfinite((T)value);
    if (diagonal_entry) {
      to.diagonal[row] = value;
      if (to.matched_d) to.matched_d[row] = (float)value;
    } else if (there) {
      const LocalInt place = at - row - (passed || (ballot & ((1u << lane) - 1u)) ? 1 : 0);
      to.A_j[place]        = column;
      to.A_a[place]        = (T)value;
      if (to.matched_a) to.matched_a[place] = (float)value;
    }
    passed = passed || ballot;
  }
  if (mine && lane == 0) to.rs[row] = sum;
  if (!finite) atomicMin(&report->failure, CMATCHFailureKey(kCMATCHStageStore, row, CMATCH_TOO_LARGE));
}

/* -------------------------------------------- steps ------------------------------------------- */

/* Keeps w, checks the rows of A, and finds the scale. */
PetscErrorCode CheckMatrix(CMATCHSetup *s, const CSRView &A, const double *w)
{
  CMATCHHierarchyCUDA *H = s->H;

  PetscFunctionBegin;
  if (w && A.n) {
    if (!H->w) PetscCall(ArrayCreate_CUDA(A.n * sizeof(*H->w), (void **)&H->w));
    CopyNearNull<<<BlocksFor(A.n), kBlockSize, 0, s->stream>>>(A.n, s->params->zero, w, H->w);
    FinePCCheckLaunch();
  } else PetscCall(ArrayDestroy_CUDA((void **)&H->w));
  CheckRows<<<BlocksFor(A.n), kBlockSize, 0, s->stream>>>(A, H->w, CMATCHSign(*s->params), s->report);
  FinePCCheckLaunch();
  PetscCall(CMATCHReadReport(s));
  double largest;
  int    exponent = 0;
  memcpy(&largest, &s->seen.largest, sizeof(largest));
  std::frexp(largest, &exponent);
  H->scale = std::ldexp(CMATCHSign(*s->params), kCMATCHExponent - exponent);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The finest level, and the rows in which its pairs are matched. */
PetscErrorCode MakeFinest(CMATCHSetup *s, const CSRView &A, bool keep)
{
  CMATCHHierarchyCUDA *H         = s->H;
  const bool           copied    = s->params->precision != FINEPC_SINGLE; /* single entries are those of the hierarchy */
  float               *matched_a = nullptr, *matched_d = nullptr;
  double              *diagonal = nullptr;

  PetscFunctionBegin;
  if (!keep) PetscCall(CMATCHCreateLevel(s, A.n, A.nnz - A.n));
  CMATCHLevel &L = H->level[0];
  if (!keep) {
    PetscCall(s->arena.TakeBack((size_t)L.n + (copied ? L.nnz : 0), {}, s->arena.mark(), &matched_d));
    if (copied) matched_a = matched_d + L.n;
  }
  const auto mark = s->arena.mark();
  PetscCall(s->arena.Take(L.n, &diagonal));
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    const auto kernel = L.nnz <= kShortRow * L.n ? CopyFinest<4, T> : CopyFinest<kGroup, T>;
    const int  group  = L.nnz <= kShortRow * L.n ? 4 : kGroup;
    kernel<<<BlocksFor(((long long)A.n + 1) * group), kBlockSize, 0, s->stream>>>(A, H->w, H->scale,
                                                                                  CMATCHFinest<T>{L.A_i, L.A_j, (T *)L.A_a,
                                                                                                  H->device[0].rs, diagonal,
                                                                                                  matched_a, matched_d},
                                                                                  s->report);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscCall(CMATCHCompleteLevel(s, 0, diagonal, diagonal));
  s->arena.Release(mark);
  s->rows = CMATCHRows{L.n, L.A_i, nullptr, L.A_j, copied ? matched_a : (const float *)L.A_a, matched_d, (size_t)L.nnz, 0};
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Forgets all levels, but not what the cycle keeps. */
void ForgetLevels(CMATCHHierarchyCUDA *H)
{
  H->memory.clear();
  H->levels = 0;
  for (LocalInt l = 0; l < kCMATCHMostLevels; l++) {
    H->level[l]  = CMATCHLevel{};
    H->device[l] = CMATCHLevelCUDA();
  }
}

/* Whether the fit of the last level is measured, too, which has no aggregates. */
bool HasLastFit(const CMATCHHierarchyCUDA *H)
{
  return H->end == CMATCH_END_DOMINATED || H->end == CMATCH_END_STALLED;
}

/* How well aggregates fit the values that they were made for. Only set-ups with other values need it, and the first of them asks.
 */
PetscErrorCode MeasureFirstFit(CMATCHSetup *s)
{
  CMATCHHierarchyCUDA *H = s->H;

  PetscFunctionBegin;
  PetscCall(CMATCHBeginReport(s));
  for (LocalInt l = 0; l + 1 < H->levels; l++) PetscCall(CMATCHMeasureFit(s, l, false));
  if (HasLastFit(H)) PetscCall(CMATCHMeasureFit(s, H->levels - 1, true));
  PetscCall(CMATCHReadReport(s));
  for (LocalInt l = 0; l < H->levels; l++) H->level[l].first_fit = s->seen.fit[l];
  H->has_fit = PETSC_TRUE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* New levels below the last one, one after the other. */
PetscErrorCode MakeLevels(CMATCHSetup *s)
{
  CMATCHHierarchyCUDA *H   = s->H;
  bool                 end = false;

  PetscFunctionBegin;
  while (true) {
    const LocalInt last = H->levels - 1;
    H->end              = CMATCH_END_SIZE;
    if (H->level[last].n <= s->params->coarse_size) break;
    H->end = CMATCH_END_LEVELS;
    if (H->levels >= s->params->max_levels) break;
    H->end = CMATCH_END_SLOW;
    if (last > 0 && H->level[last - 1].transfer == CMATCH_MATCHED &&
        CMATCHIsSlow(*s->params, H->level[last - 1].all, H->level[last].n)) {
      CMATCHForgetTransfer(&H->level[last]);
      break;
    }
    PetscCall(CMATCHAggregate(s, &end)); /* sets H->end */
    if (end || CMATCHHasFailed(s)) break;
    if (H->several) PetscCall(CMATCHMeasureFit(s, last, false));
    PetscCall(CMATCHCoarsen(s, last, false));
    if (CMATCHHasFailed(s)) break;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Compute(CMATCHSetup *s, const CSRView &A, const double *w, bool keep)
{
  PetscFunctionBegin;
  PetscCall(CMATCHBeginReport(s));
  PetscCall(CheckMatrix(s, A, w));
  if (!CMATCHHasFailed(s)) {
    PetscCall(MakeFinest(s, A, keep));
    PetscCall(CMATCHMakeLevels(s, 0, keep));
  }
  CMATCHRecordFailure(s);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Bytes that a V-cycle must move. */
size_t ApplyBytes(const CMATCHHierarchyCUDA *H)
{
  const size_t value = FinePCPrecisionBytes(H->params.precision), entry = value + sizeof(LocalInt);
  size_t       bytes = 0;
  for (LocalInt l = 0; l < H->levels; l++) {
    const CMATCHLevel &L = H->level[l];
    const size_t       A = L.nnz * entry + L.n * (sizeof(LocalInt) + value);
    const size_t       M = CMATCHFactorBytes(L, H->params.precision) + (L.factor.d ? 2 * L.n * value : 0); /* and a vector twice */
    if (l + 1 == H->levels && l >= H->several && H->inverse.size()) bytes += H->inverse.bytes() + 2 * L.n * value;
    else if (l + 1 == H->levels && l >= H->several) bytes += A + 2 * H->params.degree * M;
    else /* before and after: degree products; b, x, l, r of each; P and R once */
      bytes += (L.transfer == CMATCH_PASSED ? 0 : 2 * H->params.degree * (A + M + 4 * L.n * value)) +
               2 * (L.P_nnz * entry + 2 * L.n * value) + 3 * L.n * value;
  }
  return bytes + (H->levels ? 2 * H->level[0].n * sizeof(PetscScalar) : 0);
}

} // namespace

/* What follows when all levels are there, and a read report. */
static PetscErrorCode MakeEnd(CMATCHSetup *s, bool keep)
{
  CMATCHHierarchyCUDA *H = s->H;

  PetscFunctionBegin;
  if (!CMATCHHasFailed(s) && (keep || H->several) && HasLastFit(H)) PetscCall(CMATCHMeasureFit(s, H->levels - 1, true));
  if (!CMATCHHasFailed(s) && H->level[H->levels - 1].n) PetscCall(CMATCHPrepareCoarsest(s));
  else PetscCall(CMATCHReadReport(s));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* New values of the levels below this one. */
static PetscErrorCode Refill(CMATCHSetup *s, LocalInt level)
{
  PetscFunctionBegin;
  for (; level + 1 < s->H->levels; level++) {
    PetscCall(CMATCHMeasureFit(s, level, false));
    PetscCall(CMATCHCoarsen(s, level, true));
  }
  PetscCall(MakeEnd(s, true));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Clears what a refill of the levels from this one on, which did not come out, has left in the report. */
static PetscErrorCode ForgetRefill(CMATCHSetup *s, LocalInt level)
{
  PetscFunctionBegin;
  if ((int)(s->seen.failure >> 40) > kCMATCHStageCoarse + level) s->seen.failure = ~0ull;
  for (; level < s->H->levels; level++) s->seen.fit[level] = CMATCHFit{};
  PetscCallCUDA(cudaMemcpyAsync(s->report, &s->seen, sizeof(s->seen), cudaMemcpyHostToDevice, s->stream));
  PetscCallCUDA(cudaStreamSynchronize(s->stream)); /* s->seen is read again soon */
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   New values of the levels below this one, without waiting for any product, if all of them came out at once before. Where one does
   not, which the report tells in the end, all of them are made again, with waiting, and so are the next ones.
*/
static PetscErrorCode RefillAtOnce(CMATCHSetup *s, LocalInt level)
{
  CMATCHHierarchyCUDA *H = s->H;

  PetscFunctionBegin;
  s->waits = H->careful;
  for (LocalInt l = level; l + 1 < H->levels; l++)
    if (!H->device[l].one_way) s->waits = true;
  if (!s->waits)
    PetscCallCUDA(cudaMemsetAsync(&s->report->amiss, 0, sizeof(s->report->amiss), s->stream)); /* that of levels above */
  const CMATCHStats stats = *s->stats;
  const LocalInt    ended = s->seen.ended;
  PetscCall(Refill(s, level));
  if (s->waits) PetscFunctionReturn(PETSC_SUCCESS);
  s->waits = true;
  if (s->seen.amiss) {
    PetscCall(PetscInfo(nullptr, "A product did not come out as before: the set-up makes all of them again\n"));
    H->careful    = true;
    *s->stats     = stats; /* of the coarsest level, which may have been raised in vain */
    s->seen.ended = ended;
    PetscCall(ForgetRefill(s, level));
    PetscCall(Refill(s, level));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  for (; level + 1 < H->levels; level++) {
    H->level[level].cut   = s->seen.kept[level].cut;
    H->level[level].plain = s->seen.kept[level].plain;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHMakeLevels(CMATCHSetup *s, LocalInt level, bool keep)
{
  CMATCHHierarchyCUDA *H = s->H;

  PetscFunctionBegin;
  if (keep) PetscCall(RefillAtOnce(s, level));
  else {
    H->careful = false;
    PetscCall(MakeLevels(s));
    PetscCall(MakeEnd(s, false));
  }
  if (!CMATCHHasFailed(s)) PetscCall(CMATCHFactorSmoothers(s, keep));
  if (!CMATCHHasFailed(s)) PetscCall(CMATCHPrepareCycle(H, s->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHOpen(const CMATCHParams *params, PetscBool keep, CMATCHHierarchy **hierarchy)
{
  static long          generations = 0; /* of all hierarchies: one may get the address of another one that is gone */
  CMATCHHierarchyCUDA *H           = (CMATCHHierarchyCUDA *)*hierarchy;

  PetscFunctionBegin;
  if (!H) {
    H          = new CMATCHHierarchyCUDA();
    *hierarchy = H;
    H->where   = PETSC_MEMTYPE_CUDA;
    PetscCall(ProcessorCount(&H->processors));
  }
  if (!keep) {
    PetscCall(CMATCHDestroyCycle(H));
    PetscCall(CMATCHDestroyFactors(H));
    ForgetLevels(H);
    H->inverse.Free();
    H->iteration.Free();
    H->parts.Free();
    H->generation = ++generations;
    H->several    = 0;
    H->has_fit    = PETSC_FALSE;
    H->nodes      = nullptr;
    H->row        = nullptr;
    H->nodes_kept.reset();
  }
  H->params          = *params;
  H->scale           = 1;
  H->work_meter.peak = H->work_meter.now;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHOpenWork(CMATCHSetup *s, size_t A_bytes)
{
  CMATCHHierarchyCUDA *H     = s->H;
  const bool           usual = s->params->precision == FINEPC_SINGLE && s->params->prolongator_row <= kCMATCHUsualRow;
  Layout               layout;

  PetscFunctionBegin;
  PetscCall(s->arena.Reserve(PetscMax(kLeastWork, (size_t)((usual ? kWork : kMoreWork) * (double)A_bytes)) + kCMATCHSmallRoom));
  layout.Place(&s->report, 1);
  layout.Place(&s->rounds, kCMATCHRounds);
  if (!H->report.size()) PetscCall(H->report.Allocate(layout.bytes()));
  layout.Bind(H->report.data());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHClose(CMATCHSetup *s, bool keep_work)
{
  CMATCHHierarchyCUDA *H      = s->H;
  const CMATCHParams  *params = s->params;
  const LocalInt       finest = H->levels ? H->level[0].n + H->level[0].ghosts : 0;

  PetscFunctionBegin;
  s->stats->end   = H->end;
  s->stats->ended = s->seen.ended;
  s->stats->work_bytes += H->work_meter.peak; /* to that of the factors */
  PetscCall(
    PetscInfo(nullptr, "The set-up used %g of the %g bytes that it reserved\n", (double)s->arena.used(), (double)H->work.bytes()));
  if (!keep_work) {
    H->work.Free();
    H->report.Free();
    PetscCall(CMATCHFreeFactorWork(H));
  }
  H->kept_bytes = H->work.bytes() + H->report.bytes();
  for (const SFSAIWork &level : H->factor_work) H->kept_bytes += level.bytes;
  H->inverted = (PetscBool)(params->coarse == PC_CMATCH_DENSE && H->end != CMATCH_END_DOMINATED && H->levels > H->several &&
                            H->level[H->levels - 1].n <= kCMATCHLargestDense);
  H->bytes    = H->meter.now + (H->w ? finest * sizeof(*H->w) : 0);
  for (LocalInt l = 0; l < H->levels; l++) H->bytes += CMATCHFactorBytes(H->level[l], params->precision);
  H->apply_bytes = ApplyBytes(H);
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHComputeHierarchy_CUDA(const CSRView *A, const PetscScalar *w, const CMATCHParams *params, PetscBool keep,
                                           PetscBool work, CMATCHHierarchy **hierarchy, CMATCHStats *stats)
{
  PetscFunctionBegin;
  *stats = CMATCHStats{};
  PetscCall(CMATCHOpen(params, keep, hierarchy));
  CMATCHHierarchyCUDA *const H = (CMATCHHierarchyCUDA *)*hierarchy;
  CMATCHSetup                s(H, params, stats);
  PetscCall(DeviceGetStream(&s.stream));
  if (A->n) {
    PetscCall(CMATCHOpenWork(&s, A->nnz * (sizeof(LocalInt) + sizeof(PetscScalar)) + A->n * sizeof(LocalInt)));
    if (keep && !H->has_fit) PetscCall(MeasureFirstFit(&s));
    PetscCall(Compute(&s, *A, w, keep));
    CMATCHRecordFit(&s);
  } else {
    H->scale = std::ldexp(1., kCMATCHExponent);
    if (!keep) {
      PetscCall(CMATCHCreateLevel(&s, 0, 0));
      PetscCallCUDA(cudaMemsetAsync(H->level[0].A_i, 0, sizeof(LocalInt), s.stream));
    }
  }
  PetscCall(CMATCHClose(&s, work));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHDestroy_CUDA(CMATCHHierarchy **hierarchy)
{
  CMATCHHierarchyCUDA *H = (CMATCHHierarchyCUDA *)*hierarchy;

  PetscFunctionBegin;
  if (!H) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHDestroyCycle(H));
  PetscCall(CMATCHDestroyFactors(H));
  PetscCall(CMATCHFreeFactorWork(H));
  PetscCall(ArrayDestroy_CUDA((void **)&H->w));
  delete H;
  *hierarchy = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}
