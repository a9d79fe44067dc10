// Rules for a Gather of data at constant indices: it becomes Slice, Expand or Reshape. Exporters write such a Gather
// when they index a mask with consecutive numbers.
#include <optional>

#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using graph::Array;
using Integers = std::vector<std::int64_t>;

// True for the model's inputs and for results of nodes. False for values that are stored with the model.
bool is_data(Canonical &c, ValueId id) {
  const graph::Origin origin = c.rewriter().value(id).origin;
  return origin == graph::Origin::input || origin == graph::Origin::node;
}

// Returns the first index, counted from the front of the axis, if the indices are consecutive; else an empty optional.
std::optional<std::int64_t> run_of(const Array &indices, std::int64_t extent) {
  if (indices.stored_count() == 0 || indices.stored() != indices.shape()) return std::nullopt;
  const auto at = [&](std::int64_t i) {
    const std::int64_t index = indices.stored_integer(i);
    return index < 0 ? index + extent : index;
  };
  for (std::int64_t i = 1; i < indices.stored_count(); ++i)
    if (at(i) != at(0) + i) return std::nullopt;
  return at(0);
}

// Turns a Gather at consecutive indices into a Slice. If an axis of the array of indices only repeats the same indices,
// gathers at them once, and expands the result along this axis.
bool gather(Canonical &c, Node &node) {
  const ValueId x = node.inputs.at(0);
  const Array *constant = c.constant_of(node.inputs.at(1));
  if (constant == nullptr || !is_data(c, x)) return false;
  const Array indices = constant->compact();
  const Shape shape = c.shape(x), result = c.infer(node).at(0).shape;
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), shape.size(), node.name);
  if (indices.stored() != indices.shape() && indices.stored_count() > 0) {
    const Array once({indices.dtype(), indices.stored()}, indices.stored(),
                     {indices.bytes(), indices.bytes() + indices.stored_bytes()});
    const ValueId read = c.add("Gather", {x, c.rewriter().constant(once)}, node.attributes);
    c.become(node, "Expand", {read}, {{"shape", result}});
    return true;
  }
  const auto begin = run_of(indices, shape[axis]);
  if (!begin || *begin < 0 || *begin + indices.stored_count() > shape[axis]) return false;
  const ValueId run = c.add("Slice", {x},
                            {{"starts", Integers{*begin}},
                             {"ends", Integers{*begin + indices.stored_count()}},
                             {"axes", Integers{static_cast<std::int64_t>(axis)}},
                             {"steps", Integers{1}}});
  c.become(node, "Reshape", {run}, {{"shape", result}});
  return true;
}

}  // namespace

Rules gather_rules() { return {{"Gather", gather}}; }

}  // namespace protrain::passes
