// Rules for activations, products and convolutions of the domain com.microsoft, which ONNX Runtime writes into graphs
// that it has optimised.
#include <numeric>

#include "base/error.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

// Handles Gelu, FastGelu and BiasGelu. First adds the second input, a vector along the last axis, if there is one.
bool contrib_gelu(Canonical &c, Node &node) {
  ValueId x = node.inputs.at(0);
  if (has(node, 1)) {
    const Shape shape = c.shape(x), bias = c.shape(node.inputs[1]);
    require(!shape.empty() && bias == Shape{shape.back()}, Code::shape, node.subject(), "a bias of {} for rows of {}",
            to_text(bias), to_text(shape));
    x = c.add("Add", {x, node.inputs[1]});
  }
  Attributes attributes;
  if (node.op.ends_with("FastGelu")) attributes.set("approximate", std::string("tanh"));
  c.become(node, "Gelu", {x}, attributes);
  return true;
}

bool quick_gelu(Canonical &c, Node &node) {
  c.become(node, "Swish", {node.inputs.at(0)}, {{"alpha", node.attributes.real("alpha", 1.702)}});
  return true;
}

// Adds the bias, and multiplies the first half of the features by the GELU of the second half.
bool bias_split_gelu(Canonical &c, Node &node) {
  const ValueId sum = c.add("Add", {node.inputs.at(0), node.inputs.at(1)});
  const Shape shape = c.shape(sum);
  require(shape == c.shape(node.inputs[0]) && !shape.empty() && shape.back() % 2 == 0, Code::shape, node.subject(),
          "{} with a bias of {} cannot be split in halves", to_text(c.shape(node.inputs[0])),
          to_text(c.shape(node.inputs[1])));
  const std::int64_t half = shape.back() / 2, axis = static_cast<std::int64_t>(shape.size()) - 1;
  const std::vector<ValueId> parts = c.add_all("Split", {sum}, {{"axis", axis}, {"split", Integers{half, half}}}, 2);
  c.become(node, "Mul", {parts[0], c.add("Gelu", {parts[1]})});
  return true;
}

// Returns an operand of FusedMatMul with at least two axes. If the attribute whose name is in `batch_key` is set, the
// operand's first axis moves behind the axes of the batch.
ValueId product_operand(Canonical &c, const Node &node, std::size_t input, const char *batch_key) {
  const ValueId x = node.inputs.at(input);
  const Shape shape = c.shape(x);
  require(!shape.empty(), Code::shape, node.subject(), "operand {} is a scalar", input);
  if (shape.size() == 1) return c.reshape(x, input == 0 ? Shape{1, shape[0]} : Shape{shape[0], 1});
  if (node.attributes.integer(batch_key, 0) == 0 || shape.size() == 2) return x;
  Integers perm(shape.size());
  std::iota(perm.begin(), perm.end() - 2, 1);
  perm[shape.size() - 2] = 0;
  perm[shape.size() - 1] = static_cast<std::int64_t>(shape.size()) - 1;
  return c.transpose(x, perm);
}

bool fused_matmul(Canonical &c, Node &node) {
  const bool row = c.shape(node.inputs.at(0)).size() == 1, column = c.shape(node.inputs.at(1)).size() == 1;
  const double alpha = node.attributes.real("alpha", 1.0);
  Attributes attributes;
  if (node.attributes.integer("transA", 0) != 0 && !row) attributes.set("trans_a", std::int64_t{1});
  if (node.attributes.integer("transB", 0) != 0 && !column) attributes.set("trans_b", std::int64_t{1});
  if (alpha != 1.0) attributes.set("alpha", alpha);
  const std::vector<ValueId> operands = {product_operand(c, node, 0, "transBatchA"),
                                         product_operand(c, node, 1, "transBatchB")};
  if (!row && !column) {
    c.become(node, "MatMul", operands, attributes);
    return true;
  }
  const ValueId product = c.add("MatMul", operands, attributes);
  Shape shape = c.shape(product);
  if (column) shape.pop_back();
  if (row) shape.erase(shape.end() - (column ? 1 : 2));
  c.become(node, "Reshape", {product}, {{"shape", shape}});
  return true;
}

// Returns the node's attributes without those of its activation.
Attributes without_activation(const Node &node) {
  Attributes kept;
  for (const auto &[key, value] : node.attributes.items())
    if (!key.starts_with("activation")) kept.set(key, value);
  return kept;
}

void require_activation(const Node &node, const std::string &name) {
  constexpr std::string_view kKnown =
      " Elu HardSigmoid HardSwish LeakyRelu Relu Selu Sigmoid Softplus Softsign Tanh Clip ";
  require(kKnown.find(" " + name + " ") != std::string_view::npos, Code::unsupported, node.subject(),
          "the activation \"{}\" is unknown", name);
}

bool fused_gemm(Canonical &c, Node &node) {
  const std::string activation = node.attributes.text("activation", "");
  if (activation.empty()) {
    c.become(node, "Gemm", node.inputs, without_activation(node));
    return true;
  }
  require_activation(node, activation);
  Attributes attributes;
  for (const char *key : {"alpha", "beta", "gamma"}) {
    const std::string own = std::string("activation_") + key;
    if (node.attributes.has(own)) attributes.set(key, node.attributes.real(own, 0));
  }
  c.become(node, activation, {c.add("Gemm", node.inputs, without_activation(node))}, attributes);
  return true;
}

std::vector<const char *> parameters_of(const std::string &activation) {
  if (activation == "LeakyRelu") return {"alpha"};
  if (activation == "Clip") return {"min", "max"};
  if (activation == "HardSigmoid") return {"alpha", "beta"};
  return {};
}

// Returns the parameters of a FusedConv's activation as attributes. The node has them as a list without names.
Attributes listed_parameters(const Node &node, const std::string &activation) {
  const std::vector<double> values = node.attributes.reals("activation_params");
  const std::vector<const char *> names = parameters_of(activation);
  require(values.size() == names.size(), Code::graph, node.subject(), "{} parameters for {}; expected {}",
          values.size(), activation, names.size());
  Attributes attributes;
  for (std::size_t i = 0; i < names.size(); ++i) attributes.set(names[i], values[i]);
  return attributes;
}

bool fused_conv(Canonical &c, Node &node) {
  const std::string activation = node.attributes.text("activation", "");
  std::vector<ValueId> operands(node.inputs.begin(), node.inputs.begin() + (has(node, 2) ? 3 : 2));
  ValueId y = c.add("Conv", operands, without_activation(node));
  if (has(node, 3)) {
    require(c.shape(node.inputs[3]) == c.shape(y), Code::shape, node.subject(), "adds {} to a result of {}",
            to_text(c.shape(node.inputs[3])), to_text(c.shape(y)));
    y = c.add("Add", {y, node.inputs[3]});
  }
  if (activation.empty()) {
    c.pass(node, y);
    return true;
  }
  require_activation(node, activation);
  c.become(node, activation, {y}, listed_parameters(node, activation));
  return true;
}

}  // namespace

Rules contrib_rules() {
  return {{"com.microsoft::BiasGelu", contrib_gelu},    {"com.microsoft::FastGelu", contrib_gelu},
          {"com.microsoft::Gelu", contrib_gelu},        {"com.microsoft::QuickGelu", quick_gelu},
          {"com.microsoft::FusedMatMul", fused_matmul}, {"com.microsoft::BiasSplitGelu", bias_split_gelu},
          {"com.microsoft::FusedGemm", fused_gemm},     {"com.microsoft::FusedConv", fused_conv}};
}

}  // namespace protrain::passes
