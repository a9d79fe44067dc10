// Rules for convolution and pooling. A convolution's attributes are written out. For a pool, a Reshape makes windows
// that are adjacent; a Gather with constant indices reads other windows from the padded input, and the gradient of the
// Gather sums up elements that windows share. A reduction over each window follows.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "ops/windows.h"
#include "passes/canonical/canonical.h"

namespace protrain::passes {

namespace {

using Integers = std::vector<std::int64_t>;
using ops::SlidingWindows;

Shape shape_of(std::initializer_list<std::int64_t> front, const Shape &back) {
  Shape shape = front;
  shape.insert(shape.end(), back.begin(), back.end());
  return shape;
}

Shape spatial(const Shape &shape) { return {shape.begin() + 2, shape.end()}; }

ValueId indices(Canonical &c, const SlidingWindows &w) {
  const Shape shape = {element_count(w.kernel), element_count(w.output)};
  return c.rewriter().constant(graph::Array::from_integers({DType::i64, shape}, window_indices(w)));
}

// Returns x (N, C, d...) as (N, C, padded elements). Pads, and elements that are missing at the end, are `value`.
ValueId padded(Canonical &c, const SlidingWindows &w, ValueId x, double value) {
  const Shape shape = c.shape(x);
  Integers pads(2 * shape.size(), 0);
  bool any = false;
  std::int64_t count = 1;
  for (std::size_t i = 0; i < w.kernel.size(); ++i) {
    pads[i + 2] = w.before[i];
    pads[shape.size() + i + 2] = w.padded(i) - w.before[i] - w.input[i];
    any = any || w.padded(i) != w.input[i];
    count *= w.padded(i);
  }
  if (any) x = c.add("Pad", {x}, {{"pads", pads}, {"value", value}});
  return c.reshape(x, {shape[0], shape[1], count});
}

// Cuts off the elements behind the last window. The windows lie side by side (see tile()).
ValueId cropped(Canonical &c, const SlidingWindows &w, ValueId x) {
  Integers starts, ends, axes;
  for (std::size_t i = 0; i < w.kernel.size(); ++i) {
    starts.push_back(0);
    ends.push_back(w.output[i] * w.kernel[i]);
    axes.push_back(static_cast<std::int64_t>(i) + 2);
  }
  return c.add("Slice", {x}, {{"starts", starts}, {"ends", ends}, {"axes", axes}});
}

// Returns x (N, C, o1 k1, o2 k2, ...) as (N, C, o1, k1, o2, k2, ...): along spatial axis i, oi windows of ki elements.
ValueId apart(Canonical &c, const SlidingWindows &w, ValueId x) {
  x = cropped(c, w, x);
  Shape shape = {c.shape(x)[0], c.shape(x)[1]};
  for (std::size_t i = 0; i < w.kernel.size(); ++i) shape.insert(shape.end(), {w.output[i], w.kernel[i]});
  return c.reshape(x, shape);
}

// Makes y (N, M, output...) the node's output, after adding the bias (M) if there is one.
void become_biased(Canonical &c, const Node &node, ValueId y, const Shape &result) {
  if (!has(node, 2)) return c.become(node, "Reshape", {y}, {{"shape", result}});
  Shape per_channel(result.size() - 1, 1);
  per_channel[0] = result[1];
  c.become(node, "Add", {c.reshape(y, result), c.reshape(node.inputs[2], per_channel)});
}

bool conv(Canonical &c, Node &node) {
  c.infer(node);  // refuses operands that do not fit
  const SlidingWindows windows = ops::windows_of(node, c.shape(node.inputs.at(0)), spatial(c.shape(node.inputs.at(1))));
  const Attributes written = ops::conv_attributes(windows, node.attributes.integer("group", 1));
  if (same(node.attributes, written)) return false;
  c.become(node, "Conv", node.inputs, written);
  return true;
}

// Adds up what windows share: (N, C, elements, windows) -> (N, C, d...).
ValueId overlapped(Canonical &c, const SlidingWindows &w, ValueId columns) {
  const Shape shape = c.shape(columns);
  Shape whole;
  Integers starts, ends, axes;
  for (std::size_t i = 0; i < w.kernel.size(); ++i) {
    whole.push_back(w.padded(i));
    starts.push_back(w.before[i]);
    ends.push_back(w.before[i] + w.input[i]);
    axes.push_back(static_cast<std::int64_t>(i) + 2);
  }
  const Shape flat = {shape[0], shape[1], element_count(whole)};
  const ValueId y = c.add("GatherGrad", {columns, indices(c, w)}, {{"axis", std::int64_t{2}}, {"shape", flat}});
  const ValueId padded = c.reshape(y, shape_of({shape[0], shape[1]}, whole));
  return c.add("Slice", {padded}, {{"starts", starts}, {"ends", ends}, {"axes", axes}});
}

// Leaves out of the windows' input the elements at an axis's end that could belong to further windows, and returns how
// many they are. There are some only if pads are negative.
Integers cut_off(SlidingWindows &w) {
  Integers beyond;
  for (std::size_t i = 0; i < w.kernel.size(); ++i) {
    const std::int64_t rest = w.before[i] + w.input[i] - w.reach(i);
    beyond.push_back(rest < w.strides[i] ? 0 : rest - rest % w.strides[i]);
    w.input[i] -= beyond[i];
  }
  return beyond;
}

bool conv_transpose(Canonical &c, Node &node) {
  const Shape result = c.infer(node).at(0).shape;
  SlidingWindows windows =
      ops::transposed_windows_of(node, c.shape(node.inputs.at(0)), spatial(c.shape(node.inputs.at(1))));
  const Integers beyond = cut_off(windows);
  const Attributes written = ops::transposed_attributes(windows, node.attributes.integer("group", 1));
  if (same(node.attributes, written)) return false;
  if (std::ranges::all_of(beyond, [](std::int64_t n) { return n == 0; })) {
    c.become(node, "ConvTranspose", node.inputs, written);
    return true;
  }
  Integers pads(result.size() + 2, 0);
  pads.insert(pads.end(), beyond.begin(), beyond.end());
  const ValueId y = c.add("ConvTranspose", {node.inputs[0], node.inputs[1]}, written);
  become_biased(c, node, c.add("Pad", {y}, {{"pads", pads}, {"value", 0.0}}), result);
  return true;
}

// (N, C * elements, windows) -> (N, C, d...)
bool col2im(Canonical &c, Node &node) {
  const Shape x = c.shape(node.inputs.at(0)), block = node.attributes.integers("block_shape");
  if (node.inputs.size() != 1) return false;
  const std::int64_t elements = element_count(block);
  require(x.size() == 3 && elements > 0 && x[1] % elements == 0, Code::shape, node.name,
          "blocks of {} do not divide {}", to_text(block), to_text(x));
  const Shape image = shape_of({x[0], x[1] / elements}, node.attributes.integers("image_shape"));
  const SlidingWindows windows = ops::windows_of(node, image, block);
  require(x[2] == element_count(windows.output), Code::shape, node.name, "{} blocks of {} in {}", x[2], to_text(block),
          to_text(image));
  c.pass(node, overlapped(c, windows, c.reshape(node.inputs[0], {x[0], image[1], elements, x[2]})));
  return true;
}

// Reduces (N, C, d...) over each window by `op`. Elements outside of x count as `outside`.
ValueId over_windows(Canonical &c, const SlidingWindows &w, ValueId x, const char *op, double outside) {
  if (w.tile()) {
    Integers axes;
    for (std::size_t i = 0; i < w.kernel.size(); ++i) axes.push_back(3 + 2 * static_cast<std::int64_t>(i));
    return c.add(op, {apart(c, w, x)}, {{"axes", axes}, {"keepdims", std::int64_t{0}}});
  }
  const ValueId columns = c.add("Gather", {padded(c, w, x, outside), indices(c, w)}, {{"axis", std::int64_t{2}}});
  return c.add(op, {columns}, {{"axes", Integers{2}}, {"keepdims", std::int64_t{0}}});
}

bool average_pool(Canonical &c, Node &node) {
  const Type result = c.infer(node).at(0);
  const SlidingWindows w = ops::windows_of(node, c.shape(node.inputs.at(0)), node.attributes.integers("kernel_shape"));
  std::vector<double> shares = window_counts(w, node.attributes.integer("count_include_pad", 0) != 0);
  for (double &share : shares) share = 1 / share;
  const ValueId sum = c.reshape(over_windows(c, w, node.inputs[0], "ReduceSum", 0), result.shape);
  const ValueId share = c.rewriter().constant(graph::Array::from_doubles({result.dtype, w.output}, shares).compact());
  c.become(node, "Mul", {sum, share});
  return true;
}

bool max_pool(Canonical &c, Node &node) {
  if (c.rewriter().is_read(node, 1)) return false;
  const Shape result = c.infer(node).at(0).shape;
  const SlidingWindows w = ops::windows_of(node, c.shape(node.inputs.at(0)), node.attributes.integers("kernel_shape"));
  Node first = node;
  first.outputs.resize(1);
  const double lowest = -std::numeric_limits<double>::infinity();
  c.become(first, "Reshape", {over_windows(c, w, node.inputs[0], "ReduceMax", lowest)}, {{"shape", result}});
  return true;
}

bool global_pool(Canonical &c, Node &node) {
  Integers axes;
  for (std::size_t i = 2; i < c.shape(node.inputs.at(0)).size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  if (axes.empty()) {
    c.pass(node, node.inputs[0]);
    return true;
  }
  c.become(node, node.op == "GlobalMaxPool" ? "ReduceMax" : "ReduceMean", node.inputs,
           {{"axes", axes}, {"keepdims", std::int64_t{1}}});
  return true;
}

}  // namespace

Rules window_rules() {
  return {{"Col2Im", col2im},
          {"Conv", conv},
          {"ConvTranspose", conv_transpose},
          {"AveragePool", average_pool},
          {"MaxPool", max_pool},
          {"GlobalAveragePool", global_pool},
          {"GlobalMaxPool", global_pool}};
}

}  // namespace protrain::passes
