// A product whose second factor is packed first, for processors with AVX-512. oneDNN 2.6 is slow if b lies in memory
// row by row. It reads such a b in place, or every thread copies all of it. Here b is packed once, into the blocks that
// oneDNN reads fastest. AMX multiplies the same blocks (amx.h).
#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/gemm_shape.h"
#include "backend/cpu/product.h"
#include "backend/cpu/stored_rows.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

// A product that the whole team computes. c is cut into a grid of cells, one for each member. A member goes through its
// cell in strips of rows, and through a strip in groups of columns. It packs a group of columns of b, and multiplies
// the rows of the strip by them, one panel of rows after the other.
//
// oneDNN takes only dense panels of a and c. So a panel of c is computed in scratch, unless the group has all columns
// of c. If a is transposed or K is cut, the strip of a is copied to scratch. AMX takes panels of a where they lie, and
// its sums are float32 and always in scratch.
//
// K is cut into parts if it is very large. In this case the float32 sums of a whole strip stay in scratch, and the
// product of each part is added to them.
class PackedProduct {
 public:
  // Returns true if this processor multiplies operands of this type by a packed b.
  static bool takes(DType in);
  // Returns true if packing is faster than oneDNN alone on this processor, and takes the shape. The answer does not
  // depend on shape.m if shape.panel_rows is set (not 0).
  static bool is_faster(const GemmShape &shape);

  // The product must not be empty, and takes(shape.in) must be true.
  PackedProduct(const GemmShape &shape, int team_size);

  std::uint64_t scratch_bytes() const { return bytes_.b + bytes_.a + bytes_.sums + bytes_.widened + bytes_.product; }
  // Computes the member's cell, without a barrier. Each member needs `scratch` of its own, of scratch_bytes().
  void run(const Member &member, const GemmOperands &operands, void *scratch);
  // Computes the member's cell with stored weights in place of operands.b.
  void run(const Member &member, const GemmOperands &operands, const StoredRows &weights, const StoredOperand &stored,
           void *scratch);

 private:
  struct Cell {
    Range rows, columns;
  };
  struct Part {  // one call of oneDNN: the rows of a panel, the columns of a group, and a part of K
    Range rows, columns, depth;
  };
  struct Sizes {
    std::int64_t panel_rows, strip_rows, group_columns, depth;
  };
  struct Bytes {  // of one member's scratch, in this order; multiples of 64
    std::uint64_t b, a, sums, widened, product;
  };
  template <typename T>
  struct Scratch {
    T *b;        // a group of columns, packed
    T *a;        // a strip, copied
    void *sums;  // a panel of c, or all panels of a strip if K is cut
    T *widened;  // rows of stored weights that are packed next
    void *product;
  };

  bool cuts_depth() const { return sizes_.depth < shape_.k; }
  bool copies_a() const { return shape_.trans_a || (cuts_depth() && !uses_amx_); }
  bool is_in_place(Range columns) const { return columns.size() == shape_.n && sum_type_ == shape_.out; }
  Cell cell(int index) const;
  Sizes choose_sizes() const;
  GemmShape shape_of(const Part &part) const;
  std::vector<Product> products_of(const Cell &cell) const;
  template <typename T>
  Scratch<T> lay_out(void *scratch) const;

  template <typename T, typename Source>
  void multiply(int index, const GemmOperands &operands, const Source &source, const Scratch<T> &scratch);
  template <typename T>
  void multiply_panel(int index, const Part &part, const GemmOperands &operands, const Scratch<T> &at);
  template <typename T>
  void multiply_panel_with_amx(const Part &part, const GemmOperands &operands, const Scratch<T> &at);

  GemmShape shape_;
  int team_size_, grid_rows_;  // the grid has as many cells as the team has members
  bool uses_amx_;              // in place of oneDNN
  Sizes sizes_;
  DType sum_type_;  // of the panels of c in scratch
  Bytes bytes_;
  std::vector<std::vector<Product>> products_;  // of each member, one for every shape of its parts; none with AMX
};

}  // namespace protrain::backend::cpu
