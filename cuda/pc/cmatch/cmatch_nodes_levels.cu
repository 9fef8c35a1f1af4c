/* The levels of a hierarchy of nodes on the GPU: their memory, and what completes their patterns. */
#include <cub/cub.cuh>

#include "cmatch_nodes.cuh"

PetscErrorCode CMATCHNodesCreateLevel(CMATCHNodesSetup *t, LocalInt n, LocalInt k, LocalInt blocks, LocalInt steps,
                                      const std::vector<GlobalInt> *ghost)
{
  CMATCHHierarchyCUDA *H     = t->s->H;
  const LocalInt       level = H->levels++, m = PetscMax(t->N->m, k); /* a level that is passed on has P = I */
  const size_t         value = FinePCPrecisionBytes(t->s->params->precision), unknowns = (size_t)n * k;
  CMATCHNodesLevel    &L  = t->N->level[level];
  CMATCHLevel         &R  = H->level[level];
  CMATCHLevelCUDA     &of = H->device[level];
  CMATCHVectors       &v  = of.vectors;
  CMATCHEnd            end;
  Layout               layout;

  PetscFunctionBegin;
  L        = CMATCHNodesLevel{};
  L.n      = n;
  L.k      = k;
  L.blocks = blocks;
  L.steps  = steps;
  if (ghost) {
    of.ghost = *ghost;
    R.ghosts = (LocalInt)ghost->size();
    R.ghost  = of.ghost.data();
    for (LocalInt **array : {&of.inner, &of.border}) layout.Place(array, CMATCHSliceCount(n));
  }
  const size_t with_ghosts = (size_t)n + R.ghosts, slots = with_ghosts * kCMATCHSlots;
  layout.Place(&L.A_i, (size_t)n + 1);
  layout.Place(&L.A_j, blocks);
  layout.Place(&L.slice, (size_t)CMATCHSliceCount(n) + 1);
  layout.Place(&L.slice_j, (size_t)steps * kCMATCHSlice);
  layout.Place(&L.A_a, (size_t)steps * kCMATCHSlice * k * k * value);
  layout.Place(&L.D, unknowns * k * value);
  if (ghost || !CMATCHNodesEnd(*t->s->params, level, n, k, &end)) {
    layout.Place(&L.aggregate, with_ghosts);
    layout.Place(&L.P_j, slots);
    layout.Place(&L.P_a, slots * k * (ghost ? m : t->N->m) * value);
    layout.Place(&L.R_i, with_ghosts + 1); /* a ghost brings one foreign aggregate at most */
    layout.Place(&L.R_j, (size_t)n * kCMATCHSlots);
  }
  for (void **vector : {&v.b, &v.r}) layout.Place(vector, unknowns * value);
  for (void **vector : {&v.x[0], &v.x[1], &v.z[0], &v.z[1]}) layout.Place(vector, with_ghosts * k * value);
  H->memory.emplace_back(&H->meter);
  PetscCall(layout.Allocate(&H->memory.back()));
  R.n = n * k;
  if (!ghost) R.all = R.n;
  R.aggregate = L.aggregate;
  R.P_j       = L.P_j;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesFinishPattern(CMATCHNodesSetup *t, const LocalInt *start, const LocalInt *width)
{
  CMATCHSetup            *s = t->s;
  const CMATCHNodesLevel &L = t->N->level[s->H->levels - 1];

  PetscFunctionBegin;
  PetscCallCUDA(cudaMemcpyAsync(L.A_i, start, ((size_t)L.n + 1) * sizeof(*start), cudaMemcpyDeviceToDevice, s->stream));
  PetscCall(s->cub.Run([&](void *memory, size_t &bytes) {
    return cub::DeviceScan::ExclusiveSum(memory, bytes, width, L.slice, CMATCHSliceCount(L.n) + 1, s->stream);
  }));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesFinishEmpty(CMATCHNodesSetup *t)
{
  const CMATCHNodesLevel &L = t->N->level[t->s->H->levels - 1];

  PetscFunctionBegin;
  for (LocalInt *start : {L.A_i, L.slice}) PetscCallCUDA(cudaMemsetAsync(start, 0, sizeof(*start), t->s->stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CMATCHNodesTakeOperator(CMATCHNodesSetup *t, LocalInt level, double **A, unsigned char **alone, double **B)
{
  const CMATCHNodesLevel &L    = t->N->level[level];
  Buffer<char>           &work = t->s->H->nodes_work[level % 2];
  Layout                  layout;

  PetscFunctionBegin;
  layout.Place(A, (size_t)L.blocks * L.k * L.k);
  layout.Place(alone, L.n);
  if (B) layout.Place(B, ((size_t)L.n + t->s->H->level[level].ghosts) * L.k * t->N->m);
  if (work.size() < layout.bytes()) PetscCall(work.Allocate(layout.bytes()));
  layout.Bind(work.data());
  PetscFunctionReturn(PETSC_SUCCESS);
}
