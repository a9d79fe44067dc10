// Changes of element type.
#include <cmath>

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

// Out of range, C++ leaves the result of float to int open; here it saturates, NaN gives 0.
std::int64_t to_integer(double x) {
  if (std::isnan(x)) return 0;
  if (x >= 9.2233720368547758e18) return INT64_MAX;
  return x <= -9.2233720368547758e18 ? INT64_MIN : static_cast<std::int64_t>(x);
}

std::vector<Array> evaluate_cast(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  const std::array<const Array *, 1> operands = {in[0]};
  if (in[0]->dtype() == out[0].dtype) return {*in[0]};
  if (!is_float(in[0]->dtype()))
    return {map_elements<std::int64_t>(out[0], operands, [](std::int64_t x) { return x; })};
  if (out[0].dtype == DType::boolean)
    return {map_elements<double>(out[0], operands, [](double x) -> std::int64_t { return x != 0; })};
  if (is_integer(out[0].dtype)) return {map_elements<double>(out[0], operands, to_integer)};
  return {map_elements<double>(out[0], operands, [](double x) { return x; })};
}

void differentiate(GradientBuilder &builder, const Node &node) {
  const Type &from = builder.type(node.inputs[0]);
  if (!builder.wants(node.inputs[0]) || !is_float(from.dtype)) return;
  const std::string to(name_of(from.dtype));
  builder.contribute(node.inputs[0], builder.emit("Cast", {builder.gradient_of(node.outputs[0])}, {{"to", to}}));
}

}  // namespace

Family cast_family() {
  return {{.name = "Cast", .infer = infer_cast, .evaluate = evaluate_cast, .gradient = differentiate},
          {.name = "CastLike", .infer = infer_cast_like, .evaluate = evaluate_cast}};
}

}  // namespace protrain::ops
