/*
   The mailbox between the host and the kernels of a conjugate gradient method, or of GMRES.

   The kernels keep the scalars of the method, the decision about its end, and a record of each of the last kCGRecords iterations in
   one State on the device, a CGState or a GMRESState. The host does not wait for an iteration: it launches some iterations with a
   kernel behind them that copies the state, and launches the next ones before that is done. It reads the oldest copy that it has
   not read yet, and so learns of the end late. Kernels that were launched beyond the end find the decision in the state and change
   nothing.

   A solver begins each phase with Begin(), or Renew() and Send(), then calls KeepAhead() and Report(), or Read(), in turns until
   there is a reason to stop.
*/
#pragma once

#include <petsctime.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <vector>

#include "buffer.cuh"
#include "cgscalars.cuh"
#include "sparse/transfer.cuh"

constexpr int kCGInFlight = 2; /* launches that the host is ahead at most; each has a copy of the state of its own */

/* What is called while the host waits, with the seconds that it has waited. */
using Watch = std::function<PetscErrorCode(double)>;

/*
   Waits for the event. If there is a function `watch` it is called again and again while the event has not come, and an error of it
   ends the waiting; without it the host sleeps or spins as CUDA has it.
*/
inline PetscErrorCode AwaitEvent(cudaEvent_t event, const Watch &watch)
{
  constexpr int  kAsk = 4096; /* looks at the event between two calls of watch(), which take some milliseconds together */
  PetscLogDouble begin, now;

  PetscFunctionBegin;
  if (watch) PetscCall(PetscTime(&begin));
  for (int looks = 1; watch; looks++) {
    const cudaError_t found = cudaEventQuery(event);
    if (found != cudaErrorNotReady) {
      PetscCallCUDA(found);
      PetscFunctionReturn(PETSC_SUCCESS);
    }
    (void)cudaGetLastError(); /* not to be ready is no error of a launch */
    if (looks % kAsk) continue;
    PetscCall(PetscTime(&now));
    PetscCall(watch(now - begin));
  }
  PetscCallCUDA(cudaEventSynchronize(event));
  PetscFunctionReturn(PETSC_SUCCESS);
}

constexpr int kPostBlock = 256;

/*
   Copies the state to its next place in `seen`, which has kCGInFlight of them and may be pinned memory of the host. A kernel does
   so, since what comes behind a copy by cudaMemcpyAsync() starts some 10 us later.
*/
template <typename State>
__global__ void __launch_bounds__(kPostBlock) PostState(State *state, State *seen)
{
  typedef unsigned long long __attribute__((may_alias)) Word;
  static_assert(sizeof(State) % sizeof(Word) == 0 && alignof(State) % alignof(Word) == 0, "whole words are copied");
  WaitForPrevious();
  LetNextStart();
  const unsigned posted = state->posted;
  for (size_t k = threadIdx.x; k < sizeof(State) / sizeof(Word); k += kPostBlock)
    ((Word *)(seen + posted % kCGInFlight))[k] = ((const Word *)state)[k];
  __syncthreads();
  if (threadIdx.x == 0) state->posted = posted + 1;
}

template <typename State>
class Mailbox {
public:
  explicit Mailbox(WorkMeter *meter = nullptr) : state_(meter) { }
  Mailbox(const Mailbox &)            = delete;
  Mailbox &operator=(const Mailbox &) = delete;

  /*
     Copies of the state come into pinned memory of the host, in the stream of the iterations. Nothing is faster to read, but to pin
     memory takes longer than some iterations.
  */
  PetscErrorCode CreatePinned()
  {
    PetscFunctionBegin;
    PetscCall(PinnedTake(kCGInFlight * sizeof(State), (void **)&seen_));
    pinned_ = true;
    memset((void *)seen_, 0, kCGInFlight * sizeof(State));
    PetscCall(CreateEvents());
    PetscCall(state_.Allocate(1));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /*
     Copies of the state stay on the device, and the host fetches one of them into pageable memory when it reads. It does so in the
     stream `aside`, which belongs to the caller and is used for nothing else at that time.
  */
  PetscErrorCode CreateFetched(cudaStream_t aside)
  {
    PetscFunctionBegin;
    aside_ = aside;
    fetched_.resize(1);
    seen_ = fetched_.data();
    PetscCall(CreateEvents());
    PetscCall(state_.Allocate(1 + kCGInFlight)); /* the state and its copies */
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* Waits for what is under way, too. Also for a mailbox that was not created. */
  PetscErrorCode Destroy()
  {
    PetscFunctionBegin;
    PetscCall(Wait());
    for (cudaEvent_t &event : event_) {
      if (event) PetscCallCUDA(cudaEventDestroy(event));
      event = nullptr;
    }
    if (pinned_) PetscCall(PinnedGive(kCGInFlight * sizeof(State), seen_));
    pinned_ = false;
    seen_   = nullptr;
    state_.Free();
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* From now on the host waits for launches so, see AwaitEvent(). */
  void WatchBy(Watch watch) { watch_ = std::move(watch); }

  State *state() const { return state_.data(); } /* on the device */
  size_t bytes() const { return state_.bytes(); }
  int    ahead() const { return (int)(launched_ - arrived_); } /* launches that are left to be read */
  bool   idle() const { return !ahead(); }

  /* Launches that the host was ahead at the end of a solve may still run: waits for them. */
  PetscErrorCode Wait()
  {
    PetscFunctionBegin;
    for (; arrived_ < launched_; arrived_++) PetscCall(AwaitEvent(event_[arrived_ % kCGInFlight], watch_));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Waits for all launches, so that no copy is on its way to the next phase's state. */
  PetscErrorCode Renew()
  {
    PetscFunctionBegin;
    PetscCall(Wait());
    launched_ = arrived_ = 0;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  State *next() const { return seen_; } /* where the host writes it */
  /* Sends so many bytes of it to the device. */
  PetscErrorCode Send(size_t bytes, cudaStream_t stream)
  {
    PetscFunctionBegin;
    PetscCallCUDA(cudaMemcpyAsync(state(), seen_, bytes, cudaMemcpyHostToDevice, stream));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Launches a copy of what the launches before it make of the state. It may be captured. */
  PetscErrorCode Post(bool early, cudaStream_t stream)
  {
    PetscFunctionBegin;
    PetscCall(LaunchEarly(early, PostState<State>, 1, kPostBlock, stream, state(), pinned_ ? seen_ : state() + 1));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* Follows each launch of something with Post(): Read() will wait for it. */
  PetscErrorCode Posted(cudaStream_t stream)
  {
    PetscFunctionBegin;
    PetscCallCUDA(cudaEventRecord(event_[launched_ % kCGInFlight], stream));
    launched_++;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Posts the state and waits for it. No launch may be under way. */
  PetscErrorCode Fetch(cudaStream_t stream, const State **state)
  {
    PetscFunctionBegin;
    PetscCall(Post(false, stream));
    PetscCall(Posted(stream));
    PetscCall(Read(state));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Waits for the oldest copy that has not been read, and gives it; it is valid until the next call. */
  PetscErrorCode Read(const State **state)
  {
    const int slot = (int)(arrived_ % kCGInFlight);

    PetscFunctionBegin;
    *state = nullptr; /* until there is one */
    if (pinned_) PetscCall(AwaitEvent(event_[slot], watch_));
    else {
      PetscCallCUDA(cudaStreamWaitEvent(aside_, event_[slot], 0));
      PetscCallCUDA(cudaMemcpyAsync(seen_, this->state() + 1 + slot, sizeof(State), cudaMemcpyDeviceToHost, aside_));
      PetscCallCUDA(cudaStreamSynchronize(aside_));
    }
    arrived_++;
    *state = seen_ + (pinned_ ? slot : 0);
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* Calls launch(), which ends with Post(), until so many launches are under way. */
  template <typename Launch>
  PetscErrorCode KeepAhead(int launches, cudaStream_t stream, Launch launch)
  {
    PetscFunctionBegin;
    while (launched_ - arrived_ < launches) {
      PetscCall(launch());
      PetscCall(Posted(stream));
    }
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /* The first `count` dots of the state, after what the stream does before; no launch may be under way. */
  PetscErrorCode GetDots(int count, PetscReal dots[], cudaStream_t stream)
  {
    double *const to = seen_->dots;

    PetscFunctionBegin;
    PetscCallCUDA(cudaMemcpyAsync(to, state()->dots, count * sizeof(*to), cudaMemcpyDeviceToHost, stream));
    PetscCallCUDA(cudaStreamSynchronize(stream));
    for (int c = 0; c < count; c++) dots[c] = to[c];
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  PetscErrorCode CreateEvents()
  {
    PetscFunctionBegin;
    for (cudaEvent_t &event : event_) PetscCallCUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  Buffer<State>      state_;
  State             *seen_   = nullptr; /* what the host reads: [kCGInFlight] if pinned, else one */
  bool               pinned_ = false;
  std::vector<State> fetched_;                      /* the memory of seen_, if not pinned */
  cudaStream_t       aside_              = nullptr; /* by which copies are fetched, if not pinned */
  cudaEvent_t        event_[kCGInFlight] = {};      /* the copy of this slot is there */
  long               launched_ = 0, arrived_ = 0;   /* copies since Renew(): launched, and waited for */
  Watch              watch_;
};

/* The mailbox of a State whose scalars count the iterations, and that has a record of each. */
template <typename State>
class IterationMailbox : public Mailbox<State> {
  using Scalars = decltype(State::s);
  using Record  = std::remove_extent_t<decltype(State::records)>;

public:
  using Mailbox<State>::Mailbox;

  /* The state that a phase begins with: these scalars and this test, and what State::Keep() keeps of the last copy. */
  PetscErrorCode Begin(const Scalars &s, const CGTest &test, cudaStream_t stream)
  {
    State *const begin = this->next();

    PetscFunctionBegin;
    PetscCall(this->Renew());
    const auto kept = begin->Keep();
    memset((void *)begin, 0, offsetof(State, records));
    begin->Restore(kept);
    begin->s    = s;
    begin->test = test;
    PetscCall(this->Send(offsetof(State, records), stream));
    reported_ = s.iteration;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

  /*
     Waits for the oldest launch that has not been read, and gives the records of the iterations since the last report, which are
     valid until the next one, and how the method has stopped, if it has: see CGFusedAdvance_CUDA().
  */
  PetscErrorCode Report(LocalInt *count, const Record **records, decltype(Scalars::stop) *stop, LocalInt *its, PetscReal *value)
  {
    const State *seen;

    PetscFunctionBegin;
    PetscCall(this->Read(&seen));
    *count = seen->s.iteration - reported_;
    for (LocalInt k = 0; k < *count; k++) records_[k] = seen->records[(reported_ + 1 + k) % kCGRecords];
    *records  = records_;
    reported_ = seen->s.iteration;
    *stop     = seen->s.stop;
    *its      = seen->s.its;
    *value    = seen->s.value;
    PetscFunctionReturn(PETSC_SUCCESS);
  }

private:
  LocalInt reported_ = 0;        /* iterations that the caller knows of */
  Record   records_[kCGRecords]; /* of the last report */
};

using CGMailbox = IterationMailbox<CGState>;
