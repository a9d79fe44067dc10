// A product of narrow operands. It serves the shapes for which oneDNN has no implementation, or only one that is slow
// or allocates. Panels of the operands are widened and multiplied in float32. Each sum over k is rounded once, at its
// end.
#pragma once

#include "backend/cpu/product.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

class WidenedProduct {
 public:
  WidenedProduct(const GemmShape &shape, int seats);

  std::uint64_t scratch_bytes() const { return product_at_ + product_.scratch_bytes(); }
  void run(int seat, const GemmOperands &operands, void *scratch);

 private:
  // T is the operands' type, R the result's.
  template <typename T>
  void multiply(int seat, const GemmOperands &operands, void *scratch);
  template <typename T, typename R>
  void finish(const float *sums, Range rows, Range columns, const GemmOperands &operands) const;

  GemmShape shape_;
  std::int64_t rows_, columns_, depth_;        // sizes of panels
  Product product_;                            // the product of two panels, which it adds to the sums
  std::uint64_t b_at_, sums_at_, product_at_;  // offsets in scratch, which begins with a's panel
};

}  // namespace protrain::backend::cpu
