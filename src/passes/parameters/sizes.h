// Finds initializers that say how large something is: Resize's scales, the end of a Range.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Turns the float initializers from which sizes are computed into constants, even if other nodes read them too.
// Otherwise the types of values that depend on these sizes would be unknown. Takes the graph as the file has it.
// Returns a finding for each of these initializers.
std::vector<Finding> settle_sizes(graph::Graph &graph, const LoadInitializer &load);

}  // namespace protrain::passes
