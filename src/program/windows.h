// Windows: the stretches of a step in which the weights of a chunk that rests elsewhere are on the device.
#pragma once

#include <cstddef>
#include <vector>

namespace protrain::program {

// A stay of a chunk on the device, in positions of the sequence.
struct Window {
  std::size_t chunk = 0;
  std::size_t fetch_at = 0;                 // the fetch is issued before this item
  std::size_t first_use = 0, last_use = 0;  // items
};

// Returns the windows, ordered by fetch. `uses`: per chunk the items that read it, ascending; empty for chunks that
// rest on the device. At most `buffers` chunks have windows at the same time; more only if one item reads more. The
// chunk whose next use is farthest away makes room. A fetch is issued once there is room, at most two chunks ahead.
std::vector<Window> windows(const std::vector<std::vector<std::size_t>> &uses, std::size_t buffers);

}  // namespace protrain::program
