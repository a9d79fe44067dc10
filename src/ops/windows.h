// Windows that slide over the spatial axes of x (N, C, d...), shared by convolution and pooling.
#pragma once

#include <vector>

#include "ops/op.h"

namespace protrain::ops {

struct SlidingWindows {
  // One entry per spatial axis.
  Shape input, kernel, output;
  std::vector<std::int64_t> strides, dilations, before, after;  // before, after: pads, without those of ceil_mode

  std::int64_t extent(std::size_t axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }  // of one window
  // Returns the axis's length with pads and with the elements that ceil_mode adds behind. Every window fits inside it.
  std::int64_t padded(std::size_t axis) const;
  // True if the windows lie side by side from the start of the input, without overlap, gaps or pads.
  bool tile() const;
};

// Returns windows of size `kernel` over x, for a convolution or pooling. Code::shape, Code::graph with the node's name.
SlidingWindows windows_of(const Node &node, const Shape &x, Shape kernel);
// Returns the windows of a ConvTranspose. They slide over the node's output, so `input` is the shape of that output,
// and `output`, the counts of windows, is the shape of x.
SlidingWindows transposed_windows_of(const Node &node, const Shape &x, Shape kernel);

// Returns the indices of all elements of all windows in the padded spatial axes, which are joined to one. With
// `window_first` they are ordered by window, then by element; else by element, then by window.
std::vector<std::int64_t> window_indices(const SlidingWindows &windows, bool window_first);
// Returns the number of elements in each window that are not pads. `with_pads` also counts pads, but not those of
// ceil_mode.
std::vector<double> window_counts(const SlidingWindows &windows, bool with_pads);

}  // namespace protrain::ops
