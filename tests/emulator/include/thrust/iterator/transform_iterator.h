/* Iterators of Thrust, as far as finepc hands them to functions of CUB, for the emulator. */
#pragma once

namespace thrust
{

template <typename Iterator, typename Function>
struct transform_iterator {
  Iterator from;
  Function function;
  template <typename K>
  auto operator[](K k) const
  {
    return function(from[k]);
  }
};
template <typename Iterator, typename Function>
transform_iterator<Iterator, Function> make_transform_iterator(Iterator from, Function function)
{
  return {from, function};
}

} // namespace thrust
