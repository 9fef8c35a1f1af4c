/*
   CUDA twin of src/pc/cmatch/cmatch_fit_host.cxx: a group of lanes takes a row, and pieces are found by threads that hang the
   larger one of two roots below the smaller one, whose number does not depend on their order.
*/
#include "cmatch_nodes.cuh"

namespace
{

/* Up to this mean number of entries a thread takes a row, and a group of lanes beyond. */
constexpr double kThreadRow = 20;
constexpr int    kGroup     = 8;

template <typename T>
struct Fitted {
  LocalInt        n;
  const LocalInt *A_i, *A_j;
  const T        *A_a, *d;
  const LocalInt *aggregate; /* or null, if the level has none */
  float           strength;
  float          *largest; /* the heaviest edge of a row, -1 for a row that is left */
  LocalInt       *parent;  /* another row of the same piece that is smaller, or the row itself */
  CMATCHFit      *fit;

  __device__ __forceinline__ float Weight(float own, LocalInt k) const
  {
    const LocalInt j   = A_j[k];
    const float    sum = own + (j < n ? (float)d[j] : own);
    return sum > 0 ? (-2.0f * (float)A_a[k]) / sum : 0.f;
  }
};

template <int GroupSize, typename T>
__global__ void __launch_bounds__(kBlockSize) FindHeaviest(Fitted<T> f)
{
  const long long at    = GridThread() / GroupSize;
  const LocalInt  row   = (LocalInt)at;
  const int       lane  = threadIdx.x % GroupSize;
  const bool      here  = at < f.n;
  const LocalInt  begin = here ? f.A_i[row] : 0, end = here ? f.A_i[row + 1] : 0;
  const LocalInt  longest = (LocalInt)__reduce_max_sync(kFullWarp, end - begin);
  const float     own     = here ? (float)f.d[row] : 1.f;
  double          off     = 0;
  float           largest = 0;
  for (LocalInt k = begin; k < begin + longest; k += GroupSize) {
    const bool mine = k + lane < end;
    AddInOrder<GroupSize>(mine ? fabs((double)(float)f.A_a[k + lane]) : 0., &off);
    if (mine) largest = fmaxf(largest, f.Weight(own, k + lane));
  }
  largest = GroupMax<GroupSize>(largest);
  if (!here || lane != 0) return;
  const double least = f.aggregate && f.aggregate[row] >= 0 ? kCMATCHDominated : kCMATCHUnheld;
  f.largest[row]     = off >= least * (double)own ? largest : -1.f;
  f.parent[row]      = row;
}

__device__ __forceinline__ LocalInt Root(const LocalInt *parent, LocalInt i)
{
  for (LocalInt up; (up = *(const volatile LocalInt *)(parent + i)) != i;) i = up;
  return i;
}

__device__ __forceinline__ void Unite(LocalInt *parent, LocalInt a, LocalInt b)
{
  while ((a = Root(parent, a)) != (b = Root(parent, b))) {
    const LocalInt larger = max(a, b), smaller = min(a, b);
    if (atomicCAS(parent + larger, larger, smaller) == larger) return;
  }
}

template <int GroupSize, typename T>
__global__ void __launch_bounds__(kBlockSize) UniteRows(Fitted<T> f)
{
  const long long at      = GridThread() / GroupSize;
  const LocalInt  row     = (LocalInt)at;
  const bool      here    = at < f.n;
  const float     largest = here ? f.largest[row] : -1.f, own = here ? (float)f.d[row] : 1.f;
  const LocalInt  mine = here && f.aggregate ? f.aggregate[row] : -1;
  bool            any = false, inside = false;
  if (largest >= 0)
    for (LocalInt k = f.A_i[row] + threadIdx.x % GroupSize; k < f.A_i[row + 1]; k += GroupSize) {
      const LocalInt j    = f.A_j[k];
      const bool     same = j < f.n && mine >= 0 && f.aggregate[j] == mine;
      if (j >= f.n || f.largest[j] < 0 || (any && !same)) continue;
      const float c = -2.0f * (float)f.A_a[k], sum = own + (float)f.d[j];
      if (!(c > 0) || c < (f.strength * fmaxf(largest, f.largest[j])) * sum) continue;
      any = true;
      if (!same) continue;
      inside = true;
      if (j < row) Unite(f.parent, row, j); /* the other row has the edge, too */
    }
  /* all lanes of a warp take part in each of the ballots, whatever the one before has given their group */
  const unsigned strong = GroupBallot<GroupSize>(any), own_strong = GroupBallot<GroupSize>(inside);
  const unsigned ballot = __ballot_sync(kFullWarp, strong && !own_strong && threadIdx.x % GroupSize == 0);
  const unsigned left   = __ballot_sync(kFullWarp, strong && f.aggregate && mine < 0 && threadIdx.x % GroupSize == 0);
  if (ballot && threadIdx.x % kWarpSize == 0) atomicAdd(&f.fit->loose, __popc(ballot));
  if (left && threadIdx.x % kWarpSize == 0) atomicAdd(&f.fit->left, __popc(left));
}

/* A thread takes a row. */
template <typename T>
__global__ void __launch_bounds__(kBlockSize) CountPieces(Fitted<T> f)
{
  const long long row   = GridThread();
  const bool      root  = row < f.n && f.largest[row] >= 0 && f.aggregate[row] >= 0 && f.parent[row] == row;
  const int       count = __syncthreads_count(root);
  if (count && threadIdx.x == 0) atomicAdd(&f.fit->pieces, count);
}

/* Measures what `f` has, with so many entries and without memory of its own. */
template <typename T>
PetscErrorCode Measure(CMATCHSetup *s, Fitted<T> f, size_t entries)
{
  const auto mark   = s->arena.mark();
  const bool single = (double)entries <= kThreadRow * f.n;
  const int  blocks = BlocksFor((long long)f.n * (single ? 1 : kGroup));

  PetscFunctionBegin;
  PetscCall(s->arena.Take(f.n, &f.largest));
  PetscCall(s->arena.Take(f.n, &f.parent));
  if (single) FindHeaviest<1><<<blocks, kBlockSize, 0, s->stream>>>(f);
  else FindHeaviest<kGroup><<<blocks, kBlockSize, 0, s->stream>>>(f);
  FinePCCheckLaunch();
  if (single) UniteRows<1><<<blocks, kBlockSize, 0, s->stream>>>(f);
  else UniteRows<kGroup><<<blocks, kBlockSize, 0, s->stream>>>(f);
  FinePCCheckLaunch();
  if (f.aggregate) CountPieces<<<BlocksFor(f.n), kBlockSize, 0, s->stream>>>(f);
  FinePCCheckLaunch();
  s->arena.Release(mark);
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode CMATCHMeasureFit(CMATCHSetup *s, LocalInt level, bool last)
{
  const CMATCHLevel &L = s->H->level[level];

  PetscFunctionBegin;
  if (!L.n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CMATCHWithPrecision(s->params->precision, [&](auto zero) {
    using T = decltype(zero);
    const Fitted<T> f{L.n,
                      L.A_i,
                      L.A_j,
                      (const T *)L.A_a,
                      (const T *)L.d,
                      last ? nullptr : L.aggregate,
                      CMATCHStrength(*s->params, L.all),
                      nullptr,
                      nullptr,
                      &s->report->fit[level]};
    return Measure(s, f, L.nnz);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesMeasureFit(CMATCHSetup *s, const CMATCHRows &graph, const LocalInt *aggregate)
{
  const Fitted<float> f{graph.n, graph.start, graph.j,           graph.a, graph.d, aggregate, CMATCHNodesStrength(*s->params, 0),
                        nullptr, nullptr,     &s->report->fit[0]};

  PetscFunctionBegin;
  PetscCall(Measure(s, f, graph.room));
  PetscFunctionReturn(PETSC_SUCCESS);
}

void CMATCHRecordFit(const CMATCHSetup *s)
{
  for (LocalInt l = 0; l < s->H->levels; l++) s->H->level[l].fit = s->seen.fit[l];
}
