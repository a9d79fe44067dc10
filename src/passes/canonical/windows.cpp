// Rules for convolutions, pooling and Col2Im. They set every attribute of a convolution or pool, defaults included. A
// pool over more than kMostWindowAxes spatial axes becomes several pools. The last axes are pooled first, so that a
// MaxPool chooses the first of equal elements in row-major order.
#include <algorithm>

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

// Adds the node's bias (M), if the node has one, to y (N, M, output...), and replaces the node's output by the result.
void become_biased(Canonical &c, const Node &node, ValueId y, const Shape &result) {
  if (!has(node, 2)) return c.become(node, "Reshape", {y}, {{"shape", result}});
  Shape per_channel(result.size() - 1, 1);
  per_channel[0] = result[1];
  c.become(node, "Add", {c.reshape(y, result), c.reshape(node.inputs[2], per_channel)});
}

// Replaces a convolution by its bias if x or the weights have no elements, because its sums are then 0. Returns false
// for other convolutions.
bool become_bias_alone(Canonical &c, const Node &node, const Shape &result) {
  const bool sums = element_count(c.shape(node.inputs.at(0))) > 0 && element_count(c.shape(node.inputs.at(1))) > 0;
  if (sums) return false;
  become_biased(c, node, c.rewriter().constant(graph::Array::filled({c.type(node.inputs[0]).dtype, result}, 0)),
                result);
  return true;
}

bool conv(Canonical &c, Node &node) {
  if (become_bias_alone(c, node, c.infer(node).at(0).shape)) return true;
  const SlidingWindows windows = ops::windows_of(node, c.shape(node.inputs.at(0)), spatial(c.shape(node.inputs.at(1))));
  const Attributes written = ops::conv_attributes(windows, node.attributes.integer("group", 1));
  if (same(node.attributes, written)) return false;
  c.become(node, "Conv", node.inputs, written);
  return true;
}

// Adds up the elements that windows share: (N, C, elements, windows) -> (N, C, d...).
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

// Shortens an axis of the windows' input at its end if a further window would fit behind the last one. This happens
// only if output_shape, output_padding or negative pads make an axis too long. Returns the number of removed elements
// for each axis; conv_transpose() adds these elements again as zeros.
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
  if (become_bias_alone(c, node, result)) return true;
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

// Adds up overlapping blocks to images: (N, C * elements, windows) -> (N, C, d...).
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

// Returns the part of a list that belongs to the spatial axes from `first` up to `last`.
Integers part_of(const Integers &list, std::size_t first, std::size_t last) {
  return {list.begin() + static_cast<std::ptrdiff_t>(first), list.begin() + static_cast<std::ptrdiff_t>(last)};
}

// Returns the attributes of a pool over the spatial axes from `first` up to `last`.
Attributes pool_attributes(const Node &node, const SlidingWindows &w, std::size_t first, std::size_t last) {
  Integers pads = part_of(w.before, first, last);
  const Integers after = part_of(w.after, first, last);
  pads.insert(pads.end(), after.begin(), after.end());
  Attributes attributes = {{"kernel_shape", part_of(w.kernel, first, last)},
                           {"strides", part_of(w.strides, first, last)},
                           {"dilations", part_of(w.dilations, first, last)},
                           {"pads", pads},
                           {"ceil_mode", node.attributes.integer("ceil_mode", 0)}};
  if (node.op == "AveragePool")
    attributes.set("count_include_pad", node.attributes.integer("count_include_pad", 0));
  else if (node.outputs.size() > 1)
    attributes.set("storage_order", node.attributes.integer("storage_order", 0));
  return attributes;
}

// Pools the axes in several steps, from the last axes to the first. In each step, the axes in front of the pooled ones
// are joined to the channels, and the axes behind the pooled ones are joined to one axis with a window of 1. The joined
// axis is one of the step's kMostWindowAxes spatial axes, so a step pools at most kMostWindowAxes - 1 of x's axes.
ValueId pool_in_parts(Canonical &c, const Node &node, SlidingWindows w, ValueId x) {
  for (std::size_t last = w.kernel.size(); last > 0;) {
    const std::size_t first = last - std::min(last, ops::kMostWindowAxes - 1);
    const auto at = static_cast<std::ptrdiff_t>(last);
    for (Integers *list : {&w.kernel, &w.strides, &w.dilations}) list->insert(list->begin() + at, 1);
    for (Integers *list : {&w.before, &w.after}) list->insert(list->begin() + at, 0);
    Shape shape = c.shape(x);
    const auto axis = shape.begin() + 2;
    Shape joined = {shape[0], element_count({shape.begin() + 1, axis + static_cast<std::ptrdiff_t>(first)})};
    joined.insert(joined.end(), axis + static_cast<std::ptrdiff_t>(first), axis + at);
    joined.push_back(element_count({axis + at, shape.end()}));
    x = c.add(node.op, {c.reshape(x, joined)}, pool_attributes(node, w, first, last + 1));
    for (std::size_t i = first; i < last; ++i) shape[i + 2] = w.output[i];
    x = c.reshape(x, shape);
    last = first;
  }
  return x;
}

bool pool(Canonical &c, Node &node) {
  const SlidingWindows w = ops::windows_of(node, c.shape(node.inputs.at(0)), node.attributes.integers("kernel_shape"));
  Node made = node;
  if (node.op == "MaxPool" && !c.rewriter().is_read(node, 1)) made.outputs.resize(1);
  if (w.kernel.size() > ops::kMostWindowAxes && made.outputs.size() == 1) {
    c.pass(made, pool_in_parts(c, made, w, node.inputs[0]));
    return true;
  }
  const Attributes written = pool_attributes(made, w, 0, w.kernel.size());
  if (made.outputs.size() == node.outputs.size() && same(node.attributes, written)) return false;
  c.become(made, node.op, node.inputs, written);
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
          {"AveragePool", pool},
          {"MaxPool", pool},
          {"GlobalAveragePool", global_pool},
          {"GlobalMaxPool", global_pool}};
}

}  // namespace protrain::passes
