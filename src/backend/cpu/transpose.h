// Transposing copies between matrices with any distance between rows.
#pragma once

#include <cstdint>

namespace protrain::backend {

template <typename T>
struct ConstRowsOf {
  const T *at;
  std::int64_t ld;  // elements from one row to the next
};
template <typename T>
struct RowsOf {
  T *at;
  std::int64_t ld;
};
using ConstRows = ConstRowsOf<float>;
using Rows = RowsOf<float>;

// to[j][i] = from[i][j] for i < rows, j < columns.
void transpose(ConstRows from, std::int64_t rows, std::int64_t columns, Rows to);
void transpose(ConstRowsOf<std::uint16_t> from, std::int64_t rows, std::int64_t columns, RowsOf<std::uint16_t> to);
// to[i][j] = from[i][j]
void copy_rows(ConstRows from, std::int64_t rows, std::int64_t columns, Rows to);

}  // namespace protrain::backend
