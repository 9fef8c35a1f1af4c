/*
   What PCCMATCH does for nodes of different sizes, those of MatSetVariableBlockSizes(): the hierarchy is that of a matrix in which
   each node has as many rows as the largest one.
*/
#include <petsc/private/pcimpl.h>

#include <algorithm>

#include "cmatch_uneven.h"
#include "sparse/memory.h"

CMATCHUnevenNodes::~CMATCHUnevenNodes()
{
  PetscCallAbort(PETSC_COMM_SELF, ArrayDestroy(where, (void **)&map));
}

/* Whether modes can be taken of a null space */
static PetscErrorCode HasModes(MatNullSpace space, bool *has)
{
  PetscBool constants;
  PetscInt  count;

  PetscFunctionBegin;
  if (!space) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatNullSpaceGetVecs(space, &constants, &count, nullptr));
  *has = *has || count + (constants ? 1 : 0) >= 2;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHChooseSizes(PC pc, bool together, PetscInt *bs)
{
  PC_CMATCH      *cmatch = (PC_CMATCH *)pc->data;
  PetscInt        blocks = 0;
  const PetscInt *sizes  = nullptr;
  bool            modes  = false;

  PetscFunctionBegin;
  PetscCall(MatGetVariableBlockSizes(pc->pmat, &blocks, &sizes));
  if (!blocks) PetscFunctionReturn(PETSC_SUCCESS);
  const auto [least, most] = std::minmax_element(sizes, sizes + blocks);
  PetscCheck(*least >= 0, PETSC_COMM_SELF, PETSC_ERR_ARG_OUTOFRANGE,
             "MatSetVariableBlockSizes() was given a size of %" PetscInt_FMT, *least);
  if (*most <= 1) PetscFunctionReturn(PETSC_SUCCESS);
  if (together) cmatch->why_rows = kCMATCHUnevenRanks;
  else if (*least == *most) *bs = *most;
  else {
    for (Mat mat : {pc->pmat, pc->mat}) {
      MatNullSpace near_null_space, null_space;
      PetscCall(MatGetNearNullSpace(mat, &near_null_space));
      PetscCall(MatGetNullSpace(mat, &null_space));
      for (MatNullSpace space : {near_null_space, null_space}) PetscCall(HasModes(space, &modes));
    }
    if (!modes) cmatch->why_rows = "nodes of different sizes need modes, see MatSetNearNullSpace()";
    else {
      *bs = *most;
      cmatch->sizes.assign(sizes, sizes + blocks);
    }
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The rows of the padded matrix. A row that A lacks has the diagonal entry of the first row of its node, or of one beside it. */
static PetscErrorCode FindRows(LocalInt n, LocalInt k, CMATCHUnevenNodes *uneven)
{
  const PetscInt64      all = (PetscInt64)uneven->sizes.size() * k;
  std::vector<LocalInt> place;
  LocalInt              first = 0;

  PetscFunctionBegin;
  PetscCheck(all <= LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "Nodes of up to %" LocalInt_FMT " unknowns have more rows than 32 bits can count: use -pc_cmatch_block_size 1", k);
  uneven->rows = n;
  for (PetscInt size : uneven->sizes) {
    for (LocalInt r = 0; r < k; r++) {
      if (r < size) place.push_back((LocalInt)uneven->row.size());
      uneven->row.push_back(r < size ? first + r : ~PetscMin(first, n - 1));
    }
    first += (LocalInt)size;
  }
  PetscCheck(first == n, PETSC_COMM_SELF, PETSC_ERR_ARG_SIZ,
             "The sizes of MatSetVariableBlockSizes() add up to %" LocalInt_FMT " rows, but there are %" LocalInt_FMT, first, n);
  const size_t rows = uneven->row.size() * sizeof(LocalInt), places = place.size() * sizeof(LocalInt);
  PetscCall(ArrayCreate(rows + places, uneven->where, (void **)&uneven->map));
  PetscCall(ArrayCopy(uneven->map, uneven->row.data(), rows, uneven->where, PETSC_MEMTYPE_HOST));
  PetscCall(ArrayCopy(uneven->map + uneven->row.size(), place.data(), places, uneven->where, PETSC_MEMTYPE_HOST));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHFreeSizes(PC_CMATCH *cmatch)
{
  PetscFunctionBegin;
  if (!cmatch->uneven) PetscFunctionReturn(PETSC_SUCCESS);
  cmatch->complete = false; /* since the hierarchy has its rows */
  cmatch->kept_modes.reset();
  cmatch->uneven.reset();
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCCMATCHPad(PC_CMATCH *cmatch, const CSRView *A, LocalInt k, CSR *padded)
{
  PetscFunctionBegin;
  if (!cmatch->uneven || cmatch->uneven->sizes != cmatch->sizes || cmatch->uneven->where != A->where) {
    PetscCall(PCCMATCHFreeSizes(cmatch));
    auto uneven   = std::make_shared<CMATCHUnevenNodes>();
    uneven->sizes = cmatch->sizes;
    uneven->where = A->where;
    PetscCall(FindRows(A->n, k, uneven.get()));
    cmatch->uneven = uneven;
  }
  const std::vector<LocalInt> &row     = cmatch->uneven->row;
  const PetscInt64             entries = (PetscInt64)A->nnz + (PetscInt64)row.size() - A->n;
  PetscCheck(entries <= LOCAL_INT_MAX, PETSC_COMM_SELF, PETSC_ERR_SUP,
             "Nodes of up to %" LocalInt_FMT " unknowns have more entries than 32 bits can count: use -pc_cmatch_block_size 1", k);
  PetscCall(CSRCreate((LocalInt)row.size(), (LocalInt)row.size(), (LocalInt)entries, FINEPC_DOUBLE, A->where, padded));
  PetscCall((PetscMemTypeDevice(A->where) ? CMATCHPad_CUDA : CMATCHPad_Host)(A, cmatch->uneven->map,
                                                                             cmatch->uneven->map + row.size(), padded));
  PetscFunctionReturn(PETSC_SUCCESS);
}
