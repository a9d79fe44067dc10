// Ties weights again that are one tensor in the framework and that the exporter wrote several times.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Each entry of `ties` is a group of patterns. Ties the parameters that a group matches to the first of them, in the
// order of `findings`. Throws Code::shape if their types are neither equal nor those of a matrix and its transpose.
// Throws Code::arg if a group matches fewer than two parameters.
void tie(graph::Graph &graph, const std::vector<std::string> &ties, std::vector<Finding> &findings);

// If a matrix equals the transpose of an embedding table bit for bit, ties it to the table. Matrices that are constant
// along an axis are not tied, because two of them may be equal by chance.
void retie_transposes(graph::Graph &graph, const LoadInitializer &load, std::vector<Finding> &findings);

// Sets graph.parameters: the parameters and states that nodes read, in the order of first use, with all states last.
void order_parameters(graph::Graph &graph);

}  // namespace protrain::passes
