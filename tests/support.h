/* What all tests share: PETSc calls as assertions, objects that end with their scope, and where a test can run. */
#pragma once

#include <petscdevice.h>

#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "catch.h"
#include "petsc_compat.h"

/* A PETSc call that must succeed. */
#define MUST(call) REQUIRE((int)(call) == 0)

/* A PETSc object that is destroyed with its scope: Object<KSP, KSPDestroy> ksp; KSPCreate(comm, ksp.put()). */
template <typename T, PetscErrorCode (*Destroy)(T *)>
class Object {
public:
  Object() = default;
  Object(Object &&other) noexcept : object_(std::exchange(other.object_, nullptr)) { }
  Object &operator=(Object &&other) noexcept
  {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Object() { Reset(); }

  operator T() const { return object_; }
  T *put()
  {
    Reset();
    return &object_;
  }
  void Reset() { PetscCallAbort(PETSC_COMM_SELF, Destroy(&object_)); }

private:
  T object_ = nullptr;
};
using MatObject     = Object<Mat, MatDestroy>;
using VecObject     = Object<Vec, VecDestroy>;
using PCObject      = Object<PC, PCDestroy>;
using KSPObject     = Object<KSP, KSPDestroy>;
using OptionsObject = Object<PetscOptions, PetscOptionsDestroy>;

/* Where a test runs. The host comes first; the device is there where one was found. */
struct Backend {
  const char  *name;
  PetscMemType where;
  MatType      mat;
  VecType      vec;
  MatType      dense;
};
const std::vector<Backend> &Backends();
const Backend              &HostBackend();
const Backend              &DeviceBackend();
bool                        DeviceFound();

/* First line of a test with tag [gpu]. */
#define NEEDS_DEVICE()    \
  do {                    \
    if (!DeviceFound()) { \
      SkipTest();         \
      return;             \
    }                     \
  } while (0)
void SkipTest();

/* The options database, for a scope; an empty text leaves the one that is there. */
class Options {
public:
  explicit Options(const std::string &text);
  ~Options();

private:
  OptionsObject options_;
};

/* Collects PETSc's error messages instead of printing them, for a scope. */
class Errors {
public:
  Errors();
  ~Errors();
  std::string text;
};

/* What a getter gives: Got(KSPGetIterationNumber, ksp) */
template <typename Of, typename T>
T Got(PetscErrorCode (*get)(Of, T *), std::common_type_t<Of> object)
{
  T value{};
  MUST(get(object, &value));
  return value;
}

void               Assemble(Mat);
void               SetValues(Vec, const std::vector<double> &); /* of this rank's part */
KSPConvergedReason ReasonOf(KSP);
PCFailedReason     ReasonOf(PC);
PetscInt           IterationsOf(KSP);
double             ResidualOf(Mat, Vec b, Vec x); /* ||b - A x|| / ||b||, or without the division where b is 0 */

/* What -help says about the options of a PC, with their values; on rank 0, empty elsewhere. */
std::string HelpText(PC);
/* What a view prints; on rank 0 of the object's communicator, empty elsewhere. */
std::string ViewText(KSP);
std::string ViewText(PC);
bool        Contains(const std::string &text, const std::string &part);

/*
   Work space of the device is filled with NaN, so that what a set-up forgets to write shows. The host's is
   where PETSc is one for debugging.
*/
void PoisonMemory(PetscMemType where, size_t bytes);

/*
   Bytes that PETSc has allocated on the host, and bytes in use on the device: by all programs, or, where finepc_trace is loaded,
   what this program has allocated. With FINEPC_TEST_SHARED_GPU in the environment the latter are 0: other programs use the GPU, and
   nothing can be loaded beside compute-sanitizer.
*/
PetscLogDouble HostBytes();
PetscLogDouble DeviceBytes();

/* How often a call allocates host memory, through PETSc or through new. */
long CountAllocations(const std::function<void()> &call);
/* How many objects and arrays that new has made are there. */
long LivingMemory();

/*
   For a scope, the n-th allocation fails: of all that are made by new, of those that the library has PETSc make, or of those that
   PETSc makes for anybody and that have so many bytes or more, as vectors have.
*/
class FailingMemory {
public:
  enum class Through { New, PETSc, Large };
  static constexpr size_t kLarge = 8192;
  FailingMemory(Through, long n);
  ~FailingMemory();
  FailingMemory(const FailingMemory &)            = delete;
  FailingMemory &operator=(const FailingMemory &) = delete;
  bool           Failed() const; /* it has come to it */

private:
  int kind_;
};

/* For a scope, a stream that is not in order with the default one. What was begun before the scope is complete at its beginning. */
class OtherStream {
public:
  OtherStream();
  ~OtherStream();
  OtherStream(const OtherStream &)            = delete;
  OtherStream &operator=(const OtherStream &) = delete;
  void         Synchronize() const;

private:
  PetscDeviceContext old_context_, context_;
};

/* Runs a call while a stream is captured: false if the call allocates device memory or waits for the device. */
bool AsynchronousOnDevice(const std::function<void()> &call);
/*
   Runs a call once, then again while the stream is held up before it: false if the second call waits for the device. This is for
   calls that launch a graph, which cannot be captured, too.
*/
bool WaitsForNothingOnDevice(const std::function<void()> &call);
/* What the current stream gets from now on begins so many milliseconds later. */
void HoldStream(int milliseconds);

/* Takes up all memory that the GPU of this rank has left, if `full`, for as long as this object lives. */
class FullDevice {
public:
  explicit FullDevice(bool full);
  ~FullDevice();
  FullDevice(const FullDevice &)            = delete;
  FullDevice &operator=(const FullDevice &) = delete;

private:
  std::vector<void *> taken_;
};

/* Numbers in page-locked memory. A copy of them to the device does not wait for the device. */
class PinnedArray {
public:
  explicit PinnedArray(size_t size);
  ~PinnedArray();
  PinnedArray(const PinnedArray &)            = delete;
  PinnedArray &operator=(const PinnedArray &) = delete;
  double      *begin() const { return data_; }
  double      *end() const { return data_ + size_; }

private:
  size_t  size_;
  double *data_ = nullptr;
};
