// Assigns offsets in an arena to buffers whose lifetimes are known.
#pragma once

#include <cstdint>
#include <vector>

#include "base/queue.h"

namespace protrain::program {

struct Interval {
  std::size_t first = 0, last = 0;  // instructions between which the bytes are in use, both included
  std::uint64_t bytes = 0;
  std::uint64_t alignment = kAlignment;
  std::uint64_t offset = 0;  // assigned by assign_offsets
};

// Assigns offsets so that intervals that overlap in time do not overlap in bytes. Each offset is a multiple of its
// interval's alignment, and at least `base`. The largest interval is placed first, and each goes into the tightest gap
// that fits. Returns the highest byte used, plus one; `base` for no intervals.
std::uint64_t assign_offsets(std::vector<Interval> &intervals, std::uint64_t base);

}  // namespace protrain::program
