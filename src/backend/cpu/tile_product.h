// A small product that one thread computes, such as that of two tiles of attention.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/cpu/product.h"

namespace protrain::backend::cpu {

// Multiplies by AMX where the processor has it and the shape suits it, and by a Product everywhere else. oneDNN 2.6
// took 1.1 to 3 times as long for the tiles of attention, and the smaller the tile, the longer.
class TileProduct {
 public:
  // `shape` must have no bias, no addend, no transposed operand and no alpha. `seats` is as in Product.
  TileProduct(const GemmShape &shape, int seats);

  std::uint64_t scratch_bytes() const;
  void run(int seat, const GemmOperands &operands, void *scratch);

 private:
  GemmShape shape_;
  std::optional<Product> product_;  // none: AMX multiplies
};

}  // namespace protrain::backend::cpu
