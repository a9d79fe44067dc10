// Matrix products by cuBLASLt. A product's algorithm is chosen before the product first runs. The scratch that run()
// gets holds the algorithm's workspace. If b is a stored matrix, the scratch also holds a panel: some columns of b,
// widened.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "backend/cuda/blas.h"

namespace protrain::backend::cuda {

struct Columns {
  std::int64_t first, count;
};

class Gemm {
 public:
  // Describes a product to cuBLASLt, and asks for its algorithms. If `stored` is given, b is a stored matrix, which
  // run() widens to the type `shape.in`. Such a product has no choice of algorithms: variant_count() is 1.
  Gemm(Blas &blas, const GemmShape &shape, const std::optional<StoredMatrix> &stored = std::nullopt);

  // Returns the number of algorithms that cuBLASLt proposes, at least 1. The first is cuBLASLt's own choice.
  int variant_count() const {
    return panels_.empty() ? static_cast<int>(std::max<std::size_t>(algorithms_.size(), 1)) : 1;
  }
  void use_variant(int variant) { chosen_ = static_cast<std::size_t>(variant); }

  std::uint64_t scratch_bytes() const;  // of the chosen variant
  void run(Stream stream, const GemmOperands &operands, void *scratch) const;

 private:
  // Some columns of c, which are computed from one panel of widened weights. of_panels_[product] computes these
  // columns.
  struct Panel {
    Columns columns;
    std::size_t product;
  };
  void cut(Blas &blas);
  void run_panels(Stream stream, const GemmOperands &operands, void *scratch) const;
  std::uint64_t panel_bytes() const;

  GemmShape shape_;
  std::optional<StoredMatrix> stored_;
  std::vector<Panel> panels_;       // of stored weights
  std::vector<Gemm> of_panels_;     // one for all panels of the same number of columns
  std::optional<Product> product_;  // none if c has no elements or K = 0
  bool bias_apart_ = false;  // cuBLASLt does not add the bias: c is filled with it first, and the product is added to c
  std::vector<Algorithm> algorithms_;
  std::size_t chosen_ = 0;
};

}  // namespace protrain::backend::cuda
