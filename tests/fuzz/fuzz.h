/*
   The fuzzer: random matrices, options and lives of objects, all from one seed, and a verdict about what comes of them.

     fuzz.cxx       the program: seeds, time, and what is printed when a case goes wrong
     systems.cxx    matrices, good ones and nasty ones
     choices.cxx    types and values of options; the keys come from the option tables, by way of -help
     life.cxx       what is done to the objects of a case, and what must hold then
     both.cxx       a case on the host and on a GPU, and whether it comes to the same
     soak.cxx       very many good cases in one process, whose memory must not grow
*/
#pragma once

#include <finepc.h>

#include <cstdint>
#include <string>
#include <vector>

#include "petsc_compat.h"

/* Numbers that are the same on every machine and on every rank. */
class Random {
public:
  explicit Random(std::uint64_t seed) : state_(seed * 2 + 1) { }
  std::uint64_t Next();
  PetscInt      Below(PetscInt n) { return (PetscInt)(Next() % (std::uint64_t)n); }
  double        Between(double low, double high) { return low + (high - low) * (double)(Next() >> 11) * 0x1p-53; }
  bool          Chance(int percent) { return Below(100) < percent; }
  template <typename T>
  T Of(const std::vector<T> &choices)
  {
    return choices[(size_t)Below((PetscInt)choices.size())];
  }

private:
  std::uint64_t state_;
};

/* ------------------------------------------ systems ------------------------------------------- */

struct Entry {
  PetscInt    row, column;
  PetscScalar value;
};

/* A matrix, the same on all ranks. */
struct System {
  std::string        name;
  PetscInt           rows = 0, block_size = 1;
  std::vector<Entry> entries;

  bool   good      = true;  /* symmetric definite, far from singular, no large numbers */
  bool   hard      = false; /* symmetric semidefinite, or nearly so: conjugate gradients solve it all the same */
  double sign      = 1;     /* -1: no eigenvalue is positive */
  bool   assembled = true;

  /* Rows that are singular by themselves, or nearly so: the right-hand side sums to 0 there, and MatSetNullSpace() may be called.
   */
  PetscInt first = 0, end = 0;
  bool     null_space = false;

  /* How a sequential MATAIJ has its rows: by columns, in any order, or in any order with each entry in two halves. */
  enum class Order { Sorted, Any, Halves } order = Order::Sorted;

  double step = 0; /* I/dt of a time step, which is on the diagonal, too */

  /* Each entry is made larger or smaller by at most this, relatively and symmetrically, in another way for each trial. */
  double noise = 0;
  int    trial = 0;
};

System MakeSystem(Random &);
/* A good one, for a preconditioner; rrb gets a grid of 5 points. */
System MakeGoodSystem(const std::string &pc, bool large, Random &);
System WithOtherValues(const System &, Random &); /* the same nonzeros */
/* Gives empty rows a diagonal entry of 0: PETSc reads beyond the arrays of a matrix on a GPU whose last row is empty. */
void   FillEmptyRows(System *);
System WithTimeStep(const System &); /* or without it, if it had one */
/* With couplings of pairs of rows, which leave row sums alone, added to those that are there, or at other places. */
System WithCouplings(const System &, bool elsewhere, Random &);

/* Makes the matrix of a type, its rows handed out to the ranks at random. */
PetscErrorCode CreateMat(const System &, MatType, Random &, Mat *);
/* Puts other values on the same nonzeros. */
PetscErrorCode SetValues(const System &, Mat);
/* Makes the matrix of one system that of another one of the same size, in place, in one of the ways that PETSc has for it. */
PetscErrorCode ChangeNonzeros(const System &from, const System &to, Random &, Mat *, std::string *how);
/* Norms of b, of r = b - A x, computed from the entries with more digits, and of |A| |x|, to which rounding is in proportion. */
struct Norms {
  double b = 0, r = 0, size = 0;
};
PetscErrorCode Residual(const System &, Mat, Vec b, Vec x, Norms *, Vec residual = nullptr);

/* ------------------------------------------ choices ------------------------------------------- */

struct Choice {
  std::string ksp, pc, mat, options;
  bool        defaults = true;  /* no options of a preconditioner or a solver of finepc */
  bool        chooses  = false; /* the preconditioner does, by what is at hand: its type, or whether its factor is kept */
};

bool   TakesPoints(const std::string &pc); /* a type that copies the single entries of blocks */
Choice MakeChoice(Random &);
/* Options of the type of a PC, some with values that they cannot have. */
std::string OptionsOf(const std::string &pc, Random &);

/* -------------------------------------------- life -------------------------------------------- */

/* Where a case is lived through. */
struct Place {
  bool   device    = false; /* matrices and vectors are on the GPU, of the types that can be */
  bool   reference = false; /* nothing is on the GPU, even where a type goes there by itself */
  double noise     = 0;     /* as in System */
  int    trial     = 0;
};

/* How something that was done has ended, on all ranks. */
struct Event {
  std::string        step;
  int                code = 0;                    /* of an error */
  std::string        text;                        /* of an error on this rank */
  bool               solve = false, good = false; /* of a good system */
  bool               ours       = true;           /* finepc has a part in it */
  bool               chooses    = false;          /* auto does, which takes other preconditioners on a GPU */
  bool               singular   = false;          /* but for rounding, which decides about the last pivot */
  KSPConvergedReason reason     = KSP_CONVERGED_ITERATING;
  PCFailedReason     failed     = PC_NOERROR;
  PetscInt           iterations = 0;
};

/* What comes of a case. */
struct Report {
  std::string              log;    /* what was done */
  std::vector<std::string> faults; /* what must not be */
  std::vector<Event>       events;
  long                     solves = 0;
};

/* Lives through the case of this seed. The report is there all the time, for what may interrupt the case. */
void Live(std::uint64_t seed, const Place &, Report *);
/*
   A case that is to go well: a good matrix, default options, new values, sizes and types, and a solve after each. Every solve must
   converge.
*/
void LiveWell(std::uint64_t seed, const Place &, bool large, Report *);
/* How often the host and another place, the GPU, have come to something else. */
struct Differences {
  long by_rounding = 0, tolerated = 0;
};
/* Lives on the host and at the other place, and compares; see both.cxx. */
void LiveOnBoth(std::uint64_t seed, const Place &other, Report *, Differences *);

/* -------------------------------------------- soak -------------------------------------------- */

struct SoakTask {
  std::uint64_t seed    = 1;
  long          solves  = 0;
  long          seconds = -1; /* at most, or -1 */
  unsigned      limit   = 30; /* seconds for a case */
  bool          device  = false;
};

/* Whether every answer is right and the memory has not grown. What is found is printed. */
bool Soak(const SoakTask &, std::uint64_t *current_seed, Report *);
