/* The sliced copies that cgfused multiplies with, read entry by entry as slices.h describes them. */
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "sparse/slices.h"
#include "matrices.h"

namespace
{

constexpr LocalInt kWarp = 32, kGroup = 4;

/* What a copy contains: the entries of each row, the number of entries, and that of padding. */
struct Decoded {
  std::vector<std::map<LocalInt, double>> rows;
  LocalInt                                entries = 0, zeros = 0;
};

template <typename T>
std::vector<T> ToHost(const void *from, size_t size)
{
  std::vector<T> to(size);
  if (size) MUST(ArrayCopy_CUDA(to.data(), from, size * sizeof(T), PETSC_MEMTYPE_HOST, PETSC_MEMTYPE_CUDA));
  return to;
}

std::vector<double> Numbers(const void *from, size_t size, bool single)
{
  if (!single) return ToHost<double>(from, size);
  const auto numbers = ToHost<float>(from, size);
  return {numbers.begin(), numbers.end()};
}

/* Reads a copy by what slices.h says about the places of entries, given the lengths of the rows of the matrix. */
Decoded Decode(const Slices &S, const std::vector<LocalInt> &length)
{
  Decoded    decoded;
  const auto step  = ToHost<LocalInt>(S.step, S.count + 1);
  const auto order = S.sorted ? ToHost<LocalInt>(S.order, S.rows) : std::vector<LocalInt>();
  const auto start = S.even ? std::vector<LocalInt>() : ToHost<LocalInt>(S.start, S.count);
  const auto base  = S.narrow ? ToHost<LocalInt>(S.base, step[S.count]) : std::vector<LocalInt>();
  const auto value = Numbers(S.value, S.entries, S.single);
  const auto small = S.narrow ? ToHost<std::uint16_t>(S.column, S.entries) : std::vector<std::uint16_t>();
  const auto large = S.narrow ? std::vector<LocalInt>() : ToHost<LocalInt>(S.column, S.entries);
  decoded.rows.resize(S.rows);
  for (LocalInt slice = 0; slice < S.count; slice++) {
    const LocalInt steps = step[slice + 1] - step[slice];
    LocalInt       at    = S.even ? step[slice] * kWarp : start[slice];
    for (LocalInt k = 0; k < steps; k++)
      for (LocalInt lane = 0; lane < kWarp; lane++) {
        const LocalInt place = slice * (kWarp / S.lanes) + lane / S.lanes, row = place >= S.rows ? -1
                                                                                 : S.sorted      ? order[place]
                                                                                                 : place;
        const bool     own  = row >= 0 && k * S.lanes + lane % S.lanes < length[row];
        LocalInt       here = at;
        if (S.even) {
          /* the steps whose entries lie together: 4, or 2 and 1 at the end */
          const LocalInt group = k / kGroup * kGroup, left = std::min(kGroup, steps - group);
          const LocalInt first    = left == kGroup || k - group < left / 2 * 2 ? group : group + left / 2 * 2,
                         together = left == kGroup               ? kGroup
                                    : first == group && left > 1 ? 2
                                                                 : 1;
          here                    = at + first * kWarp + lane * together + k - first;
        } else if (own) at++;
        else continue;
        const LocalInt column = S.narrow ? base[step[slice] + k] + small[here] : large[here];
        if (own) {
          CHECK(decoded.rows[row].count(column) == 0);
          decoded.rows[row][column] = value[here];
          decoded.entries++;
        } else {
          decoded.zeros++;
          if (value[here] != 0) FAIL("padding of slice " << slice << " is " << value[here]);
          if (column < 0 || column >= S.rows) FAIL("padding of slice " << slice << " has column " << column);
        }
      }
  }
  return decoded;
}

/* `turn` rows of 1 entry and `turn` rows of `length` entries, in turns. */
HostMatrix TwoLengths(LocalInt n, LocalInt length, LocalInt turn)
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
  for (LocalInt row = 0; row < n; row++) {
    rows[row].emplace_back(row, 2.1);
    for (LocalInt k = 1; row / turn % 2 && k < length; k++) rows[row].emplace_back((row + k * 3) % n, -0.1);
  }
  return FromRows(rows);
}

struct SlicesObject {
  Slices S{};

  ~SlicesObject() { PetscCallAbort(PETSC_COMM_SELF, SlicesDestroy_CUDA(&S)); }
};

} // namespace

TEST_CASE("slices: every entry once, and zeros elsewhere", "[slices][gpu][sanitizer]")
{
  NEEDS_DEVICE();
  SlicesObject copy; /* one for all cases, so that its memory still has the entries of another matrix */
  const struct {
    const char *name;
    HostMatrix  A;
    bool        sorted; /* the copy with one lane a row is */
  } cases[] = {
    {"one row", Poisson(1), false},
    {"31", Poisson(31), false},
    {"32", Poisson(32), false},
    {"33", Poisson(33), false},
    {"stencil", RandomStencil(20, 17, 3, false, 1), false},
    {"corners", RandomStencil(9, 8, 7, true, 1), true},
    {"graph", RandomGraph(3000, 9, 2), true},
    {"arrow", RandomArrow(700, 3), false},
    {"dense", RandomDense(70, 4), false},
    {"two lengths", TwoLengths(5000, 9, 1), true},
    {"in blocks", TwoLengths(5000, 9, 64), false},
    {"a window", TwoLengths(kSliceWindow, 7, 3), true},
    {"and a row", TwoLengths(kSliceWindow + 1, 7, 3), true},
    {"far too many", TwoLengths(1000, 400, 1), true},
  };
  for (const auto &c : cases)
    for (LocalInt lanes : {1, 2, 4, 8, 16, 32})
      for (SlicesKind kind : {SLICES_PLAIN, SLICES_COMPRESSED, SLICES_RESIDENT}) {
        CAPTURE(c.name, lanes, kind);
        const CSRCopy         A(c.A, PETSC_MEMTYPE_CUDA);
        const CSR             csr{c.A.n,
                      c.A.n,
                      c.A.nnz(),
                      (LocalInt *)A.view.i,
                      (LocalInt *)A.view.j,
                      (void *)A.view.a,
                      FINEPC_DOUBLE,
                      PETSC_MEMTYPE_CUDA};
        std::vector<LocalInt> length(c.A.n);
        for (LocalInt row = 0; row < c.A.n; row++) length[row] = c.A.i[row + 1] - c.A.i[row];
        for (void *memory : copy.S.memory)
          if (memory)
            MUST(
              ArrayCopy_CUDA(memory,
                             std::vector<double>(copy.S.capacity[memory == copy.S.memory[1]] / sizeof(double), std::nan("")).data(),
                             copy.S.capacity[memory == copy.S.memory[1]] / sizeof(double) * sizeof(double), PETSC_MEMTYPE_CUDA,
                             PETSC_MEMTYPE_HOST));
        MUST(SlicesUpdate_CUDA(&csr, lanes, kind, &copy.S));
        const Slices &S = copy.S;
        CHECK(S.kind == kind);
        CHECK(S.rows == c.A.n);
        if (kind != SLICES_COMPRESSED) {
          CHECK_FALSE(S.narrow);
          CHECK_FALSE(S.single);
        }
        if (kind == SLICES_RESIDENT) CHECK((S.even && !S.sorted));
        else if (lanes == 1) CHECK((bool)S.sorted == c.sorted);
        const Decoded decoded = Decode(S, length);
        CHECK(decoded.entries == c.A.nnz());
        if (kind != SLICES_RESIDENT) CHECK(decoded.entries + decoded.zeros <= kSlicePadding * c.A.nnz());
        for (LocalInt row = 0; row < c.A.n; row++) {
          std::map<LocalInt, double> wanted;
          for (LocalInt k = c.A.i[row]; k < c.A.i[row + 1]; k++) wanted[c.A.j[k]] = c.A.a[k];
          if (decoded.rows[row] != wanted) FAIL("row " << row << " is another one");
        }
      }
}

TEST_CASE("slices: a resident copy that would be too large is not made", "[slices][gpu]")
{
  NEEDS_DEVICE();
  const LocalInt n = 60000, length = 1000; /* one row of so many entries in each slice of 32 rows: 60 M entries with the padding */
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(n);
  for (LocalInt row = 0; row < n; row++)
    for (LocalInt k = 0; k < (row % kWarp ? 1 : length); k++) rows[row].emplace_back((row + k) % n, k ? 0.001 : 2.);
  const HostMatrix H = FromRows(rows);
  const CSRCopy    A(H, PETSC_MEMTYPE_CUDA);
  const CSR    csr{n, n, H.nnz(), (LocalInt *)A.view.i, (LocalInt *)A.view.j, (void *)A.view.a, FINEPC_DOUBLE, PETSC_MEMTYPE_CUDA};
  SlicesObject copy;
  MUST(SlicesUpdate_CUDA(&csr, 1, SLICES_RESIDENT, &copy.S));
  CHECK(copy.S.kind == SLICES_NONE);
  MUST(SlicesUpdate_CUDA(&csr, 1, SLICES_PLAIN, &copy.S));
  CHECK(copy.S.kind == SLICES_PLAIN);
}
