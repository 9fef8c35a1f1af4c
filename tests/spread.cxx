#include "spread.h"

#include <algorithm>
#include <cmath>

int Ranks()
{
  int size;
  MPI_Comm_size(PETSC_COMM_WORLD, &size);
  return size;
}

int Rank()
{
  int rank;
  MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
  return rank;
}

LocalInt Even(LocalInt n, int rank, int size)
{
  return n / size + (rank < n % size);
}

const std::vector<Layout> &Layouts()
{
  static const std::vector<Layout> layouts = {
    {"even", Even},
    {"last rank alone has most rows",
     [](LocalInt n, int rank, int size) {
       const LocalInt few = std::min<LocalInt>(3, n / size);
       return rank < size - 1 ? few : n - few * (size - 1);
     }},
    {"first rank has none", [](LocalInt n, int rank, int size) { return size == 1 ? n
                                                                        : rank    ? Even(n, rank - 1, size - 1)
                                                                                  : 0; }},
    {"last rank has none",
     [](LocalInt n, int rank, int size) { return size == 1         ? n
                                                 : rank < size - 1 ? Even(n, rank, size - 1)
                                                                   : 0; }},
    {"one rank has all", [](LocalInt n, int rank, int size) { return rank == size / 2 ? n : 0; }},
  };
  static const std::vector<Layout> few = {layouts[0], layouts[2]};
  return Ranks() > 4 ? few : layouts;
}

MatObject Spread(const HostMatrix &A, MatType type, const Share &share)
{
  return CreateMat(A, type, PETSC_COMM_WORLD, share(A.n, Rank(), Ranks()));
}

Traffic TrafficOf(const std::function<void()> &call)
{
  double counts[] = {petsc_isend_ct + petsc_send_ct, petsc_isend_len + petsc_send_len, petsc_allreduce_ct, petsc_gather_ct};
  call();
  counts[0] = petsc_isend_ct + petsc_send_ct - counts[0];
  counts[1] = petsc_isend_len + petsc_send_len - counts[1];
  counts[2] = petsc_allreduce_ct - counts[2];
  counts[3] = petsc_gather_ct - counts[3];
  MPI_Allreduce(MPI_IN_PLACE, counts, 2, MPI_DOUBLE, MPI_SUM, PETSC_COMM_WORLD);
  return {counts[0], counts[1], counts[2], counts[3]};
}

bool CountsAreSeen()
{
  VecObject   v;
  PetscScalar product;
  MUST(VecCreateMPI(PETSC_COMM_WORLD, 1, PETSC_DETERMINE, v.put()));
  return TrafficOf([&] { MUST(VecDot(v, v, &product)); }).reductions > 0; /* norms are kept */
}

HostMatrix Gathered(Mat A)
{
  MatObject          copy;
  HostMatrix         result;
  PetscInt           rows, length;
  const PetscInt    *columns;
  const PetscScalar *values;

  PetscMPIInt size;
  MPI_Comm_size(PetscObjectComm((PetscObject)A), &size);
  if (size > 1) MUST(MatCreateRedundantMatrix(A, size, PETSC_COMM_SELF, MAT_INITIAL_MATRIX, copy.put()));
  const Mat whole = size > 1 ? (Mat)copy : A;
  MUST(MatGetSize(whole, &rows, nullptr));
  result.n = (LocalInt)rows;
  for (PetscInt row = 0; row < rows; row++) {
    MUST(MatGetRow(whole, row, &length, &columns, &values));
    result.j.insert(result.j.end(), columns, columns + length);
    result.a.insert(result.a.end(), values, values + length);
    MUST(MatRestoreRow(whole, row, &length, &columns, &values));
    result.i.push_back((LocalInt)result.j.size());
  }
  return result;
}

void CheckSameLevels(PC pc, PC host)
{
  const Levels mine = LevelsOf(pc), theirs = LevelsOf(host);
  REQUIRE(mine.A.size() == theirs.A.size());
  for (size_t l = 0; l < mine.A.size(); l++) {
    const HostMatrix a = Gathered(mine.A[l]), b = Gathered(theirs.A[l]);
    CAPTURE(l);
    CHECK((a.i == b.i && a.j == b.j));
    CHECK(SameBits(a.a, b.a));
    if (l + 1 == mine.A.size()) continue;
    const HostMatrix p = Gathered(mine.P[l]), q = Gathered(theirs.P[l]);
    CHECK((p.i == q.i && p.j == q.j));
    CHECK(SameBits(p.a, q.a));
  }
}

bool FailsOnAll(int rank, long n, const std::function<PetscErrorCode()> &call, FailingMemory::Through through)
{
  int            failed;
  PetscErrorCode code;
  {
    const Errors        errors;
    const FailingMemory failing(through, rank == Rank() ? n : 0);
    code   = call();
    failed = rank == Rank() && failing.Failed();
  }
  MPI_Bcast(&failed, 1, MPI_INT, rank, PETSC_COMM_WORLD);
  REQUIRE((int)code == (int)(failed ? PETSC_ERR_MEM : PETSC_SUCCESS));
  return failed;
}

std::vector<Type> FSAITypes()
{
  return {TypeOf(PCAFSAI), TypeOf(PCSFSAI)};
}

double Larger(double worst, double off)
{
  return std::isnan(off) ? 1e300 : std::max(worst, off);
}

HostMatrix Factor(PC pc, const Type &type)
{
  MatObject G;
  MUST(PCSetUp(pc));
  MUST(type.get_factors(pc, G.put(), nullptr));
  return Gathered(G);
}

void CheckSameFactor(const HostMatrix &mine, const HostMatrix &expected, double tolerance)
{
  REQUIRE(mine.n == expected.n);
  CHECK(mine.i == expected.i);
  CHECK(mine.j == expected.j);
  if (mine.j != expected.j) return;
  double worst = 0, largest = 1e-300;
  for (size_t k = 0; k < mine.a.size(); k++) {
    worst   = Larger(worst, std::fabs(mine.a[k] - expected.a[k]));
    largest = std::max(largest, std::fabs(expected.a[k]));
  }
  CHECK(worst <= tolerance * largest);
}

std::string CommunicationOf(KSP ksp)
{
  const std::string text = ViewText(ksp), label = "  communication: ";
  const size_t      at = text.find(label);
  if (at == std::string::npos) return "";
  return text.substr(at + label.size(), text.find('\n', at) - at - label.size());
}

void CheckCommunication(KSP ksp, const std::string &wanted)
{
  const std::string line = CommunicationOf(ksp);
  if (!Rank()) CHECK(line.substr(0, wanted.size()) == wanted);
}
