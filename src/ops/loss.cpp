// Cross entropy in three forms: ONNX's, our core form over logits (M rows, C classes), and one that computes its
// logits itself, in slices.
#include <algorithm>
#include <cmath>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

bool is_mean(const Node &node) { return node.attributes.text("reduction", "mean") == "mean"; }
bool is_per_row(const Node &node) { return node.attributes.text("reduction", "mean") == "none"; }

void require_labels(const NodeTypes &types, const Type &labels, std::int64_t rows) {
  require(labels.dtype == DType::i64 || labels.dtype == DType::i32, Code::type, types.subject(),
          "labels are {}, not int64 or int32", name_of(labels.dtype));
  require(labels.shape == Shape{rows}, Code::shape, types.subject(), "labels of shape {} for {} rows",
          to_text(labels.shape), rows);
}

// True if a row counts: its label is not the ignored one. Code::arg if the label is out of range.
bool counted(const Node &node, std::int64_t label, std::int64_t classes) {
  if (node.attributes.has("ignore_index") && label == node.attributes.integer("ignore_index", 0)) return false;
  require(label >= 0 && label < classes, Code::arg, node.name, "label {} is outside 0..{}", label, classes - 1);
  return true;
}

std::int64_t count_rows(const Node &node, const std::vector<std::int64_t> &labels, std::int64_t classes) {
  return std::ranges::count_if(labels, [&](std::int64_t label) { return counted(node, label, classes); });
}

// Returns log(sum(exp(x))) over `classes` logits x.
double log_sum_exp(const double *logits, std::int64_t classes) {
  const double largest = *std::max_element(logits, logits + classes);
  double sum = 0;
  for (std::int64_t i = 0; i < classes; ++i) sum += std::exp(logits[i] - largest);
  return largest + std::log(sum);
}

std::vector<Type> infer_cross_entropy(const NodeTypes &types) {
  const Type &logits = types.input(0);
  require(logits.shape.size() == 2 && is_float(logits.dtype) && logits.shape[1] > 0, Code::shape, types.subject(),
          "logits of {} are not (M, C)", to_text(logits));
  require_labels(types, types.input(1), logits.shape[0]);
  const Type rows{sum_dtype(logits.dtype), {logits.shape[0]}};
  return {is_per_row(types.node) ? rows : Type{rows.dtype, {}}, rows};
}

std::vector<Array> evaluate_cross_entropy(const Node &node, std::span<const Array *const> in,
                                          std::span<const Type> out) {
  const std::int64_t classes = in[0]->shape()[1];
  const std::vector<double> logits = in[0]->doubles();
  const std::vector<std::int64_t> labels = in[1]->integers();
  std::vector<double> losses(labels.size(), 0.0), sums(labels.size());
  double total = 0;
  for (std::size_t row = 0; row < labels.size(); ++row) {
    const double *at = logits.data() + row * static_cast<std::size_t>(classes);
    sums[row] = log_sum_exp(at, classes);
    if (!counted(node, labels[row], classes)) continue;
    losses[row] = sums[row] - at[labels[row]];
    total += losses[row];
  }
  if (is_mean(node)) total /= static_cast<double>(count_rows(node, labels, classes));
  return {is_per_row(node) ? array_of(out[0], losses) : array_of(out[0], std::vector<double>{total}),
          array_of(out[1], sums)};
}

// CrossEntropyGrad(dloss, logits, labels, lse) -> dlogits = dloss (softmax(logits) - onehot(label)), divided by the
// number of counted rows if the loss is a mean. lse is log(sum(exp(logits))) of each row.
std::vector<Type> infer_cross_entropy_gradient(const NodeTypes &types) { return {types.input(1)}; }

std::vector<Array> evaluate_cross_entropy_gradient(const Node &node, std::span<const Array *const> in,
                                                   std::span<const Type> out) {
  const auto classes = static_cast<std::size_t>(in[1]->shape()[1]);
  const std::vector<double> dloss = in[0]->doubles(), logits = in[1]->doubles(), sums = in[3]->doubles();
  const std::vector<std::int64_t> labels = in[2]->integers();
  const double share = is_mean(node) ? 1 / static_cast<double>(count_rows(node, labels, in[1]->shape()[1])) : 1;
  std::vector<double> dx(logits.size(), 0.0);
  for (std::size_t row = 0; row < labels.size(); ++row) {
    if (!counted(node, labels[row], in[1]->shape()[1])) continue;
    const double factor = dloss[dloss.size() > 1 ? row : 0] * share;
    for (std::size_t i = 0; i < classes; ++i) {
      const double target = static_cast<std::int64_t>(i) == labels[row] ? 1 : 0;
      dx[row * classes + i] = factor * (std::exp(logits[row * classes + i] - sums[row]) - target);
    }
  }
  return {array_of(out[0], dx)};
}

void differentiate_cross_entropy(GradientBuilder &builder, const Node &node) {
  if (!builder.wants(node.inputs[0])) return;
  const ValueId dloss = builder.gradient_of(node.outputs[0]);
  builder.contribute(
      node.inputs[0],
      builder.emit("CrossEntropyGrad", {dloss, node.inputs[0], node.inputs[1], node.outputs.at(1)}, node.attributes));
}

// Checks the operands x (M, D), w (V, D) or (D, V), labels (M)[, bias (V)]. Returns V, the number of classes.
std::int64_t vocabulary(const NodeTypes &types) {
  const Type &x = types.input(0), &w = types.input(1);
  const bool rows = types.node.attributes.integer("trans_w", 1) != 0;
  const bool fits = x.shape.size() == 2 && w.shape.size() == 2 && w.shape[rows ? 1 : 0] == x.shape[1] &&
                    x.dtype == w.dtype && is_float(x.dtype);
  require(fits, Code::shape, types.subject(), "x {} and w {} make no logits", to_text(x), to_text(w));
  const std::int64_t classes = w.shape[rows ? 0 : 1];
  require(!types.has(3) || types.input(3) == Type({x.dtype, {classes}}), Code::shape, types.subject(),
          "the bias is not one number for each of {} classes", classes);
  require_labels(types, types.input(2), x.shape[0]);
  require(!is_per_row(types.node), Code::unsupported, types.subject(), "LinearCrossEntropy reduces to a scalar");
  return classes;
}

std::vector<Type> infer_linear(const NodeTypes &types) {
  vocabulary(types);
  return {{sum_dtype(types.input(0).dtype), {}}};
}

// LinearCrossEntropyGrad(x, w, labels[, bias][, dloss]) -> loss, dx, dw[, dbias]. An absent dloss is 1. dloss has the
// type of the loss and is applied before anything is rounded.
std::vector<Type> infer_linear_gradient(const NodeTypes &types) {
  vocabulary(types);
  require(!types.has(4) || types.input(4) == Type({sum_dtype(types.input(0).dtype), {}}), Code::type, types.subject(),
          "dloss is {}", types.has(4) ? to_text(types.input(4)) : "");
  std::vector<Type> out = {{sum_dtype(types.input(0).dtype), {}}, types.input(0), types.input(1)};
  if (types.has(3)) out.push_back(types.input(3));
  return out;
}

// Computes logits (M, V) from x (M, D), bias (V) and w, which is (V, D) if `transposed`, else (D, V).
struct Linear {
  Linear(const Node &node, std::span<const Array *const> in)
      : x(in[0]->doubles()),
        w(in[1]->doubles()),
        bias(optional_input(in, 3) != nullptr ? in[3]->doubles() : std::vector<double>()),
        rows(static_cast<std::size_t>(in[0]->shape()[0])),
        width(static_cast<std::size_t>(in[0]->shape()[1])),
        transposed(node.attributes.integer("trans_w", 1) != 0),
        classes(static_cast<std::size_t>(in[1]->shape()[transposed ? 0 : 1])) {}

  std::size_t weight(std::size_t c, std::size_t d) const { return transposed ? c * width + d : d * classes + c; }

  std::vector<double> logits() const {
    std::vector<double> y(rows * classes);
    for (std::size_t m = 0; m < rows; ++m)
      for (std::size_t c = 0; c < classes; ++c) {
        double sum = bias.empty() ? 0 : bias[c];
        for (std::size_t d = 0; d < width; ++d) sum += x[m * width + d] * w[weight(c, d)];
        y[m * classes + c] = sum;
      }
    return y;
  }

  std::vector<double> x, w, bias;
  std::size_t rows, width;
  bool transposed;
  std::size_t classes;
};

Array logits_of(const Linear &linear) {
  const Shape shape = {static_cast<std::int64_t>(linear.rows), static_cast<std::int64_t>(linear.classes)};
  return Array::from_doubles({DType::f64, shape}, linear.logits());
}

std::vector<Array> evaluate_linear(const Node &node, std::span<const Array *const> in, std::span<const Type> out) {
  const Array logits = logits_of(Linear(node, in));
  const std::array<const Array *, 2> operands = {&logits, in[2]};
  const std::vector<Type> types = {out[0], {DType::f64, in[2]->shape()}};
  return {evaluate_cross_entropy(node, operands, types)[0]};
}

std::vector<Array> evaluate_linear_gradient(const Node &node, std::span<const Array *const> in,
                                            std::span<const Type> out) {
  const Linear linear(node, in);
  const Array *given = optional_input(in, 4);
  const Array logits = logits_of(linear), dloss = given != nullptr ? *given : Array::scalar(DType::f64, 1);
  const std::array<const Array *, 2> operands = {&logits, in[2]};
  const std::vector<Type> types = {out[0], {DType::f64, in[2]->shape()}};
  const std::vector<Array> forward = evaluate_cross_entropy(node, operands, types);
  const std::array<const Array *, 4> backward = {&dloss, &logits, in[2], &forward[1]};
  const std::vector<double> dy = evaluate_cross_entropy_gradient(node, backward, {&logits.type(), 1})[0].doubles();
  std::vector<double> dx(linear.x.size(), 0.0), dw(linear.w.size(), 0.0), db(linear.classes, 0.0);
  for (std::size_t m = 0; m < linear.rows; ++m)
    for (std::size_t c = 0; c < linear.classes; ++c) {
      const double g = dy[m * linear.classes + c];
      db[c] += g;
      for (std::size_t d = 0; d < linear.width; ++d) {
        dx[m * linear.width + d] += g * linear.w[linear.weight(c, d)];
        dw[linear.weight(c, d)] += g * linear.x[m * linear.width + d];
      }
    }
  std::vector<Array> results = {forward[0], array_of(out[1], dx), array_of(out[2], dw)};
  if (out.size() > 3) results.push_back(array_of(out[3], db));
  return results;
}

// The gradient node also computes the loss. If that is the model's loss, the forward node is no longer needed.
void differentiate_linear(GradientBuilder &builder, const Node &node) {
  const bool has_bias = node.inputs.size() > 3 && node.inputs[3] != ValueId::none;
  const bool is_loss = builder.is_loss(node.outputs[0]);
  const ValueId dloss = builder.gradient_of(node.outputs[0]);
  const bool is_one = is_loss && builder.value(dloss).origin == graph::Origin::constant;
  std::vector<ValueId> inputs = node.inputs;
  if (!is_one) {
    inputs.resize(4, ValueId::none);
    inputs.push_back(dloss);
  }
  const std::vector<ValueId> made = builder.emit("LinearCrossEntropyGrad", inputs, node.attributes, has_bias ? 4 : 3);
  if (is_loss) builder.replace_output(node.outputs[0], made[0]);
  builder.contribute(node.inputs[0], made[1]);
  builder.contribute(node.inputs[1], made[2]);
  if (has_bias) builder.contribute(node.inputs[3], made[3]);
}

double product_flops(const NodeTypes &types, double products) {
  return 2 * products * static_cast<double>(types.input(0).shape[0]) *
         static_cast<double>(element_count(types.input(1).shape));
}
double linear_flops(const NodeTypes &types, std::span<const Type>) { return product_flops(types, 1); }
double linear_gradient_flops(const NodeTypes &types, std::span<const Type>) { return product_flops(types, 3); }

// ONNX: scores (N, C, d...), labels (N, d...)[, weights (C)] -> loss[, log probabilities]
std::vector<Type> infer_loss_file_form(const NodeTypes &types) {
  const Type &scores = types.input(0), &labels = types.input(1);
  require(scores.shape.size() >= 2 && labels.shape.size() + 1 == scores.shape.size(), Code::shape, types.subject(),
          "scores {} and labels {} do not fit (N, C, ...) and (N, ...)", to_text(scores), to_text(labels));
  Shape expected = scores.shape;
  expected.erase(expected.begin() + 1);
  require(labels.shape == expected, Code::shape, types.subject(), "labels {} for scores {}", to_text(labels),
          to_text(scores));
  std::vector<Type> out = {{scores.dtype, is_per_row(types.node) ? labels.shape : Shape{}}};
  if (types.node.op == "SoftmaxCrossEntropyLoss") out.push_back(scores);
  return out;
}

// Returns the bytes of all logits in float32. No kernel holds all at once.
std::uint64_t logits_bytes(const NodeTypes &types) {
  const Type &rows = types.input(0), &weights = types.input(1);
  const std::int64_t classes = element_count(weights.shape) / std::max<std::int64_t>(rows.shape.back(), 1);
  return static_cast<std::uint64_t>(rows.shape.front() * classes) * sizeof(float);
}

// Scratch holds a slice of float32 logits. With bfloat16 or float16 operands, the gradient's scratch also holds the
// slice's gradients and, on a GPU, float32 sums of dw.
std::uint64_t linear_scratch(const NodeTypes &types, bool on_gpu) {
  return std::min<std::uint64_t>(logits_bytes(types), (on_gpu ? 256 : 64) << 20);
}
std::uint64_t linear_gradient_scratch(const NodeTypes &types, bool on_gpu) {
  const std::uint64_t logits = linear_scratch(types, on_gpu);
  if (types.input(0).dtype == DType::f32) return logits;
  const std::uint64_t gradients = std::min<std::uint64_t>(logits_bytes(types) / 2, 128 << 20);
  const std::vector<ValueId> &outputs = types.node.outputs;
  const bool sums = on_gpu && outputs.size() > 2 && outputs[2] != ValueId::none;
  const auto weights = static_cast<std::uint64_t>(element_count(types.input(1).shape));
  return logits + gradients + (sums ? weights * sizeof(float) : 0);
}

}  // namespace

Family loss_family() {
  return {
      {.name = "SoftmaxCrossEntropyLoss", .infer = infer_loss_file_form, .optional = {2}, .file_only = true},
      {.name = "NegativeLogLikelihoodLoss", .infer = infer_loss_file_form, .optional = {2}, .file_only = true},
      {.name = "CrossEntropy",
       .infer = infer_cross_entropy,
       .evaluate = evaluate_cross_entropy,
       .gradient = differentiate_cross_entropy},
      {.name = "CrossEntropyGrad", .infer = infer_cross_entropy_gradient, .evaluate = evaluate_cross_entropy_gradient},
      {.name = "LinearCrossEntropy",
       .infer = infer_linear,
       .evaluate = evaluate_linear,
       .gradient = differentiate_linear,
       .flops = linear_flops,
       .optional = {3},
       .scratch = linear_scratch},
      {.name = "LinearCrossEntropyGrad",
       .infer = infer_linear_gradient,
       .evaluate = evaluate_linear_gradient,
       .flops = linear_gradient_flops,
       .optional = {3, 4},
       .scratch = linear_gradient_scratch}};
}

}  // namespace protrain::ops
