/* What most sources of the tests include: the compiler reads it once. */
#pragma once

#include "support.h"
