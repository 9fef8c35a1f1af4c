/* The GPU, for programs of the tests that see the library from outside, too. Without CUDA there is none. */
#pragma once

/* Whether there is one. */
bool FindDevice();
/* Whether it still works: after an error in a kernel nothing does. */
bool DeviceWorks();
/* Bytes in use on it, by all programs, as the driver counts them: in pieces of 2 MiB. */
double DeviceBytesInUse();
