// The k largest or smallest elements along an axis, and their indices.
#include <algorithm>
#include <numeric>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

std::size_t topk_axis(const Node &node, const Shape &shape) {
  return resolve_axis(node.attributes.integer("axis", -1), shape.size(), node.subject());
}

std::vector<Type> infer_topk(const NodeTypes &types) {
  Type values = types.input(0);
  require(types.node.attributes.has("k"), Code::unsupported, types.subject(),
          "the k of TopK is computed from data; shapes that depend on data are not supported");
  require(is_float(values.dtype) || is_integer(values.dtype), Code::type, types.subject(), "TopK does not take {}",
          name_of(values.dtype));
  std::int64_t &dim = values.shape[topk_axis(types.node, values.shape)];
  const std::int64_t k = types.node.attributes.integer("k", 0);
  require(k >= 0 && k <= dim, Code::shape, types.subject(), "the first {} of {} elements", k, dim);
  dim = k;
  return {values, {DType::i64, values.shape}};
}

// Picks the k largest or smallest elements, and their indices. Among equal elements, the first ones win.
template <typename T>
std::vector<Array> pick(const Node &node, const Array &x, std::span<const Type> out, const std::vector<T> &values) {
  const std::size_t axis = topk_axis(node, x.shape());
  const std::int64_t length = x.shape()[axis], inner = row_major_strides(x.shape())[axis];
  const std::int64_t k = out[0].shape[axis], lines = length == 0 ? 0 : element_count(x.shape()) / length;
  const bool largest = node.attributes.integer("largest", 1) != 0;
  std::vector<T> found(static_cast<std::size_t>(lines * k));
  std::vector<std::int64_t> places(found.size()), order(static_cast<std::size_t>(length));
  for (std::int64_t line = 0; line < lines; ++line) {
    const T *from = values.data() + line / inner * length * inner + line % inner;
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
      return largest ? from[a * inner] > from[b * inner] : from[a * inner] < from[b * inner];
    });
    for (std::int64_t i = 0; i < k; ++i) {
      const auto to = static_cast<std::size_t>(line / inner * k * inner + i * inner + line % inner);
      places[to] = order[static_cast<std::size_t>(i)];
      found[to] = from[places[to] * inner];
    }
  }
  return {array_of(out[0], found), array_of(out[1], places)};
}

std::vector<Array> evaluate_topk(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  return is_float(out[0].dtype) ? pick(node, *in[0], out, in[0]->doubles())
                                : pick(node, *in[0], out, in[0]->integers());
}

void differentiate_topk(GradientBuilder &builder, const Node &node) {
  const ValueId dy = gradient_for(builder, node);
  if (dy == ValueId::none) return;
  const Attributes attributes = {{"axis", node.attributes.integer("axis", -1)},
                                 {"shape", builder.type(node.inputs[0]).shape}};
  builder.contribute(node.inputs[0], builder.emit("GatherElementsGrad", {dy, node.outputs.at(1)}, attributes));
}

}  // namespace

Family topk_family() {
  return {{.name = "TopK",
           .infer = infer_topk,
           .evaluate = evaluate_topk,
           .gradient = differentiate_topk,
           .absorbed = {{1, "k"}}}};
}

}  // namespace protrain::ops
