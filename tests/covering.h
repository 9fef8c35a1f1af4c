/* Covering arrays: few cases in the place of all combinations of options, matrices and places. */
#pragma once

#include <cstddef>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

/*
   Rows of numbers below the sizes, few of them, with each pair of numbers of two columns in one row at least. The first row has the
   first of everything, and the rows are the same each time. With FINEPC_TEST_ALL in the environment they are all combinations.
*/
std::vector<std::vector<size_t>> CoveringRows(const std::vector<size_t> &sizes);

/* The same with elements of lists: for (const auto &[backend, pc, on] : Covering(Backends(), kTypes, kBoth)) */
template <typename... Lists>
std::vector<std::tuple<std::decay_t<decltype(*std::begin(std::declval<const Lists &>()))>...>> Covering(const Lists &...lists)
{
  std::vector<std::tuple<std::decay_t<decltype(*std::begin(lists))>...>> all;
  for (const std::vector<size_t> &row : CoveringRows({std::size(lists)...})) {
    size_t     column = 0;
    const auto next   = [&](const auto &list) { return *std::next(std::begin(list), (std::ptrdiff_t)row[column++]); };
    all.push_back({next(lists)...}); /* in braces from left to right */
  }
  return all;
}
constexpr bool kBoth[] = {false, true};
