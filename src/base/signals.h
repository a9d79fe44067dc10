// Signals belong to the host program's threads, not to the library's.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace protrain {

// Blocks all signals for the calling thread while the object lives. Threads that are started meanwhile inherit the mask
// and never get a signal.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockedSignals(const BlockedSignals &) = delete;
  BlockedSignals &operator=(const BlockedSignals &) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace protrain
