/*
   Copies from global into shared memory that go on by themselves while the threads do something else (bulk asynchronous copies).
   One thread begins them, and all threads wait for them at a barrier in shared memory.

   They need compute capability 9.0. Code that is compiled for less does nothing here, and a kernel that copies so must not be
   launched unless SupportsBulkCopies() says that it may. tests/emulator has its own version of this header.
*/
#pragma once

#include <cuda/ptx>

#include <cstdint>

#include "launch.cuh"

constexpr int kBulkWord = 16; /* bytes to multiples of which all addresses and sizes must be */

/* The copies of a turn are announced, begun and waited for. No thread may begin the next turn before all have read the copies. */
class CopyBarrier {
public:
  /* By one thread, with a __syncthreads() between this and the first Wait() of another. */
  __device__ __forceinline__ void Init()
  {
#if __CUDA_ARCH__ >= 900
    cuda::ptx::mbarrier_init(&state_, 1);
    cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
    cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
#endif
  }
  /* By one thread: so many bytes, or none, come in this turn. */
  __device__ __forceinline__ void Announce(unsigned bytes)
  {
#if __CUDA_ARCH__ >= 900
    cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta, cuda::ptx::space_shared, &state_, bytes);
#endif
  }
  /* By the thread that has announced it. What is copied is read once: it should not drive other data out of L2. */
  __device__ __forceinline__ void Begin(void *to, const void *from, unsigned bytes)
  {
#if __CUDA_ARCH__ >= 900
    std::uint64_t policy; /* cuda::ptx has no such copy with a policy */
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
                   (unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(bytes), "r"((unsigned)__cvta_generic_to_shared(&state_)), "l"(policy)
                 : "memory");
#endif
  }
  /* The parity of the first turn is 0, of the second 1, of the third 0. */
  __device__ __forceinline__ void Wait(unsigned parity)
  {
#if __CUDA_ARCH__ >= 900
    while (!cuda::ptx::mbarrier_try_wait_parity(&state_, parity)) { }
#endif
  }

private:
  std::uint64_t state_;
};

/* Whether the kernel's code for this device copies so: it is the code that waits for the kernel ahead, too. */
inline PetscErrorCode SupportsBulkCopies(const void *kernel, bool *supports)
{
  return SupportsEarlyLaunch(kernel, supports);
}
