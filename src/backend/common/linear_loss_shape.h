// The attributes and sizes of LinearCrossEntropy and of its gradient. Their kernels hold only a slice of the logits at
// a time.
#pragma once

#include <cstdint>

#include "backend/common/layout.h"
#include "backend/common/reduction.h"
#include "backend/request.h"

namespace protrain::backend {

// A backend's rule for cutting the logits into slices of rows.
struct SliceRule {
  std::int64_t bytes;       // most bytes of a slice's float32 logits
  std::int64_t least_rows;  // a slice has at least this many rows, because thinner products are slow
  std::int64_t row_grain;   // a slice has a multiple of this many rows
};

// The logits are x (rows, depth) times w. w is (classes, depth) if trans_w, else (depth, classes).
struct LinearLossShape {
  LinearLossShape(const KernelRequest &request, const SliceRule &rule);

  bool gradient, trans_w;
  std::int64_t rows, depth, classes;
  bool bias;
  Reduction reduction;
  std::int64_t slice_rows;  // rows of a slice, fixed by shapes alone; only the last slice may have fewer
};

}  // namespace protrain::backend
