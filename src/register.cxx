/* The types and log events that finepc registers with PETSc, and the functions that a program or PETSc calls to have this done. */
#include <petsc/private/petscimpl.h>

#include <dlfcn.h>
#include <cstdio>

#include "finepcimpl.h"
#include "ranks/nccl.h"
#include "sparse/memory.h"

PetscLogEvent FinePC_AFSAIFactor, FinePC_SFSAIFactor, FinePC_SFSAIPattern, FinePC_SFSAIValues, FinePC_BISAIAnalyse,
  FinePC_BISAIFactor, FinePC_BISAIInvert, FinePC_BISAIConvert, FinePC_BISAICopy, FinePC_BISAIPattern, FinePC_BISAIValues,
  FinePC_RRBFactor, FinePC_CMATCHHierarchy, FinePC_Transpose, FinePC_HaloGather, FinePC_HaloConnect, FinePC_CGFusedCopy,
  FinePC_GMRESFusedCopy, FinePC_BAIJCUDACopy, FinePC_SendMat, FinePC_SendVec;

static PetscBool FinePCPackageInitialized = PETSC_FALSE;

static PetscErrorCode RegisterTypes()
{
  PetscFunctionBegin;
  PetscCall(PCRegister(PCAFSAI, PCCreate_AFSAI));
  PetscCall(PCRegister(PCSFSAI, PCCreate_SFSAI));
  PetscCall(PCRegister(PCBISAI, PCCreate_BISAI));
  PetscCall(PCRegister(PCRRB, PCCreate_RRB));
  PetscCall(PCRegister(PCCMATCH, PCCreate_CMATCH));
  PetscCall(PCRegister(PCAUTO, PCCreate_AUTO));
  PetscCall(KSPRegister(KSPCGFUSED, KSPCreate_CGFused));
  PetscCall(KSPRegister(KSPRRBCG, KSPCreate_RRBCG));
  PetscCall(KSPRegister(KSPGMRESFUSED, KSPCreate_GMRESFused));
  PetscCall(MatRegisterRootName(MATBAIJCUDA, MATSEQBAIJCUDA, MATMPIBAIJCUDA));
  PetscCall(MatRegister(MATSEQBAIJCUDA, MatCreate_SeqBAIJCUDA));
  PetscCall(MatRegister(MATMPIBAIJCUDA, MatCreate_MPIBAIJCUDA));
  PetscCall(MatSolverTypeRegister_CUDSS());
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode RegisterEvents()
{
  PetscFunctionBegin;
  PetscCall(PetscLogEventRegister("AFSAIFactor", PC_CLASSID, &FinePC_AFSAIFactor));
  PetscCall(PetscLogEventRegister("SFSAIFactor", PC_CLASSID, &FinePC_SFSAIFactor));
  PetscCall(PetscLogEventRegister("SFSAIPattern", PC_CLASSID, &FinePC_SFSAIPattern));
  PetscCall(PetscLogEventRegister("SFSAIValues", PC_CLASSID, &FinePC_SFSAIValues));
  PetscCall(PetscLogEventRegister("BISAIAnalyse", PC_CLASSID, &FinePC_BISAIAnalyse));
  PetscCall(PetscLogEventRegister("BISAIFactor", PC_CLASSID, &FinePC_BISAIFactor));
  PetscCall(PetscLogEventRegister("BISAIInvert", PC_CLASSID, &FinePC_BISAIInvert));
  PetscCall(PetscLogEventRegister("BISAIConvert", PC_CLASSID, &FinePC_BISAIConvert));
  PetscCall(PetscLogEventRegister("BISAICopy", PC_CLASSID, &FinePC_BISAICopy));
  PetscCall(PetscLogEventRegister("BISAIPattern", PC_CLASSID, &FinePC_BISAIPattern));
  PetscCall(PetscLogEventRegister("BISAIValues", PC_CLASSID, &FinePC_BISAIValues));
  PetscCall(PetscLogEventRegister("RRBFactor", PC_CLASSID, &FinePC_RRBFactor));
  PetscCall(PetscLogEventRegister("CMATCHHierarchy", PC_CLASSID, &FinePC_CMATCHHierarchy));
  PetscCall(PetscLogEventRegister("FinePCTranspose", PC_CLASSID, &FinePC_Transpose));
  PetscCall(PetscLogEventRegister("FinePCHaloGather", PC_CLASSID, &FinePC_HaloGather));
  PetscCall(PetscLogEventRegister("FinePCHaloConn", PC_CLASSID, &FinePC_HaloConnect));
  PetscCall(PetscLogEventRegister("CGFusedCopy", KSP_CLASSID, &FinePC_CGFusedCopy));
  PetscCall(PetscLogEventRegister("GMRESFusedCopy", KSP_CLASSID, &FinePC_GMRESFusedCopy));
  PetscCall(PetscLogEventRegister("BAIJCUDACopy", MAT_CLASSID, &FinePC_BAIJCUDACopy));
  PetscCall(PetscLogEventRegister("FinePCSendMat", MAT_CLASSID, &FinePC_SendMat));
  PetscCall(PetscLogEventRegister("FinePCSendVec", VEC_CLASSID, &FinePC_SendVec));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   finepc reads and writes PETSc's objects by the layout of the headers that it was compiled with. The PETSc that is running must
   therefore be of the same release, and have the same index and scalar types.
*/
static PetscErrorCode CheckPETSc()
{
  PetscInt      major, minor, subminor, release;
  PetscDataType scalar;
  PetscBool     found;
  size_t        index_bytes;

  PetscFunctionBegin;
  PetscCall(PetscDataTypeGetSize(PETSC_INT, &index_bytes));
  PetscCheck(index_bytes == sizeof(PetscInt), PETSC_COMM_SELF, PETSC_ERR_LIB,
             "This libfinepc was built with %zu-byte indices, but this PETSc has %zu-byte ones: build finepc again with this PETSc",
             sizeof(PetscInt), index_bytes);
  PetscCall(PetscGetVersionNumber(&major, &minor, &subminor, &release));
  PetscCheck(major == PETSC_VERSION_MAJOR && minor == PETSC_VERSION_MINOR, PETSC_COMM_SELF, PETSC_ERR_LIB,
             "This libfinepc was built with PETSc %d.%d, but PETSc %" PetscInt_FMT ".%" PetscInt_FMT
             " is running: build finepc again with this PETSc",
             PETSC_VERSION_MAJOR, PETSC_VERSION_MINOR, major, minor);
  PetscCall(PetscDataTypeFromString("scalar", &scalar, &found));
  PetscCheck(found && scalar == PETSC_DOUBLE, PETSC_COMM_SELF, PETSC_ERR_LIB,
             "finepc works with real double precision scalars, but this PETSc is configured with others (complex, single or "
             "quadruple precision)");
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The file that has this address in it, and the release of the PETSc there, as far as it can be asked. */
struct PETScFile {
  const char *path       = "";
  PetscInt64  version[4] = {}; /* major, minor, subminor, release; a PETSc whose indices have 32 bits leaves the upper halves 0 */

  explicit PETScFile(const void *address)
  {
    Dl_info place;

    if (!dladdr(address, &place) || !place.dli_fname) return;
    path               = place.dli_fname;
    void *const opened = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!opened) return;
    const auto get = (int (*)(PetscInt64 *, PetscInt64 *, PetscInt64 *, PetscInt64 *))dlsym(opened, "PetscGetVersionNumber");
    if (get && get(&version[0], &version[1], &version[2], &version[3])) version[0] = 0;
    dlclose(opened);
  }
};

/*
   Where the PETSc that opens libfinepc.so is not the release that this library is linked with, the loader may bring a second PETSc.
   Nobody initializes the second one, and its first call of MPI would end the program. A PETSc sets PETSC_COMM_WORLD before it opens
   libraries. Where it is not set, the functions of PETSc that finepc would call are those of the second one. None of the two can
   raise an error then: one is not initialized, and the functions of the other one are not at hand. The text goes to stderr, and the
   error code to the PETSc that called.
*/
static PetscErrorCode CheckCaller(const void *caller)
{
  if (PETSC_COMM_WORLD != MPI_COMM_NULL) return PETSC_SUCCESS;
  const PETScFile running(caller), own((const void *)PetscInitialize);
  char            release[64] = "another PETSc";

  if (running.version[0])
    std::snprintf(release, sizeof(release), "PETSc %d.%d.%d", (int)running.version[0], (int)running.version[1],
                  (int)running.version[2]);
  std::fprintf(stderr,
               "This libfinepc was built with PETSc %d.%d, and has brought it along (%s), but %s is running (%s): build finepc "
               "again with this PETSc\n",
               PETSC_VERSION_MAJOR, PETSC_VERSION_MINOR, own.path, release, running.path);
  return PETSC_ERR_LIB;
}

/*@C
  FinePCFinalizePackage - Forgets that the package was initialized; called by `PetscFinalize()`

  Level: developer

.seealso: `FinePCInitializePackage()`
@*/
PetscErrorCode FinePCFinalizePackage(void)
{
  PetscFunctionBegin;
  PetscCall(NCCLFinalize());
  if (kHasCUDA) {
    PetscCall(TransferFinalize_CUDA());
    PetscCall(DeviceSolverDestroy_CUDA());
    PetscCall(DevicePoolDestroy_CUDA());
    PetscCall(DeviceFinalize_CUDA());
  }
  FinePCPackageInitialized = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*@C
  FinePCInitializePackage - Registers everything in finepc with PETSc

  Collective on `PETSC_COMM_WORLD`

  Level: beginner

  Notes:
  Programs that link libfinepc call this function after each `PetscInitialize()`. Other programs need no call:
  `-dll_append /path/libfinepc.so`, on the command line or in PETSC_OPTIONS, does the same.

  It is an error if the running PETSc is not of the minor release with which finepc was built, or does not have the same index and
  scalar types.

.seealso: `PCAFSAI`, `PCSFSAI`, `PCBISAI`, `PCRRB`, `PCCMATCH`, `PCAUTO`, `KSPCGFUSED`, `KSPRRBCG`, `KSPGMRESFUSED`,
  `MATBAIJCUDA`, `MATSOLVERCUDSS`, `FinePCFinalizePackage()`
@*/
PetscErrorCode FinePCInitializePackage(void)
{
  PetscFunctionBegin;
  if (FinePCPackageInitialized) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(CheckPETSc());
  PetscCall(DeviceSetUp());
  FinePCPackageInitialized = PETSC_TRUE;
  PetscCall(KSPInitializePackage());
  PetscCall(RegisterTypes());
  PetscCall(RegisterEvents());
  PetscCall(PetscRegisterFinalize(FinePCFinalizePackage));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* PETSc calls this function when -dll_append opens libfinepc.so, and finds it by its name. */
PETSC_EXTERN PetscErrorCode PetscDLLibraryRegister_finepc(void)
{
  const PetscErrorCode code = CheckCaller(__builtin_return_address(0));

  if (code) return code;
  PetscFunctionBegin;
  PetscCall(FinePCInitializePackage());
  PetscFunctionReturn(PETSC_SUCCESS);
}
