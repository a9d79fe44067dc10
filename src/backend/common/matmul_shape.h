// The products of a MatMul: y = alpha * op(a) op(b) + c, with broadcast leading dimensions. op(a) is a, or its
// transpose if trans_a; op(b) is b, or its transpose if trans_b. c is a bias (N), an addend of y's shape, or absent.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "backend/common/layout.h"

namespace protrain::backend {

// Every product is (m, k) x (k, n). If b is a single matrix and a is not transposed, one product takes all rows of a.
// Else there is a product for each position of the leading dimensions.
struct MatMulShape {
  // Code::unsupported if an operand is no matrix, or if the operands' element types differ.
  explicit MatMulShape(const KernelRequest &request);

  DType dtype;
  std::int64_t m, n, k;
  bool trans_a, trans_b;
  bool bias, addend;  // not both
  float alpha;
  Layout<3> batch;  // the walk from product to product, merged; operands: a, b, y
};

}  // namespace protrain::backend
