// The parts that attention and its gradient share, in bfloat16 on tensor cores.
//
// A block is four warps. A warp owns one or two strips of 16 rows, and its scores stay in registers from one product to
// the next. The right operand of a product is loaded once for both strips. The block loops over tiles of keys and
// values, or, for dk and dv, over tiles of queries and dout. Shared memory holds two stages of two tiles each: the
// block works on one stage while the next tiles are copied into the other. Rows are padded with zeros to size kDepth.
// The result of a row is the same, bit for bit, with one strip or two.
#pragma once

#include "backend/cuda/attention.h"
#include "backend/cuda/mma.h"

namespace protrain::backend::cuda {

inline constexpr int kStrip = 16, kWarps = 4, kThreads = kWarps * kWarp;
inline constexpr float kLog2E = 0x1.715476p+0f, kLn2 = 0x1.62e430p-1f;
inline constexpr std::size_t kAlwaysShared = 99 << 10;  // bytes of shared memory that a block of any supported GPU has
constexpr int warp_rows(int strips) { return strips * kStrip; }
constexpr int block_rows(int strips) { return kWarps * warp_rows(strips); }

__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }

// The sums of a warp: kStrips strips of 16 rows and 8 kTiles columns.
template <int kStrips, int kTiles>
using StripSums = Sums[kStrips][kTiles];

// A matrix of bfloat16 in shared memory. Its rows lie kDepth / 2 + 4 words of 4 bytes apart, an odd multiple of 4
// words. So any 8 consecutive rows begin in different groups of 4 banks. load_matrices reads 16 bytes of each of 8 rows
// at once, and so has no bank conflicts.
template <int kDepth>
struct NarrowTile {
  static_assert(kDepth % 16 == 0);
  static constexpr int kLd = kDepth + 8;
  static constexpr std::size_t bytes(int rows) { return sizeof(bf16) * kLd * static_cast<std::size_t>(rows); }
  bf16 *at;

  // Loads the left operand A (16 x 16, see mma.h) that begins at (row, column).
  __device__ Quad left(int row, int column) const {
    return load_matrices<false>(at + (row + lane_index() % 16) * kLd + column + lane_index() / 16 * 8);
  }
  // right() and right_transposed() load two right operands B side by side (16 x 8 each, see mma.h) from the 16 x 16
  // elements that begin at (row, column). right_transposed() transposes these elements.
  __device__ Quad right(int row, int column) const {
    return load_matrices<true>(at + (row + lane_index() % 16) * kLd + column + lane_index() / 16 * 8);
  }
  __device__ Quad right_transposed(int row, int column) const {
    return load_matrices<false>(at + (row + lane_index() % 8 + lane_index() / 16 * 8) * kLd + column +
                                lane_index() / 8 % 2 * 8);
  }

  // Begins to copy kRows rows of `from`, from row `first` on. Rows at from.positions and beyond, and columns at `width`
  // and beyond, become zeros.
  template <int kRows>
  __device__ void copy(const Rows<const bf16> &from, int first, int width) const {
    constexpr int kUnits = kDepth / 8, kAside = kUnits % 8 == 0 ? std::min(kUnits, kWarp) : 4;  // in units of 16 bytes
    constexpr int kAtOnce = kThreads / kAside;                                                  // rows at once
    static_assert(kUnits % kAside == 0 && kRows % kAtOnce == 0);
    const int thread = unforeseen(static_cast<int>(threadIdx.x));
    const int left = static_cast<int>(from.positions) - first - thread / kAside, begin = thread % kAside * 8;
    const bf16 *source = from.at + (first + thread / kAside) * from.step + begin;
    bf16 *to = at + thread / kAside * kLd + begin;
    PROTRAIN_UNROLL for (int row = 0; row < kRows; row += kAtOnce, source += kAtOnce * from.step)
        PROTRAIN_UNROLL for (int column = 0; column < kDepth; column += 8 * kAside)
            copy_async<16>(to + row * kLd + column, source + column, row < left && begin + column < width);
  }
};

// The shared memory of a block: two stages of two tiles each, and behind them the last kLoaded of the block's own rows.
// The block's first kKept rows lie in the second stage until the block moves them to registers. If the second stage is
// too small for them, they lie in both stages, and no tile is copied before the move (kFirstWaits).
template <int kDepth, int kTile, int kKept, int kLoaded>
struct Stages {
  using Tile = NarrowTile<kDepth>;
  static constexpr bool kFirstWaits = kKept > 2 * kTile;
  static_assert(kKept <= 4 * kTile);
  static constexpr std::size_t kBytes = Tile::bytes(4 * kTile + kLoaded);
  __device__ static Tile tile(int stage, int which) {
    return {shared_memory<bf16>() + (2 * stage + which) * kTile * Tile::kLd};
  }
  __device__ static Tile own(int row) {
    if (row < kKept) return {tile(kFirstWaits ? 0 : 1, 0).at + row * Tile::kLd};
    return {tile(2, 0).at + (row - kKept) * Tile::kLd};
  }
};

// The left operand of a warp's products: the warp's rows of `tile`, from `row` on. If kKept, the rows stay in
// registers; else each use loads them from shared memory.
template <int kDepth, int kStrips, bool kKept>
struct LeftStrips {
  __device__ LeftStrips(const NarrowTile<kDepth> &tile, int row) : tile_(tile), row_(row) {
    if constexpr (kKept)
      PROTRAIN_UNROLL for (int k = 0; k < kDepth / 16; ++k) PROTRAIN_UNROLL for (int m = 0; m < kStrips; ++m)
          kept_[k][m] = loaded(k, m);
  }
  __device__ Quad operator()(int k, int m) const {
    if constexpr (kKept)
      return kept_[k][m];
    else
      return loaded(k, m);
  }

 private:
  __device__ Quad loaded(int k, int m) const { return tile_.left(row_ + kStrip * m, 16 * k); }

  NarrowTile<kDepth> tile_;
  int row_;
  Quad kept_[kKept ? kDepth / 16 : 1][kStrips];
};

// Adds to `sums` the product of `left` and the transpose of 8 kTiles rows of `tile`, from `row` on. The sums are dot
// products q . k or dout . v.
template <int kDepth, typename Left, int kStrips, int kTiles>
__device__ void add_scores(const Left &left, const NarrowTile<kDepth> &tile, int row,
                           StripSums<kStrips, kTiles> &sums) {
  add_product<kDepth / 16>(
      left, [&](int k, int n) { return tile.right_transposed(row + 16 * n, 16 * k); }, sums);
}

// Narrows p to bfloat16, multiplies it by the part of `tile` that begins at (row, column), and adds the product to
// `sums`.
template <int kDepth, int kStrips, int kScores, int kTiles>
__device__ void add_weighted(const StripSums<kStrips, kScores> &p, const NarrowTile<kDepth> &tile, int row, int column,
                             StripSums<kStrips, kTiles> &sums) {
  add_product<kScores / 2>([&](int k, int m) { return narrowed_quad(p[m][2 * k], p[m][2 * k + 1]); },
                           [&](int k, int n) { return tile.right(row + 16 * k, column + 16 * n); }, sums);
}

// Calls each(m, n, e, r, column) for every element that this lane holds of its warp's sums: element e of sums[m][n].
// The element lies in row lane().g + 8 r, counted from the warp's first row, and in column `column`.
template <int kStrips, int kTiles, typename Each>
__device__ void for_elements(Each each) {
  PROTRAIN_UNROLL for (int m = 0; m < kStrips; ++m) PROTRAIN_UNROLL for (int n = 0; n < kTiles; ++n)
      PROTRAIN_UNROLL for (int e = 0; e < 4; ++e) each(m, n, e, 2 * m + e / 2, 8 * n + 2 * lane().t + e % 2);
}

// The columns of a warp's scores that the masks do not hide. `row` is the warp's first row. Rows are queries and
// columns are keys; if kTransposed, rows are keys and columns are queries.
template <bool kTransposed, int kStrips>
struct Sight {
  int row;
  int some_begin, some_end, all_begin, all_end;  // columns that some of the rows see; columns that all of them see

  __device__ Sight(const Heads &s, int first) : row(first) {
    const int count = static_cast<int>(kTransposed ? s.keys : s.queries), end = row + warp_rows(kStrips);
    const Range begins = visible(s, row), ends = visible(s, (end < count ? end : count) - 1);
    some_begin = static_cast<int>(begins.begin), all_begin = static_cast<int>(ends.begin);
    some_end = row < count ? static_cast<int>(ends.end) : 0, all_end = static_cast<int>(begins.end);
  }
  __device__ static Range visible(const Heads &s, int i) { return kTransposed ? s.seeing(i, 1) : s.seen(i, 1); }
  __device__ bool some(int column, int count) const { return column < some_end && column + count > some_begin; }
  __device__ bool all(int column, int count) const { return column >= all_begin && column + count <= all_end; }
};

// The rule that turns dot products q . k into scores. Scores are in base 2, because the softmax sums powers of two.
// `plain` is true if there is no softcap and no bias, and the scale is positive. A score is then the dot product times
// `factor`. finish_scores() leaves this multiplication to the fma that later subtracts the row's maximum.
struct ScoreTransform {
  Bias<bf16> bias;  // of all heads
  int b, h;
  bool plain;
  float factor;  // finish_scores() leaves this factor to the softmax

  __device__ ScoreTransform(const Heads &s, const Bias<bf16> &all, std::int64_t batch, std::int64_t head)
      : bias(all),
        b(static_cast<int>(batch)),
        h(static_cast<int>(head)),
        plain(s.softcap <= 0 && s.scale > 0 && !bias.given()),
        factor(plain ? s.scale * kLog2E : 1.0f) {}
};

// Turns a warp's dot products q . k into scores, in kColumns columns from `column` on. The softmax later multiplies the
// scores by transform.factor. Scores that a mask hides become -inf. If there is a softcap, calls on_slope(m, n, e,
// slope) with the softcap's derivative at each element. Where a finite bias gives the lowest score, calls it with 0.
template <int kColumns, bool kTransposed, int kStrips, typename OnSlope>
__device__ void finish_scores(const Heads &s, const ScoreTransform &transform, const Sight<kTransposed, kStrips> &sight,
                              int column, StripSums<kStrips, kColumns / 8> &scores, const OnSlope &on_slope) {
  constexpr int kTiles = kColumns / 8;
  if (transform.plain && sight.all(column, kColumns)) return;
  if (s.softcap > 0)
    for_elements<kStrips, kTiles>([&](int m, int n, int e, int, int) {
      float slope;
      scores[m][n].at[e] = s.score(scores[m][n].at[e], slope) * kLog2E;
      on_slope(m, n, e, slope);
    });
  else if (!transform.plain)
    for_elements<kStrips, kTiles>([&](int m, int n, int e, int, int) { scores[m][n].at[e] *= s.scale * kLog2E; });

  int begin[2 * kStrips], end[2 * kStrips];  // the columns that each row sees, counted from `column`
  const int row = unforeseen(sight.row + lane().g);
  PROTRAIN_UNROLL for (int r = 0; r < 2 * kStrips; ++r) {
    const Range range = sight.visible(s, row + 8 * r);
    begin[r] = static_cast<int>(range.begin) - column, end[r] = static_cast<int>(range.end) - column;
  }
  const Bias<bf16> bias = transform.bias.of_head(s, transform.b, transform.h);
  for_elements<kStrips, kTiles>([&](int m, int n, int e, int r, int c) {
    if (c < begin[r] || c >= end[r])
      scores[m][n].at[e] = -INFINITY;
    else if (bias.given()) {
      const std::int64_t i = row + 8 * r, j = column + c;
      const std::int64_t at = kTransposed ? j * s.bias_q + i * s.bias_k : i * s.bias_q + j * s.bias_k;
      const float added = bias.value(at), least = arith::least_score(added) * kLog2E;
      float &score = scores[m][n].at[e];
      score += added * kLog2E;
      if (score < least) score = least, on_slope(m, n, e, 0.0f);  // see arith::biased
    }
  });
  __syncwarp();  // lanes may have diverged; mma needs them together
}

// Stores a warp's rows to `to`, from row `first` on, without the columns at `width` and beyond. The row at lane().g + 8
// r is multiplied by factors[r].
template <int kStrips, int kTiles>
__device__ void store_strips(const StripSums<kStrips, kTiles> &sums, const float (&factors)[2 * kStrips],
                             std::int64_t first, int width, const Rows<bf16> &to) {
  PROTRAIN_UNROLL for (int r = 0; r < 2 * kStrips; ++r) {
    const std::int64_t row = first + lane().g + 8 * r;
    if (row >= to.positions) continue;
    PROTRAIN_UNROLL for (int n = 0; n < kTiles; ++n) {
      const int column = 8 * n + 2 * lane().t;
      const float(&pair)[4] = sums[r / 2][n].at;
      const Pair narrow = narrowed_pair(pair[r % 2 * 2] * factors[r], pair[r % 2 * 2 + 1] * factors[r]);
      if (column < width) store<2>(to.at + row * to.step + column, std::bit_cast<Pack<bf16, 2>>(narrow));
    }
  }
}
template <int kStrips, int kTiles>
__device__ void store_strips(const StripSums<kStrips, kTiles> &sums, float factor, std::int64_t first, int width,
                             const Rows<bf16> &to) {
  float factors[2 * kStrips];
  PROTRAIN_UNROLL for (float &each : factors) each = factor;
  store_strips(sums, factors, first, width, to);
}

// Returns call(Width<kDepth>{}), where kDepth is the head size after padding. Returns nullptr if the head size exceeds
// 256 (the sums do not fit into registers), if the size of a row is no multiple of 16 bytes, or if numbers of rows or
// offsets do not fit into 32 bits.
template <typename Operands, typename Call>
AttentionLaunch<Operands> by_padded_depth(const AttentionShape &shape, Call call) {
  if (shape.depth % 8 != 0 || shape.value_depth % 8 != 0) return nullptr;
  const std::int64_t depth = std::max(shape.depth, shape.value_depth);
  if (shape.heads > INT32_MAX / std::max<std::int64_t>(depth, 1))
    return nullptr;  // offsets within a row must fit into 32 bits
  if (shape.batch * shape.queries * shape.heads > INT32_MAX || shape.queries + shape.keys > INT32_MAX / 2)
    return nullptr;
  if (depth <= 64) return call(Width<64>{});
  if (depth <= 96) return call(Width<96>{});
  if (depth <= 128) return call(Width<128>{});
  if (depth <= 256) return call(Width<256>{});
  return nullptr;
}

}  // namespace protrain::backend::cuda
