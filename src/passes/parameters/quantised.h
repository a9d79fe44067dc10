// Finds weights that a file holds as integers, and what belongs to quantisation.
#pragma once

#include <vector>

#include "passes/passes.h"

namespace protrain::passes {

// Decides about every integer initializer, and about the scales of QuantizeLinear, DequantizeLinear, MatMulNBits and
// GatherBlockQuantized. Integers of two axes or more that are dequantised become frozen parameters, which rest and move
// as the file has them. So do their scales and zero points. All other such initializers become constants. Takes the
// graph as the file has it. Returns a finding for each parameter, and for each scale.
std::vector<Finding> settle_quantised(graph::Graph &graph, const LoadInitializer &load);

// Moves the nodes that dequantise weights, and the nodes behind them that do not depend on inputs of the model, right
// before the first node that reads their results and depends on inputs. Some files list them before all other nodes, so
// that the widened matrices of all layers would exist at once, and outside of the layers.
void widen_late(graph::Graph &graph);

// True if the node reads that input as a scale or zero point.
bool is_scale(const graph::Node &node, std::size_t input);

}  // namespace protrain::passes
