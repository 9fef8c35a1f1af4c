/* What the tests of all PCs share: the types and what differs between them, solvers and vectors of a fixed kind. */
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "blocks.h"
#include "compare.h"
#include "pc/pcinverse.h"

/* A kind of matrix that a type takes. */
struct Kind {
  const char                                            *name;
  const Backend                                         *backend; /* of the factor, and of the vectors that belong to the matrix */
  std::function<MatObject(const HostBlocks &, MPI_Comm)> create;

  MatObject Create(const HostBlocks &A, MPI_Comm comm = PETSC_COMM_SELF) const { return create(A, comm); }
  bool      OnDevice() const { return PetscMemTypeDevice(backend->where); }
};

/* What an option may not be, and the error that says so; after the key, if it does not quote a word that is none of its values. */
struct Refused {
  std::string                       value; /* for the options database, or empty */
  std::function<PetscErrorCode(PC)> set;   /* a call of the setter, or none */
  std::string                       message;
};

/* Which part of a set-up a changed option makes useless, as in src/options.h. */
enum class Useless { Everything, Values, Nothing };

/* One option. Its key, like all options of this table, has -@ for -pc_TYPE_. */
struct OptionOf {
  const char                       *key, *setter;
  const char                       *value, *other; /* its default, and a value that is not, both as -help prints them */
  std::function<PetscErrorCode(PC)> set;           /* to the other value */
  std::vector<Refused>              refused;
  Useless                           useless = Useless::Everything;
  const char                       *with    = "";      /* options with which the other value makes a difference */
  HostBlocks (*matrix)()                    = nullptr; /* and a matrix, where the type's good one is none */
  const char *shown                         = nullptr; /* a text of the view that comes or goes, where the factor stays the same */

  OptionOf(const char *key, const char *setter, const char *value, const char *other, std::function<PetscErrorCode(PC)> set,
           std::vector<Refused> refused) :
      key(key), setter(setter), value(value), other(other), set(std::move(set)), refused(std::move(refused))
  {
  }
  OptionOf &Makes(Useless what)
  {
    useless = what;
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
  const char    *text; /* which row it is, and why; & stands for " of rank 1's block", or for nothing on one rank */
  PCFailedReason reason;
  std::function<void(HostBlocks &, PetscInt first)> spoil; /* the block that begins with this block row */
  bool                                              same_nonzeros = true;

  HostBlocks  Spoiled(const HostBlocks &good, PetscInt first = 0) const;
  std::string Text(int rank = -1) const; /* of a block of this rank; of the whole matrix if it is negative */
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
  HostBlocks (*ranks)();   /* that 1, 2, 3 and 4 ranks share so that each block is one that it takes */
  HostBlocks (*few)();     /* of which one rank, or two, have all rows */
  std::vector<BadMatrix> bad;

  /* options */
  std::vector<OptionOf>     options;
  std::vector<const char *> patterns; /* about keeping the pattern */
  std::vector<const char *> variants; /* for the cases of the life cycle */
  std::vector<const char *> fresh;    /* with which new values give what a new PC gives for them */
  const char               *kept;     /* the line of the view about a pattern that was kept, or null */
  const char               *others;   /* options that are not the defaults */

  /* With these options it is the inverse of the matrices, and one iteration of its solver is enough. */
  std::vector<const char *> exact;
  std::vector<HostBlocks> (*exact_for)();

  bool single_diagonal; /* the inverse of the diagonal is stored in single precision: one unknown may need two iterations */

  /* lines of the view of the defaults: always, before a set-up alone, and after a set-up alone */
  std::vector<const char *> view_always, view_before, view_after;
  const char               *view_ranks; /* what the view says about the matrix of all ranks */

  /* of the types that have two factors: */
  PetscErrorCode (*get_factors)(PC, Mat *, Mat *); /* the one that is applied first, and the one that is applied then */
  std::vector<const char *> diagonal;              /* options that leave PCJACOBI */

  std::string Keys(const std::string &options) const;
};
const std::vector<Type> &Types();
const Type              &TypeOf(PCType);

/* KSPCG with a preconditioner, and whatever the options say; without any, those of the Options around. */
KSPObject MakeKSP(Mat, const std::string &options, PCType);
PCObject  MakePC(Mat, const std::string &options, PCType);
/* The same with the solver of the type, and in its options. */
KSPObject MakeKSP(Mat, const Type &, const std::string &options = "");
PCObject  MakePC(Mat, const Type &, const std::string &options = "");
PC        PCOf(KSP);

/* This rank's part of a vector. */
std::vector<double> Values(Vec);
/* A vector that fits A, the same whatever its type and the number of ranks. */
VecObject RightVec(Mat, std::uint64_t seed = 1);
/* M^{-1} x of a fixed x */
std::vector<double> Applied(PC, bool transpose = false);
/* The same by way of the factors that the user gets. */
std::vector<double> AppliedFactors(PC, const Type &);
bool                SameBits(const std::vector<double> &, const std::vector<double> &);
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

/* The same nonzeros, other values. */
void       ChangeValues(Mat, double factor);
HostBlocks Changed(const HostBlocks &, std::uint64_t seed); /* dominated by its diagonal at least as much, as symmetric */
void       SetValues(Mat, const HostBlocks &);
/* PETSc thinks that the values have changed. */
void       Touch(Mat);
PCInverse *InverseOf(PC);
/* ||diag(G A G^T) - 1|| of the factor that the user gets */
PetscReal ErrorOfDiagonal(PC, const Type &);
