// The work of a node before it is made.
#pragma once

#include <span>

#include "ops/op.h"

namespace protrain::ops {

// Of a node whose outputs would have these types; see Op::flops.
double flops(const graph::Graph &graph, const Node &node, std::span<const Type> outputs);

}  // namespace protrain::ops
