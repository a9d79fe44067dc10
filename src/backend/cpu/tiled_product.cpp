#include "backend/cpu/tiled_product.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cpu/floats.h"
#include "backend/cpu/onednn.h"
#include "backend/cpu/parts.h"
#include "backend/cpu/tile.h"
#include "base/error.h"
#include "base/shape.h"

namespace protrain::backend::cpu {

namespace {
// A packed block of a has at most 256 KiB. A packed group of columns of b has at most 1 MiB, which fits into the
// third-level cache. If c's type is narrower than float32, the group has at most half of this size. Then c is computed
// in strips of some rows. The float32 sums of a strip, for the group's columns, take up to another 1 MiB.
constexpr std::int64_t kMostRows = 256, kMostDepth = 256, kMostColumns = 42 * kTileColumns, kMostStripRows = 512;
constexpr std::int64_t kTileElements = kTileRows * kTileColumns;
// If M, N or K is less than this, tiles are slower than oneDNN, because packing a and b takes too much of the time.
constexpr std::int64_t kLeastRows = 32, kLeastColumns = 384, kLeastDepth = 64;
constexpr std::int64_t kRowGrain = 16;     // rows of c are cut at multiples of this
constexpr std::int64_t kRowsTogether = 8;  // rows of b that are copied to a panel before the next panel gets its part

// c is cut into a grid of cells, one for each member. Returns how many rows of cells the grid has. With this number a
// member packs the fewest rows of a and columns of b, so cells are about square.
int grid_rows(const GemmShape &s, int team_size) {
  int best = 1;
  const auto packed = [&](int rows) { return divided_up(s.m, rows) + divided_up(s.n, team_size / rows); };
  for (int rows = 2; rows <= team_size; ++rows)
    if (team_size % rows == 0 && packed(rows) < packed(best)) best = rows;
  return best;
}

#ifdef PROTRAIN_TILES
// Returns rows as float32. Widens narrow rows into `to`.
ConstRows<float> as_floats(ConstRows<float> from, std::int64_t, std::int64_t, float *) { return from; }
template <typename T>
ConstRows<float> as_floats(ConstRows<T> from, std::int64_t rows, std::int64_t columns, float *to) {
  for (std::int64_t i = 0; i < rows; ++i) widen(from.at + i * from.ld, to + i * columns, columns);
  return {to, columns};
}

// Packs rows of a, tile by tile. In a tile, the elements of one column of a lie beside each other. If the last tile has
// fewer rows than the others, the missing elements become 0.
template <typename T>
void pack_rows(const GemmShape &s, const T *a, Range rows, Range depth, float *widened, float *to) {
  constexpr std::int64_t kTiles = 4;  // tiles whose rows fill a cache line, if a is transposed and float32
  const std::int64_t tile = kTileRows * depth.size();
  if (rows.size() % kTileRows != 0) std::fill_n(to + rows.size() / kTileRows * tile, tile, 0.0F);
  std::int64_t row = rows.begin;
  for (; s.trans_a && row + kTiles * kTileRows <= rows.end; row += kTiles * kTileRows, to += kTiles * tile) {
    const auto from =
        as_floats(ConstRows<T>{a + depth.begin * s.m + row, s.m}, depth.size(), kTiles * kTileRows, widened);
    for (std::int64_t k = 0; k < depth.size(); ++k)
      for (std::int64_t t = 0; t < kTiles; ++t)
        std::memcpy(to + t * tile + k * kTileRows, from.at + k * from.ld + t * kTileRows, kTileRows * sizeof(float));
  }
  for (; row < rows.end; row += kTileRows, to += tile) {
    const std::int64_t height = std::min<std::int64_t>(kTileRows, rows.end - row);
    if (s.trans_a)
      copy_rows(as_floats(ConstRows<T>{a + depth.begin * s.m + row, s.m}, depth.size(), height, widened), depth.size(),
                height, {to, kTileRows});
    else
      transpose(as_floats(ConstRows<T>{a + row * s.k + depth.begin, s.k}, height, depth.size(), widened), height,
                depth.size(), {to, kTileRows});
  }
}

// Reads rows of b as float32, in the order in which b is stored. read() takes `count` elements of each row, from
// element `first` of the row on.
template <typename T>
struct DenseSource {
  const T *b;
  std::int64_t ld;

  ConstRows<float> read(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t count, float *to) const {
    return as_floats(ConstRows<T>{b + row * ld + first, ld}, rows, count, to);
  }
};
template <typename T>  // stored weights are rounded to T first
struct StoredSource {
  const StoredRows &weights;
  const StoredOperand &stored;
  std::int64_t ld;

  ConstRows<float> read(std::int64_t row, std::int64_t rows, std::int64_t first, std::int64_t count, float *to) const {
    std::array<T, kMostDepth> rounded;
    for (std::int64_t i = 0; i < rows; ++i) {
      weights.read(stored, (row + i) * ld + first, count, rounded.data());
      widen(rounded.data(), to + i * count, count);
    }
    return {to, count};
  }
};

// Packs columns of alpha * b as panels. If the last panel has fewer columns than the others, the missing elements
// become 0.
template <typename Source>
void pack_columns(const GemmShape &s, const Source &source, Range depth, Range columns, float *widened, float *to) {
  const std::int64_t panel = kTileColumns * depth.size(), panels = (columns.size() - 1) / kTileColumns + 1;
  const auto columns_of = [&](std::int64_t p) {
    return part_at(columns.begin + p * kTileColumns, kTileColumns, columns.end);
  };
  if (columns.size() % kTileColumns != 0) std::fill_n(to + (panels - 1) * panel, panel, 0.0F);
  for (std::int64_t p = 0; s.trans_b && p < panels; ++p) {
    const Range own = columns_of(p);
    transpose(source.read(own.begin, own.size(), depth.begin, depth.size(), widened), own.size(), depth.size(),
              {to + p * panel, kTileColumns});
  }
  for (std::int64_t k = depth.begin; !s.trans_b && k < depth.end; k += kRowsTogether)
    for (std::int64_t p = 0; p < panels; ++p) {
      const Range own = columns_of(p);
      const std::int64_t rows = std::min(kRowsTogether, depth.end - k);
      copy_rows(source.read(k, rows, own.begin, own.size(), widened), rows, own.size(),
                {to + p * panel + (k - depth.begin) * kTileColumns, kTileColumns});
    }
  for (std::int64_t i = 0; s.alpha != 1 && i < panels * panel; ++i) to[i] *= s.alpha;
}

struct Packed {
  const float *block, *panel;  // of a and b
  std::int64_t depth;
};

// Multiplies a block of a by a panel of b. A tile that reaches beyond the edge of c is computed in `tile`, and its part
// inside c is copied. While the sums of a tile are computed, the processor already fetches the tile's part of c.
[[gnu::target("avx2,fma")]] void multiply_panel(Packed at, std::int64_t rows, std::int64_t columns, bool accumulate,
                                                Rows<float> c, Rows<float> tile) {
  for (std::int64_t row = 0; row < rows; row += kTileRows, at.block += kTileRows * at.depth) {
    const std::int64_t height = std::min<std::int64_t>(kTileRows, rows - row);
    const bool is_whole = height == kTileRows && columns == kTileColumns;
    const Rows<float> part{c.at + row * c.ld, c.ld}, to = is_whole ? part : tile;
    for (std::int64_t i = 0; i < height; ++i) {
      __builtin_prefetch(part.at + i * c.ld, 1);
      __builtin_prefetch(part.at + i * c.ld + columns - 1, 1);
    }
    if (!is_whole && accumulate) copy_rows<float>({part.at, part.ld}, height, columns, tile);
    multiply_tile<kTileRows, 3>(at.depth, {at.block, at.panel, to.at}, {1, kTileColumns, to.ld, kTileRows}, accumulate);
    if (!is_whole) copy_rows<float>({tile.at, tile.ld}, height, columns, part);
  }
}
#endif
}  // namespace

// True if tiles are faster than oneDNN. Without AVX-512, oneDNN 2.6 reaches 0.9 of a core's peak if all operands are in
// the core's caches. For larger operands it reaches 0.6 to 0.8 on a Zen 3, or 0.4 if b is not transposed and its rows
// lie a multiple of 4 KiB apart. Tiles reach 0.8. oneDNN has no fast code for narrow operands without AVX-512.
bool TiledProduct::is_faster(const GemmShape &s) {
  const bool is_avx2 = onednn_uses(dnnl::cpu_isa::avx2) && !onednn_uses(dnnl::cpu_isa::avx512_core);
  return is_avx2 && has_tiles() && !s.addend && (s.m >= kLeastRows || s.panel_rows > 0) && s.n >= kLeastColumns &&
         s.k >= kLeastDepth;
}

TiledProduct::TiledProduct(const GemmShape &shape, int team_size)
    : shape_(shape), team_size_(team_size), grid_rows_(grid_rows(shape, team_size)) {
  require(!shape.bias || !shape.accumulate, Code::internal, "gemm", "a bias does not go with accumulation");
  const Cell largest = cell(0);
  strip_rows_ = sums_apart() ? part_size(largest.rows.size(), kMostStripRows, kTileRows) : largest.rows.size();
  block_rows_ = part_size(strip_rows_, kMostRows, kTileRows);
  depth_ = part_size(shape.k, kMostDepth);
  group_columns_ = part_size(largest.columns.size(), sums_apart() ? kMostColumns / 2 : kMostColumns, kTileColumns);
}

TiledProduct::Cell TiledProduct::cell(int index) const {
  const int grid_columns = team_size_ / grid_rows_;
  return {share(shape_.m, kRowGrain, index / grid_columns, grid_rows_),
          share(shape_.n, kTileColumns, index % grid_columns, grid_columns)};
}

std::uint64_t TiledProduct::scratch_bytes() const {
  const std::int64_t packed = (group_columns_ + block_rows_) * depth_;
  const std::int64_t widened = std::max(depth_, kRowsTogether) * kTileColumns;
  const std::int64_t sums = sums_apart() ? strip_rows_ * group_columns_ : 0;
  return round_up(static_cast<std::uint64_t>(packed + widened + kTileElements + sums) * sizeof(float), 64);
}

#ifdef PROTRAIN_TILES
TiledProduct::Scratch TiledProduct::lay_out(float *at) const {
  float *block = at + group_columns_ * depth_, *tile = block + block_rows_ * depth_, *sums = tile + kTileElements;
  float *widened = sums_apart() ? sums + strip_rows_ * group_columns_ : sums;
  return {
      .panels = at, .block = block, .widened = widened, .tile = {tile, kTileColumns}, .sums = {sums, group_columns_}};
}

// Sets the float32 sums `to` before the first product is added to them. The sums begin with the bias, if there is one.
// They begin with c, if the product is added to a narrow c. Does nothing in all other cases.
template <typename T>
void TiledProduct::start(const Cell &part, const GemmOperands &operands, Rows<float> to) const {
  const auto *bias = static_cast<const T *>(operands.bias), *c = static_cast<const T *>(operands.c);
  if (!shape_.bias && !(shape_.accumulate && sums_apart())) return;
  for (std::int64_t i = 0; i < part.rows.size(); ++i)
    widen((shape_.bias ? bias : c + (part.rows.begin + i) * shape_.n) + part.columns.begin, to.at + i * to.ld,
          part.columns.size());
}

template <typename T, typename Source>
void TiledProduct::multiply_group(const Cell &part, const GemmOperands &operands, const Source &source,
                                  const Scratch &scratch) const {
  const GemmShape &s = shape_;
  const std::int64_t first = part.rows.begin * s.n + part.columns.begin, columns = part.columns.size();
  const Rows<float> sums = sums_apart() ? scratch.sums : Rows<float>{static_cast<float *>(operands.c) + first, s.n};
  start<T>(part, operands, sums);
  for (std::int64_t first_k = 0; first_k < s.k; first_k += depth_) {
    const Range depth = part_at(first_k, depth_, s.k);
    const bool accumulate = s.accumulate || s.bias || first_k > 0;
    pack_columns(s, source, depth, part.columns, scratch.widened, scratch.panels);
    for (std::int64_t first_row = part.rows.begin; first_row < part.rows.end; first_row += block_rows_) {
      const Range rows = part_at(first_row, block_rows_, part.rows.end);
      pack_rows(s, static_cast<const T *>(operands.a), rows, depth, scratch.widened, scratch.block);
      float *c = sums.at + (first_row - part.rows.begin) * sums.ld;
      for (std::int64_t column = 0; column < columns; column += kTileColumns)
        multiply_panel({scratch.block, scratch.panels + column * depth.size(), depth.size()}, rows.size(),
                       std::min(kTileColumns, columns - column), accumulate, {c + column, sums.ld}, scratch.tile);
    }
  }
  if (!sums_apart()) return;
  T *c = static_cast<T *>(operands.c) + first;
  for (std::int64_t i = 0; i < part.rows.size(); ++i) narrow(sums.at + i * sums.ld, c + i * s.n, columns);
}

template <typename T, typename Source>
void TiledProduct::multiply(const Cell &own, const GemmOperands &operands, const Source &source,
                            const Scratch &scratch) const {
  const auto [rows, columns] = own;
  for (std::int64_t row = rows.begin; row < rows.end; row += strip_rows_)
    for (std::int64_t column = columns.begin; column < columns.end; column += group_columns_)
      multiply_group<T>({part_at(row, strip_rows_, rows.end), part_at(column, group_columns_, columns.end)}, operands,
                        source, scratch);
}

void TiledProduct::run(const Member &member, const GemmOperands &operands, void *scratch) const {
  with_float(shape_.in, [&]<typename T>(T) {
    const DenseSource<T> source{static_cast<const T *>(operands.b), shape_.trans_b ? shape_.k : shape_.n};
    multiply<T>(cell(member.index), operands, source, lay_out(static_cast<float *>(scratch)));
  });
}

void TiledProduct::run(const Member &member, const GemmOperands &operands, const StoredRows &weights,
                       const StoredOperand &stored, void *scratch) const {
  with_float(shape_.in, [&]<typename T>(T) {
    const StoredSource<T> source{weights, stored, shape_.trans_b ? shape_.k : shape_.n};
    multiply<T>(cell(member.index), operands, source, lay_out(static_cast<float *>(scratch)));
  });
}
#else
void TiledProduct::run(const Member &, const GemmOperands &, void *) const {}
void TiledProduct::run(const Member &, const GemmOperands &, const StoredRows &, const StoredOperand &, void *) const {}
#endif

}  // namespace protrain::backend::cpu
