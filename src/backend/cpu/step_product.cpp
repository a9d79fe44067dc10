#include "backend/cpu/step_product.h"

#include <algorithm>

#if defined(__x86_64__) && !defined(PROTRAIN_NO_CLONES)
#include <immintrin.h>
#define PROTRAIN_TILES 1
#endif

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kVector = 8;             // float32 elements of an AVX2 vector
constexpr std::int64_t kColumns = 3 * kVector;  // columns of a panel; the last panel may have fewer
constexpr int kRows = 4;                        // most rows of a tile: its sums take at most 12 of the 16 registers

// Cuts a matrix into panels of at most kColumns columns. Calls act(first column, columns) for each panel.
template <typename Act>
void each_panel(std::int64_t columns, Act act) {
  for (std::int64_t first = 0; first < columns; first += kColumns) act(first, std::min(kColumns, columns - first));
}

#ifdef PROTRAIN_TILES
bool has_tiles() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

// The distances, in elements, from one row to the next in a and in c.
struct Strides {
  std::int64_t a, c;
};

// Computes a tile of c with `kHeight` rows, each of `kVectors` vectors. `panel` has k rows, with b's elements in the
// columns of the tile.
template <int kHeight, int kVectors>
struct Tile {
  [[gnu::target("avx2,fma")]] static void run(const float *a, const float *panel, std::int64_t k, bool accumulate,
                                              float *c, const Strides &strides) {
    __m256 sums[kHeight][kVectors];
#pragma GCC unroll 4
    for (int row = 0; row < kHeight; ++row)
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v)
        sums[row][v] = accumulate ? _mm256_loadu_ps(c + row * strides.c + v * kVector) : _mm256_setzero_ps();
    for (std::int64_t i = 0; i < k; ++i, panel += kVectors * kVector) {
      __m256 b[kVectors];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) b[v] = _mm256_loadu_ps(panel + v * kVector);
#pragma GCC unroll 4
      for (int row = 0; row < kHeight; ++row) {
        const __m256 factor = _mm256_broadcast_ss(a + row * strides.a + i);
#pragma GCC unroll 3
        for (int v = 0; v < kVectors; ++v) sums[row][v] = _mm256_fmadd_ps(factor, b[v], sums[row][v]);
      }
    }
#pragma GCC unroll 4
    for (int row = 0; row < kHeight; ++row)
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) _mm256_storeu_ps(c + row * strides.c + v * kVector, sums[row][v]);
  }
};

template <int kVectors>
void multiply_panel(const GemmShape &s, const float *a, const float *panel, float *c) {
  const Strides strides{s.k, s.n};
  std::int64_t row = 0;
  for (; row + kRows <= s.m; row += kRows)
    Tile<kRows, kVectors>::run(a + row * s.k, panel, s.k, s.accumulate, c + row * s.n, strides);
  for (; row < s.m; ++row) Tile<1, kVectors>::run(a + row * s.k, panel, s.k, s.accumulate, c + row * s.n, strides);
}

void multiply(const GemmShape &s, const float *a, const float *laid, float *c) {
  each_panel(s.n, [&](std::int64_t first, std::int64_t columns) {
    const float *panel = laid + first * s.k;
    if (columns == kColumns) return multiply_panel<3>(s, a, panel, c + first);
    columns == 2 * kVector ? multiply_panel<2>(s, a, panel, c + first) : multiply_panel<1>(s, a, panel, c + first);
  });
}
#else
bool has_tiles() { return false; }
void multiply(const GemmShape &, const float *, const float *, float *) {}
#endif

// Returns true if b should be packed into panels once. This holds if oneDNN would pack b again in every product, and if
// the AVX2 code above (Tile) can compute the product.
bool lays_out(const GemmShape &s) {
  const bool fits = s.in == DType::f32 && s.out == DType::f32 && s.n % kVector == 0 && !s.trans_a && !s.trans_b &&
                    !s.bias && s.alpha == 1 && s.m > 0 && s.n > 0 && s.k > 0;
  return fits && has_tiles() && Product(s, 1).implementation() == "gemm:jit";
}
}  // namespace

StepProduct::StepProduct(const GemmShape &shape) : shape_(shape), gemm_(shape, 1), is_laid_out_(lays_out(shape)) {}

void StepProduct::lay_out(const float *b, float *to) const {
  if (!is_laid_out_) return;
  each_panel(shape_.n, [&](std::int64_t first, std::int64_t columns) {
    for (std::int64_t i = 0; i < shape_.k; ++i)
      std::copy_n(b + i * shape_.n + first, columns, to + first * shape_.k + i * columns);
  });
}

void StepProduct::run(const GemmOperands &operands, const float *laid, void *scratch) {
  if (is_laid_out_)
    return multiply(shape_, static_cast<const float *>(operands.a), laid, static_cast<float *>(operands.c));
  gemm_.run(Member(0, 1, nullptr), operands, scratch);
}

}  // namespace protrain::backend::cpu
