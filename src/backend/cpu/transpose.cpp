#include "backend/cpu/transpose.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "arith/f16.h"
#include "backend/common/clones.h"

namespace protrain::backend::cpu {

namespace {
constexpr std::int64_t kLine = 64, kPack = 16;  // bytes in a cache line; bytes in a pack
constexpr int kPacks = kLine / kPack;           // in a line

// One instruction loads a pack on every processor. A line holds four packs, and is one register where registers are
// that wide.
using Four = std::uint32_t __attribute__((vector_size(kPack)));
using Eight = std::uint16_t __attribute__((vector_size(kPack)));
using FourInLine = std::uint32_t __attribute__((vector_size(kLine)));
using EightInLine = std::uint16_t __attribute__((vector_size(kLine)));

// Interleaves the elements of the lower halves of a and b, and those of the upper halves. In lines, does so in every
// pack on its own.
PROTRAIN_INLINE void interleave(const Four &a, const Four &b, Four &lower, Four &upper) {
  lower = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  upper = __builtin_shufflevector(a, b, 2, 6, 3, 7);
}
PROTRAIN_INLINE void interleave(const Eight &a, const Eight &b, Eight &lower, Eight &upper) {
  lower = __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
  upper = __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
PROTRAIN_INLINE void interleave(const FourInLine &a, const FourInLine &b, FourInLine &lower, FourInLine &upper) {
  lower = __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
  upper = __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}
PROTRAIN_INLINE void interleave(const EightInLine &a, const EightInLine &b, EightInLine &lower, EightInLine &upper) {
  lower = __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43, 16, 48, 17, 49, 18,
                                  50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59);
  upper = __builtin_shufflevector(a, b, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47, 20, 52, 21, 53, 22,
                                  54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63);
}

// Transposes squares whose rows are packs, in log2(rows) steps. Each step interleaves every row i of the first half
// with row i + half.
template <typename Vector, int kRows>
PROTRAIN_INLINE void transpose_packs(Vector (&rows)[kRows]) {
  for (int step = 1; step < kRows; step *= 2) {
    Vector joined[kRows];
    for (int i = 0; i < kRows / 2; ++i) interleave(rows[i], rows[i + kRows / 2], joined[2 * i], joined[2 * i + 1]);
    for (int i = 0; i < kRows; ++i) rows[i] = joined[i];
  }
}

// Loads packs that lie `distance` bytes apart into a line.
PROTRAIN_INLINE void load_line(const void *from, std::int64_t distance, FourInLine &line) {
  Four packs[kPacks];
  for (int i = 0; i < kPacks; ++i) std::memcpy(&packs[i], static_cast<const std::byte *>(from) + i * distance, kPack);
  const auto low = __builtin_shufflevector(packs[0], packs[1], 0, 1, 2, 3, 4, 5, 6, 7);
  const auto high = __builtin_shufflevector(packs[2], packs[3], 0, 1, 2, 3, 4, 5, 6, 7);
  line = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

template <typename T>
struct Loops {
  static constexpr std::int64_t kSide = kLine / sizeof(T);
  static constexpr int kStep = kPack / sizeof(T);  // elements in a pack, and rows of its square
  using Pack = std::conditional_t<sizeof(T) == 4, Four, Eight>;
  using Line = std::conditional_t<sizeof(T) == 4, FourInLine, EightInLine>;

  PROTRAIN_INLINE static void square(ConstRows<T> from, Rows<T> to) {
    Pack rows[kStep];
    for (int i = 0; i < kStep; ++i) std::memcpy(&rows[i], from.at + i * from.ld, kPack);
    transpose_packs(rows);
    for (int i = 0; i < kStep; ++i) std::memcpy(to.at + i * to.ld, &rows[i], kPack);
  }

  // Transposes a square whose rows are cache lines. Smaller squares that lie one below the other share lines, and a
  // line is stored at once.
  PROTRAIN_INLINE static void lines(ConstRows<T> from, Rows<T> to) {
    const std::int64_t distance = kStep * from.ld * static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t j = 0; j < kSide; j += kStep) {
      Line rows[kStep];
      for (int i = 0; i < kStep; ++i) {
        FourInLine line;
        load_line(from.at + i * from.ld + j, distance, line);
        rows[i] = reinterpret_cast<Line>(line);
      }
      transpose_packs(rows);
      for (int i = 0; i < kStep; ++i) std::memcpy(to.at + (j + i) * to.ld, &rows[i], kLine);
    }
  }

  PROTRAIN_CLONES static void transpose(ConstRows<T> from, std::int64_t rows, std::int64_t columns, Rows<T> to) {
    for (std::int64_t j = 0; j < columns; j += kSide)
      for (std::int64_t i = 0; i < rows; i += kSide) {
        const ConstRows<T> source{from.at + i * from.ld + j, from.ld};
        const Rows<T> target{to.at + j * to.ld + i, to.ld};
        const std::int64_t height = std::min(kSide, rows - i), width = std::min(kSide, columns - j);
        if (height == kSide && width == kSide) {
          // Fetches the rows of the next square. If this one is the last, a caller that goes on down the matrix reads
          // them.
          for (std::int64_t row = kSide; row < 2 * kSide; ++row) __builtin_prefetch(source.at + row * source.ld);
          lines(source, target);
          continue;
        }
        const std::int64_t whole_height = height / kStep * kStep, whole_width = width / kStep * kStep;
        for (std::int64_t jj = 0; jj < whole_width; jj += kStep)
          for (std::int64_t ii = 0; ii < whole_height; ii += kStep)
            square({source.at + ii * from.ld + jj, from.ld}, {target.at + jj * to.ld + ii, to.ld});
        for (std::int64_t jj = 0; jj < width; ++jj)
          for (std::int64_t ii = jj < whole_width ? whole_height : 0; ii < height; ++ii)
            std::memcpy(target.at + jj * to.ld + ii, source.at + ii * from.ld + jj, sizeof(T));
      }
  }
};
}  // namespace

template <typename T>
void transpose(ConstRows<T> from, std::int64_t rows, std::int64_t columns, Rows<T> to) {
  Loops<T>::transpose(from, rows, columns, to);
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
