// Matrix products by cuBLASLt. A product's algorithm is chosen before the product first runs. The algorithm's workspace
// is part of the scratch that run() gets.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "backend/cuda/blas.h"

namespace protrain::backend::cuda {

class Gemm {
 public:
  Gemm(Blas &blas, const GemmShape &shape);

  // Returns the number of algorithms that cuBLASLt proposes, at least 1. The first is cuBLASLt's own choice.
  int variant_count() const { return static_cast<int>(std::max<std::size_t>(algorithms_.size(), 1)); }
  void use_variant(int variant) { chosen_ = static_cast<std::size_t>(variant); }

  std::uint64_t scratch_bytes() const;  // of the chosen variant
  void run(Stream stream, const GemmOperands &operands, void *scratch) const;

 private:
  GemmShape shape_;
  std::optional<Product> product_;  // none if c has no elements or K = 0
  bool bias_apart_ = false;  // cuBLASLt does not add the bias: c is filled with it first, and the product is added to c
  std::vector<Algorithm> algorithms_;
  std::size_t chosen_ = 0;
};

}  // namespace protrain::backend::cuda
