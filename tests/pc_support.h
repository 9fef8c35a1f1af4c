/* What the tests of all PCs share: the types and what differs between them, solvers and vectors of a fixed kind. */
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "blocks.h"
#include "compare.h"
#include "ranks/nccl.h"
#include "pc/pcinverse.h"

/* A kind of matrix that a type takes. */
struct Kind {
  const char                                            *name;
  const Backend                                         *backend; /* of the factor, and of the vectors that belong to the matrix */
  std::function<MatObject(const HostBlocks &, MPI_Comm)> create;

  MatObject Create(const HostBlocks &A, MPI_Comm comm = PETSC_COMM_SELF) const { return create(A, comm); }
  bool      OnDevice() const { return PetscMemTypeDevice(backend->where); }
};

/*
   A value that an option cannot have, and the error about this value. The error names the key, too; without a text it quotes the
   word that PETSc could not read.
*/
struct Refused {
  std::string                       value; /* for the options database, or empty */
  std::function<PetscErrorCode(PC)> set;   /* a call of the setter, or none */
  std::string                       message;
};

/* Which part of a set-up a changed option makes useless, as in src/options.h. */
enum class Useless { Everything, Values, Nothing };

/* One option. Its key, like all options of this table, has -@ for -pc_TYPE_, and its setter has the words of the key. */
struct OptionOf {
  const char                       *key;
  const char                       *value, *other; /* the default and another value, both as -help prints them */
  std::function<PetscErrorCode(PC)> set;           /* to the other value */
  std::vector<Refused>              refused;
  Useless                           useless = Useless::Everything;
  const char                       *with    = ""; /* options that the other value needs to make a difference */
  HostBlocks (*matrix)() = nullptr; /* a matrix that the other value needs to make a difference, or null for the type's good one */
  const char *shown = nullptr; /* a text of the view that comes or goes with the other value, where the factor stays the same */

  OptionOf &Makes(Useless part)
  {
    useless = part;
    return *this;
  }
  OptionOf &With(const char *options, HostBlocks (*good)() = nullptr)
  {
    with   = options;
    matrix = good;
    return *this;
  }
  OptionOf &Shows(const char *text)
  {
    shown = text;
    return *this;
  }
  std::string Change() const { return std::string(key) + " " + other; }
};

/* A matrix that a type cannot work with, of the same size as a good one. */
struct BadMatrix {
  /* The row and the reason; & stands for " of rank 1's block", or for nothing on one rank, and # follows a number in the matrix. */
  const char                                       *text;
  PCFailedReason                                    reason;
  std::function<void(HostBlocks &, PetscInt first)> spoil; /* spoils the rank's block that begins with this block row */
  bool                                              same_nonzeros = true;

  HostBlocks Spoiled(const HostBlocks &good, PetscInt first = 0) const;
  /* A negative rank stands for the whole matrix. The rank's block begins with row `first` of the matrix. */
  std::string Text(int rank = -1, PetscInt first = 0) const;
};

/* A type and what differs in the tests of all; in options, -@power stands for -pc_TYPE_power, and # for the type. */
struct Type {
  PCType      name;
  const char *event;  /* of its set-up */
  const char *solver; /* the options of a KSP that it fits */
  std::vector<Kind> (*kinds)();
  const char *remedy; /* what the error says about other kinds */

  /* matrices that it takes */
  HostBlocks (*good)();    /* a few hundred rows */
  HostBlocks (*pattern)(); /* of the same size, with other nonzeros */
  HostBlocks (*size)();    /* of another size */
  HostBlocks (*large)();   /* whose factor takes more than 4e6 bytes */
  HostBlocks (*ranks)();   /* 1, 2, 3 and 4 ranks share this one so that the type takes each block */
  HostBlocks (*few)();     /* one rank, or two, have all rows of this one */
  std::vector<BadMatrix> bad;

  const char *block_local = ""; /* options with which each rank has a factor of its block alone, after a blank */

  /* options */
  std::vector<OptionOf>     options;
  std::vector<const char *> patterns; /* choices about keeping the pattern */
  std::vector<const char *> variants; /* choices for the cases of the life cycle */
  std::vector<const char *> fresh;    /* with these, a set-up with new values gives what a new PC gives */
  const char               *kept;     /* the line of the view about a pattern that was kept, or null */
  const char               *others;   /* options that are not the defaults */

  /* With each of these options the type gives the inverse of these matrices, and one iteration of its solver is enough. */
  std::vector<const char *> exact;
  std::vector<HostBlocks> (*exact_for)();

  /* The inverse of the diagonal is stored or applied in single precision, so that one unknown may need two iterations. */
  bool single_diagonal;

  /*
     How far <x, M^{-1} y> and <M^{-1} x, y> may differ with these options, relatively, for a type that computes in single
     precision; 0 stands for options with which M^{-1} is no linear map. Without the function they agree to rounding in double
     precision.
  */
  double (*asymmetry)(const std::string &options);

  /* lines of the view of the defaults: always, before a set-up alone, and after a set-up alone */
  std::vector<const char *> view_always, view_before, view_after;
  const char               *view_ranks; /* what the view says about the matrix of all ranks */

  /* Only types that have two factors have the next one, and only the factored sparse approximate inverses the last one. */
  PetscErrorCode (*get_factors)(PC, Mat *, Mat *); /* the one that is applied first, and the other one */
  std::vector<const char *> diagonal;              /* options that leave PCJACOBI */

  std::string Keys(const std::string &options) const;
  std::string Setter(const std::string &key) const; /* PCAFSAISetMaxSteps of -@max_steps */
};
const std::vector<Type> &Types();
const Type              &TypeOf(PCType);
inline const Type       &CMATCH()
{
  return TypeOf(PCCMATCH);
}

/* Calls test(type, kind) for the kinds of matrices that each type takes, or test(type, kind, options) for these choices, too. */
template <typename Test>
void ForEachKind(const Test &test)
{
  for (const Type &type : Types())
    for (const Kind &kind : type.kinds()) {
      CAPTURE(type.name, kind.name);
      test(type, kind);
    }
}
template <typename Test>
void ForEachKind(std::vector<const char *> Type::*choices, const Test &test)
{
  ForEachKind([&](const Type &type, const Kind &kind) {
    for (const char *options : type.*choices) {
      CAPTURE(options);
      test(type, kind, options);
    }
  });
}
template <typename Test>
void ForEachBackend(const std::vector<Type> &types, const Test &test)
{
  for (const Type &type : types)
    for (const Backend &backend : Backends()) {
      CAPTURE(type.name, backend.name);
      test(type, backend);
    }
}

/* KSPCG with a preconditioner, and whatever the options say; without any, those of the Options around. */
KSPObject MakeKSP(Mat, const std::string &options, PCType);
PCObject  MakePC(Mat, const std::string &options, PCType);
/* The same with the solver of the type, and with options in the notation of the table. */
KSPObject MakeKSP(Mat, const Type &, const std::string &options = "");
PCObject  MakePC(Mat, const Type &, const std::string &options = "");
PC        PCOf(KSP);

/* A solver of A with these options, all of which are found when it is set up. */
struct SolverWith {
  Options   options;
  KSPObject ksp;

  SolverWith(Mat A, const char ksp_type[], const char pc_type[], const std::string &text, double rtol = 1e-8);
  PC          pc() const { return PCOf(ksp); }
  std::string View() const { return ViewText(ksp); }
  /* For one of two solvers that are there at a time: -finepc_backend is looked for in the options of the last one. */
  void Use(FinePCBackend) const;
};

/* What auto may try: a name, options, iterations after which another one takes over, and the costs of an iteration and a set-up. */
struct AUTOCandidate Candidate(const char *name, const char *options, PetscInt limit = 100000, double iteration = 1,
                               double set_up = 0);

/* A symmetric matrix of this type with blocks of this size */
MatObject InBlocks(const HostMatrix &, MatType, MPI_Comm, PetscInt bs);

/* 5 points on n x n with these conductivities in x and y, and `shift` on the diagonal; bonds that are broken stay stored, as zeros.
 */
HostBlocks Sheet(LocalInt n, double kx, double ky, double shift,
                 const std::function<bool(LocalInt row, LocalInt column)> &broken = {});

/* This rank's part of a vector. */
std::vector<double> Values(Vec);
/* A vector that fits A, the same whatever its type and the number of ranks. */
VecObject RightVec(Mat, std::uint64_t seed = 1);
/* M^{-1} x of a fixed x */
std::vector<double> Applied(PC, bool transpose = false);
/* The same product by way of the factors that the user gets. */
std::vector<double> AppliedFactors(PC, const Type &);
bool                Finite(const std::vector<double> &);
bool                Infinite(const std::vector<double> &); /* every one of them */
/* Largest difference relative to the largest entry */
double Difference(const std::vector<double> &, const std::vector<double> &);

struct Solution {
  KSPConvergedReason  reason;
  PetscInt            iterations;
  double              true_residual; /* ||b - A x|| / ||b|| */
  std::vector<double> history;
};
Solution Solve(KSP);            /* A x = b with a random b, in the range if the matrix has a null space */
void     SetConstantsNull(Mat); /* MatSetNullSpace() */

const HostMatrix &Plate();
const HostBlocks &Grid(); /* with blocks of 3 */
/*
   -div(k grad u) by 5 points on a grid, k in 1 .. 10 by a random number a cell; without Dirichlet boundaries its null space is the
   constants.
*/
HostMatrix Diffusion(PetscInt nx, PetscInt ny, bool dirichlet, std::uint64_t seed);
/* Poisson's matrix of n x n points less `part` of its smallest eigenvalue, but for the fourth digit: below 1 it is definite. */
HostMatrix ShortOf(PetscInt n, double part);
HostBlocks Blocks(const HostMatrix &); /* of one entry */
/* Weak couplings of block rows that are a half of all rows apart, symmetric and positive definite, for blocks of this size. */
HostBlocks Far(LocalInt n, LocalInt bs);

/* A matrix of all ranks that has nothing but the product of A, and counts its products. */
struct Counted {
  Mat A;
  int products = 0;
};
MatObject ShellOf(Counted *);

/* How often each of these log events is entered while f runs. */
std::vector<int> CountEvents(const std::vector<std::string> &names, const std::function<void()> &f);

/* The same nonzeros, other values. */
void       ChangeValues(Mat, double factor);
HostBlocks Changed(const HostBlocks &, std::uint64_t seed); /* at least as dominated by the diagonal, and as symmetric */
void       SetValues(Mat, const HostBlocks &);
/* PETSc thinks that the values have changed. */
void       Touch(Mat);
PCInverse *InverseOf(PC);
/* ||diag(G A G^T) - 1|| of the factor that the user gets */
PetscReal ErrorOfDiagonal(PC, const Type &);

/* The matrices of the hierarchy of a PCCMATCH. */
struct Levels {
  std::vector<MatObject> A, P;
};

Levels LevelsOf(PC);

/*
   Solves with two solvers in turns, each on a stream of its own of this type, so that the kernels of both are under way at once, in
   four rounds. Calls change(round, k), if it is given, before a solve of solver k on its stream, and check() when the solve is
   complete. The solvers are destroyed at the end.
*/
void SolveOnTwoStreams(PetscStreamType                              type, KSPObject (&ksp)[2], VecObject (&b)[2], VecObject (&x)[2],
                       const std::function<void(int round, int k)> &change,
                       const std::function<void(int round, int k, KSPConvergedReason reason, PetscInt iterations)> &check);

/*
   Why several ranks cannot exchange by NCCL here; empty if they can. PETSc's own communicator of all ranks is held from the first
   call on, so that the NCCL that is kept with it lives through all cases.
*/
const std::string &WhyNoNCCL();

/* First line of a test of several GPUs: each rank needs one of its own. */
#define NEEDS_NCCL()                                                                                       \
  do {                                                                                                     \
    PetscMPIInt count;                                                                                     \
    NEEDS_DEVICE();                                                                                        \
    MPI_Comm_size(PETSC_COMM_WORLD, &count);                                                               \
    if (count == 1 || !WhyNoNCCL().empty()) {                                                              \
      if (count > 1) MUST(PetscPrintf(PETSC_COMM_WORLD, "NCCL is not tested: %s\n", WhyNoNCCL().c_str())); \
      SkipTest();                                                                                          \
      return;                                                                                              \
    }                                                                                                      \
  } while (0)
