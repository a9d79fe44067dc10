// Operators on gradient norms: for the step's report and for scaling gradients.
#include <algorithm>
#include <cmath>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

// SquaredNorm(tensors...) -> the sum of squares of each.
std::vector<Type> infer_squared(const NodeTypes &types) {
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    require(is_float(types.input(i).dtype), Code::type, types.subject(), "{} has no norm",
            name_of(types.input(i).dtype));
  return std::vector<Type>(types.inputs.size(), {DType::f64, {}});
}

std::vector<Array> evaluate_squared(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  std::vector<Array> sums;
  for (std::size_t i = 0; i < in.size(); ++i) {
    double sum = 0;
    for (double x : in[i]->doubles()) sum += x * x;
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

// ScaledNorm(norm, factor) -> norm / factor. Gradients are too large by `factor`: the sum of the micro-batches'
// weights, times the loss scale.
std::vector<Type> infer_scaled(const NodeTypes &types) { return infer_global(types); }

std::vector<Array> evaluate_scaled(const Node &, std::span<const Array *const> in, std::span<const Type> out) {
  return {array_of(out[0], std::vector<double>{in[0]->stored_double(0) / in[1]->stored_double(0)})};
}

// GradientScale(norm[, factor]){max_norm} -> what Updates multiply gradients by: 1 / factor, and less if `norm` exceeds
// max_norm (0: no limit). As in PyTorch, 1e-6 is added to the norm.
std::vector<Type> infer_scale(const NodeTypes &types) {
  for (std::size_t i = 0; i < types.inputs.size(); ++i)
    if (types.has(i)) require_norm(types, i);
  return {{DType::f32, {}}};
}

std::vector<Array> evaluate_scale(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const double max_norm = node.attributes.real("max_norm", 0), norm = in[0]->stored_double(0);
  const Array *weights = optional_input(in, 1);
  double scale = weights != nullptr ? 1 / weights->stored_double(0) : 1;
  if (max_norm > 0) scale *= std::min(1.0, max_norm / (norm + 1e-6));
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
          {.name = "GlobalNorm", .infer = infer_global, .evaluate = evaluate_global},
          {.name = "ScaledNorm", .infer = infer_scaled, .evaluate = evaluate_scaled},
          {.name = "GradientScale", .infer = infer_scale, .evaluate = evaluate_scale, .optional = {1}}};
}

}  // namespace protrain::ops
