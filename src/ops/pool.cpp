// Pooling over 1 to 3 spatial axes. Canonicalization writes out `kernel_shape`, `strides`, `dilations`, `pads` and
// `ceil_mode`, and splits a pool over more axes.
//
//   MaxPool(x)[{storage_order}] -> y[, indices]
//     x (N, C, d...), y (N, C, output...). A pad is never the largest. Of equal elements the first one in row-major
//     order is chosen, and a NaN is larger than any number. The indices are positions in x; with `storage_order` = 1
//     the first spatial axis varies fastest.
//   MaxPoolGrad(dy, x) -> dx
//     Each window gives its gradient to the element that it chose.
//   AveragePool(x){count_include_pad} -> y
//     With `count_include_pad` = 1 a window's sum is divided by its number of elements and pads, without the pads that
//     `ceil_mode` adds. Otherwise it is divided by its number of elements.
//   AveragePoolGrad(dy){count_include_pad, shape} -> dx
//     `shape` is that of dx.
#include <cmath>
#include <limits>

#include "ops/evaluate.h"
#include "ops/families.h"
#include "ops/windows.h"

namespace protrain::ops {

namespace {

using graph::ValueId;
using Integers = std::vector<std::int64_t>;

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 27;  // of all windows of a channel

SlidingWindows pool_windows(const Node &node, const Shape &x) {
  return windows_of(node, x, node.attributes.integers("kernel_shape"));
}

Shape pooled_shape(const NodeTypes &types, const Shape &x) {
  const SlidingWindows windows = pool_windows(types.node, x);
  const std::uint64_t elements = checked_multiply(static_cast<std::uint64_t>(element_count(windows.kernel)),
                                                  static_cast<std::uint64_t>(element_count(windows.output)));
  require(elements <= kMostElements, Code::limit, types.subject(), "{} elements in all windows are too many", elements);
  Shape shape = {x[0], x[1]};
  shape.insert(shape.end(), windows.output.begin(), windows.output.end());
  return shape;
}

std::vector<Type> infer_pool(const NodeTypes &types) {
  const Type x = float_input(types, 0);
  const Shape shape = pooled_shape(types, x.shape);
  if (types.node.op == "MaxPool") return {{x.dtype, shape}, {DType::i64, shape}};
  return {{x.dtype, shape}};
}

std::vector<Type> infer_max_pool_gradient(const NodeTypes &types) {
  const Type dy = float_input(types, 0), &x = types.input(1);
  const Type expected{x.dtype, pooled_shape(types, x.shape)};
  require(dy == expected, Code::shape, types.subject(), "the gradient is {}, expected {}", to_text(dy),
          to_text(expected));
  return {x};
}

std::vector<Type> infer_average_pool_gradient(const NodeTypes &types) {
  const Type dy = float_input(types, 0);
  const Shape x = types.node.attributes.integers("shape");
  require(x.size() >= 3 && dy.shape == pooled_shape(types, x), Code::shape, types.subject(),
          "the gradient {} does not fit {}", to_text(dy), to_text(x));
  return {{dy.dtype, x}};
}

std::vector<Type> infer_global_pool(const NodeTypes &types) {
  Type x = float_input(types, 0);
  require(x.shape.size() >= 2, Code::shape, types.subject(), "{} does not take {}", types.node.op, to_text(x));
  std::fill(x.shape.begin() + 2, x.shape.end(), 1);
  return {x};
}

// Returns for each window of each (sample, channel) the position in x of the element that the window chooses. The
// position is -1 if the window contains only pads.
Integers chosen(const SlidingWindows &windows, const std::vector<double> &x) {
  const std::int64_t input = element_count(windows.input), output = element_count(windows.output);
  const std::int64_t planes = input == 0 ? 0 : static_cast<std::int64_t>(x.size()) / input;
  Integers all(static_cast<std::size_t>(planes * output), -1);
  for (std::int64_t plane = 0; plane < planes; ++plane)
    for_each_reach(windows, [&](std::int64_t i, std::int64_t, std::int64_t o) {
      std::int64_t &best = all[static_cast<std::size_t>(plane * output + o)];
      const std::int64_t at = plane * input + i;
      const double value = x[static_cast<std::size_t>(at)];
      if (best < 0 || value > x[static_cast<std::size_t>(best)] || std::isnan(value)) best = at;
    });
  return all;
}

// Converts `at`, a position in x in row-major order, to the order in which the first spatial axis varies fastest.
std::int64_t reordered(const Shape &axes, std::int64_t at) {
  const std::int64_t count = element_count(axes);
  std::int64_t step = count, rest = at % count, index = at - rest;
  for (std::size_t axis = axes.size(); axis-- > 0; rest /= axes[axis]) {
    step /= axes[axis];
    index += rest % axes[axis] * step;
  }
  return index;
}

std::vector<Array> evaluate_max_pool(const Node &node, Inputs in, Types out) {
  const std::vector<double> x = in[0]->doubles();
  const SlidingWindows windows = pool_windows(node, in[0]->shape());
  Integers at = chosen(windows, x);
  std::vector<double> y;
  for (const std::int64_t i : at)
    y.push_back(i < 0 ? -std::numeric_limits<double>::infinity() : x[static_cast<std::size_t>(i)]);
  std::vector<Array> results = {array_of(out[0], y)};
  if (out.size() < 2) return results;
  if (node.attributes.integer("storage_order", 0) != 0)
    for (std::int64_t &i : at) i = i < 0 ? i : reordered(windows.input, i);
  results.push_back(array_of(out[1], at));
  return results;
}

std::vector<Array> evaluate_max_pool_gradient(const Node &node, Inputs in, Types out) {
  const std::vector<double> dy = in[0]->doubles(), x = in[1]->doubles();
  const Integers at = chosen(pool_windows(node, in[1]->shape()), x);
  std::vector<double> dx(x.size());
  for (std::size_t o = 0; o < at.size(); ++o)
    if (at[o] >= 0) dx[static_cast<std::size_t>(at[o])] += dy[o];
  return {array_of(out[0], dx)};
}

// Calls act(position in x, position in y, divisor) for each element of each window. The window's sum is to be divided
// by the divisor.
template <typename Act>
void each_average(const Node &node, const Shape &x, Act act) {
  const SlidingWindows windows = pool_windows(node, x);
  const bool with_pads = node.attributes.integer("count_include_pad", 0) != 0;
  const std::int64_t input = element_count(windows.input), output = element_count(windows.output);
  std::vector<double> counts(static_cast<std::size_t>(output));
  SlidingWindows counted = windows;
  for (std::size_t i = 0; with_pads && i < counted.input.size(); ++i) {
    counted.input[i] += windows.before[i] + windows.after[i];
    counted.before[i] = 0;
  }
  for_each_reach(counted,
                 [&](std::int64_t, std::int64_t, std::int64_t o) { counts[static_cast<std::size_t>(o)] += 1; });
  for (std::int64_t plane = 0; plane < element_count({x[0], x[1]}); ++plane)
    for_each_reach(windows, [&](std::int64_t i, std::int64_t, std::int64_t o) {
      act(static_cast<std::size_t>(plane * input + i), static_cast<std::size_t>(plane * output + o),
          counts[static_cast<std::size_t>(o)]);
    });
}

std::vector<Array> evaluate_average_pool(const Node &node, Inputs in, Types out) {
  const std::vector<double> x = in[0]->doubles();
  std::vector<double> y(static_cast<std::size_t>(element_count(out[0].shape)));
  each_average(node, in[0]->shape(), [&](std::size_t i, std::size_t o, double elements) { y[o] += x[i] / elements; });
  return {array_of(out[0], y)};
}

std::vector<Array> evaluate_average_pool_gradient(const Node &node, Inputs in, Types out) {
  const std::vector<double> dy = in[0]->doubles();
  std::vector<double> dx(static_cast<std::size_t>(element_count(out[0].shape)));
  each_average(node, out[0].shape, [&](std::size_t i, std::size_t o, double elements) { dx[i] += dy[o] / elements; });
  return {array_of(out[0], dx)};
}

void differentiate_pool(GradientBuilder &builder, const Node &node) {
  const ValueId x = node.inputs[0], dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  Attributes attributes = node.attributes;
  if (node.op == "MaxPool") return builder.contribute(x, builder.emit("MaxPoolGrad", {dy, x}, attributes));
  attributes.set("shape", builder.type(x).shape);
  builder.contribute(x, builder.emit("AveragePoolGrad", {dy}, attributes));
}

// Returns the flops of a gradient: one for each element of each window.
double backward_flops(const NodeTypes &types, Types) {
  const auto windows = static_cast<double>(element_count(types.input(0).shape));  // as many as dy has elements
  return windows * static_cast<double>(element_count(types.node.attributes.integers("kernel_shape")));
}
double forward_flops(const NodeTypes &types, Types out) {
  return static_cast<double>(element_count(out[0].shape)) *
         static_cast<double>(element_count(types.node.attributes.integers("kernel_shape")));
}

// Returns the bytes of MaxPoolGrad's scratch. On a GPU the scratch holds, for each window, the position of the element
// that the window chose. On a CPU there is no scratch.
std::uint64_t choices(const NodeTypes &types, bool on_gpu) {
  return on_gpu ? byte_count(DType::i32, types.input(0).shape) : 0;
}

}  // namespace

Family pool_family() {
  return {{.name = "MaxPool",
           .infer = infer_pool,
           .evaluate = evaluate_max_pool,
           .gradient = differentiate_pool,
           .flops = forward_flops},
          {.name = "MaxPoolGrad",
           .infer = infer_max_pool_gradient,
           .evaluate = evaluate_max_pool_gradient,
           .flops = backward_flops,
           .scratch = choices},
          {.name = "AveragePool",
           .infer = infer_pool,
           .evaluate = evaluate_average_pool,
           .gradient = differentiate_pool,
           .flops = forward_flops},
          {.name = "AveragePoolGrad",
           .infer = infer_average_pool_gradient,
           .evaluate = evaluate_average_pool_gradient,
           .flops = backward_flops},
          {.name = "GlobalAveragePool", .infer = infer_global_pool, .file_only = true},
          {.name = "GlobalMaxPool", .infer = infer_global_pool, .file_only = true}};
}

}  // namespace protrain::ops
