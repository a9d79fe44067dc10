// Transposing copies between matrices with any distance between rows.
#pragma once

#include <cstdint>

namespace protrain::backend {

struct ConstRows {
  const float *at;
  std::int64_t ld;  // elements from one row to the next
};
struct Rows {
  float *at;
  std::int64_t ld;
};

// to[j][i] = from[i][j] for i < rows, j < columns.
void transpose(ConstRows from, std::int64_t rows, std::int64_t columns, Rows to);
// to[i][j] = from[i][j]
void copy_rows(ConstRows from, std::int64_t rows, std::int64_t columns, Rows to);

}  // namespace protrain::backend
