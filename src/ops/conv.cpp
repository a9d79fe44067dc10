// Convolutions over 1 to 3 spatial axes.
//
//   Conv(x, w[, bias]) -> y
//     x (N, C, d...), w (M, C / group, k...), y (N, M, output...)
//   ConvTranspose(x, w[, bias]) -> y
//     The gradient of a Conv with respect to its x: here x is (N, M, output...), and y (N, C, d...).
//   ConvWeightGrad(x, dy) -> dw
//     The gradient of a Conv with respect to its w.
//
// Canonicalization writes out `strides`, `dilations`, `pads` and `group`. ConvWeightGrad also has `kernel_shape`.
//   ConvTranspose also has `output_padding`: the number of elements at an axis's end that no window reaches. This
// number is always less than the stride. In the gradient of a Conv, more elements would make room for another window.
// In a file's ConvTranspose there can be more elements, but canonicalization cuts them off (cut_off() in
// passes/canonical/windows.cpp). In canonical form the end of an axis can have pads, or elements that no window
// reaches, but never both.
#include <algorithm>

#include "ops/evaluate.h"
#include "ops/families.h"
#include "ops/windows.h"

namespace protrain::ops {

namespace {

using graph::ValueId;
using Integers = std::vector<std::int64_t>;

std::int64_t groups_of(const Node &node) { return node.attributes.integer("group", 1); }

// Returns the windows' size, from the shape of the weights. If there is an attribute kernel_shape, it must hold the
// same size.
Shape kernel_of(const Node &node, const Shape &weights) {
  const Shape kernel(weights.begin() + 2, weights.end());
  require(!node.attributes.has("kernel_shape") || node.attributes.integers("kernel_shape") == kernel, Code::shape,
          node.subject(), "kernel_shape {}, and weights of {}", to_text(node.attributes.integers("kernel_shape")),
          to_text(weights));
  return kernel;
}

Shape with_axes(std::int64_t samples, std::int64_t channels, const Shape &axes) {
  Shape shape = {samples, channels};
  shape.insert(shape.end(), axes.begin(), axes.end());
  return shape;
}

void require_axes(const NodeTypes &types, const Type &x) {
  require(x.shape.size() <= kMostWindowAxes + 2, Code::unsupported, types.subject(),
          "{} over {} axes; at most {} are supported", types.node.op, x.shape.size() - 2, kMostWindowAxes);
}

std::vector<Type> infer_conv(const NodeTypes &types) {
  const Type x = float_input(types, 0), &w = types.input(1);
  const std::int64_t groups = groups_of(types.node);
  const bool fits = w.dtype == x.dtype && w.shape.size() == x.shape.size() && x.shape.size() >= 3 && groups > 0 &&
                    x.shape[1] % groups == 0 && w.shape[1] == x.shape[1] / groups && w.shape[0] % groups == 0;
  require(fits, Code::shape, types.subject(), "weights {} in {} groups do not fit {}", to_text(w), groups, to_text(x));
  require(!types.has(2) || types.input(2) == Type({x.dtype, {w.shape[0]}}), Code::shape, types.subject(),
          "the bias is not one number for each of {} channels", w.shape[0]);
  require_axes(types, x);
  const SlidingWindows windows = windows_of(types.node, x.shape, kernel_of(types.node, w.shape));
  return {{x.dtype, with_axes(x.shape[0], w.shape[0], windows.output)}};
}

std::vector<Type> infer_conv_transpose(const NodeTypes &types) {
  const Type x = float_input(types, 0), &w = types.input(1);
  const std::int64_t groups = groups_of(types.node);
  const bool fits = w.dtype == x.dtype && w.shape.size() == x.shape.size() && x.shape.size() >= 3 && groups > 0 &&
                    w.shape[0] == x.shape[1] && x.shape[1] % groups == 0;
  require(fits, Code::shape, types.subject(), "weights {} in {} groups do not fit {}", to_text(w), groups, to_text(x));
  const std::int64_t channels = element_count({w.shape[1], groups});
  require(!types.has(2) || types.input(2) == Type({x.dtype, {channels}}), Code::shape, types.subject(),
          "the bias is not one number for each of {} channels", channels);
  require_axes(types, x);
  const SlidingWindows windows = transposed_windows_of(types.node, x.shape, kernel_of(types.node, w.shape));
  return {{x.dtype, with_axes(x.shape[0], channels, windows.input)}};
}

std::vector<Type> infer_conv_weight_gradient(const NodeTypes &types) {
  const Type x = float_input(types, 0), &dy = types.input(1);
  const std::int64_t groups = groups_of(types.node);
  const Shape kernel = types.node.attributes.integers("kernel_shape");
  const SlidingWindows windows = windows_of(types.node, x.shape, kernel);
  const bool fits = groups > 0 && dy.shape.size() == x.shape.size() && x.shape[1] % groups == 0 &&
                    dy == Type{x.dtype, with_axes(x.shape[0], dy.shape[1], windows.output)} &&
                    dy.shape[1] % groups == 0;
  require(fits, Code::shape, types.subject(), "the gradient {} in {} groups does not fit {}", to_text(dy), groups,
          to_text(x));
  return {{x.dtype, with_axes(dy.shape[1], x.shape[1] / groups, kernel)}};
}

// Walks over the products x * w of a convolution: x (N, C, d...), w (M, C / groups, k...) -> y (N, M, output...).
class Terms {
 public:
  Terms(const SlidingWindows &windows, const Shape &x, std::int64_t maps, std::int64_t groups)
      : windows_(windows), samples_(x[0]), channels_(x[1] / groups), maps_(maps), groups_(groups) {}

  // Calls act(position in x, in w, in y) for each product x * w that y sums up.
  template <typename Act>
  void each(Act act) const {
    const std::int64_t input = element_count(windows_.input), kernel = element_count(windows_.kernel);
    const std::int64_t output = element_count(windows_.output);
    for (std::int64_t n = 0; n < samples_; ++n)
      for (std::int64_t m = 0; m < maps_; ++m)
        for_each_reach(windows_, [&](std::int64_t i, std::int64_t k, std::int64_t o) {
          const std::int64_t first = m / (maps_ / groups_) * channels_;
          for (std::int64_t c = 0; c < channels_; ++c)
            act(static_cast<std::size_t>((n * channels_ * groups_ + first + c) * input + i),
                static_cast<std::size_t>((m * channels_ + c) * kernel + k),
                static_cast<std::size_t>((n * maps_ + m) * output + o));
        });
  }

 private:
  const SlidingWindows &windows_;
  std::int64_t samples_, channels_, maps_, groups_;  // channels_ counts those of one group
};

// Returns the values to which products are added: for each element of (N, M, positions) the bias of its channel, or 0.
std::vector<double> begun(const Type &type, const Array *bias) {
  std::vector<double> values(static_cast<std::size_t>(element_count(type.shape)));
  if (bias == nullptr) return values;
  const std::vector<double> of_channel = bias->doubles();
  const auto positions = static_cast<std::size_t>(element_count({type.shape.begin() + 2, type.shape.end()}));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = of_channel[i / positions % of_channel.size()];
  return values;
}

std::vector<Array> evaluate_conv(const Node &node, Inputs in, Types out) {
  const std::vector<double> x = in[0]->doubles(), w = in[1]->doubles();
  const SlidingWindows windows = windows_of(node, in[0]->shape(), kernel_of(node, in[1]->shape()));
  std::vector<double> y = begun(out[0], optional_input(in, 2));
  Terms(windows, in[0]->shape(), out[0].shape[1], groups_of(node))
      .each([&](std::size_t at, std::size_t k, std::size_t to) { y[to] += x[at] * w[k]; });
  return {array_of(out[0], y)};
}

std::vector<Array> evaluate_conv_transpose(const Node &node, Inputs in, Types out) {
  const std::vector<double> x = in[0]->doubles(), w = in[1]->doubles();
  const SlidingWindows windows = transposed_windows_of(node, in[0]->shape(), kernel_of(node, in[1]->shape()));
  std::vector<double> y = begun(out[0], optional_input(in, 2));
  Terms(windows, out[0].shape, in[0]->shape()[1], groups_of(node))
      .each([&](std::size_t to, std::size_t k, std::size_t at) { y[to] += x[at] * w[k]; });
  return {array_of(out[0], y)};
}

std::vector<Array> evaluate_conv_weight_gradient(const Node &node, Inputs in, Types out) {
  const std::vector<double> x = in[0]->doubles(), dy = in[1]->doubles();
  const SlidingWindows windows = windows_of(node, in[0]->shape(), node.attributes.integers("kernel_shape"));
  std::vector<double> dw(static_cast<std::size_t>(element_count(out[0].shape)));
  Terms(windows, in[0]->shape(), in[1]->shape()[1], groups_of(node))
      .each([&](std::size_t i, std::size_t to, std::size_t o) { dw[to] += x[i] * dy[o]; });
  return {array_of(out[0], dw)};
}

void contribute_bias(GradientBuilder &builder, const Node &node, ValueId dy) {
  if (node.inputs.size() < 3 || !builder.wants(node.inputs[2])) return;
  Integers axes = {0};
  for (std::size_t i = 2; i < builder.type(dy).shape.size(); ++i) axes.push_back(static_cast<std::int64_t>(i));
  builder.contribute(node.inputs[2], builder.emit("ReduceSum", {dy}, {{"axes", axes}, {"keepdims", std::int64_t{0}}}));
}

ValueId weight_gradient(GradientBuilder &builder, Attributes windows, ValueId x, ValueId dy, ValueId w) {
  const Shape &shape = builder.type(w).shape;
  windows.set("kernel_shape", Integers(shape.begin() + 2, shape.end()));
  return builder.emit("ConvWeightGrad", {x, dy}, std::move(windows));
}

void differentiate_conv(GradientBuilder &builder, const Node &node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]), x = node.inputs[0], w = node.inputs[1];
  const SlidingWindows windows = windows_of(node, builder.type(x).shape, kernel_of(node, builder.type(w).shape));
  if (builder.wants(x))
    builder.contribute(x, builder.emit("ConvTranspose", {dy, w}, transposed_attributes(windows, groups_of(node))));
  if (builder.wants(w))
    builder.contribute(w, weight_gradient(builder, conv_attributes(windows, groups_of(node)), x, dy, w));
  contribute_bias(builder, node, dy);
}

void differentiate_conv_transpose(GradientBuilder &builder, const Node &node) {
  const ValueId dy = builder.gradient_of(node.outputs[0]), x = node.inputs[0], w = node.inputs[1];
  const SlidingWindows windows =
      transposed_windows_of(node, builder.type(x).shape, kernel_of(node, builder.type(w).shape));
  const Attributes attributes = conv_attributes(windows, groups_of(node));
  if (builder.wants(x)) builder.contribute(x, builder.emit("Conv", {dy, w}, attributes));
  if (builder.wants(w)) builder.contribute(w, weight_gradient(builder, attributes, dy, x, w));
  contribute_bias(builder, node, dy);
}

// Returns the flops of a Conv or of one of its gradients. `small` is the shape (N, M, output...) of the Conv's y or dy,
// and `weights` is the shape (M, C / group, k...). Each element of y or dy takes two flops for each weight of its
// channel.
double flops_of(const Shape &small, const Shape &weights) {
  if (weights[0] == 0) return 0;
  return 2.0 * static_cast<double>(element_count(small)) * static_cast<double>(element_count(weights) / weights[0]);
}
double conv_flops(const NodeTypes &types, Types out) { return flops_of(out[0].shape, types.input(1).shape); }
double conv_transpose_flops(const NodeTypes &types, Types) {
  return flops_of(types.input(0).shape, types.input(1).shape);
}
double conv_weight_gradient_flops(const NodeTypes &types, Types out) {
  return flops_of(types.input(1).shape, out[0].shape);
}

// Returns an estimate of the scratch: on a GPU 64 MiB for unrolled windows, on a CPU copies of both operands in the
// kernel's own layout.
std::uint64_t conv_scratch(const NodeTypes &types, bool on_gpu) {
  constexpr std::uint64_t kUnrolled = 64 << 20;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < 2; ++i) bytes += byte_count(DType::f32, types.input(i).shape);
  return on_gpu ? kUnrolled : bytes;
}

}  // namespace

Family conv_family() {
  return {{.name = "Conv",
           .infer = infer_conv,
           .evaluate = evaluate_conv,
           .gradient = differentiate_conv,
           .flops = conv_flops,
           .optional = {2},
           .scratch = conv_scratch},
          {.name = "ConvTranspose",
           .infer = infer_conv_transpose,
           .evaluate = evaluate_conv_transpose,
           .gradient = differentiate_conv_transpose,
           .flops = conv_transpose_flops,
           .optional = {2},
           .scratch = conv_scratch},
          {.name = "ConvWeightGrad",
           .infer = infer_conv_weight_gradient,
           .evaluate = evaluate_conv_weight_gradient,
           .flops = conv_weight_gradient_flops,
           .scratch = conv_scratch}};
}

}  // namespace protrain::ops
