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

// One product by the whole team: each member makes its rows of c. Rows of a transposed `a` are columns in memory: the
// member lays them out as rows first, a panel at a time.
class Gemm {
 public:
  Gemm(const GemmShape &shape, int team_size);

  std::uint64_t scratch_bytes() const { return panel_bytes_ + product_bytes_; }  // of one member; a multiple of 64
  // The member's rows; no barrier. `scratch` is the member's own: others may still be in the product before.
  void run(const Member &member, const GemmOperands &operands, void *scratch);

 private:
  struct Panel {
    std::int64_t first_row;
    Product product;
  };
  // A panel's rows of the transposed `a`, at `rows`.
  template <typename T>
  const void *lay_out_rows(const Panel &panel, const void *a, void *rows) const;

  GemmShape shape_;
  std::vector<std::vector<Panel>> members_;
  std::uint64_t panel_bytes_ = 0, product_bytes_ = 0;
};

}  // namespace protrain::backend
