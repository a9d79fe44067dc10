// Windows: when each chunk that does not rest on the device is there.
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

// `uses`: per chunk the items that read it, ascending; empty for chunks that rest on the device. At most `buffers`
// chunks are there at once, or as many as one item reads. The chunk that is used again last makes room; backward never
// needs it next. A fetch is issued as soon as there is room, up to two ahead. The windows are ordered by fetch.
std::vector<Window> windows(const std::vector<std::vector<std::size_t>> &uses, std::size_t buffers);

}  // namespace protrain::program
