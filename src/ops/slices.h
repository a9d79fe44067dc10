// Slice's bounds, resolved against a shape.
#pragma once

#include <vector>

#include "ops/op.h"

namespace protrain::ops {

struct AxisSlice {
  std::int64_t start = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;  // elements taken
};

// Returns one entry per axis of `shape`, from the attributes starts, ends, axes, steps. As in ONNX, negative bounds
// count from the end, and bounds out of range are clamped. Code::shape with the node's name for a step of 0 or lists of
// unequal length.
std::vector<AxisSlice> resolve_slices(const Node &node, const Shape &shape);

}  // namespace protrain::ops
