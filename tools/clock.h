// The time, for measuring how long something takes.
#pragma once

#include <chrono>

namespace tool {

// Seconds of the steady clock.
inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace tool
