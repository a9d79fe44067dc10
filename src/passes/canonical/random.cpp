// Rules for operators that draw random numbers, and the pass that makes a graph for evaluation. The core operator
// Uniform draws the numbers, from which other nodes compute the results of ONNX's random operators. The pass leaves
// Uniform as it is, so a model that draws noise draws it in evaluation too.
#include <algorithm>
#include <bit>
#include <numbers>

#include <fmt/format.h>

#include "base/text.h"
#include "passes/canonical/canonical.h"
#include "passes/passes.h"

namespace protrain::passes {

namespace {

// Returns the key of a node's random numbers: a hash of the first output's name in the file, which no fusion, order or
// plan changes. If the node has a seed, the hash includes it. `draw` is the name of one draw, for nodes that draw
// several times.
std::int64_t key_of(const Canonical &c, const Node &node, const std::string &draw = "") {
  ValueId first = ValueId::none;
  for (ValueId out : node.outputs)
    if (first == ValueId::none) first = out;
  std::uint64_t key = fnv1a(c.rewriter().value(first).name);
  if (node.attributes.has("seed"))  // an integer in Dropout, a float in other operators
    key = fnv1a(" " + Attributes{{"seed", node.attributes.items().find("seed")->second}}.print(), key);
  if (!draw.empty()) key = fnv1a(" " + draw, key);
  return std::bit_cast<std::int64_t>(key);
}

// Handles Dropout of opset 13 and newer. Inputs: data, ratio, training_mode. Outputs: result, mask. Outside of training
// mode the result is the data, and the mask is true everywhere.
bool dropout(Canonical &c, Node &node) {
  // Leaves the node alone if it has the attribute `key`, because then this rule has rewritten it already. Also leaves
  // the node alone if its ratio or mode is not constant, and therefore still an input.
  if (node.attributes.has("key") || has(node, 1) || has(node, 2)) return false;
  const std::vector<std::int64_t> training = node.attributes.integers("training_mode");
  const double ratio = node.attributes.real("ratio", 0.5);
  const Shape shape = c.shape(node.inputs.at(0));
  if (training.empty() || training[0] == 0 || ratio == 0) {
    if (node.outputs.at(0) != ValueId::none) c.pass(node, node.inputs[0]);
    if (c.rewriter().is_read(node, 1)) {
      Node mask = node;
      mask.outputs = {node.outputs[1]};
      c.pass(mask, c.rewriter().constant(graph::Array::filled({DType::boolean, shape}, 1)));
    }
    return true;
  }
  const Attributes attributes = {
      {"key", key_of(c, node)}, {"ratio", ratio}, {"samples", samples_in(shape, batch_of(c.rewriter().graph()))}};
  c.become(node, "Dropout", node.inputs, attributes);
  return true;
}

// Returns random numbers in (0, 1).
ValueId drawn(Canonical &c, const Node &node, const Shape &shape, const std::string &draw = "") {
  return c.add("Uniform", {},
               {{"key", key_of(c, node, draw)},
                {"samples", samples_in(shape, batch_of(c.rewriter().graph()))},
                {"shape", shape}});
}

// Replaces the node's output by `x`, cast to `dtype`. Returns true.
bool become_cast(Canonical &c, const Node &node, ValueId x, DType dtype) {
  if (c.type(x).dtype == dtype)
    c.pass(node, x);
  else
    c.become(node, "Cast", {x}, {{"to", std::string(name_of(dtype))}});
  return true;
}

ValueId moved(Canonical &c, ValueId x, double scale, double offset) {
  return c.add("Add", {c.add("Mul", {x, c.scalar(DType::f32, scale)}), c.scalar(DType::f32, offset)});
}

bool random_uniform(Canonical &c, Node &node) {
  const Type type = c.infer(node).at(0);
  const double low = node.attributes.real("low", 0), high = node.attributes.real("high", 1);
  return become_cast(c, node, moved(c, drawn(c, node, type.shape), high - low, low), type.dtype);
}

// Computes normally distributed numbers from uniform ones, u and v, as sqrt(-2 log u) cos(2 pi v) (Box and Muller,
// 1958).
bool random_normal(Canonical &c, Node &node) {
  const Type type = c.infer(node).at(0);
  const ValueId logarithm = c.add("Log", {drawn(c, node, type.shape, "radius")});
  const ValueId radius = c.add("Sqrt", {c.add("Mul", {logarithm, c.scalar(DType::f32, -2)})});
  const ValueId turn = c.scalar(DType::f32, 2 * std::numbers::pi);
  const ValueId angle = c.add("Mul", {drawn(c, node, type.shape, "angle"), turn});
  const ValueId normal = c.add("Mul", {radius, c.add("Cos", {angle})});
  const double scale = node.attributes.real("scale", 1), mean = node.attributes.real("mean", 0);
  return become_cast(c, node, moved(c, normal, scale, mean), type.dtype);
}

// Draws 1 or 0 for each element. The input holds the probabilities of 1.
bool bernoulli(Canonical &c, Node &node) {
  const Type type = c.infer(node).at(0);
  const ValueId p = c.add("Cast", {node.inputs.at(0)}, {{"to", std::string(name_of(DType::f32))}});
  const ValueId hit = c.add("Less", {drawn(c, node, type.shape), p});
  return become_cast(c, node, hit, type.dtype);
}

// Draws a class: the first class at which the running sum of the probabilities reaches a random number. The index of
// this class is the number of classes whose running sums are below the random number.
bool multinomial(Canonical &c, Node &node) {
  const Type type = c.infer(node).at(0);
  const Shape x = c.shape(node.inputs.at(0));
  const ValueId p = c.add("Softmax", {node.inputs[0]}, {{"axis", std::int64_t{1}}});
  const ValueId sums = c.reshape(c.add("CumSum", {p}, {{"axis", std::int64_t{1}}}), {x[0], 1, x[1]});
  const ValueId numbers = c.reshape(drawn(c, node, type.shape), {x[0], type.shape[1], 1});
  const ValueId before = c.add("Cast", {c.add("Less", {sums, numbers})}, {{"to", std::string(name_of(DType::f32))}});
  const ValueId count =
      c.add("ReduceSum", {before}, {{"axes", std::vector<std::int64_t>{2}}, {"keepdims", std::int64_t{0}}});
  const double last = static_cast<double>(x[1]) - 1;  // the last sum may be rounded below 1
  return become_cast(c, node, c.add("Clip", {count}, {{"min", 0.0}, {"max", last}}), type.dtype);
}

}  // namespace

std::int64_t batch_of(const Graph &graph) {
  for (ValueId in : graph.inputs)
    if (const Shape &shape = graph.value(in).type.shape; !shape.empty()) return shape[0];
  return 0;
}

std::int64_t samples_in(const Shape &shape, std::int64_t batch) {
  if (shape.empty() || shape[0] == 0) return 0;
  return batch > 0 && shape[0] % batch == 0 ? batch : 1;
}

std::int64_t samples_drawn(const Graph &graph) {
  std::int64_t most = 0;
  for (const Node &node : graph.nodes())
    if (node.op == "Dropout" || node.op == "Uniform") most = std::max(most, node.attributes.integer("samples", 0));
  return most;
}

Rules random_rules() {
  return {{"Dropout", dropout},
          {"RandomNormal", random_normal},
          {"RandomNormalLike", random_normal},
          {"RandomUniform", random_uniform},
          {"RandomUniformLike", random_uniform},
          {"Bernoulli", bernoulli},
          {"Multinomial", multinomial}};
}

void for_evaluation(Graph &graph) {
  Rewriter rewriter(graph);
  rewriter.walk([&](Node &node) {
    if (node.op == "Dropout") {
      const bool mask_read = rewriter.is_read(node, 1);
      if (!mask_read && node.outputs.at(0) != ValueId::none && rewriter.forward(node.outputs[0], node.inputs.at(0)))
        return;
      node.attributes.set("ratio", 0.0);  // keeps the values, and makes the mask true everywhere
    }
    if (node.op == "BatchNorm") node.attributes.set("running", std::int64_t{1});
    rewriter.keep(std::move(node));
  });
}

}  // namespace protrain::passes
