/* What a solver has to know of PCAUTO. */
#pragma once

#include <petscpc.h>

/* The preconditioner that acts: that which a PCAUTO has taken, or any other PC itself. */
PC PCActing(PC);
/* Whether all that it does before and after a solve is to watch it, and whether it still has to find out what it takes. */
bool PCOnlyWatches(PC);
bool PCLearns(PC);
