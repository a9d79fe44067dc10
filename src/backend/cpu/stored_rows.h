// StoredRows: reads frozen weights as floats, in whatever form they are stored.
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
  // The function that converts elements from the stored form to floats. It does not apply scales.
  void (*widening_)(const void *from, std::int64_t first, std::int64_t count, float *to);
};

}  // namespace protrain::backend::cpu
