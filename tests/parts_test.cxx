/*
   Parts of the ranks: what reaches other ranks is set up and applied on communicators that are parts of PETSC_COMM_WORLD, as
   PCBJACOBI with blocks of several ranks, PCGASM, PCTELESCOPE and programs make them. The parts have different matrices and take
   different numbers of steps, so that what waits for all ranks, or takes numbers of all of them, does not end, or is wrong.
*/
#include <petsc/private/pcimpl.h>

#include <algorithm>

#include "spread.h"

namespace
{

/* A communicator of these ranks, and of the others. */
class Part {
public:
  explicit Part(int color) : color(color) { MPI_Comm_split(PETSC_COMM_WORLD, color, Rank(), &comm); }
  ~Part() { MPI_Comm_free(&comm); }
  Part(const Part &)               = delete;
  Part    &operator=(const Part &) = delete;
  int      color;
  MPI_Comm comm;
};

/* Of 3 ranks and of 4 the first two are a part, and the others one, as PetscSubcomm divides them. */
int PartOf(int rank)
{
  return rank < (Ranks() + 1) / 2 ? 0 : 1;
}

/* The matrix of each part: the second one has more levels, longer rows and more of them. */
const HostMatrix &MatrixOf(int part)
{
  static const HostMatrix both[] = {Diffusion(17, 13, true, 61), RandomStencil(9, 8, 9, false, 3)};
  return both[part];
}

/* How many rows each rank has: the ranks of a part share its matrix unevenly. */
LocalInt RowsOf(int rank)
{
  const int      part = PartOf(rank), first = part ? (Ranks() + 1) / 2 : 0, size = part ? Ranks() - first : (Ranks() + 1) / 2;
  const LocalInt n = MatrixOf(part).n, less = size > 1 ? 20 : 0;
  return Even(n - less, rank - first, size) + (rank == first ? less : 0);
}

/* Both matrices, one behind the other, and weak couplings between their rows. */
HostMatrix Coupled()
{
  std::vector<std::vector<std::pair<LocalInt, PetscScalar>>> rows;
  const LocalInt                                             shift = MatrixOf(0).n;
  for (int part = 0; part < 2; part++) {
    const HostMatrix &A = MatrixOf(part);
    for (LocalInt i = 0; i < A.n; i++) {
      rows.emplace_back();
      if (part && i < shift) rows.back().push_back({i, -1e-3});
      for (LocalInt k = A.i[i]; k < A.i[i + 1]; k++) rows.back().push_back({A.j[k] + part * shift, A.a[k]});
      if (!part) rows.back().push_back({i + shift, -1e-3});
    }
  }
  return FromRows(rows);
}

MatObject CoupledMat()
{
  return Spread(Coupled(), MATAIJ, [](LocalInt n, int rank, int) -> LocalInt { return n ? RowsOf(rank) : 0; });
}

/* The solver of a part: one application, or a solve to a residual of 1e-9. */
struct Inner {
  PCType      type;
  bool        solves;
  std::string options; /* @ stands for the prefix */
};

std::vector<Inner> Inners()
{
  const std::string  small = " -@pc_cmatch_coarse_size 20 -@pc_cmatch_gather_rows 50 -@pc_cmatch_gather_ranks 0";
  std::vector<Inner> all{{PCCMATCH, false, small},
                         {PCCMATCH, false, ""},
                         {PCCMATCH, false, small + " -@pc_cmatch_smoother sfsai"},
                         {PCAFSAI, false, " -@pc_afsai_overlap 1"},
                         {PCAFSAI, false, " -@pc_afsai_overlap 2 -@pc_afsai_postfilter 0.02"},
                         {PCSFSAI, false, " -@pc_sfsai_overlap 1 -@pc_sfsai_power 2"},
                         {PCCMATCH, true, small},
                         {PCAFSAI, true, " -@pc_afsai_overlap 1"},
                         {PCSFSAI, true, " -@pc_sfsai_overlap 1"}};
  for (Inner &inner : all)
    inner.options = (inner.solves ? "-@ksp_type cgfused -@ksp_rtol 1e-9 -@ksp_norm_type unpreconditioned -@pc_type "
                                  : "-@ksp_type preonly -@pc_type ") +
                    std::string(inner.type) + inner.options;
  return all;
}

std::string With(std::string options, const std::string &prefix)
{
  for (size_t at; (at = options.find('@')) != std::string::npos;) options.replace(at, 1, prefix);
  return options;
}

const std::string kFlexible = "-ksp_type fcg -ksp_rtol 1e-8 -ksp_norm_type unpreconditioned -pc_type ";

/* The KSP of options alone. Solvers of parts read their options in its set-up. */
KSPObject SolverOf(Mat A, const std::string &options)
{
  const Options scope(options);
  KSPObject     ksp;
  MUST(KSPCreate(PetscObjectComm((PetscObject)A), ksp.put()));
  MUST(KSPSetOperators(ksp, A, A));
  MUST(KSPSetFromOptions(ksp));
  MUST(KSPSetUp(ksp));
  MUST(KSPSetUpOnBlocks(ksp));
  return ksp;
}

/* The part of the first rank has the solver that was asked for, and a factor or a hierarchy of all its ranks. */
void CheckInner(KSP ksp, const Inner &inner)
{
  const std::string text = ViewText(ksp);
  CAPTURE(text);
  if (Rank()) return;
  CHECK(Contains(text, std::string("type: ") + inner.type + "\n"));
  CHECK(Contains(text, "type: cgfused\n") == inner.solves);
  CHECK(Contains(text, std::string(inner.type) == PCCMATCH ? "level    ranks  rows a rank" : "gathered rows of other ranks: "));
  CHECK(!Contains(text, "block-local"));
}

/* This rank's part of the solution for these entries of the right-hand side. */
std::vector<double> Solved(KSP ksp, const std::vector<double> &b)
{
  Mat          A;
  VecObject    x, right;
  PetscScalar *array;
  PetscInt     n;
  MUST(KSPGetOperators(ksp, &A, nullptr));
  MUST(MatCreateVecs(A, x.put(), right.put()));
  MUST(VecGetLocalSize(right, &n));
  REQUIRE(n == (PetscInt)b.size());
  MUST(VecGetArrayWrite(right, &array));
  std::copy(b.begin(), b.end(), array);
  MUST(VecRestoreArrayWrite(right, &array));
  MUST(KSPSolve(ksp, right, x));
  return Values(x);
}

bool SameOnAll(bool mine)
{
  int all = mine;
  MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, PETSC_COMM_WORLD);
  return all;
}

} // namespace

/* Each block of PCBJACOBI has the bits that a program gets which has nothing but that block, on a communicator of its own. */
TEST_CASE("parts of ranks: blocks of PCBJACOBI that several ranks have", "[parts][nest][pc][mpi][four]")
{
  if (Ranks() != 3 && Ranks() != 4) {
    SkipTest();
    return;
  }
  const MatObject  A = CoupledMat();
  const Part       part(PartOf(Rank()));
  const HostMatrix mine = MatrixOf(part.color);
  const MatObject  own  = CreateMat(mine, MATAIJ, part.comm, RowsOf(Rank()));
  for (const Inner &inner : Inners()) {
    CAPTURE(inner.options);
    const std::string outer  = "-ksp_type preonly -pc_type bjacobi -pc_bjacobi_blocks 2 ";
    const KSPObject   blocks = SolverOf(A, outer + With(inner.options, "sub_")), alone = SolverOf(own, With(inner.options, ""));
    const VecObject   b       = RightVec(A, 3);
    const auto        entries = Values(b), expected = Solved(alone, entries), found = Solved(blocks, entries);
    CHECK(SameOnAll(Finite(found)));
    CHECK(SameBits(found, expected));
    CheckInner(blocks, inner);
    /* and with other values on the same nonzeros */
    for (const Mat M : {(Mat)A, (Mat)own}) MUST(MatScale(M, 3.));
    CHECK(SameBits(Solved(blocks, entries), Solved(alone, entries)));
    for (const Mat M : {(Mat)A, (Mat)own}) MUST(MatScale(M, 1. / 3.));

    /* a solve of all ranks around the blocks */
    const KSPObject around   = SolverOf(A, kFlexible + ("bjacobi -pc_bjacobi_blocks 2 " + With(inner.options, "sub_")));
    const Solution  solution = Solve(around);
    CHECK(solution.reason == KSP_CONVERGED_RTOL);
    CHECK(solution.true_residual <= 1e-7);
    if (inner.solves) CHECK(solution.iterations <= 6); /* the blocks are solved, and couplings between them are weak */
  }
}

/* The ranks that PCTELESCOPE leaves out wait, and those that it takes have the iterations of as many ranks. */
TEST_CASE("parts of ranks: PCTELESCOPE", "[parts][nest][pc][mpi][four]")
{
  if (Ranks() != 4) {
    SkipTest();
    return;
  }
  const HostMatrix H = Diffusion(40, 35, true, 62);
  const MatObject  A = Spread(H, MATAIJ, Even);
  const Part       half(Rank() % 2); /* the even ranks, as an interlaced PetscSubcomm has them */
  const MatObject  own = CreateMat(H, MATAIJ, half.comm);
  for (const Inner &inner : Inners()) {
    CAPTURE(inner.options);
    const std::string half_of_them = "telescope -pc_telescope_reduction_factor 2 ";
    const KSPObject   ksp          = SolverOf(A, kFlexible + half_of_them + With(inner.options, "telescope_"));
    const KSPObject   alone        = SolverOf(own, kFlexible + ("ksp " + With(inner.options, "ksp_")));
    const Solution    solution = Solve(ksp), expected = Solve(alone);
    CHECK(solution.reason == KSP_CONVERGED_RTOL);
    CHECK(solution.true_residual <= 1e-7);
    CheckInner(ksp, inner);
    CHECK(expected.reason == KSP_CONVERGED_RTOL);
    CHECK(solution.iterations == expected.iterations);
  }
}

/* Subdomains of two ranks each, which overlap. */
TEST_CASE("parts of ranks: subdomains of PCGASM that several ranks have", "[parts][nest][pc][mpi][four]")
{
  if (Ranks() != 4) {
    SkipTest();
    return;
  }
  const HostMatrix H = Diffusion(40, 35, true, 63);
  const MatObject  A = Spread(H, MATAIJ, Even);
  for (const Inner &inner : Inners()) {
    CAPTURE(inner.options);
    const std::string parts[] = {"gasm -pc_gasm_total_subdomains 2 -pc_gasm_overlap 1 -pc_gasm_type basic ",
                                 "bjacobi -pc_bjacobi_blocks 2 "};
    const KSPObject   ksp     = SolverOf(A, kFlexible + parts[0] + With(inner.options, "sub_")),
                    apart     = SolverOf(A, kFlexible + parts[1] + With(inner.options, "sub_"));
    const Solution solution = Solve(ksp), blocks = Solve(apart);
    CHECK(solution.reason == KSP_CONVERGED_RTOL);
    CHECK(solution.true_residual <= 1e-7);
    CheckInner(ksp, inner);
    CHECK(solution.iterations <= 2 * blocks.iterations);
  }
}

/* Two parts solve at once, each with what it has, while the other one has another number of iterations, or none. */
TEST_CASE("parts of ranks: programs beside each other", "[parts][nest][pc][mpi][four]")
{
  if (Ranks() != 3 && Ranks() != 4) {
    SkipTest();
    return;
  }
  const Part      part(PartOf(Rank()));
  const MatObject own = CreateMat(MatrixOf(part.color), MATAIJ, part.comm, RowsOf(Rank()));
  for (const Inner &inner : Inners())
    for (int busy : {0, 1}) { /* this part alone */
      CAPTURE(inner.options, busy);
      if (part.color != busy) continue;
      const std::string around   = inner.solves ? "" : kFlexible + "ksp ";
      const Solution    solution = Solve(SolverOf(own, around + With(inner.options, inner.solves ? "" : "ksp_")));
      CHECK(solution.reason == KSP_CONVERGED_RTOL);
      CHECK(solution.true_residual <= 2e-8);
    }
}
