/* Set-ups of cmatch for new values, which do not wait for each product. */
#include <petsc/private/pcimpl.h>

#include "compare.h"
#include "matrices.h"
#include "pc_support.h"
#include "refill.h"
#include "pc/cmatch/cmatch_face.h"

TEST_CASE("cmatch: new values where a product does not come out at once", "[cmatch][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  const HostMatrix H = Poisson(26, 24, 22);
  const MatObject  A = CreateMat(H, MATAIJ), other = CreateMat(H, MATAIJ);
  const Options    database("-finepc_backend device -pc_cmatch_coarse_size 20");
  const auto       make = [](Mat matrix) {
    PCObject pc;
    MUST(PCCreate(PETSC_COMM_SELF, pc.put()));
    MUST(PCSetType(pc, PCCMATCH));
    MUST(PCSetOperators(pc, matrix, matrix));
    MUST(PCSetFromOptions(pc));
    MUST(PCSetUp(pc));
    return pc;
  };
  const auto set_up = [](PC pc, Mat matrix, double scale) {
    MUST(MatScale(matrix, scale));
    MUST(PCSetUp(pc));
    return Applied(pc);
  };
  const PCObject         pc = make(A), plain = make(other);
  const auto             of        = [](PC pc) { return ((const PC_CMATCH *)pc->data)->hierarchy; };
  CMATCHHierarchy *const hierarchy = of(pc);
  REQUIRE(hierarchy->levels > 2);
  CHECK(CameOutAtOnce_CMATCH(hierarchy));
  CHECK(SameBits(set_up(pc, A, 2), set_up(plain, other, 2)));
  CHECK(!IsCareful_CMATCH(hierarchy));
  TakeRoomAway_CMATCH(hierarchy);
  for (int step = 0; step < 2; step++) { /* made again, and then with waiting */
    CHECK(SameBits(set_up(pc, A, 3), set_up(plain, other, 3)));
    CHECK(IsCareful_CMATCH(hierarchy));
    for (LocalInt l = 0; l + 1 < hierarchy->levels; l++) {
      CHECK(hierarchy->level[l].cut == of(plain)->level[l].cut);
      CHECK(hierarchy->level[l].plain == of(plain)->level[l].plain);
    }
  }
  CHECK(of(pc) == hierarchy);
  LocalInt cut = 0;
  for (LocalInt l = 0; l + 1 < hierarchy->levels; l++) cut += hierarchy->level[l].cut;
  CHECK(cut > 0);
}
