// Windows that slide over the spatial axes of x (N, C, d...), shared by convolution and pooling.
#pragma once

#include <vector>

#include "ops/op.h"

namespace protrain::ops {

inline constexpr std::size_t kMostWindowAxes = 3;  // spatial axes that kernels take

struct SlidingWindows {
  // One entry per spatial axis.
  Shape input, kernel, output;
  std::vector<std::int64_t> strides, dilations, before, after;  // before, after: pads, without those of ceil_mode

  std::int64_t extent(std::size_t axis) const { return (kernel[axis] - 1) * dilations[axis] + 1; }  // of one window
  // Returns the distance from the first window's beginning to the last one's end.
  std::int64_t reach(std::size_t axis) const { return (output[axis] - 1) * strides[axis] + extent(axis); }
  // Returns the axis's length with pads, and with the elements that ceil_mode adds at the axis's end. Every window fits
  // inside this length.
  std::int64_t padded(std::size_t axis) const;
};

// Returns windows of size `kernel` over x, for a convolution or pooling. Throws Code::shape, Code::graph with the
// node's name.
SlidingWindows windows_of(const Node &node, const Shape &x, Shape kernel);
// Returns the windows of the Conv that a ConvTranspose reverses. These windows slide over the node's output. So
// SlidingWindows::input is the shape of the node's output. SlidingWindows::output, the number of windows along each
// axis, is the shape of x.
SlidingWindows transposed_windows_of(const Node &node, const Shape &x, Shape kernel);

// Returns all attributes of a Conv that has these windows. Leaves out pads that no window reaches.
Attributes conv_attributes(const SlidingWindows &windows, std::int64_t groups);
// Returns all attributes of a ConvTranspose that computes dx for a Conv with these windows.
Attributes transposed_attributes(const SlidingWindows &windows, std::int64_t groups);

// Returns for each element of each window its row-major index in the padded spatial axes. The indices are ordered by
// the element's position in the window, then by window.
std::vector<std::int64_t> window_indices(const SlidingWindows &windows);
// Calls visit(position) for every position of `shape`, in row-major order.
template <typename Visit>
void for_each_position(const Shape &shape, Visit visit) {
  std::vector<std::int64_t> position(shape.size(), 0);
  for (std::int64_t left = element_count(shape); left > 0; --left) {
    visit(position);
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      if (++position[axis] < shape[axis]) break;
      position[axis] = 0;
    }
  }
}

// Goes through the windows, and through the elements of each window. Calls act(position in the input, position in the
// window, number of the window) for each element that is not a pad. All three count in row-major order.
template <typename Act>
void for_each_reach(const SlidingWindows &windows, Act act) {
  std::int64_t o = 0;
  for_each_position(windows.output, [&](const std::vector<std::int64_t> &window) {
    std::int64_t k = 0;
    for_each_position(windows.kernel, [&](const std::vector<std::int64_t> &element) {
      std::int64_t at = 0;
      bool inside = true;
      for (std::size_t axis = 0; axis < window.size(); ++axis) {
        const std::int64_t i =
            window[axis] * windows.strides[axis] + element[axis] * windows.dilations[axis] - windows.before[axis];
        inside = inside && i >= 0 && i < windows.input[axis];
        at = at * windows.input[axis] + i;
      }
      if (inside) act(at, k, o);
      ++k;
    });
    ++o;
  });
}

}  // namespace protrain::ops
