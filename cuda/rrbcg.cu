/*
   CUDA kernels of RRBCG. Vectors are on the black points of level 1, class b2 and then b1 of the first grid's cells, and the residual is in
   the storage that the second level begins with. An iteration is a sequence of kernels: S_1 p with its dot, r, level 2 down, the middle
   of PCRRB, level 2 up with its dots, x and p. Scalars and the test stay on the device, as in cgfused.cu; the host is some launches of a
   graph ahead.
*/
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "cgscalars.cuh"
#include "rrb.cuh"
#include "../src/ksp/rrbcg.h"

namespace
{

constexpr int kIterations = 2; /* of one launch of the graph */
constexpr int kInFlight   = 2; /* launches that the host is ahead */
constexpr int kOnChip     = 8; /* blocks a processor at most, of kernels that only update */
constexpr int kSkewOnChip = 6; /* of those of the second level, which are held back by registers */
constexpr int kMostOnChip = 4; /* of the product */

/* The first grid, the Schur complement on its black points, and vectors; a kernel's blocks take tiles of cells in turns. */
struct Black {
  RRBGrid       g, next;
  const double *S;              /* [2 kSkewArrays][cy][ld] */
  double       *x, *r, *p, *q;  /* [2][cy][ld] */
  double       *z;              /* [cy][ld], class b1; b2 is next.up */
  double       *partial;
  CGState      *state;

  __device__ size_t At(int what, PetscInt I, PetscInt J) const { return (what == kB1 ? g.Cells() : 0) + g.Cell(I, J); }
  __device__ double Skew(int what, RRBSkew array, PetscInt I, PetscInt J) const { return g.Has(what, I, J) ? S[((what == kB1 ? kSkewOfB1 : 0) + array) * g.Cells() + g.Cell(I, J)] : 0.; }
  __device__ double Value(const double *v, int what, PetscInt I, PetscInt J) const { return g.Has(what, I, J) ? v[At(what, I, J)] : 0.; }
};

/* Calls act(I, J) in the thread of each cell; all threads of a block call it as often, also beyond the last cell. */
template <typename Act>
__device__ __forceinline__ void ForCells(const RRBGrid &g, Act act)
{
  const int across = (g.cx + kRRBTileX - 1) / kRRBTileX, tiles = across * ((g.cy + kRRBTileY - 1) / kRRBTileY);
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) act(tile % across * kRRBTileX + (PetscInt)threadIdx.x % kRRBTileX, tile / across * kRRBTileY + (PetscInt)threadIdx.x / kRRBTileX);
}

/* Coefficients of the two rows of S_1 of a cell: diagonal, then in the order of use. */
struct Rows {
  double b2[9], b1[9];

  __device__ __forceinline__ void Load(const Black &v, PetscInt I, PetscInt J)
  {
    b2[0] = v.Skew(kB2, kSkewC, I, J);
    b2[1] = v.Skew(kB2, kSkewP, I, J);         /* north-east */
    b2[2] = v.Skew(kB2, kSkewQ, I, J);         /* north-west */
    b2[3] = v.Skew(kB1, kSkewQ, I, J - 1);     /* south-east */
    b2[4] = v.Skew(kB1, kSkewP, I - 1, J - 1); /* south-west */
    b2[5] = v.Skew(kB2, kSkewH, I, J);
    b2[6] = v.Skew(kB2, kSkewH, I - 1, J);
    b2[7] = v.Skew(kB2, kSkewV, I, J);
    b2[8] = v.Skew(kB2, kSkewV, I, J - 1);
    b1[0] = v.Skew(kB1, kSkewC, I, J);
    b1[1] = v.Skew(kB1, kSkewP, I, J);     /* north-east */
    b1[2] = v.Skew(kB1, kSkewQ, I, J);     /* north-west */
    b1[3] = v.Skew(kB2, kSkewQ, I + 1, J); /* south-east */
    b1[4] = b2[1];                         /* south-west */
    b1[5] = v.Skew(kB1, kSkewH, I, J);
    b1[6] = v.Skew(kB1, kSkewH, I - 1, J);
    b1[7] = v.Skew(kB1, kSkewV, I, J);
    b1[8] = v.Skew(kB1, kSkewV, I, J - 1);
  }
};

/* q = S_1 p, delta = p.q. It is the first kernel of an iteration: after a decision, nothing is left to do. */
__global__ void __launch_bounds__(kRRBTile, kMostOnChip) MultiplySchur(const Black v)
{
  double delta[1] = {0};
  Rows   S;
  bool   waited = false, idle = false;
  ForCells(v.g, [&](PetscInt I, PetscInt J) {
    S.Load(v, I, J);
    if (!waited) {
      WaitForPrevious();
      LetNextStart();
      idle   = v.state->s.stage >= kCGDecided;
      waited = true;
    }
    if (idle) return;
    const double b2 = v.Value(v.p, kB2, I, J), b1 = v.Value(v.p, kB1, I, J);
    const double q2 = S.b2[0] * b2 + S.b2[1] * b1 + S.b2[2] * v.Value(v.p, kB1, I - 1, J) + S.b2[3] * v.Value(v.p, kB1, I, J - 1) + S.b2[4] * v.Value(v.p, kB1, I - 1, J - 1) + S.b2[5] * v.Value(v.p, kB2, I + 1, J) + S.b2[6] * v.Value(v.p, kB2, I - 1, J) + S.b2[7] * v.Value(v.p, kB2, I, J + 1) + S.b2[8] * v.Value(v.p, kB2, I, J - 1);
    const double q1 = S.b1[0] * b1 + S.b1[1] * v.Value(v.p, kB2, I + 1, J + 1) + S.b1[2] * v.Value(v.p, kB2, I, J + 1) + S.b1[3] * v.Value(v.p, kB2, I + 1, J) + S.b1[4] * b2 + S.b1[5] * v.Value(v.p, kB1, I + 1, J) + S.b1[6] * v.Value(v.p, kB1, I - 1, J) + S.b1[7] * v.Value(v.p, kB1, I, J + 1) + S.b1[8] * v.Value(v.p, kB1, I, J - 1);
    if (v.g.Has(kB2, I, J)) v.q[v.At(kB2, I, J)] = q2;
    if (v.g.Has(kB1, I, J)) v.q[v.At(kB1, I, J)] = q1;
    delta[0] += b2 * q2 + b1 * q1;
  });
  if (idle) {
    if (GridThread() == 0) v.state->s.stage = kCGStopped;
    return;
  }
  if (GridSumLast(delta, v.partial, &v.state->ticket) && v.state->s.stage == kCGRunning) {
    CGScalars s = v.state->s;
    DecideDelta(s, delta[0]);
    v.state->s = s;
  }
}

/* r = r - a q; r.r */
__global__ void __launch_bounds__(kRRBTile, kOnChip) UpdateResidual(const Black v)
{
  double sums[1] = {0};
  WaitForPrevious();
  LetNextStart();
  if (v.state->s.stage >= kCGDecided) return;
  const double a = v.state->s.a;
  ForCells(v.g, [&](PetscInt I, PetscInt J) {
#pragma unroll
    for (int what = kB2; what <= kB1; what += kB1 - kB2) {
      if (!v.g.Has(what, I, J)) continue;
      const size_t at = v.At(what, I, J);
      const double r  = v.r[at] - a * v.q[at];
      v.r[at]         = r;
      sums[0] += r * r;
    }
  });
  if (GridSumLast(sums, v.partial, &v.state->ticket)) v.state->nn = sums[0];
}

/* Level 2 down: class b2 by the cell's four b1, into what the next grid reads. */
__global__ void __launch_bounds__(kRRBTile, kSkewOnChip) DownToNext(const Black v)
{
  const RRBGrid &g = v.g;
  double         l[4];
  bool           waited = false, idle = false;
  ForCells(g, [&](PetscInt I, PetscInt J) {
    if (!g.half) {
      l[0] = g.L(kB1SouthWest, I, J);
      l[1] = g.L(kB1SouthEast, I - 1, J);
      l[2] = g.L(kB1NorthWest, I, J - 1);
      l[3] = g.L(kB1NorthEast, I - 1, J - 1);
    }
    if (!waited) {
      WaitForPrevious();
      LetNextStart();
      idle   = v.state->s.stage >= kCGDecided;
      waited = true;
    }
    if (idle) return;
    const double b2 = v.Value(v.r, kB2, I, J), b1 = v.Value(v.r, kB1, I, J);
    if (g.half) {
      if (g.Has(kB2, I, J)) v.next.down[RRBHalfPlace(g, kB2, I, J)] = b2;
      if (g.Has(kB1, I, J)) v.next.down[RRBHalfPlace(g, kB1, I, J)] = b1;
    } else if (g.Has(kB2, I, J)) StoreDown(v.next, I, J, b2 - l[0] * b1 - l[1] * v.Value(v.r, kB1, I - 1, J) - l[2] * v.Value(v.r, kB1, I, J - 1) - l[3] * v.Value(v.r, kB1, I - 1, J - 1));
  });
}

/* Level 2 up: class b1 of z, and r.z; z of b2 is what the next grid wrote. */
__global__ void __launch_bounds__(kRRBTile, kSkewOnChip) UpFromNext(const Black v)
{
  const RRBGrid &g       = v.g;
  double         sums[1] = {0}, l[5];
  bool           waited = false, idle = false;
  ForCells(g, [&](PetscInt I, PetscInt J) {
    if (!g.half)
#pragma unroll
      for (int k = 0; k < 5; k++) l[k] = g.L((RRBArray)(kB1SouthWest + k), I, J);
    if (!waited) {
      WaitForPrevious();
      LetNextStart();
      idle   = v.state->s.stage >= kCGDecided;
      waited = true;
    }
    if (idle) return;
    const double b2 = UpB2(g, v.next, I, J);
    sums[0] += v.Value(v.r, kB2, I, J) * b2;
    if (!g.Has(kB1, I, J)) return;
    const double r = v.r[v.At(kB1, I, J)];
    const double z = g.half ? v.next.up[RRBHalfPlace(g, kB1, I, J)] : l[4] * r - l[0] * b2 - l[1] * UpB2(g, v.next, I + 1, J + 1) - l[2] * UpB2(g, v.next, I + 1, J) - l[3] * UpB2(g, v.next, I, J + 1);
    v.z[g.Cell(I, J)] = z;
    sums[0] += r * z;
  });
  if (idle) return;
  if (GridSumLast(sums, v.partial, &v.state->ticket)) FinishIteration(v.state, v.state->nn, sums[0]);
}

/* x = x + a p; p = z + b p */
__global__ void __launch_bounds__(kRRBTile, kOnChip) UpdateDirection(const Black v)
{
  WaitForPrevious();
  LetNextStart();
  const CGStage stage = v.state->s.stage;
  const double  a = v.state->s.a, b = v.state->s.b;
  if (stage == kCGStopped) return;
  ForCells(v.g, [&](PetscInt I, PetscInt J) {
#pragma unroll
    for (int what = kB2; what <= kB1; what += kB1 - kB2) {
      if (!v.g.Has(what, I, J)) continue;
      const size_t at = v.At(what, I, J);
      const double p  = v.p[at];
      v.x[at] += a * p;
      if (stage != kCGDecided) v.p[at] = (what == kB2 ? UpB2(v.g, v.next, I, J) : v.z[v.g.Cell(I, J)]) + b * p;
    }
  });
}

/* The residual of the whole system, in natural order, becomes r of the black points, x = 0; its sums are dots: r.r, d r.r of red points, g.g. */
__global__ void __launch_bounds__(kRRBTile) EliminateRed(const Black v, const double *given)
{
  const RRBGrid &g       = v.g;
  double         sums[3] = {0, 0, 0};
  const auto     value   = [&](int what, PetscInt I, PetscInt J) { return g.Has(what, I, J) ? given[(size_t)(2 * J + (what >> 1)) * g.nx + 2 * I + (what & 1)] : 0.; };
  ForCells(g, [&](PetscInt I, PetscInt J) {
    const double b2 = value(kB2, I, J), b1 = value(kB1, I, J), r1 = value(kR1, I, J), r2 = value(kR2, I, J);
    const double g2 = b2 - g.L(kR1West, I, J) * r1 - g.L(kR1East, I - 1, J) * value(kR1, I - 1, J) - g.L(kR2South, I, J) * r2 - g.L(kR2North, I, J - 1) * value(kR2, I, J - 1);
    const double g1 = b1 - g.L(kR1North, I, J) * r1 - g.L(kR1South, I, J + 1) * value(kR1, I, J + 1) - g.L(kR2East, I, J) * r2 - g.L(kR2West, I + 1, J) * value(kR2, I + 1, J);
    for (int what = kB2; what <= kB1; what += kB1 - kB2) {
      if (!g.Has(what, I, J)) continue;
      const size_t at = v.At(what, I, J);
      v.r[at]         = what == kB2 ? g2 : g1;
      v.x[at] = v.p[at] = 0;
      sums[2] += v.r[at] * v.r[at];
    }
    sums[0] += b2 * b2 + b1 * b1 + r1 * r1 + r2 * r2;
    sums[1] += g.L(kR1Pivot, I, J) * r1 * r1 + g.L(kR2Pivot, I, J) * r2 * r2;
  });
  if (!GridSumLast(sums, v.partial, &v.state->ticket)) return;
  for (int c = 0; c < 3; c++) v.state->dots[c] = sums[c];
  v.state->nn = sums[2];
}

/* The solution of the whole system, or what is added to it. */
__global__ void __launch_bounds__(kRRBTile) SolveRed(const Black v, const double *given, bool add, double *to)
{
  const RRBGrid &g     = v.g;
  const auto     store = [&](int what, PetscInt I, PetscInt J, double value) {
    if (!g.Has(what, I, J)) return;
    double *const at = to + (size_t)(2 * J + (what >> 1)) * g.nx + 2 * I + (what & 1);
    *at              = add ? *at + value : value;
  };
  const auto value = [&](int what, PetscInt I, PetscInt J) { return g.Has(what, I, J) ? given[(size_t)(2 * J + (what >> 1)) * g.nx + 2 * I + (what & 1)] : 0.; };
  ForCells(g, [&](PetscInt I, PetscInt J) {
    const double b2 = v.Value(v.x, kB2, I, J), b1 = v.Value(v.x, kB1, I, J);
    store(kB2, I, J, b2);
    store(kB1, I, J, b1);
    store(kR1, I, J, g.L(kR1Pivot, I, J) * value(kR1, I, J) - g.L(kR1West, I, J) * b2 - g.L(kR1East, I, J) * v.Value(v.x, kB2, I + 1, J) - g.L(kR1South, I, J) * v.Value(v.x, kB1, I, J - 1) - g.L(kR1North, I, J) * b1);
    store(kR2, I, J, g.L(kR2Pivot, I, J) * value(kR2, I, J) - g.L(kR2West, I, J) * v.Value(v.x, kB1, I - 1, J) - g.L(kR2East, I, J) * b1 - g.L(kR2South, I, J) * b2 - g.L(kR2North, I, J) * v.Value(v.x, kB2, I, J + 1));
  });
}

__global__ void __launch_bounds__(kRRBTile) StoreResidual(const Black v, double *to)
{
  ForCells(v.g, [&](PetscInt I, PetscInt J) {
    for (int what = 0; what < 4; what++)
      if (v.g.Has(what, I, J)) to[(size_t)(2 * J + (what >> 1)) * v.g.nx + 2 * I + (what & 1)] = what == kB2 || what == kB1 ? v.r[v.At(what, I, J)] : 0.;
  });
}

/* ------------------------------------------- the host's side ------------------------------------------- */

struct Work : RRBCGWork {
  const RRBFactorCUDA *F = nullptr;
  Black                v{};
  int                  tiles = 0, processors = 0;
  Buffer<double>       vectors, partial;
  Buffer<CGState>      state;
  CGState             *seen[kInFlight]  = {}; /* the host's copies */
  cudaEvent_t          event[kInFlight] = {};
  cudaStream_t         capture          = nullptr;
  cudaGraphExec_t      graph            = nullptr;
  struct Captured { /* what the graph is about */
    RRBGrid       grid[kRRBGrids + 1];
    int           count;
    const double *inverse;
    Black         v;
  } captured{};
  long     launched = 0, arrived = 0; /* of this solve */
  PetscInt reported = 0;              /* iterations that the caller knows of */
  CGRecord records[kCGRecords];
};

/* As many as the processors hold at once: all have as many tiles. */
int Blocks(const Work *w, int on_chip = kOnChip)
{
  return std::max(1, std::min(w->tiles, on_chip * w->processors));
}

PetscErrorCode Wait(Work *w)
{
  PetscFunctionBegin;
  for (; w->arrived < w->launched; w->arrived++) PetscCallCUDA(cudaEventSynchronize(w->event[w->arrived % kInFlight]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The state of the beginning, from the host's first copy of it, which nothing is on the way to. */
PetscErrorCode Upload(Work *w, const CGScalars &s, const CGTest &test, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(Wait(w));
  CGState *const from = w->seen[0];
  from->s             = s;
  from->test          = test;
  from->nn            = 0;
  from->sums          = CGSums{};
  for (double &dot : from->dots) dot = 0;
  from->ticket = 0;
  PetscCallCUDA(cudaMemcpyAsync(w->state.data(), from, offsetof(CGState, records), cudaMemcpyHostToDevice, stream));
  w->launched = w->arrived = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Download(Work *w, cudaStream_t stream)
{
  const int slot = (int)(w->launched % kInFlight);

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemcpyAsync(w->seen[slot], w->state.data(), sizeof(CGState), cudaMemcpyDeviceToHost, stream));
  PetscCallCUDA(cudaEventRecord(w->event[slot], stream));
  w->launched++;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* z = M_S^{-1} r, and what ends an iteration */
PetscErrorCode LaunchPreconditioner(Work *w, bool early, cudaStream_t stream)
{
  const RRBGate gate{(const int *)&w->state.data()->s.stage, kCGDecided};

  PetscFunctionBegin;
  static_assert(sizeof(CGStage) == sizeof(int), "a gate reads the stage as an int");
  PetscCall(LaunchEarly(early, DownToNext, Blocks(w, kSkewOnChip), kRRBTile, stream, w->v));
  PetscCall(RRBLaunchMiddle(w->F, gate, early, stream));
  PetscCall(LaunchEarly(early, UpFromNext, Blocks(w, kSkewOnChip), kRRBTile, stream, w->v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchIteration(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  PetscCall(LaunchEarly(early, MultiplySchur, Blocks(w, kMostOnChip), kRRBTile, stream, w->v));
  PetscCall(LaunchEarly(early, UpdateResidual, Blocks(w, kOnChip), kRRBTile, stream, w->v));
  PetscCall(LaunchPreconditioner(w, early, stream));
  PetscCall(LaunchEarly(early, UpdateDirection, Blocks(w, kOnChip), kRRBTile, stream, w->v));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode LaunchIterations(Work *w, bool early, cudaStream_t stream)
{
  PetscFunctionBegin;
  for (int k = 0; k < kIterations; k++) PetscCall(LaunchIteration(w, early, stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The graph is kept as long as it is about the same arrays. */
PetscErrorCode DropOldGraph(Work *w)
{
  const RRBFactorCUDA *F = w->F;
  Work::Captured       now;

  PetscFunctionBegin;
  memset((void *)&now, 0, sizeof(now)); /* with its padding, which is compared */
  for (int k = 0; k <= F->count; k++) memcpy((void *)&now.grid[k], &F->grid[k], sizeof(now.grid[k]));
  now.count   = F->count;
  now.inverse = F->inverse.data();
  memcpy((void *)&now.v, &w->v, sizeof(now.v));
  if (!memcmp(&now, &w->captured, sizeof(now))) PetscFunctionReturn(PETSC_SUCCESS);
  if (w->graph) PetscCallCUDA(cudaGraphExecDestroy(w->graph));
  w->graph = nullptr;
  memcpy((void *)&w->captured, &now, sizeof(now));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CaptureIterations(Work *w)
{
  cudaGraph_t graph;

  PetscFunctionBegin;
  if (!w->capture) PetscCallCUDA(cudaStreamCreateWithFlags(&w->capture, cudaStreamNonBlocking));
  PetscCallCUDA(cudaStreamBeginCapture(w->capture, cudaStreamCaptureModeThreadLocal));
  const PetscErrorCode launched = LaunchIterations(w, w->F->early, w->capture);
  const cudaError_t    captured = cudaStreamEndCapture(w->capture, &graph); /* in any case, for the stream to be of use again */
  PetscCall(launched);
  PetscCallCUDA(captured);
  PetscCallCUDA(cudaGraphInstantiate(&w->graph, graph, 0));
  PetscCallCUDA(cudaGraphDestroy(graph));
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace

PetscErrorCode RRBCGPrepare_CUDA(RRBFactor *factor, RRBCGWork **work)
{
  const RRBFactorCUDA *F     = static_cast<const RRBFactorCUDA *>(factor);
  const RRBGrid       &g     = F->grid[0];
  const size_t         cells = g.Cells();
  Work                *w     = static_cast<Work *>(*work);

  PetscFunctionBegin;
  if (!w) {
    *work    = w = new Work();
    w->where = PETSC_MEMTYPE_CUDA;
    PetscCallCUDA(cudaMallocHost(&w->seen[0], kInFlight * sizeof(CGState)));
    for (int k = 0; k < kInFlight; k++) {
      w->seen[k] = w->seen[0] + k;
      PetscCallCUDA(cudaEventCreateWithFlags(&w->event[k], cudaEventDisableTiming));
    }
    PetscCall(w->state.Allocate(1));
  }
  PetscCall(Wait(w));
  PetscCall(ProcessorCount(&w->processors));
  w->F     = F;
  w->tiles = RRBTiles(g);
  if (w->vectors.size() != 9 * cells) PetscCall(w->vectors.Allocate(9 * cells));
  if (w->partial.size() != 3 * (size_t)Blocks(w)) PetscCall(w->partial.Allocate(3 * (size_t)Blocks(w)));
  memset((void *)&w->v, 0, sizeof(w->v));
  memcpy((void *)&w->v.g, &g, sizeof(g));
  memcpy((void *)&w->v.next, &F->grid[1], sizeof(g));
  w->v.S       = F->schur.data();
  w->v.x       = w->vectors.data();
  w->v.r       = w->v.x + 2 * cells;
  w->v.p       = w->v.x + 4 * cells;
  w->v.q       = w->v.x + 6 * cells;
  w->v.z       = w->v.x + 8 * cells;
  w->v.partial = w->partial.data();
  w->v.state   = w->state.data();
  w->bytes     = w->vectors.bytes() + w->partial.bytes() + w->state.bytes();
  PetscCall(DropOldGraph(w));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGDestroy_CUDA(RRBCGWork **work)
{
  Work *w = static_cast<Work *>(*work);

  PetscFunctionBegin;
  if (!w) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(Wait(w));
  if (w->graph) PetscCallCUDA(cudaGraphExecDestroy(w->graph));
  if (w->capture) PetscCallCUDA(cudaStreamDestroy(w->capture));
  for (cudaEvent_t event : w->event)
    if (event) PetscCallCUDA(cudaEventDestroy(event));
  if (w->seen[0]) PetscCallCUDA(cudaFreeHost(w->seen[0]));
  delete w;
  *work = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGStart_CUDA(RRBCGWork *work, const PetscScalar *r, RRBCGSums *sums)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;
  CGScalars    s{};

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  s.stage = kCGStarting;
  PetscCall(Upload(w, s, CGTest{}, stream));
  EliminateRed<<<Blocks(w), kRRBTile, 0, stream>>>(w->v, r);
  FinePCCheckLaunch();
  PetscCall(LaunchPreconditioner(w, false, stream));
  PetscCall(Download(w, stream));
  PetscCall(Wait(w));
  const CGState &seen = *w->seen[0];
  *sums               = RRBCGSums{seen.dots[0], seen.dots[1] + seen.sums.rz, seen.dots[2], seen.sums.rz};
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGBegin_CUDA(RRBCGWork *work, PetscReal beta, const CGTest *test)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;
  CGScalars    s{};

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  s.stage = kCGRunning;
  s.beta  = beta;
  PetscCall(Upload(w, s, *test, stream));
  PetscCall(LaunchEarly(false, UpdateDirection, Blocks(w, kOnChip), kRRBTile, stream, w->v)); /* p = z */
  w->reported = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGAdvance_CUDA(RRBCGWork *work, PetscBool step, PetscInt *count, const CGRecord **records, CGStop *stop, PetscInt *its, PetscReal *value)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  while (w->launched - w->arrived < (step ? 1 : kInFlight)) {
    if (step) PetscCall(LaunchIteration(w, false, stream));
    else if (w->graph) PetscCallCUDA(cudaGraphLaunch(w->graph, stream));
    else PetscCall(LaunchIterations(w, w->F->early, stream));
    PetscCall(Download(w, stream));
  }
  if (!step && !w->graph) PetscCall(CaptureIterations(w)); /* while the device works */
  const int slot = (int)(w->arrived % kInFlight);
  PetscCallCUDA(cudaEventSynchronize(w->event[slot]));
  w->arrived++;
  const CGState &seen = *w->seen[slot];
  *count              = seen.s.iteration - w->reported;
  for (PetscInt k = 0; k < *count; k++) w->records[k] = seen.records[(w->reported + 1 + k) % kCGRecords];
  *records    = w->records;
  w->reported = seen.s.iteration;
  *stop       = seen.s.stop;
  *its        = seen.s.its;
  *value      = seen.s.value;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGSolution_CUDA(RRBCGWork *work, const PetscScalar *r, PetscBool add, PetscScalar *x)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  SolveRed<<<Blocks(w), kRRBTile, 0, stream>>>(w->v, r, (bool)add, x);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGResidual_CUDA(RRBCGWork *work, PetscScalar *r)
{
  Work        *w = static_cast<Work *>(work);
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  StoreResidual<<<Blocks(w), kRRBTile, 0, stream>>>(w->v, r);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode RRBCGPhase_CUDA(RRBCGWork *work, PetscInt phase, const char **what, PetscInt *grid, PetscLogDouble *bytes)
{
  Work        *w      = static_cast<Work *>(work);
  const int    middle = RRBMiddlePhases(w->F);
  const size_t cells = (size_t)w->v.g.cx * w->v.g.cy;
  RRBPhase     about{};
  cudaStream_t stream;

  PetscFunctionBegin;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  if (phase == 0) { /* values a cell: 10 of S_1, two of p and q each */
    about = RRBPhase{"S_1 p, p.q", 0, 14 * cells * sizeof(double)};
    PetscCall(LaunchEarly(w->F->early, MultiplySchur, Blocks(w, kMostOnChip), kRRBTile, stream, w->v));
  } else if (phase == 1) {
    about = RRBPhase{"r - a q, r.r", 0, 6 * cells * sizeof(double)};
    PetscCall(LaunchEarly(w->F->early, UpdateResidual, Blocks(w, kOnChip), kRRBTile, stream, w->v));
  } else if (phase == 2) {
    about = RRBPhase{"level 2 down", 0, 7 * cells * sizeof(double)};
    PetscCall(LaunchEarly(w->F->early, DownToNext, Blocks(w, kSkewOnChip), kRRBTile, stream, w->v));
  } else if (phase < 3 + middle) {
    PetscCall(RRBLaunchPhase(w->F, phase - 3, RRBGate{}, w->F->early, stream, &about));
  } else if (phase == 3 + middle) {
    about = RRBPhase{"level 2 up, r.z", 0, 9 * cells * sizeof(double)};
    PetscCall(LaunchEarly(w->F->early, UpFromNext, Blocks(w, kSkewOnChip), kRRBTile, stream, w->v));
  } else if (phase == 4 + middle) {
    about = RRBPhase{"x + a p, z + b p", 0, 10 * cells * sizeof(double)};
    PetscCall(LaunchEarly(w->F->early, UpdateDirection, Blocks(w, kOnChip), kRRBTile, stream, w->v));
  }
  *what  = about.what;
  *grid  = about.grid + 1;
  *bytes = (PetscLogDouble)about.bytes;
  PetscFunctionReturn(PETSC_SUCCESS);
}
