// Matrix products by oneDNN: one primitive per thread, never an OpenMP team, all scratch from the arena.
// Create them on a member of the team, which keeps OpenMP at one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/threads.h"

namespace protrain::backend {

// c (M, N) = alpha * op(a) op(b), all dense; a is (M, K), or (K, M) where trans_a; b is (K, N), or (N, K) where
// trans_b. Dense, because oneDNN 2.6 gives strided matrices to an implementation that allocates megabytes in every run.
// Sums are float32, and rounded once to what c holds.
struct GemmShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool trans_a = false, trans_b = false;
  bool accumulate = false;  // added to what c holds
  bool bias = false;        // (N), added to every row; not together with accumulate
  float alpha = 1;
  DType in = DType::f32, out = DType::f32;  // of a, b and the bias; of c; out is as wide as in, or wider
  bool operator==(const GemmShape &) const = default;
};

struct GemmOperands {
  const void *a;
  const void *b;
  void *c;
  const void *bias = nullptr;
};

// One product by one thread. Each seat has its own operands, so that as many threads may run it at once.
class Product {
 public:
  Product(const GemmShape &shape, int seats);
  ~Product();
  Product(Product &&) noexcept;

  std::uint64_t scratch_bytes() const;  // of one run; a multiple of 64
  void run(int seat, const GemmOperands &operands, void *scratch);
  const GemmShape &shape() const;
  std::string implementation() const;  // oneDNN's name of what it chose, "brg:avx512_core"; or "widened"

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One product by the whole team: each member makes its rows of c, a panel at a time. Where K is too deep for oneDNN to
// keep its speed it is cut, and the parts are summed in float32. Panels of `a` that are not rows in memory, for they
// are columns of a transposed one or parts of rows, are laid out as rows first.
class Gemm {
 public:
  Gemm(const GemmShape &shape, int team_size);

  std::uint64_t scratch_bytes() const {  // of one member; a multiple of 64
    return panel_bytes_ + sums_bytes_ + product_bytes_;
  }
  // The member's rows; no barrier. `scratch` is the member's own: others may still be in the product before.
  void run(const Member &member, const GemmOperands &operands, void *scratch);

 private:
  struct Panel {
    std::int64_t first_row, first_k;
    std::size_t product;
  };
  struct Part {  // a member's
    std::vector<Panel> panels;
    std::vector<Product> products;  // of panels of equal shape one
  };
  Part cut(Range rows, std::int64_t grain) const;
  bool lays_out() const { return shape_.trans_a || depth_ < shape_.k; }
  bool sums_apart() const { return depth_ < shape_.k && shape_.out != DType::f32; }
  const void *lay_out(const Panel &panel, const GemmShape &piece, const void *a, void *rows) const;
  template <typename T>
  const void *lay_out_rows(const Panel &panel, const GemmShape &piece, const T *a, T *rows) const;

  GemmShape shape_;
  std::int64_t depth_;  // of a panel; K where it is not cut
  std::vector<Part> members_;
  std::uint64_t panel_bytes_ = 0, sums_bytes_ = 0, product_bytes_ = 0;
};

}  // namespace protrain::backend
