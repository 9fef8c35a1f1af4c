/* Memory of the emulated device that ends. */
#pragma once

namespace emulator
{

/* While this is there, the n-th allocation from its beginning on fails; with 0 none does. */
struct FailingAllocation {
  explicit FailingAllocation(long n);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation &)            = delete;
  FailingAllocation &operator=(const FailingAllocation &) = delete;

  bool Failed() const;
};

} // namespace emulator
