/*
   What finepc calls of cuDSS 1, so that no header of it is needed. Handles are pointers and enumerations are int; the values are
   those of cudss_data_types.h, whose names have the prefixes CUDSS_STATUS_, CUDSS_CONFIG_, CUDSS_DATA_ and so on.
*/
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace cudss
{

constexpr int kMajor = 1; /* the version whose functions and values these are */

enum Status { SUCCESS, NOT_INITIALIZED, ALLOC_FAILED, INVALID_VALUE, NOT_SUPPORTED, EXECUTION_FAILED, INTERNAL_ERROR, IR_FAILED };
enum Config {
  REORDERING_ALG     = 0,
  SOLVE_MODE         = 4,
  IR_N_STEPS         = 5,
  PIVOT_TYPE         = 7,
  HYBRID_MEMORY_MODE = 11,
  DETERMINISTIC_MODE = 24
};
enum Data { INFO = 0, LU_NNZ = 1, NPIVOTS = 2, INERTIA = 3, MEMORY_ESTIMATES = 13 };
enum Phase { ANALYSIS = 3, FACTORIZATION = 4, REFACTORIZATION = 8, SOLVE = 0x3f0 };
enum MatrixType { GENERAL = 0, SYMMETRIC = 1, SPD = 3 };
enum MatrixView { FULL = 0, UPPER = 2 };
enum Property { MAJOR = 0, MINOR = 1, PATCH = 2 };
constexpr int kReal64 = 1, kInt32 = 10; /* of cudaDataType_t */
constexpr int kBaseZero = 0, kColumnMajor = 0;
constexpr int kEstimates = 16; /* bytes on the device (0, at most 1) and on the host (2, 3), on both in the hybrid mode (4, 5) */

typedef int GetProperty(int property, int *value);
typedef int Create(void **handle);
typedef int Destroy(void *handle);
typedef int SetStream(void *handle, cudaStream_t);
typedef int SetThreadingLayer(void *handle, const char *library);
typedef int ConfigCreate(void **config);
typedef int ConfigDestroy(void *config);
typedef int ConfigSet(void *config, int parameter, const void *value, size_t bytes);
typedef int DataCreate(void *handle, void **data);
typedef int DataDestroy(void *handle, void *data);
typedef int DataGet(void *handle, void *data, int parameter, void *value, size_t bytes, size_t *written);
typedef int Execute(void *handle, int phase, void *config, void *data, void *matrix, void *solution, void *rhs);
typedef int MatrixCreateDn(void **, int64_t rows, int64_t columns, int64_t ld, const void *values, int type, int layout);
typedef int MatrixCreateCsr(void **, int64_t rows, int64_t columns, int64_t nnz, const void *begins, const void *ends,
                            const void *j, const void *values, int offset_type, int index_type, int value_type, int type, int view,
                            int base);
typedef int MatrixDestroy(void *matrix);

} // namespace cudss
