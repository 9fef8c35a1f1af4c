static char help[] =
  "Fingerprints of preconditioners and solves, to see whether a change of the code leaves their bits.\n"
  "  -dll_append <libfinepc.so>    : the library, of before or after the change\n"
  "  -systems <system>[,<system>]  : as in finepc_bench\n"
  "  -backend <auto,host,cuda>\n"
  "  -sets <file>                  : lines 'label: options', the sets that are run\n"
  "Prints for each a line: iterations, and hashes of the bits of M^{-1} x for a fixed x, of the factors that the user\n"
  "gets, of the residual history, and of the solution; on several ranks of what all of them have. The program links\n"
  "nothing of finepc.\n\n";

#include <petsc/private/petscimpl.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "bench.h"

/* FNV-1a, of bits, so that -0 and 0 differ. */
class Hash {
public:
  void Add(const void *data, size_t bytes)
  {
    for (size_t k = 0; k < bytes; k++) value_ = (value_ ^ ((const unsigned char *)data)[k]) * 1099511628211ull;
  }
  /* The hash of what all ranks have added, in their order; that of a single rank is its own. */
  PetscErrorCode Text(MPI_Comm comm, std::string *text) const
  {
    std::vector<PetscInt64> values;
    PetscMPIInt             size;
    Hash                    all;
    const PetscInt64        mine = (PetscInt64)value_;
    char                    digits[17];

    PetscFunctionBeginUser;
    PetscCallMPI(MPI_Comm_size(comm, &size));
    values.resize(size);
    PetscCallMPI(MPI_Allgather(&mine, 1, MPIU_INT64, values.data(), 1, MPIU_INT64, comm));
    if (size == 1) all = *this;
    else all.Add(values.data(), values.size() * sizeof(values[0]));
    std::snprintf(digits, sizeof(digits), "%016llx", (unsigned long long)all.value_);
    *text = digits;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  std::uint64_t value_ = 14695981039346656037ull;
};

static PetscErrorCode AddVec(Vec x, Hash *hash)
{
  const PetscScalar *values;
  PetscInt           n;

  PetscFunctionBeginUser;
  PetscCall(VecGetLocalSize(x, &n));
  PetscCall(VecGetArrayRead(x, &values));
  hash->Add(values, n * sizeof(*values));
  PetscCall(VecRestoreArrayRead(x, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

static PetscErrorCode AddMat(Mat A, Hash *hash)
{
  PetscInt first, last;

  PetscFunctionBeginUser;
  PetscCall(MatGetOwnershipRange(A, &first, &last));
  for (PetscInt row = first; row < last; row++) {
    const PetscInt    *columns;
    const PetscScalar *values;
    PetscInt           count;

    PetscCall(MatGetRow(A, row, &count, &columns, &values));
    hash->Add(columns, count * sizeof(*columns));
    hash->Add(values, count * sizeof(*values));
    PetscCall(MatRestoreRow(A, row, &count, &columns, &values));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The factors, where the type gives them, by the method that it composes. */
static PetscErrorCode FactorText(PC pc, std::string *text)
{
  *text = "-";
  PetscFunctionBeginUser;
  for (const char *method : {"PCAFSAIGetFactors_C", "PCSFSAIGetFactors_C", "PCBISAIGetFactors_C"}) {
    PetscErrorCode (*get)(PC, Mat *, Mat *);
    Mat  factors[2];
    Hash hash;

    PetscCall(PetscObjectQueryFunction((PetscObject)pc, method, &get));
    if (!get) continue;
    PetscCall((*get)(pc, &factors[0], &factors[1]));
    for (Mat &factor : factors) {
      PetscCall(AddMat(factor, &hash));
      PetscCall(MatDestroy(&factor));
    }
    PetscCall(hash.Text(PetscObjectComm((PetscObject)pc), text));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Right-hand side A 1, or the system's own; what comes out of a fresh KSP with these options. */
static PetscErrorCode Print(const System &system, const std::string &label, const std::string &options)
{
  PetscOptions           database;
  KSP                    ksp;
  PC                     pc;
  Vec                    x, b, y;
  Hash                   applied, history, solution;
  std::string            factor, texts[3];
  const PetscReal       *norms;
  PetscInt               count, iterations;
  KSPConvergedReason     reason;
  std::vector<PetscReal> room(20000);

  PetscFunctionBeginUser;
  PetscCall(PetscOptionsCreate(&database));
  PetscCall(PetscOptionsInsertString(database, options.c_str()));
  PetscCall(PetscOptionsPush(database));
  PetscCall(MatCreateVecs(system.A, &x, &b));
  PetscCall(VecDuplicate(x, &y));
  PetscCall(VecSet(x, 1.));
  if (system.b) PetscCall(VecCopy(system.b, b));
  else PetscCall(MatMult(system.A, x, b));
  PetscCall(KSPCreate(PetscObjectComm((PetscObject)system.A), &ksp));
  PetscCall(KSPSetOperators(ksp, system.A, system.A));
  PetscCall(KSPSetTolerances(ksp, 1e-6, 0, PETSC_CURRENT, 3000));
  PetscCall(KSPSetResidualHistory(ksp, room.data(), (PetscCount)room.size(), PETSC_TRUE));
  PetscCall(KSPSetFromOptions(ksp));
  PetscCall(KSPGetPC(ksp, &pc));
  PetscCall(KSPSetUp(ksp));
  PetscCall(PCApply(pc, b, y));
  PetscCall(AddVec(y, &applied));
  PetscCall(FactorText(pc, &factor));
  PetscCall(VecSet(x, 0.));
  PetscCall(KSPSolve(ksp, b, x));
  PetscCall(AddVec(x, &solution));
  PetscCall(KSPGetResidualHistory(ksp, &norms, &count));
  history.Add(norms, count * sizeof(*norms));
  PetscCall(KSPGetIterationNumber(ksp, &iterations));
  PetscCall(KSPGetConvergedReason(ksp, &reason));
  for (const auto &[hash, text] : {std::pair{&applied, &texts[0]}, std::pair{&history, &texts[1]}, std::pair{&solution, &texts[2]}})
    PetscCall(hash->Text(PetscObjectComm((PetscObject)ksp), text));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "| %s | %s | %s | %" PetscInt_FMT " | %s | %s | %s | %s |\n", system.name.c_str(),
                        label.c_str(), KSPConvergedReasons[reason], iterations, texts[0].c_str(), factor.c_str(), texts[1].c_str(),
                        texts[2].c_str()));
  PetscCall(KSPDestroy(&ksp));
  PetscCall(VecDestroy(&x));
  PetscCall(VecDestroy(&b));
  PetscCall(VecDestroy(&y));
  PetscCall(PetscOptionsPop());
  PetscCall(PetscOptionsDestroy(&database));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The lines of the file that are no comments. A set may begin with a system that it is for alone: "@poisson2d5 label: options". */
static PetscErrorCode PrintSets(const System &system, const char path[])
{
  std::ifstream file(path);
  std::string   line;

  PetscFunctionBeginUser;
  PetscCheck(file.good(), PETSC_COMM_WORLD, PETSC_ERR_FILE_OPEN, "%s cannot be read", path);
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');

    if (line.empty() || line[0] == '#' || colon == std::string::npos) continue;
    if (line[0] == '@') {
      const size_t space = line.find(' ');
      if (system.name.compare(0, space - 1, line, 1, space - 1)) continue;
      line.erase(0, space + 1);
    }
    PetscCall(Print(system, line.substr(0, line.find(':')), line.substr(line.find(':') + 1)));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

int main(int argc, char **argv)
{
  char    systems[8192] = "poisson3d7:20", choice[16] = "auto", sets[PETSC_MAX_PATH_LEN] = "";
  Backend backend;
  char  **specs;
  int     count;

  PetscCall(PetscInitialize(&argc, &argv, nullptr, help));
  PetscCall(PetscOptionsGetString(nullptr, nullptr, "-systems", systems, sizeof(systems), nullptr));
  PetscCall(PetscOptionsGetString(nullptr, nullptr, "-backend", choice, sizeof(choice), nullptr));
  PetscCall(PetscOptionsGetString(nullptr, nullptr, "-sets", sets, sizeof(sets), nullptr));
  PetscCall(BackendSetUp(choice, PETSC_FALSE, &backend));
  PetscCall(PetscPrintf(PETSC_COMM_WORLD, "| system | set | reason | iterations | M^{-1} b | factors | history | solution |\n"
                                          "|:--|:--|:--|--:|:--|:--|:--|:--|\n"));
  PetscCall(PetscStrToArray(systems, ',', &count, &specs));
  for (int k = 0; k < count; k++) {
    System system;

    PetscCall(SystemCreate(PETSC_COMM_WORLD, specs[k], backend, &system));
    PetscCall(PrintSets(system, sets));
    PetscCall(SystemDestroy(&system));
  }
  PetscCall(PetscStrToArrayDestroy(count, specs));
  PetscCall(PetscFinalize());
  return 0;
}
