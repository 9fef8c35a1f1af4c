#include "pc_support.h"

#include <petsc/private/pcimpl.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <limits>

#include "pc/auto/auto.h"
#include "pc/cmatch/cmatch_face.h"

/* ----------------------------------------- matrices ------------------------------------------- */

const HostMatrix &Plate()
{
  static const HostMatrix A = RandomStencil(15, 12, 1, false, 77);
  return A;
}

const HostBlocks &Grid()
{
  static const HostBlocks A = RandomBlocks(RandomStencil(9, 8, 1, false, 200), 3, 201);
  return A;
}

HostMatrix Diffusion(PetscInt nx, PetscInt ny, bool dirichlet, std::uint64_t seed)
{
  Random                                                     random(seed);
  std::vector<double>                                        k(nx * ny);
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows(nx * ny);
  for (double &value : k) value = random.Between(1, 10);
  for (PetscInt row = 0; row < nx * ny; row++) {
    const PetscInt x = row % nx, y = row / nx;
    double         sum = 0;
    for (const auto &to : {std::pair<PetscInt, PetscInt>{-1, 0}, {1, 0}, {0, -1}, {0, 1}}) {
      const PetscInt to_x = x + to.first, to_y = y + to.second;
      const bool     inside = to_x >= 0 && to_x < nx && to_y >= 0 && to_y < ny;
      const double   face   = inside ? 2 / (1 / k[row] + 1 / k[to_y * nx + to_x]) : 2 * k[row];
      if (!inside && !dirichlet) continue;
      sum += face;
      if (inside) rows[row].push_back({to_y * nx + to_x, -face});
    }
    rows[row].push_back({row, sum});
  }
  return FromRows(rows);
}

HostMatrix ShortOf(PetscInt n, double part)
{
  const double h = 1. / (n + 1), smallest = 2 * 9.8696 * h * h;
  HostMatrix   A = Poisson(n, n);
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] == row) A.a[k] -= part * smallest;
  return A;
}

HostBlocks Blocks(const HostMatrix &A)
{
  HostBlocks B;
  B.n = A.n;
  B.i = A.i;
  B.j = A.j;
  B.a = A.a;
  return B;
}

/* The changes are symmetric. Diagonal entries become larger, and the others smaller. */
HostBlocks Changed(const HostBlocks &A, std::uint64_t seed)
{
  HostBlocks B = A;
  for (PetscInt row = 0; row < B.n; row++)
    for (PetscInt k = B.i[row]; k < B.i[row + 1]; k++)
      for (PetscInt c = 0; c < B.bs; c++)
        for (PetscInt r = 0; r < B.bs; r++) {
          const PetscInt p = row * B.bs + r, q = B.j[k] * B.bs + c;
          Random         random(seed + 7919 * (std::uint64_t)std::max(p, q) + 104729 * (std::uint64_t)std::min(p, q));
          random.Next();
          B.a[((size_t)k * B.bs + c) * B.bs + r] *= p == q ? random.Between(1, 1.2) : random.Between(0.8, 1);
        }
  return B;
}

void SetValues(Mat mat, const HostBlocks &A)
{
  PetscInt begin, end;
  MUST(MatGetOwnershipRange(mat, &begin, &end));
  MUST(MatSetOption(mat, MAT_ROW_ORIENTED, PETSC_FALSE));
  for (PetscInt row = begin / A.bs; row < end / A.bs; row++)
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const PetscInt column = A.j[k];
      MUST(MatSetValuesBlocked(mat, 1, &row, 1, &column, A.Block(k), INSERT_VALUES));
    }
  MUST(MatAssemblyBegin(mat, MAT_FINAL_ASSEMBLY));
  MUST(MatAssemblyEnd(mat, MAT_FINAL_ASSEMBLY));
}

HostBlocks BadMatrix::Spoiled(const HostBlocks &good, PetscInt first) const
{
  HostBlocks A = good;
  spoil(A, first);
  return A;
}

std::string BadMatrix::Text(int rank, PetscInt first) const
{
  std::string  result = text;
  const size_t own = result.find('&'), global = result.find('#');
  if (own != std::string::npos) result.replace(own, 1, rank >= 0 ? " of rank " + std::to_string(rank) + "'s block" : "");
  if (global != std::string::npos) {
    const size_t number = result.find_last_not_of("0123456789", global - 1) + 1;
    result.replace(number, global + 1 - number, std::to_string(std::stol(result.substr(number)) + first));
  }
  return result;
}

/* ---------------------------------- what the types differ in ---------------------------------- */

namespace
{

std::vector<Kind> AIJKinds()
{
  std::vector<Kind> kinds = {
    {"aij", &HostBackend(), [](const HostBlocks &A, MPI_Comm comm) { return CreateAIJ(A, MATAIJ, comm); }}};
  if (DeviceFound())
    kinds.push_back(
      {"aijcusparse", &DeviceBackend(), [](const HostBlocks &A, MPI_Comm comm) { return CreateAIJ(A, MATAIJCUSPARSE, comm); }});
  return kinds;
}

MatObject CreateBAIJCUDA(const HostBlocks &A, MPI_Comm comm)
{
  const MatObject mat = CreateBAIJ(A, comm);
  MatObject       converted;
  MUST(MatConvert(mat, MATBAIJCUDA, MAT_INITIAL_MATRIX, converted.put()));
  return converted;
}

/* Of types that take the single entries of blocks. MATSBAIJ, which has half of the entries, is in points_test.cxx. */
std::vector<Kind> PointKinds()
{
  std::vector<Kind> kinds = AIJKinds();
  kinds.push_back({"baij", &HostBackend(), CreateBAIJ});
  if (DeviceFound()) kinds.push_back({"baijcuda", &DeviceBackend(), CreateBAIJCUDA});
  return kinds;
}

std::vector<Kind> BlockKinds()
{
  std::vector<Kind> kinds = {{"baij", &HostBackend(), CreateBAIJ}};
  for (const Kind &kind : AIJKinds()) kinds.push_back(kind);
  kinds.push_back({"baijcuda", &DeviceBackend(), CreateBAIJCUDA});
  if (DeviceFound())
    kinds.push_back({"baij with device vectors", &DeviceBackend(), [](const HostBlocks &A, MPI_Comm comm) {
                       MatObject mat = CreateBAIJ(A, comm);
                       MUST(MatSetVecType(mat, VECCUDA));
                       return mat;
                     }});
  return kinds;
}

/*
   Gives another value to the diagonal entry of a point of a rank's part of a grid. The last entry of the first row is on the next
   line, which tells how long a line is.
*/
std::function<void(HostBlocks &, PetscInt)> Point(PetscInt x, PetscInt y, double value)
{
  return [=](HostBlocks &A, PetscInt first) {
    const PetscInt row = first + y * (A.j[A.i[first + 1] - 1] - first) + x;
    *A.Find(row, row)  = value;
  };
}

/* Gives another value to an entry of the rank's block that begins with row `first`, where the blocks of the matrix are numbers. */
std::function<void(HostBlocks &, PetscInt)> Entry(PetscInt row, PetscInt column, double value)
{
  return [=](HostBlocks &A, PetscInt first) { *A.Find(first + row, first + column) = value; };
}

/* Takes away the diagonal block of the block row first + row. */
std::function<void(HostBlocks &, PetscInt)> NoDiagonal(PetscInt row)
{
  return [=](HostBlocks &A, PetscInt first) {
    const PetscInt bad = first + row, bs2 = A.bs * A.bs;
    PetscInt       k = A.i[bad];
    while (A.j[k] != bad) k++;
    A.j.erase(A.j.begin() + k);
    A.a.erase(A.a.begin() + (size_t)k * bs2, A.a.begin() + (size_t)(k + 1) * bs2);
    for (PetscInt later = bad + 1; later <= A.n; later++) A.i[later]--;
  };
}

const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();

template <typename T>
Refused Call(PetscErrorCode (*set)(PC, T), T value, const char *message)
{
  return {"", [=](PC pc) { return set(pc, value); }, message};
}
Refused Text(const char *value, const char *message = "")
{
  return {value, nullptr, message};
}
/* An option of whole numbers refuses everything outside of its range, and the largest of all numbers. */
OptionOf Whole(const char *key, PetscErrorCode (*set)(PC, PetscInt), const char *value, const char *other, PetscInt least,
               PetscInt most)
{
  const std::string range  = "must be between " + std::to_string(least) + " and " + std::to_string(most);
  OptionOf          option = {key, value, other, [=](PC pc) { return set(pc, (PetscInt)std::stoi(other)); }, {Text("many")}};
  for (PetscInt refused : std::vector<PetscInt>{least - 1, most + 1, PETSC_INT_MAX, PETSC_INT_MIN}) {
    option.refused.push_back(Text(std::to_string(refused).c_str(), range.c_str()));
    option.refused.push_back(Call(set, refused, range.c_str()));
  }
  return option;
}

/* An option of real numbers refuses these texts and numbers, and what is no number. */
OptionOf Real(const char *key, PetscErrorCode (*set)(PC, PetscReal), const char *value, const char *other, const char *range,
              std::vector<const char *> texts, std::vector<double> numbers)
{
  OptionOf option = {key, value, other, [=](PC pc) { return set(pc, std::stod(other)); }, {Text("nan"), Call(set, nan, range)}};
  for (const char *text : texts) option.refused.push_back(Text(text, range));
  for (double number : numbers) option.refused.push_back(Call(set, number, range));
  return option;
}
OptionOf Fraction(const char *key, PetscErrorCode (*set)(PC, PetscReal), const char *value, const char *other)
{
  return Real(key, set, value, other, "must be between 0 and 1", {"1.1", "-1", "-0.1", "2"}, {1.5});
}

/* An option of words refuses a word that there is not, and numbers that belong to none. */
template <typename T>
OptionOf Word(const char *key, PetscErrorCode (*set)(PC, T), const char *value, const char *other, T to, const char *word,
              int number)
{
  const std::string none = "has no value " + std::to_string(number);
  return {key, value, other, [=](PC pc) { return set(pc, to); }, {Text(word), Call(set, (T)number, none.c_str())}};
}
OptionOf Precision(const char *key, PetscErrorCode (*set)(PC, FinePCPrecision))
{
  OptionOf option = Word(key, set, "single", "double", FINEPC_DOUBLE, "half", 9);
  option.refused.push_back(Text("quad"));
  option.refused.push_back(Call(set, (FinePCPrecision)-1, "has no value -1"));
  return option;
}

/* An option that is true by default */
OptionOf Switch(const char *key, PetscErrorCode (*set)(PC, PetscBool))
{
  return {key, "TRUE", "FALSE", [=](PC pc) { return set(pc, PETSC_FALSE); }, {Text("maybe")}};
}

/* ------------------------------------ afsai and sfsai ----------------------------------------- */

constexpr char kOnlyAIJ[] =
  "is not supported, only MATAIJ and its subtypes such as MATAIJCUSPARSE are: use MatConvert() or -mat_type aij";

constexpr char kPoints[] = "is not supported, only MATAIJ, MATBAIJ, MATSBAIJ and their subtypes such as MATAIJCUSPARSE are: use "
                           "MatConvert() or -mat_type aij";

/* What both types have in common. */
Type FactoredInverse(PCType name)
{
  Type type{};
  type.name    = name;
  type.solver  = "";
  type.kinds   = PointKinds;
  type.remedy  = kPoints;
  type.good    = [] { return Blocks(Plate()); };
  type.pattern = [] { return Blocks(RandomGraph(Plate().n, 7, 5)); };
  type.size    = [] { return Blocks(RandomStencil(9, 10, 11, false, 8)); };
  type.large   = [] { return Blocks(RandomStencil(40, 40, 40, false, 8)); };
  type.ranks   = [] { return Blocks(RandomStencil(30, 20, 1, false, 9)); };
  type.few     = [] { return Blocks(FromDense(2, {2, -1, -1, 2})); };
  type.bad     = {
    {"Row 5# has no diagonal entry", PC_FACTOR_NUMERIC_ZEROPIVOT, NoDiagonal(5), false},
    {"Row 7# has a diagonal entry that is not positive", PC_FACTOR_NUMERIC_ZEROPIVOT, Entry(7, 7, 0)},
    {"Row 9# has a diagonal entry that is not positive", PC_FACTOR_NUMERIC_ZEROPIVOT, Entry(9, 9, -2)},
    {"Row 11# has an entry that is not finite", PC_FACTOR_OTHER, Entry(11, 11, nan)},
    {"Row 12# has an entry that is not finite", PC_FACTOR_OTHER, Entry(12, 13, nan)},
    {"Row 14# has an entry that is not finite", PC_FACTOR_OTHER, Entry(14, 13, inf)},
  };
  type.patterns  = {"", "-@reuse_pattern", "-@reuse_pattern false"};
  type.variants  = {"", "-@reuse_pattern", "-@reuse_pattern false", "-@factor_precision double", "-@setup_precision double"};
  type.kept      = "pattern kept from the last set-up";
  type.exact_for = [] {
    return std::vector<HostBlocks>{Blocks(RandomStencil(8, 8, 1, false, 5)), Blocks(RandomDense(50, 6)), Blocks(Poisson(9, 9))};
  };
  type.view_after =
    {"rows solved again in double precision 0, left with the diagonal entry alone 0, too long for the fastest way to solve them ",
     "factor stored in single precision", "set-up memory beyond A, G and its transpose: "};
  type.view_ranks = "G: 600 rows";
  return type;
}

Type MakeAFSAI()
{
  Type type        = FactoredInverse(PCAFSAI);
  type.event       = "AFSAIFactor";
  type.get_factors = PCAFSAIGetFactors;
  type.diagonal    = {"-@max_steps 0", "-@max_steps 0 -@setup_precision double -@factor_precision double", "-@postfilter 1",
                      "-@prefilter 1"};
  type.exact       = {"-@max_steps 1000 -@tolerance 0 -@setup_precision double -@factor_precision double",
                      "-@max_steps 0 -@initial_power 1000 -@setup_precision double -@factor_precision double",
                      "-@max_steps 100 -@step_size 10 -@tolerance 0 -@setup_precision double -@factor_precision double"};
  type.others      = "-@max_steps 4 -@initial_power 1 -@factor_precision double -@reuse_pattern false";
  type.fresh       = {"-@reuse_pattern false"};
  type.view_always = {"at most 20 steps of 1 per row, a row stops by gain, tolerance 0.001",
                      "candidates ranked by decrease, first pattern of power 0, prefilter 0., postfilter 0.",
                      "set-up in single precision, pattern kept while the nonzeros of A stay"};
  type.options     = {
    Whole("-@max_steps", PCAFSAISetMaxSteps, "20", "3", 0, 10000),
    Whole("-@step_size", PCAFSAISetStepSize, "1", "3", 1, 10000),
    Real("-@tolerance", PCAFSAISetTolerance, "0.001", "0.05", "must be at least 0 and below 1", {"-0.1", "1"}, {1}),
    Word("-@stop_rule", PCAFSAISetStopRule, "gain", "ratio", PC_AFSAI_STOP_RATIO, "never", 7),
    Word("-@selection", PCAFSAISetSelection, "decrease", "gradient", PC_AFSAI_SELECTION_GRADIENT, "best", 2).With("-@max_steps 2"),
    Whole("-@initial_power", PCAFSAISetInitialPower, "0", "2", 0, 1000),
    Fraction("-@prefilter", PCAFSAISetPrefilter, "0.", "0.2"),
    Fraction("-@postfilter", PCAFSAISetPostfilter, "0.", "0.2"),
    Precision("-@setup_precision", PCAFSAISetSetupPrecision),
    Precision("-@factor_precision", PCAFSAISetFactorPrecision),
    Switch("-@reuse_pattern", PCAFSAISetReusePattern).Makes(Useless::Nothing).Shows("kept while the nonzeros of A stay"),
    Whole("-@overlap", PCAFSAISetOverlap, "0", "2", 0, 1000).Shows("within 2 hops"),
    Whole("-@halo_layers", PCAFSAISetHaloLayers, "0", "7", 0, 10000).With("-@overlap 1").Shows("within 7 couplings"),
  };
  return type;
}

Type MakeSFSAI()
{
  Type type        = FactoredInverse(PCSFSAI);
  type.event       = "SFSAIFactor";
  type.get_factors = PCSFSAIGetFactors;
  type.diagonal = {"-@power 0", "-@power 0 -@setup_precision double -@factor_precision double", "-@postfilter 1", "-@prefilter 1",
                   "-@max_row 1"};
  type.exact    = {"-@power 1000 -@setup_precision double -@factor_precision double"};
  type.others   = "-@power 1 -@postfilter 0.01 -@factor_precision double";
  type.fresh    = {"", "-@reuse_pattern false", "-@power 3 -@setup_precision double", "-@factor_precision double"};
  type.view_always = {"prefilter 0., postfilter 0., at most 768 entries per row by default",
                      "set-up in single precision, pattern kept while the nonzeros of A stay"};
  type.view_before = {"pattern of power 2, or 1 where rows would be long,"};
  type.view_after.push_back("pattern of power 2, chosen since its rows are short,");
  type.view_after.push_back("rows cut to the cap 0, entries dropped by the postfilter 0");
  type.options = {
    Whole("-@power", PCSFSAISetPower, "-1", "3", -1, 1000),
    Fraction("-@prefilter", PCSFSAISetPrefilter, "0.", "0.2"),
    Fraction("-@postfilter", PCSFSAISetPostfilter, "0.", "0.2"),
    Whole("-@max_row", PCSFSAISetMaxRow, "-1", "3", -1, 100000),
    Precision("-@setup_precision", PCSFSAISetSetupPrecision),
    Precision("-@factor_precision", PCSFSAISetFactorPrecision),
    Switch("-@reuse_pattern", PCSFSAISetReusePattern).Makes(Useless::Nothing).Shows("kept while the nonzeros of A stay"),
    Whole("-@overlap", PCSFSAISetOverlap, "0", "2", 0, 1000).Shows("within 2 hops"),
    Whole("-@halo_layers", PCSFSAISetHaloLayers, "0", "7", 0, 10000).With("-@overlap 1").Shows("within 7 couplings"),
  };
  return type;
}

/* ------------------------------------------- bisai -------------------------------------------- */

/* The first column of the first block is zero, which gives a zero pivot. */
HostBlocks ZeroPivot()
{
  HostBlocks A = RandomBlocks(RandomStencil(6, 6, 1, false, 380), 3, 381);
  std::fill_n(A.Find(0, 0), A.bs, 0.);
  return A;
}

Type MakeBISAI()
{
  Type type{};
  type.name        = PCBISAI;
  type.event       = "BISAIFactor";
  type.solver      = "-ksp_type gmres -ksp_pc_side right ";
  type.kinds       = BlockKinds;
  type.remedy      = "is not supported, only MATBAIJ, MATAIJ with a block size, and their subtypes are: use MatConvert(), "
                     "-mat_type baij or -mat_type aij";
  type.good        = [] { return Grid(); };
  type.pattern     = [] { return RandomBlocks(RandomGraph(Grid().n, 6, 312), 3, 313); };
  type.size        = [] { return RandomBlocks(RandomGraph(40, 5, 310), 5, 311); };
  type.large       = [] { return RandomBlocks(RandomStencil(150, 150, 1, false, 400), 3, 401); };
  type.ranks       = [] { return RandomBlocks(RandomStencil(12, 10, 1, false, 350), 3, 351); };
  type.few         = [] { return RandomBlocks(Poisson(1), 3, 360); };
  type.get_factors = PCBISAIGetFactors;
  type.bad         = {
    {"Row 22& has an entry that is not finite", PC_FACTOR_OTHER,
             [](HostBlocks &A, PetscInt first) { A.a[(size_t)(A.i[first + 8] - 1) * 9 + 4] = nan; }},
    {"Row 21& has an entry that is not finite", PC_FACTOR_OTHER,
             [](HostBlocks &A, PetscInt first) { A.Find(first + 7, first + 7)[3] = -inf; }},
    {"Block row 9& has no diagonal block: store one, if only of zeros", PC_FACTOR_STRUCT_ZEROPIVOT, NoDiagonal(9), false},
  };
  type.patterns  = {""};
  type.variants  = {"",
                    "-@factor petsc -@power 3",
                    "-@side columns -@power 2",
                    "-@side columns_rows",
                    "-@side rows_columns -@factor finepc -@sweeps 1",
                    "-@factor petsc -@sweeps 2",
                    "-@factor finepc",
                    "-@factor finepc -@power 2",
                    "-@factor finepc -@factor_sweeps 2",
                    "-@factor finepc -@sweeps 2",
                    "-@factor finepc -@factor_precision double -@sweeps 1",
                    "-@factor_mat_ordering_type rcm -@factor_levels 1",
                    "-@factor_mat_ordering_type rcm -@sweeps 1"};
  type.fresh     = type.variants;
  type.kept      = "patterns kept from the last set-up";
  type.others    = "-@factor finepc -@sweeps 1";
  type.exact     = {"-@factor petsc -@sweeps 40 -@factor_precision double", "-@factor finepc -@sweeps 40 -@factor_precision double",
                    "-@factor finepc -@factor_sweeps 34 -@sweeps 40 -@factor_precision double"};
  type.exact_for = [] { return std::vector<HostBlocks>{RandomBlocks(Poisson(30), 3, 361), RandomBlocks(Poisson(35), 1, 362)}; };
  type.view_always     = {"patterns of power 1 of L, 1 of U; relaxation sweeps 0"};
  type.view_before     = {"factors by finepc where the matrix is on a GPU, by PETSc otherwise (auto)\n"};
  type.view_after      = {"block size 3, inverses stored in single precision, patterns made at the last set-up",
                          "72 block rows, 326 blocks of the matrix",
                          "singular diagonal blocks replaced 0, left with the diagonal block alone: NL 0 block rows, NU 0 block "
                               "rows",
                          " (auto): ILU(0)"};
  type.view_ranks      = "120 block rows";
  type.single_diagonal = true;

  type.options = {
    Whole("-@power", PCBISAISetPower, "1", "3", 1, 4),
    Whole("-@power_lower", PCBISAISetPowerLower, "0", "2", 0, 4),
    Whole("-@power_upper", PCBISAISetPowerUpper, "0", "2", 0, 4),
    Word("-@side", PCBISAISetSide, "rows", "columns", PC_BISAI_SIDE_COLUMNS, "left", 7).Shows("L inverted by rows, U by rows"),
    Word("-@factor", PCBISAISetFactor, "auto", "finepc", PC_BISAI_FACTOR_FINEPC, "host", 7).Shows(" (auto): "),
    Whole("-@factor_levels", PCBISAISetFactorLevels, "0", "1", 0, 1000),
    Word("-@factor_shift_type", PCBISAISetFactorShiftType, "NONE", "INBLOCKS", MAT_SHIFT_INBLOCKS, "some", 9)
      .Makes(Useless::Values)
      .With("-@factor petsc -@factor_shift_amount 0.5", ZeroPivot),
    Real("-@factor_shift_amount", PCBISAISetFactorShiftAmount, "2.22045e-14", "0.25", "must be at least 0", {"-1"}, {})
      .Makes(Useless::Values)
      .With("-@factor_shift_type inblocks -@factor_shift_amount 0.5", ZeroPivot),
    OptionOf{"-@factor_mat_ordering_type",
             "natural",
             "rcm",
             [](PC pc) { return PCBISAISetFactorMatOrderingType(pc, MATORDERINGRCM); },
             {Call(PCBISAISetFactorMatOrderingType, (MatOrderingType) "", "is empty")}},
    Whole("-@factor_sweeps", PCBISAISetFactorSweeps, "0", "2", 0, 1000).With("-@factor finepc"),
    Precision("-@factor_precision", PCBISAISetFactorPrecision),
    Whole("-@sweeps", PCBISAISetSweeps, "0", "1", 0, 1000),
  };
  return type;
}

/* -------------------------------------------- rrb --------------------------------------------- */

constexpr PetscInt kLine = 48, kLines = 45; /* of the good matrix */

Type MakeRRB()
{
  Type type{};
  type.name    = PCRRB;
  type.event   = "RRBFactor";
  type.solver  = "";
  type.kinds   = AIJKinds;
  type.remedy  = kOnlyAIJ;
  type.good    = [] { return Blocks(Diffusion(kLine, kLines, true, 2)); };
  type.pattern = [] { return Blocks(Diffusion(kLines, kLine, true, 13)); };
  type.size    = [] { return Blocks(Diffusion(24, 20, true, 14)); };
  type.large   = [] { return Blocks(Diffusion(310, 300, true, 15)); };
  type.ranks   = [] { return Blocks(Diffusion(20, 24, true, 16)); };
  type.few     = [] { return Blocks(FromDense(2, {2, -1, -1, 2})); };
  type.bad     = {
    {"The pivot of level 1 at point (3, 4)& is not positive: PCRRB needs a symmetric M-matrix", PC_FACTOR_NUMERIC_ZEROPIVOT,
         Point(3, 4, -1)},
    {"The pivot of level 1 at point (3, 4)& is not between 2.2e-308 and 4.5e+307, so that its inverse is no number",
         PC_FACTOR_NUMERIC_ZEROPIVOT, Point(3, 4, 1e-310)},
    /* Which point is named depends on the order in which the exact factorization of a twin meets what the zero has spoiled. */
    {"& is not positive: PCRRB needs a symmetric M-matrix", PC_FACTOR_NUMERIC_ZEROPIVOT, Point(4, 1, 0)},
    {"at point (3, 1)& is not positive: PCRRB needs a symmetric M-matrix", PC_FACTOR_NUMERIC_ZEROPIVOT, Point(3, 1, -2)},
  };
  type.patterns    = {""};
  type.variants    = {"", "-@levels 1", "-@levels 4", "-@levels 7 -@nx 0", "-@levels 100", "-@lift 0"};
  type.fresh       = type.variants;
  type.kept        = nullptr;
  type.others      = "-@levels 5 -@lift 0";
  type.exact       = {"-@levels 1"};
  type.exact_for   = [] { return std::vector<HostBlocks>{Blocks(Diffusion(37, 50, true, 6)), Blocks(Poisson(9, 9))}; };
  type.view_before = {"levels chosen by size"};
  type.view_after  = {"grid of 48 x 45 points (recognised from the matrix), 5-point stencil",
                      "levels 2 of 13 (chosen by size), exact factorization of 552 points",
                      "symmetry: no coupling one-sided, no pair of entries unequal", "zero pivots of a singular matrix 0"};
  type.view_ranks  = "grid of 20 x ";

  type.options = {
    Whole("-@levels", PCRRBSetLevels, "0", "7", 0, 128),
    Whole("-@nx", PCRRBSetNx, "0", "48", 0, 1000000000).Shows("(by the options)"),
    Whole("-@ny", PCRRBSetNy, "0", "45", 0, 1000000000).Shows("(by the options)"),
    Switch("-@lift", PCRRBSetLift).With("-@levels 3", [] { return Blocks(ShortOf(31, 0.5)); }),
  };
  return type;
}

/* ------------------------------------------ cmatch -------------------------------------------- */

/* Squares of another conductivity, a thousand times as large: couplings across their boundaries are weak. */
HostBlocks Jumps()
{
  HostMatrix A = Inclusions(60, 45, 1000);
  for (PetscInt row = 0; row < A.n; row++)
    for (PetscInt k = A.i[row]; k < A.i[row + 1]; k++)
      if (A.j[k] == row) A.a[k] += 0.01;
  return Blocks(A);
}

Type MakeCMATCH()
{
  Type type{};
  type.name    = PCCMATCH;
  type.event   = "CMATCHHierarchy";
  type.solver  = "";
  type.kinds   = PointKinds;
  type.remedy  = kPoints;
  type.good    = [] { return Blocks(Diffusion(60, 45, true, 21)); };
  type.pattern = [] { return Blocks(Diffusion(45, 60, true, 22)); };
  type.size    = [] { return Blocks(Diffusion(24, 20, true, 23)); };
  type.large   = [] { return Blocks(Diffusion(260, 250, true, 24)); };
  type.ranks   = [] { return Blocks(Diffusion(60, 40, true, 25)); };
  type.few     = [] { return Blocks(FromDense(2, {2, -1, -1, 2})); };
  type.bad     = {
    {"Row 5& has no diagonal entry: PCCMATCH needs", PC_FACTOR_NUMERIC_ZEROPIVOT, NoDiagonal(5), false},
    {"Row 7& has a diagonal entry that is not positive: PCCMATCH needs", PC_FACTOR_NUMERIC_ZEROPIVOT, Entry(7, 7, 0)},
    {"Row 9& has a diagonal entry that is not positive: PCCMATCH needs", PC_FACTOR_NUMERIC_ZEROPIVOT, Entry(9, 9, -2)},
    {"Row 11& has an entry that is not finite: PCCMATCH needs", PC_FACTOR_OTHER, Entry(11, 11, nan)},
    {"Row 12& has an entry that is not finite: PCCMATCH needs", PC_FACTOR_OTHER, Entry(12, 13, nan)},
    {"Row 14& has an entry that is not finite: PCCMATCH needs", PC_FACTOR_OTHER, Entry(14, 13, inf)},
  };
  type.block_local = " -@reach local";
  type.patterns    = {"", "-@reuse_pattern false"};
  type.variants    = {"", "-@reuse_pattern false", "-@precision double -@smoother chebyshev -@degree 2",
                      "-@coarsening mis2 -@smoother chebyshev4 -@degree 2", "-@coarse pcg -@coarse_size 20 -@precision double"};
  type.asymmetry   = [](const std::string &options) {
    return Contains(options, "coarse pcg") ? 0 : Contains(options, "precision double") ? 1e-13 : 1e-6;
  };
  type.fresh     = {"-@reuse_pattern false", "-test_max_levels 1", "-@precision double -@reuse_pattern false"};
  type.kept      = "aggregates and patterns kept from the last set-up";
  type.others    = "-@sweeps 2 -@degree 2 -@precision double";
  type.exact     = {"-@precision double", "-@precision double -@coarse_size 2048"};
  type.exact_for = [] {
    return std::vector<HostBlocks>{Blocks(Diffusion(14, 13, true, 26)), Blocks(Poisson(6, 6, 6)), Blocks(Poisson(9, 9))};
  };
  type.view_always     = {"coarsening by matching in 3 sweeps, strength 0.1\n", "prolongator smoothed, at most 4 entries per row\n",
                          "cycle v, smoother l1jacobi of degree 1, relaxation 1.5\n",
                          "coarsening ends at 300 rows, coarsest level dense\n",
                          "hierarchy and cycle in single precision, aggregates and patterns kept while the nonzeros of A stay\n"};
  type.view_after      = {"near null vector: the constants\n",
                          "\n  level      rows   nonzeros  a row  of above |",
                          "levels 2, operator complexity 1.",
                          "rows are few enough\n",
                          "solver of the last level: the dense inverse\n",
                          ", 2700 rows, ",
                          "set-up memory beyond A and the hierarchy: "};
  type.view_ranks      = ", 2400 rows, ";
  type.single_diagonal = true;

  type.options = {
    Word("-@coarsening", PCCMATCHSetCoarsening, "matching", "mis2", PC_CMATCH_MIS2, "pmis", 2),
    Whole("-@sweeps", PCCMATCHSetSweeps, "3", "2", 1, 5),
    Real("-@strength", PCCMATCHSetStrength, "0.1", "0.", "must be at least 0 and below 1", {"-0.1", "1"}, {1}).With("", Jumps),
    Whole("-@prolongator_row", PCCMATCHSetProlongatorRow, "4", "2", 1, 64),
    Word("-@smoother", PCCMATCHSetSmoother, "l1jacobi", "chebyshev4", PC_CMATCH_CHEBYSHEV4, "sor", 5),
    Whole("-@degree", PCCMATCHSetDegree, "1", "2", 1, 16),
    Real("-@relaxation", PCCMATCHSetRelaxation, "1.5", "1.", "must be above 0 and below 2", {"0", "2"}, {0, 2}),
    Word("-@coarse", PCCMATCHSetCoarse, "dense", "pcg", PC_CMATCH_PCG, "lu", 2),
    Whole("-@coarse_size", PCCMATCHSetCoarseSize, "300", "20", 1, 2048),
    Precision("-@precision", PCCMATCHSetPrecision),
    Whole("-@block_size", PCCMATCHSetBlockSize, "0", "2", 0, 6).Shows("block size 2\n"),
    Word("-@reach", PCCMATCHSetReach, "global", "local", PC_CMATCH_LOCAL, "far", 2)
      .Shows("on several ranks each has a hierarchy of its block\n"),
    Whole("-@gather_rows", PCCMATCHSetGatherRows, "100000", "7", 0, 1000000000).Shows("levels of at most 7 rows on one rank"),
    Whole("-@gather_ranks", PCCMATCHSetGatherRanks, "10000", "7", 0, 1000000000).Shows("with fewer than 7 a rank on"),
    Word("-@communication", PCCMATCHSetCommunication, "auto", "mpi", PC_CMATCH_COMMUNICATION_MPI, "pvm", 3)
      .Shows("communication between ranks on GPUs: mpi\n"),
    Switch("-@reuse_pattern", PCCMATCHSetReusePattern).Makes(Useless::Nothing).Shows("kept while the nonzeros of A stay"),
  };
  return type;
}

} // namespace

const std::vector<Type> &Types()
{
  static const std::vector<Type> types = {MakeAFSAI(), MakeSFSAI(), MakeBISAI(), MakeRRB(), MakeCMATCH()};
  return types;
}

const Type &TypeOf(PCType name)
{
  const auto &types = Types();
  return *std::find_if(types.begin(), types.end(), [&](const Type &type) { return !std::strcmp(type.name, name); });
}

/* ------------------------------- solvers, vectors, what comes out ----------------------------- */

std::string Type::Keys(const std::string &options) const
{
  std::string keys;
  for (char c : options) keys += c == '@' ? "pc_" + std::string(name) + "_" : c == '#' ? name : std::string(1, c);
  return keys;
}

std::string Type::Setter(const std::string &key) const
{
  std::string setter = "PC";
  for (const char *c = name; *c; c++) setter += (char)std::toupper(*c);
  setter += "Set";
  for (size_t k = 2; k < key.size(); k++) /* a word begins after - or _ */
    if (std::isalpha(key[k])) setter += (char)(std::isalpha(key[k - 1]) ? key[k] : std::toupper(key[k]));
  return setter;
}

/*
   Two limits of cmatch that are no options: how many ranks give their rows to one, whose eight would be all ranks of a test, and
   how many levels there are at most.
*/
static void SetLimits(PC pc)
{
  PetscBool is_cmatch;
  MUST(PetscObjectTypeCompare((PetscObject)pc, PCCMATCH, &is_cmatch));
  if (!is_cmatch) return;
  CMATCHParams &params = ((PC_CMATCH *)pc->data)->params;
  MUST(PetscOptionsGetInt(nullptr, nullptr, "-test_gather_factor", &params.gather_factor, nullptr));
  MUST(PetscOptionsGetInt(nullptr, nullptr, "-test_max_levels", &params.max_levels, nullptr));
}

AUTOCandidate Candidate(const char *name, const char *options, PetscInt limit, double iteration, double set_up)
{
  AUTOCandidate candidate;
  candidate.name      = name;
  candidate.options   = options;
  candidate.limit     = limit;
  candidate.iteration = iteration;
  candidate.set_up    = set_up;
  return candidate;
}

KSPObject MakeKSP(Mat A, const std::string &options, PCType type)
{
  const Options scope(options);
  KSPObject     ksp;
  PC            pc;
  MUST(KSPCreate(PetscObjectComm((PetscObject)A), ksp.put()));
  MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetType(ksp, KSPCG));
  MUST(KSPSetTolerances(ksp, 1e-8, 0, PETSC_CURRENT, 10000));
  MUST(KSPGetPC(ksp, &pc));
  MUST(PCSetType(pc, type));
  MUST(KSPSetFromOptions(ksp));
  SetLimits(pc);
  return ksp;
}

PCObject MakePC(Mat A, const std::string &options, PCType type)
{
  const Options scope(options);
  PCObject      pc;
  MUST(PCCreate(PetscObjectComm((PetscObject)A), pc.put()));
  MUST(PCSetType(pc, type));
  MUST(PCSetOperators(pc, A, A));
  MUST(PCSetFromOptions(pc));
  SetLimits(pc);
  return pc;
}

KSPObject MakeKSP(Mat A, const Type &type, const std::string &options)
{
  return MakeKSP(A, type.solver + type.Keys(options), type.name);
}

PCObject MakePC(Mat A, const Type &type, const std::string &options)
{
  return MakePC(A, type.Keys(options), type.name);
}

PC PCOf(KSP ksp)
{
  PC pc;
  MUST(KSPGetPC(ksp, &pc));
  return pc;
}

SolverWith::SolverWith(Mat A, const char ksp_type[], const char pc_type[], const std::string &text, double rtol) : options(text)
{
  MUST(KSPCreate(PetscObjectComm((PetscObject)A), ksp.put()));
  MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetType(ksp, ksp_type));
  MUST(PCSetType(pc(), pc_type));
  MUST(KSPSetTolerances(ksp, rtol, PETSC_CURRENT, PETSC_CURRENT, 2000));
  MUST(KSPSetFromOptions(ksp));
}

void SolverWith::Use(FinePCBackend backend) const
{
  MUST(PCFinePCSetBackend(pc(), backend));
  MUST(KSPFinePCSetBackend(ksp, backend));
}

MatObject InBlocks(const HostMatrix &H, MatType type, MPI_Comm comm, PetscInt bs)
{
  const MatObject A = CreateMat(H, MATAIJ, comm);
  MatObject       B;
  MUST(MatSetBlockSize(A, bs));
  MUST(MatSetOption(A, MAT_SYMMETRIC, PETSC_TRUE));
  MUST(MatConvert(A, type, MAT_INITIAL_MATRIX, B.put()));
  return B;
}

std::vector<double> Values(Vec x)
{
  const PetscScalar *array;
  PetscInt           n;
  MUST(VecGetLocalSize(x, &n));
  MUST(VecGetArrayRead(x, &array));
  const std::vector<double> values(array, array + n);
  MUST(VecRestoreArrayRead(x, &array));
  return values;
}

VecObject RightVec(Mat A, std::uint64_t seed)
{
  VecObject    x;
  PetscScalar *array;
  PetscInt     begin, end;
  Random       random(seed);
  MUST(MatCreateVecs(A, nullptr, x.put()));
  MUST(VecGetOwnershipRange(x, &begin, &end));
  MUST(VecGetArrayWrite(x, &array));
  for (PetscInt k = 0; k < end; k++) {
    const double value = random.Between(-1, 1);
    if (k >= begin) array[k - begin] = value;
  }
  MUST(VecRestoreArrayWrite(x, &array));
  return x;
}

HostBlocks Sheet(LocalInt n, double kx, double ky, double shift, const std::function<bool(LocalInt, LocalInt)> &broken)
{
  HostMatrix A = Poisson(n, n);
  for (LocalInt row = 0; row < A.n; row++) {
    LocalInt diagonal = 0;
    double   sum      = 0;
    for (LocalInt k = A.i[row]; k < A.i[row + 1]; k++) {
      const LocalInt column = A.j[k];
      if (column == row) diagonal = k;
      else {
        A.a[k] = broken && broken(row, column) ? 0 : column == row + 1 || column == row - 1 ? -kx : -ky;
        sum -= A.a[k];
      }
    }
    A.a[diagonal] = sum + shift;
  }
  return Blocks(A);
}

std::vector<double> Applied(PC pc, bool transpose)
{
  Mat       A;
  VecObject y;
  MUST(PCGetOperators(pc, nullptr, &A));
  const VecObject x = RightVec(A);
  MUST(VecDuplicate(x, y.put()));
  MUST(VecSet(y, std::nan("")));
  if (transpose) MUST(PCApplyTranspose(pc, x, y));
  else MUST(PCApply(pc, x, y));
  return Values(y);
}

std::vector<double> AppliedFactors(PC pc, const Type &type)
{
  MatObject first, second;
  VecObject w, y;
  MUST(type.get_factors(pc, first.put(), second.put()));
  const VecObject x = RightVec(first);
  MUST(VecDuplicate(x, w.put()));
  MUST(VecDuplicate(x, y.put()));
  MUST(MatMult(first, x, w));
  MUST(MatMult(second, w, y));
  return Values(y);
}

bool Finite(const std::vector<double> &x)
{
  return std::all_of(x.begin(), x.end(), [](double value) { return std::isfinite(value); });
}

bool Infinite(const std::vector<double> &x)
{
  return std::all_of(x.begin(), x.end(), [](double value) { return std::isinf(value); });
}

double Difference(const std::vector<double> &x, const std::vector<double> &y)
{
  double worst = x.size() == y.size() ? 0 : 1, largest = 1e-300;
  for (size_t k = 0; k < std::min(x.size(), y.size()); k++) {
    const double off = std::fabs(x[k] - y[k]);
    worst            = off <= worst ? worst : off;
    largest          = std::max(largest, std::fabs(y[k]));
  }
  return worst / largest;
}

void SetConstantsNull(Mat A)
{
  MatNullSpace constants;
  MUST(MatNullSpaceCreate(PetscObjectComm((PetscObject)A), PETSC_TRUE, 0, nullptr, &constants));
  MUST(MatSetNullSpace(A, constants));
  MUST(MatNullSpaceDestroy(&constants));
}

Solution Solve(KSP ksp)
{
  Solution         solution;
  Mat              A;
  VecObject        x;
  const PetscReal *history;
  PetscInt         count;
  MUST(KSPGetOperators(ksp, &A, nullptr));
  const VecObject b = RightVec(A, 2);
  MatNullSpace    null_space;
  MUST(MatGetNullSpace(A, &null_space));
  if (null_space) MUST(MatNullSpaceRemove(null_space, b));
  MUST(VecDuplicate(b, x.put()));
  MUST(KSPSetResidualHistory(ksp, nullptr, 10000, PETSC_TRUE));
  MUST(KSPSolve(ksp, b, x));
  MUST(KSPGetResidualHistory(ksp, &history, &count));
  solution.reason     = ReasonOf(ksp);
  solution.iterations = IterationsOf(ksp);
  solution.history.assign(history, history + count);
  solution.true_residual = ResidualOf(A, b, x);
  return solution;
}

static PetscErrorCode MultiplyCounted(Mat shell, Vec x, Vec y)
{
  Counted *counted;

  PetscFunctionBegin;
  PetscCall(MatShellGetContext(shell, &counted));
  counted->products++;
  PetscCall(MatMult(counted->A, x, y));
  PetscFunctionReturn(PETSC_SUCCESS);
}

MatObject ShellOf(Counted *counted)
{
  MatObject shell;
  PetscInt  n, N;
  VecType   type;
  MUST(MatGetVecType(counted->A, &type));
  MUST(MatGetLocalSize(counted->A, &n, nullptr));
  MUST(MatGetSize(counted->A, &N, nullptr));
  MUST(MatCreateShell(PETSC_COMM_WORLD, n, n, N, N, counted, shell.put()));
  MUST(MatShellSetVecType(shell, type));
  MUST(MatShellSetOperation(shell, MATOP_MULT, (void (*)(void))MultiplyCounted));
  return shell;
}

std::vector<int> CountEvents(const std::vector<std::string> &names, const std::function<void()> &f)
{
  std::vector<int>    counts;
  PetscLogHandler     handler;
  PetscLogEvent       event;
  PetscEventPerfInfo *info;
  MUST(PetscLogHandlerCreate(PETSC_COMM_WORLD, &handler));
  MUST(PetscLogHandlerSetType(handler, PETSCLOGHANDLERDEFAULT));
  MUST(PetscLogHandlerStart(handler));
  f();
  for (const std::string &name : names) {
    MUST(PetscLogEventGetId(name.c_str(), &event));
    REQUIRE(event > 0);
    MUST(PetscLogHandlerGetEventPerfInfo(handler, 0, event, &info));
    counts.push_back(info->count);
  }
  MUST(PetscLogHandlerStop(handler));
  MUST(PetscLogHandlerDestroy(&handler));
  return counts;
}

HostBlocks Far(LocalInt n, LocalInt bs)
{
  const size_t bs2 = (size_t)bs * bs;
  HostBlocks   A;
  A.bs = bs;
  A.n  = n;
  for (LocalInt row = 0; row < n; row++) {
    for (LocalInt column : {row - n / 2, row, row + n / 2}) {
      if (column < 0 || column >= n) continue;
      A.j.push_back(column);
      A.a.resize(A.j.size() * bs2);
      for (LocalInt c = 0; c < bs; c++) A.a[(A.j.size() - 1) * bs2 + c * bs + c] = column == row ? 0.2 : -0.05;
    }
    A.i.push_back((LocalInt)A.j.size());
  }
  return A;
}

void ChangeValues(Mat A, double factor)
{
  PetscInt begin, end;
  MUST(MatGetOwnershipRange(A, &begin, &end));
  MUST(MatSetOption(A, MAT_NEW_NONZERO_LOCATION_ERR, PETSC_TRUE));
  for (PetscInt row = begin; row < end; row++) MUST(MatSetValue(A, row, row, factor * (1 + row % 3), ADD_VALUES));
  Assemble(A);
}

void Touch(Mat A)
{
  MUST(PetscObjectStateIncrease((PetscObject)A));
}

PCInverse *InverseOf(PC pc)
{
  PetscErrorCode (*query)(PC, PCInverse **);
  PCInverse *inverse;
  MUST(PetscObjectQueryFunction((PetscObject)pc, kInverseQuery, &query));
  REQUIRE(query != nullptr);
  MUST(query(pc, &inverse));
  return inverse;
}

PetscReal ErrorOfDiagonal(PC pc, const Type &type)
{
  Mat       A;
  MatObject G, Gt, plain, product;
  VecObject diagonal;
  PetscReal norm;
  MUST(PCGetOperators(pc, nullptr, &A));
  MUST(type.get_factors(pc, G.put(), Gt.put()));
  MUST(MatConvert(A, MATAIJ, MAT_INITIAL_MATRIX, plain.put()));
  MUST(MatMatMatMult(G, plain, Gt, MAT_INITIAL_MATRIX, PETSC_DEFAULT, product.put()));
  MUST(MatCreateVecs(product, nullptr, diagonal.put()));
  MUST(MatGetDiagonal(product, diagonal));
  MUST(VecShift(diagonal, -1));
  MUST(VecNorm(diagonal, NORM_INFINITY, &norm));
  return norm;
}

Levels LevelsOf(PC pc)
{
  Levels   levels;
  PetscInt count;
  Mat     *A, *P;
  MUST(PCCMATCHGetHierarchy(pc, &count, &A, &P));
  levels.A.resize(count);
  levels.P.resize(count - 1);
  for (PetscInt l = 0; l < count; l++) *levels.A[l].put() = A[l];
  for (PetscInt l = 0; l + 1 < count; l++) *levels.P[l].put() = P[l];
  MUST(PetscFree(A));
  MUST(PetscFree(P));
  return levels;
}

void SolveOnTwoStreams(PetscStreamType                              type, KSPObject (&ksp)[2], VecObject (&b)[2], VecObject (&x)[2],
                       const std::function<void(int round, int k)> &change,
                       const std::function<void(int round, int k, KSPConvergedReason reason, PetscInt iterations)> &check)
{
  PetscDeviceContext old_context, context[2];
  MUST(PetscDeviceContextGetCurrentContext(&old_context));
  MUST(PetscDeviceContextSynchronize(old_context));
  for (PetscDeviceContext &other : context) {
    MUST(PetscDeviceContextDuplicate(old_context, &other));
    MUST(PetscDeviceContextSetStreamType(other, type));
    MUST(PetscDeviceContextSetUp(other));
  }
  for (int round = 0; round < 4; round++) {
    for (int k = 0; k < 2; k++) {
      MUST(PetscDeviceContextSetCurrentContext(context[k]));
      if (change) change(round, k);
      MUST(KSPSolve(ksp[k], b[k], x[k])); /* the other solver's kernels may still be under way */
    }
    for (int k = 0; k < 2; k++) {
      CAPTURE(round, k);
      MUST(PetscDeviceContextSetCurrentContext(context[k]));
      MUST(PetscDeviceContextSynchronize(context[k]));
      check(round, k, ReasonOf(ksp[k]), IterationsOf(ksp[k]));
    }
  }
  for (int k = 0; k < 2; k++) {
    ksp[k].Reset();
    MUST(PetscDeviceContextSynchronize(context[k]));
  }
  MUST(PetscDeviceContextSetCurrentContext(old_context));
  for (PetscDeviceContext &other : context) MUST(PetscDeviceContextDestroy(&other));
}

const std::string &WhyNoNCCL()
{
  static std::string reason;
  static MPI_Comm    held = MPI_COMM_NULL;
  if (held == MPI_COMM_NULL) {
    NCCL       *nccl;
    const char *why;
    MUST(PetscCommDuplicate(PETSC_COMM_WORLD, &held, nullptr));
    MUST(NCCLOf(held, &nccl, &why));
    reason = why;
  }
  return reason;
}
