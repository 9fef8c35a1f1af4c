/*
   Device memory whose lifetime is a C++ scope: the work arrays of a set-up. A meter sums the sizes of the buffers that know
   it, so that a set-up can say how much memory it took.
*/
#pragma once

#include <functional>
#include <vector>

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

/*
   Arrays that share one allocation, since an allocation takes as long as a small kernel. They are named first, which tells
   how many bytes they need together, and become valid once there is memory for them:

     layout.Place(&x, n);
     layout.Place(&y, m);
     PetscCall(layout.Allocate(&work));
*/
class Layout {
public:
  /* *array will have room for so many elements. Returns how many bytes lie before it. */
  template <typename T>
  size_t Place(T **array, size_t size)
  {
    const size_t at = Take(size * sizeof(T));
    bindings_.push_back([=](char *memory) { *array = (T *)(memory + at); });
    return at;
  }
  /* The same for memory without a type. */
  size_t Place(void **array, size_t bytes)
  {
    const size_t at = Take(bytes);
    bindings_.push_back([=](char *memory) { *array = memory + at; });
    return at;
  }
  size_t bytes() const { return bytes_; }

  /* All arrays begin in this memory of bytes() bytes. */
  void Bind(void *memory) const
  {
    for (const auto &binding : bindings_) binding((char *)memory);
  }
  PetscErrorCode Allocate(Buffer<char> *memory) const
  {
    PetscFunctionBegin;
    PetscCall(memory->Allocate(bytes_));
    Bind(memory->data());
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  static constexpr size_t kAlignment = 256;

  size_t Take(size_t bytes)
  {
    const size_t at = bytes_;
    bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  }

  size_t                                   bytes_ = 0;
  std::vector<std::function<void(char *)>> bindings_;
};
