// A product in tiles of AVX2's vectors, for processors without AVX-512, where oneDNN 2.6 is slower (gemm.cpp). It
// computes in float32: narrow operands are widened while they are packed, and each sum is rounded once, at its end.
//
// The loops are those of BLIS. A group of columns of b is packed into panels, each as wide as a tile. A block of rows
// of a is packed so that the factors of a tile lie beside each other. The block stays in the second-level cache and a
// panel in the first-level cache, while the tiles of the block are computed one after the other.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm_shape.h"
#include "backend/cpu/transpose.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

class TiledProduct {
 public:
  // Prepares the given rows of a product that is not empty. The processor must have tiles (tile.h). The bits of a row
  // do not depend on the other rows.
  TiledProduct(const GemmShape &shape, Range rows);

  std::uint64_t scratch_bytes() const;                          // a multiple of 64
  void run(const GemmOperands &operands, void *scratch) const;  // the operands are those of the whole product

 private:
  bool sums_apart() const { return shape_.out != DType::f32; }

  // The parts of scratch.
  struct Scratch {
    float *panels;     // a group of columns of b, packed
    float *block;      // a block of rows of a, packed
    float *widened;    // narrow elements that are packed next
    Rows<float> tile;  // a tile of which c has only a part
    Rows<float> sums;  // a strip of c, if c is narrow
  };
  Scratch lay_out(float *at) const;

  template <typename T>
  void multiply(const GemmOperands &operands, const Scratch &scratch) const;
  template <typename T>
  void multiply_group(const GemmOperands &operands, Range strip, Range group, const Scratch &scratch) const;
  template <typename T>
  void start(const GemmOperands &operands, Range strip, Range group, Rows<float> sums) const;

  GemmShape shape_;
  Range rows_;
  std::int64_t strip_rows_;                          // rows of a strip of c; all rows if c is float32
  std::int64_t block_rows_, depth_, group_columns_;  // sizes of a block of a and of a group of columns of b
};

}  // namespace protrain::backend::cpu
