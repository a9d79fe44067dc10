// The flops of a node whose outputs are not in the graph yet.
#pragma once

#include <span>

#include "ops/op.h"

namespace protrain::ops {

// Returns the flops of a node whose outputs would have the types `outputs`; see Op::flops.
double flops(const graph::Graph &graph, const Node &node, std::span<const Type> outputs);

}  // namespace protrain::ops
