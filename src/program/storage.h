// A storage root stands for all values that share its bytes: its aliases, and results that are computed in place.
#pragma once

#include <cstdint>
#include <vector>

#include "base/queue.h"
#include "base/tier.h"
#include "graph/graph.h"

namespace protrain::program {

// Returns for each value the value whose bytes it uses: itself, or the start of a chain of aliases and of operators
// that work in place.
std::vector<graph::ValueId> storage_roots(const graph::Graph &graph);

// Returns the alignment of a buffer in a tier. This does not cover a buffer in memory whose bytes move to or from the
// disk: whoever adds such a buffer must ask for the disk's alignment, kDiskAlignment.
inline std::uint64_t alignment_in(Tier tier) { return tier == Tier::disk ? kDiskAlignment : kAlignment; }

inline std::uint64_t bytes_of(const graph::Graph &graph, graph::ValueId id) {
  const graph::Type &type = graph.value(id).type;
  return byte_count(type.dtype, type.shape);
}

}  // namespace protrain::program
