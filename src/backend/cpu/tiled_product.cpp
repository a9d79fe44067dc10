#include "backend/cpu/tiled_product.h"

#include <algorithm>

#include "backend/cpu/tile.h"
#include "backend/cpu/transpose.h"
#include "base/shape.h"
#include "base/threads.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kMostRows = 480, kMostDepth = 256;  // of a block of a, which has at most 480 KiB
constexpr std::int64_t kTileElements = kTileRows * kTileColumns;

#ifdef PROTRAIN_TILES
Range next(std::int64_t first, std::int64_t most, std::int64_t end) { return {first, std::min(first + most, end)}; }

// Packs a block of a. The elements of a column that belong to one tile lie beside each other. If the last tile has
// fewer rows than the others, its elements behind them become 0.
void pack_rows(const GemmShape &s, const float *a, Range rows, Range depth, float *to) {
  for (std::int64_t row = rows.begin; row < rows.end; row += kTileRows, to += kTileRows * depth.size()) {
    const Range of_tile = next(row, kTileRows, rows.end);
    if (of_tile.size() < kTileRows) std::fill_n(to, kTileRows * depth.size(), 0.0F);
    transpose<float>({a + row * s.k + depth.begin, s.k}, of_tile.size(), depth.size(), {to, kTileRows});
  }
}

// Packs a panel of alpha b. Columns of the panel behind the last one of b become 0.
void pack_columns(const GemmShape &s, const float *b, Range depth, Range columns, float *to) {
  if (columns.size() < kTileColumns) std::fill_n(to, depth.size() * kTileColumns, 0.0F);
  if (s.trans_b)
    transpose<float>({b + columns.begin * s.k + depth.begin, s.k}, columns.size(), depth.size(), {to, kTileColumns});
  else
    copy_rows<float>({b + depth.begin * s.n + columns.begin, s.n}, depth.size(), columns.size(), {to, kTileColumns});
  if (s.alpha != 1)
    for (std::int64_t i = 0; i < depth.size() * kTileColumns; ++i) to[i] *= s.alpha;
}

// Where the parts of scratch are.
struct Scratch {
  float *block, *panel, *sums;
};

// Multiplies a packed block by a packed panel. A tile that c has only in part is computed in `sums`.
void multiply_block(const Scratch &scratch, Range depth, std::int64_t rows, std::int64_t columns, bool accumulate,
                    Rows<float> c) {
  const float *a = scratch.block;
  const Rows<float> sums{scratch.sums, kTileColumns};
  for (std::int64_t row = 0; row < rows; row += kTileRows, a += kTileRows * depth.size(), c.at += kTileRows * c.ld) {
    const std::int64_t height = std::min<std::int64_t>(kTileRows, rows - row);
    const bool is_whole = height == kTileRows && columns == kTileColumns;
    const Rows<float> to = is_whole ? c : sums;
    if (!is_whole && accumulate) copy_rows<float>({c.at, c.ld}, height, columns, sums);
    multiply_tile<kTileRows, 3>(depth.size(), {a, scratch.panel, to.at}, {1, kTileColumns, to.ld, kTileRows},
                                accumulate);
    if (!is_whole) copy_rows<float>({sums.at, sums.ld}, height, columns, c);
  }
}
#endif
}  // namespace

bool TiledProduct::serves(const GemmShape &s) {
  return has_tiles() && s.in == DType::f32 && s.out == DType::f32 && !s.trans_a;
}

TiledProduct::TiledProduct(const GemmShape &shape)
    : shape_(shape),
      rows_(std::min(kMostRows, (shape.m + kTileRows - 1) / kTileRows * kTileRows)),
      depth_(std::min(kMostDepth, shape.k)) {}

std::uint64_t TiledProduct::scratch_bytes() const {
  const std::int64_t elements = (rows_ + kTileColumns) * depth_ + kTileElements;
  return round_up(static_cast<std::uint64_t>(elements) * sizeof(float), 64);
}

void TiledProduct::run([[maybe_unused]] const GemmOperands &operands, [[maybe_unused]] void *memory) const {
#ifdef PROTRAIN_TILES
  const GemmShape &s = shape_;
  const auto *a = static_cast<const float *>(operands.a), *b = static_cast<const float *>(operands.b);
  auto *c = static_cast<float *>(operands.c), *block = static_cast<float *>(memory);
  float *panel = block + rows_ * depth_;
  const Scratch scratch{block, panel, panel + kTileColumns * depth_};
  for (std::int64_t i = 0; s.bias && i < s.m; ++i)
    std::copy_n(static_cast<const float *>(operands.bias), s.n, c + i * s.n);
  for (std::int64_t first_row = 0; first_row < s.m; first_row += rows_) {
    const Range rows = next(first_row, rows_, s.m);
    for (std::int64_t first = 0; first < s.k; first += depth_) {
      const Range depth = next(first, depth_, s.k);
      pack_rows(s, a, rows, depth, scratch.block);
      for (std::int64_t column = 0; column < s.n; column += kTileColumns) {
        const Range columns = next(column, kTileColumns, s.n);
        pack_columns(s, b, depth, columns, scratch.panel);
        multiply_block(scratch, depth, rows.size(), columns.size(), s.accumulate || s.bias || first > 0,
                       {c + first_row * s.n + column, s.n});
      }
    }
  }
#endif
}

}  // namespace protrain::backend::cpu
