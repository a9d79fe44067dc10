// Gives an edited manifest a correct checksum.
#pragma once

#include <string>
#include <string_view>

#include "base/checksum.h"

namespace protrain::test {

// Returns the manifest with its own checksum corrected.
inline std::string sealed(std::string text) {
  const std::size_t digits = text.rfind("\"\n}\n") - 32;
  return text.replace(digits, 32, digest_of(std::string_view(text).substr(0, digits)));
}

}  // namespace protrain::test
