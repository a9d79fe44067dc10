// HostThread: shields the library from the settings of a thread of the host program while the thread is inside the
// library.
#pragma once

#include <pthread.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace protrain {

// Gives the calling thread the settings that the library needs, and restores the host's settings at the end:
// - Arithmetic rounds to nearest, keeps subnormal numbers and does not trap. Another rounding would change bits, and a
//   trap would end the program. Threads that are started meanwhile inherit this.
// - The thread cannot be cancelled, because pthread_cancel unwinds the stack, and ends the program if a destructor or a
//   catch block is in the way. A cancellation that is asked for meanwhile takes effect afterwards.
class HostThread {
 public:
#if defined(__x86_64__)
  // Sets only the register of the SSE unit. <cfenv> would also set the x87 unit, in which the library computes nothing,
  // and would take ten times as long.
  HostThread() : arithmetic_(_mm_getcsr()) {
    _mm_setcsr(kUsual);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels_);
  }
  ~HostThread() {
    pthread_setcancelstate(cancels_, nullptr);
    _mm_setcsr(arithmetic_);
  }
#else
  HostThread() {
    std::fegetenv(&arithmetic_);
    std::fesetenv(FE_DFL_ENV);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancels_);
  }
  ~HostThread() {
    pthread_setcancelstate(cancels_, nullptr);
    std::fesetenv(&arithmetic_);
  }
#endif
  HostThread(const HostThread &) = delete;
  HostThread &operator=(const HostThread &) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kUsual = 0x1f80;
  unsigned arithmetic_;
#else
  std::fenv_t arithmetic_{};
#endif
  int cancels_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace protrain
