// The dependencies between the values of a graph.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace protrain::graph {

// Returns `marked` with all values added that marked values depend on. `marked` has an entry for each value, by id.
// Dependencies through a node for which `cuts` returns true do not count. With nullptr all dependencies count.
std::vector<bool> with_dependencies(const Graph &graph, std::vector<bool> marked, bool (*cuts)(const Node &) = nullptr);

}  // namespace protrain::graph
