// The packed form of b, the second factor of a product, as oneDNN reads it fastest and as AMX needs it (amx.h).
//
// Blocks of 64 columns hold 16 rows of float32 each, or 32 rows of 16-bit elements, in which two rows are interleaved.
// Blocks of the same columns follow each other. Zeros fill the last block of each column, and the last column of
// blocks.
#pragma once

#include <cstdint>

#include "backend/cpu/transpose.h"
#include "base/dtype.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

constexpr std::int64_t kPackedColumns = 64;  // columns of a block

constexpr std::int64_t packed_block_rows(DType type) { return type == DType::f32 ? 16 : 32; }

// Returns the rows of a column of blocks that holds `depth` rows of b.
constexpr std::int64_t packed_rows(std::int64_t depth, DType type) {
  return divided_up(depth, packed_block_rows(type)) * packed_block_rows(type);
}

// Writes rows of b to one column of blocks, from the row that begins at `to` on. `columns` is at most kPackedColumns.
template <typename T>
void pack_rows(ConstRows<T> from, std::int64_t rows, std::int64_t columns, T *to);

// Writes zeros to the blocks that b fills only in part, if b has `depth` rows. `to` is the whole packed b.
template <typename T>
void clear_edges(std::int64_t columns, std::int64_t depth, T *to);

}  // namespace protrain::backend::cpu
