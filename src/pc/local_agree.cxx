/* How the ranks of a PC_Local agree in a set-up. */
#include <petsc/private/pcimpl.h>

#include "entry.h"
#include "localimpl.h"

PetscErrorCode PCLocalPhaseStep(PCLocalPhase *phase, PetscErrorCode code, bool *more)
{
  PetscFunctionBegin;
  if (code) {
    phase->outcome->code    = code;
    phase->outcome->text[0] = 0; /* it has been reported */
  }
  int any[2]                 = {phase->outcome->code != PETSC_SUCCESS, more && *more};
  phase->outcome->exchanging = true;
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, any, 2, MPI_INT, MPI_LOR, phase->comm));
  phase->outcome->exchanging = false;
  phase->stopped             = any[0];
  if (more) *more = any[1];
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   All ranks end a set-up alike: an error on one rank is an error on all ranks, and a block that cannot be preconditioned is a
   failure on all ranks, with the text of the first rank that has one. Otherwise the other ranks would wait in PCSetUp() or in
   KSPSolve() for ever.
*/
static PetscErrorCode Agree_Local(PC pc, const PCLocalOutcome *mine, PCLocalOutcome *outcome)
{
  const MPI_Comm comm = PetscObjectComm((PetscObject)pc);
  PetscMPIInt    rank, size;

  PetscFunctionBegin;
  *outcome = *mine;
  PetscCallMPI(MPI_Comm_rank(comm, &rank));
  PetscCallMPI(MPI_Comm_size(comm, &size));
  /*
     size - rank is largest on the first rank, so that the maxima name the first rank with an error and the first rank with a
     failure. Reason and text are those of that rank, so that they belong to each other.
  */
  PetscMPIInt most[2] = {mine->code ? size - rank : 0, mine->reason ? size - rank : 0};
  PetscCallMPI(MPIU_Allreduce(MPI_IN_PLACE, most, 2, MPI_INT, MPI_MAX, comm));
  if (!most[0] && !most[1]) PetscFunctionReturn(PETSC_SUCCESS);
  const PetscMPIInt first = size - (most[0] ? most[0] : most[1]);
  PetscCallMPI(MPI_Bcast(outcome, sizeof(*outcome), MPI_BYTE, first, comm));
  if (most[0]) {
    if (!mine->text[0]) PetscCall(mine->code);
    PetscCheck(!outcome->text[0], comm, outcome->code, "%s", outcome->text);
    SETERRQ(comm, outcome->code, "The block of rank %d could not be factored: see its own message", first);
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode PCLocalRun(PC pc, PetscErrorCode (*part)(PC, PCLocalOutcome *), PCLocalOutcome *agreed)
{
  PCLocalOutcome outcome;

  PetscFunctionBegin;
  const PetscErrorCode code = CallGuarded(part, pc, &outcome);
  PetscCheck(!code || !outcome.exchanging, PETSC_COMM_SELF, code,
             "An exchange with other ranks failed in the set-up, and they may wait for this rank: the program has to end");
  if (code) {
    outcome.code    = code;
    outcome.text[0] = 0;
  }
  PetscCall(Agree_Local(pc, &outcome, agreed));
  PetscFunctionReturn(PETSC_SUCCESS);
}
