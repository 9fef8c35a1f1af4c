/* What a set-up of cmatch for new values relies on: products that have come out at once. */
#pragma once

struct CMATCHHierarchy;

/* The next such set-up finds no room for A P on the finest level. */
void TakeRoomAway_CMATCH(CMATCHHierarchy *);
/* Whether such set-ups wait for each product, since one did not come out; and whether all of them came out at once the last time.
 */
bool IsCareful_CMATCH(const CMATCHHierarchy *);
bool CameOutAtOnce_CMATCH(const CMATCHHierarchy *);
