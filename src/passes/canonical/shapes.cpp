// Rules for operators that only move, cut or cast data.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

bool pass_input(Canonical &c, Node &node) {
  c.pass(node, node.inputs.at(0));
  return true;
}

// Handles Identity. No gradient passes through an Identity that PyTorch wrote for detach(). Import marks it by the
// attribute `detach`, which ONNX does not know.
bool identity(Canonical &c, Node &node) {
  if (!node.attributes.has("detach")) return pass_input(c, node);
  c.become(node, "StopGradient", {node.inputs.at(0)}, {});
  return true;
}

// Turns Reshape, Squeeze, Unsqueeze and Flatten into a Reshape to their result's shape.
bool to_reshape(Canonical &c, Node &node) {
  if (node.inputs.size() != 1) return false;
  const Shape shape = c.infer(node).at(0).shape;
  if (shape == c.shape(node.inputs[0])) return pass_input(c, node);
  const Attributes attributes = {{"shape", shape}};
  if (node.op == "Reshape" && same(node.attributes, attributes)) return false;
  c.become(node, "Reshape", node.inputs, attributes);
  return true;
}

bool expand(Canonical &c, Node &node) {
  if (node.inputs.size() != 1) return false;
  const Shape shape = c.infer(node).at(0).shape;
  if (shape == c.shape(node.inputs[0])) return pass_input(c, node);
  node.attributes.set("shape", shape);
  return false;
}

// Repeats each axis as a whole. For an axis of length d and r repeats: (d) -> (1, d) -> (r, d) -> (r * d).
bool tile(Canonical &c, Node &node) {
  if (node.inputs.size() != 1) return false;
  const Integers repeats = node.attributes.integers("repeats");
  const Shape result = c.infer(node).at(0).shape;
  const Shape shape = c.shape(node.inputs[0]);
  Shape pairs, stretched;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    pairs.insert(pairs.end(), {1, shape[i]});
    stretched.insert(stretched.end(), {repeats.at(i), shape[i]});
  }
  const ValueId apart = c.reshape(node.inputs[0], pairs);
  const ValueId repeated = c.add("Expand", {apart}, {{"shape", stretched}});
  c.become(node, "Reshape", {repeated}, {{"shape", result}});
  return true;
}

// Moves elements of axis 1 to squares of b by b elements in each channel's image, where b is the blocksize. Axis 1 of
// the input is (b, b, channels) in mode DCR and (channels, b, b) in mode CRD.
bool depth_to_space(Canonical &c, Node &node) {
  const Shape result = c.infer(node).at(0).shape, s = c.shape(node.inputs.at(0));
  const std::int64_t b = node.attributes.integer("blocksize", 1), channels = result[1];
  const bool blocks_first = node.attributes.text("mode", "DCR") == "DCR";
  const Shape apart = blocks_first ? Shape{s[0], b, b, channels, s[2], s[3]} : Shape{s[0], channels, b, b, s[2], s[3]};
  const Integers perm = blocks_first ? Integers{0, 3, 4, 1, 5, 2} : Integers{0, 1, 4, 2, 5, 3};
  c.become(node, "Reshape", {c.transpose(c.reshape(node.inputs[0], apart), perm)}, {{"shape", result}});
  return true;
}

bool space_to_depth(Canonical &c, Node &node) {
  const Shape result = c.infer(node).at(0).shape, s = c.shape(node.inputs.at(0));
  const std::int64_t b = node.attributes.integer("blocksize", 1);
  const bool blocks_first = node.attributes.text("mode", "DCR") == "DCR";
  const ValueId apart = c.reshape(node.inputs[0], {s[0], s[1], result[2], b, result[3], b});
  const Integers perm = blocks_first ? Integers{0, 3, 5, 1, 2, 4} : Integers{0, 1, 3, 5, 2, 4};
  c.become(node, "Reshape", {c.transpose(apart, perm)}, {{"shape", result}});
  return true;
}

bool shape_of(Canonical &c, Node &node) {
  const Shape shape = c.shape(node.inputs.at(0));
  const auto rank = static_cast<std::int64_t>(shape.size());
  const auto bound = [&](std::int64_t at) { return std::clamp<std::int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const std::int64_t start = bound(node.attributes.integer("start", 0));
  const std::int64_t end = std::max(start, bound(node.attributes.integer("end", rank)));
  c.pass(node, c.rewriter().constant(graph::Array::integers({shape.begin() + start, shape.begin() + end})));
  return true;
}

bool size_of_value(Canonical &c, Node &node) {
  const std::int64_t count = element_count(c.shape(node.inputs.at(0)));
  c.pass(node, c.rewriter().constant(graph::Array::from_integers({DType::i64, {}}, {count})));
  return true;
}

bool cast_like(Canonical &c, Node &node) {
  const DType to = c.type(node.inputs.at(1)).dtype;
  c.become(node, "Cast", {node.inputs[0]}, {{"to", std::string(name_of(to))}});
  return true;
}

bool cast(Canonical &c, Node &node) {
  if (node.attributes.text("to", "") == name_of(c.type(node.inputs.at(0)).dtype)) return pass_input(c, node);
  const Attributes attributes = {{"to", node.attributes.text("to", "")}};  // saturation concerns only float8
  if (same(node.attributes, attributes)) return false;
  c.become(node, "Cast", node.inputs, attributes);
  return true;
}

// Makes IsInf and IsNaN read the float before a Cast to float64, because devices cannot test float64. The result is the
// same, because the Cast changes neither infinities nor NaN. PyTorch's older exporter writes such Casts.
bool test_before_cast(Canonical &c, Node &node) {
  const Node *cast = c.rewriter().producer(node.inputs.at(0));
  if (cast == nullptr || cast->op != "Cast" || c.type(node.inputs[0]).dtype != DType::f64) return false;
  const ValueId x = cast->inputs.at(0);
  if (!is_float(c.type(x).dtype)) return false;
  c.become(node, node.op, {x}, node.attributes);
  return true;
}

bool transpose(Canonical &c, Node &node) {
  const std::size_t rank = c.shape(node.inputs.at(0)).size();
  if (node.attributes.has("perm")) return false;
  Integers perm(rank);
  std::iota(perm.rbegin(), perm.rend(), 0);
  c.become(node, "Transpose", node.inputs, {{"perm", perm}});
  return true;
}

bool slice(Canonical &c, Node &node) {
  if (node.inputs.size() != 1) return false;
  const Integers steps = node.attributes.integers("steps");
  const bool forwards = std::ranges::all_of(steps, [](std::int64_t step) { return step == 1; });
  if (forwards && c.infer(node).at(0).shape == c.shape(node.inputs[0])) return pass_input(c, node);
  return false;
}

// Leaves out empty parts, such as the keys of an empty cache.
bool concat(Canonical &c, Node &node) {
  require(node.attributes.has("axis"), Code::graph, node.subject(), "Concat without an axis");
  if (node.inputs.size() == 1) return pass_input(c, node);
  std::vector<ValueId> parts = node.inputs;
  std::erase_if(parts, [&](ValueId part) { return element_count(c.shape(part)) == 0; });
  if (parts.empty() || parts.size() == node.inputs.size()) return false;
  c.infer(node);  // checks that the parts fit together
  c.become(node, "Concat", parts, node.attributes);
  return true;
}

// Sets attribute `split` to the sizes of all parts. A file may give a list of sizes, a number of parts, or neither.
// Empty parts become constants.
bool split(Canonical &c, Node &node) {
  if (node.inputs.size() != 1) return false;
  const Shape shape = c.shape(node.inputs[0]);
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), shape.size(), node.name);
  const std::vector<Type> parts = c.infer(node);
  if (parts.size() == 1) return pass_input(c, node);
  Node rest = node;
  rest.outputs.clear();
  Integers sizes;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ValueId out = i < node.outputs.size() ? node.outputs[i] : ValueId::none;
    if (element_count(parts[i].shape) > 0) {
      sizes.push_back(parts[i].shape.at(axis));
      rest.outputs.push_back(out);
    } else if (out != ValueId::none) {
      c.pass(with_output(node, i), c.rewriter().constant(graph::Array::filled(parts[i], 0)));
    }
  }
  if (std::ranges::all_of(rest.outputs, [](ValueId out) { return out == ValueId::none; })) return true;
  if (sizes.size() == 1) return pass_input(c, rest);
  const Attributes attributes = {{"axis", static_cast<std::int64_t>(axis)}, {"split", sizes}};
  if (same(node.attributes, attributes)) return false;
  c.become(rest, "Split", node.inputs, attributes);
  return true;
}

}  // namespace

Rules shape_rules() {
  return {{"Identity", identity},
          {"Reshape", to_reshape},
          {"Squeeze", to_reshape},
          {"Unsqueeze", to_reshape},
          {"Flatten", to_reshape},
          {"Expand", expand},
          {"Tile", tile},
          {"DepthToSpace", depth_to_space},
          {"SpaceToDepth", space_to_depth},
          {"Shape", shape_of},
          {"Size", size_of_value},
          {"CastLike", cast_like},
          {"Cast", cast},
          {"IsInf", test_before_cast},
          {"IsNaN", test_before_cast},
          {"Transpose", transpose},
          {"Slice", slice},
          {"Concat", concat},
          {"Split", split}};
}

}  // namespace protrain::passes
