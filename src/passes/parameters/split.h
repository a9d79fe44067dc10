// Repairs initializers that exporters merged.
#pragma once

#include <cstddef>
#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Exporters keep one of several initializers of equal value: all norms of a fresh model read one vector of ones. Here a
// constant-valued vector that is read in several places becomes one vector per place. It stays one if the matrices
// beside these places are also applied in several places: then a whole layer is shared on purpose. Works on the graph
// as in the file, and loads only vectors that may be split.
//
// Means and variances of normalizations are no parameters, and are never merged with one.
std::vector<graph::Split> split_merged(graph::Graph &graph, const LoadInitializer &load);

// True if the node reads a mean or variance at this input that it does not compute itself.
bool is_statistic(const graph::Node &node, std::size_t input);

}  // namespace protrain::passes
