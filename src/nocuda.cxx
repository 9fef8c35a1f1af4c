/*
   The CUDA twins of a build without CUDA. DeviceFound_CUDA() finds no device. No memory is device memory in such a build, so that
   only a mistake in finepc can call one of the others for work, which is an error. tests/docs_test.py checks that every CUDA twin
   that a header declares is defined here.
*/
#include "sparse/bsr_csr.h"
#include "ksp/cgcolumns.h"
#include "ksp/gmresfused.h"
#include "ksp/rrbcg.h"
#include "mat/cudss.h"
#include "pc/afsai/afsai.h"
#include "pc/halo.h"
#include "pc/bisai/bisai.h"
#include "pc/cmatch/cmatch_ranks.h"
#include "pc/rrb/rrb.h"
#include "pc/sfsai/sfsai.h"
#include "sparse/symmetry.h"

static PetscErrorCode NoCUDA()
{
  SETERRQ(PETSC_COMM_SELF, PETSC_ERR_SUP, "This finepc was built without CUDA");
}

PetscErrorCode DeviceFound_CUDA(PetscBool *found)
{
  PetscFunctionBegin;
  *found = PETSC_FALSE;
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode ArrayCreate_CUDA(size_t, void **)
{
  return NoCUDA();
}

PetscErrorCode ArrayDestroy_CUDA(void **)
{
  return NoCUDA();
}

PetscErrorCode ArrayCopy_CUDA(void *, const void *, size_t, PetscMemType, PetscMemType)
{
  return NoCUDA();
}

PetscErrorCode LocalIntCopy_CUDA(size_t, const PetscInt *, LocalInt *)
{
  return NoCUDA();
}

PetscErrorCode CSRHash_CUDA(const CSRView *, uint64_t *, uint64_t *)
{
  return NoCUDA();
}

PetscErrorCode CSRTranspose_CUDA(const CSR *, PetscBool, CSR *)
{
  return NoCUDA();
}

PetscErrorCode CSRDiagonal_CUDA(const CSRView *, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode CSRCountUnsorted_CUDA(const CSRView *, LocalInt *)
{
  return NoCUDA();
}

PetscErrorCode ValuesNegate_CUDA(size_t, const PetscScalar *, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode CSRMultiply_CUDA(const CSR *, PetscBool, const PetscScalar *, LocalInt, const PetscScalar *, LocalInt, PetscScalar *,
                                LocalInt)
{
  return NoCUDA();
}

PetscErrorCode DeviceFreeBytes_CUDA(size_t *)
{
  return NoCUDA();
}

PetscErrorCode HaloFence_CUDA()
{
  return NoCUDA();
}

PetscErrorCode CSRMultiplyAdd_CUDA(const CSR *, LocalInt, const LocalInt *, const PetscScalar *, LocalInt, const PetscScalar *,
                                   PetscScalar *, LocalInt)
{
  return NoCUDA();
}

PetscErrorCode RowsInterleave_CUDA(LocalInt, const LocalInt *, LocalInt, const PetscScalar *, LocalInt, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode HaloPick_CUDA(FinePCPrecision, LocalInt, const LocalInt *, LocalInt, const void *, const void *, void *)
{
  return NoCUDA();
}

PetscErrorCode HaloAssemble_CUDA(const CSRView *, const CSR *, const CSR *, CSR *)
{
  return NoCUDA();
}

PetscErrorCode HaloFollow_CUDA(const HaloRows *, LocalInt, const GlobalInt[], const GlobalInt[], std::vector<GlobalInt> *,
                               std::vector<LocalInt> *)
{
  return NoCUDA();
}

PetscErrorCode HaloLengths_CUDA(const HaloRows *, LocalInt, const GlobalInt[], std::vector<GlobalInt> *)
{
  return NoCUDA();
}

PetscErrorCode HaloPlaces_CUDA(const HaloRows *, LocalInt, const GlobalInt[], LocalInt *, LocalInt **)
{
  return NoCUDA();
}

PetscErrorCode HaloColumns_CUDA(const HaloRows *, LocalInt, const LocalInt[], GlobalInt[])
{
  return NoCUDA();
}

PetscErrorCode HaloNumber_CUDA(const HaloGathered *, GlobalInt, GlobalInt, LocalInt, const GlobalInt *, CSR *, LocalInt **, char **)
{
  return NoCUDA();
}

PetscErrorCode HaloGhosts_CUDA(const HaloRows *, LocalInt, const GlobalInt *, CSR *, LocalInt **)
{
  return NoCUDA();
}

PetscErrorCode HaloCompress_CUDA(CSR *, const GlobalInt *, GlobalInt, const char *, HaloEntries *)
{
  return NoCUDA();
}

PetscErrorCode HaloTranspose_CUDA(LocalInt, GlobalInt, LocalInt, const GlobalInt[], FinePCPrecision, CSR *, HaloTransposed *)
{
  return NoCUDA();
}

PetscErrorCode HaloSplit_CUDA(const CSR *, LocalInt, PetscBool, CSR *, CSR *)
{
  return NoCUDA();
}

PetscErrorCode CSRSymmetry_CUDA(const CSRView *, LocalInt, PetscScalar *, CSRSymmetry *, CSRSymmetry *)
{
  return NoCUDA();
}

PetscErrorCode CSRCarry_CUDA(const CSRView *, const PetscScalar *, CSR *)
{
  return NoCUDA();
}

PetscErrorCode BSRMultiply_CUDA(const BSR *, LocalInt, const PetscScalar *, LocalInt, const PetscScalar *, LocalInt, PetscScalar *,
                                LocalInt, PetscBool)
{
  return NoCUDA();
}

PetscErrorCode AFSAIComputeFactor_CUDA(const CSRView *, LocalInt, const CSRView *, const AFSAIParams *, PetscBool, CSR *,
                                       PetscReal *, FSAIStats *)
{
  return NoCUDA();
}

PetscErrorCode SFSAIPattern_CUDA(const CSRView *, LocalInt, const CSRView *, const PetscReal *, const SFSAIParams *, CSR *,
                                 FSAIStats *)
{
  return NoCUDA();
}

PetscErrorCode SFSAIComputeFactor_CUDA(const CSRView *, LocalInt, const CSRView *, const SFSAIParams *, PetscBool, CSR *,
                                       PetscReal *, SFSAIWork *, FSAIStats *)
{
  return NoCUDA();
}

PetscErrorCode RRBOffsets_CUDA(const CSRView *, LocalInt *, PetscBool *)
{
  return NoCUDA();
}

PetscErrorCode RRBComputeFactor_CUDA(const CSRView *, LocalInt, LocalInt, const RRBParams *, RRBFactor **, RRBStats *)
{
  return NoCUDA();
}

PetscErrorCode RRBApply_CUDA(RRBFactor *, LocalInt, const PetscScalar *, LocalInt, PetscScalar *, LocalInt)
{
  return NoCUDA();
}

PetscErrorCode RRBGetFactor_CUDA(const RRBFactor *, PetscScalar *, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode RRBDestroy_CUDA(RRBFactor **)
{
  return NoCUDA();
}

PetscErrorCode CMATCHComputeHierarchy_CUDA(const CSRView *, const PetscScalar *, const CMATCHParams *, PetscBool, PetscBool,
                                           CMATCHHierarchy **, CMATCHStats *)
{
  return NoCUDA();
}

PetscErrorCode CMATCHRanksCreate_CUDA(const CMATCHParams *, PetscBool, CMATCHHierarchy **, CMATCHRanksSetUp **)
{
  return NoCUDA();
}

PetscErrorCode CMATCHMakeRoom_CUDA(CMATCHHierarchy *, NCCL *, std::vector<CMATCHLevelMessages> *)
{
  return NoCUDA();
}

PetscErrorCode CMATCHConnect_CUDA(CMATCHHierarchy *, MPI_Comm, bool *)
{
  return NoCUDA();
}

PetscErrorCode CMATCHIdentifyDevice_CUDA(PetscInt64 *)
{
  return NoCUDA();
}

PetscErrorCode CMATCHLargestDiagonal_CUDA(const CSRView *, const PetscScalar *, PetscReal, double *)
{
  return NoCUDA();
}

PetscErrorCode CMATCHMakeGraph_CUDA(CMATCHHierarchy *)
{
  return NoCUDA();
}

PetscErrorCode CMATCHApply_CUDA(CMATCHHierarchy *, const PetscScalar *, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode CMATCHDestroy_CUDA(CMATCHHierarchy **)
{
  return NoCUDA();
}

size_t FSAIWorkBytes_CUDA(LocalInt)
{
  return 0;
}

PetscErrorCode FSAIScaling_CUDA(const CSRView *, LocalInt, PetscReal *, PetscReal *, void *, FSAIStats *)
{
  return NoCUDA();
}

PetscErrorCode FSAIMeanLog_CUDA(LocalInt, const PetscReal *, void *, PetscReal *)
{
  return NoCUDA();
}

PetscErrorCode FSAIMarks_CUDA(const CSRView *, LocalInt, const PetscReal *, float *, LocalInt *)
{
  return NoCUDA();
}

PetscErrorCode BSRFromCSR_CUDA(const CSRView *, LocalInt, PetscBool, BSR *)
{
  return NoCUDA();
}

PetscErrorCode CSRFromBSR_CUDA(const BSRView *, PetscBool, CSR *)
{
  return NoCUDA();
}

PetscErrorCode BSRTranspose_CUDA(const BSR *, PetscBool, BSR *)
{
  return NoCUDA();
}

PetscErrorCode BILUAnalyse_CUDA(const BSRView *, LocalInt, BlockLU *, BILUPlan **, BILUStats *)
{
  return NoCUDA();
}

PetscErrorCode BILUPlanDestroy_CUDA(BILUPlan **)
{
  return NoCUDA();
}

PetscErrorCode BILUFactor_CUDA(const BSRView *, LocalInt, BILUPlan *, BlockLU *, BILUStats *)
{
  return NoCUDA();
}

PetscErrorCode BISAIPattern_CUDA(const BlockLU *, BISAITriangle, PetscBool, LocalInt, FinePCPrecision, BSR *, BISAIStats *)
{
  return NoCUDA();
}

PetscErrorCode BISAIFindColumns_CUDA(const BlockLU *, BISAITriangle, PetscBool, const BSR *, BISAIColumns *, BISAIStats *)
{
  return NoCUDA();
}

PetscErrorCode BISAIInvert_CUDA(const BlockLU *, BISAITriangle, PetscBool, const BISAIParams *, const BISAIColumns *, BSR *,
                                BISAIWork *, BISAIStats *)
{
  return NoCUDA();
}

PetscErrorCode BISAINegate_CUDA(const BlockLU *, BISAITriangle, BSR *, BISAIWork *, BISAIStats *)
{
  return NoCUDA();
}

PetscErrorCode BISAIPermute_CUDA(LocalInt, LocalInt, const LocalInt *, PetscBool, const PetscScalar *, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode NCCLOpen_CUDA(NCCL **, char why[])
{
  PetscFunctionBegin;
  PetscCall(PetscStrncpy(why, "this finepc was built without CUDA", kNCCLText));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLDeviceName_CUDA(char[], size_t)
{
  return NoCUDA();
}

PetscErrorCode NCCLMakeId_CUDA(char[], char[])
{
  return NoCUDA();
}

PetscErrorCode NCCLCreate_CUDA(const char[], PetscMPIInt, PetscMPIInt, NCCL *, PetscBool *, char[])
{
  return NoCUDA();
}

PetscErrorCode NCCLRegister_CUDA(NCCL *, PetscMPIInt, PetscBool *)
{
  return NoCUDA();
}

PetscErrorCode NCCLConnect_CUDA(NCCL *, PetscMPIInt, PetscMPIInt, PetscBool *)
{
  return NoCUDA();
}

PetscErrorCode NCCLDisconnect_CUDA(NCCL *)
{
  return NoCUDA();
}

PetscErrorCode NCCLDestroy_CUDA(NCCL **nccl, PetscBool)
{
  PetscFunctionBegin;
  if (*nccl) PetscCall(NoCUDA());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode NCCLVersion_CUDA(const NCCL *, char[], size_t)
{
  return NoCUDA();
}

PetscErrorCode CGFusedCreate_CUDA(CGFusedWork **)
{
  return NoCUDA();
}

PetscErrorCode CGFusedDestroy_CUDA(CGFusedWork **work)
{
  PetscFunctionBegin;
  if (*work) PetscCall(NoCUDA());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode CGFusedConnect_CUDA(CGFusedWork *, const CGFusedOperators *)
{
  return NoCUDA();
}

PetscErrorCode CGFusedPrepare_CUDA(CGFusedWork *, const CGFusedOperators *, const CGFusedChanges *, PetscBool, KSPCGFusedPath)
{
  return NoCUDA();
}

PetscErrorCode CGFusedStart_CUDA(CGFusedWork *, const CGFusedVectors *, PetscBool, CGNorm, CGSums *)
{
  return NoCUDA();
}

PetscErrorCode CGFusedProduct_CUDA(CGFusedWork *, const PetscScalar *, PetscScalar *)
{
  return NoCUDA();
}
PetscErrorCode CGFusedBegin_CUDA(CGFusedWork *, PetscReal, const CGTest *, PetscBool)
{
  return NoCUDA();
}

PetscErrorCode CGFusedAdvance_CUDA(CGFusedWork *, LocalInt *, const CGRecord **, CGStop *, LocalInt *, PetscReal *)
{
  return NoCUDA();
}

PetscErrorCode CGFusedHalt_CUDA(const CGFusedWork *)
{
  return NoCUDA();
}

PetscErrorCode CGFusedGetStatus_CUDA(const CGFusedWork *, CGFusedStatus *)
{
  return NoCUDA();
}

PetscErrorCode CGColumnsCreate_CUDA(CGColumnsWork **)
{
  return NoCUDA();
}

PetscErrorCode CGColumnsDestroy_CUDA(CGColumnsWork **)
{
  return PETSC_SUCCESS; /* there is none */
}

size_t CGColumnsBytes_CUDA(const CGColumnsWork *)
{
  return 0;
}

PetscErrorCode CGColumnsPrepare_CUDA(CGColumnsWork *, CGFusedWork *, LocalInt, CGNorm, const CGColumnsExchanges *)
{
  return NoCUDA();
}

PetscErrorCode CGColumnsConnect_CUDA(CGColumnsWork *, CGFusedWork *, const CGColumnsExchanges *)
{
  return NoCUDA();
}

PetscErrorCode CGColumnsStart_CUDA(CGColumnsWork *, const CGFusedWork *, const PetscScalar *, LocalInt, const PetscScalar *,
                                   LocalInt, CGNorm, CGSums[])
{
  return NoCUDA();
}

PetscErrorCode CGColumnsBegin_CUDA(CGColumnsWork *, const CGFusedWork *, const PetscReal[], const CGTest[], const PetscBool[])
{
  return NoCUDA();
}

PetscErrorCode CGColumnsAdvance_CUDA(CGColumnsWork *, CGColumn[], PetscBool *)
{
  return NoCUDA();
}

PetscErrorCode CGColumnsGetSolution_CUDA(CGColumnsWork *, const PetscBool[], PetscScalar *, LocalInt)
{
  return NoCUDA();
}

PetscErrorCode CGColumnsDots_CUDA(CGColumnsWork *, LocalInt, LocalInt, const PetscScalar *, LocalInt, const PetscScalar *, LocalInt,
                                  PetscReal *)
{
  return NoCUDA();
}

PetscErrorCode CGColumnsAdd_CUDA(LocalInt, LocalInt, const CGColumnScalars *, const PetscScalar *, LocalInt, PetscScalar *,
                                 LocalInt)
{
  return NoCUDA();
}

PetscErrorCode CGColumnsTurn_CUDA(LocalInt, LocalInt, const CGColumnScalars *, const PetscScalar *, LocalInt, PetscScalar *,
                                  LocalInt)
{
  return NoCUDA();
}

PetscErrorCode CGFusedForgetGraph_CUDA(CGFusedWork *)
{
  return NoCUDA();
}

PetscErrorCode CGFusedIsDirect_CUDA(const CGFusedWork *, PetscBool *)
{
  return NoCUDA();
}

PetscErrorCode CGFusedTimeCommunication_CUDA(CGFusedWork *, int, CGCommunicationTimes *)
{
  return NoCUDA();
}

PetscErrorCode CGFusedExchangeOnce_CUDA(CGFusedWork *, NCCL *, MPI_Comm, const Neighbours *, const PetscScalar *, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode CGRankBegin_CUDA(CGFusedWork *, const CGRankVectors *, CGNorm)
{
  return NoCUDA();
}

PetscErrorCode CGRankUpdate_CUDA(CGFusedWork *, const CGRankVectors *, PetscScalar, PetscScalar)
{
  return NoCUDA();
}

PetscErrorCode CGRankFence_CUDA(const CGFusedWork *)
{
  return NoCUDA();
}

PetscErrorCode CGRankFirst_CUDA(CGFusedWork *, const CGRankVectors *, const PetscScalar **)
{
  return NoCUDA();
}

PetscErrorCode CGRankFirstGhosts_CUDA(CGFusedWork *)
{
  return NoCUDA();
}

PetscErrorCode CGRankSecond_CUDA(CGFusedWork *, const CGRankVectors *)
{
  return NoCUDA();
}

PetscErrorCode CGRankSecondGhosts_CUDA(CGFusedWork *, const CGRankVectors *)
{
  return NoCUDA();
}

PetscErrorCode CGRankProduct_CUDA(CGFusedWork *, const CGRankVectors *)
{
  return NoCUDA();
}

PetscErrorCode CGRankGhosts_CUDA(CGFusedWork *, const CGRankVectors *, PetscReal[3])
{
  return NoCUDA();
}

PetscErrorCode CGFence_CUDA()
{
  return NoCUDA();
}

PetscErrorCode CGCheckStream_CUDA(MPI_Comm)
{
  return NoCUDA();
}

PetscErrorCode CGStep_CUDA(LocalInt, PetscScalar, const PetscScalar *, const PetscScalar *, PetscScalar *, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode CGDots_CUDA(CGFusedWork *, LocalInt, const PetscScalar *, const PetscScalar *, const PetscScalar *, PetscReal[4])
{
  return NoCUDA();
}

PetscErrorCode CGDirection_CUDA(LocalInt, PetscScalar, const PetscScalar *, PetscScalar *, const PetscScalar *, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode RRBCGPrepare_CUDA(RRBFactor *, RRBCGWork **)
{
  return NoCUDA();
}

PetscErrorCode RRBCGDestroy_CUDA(RRBCGWork **)
{
  return NoCUDA();
}

PetscErrorCode RRBCGStart_CUDA(RRBCGWork *, const PetscScalar *, RRBCGSums *)
{
  return NoCUDA();
}

PetscErrorCode RRBCGBegin_CUDA(RRBCGWork *, PetscReal, const CGTest *)
{
  return NoCUDA();
}

PetscErrorCode RRBCGAdvance_CUDA(RRBCGWork *, PetscBool, LocalInt *, const CGRecord **, CGStop *, LocalInt *, PetscReal *)
{
  return NoCUDA();
}

PetscErrorCode RRBCGSolution_CUDA(RRBCGWork *, const PetscScalar *, PetscBool, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode RRBCGResidual_CUDA(RRBCGWork *, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedCreate_CUDA(GMRESFusedWork **)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedDestroy_CUDA(GMRESFusedWork **work)
{
  PetscFunctionBegin;
  if (*work) PetscCall(NoCUDA());
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode GMRESDots_CUDA(GMRESFusedWork *, const GMRESBasis *, LocalInt, LocalInt, const PetscScalar *const[], PetscReal[])
{
  return NoCUDA();
}

PetscErrorCode GMRESUpdate_CUDA(GMRESFusedWork *, const GMRESBasis *, LocalInt, const GMRESCombination *,
                                const PetscScalar *const[], PetscScalar *, PetscReal[])
{
  return NoCUDA();
}

PetscErrorCode GMRESStore_CUDA(const GMRESBasis *, LocalInt, PetscReal, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode GMRESCombine_CUDA(GMRESFusedWork *, const GMRESBasis *, LocalInt, const PetscReal[], PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedUnit_CUDA(GMRESFusedWork *, LocalInt, LocalInt, LocalInt, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedPrepare_CUDA(GMRESFusedWork *, const GMRESOperators *, PetscBool, KSPGMRESFusedPath, LocalInt)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedWait_CUDA(GMRESFusedWork *)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedReserve_CUDA(GMRESFusedWork *, const GMRESBasis *, LocalInt, LocalInt)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedConnect_CUDA(GMRESFusedWork *, const GMRESOperators *)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedStart_CUDA(GMRESFusedWork *, const GMRESBasis *, const GMRESVectors *, PetscBool, PetscReal *)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedBegin_CUDA(GMRESFusedWork *, const GMRESStart *)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedAdvance_CUDA(GMRESFusedWork *, LocalInt *, const PetscReal **, GMRESStop *, LocalInt *, PetscReal *)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedFinish_CUDA(GMRESFusedWork *)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedGetSmall_CUDA(GMRESFusedWork *, GMRESSmall *, LocalInt *)
{
  return NoCUDA();
}

PetscErrorCode GMRESRankBegin_CUDA(GMRESFusedWork *, const GMRESBasis *)
{
  return NoCUDA();
}

PetscErrorCode GMRESRankProduct_CUDA(GMRESFusedWork *, const PetscScalar *, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode GMRESRankGhosts_CUDA(GMRESFusedWork *, PetscScalar *)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedCanStay_CUDA(FinePCPrecision, LocalInt, PetscBool *)
{
  return NoCUDA();
}

PetscErrorCode GMRESFusedGetStatus_CUDA(const GMRESFusedWork *, GMRESStatus *)
{
  return NoCUDA();
}

PetscErrorCode CUDSSCreate_CUDA(CUDSS **)
{
  return NoCUDA();
}

PetscErrorCode CUDSSVersion_CUDA(const CUDSS *, char[], size_t)
{
  return NoCUDA();
}

PetscErrorCode CUDSSAnalyse_CUDA(CUDSS *, CUDSSKind, const CUDSSParams *, const CSRView *, CUDSSStats *)
{
  return NoCUDA();
}

PetscErrorCode CUDSSFactor_CUDA(CUDSS *, const CSRView *, CUDSSStats *)
{
  return NoCUDA();
}

PetscErrorCode CUDSSSolve_CUDA(CUDSS *, PetscBool, LocalInt, const PetscScalar *, LocalInt, PetscMemType, PetscScalar *, LocalInt,
                               PetscMemType)
{
  return NoCUDA();
}

PetscErrorCode CUDSSDestroy_CUDA(CUDSS **solver)
{
  PetscFunctionBegin;
  if (*solver) PetscCall(NoCUDA());
  PetscFunctionReturn(PETSC_SUCCESS);
}
