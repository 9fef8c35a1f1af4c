/* What most faces include: the compiler reads it once. */
#pragma once

#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include <algorithm>
#include <cmath>
#include <vector>
