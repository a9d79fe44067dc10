// A product with stored weights: 16-bit floats or integers, which are widened during the product. The product is
// computed cell by cell if that is faster (cell_product.h). Otherwise each member computes its own columns of c, one
// panel of columns after the other. The member widens the weights of a panel into scratch, where they stay in a core's
// cache while all rows of a are multiplied by them. The panel of c is computed in scratch too, because oneDNN's
// matrices are dense.
#pragma once

#include <optional>
#include <variant>

#include "backend/cpu/gemm.h"
#include "backend/cpu/stored_rows.h"

namespace protrain::backend::cpu {

class StoredGemm {
 public:
  // Prepares the product of the operand `a` with the stored weights. The weights take the place of `b`, and are widened
  // to the type `shape.in`. `shape.trans_a` and `shape.accumulate` must be false.
  StoredGemm(const GemmShape &shape, const StoredRows &weights, int team_size);

  std::uint64_t scratch_bytes() const { return weights_bytes_ + results_bytes_ + product_bytes_; }  // of one member
  void run(const Member &member, const GemmOperands &operands, const StoredOperand &weights, void *scratch);

 private:
  struct Block {  // a block of rows of c
    std::int64_t first_row;
    std::size_t product;
  };
  struct Panel {
    Range columns;
    std::vector<Block> blocks;
  };
  struct Part {  // a member's share
    std::vector<Panel> panels;
    std::vector<Product> products;  // one for all blocks of the same shape
  };
  Part cut(Range columns) const;
  template <typename T>
  void widen_panel(Range columns, const StoredOperand &from, T *to) const;

  GemmShape shape_;
  StoredRows weights_;
  std::optional<CellProduct> cells_;  // if it is faster; there are no panels then
  std::vector<Part> members_;
  std::uint64_t weights_bytes_ = 0, results_bytes_ = 0, product_bytes_ = 0;
};

// A product whose second factor is a matrix of weights. `stored` describes the matrix if it consists of stored weights.
class WeightGemm {
 public:
  WeightGemm(const GemmShape &shape, int team_size, const std::optional<StoredMatrix> &stored);

  std::uint64_t scratch_bytes() const;
  // Computes the product. Stored weights are read from `stored`, all other weights from operands.b.
  void run(const Member &member, const GemmOperands &operands, const StoredOperand &stored, void *scratch);

 private:
  std::variant<Gemm, StoredGemm> gemm_;
};

}  // namespace protrain::backend::cpu
