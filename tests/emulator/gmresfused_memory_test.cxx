/*
   Own products of KSPGMRESFUSED on several ranks where memory ends on one of them. With a GPU the allocations that fail would be
   those of CUDA and of PETSc, too.
*/
#include "device.h"
#include "gmresfused_support.h"

/* A rank that ends alone would leave the others waiting. */
TEST_CASE("gmresfused: own products by MPI, and memory that ends on one rank", "[gmresfused][memory][mpi][emulated]")
{
  if (Ranks() == 1) {
    SkipTest();
    return;
  }
  const SolversOnDevice on;
  const std::string     options = "-ksp_max_it 6 ";
  for (LocalInt bs : {0, 2})
    for (const auto kind : {FailingMemory::Through::New, FailingMemory::Through::PETSc}) {
      int failed = 1, failures = 0;
      for (long n = 1; failed; n++) {
        CAPTURE(bs, (int)kind, n);
        const HostMatrix H = Convection(5, 4, 2);
        const MatObject  A = bs ? BlocksOfRanks(RandomBlocks(H, bs, 3)) : Spread(H, SolversOnDevice::rows, Even);
        MUST(on.Place(A));
        const KSPObject ksp = MakeKSP(A, kOurs + options, PCJACOBI);
        const VecObject b = RightVec(A, 2), x = RightVec(A, 5);
        PetscErrorCode  code;
        MUST(KSPSetUp(ksp));
        {
          const Errors        errors;
          const FailingMemory failing(kind, Rank() == Ranks() - 1 ? n : 0);
          code   = KSPSolve(ksp, b, x);
          failed = Rank() == Ranks() - 1 && failing.Failed();
        }
        MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
        CHECK((int)code == (int)(failed ? PETSC_ERR_MEM : PETSC_SUCCESS));
        Compare(RunOf(ksp), RunOf(MakeKSP(A, kPETSc + options, PCJACOBI)), 1e-6); /* once there is memory */
        CHECK(Views(ksp, "products: own, bytes "));
        failures += failed;
      }
      if (kind == FailingMemory::Through::New) CHECK(failures > 0);
    }
}
