// Rules for sequences of tensors. The parts of each sequence are known, so no node has to make a sequence.
#include <algorithm>

#include "base/error.h"
#include "ops/control_flow.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;
using ValueIds = std::vector<ValueId>;

bool become_sequence(Canonical &c, const Node &node, ValueIds parts, const Type &type) {
  c.name_sequence(node.outputs.at(0), std::move(parts), type);
  return true;
}

// Returns the sizes of the parts of a SplitToSequence. A scalar `split` is the size of each part, except that the last
// part may be smaller. A list `split` gives each size. Without `split`, each size is 1.
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
  return become_sequence(c, node, std::move(parts), c.type(node.inputs[0]));
}

bool sequence_at(Canonical &c, Node &node) {
  const auto found = c.sequences.find(node.inputs.at(0));
  const graph::Array *position = c.constant_of(node.inputs.at(1));
  if (found == c.sequences.end() || position == nullptr || element_count(position->shape()) != 1) return false;
  const std::size_t at = resolve_axis(position->integers()[0], found->second.size(), node.name);
  c.pass(node, found->second[at]);
  return true;
}

bool sequence_empty(Canonical &c, Node &node) { return become_sequence(c, node, {}, {DType::f32, {}}); }

bool sequence_construct(Canonical &c, Node &node) {
  return become_sequence(c, node, node.inputs, c.type(node.inputs.at(0)));
}

// Inserts a new part at the given position. Without a position, the new part is the last one.
bool sequence_insert(Canonical &c, Node &node) {
  const auto found = c.sequences.find(node.inputs.at(0));
  const graph::Array *position = has(node, 2) ? c.constant_of(node.inputs[2]) : nullptr;
  if (found == c.sequences.end() || (has(node, 2) && position == nullptr)) return false;
  ValueIds parts = found->second;
  std::int64_t at = static_cast<std::int64_t>(parts.size());
  if (position != nullptr) {
    const std::int64_t given = position->integers().at(0);
    at = given < 0 ? given + at : given;
    require(at >= 0 && static_cast<std::size_t>(at) <= parts.size(), Code::shape, node.name,
            "position {} in a sequence of {}", given, parts.size());
  }
  parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(at), node.inputs.at(1));
  return become_sequence(c, node, std::move(parts), c.type(node.inputs[1]));
}

bool sequence_length(Canonical &c, Node &node) {
  const auto found = c.sequences.find(node.inputs.at(0));
  if (found == c.sequences.end()) return false;
  const auto count = static_cast<std::int64_t>(found->second.size());
  c.pass(node, c.rewriter().constant(graph::Array::from_integers({DType::i64, {}}, {count})));
  return true;
}

bool concat_from_sequence(Canonical &c, Node &node) {
  const auto found = c.sequences.find(node.inputs.at(0));
  if (found == c.sequences.end()) return false;
  ValueIds parts = found->second;
  require(!parts.empty(), Code::shape, node.name, "the sequence has no part");
  std::int64_t axis = node.attributes.integer("axis", 0);
  if (node.attributes.integer("new_axis", 0) != 0) {
    const std::size_t at = resolve_axis(axis, c.shape(parts[0]).size() + 1, node.name);
    for (ValueId &part : parts) {
      Shape shape = c.shape(part);
      require(at <= shape.size(), Code::shape, node.name, "a part of {} among others", to_text(shape));
      shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), 1);
      part = c.reshape(part, shape);
    }
    axis = static_cast<std::int64_t>(at);
  }
  c.become(node, "Concat", parts, {{"axis", axis}});
  return true;
}

}  // namespace

Rules sequence_rules() {
  return {{"SplitToSequence", split_to_sequence},      {"SequenceAt", sequence_at},
          {"SequenceEmpty", sequence_empty},           {"SequenceConstruct", sequence_construct},
          {"SequenceInsert", sequence_insert},         {"SequenceLength", sequence_length},
          {"ConcatFromSequence", concat_from_sequence}};
}

bool reads_sequences(std::string_view op) {
  static const Rules &rules = *new const Rules(sequence_rules());  // never destroyed, like the table of all rules
  return rules.contains(op) || op == "Identity" || ops::is_control_flow(op);
}

}  // namespace protrain::passes
