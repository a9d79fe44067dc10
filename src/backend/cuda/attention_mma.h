// Attention in bfloat16 on tensor cores: what forward and backward share.
//
// A block is four warps; a warp has a strip of 16 rows of the scores to itself, in registers from one product to the
// next. Rows of keys and values (backward: of queries and dout) come by in tiles, two stages of them in shared memory:
// the next two tiles are copied while these are worked on. Heads are padded with zeros to kDepth.
#pragma once

#include "backend/cuda/attention.h"
#include "backend/cuda/mma.h"

namespace protrain::backend::cuda {

inline constexpr int kStrip = 16, kWarps = 4, kThreads = kWarps * kWarp, kBlockRows = kWarps * kStrip;
inline constexpr float kLog2E = 0x1.715476p+0f, kLn2 = 0x1.62e430p-1f;

__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }

// Rows in shared memory. They lie kDepth / 2 + 4 words apart, an odd multiple of 4: any 8 rows that follow each other
// begin in different groups of 4 banks, and the 8 times 16 bytes that load_matrices reads at once are in all 32 banks.
template <int kDepth>
struct NarrowTile {
  static_assert(kDepth % 16 == 0);
  static constexpr int kLd = kDepth + 8;
  static constexpr std::size_t bytes(int rows) { return sizeof(bf16) * kLd * static_cast<std::size_t>(rows); }
  bf16 *at;

  // A of 16 rows and columns.
  __device__ Quad left(int row, int column) const {
    return load_matrices<false>(at + (row + lane_index() % 16) * kLd + column + lane_index() / 16 * 8);
  }
  // Two Bs, 16 columns: those of the tile; or 16 rows of the tile, turned.
  __device__ Quad right(int row, int column) const {
    return load_matrices<true>(at + (row + lane_index() % 16) * kLd + column + lane_index() / 16 * 8);
  }
  __device__ Quad right_turned(int row, int column) const {
    return load_matrices<false>(at + (row + lane_index() % 8 + lane_index() / 16 * 8) * kLd + column +
                                lane_index() / 8 % 2 * 8);
  }

  // Begins to copy kRows rows from `first` on; zeros beyond the positions and beyond `width`.
  template <int kRows>
  __device__ void copy(const Rows<const bf16> &from, std::int64_t first, int width) const {
    constexpr int kPieces = kDepth / 8;  // of 16 bytes
    const bf16 *begin = from.at + first * from.step;
    const int step = static_cast<int>(from.step);  // by_padded_depth has seen to it
    const std::int64_t left = from.positions - first;
    const int rows = left < kRows ? static_cast<int>(left) : kRows;
    PROTRAIN_UNROLL for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += kThreads) {
      const int row = i / kPieces, column = i % kPieces * 8;
      const bool given = row < rows && column < width;
      copy_async<16>(at + row * kLd + column, given ? begin + std::int64_t{row} * step + column : from.at, given);
    }
  }
};

// The shared memory of a block: two stages of two tiles, and the block's own rows. Those lie in the second stage where
// they are kept in registers by the time that it is needed.
template <int kDepth, int kTile, bool kKept>
struct Stages {
  using Tile = NarrowTile<kDepth>;
  static_assert(!kKept || 2 * kBlockRows <= 2 * kTile);
  static constexpr std::size_t bytes(int own_rows) { return Tile::bytes(4 * kTile + (kKept ? 0 : own_rows)); }
  __device__ static Tile tile(int stage, int which) {
    return {shared_memory<bf16>() + (2 * stage + which) * kTile * Tile::kLd};
  }
  __device__ static Tile own(int row) { return {tile(kKept ? 1 : 2, 0).at + row * Tile::kLd}; }
};

// A warp's strip of a tile as left operand, kept in registers or loaded each time.
template <int kDepth, bool kKept>
struct LeftStrip {
  __device__ LeftStrip(const NarrowTile<kDepth> &tile, int row) : tile_(tile), row_(row) {
    if constexpr (kKept) PROTRAIN_UNROLL for (int k = 0; k < kDepth / 16; ++k) kept_[k] = tile.left(row, 16 * k);
  }
  __device__ Quad operator()(int k) const {
    if constexpr (kKept)
      return kept_[k];
    else
      return tile_.left(row_, 16 * k);
  }

 private:
  NarrowTile<kDepth> tile_;
  int row_;
  Quad kept_[kKept ? kDepth / 16 : 1];
};

// sums += left times the rows of `tile`, turned: scores.
template <int kDepth, typename Left, int kTiles>
__device__ void add_scores(const Left &left, const NarrowTile<kDepth> &tile, Sums (&sums)[kTiles]) {
  add_product<kDepth / 16>(
      left, [&](int k, int n) { return tile.right_turned(16 * n, 16 * k); }, sums);
}

// sums += p, narrowed, times the columns of `tile` from `column` on.
template <int kDepth, int kScores, int kTiles>
__device__ void add_weighted(const Sums (&p)[kScores], const NarrowTile<kDepth> &tile, int column,
                             Sums (&sums)[kTiles]) {
  add_product<kScores / 2>([&](int k) { return narrowed_quad(p[2 * k], p[2 * k + 1]); },
                           [&](int k, int n) { return tile.right(16 * k, column + 16 * n); }, sums);
}

// each(n, e, r, column) for the elements that a lane has of a strip: e of Sums n, in row g + 8 r.
template <int kTiles, typename Each>
__device__ void for_elements(Each each) {
  PROTRAIN_UNROLL for (int n = 0; n < kTiles; ++n) PROTRAIN_UNROLL for (int e = 0; e < 4; ++e)
      each(n, e, e / 2, 8 * n + 2 * lane().t + e % 2);
}

// Where a strip of kColumns columns lies among all scores: rows are queries and columns keys, or turned.
template <bool kTurned, int kColumns>
struct Place {
  std::int64_t row, column;

  __device__ Range visible(const Heads &s, std::int64_t i) const { return kTurned ? s.seeing(i, 1) : s.seen(i, 1); }
  __device__ bool all_visible(const Heads &s) const {
    const std::int64_t last = (kTurned ? s.keys : s.queries) - 1;
    return visible(s, row).end >= column + kColumns && visible(s, row + 15 < last ? row + 15 : last).begin <= column;
  }
  __device__ int within(std::int64_t position) const {
    const std::int64_t at = position - column;
    return at < 0 ? 0 : at > kColumns ? kColumns : static_cast<int>(at);
  }
};

// Raw products of a strip become log2 of what the softmax sums up; on_slope(n, e, slope) gets the softcap's derivative.
template <bool kTurned, int kColumns, typename OnSlope>
__device__ void finish_scores(const Heads &s, const Bias<bf16> &bias, const Place<kTurned, kColumns> &place,
                              Sums (&scores)[kColumns / 8], const OnSlope &on_slope) {
  constexpr int kTiles = kColumns / 8;
  if (s.softcap > 0)
    for_elements<kTiles>([&](int n, int e, int, int) {
      float slope;
      scores[n].at[e] = s.score(scores[n].at[e], slope) * kLog2E;
      on_slope(n, e, slope);
    });
  else
    for_elements<kTiles>([&](int n, int e, int, int) { scores[n].at[e] *= s.scale * kLog2E; });
  if (!bias.given() && place.all_visible(s)) return;

  const std::int64_t row = place.row + lane().g;
  const Range first = place.visible(s, row), second = place.visible(s, row + 8);
  const int begin[2] = {place.within(first.begin), place.within(second.begin)};
  const int end[2] = {place.within(first.end), place.within(second.end)};
  auto visible = [&](int r, int column) { return column >= begin[r] && column < end[r]; };
  if (bias.given())
    for_elements<kTiles>([&](int n, int e, int r, int column) {
      const std::int64_t i = row + 8 * r, j = place.column + column;
      const std::int64_t at = kTurned ? j * s.bias_q + i * s.bias_k : i * s.bias_q + j * s.bias_k;
      if (visible(r, column)) scores[n].at[e] += bias.added(0, at) * kLog2E;
    });
  for_elements<kTiles>([&](int n, int e, int r, int column) {
    if (!visible(r, column)) scores[n].at[e] = -INFINITY;
  });
  __syncwarp();  // lanes may have gone their own ways; products want them together
}

// Rows g and g + 8 of a strip, times their factors, to the rows from `first` on; columns below `width`.
template <int kTiles>
__device__ void store_strip(const Sums (&sums)[kTiles], const float (&factors)[2], std::int64_t first, int width,
                            const Rows<bf16> &to) {
  PROTRAIN_UNROLL for (int r = 0; r < 2; ++r) {
    const std::int64_t row = first + lane().g + 8 * r;
    if (row >= to.positions) continue;
    PROTRAIN_UNROLL for (int n = 0; n < kTiles; ++n) {
      const int column = 8 * n + 2 * lane().t;
      const Pair pair = narrowed_pair(sums[n].at[2 * r] * factors[r], sums[n].at[2 * r + 1] * factors[r]);
      if (column < width) store<2>(to.at + row * to.step + column, std::bit_cast<Pack<bf16, 2>>(pair));
    }
  }
}

// call(Width<kDepth>) with the depth that heads are padded to; else nullptr. Sums of deeper heads would not fit into
// registers; 16 bytes are 8 elements.
template <typename Operands, typename Call>
AttentionLaunch<Operands> by_padded_depth(const AttentionShape &shape, Call call) {
  if (shape.depth % 8 != 0 || shape.value_depth % 8 != 0) return nullptr;
  const std::int64_t depth = std::max(shape.depth, shape.value_depth);
  if (shape.heads > INT32_MAX / std::max<std::int64_t>(depth, 1)) return nullptr;  // a row's elements
  if (depth <= 64) return call(Width<64>{});
  if (depth <= 96) return call(Width<96>{});
  if (depth <= 128) return call(Width<128>{});
  if (depth <= 256) return call(Width<256>{});
  return nullptr;
}

}  // namespace protrain::backend::cuda
