/* In the place of cuda/bulk.cuh: the copies of a turn come as late as they may, when the first thread waits for them. */
#pragma once

#include "launch.cuh"

constexpr int kBulkWord = 16;

class CopyBarrier {
public:
  void Init() { *this = CopyBarrier{}; }
  void Announce(unsigned bytes)
  {
    if (announced_) emulator::Fail("a turn of copies is announced before the one ahead has come in");
    announced_ = true;
    bytes_     = bytes;
  }
  void Begin(void *to, const void *from, unsigned bytes)
  {
    if ((size_t)to % kBulkWord || (size_t)from % kBulkWord || bytes % kBulkWord || !bytes)
      emulator::Fail("no whole words in a copy");
    if (!announced_ || count_ == kMost) emulator::Fail("a copy that is not announced, or too many of them");
    copy_[count_++] = {to, from, bytes};
    std::memset(to, 0xff, bytes); /* whoever does not wait for them reads this */
  }
  void Wait(unsigned parity)
  {
    while (turn_ % 2 == parity) {
      if (announced_) Arrive();
      else emulator::GiveWay();
    }
  }

private:
  static constexpr int kMost = 4;
  struct Copy {
    void       *to;
    const void *from;
    unsigned    bytes;
  };
  void Arrive()
  {
    unsigned bytes = 0;
    for (int k = 0; k < count_; k++) {
      std::memcpy(copy_[k].to, copy_[k].from, copy_[k].bytes);
      bytes += copy_[k].bytes;
    }
    if (bytes != bytes_) emulator::Fail("other bytes are copied than were announced");
    count_     = 0;
    announced_ = false;
    turn_++;
  }
  unsigned turn_, bytes_;
  int      count_;
  bool     announced_;
  Copy     copy_[kMost];
};

inline PetscErrorCode SupportsBulkCopies(const void *kernel, bool *supports)
{
  return SupportsEarlyLaunch(kernel, supports);
}
