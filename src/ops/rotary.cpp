// Rotary position embedding: pairs of features rotated by an angle that depends on the position.
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

std::vector<Type> infer_rotary_file_form(const NodeTypes &types) { return {types.input(0)}; }

// Infers the result of Rotary(x, cos, sin): x (B, S, H, D); cos and sin (1 or B, S, R / 2), where R is the number of
// rotated features.
std::vector<Type> infer_rotary(const NodeTypes &types) {
  const Type &x = types.input(0);
  require(x.shape.size() == 4, Code::shape, types.subject(), "Rotary takes (B, S, H, D), not {}", to_text(x));
  const std::int64_t rotated = types.node.attributes.integer("rotary_dim", x.shape[3]);
  require(rotated >= 0 && rotated <= x.shape[3] && rotated % 2 == 0, Code::shape, types.subject(),
          "{} of {} features cannot be rotated in pairs", rotated, x.shape[3]);
  for (std::size_t i : {1, 2}) {
    const Type &table = types.input(i);
    const bool fits = table.shape.size() == 3 && (table.shape[0] == 1 || table.shape[0] == x.shape[0]) &&
                      table.shape[1] == x.shape[1] && table.shape[2] == rotated / 2 && table.dtype == x.dtype;
    require(fits, Code::shape, types.subject(), "a table of {} does not fit {} with {} rotated features",
            to_text(table), to_text(x), rotated);
  }
  return {x};
}

std::vector<Array> evaluate_rotary(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Shape &shape = out[0].shape;
  const std::int64_t rotated = node.attributes.integer("rotary_dim", shape[3]), half = rotated / 2;
  const bool interleaved = node.attributes.integer("interleaved", 0) != 0;
  const double sign = node.attributes.integer("inverse", 0) != 0 ? -1 : 1;
  const std::vector<double> x = in[0]->doubles();
  const std::vector<double> cos = in[1]->expanded({shape[0], shape[1], half}).doubles();
  const std::vector<double> sin = in[2]->expanded({shape[0], shape[1], half}).doubles();
  std::vector<double> y = x;
  for (std::int64_t row = 0; row < shape[0] * shape[1] * shape[2]; ++row) {
    const std::int64_t position = row / shape[2];
    for (std::int64_t i = 0; i < half; ++i) {
      const auto a = static_cast<std::size_t>(row * shape[3] + (interleaved ? 2 * i : i));
      const std::size_t b = a + static_cast<std::size_t>(interleaved ? 1 : half);
      const auto angle = static_cast<std::size_t>(position * half + i);
      y[a] = x[a] * cos[angle] - sign * x[b] * sin[angle];
      y[b] = x[b] * cos[angle] + sign * x[a] * sin[angle];
    }
  }
  return {array_of(out[0], y)};
}

// Emits the gradient of x, which is dy rotated back by the same angles: the transpose of a rotation is its inverse.
void differentiate_rotary(GradientBuilder &builder, const Node &node) {
  require(!builder.wants(node.inputs[1]) && !builder.wants(node.inputs[2]), Code::unsupported, node.name,
          "{} has no gradient to its tables of cosines and sines", node.op);
  if (!builder.wants(node.inputs[0])) return;
  Attributes attributes = node.attributes;
  attributes.set("inverse", std::int64_t{node.attributes.integer("inverse", 0) == 0});
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  builder.contribute(node.inputs[0], builder.emit("Rotary", {dy, node.inputs[1], node.inputs[2]}, attributes));
}

double rotary_flops(const NodeTypes &types, std::span<const Type>) {
  return 3.0 * static_cast<double>(element_count(types.input(0).shape));
}

}  // namespace

Family rotary_family() {
  return {{.name = "RotaryEmbedding", .infer = infer_rotary_file_form, .optional = {3}, .file_only = true},
          {.name = "Rotary",
           .infer = infer_rotary,
           .evaluate = evaluate_rotary,
           .gradient = differentiate_rotary,
           .flops = rotary_flops}};
}

}  // namespace protrain::ops
