// Damage that exporters do to the sharing of weights, and its repair.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// A matrix that equals an embedding table's transpose, bit for bit, and is not constant-valued, is that table again.
void retie_transposes(graph::Graph &graph, const LoadInitializer &load, std::vector<Finding> &findings);

// Lists the graph's parameters in the order of first use.
void order_parameters(graph::Graph &graph);

}  // namespace protrain::passes
