// A storage root stands for all values that share its bytes: its aliases, and results that are computed in place.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace protrain::program {

// Returns for each value the value whose bytes it uses: itself, or the start of a chain of aliases and of operators
// that work in place.
std::vector<graph::ValueId> storage_roots(const graph::Graph &graph);

inline std::uint64_t bytes_of(const graph::Graph &graph, graph::ValueId id) {
  const graph::Type &type = graph.value(id).type;
  return byte_count(type.dtype, type.shape);
}

}  // namespace protrain::program
