/*
   A case on the host and on a GPU. What is done is the same, since the same numbers choose it, and what comes of it must be the
   same to rounding. That is:

     - a solve converges on both, after iterations that differ by at most 3 and a tenth, or on none of them; Judge() in life.cxx has
       looked at the true residuals of both;
     - a preconditioner fails on both, for the same reason, or on none of them;
     - an error is one on both.

   Where host and GPU differ, the host does it again several times with entries that differ by rounding, in double and in single
   precision, in which most factors are. If the host itself comes to what the GPU has come to, or to so many iterations, then
   rounding has decided.

   A matrix that is singular, indefinite, or beyond the range of a factor may come to anything within the iterations: a few runs do
   not show all of it. There it is counted, and told, and no fault, if iterations differ, or if one side converges and the other one
   says that it does not, or if both say that they do not, for another reason. The last pivot of a singular matrix whose null space
  nobody has told may be positive or not. The iterations of auto, which takes other preconditioners on a GPU, are not compared.

   From an error of one side alone that says that there is no such thing (PETSC_ERR_SUP) on the rest of the case is not compared:
   block ILU(0) of our own, for instance, is on the GPU alone. So it is where PETSc's matrices on the host refuse what those on a
   GPU take, or the other way round: a factorization without a diagonal entry, a block of a matrix with duplicate entries, the
   solution where the matrix has got another size. Nor is
   what PETSc has done without finepc compared, nor what comes after it.
*/
#include <algorithm>
#include <cstdio>

#include "fuzz.h"

namespace
{

enum class Verdict { Done, Converged, Failed, Diverged, Error };

Verdict VerdictOf(const Event &e)
{
  if (e.code == PETSC_ERR_NOT_CONVERGED || e.code == PETSC_ERR_CONV_FAILED) return Verdict::Diverged;
  if (e.code == PETSC_ERR_MAT_LU_ZRPVT) return Verdict::Failed; /* with KSPSetErrorIfNotConverged() */
  if (e.code) return Verdict::Error;
  if (!e.solve) return Verdict::Done;
  if (e.reason > 0) return Verdict::Converged;
  return e.reason == KSP_DIVERGED_PC_FAILED || e.failed ? Verdict::Failed : Verdict::Diverged; /* some solvers do not say which */
}

std::string TextOf(const Event &e)
{
  if (e.code) return "error " + std::to_string(e.code);
  if (!e.solve) return "done";
  const std::string text = KSPConvergedReasons[e.reason];
  return text + " in " + std::to_string(e.iterations) + (e.failed ? std::string(", ") + PCFailedReasons[e.failed] : "");
}

/* Whether the one has converged, and the other has not within the iterations that it may make. */
bool EndAtLimit(const Event &one, const Event &other)
{
  const auto at_limit = [](const Event &e) { return VerdictOf(e) == Verdict::Diverged && e.reason == KSP_DIVERGED_ITS; };
  return (at_limit(one) && VerdictOf(other) == Verdict::Converged) || (at_limit(other) && VerdictOf(one) == Verdict::Converged);
}

/* Whether the GPU has come to what one of the runs on the host has, at this place. */
bool Agrees(const Event &device, const std::vector<Report> &host, size_t at)
{
  PetscInt    fewest = PETSC_INT_MAX, most = -1;
  PetscMPIInt ranks;
  bool        same = false;
  for (const Report &report : host) {
    if (at >= report.events.size()) continue;
    const Event &e = report.events[at];
    if (e.step != device.step || (VerdictOf(e) != VerdictOf(device) && !EndAtLimit(e, device))) continue;
    if (VerdictOf(e) == Verdict::Failed && e.failed != device.failed) continue;
    same   = true;
    fewest = std::min(fewest, e.iterations);
    most   = std::max(most, e.iterations);
  }
  if ((VerdictOf(device) != Verdict::Converged && device.reason != KSP_DIVERGED_ITS) || device.chooses) return same;
  MPI_Comm_size(PETSC_COMM_WORLD, &ranks);
  if (ranks > 1) fewest = 0; /* where they come together, a preconditioner of a rank's own is one of all rows */
  return same && device.iterations >= fewest - fewest / 10 - 3 && device.iterations <= most + most / 10 + 3;
}

/* Whether one side alone refuses, in words of PETSc that no type of finepc has. */
bool PetscRefuses(const Event &host, const Event &device)
{
  const std::string &text    = host.code ? host.text : device.text;
  int                refuses = false;
  for (const char *words : {"Matrix is missing diagonal entr", "nnz cannot be greater than row length",
                            "Not for unassembled matrix", "Incompatible vector local lengths"})
    refuses = refuses || (!host.code != !device.code && text.find(words) != std::string::npos);
  MPI_Allreduce(MPI_IN_PLACE, &refuses, 1, MPI_INT, MPI_MAX, PETSC_COMM_WORLD);
  return refuses;
}

bool AllAgree(const Event &device, const std::vector<Report> &host, size_t at)
{
  int mine = Agrees(device, host, at), all;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, PETSC_COMM_WORLD);
  return all;
}

} // namespace

void LiveOnBoth(std::uint64_t seed, const Place &other, Report *report, Differences *differences)
{
  std::vector<Report>      host(1);
  std::vector<std::string> faults;
  Place                    place;
  PetscMPIInt              rank;

  MPI_Comm_rank(PETSC_COMM_WORLD, &rank);
  place.reference = true;
  Live(seed, place, report);
  host[0] = *report;
  for (const std::string &fault : host[0].faults) faults.push_back("on the host: " + fault);
  Live(seed, other, report);
  const Report found = *report;
  for (const std::string &fault : found.faults) faults.push_back("on the GPU: " + fault);

  const std::vector<Event> events   = host[0].events;
  bool                     rounding = false;
  for (size_t k = 0; k < std::min(events.size(), found.events.size()); k++) {
    const Event &here = events[k], &there = found.events[k];
    if ((here.code == PETSC_ERR_SUP) != (there.code == PETSC_ERR_SUP) || PetscRefuses(here, there)) break;
    if (AllAgree(there, host, k)) continue;
    if (!here.ours) break;
    if (host.size() == 1) {
      for (double noise : {1e-15, 1e-7})
        for (int trial = 1; trial <= 3; trial++) {
          place.noise = noise;
          place.trial = trial;
          Live(seed, place, report);
          host.push_back(*report);
        }
      rounding = true;
      if (AllAgree(there, host, k)) continue;
    }
    const std::string text =
      here.step + " (step " + std::to_string(k + 1) + "): on the host " + TextOf(here) + ", on the GPU " + TextOf(there);
    rounding             = false;
    const auto is        = [](const Event &e, Verdict verdict) { return VerdictOf(e) == verdict; };
    const auto says_no   = [&](const Event &e) { return is(e, Verdict::Diverged) || is(e, Verdict::Failed); };
    const auto tolerable = [&](const Event &e) { return is(e, Verdict::Converged) || is(e, Verdict::Diverged); };
    const bool both_say  = says_no(here) && says_no(there);
    const bool chosen    = there.chooses && (here.code == PETSC_ERR_NOT_CONVERGED || there.code == PETSC_ERR_NOT_CONVERGED);
    const bool pivot     = here.singular && (is(here, Verdict::Converged) || is(there, Verdict::Converged)) &&
                       (here.failed == PC_FACTOR_NUMERIC_ZEROPIVOT || there.failed == PC_FACTOR_NUMERIC_ZEROPIVOT);
    if (here.good || !(both_say || pivot || chosen || (tolerable(here) && tolerable(there)))) faults.push_back(text);
    else {
      differences->tolerated++;
      if (!rank) std::printf("tolerated: --seed %llu: %s\n", (unsigned long long)seed, text.c_str());
    }
    break; /* what follows begins with other vectors */
  }
  differences->by_rounding += rounding;
  *report        = found;
  report->faults = faults;
  if (!faults.empty()) report->log = "On the host:\n" + host[0].log + "On the GPU:\n" + found.log;
}
