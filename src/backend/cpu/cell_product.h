// A product whose result is cut into cells, one for each member of the team: in tiles (tiled_product.h) or with a
// packed factor (packed_product.h). The processor decides which of the two is faster.
#pragma once

#include <cstdint>
#include <variant>

#include "backend/cpu/gemm_shape.h"
#include "backend/cpu/packed_product.h"
#include "backend/cpu/stored_rows.h"
#include "backend/cpu/tiled_product.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

class CellProduct {
 public:
  // Returns true if one of the two ways is faster than a product without cells.
  static bool is_faster(const GemmShape &shape) {
    return shape.m > 0 && (PackedProduct::is_faster(shape) || TiledProduct::is_faster(shape));
  }

  // is_faster(shape) must be true.
  CellProduct(const GemmShape &shape, int team_size) : way_(choose(shape, team_size)) {}

  std::uint64_t scratch_bytes() const {  // bytes for one member; a multiple of 64
    return std::visit([](const auto &way) { return way.scratch_bytes(); }, way_);
  }
  // Computes the member's cell, without a barrier. Each member needs `scratch` of its own.
  void run(const Member &member, const GemmOperands &operands, void *scratch) {
    std::visit([&](auto &way) { way.run(member, operands, scratch); }, way_);
  }
  // Computes the member's cell with stored weights in place of operands.b.
  void run(const Member &member, const GemmOperands &operands, const StoredRows &weights, const StoredOperand &stored,
           void *scratch) {
    std::visit([&](auto &way) { way.run(member, operands, weights, stored, scratch); }, way_);
  }

 private:
  using Way = std::variant<PackedProduct, TiledProduct>;
  static Way choose(const GemmShape &shape, int team_size) {
    if (PackedProduct::is_faster(shape)) return PackedProduct(shape, team_size);
    return TiledProduct(shape, team_size);
  }

  Way way_;
};

}  // namespace protrain::backend::cpu
