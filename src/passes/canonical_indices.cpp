// Rules for operators that read by position: what is read at places that are known becomes a cut, a repetition or a
// reshape; GatherND becomes Gather, a running sum a logarithm of additions.
#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "passes/canonical.h"

namespace protrain::passes {

namespace {

using graph::Array;
using Integers = std::vector<std::int64_t>;

// Set or computed in each step, as opposed to stored with the model.
bool is_data(Canonical &c, ValueId id) {
  const graph::Origin origin = c.rewriter().value(id).origin;
  return origin == graph::Origin::input || origin == graph::Origin::node;
}

// The first of consecutive indices, counted from the front; nothing where they are no such run.
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

ValueId cut(Canonical &c, ValueId x, std::size_t axis, std::int64_t begin, std::int64_t end) {
  return c.add("Slice", {x},
               {{"starts", Integers{begin}},
                {"ends", Integers{end}},
                {"axes", Integers{static_cast<std::int64_t>(axis)}},
                {"steps", Integers{1}}});
}

// Data read at known places. Axes along which the places do not change are read once and repeated.
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
  const ValueId run = cut(c, x, axis, *begin, *begin + indices.stored_count());
  c.become(node, "Reshape", {run}, {{"shape", result}});
  return true;
}

// x (batch..., addressed..., rest...) read at indices (batch..., places..., depth): rows of (batch * addressed, rest...)
// whose numbers are worked out first.
bool gather_nd(Canonical &c, Node &node) {
  const ValueId x = node.inputs.at(0), indices = node.inputs.at(1);
  const Shape shape = c.shape(x), places = c.shape(indices), result = c.infer(node).at(0).shape;
  const auto batch = static_cast<std::size_t>(node.attributes.integer("batch_dims", 0));
  const auto depth = static_cast<std::size_t>(places.back());
  const DType dtype = c.type(indices).dtype;
  if (c.constant_of(x) != nullptr && c.constant_of(indices) != nullptr) return false;
  const auto number = [&](std::int64_t value) { return c.scalar(dtype, static_cast<double>(value)); };

  Shape pointed(places.begin(), places.end() - 1);
  ValueId row = ValueId::none;
  std::int64_t stride = 1;
  const auto add_to_row = [&](ValueId index) {
    const ValueId scaled = stride == 1 ? index : c.add("Mul", {index, number(stride)});
    row = row == ValueId::none ? scaled : c.add("Add", {row, scaled});
  };
  for (std::size_t d = depth; d-- > 0;) {
    const auto at = static_cast<std::int64_t>(d);
    const std::int64_t extent = shape[batch + d];
    const ValueId index = c.reshape(cut(c, indices, places.size() - 1, at, at + 1), pointed);
    const ValueId negative = c.add("Less", {index, number(0)});
    add_to_row(c.add("Where", {negative, c.add("Add", {index, number(extent)}), index}));
    stride *= extent;
  }
  for (std::size_t b = batch; b-- > 0;) {
    Integers numbers(static_cast<std::size_t>(shape[b]));
    std::iota(numbers.begin(), numbers.end(), 0);
    Shape along(pointed.size(), 1);
    along[b] = shape[b];
    add_to_row(c.rewriter().constant(Array::from_integers({dtype, along}, numbers)));
    stride *= shape[b];
  }
  Shape rows(shape.begin() + static_cast<std::ptrdiff_t>(batch + depth), shape.end());
  rows.insert(rows.begin(), element_count({shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(batch + depth)}));
  const ValueId read = c.add("Gather", {c.reshape(x, rows), row}, {{"axis", std::int64_t{0}}});
  c.become(node, "Reshape", {read}, {{"shape", result}});
  return true;
}

// Running sums in ceil(log2 n) rounds: what is summed over 1, 2, 4, ... elements is added to itself that far along.
bool cumsum(Canonical &c, Node &node) {
  ValueId x = node.inputs.at(0);
  if (node.inputs.size() != 1 || !node.attributes.has("axis") || c.constant_of(x) != nullptr) return false;
  const Shape shape = c.shape(x);
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), shape.size(), node.name);
  const bool reverse = node.attributes.integer("reverse", 0) != 0;
  const std::int64_t length = shape[axis];
  const auto moved = [&](ValueId from, std::int64_t steps) {
    Shape gap = shape;
    gap[axis] = std::min(steps, length);
    const ValueId zeros = c.rewriter().constant(Array::filled({c.type(from).dtype, gap}, 0));
    if (gap[axis] == length) return zeros;
    const ValueId rest = reverse ? cut(c, from, axis, steps, length) : cut(c, from, axis, 0, length - steps);
    std::vector<ValueId> parts = {zeros, rest};
    if (reverse) std::swap(parts[0], parts[1]);
    return c.add("Concat", parts, {{"axis", static_cast<std::int64_t>(axis)}});
  };
  if (node.attributes.integer("exclusive", 0) != 0) x = moved(x, 1);
  for (std::int64_t steps = 1; steps < length; steps *= 2) x = c.add("Add", {x, moved(x, steps)});
  c.pass(node, x);
  return true;
}

}  // namespace

Rules index_rules() { return {{"Gather", gather}, {"GatherND", gather_nd}, {"CumSum", cumsum}}; }

}  // namespace protrain::passes
