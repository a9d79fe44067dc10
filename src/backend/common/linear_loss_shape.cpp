#include "backend/common/linear_loss_shape.h"

#include <algorithm>

#include "base/error.h"

namespace protrain::backend {

namespace {

std::int64_t rows_of_a_slice(std::int64_t rows, std::int64_t classes, const SliceRule &rule) {
  const std::int64_t most = std::max(rule.bytes / (4 * std::max<std::int64_t>(classes, 1)), rule.least_rows);
  const std::int64_t slices = std::max<std::int64_t>(divided_up(rows, most), 1);
  return std::min(rows, divided_up(divided_up(rows, slices), rule.row_grain) * rule.row_grain);
}

}  // namespace

LinearLossShape::LinearLossShape(const KernelRequest &request, const SliceRule &rule)
    : gradient(request.node.op == "LinearCrossEntropyGrad"),
      trans_w(request.node.attributes.integer("trans_w", 1) != 0),
      rows(request.inputs.at(0).shape.at(0)),
      depth(request.inputs[0].shape.at(1)),
      classes(request.inputs.at(1).shape.at(trans_w ? 0 : 1)),
      bias(has_input(request, 3)),
      reduction(reduction_of(request)),
      slice_rows(rows_of_a_slice(rows, classes, rule)) {}

}  // namespace protrain::backend
