/*
   Memory ends in the midst of everything: the n-th allocation fails, for all n of a life of each type, and for some n of lives with
   other options. Whatever PETSc has called
   returns PETSC_ERR_MEM then; the objects can be used again, if they got as far as their type, and destroyed; nothing is lost.
*/
#include <finepc.h>

#include <cstdlib>

#include "blocks.h"
#include "matrices.h"
#include "spread.h"

namespace
{

/* What is made, used and destroyed again. */
struct Life {
  const char *name, *ksp, *pc, *options;
  HostBlocks (*matrix)();
  long    stride = 1; /* every so many allocations fail */
  MatType mat    = MATAIJ;
};
constexpr long kOfVariants = 11; /* with FINEPC_TEST_ALL in the environment 1 */

HostBlocks Points()
{
  return Blocks(Diffusion(6, 5, true, 3));
}
HostBlocks FewPoints()
{
  return Blocks(Diffusion(3, 3, true, 4));
}
HostBlocks BlocksOfTwo()
{
  return RandomBlocks(RandomStencil(4, 3, 1, false, 5), 2, 6);
}
HostBlocks FewBlocks()
{
  return RandomBlocks(RandomStencil(2, 2, 1, false, 5), 2, 6);
}
/* On no grid of rrb, which has a text about that. */
HostBlocks NoGrid()
{
  return Blocks(RandomGraph(20, 4, 7));
}
/* With a row that no type can take. */
HostBlocks Bad()
{
  HostBlocks A = Points();
  for (PetscInt k = A.i[7]; k < A.i[8]; k++) A.a[k] = 0;
  return A;
}

const Life kLives[] = {
  {"afsai", KSPCG, PCAFSAI, "-pc_afsai_max_steps 2", FewPoints},
  {"afsai, double", KSPCG, PCAFSAI, "-pc_afsai_max_steps 2 -pc_afsai_setup_precision double -pc_afsai_reuse_pattern", FewPoints,
   kOfVariants},
  {"afsai, bad", KSPCG, PCAFSAI, "", Bad, kOfVariants},
  {"sfsai", KSPCG, PCSFSAI, "", FewPoints},
  {"sfsai, filters", KSPCG, PCSFSAI, "-pc_sfsai_postfilter 0.1 -pc_sfsai_max_row 4 -pc_sfsai_reuse_pattern 0", Points, kOfVariants},
  {"bisai", KSPBCGS, PCBISAI, "-pc_bisai_sweeps 1", FewBlocks},
  {"bisai, order", KSPBCGS, PCBISAI, "-pc_bisai_factor_levels 1 -pc_bisai_factor_mat_ordering_type rcm", BlocksOfTwo, kOfVariants},
  {"bisai, own factor", KSPBCGS, PCBISAI, "-pc_bisai_factor cuda -pc_bisai_power 2", BlocksOfTwo, kOfVariants},
  {"bisai, blocks", KSPBCGS, PCBISAI, "", BlocksOfTwo, kOfVariants, MATBAIJ},
  {"baijcuda", KSPBCGS, PCBISAI, "", FewBlocks, 1, MATBAIJCUDA},
  {"rrb", KSPCG, PCRRB, "", Points},
  {"rrb, no grid", KSPCG, PCRRB, "", NoGrid, kOfVariants},
  {"rrb, bad", KSPCG, PCRRB, "", Bad, kOfVariants},
  {"rrbcg", KSPRRBCG, PCRRB, "-ksp_rrbcg_graph 0", Points},
  {"cmatch", KSPCG, PCCMATCH, "-pc_cmatch_coarse_size 2", FewPoints},
  {"cmatch, double", KSPCG, PCCMATCH, "-pc_cmatch_coarse_size 3 -pc_cmatch_precision double", Points, kOfVariants},
  {"cmatch, mis2", KSPCG, PCCMATCH, "-pc_cmatch_coarse_size 3 -pc_cmatch_coarsening mis2 -pc_cmatch_coarse pcg", Points,
   kOfVariants},
  {"cmatch, sfsai", KSPCG, PCCMATCH, "-pc_cmatch_coarse_size 4 -pc_cmatch_smoother sfsai", Points, kOfVariants},
  {"cmatch, afsai", KSPCG, PCCMATCH, "-pc_cmatch_coarse_size 4 -pc_cmatch_smoother afsai -pc_cmatch_reuse_pattern 0", FewPoints,
   kOfVariants},
  {"cgfused", KSPCGFUSED, PCSFSAI, "-ksp_cg_single_reduction -ksp_cgfused_path general", FewPoints},
  {"gmresfused", KSPGMRESFUSED, PCBISAI, "-ksp_gmresfused_flexible", FewPoints},
  {"cgfused, rrb", KSPCGFUSED, PCRRB, "-ksp_cgfused_path general", Points, kOfVariants},
};

struct Objects {
  KSP         ksp = nullptr;
  Mat         A   = nullptr;
  Vec         x = nullptr, b = nullptr;
  PetscViewer viewer = nullptr;
  bool        typed  = false; /* the solver and the preconditioner have their types */
};

/* All without assertions, which would allocate. */
PetscErrorCode Create(const Life &life, const HostBlocks &A, Objects *o)
{
  PC pc;

  PetscFunctionBegin;
  PetscCall(MatCreate(PETSC_COMM_SELF, &o->A));
  PetscCall(MatSetSizes(o->A, A.n * A.bs, A.n * A.bs, A.n * A.bs, A.n * A.bs));
  PetscCall(MatSetBlockSize(o->A, A.bs));
  PetscCall(MatSetType(o->A, life.mat));
  PetscCall(MatSetUp(o->A));
  for (PetscInt i = 0; i < A.n; i++)
    for (PetscInt k = A.i[i]; k < A.i[i + 1]; k++) {
      PetscCall(MatSetOption(o->A, MAT_ROW_ORIENTED, PETSC_FALSE));
      const PetscInt j = A.j[k];
      PetscCall(MatSetValuesBlocked(o->A, 1, &i, 1, &j, &A.a[(size_t)k * A.bs * A.bs], INSERT_VALUES));
    }
  PetscCall(MatAssemblyBegin(o->A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatAssemblyEnd(o->A, MAT_FINAL_ASSEMBLY));
  PetscCall(MatCreateVecs(o->A, &o->x, &o->b));
  PetscCall(VecSet(o->b, 1));
  PetscCall(PetscViewerASCIIOpen(PETSC_COMM_SELF, "/dev/null", &o->viewer));
  PetscCall(KSPCreate(PETSC_COMM_SELF, &o->ksp));
  PetscCall(KSPSetOperators(o->ksp, o->A, o->A));
  PetscCall(KSPGetPC(o->ksp, &pc));
  PetscCall(PCSetType(pc, life.pc));
  PetscCall(KSPSetType(o->ksp, life.ksp));
  o->typed = true;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* As new, with new values, and after a reset. */
PetscErrorCode Use(Objects *o, int rounds)
{
  PC  pc;
  Vec built;

  PetscFunctionBegin;
  PetscCall(KSPSetFromOptions(o->ksp));
  PetscCall(KSPGetPC(o->ksp, &pc));
  for (int round = 0; round < rounds; round++) {
    if (round == 1) PetscCall(MatScale(o->A, 2));
    if (round == 2) PetscCall(KSPReset(o->ksp));
    if (round == 2) PetscCall(KSPSetOperators(o->ksp, o->A, o->A));
    PetscCall(KSPSetUp(o->ksp));
    PetscCall(KSPSolve(o->ksp, o->b, o->x));
    PetscCall(KSPBuildSolution(o->ksp, nullptr, &built));
    PetscCall(PCApplyTranspose(pc, o->b, o->x));
    PetscCall(KSPView(o->ksp, o->viewer));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode Destroy(Objects *o)
{
  PetscFunctionBegin;
  PetscCall(KSPDestroy(&o->ksp));
  PetscCall(PetscViewerDestroy(&o->viewer));
  PetscCall(VecDestroy(&o->x));
  PetscCall(VecDestroy(&o->b));
  PetscCall(MatDestroy(&o->A));
  PetscFunctionReturn(PETSC_SUCCESS);
}

struct Result {
  PetscErrorCode code = PETSC_SUCCESS, destroyed = PETSC_SUCCESS;
  PetscErrorCode again  = PETSC_SUCCESS; /* of the second attempt, after an error */
  bool           failed = false;         /* an allocation has */
};

/* A life in which the n-th allocation fails, of objects that otherwise end with `good`. */
Result Live(const Life &life, const HostBlocks &A, FailingMemory::Through kind, long n, PetscErrorCode good)
{
  Result  result;
  Objects o;
  {
    const FailingMemory failing(kind, n);
    result.code = Create(life, A, &o);
    if (!result.code) result.code = Use(&o, 3);
    result.failed = failing.Failed();
  }
  result.again     = result.code && o.typed ? Use(&o, 1) : good;
  result.destroyed = Destroy(&o);
  return result;
}

} // namespace

/* The life ends well, or with PETSC_ERR_MEM where an allocation fails. */
static void CheckLife(const Life &life, FailingMemory::Through kind)
{
  const long       stride = std::getenv("FINEPC_TEST_ALL") ? 1 : life.stride;
  const Options    options(life.options);
  const HostBlocks A = life.matrix();
  PetscErrorCode   good;
  bool             failed = true;
  {
    const Errors errors;
    good = Live(life, A, kind, 0, PETSC_SUCCESS).code; /* what is loaded or registered once is there now */
  }
  for (long n = 1; failed; n += stride) {
    const PetscLogDouble bytes  = HostBytes();
    const long           living = LivingMemory();
    Result               result;
    {
      const Errors errors;
      result = Live(life, A, kind, n, good);
    }
    failed                          = result.failed;
    const PetscLogDouble lost_bytes = HostBytes() - bytes;
    const long           lost       = LivingMemory() - living;
    const PetscErrorCode expected   = failed ? PETSC_ERR_MEM : good;
    if (result.code == expected && result.again == good && !result.destroyed && !lost_bytes && !lost) continue;
    CAPTURE(n, failed);
    CHECK((int)result.code == (int)expected);
    CHECK((int)result.again == (int)good);
    CHECK(result.destroyed == PETSC_SUCCESS);
    CHECK(lost_bytes == 0);
    CHECK(lost == 0);
  }
}

TEST_CASE("memory ends: an error, nothing is lost, and the objects are as good as new", "[memory][long]")
{
  for (const Life &life : kLives) {
    DYNAMIC_SECTION(life.name << ", new")
    {
      CheckLife(life, FailingMemory::Through::New);
    }
    DYNAMIC_SECTION(life.name << ", PETSc")
    {
      CheckLife(life, FailingMemory::Through::PETSc);
    }
  }
}

/* Vectors and solvers of PETSc are not in this, since PETSc's own code for GPUs ends the program where new fails. */
TEST_CASE("memory ends in a set-up on a GPU", "[memory][gpu]")
{
  NEEDS_DEVICE();
  if (!kPetscHasCUDA) return SkipTest(); /* there are no matrices there */
  ForEachKind([&](const Type &type, const Kind &kind) {
    if (!kind.OnDevice()) return;
    for (const auto through : {FailingMemory::Through::New, FailingMemory::Through::PETSc}) {
      const MatObject A      = kind.Create(type.few());
      bool            failed = true;
      MUST(PCSetUp(MakePC(A, type))); /* what is loaded or registered once is there now */
      for (long n = 1; failed; n++) {
        const PetscLogDouble bytes = DeviceBytes();
        PetscErrorCode       code, again;
        {
          const PCObject pc = MakePC(A, type);
          {
            const Errors        errors;
            const FailingMemory failing(through, n);
            code   = PCSetUp(pc);
            failed = failing.Failed();
          }
          again = PCSetUp(pc);
        }
        const PetscLogDouble lost = DeviceBytes() - bytes;
        if (code == (failed ? PETSC_ERR_MEM : PETSC_SUCCESS) && !again && !lost) continue;
        CAPTURE(type.name, kind.name, (int)through, n, failed);
        CHECK((int)code == (int)(failed ? PETSC_ERR_MEM : PETSC_SUCCESS));
        CHECK((int)again == PETSC_SUCCESS);
        CHECK(lost == 0);
      }
    }
  });
}

/* The ranks count their allocations apart, so that the loop ends when there is none left on the rank that has no memory. */
TEST_CASE("several ranks: memory ends on one of them, and all of them get an error", "[memory][mpi][two]")
{
  for (const Type &type : Types())
    for (const auto kind : {FailingMemory::Through::New, FailingMemory::Through::PETSc}) {
      const MatObject   A      = type.kinds()[0].Create(type.few(), PETSC_COMM_WORLD);
      const std::string reuse  = kind == FailingMemory::Through::PETSc ? "-pc_finepc_reuse always" : "";
      bool              failed = true;
      for (long n = 1; failed; n++) {
        CAPTURE(type.name, (int)kind, n);
        const PCObject pc = MakePC(A, type, reuse);
        failed            = FailsOnAll(Ranks() / 2, n, [&] { return PCSetUp(pc); }, kind);
      }
    }
}

/* What an application makes when it is first needed is missing on one rank, and the others must not go on alone. */
TEST_CASE("several ranks: memory ends on one of them in an application, and all of them get an error", "[memory][mpi]")
{
  for (const Type &type : Types())
    for (bool several : {false, true}) /* columns, or a transpose */
      for (const auto kind : {FailingMemory::Through::New, FailingMemory::Through::PETSc}) {
        const MatObject A = type.kinds()[0].Create(type.few(), PETSC_COMM_WORLD);
        const VecObject x = RightVec(A), y = RightVec(A, 2);
        const PCObject  pc = MakePC(A, type, type.others);
        PetscInt        rows;
        MatObject       X, Y;
        MUST(MatGetLocalSize(A, &rows, nullptr));
        for (MatObject *dense : {&X, &Y})
          MUST(MatCreateDense(PETSC_COMM_WORLD, rows, PETSC_DECIDE, PETSC_DETERMINE, 5, nullptr, dense->put()));
        MUST(MatSetRandom(X, nullptr));
        const auto apply  = [&] { return several ? PCMatApply(pc, X, Y) : PCApplyTranspose(pc, x, y); };
        bool       failed = true;
        for (long n = 1; failed; n++) {
          CAPTURE(type.name, several, (int)kind, n);
          MUST(MatScale(A, 2)); /* for a set-up, after which there is something to make again */
          MUST(PCSetUp(pc));
          failed = FailsOnAll(Ranks() / 2, n, apply, kind);
          MUST(apply()); /* once there is memory */
          if (failed) MUST(PCReset(pc));
          if (failed) MUST(PCSetOperators(pc, A, A));
        }
      }
}

/* An allocation that fails on one rank leaves the others waiting in a sum, and is therefore looked for on all ranks at once. */
TEST_CASE("several ranks: a solve of cgfused allocates nothing that one rank alone may lack", "[memory][cgfused][mpi]")
{
  for (const char *const type : {PCNONE, PCJACOBI, PCSFSAI}) {
    CAPTURE(type);
    const MatObject A = CreateMat(Poisson(6, 5), MATAIJ, PETSC_COMM_WORLD);
    const VecObject b = RightVec(A, 2), x = RightVec(A);
    KSPObject       ksp;
    PC              pc;
    PetscErrorCode  code;
    bool            failed;
    MUST(KSPCreate(PETSC_COMM_WORLD, ksp.put()));
    MUST(KSPSetOperators(ksp, A, A));
    MUST(KSPSetType(ksp, KSPCGFUSED));
    MUST(KSPGetPC(ksp, &pc));
    MUST(PCSetType(pc, type));
    MUST(KSPSetUp(ksp));
    {
      const Errors        errors;
      const FailingMemory failing(FailingMemory::Through::New, 1);
      code   = KSPSolve(ksp, b, x);
      failed = failing.Failed();
    }
    CHECK((int)code == PETSC_SUCCESS);
    CHECK(!failed);
  }
}

namespace
{

/* What several ranks solve, and how. */
struct Solved {
  const char *ksp;
  LocalInt    columns; /* 8 at a time; 0: KSPSolve(), with estimates of eigenvalues */
};

/* A solver, and its vectors or blocks of them. */
struct SolverOfRanks {
  KSPObject ksp;
  MatObject B, X;
  VecObject b, x;

  SolverOfRanks(const Solved &solved, Mat A, MPI_Comm comm)
  {
    MUST(MatCreateVecs(A, x.put(), b.put()));
    MUST(VecSet(b, 1));
    MUST(KSPCreate(comm, ksp.put()));
    MUST(KSPSetOperators(ksp, A, A));
    MUST(KSPSetType(ksp, solved.ksp));
    MUST(KSPSetTolerances(ksp, 1e-6, 0, 1e5, 1000));
    PC pc;
    MUST(KSPGetPC(ksp, &pc));
    MUST(PCSetType(pc, PCSFSAI));
    MUST(PCSFSAISetOverlap(pc, 1));
    if (!solved.columns) MUST(KSPSetComputeSingularValues(ksp, PETSC_TRUE));
    if (!solved.columns) return;
    PetscInt rows;
    MUST(MatGetLocalSize(A, &rows, nullptr));
    MUST(MatCreateDense(comm, rows, PETSC_DECIDE, PETSC_DETERMINE, solved.columns, nullptr, B.put()));
    MUST(MatCreateDense(comm, rows, PETSC_DECIDE, PETSC_DETERMINE, solved.columns, nullptr, X.put()));
    PetscScalar *array;
    MUST(MatDenseGetArrayWrite(B, &array));
    for (PetscInt k = 0; k < solved.columns * rows; k++) array[k] = 1 + k / rows;
    MUST(MatDenseRestoreArrayWrite(B, &array));
  }

  PetscErrorCode Solve()
  {
    Vec built;

    PetscFunctionBegin;
    PetscCall(KSPSetUp(ksp));
    if (B) PetscCall(KSPMatSolve(ksp, B, X));
    else {
      PetscCall(KSPSolve(ksp, b, x));
      PetscCall(KSPBuildSolution(ksp, nullptr, &built));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }
};

} // namespace

/*
   A rank that ends alone would leave the others waiting in a sum or an exchange. Where PETSc itself needs large arrays, as for the
   vectors of a solver, an error of one rank is one of all, too. PETSc numbers the messages of a communicator by its objects, of
   which the rank may have made fewer then; so each case has a communicator of its own, and is the last one there if vectors were
   missing.
*/
TEST_CASE("several ranks: memory ends on one of them in a solve, and all of them get an error",
          "[memory][cgfused][gmresfused][columns][mpi][long]")
{
  for (const Solved &solved : {Solved{KSPCGFUSED, 0}, Solved{KSPCGFUSED, 10}, Solved{KSPGMRESFUSED, 0}})
    for (const auto kind : {FailingMemory::Through::New, FailingMemory::Through::PETSc, FailingMemory::Through::Large}) {
      bool failed = true;
      long n      = 1;
      for (; failed; n += 1 + n / 8) {
        CAPTURE(solved.ksp, solved.columns, (int)kind, n);
        MPI_Comm comm;
        MPI_Comm_dup(PETSC_COMM_WORLD, &comm);
        {
          const MatObject A = CreateMat(Poisson(40, 30 * Ranks()), MATAIJ, comm); /* a vector of a rank has 9600 bytes */
          SolverOfRanks   solver(solved, A, comm);
          if (solved.columns) MUST(KSPSetUp(solver.ksp));
          failed = FailsOnAll(Ranks() / 2, n, [&] { return solver.Solve(); }, kind);
          if (solved.columns || kind != FailingMemory::Through::Large) { /* the same objects, once there is memory */
            MUST(solver.Solve());
            CHECK(ReasonOf(solver.ksp) > 0);
          }
        }
        MPI_Comm_free(&comm);
      }
      CHECK((n > 2 || solved.columns)); /* columns that are solved one by one take none, once the set-up has been made */
    }
}
