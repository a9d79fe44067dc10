// A matrix product by oneDNN, or by code of our own if oneDNN has none for its types (widened_product.h). Each
// primitive runs on one thread, never on an OpenMP team, and takes all its scratch from the arena. Create products on a
// thread of the team, because there OpenMP is limited to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/cpu/gemm_shape.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

// A product that a single thread computes. It has `seats` seats, each with operands of its own. So several threads may
// run the product at the same time, if each of them uses a different seat.
class Product {
 public:
  // Returns true if this processor and oneDNN can multiply operands of the type `in` by a packed b (shape.packed_b).
  static bool takes_packed(DType in);

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

// Copies the rows `rows` and columns `depth` of op(a), an operand of the product `shape`, to dense rows at `to`, as a
// Product takes them.
void copy_rows_of_a(const GemmShape &shape, Range rows, Range depth, const void *a, void *to);

}  // namespace protrain::backend::cpu
