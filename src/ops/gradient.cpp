#include "ops/gradient.h"

namespace protrain::ops {

graph::ValueId sum_to(GradientBuilder &builder, graph::ValueId gradient, const Shape &shape) {
  const Shape from = builder.type(gradient).shape;
  if (from == shape) return gradient;
  const std::size_t lead = from.size() - shape.size();
  std::vector<std::int64_t> axes;
  for (std::size_t i = 0; i < from.size(); ++i)
    if (i < lead || (shape[i - lead] == 1 && from[i] != 1)) axes.push_back(static_cast<std::int64_t>(i));
  if (!axes.empty()) gradient = builder.emit("ReduceSum", {gradient}, {{"axes", axes}, {"keepdims", std::int64_t{1}}});
  return builder.type(gradient).shape == shape ? gradient : builder.emit("Reshape", {gradient}, {{"shape", shape}});
}

}  // namespace protrain::ops
