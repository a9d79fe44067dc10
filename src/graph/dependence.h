// The dependencies between the values of a graph.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace protrain::graph {

// Marks all values that marked values depend on, and returns the marks. `marked` has a mark for each value, by id.
// Dependencies through a node for which `cuts` returns true do not count. nullptr: all count.
std::vector<bool> with_dependencies(const Graph &graph, std::vector<bool> marked, bool (*cuts)(const Node &) = nullptr);

}  // namespace protrain::graph
