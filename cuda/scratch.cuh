/* Scratch memory of CUB's device-wide functions. */
#pragma once

#include <algorithm>

#include "buffer.cuh"

/*
   CUB's device-wide functions are called twice, without scratch memory to ask how much they need, then to run. A call is
   therefore written once, as a function that forwards both arguments and returns what CUB returns:

     const auto scan = [&](void *scratch, size_t &bytes) {
       return cub::DeviceScan::ExclusiveSum(scratch, bytes, x, y, n, stream);
     };

   There are two ways to use it:
   - Run(scan) alone allocates what the call needs, and keeps this memory for the next one.
   - Measure() of all calls that are to come, Place(), and once the layout has its memory any number of Run(), which then
     allocate nothing.
*/
class CubScratch {
public:
  explicit CubScratch(WorkMeter *meter = nullptr) : own_(meter) { }

  template <typename Call>
  PetscErrorCode Measure(Call call)
  {
    size_t bytes = 0;

    PetscFunctionBegin;
    PetscCallCUDA(call(nullptr, bytes));
    bytes_ = std::max(bytes_, bytes);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* What was measured is part of a layout's memory. */
  void Place(Layout *layout) { layout->Place(&placed_, bytes_); }

  template <typename Call>
  PetscErrorCode Run(Call call)
  {
    PetscFunctionBegin;
    if (!placed_) {
      PetscCall(Measure(call));
      if (own_.size() < bytes_) PetscCall(own_.Allocate(bytes_));
    }
    size_t bytes = bytes_;
    PetscCallCUDA(call(placed_ ? placed_ : own_.data(), bytes));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  size_t       bytes_  = 0; /* the largest need of the calls measured */
  char        *placed_ = nullptr;
  Buffer<char> own_;
};
