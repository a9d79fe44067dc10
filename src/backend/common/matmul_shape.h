// The products of a MatMul: y = alpha * op(a) op(b) + bias, with broadcast leading dimensions. op() is the transpose
// where trans_a or trans_b says so.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/common/layout.h"

namespace protrain::backend {

// Every product is (m, k) x (k, n). If b is one matrix and a is not transposed, all rows of a are one product. Else
// there is a product for each position of the leading dimensions.
struct MatMulShape {
  // Code::unsupported if an operand is no matrix, or if the operands' element types differ.
  explicit MatMulShape(const KernelRequest &request);

  DType dtype;
  std::int64_t m, n, k;
  bool trans_a, trans_b;
  bool bias;
  float alpha;
  Layout<3> batch;  // from product to product, merged: strides of a, b and y
};

}  // namespace protrain::backend
