#include "backend/cpu/transpose.h"

#include <algorithm>
#include <cstring>

#include "arith/f16.h"
#include "backend/common/clones.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kLine = 64, kPack = 16;  // bytes in a cache line; bytes in a pack, which one instruction loads

using Four = std::uint32_t __attribute__((vector_size(kPack)));
using Eight = std::uint16_t __attribute__((vector_size(kPack)));

// lower() interleaves the elements of the lower halves of a and b, and upper() those of the upper halves.
PROTRAIN_INLINE Four lower(Four a, Four b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
PROTRAIN_INLINE Four upper(Four a, Four b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
PROTRAIN_INLINE Eight lower(Eight a, Eight b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
PROTRAIN_INLINE Eight upper(Eight a, Eight b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }

template <std::size_t kBytes>
struct PackOf;
template <>
struct PackOf<4> {
  using Type = Four;
};
template <>
struct PackOf<2> {
  using Type = Eight;
};

// Transposes a square whose rows are packs, in log2(rows) steps. Each step interleaves every row i of the first half
// with row i + half.
template <typename T>
PROTRAIN_INLINE void transpose_square(ConstRows<T> from, Rows<T> to) {
  constexpr int kRows = kPack / sizeof(T);
  using Pack = typename PackOf<sizeof(T)>::Type;
  Pack rows[kRows], joined[kRows];
  for (int i = 0; i < kRows; ++i) std::memcpy(&rows[i], from.at + i * from.ld, kPack);
  for (int step = 1; step < kRows; step *= 2) {
    for (int i = 0; i < kRows / 2; ++i) {
      joined[2 * i] = lower(rows[i], rows[i + kRows / 2]);
      joined[2 * i + 1] = upper(rows[i], rows[i + kRows / 2]);
    }
    for (int i = 0; i < kRows; ++i) rows[i] = joined[i];
  }
  for (int i = 0; i < kRows; ++i) std::memcpy(to.at + i * to.ld, &rows[i], kPack);
}

// Transposes a square whose rows are cache lines.
template <typename T>
PROTRAIN_INLINE void transpose_lines(ConstRows<T> from, Rows<T> to) {
  constexpr std::int64_t kSide = kLine / sizeof(T), kStep = kPack / sizeof(T);
  for (std::int64_t j = 0; j < kSide; j += kStep)
    for (std::int64_t i = 0; i < kSide; i += kStep)
      transpose_square<T>({from.at + i * from.ld + j, from.ld}, {to.at + j * to.ld + i, to.ld});
}
}  // namespace

template <typename T>
void transpose(ConstRows<T> from, std::int64_t rows, std::int64_t columns, Rows<T> to) {
  constexpr std::int64_t kSide = kLine / sizeof(T), kStep = kPack / sizeof(T);
  for (std::int64_t j = 0; j < columns; j += kSide)
    for (std::int64_t i = 0; i < rows; i += kSide) {
      const ConstRows<T> source{from.at + i * from.ld + j, from.ld};
      const Rows<T> target{to.at + j * to.ld + i, to.ld};
      const std::int64_t height = std::min(kSide, rows - i), width = std::min(kSide, columns - j);
      if (height == kSide && width == kSide) {
        // Fetches the rows of the next square. If this one is the last, a caller that goes on down the matrix reads
        // them.
        for (std::int64_t row = kSide; row < 2 * kSide; ++row) __builtin_prefetch(source.at + row * source.ld);
        transpose_lines(source, target);
        continue;
      }
      const std::int64_t whole_height = height / kStep * kStep, whole_width = width / kStep * kStep;
      for (std::int64_t jj = 0; jj < whole_width; jj += kStep)
        for (std::int64_t ii = 0; ii < whole_height; ii += kStep)
          transpose_square<T>({source.at + ii * from.ld + jj, from.ld}, {target.at + jj * to.ld + ii, to.ld});
      for (std::int64_t jj = 0; jj < width; ++jj)
        for (std::int64_t ii = jj < whole_width ? whole_height : 0; ii < height; ++ii)
          std::memcpy(target.at + jj * to.ld + ii, source.at + ii * from.ld + jj, sizeof(T));
    }
}

template <typename T>
void copy_rows(ConstRows<T> from, std::int64_t rows, std::int64_t columns, Rows<T> to) {
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(to.at + i * to.ld, from.at + i * from.ld, static_cast<std::size_t>(columns) * sizeof(T));
}

template void transpose(ConstRows<float>, std::int64_t, std::int64_t, Rows<float>);
template void transpose(ConstRows<arith::bf16>, std::int64_t, std::int64_t, Rows<arith::bf16>);
template void transpose(ConstRows<arith::f16>, std::int64_t, std::int64_t, Rows<arith::f16>);
template void transpose(ConstRows<std::uint32_t>, std::int64_t, std::int64_t, Rows<std::uint32_t>);
template void transpose(ConstRows<std::uint16_t>, std::int64_t, std::int64_t, Rows<std::uint16_t>);
template void copy_rows(ConstRows<std::uint16_t>, std::int64_t, std::int64_t, Rows<std::uint16_t>);
template void copy_rows(ConstRows<float>, std::int64_t, std::int64_t, Rows<float>);
template void copy_rows(ConstRows<arith::bf16>, std::int64_t, std::int64_t, Rows<arith::bf16>);
template void copy_rows(ConstRows<arith::f16>, std::int64_t, std::int64_t, Rows<arith::f16>);

}  // namespace protrain::backend::cpu
