// A float32 product in tiles of AVX2's vectors, for shapes in which oneDNN 2.6 is slow without AVX-512 (gemm.cpp).
//
// Both factors are packed. A block of a, whose rows are interleaved tile by tile, stays in the second-level cache. It
// is multiplied by one panel of b after the other: as many columns as a tile has, which stay in the first-level cache.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm_shape.h"

namespace protrain::backend::cpu {

class TiledProduct {
 public:
  // Returns true if tiles can compute the product on this processor. The answer does not depend on M.
  static bool serves(const GemmShape &shape);

  explicit TiledProduct(const GemmShape &shape);

  std::uint64_t scratch_bytes() const;  // a multiple of 64
  void run(const GemmOperands &operands, void *scratch) const;

 private:
  GemmShape shape_;
  std::int64_t rows_, depth_;  // sizes of a block of a
};

}  // namespace protrain::backend::cpu
