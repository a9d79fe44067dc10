// Tiles in shared memory and their products, from which attention and its gradient are computed. The arithmetic is
// float32, whatever the operands are.
//
// A block of 16 x 16 threads works on tiles of kTile queries and kTile keys. Thread (y, x) computes rows y, y + 16, ...
// and columns x, x + 16, ... of a product, so that neighbouring threads use neighbouring banks.
#pragma once

#include "backend/cuda/attention.h"

namespace protrain::backend::cuda {

inline constexpr int kSide = 16;  // a block is a square of 16 x 16 threads

struct Thread {
  int x, y;  // column and row in the square
};
__device__ inline Thread thread_of_square() {
  return {static_cast<int>(threadIdx.x) % kSide, static_cast<int>(threadIdx.x) / kSide};
}

// A matrix in shared memory. `ld` is one more than the length of a row, so that consecutive rows begin in different
// banks.
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

// Loads rows [first, first + rows) of `from`. Rows at from.positions and beyond become zeros.
template <typename T>
__device__ void load_tile(const Rows<const T> &from, std::int64_t first, int rows, int width, const Tile &to) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * width; i += static_cast<int>(blockDim.x)) {
    const int row = i / width, column = i % width;
    const bool inside = first + row < from.positions;
    to(row, column) = inside ? widened(from.at[(first + row) * from.step + column]) : 0.0f;
  }
}

// Thread (y, x) sets sums[a][b] to the dot product of row y + 16 a of `left` and row x + 16 b of `right`.
template <int kMicro>
__device__ void dot_rows(const Tile &left, const Tile &right, int depth, float (&sums)[kMicro][kMicro]) {
  const Thread t = thread_of_square();
  PROTRAIN_UNROLL for (int a = 0; a < kMicro; ++a) PROTRAIN_UNROLL for (int b = 0; b < kMicro; ++b) sums[a][b] = 0;
  for (int d = 0; d < depth; ++d) {
    float l[kMicro], r[kMicro];
    PROTRAIN_UNROLL for (int a = 0; a < kMicro; ++a) l[a] = left(t.y + kSide * a, d);
    PROTRAIN_UNROLL for (int b = 0; b < kMicro; ++b) r[b] = right(t.x + kSide * b, d);
    PROTRAIN_UNROLL for (int a = 0; a < kMicro; ++a) PROTRAIN_UNROLL for (int b = 0; b < kMicro; ++b) sums[a][b] =
        arith::fma(l[a], r[b], sums[a][b]);
  }
}

// Thread (y, x) adds to sums[a][c] the dot product of row y + 16 a of `left` and column x + 16 c of `right`, both of
// `length` elements. If kTransposed, it takes column y + 16 a of `left` instead of the row.
template <bool kTransposed, int kMicro, int kColumns>
__device__ void add_product(const Tile &left, const Tile &right, int length, int width,
                            float (&sums)[kMicro][kColumns]) {
  const Thread t = thread_of_square();
  for (int j = 0; j < length; ++j) {
    float l[kMicro];
    PROTRAIN_UNROLL for (int a = 0; a < kMicro; ++a) l[a] =
        kTransposed ? left(j, t.y + kSide * a) : left(t.y + kSide * a, j);
    PROTRAIN_UNROLL for (int c = 0; c < kColumns; ++c) {
      const int column = t.x + kSide * c;
      const float r = column < width ? right(j, column) : 0.0f;
      PROTRAIN_UNROLL for (int a = 0; a < kMicro; ++a) sums[a][c] = arith::fma(l[a], r, sums[a][c]);
    }
  }
}

// Writes the sums that add_product() computed to rows of `to`, from row `first` on.
template <typename T, int kMicro, int kColumns>
__device__ void store_rows(const float (&sums)[kMicro][kColumns], std::int64_t first, int width, const Rows<T> &to) {
  const Thread t = thread_of_square();
  PROTRAIN_UNROLL for (int a = 0; a < kMicro; ++a) {
    const std::int64_t row = first + t.y + kSide * a;
    if (row >= to.positions) continue;
    PROTRAIN_UNROLL for (int c = 0; c < kColumns; ++c) if (t.x + kSide * c < width)
        to.at[row * to.step + t.x + kSide * c] = narrowed<T>(sums[a][c]);
  }
}

// Returns call(Width<kTile>{}, Width<kColumns>{}) with the sizes for heads of size `depth`. kTile is the edge of tiles.
// It is 64 for head sizes up to kTile64UpTo, and 32 or 16 for larger ones. For head sizes above 128, kTile also depends
// on the device's shared memory: bytes_of(kTile) returns how many bytes of shared memory a block of threads needs.
// kColumns is the number of output columns that a thread computes.
template <int kTile64UpTo, typename BytesOf, typename Call>
auto by_depth(const KernelRequest &request, std::int64_t depth, BytesOf bytes_of, Call call) {
  const std::size_t most = most_shared();
  if (depth <= 64) return call(Width<64>{}, Width<4>{});
  if constexpr (kTile64UpTo == 128)
    if (depth <= 128) return call(Width<64>{}, Width<8>{});
  if (depth <= 128) return call(Width<32>{}, Width<8>{});
  if (depth <= 256 && bytes_of(32) <= most) return call(Width<32>{}, Width<16>{});
  require(depth <= 512, Code::unsupported, subject(request), "heads of {}: cuda takes up to 512", depth);
  require(bytes_of(16) <= most, Code::unsupported, subject(request),
          "heads of {} need {} bytes of shared memory; a block of this GPU has {}", depth, bytes_of(16), most);
  return call(Width<16>{}, Width<32>{});
}

}  // namespace protrain::backend::cuda
