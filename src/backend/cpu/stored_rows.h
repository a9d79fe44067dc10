// StoredRows: reads frozen weights, in whatever form they rest in memory, as floats.
#pragma once

#include "backend/common/stored.h"
#include "backend/cpu/floats.h"

namespace protrain::backend::cpu {

class StoredRows {
 public:
  explicit StoredRows(const StoredMatrix &matrix);

  // Widens `count` elements from element `first` on, in row-major order, to floats of type T.
  template <typename T>
  void read(const StoredOperand &from, std::int64_t first, std::int64_t count, T *to) const;

 private:
  StoredMatrix matrix_;
  // The function that widens elements of the matrix's form. It does not apply their scales.
  void (*widening_)(const void *from, std::int64_t first, std::int64_t count, float *to);
};

}  // namespace protrain::backend::cpu
