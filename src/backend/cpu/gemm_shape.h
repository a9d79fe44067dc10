// The shape and the operands of a matrix product.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace protrain::backend::cpu {

// c (M, N) = alpha * op(a) op(b). a is (M, K), or (K, M) if trans_a. b is (K, N), or (N, K) if trans_b. All matrices
// are dense, because oneDNN 2.6 computes strided ones with an implementation that allocates megabytes in every run.
// Sums are float32 and rounded once to c's type.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  bool accumulate = false;  // the product is added to c
  bool bias = false;        // a bias (N) is added to every row; not together with accumulate
  float alpha = 1;
  DType in = DType::f32, out = DType::f32;  // in: type of a, b and the bias; out: type of c, which is as wide or wider
  // The number of rows that a Gemm computes at a time (a panel). Only the last panel may have fewer. Then the bits of a
  // row in a full panel do not depend on M. If it is 0, panels have as many rows as are fast. Then the bits depend on M
  // in some of oneDNN's products, but never in products in tiles. oneDNN's products of a StoredGemm ignore it.
  std::int64_t panel_rows = 0;
  bool operator==(const GemmShape &) const = default;
};

struct GemmOperands {
  const void *a;
  const void *b;
  void *c;
  const void *bias = nullptr;
};

}  // namespace protrain::backend::cpu
