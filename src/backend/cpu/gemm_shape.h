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
  bool packed_b = false;    // b lies in blocks (packing.h), not transposed; only Products take it
  bool accumulate = false;  // the product is added to c
  bool bias = false;        // a bias (N) is added to every row; not together with accumulate
  bool addend = false;      // c = addend (M, N) + the product; alone among the three; Products do not take it
  float alpha = 1;
  DType in = DType::f32, out = DType::f32;  // in: type of a, b and the bias; out: of c and the addend, as wide or wider
  // A Gemm computes c in panels of rows. panel_rows is the number of rows in a panel; only the last panel can have
  // fewer. So the bits of a row in a full panel do not depend on M. If panel_rows is 0, the Gemm chooses a fast number
  // of rows. In this case the bits of some of oneDNN's products depend on M, but the bits of our own products never
  // do. A StoredGemm ignores panel_rows unless it is computed cell by cell (cell_product.h).
  std::int64_t panel_rows = 0;
  bool operator==(const GemmShape &) const = default;
};

struct GemmOperands {
  const void *a;
  const void *b;
  void *c;
  const void *bias = nullptr;
  const void *addend = nullptr;
};

}  // namespace protrain::backend::cpu
