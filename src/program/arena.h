// Offsets for buffers whose lifetimes are known.
#pragma once

#include <cstdint>
#include <vector>

namespace protrain::program {

struct Interval {
  std::size_t first = 0, last = 0;  // instructions between which the bytes are in use, both included
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // assigned
};

// Assigns offsets, multiples of kAlignment, so that intervals that overlap in time do not overlap in bytes: the largest
// first, each into the tightest gap that fits. Returns the bytes used.
std::uint64_t assign_offsets(std::vector<Interval> &intervals);

}  // namespace protrain::program
