/* Types that a program has registered under names of its own. That nothing else has to be called is what tutorials/ex6.c shows. */

#include "pc_support.h"

namespace
{

struct OwnName {
  const char *own;
  PCType      type;
  PetscErrorCode (*create)(PC);
};

const OwnName kOwnNames[] = {
  {"own_afsai", PCAFSAI, PCCreate_AFSAI}, {"own_sfsai", PCSFSAI, PCCreate_SFSAI},    {"own_bisai", PCBISAI, PCCreate_BISAI},
  {"own_rrb", PCRRB, PCCreate_RRB},       {"own_cmatch", PCCMATCH, PCCreate_CMATCH},
};

} // namespace

TEST_CASE("a preconditioner under a name of one's own is the same, with its options and setters", "[create][pc]")
{
  REQUIRE(std::size(kOwnNames) == Types().size());
  for (const OwnName &name : kOwnNames) {
    MUST(PCRegister(name.own, name.create));
    const Type &type = TypeOf(name.type);
    for (const Kind &kind : type.kinds())
      for (const std::string &options : {std::string(), std::string(type.others)}) {
        CAPTURE(name.own, kind.name, options);
        const MatObject A   = kind.Create(type.good());
        const PCObject  own = MakePC(A, type.Keys(options), name.own), usual = MakePC(A, type, options);
        MUST(PCSetUp(own));
        MUST(PCSetUp(usual));
        CHECK(SameBits(Applied(own), Applied(usual)));
        CHECK(Contains(ViewText((PC)own), std::string("type: ") + name.own));
        MUST(type.options[0].set(own));
        MUST(type.options[0].set(usual));
        CHECK(SameBits(Applied(own), Applied(usual)));
      }
  }
}

TEST_CASE("solvers and matrices under names of one's own are the same", "[create][cgfused][rrbcg][baijcuda]")
{
  MUST(PCRegister("own_rrb", PCCreate_RRB));
  MUST(KSPRegister("own_cgfused", KSPCreate_CGFused));
  MUST(KSPRegister("own_rrbcg", KSPCreate_RRBCG));
  for (const Backend &backend : Backends())
    for (const bool rrb : {false, true}) {
      CAPTURE(backend.name, rrb);
      const MatObject A     = CreateAIJ(Blocks(Diffusion(40, 30, true, 350)), backend.mat);
      const KSPObject own   = MakeKSP(A, rrb ? "-ksp_type own_rrbcg" : "-ksp_type own_cgfused", rrb ? "own_rrb" : PCAFSAI),
                      usual = MakeKSP(A, rrb ? "-ksp_type rrbcg" : "-ksp_type cgfused", rrb ? PCRRB : PCAFSAI);
      const Solution of_own = Solve(own), of_usual = Solve(usual);
      CHECK(of_own.reason > 0);
      CHECK(SameBits(of_own.history, of_usual.history));
    }
  MUST(MatRegister("own_blocks", MatCreate_SeqBAIJCUDA));
  MatObject mat;
  MUST(MatCreate(PETSC_COMM_SELF, mat.put()));
  MUST(MatSetSizes(mat, 12, 12, 12, 12));
  MUST(MatSetBlockSize(mat, 3));
  MUST(MatSetType(mat, "own_blocks"));
  MUST(MatSetUp(mat));
  MUST(MatAssemblyBegin(mat, MAT_FINAL_ASSEMBLY));
  MUST(MatAssemblyEnd(mat, MAT_FINAL_ASSEMBLY));
  MUST(MatShift(mat, 2));
  const VecObject x = RightVec(mat);
  VecObject       y;
  MUST(VecDuplicate(x, y.put()));
  MUST(MatMult(mat, x, y));
  MUST(VecAXPY(y, -2, x));
  for (double value : Values(y)) CHECK(value == 0);
}
