/*
   The fuzzer: random matrices, options and lives of objects, all from one seed, and a verdict about what comes of them.

     fuzz.cxx       the program: seeds, time, and what is printed when a case goes wrong
     systems.cxx    matrices, good ones and nasty ones
     choices.cxx    types and values of options; the keys come from the option tables, by way of -help
     life.cxx       what is done to the objects of a case, and what must hold then
*/
#pragma once

#include <finepc.h>
#include <petscksp.h>

#include <cstdint>
#include <string>
#include <vector>

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

  bool good      = true;  /* symmetric positive definite, far from singular, no large numbers */
  bool constants = false; /* rows sum to 0, and MatSetNullSpace() is called */
  bool assembled = true;
};

System MakeSystem(Random &);
System WithOtherValues(const System &, Random &); /* the same nonzeros */

/* Makes the matrix of a type, its rows handed out to the ranks at random. */
PetscErrorCode CreateMat(const System &, MatType, Random &, Mat *);
/* Puts other values on the same nonzeros. */
PetscErrorCode SetValues(const System &, Mat);

/* ------------------------------------------ choices ------------------------------------------- */

struct Choice {
  std::string ksp, pc, mat, options;
  bool        defaults = true; /* no options of a preconditioner or a solver of finepc */
};

/* The device takes part if `device` says so: then half of the matrices are made on it. */
Choice MakeChoice(const System &, int ranks, bool device, Random &);
/* Options of the type of a PC, some with values that they cannot have. */
std::string OptionsOf(const std::string &pc, Random &);

/* -------------------------------------------- life -------------------------------------------- */

/* Lives through the case of this seed. What must not be is added to `faults`, what was done to `log`. */
void Live(std::uint64_t seed, bool device, std::string *log, std::vector<std::string> *faults);
