// The sizes of MaxPool, AveragePool and their gradients (ops/pool.cpp). A plane is one channel of one sample: all
// its elements along the spatial axes.
#pragma once

#include "backend/common/conv_shape.h"

namespace protrain::backend {

struct PoolShape : WindowSizes {
  explicit PoolShape(const KernelRequest &request);

  // Returns the number of elements along `axis` that AveragePool counts in window number `window`. The window's sum is
  // divided by the product of these numbers over all axes. Pads count only if the attribute count_include_pad is set.
  std::int64_t counted(std::size_t axis, std::int64_t window) const;

  bool largest;  // true: MaxPool
  std::int64_t planes;
  ConvSizes index_steps;                        // difference of MaxPool's indices between neighbours along each axis
  ConvSizes counted_before{}, counted_after{};  // pads that count as elements of an average

 private:
  struct Operands {
    Shape x, y;
  };
  static Operands operands_of(const KernelRequest &request);
  PoolShape(const KernelRequest &request, const Operands &operands);
};

}  // namespace protrain::backend
