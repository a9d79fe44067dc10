// A product of a narrow type, for shapes that oneDNN computes in no way that keeps to the arena. Panels of the operands
// are widened and multiplied in float32. A sum is rounded when all of k is in it.
#pragma once

#include "backend/cpu/gemm.h"

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
  std::int64_t rows_, columns_, depth_;        // of a panel
  Product product_;                            // of panels; it adds to what the sums hold
  std::uint64_t b_at_, sums_at_, product_at_;  // in scratch, behind a's panel
};

}  // namespace protrain::backend::cpu
