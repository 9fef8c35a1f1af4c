#include "pc/cmatch/cmatch.cuh"

#include "refill.h"

void TakeRoomAway_CMATCH(CMATCHHierarchy *H)
{
  ((CMATCHHierarchyCUDA *)H)->device[0].AP_room = 1;
}

bool IsCareful_CMATCH(const CMATCHHierarchy *H)
{
  return ((const CMATCHHierarchyCUDA *)H)->careful;
}

bool CameOutAtOnce_CMATCH(const CMATCHHierarchy *H)
{
  bool all = true;
  for (LocalInt l = 0; l + 1 < H->levels; l++) all = all && ((const CMATCHHierarchyCUDA *)H)->device[l].one_way;
  return all;
}
