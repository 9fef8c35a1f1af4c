/*
   Device memory whose lifetime is a C++ scope: work arrays of a set-up. Its sizes are summed, so that a set-up can say
   what it took.
*/
#pragma once

#include "launch.cuh"

struct WorkMeter {
  size_t now = 0, peak = 0;
};

template <typename T>
class Buffer {
public:
  explicit Buffer(WorkMeter *meter = nullptr) : meter_(meter) { }
  Buffer(const Buffer &)            = delete;
  Buffer &operator=(const Buffer &) = delete;
  Buffer(Buffer &&other) noexcept : meter_(other.meter_), data_(other.data_), size_(other.size_)
  {
    other.data_ = nullptr;
    other.size_ = 0;
  }
  ~Buffer() { Free(); }

  PetscErrorCode Allocate(size_t size)
  {
    PetscFunctionBegin;
    Free();
    PetscCall(ArrayCreate_CUDA(size * sizeof(T), (void **)&data_));
    size_ = size;
    if (meter_) {
      meter_->now += bytes();
      if (meter_->now > meter_->peak) meter_->peak = meter_->now;
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  void Free()
  {
    if (!data_) return;
    PetscCallAbort(PETSC_COMM_SELF, ArrayDestroy_CUDA((void **)&data_));
    if (meter_) meter_->now -= bytes();
    size_ = 0;
  }
  T     *data() const { return data_; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }

private:
  WorkMeter *meter_;
  T         *data_ = nullptr;
  size_t     size_ = 0;
};

/* Arrays that share an allocation, which takes as long as a small kernel: where each begins. */
class Layout {
public:
  template <typename T>
  size_t Place(size_t size)
  {
    const size_t at = bytes_;
    bytes_ += (size * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }
  size_t bytes() const { return bytes_; }

private:
  static constexpr size_t kAlignment = 256;

  size_t bytes_ = 0;
};
