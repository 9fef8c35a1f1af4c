/* Types, and values of options. The keys and the names of enumerations are read out of -help, so that none is forgotten here. */
#include <petsc/private/petscimpl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "fuzz.h"

namespace
{

struct Key {
  std::string              key, value;
  std::vector<std::string> names; /* of an enumeration */
};

/* Catches what PETSc prints, for a scope. */
class Output {
public:
  Output() : petsc_(PETSC_STDOUT), stdout_(stdout) { PETSC_STDOUT = stdout = open_memstream(&text_, &length_); }
  ~Output()
  {
    Text();
    std::free(text_);
  }
  std::string Text()
  {
    if (PETSC_STDOUT != petsc_) std::fclose(PETSC_STDOUT);
    PETSC_STDOUT = petsc_;
    stdout       = stdout_;
    return std::string(text_, length_);
  }

private:
  FILE  *petsc_, *stdout_; /* PETSc 3.18 writes lists of names to the second one */
  char  *text_   = nullptr;
  size_t length_ = 0;
};

PetscErrorCode Help(const std::string &type, bool is_pc, const std::string &prefix, std::string *text)
{
  PetscOptions options;
  KSP          ksp;
  PC           pc;

  PetscFunctionBegin;
  PetscCall(PetscOptionsCreate(&options));
  PetscCall(PetscOptionsSetValue(options, "-help", nullptr));
  PetscCall(PetscOptionsPush(options));
  PetscCall(KSPCreate(PETSC_COMM_SELF, &ksp));
  PetscCall(KSPSetOptionsPrefix(ksp, prefix.c_str()));
  PetscCall(KSPGetPC(ksp, &pc));
  if (is_pc) PetscCall(PCSetType(pc, type.c_str()));
  else PetscCall(KSPSetType(ksp, type.c_str()));
  {
    Output output;
    PetscCall(is_pc ? PCSetFromOptions(pc) : KSPSetFromOptions(ksp));
    *text = output.Text();
  }
  PetscCall(KSPDestroy(&ksp));
  PetscCall(PetscOptionsPop());
  PetscCall(PetscOptionsDestroy(&options));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
   A line is "  -PREFIX_KEY: <now VALUE : formerly VALUE> TEXT (choose one of) NAMES (SETTER)", without the words "now" and
   "formerly" for some kinds of values in PETSc 3.18 and 3.19.
*/
std::vector<Key> KeysOf(const std::string &type, bool is_pc)
{
  static std::map<std::string, std::vector<Key>> known;
  const auto                                     found = known.find(type);
  if (found != known.end()) return found->second;
  const std::string prefix = "help" + std::to_string(known.size()) + "_", begin = "-" + prefix;
  std::string       text, line;
  PetscCallAbort(PETSC_COMM_SELF, Help(type, is_pc, prefix, &text));
  std::istringstream lines(text);
  std::vector<Key>  &keys = known[type];
  while (std::getline(lines, line)) {
    const size_t at = line.find(begin), now = line.find('<'), end = line.find(" : ");
    if (at == std::string::npos || now == std::string::npos || end == std::string::npos) continue;
    Key key;
    key.key   = "-" + line.substr(at + begin.size(), line.find_first_of(": <", at) - at - begin.size());
    key.value = line.substr(now + 1, end - now - 1);
    if (key.value.rfind("now ", 0) == 0) key.value.erase(0, 4);
    const bool ours = key.key.find("_" + type + "_") != std::string::npos || key.key == "-ksp_cg_single_reduction";
    if (!ours) continue;
    const size_t names = line.find("one of) ");
    if (names != std::string::npos) {
      std::istringstream words(line.substr(names + 8, line.rfind(" (") - names - 8));
      for (std::string word; words >> word;) /* the first ordering takes connected graphs alone, the second one ends the program */
        if (word != "spectral" && (word != "wbm" || !PetscDefined(HAVE_SUPERLU_DIST))) key.names.push_back(word);
    }
    keys.push_back(key);
  }
  if (keys.empty()) {
    std::fprintf(stderr, "finepc_fuzz: -help shows no option of %s\n", type.c_str());
    std::abort();
  }
  return keys;
}

/*
   The largest value that is drawn. More and larger steps, or a higher power on a graph, fill rows of some 900 entries, and
   more sweeps make an apply as many products, both of which takes minutes on a host.
*/
long MostOf(const std::string &key)
{
  if (key == "-pc_afsai_max_steps") return 40;
  if (key == "-pc_afsai_step_size") return 8;
  if (key == "-pc_afsai_initial_power" || key == "-pc_sfsai_power") return 3;
  if (key == "-pc_bisai_sweeps") return 40;
  return 1000;
}

std::string ValueFor(const Key &key, Random &random)
{
  if (!key.names.empty()) {
    const std::string name = random.Chance(95) ? random.Of(key.names) : "nonsense";
    return name == "POSITIVE_DEFINITE" ? "NONZERO" : name; /* which PETSc may try for ever; see docs/known-faults.md */
  }
  if (key.value == "TRUE" || key.value == "FALSE") return random.Chance(95) ? (random.Chance(50) ? "true" : "false") : "perhaps";
  if (random.Chance(10))
    return random.Of(std::vector<std::string>{"-1", "2147483647", "-2147483648", "99999999999", "nan", "inf", "-inf", "1e300",
                                              "text", "100000", "1e-320"});
  const bool real = key.value.find_first_of(".e") != std::string::npos;
  if (real) return random.Of(std::vector<std::string>{"0", "0.001", "0.01", "0.1", "0.3", "0.5", "0.9", "0.999", "1", "1.5", "2"});
  const std::string value =
    random.Of(std::vector<std::string>{"0", "1", "1", "2", "2", "3", "3", "4", "5", "7", "8", "16", "40", "256", "1000"});
  return std::to_string(std::min(std::stol(value), MostOf(key.key)));
}

std::string SomeOf(const std::vector<Key> &keys, Random &random)
{
  std::string options;
  while (random.Chance(65)) {
    const Key key = random.Of(keys);
    options += key.key + " " + ValueFor(key, random) + " ";
  }
  return options;
}

/* Often a factor that reaches other ranks, which one value among many of one option among many would seldom make. */
std::string ReachOf(const std::string &pc, Random &random)
{
  if ((pc != "afsai" && pc != "sfsai") || !random.Chance(50)) return "";
  std::string options = "-pc_" + pc + "_overlap " + random.Of(std::vector<std::string>{"1", "1", "2", "3", "1000"}) + " ";
  if (random.Chance(40))
    options += "-pc_" + pc + "_halo_layers " + random.Of(std::vector<std::string>{"1", "2", "5", "10000"}) + " ";
  return options;
}

} // namespace

std::string OptionsOf(const std::string &pc, Random &random)
{
  static const std::vector<std::string> ours = {"afsai", "sfsai", "bisai", "rrb", "cmatch", "auto"};
  std::string                           sub  = pc;
  if (std::find(ours.begin(), ours.end(), sub) == ours.end()) return "";
  return ReachOf(pc, random) + SomeOf(KeysOf(sub, true), random);
}

bool TakesPoints(const std::string &pc)
{
  return pc == "afsai" || pc == "sfsai" || pc == "cmatch";
}

Choice MakeChoice(Random &random)
{
  Choice choice;
  choice.pc = random.Of(std::vector<std::string>{"afsai", "sfsai", "bisai", "rrb", "auto", "cmatch", "jacobi", "none"});
  /* PETSc's FCG and GMRES lose or use freed memory after KSPReset() and after a set-up that failed. */
  choice.ksp = random.Of(std::vector<std::string>{"cg", "cg", "cgfused", "cgfused", "gmresfused", "bcgs", "minres", "bicg"});
  if (choice.pc == "bisai" || random.Chance(5))
    /* PETSc's FCG and GMRES lose or use freed memory after KSPReset() and after a set-up that failed. */
    choice.ksp = random.Of(std::vector<std::string>{"bcgs", "gmresfused", "gmresfused", "bicg", "cgfused"});
  if ((choice.pc == "rrb" && random.Chance(40)) || random.Chance(2)) choice.ksp = "rrbcg";
  choice.mat = random.Chance(90) ? "aij" : random.Of(std::vector<std::string>{"baij", "sbaij", "dense", "aijperm", "baijcuda"});
  if (choice.pc == "bisai" && random.Chance(50)) choice.mat = random.Of(std::vector<std::string>{"baij", "baijcuda"});
  if (TakesPoints(choice.pc) && random.Chance(20)) choice.mat = random.Of(std::vector<std::string>{"baij", "sbaij", "baijcuda"});
  std::string own = random.Chance(60) ? OptionsOf(choice.pc, random) : "";
  if ((choice.ksp == "cgfused" || choice.ksp == "gmresfused" || choice.ksp == "rrbcg") && random.Chance(40))
    own += SomeOf(KeysOf(choice.ksp, false), random);
  choice.defaults = own.empty();
  if (own.empty()) own = ReachOf(choice.pc, random); /* with which a good matrix must be solved, too */
  choice.chooses = choice.pc == "auto";
  if (choice.pc != "jacobi" && choice.pc != "none" && random.Chance(8)) {
    own += "-pc_finepc_reuse auto "; /* by what set-ups and solves take */
    choice.chooses = true;
  }
  choice.options = own;
  return choice;
}
