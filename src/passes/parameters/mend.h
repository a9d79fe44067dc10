// Repairs the damage that exporters do to the sharing of weights.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Makes the parameters that one of `ties` matches into one, the first of them in the order of findings. They must have
// equal types, or be a matrix and its transpose. Code::arg for a pattern that matches fewer than two, Code::shape.
void tie(graph::Graph &graph, const std::vector<std::string> &ties, std::vector<Finding> &findings);

// Ties a matrix that equals an embedding table's transpose, bit for bit, to that table, unless it is constant-valued.
void retie_transposes(graph::Graph &graph, const LoadInitializer &load, std::vector<Finding> &findings);

// Lists the graph's parameters in the order of first use.
void order_parameters(graph::Graph &graph);

}  // namespace protrain::passes
