// Cuts the sides of matrices into parts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/shape.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

// Returns the size of the parts into which `count` is cut. The last part can be smaller. The number of parts is the
// least at which no part is larger than `most`. The size is then rounded up to a multiple of `grain`, which can make it
// larger than `most`.
inline std::int64_t part_size(std::int64_t count, std::int64_t most, std::int64_t grain = 1) {
  return divided_up(divided_up(count, divided_up(count, most)), grain) * grain;
}

// Returns the part that begins at `first`. The last part may be smaller than `size`.
inline Range part_at(std::int64_t first, std::int64_t size, std::int64_t end) {
  return {first, std::min(first + size, end)};
}

}  // namespace protrain::backend::cpu
