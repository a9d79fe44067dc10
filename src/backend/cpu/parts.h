// Cuts the sides of matrices into parts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/shape.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

// Returns the size of a part if `count` is cut into as few parts of at most `most` as possible, all of about the same
// size. It is a multiple of `grain`.
inline std::int64_t part_size(std::int64_t count, std::int64_t most, std::int64_t grain = 1) {
  return divided_up(divided_up(count, divided_up(count, most)), grain) * grain;
}

// Returns the part that begins at `first`. The last part may be smaller than `size`.
inline Range part_at(std::int64_t first, std::int64_t size, std::int64_t end) {
  return {first, std::min(first + size, end)};
}

}  // namespace protrain::backend::cpu
