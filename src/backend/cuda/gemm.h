// Matrix products: which algorithm is used is settled before a product first runs; what it needs beside its operands
// comes from the arena.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "backend/cuda/blas.h"

namespace protrain::backend::cuda {

class Gemm {
 public:
  Gemm(Blas &blas, const GemmShape &shape);

  // The algorithms that the library proposes, its own choice first; at least 1.
  int variant_count() const { return static_cast<int>(std::max<std::size_t>(algorithms_.size(), 1)); }
  void use_variant(int variant) { chosen_ = static_cast<std::size_t>(variant); }

  std::uint64_t scratch_bytes() const;  // of the variant
  void run(Stream stream, const GemmOperands &operands, void *scratch) const;

 private:
  GemmShape shape_;
  std::optional<Product> product_;  // nothing: it is over nothing
  bool bias_apart_ = false;         // a launch of its own fills c with it, and the product is added
  std::vector<Algorithm> algorithms_;
  std::size_t chosen_ = 0;
};

}  // namespace protrain::backend::cuda
