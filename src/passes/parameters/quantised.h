// Finds weights that a file holds as integers, and what belongs to quantisation.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Settles every integer initializer, and the scales of QuantizeLinear, DequantizeLinear, MatMulNBits and
// GatherBlockQuantized. Integers of two axes or more that are dequantised are frozen parameters, which rest and move as
// the file has them, and so are their scales and zero points. All others are constants. Takes the graph as the file has
// it. Returns a finding for each parameter, and for each scale.
std::vector<Finding> settle_quantised(graph::Graph &graph, const LoadInitializer &load);

// Moves the nodes that dequantise weights, and those that only they lead to, right before the first node that combines
// their results with others. Some files list them before all other nodes, so that the widened matrices of all layers
// would exist at once, and outside of the layers.
void widen_late(graph::Graph &graph);

// True if the node reads that input as a scale or zero point.
bool is_scale(const graph::Node &node, std::size_t input);

}  // namespace protrain::passes
