/* Memory of the GPU: what is free is there for the next array, for others, and not before it is free. */
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "device/device.cuh"
#include "sparse/memory.h"
#include "support.h"

namespace
{

size_t Left()
{
  size_t left;
  MUST(DeviceFreeBytes_CUDA(&left));
  return left;
}

void *Array(size_t bytes)
{
  void *array;
  MUST(ArrayCreate_CUDA(bytes, &array));
  return array;
}

void Destroy(void *array)
{
  MUST(ArrayDestroy_CUDA(&array));
  CHECK(!array);
}

} // namespace

TEST_CASE("pool: free memory is there for the next array, in one piece and for all of the process", "[gpu][pool]")
{
  NEEDS_DEVICE();
  const size_t        left = Left(), piece = left / 64;
  std::vector<void *> arrays;
  void               *memory = nullptr;

  for (int k = 0; k < 32; k++) arrays.push_back(Array(piece));
  if (!std::getenv("FINEPC_TEST_SHARED_GPU")) CHECK(Left() < left - 31 * piece);
  for (size_t k = 0; k < arrays.size(); k += 2) Destroy(arrays[k]); /* every other one */
  Destroy(Array(left / 64 * 44));                                   /* which has not so much left in one piece */
  for (size_t k = 1; k < arrays.size(); k += 2) Destroy(arrays[k]);
  if (!std::getenv("FINEPC_TEST_SHARED_GPU")) CHECK(Left() >= left - piece / 8);
  MUST(DeviceSynchronize_CUDA());
  REQUIRE(cudaMalloc(&memory, left / 64 * 56) == cudaSuccess); /* as another library does it */
  REQUIRE(cudaFree(memory) == cudaSuccess);
  {
    const Errors errors;
    REQUIRE((int)ArrayCreate_CUDA(2 * left, &memory) == (int)PETSC_ERR_MEM);
    CHECK(errors.text.find("no") != std::string::npos);
  }
  CHECK(!memory);
  Destroy(Array(1));
}

TEST_CASE("pool: an array that another stream still writes is not given to anybody", "[gpu][pool]")
{
  NEEDS_DEVICE();
  constexpr size_t           kBytes = (size_t)1 << 28;
  std::vector<unsigned char> seen(kBytes);
  for (bool between : {false, true}) { /* an array is made in the second stream before the one of the first stream goes */
    CAPTURE(between);
    cudaStream_t first, second;
    MUST(DeviceGetStream(&first));
    void *const       old = Array(kBytes);
    const OtherStream other;
    MUST(DeviceGetStream(&second));
    for (int k = 0; k < 200; k++) REQUIRE(cudaMemsetAsync(old, 1, kBytes, first) == cudaSuccess); /* some 15 ms */
    void *const more = between ? Array(1) : nullptr;
    Destroy(old);
    void *const young = Array(kBytes);
    REQUIRE(cudaMemsetAsync(young, 2, kBytes, second) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(first) == cudaSuccess);
    MUST(ArrayCopy_CUDA(seen.data(), young, kBytes, PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
    CHECK(std::count(seen.begin(), seen.end(), 2) == (long)kBytes);
    Destroy(young);
    Destroy(more);
  }
}
