// Which values of a graph depend on which.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace protrain::graph {

// Adds to marks of values, by id, all values that the marked ones depend on.
std::vector<bool> with_dependencies(const Graph &graph, std::vector<bool> marked);

}  // namespace protrain::graph
