// Splits vectors again that exporters merged because they were equal.
#pragma once

#include <cstddef>
#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Gives the readers of a merged vector vectors of their own. Exporters store only one of several initializers with
// equal numbers: all norms of a fresh model read one vector of ones. So a vector is taken for a merged one if all its
// numbers are equal and it has several readers. Readers next to the same stored matrix go on sharing a vector if
// several nodes apply this matrix, because the model then uses a whole layer several times. Takes the graph as the file
// has it, and loads a vector only if some of its readers would not go on sharing it.
//   Means and variances of normalizations are no parameters. They never share a vector with a parameter.
std::vector<graph::Split> split_merged(graph::Graph &graph, const LoadInitializer &load);

// True if the input is a mean or variance that the node does not compute itself.
bool is_statistic(const graph::Node &node, std::size_t input);

}  // namespace protrain::passes
