// Numbers that an environment variable overrides, so that a run by hand can ask for more cases than CI.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace protrain::test {

inline std::uint64_t asked(const char *variable, std::uint64_t otherwise) {
  const char *text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace protrain::test
