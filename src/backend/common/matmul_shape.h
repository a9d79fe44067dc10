// The products of a MatMul: y = alpha * op(a) op(b) + bias, with broadcast leading dimensions.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/common/layout.h"

namespace protrain::backend {

// Every product is (m, k) x (k, n). All rows of `a` are one product where b is one matrix; else there is a product for
// each of the leading dimensions.
struct MatMulShape {
  // Code::unsupported where an operand is no matrix, or where the operands' element types differ.
  explicit MatMulShape(const KernelRequest &request);

  DType dtype;
  std::int64_t m, n, k;
  bool trans_a, trans_b;
  bool bias;
  float alpha;
  Layout<3> batch;  // from product to product: strides of a, b and y; merged
};

}  // namespace protrain::backend
