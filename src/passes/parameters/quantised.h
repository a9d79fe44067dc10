// Finds quantised weights, which a file holds as integers, and their scales and zero points.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Makes a frozen parameter or a constant of every integer initializer, and of the scales of QuantizeLinear,
// DequantizeLinear, MatMulNBits and GatherBlockQuantized. Integers that are dequantised become frozen parameters if
// they have two axes or more. So do their scales and zero points. These parameters rest and move as the file has them.
// All other integers and scales become constants. Takes the graph as the file has it. Returns a finding for each
// parameter, and for each scale.
std::vector<Finding> settle_quantised(graph::Graph &graph, const LoadInitializer &load);

// Moves the nodes that dequantise weights, and the nodes behind them, to later places in the list of nodes. Some files
// list the dequantising nodes before all others. The widened matrices of all layers would then exist at once, and
// outside of the layers. A moved node comes right before the first unmoved node that needs its result. Nodes that
// depend on inputs of the model do not move.
void widen_late(graph::Graph &graph);

// True if the node reads that input as a scale or zero point.
bool is_scale(const graph::Node &node, std::size_t input);

}  // namespace protrain::passes
