// Rules for Softmax and its kin: the form of opset 12 and older, which normalizes the rows of a matrix, and Hardmax.
#include <numeric>

#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

// Handles nodes with the attribute `flattens`, which join the axes before `axis` to rows, and the other axes to
// columns. Returns false for other nodes.
bool softmax(Canonical &c, Node &node) {
  if (!node.attributes.has("flattens")) return false;
  const ValueId x = node.inputs.at(0);
  const Shape shape = c.shape(x);
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 1), shape.size(), node.name);
  const auto cut = shape.begin() + static_cast<std::ptrdiff_t>(axis);
  if (axis + 1 == shape.size()) {
    c.become(node, node.op, {x}, {{"axis", static_cast<std::int64_t>(axis)}});
    return true;
  }
  const ValueId rows = c.reshape(x, {element_count({shape.begin(), cut}), element_count({cut, shape.end()})});
  c.become(node, "Reshape", {c.add(node.op, {rows}, {{"axis", std::int64_t{1}}})}, {{"shape", shape}});
  return true;
}

// Gives 1 at the largest element along the axis, and 0 elsewhere. If several elements are largest, only the first one
// gets 1.
bool hardmax(Canonical &c, Node &node) {
  if (softmax(c, node)) return true;
  const ValueId x = node.inputs.at(0);
  const Type type = c.type(x);
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", -1), type.shape.size(), node.name);
  Shape along(type.shape.size(), 1);
  along[axis] = type.shape[axis];
  std::vector<std::int64_t> places(static_cast<std::size_t>(along[axis]));
  std::iota(places.begin(), places.end(), 0);
  const ValueId largest =
      c.add("ArgMax", {x}, {{"axis", static_cast<std::int64_t>(axis)}, {"keepdims", std::int64_t{1}}});
  const ValueId hit =
      c.add("Equal", {largest, c.rewriter().constant(graph::Array::from_integers({DType::i64, along}, places))});
  c.become(node, "Cast", {hit}, {{"to", std::string(name_of(type.dtype))}});
  return true;
}

}  // namespace

Rules softmax_rules() { return {{"Softmax", softmax}, {"LogSoftmax", softmax}, {"Hardmax", hardmax}}; }

}  // namespace protrain::passes
