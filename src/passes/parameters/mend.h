// Ties weights again that are one tensor in the framework and that the exporter wrote several times.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// For each entry of `ties`, ties the parameters that it matches to the first of them, in the order of findings. They
// must have equal types, or be a matrix and its transpose, else Code::shape. Code::arg if fewer than two match.
void tie(graph::Graph &graph, const std::vector<std::string> &ties, std::vector<Finding> &findings);

// If a matrix equals the transpose of an embedding table bit for bit, ties it to the table. Matrices that are constant
// along an axis are not tied, because two of them may be equal by chance.
void retie_transposes(graph::Graph &graph, const LoadInitializer &load, std::vector<Finding> &findings);

// Sets graph.parameters: the parameters and states that nodes read, in the order of first use, with all states last.
void order_parameters(graph::Graph &graph);

}  // namespace protrain::passes
