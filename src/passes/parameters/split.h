// What exporters merge, and its repair.
#pragma once

#include <cstddef>
#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Exporters keep one of several initializers of equal value: all norms of a fresh model read one vector of ones. A
// constant-valued vector that is read in several places becomes one for each, unless the matrices beside these places
// are applied in several places too: then a whole layer is, and the vector is shared on purpose. Of a graph as the file
// has it; only vectors that may be split are loaded.
//
// Means and variances of normalizations are no parameters, and never one with what is.
std::vector<graph::Split> split_merged(graph::Graph &graph, const LoadInitializer &load);

// Whether the node reads a mean or variance there that it does not compute itself.
bool is_statistic(const graph::Node &node, std::size_t input);

}  // namespace protrain::passes
