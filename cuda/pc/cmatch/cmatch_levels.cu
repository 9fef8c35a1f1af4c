/* The levels of a hierarchy on the GPU: their memory, what completes one, and the report of a set-up. */
#include "cmatch.cuh"
#include "sparse/transfer.cuh"

namespace
{

constexpr int    kGroup     = 8;  /* lanes of a row */
constexpr double kThreadRow = 12; /* up to so many entries a thread takes a row */

/* The arrays of a level that CompleteRows() reads and writes. */
template <typename T>
struct LevelRows {
  LocalInt        n;
  const LocalInt *A_i;
  const T        *A_a;
  double         *rs;
  T              *s, *d, *l;
};

/* What CompleteRows() needs to know of a level. */
struct Completion {
  double        root, nothing; /* see CMATCHNothing() */
  bool          coarse, count; /* it is no finest level; rows that end are counted */
  int           stage;         /* of failures, and their kind */
  CMATCHFailure kind;
};

/* s, d and l of a level, from its entries and the row sums, as CMATCHComplete_Host() makes them. A group takes a row. */
template <int GroupSize, typename T>
__global__ void __launch_bounds__(kBlockSize)
  CompleteRows(LevelRows<T> L, const double *fallback, const double *size, Completion of, CMATCHReport *report)
{
  const LocalInt row   = (LocalInt)(GridThread() / GroupSize);
  const int      lane  = threadIdx.x % GroupSize;
  const LocalInt begin = row < L.n ? L.A_i[row] : 0, end = row < L.n ? L.A_i[row + 1] : 0;
  const int      longest = (int)__reduce_max_sync(kFullWarp, end - begin);
  double         off     = 0;
  bool           coupled = false;
  for (int k = 0; k < longest; k += GroupSize) {
    const double a = begin + k + lane < end ? (double)L.A_a[begin + k + lane] : 0.;
    coupled        = coupled || a != 0;
    AddInOrder<GroupSize>(a, &off);
  }
  coupled             = GroupBallot<GroupSize>(coupled) != 0;
  double     sum      = row < L.n ? L.rs[row] : 1.;
  const bool ends     = row < L.n && CMATCHEnds(sum, coupled, size[row], of.nothing);
  T          diagonal = (T)(sum - off);
  if (ends) {
    sum      = 0;
    diagonal = (T)size[row];
    if (!(diagonal > 0)) diagonal = 1;
  } else if (row < L.n && !(diagonal > 0 && isfinite(diagonal))) diagonal = (T)fallback[row];
  const bool rounded = of.coarse && row < L.n && !(diagonal > 0);
  if (__any_sync(kFullWarp, rounded)) {
    double magnitude = 0;
    for (int k = 0; k < longest; k += GroupSize)
      AddInOrder<GroupSize>(begin + k + lane < end ? fabs((double)L.A_a[begin + k + lane]) : 0., &magnitude);
    if (rounded) diagonal = (T)CMATCHRounded(sum - off, magnitude + fabs(sum), (double)diagonal);
  }
  double l1 = (double)diagonal;
  for (int k = 0; k < longest; k += GroupSize)
    AddInOrder<GroupSize>(begin + k + lane < end ? fabs((double)L.A_a[begin + k + lane]) : 0., &l1);
  if (row >= L.n || lane != 0) return;
  L.s[row] = (T)sum;
  L.d[row] = diagonal;
  L.l[row] = (T)((l1 != (double)diagonal ? 1 : (T)sum == 0 ? 0 : of.root) / l1);
  if (ends) {
    L.rs[row] = 0;
    if (of.count) atomicAdd(&report->ended, 1);
  }
  if (!(diagonal > 0 && isfinite(diagonal))) atomicMin(&report->failure, CMATCHFailureKey(of.stage, row, of.kind));
}

} // namespace

PetscErrorCode CMATCHBeginReport(CMATCHSetup *s)
{
  PetscFunctionBegin;
  s->seen         = CMATCHReport{};
  s->seen.failure = ~0ull;
  PetscCallCUDA(cudaMemcpyAsync(s->report, &s->seen, sizeof(s->seen), cudaMemcpyHostToDevice, s->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void CMATCHRecordFailure(CMATCHSetup *s)
{
  CMATCHStats *stats = s->stats;
  if (!CMATCHHasFailed(s)) return;
  const int stage = (int)(s->seen.failure >> 40);
  stats->level    = PetscMax(0, stage - kCMATCHStageCoarse);
  stats->row      = (LocalInt)(s->seen.failure >> 4 & 0xfffffffffull);
  stats->failure  = (CMATCHFailure)(s->seen.failure & 0xf);
}

static __global__ void CopyNumber(const LocalInt *from, LocalInt *to)
{
  *to = *from;
}

PetscErrorCode CMATCHReportNumber(CMATCHSetup *s, const LocalInt *from, LocalInt *to)
{
  PetscFunctionBegin;
  CopyNumber<<<1, 1, 0, s->stream>>>(from, to);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHReadReport(CMATCHSetup *s)
{
  static_assert(sizeof(CMATCHReport) <= kSmallRead);

  PetscFunctionBegin;
  PetscCall(SmallRead(s->report, sizeof(s->seen), &s->seen, s->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHCreateLevel(CMATCHSetup *s, LocalInt n, LocalInt nnz, const std::vector<GlobalInt> *ghost)
{
  CMATCHHierarchyCUDA *H     = s->H;
  const CMATCHParams  *p     = s->params;
  const LocalInt       level = H->levels++;
  const size_t         value = FinePCPrecisionBytes(p->precision);
  CMATCHLevel         &L     = H->level[level];
  CMATCHVectors       &v     = H->device[level].vectors;
  Layout               layout;

  PetscFunctionBegin;
  L.n     = n;
  L.nnz   = nnz;
  L.all   = n;
  L.width = p->prolongator_row;
  if (ghost) {
    H->device[level].ghost = *ghost;
    L.ghosts               = (LocalInt)ghost->size();
    L.ghost                = H->device[level].ghost.data();
  }
  const size_t with_ghosts = (size_t)n + L.ghosts, most = with_ghosts * L.width; /* entries of P */
  layout.Place(&L.A_i, (size_t)n + 1);
  layout.Place(&L.A_j, nnz);
  layout.Place(&L.A_a, nnz * value);
  for (void **array : {&L.s, &L.d, &L.l}) layout.Place(array, n * value);
  layout.Place(&H->device[level].rs, n);
  if (ghost || (n > p->coarse_size && level + 1 < p->max_levels)) {
    layout.Place(&L.aggregate, with_ghosts);
    layout.Place(&L.P_j, most);
    layout.Place(&L.P_a, most * value);
    layout.Place(&L.R_i, with_ghosts + 1); /* a ghost brings one foreign aggregate at most */
    layout.Place(&L.R_j, most);
    layout.Place(&L.R_a, most * value);
  }
  for (void **array : {&v.b, &v.r}) layout.Place(array, n * value);
  for (void **array : {&v.x[0], &v.x[1]}) layout.Place(array, with_ghosts * value);
  layout.Place(&v.z[0], with_ghosts * value); /* the coarsest level may need a polynomial, whatever the smoother is */
  layout.Place(&v.z[1], with_ghosts * value);
  if (ghost)
    for (LocalInt **array : {&H->device[level].inner, &H->device[level].border}) layout.Place(array, n);
  H->memory.emplace_back(&H->meter);
  PetscCall(layout.Allocate(&H->memory.back()));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHCompleteLevel(CMATCHSetup *s, LocalInt level, const double *fallback, const double *size)
{
  CMATCHHierarchyCUDA *H     = s->H;
  CMATCHLevel         &L     = H->level[level];
  const bool           first = level == 0;
  const Completion     of{CMATCHSmootherSteps(*s->params).root,
                      CMATCHNothing(*H, level),
                      !first,
                      !first && H->level[level - 1].transfer == CMATCH_MATCHED,
                      first ? kCMATCHStageStore : kCMATCHStageCoarse + level,
                      first ? CMATCH_TOO_LARGE : CMATCH_DIAGONAL_NOT_POSITIVE};

  PetscFunctionBegin;
  if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    using T = decltype(zero);
    PetscFunctionBegin;
    const auto kernel = L.nnz <= kThreadRow * L.n ? CompleteRows<1, T> : CompleteRows<kGroup, T>;
    const int  group  = L.nnz <= kThreadRow * L.n ? 1 : kGroup;
    kernel<<<BlocksFor((long long)L.n * group), kBlockSize, 0, s->stream>>>(LevelRows<T>{L.n, L.A_i, (const T *)L.A_a,
                                                                                         H->device[level].rs, (T *)L.s, (T *)L.d,
                                                                                         (T *)L.l},
                                                                            fallback, size, of, s->report);
    FinePCCheckLaunch();
    PetscFunctionReturn(PETSC_SUCCESS);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}
