// A matrix product that the whole team computes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "backend/cpu/cell_product.h"
#include "backend/cpu/gemm_shape.h"
#include "backend/cpu/product.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

// The product is computed cell by cell if that is faster (cell_product.h). Otherwise each member computes its own rows
// of c, one panel of rows at a time. If K is large and b is not transposed, oneDNN is slow. In this case K is cut into
// parts, and the products of the parts are summed in float32. oneDNN needs a panel of `a` to be dense, so the panel is
// first copied if `a` is transposed or K is cut.
class Gemm {
 public:
  Gemm(const GemmShape &shape, int team_size);

  std::uint64_t scratch_bytes() const {  // bytes for one member; a multiple of 64
    return panel_bytes_ + sums_bytes_ + product_bytes_;
  }
  // Computes the member's part, without a barrier. Each member needs `scratch` of its own, because other members may
  // still compute the previous product.
  void run(const Member &member, const GemmOperands &operands, void *scratch);

 private:
  struct Panel {
    std::int64_t first_row, first_k;
    std::size_t product;
  };
  struct Part {  // a member's share
    std::vector<Panel> panels;
    std::vector<Product> products;  // one for all panels of the same shape
  };
  Part cut(Range rows, std::int64_t grain) const;
  bool lays_out() const { return shape_.trans_a || depth_ < shape_.k; }
  bool sums_apart() const { return depth_ < shape_.k && shape_.out != DType::f32; }

  GemmShape shape_;
  std::optional<CellProduct> cells_;  // if it is faster; there are no panels then
  std::int64_t depth_;                // K of a panel; the whole K if K is not cut
  std::vector<Part> members_;
  std::uint64_t panel_bytes_ = 0, sums_bytes_ = 0, product_bytes_ = 0;
};

}  // namespace protrain::backend::cpu
