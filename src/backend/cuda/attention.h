// What attention and its gradient share: sizes, masks, and products of tiles in shared memory.
//
// A block of 16 x 16 threads works on tiles of kTile queries and kTile keys. Of a product of tiles, thread (y, x) makes
// rows y, y + 16, ... and columns x, x + 16, ..., so that neighbouring threads touch neighbouring banks. Operands are
// float32 in shared memory, whatever they are outside.
#pragma once

#include "arith/math.h"
#include "backend/attention_shape.h"
#include "backend/cuda/elementwise.h"

namespace protrain::backend::cuda {

inline constexpr int kSide = 16;  // of the square of threads

// q (B, Sq, H, D), k (B, Sk, Hk, D), v (B, Sk, Hk, Dv)
struct Heads {
  std::int64_t batch, queries, keys, heads, kv_heads, depth, value_depth, window;
  std::int64_t bias_b, bias_h, bias_q, bias_k;  // strides; 0 where the bias repeats
  float scale, softcap;
  bool causal;

  explicit Heads(const AttentionShape &a)
      : batch(a.batch),
        queries(a.queries),
        keys(a.keys),
        heads(a.heads),
        kv_heads(a.kv_heads),
        depth(a.depth),
        value_depth(a.value_depth),
        window(a.window),
        bias_b(a.bias_b),
        bias_h(a.bias_h),
        bias_q(a.bias_q),
        bias_k(a.bias_k),
        scale(a.scale),
        softcap(a.softcap),
        causal(a.causal) {}

  __device__ bool visible(std::int64_t query, std::int64_t key) const {
    const std::int64_t at = query + keys - queries;  // the key that the query stands at
    return key < keys && query < queries && (!causal || key <= at) && (window <= 0 || key > at - window);
  }
  // Whether some query of [first, first + size) may see some key of the tile.
  __device__ bool tiles_meet(std::int64_t first_query, std::int64_t first_key, int size) const {
    const std::int64_t ahead = keys - queries;
    return (!causal || first_key <= first_query + size - 1 + ahead) &&
           (window <= 0 || first_key + size - 1 > first_query + ahead - window);
  }
  // The score of a visible pair, of its raw product; `slope` becomes the derivative of the softcap.
  __device__ float score(float product, float &slope) const {
    slope = 1;
    if (softcap <= 0) return product * scale;
    const float t = arith::tanh(product * (scale / softcap));
    slope = 1 - t * t;
    return t * softcap;
  }
};

struct Thread {
  int x, y;  // of the square
};
__device__ inline Thread thread_of_square() {
  return {static_cast<int>(threadIdx.x) % kSide, static_cast<int>(threadIdx.x) / kSide};
}

// A matrix in shared memory; rows lie one element apart more than they are long, and so in different banks.
struct Tile {
  float *at;
  int ld;
  __device__ float &operator()(int row, int column) const { return at[row * ld + column]; }
};
inline constexpr std::size_t tile_floats(std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * (columns + 1));
}
__device__ inline Tile take_tile(float *&memory, int rows, int columns) {
  const Tile tile{memory, columns + 1};
  memory += rows * (columns + 1);
  return tile;
}

// Rows [first, first + rows) of what is (positions, width) with `step` elements from one position to the next; beyond
// `positions` zeros.
template <typename T>
struct Rows {
  const T *at;
  std::int64_t step, positions;
};
template <typename T>
__device__ void load_tile(const Rows<T> &from, std::int64_t first, int rows, int width, const Tile &to) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * width; i += static_cast<int>(blockDim.x)) {
    const int row = i / width, column = i % width;
    const bool inside = first + row < from.positions;
    to(row, column) = inside ? widened(from.at[(first + row) * from.step + column]) : 0.0f;
  }
}

// sums[a][b] = row y + 16 a of `left` times row x + 16 b of `right`
template <int kMicro>
__device__ void dot_rows(const Tile &left, const Tile &right, int depth, float (&sums)[kMicro][kMicro]) {
  const Thread t = thread_of_square();
  for (int a = 0; a < kMicro; ++a)
    for (int b = 0; b < kMicro; ++b) sums[a][b] = 0;
  for (int d = 0; d < depth; ++d) {
    float l[kMicro], r[kMicro];
    for (int a = 0; a < kMicro; ++a) l[a] = left(t.y + kSide * a, d);
    for (int b = 0; b < kMicro; ++b) r[b] = right(t.x + kSide * b, d);
    for (int a = 0; a < kMicro; ++a)
      for (int b = 0; b < kMicro; ++b) sums[a][b] = arith::fma(l[a], r[b], sums[a][b]);
  }
}

// sums[a][c] += row y + 16 a of `left` (its column, where kTurned) times column x + 16 c of `right`; `length` of each
template <bool kTurned, int kMicro, int kColumns>
__device__ void add_product(const Tile &left, const Tile &right, int length, int width,
                            float (&sums)[kMicro][kColumns]) {
  const Thread t = thread_of_square();
  for (int j = 0; j < length; ++j) {
    float l[kMicro];
    for (int a = 0; a < kMicro; ++a) l[a] = kTurned ? left(j, t.y + kSide * a) : left(t.y + kSide * a, j);
    for (int c = 0; c < kColumns; ++c) {
      const int column = t.x + kSide * c;
      const float r = column < width ? right(j, column) : 0.0f;
      for (int a = 0; a < kMicro; ++a) sums[a][c] = arith::fma(l[a], r, sums[a][c]);
    }
  }
}

// Writes what add_product summed to rows [first, ...) of an array like Rows.
template <typename T, int kMicro, int kColumns>
__device__ void store_rows(const float (&sums)[kMicro][kColumns], const Rows<T> &shape, std::int64_t first, int width,
                           T *to) {
  const Thread t = thread_of_square();
  for (int a = 0; a < kMicro; ++a) {
    const std::int64_t row = first + t.y + kSide * a;
    if (row >= shape.positions) continue;
    for (int c = 0; c < kColumns; ++c)
      if (t.x + kSide * c < width) to[row * shape.step + t.x + kSide * c] = narrowed<T>(sums[a][c]);
  }
}

// call(Width<kTile>, Width<kColumns>): the sizes of tiles that heads of that depth are worked on by, kColumns the
// columns of a thread. Fixed by shapes alone.
template <typename Call>
Made by_depth(const KernelRequest &request, std::int64_t depth, std::int64_t tile_64_up_to, Call call) {
  if (depth <= 64) return call(Width<64>{}, Width<4>{});
  if (depth <= 128 && tile_64_up_to >= 128) return call(Width<64>{}, Width<8>{});
  if (depth <= 128) return call(Width<32>{}, Width<8>{});
  if (depth <= 256) return call(Width<32>{}, Width<16>{});
  require(depth <= 512, Code::unsupported, subject(request), "heads of {}: cuda takes up to 512", depth);
  return call(Width<16>{}, Width<32>{});
}

}  // namespace protrain::backend::cuda
