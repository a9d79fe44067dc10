// Finds quantised weights, which a file holds as integers, and their scales and zero points.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Decides whether quantised weights become frozen parameters or constants. Looks at every integer initializer with
// readers, and at the scales of QuantizeLinear, DequantizeLinear, MatMulNBits and GatherBlockQuantized. Integers become
// frozen parameters if they have two axes or more and are read only to be dequantised. The scales and zero points of
// these integers become frozen parameters too, if they have no other readers. Frozen parameters are stored and moved in
// the types of the file. All other integers and scales become constants. Takes the graph as the file has it. Returns a
// finding for each frozen parameter, scale and zero point.
std::vector<Finding> settle_quantised(graph::Graph &graph, const LoadInitializer &load);

// Moves the nodes that dequantise weights, and the nodes that depend on their results, to later places in the list of
// nodes. Some files list the dequantising nodes before all others. The widened matrices of all layers would then exist
// at once, and outside of the layers. A moved node comes right before the first unmoved node that needs its result.
// Nodes that depend on inputs of the model do not move.
void widen_late(graph::Graph &graph);

// True if the node reads that input as a scale or zero point.
bool is_scale(const graph::Node &node, std::size_t input);

}  // namespace protrain::passes
