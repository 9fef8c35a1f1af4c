/*
   The PETSc face of CMATCH: application and life cycle. The options are in cmatch_options.cxx, the set-up in cmatch_setup.cxx, and
   the view in cmatch_view.cxx; the method itself is in cmatch_host.cxx and in cuda/pc/cmatch.
*/
#include <petsc/private/pcimpl.h>

#include <cmath>

#include "cmatch_uneven.h"
#include "finepcimpl.h"
#include "options.h"
#include "pc/pcinverse.h"
#include "sparse/csr_mat.h"

/* ----------------------------------------- application ---------------------------------------- */

/* `transpose` does not matter: M is symmetric to rounding, or with PCG on the coarsest level no matrix. */
static PetscErrorCode ApplyFactor_CMATCH(PC pc, PetscBool, LocalInt, const PetscScalar *x, LocalInt, PetscScalar *y, LocalInt,
                                         PetscLogDouble *flops)
{
  const PC_CMATCH *cmatch = (const PC_CMATCH *)pc->data;
  const auto       apply  = PetscMemTypeDevice(cmatch->where) ? CMATCHApply_CUDA : CMATCHApply_Host;

  PetscFunctionBegin;
  PetscCall(apply(cmatch->hierarchy, x, y));
  *flops = cmatch->hierarchy->flops;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   The CUDA graph of an application. It is made in the first one and not in the set-up, since cgfused needs none; the ranks of a
   hierarchy agree on it, because the others would wait for the values of one that has no memory for it.
*/
static PetscErrorCode Reserve_CMATCH(PC pc, PetscBool, LocalInt)
{
  const PC_CMATCH *cmatch = (const PC_CMATCH *)pc->data;

  PetscFunctionBegin;
  if (PetscMemTypeDevice(cmatch->where)) PetscCall(CMATCHMakeGraph_CUDA(cmatch->hierarchy));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   On several ranks a cycle needs to know how large x is on all of them. A solver that has tested the norm of its residual before
   has left it with the vector, on all ranks alike, and cgfused passes how large the residual before was. Then an application needs
   neither its only reduction nor its only copy to the host.
*/
static PetscErrorCode PCApply_CMATCH(PC pc, Vec x, Vec y)
{
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;
  PetscBool  is_known;
  PetscReal  norm;

  PetscFunctionBegin;
  if (!cmatch->ranks || !cmatch->complete) {
    PetscCall(PCApply_Local(pc, x, y));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscCall(VecNormAvailable(x, NORM_2, &is_known, &norm));
  cmatch->hierarchy->size   = is_known ? norm : cmatch->size;
  const PetscErrorCode code = PCApply_Local(pc, x, y);
  cmatch->hierarchy->size = cmatch->size = -1;
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCFinePCSetSize_CMATCH(PC pc, PetscReal size)
{
  PetscFunctionBegin;
  ((PC_CMATCH *)pc->data)->size = size > 0 && std::isfinite(size) ? size : -1;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCFinePCGetApplyBytes_CMATCH(PC pc, PetscLogDouble *bytes)
{
  const PC_CMATCH *cmatch = (const PC_CMATCH *)pc->data;

  PetscFunctionBegin;
  *bytes = cmatch->complete && pc->setupcalled && !pc->failedreason ? (PetscLogDouble)cmatch->hierarchy->apply_bytes : 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCFinePCGetCycle_CMATCH(PC pc, CMATCHHierarchy **hierarchy)
{
  const PC_CMATCH *cmatch = (const PC_CMATCH *)pc->data;

  PetscFunctionBegin;
  *hierarchy = nullptr;
  if (!cmatch->complete || !pc->setupcalled || pc->failedreason) PetscFunctionReturn(PETSC_SUCCESS);
  if (cmatch->diagonal.all_zero_rows) PetscFunctionReturn(PETSC_SUCCESS);
  if (!cmatch->ranks || cmatch->ranks->nccl) *hierarchy = cmatch->hierarchy;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------------------- life cycle ----------------------------------------- */

/* Frees all that a set-up has made, and forgets the coordinates. The options stay. */
static PetscErrorCode PCReset_CMATCH(PC pc)
{
  PC_CMATCH *cmatch = (PC_CMATCH *)pc->data;

  PetscFunctionBegin;
  PetscCall(PCCMATCHFreeHierarchy(cmatch));
  PetscCall(PCCMATCHFreeRanks(cmatch));
  PetscCall(MatDestroy(&cmatch->entries));
  PetscCall(ArrayDestroy(cmatch->where, (void **)&cmatch->w));
  PetscCall(PCReset_Local(pc));
  cmatch->stats     = CMATCHStats{};
  cmatch->near_null = NearNull::CONSTANTS;
  cmatch->reused    = false;
  cmatch->anew      = false;
  cmatch->misfit    = CMATCHMisfit{};
  cmatch->has_work  = false;
  cmatch->size      = -1;
  cmatch->why_rows  = nullptr;
  if (!cmatch->again) {
    cmatch->coordinates.clear();
    cmatch->dimension = 0;
  }
  PetscCall(PCCMATCHFreeSizes(cmatch));
  cmatch->kept_modes.reset();
  cmatch->modes_bytes = 0;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Composes the methods of the type, or takes them away if `compose` is false. */
static PetscErrorCode Compose_CMATCH(PC pc, PetscBool compose)
{
  PetscObject object = (PetscObject)pc;

  PetscFunctionBegin;
  PetscCall(PC_CMATCH::options.Compose(pc, compose));
  PetscCall(PetscObjectComposeFunction(object, "PCCMATCHGetHierarchy_C", compose ? Entry<PCCMATCHGetHierarchy_CMATCH> : nullptr));
  PetscCall(PetscObjectComposeFunction(object, "PCSetCoordinates_C", compose ? Entry<PCSetCoordinates_CMATCH> : nullptr));
  PetscCall(PetscObjectComposeFunction(object, kApplyBytesQuery, compose ? Entry<PCFinePCGetApplyBytes_CMATCH> : nullptr));
  PetscCall(PetscObjectComposeFunction(object, kCycleQuery, compose ? Entry<PCFinePCGetCycle_CMATCH> : nullptr));
  PetscCall(PetscObjectComposeFunction(object, kSizeQuery, compose ? Entry<PCFinePCSetSize_CMATCH> : nullptr));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCDestroy_CMATCH(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCReset_CMATCH(pc));
  PetscCall(Compose_CMATCH(pc, PETSC_FALSE));
  delete (PC_CMATCH *)pc->data;
  pc->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_CMATCH(PC pc)
{
  PC_CMATCH *const cmatch = new PC_CMATCH();

  PetscFunctionBegin;
  cmatch->gather = PCGather_CMATCH;
  PetscCall(PCLocalSetOperations(pc, cmatch, PCSetUp_CMATCH, ApplyFactor_CMATCH));
  cmatch->reserve                      = Reserve_CMATCH;
  pc->ops->apply                       = Entry<PCApply_CMATCH>;
  ((PC_Local *)pc->data)->copy_options = CopyOptionTable<PC_CMATCH, PC>;
  ((PC_Local *)pc->data)->share        = PCCMATCHShareCoordinates;
  pc->ops->setfromoptions              = Entry<SetFromOptionTable<PC_CMATCH, PC>>;
  pc->ops->view                        = Entry<PCView_CMATCH>;
  pc->ops->reset                       = Entry<PCReset_CMATCH>;
  pc->ops->destroy                     = Entry<PCDestroy_CMATCH>;
  PetscCall(Compose_CMATCH(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@C
  PCCreate_CMATCH - Makes a preconditioner a `PCCMATCH`, after registering finepc if nothing has done so; for `PCRegister()`

  Collective

  Input Parameter:
. pc - the preconditioner context

  Level: developer

.seealso: `PCCMATCH`, `PCRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode PCCreate_CMATCH(PC pc)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_CMATCH>(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
