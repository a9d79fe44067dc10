// Rules for operators that read or write at indices. Several axes that an index addresses are joined to one axis. Most
// writes use the gradient operator of a read, such as GatherElementsGrad, which adds updates to zeros.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/text.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kLongestSequence = 1 << 22;            // elements; a constant holds their positions
constexpr std::int64_t kLongestAxis = std::int64_t{1} << 30;  // so that no sum of pads overflows

ValueId integer(Canonical &c, DType dtype, std::int64_t value) {
  return c.rewriter().constant(graph::Array::from_integers({dtype, {}}, {value}));
}

// Adds `dim` to negative indices, which count from the end.
ValueId counted_from_front(Canonical &c, ValueId indices, std::int64_t dim) {
  const DType dtype = c.type(indices).dtype;
  const ValueId negative = c.add("Less", {indices, integer(c, dtype, 0)});
  return c.add("Where", {negative, c.add("Add", {indices, integer(c, dtype, dim)}), indices});
}

// Returns the indices of an axis of `dim` elements, all counted from the front of the axis, and checks that they lie on
// the axis. For this check, a Gather looks up each index in a list of the numbers 0 to dim - 1, because Gather refuses
// an index that is out of range. A very long axis would need a very long list, so its indices are not checked.
ValueId checked_from_front(Canonical &c, ValueId indices, std::int64_t dim) {
  if (dim > kLongestSequence) return counted_from_front(c, indices, dim);
  const Type type = {c.type(indices).dtype, {dim}};
  const ValueId places = c.constant("places", type, [&] {
    Integers counts(static_cast<std::size_t>(dim));
    std::iota(counts.begin(), counts.end(), 0);
    return graph::Array::from_integers(type, counts);
  });
  return c.add("Gather", {places, indices}, {{"axis", std::int64_t{0}}});
}

// Turns indices along several axes into indices along one joined axis. The given indices (..., depth) address the first
// `depth` axes of `dims`. The returned indices (...) address the same elements once these axes are joined to one.
ValueId joined_indices(Canonical &c, ValueId indices, const Shape &dims) {
  const Shape shape = c.shape(indices);
  const std::int64_t depth = shape.back();
  const Shape addressed(dims.begin(), dims.begin() + depth);
  const Integers strides = row_major_strides(addressed);
  const DType dtype = c.type(indices).dtype;
  const Shape places(shape.begin(), shape.end() - 1);
  const auto last = static_cast<std::int64_t>(shape.size()) - 1;
  ValueId joined = ValueId::none;
  for (std::int64_t d = 0; d < depth; ++d) {
    ValueId one =
        c.add("Slice", {indices}, {{"starts", Integers{d}}, {"ends", Integers{d + 1}}, {"axes", Integers{last}}});
    one = checked_from_front(c, c.reshape(one, places), addressed[static_cast<std::size_t>(d)]);
    if (strides[static_cast<std::size_t>(d)] != 1)
      one = c.add("Mul", {one, integer(c, dtype, strides[static_cast<std::size_t>(d)])});
    joined = joined == ValueId::none ? one : c.add("Add", {joined, one});
  }
  return joined;
}

// Returns `shape` with its first `count` axes joined to one.
Shape with_front_joined(const Shape &shape, std::size_t count) {
  Shape joined = {element_count({shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(count)})};
  joined.insert(joined.end(), shape.begin() + static_cast<std::ptrdiff_t>(count), shape.end());
  return joined;
}

// Puts the positions along the batch axes in front of each index, so that an index addresses the batch axes too.
ValueId with_batch_indices(Canonical &c, ValueId indices, std::size_t batch) {
  const Shape shape = c.shape(indices);
  const DType dtype = c.type(indices).dtype;
  std::vector<ValueId> parts;
  for (std::size_t axis = 0; axis < batch; ++axis) {
    Integers counts(static_cast<std::size_t>(shape[axis]));
    std::iota(counts.begin(), counts.end(), 0);
    Shape along(shape.size(), 1), whole = shape;
    along[axis] = shape[axis];
    whole.back() = 1;
    const ValueId column = c.rewriter().constant(graph::Array::from_integers({dtype, along}, counts));
    parts.push_back(c.add("Expand", {column}, {{"shape", whole}}));
  }
  parts.push_back(indices);
  return c.add("Concat", parts, {{"axis", std::int64_t{-1}}});
}

bool gather_nd(Canonical &c, Node &node) {
  const Shape result = c.infer(node).at(0).shape, x = c.shape(node.inputs.at(0));
  const auto batch = static_cast<std::size_t>(node.attributes.integer("batch_dims", 0));
  // A node whose two inputs are constant will be folded, so it stays as it is.
  if (c.constant_of(node.inputs[0]) != nullptr && c.constant_of(node.inputs[1]) != nullptr) return false;
  const ValueId indices = with_batch_indices(c, node.inputs[1], batch);
  const auto depth = static_cast<std::size_t>(c.shape(indices).back());
  const ValueId table = c.reshape(node.inputs[0], with_front_joined(x, depth));
  const ValueId rows = c.add("Gather", {table, joined_indices(c, indices, x)}, {{"axis", std::int64_t{0}}});
  c.become(node, "Reshape", {rows}, {{"shape", result}});
  return true;
}

// Emits the gradient of the operator `read`, which adds `updates` at `indices` to an array of zeros. Returns this
// array.
ValueId scattered(Canonical &c, const char *read, ValueId updates, ValueId indices, const Attributes &where) {
  return c.add(std::string(read) + "Grad", {updates, indices}, where);
}

struct Write {
  const char *read;  // the operator that reads at indices of this form
  ValueId data, indices, updates;
  Attributes where;
};

// A way, other than a sum, in which a scatter combines the data with its updates. `over` is the operator that reduces
// along an axis, and `with` is the operator that combines two operands. `neutral` is the number that changes no result.
struct Reduction {
  std::string_view name;
  const char *over, *with;
  double neutral;
};
constexpr Reduction kReductions[] = {
    {"max", "ReduceMax", "Max", -HUGE_VAL}, {"min", "ReduceMin", "Min", HUGE_VAL}, {"mul", "ReduceProd", "Mul", 1}};
constexpr std::int64_t kMostMeetings = std::int64_t{1} << 26;

// Pairs every update with every element of the axis. A pair holds the update if the update addresses the element, else
// reduction.neutral. Then reduces the pairs over the updates, and combines the result with the data. Shapes: data (A,
// D, B), indices (A, K, B) or (K), updates (A, K, B), pairs (A, K, D, B), result (A, D, B).
bool become_reduced(Canonical &c, const Node &node, const Write &write, const Reduction &reduction) {
  const Shape data = c.shape(write.data), places = c.shape(write.indices);
  const bool one_by_one = std::string_view(write.read) == "GatherElements";
  const std::size_t axis = resolve_axis(write.where.integer("axis", 0), data.size(), node.name);
  const auto at = data.begin() + static_cast<std::ptrdiff_t>(axis);
  const std::int64_t a = element_count({data.begin(), at}), d = *at, b = element_count({at + 1, data.end()});
  const std::int64_t k = one_by_one ? places.at(axis) : element_count(places);
  Shape covered = data;
  covered[axis] = k;
  require(!one_by_one || places == covered, Code::unsupported, node.name,
          "reduction {} with indices {} that do not cover {} is not supported", reduction.name, to_text(places),
          to_text(data));
  require(element_count({a, k, d, b}) <= kMostMeetings, Code::unsupported, node.name,
          "reduction {} of {} updates into {} elements takes too much memory", reduction.name, k, to_text(data));
  const DType index = c.type(write.indices).dtype, dtype = c.type(write.data).dtype;
  Integers counts(static_cast<std::size_t>(d));
  std::iota(counts.begin(), counts.end(), 0);
  const ValueId elements = c.rewriter().constant(graph::Array::from_integers({index, {1, 1, d, 1}}, counts));
  const ValueId indices = checked_from_front(c, write.indices, d);
  const ValueId meets =
      c.add("Equal", {c.reshape(indices, one_by_one ? Shape{a, k, 1, b} : Shape{1, k, 1, 1}), elements});
  const ValueId pairs =
      c.add("Where", {meets, c.reshape(write.updates, {a, k, 1, b}), c.scalar(dtype, reduction.neutral)});
  const ValueId reduced = c.add(reduction.over, {pairs}, {{"axes", Integers{1}}, {"keepdims", std::int64_t{0}}});
  const ValueId joined = c.add(reduction.with, {c.reshape(write.data, {a, d, b}), reduced});
  c.become(node, "Reshape", {joined}, {{"shape", c.shape(node.inputs[0])}});
  return true;
}

// Computes the node's output, which has the shape of the node's data. Without a reduction, an element of the output is
// the update that addresses it, or the data's element if no update does. With a reduction, the update and the data's
// element are combined. Returns false for an unknown reduction.
bool become_written(Canonical &c, const Node &node, const Write &write) {
  const std::string reduction = node.attributes.text("reduction", "none");
  const Type type = c.type(write.data);
  const auto *other = std::ranges::find(kReductions, reduction, &Reduction::name);
  if (other != std::end(kReductions)) return become_reduced(c, node, write, *other);
  if (reduction != "none" && reduction != "add") return false;
  const Shape shape = c.shape(node.inputs[0]);
  const ValueId sum = scattered(c, write.read, write.updates, write.indices, write.where);
  if (reduction == "add") {
    c.become(node, "Reshape", {c.add("Add", {write.data, sum})}, {{"shape", shape}});
    return true;
  }
  const ValueId ones = c.rewriter().constant(graph::Array::filled(c.type(write.updates), 1));
  const ValueId count = scattered(c, write.read, ones, write.indices, write.where);
  const ValueId hit = c.add("Greater", {count, c.scalar(type.dtype, 0)});
  c.become(node, "Reshape", {c.add("Where", {hit, sum, write.data})}, {{"shape", shape}});
  return true;
}

// Returns the numbers from `first` on, in the given shape.
ValueId numbered_from(Canonical &c, std::int64_t first, const Shape &shape) {
  const Type type = {DType::i64, shape};
  return c.constant(fmt::format("numbered from {}", first), type, [&] {
    Integers counts(static_cast<std::size_t>(element_count(shape)));
    std::iota(counts.begin(), counts.end(), first);
    return graph::Array::from_integers(type, counts);
  });
}

// Returns for each element of the scatter's result its number in the list of all elements of the data and then of the
// updates. Constants that are larger than the limit make the node one that is not supported. Then the file is refused
// only if its loss needs the node.
ValueId places_in_list(Canonical &c, const Node &node) {
  const Shape data = c.shape(node.inputs.at(0)), updates = c.shape(node.inputs.at(2));
  try {
    const ValueId from_data = numbered_from(c, 0, data), from_updates = numbered_from(c, element_count(data), updates);
    return c.add(node.op, {from_data, node.inputs[1], from_updates}, node.attributes);
  } catch (const Error &error) {
    if (error.code != Code::limit) throw;
    fail(Code::unsupported, node.name, "{}", error.text);
  }
}

// Handles a scatter of integers or booleans, which no kernel adds to. A scatter of constants is folded, so it stays.
// Otherwise its indices must be constant. The result is then a Gather: the elements of the data and of the updates are
// joined to one list, and a scatter of their numbers in this list, which is folded, says which of them ends up where.
bool scatter_whole(Canonical &c, const Node &node) {
  if (std::ranges::all_of(node.inputs, [&](ValueId in) { return c.constant_of(in) != nullptr; })) return false;
  const std::string reduction = node.attributes.text("reduction", "none");
  const Type data = c.type(node.inputs.at(0));
  require(c.constant_of(node.inputs.at(1)) != nullptr, Code::unsupported, node.name,
          "its indices depend on the model's inputs or weights, and it writes {}; expected floats, or constant indices",
          name_of(data.dtype));
  require(
      reduction == "none", Code::unsupported, node.name,
      "it combines {} that depend on the model's inputs or weights (reduction {}); expected floats, or no reduction",
      name_of(data.dtype), printable(reduction));
  const auto flat = [&](ValueId id) { return c.reshape(id, {element_count(c.shape(id))}); };
  const ValueId places = places_in_list(c, node);
  const ValueId joined = c.add("Concat", {flat(node.inputs[0]), flat(node.inputs.at(2))}, {{"axis", std::int64_t{0}}});
  c.become(node, "Gather", {joined, places}, {{"axis", std::int64_t{0}}});
  return true;
}

bool scatter_elements(Canonical &c, Node &node) {
  if (!is_float(c.infer(node).at(0).dtype)) return scatter_whole(c, node);
  const ValueId data = node.inputs.at(0);
  const Attributes where = {{"axis", node.attributes.integer("axis", 0)}, {"shape", c.shape(data)}};
  return become_written(c, node, {"GatherElements", data, node.inputs.at(1), node.inputs.at(2), where});
}

bool scatter_nd(Canonical &c, Node &node) {
  if (!is_float(c.infer(node).at(0).dtype)) return scatter_whole(c, node);
  const Shape data = c.shape(node.inputs.at(0)), shape = c.shape(node.inputs.at(1));
  const Shape joined = with_front_joined(data, static_cast<std::size_t>(shape.back()));
  Shape rows(shape.begin(), shape.end() - 1);
  rows.insert(rows.end(), joined.begin() + 1, joined.end());
  return become_written(c, node,
                        {"Gather",
                         c.reshape(node.inputs[0], joined),
                         joined_indices(c, node.inputs[1], data),
                         c.reshape(node.inputs.at(2), rows),
                         {{"axis", std::int64_t{0}}, {"shape", joined}}});
}

bool one_hot(Canonical &c, Node &node) {
  const Type result = c.infer(node).at(0);
  const DType dtype = c.type(node.inputs[0]).dtype;
  if (!is_integer(dtype) || c.constant_of(node.inputs[2]) == nullptr) return false;
  const std::size_t rank = result.shape.size();
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", -1), rank, node.name);
  Shape column = c.shape(node.inputs[0]), along(rank, 1);
  column.insert(column.begin() + static_cast<std::ptrdiff_t>(axis), 1);
  along[axis] = result.shape[axis];
  Integers classes(static_cast<std::size_t>(along[axis]));
  std::iota(classes.begin(), classes.end(), 0);
  const ValueId at = c.rewriter().constant(graph::Array::from_integers({dtype, along}, classes));
  const ValueId hit = c.add("Equal", {c.reshape(counted_from_front(c, node.inputs[0], along[axis]), column), at});
  const auto value = [&](std::int64_t i) {
    const Attributes part = {{"starts", Integers{i}}, {"ends", Integers{i + 1}}, {"axes", Integers{0}}};
    return c.reshape(c.add("Slice", {node.inputs[2]}, part), {});
  };
  c.become(node, "Where", {hit, value(1), value(0)});
  return true;
}

// Returns the index of the input element that is copied to position `at` of a padded axis. Position 0 is the first one
// that is not a pad.
std::int64_t mirrored(std::int64_t at, std::int64_t dim, const std::string &mode) {
  if (mode == "edge") return std::clamp<std::int64_t>(at, 0, dim - 1);
  if (mode == "wrap") return ((at % dim) + dim) % dim;
  const std::int64_t period = std::max<std::int64_t>(1, 2 * (dim - 1));  // reflect
  const std::int64_t rest = ((at % period) + period) % period;
  return rest < dim ? rest : period - rest;
}

// Handles pads that copy elements, and negative pads, which cut elements off. For each padded axis, emits a Gather at
// constant indices.
bool pad(Canonical &c, Node &node) {
  const std::string mode = node.attributes.text("mode", "constant");
  Integers pads = node.attributes.integers("pads"), axes = node.attributes.integers("axes");
  const bool cuts = std::ranges::any_of(pads, [](std::int64_t n) { return n < 0; });
  if (node.inputs.size() != 1 || (mode == "constant" && !cuts)) return false;
  ValueId x = node.inputs[0];
  if (!node.attributes.has("axes")) {
    axes.resize(c.shape(x).size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  require(pads.size() == 2 * axes.size(), Code::shape, node.name, "{} pads for {} axes", pads.size(), axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = resolve_axis(axes[i], c.shape(x).size(), node.name);
    const std::int64_t dim = c.shape(x)[axis], before = pads[i], after = pads[axes.size() + i];
    std::int64_t first = -before,
                 last = dim + after;  // of the padded axis, relative to its first element before padding
    if (mode == "constant") {
      first = std::max<std::int64_t>(first, 0);
      last = std::min(last, dim);
    }
    require(last >= first && (dim > 0 || last == first), Code::shape, node.name, "pads {} of {}", to_text(pads),
            to_text(c.shape(x)));
    if (first == 0 && last == dim) continue;
    Integers from;
    for (std::int64_t at = first; at < last; ++at) from.push_back(mode == "constant" ? at : mirrored(at, dim, mode));
    x = c.add("Gather", {x, c.rewriter().constant(graph::Array::integers(from))},
              {{"axis", static_cast<std::int64_t>(axis)}});
  }
  if (mode != "constant") {
    c.pass(node, x);
    return true;
  }
  Attributes rest = node.attributes;
  for (std::int64_t &n : pads) n = std::max<std::int64_t>(n, 0);
  rest.set("pads", pads);
  c.become(node, "Pad", {x}, rest);
  return true;
}

// Cuts each axis to its new size, or pads it with zeros, at both ends.
bool center_crop_pad(Canonical &c, Node &node) {
  ValueId x = node.inputs.at(0);
  const Shape shape = c.shape(x);
  const Integers sizes = node.attributes.integers("shape");
  Integers axes = node.attributes.integers("axes");
  if (!node.attributes.has("axes")) {
    axes.resize(shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  if (node.inputs.size() != 1) return false;
  require(sizes.size() == axes.size(), Code::shape, node.name, "{} sizes for {} axes", sizes.size(), axes.size());
  Integers starts, ends, pads(2 * shape.size(), 0);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = resolve_axis(axes[i], shape.size(), node.name);
    const std::int64_t dim = shape[axis], size = sizes[i];
    require(size > 0 && size <= kLongestAxis, Code::shape, node.name, "a new size of {}", size);
    starts.push_back(std::max<std::int64_t>(0, dim - size) / 2);
    ends.push_back(starts.back() + std::min(dim, size));
    const std::int64_t more = std::max<std::int64_t>(0, size - dim);
    pads[axis] = more / 2;
    pads[shape.size() + axis] = more - more / 2;
  }
  x = c.add("Slice", {x}, {{"starts", starts}, {"ends", ends}, {"axes", axes}});
  c.become(node, "Pad", {x}, {{"pads", pads}, {"value", 0.0}});
  return true;
}

// Turns a Compress by a constant condition into a Gather. Without an axis, it picks from all elements of x in row-major
// order.
bool compress(Canonical &c, Node &node) {
  const graph::Array *condition = c.constant_of(node.inputs.at(1));
  if (condition == nullptr || condition->shape().size() != 1) return false;
  const Integers flags = condition->integers();
  ValueId x = node.inputs[0];
  if (!node.attributes.has("axis")) x = c.reshape(x, {element_count(c.shape(x))});
  const std::int64_t axis = node.attributes.integer("axis", 0);
  const std::int64_t dim = c.shape(x)[resolve_axis(axis, c.shape(x).size(), node.name)];
  require(static_cast<std::int64_t>(flags.size()) <= dim, Code::shape, node.name, "{} conditions for {} elements",
          flags.size(), dim);
  Integers chosen;
  for (std::size_t i = 0; i < flags.size(); ++i)
    if (flags[i] != 0) chosen.push_back(static_cast<std::int64_t>(i));
  c.become(node, "Gather", {x, c.rewriter().constant(graph::Array::integers(chosen))}, {{"axis", axis}});
  return true;
}

// Reverses the first lengths[b] elements of each sequence b, by a GatherElements at computed positions.
bool reverse_sequence(Canonical &c, Node &node) {
  const Shape shape = c.shape(node.inputs.at(0));
  const std::int64_t batch = node.attributes.integer("batch_axis", 1), time = node.attributes.integer("time_axis", 0);
  require(shape.size() >= 2 && batch + time == 1 && batch * time == 0, Code::graph, node.name,
          "batch axis {} and time axis {} of {}", batch, time, to_text(shape));
  Shape along_batch(shape.size(), 1), along_time(shape.size(), 1);
  along_batch[static_cast<std::size_t>(batch)] = shape[static_cast<std::size_t>(batch)];
  along_time[static_cast<std::size_t>(time)] = shape[static_cast<std::size_t>(time)];
  const Type lengths = c.type(node.inputs.at(1)), expected = {DType::i64, {shape[static_cast<std::size_t>(batch)]}};
  require(lengths == expected, Code::shape, node.name, "lengths of {}; expected {}", to_text(lengths),
          to_text(expected));
  require(element_count(along_time) <= kLongestSequence, Code::limit, node.name, "sequences of {} elements; at most {}",
          element_count(along_time), kLongestSequence);
  Integers steps(static_cast<std::size_t>(shape[static_cast<std::size_t>(time)]));
  std::iota(steps.begin(), steps.end(), 0);
  const ValueId positions = c.rewriter().constant(graph::Array::from_integers({DType::i64, along_time}, steps));
  const ValueId length = c.reshape(node.inputs[1], along_batch);
  const ValueId last = c.add("Sub", {length, integer(c, DType::i64, 1)});
  const ValueId at = c.add("Where", {c.add("Less", {positions, length}), c.add("Sub", {last, positions}), positions});
  c.become(node, "GatherElements", {node.inputs[0], c.add("Expand", {at}, {{"shape", shape}})}, {{"axis", time}});
  return true;
}

// Replaces the operand by zeros of the same type, so that the node is evaluated. The operand's values do not matter.
bool eye_like(Canonical &c, Node &node) {
  if (c.constant_of(node.inputs.at(0)) != nullptr) return false;
  c.become(node, "EyeLike", {c.rewriter().constant(graph::Array::filled(c.type(node.inputs[0]), 0))}, node.attributes);
  return true;
}

}  // namespace

Rules index_rules() {
  return {{"GatherND", gather_nd},
          {"CenterCropPad", center_crop_pad},
          {"Compress", compress},
          {"EyeLike", eye_like},
          {"ReverseSequence", reverse_sequence},
          {"ScatterElements", scatter_elements},
          {"ScatterND", scatter_nd},
          {"OneHot", one_hot},
          {"Pad", pad}};
}

}  // namespace protrain::passes
