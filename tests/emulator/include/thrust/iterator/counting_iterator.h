/* Iterators of Thrust, as far as finepc hands them to functions of CUB, for the emulator. */
#pragma once

namespace thrust
{

template <typename T>
struct counting_iterator {
  T first;
  explicit counting_iterator(T first_) : first(first_) { }
  T operator[](T k) const { return first + k; }
};

} // namespace thrust
