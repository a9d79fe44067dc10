// Resize along one axis. Each new element is the nearest old one, or a weighted sum of the old ones: a matrix product.
#pragma once

#include <vector>

#include "ops/op.h"

namespace protrain::ops {

struct ResizedAxis {
  std::int64_t from = 1, to = 1;
  double scale = 1;
};

// Returns one entry per axis of x. One of `scales` and `sizes` is nullptr. Throws Code::graph, Code::shape or
// Code::unsupported with the node's name.
std::vector<ResizedAxis> resized_axes(const Node &node, const Shape &x, const Array *scales, const Array *sizes);
// For the mode nearest: returns, for each new element, the number of the old element that it repeats.
std::vector<std::int64_t> nearest_elements(const Node &node, const ResizedAxis &axis);
// For the other modes: returns a matrix (to, from), row-major, whose entry (i, j) is the weight of old element j in new
// element i.
std::vector<double> resize_weights(const Node &node, const ResizedAxis &axis);

}  // namespace protrain::ops
