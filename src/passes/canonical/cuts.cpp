// Cuts: Slices whose bounds depend on data, such as the bags of an EmbeddingBag. The extent of a cut depends on data
// too. So nodes that work element by element compute the whole axis instead, and a reduction along the axis leaves out
// the elements outside of the cut. No other node can read a cut.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using graph::Array;
using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kLongestCut = 1 << 22;  // elements of a cut's axis; a constant holds their positions

bool is_typed(const Canonical &c, ValueId id) { return id != ValueId::none && c.type(id).dtype != DType::none; }

// Returns a bound of a Slice as a value of one element. The bound is an input of the node, or the attribute that has
// taken the place of a constant input. Returns ValueId::none unless the bound is a single number.
ValueId bound(Canonical &c, const Node &node, std::size_t input, const char *attribute) {
  if (has(node, input)) {
    const ValueId id = node.inputs[input];
    const bool one = is_typed(c, id) && c.type(id).dtype == DType::i64 && element_count(c.shape(id)) == 1;
    return one ? c.reshape(id, {1}) : ValueId::none;
  }
  const Integers given = node.attributes.integers(attribute);
  return given.size() == 1 ? c.rewriter().constant(Array::integers(given)) : ValueId::none;
}

std::optional<Cut> cut_of_slice(Canonical &c, const Node &node) {
  const Integers axes = node.attributes.has("axes") ? node.attributes.integers("axes") : Integers{0};
  const Integers steps = node.attributes.has("steps") ? node.attributes.integers("steps") : Integers{1};
  const bool by_data = has(node, 1) || has(node, 2);
  if (!by_data || has(node, 3) || has(node, 4) || !is_typed(c, node.inputs[0])) return std::nullopt;
  if (axes.size() != 1 || steps != Integers{1}) return std::nullopt;
  const std::size_t axis = resolve_axis(axes[0], c.shape(node.inputs[0]).size(), node.name);
  if (c.shape(node.inputs[0])[axis] > kLongestCut) return std::nullopt;
  const ValueId start = bound(c, node, 1, "starts"), end = bound(c, node, 2, "ends");
  if (start == ValueId::none || end == ValueId::none) return std::nullopt;
  return Cut{node.inputs[0], axis, start, end};
}

// Returns the cut that results from a Gather whose indices are a cut. Returns an empty optional if the type of the
// Gather's table is not known yet.
std::optional<Cut> cut_of_gather(Canonical &c, const Node &node, const Cut &indices) {
  if (!is_typed(c, node.inputs[0])) return std::nullopt;
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", 0), c.shape(node.inputs[0]).size(), node.name);
  const ValueId whole = c.add("Gather", {node.inputs[0], indices.whole}, node.attributes);
  return Cut{whole, axis + indices.axis, indices.start, indices.end};
}

std::optional<Cut> cut_of_unsqueeze(Canonical &c, const Node &node, Cut cut) {
  const std::size_t rank = c.shape(cut.whole).size();
  Integers axes = node.attributes.integers("axes");
  for (std::int64_t &axis : axes) axis = static_cast<std::int64_t>(resolve_axis(axis, rank + axes.size(), node.name));
  std::ranges::sort(axes);
  for (const std::int64_t axis : axes) cut.axis += static_cast<std::size_t>(axis) <= cut.axis ? 1 : 0;
  cut.whole = c.add("Unsqueeze", {cut.whole}, node.attributes);
  return cut;
}

// Returns the cut that results from a product, if the node multiplies two cuts with the same bounds, or a cut and a
// value that has one element along the axis of the cut. Returns an empty optional for other products.
std::optional<Cut> cut_of_product(Canonical &c, const Node &node) {
  std::optional<Cut> found;
  std::vector<ValueId> operands;
  std::size_t behind = 0;  // the number of axes from the axis of the cut to the last axis, both included
  for (const ValueId in : node.inputs) {
    const auto cut = c.cuts.find(in);
    if (cut == c.cuts.end()) {
      if (!is_typed(c, in)) return std::nullopt;
      operands.push_back(in);
      continue;
    }
    const std::size_t here = c.shape(cut->second.whole).size() - cut->second.axis;
    const bool same = !found || (found->start == cut->second.start && found->end == cut->second.end && here == behind);
    if (!same) return std::nullopt;
    found = cut->second;
    behind = here;
    operands.push_back(cut->second.whole);
  }
  const std::int64_t extent = c.shape(found->whole)[found->axis];
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Shape shape = c.shape(operands[i]);
    if (c.cuts.contains(node.inputs[i]) ? shape[shape.size() - behind] != extent
                                        : shape.size() >= behind && shape[shape.size() - behind] != 1)
      return std::nullopt;
  }
  found->whole = c.add(node.op, operands, node.attributes);
  found->axis = c.shape(found->whole).size() - behind;
  return found;
}

// Returns the constant 0, 1, ..., extent - 1.
ValueId positions_along(Canonical &c, std::int64_t extent) {
  const auto [made, fresh] = c.positions.emplace(extent, ValueId::none);
  if (fresh) {
    Integers numbers(static_cast<std::size_t>(extent));
    std::iota(numbers.begin(), numbers.end(), 0);
    made->second = c.rewriter().constant(Array::integers(numbers));
  }
  return made->second;
}

// Returns one boolean for each element of the cut's axis: true inside of the cut. A negative bound counts from the end.
ValueId inside(Canonical &c, const Cut &cut) {
  const std::int64_t extent = c.shape(cut.whole)[cut.axis];
  const ValueId positions = positions_along(c, extent), zero = c.scalar(DType::i64, 0);
  const auto from_front = [&](ValueId id) {
    const ValueId moved = c.add("Add", {id, c.scalar(DType::i64, static_cast<double>(extent))});
    return c.add("Where", {c.add("Less", {id, zero}), moved, id});
  };
  const ValueId before = c.add("Less", {positions, from_front(cut.start)});
  return c.add("And", {c.add("Not", {before}), c.add("Less", {positions, from_front(cut.end)})});
}

// Replaces a sum, mean or maximum along a cut's axis by nodes that read the whole axis and leave out the elements
// outside of the cut. If the cut is empty, a mean is 0, and a maximum is -inf. Returns false for other reductions.
bool reduce_cut(Canonical &c, const Node &node, const Cut &cut) {
  const Shape shape = c.shape(cut.whole);
  const DType dtype = c.type(cut.whole).dtype;
  const Integers axes = node.attributes.integers("axes");
  const bool along = axes.size() == 1 && resolve_axis(axes[0], shape.size(), node.name) == cut.axis;
  if (!along || node.inputs.size() != 1 || !is_float(dtype) ||
      !one_of(node.op, {"ReduceSum", "ReduceMean", "ReduceMax"}))
    return false;
  Shape ones(shape.size(), 1);
  ones[cut.axis] = shape[cut.axis];
  const ValueId kept = inside(c, cut);
  const double outside = node.op == "ReduceMax" ? -std::numeric_limits<double>::infinity() : 0;
  const ValueId masked = c.add("Where", {c.reshape(kept, ones), cut.whole, c.scalar(dtype, outside)});
  const Attributes attributes = {{"axes", axes}, {"keepdims", node.attributes.integer("keepdims", 1)}};
  if (node.op != "ReduceMean") {
    c.become(node, node.op, {masked}, attributes);
    return true;
  }
  const ValueId ticks = c.add("Cast", {kept}, {{"to", std::string(name_of(dtype))}});
  const ValueId count = c.add("ReduceSum", {ticks}, {{"axes", Integers{0}}, {"keepdims", std::int64_t{0}}});
  const ValueId divisor = c.add("Max", {count, c.scalar(dtype, 1)});
  c.become(node, "Div", {c.add("ReduceSum", {masked}, attributes), divisor});
  return true;
}

}  // namespace

bool follow_cut(Canonical &c, const Node &node) {
  std::optional<Cut> made;
  const auto cut_at = [&](std::size_t input) {
    return has(node, input) ? c.cuts.find(node.inputs[input]) : c.cuts.end();
  };
  const bool one_output = node.outputs.size() == 1 && !node.inputs.empty();
  if (!one_output) return false;
  if (node.op == "Slice") {
    made = cut_of_slice(c, node);
  } else if (node.op == "Mul" && (cut_at(0) != c.cuts.end() || cut_at(1) != c.cuts.end())) {
    made = cut_of_product(c, node);
  } else if (const auto indices = cut_at(1); node.op == "Gather" && indices != c.cuts.end()) {
    made = cut_of_gather(c, node, indices->second);
  } else if (const auto found = cut_at(0); found != c.cuts.end()) {
    if (reduce_cut(c, node, found->second)) return true;
    if (node.op == "Unsqueeze" && node.inputs.size() == 1) made = cut_of_unsqueeze(c, node, found->second);
  }
  if (!made || !is_typed(c, made->whole)) return false;
  for (const ValueId held : {made->whole, made->start, made->end}) c.rewriter().hold(held);
  c.cuts.insert_or_assign(node.outputs[0], *made);
  return false;  // the node stays, and nothing reads it if all reductions were expressed otherwise
}

}  // namespace protrain::passes
