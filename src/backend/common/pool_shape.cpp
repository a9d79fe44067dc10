#include "backend/common/pool_shape.h"

#include <limits>

#include "base/error.h"

namespace protrain::backend {

PoolShape::Operands PoolShape::operands_of(const KernelRequest &request) {
  const Shape &first = request.inputs.at(0).shape;
  const bool only_indices = request.outputs.at(0).dtype == DType::none;
  const Shape &made = request.outputs.at(only_indices ? 1 : 0).shape;
  const bool forward = request.node.op == "MaxPool" || request.node.op == "AveragePool";
  return forward ? Operands{first, made} : Operands{made, first};
}

PoolShape::PoolShape(const KernelRequest &request) : PoolShape(request, operands_of(request)) {}

PoolShape::PoolShape(const KernelRequest &request, const Operands &operands)
    : WindowSizes(request, operands.x, operands.y, request.node.attributes.integers("kernel_shape")),
      largest(request.node.op.starts_with("Max")),
      planes(element_count({operands.x[0], operands.x[1]})),
      index_steps{input[1] * input[2], input[2], 1} {
  require(input_count() <= std::numeric_limits<std::int32_t>::max(), Code::unsupported, subject(request),
          "{} of channels with {} elements; at most {} are supported", request.node.op, input_count(),
          std::numeric_limits<std::int32_t>::max());
  if (request.node.attributes.integer("storage_order", 0) != 0) index_steps = {1, input[0], input[0] * input[1]};
  if (request.node.attributes.integer("count_include_pad", 0) == 0) return;
  const std::vector<std::int64_t> pads = request.node.attributes.integers("pads");
  const std::size_t axes = operands.x.size() - 2;
  for (std::size_t i = 0; i < axes && pads.size() == 2 * axes; ++i) {
    counted_before[kConvAxes - axes + i] = pads[i];
    counted_after[kConvAxes - axes + i] = pads[axes + i];
  }
}

std::int64_t PoolShape::counted(std::size_t axis, std::int64_t window) const {
  std::int64_t count = 0;
  for (std::int64_t k = 0; k < kernel[axis]; ++k) {
    const std::int64_t at = window * strides[axis] + k * dilations[axis] - before[axis];
    count += at >= -counted_before[axis] && at < input[axis] + counted_after[axis] ? 1 : 0;
  }
  return count;
}

}  // namespace protrain::backend
