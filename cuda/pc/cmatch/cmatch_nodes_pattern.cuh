/*
   Patterns of rows of blocks: the columns that a row meets, ascending, each once. A Source has

     ForColumns(i, f)  calls f(column) for all columns of row i, which the lanes of a warp share; some may come several times

   A warp collects the columns of a row in a table in shared memory, of which small ones come first. Rows that do not fit take
   tables in global memory, which have room for all columns. What it finds is kept until all rows are counted, unless the row is
   much longer than others: then it is found twice.
*/
#pragma once

#include <cub/cub.cuh>

#include "cmatch_nodes.cuh"

namespace
{

constexpr int    kPatternBits  = 9;                /* the logarithm of the largest table in shared memory */
constexpr size_t kPatternBytes = (size_t)64 << 20; /* of the tables in global memory */
constexpr int    kKeepGroup    = 8;                /* lanes that copy a row that is kept */

/* Some rows, or with a list those in it, and the tables of their warps, in shared memory if `tables` is null */
struct PatternRows {
  LocalInt        count;
  const LocalInt *list;
  LocalInt       *tables;
  int             bits; /* the logarithm of the size of a table */
};

struct Pattern {
  LocalInt *start, *length; /* [rows + 1] */
  LocalInt *width;          /* [slices + 1] steps of slices of these rows, or null */
  LocalInt *wide;           /* [rows] the rows that did not fit, report->wide of them */
  LocalInt *j;

  LocalInt  most   = 0;       /* columns of a row that is kept */
  LocalInt *kept   = nullptr; /* [rows][most] */
  LocalInt *unkept = nullptr; /* [rows] rows that were longer, report->unkept of them */
};

/* Writes the columns of a compact table in their order. */
__device__ __forceinline__ void WriteSorted(const LocalInt *table, int count, LocalInt *to)
{
  for (int t = threadIdx.x % kWarpSize; t < count; t += kWarpSize) {
    const LocalInt column = table[t];
    int            place  = 0;
    for (int other = 0; other < count; other++) place += table[other] < column;
    to[place] = column;
  }
}

/* Counts the columns of rows, or with Fill writes them. Warps take rows in turns. */
template <bool Fill, typename Source>
__global__ void __launch_bounds__(kBlockSize) FindColumns(Source source, PatternRows rows, Pattern out, CMATCHReport *report)
{
  extern __shared__ LocalInt of_block[];
  __shared__ unsigned        found, longest;
  const int                  lane = threadIdx.x % kWarpSize, size = 1 << rows.bits;
  const LocalInt             warp = (LocalInt)(GridThread() / kWarpSize), warps = (LocalInt)(gridDim.x * (kBlockSize / kWarpSize));
  LocalInt *const            table = rows.tables ? rows.tables + (size_t)warp * size : of_block + threadIdx.x / kWarpSize * size;
  if (threadIdx.x == 0) found = longest = 0;
  __syncthreads();
  for (LocalInt at = warp; at < rows.count; at += warps) {
    const LocalInt i    = rows.list ? rows.list[at] : at;
    bool           fits = true;
    for (int place = lane; place < size; place += kWarpSize) table[place] = -1;
    __syncwarp();
    source.ForColumns(i, [&](LocalInt column) { fits = fits && CMATCHTakePlace(table, rows.bits, column) >= 0; });
    __syncwarp();
    fits            = !__any_sync(kFullWarp, !fits);
    const int count = fits ? CMATCHCompact(table, size) : 0;
    if (Fill) WriteSorted(table, count, out.j + out.start[i]);
    else if (count <= out.most) WriteSorted(table, count, out.kept + (size_t)i * out.most);
    if (!Fill && lane == 0) {
      out.length[i] = count;
      if (!fits) out.wide[atomicAdd(&report->wide, 1)] = i;
      else if (out.most && count > out.most) out.unkept[atomicAdd(&report->unkept, 1)] = i;
      atomicAdd(&found, (unsigned)count);
      atomicMax(&longest, (unsigned)count);
    }
    __syncwarp();
  }
  if (Fill) return;
  __syncthreads();
  if (threadIdx.x == 0 && found) {
    atomicAdd(&report->entries, (unsigned long long)found);
    atomicMax(&report->longest, (LocalInt)longest);
  }
}

/* The rows that were kept. A group takes a row. */
__global__ void __launch_bounds__(kBlockSize) CopyKept(LocalInt rows, Pattern out)
{
  const LocalInt i = (LocalInt)(GridThread() / kKeepGroup);
  if (i >= rows || out.length[i] > out.most) return;
  const LocalInt *const from = out.kept + (size_t)i * out.most;
  LocalInt *const       to   = out.j + out.start[i];
  for (LocalInt t = threadIdx.x % kKeepGroup; t < out.length[i]; t += kKeepGroup) to[t] = from[t];
}

/* The steps of slices of rows. A thread takes a slice. */
__global__ void __launch_bounds__(kBlockSize)
  MeasureSlices(LocalInt rows, const LocalInt *length, LocalInt *width, CMATCHReport *report)
{
  const long long slice = GridThread(), first = slice * kCMATCHSlice;
  LocalInt        longest = 0;
  for (long long i = first; i < min(first + kCMATCHSlice, (long long)rows); i++) longest = max(longest, length[i]);
  if (first < rows + kCMATCHSlice) width[slice] = longest; /* and 0 behind the last one */
  const unsigned long long steps = GroupSum<kWarpSize>((unsigned long long)longest);
  if (threadIdx.x % kWarpSize == 0 && steps) atomicAdd(&report->steps, steps);
}

template <bool Fill, typename Source>
PetscErrorCode LaunchFindColumns(CMATCHSetup *s, const Source &source, const PatternRows &rows, const Pattern &out)
{
  const size_t table  = (kBlockSize / kWarpSize * sizeof(LocalInt)) << rows.bits; /* of a block */
  const size_t blocks = (size_t)BlocksFor((long long)rows.count * kWarpSize);

  PetscFunctionBegin;
  FindColumns<Fill><<<(int)(rows.tables ? PetscMin(blocks, PetscMax(kPatternBytes / table, 1)) : blocks), kBlockSize,
                      rows.tables ? 0 : table, s->stream>>>(source, rows, out, s->report);
  FinePCCheckLaunch();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   Finds the pattern of some rows with about so many columns each, of `columns` in all. start [rows + 1] is there; make(entries, &j)
   makes room as soon as the number of entries is known. Then s->seen has the entries, the longest row, the rows that needed tables
   in global memory, and with `width` the steps of slices, which `width` [slices + 1] has then. The caller releases what the arena
   gives out.
*/
template <typename Source, typename Make>
PetscErrorCode FindPattern(CMATCHSetup *s, const Source &source, LocalInt rows, LocalInt columns, double mean, LocalInt *start,
                           LocalInt *width, Make make)
{
  PatternRows tier[3]; /* small tables, large ones, and those in global memory */
  int         tiers = 0, bits = 5;
  Pattern     out{start, nullptr, width, nullptr, nullptr};

  PetscFunctionBegin;
  while (bits < kPatternBits && (1 << bits) < 4 * mean) bits++;
  PetscCall(s->arena.Take((size_t)rows + 1, &out.length));
  PetscCallCUDA(cudaMemsetAsync(&s->report->entries, 0, sizeof(s->report->entries), s->stream));
  PetscCallCUDA(cudaMemsetAsync(&s->report->longest, 0, sizeof(s->report->longest), s->stream));
  PetscCallCUDA(cudaMemsetAsync(out.length + rows, 0, sizeof(LocalInt), s->stream));
  PetscCallCUDA(cudaMemsetAsync(&s->report->unkept, 0, sizeof(s->report->unkept), s->stream));
  tier[0]  = PatternRows{rows, nullptr, nullptr, bits};
  out.most = 1 << (bits - 1);
  PetscCall(s->arena.Take((size_t)rows * out.most, &out.kept));
  PetscCall(s->arena.Take(rows, &out.unkept));
  while (true) {
    PetscCall(s->arena.Take(tier[tiers].count, &out.wide));
    PetscCallCUDA(cudaMemsetAsync(&s->report->wide, 0, sizeof(s->report->wide), s->stream));
    PetscCall(LaunchFindColumns<false>(s, source, tier[tiers], out));
    tiers++;
    out.most = 0; /* of the rows that did not fit, nothing is kept */
    PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
      return cub::DeviceScan::ExclusiveSum(memory, bytes, out.length, start, rows + 1, s->stream);
    }));
    if (width) {
      PetscCallCUDA(cudaMemsetAsync(&s->report->steps, 0, sizeof(s->report->steps), s->stream));
      MeasureSlices<<<BlocksFor(CMATCHSliceCount(rows) + 1), kBlockSize, 0, s->stream>>>(rows, out.length, width, s->report);
      FinePCCheckLaunch();
    }
    PetscCall(CMATCHReadReport(s));
    if (!s->seen.wide) break;
    PatternRows &next = tier[tiers];
    next              = PatternRows{s->seen.wide, out.wide, nullptr, kPatternBits};
    if (tiers == 1 && bits < kPatternBits) continue;
    while ((1ll << next.bits) < 2 * (long long)columns) next.bits++;
    const size_t table = (kBlockSize / kWarpSize * sizeof(LocalInt)) << next.bits;
    PetscCall(s->arena.Take(PetscMax(kPatternBytes, table) / sizeof(LocalInt), &next.tables));
  }
  PetscCheck(s->seen.entries <= (unsigned long long)LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "A product of the Galerkin operator has %llu blocks, more than 32 bits can count", s->seen.entries);
  PetscCheck(!width || s->seen.steps <= (unsigned long long)LOCAL_INT_MAX / kCMATCHSlice, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "Rows of such different lengths need more memory than 32 bits can count");
  PetscCall(make((LocalInt)s->seen.entries, &out.j));
  out.most = 1 << (bits - 1);
  CopyKept<<<BlocksFor((long long)rows * kKeepGroup), kBlockSize, 0, s->stream>>>(rows, out);
  FinePCCheckLaunch();
  tier[0] = PatternRows{s->seen.unkept, out.unkept, nullptr, bits};
  for (int t = 0; t < tiers; t++)
    if (tier[t].count) PetscCall(LaunchFindColumns<true>(s, source, tier[t], out));
  s->seen.wide = tier[tiers - 1].tables ? tier[tiers - 1].count : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

} // namespace
