// Windows that slide over the spatial axes of x (N, C, d...): what convolution and pooling have in common.
#pragma once

#include <vector>

#include "ops/op.h"

namespace protrain::ops {

struct Windows {
  // One entry a spatial axis.
  Shape input, kernel, output;
  std::vector<std::int64_t> strides, dilations, before, after;  // pads in front and behind, as the node names them

  std::int64_t extent(std::size_t axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }  // of one window
  // What the axis measures where every window finds all its elements: pads, and what rounding up adds behind.
  std::int64_t padded(std::size_t axis) const;
  // Windows that lie side by side and cover their input from its start, without pads.
  bool tile() const;
};

// Of a convolution or pooling with windows of `kernel` over x; Code::shape, Code::graph with the node's name.
Windows windows_of(const Node &node, const Shape &x, Shape kernel);
// Of ConvTranspose: `output` of the node is what slides, its own x counts the windows; `input` is that output.
Windows transposed_windows_of(const Node &node, const Shape &x, Shape kernel);

// Where window p finds its element k, in the padded input's spatial axes taken as one: [k][p], or [p][k].
std::vector<std::int64_t> window_indices(const Windows &windows, bool window_first);
// How many elements each window has that are no pads; `with_pads`: that are within the pads the node names.
std::vector<double> window_counts(const Windows &windows, bool with_pads);

}  // namespace protrain::ops
