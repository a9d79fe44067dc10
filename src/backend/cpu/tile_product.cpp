#include "backend/cpu/tile_product.h"

#include <algorithm>

#include "backend/cpu/amx.h"
#include "backend/cpu/packing.h"

namespace protrain::backend::cpu {

namespace {
// AMX writes whole tiles of float32 sums. They go to c itself, so c must have room for them.
bool suits_amx(const GemmShape &s) {
  const bool is_empty = s.m == 0 || s.n == 0 || s.k == 0;
  return s.in == DType::bf16 && s.out == DType::f32 && s.n % kAmxColumns == 0 && !is_empty && has_amx();
}
}  // namespace

TileProduct::TileProduct(const GemmShape &shape, int seats) : shape_(shape) {
  if (!suits_amx(shape)) product_.emplace(shape, seats);
}

std::uint64_t TileProduct::scratch_bytes() const {
  if (product_) return product_->scratch_bytes();
  const std::int64_t columns = divided_up(shape_.n, kPackedColumns) * kPackedColumns;
  return static_cast<std::uint64_t>(columns * packed_rows(shape_.k, shape_.in)) * sizeof(bf16);
}

void TileProduct::run(int seat, const GemmOperands &operands, void *scratch) {
  if (product_) return product_->run(seat, operands, scratch);
  const auto *b = static_cast<const bf16 *>(operands.b);
  auto *packed = static_cast<bf16 *>(scratch);
  clear_edges(shape_.n, shape_.k, packed);
  for (std::int64_t j = 0; j < shape_.n; j += kPackedColumns)
    pack_rows<bf16>({b + j, shape_.n}, shape_.k, std::min(kPackedColumns, shape_.n - j),
                    packed + j * packed_rows(shape_.k, shape_.in));
  multiply_with_amx(
      {{static_cast<const bf16 *>(operands.a), shape_.k}, packed, {static_cast<float *>(operands.c), shape_.n}},
      shape_.m, shape_.n, shape_.k, shape_.accumulate);
}

}  // namespace protrain::backend::cpu
