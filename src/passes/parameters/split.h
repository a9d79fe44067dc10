// Splits tensors that exporters merged into one because they were equal.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Splits merged tensors. Exporters store equal initializers only once. For example, all norms of a fresh model read the
// same vector of ones, and the layers of a fresh encoder that were copied from one layer read the same matrices.
//   If the file names tensors that were merged (graph::FileDeclarations::merged), it tells all that were. Those that
// were equal by chance, and those of copied modules, become initializers of their own. Those that share their memory in
// the framework stay one.
//   Otherwise the file does not tell, and each reader gets a vector of its own. A vector is taken for a merged one if
// all its numbers are equal and it has several readers. Matrices stay merged, because layers often share them.
//   Some models use a whole layer several times, and all uses read the same vectors. Such a layer shows itself by a
// stored matrix that several nodes apply. So readers keep sharing a vector if the same matrix is nearest to all of
// them, and several nodes apply this matrix. Takes the graph as the file has it. Does not load vectors that all readers
// keep sharing.
//   Means and variances of normalizations are no parameters. They never share a vector with a parameter.
std::vector<graph::Split> split_merged(graph::Graph &graph, const LoadInitializer &load,
                                       const std::map<std::string, graph::MergedTensor> &merged = {});

// True if the input is a mean or variance that the node does not compute itself.
bool is_statistic(const graph::Node &node, std::size_t input);

}  // namespace protrain::passes
