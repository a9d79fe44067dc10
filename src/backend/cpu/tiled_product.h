// A product in tiles of AVX2's vectors, for processors without AVX-512, where oneDNN 2.6 is slower. It computes in
// float32: narrow operands are widened while they are packed, and each sum is rounded once, at its end.
//
// The loops are those of BLIS, the library of linear algebra. A group of columns of b is packed into panels, each as
// wide as a tile. A block of rows of a is packed so that the factors of a tile lie beside each other. The block stays
// in the second-level cache and a panel in the first-level cache, while the tiles of the block are computed one after
// the other.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm_shape.h"
#include "backend/cpu/stored_rows.h"
#include "backend/cpu/transpose.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

// A product that the whole team computes. Each member computes a cell of c. The bits of an element depend neither on
// the size of the team nor on the other rows and columns.
class TiledProduct {
 public:
  // Returns true if tiles are faster than oneDNN on this processor, and take the shape. The answer does not depend on
  // shape.m if shape.panel_rows is set (not 0).
  static bool is_faster(const GemmShape &shape);

  // The product must not be empty, and the processor must have tiles (tile.h).
  TiledProduct(const GemmShape &shape, int team_size);

  std::uint64_t scratch_bytes() const;  // bytes for one member; a multiple of 64
  // Computes the member's cell, without a barrier. Each member needs `scratch` of its own.
  void run(const Member &member, const GemmOperands &operands, void *scratch) const;
  // Computes the member's cell with stored weights in place of operands.b.
  void run(const Member &member, const GemmOperands &operands, const StoredRows &weights, const StoredOperand &stored,
           void *scratch) const;

 private:
  bool sums_apart() const { return shape_.out != DType::f32; }

  struct Cell {
    Range rows, columns;
  };
  Cell cell(int index) const;

  // The parts of scratch.
  struct Scratch {
    float *panels;     // a group of columns of b, packed
    float *block;      // a block of rows of a, packed
    float *widened;    // elements that are packed next, if they are not float32
    Rows<float> tile;  // a tile that reaches beyond the edge of c
    Rows<float> sums;  // float32 sums of a strip in a group of columns, if c is narrow
  };
  Scratch lay_out(float *at) const;

  // Computes the cell `own` of c. `T` is the element type of operand a, and `source` reads rows of operand b.
  template <typename T, typename Source>
  void multiply(const Cell &own, const GemmOperands &operands, const Source &source, const Scratch &scratch) const;
  // Computes a part of c: a strip of rows, in the columns of one group.
  template <typename T, typename Source>
  void multiply_group(const Cell &part, const GemmOperands &operands, const Source &source,
                      const Scratch &scratch) const;
  template <typename T>
  void start(const Cell &part, const GemmOperands &operands, Rows<float> sums) const;

  GemmShape shape_;
  int team_size_, grid_rows_;                        // a grid of cells has as many cells as the team has members
  std::int64_t strip_rows_;                          // rows of a strip of a cell; all rows of the cell if c is float32
  std::int64_t block_rows_, depth_, group_columns_;  // sizes of a block of a and of a group of columns of b
};

}  // namespace protrain::backend::cpu
