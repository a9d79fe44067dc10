// Visits the elements of N strided operands run by run. A run has all elements along the innermost axis. All operands
// have the same shape, and each has strides of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/shape.h"

namespace protrain::graph {

using Strides = std::vector<std::int64_t>;  // in elements; 0 along repeated axes, negative backwards

// A shape with one set of strides per operand.
template <std::size_t N>
struct Runs {
  Shape shape;
  std::array<Strides, N> strides;

  // Makes runs as long as possible: drops axes of one element, and joins neighbouring axes if the strides of every
  // operand allow it.
  void simplify() {
    std::size_t kept = 0;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      if (shape[axis] == 1) continue;
      const bool joins = kept > 0 && follows(kept - 1, axis);
      if (joins) shape[kept - 1] *= shape[axis];
      const std::size_t to = joins ? kept - 1 : kept++;
      if (!joins) shape[to] = shape[axis];
      for (Strides &s : strides) s[to] = s[axis];
    }
    shape.resize(kept);
    for (Strides &s : strides) s.resize(kept);
  }

  // Calls visit(count, offsets, steps) for every run along the innermost axis, in row-major order. Operand n starts at
  // offsets[n] and moves by steps[n].
  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::int64_t dim : shape)
      if (dim == 0) return;
    const std::size_t outer = shape.empty() ? 0 : shape.size() - 1;
    std::array<std::int64_t, N> offsets{}, steps{};
    if (!shape.empty())
      for (std::size_t n = 0; n < N; ++n) steps[n] = strides[n][outer];
    std::vector<std::int64_t> position(outer, 0);
    for (;;) {
      visit(shape.empty() ? 1 : shape.back(), std::as_const(offsets), std::as_const(steps));
      std::size_t axis = outer;
      for (;; --axis) {
        if (axis == 0) return;
        const std::size_t at = axis - 1;
        for (std::size_t n = 0; n < N; ++n) offsets[n] += strides[n][at];
        if (++position[at] < shape[at]) break;
        for (std::size_t n = 0; n < N; ++n) offsets[n] -= strides[n][at] * shape[at];
        position[at] = 0;
      }
    }
  }

 private:
  bool follows(std::size_t before, std::size_t axis) const {
    for (const Strides &s : strides)
      if (s[before] != s[axis] * shape[axis]) return false;
    return true;
  }
};

// The places of elements in memory: the first one's address, and the strides.
struct StridedSource {
  const std::byte *at;
  Strides strides;
};
struct StridedTarget {
  std::byte *at;
  Strides strides;
};

// Copies a tensor of shape `shape` from one layout to another. Each element has `element` bytes.
void copy_elements(const Shape &shape, std::size_t element, const StridedSource &from, const StridedTarget &to);

}  // namespace protrain::graph
