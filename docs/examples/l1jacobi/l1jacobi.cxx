/* The PETSc face of l1-Jacobi: options, set-up, view, life cycle. The method is in l1jacobi_host.cxx and its CUDA twin. */
#include <petsc/private/pcimpl.h>

#include "entry.h"
#include "l1jacobi.h"
#include "options.h"
#include "pc/local.h"
#include "pcl1jacobi.h"
#include "sparse/csr_mat.h"

namespace
{

struct PC_L1Jacobi : PC_Local {
  static const OptionTable<PC> options;

  L1JacobiParams params;
  PetscScalar   *d = nullptr; /* [rows] M^{-1}, where the block is */
};

const Option<PC> kOptions[] = {
  /* weight: 0 gives `PCJACOBI` */
  {"-pc_l1jacobi_weight", "the weight omega of the entries beside the diagonal", "PCL1JacobiSetWeight",
   Field<&PC_L1Jacobi::params, &L1JacobiParams::weight>(Between(0, 1)), Invalidates::VALUES},
};
const OptionTable<PC> PC_L1Jacobi::options{"l1-Jacobi options", kOptions};

} // namespace

/* Room for d: the old memory, if it fits. */
static PetscErrorCode Prepare_L1Jacobi(PC pc, const CSRView *A)
{
  PC_L1Jacobi *l1 = (PC_L1Jacobi *)pc->data;

  PetscFunctionBegin;
  if (l1->d && l1->where == A->where && l1->rows == A->n) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(ArrayDestroy(l1->where, (void **)&l1->d));
  PetscCall(PCLocalPlace(pc, A->where, A->n));
  PetscCall(ArrayCreate(A->n * sizeof(*l1->d), A->where, (void **)&l1->d));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PCSetUp_Local() calls it: the factor of the rank's block, or why there is none. */
static PetscErrorCode PCSetUp_L1Jacobi(PC pc, PCLocalOutcome *outcome)
{
  PC_L1Jacobi *l1 = (PC_L1Jacobi *)pc->data;
  CSRMat       mat;
  LocalInt     failure_row;
  char         block[64];

  PetscFunctionBegin;
  PetscCall(MatGetCSR(pc->pmat, &mat));
  PetscCall(Prepare_L1Jacobi(pc, &mat.A));
  PetscCall(PetscLogEventBegin(FinePC_L1JacobiFactor, pc, pc->pmat, 0, 0));
  const auto           compute = PetscMemTypeDevice(mat.A.where) ? L1JacobiComputeFactor_CUDA : L1JacobiComputeFactor_Host;
  const PetscErrorCode code    = CallGuarded(compute, &mat.A, &l1->params, l1->d, &failure_row);
  PetscCall(PetscLogEventEnd(FinePC_L1JacobiFactor, pc, pc->pmat, 0, 0));
  PetscCall(MatRestoreCSR(&mat));
  PetscCall(code);
  if (failure_row < 0) PetscFunctionReturn(PETSC_SUCCESS);
  outcome->reason = PC_FACTOR_NUMERIC_ZEROPIVOT;
  PetscCall(PCLocalNameBlock(pc, block, sizeof(block)));
  PetscCall(PetscSNPrintf(outcome->text, sizeof(outcome->text),
                          "Row %" LocalInt_FMT "%s has no positive, finite sum: PCL1JACOBI needs positive diagonal entries",
                          failure_row, block));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PCApply_Local() calls it. M is symmetric: the transpose is the same. */
static PetscErrorCode PCApply_L1Jacobi(PC pc, PetscBool, LocalInt, const PetscScalar *x, LocalInt, PetscScalar *y, LocalInt,
                                       PetscLogDouble *flops)
{
  const PC_L1Jacobi *l1    = (const PC_L1Jacobi *)pc->data;
  const auto         apply = PetscMemTypeDevice(l1->where) ? L1JacobiApply_CUDA : L1JacobiApply_Host;

  PetscFunctionBegin;
  PetscCall(apply(l1->rows, l1->d, x, y));
  *flops = l1->rows;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCView_L1Jacobi(PC pc, PetscViewer viewer)
{
  const PC_L1Jacobi *l1 = (const PC_L1Jacobi *)pc->data;
  PetscBool          is_ascii;

  PetscFunctionBegin;
  PetscCall(PCViewBegin_Local(pc, viewer, &is_ascii));
  if (!is_ascii) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscViewerASCIIPrintf(viewer, "weight of the entries beside the diagonal %g\n", (double)l1->params.weight));
  if (pc->setupcalled && pc->failedreason) PetscCall(PCViewFailure_Local(pc, viewer));
  else if (pc->setupcalled)
    PetscCall(PetscViewerASCIIPrintf(viewer, "backend %s, %g bytes per unknown\n", PetscMemTypeDevice(l1->where) ? "CUDA" : "host",
                                     (double)sizeof(*l1->d)));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* All that a set-up made; the options stay. PCReset_Local() forgets where the factor is, and so comes last. */
static PetscErrorCode PCReset_L1Jacobi(PC pc)
{
  PC_L1Jacobi *l1 = (PC_L1Jacobi *)pc->data;

  PetscFunctionBegin;
  PetscCall(ArrayDestroy(l1->where, (void **)&l1->d));
  PetscCall(PCReset_Local(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode PCDestroy_L1Jacobi(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCReset_L1Jacobi(pc));
  PetscCall(PC_L1Jacobi::options.Compose(pc, PETSC_FALSE));
  delete (PC_L1Jacobi *)pc->data;
  pc->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode Create_L1Jacobi(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCLocalSetOperations(pc, new PC_L1Jacobi(), PCSetUp_L1Jacobi, PCApply_L1Jacobi));
  pc->ops->setfromoptions = Entry<SetFromOptionTable<PC_L1Jacobi, PC>>;
  pc->ops->view           = Entry<PCView_L1Jacobi>;
  pc->ops->reset          = Entry<PCReset_L1Jacobi>;
  pc->ops->destroy        = Entry<PCDestroy_L1Jacobi>;
  PetscCall(PC_L1Jacobi::options.Compose(pc, PETSC_TRUE));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*MC
  PCL1JACOBI - "l1jacobi": Jacobi with the magnitudes of a row's other entries added to its diagonal entry

  Options Database Key:
. -pc_l1jacobi_weight <1> - the weight omega of the entries beside the diagonal; between 0 and 1; 0 gives `PCJACOBI`

  Level: intermediate

.seealso: `PCJACOBI`, `PCL1JacobiSetWeight()`
M*/

/*@C
  PCCreate_L1Jacobi - Makes a preconditioner a `PCL1JACOBI`, and before that registers finepc if nothing has; for `PCRegister()`

  Collective

  Input Parameter:
. pc - the preconditioner context

  Level: developer

.seealso: `PCL1JACOBI`, `PCRegister()`, `FinePCInitializePackage()`
@*/
PetscErrorCode PCCreate_L1Jacobi(PC pc)
{
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscCall(Entry<Create_L1Jacobi>(pc));
  PetscFunctionReturn(PETSC_SUCCESS);
}
