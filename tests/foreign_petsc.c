/*
   A libpetsc that libfinepc.so was not built with, as a package for Python has one beside the program: it opens libfinepc.so as
   PETSc does for -dll_append, and the loader brings the other PETSc. This one has answers for the calls that finepc makes of it
   alone.
*/
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* With integers of 32 bits, whatever PETSc has that libfinepc.so was built with. */
int PetscGetVersionNumber(int *major, int *minor, int *subminor, int *release)
{
  *major    = 3;
  *minor    = 99;
  *subminor = 7;
  *release  = 1;
  return 0;
}

/* What PetscInitialize() makes of -dll_append: the error code of libfinepc.so. */
int AppendLibrary(const char path[])
{
  void *const library = dlopen(path, RTLD_LAZY | RTLD_GLOBAL);
  int (*call)(void)   = library ? (int (*)(void))dlsym(library, "PetscDLLibraryRegister_finepc") : NULL;
  int code;

  if (!call) {
    printf("%s\n", dlerror());
    return -1;
  }
  code = call();
  printf("error %d\n", code);
  return code;
}
