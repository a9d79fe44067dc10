// A product of a step: c (M, N) = or += a (M, K) b (K, N) on one thread, where b stays the same for many steps and M is
// small.
//
// On processors with AVX2 but not AVX-512, oneDNN 2.6 copies b into a layout of its own in every product, which takes a
// fifth of the time. Here such a b is laid out once: in panels of some columns, each of which lies row by row.
#pragma once

#include "backend/cpu/gemm.h"

namespace protrain::backend::cpu {

class StepProduct {
 public:
  explicit StepProduct(const GemmShape &shape);

  std::uint64_t scratch_bytes() const { return gemm_.scratch_bytes(); }
  // Returns how many elements b has where it is laid out; 0: oneDNN reads it as it is.
  std::int64_t laid_elements() const { return is_laid_out_ ? shape_.k * shape_.n : 0; }
  void lay_out(const float *b, float *to) const;
  // `laid`: where b is laid out, if laid_elements() is not 0. operands.b is read if it is.
  void run(const GemmOperands &operands, const float *laid, void *scratch);

 private:
  GemmShape shape_;
  Gemm gemm_;
  bool is_laid_out_;
};

}  // namespace protrain::backend::cpu
