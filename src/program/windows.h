// Windows: the stretches of a step in which the weights of a chunk that rests elsewhere are on the device.
#pragma once

#include <cstddef>
#include <vector>

namespace protrain::program {

// A stretch of the sequence of items (sequence.h) during which a chunk's weights are on the device.
struct Window {
  std::size_t chunk = 0;
  std::size_t fetch_at = 0;                 // the fetch is issued before this item
  std::size_t first_use = 0, last_use = 0;  // items
};

// Returns the windows, ordered by fetch. uses[chunk] lists the items that read the chunk, ascending. The list is empty
// for chunks that rest on the device. At most `buffers` chunks have windows at the same time, or more if a single item
// reads more chunks. To make room, the chunk whose next use is farthest away leaves. A fetch is issued once there is
// room, at most two chunks ahead of the chunk in use.
std::vector<Window> windows(const std::vector<std::vector<std::size_t>> &uses, std::size_t buffers);

}  // namespace protrain::program
