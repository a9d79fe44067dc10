// The attributes and sizes of LinearCrossEntropy and its gradient, whose kernels never hold all logits.
#pragma once

#include <cstdint>

#include "backend/common/layout.h"
#include "backend/common/reduction.h"
#include "backend/request.h"

namespace protrain::backend {

// How a backend cuts the logits into slices of rows.
struct SliceRule {
  std::int64_t bytes;       // of float32 logits, at most
  std::int64_t least_rows;  // but never fewer rows, because then products are too thin
  std::int64_t row_grain;   // rows of a slice are a multiple of it
};

// x (rows, depth) times w, which is (classes, depth) where trans_w and (depth, classes) elsewhere.
struct LinearLossShape {
  // Code::unsupported for reduction none.
  LinearLossShape(const KernelRequest &request, const SliceRule &rule);

  bool gradient, trans_w;
  std::int64_t rows, depth, classes;
  bool bias;
  Reduction reduction;
  std::int64_t slice_rows;  // shapes alone fix it; only the last slice may have fewer
};

}  // namespace protrain::backend
