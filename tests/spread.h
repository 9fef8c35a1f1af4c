/* What the tests of factors that reach other ranks share: matrices that are spread over the ranks, and factors that are gathered.
 */
#pragma once

#include <functional>
#include <vector>

#include "pc_support.h"

int Ranks();
int Rank();

/* How many of n rows each rank has. */
using Share = std::function<LocalInt(LocalInt n, int rank, int size)>;

struct Layout {
  const char *name;
  Share       share;
};

LocalInt Even(LocalInt n, int rank, int size);
/* The even one first, and one with a rank that has no rows. Up to four ranks get more of them. */
const std::vector<Layout> &Layouts();

MatObject Spread(const HostMatrix &, MatType, const Share &);
/* What the ranks send to each other in a call, all together, and how many reductions and gatherings it takes on this rank, as PETSc
 * counts them. */
struct Traffic {
  double messages, bytes, reductions, gatherings;
};
Traffic TrafficOf(const std::function<void()> &call);
/* Whether PETSc's counts are seen here: not on one rank, nor where libpetsc binds its symbols to itself, as in FEniCSx's wheel. */
bool CountsAreSeen();

/* All rows of a matrix on every rank. */
HostMatrix Gathered(Mat);
/* The matrices of the hierarchies of two PCCMATCH are the same to the last bit. */
void CheckSameLevels(PC, PC);

/* Whether the n-th allocation of this rank in a call fails, as there are so many. Then the call is an error on all ranks. */
bool FailsOnAll(int rank, long n, const std::function<PetscErrorCode()> &call,
                FailingMemory::Through = FailingMemory::Through::New);

/* The types of preconditioners whose factors may reach other ranks, and the options with which they reach all of them. */
std::vector<Type>     FSAITypes();
constexpr const char *kAll = "-@overlap 1000 -@halo_layers 10000 ";
double                Larger(double worst, double off); /* of two differences; one that is NaN is larger than all others */
HostMatrix            Factor(PC, const Type &);         /* all rows of G */
void CheckSameFactor(const HostMatrix &mine, const HostMatrix &expected, double tolerance); /* relative to the largest entry */

/* ------------------------------------------ several GPUs -------------------------------------- */

/* The line of the view about the communication of several ranks, after "communication: "; on the first rank. */
std::string CommunicationOf(KSP);
/* After a solve on several ranks: it communicated so. Collective. */
void CheckCommunication(KSP, const std::string &wanted);
