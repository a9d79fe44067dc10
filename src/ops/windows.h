// Windows that slide over the spatial axes of x (N, C, d...), shared by convolution and pooling.
#pragma once

#include <vector>

#include "ops/op.h"

namespace protrain::ops {

struct SlidingWindows {
  // One entry per spatial axis.
  Shape input, kernel, output;
  std::vector<std::int64_t> strides, dilations, before, after;  // pads in front and behind, as the node gives them

  std::int64_t extent(std::size_t axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }  // of one window
  // The axis's length including pads and what rounding up adds behind, so that every window is inside.
  std::int64_t padded(std::size_t axis) const;
  // True if the windows lie side by side and cover the input from its start, without pads.
  bool tile() const;
};

// Windows of `kernel` over x, for a convolution or pooling. Code::shape, Code::graph with the node's name.
SlidingWindows windows_of(const Node &node, const Shape &x, Shape kernel);
// Windows of ConvTranspose. They slide over the node's output, so `input` is that output, and its own x counts them.
SlidingWindows transposed_windows_of(const Node &node, const Shape &x, Shape kernel);

// Index of element k of window p in the padded spatial axes taken as one: [k][p], or [p][k].
std::vector<std::int64_t> window_indices(const SlidingWindows &windows, bool window_first);
// The number of elements in each window that are not pads. `with_pads` also counts the pads that the node gives.
std::vector<double> window_counts(const SlidingWindows &windows, bool with_pads);

}  // namespace protrain::ops
