// An activation times another value: Gated(g, u) -> f(g) u, and GatedGrad(dy, g, u) -> dg, du. The attribute
// `activation` names the operator f. Further attributes are those of that operator.
#include <array>
#include <functional>

#include "base/text.h"
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

constexpr std::string_view kActivations[] = {"Gelu", "Relu", "Sigmoid", "Silu", "Tanh"};

void require_gated_operands(const NodeTypes &types) {
  const std::string activation = types.node.attributes.text("activation", "");
  require(gates(activation), Code::unsupported, types.subject(), "{} takes no activation \"{}\"", types.node.op,
          printable(activation));
  const Type x = float_input(types, 0);
  for (std::size_t i = 1; i < types.inputs.size(); ++i)
    require(types.input(i) == x, Code::shape, types.subject(), "{} takes operands of one type, not {} and {}",
            types.node.op, to_text(x), to_text(types.input(i)));
}

std::vector<Type> infer_gated(const NodeTypes &types) {
  require_gated_operands(types);
  return {types.input(1)};
}

std::vector<Type> infer_gated_gradient(const NodeTypes &types) {
  require_gated_operands(types);
  return {types.input(1), types.input(2)};
}

// Evaluates the activation on the operands `in`. If `suffix` is "Grad", evaluates the activation's gradient instead.
Array activated(const Node &node, const std::string &suffix, Inputs in, const Type &type) {
  Node activation = node;
  activation.op = node.attributes.text("activation", "") + suffix;
  return find(activation.op)->evaluate(activation, in, std::array{type})[0];
}

Array product(const Type &type, const Array &a, const Array &b) {
  return map_elements<double>(type, std::array{&a, &b}, std::multiplies<double>());
}

// Returns f(g) times the other operand, where f is the node's activation.
Array gated(const Node &node, const Array &g, const Array &other, const Type &type) {
  return product(type, activated(node, "", std::array{&g}, {DType::f64, type.shape}), other);
}

Arrays evaluate_gated(const Node &node, Inputs in, Types out) { return {gated(node, *in[0], *in[1], out[0])}; }

Arrays evaluate_gated_gradient(const Node &node, Inputs in, Types out) {
  const Array upstream = product({DType::f64, out[0].shape}, *in[0], *in[2]);
  return {activated(node, "Grad", std::array{&upstream, in[1]}, out[0]), gated(node, *in[1], *in[0], out[1])};
}

void differentiate_gated(GradientBuilder &builder, const Node &node) {
  const ValueId g = node.inputs[0], u = node.inputs[1], dy = builder.gradient_of(node.outputs[0]);
  if (dy == ValueId::none || (!builder.wants(g) && !builder.wants(u))) return;
  const std::vector<ValueId> made = builder.emit("GatedGrad", {dy, g, u}, node.attributes, 2);
  if (builder.wants(g)) builder.contribute(g, made[0]);
  if (builder.wants(u)) builder.contribute(u, made[1]);
}

}  // namespace

bool gates(std::string_view activation) {
  return std::ranges::find(kActivations, activation) != std::end(kActivations);
}

Family gated_family() {
  return {{.name = "Gated",
           .infer = infer_gated,
           .evaluate = evaluate_gated,
           .gradient = differentiate_gated,
           .elementwise = true},
          {.name = "GatedGrad", .infer = infer_gated_gradient, .evaluate = evaluate_gated_gradient}};
}

}  // namespace protrain::ops
