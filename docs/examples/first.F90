#include <petsc/finclude/petscksp.h>
program first
  use petscksp
  use iso_c_binding
  implicit none

  interface ! PetscErrorCode is int in C; an object of PETSc goes there as its address, the component v
    integer(c_int) function FinePCInitializePackage() bind(c, name='FinePCInitializePackage')
      import c_int
    end function
    integer(c_int) function PCAFSAISetMaxSteps(pc, max_steps) bind(c, name='PCAFSAISetMaxSteps')
      import c_int, c_intptr_t
      integer(c_intptr_t), value :: pc
      PetscInt, value            :: max_steps
    end function
    integer(c_int) function PCAFSAIGetMaxSteps(pc, max_steps) bind(c, name='PCAFSAIGetMaxSteps')
      import c_int, c_intptr_t
      integer(c_intptr_t), value :: pc
      PetscInt                   :: max_steps
    end function
  end interface

  KSP            :: ksp
  PC             :: pc
  Mat            :: A
  Vec            :: x, b
  PetscErrorCode :: ierr
  PetscInt       :: n = 1000, i, first_row, after, steps = 30, iterations
  PetscScalar    :: two = 2, minus = -1, one = 1

  PetscCallA(PetscInitialize(ierr))
  ierr = FinePCInitializePackage() ! registers all types
  CHKERRA(ierr)

  ! a Laplacian in one dimension
  PetscCallA(MatCreate(PETSC_COMM_WORLD, A, ierr))
  PetscCallA(MatSetSizes(A, PETSC_DECIDE, PETSC_DECIDE, n, n, ierr))
  PetscCallA(MatSetFromOptions(A, ierr))
  PetscCallA(MatSetUp(A, ierr))
  PetscCallA(MatGetOwnershipRange(A, first_row, after, ierr))
  do i = first_row, after - 1
    PetscCallA(MatSetValue(A, i, i, two, INSERT_VALUES, ierr))
    if (i > 0) then
      PetscCallA(MatSetValue(A, i, i - 1, minus, INSERT_VALUES, ierr))
    end if
    if (i < n - 1) then
      PetscCallA(MatSetValue(A, i, i + 1, minus, INSERT_VALUES, ierr))
    end if
  end do
  PetscCallA(MatAssemblyBegin(A, MAT_FINAL_ASSEMBLY, ierr))
  PetscCallA(MatAssemblyEnd(A, MAT_FINAL_ASSEMBLY, ierr))
  PetscCallA(MatCreateVecs(A, x, b, ierr))
  PetscCallA(VecSet(b, one, ierr))

  PetscCallA(KSPCreate(PETSC_COMM_WORLD, ksp, ierr))
  PetscCallA(KSPSetOperators(ksp, A, A, ierr))
  PetscCallA(KSPSetType(ksp, 'cgfused', ierr))
  PetscCallA(KSPGetPC(ksp, pc, ierr))
  PetscCallA(PCSetType(pc, 'afsai', ierr))
  ierr = PCAFSAISetMaxSteps(pc%v, steps)
  CHKERRA(ierr)
  PetscCallA(PetscOptionsSetValue(PETSC_NULL_OPTIONS, '-pc_afsai_step_size', '2', ierr))
  PetscCallA(KSPSetFromOptions(ksp, ierr)) ! options win over the calls above
  ierr = PCAFSAIGetMaxSteps(pc%v, steps)
  CHKERRA(ierr)
  PetscCallA(KSPSolve(ksp, b, x, ierr))
  PetscCallA(KSPGetIterationNumber(ksp, iterations, ierr))
  print *, 'at most', steps, 'steps,', iterations, 'iterations'

  PetscCallA(KSPDestroy(ksp, ierr))
  PetscCallA(VecDestroy(x, ierr))
  PetscCallA(VecDestroy(b, ierr))
  PetscCallA(MatDestroy(A, ierr))
  PetscCallA(PetscFinalize(ierr))
end program
