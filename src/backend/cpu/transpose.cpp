#include "backend/cpu/transpose.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/cpu/clones.h"

namespace protrain::backend {

namespace {
template <typename T>
struct Vector;
template <>
struct Vector<float> {
  using Type = float __attribute__((vector_size(16), aligned(4), may_alias));
};
template <>
struct Vector<std::uint16_t> {
  using Type = std::uint16_t __attribute__((vector_size(16), aligned(2), may_alias));
};

// A square of as many rows as a vector has elements.
template <typename T>
struct Square {
  using Row = typename Vector<T>::Type;
  static constexpr std::int64_t kSide = sizeof(Row) / sizeof(T);

  // Elements of a and b in turns: of their first halves (part 0) or their second halves (part 1).
  template <std::size_t part, std::size_t... I>
  PROTRAIN_INLINE static Row zipped(Row a, Row b, std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b, ((part * kSide + I) / 2 + I % 2 * kSide)...);
  }

  // Each round zips row i with the one half of the rows below; after log2(kSide) rounds rows are columns.
  PROTRAIN_INLINE static void transpose(ConstRowsOf<T> from, RowsOf<T> to) {
    constexpr auto kEach = std::make_index_sequence<kSide>{};
    Row rows[kSide];
    for (std::int64_t i = 0; i < kSide; ++i) rows[i] = *reinterpret_cast<const Row *>(from.at + i * from.ld);
    for (std::int64_t width = 1; width < kSide; width *= 2) {
      Row next[kSide];
      for (std::int64_t i = 0; i < kSide / 2; ++i) {
        next[2 * i] = zipped<0>(rows[i], rows[i + kSide / 2], kEach);
        next[2 * i + 1] = zipped<1>(rows[i], rows[i + kSide / 2], kEach);
      }
      std::copy(next, next + kSide, rows);
    }
    for (std::int64_t i = 0; i < kSide; ++i) *reinterpret_cast<Row *>(to.at + i * to.ld) = rows[i];
  }
};

// Block by block, each a cache line wide either way.
template <typename T>
PROTRAIN_INLINE void transpose_blocks(ConstRowsOf<T> from, std::int64_t rows, std::int64_t columns, RowsOf<T> to) {
  constexpr std::int64_t kBlock = 64 / sizeof(T), kSide = Square<T>::kSide;
  for (std::int64_t i = 0; i < rows; i += kBlock)
    for (std::int64_t j = 0; j < columns; j += kBlock) {
      const ConstRowsOf<T> source{from.at + i * from.ld + j, from.ld};
      const RowsOf<T> target{to.at + j * to.ld + i, to.ld};
      if (i + kBlock <= rows && j + kBlock <= columns) {
        for (std::int64_t jj = 0; jj < kBlock; jj += kSide)
          for (std::int64_t ii = 0; ii < kBlock; ii += kSide)
            Square<T>::transpose({source.at + ii * from.ld + jj, from.ld}, {target.at + jj * to.ld + ii, to.ld});
        continue;
      }
      for (std::int64_t jj = 0; jj < std::min(kBlock, columns - j); ++jj)
        for (std::int64_t ii = 0; ii < std::min(kBlock, rows - i); ++ii)
          target.at[jj * to.ld + ii] = source.at[ii * from.ld + jj];
    }
}
}  // namespace

void transpose(ConstRows from, std::int64_t rows, std::int64_t columns, Rows to) {
  transpose_blocks(from, rows, columns, to);
}

void transpose(ConstRowsOf<std::uint16_t> from, std::int64_t rows, std::int64_t columns, RowsOf<std::uint16_t> to) {
  transpose_blocks(from, rows, columns, to);
}

void copy_rows(ConstRows from, std::int64_t rows, std::int64_t columns, Rows to) {
  for (std::int64_t i = 0; i < rows; ++i)
    std::memcpy(to.at + i * to.ld, from.at + i * from.ld, static_cast<std::size_t>(columns) * sizeof(float));
}

}  // namespace protrain::backend
