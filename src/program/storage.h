// Storage roots: values that share the same bytes.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace protrain::program {

// The value whose bytes each value uses: itself, or the start of a chain of aliases and of operators that work in
// place.
std::vector<graph::ValueId> storage_roots(const graph::Graph &graph);

inline std::uint64_t bytes_of(const graph::Graph &graph, graph::ValueId id) {
  const graph::Type &type = graph.value(id).type;
  return byte_count(type.dtype, type.shape);
}

}  // namespace protrain::program
