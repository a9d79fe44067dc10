// The dependencies between the values of a graph.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace protrain::graph {

// Marks every value that a marked value depends on, and returns all marks. `marked` has an entry for each value, by id.
// Dependencies through a node for which `cuts` returns true do not count. If `cuts` is nullptr, all dependencies count.
std::vector<bool> with_dependencies(const Graph &graph, std::vector<bool> marked, bool (*cuts)(const Node &) = nullptr);

}  // namespace protrain::graph
