// Operators on gradient norms, for the step's report and for clipping and scaling gradients.
#include <algorithm>
#include <cmath>

#include "arith/norm_tree.h"
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

// SquaredNorm(tensors...){piece} -> the sum of squares of each tensor. With the attribute `piece`, each result is a
// vector with the sum of each contiguous stretch of `piece` elements. The last stretch may be shorter. `piece` is
// kNormPiece times a power of two.
std::vector<Type> infer_squared(const NodeTypes &types) {
  const bool in_pieces = types.node.attributes.has("piece");
  const std::int64_t piece = types.node.attributes.integer("piece", 0);
  require(!in_pieces || arith::is_norm_piece(piece), Code::unsupported, types.subject(),
          "norms of pieces of {} elements; a piece has {}, or a power of two times as many", piece, arith::kNormPiece);
  std::vector<Type> sums;
  for (std::size_t i = 0; i < types.inputs.size(); ++i) {
    const Type &tensor = types.input(i);
    require(is_float(tensor.dtype), Code::type, types.subject(), "{} has no norm", name_of(tensor.dtype));
    sums.push_back({DType::f64, in_pieces ? Shape{divided_up(element_count(tensor.shape), piece)} : Shape{}});
  }
  return sums;
}

std::vector<Array> evaluate_squared(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const auto piece = static_cast<std::size_t>(node.attributes.integer("piece", 0));
  std::vector<Array> results;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::vector<double> x = in[i]->doubles();
    std::vector<double> sums(static_cast<std::size_t>(element_count(out[i].shape)));
    for (std::size_t e = 0; e < x.size(); ++e) sums[piece > 0 ? e / piece : 0] += x[e] * x[e];
    results.push_back(array_of(out[i], sums));
  }
  return results;
}

// JoinSquares(pieces...) -> the squared norm of each tensor. Each input holds the sums of squares of a tensor's pieces,
// as SquaredNorm with `piece` returns them. The result is bitwise equal to SquaredNorm of the whole tensor.
std::vector<Type> infer_join(const NodeTypes &types) {
  for (std::size_t i = 0; i < types.inputs.size(); ++i) {
    const Type &pieces = types.input(i);
    require(pieces.dtype == DType::f64 && pieces.shape.size() == 1, Code::type, types.subject(),
            "{} are no norms of pieces; a vector of float64 is expected", to_text(pieces));
  }
  return std::vector<Type>(types.inputs.size(), {DType::f64, {}});
}

std::vector<Array> evaluate_join(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  std::vector<Array> sums;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const std::vector<double> pieces = in[i]->doubles();
    const double sum = arith::tree_sum(pieces.data(), static_cast<std::int64_t>(pieces.size()));
    sums.push_back(array_of(out[i], std::vector<double>{sum}));
  }
  return sums;
}

void require_norm(const NodeTypes &types, std::size_t i) {
  require(types.input(i) == Type({DType::f64, {}}), Code::type, types.subject(), "{} is no norm",
          to_text(types.input(i)));
}

std::vector<Type> infer_global(const NodeTypes &types) {
  for (std::size_t i = 0; i < types.inputs.size(); ++i) require_norm(types, i);
  return {{DType::f64, {}}};
}

std::vector<Array> evaluate_global(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  double sum = 0;
  for (const Array *squared : in) sum += squared->stored_double(0);
  return {array_of(out[0], std::vector<double>{std::sqrt(sum)})};
}

// ScaledNorm(norm, factor) -> norm / |factor|. `norm` is the norm of gradients that are still multiplied by `factor`,
// which is the sum of the micro-batches' weights, times the loss scale. The factor may be negative, because weights of
// labels may be negative.
std::vector<Type> infer_scaled(const NodeTypes &types) { return infer_global(types); }

std::vector<Array> evaluate_scaled(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  return {array_of(out[0], std::vector<double>{in[0]->stored_double(0) / std::abs(in[1]->stored_double(0))})};
}

// GradientScale([norm][, factor]){max_norm} -> the number by which Updates multiply gradients. It is 1 / factor, and
// less if `norm` exceeds max_norm. There is no limit if max_norm is 0 or `norm` is absent. As in PyTorch, 1e-6 is added
// to the norm.
std::vector<Type> infer_scale(const NodeTypes &types) {
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    if (types.has(i)) require_norm(types, i);
  return {{DType::f32, {}}};
}

std::vector<Array> evaluate_scale(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const double max_norm = node.attributes.real("max_norm", 0);
  const Array *norm = optional_input(in, 0);
  const Array *weights = optional_input(in, 1);
  double scale = weights != nullptr ? 1 / weights->stored_double(0) : 1;
  if (max_norm > 0 && norm != nullptr) scale *= std::min(1.0, max_norm / (norm->stored_double(0) + 1e-6));
  return {array_of(out[0], std::vector<double>{scale})};
}

// LossScale() -> the factor that the step applies to its loss before differentiating it. It is 1 outside a step.
std::vector<Type> infer_loss_scale(const NodeTypes &) { return {{DType::f64, {}}}; }

std::vector<Array> evaluate_loss_scale(const Node &, std::span<const Array *const>, std::span<const Type> out) {
  return {array_of(out[0], std::vector<double>{1})};
}

}  // namespace

Family norm_family() {
  return {{.name = "LossScale", .infer = infer_loss_scale, .evaluate = evaluate_loss_scale},
          {.name = "SquaredNorm", .infer = infer_squared, .evaluate = evaluate_squared},
          {.name = "JoinSquares", .infer = infer_join, .evaluate = evaluate_join},
          {.name = "GlobalNorm", .infer = infer_global, .evaluate = evaluate_global},
          {.name = "ScaledNorm", .infer = infer_scaled, .evaluate = evaluate_scaled},
          {.name = "GradientScale", .infer = infer_scale, .evaluate = evaluate_scale, .optional = {0, 1}}};
}

}  // namespace protrain::ops
