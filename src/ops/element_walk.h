// Walks over elements one by one and knows the position of each, for evaluations that cannot work in runs.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "base/shape.h"

namespace protrain::ops {

// Visits `shape` in row-major order and carries one offset, in elements, for each of N operands.
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
