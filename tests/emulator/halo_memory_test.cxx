/*
   Before rows of other ranks travel, a rank compares the memory that they need with what its GPU has left. The emulated device says
   what it is told to say, and gives what it is asked for, so that this comparison alone can end a set-up.
*/
#include <petsc/private/pcimpl.h>

#include <cmath>

#include "device.h"
#include "emulator.h"
#include "pc/fsai_face.h"
#include "solver.h"
#include "spread.h"

namespace
{

class MatricesOnDevice {
public:
  MatricesOnDevice() { emulated_matrices = true; }
  ~MatricesOnDevice() { emulated_matrices = false; }
  MatricesOnDevice(const MatricesOnDevice &)            = delete;
  MatricesOnDevice &operator=(const MatricesOnDevice &) = delete;
};

const Halo &HaloOf(PC pc)
{
  return ((const PC_FSAI *)pc->data)->halo;
}

/* Sets up while the GPU says that it has so many bytes left, with the text of this rank's errors. */
PetscErrorCode SetUp(PC pc, size_t left, std::string *text)
{
  const Errors         errors;
  const emulator::Left scope(left);
  PetscErrorCode       code = PCSetUp(pc);
  *text                     = errors.text;
  return code;
}

/* The two sizes that an error says, in bytes. */
void ReadSizes(const std::string &text, double *needed, double *left)
{
  const size_t at = text.find(" need ");
  REQUIRE(at != std::string::npos);
  REQUIRE(std::sscanf(text.c_str() + at, " need %lf MB, but its GPU has %lf MB left", needed, left) == 2);
  *needed *= 1e6;
  *left *= 1e6;
}

/* What travels in a set-up until the rows do: without their columns, and without what travels for new values, too. */
Traffic TrafficBeforeRows(PC pc, Mat A, const HostMatrix &H)
{
  const Traffic all  = TrafficOf([&] { MUST(PCSetUp(pc)); });
  const Halo   &halo = HaloOf(pc);
  SetValues(A, Blocks(H));
  const Traffic refill  = TrafficOf([&] { MUST(PCSetUp(pc)); });
  double        sent[2] = {(double)halo.blocks.to.size(), (double)halo.Sent() * sizeof(PetscInt)};
  MPI_Allreduce(MPI_IN_PLACE, sent, 2, MPI_DOUBLE, MPI_SUM, PETSC_COMM_WORLD);
  CHECK(sent[0] > 0);
  return {all.messages - refill.messages - sent[0], all.bytes - refill.bytes - sent[1], 0, 0};
}

} // namespace

TEST_CASE("a GPU of one rank that has too little left for gathered rows ends the set-up of all before they travel",
          "[halo][fsai][pc][bad][memory][mpi][emulated]")
{
  if (Ranks() == 1) {
    SkipTest();
    return;
  }
  const HostMatrix H = RandomGraph(60, 6, 4);
  const MatObject  A = Spread(H, MATAIJ, Even);
  for (const Type &type : FSAITypes()) {
    const std::string      remedy  = std::string("lower -pc_") + type.name + "_overlap or -pc_" + type.name + "_halo_layers";
    const char *const      options = "-@overlap 1 -@reuse_pattern 0";
    const auto             on_host = Applied(MakePC(A, type, options));
    const double           bytes   = DeviceBytesInUse();
    const MatricesOnDevice on;
    {
      const PCObject whole    = MakePC(A, type, options);
      const Traffic  before   = TrafficBeforeRows(whole, A, H);
      const auto     expected = Applied(whole);
      const LocalInt gathered = HaloOf(whole).First(), entries = HaloOf(whole).Received();
      CHECK(PetscMemTypeDevice(HaloOf(whole).where));
      CHECK((gathered > 0) == (Rank() > 0)); /* of the ranks below it */
      CHECK(Difference(expected, on_host) <= 1e-5);
      for (int rank = 0; rank < Ranks(); rank++) {
        const bool mine   = rank == Rank();
        const auto name   = "rank " + std::to_string(rank);
        double     needed = 0;
        for (const double share : {0., 0.999, 1.001}) { /* of what is needed, which the first error says */
          CAPTURE(type.name, rank, share, needed);
          const PCObject pc   = MakePC(A, type, options);
          const size_t   left = mine ? (size_t)(share * needed) : SIZE_MAX;
          PetscErrorCode code;
          std::string    text;
          const Traffic  traffic = TrafficOf([&] { code = SetUp(pc, left, &text); });
          CAPTURE(text);
          if (rank == 0 || share > 1) CHECK((int)code == (int)PETSC_SUCCESS); /* it gathers nothing, or its GPU has enough */
          else {
            CHECK((int)code == (int)PETSC_ERR_MEM);
            CHECK((traffic.messages == before.messages && traffic.bytes == before.bytes));
            CHECK(Contains(text, remedy) == mine);
            CHECK(Contains(text, "of " + name + " could not be factored: see its own message") == !mine);
          }
          if (mine && code) {
            double said;
            CHECK(
              Contains(text, name + " gathers, " + std::to_string(gathered) + " with " + std::to_string(entries) + " entries, "));
            ReadSizes(text, &needed, &said);
            CHECK(std::fabs(said - (double)left) <= 1);
            CHECK(needed >= (double)entries * (sizeof(PetscInt) + sizeof(LocalInt) + sizeof(PetscScalar)));
          }
          MUST(PCSetUp(pc)); /* the same object, once there is memory */
          CHECK(SameBits(Applied(pc), expected));
        }
      }
    }
    CHECK(DeviceBytesInUse() == bytes);
  }
}
