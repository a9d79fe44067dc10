// Finds initializers that say how large something is: Resize's scales, the end of a Range.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Makes constants of the float initializers from which sizes are computed, even if other nodes read them too. Without
// the sizes, the types of values that depend on them are unknown. Takes the graph as the file has it. Returns a finding
// for each of these initializers.
std::vector<Finding> settle_sizes(graph::Graph &graph, const LoadInitializer &load);

}  // namespace protrain::passes
