// Cuts the sides of matrices into parts.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/shape.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

// Cuts `count` into as few parts of at most `most` as possible. Returns the size of a part, rounded up to a multiple of
// `grain`. All parts have this size, except that the last may be smaller.
inline std::int64_t part_size(std::int64_t count, std::int64_t most, std::int64_t grain = 1) {
  return divided_up(divided_up(count, divided_up(count, most)), grain) * grain;
}

// Returns the part that begins at `first`. The last part may be smaller than `size`.
inline Range part_at(std::int64_t first, std::int64_t size, std::int64_t end) {
  return {first, std::min(first + size, end)};
}

}  // namespace protrain::backend::cpu
