/*
   Matrices whose rows the host has and the GPU uses. All of finepc asks the matrix where its rows are used, so that a decision of
   a preconditioner or a solver, which is made in backend.cxx, stays with the matrix, and so do the copies of its rows on the GPU.
*/
#pragma once

#include <finepc.h>

#include "csr.h"

/*
   Decides for a preconditioner or a solver, which is about to use A, whether the rows of A are used on the GPU though the host has
   them: as PCFinePCSetBackend() or KSPFinePCSetBackend(), the options -pc_TYPE_backend or -ksp_TYPE_backend and -finepc_backend
   say. Matrices whose rows are on the GPU are left alone. Collective on A.
*/
PetscErrorCode MatChooseBackend(Mat A, PetscObject user);
/* The same for a preconditioner in a solver of finepc's, where ranks come together for that. */
PetscErrorCode MatChooseBackendInSolver(Mat A, PC);
/* The same for a preconditioner of which each rank has a factor: ranks that share a GPU come together if that is asked for alone.
 */
PetscErrorCode MatChooseBackendApart(Mat A, PC);
/*
   Part of Reset(): after MatChooseBackend() the user has used that matrix. Copies on the GPU of a matrix that nobody uses any more
   are freed.
*/
PetscErrorCode MatLeave(PetscObject user);
/* Part of SetFromOptions(): looks for the option of the type. */
PetscErrorCode BackendFromOptions(PetscObject, OptionItems);

/* What the last decision was. */
PetscErrorCode MatIsOffloaded(Mat, PetscBool *offloaded);
/* Decides for all who use A, a matrix of leaders. */
PetscErrorCode MatSetOffloaded(Mat A, PetscBool offloaded);
/* The group with which ranks have come together to use A (consolidated.h), or null. The matrix keeps it. */
struct MatGroup;
PetscErrorCode MatGetGroup(Mat A, MatGroup **);
/* Lines of a view: why no GPU can be used, or which one is; and beside that the bytes of the copies there. Collective on A. */
PetscErrorCode MatViewDevice(Mat A, PetscViewer, const char indent[]);
PetscErrorCode MatViewBackend(Mat A, PetscViewer);
/*
   Where `auto` has chosen the GPU for A, the host takes over if memory ends there. *may says whether it would. After an error that
   is one of all ranks, MatFallBack() decides for the host, with a warning, if memory was all that was missing; then *fell is true,
   and what was made for A is to be made anew. Both keep the copies of rows, which others may use. Collective.
*/
PetscErrorCode MatMayFallBack(Mat A, PetscBool *may);
PetscErrorCode MatFallBack(Mat A, PetscObject user, PetscErrorCode, PetscBool *fell);

/* While this is there and `hide` is true, nobody is shown that memory has ended; other errors are. */
class HiddenMemoryErrors {
public:
  explicit HiddenMemoryErrors(bool hide);
  ~HiddenMemoryErrors();
  HiddenMemoryErrors(const HiddenMemoryErrors &)            = delete;
  HiddenMemoryErrors &operator=(const HiddenMemoryErrors &) = delete;

private:
  static PetscErrorCode Handle(MPI_Comm, int, const char *, const char *, PetscErrorCode, PetscErrorType, const char *, void *);

  bool pushed_;
};

/*
   Calls what `user` does on the GPU with A: call(&on_all), which says whether its error is one of all ranks. Where the host takes
   over, that is no error, but *fell is true.
*/
template <typename Call>
PetscErrorCode MatTry(Mat A, PetscObject user, PetscBool *fell, Call call)
{
  PetscErrorCode code;
  PetscBool      may;
  bool           on_all = false;

  PetscFunctionBegin;
  *fell = PETSC_FALSE;
  PetscCall(MatMayFallBack(A, &may));
  {
    const HiddenMemoryErrors hidden(may);
    code = call(&on_all);
  }
  if (code && on_all && may) PetscCall(MatFallBack(A, user, code, fell));
  if (*fell) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCheck(code != PETSC_ERR_MEM || !may, PETSC_COMM_SELF, code, "There is not enough memory, here or on another rank");
  PetscCall(code);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* A takes the decision of another matrix, of which it is a copy. */
PetscErrorCode MatOffloadLike(Mat A, Mat other);

/*
   The rows of `local`, a sequential MATAIJ on the host that is A or a part of it, on the GPU, in memory that stays with `local`,
   and is freed with it or when nobody uses it any more. They are current if neither has changed, since a program that writes to
   arrays of its own may tell A alone; otherwise they are to be sent.
*/
PetscErrorCode MatGetSentRows(Mat A, Mat local, CSRView *rows, bool *current);
PetscErrorCode MatSendRows(Mat A, Mat local, const CSRView *host, CSRView *rows);
/*
   A has other values in the pattern that it had, which is not to be sent again. Who does not know says nothing: to look at a
   pattern on the host takes longer than to send it.
*/
PetscErrorCode MatSendValuesNext(Mat A);
/* Bytes of such copies, of the parts of a MATAIJ that this rank has, and those that have been sent since they were first made. */
PetscErrorCode MatGetSentBytes(Mat A, PetscLogDouble *bytes, PetscLogDouble *in_all);
