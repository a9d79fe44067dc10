// Splits vectors again that exporters merged because they were equal.
#pragma once

#include <cstddef>
#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Gives each place that reads a merged vector a vector of its own. Exporters keep one of several initializers of equal
// value: all norms of a fresh model read one vector of ones. So a vector may be merged if all its numbers are equal.
// Places keep one vector if the matrices near them are also applied in several places: then a whole layer is shared on
// purpose. Takes the graph as the file has it, and loads only vectors that may be split.
//
// Means and variances of normalizations are no parameters, and never share a vector with a parameter.
std::vector<graph::Split> split_merged(graph::Graph &graph, const LoadInitializer &load);

// True if the input is a mean or variance that the node does not compute itself.
bool is_statistic(const graph::Node &node, std::size_t input);

}  // namespace protrain::passes
