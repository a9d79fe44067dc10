// The bounds of the parts that AllToAll and AllGather exchange between ranks.
#pragma once

#include "ops/op.h"

namespace protrain::ops {

// Returns the bounds of an input of AllToAll or AllGather: ranks + 1 element numbers. Code::graph if they are missing.
std::vector<std::int64_t> bounds_of(const Node &node, std::size_t input);

}  // namespace protrain::ops
