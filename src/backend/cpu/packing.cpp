#include "backend/cpu/packing.h"

#include <algorithm>

#include "backend/common/clones.h"
#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

namespace {
// Interleaves the rows of 16-bit elements in pairs. Zeros take the place of a missing last row.
struct Interleave {
  PROTRAIN_CLONES static void run(ConstRows<std::uint16_t> from, std::int64_t rows, std::int64_t columns,
                                  std::uint16_t *__restrict to) {
    for (std::int64_t row = 0; row + 1 < rows; row += 2, to += 2 * kPackedColumns) {
      const std::uint16_t *__restrict even = from.at + row * from.ld, *__restrict odd = even + from.ld;
      for (std::int64_t i = 0; i < columns; ++i) {
        to[2 * i] = even[i];
        to[2 * i + 1] = odd[i];
      }
    }
    if (rows % 2 == 0) return;
    const std::uint16_t *last = from.at + (rows - 1) * from.ld;
    for (std::int64_t i = 0; i < columns; ++i) {
      to[2 * i] = last[i];
      to[2 * i + 1] = 0;
    }
  }
};
}  // namespace

template <typename T>
void pack_rows(ConstRows<T> from, std::int64_t rows, std::int64_t columns, T *to) {
  if constexpr (std::is_same_v<T, float>)
    copy_rows<float>(from, rows, columns, {to, kPackedColumns});
  else
    Interleave::run({reinterpret_cast<const std::uint16_t *>(from.at), from.ld}, rows, columns,
                    reinterpret_cast<std::uint16_t *>(to));
}

template <typename T>
void clear_edges(std::int64_t columns, std::int64_t depth, T *to) {
  constexpr std::int64_t kRows = packed_block_rows(kDTypeOf<T>);
  const std::int64_t rows = packed_rows(depth, kDTypeOf<T>);
  for (std::int64_t j = 0; j < columns; j += kPackedColumns) {
    if (columns - j < kPackedColumns)
      std::fill_n(to + j * rows, rows * kPackedColumns, T{});
    else if (depth < rows)
      std::fill_n(to + j * rows + (rows - kRows) * kPackedColumns, kRows * kPackedColumns, T{});
  }
}

#define PROTRAIN_PACKED(T)                                                   \
  template void pack_rows<T>(ConstRows<T>, std::int64_t, std::int64_t, T *); \
  template void clear_edges<T>(std::int64_t, std::int64_t, T *)
PROTRAIN_PACKED(float);
PROTRAIN_PACKED(bf16);
PROTRAIN_PACKED(f16);
#undef PROTRAIN_PACKED

}  // namespace protrain::backend::cpu
