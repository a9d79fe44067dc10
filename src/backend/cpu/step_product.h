// StepProduct: a product c = a b or c += a b that one thread computes in each step of a recurrent layer. a is (M, K), b
// is (K, N), and c is (M, N). b stays the same for many steps, and M is small.
//
// On processors with AVX2 but not AVX-512, oneDNN 2.6 copies b into a layout of its own in every product, which takes a
// fifth of the time. Here such a b is laid out once, in panels of a few columns. Each panel is dense, row by row.
#pragma once

#include "backend/cpu/gemm.h"

namespace protrain::backend::cpu {

class StepProduct {
 public:
  explicit StepProduct(const GemmShape &shape);

  std::uint64_t scratch_bytes() const { return is_laid_out_ ? 0 : gemm_.scratch_bytes(); }
  // Returns how many elements lay_out() writes. Returns 0 if lay_out() does nothing, because run() reads b as it is.
  std::int64_t laid_elements() const { return is_laid_out_ ? shape_.k * shape_.n : 0; }
  void lay_out(const float *b, float *to) const;
  // Computes the product. Reads b from `laid`, which lay_out() has written. If laid_elements() is 0, reads operands.b
  // instead.
  void run(const GemmOperands &operands, const float *laid, void *scratch);

 private:
  GemmShape shape_;
  Gemm gemm_;
  bool is_laid_out_;
};

}  // namespace protrain::backend::cpu
