#pragma once

/* What the parts of finepc_kernels share: kernels.cxx, block_kernels.cxx. */

#include "text.h"
#include <algorithm>
#include <petscdevice_cuda.h>
#include <finepc.h>
#include "sparse/csr.h"

/* Device memory of a scope */
class DeviceArray {
public:
  DeviceArray()                               = default;
  DeviceArray(const DeviceArray &)            = delete;
  DeviceArray &operator=(const DeviceArray &) = delete;
  ~DeviceArray() { PetscCallAbort(PETSC_COMM_SELF, ArrayDestroy_CUDA(&data)); }

  PetscErrorCode Create(size_t bytes) { return ArrayCreate_CUDA(bytes, &data); }
  char          *at(size_t byte) const { return (char *)data + byte; }

  void *data = nullptr;
};

/* The caller may free `from` afterwards */
inline PetscErrorCode CopyToDevice(void *to, const void *from, size_t bytes)
{
  cudaStream_t stream;

  PetscFunctionBeginUser;
  PetscCall(ArrayCopy_CUDA(to, from, bytes, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_HOST));
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUDA(cudaStreamSynchronize(stream));
  PetscFunctionReturn(PETSC_SUCCESS);
}

inline PetscErrorCode CopyToHost(void *to, const void *from, size_t bytes)
{
  return ArrayCopy_CUDA(to, from, bytes, PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA);
}

inline PetscErrorCode CopyOnDevice(void *to, const void *from, size_t bytes)
{
  return ArrayCopy_CUDA(to, from, bytes, PETSC_MEMTYPE_CUDA, PETSC_MEMTYPE_CUDA);
}

/* Bytes that are copied before a timing, so that the host is ahead of the device */
static constexpr size_t kDelay = (size_t)512 << 20;

/*
   Seconds of a call on the device, between two events. What `prepare` launches before is not timed, but keeps the device busy while
   the host launches the call.
*/
template <typename Prepare, typename Call>
inline PetscErrorCode TimeOnDevice(PetscInt repeats, Prepare prepare, Call call, std::vector<PetscLogDouble> *seconds)
{
  const PetscInt warm = 2;
  cudaStream_t   stream;
  cudaEvent_t    begin, end;

  PetscFunctionBeginUser;
  PetscCall(PetscGetCurrentCUDAStream(&stream));
  PetscCallCUDA(cudaEventCreate(&begin));
  PetscCallCUDA(cudaEventCreate(&end));
  for (PetscInt repeat = 0; repeat < warm + repeats; repeat++) {
    float ms;

    PetscCall(prepare());
    PetscCallCUDA(cudaEventRecord(begin, stream));
    PetscCall(call());
    PetscCallCUDA(cudaEventRecord(end, stream));
    PetscCallCUDA(cudaEventSynchronize(end));
    PetscCallCUDA(cudaEventElapsedTime(&ms, begin, end));
    if (repeat >= warm) seconds->push_back(1e-3 * (PetscLogDouble)ms);
  }
  PetscCallCUDA(cudaEventDestroy(end));
  PetscCallCUDA(cudaEventDestroy(begin));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ------------------------------------------ results ------------------------------------------- */

inline PetscLogDouble Best(const std::vector<PetscLogDouble> &v)
{
  return v.empty() ? 0. : *std::min_element(v.begin(), v.end());
}

/* a / b, or 0 where b was not measured */
inline PetscLogDouble Quotient(PetscLogDouble a, PetscLogDouble b)
{
  return b > 0. ? a / b : 0.;
}

/* Calls measure(); whatever goes wrong becomes the result's status and note */
template <typename Measure, typename Result>
inline PetscErrorCode Guarded(Measure measure, Result *result)
{
  std::string error;

  PetscFunctionBeginUser;
  PetscCall(PetscPushErrorHandler(KeepFirstError, &error));
  const PetscErrorCode code = measure(result);
  PetscCall(PetscPopErrorHandler());
  if (code) {
    result->status = "failed";
    result->note += error.substr(0, error.find('\n'));
  }
  while (!result->note.empty() && (result->note.back() == ' ' || result->note.back() == ';')) result->note.pop_back();
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ----------------------------- block matrices: block_kernels.cxx ------------------------------ */

/* A product y = A x, ours and cuSPARSE's bsrmv */
struct BlockProduct {
  FinePCPrecision             precision = FINEPC_DOUBLE;
  std::vector<PetscLogDouble> own, cusparse; /* seconds */
  PetscLogDouble              bytes = 0., cusparse_bytes = 0.;
  PetscLogDouble              difference = 0., cusparse_difference = 0.; /* relative, from the product on the host */
};

/* Block ILU(0) by so many fixed-point sweeps */
struct BlockSweeps {
  PetscInt                    count = 0;
  std::vector<PetscLogDouble> seconds;
  PetscLogDouble              difference = 0.; /* relative, from the factor by levels */
  PetscInt                    iterations = 0;  /* of GMRES(30) with the inverses of this factor */
};

/* Block ILU(0) and its triangular solves: PETSc's on the host, ours, cuSPARSE's deprecated bsrilu02 and bsrsv2 */
struct BlockILU {
  std::vector<PetscLogDouble> host_factor, own_factor, cusparse_factor; /* seconds of the numerical part */
  PetscLogDouble              host_analysis = 0., own_analysis = 0., cusparse_analysis = 0.;
  std::vector<PetscLogDouble> host_solves, cusparse_solves; /* seconds of kSolves applications, T_p of the block-ISAI paper */
  PetscLogDouble              own_difference = 0., cusparse_difference = 0.; /* relative, of one application, from that of PETSc */
  PetscInt                    levels          = 0;
  PetscLogDouble              sweeps_analysis = 0.;
  std::vector<BlockSweeps>    sweeps; /* by number of sweeps; the last number is enough for the exact factor */
};

struct BlockResult {
  System         system;                       /* its matrix no longer exists when the report is written */
  PetscInt       bs = 0, rows = 0, blocks = 0; /* block rows */
  BlockProduct   products[2];
  BlockILU       ilu;
  PetscLogDouble wall = 0.; /* seconds of all measurements */
  std::string    status, note;
};

extern PetscErrorCode MeasureBlocks(const Backend &backend, const std::string &spec, PetscInt repeats, BlockResult *result);
extern std::string    BlockHeader(PetscInt repeats);
extern std::string    BlockRow(const Backend &backend, const BlockResult &result);
extern std::string    BlockILUHeader();
extern std::string    BlockILURow(const BlockResult &result);
extern std::string    BlockSweepsHeader();
extern std::string    BlockSweepsRows(const BlockResult &result);
extern Json           BlocksJson(const Backend &backend, const BlockResult &result);
