/*
   Vectors on the host and a factor on the device, which they reach by way of copies there. The factor is the identity, and its
   application needs all ranks.
*/
#include <petsc/private/pcimpl.h>

#include "entry.h"
#include "pc/local.h"
#include "spread.h"

namespace
{

PetscErrorCode Compute(PC pc, PCLocalOutcome *)
{
  PetscInt rows;

  PetscFunctionBegin;
  PetscCall(MatGetLocalSize(pc->pmat, &rows, nullptr));
  PetscCall(PCLocalPlace(pc, PETSC_MEMTYPE_CUDA, (LocalInt)rows));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Apply(PC pc, PetscBool, LocalInt columns, const PetscScalar *X, LocalInt ldx, PetscScalar *Y, LocalInt ldy,
                     PetscLogDouble *flops)
{
  const PC_Local *local = (const PC_Local *)pc->data;

  PetscFunctionBegin;
  *flops = 0;
  PetscCallMPI(MPI_Barrier(PetscObjectComm((PetscObject)pc)));
  for (LocalInt c = 0; c < columns; c++)
    PetscCall(ArrayCopy(Y + (size_t)c * ldy, X + (size_t)c * ldx, local->rows * sizeof(*X), local->where, local->where));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Destroy(PC pc)
{
  PetscFunctionBegin;
  PetscCall(PCReset_Local(pc));
  delete (PC_Local *)pc->data;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Create(PC pc)
{
  PC_Local *const local = new PC_Local();

  PetscFunctionBegin;
  local->columns_at_once = 3;
  PetscCall(PCLocalSetOperations(pc, local, Compute, Apply));
  pc->ops->reset   = PCReset_Local;
  pc->ops->destroy = Destroy;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A vector, or several at once, and what becomes of them. */
struct Application {
  MatObject X, Y;
  VecObject x, y;

  Application(Mat A, PetscInt columns)
  {
    PetscInt rows;
    MUST(MatGetLocalSize(A, &rows, nullptr));
    MUST(MatCreateDense(PETSC_COMM_WORLD, rows, PETSC_DECIDE, PETSC_DETERMINE, columns, nullptr, X.put()));
    MUST(MatSetRandom(X, nullptr));
    MUST(MatDuplicate(X, MAT_DO_NOT_COPY_VALUES, Y.put()));
    if (columns > 1) return;
    MUST(MatCreateVecs(A, x.put(), y.put()));
    MUST(VecSetRandom(x, nullptr));
  }

  PetscErrorCode By(PC pc) { return x ? PCApply(pc, x, y) : PCMatApply(pc, X, Y); }

  void Check()
  {
    PetscBool equal;
    if (x) MUST(VecEqual(x, y, &equal));
    else MUST(MatEqual(X, Y, &equal));
    CHECK(equal);
  }
};

void CheckApplication(PC pc, Mat A, PetscInt columns)
{
  CAPTURE(columns);
  Application application(A, columns);
  MUST(application.By(pc));
  application.Check();
}

/* One row that the first rank has in the even layout is the second one's; all others have the rows that they have there. */
LocalInt AlmostEven(LocalInt n, int rank, int size)
{
  return Even(n, rank, size) - (size > 1 && rank == 0) + (rank == 1);
}

} // namespace

TEST_CASE("the memory of one rank's device ends where vectors on the host meet a factor there", "[pc][memory][mpi][emulated]")
{
  MUST(PCRegister("staged", Create));
  for (const int rank : {0, Ranks() - 1})
    for (const PetscInt columns : {1, 2, 7}) {
      CAPTURE(rank, columns);
      const MatObject A = Spread(Poisson(6, 5), MATAIJ, Even), B = Spread(Poisson(6, 5), MATAIJ, AlmostEven);
      PCObject        pc;
      MUST(PCCreate(PETSC_COMM_WORLD, pc.put()));
      MUST(PCSetType(pc, "staged"));
      MUST(PCSetOperators(pc, A, A));
      MUST(PCSetUp(pc));
      int failed = 1;
      for (long n = 1; failed; n++) {
        CAPTURE(n);
        Application    application(A, columns);
        PetscErrorCode code;
        {
          const Errors        errors;
          const FailingMemory failing(FailingMemory::Through::New, rank == Rank() ? n : 0);
          code   = application.By(pc);
          failed = rank == Rank() && failing.Failed();
        }
        MPI_Bcast(&failed, 1, MPI_INT, rank, PETSC_COMM_WORLD);
        CHECK((int)code == (int)(failed ? PETSC_ERR_MEM : PETSC_SUCCESS));
        if (failed) continue;
        CHECK(n > 1);
        application.Check();
      }
      for (const PetscInt others : {5, 1}) CheckApplication(pc, A, others);
      ((PC)pc)->setupcalled = PETSC_FALSE; /* as where an option has changed: another layout is no error then */
      MUST(PCSetOperators(pc, B, B));
      MUST(PCSetUp(pc));
      CheckApplication(pc, B, columns);
    }
}
