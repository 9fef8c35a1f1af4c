#include "covering.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <set>

/* Each row begins with the first pair that is missing; the other columns get the number that adds most of the missing pairs. */
static std::vector<std::vector<size_t>> FewRows(const std::vector<size_t> &sizes)
{
  const size_t                     columns = sizes.size();
  std::set<std::array<size_t, 4>>  missing; /* a column and its number, a later column and its number */
  std::vector<std::vector<size_t>> rows;
  for (size_t a = 0; a < columns; a++)
    for (size_t b = a + 1; b < columns; b++)
      for (size_t of_a = 0; of_a < sizes[a]; of_a++)
        for (size_t of_b = 0; of_b < sizes[b]; of_b++) missing.insert({a, of_a, b, of_b});
  while (!missing.empty()) {
    const std::array<size_t, 4> first = *missing.begin();
    std::vector<size_t>         row(columns, SIZE_MAX);
    row[first[0]] = first[1];
    row[first[2]] = first[3];
    for (size_t c = 0; c < columns; c++) {
      if (row[c] != SIZE_MAX) continue;
      size_t best = 0, most = 0;
      for (size_t value = 0; value < sizes[c]; value++) {
        size_t added = 0;
        for (size_t d = 0; d < columns; d++)
          if (row[d] != SIZE_MAX) added += d < c ? missing.count({d, row[d], c, value}) : missing.count({c, value, d, row[d]});
        if (added > most) best = value;
        most = std::max(most, added);
      }
      row[c] = best;
    }
    for (size_t a = 0; a < columns; a++)
      for (size_t b = a + 1; b < columns; b++) missing.erase({a, row[a], b, row[b]});
    rows.push_back(row);
  }
  return rows;
}

static std::vector<std::vector<size_t>> AllRows(const std::vector<size_t> &sizes)
{
  std::vector<std::vector<size_t>> rows = {{}};
  for (size_t size : sizes) {
    std::vector<std::vector<size_t>> longer;
    for (const std::vector<size_t> &row : rows)
      for (size_t value = 0; value < size; value++) {
        longer.push_back(row);
        longer.back().push_back(value);
      }
    rows = longer;
  }
  return rows;
}

std::vector<std::vector<size_t>> CoveringRows(const std::vector<size_t> &sizes)
{
  return sizes.size() < 3 || std::getenv("FINEPC_TEST_ALL") ? AllRows(sizes) : FewRows(sizes);
}
