// Visits the elements of a shape one by one with their coordinates, for evaluations that cannot process contiguous
// stretches at once.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "base/shape.h"

namespace protrain::ops {

// Visits the elements of a shape in row-major order. At each element, offsets[n] is the position of this element in
// operand n, counted in elements.
template <std::size_t N>
class ElementWalk {
 public:
  ElementWalk(Shape shape, std::array<std::vector<std::int64_t>, N> strides)
      : offsets{}, shape_(std::move(shape)), strides_(std::move(strides)), position_(shape_.size(), 0) {}
  void next() {
    for (std::size_t axis = shape_.size(); axis-- > 0;) {
      for (std::size_t n = 0; n < N; ++n) offsets[n] += strides_[n][axis];
      if (++position_[axis] < shape_[axis]) return;
      for (std::size_t n = 0; n < N; ++n) offsets[n] -= strides_[n][axis] * shape_[axis];
      position_[axis] = 0;
    }
  }
  const std::vector<std::int64_t> &position() const { return position_; }

  std::array<std::int64_t, N> offsets;

 private:
  Shape shape_;
  std::array<std::vector<std::int64_t>, N> strides_;
  std::vector<std::int64_t> position_;
};

}  // namespace protrain::ops
