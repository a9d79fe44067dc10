// Softmax and its logarithm along one axis.
#include <cmath>

#include "ops/element_walk.h"
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

std::vector<Type> infer_softmax(const NodeTypes &types) {
  const Type &x = types.input(0);
  require(is_float(x.dtype), Code::type, types.subject(), "{} does not take {}", types.node.op, name_of(x.dtype));
  resolve_axis(types.node.attributes.integer("axis", -1), x.shape.size(), types.subject());
  return {x};
}

std::vector<Type> infer_softmax_gradient(const NodeTypes &types) {
  require(types.input(0) == types.input(1), Code::shape, types.subject(), "{} is no gradient of {}",
          to_text(types.input(0)), to_text(types.input(1)));
  return infer_softmax(types);
}

// Calls visit(at, length) for every line along the axis. at(i) is the index of element i of the line.
template <typename Visit>
void for_each_line(const Node &node, const Shape &shape, Visit visit) {
  const std::size_t axis = resolve_axis(node.attributes.integer("axis", -1), shape.size(), node.name);
  const std::vector<std::int64_t> strides = row_major_strides(shape);
  Shape lines = shape;
  lines[axis] = std::min<std::int64_t>(1, shape[axis]);
  ElementWalk<1> walk(lines, {{strides}});
  for (std::int64_t line = element_count(lines); line > 0; --line) {
    visit([&](std::int64_t i) { return static_cast<std::size_t>(walk.offsets[0] + i * strides[axis]); }, shape[axis]);
    walk.next();
  }
}

std::vector<Array> evaluate_softmax(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  std::vector<double> y = in[0]->doubles();
  const bool logarithm = node.op == "LogSoftmax";
  for_each_line(node, out[0].shape, [&](auto at, std::int64_t length) {
    double largest = -INFINITY, sum = 0;
    for (std::int64_t i = 0; i < length; ++i) largest = std::max(largest, y[at(i)]);
    for (std::int64_t i = 0; i < length; ++i) sum += std::exp(y[at(i)] - largest);
    for (std::int64_t i = 0; i < length; ++i)
      y[at(i)] = logarithm ? y[at(i)] - largest - std::log(sum) : std::exp(y[at(i)] - largest) / sum;
  });
  return {array_of(out[0], y)};
}

// Computes dx. Softmax: dx = y (dy - sum(dy y)). LogSoftmax: dx = dy - exp(y) sum(dy).
std::vector<Array> evaluate_softmax_gradient(const Node &node, std::span<const Array *const> in,
                                             std::span<const Type> out) {
  const std::vector<double> dy = in[0]->doubles(), y = in[1]->doubles();
  const bool logarithm = node.op == "LogSoftmaxGrad";
  std::vector<double> dx(dy.size());
  for_each_line(node, out[0].shape, [&](auto at, std::int64_t length) {
    double sum = 0;
    for (std::int64_t i = 0; i < length; ++i) sum += logarithm ? dy[at(i)] : dy[at(i)] * y[at(i)];
    for (std::int64_t i = 0; i < length; ++i)
      dx[at(i)] = logarithm ? dy[at(i)] - std::exp(y[at(i)]) * sum : y[at(i)] * (dy[at(i)] - sum);
  });
  return {array_of(out[0], dx)};
}

void differentiate_softmax(GradientBuilder &builder, const Node &node) {
  if (!builder.wants(node.inputs[0])) return;
  const Attributes attributes = {{"axis", node.attributes.integer("axis", -1)}};
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  builder.contribute(node.inputs[0], builder.emit(node.op + "Grad", {dy, node.outputs[0]}, attributes));
}

double softmax_flops(const NodeTypes &types, std::span<const Type>) {
  return 5.0 * static_cast<double>(element_count(types.input(0).shape));
}

}  // namespace

Family softmax_family() {
  Family family;
  for (const char *name : {"Softmax", "LogSoftmax"})
    family.push_back({.name = name,
                      .infer = infer_softmax,
                      .evaluate = evaluate_softmax,
                      .gradient = differentiate_softmax,
                      .flops = softmax_flops});
  family.push_back({.name = "Hardmax", .infer = infer_softmax, .file_only = true});
  for (const char *name : {"SoftmaxGrad", "LogSoftmaxGrad"})
    family.push_back(
        {.name = name, .infer = infer_softmax_gradient, .evaluate = evaluate_softmax_gradient, .flops = softmax_flops});
  return family;
}

}  // namespace protrain::ops
