// Matrix products by oneDNN, or by code of our own where oneDNN has none or is slower (widened_product.h,
// tiled_product.h). Each primitive runs on one thread, never on an OpenMP team, and takes all its scratch from the
// arena. Create products on a thread of the team, because there OpenMP is limited to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/gemm_shape.h"
#include "backend/cpu/tiled_product.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

// A product that a single thread computes. It has `seats` seats, each with operands of its own. So several threads may
// run the product at the same time, if each of them uses a different seat.
class Product {
 public:
  Product(const GemmShape &shape, int seats);
  ~Product();
  Product(Product &&) noexcept;

  std::uint64_t scratch_bytes() const;  // bytes for one run; a multiple of 64
  void run(int seat, const GemmOperands &operands, void *scratch);
  const GemmShape &shape() const;
  std::string implementation() const;  // oneDNN's name for it, such as "brg:avx512_core"; or "widened"

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// A product that the whole team computes. The product is computed in tiles if tiles are faster than oneDNN. Otherwise
// each member computes its own rows of c, one panel of rows at a time. If K is large and b is not transposed, oneDNN is
// slow. In this case K is cut into parts, and the products of the parts are summed in float32. oneDNN needs a panel of
// `a` to be dense, so the panel is first copied if `a` is transposed or K is cut.
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
  const void *lay_out(const Panel &panel, const GemmShape &of_panel, const void *a, void *rows) const;
  template <typename T>
  const void *lay_out_rows(const Panel &panel, const GemmShape &of_panel, const T *a, T *rows) const;

  GemmShape shape_;
  std::optional<TiledProduct> tiled_;  // if it is faster; there are no panels then
  std::int64_t depth_;                 // K of a panel; the whole K if K is not cut
  std::vector<Part> members_;
  std::uint64_t panel_bytes_ = 0, sums_bytes_ = 0, product_bytes_ = 0;
};

}  // namespace protrain::backend::cpu
