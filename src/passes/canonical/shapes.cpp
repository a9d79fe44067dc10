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

// Axis 1 of the input is (b, b, channels) in mode DCR and (channels, b, b) in mode CRD, with blocksize b. The b by b
// elements become a square of the result.
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

bool concat(Canonical &c, Node &node) {
  require(node.attributes.has("axis"), Code::graph, node.name.empty() ? node.op : node.name, "Concat without an axis");
  return node.inputs.size() == 1 && pass_input(c, node);
}

// Sets attribute `split` to the sizes of all parts. A file may give a list, a number of parts, or neither.
bool split(Canonical &c, Node &node) {
  if (node.inputs.size() != 1) return false;
  if (node.outputs.size() == 1) return pass_input(c, node);
  const Shape shape = c.shape(node.inputs[0]);
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), shape.size(), node.name);
  Integers sizes;
  for (const Type &part : c.infer(node)) sizes.push_back(part.shape.at(axis));
  const Attributes attributes = {{"axis", static_cast<std::int64_t>(axis)}, {"split", sizes}};
  if (same(node.attributes, attributes)) return false;
  c.become(node, "Split", node.inputs, attributes);
  return true;
}

// Returns the sizes of the parts. A scalar gives the size of all parts, of which the last may be smaller. A list gives
// each size. Without either, each size is 1.
Integers part_sizes(const Node &node, std::int64_t extent) {
  Integers sizes = node.attributes.integers("split");
  if (sizes.size() > 1 || (sizes.size() == 1 && node.attributes.integer("equal", 0) == 0)) return sizes;
  const std::int64_t each = sizes.empty() ? 1 : sizes[0];
  require(each > 0, Code::graph, node.name, "parts of {} elements cannot be split off; the size must be positive",
          each);
  require(extent / each <= 1 << 16, Code::limit, node.name, "a split into {} parts is too many", extent / each);
  sizes.clear();
  for (std::int64_t at = 0; at < extent; at += each) sizes.push_back(std::min(each, extent - at));
  return sizes;
}

bool split_to_sequence(Canonical &c, Node &node) {
  if (node.inputs.size() != 1) return false;
  const Shape shape = c.shape(node.inputs[0]);
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), shape.size(), node.name);
  const Integers sizes = part_sizes(node, shape[axis]);
  const bool drops_axis = !node.attributes.has("split") && node.attributes.integer("keepdims", 1) == 0;
  Shape part_shape = shape;
  part_shape.erase(part_shape.begin() + static_cast<std::ptrdiff_t>(axis));
  std::vector<ValueId> parts =
      c.add_all("Split", node.inputs, {{"axis", static_cast<std::int64_t>(axis)}, {"split", sizes}}, sizes.size());
  if (drops_axis)
    for (ValueId &part : parts) part = c.reshape(part, part_shape);
  c.rewriter().graph().value(node.outputs.at(0)).type = c.type(node.inputs[0]);  // stands for the sequence
  c.sequences[node.outputs[0]] = std::move(parts);
  return true;
}

bool sequence_at(Canonical &c, Node &node) {
  const auto found = c.sequences.find(node.inputs.at(0));
  const graph::Array *position = c.constant_of(node.inputs.at(1));
  if (found == c.sequences.end() || position == nullptr || element_count(position->shape()) != 1) return false;
  const std::size_t at = resolve_axis(position->integers()[0], found->second.size(), node.name);
  c.pass(node, found->second[at]);
  return true;
}

}  // namespace

Rules shape_rules() {
  return {{"Identity", pass_input},
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
          {"Transpose", transpose},
          {"Slice", slice},
          {"Concat", concat},
          {"Split", split},
          {"SplitToSequence", split_to_sequence},
          {"SequenceAt", sequence_at}};
}

}  // namespace protrain::passes
