// The inner loop of float32 products on processors with AVX2: a tile of c whose sums stay in registers.
//
// The sum of an element of c is one chain of fused multiply-adds in the order of k, whatever tile computes it. For c +=
// a b, the element's earlier value is added at the end. So an element's bits do not depend on the other rows and
// columns of the product.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#define PROTRAIN_TILES 1
#endif

namespace protrain::backend::cpu {

constexpr std::int64_t kTileVector = 8;                 // float32 elements of an AVX2 vector
constexpr std::int64_t kTileColumns = 3 * kTileVector;  // columns of the widest tile
constexpr int kTileRows = 4;                            // its sums take 12 of the 16 registers

#ifdef PROTRAIN_TILES
inline bool has_tiles() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

struct TileOperands {
  const float *a, *b;
  float *c;
};
struct TileStrides {
  std::int64_t a, b, c;       // elements from one row to the next
  std::int64_t a_column = 1;  // elements from one column of a to the next
};

// Computes a tile of c with `kHeight` rows, each of `kVectors` vectors: c = a b, or c += a b. b has k rows.
template <int kHeight, int kVectors>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void multiply_tile(std::int64_t k, const TileOperands &at,
                                                                          const TileStrides &strides, bool accumulate) {
  const float *a = at.a, *b = at.b;
  __m256 sums[kHeight][kVectors];
#pragma GCC unroll 4
  for (int row = 0; row < kHeight; ++row)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) sums[row][v] = _mm256_setzero_ps();
#pragma GCC unroll 4
  for (std::int64_t i = 0; i < k; ++i, a += strides.a_column, b += strides.b) {
    __m256 factors[kVectors];
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) factors[v] = _mm256_loadu_ps(b + v * kTileVector);
#pragma GCC unroll 4
    for (int row = 0; row < kHeight; ++row) {
      const __m256 factor = _mm256_broadcast_ss(a + row * strides.a);
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) sums[row][v] = _mm256_fmadd_ps(factor, factors[v], sums[row][v]);
    }
  }
#pragma GCC unroll 4
  for (int row = 0; row < kHeight; ++row)
#pragma GCC unroll 3
    for (int v = 0; v < kVectors; ++v) {
      float *c = at.c + row * strides.c + v * kTileVector;
      _mm256_storeu_ps(c, accumulate ? _mm256_add_ps(sums[row][v], _mm256_loadu_ps(c)) : sums[row][v]);
    }
}

// Computes m rows of c, each of `kVectors` vectors.
template <int kVectors>
[[gnu::target("avx2,fma")]] void multiply_rows(std::int64_t m, std::int64_t k, TileOperands at,
                                               const TileStrides &strides, bool accumulate) {
  for (; m >= kTileRows; m -= kTileRows, at.a += kTileRows * strides.a, at.c += kTileRows * strides.c)
    multiply_tile<kTileRows, kVectors>(k, at, strides, accumulate);
  for (; m > 0; --m, at.a += strides.a, at.c += strides.c) multiply_tile<1, kVectors>(k, at, strides, accumulate);
}
#else
inline bool has_tiles() { return false; }
#endif

}  // namespace protrain::backend::cpu
