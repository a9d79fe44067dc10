// The common parts of attention and of its gradient in bfloat16 on tensor cores.
//
// A block is four warps. A warp owns one or two strips of 16 rows of the scores, which stay in registers from one
// product to the next. Every load of the other operand serves both strips. Rows of keys and values pass by in tiles (in
// the gradient also rows of queries and dout). Shared memory holds two stages of two tiles: the next two tiles are
// copied while the block works on these. Heads are padded with zeros to kDepth. A row's bits do not depend on how many
// strips a warp has.
#pragma once

#include "backend/cuda/attention.h"
#include "backend/cuda/mma.h"

namespace protrain::backend::cuda {

inline constexpr int kStrip = 16, kWarps = 4, kThreads = kWarps * kWarp;
inline constexpr float kLog2E = 0x1.715476p+0f, kLn2 = 0x1.62e430p-1f;
inline constexpr std::size_t kAlwaysShared = 99 << 10;  // bytes of shared memory that a block of any GPU has
constexpr int warp_rows(int strips) { return strips * kStrip; }
constexpr int block_rows(int strips) { return kWarps * warp_rows(strips); }

__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }

// The sums of a warp: kStrips strips of 8 kTiles columns.
template <int kStrips, int kTiles>
using StripSums = Sums[kStrips][kTiles];

// Rows in shared memory. They lie kDepth / 2 + 4 words apart, an odd multiple of 4. So any 8 consecutive rows begin in
// different groups of 4 banks, and the 8 times 16 bytes that load_matrices reads at once lie in all 32 banks.
template <int kDepth>
struct NarrowTile {
  static_assert(kDepth % 16 == 0);
  static constexpr int kLd = kDepth + 8;
  static constexpr std::size_t bytes(int rows) { return sizeof(bf16) * kLd * static_cast<std::size_t>(rows); }
  bf16 *at;

  // An A of 16 rows and columns.
  __device__ Quad left(int row, int column) const {
    return load_matrices<false>(at + (row + lane_index() % 16) * kLd + column + lane_index() / 16 * 8);
  }
  // Both give two Bs side by side: 16 columns of the tile, or 16 of its rows, transposed.
  __device__ Quad right(int row, int column) const {
    return load_matrices<true>(at + (row + lane_index() % 16) * kLd + column + lane_index() / 16 * 8);
  }
  __device__ Quad right_transposed(int row, int column) const {
    return load_matrices<false>(at + (row + lane_index() % 8 + lane_index() / 16 * 8) * kLd + column +
                                lane_index() / 8 % 2 * 8);
  }

  // Begins to copy kRows rows from `first` on. Elements beyond the positions and beyond `width` are zeros.
  template <int kRows>
  __device__ void copy(const Rows<const bf16> &from, int first, int width) const {
    constexpr int kUnits = kDepth / 8, kAside = kUnits % 8 == 0 ? std::min(kUnits, kWarp) : 4;  // in units of 16 bytes
    constexpr int kAtOnce = kThreads / kAside;                                                  // rows
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

// The shared memory of a block: two stages of two tiles, and kKept + kLoaded rows of the block's own. The kept rows
// stay in registers and only pass through stages that are needed later. They use the second stage; if there are more,
// they use both, and the first tiles wait for them. The loaded rows lie behind the stages.
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

// The left operand of a warp: its rows of a tile, kept in registers or loaded each time.
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

// sums += left times the transposed rows of `tile` from `row` on. These sums are scores.
template <int kDepth, typename Left, int kStrips, int kTiles>
__device__ void add_scores(const Left &left, const NarrowTile<kDepth> &tile, int row,
                           StripSums<kStrips, kTiles> &sums) {
  add_product<kDepth / 16>(
      left, [&](int k, int n) { return tile.right_transposed(row + 16 * n, 16 * k); }, sums);
}

// sums += narrowed p times `tile`: its rows from `row` on, its columns from `column` on.
template <int kDepth, int kStrips, int kScores, int kTiles>
__device__ void add_weighted(const StripSums<kStrips, kScores> &p, const NarrowTile<kDepth> &tile, int row, int column,
                             StripSums<kStrips, kTiles> &sums) {
  add_product<kScores / 2>([&](int k, int m) { return narrowed_quad(p[m][2 * k], p[m][2 * k + 1]); },
                           [&](int k, int n) { return tile.right(row + 16 * k, column + 16 * n); }, sums);
}

// Calls each(m, n, e, r, column) for the elements that a lane has of its warp's sums: element e of Sums [m][n], in row
// g + 8 r.
template <int kStrips, int kTiles, typename Each>
__device__ void for_elements(Each each) {
  PROTRAIN_UNROLL for (int m = 0; m < kStrips; ++m) PROTRAIN_UNROLL for (int n = 0; n < kTiles; ++n)
      PROTRAIN_UNROLL for (int e = 0; e < 4; ++e) each(m, n, e, 2 * m + e / 2, 8 * n + 2 * lane().t + e % 2);
}

// The columns of the scores that a warp's rows from `row` on see. Rows are queries and columns keys; the other way
// round where kTransposed.
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

// The way from raw products to scores. The softmax sums powers of two, so scores end as log2 of its terms. Without
// softcap and bias a score is the product times a factor: the product is left as it is, and an fma multiplies it where
// the maximum is subtracted.
struct ScoreTransform {
  Bias<bf16> bias;  // of all heads
  int b, h;
  bool plain;
  float factor;  // finished scores are still to be multiplied by it

  __device__ ScoreTransform(const Heads &s, const Bias<bf16> &all, std::int64_t batch, std::int64_t head)
      : bias(all),
        b(static_cast<int>(batch)),
        h(static_cast<int>(head)),
        plain(s.softcap <= 0 && s.scale > 0 && !bias.given()),
        factor(plain ? s.scale * kLog2E : 1.0f) {}
};

// Turns a warp's raw products with kColumns columns, from `column` on, into scores. on_slope(m, n, e, slope) gets the
// softcap's derivative.
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

  int begin[2 * kStrips], end[2 * kStrips];  // the columns that a row sees, counted from `column`
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
      scores[m][n].at[e] += bias.added(0, at) * kLog2E;
    }
  });
  __syncwarp();  // lanes may have diverged; products want them together
}

// Stores a warp's rows from `first` on, each times its factor, and of each the columns below `width`.
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

// Calls call(Width<kDepth>) with the depth that heads are padded to. nullptr where heads are deeper than 256, for their
// sums do not fit into registers, or where a row is not whole units of 16 bytes (8 elements).
template <typename Operands, typename Call>
AttentionLaunch<Operands> by_padded_depth(const AttentionShape &shape, Call call) {
  if (shape.depth % 8 != 0 || shape.value_depth % 8 != 0) return nullptr;
  const std::int64_t depth = std::max(shape.depth, shape.value_depth);
  if (shape.heads > INT32_MAX / std::max<std::int64_t>(depth, 1))
    return nullptr;  // elements of a row must be countable in 32 bits
  if (shape.batch * shape.queries * shape.heads > INT32_MAX || shape.queries + shape.keys > INT32_MAX / 2)
    return nullptr;
  if (depth <= 64) return call(Width<64>{});
  if (depth <= 96) return call(Width<96>{});
  if (depth <= 128) return call(Width<128>{});
  if (depth <= 256) return call(Width<256>{});
  return nullptr;
}

}  // namespace protrain::backend::cuda
