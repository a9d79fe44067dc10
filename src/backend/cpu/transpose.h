// Transposes and copies of matrices whose rows may lie any distance apart.
#pragma once

#include <cstdint>

namespace protrain::backend::cpu {

template <typename T>
struct ConstRows {
  const T *at;
  std::int64_t ld;  // elements from one row to the next
};
template <typename T>
struct Rows {
  T *at;
  std::int64_t ld;
};

// to[j][i] = from[i][j] for i < rows, j < columns. T has 4 or 2 bytes.
template <typename T>
void transpose(ConstRows<T> from, std::int64_t rows, std::int64_t columns, Rows<T> to);
// to[i][j] = from[i][j]
template <typename T>
void copy_rows(ConstRows<T> from, std::int64_t rows, std::int64_t columns, Rows<T> to);

}  // namespace protrain::backend::cpu
