// Numbers that an environment variable overrides, so that a run by hand can ask for more cases than CI.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace protrain::test {

inline std::uint64_t asked(const char *variable, std::uint64_t otherwise) {
  const char *text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Returns the number of random plans that a test tries for each model. The number is smaller under the thread
// sanitizer, because a plan takes ten times as long there.
inline std::uint64_t asked_plans() {
#if defined(__SANITIZE_THREAD__)
  return asked("PROTRAIN_PLANS", 4);
#else
  return asked("PROTRAIN_PLANS", 16);
#endif
}

}  // namespace protrain::test
