/*
   Loaded before libpetsc (LD_PRELOAD), this lies about it: FAKE_PETSC=minor is another minor release, FAKE_PETSC=complex has
   complex scalars. Without FAKE_PETSC, or with another word, PETSc answers.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <petscsys.h>
#include <stdlib.h>
#include <string.h>

static int Fakes(const char name[])
{
  const char *fake = getenv("FAKE_PETSC");

  return fake && !strcmp(fake, name);
}

PetscErrorCode PetscGetVersionNumber(PetscInt *major, PetscInt *minor, PetscInt *subminor, PetscInt *release)
{
  PetscErrorCode (*real)(PetscInt *, PetscInt *, PetscInt *, PetscInt *) =
    (PetscErrorCode(*)(PetscInt *, PetscInt *, PetscInt *, PetscInt *))dlsym(RTLD_NEXT, "PetscGetVersionNumber");
  PetscErrorCode ierr = real(major, minor, subminor, release);

  if (Fakes("minor") && minor) (*minor)++;
  return ierr;
}

PetscErrorCode PetscDataTypeFromString(const char *name, PetscDataType *type, PetscBool *found)
{
  PetscErrorCode (*real)(const char *, PetscDataType *, PetscBool *) =
    (PetscErrorCode(*)(const char *, PetscDataType *, PetscBool *))dlsym(RTLD_NEXT, "PetscDataTypeFromString");
  PetscErrorCode ierr = real(name, type, found);

  if (Fakes("complex") && !strcmp(name, "scalar")) *type = PETSC_COMPLEX;
  return ierr;
}
