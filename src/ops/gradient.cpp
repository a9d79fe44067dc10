// Functions that gradient rules share.
#include "ops/gradient.h"

#include "base/error.h"

namespace protrain::ops {

graph::ValueId gradient_for(GradientBuilder &builder, const graph::Node &node, std::size_t i) {
  return builder.wants(node.inputs[i]) ? builder.gradient_of(node.outputs[0]) : graph::ValueId::none;
}

graph::ValueId sum_to(GradientBuilder &builder, graph::ValueId gradient, Shape shape) {
  const Shape from = builder.type(gradient).shape;
  if (from == shape) return gradient;
  require(broadcast(from, shape, "") == from, Code::internal, builder.value(gradient).name,
          "a gradient of {} does not sum to {}", to_text(from), to_text(shape));
  const std::size_t lead = from.size() - shape.size();
  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (i < lead || from[i] != shape[i - lead]) axes.push_back(static_cast<std::int64_t>(i));
  // ReduceSum keeps the summed axes with length 1. Reshape, which costs nothing, drops the axes that `shape` lacks.
  graph::ValueId sum = builder.emit("ReduceSum", {gradient}, {{"axes", axes}, {"keepdims", std::int64_t{1}}});
  if (builder.type(sum).shape != shape) sum = builder.emit("Reshape", {sum}, {{"shape", shape}});
  return sum;
}

}  // namespace protrain::ops
