/* What a solver has to know of PCAUTO. */
#pragma once

#include <petscpc.h>

/* The preconditioner that acts: that which a PCAUTO has taken, or any other PC itself. */
PC PCActing(PC);
