// Changes of element type.
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

std::vector<Type> infer_cast(const NodeTypes &types) {
  const std::string to = types.node.attributes.text("to", "");
  const DType dtype = dtype_named(to);
  require(dtype != DType::none, Code::type, types.subject(), "Cast to '{}', which is not a type", to);
  return {{dtype, types.input(0).shape}};
}

std::vector<Type> infer_cast_like(const NodeTypes &types) { return {{types.input(1).dtype, types.input(0).shape}}; }

std::vector<Array> evaluate_cast(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  const std::array<const Array *, 1> operands = {in[0]};
  if (in[0]->dtype() == out[0].dtype) return {*in[0]};
  if (!is_float(in[0]->dtype()))
    return {map_elements<std::int64_t>(out[0], operands, [](std::int64_t x) { return x; })};
  return {map_elements<double>(out[0], operands, [](double x) { return x; })};
}

void differentiate_cast(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  const DType from = builder.type(node.inputs[0]).dtype;
  if (dy == ValueId::none || !is_float(from)) return;
  builder.contribute(node.inputs[0], builder.emit("Cast", {dy}, {{"to", std::string(name_of(from))}}));
}

}  // namespace

Family cast_family() {
  return {{.name = "Cast",
           .infer = infer_cast,
           .evaluate = evaluate_cast,
           .gradient = differentiate_cast,
           .elementwise = true},
          {.name = "CastLike", .infer = infer_cast_like, .evaluate = evaluate_cast, .file_only = true}};
}

}  // namespace protrain::ops
