// Damage that exporters do to the sharing of weights, and its repair.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// The parameters that one of `ties` matches become the first of them, in the order of findings: of the same type, or a
// matrix and its transpose. Code::arg for one that matches fewer than two, Code::shape.
void tie(graph::Graph &graph, const std::vector<std::string> &ties, std::vector<Finding> &findings);

// A matrix that equals an embedding table's transpose, bit for bit, and is not constant-valued, is that table again.
void retie_transposes(graph::Graph &graph, const LoadInitializer &load, std::vector<Finding> &findings);

// Lists the graph's parameters in the order of first use.
void order_parameters(graph::Graph &graph);

}  // namespace protrain::passes
