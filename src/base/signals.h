// Keeps signals away from the library's threads. Signals are for the threads of the host program.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <cerrno>

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

// Keeps a signal from ending the host program while the calling thread makes system calls that can send it. Writes to
// sockets can send SIGPIPE. Writes that exceed the process's limit on file sizes can send SIGXFSZ. Threads that are
// started meanwhile inherit the protection. A signal that was sent meanwhile is discarded. errno stays as the calls
// left it.
class WithheldSignal {
 public:
  explicit WithheldSignal(int signal) {
    sigemptyset(&signal_);
    sigaddset(&signal_, signal);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, signal) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  WithheldSignal(const WithheldSignal &) = delete;
  WithheldSignal &operator=(const WithheldSignal &) = delete;
  ~WithheldSignal() {
    const int error = errno;
    constexpr timespec kNow = {};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &kNow);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }

 private:
  sigset_t signal_, before_;
  bool was_pending_;
};

}  // namespace protrain
