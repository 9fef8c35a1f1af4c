/*
  The command line and the option sets.
*/
#include "bench.h"
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>

char kHelp[] =
  "Compares preconditioners on the same systems in one process: set-up, solve, apply, each against the memory bandwidth.\n"
  "  finepc_bench -systems poisson3d7:121,file:A.petsc -sets sets/poisson.txt -json out.json -md out.md\n\n";

/* ---------------------------------------- option sets ----------------------------------------- */

/* What a system must be for one of the default sets */
enum : unsigned {
  SYMMETRIC   = 1,
  UNSYMMETRIC = 2,
  SCALAR      = 4,
  BLOCKS      = 8, /* of several rows, or else not symmetric */
  FIVE_POINTS = 16,
  ONE_RANK    = 32
};

struct DefaultSet {
  OptionSet set;
  unsigned  needs;
};

static const std::vector<DefaultSet> kDefaultSets = {
  {{"none", "-pc_type none"}, SYMMETRIC},
  {{"jacobi", "-pc_type jacobi"}, SYMMETRIC},
  {{"icc", "-pc_type icc"}, SYMMETRIC | ONE_RANK},
  {{"gamg", "-pc_type gamg"}, SYMMETRIC},
  {{"afsai", "-pc_type afsai"}, SYMMETRIC},
  {{"sfsai", "-pc_type sfsai"}, SYMMETRIC},
  {{"cmatch", "-pc_type cmatch"}, SYMMETRIC | SCALAR},
  {{"cgfused-jacobi", "-ksp_type cgfused -pc_type jacobi"}, SYMMETRIC},
  {{"cgfused-afsai", "-ksp_type cgfused -pc_type afsai"}, SYMMETRIC},
  {{"cgfused-cmatch", "-ksp_type cgfused -pc_type cmatch"}, SYMMETRIC | SCALAR},
  {{"rrb", "-pc_type rrb"}, FIVE_POINTS},
  {{"rrbcg", "-ksp_type rrbcg -pc_type rrb"}, FIVE_POINTS | ONE_RANK},
  {{"gmres-jacobi", "-ksp_type gmres -ksp_pc_side right -pc_type jacobi"}, UNSYMMETRIC},
  {{"gmres-ilu", "-mat_type block -ksp_type gmres -ksp_pc_side right -pc_type ilu"}, UNSYMMETRIC | ONE_RANK},
  {{"bisai", "-mat_type block -ksp_type gmres -ksp_pc_side right -pc_type bisai"}, BLOCKS},
};

PetscErrorCode SystemSets(const Config &config, const System &system, std::vector<OptionSet> *sets)
{
  PetscInt    bs;
  PetscMPIInt size;
  PetscReal   asymmetry = 0.;
  PetscBool   known, spd;
  unsigned    is = 0;

  PetscFunctionBeginUser;
  *sets = config.sets;
  if (!sets->empty()) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(MatGetBlockSize(system.A, &bs));
  PetscCallMPI(MPI_Comm_size(PETSC_COMM_WORLD, &size));
  PetscCall(MatIsSPDKnown(system.A, &known, &spd));
  if (!known || !spd) PetscCall(Asymmetry(system.A, &asymmetry));
  is |= asymmetry <= 1e-10 ? SYMMETRIC : UNSYMMETRIC | BLOCKS; /* the numbers in files may be rounded */
  is |= bs > 1 ? BLOCKS : SCALAR;
  const PetscInt boxes = system.boxes[0] * system.boxes[1] * system.boxes[2];
  if ((system.kind == "poisson2d5" || system.kind == "jumps2d") && boxes == 1) is |= FIVE_POINTS;
  if (size == 1) is |= ONE_RANK;
  for (const auto &standard : kDefaultSets)
    if (!(standard.needs & ~is)) sets->push_back(standard.set);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Lines "label: options"; lines that are blank or begin with # are skipped */
static PetscErrorCode OptionSetsRead(const std::string &path, std::vector<OptionSet> *sets)
{
  std::ifstream file(path);
  std::string   line;

  PetscFunctionBeginUser;
  PetscCheck(file, PETSC_COMM_WORLD, PETSC_ERR_FILE_OPEN, "Cannot open the option sets \"%s\"", path.c_str());
  while (std::getline(file, line)) {
    const size_t begin = line.find_first_not_of(" \t\r"), colon = line.find(':');

    if (begin == std::string::npos || line[begin] == '#') continue;
    PetscCheck(colon != std::string::npos, PETSC_COMM_WORLD, PETSC_ERR_FILE_UNEXPECTED,
               "\"%s\" in %s is not of the form label: options", line.c_str(), path.c_str());
    const size_t text = line.find_first_not_of(" \t", colon + 1), last = line.find_last_not_of(" \t\r");
    sets->push_back({line.substr(begin, colon - begin), text == std::string::npos ? "" : line.substr(text, last + 1 - text)});
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode OptionsUnused(PetscOptions database, std::vector<Option> *options)
{
  PetscInt n;
  char   **names, **values;

  PetscFunctionBeginUser;
  PetscCall(PetscOptionsLeftGet(database, &n, &names, &values));
  for (PetscInt k = 0; k < n; k++) options->push_back({names[k], values[k] ? values[k] : "", values[k] != nullptr});
  PetscCall(PetscOptionsLeftRestore(database, &n, &names, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* ---------------------------------- the benchmark's options ----------------------------------- */

static PetscErrorCode ListFromOptions(OptionItems PetscOptionsObject, const char name[], const char text[],
                                      std::vector<std::string> *list)
{
  char     *items[256];
  PetscInt  n = PETSC_STATIC_ARRAY_LENGTH(items);
  PetscBool set;

  PetscFunctionBeginUser;
  PetscCall(PetscOptionsStringArray(name, text, "", items, &n, &set));
  for (PetscInt k = 0; set && k < n; k++) {
    list->push_back(items[k]);
    PetscCall(PetscFree(items[k]));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode TextFromOptions(OptionItems PetscOptionsObject, const char name[], const char text[], std::string *value)
{
  char      buffer[PETSC_MAX_PATH_LEN];
  PetscBool set;

  PetscFunctionBeginUser;
  PetscCall(PetscOptionsString(name, text, "", value->c_str(), buffer, sizeof(buffer), &set));
  if (set) *value = buffer;
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode ConfigFromOptions(Config *config)
{
  std::vector<std::string> files, labels;

  PetscFunctionBeginUser;
  config->commit = FINEPC_COMMIT;
  PetscOptionsBegin(PETSC_COMM_WORLD, nullptr, "finepc benchmark", "");
  PetscCall(TextFromOptions(PetscOptionsObject, "-json", "File for the results as JSON", &config->json_file));
  PetscCall(TextFromOptions(PetscOptionsObject, "-md", "File for the table in Markdown", &config->md_file));
  PetscCall(TextFromOptions(PetscOptionsObject, "-commit", "Commit to name in the results", &config->commit));
  PetscCall(ListFromOptions(PetscOptionsObject, "-systems", "Systems, separated by commas", &config->systems));
  PetscCall(ListFromOptions(PetscOptionsObject, "-sets", "Files of option sets, separated by commas", &files));
  PetscCall(ListFromOptions(PetscOptionsObject, "-only", "Labels to run out of the sets", &labels));
  PetscCall(TextFromOptions(PetscOptionsObject, "-backend", "host, cuda, or auto: cuda when there is a device", &config->choice));
  PetscCall(PetscOptionsBoundedInt("-repeats", "Warm runs after the first use", "", config->repeats, &config->repeats, nullptr, 0));
  PetscCall(PetscOptionsBoundedInt("-solves", "Solves of each warm run with the same KSP", "", config->solves, &config->solves,
                                   nullptr, 2));
  PetscCall(PetscOptionsBoundedInt("-applies", "Applications of the preconditioner per timing, 0 for none", "", config->applies,
                                   &config->applies, nullptr, 0));
  PetscCall(PetscOptionsRangeInt("-columns", "Right-hand sides that KSPMatSolve() solves for, too, 0 for none", "", config->columns,
                                 &config->columns, nullptr, 0, 10000));
  PetscCall(
    PetscOptionsReal("-true_rtol", "True residual to reach, relative to b", "", config->true_rtol, &config->true_rtol, nullptr));
  PetscCall(PetscOptionsBoundedInt("-max_it", "Iterations at most", "", config->max_it, &config->max_it, nullptr, 1));
  PetscCall(PetscOptionsReal("-skip_above", "Seconds: a first use slower than this is not repeated", "", config->skip_above,
                             &config->skip_above, nullptr));
  PetscCall(PetscOptionsReal("-set_limit", "Seconds: what a set may take, but for its set-up, 0 for no limit", "",
                             config->set_limit, &config->set_limit, nullptr));
  PetscCall(PetscOptionsReal("-energy", "Seconds over which the energy of a set-up and of a solve is measured, 0 for none", "",
                             config->energy, &config->energy, nullptr));
  PetscCall(PetscOptionsBool("-smooth", "The solution is x (x - 1) y (y - 1) exp(x y) instead of 1", "", config->smooth,
                             &config->smooth, nullptr));
  PetscCall(PetscOptionsBool("-refill", "Time the set-up with new values in the same pattern", "", config->refill, &config->refill,
                             nullptr));
  PetscCall(PetscOptionsBool("-breakdown", "The events of further set-ups, from PETSc's log", "", config->breakdown,
                             &config->breakdown, nullptr));
  PetscCall(PetscOptionsBoundedInt("-history_points", "Residual norms kept per run in the JSON", "", config->history_points,
                                   &config->history_points, nullptr, 1));
  PetscCall(TextFromOptions(PetscOptionsObject, "-coordinates", "Coordinates of the points, for the rigid body modes of multigrid",
                            &config->coordinates));
  PetscCall(PetscOptionsBool("-check", "Test the systems instead of measuring", "", config->check, &config->check, nullptr));
  PetscOptionsEnd();

  if (config->breakdown) PetscCall(PetscLogGpuTime()); /* costs nothing while there is no log */
  PetscCheck(config->set_limit >= 0., PETSC_COMM_WORLD, PETSC_ERR_USER_INPUT, "-set_limit %g is less than nothing",
             (double)config->set_limit);
  if (!files.empty()) {
    for (const auto &file : files) PetscCall(OptionSetsRead(file, &config->sets));
    PetscCheck(!config->sets.empty(), PETSC_COMM_WORLD, PETSC_ERR_USER_INPUT, "There is no set in the files of -sets");
  }
  if (!labels.empty()) {
    if (files.empty())
      for (const auto &standard : kDefaultSets) config->sets.push_back(standard.set);
    for (const auto &label : labels) {
      const bool known =
        std::any_of(config->sets.begin(), config->sets.end(), [&](const OptionSet &s) { return s.label == label; });
      PetscCheck(known, PETSC_COMM_WORLD, PETSC_ERR_USER_INPUT, "-only %s: no set has this label", label.c_str());
    }
    const auto unwanted = [&](const OptionSet &s) { return std::find(labels.begin(), labels.end(), s.label) == labels.end(); };
    config->sets.erase(std::remove_if(config->sets.begin(), config->sets.end(), unwanted), config->sets.end());
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* -------------------------------------- the command line -------------------------------------- */

static std::string option_list; /* what PETSc prints of the options above with -help */

static PetscErrorCode CollectHelp(MPI_Comm, const char format[], ...)
{
  char         text[2048];
  std::va_list args;

  PetscFunctionBeginUser;
  va_start(args, format);
  (void)std::vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  option_list += text;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* How many letters have to be changed, added or left out to make one word of the other */
static size_t Differences(const std::string &a, const std::string &b)
{
  std::vector<size_t> row(b.size() + 1);

  std::iota(row.begin(), row.end(), 0);
  for (const char letter : a) {
    size_t corner = row[0]++;

    for (size_t j = 0; j < b.size(); j++) {
      const size_t changed = corner + (letter != b[j]);

      corner     = row[j + 1];
      row[j + 1] = std::min({changed, corner + 1, row[j] + 1});
    }
  }
  return row.back();
}

/* The benchmark's own option that is next to a misspelt one; empty when none is near */
static std::string NearestOption(const std::string &misspelt)
{
  std::istringstream lines(option_list);
  std::string        line, nearest;
  size_t             fewest = misspelt.size() < 6 ? 2 : 3;

  while (std::getline(lines, line)) {
    const size_t begin = line.find("  -");

    if (begin) continue;
    const std::string name = line.substr(2, line.find_first_of(": ", 2) - 2);
    const size_t      few  = Differences(misspelt, name);

    if (few >= fewest) continue;
    fewest  = few;
    nearest = name;
  }
  return nearest;
}

/* Whether an option can be of one of PETSc's objects, or one that PETSc asks for later */
static bool CanBePetscs(const std::string &name)
{
  static const std::set<std::string> words = {"ksp",    "pc",   "mat",    "matload", "vec",       "vecload",
                                              "sf",     "is",   "viewer", "log",     "options",   "malloc",
                                              "memory", "cuda", "device", "gpu",     "citations", "finepc"};
  std::istringstream                 stream(name);
  std::string                        word;

  while (std::getline(stream, word, '_'))
    if (words.count(word)) return true;
  return name == "get_total_flops" || name == "objects_dump";
}

/*
  What is wrong with the command line: a word that is neither an option nor its value, an option that nobody knows, no system.
  Options from elsewhere (PETSC_OPTIONS, ~/.petscrc) may be for other programs.
*/
static PetscErrorCode CommandLineProblem(int argc, char **argv, const Config &config, std::string *problem)
{
  PetscBool key = PETSC_FALSE, before;

  PetscFunctionBeginUser;
  for (int k = 1; k < argc && problem->empty(); k++) {
    const std::string word = argv[k];
    const auto        here = [&](const Option &option) { return "-" + option.name == word && !CanBePetscs(option.name); };

    before = key;
    PetscCall(PetscOptionsValidKey(argv[k], &key));
    if (!key && !before) *problem = "\"" + word + "\" belongs to no option; lists are written without spaces";
    if (key && std::any_of(config.command_line.begin(), config.command_line.end(), here)) {
      const std::string nearest = NearestOption(word);

      *problem = "there is no option " + word + (nearest.empty() ? "" : ", but there is " + nearest);
    }
  }
  if (problem->empty() && config.systems.empty()) *problem = "-systems is missing, which says what to solve";
  PetscFunctionReturn(PETSC_SUCCESS);
}

void BackendAsk(Config *config)
{
  const auto asks = [](const Option &option) { return option.name == "finepc_backend"; };
  if (config->backend.petsc || std::any_of(config->command_line.begin(), config->command_line.end(), asks)) return;
  if (config->backend.cuda) config->command_line.push_back(Option{"finepc_backend", "device", true});
  else if (config->choice == "host") config->command_line.push_back(Option{"finepc_backend", "host", true});
}

PetscErrorCode CommandLineRead(int argc, char **argv, Config *config, int *exit_code)
{
  const auto  print = PetscHelpPrintf;
  PetscBool   help;
  std::string problem;

  PetscFunctionBeginUser;
  PetscCall(PetscOptionsHasHelp(nullptr, &help));
  if (!help) PetscCall(PetscOptionsSetValue(nullptr, "-help", nullptr));
  PetscHelpPrintf = CollectHelp;
  PetscCall(ConfigFromOptions(config));
  PetscHelpPrintf = print;
  if (help) PetscCall(PetscPrintf(PETSC_COMM_WORLD, "%s\nSystems: %s\n", option_list.c_str(), kSystemKinds));
  else PetscCall(PetscOptionsClearValue(nullptr, "-help"));
  PetscCall(OptionsUnused(nullptr, &config->command_line));
  PetscCall(CommandLineProblem(argc, argv, *config, &problem));
  if (problem.empty()) PetscFunctionReturn(PETSC_SUCCESS);
  *exit_code = help && config->systems.empty() ? 0 : 2;
  PetscCall(PetscOptionsSetValue(nullptr, "-options_left", "false")); /* what PETSc says of them would follow */
  if (argc == 1)
    PetscCall(PetscFPrintf(PETSC_COMM_WORLD, PETSC_STDERR, "%s%s\nSystems: %s\n\n", kHelp, option_list.c_str(), kSystemKinds));
  if (*exit_code) PetscCall(PetscFPrintf(PETSC_COMM_WORLD, PETSC_STDERR, "finepc_bench: %s\n", problem.c_str()));
  PetscFunctionReturn(PETSC_SUCCESS);
}
