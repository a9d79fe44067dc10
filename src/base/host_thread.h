// A thread of the host program while it is inside the library: what the host has set for it must not reach in here.
#pragma once

#include <pthread.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace protrain {

// Keeps what the host has set for the calling thread away from the library while the object lives:
// - Arithmetic rounds to nearest, keeps small numbers and does not trap. Another rounding would change bits, and a trap
//   would end the program. Threads that are started meanwhile inherit this.
// - The thread is not cancelled. pthread_cancel unwinds the stack, and ends the program if a destructor or a catch
//   block is in the way. It takes effect afterwards.
class HostThread {
 public:
#if defined(__x86_64__)
  // Ten times faster than <cfenv>, which also sets the x87 unit, where the library computes nothing.
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
