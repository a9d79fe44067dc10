// Which values are the same bytes.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace protrain::program {

// The value whose bytes each value uses: itself, or what a chain of operators that work in place began with. Reshape
// moves nothing; Accumulate adds to its first input where that lies.
std::vector<graph::ValueId> storage_roots(const graph::Graph &graph);

inline bool is_alias(const graph::Node &node) { return node.op == "Reshape"; }

inline std::uint64_t bytes_of(const graph::Graph &graph, graph::ValueId id) {
  const graph::Type &type = graph.value(id).type;
  return byte_count(type.dtype, type.shape);
}

}  // namespace protrain::program
