// Finds initializers that say how large something is: Resize's scales, the end of a Range.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Makes constants of the float initializers from which sizes are computed, whatever else reads them. Without their
// values the types behind them are unknown. Takes the graph as the file has it. Returns a finding for each.
std::vector<Finding> settle_sizes(graph::Graph &graph, const LoadInitializer &load);

}  // namespace protrain::passes
