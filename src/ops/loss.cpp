// Cross entropy in three forms: ONNX's form; our core form, which takes logits (M rows, C classes); and a form that
// computes its logits itself, slice by slice.
//
//   CrossEntropy(logits, labels[, weights]){reduction, ignore_index, label_smoothing, z_loss, focal} -> loss, lse
//   LinearCrossEntropy(x, w, labels[, bias][, weights]){..., trans_w, panels} -> loss
//
// lse is log(sum(exp(logits))) of each row. arith/cross_entropy.h defines the loss of a row with a label. `weights` has
// a float32 factor for the loss of each row. With weights, the mean is a weighted mean: the sum of the losses is
// divided by the sum of the weights. Rows whose label is `ignore_index`, and rows of weight 0, do not count.
//
// The last two forms also compute the loss of a distillation. Instead of labels (M) they then take the logits (M, C) of
// a teacher model, which are floats. Every row counts, and lse is that of logits / temperature. Of the loss's
// attributes only `reduction` and `temperature` are allowed. arith/distillation.h defines the loss of such a row.
//
// If the attribute `panels` is 1, the CPU cuts each slice of LinearCrossEntropy into panels. A panel has the same
// number of rows whatever the size of the slices, so the bits of the results do not depend on that size.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "arith/cross_entropy.h"
#include "arith/distillation.h"
#include "base/error.h"
#include "base/shape.h"
#include "base/text.h"
#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

bool is_mean(const Node &node) { return node.attributes.text("reduction", "mean") == "mean"; }
bool is_per_row(const Node &node) { return node.attributes.text("reduction", "mean") == "none"; }

// True if the targets of a loss are the logits of a teacher model (distillation). False if they are labels.
bool is_teacher(const Type &targets) { return is_float(targets.dtype); }

void require_teacher(const NodeTypes &types, const Type &teacher, const Shape &logits, std::size_t weights) {
  require(teacher.shape == logits, Code::shape, types.subject(), "a teacher's logits {} for logits of shape {}",
          to_text(teacher), to_text(logits));
  for (const char *name : {"ignore_index", "label_smoothing", "z_loss", "focal"})
    require(!types.node.attributes.has(name), Code::unsupported, types.subject(),
            "{} is for labels, and the targets are a teacher's logits; leave it out", name);
  require(!types.has(weights), Code::unsupported, types.subject(),
          "weights are for labels, and the targets are a teacher's logits; leave them out");
  const double temperature = types.node.attributes.real("temperature", 1);
  require(temperature > 0, Code::arg, types.subject(), "the temperature is {}; it must be more than 0", temperature);
}

void require_labels(const NodeTypes &types, const Type &labels, std::int64_t rows) {
  require(labels.dtype == DType::i64 || labels.dtype == DType::i32, Code::type, types.subject(),
          "labels are {}, not int64 or int32", name_of(labels.dtype));
  require(labels.shape == Shape{rows}, Code::shape, types.subject(), "labels of shape {} for {} rows",
          to_text(labels.shape), rows);
}

void require_weights(const NodeTypes &types, std::size_t input, std::int64_t rows) {
  if (!types.has(input)) return;
  const Type &weights = types.input(input);
  require(is_float(weights.dtype) && weights.shape == Shape{rows}, Code::shape, types.subject(),
          "weights {} are not one number for each of {} rows", to_text(weights), rows);
}

// Checks the targets of logits (M, C), and their weights.
void require_targets(const NodeTypes &types, std::size_t input, const Shape &logits, std::size_t weights) {
  const Type &targets = types.input(input);
  if (is_teacher(targets)) return require_teacher(types, targets, logits, weights);
  require_labels(types, targets, logits[0]);
  require_weights(types, weights, logits[0]);
}

// The targets of a loss: the label and the weight of each row, and the attributes that define the loss of a row.
class Rows {
 public:
  // `weights` is nullptr if all rows have the weight 1.
  Rows(const Node &node, const Array &labels, const Array *weights, std::int64_t classes)
      : terms{node.attributes.real("label_smoothing", 0), node.attributes.real("z_loss", 0),
              node.attributes.real("focal", 0)},
        labels_(labels.integers()),
        weights_(weights != nullptr ? weights->doubles() : std::vector<double>(labels_.size(), 1.0)) {
    for (std::size_t row = 0; row < labels_.size(); ++row) {
      const std::int64_t label = labels_[row];
      if (node.attributes.has("ignore_index") && label == node.attributes.integer("ignore_index", 0)) {
        weights_[row] = 0;
        continue;
      }
      require(label >= 0 && label < classes, Code::arg, node.name, "label {} is outside 0..{}", label, classes - 1);
    }
    for (const double weight : weights_) total += weight;
  }

  std::size_t count() const { return labels_.size(); }
  std::int64_t label(std::size_t row) const { return labels_[row]; }
  double weight(std::size_t row) const { return weights_[row]; }  // 0: the row does not count

  const arith::RowLoss terms;
  double total = 0;  // sum of the weights

 private:
  std::vector<std::int64_t> labels_;
  std::vector<double> weights_;
};

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
  require_targets(types, 1, logits.shape, 2);
  const Type rows{sum_dtype(logits.dtype), {logits.shape[0]}};
  return {is_per_row(types.node) ? rows : Type{rows.dtype, {}}, rows};
}

// Returns a loss node's outputs. The first is the loss, which is reduced over the rows if the node asks for that. The
// second is lse of each row, from `sums`. `weights` is the sum of the rows' weights.
std::vector<Array> loss_of_rows(const Node &node, const std::vector<double> &losses, double weights,
                                const std::vector<double> &sums, std::span<const Type> out) {
  if (is_per_row(node)) return {array_of(out[0], losses), array_of(out[1], sums)};
  const double total = std::accumulate(losses.begin(), losses.end(), 0.0);
  return {array_of(out[0], std::vector<double>{is_mean(node) ? total / weights : total}), array_of(out[1], sums)};
}

// The operands of a distillation loss: the logits of a student model and of its teacher, divided by the temperature.
struct Lesson {
  Lesson(const Node &node, const Array &student, const Array &teacher)
      : terms(node.attributes.real("temperature", 1)),
        rows(static_cast<std::size_t>(student.shape()[0])),
        classes(static_cast<std::size_t>(student.shape()[1])),
        x(student.doubles()),
        t(teacher.doubles()) {
    for (std::vector<double> *logits : {&x, &t})
      for (double &logit : *logits) logit /= terms.temperature;
  }

  // Returns log(sum(exp(z))) over the elements of one row. `z` is x or t.
  double sum(const std::vector<double> &z, std::size_t row) const {
    return log_sum_exp(z.data() + row * classes, static_cast<std::int64_t>(classes));
  }

  const arith::Distillation terms;
  std::size_t rows, classes;
  std::vector<double> x, t;
};

std::vector<Array> evaluate_distillation(const Node &node, std::span<const Array *const> in,
                                         std::span<const Type> out) {
  const Lesson lesson(node, *in[0], *in[1]);
  std::vector<double> losses(lesson.rows, 0.0), sums(lesson.rows);
  for (std::size_t row = 0; row < lesson.rows; ++row) {
    sums[row] = lesson.sum(lesson.x, row);
    const double wanted = lesson.sum(lesson.t, row);
    double apart = 0;
    for (std::size_t i = row * lesson.classes; i < (row + 1) * lesson.classes; ++i) {
      const double p = std::exp(lesson.t[i] - wanted);
      if (p != 0) apart += p * (lesson.t[i] - lesson.x[i]);
    }
    losses[row] = lesson.terms.loss(apart, sums[row], wanted);
  }
  return loss_of_rows(node, losses, static_cast<double>(lesson.rows), sums, out);
}

std::vector<Array> evaluate_cross_entropy(const Node &node, std::span<const Array *const> in,
                                          std::span<const Type> out) {
  if (is_teacher(in[1]->type())) return evaluate_distillation(node, in, out);
  const std::int64_t classes = in[0]->shape()[1];
  const std::vector<double> logits = in[0]->doubles();
  const Rows rows(node, *in[1], optional_input(in, 2), classes);
  std::vector<double> losses(rows.count(), 0.0), sums(rows.count());
  for (std::size_t row = 0; row < rows.count(); ++row) {
    const double *at = logits.data() + row * static_cast<std::size_t>(classes);
    sums[row] = log_sum_exp(at, classes);
    if (rows.weight(row) == 0) continue;
    const double mean = std::accumulate(at, at + classes, 0.0) / static_cast<double>(classes);
    losses[row] = rows.weight(row) * rows.terms.loss(sums[row], at[rows.label(row)], mean);
  }
  return loss_of_rows(node, losses, rows.total, sums, out);
}

// CrossEntropyGrad(dloss, logits, labels, lse[, weights]) -> dlogits. lse is that of CrossEntropy.
std::vector<Type> infer_cross_entropy_gradient(const NodeTypes &types) { return {types.input(1)}; }

std::vector<Array> evaluate_distillation_gradient(const Node &node, std::span<const Array *const> in,
                                                  std::span<const Type> out) {
  const Lesson lesson(node, *in[1], *in[2]);
  const std::vector<double> dloss = in[0]->doubles(), sums = in[3]->doubles();
  const double share = lesson.terms.temperature / (is_mean(node) ? static_cast<double>(lesson.rows) : 1);
  std::vector<double> dx(lesson.x.size());
  for (std::size_t row = 0; row < lesson.rows; ++row) {
    const double factor = dloss[dloss.size() > 1 ? row : 0] * share, wanted = lesson.sum(lesson.t, row);
    for (std::size_t i = row * lesson.classes; i < (row + 1) * lesson.classes; ++i)
      dx[i] = factor * (std::exp(lesson.x[i] - sums[row]) - std::exp(lesson.t[i] - wanted));
  }
  return {array_of(out[0], dx)};
}

std::vector<Array> evaluate_cross_entropy_gradient(const Node &node, std::span<const Array *const> in,
                                                   std::span<const Type> out) {
  if (is_teacher(in[2]->type())) return evaluate_distillation_gradient(node, in, out);
  const auto classes = static_cast<std::size_t>(in[1]->shape()[1]);
  const std::vector<double> dloss = in[0]->doubles(), logits = in[1]->doubles(), sums = in[3]->doubles();
  const Rows rows(node, *in[2], optional_input(in, 4), in[1]->shape()[1]);
  const double smoothing = rows.terms.smoothing, share = is_mean(node) ? 1 / rows.total : 1;
  std::vector<double> dx(logits.size(), 0.0);
  for (std::size_t row = 0; row < rows.count(); ++row) {
    if (rows.weight(row) == 0) continue;
    double factor = dloss[dloss.size() > 1 ? row : 0] * share * rows.weight(row);
    if (rows.terms.focal != 0)
      factor *= rows.terms.focus(sums[row] - logits[row * classes + static_cast<std::size_t>(rows.label(row))]);
    for (std::size_t i = 0; i < classes; ++i) {
      const double p = std::exp(logits[row * classes + i] - sums[row]);
      const double target = (static_cast<std::int64_t>(i) == rows.label(row) ? 1 - smoothing : 0) +
                            smoothing / static_cast<double>(classes);
      dx[row * classes + i] = factor * (p * (1 + 2 * rows.terms.z_loss * sums[row]) - target);
    }
  }
  return {array_of(out[0], dx)};
}

// Returns input `input` of a loss, which must be data or a constant. Returns ValueId::none if the input is absent.
// Throws Code::unsupported if it depends on a trained parameter. Integers always pass, because no gradient reaches
// them.
ValueId data_of(GradientBuilder &builder, const Node &node, std::size_t input, const char *what) {
  if (node.inputs.size() <= input || node.inputs[input] == ValueId::none) return ValueId::none;
  const ValueId value = node.inputs[input];
  if (builder.wants(value))
    fail(Code::unsupported, node.name,
         "the {} of a loss depend on the trained parameter {}; they must be data or constants, so name it in frozen",
         what, printable(builder.trained_before(value)));
  return value;
}

void differentiate_cross_entropy(GradientBuilder &builder, const Node &node) {
  const ValueId targets = data_of(builder, node, 1, "teacher's logits"), weights = data_of(builder, node, 2, "weights");
  if (!builder.wants(node.inputs[0])) return;
  std::vector<ValueId> inputs = {builder.gradient_of(node.outputs[0]), node.inputs[0], targets, node.outputs.at(1)};
  if (weights != ValueId::none) inputs.push_back(weights);
  builder.contribute(node.inputs[0], builder.emit("CrossEntropyGrad", inputs, node.attributes));
}

// Checks the operands x (M, D), w (V, D) or (D, V), labels (M) or a teacher's logits (M, V)[, bias (V)][, weights (M)].
void require_linear(const NodeTypes &types) {
  const Type &x = types.input(0), &w = types.input(1);
  const bool rows = types.node.attributes.integer("trans_w", 1) != 0;
  const bool fits = x.shape.size() == 2 && w.shape.size() == 2 && w.shape[rows ? 1 : 0] == x.shape[1] &&
                    x.dtype == w.dtype && is_float(x.dtype);
  require(fits, Code::shape, types.subject(), "x {} and w {} make no logits", to_text(x), to_text(w));
  const std::int64_t classes = w.shape[rows ? 0 : 1];
  require(!types.has(3) || types.input(3) == Type({x.dtype, {classes}}), Code::shape, types.subject(),
          "the bias is not one number for each of {} classes", classes);
  require_targets(types, 2, {x.shape[0], classes}, 4);
}

Type linear_loss(const NodeTypes &types) {
  const Type &x = types.input(0);
  return {sum_dtype(x.dtype), is_per_row(types.node) ? Shape{x.shape[0]} : Shape{}};
}

std::vector<Type> infer_linear(const NodeTypes &types) {
  require_linear(types);
  return {linear_loss(types)};
}

// LinearCrossEntropyGrad(x, w, labels[, bias][, weights][, dloss]) -> loss, dx, dw[, dbias]. An absent dloss is 1.
// dloss has the type of the loss and is applied before anything is rounded.
std::vector<Type> infer_linear_gradient(const NodeTypes &types) {
  require_linear(types);
  require(types.has(5) ? types.input(5) == linear_loss(types) : !is_per_row(types.node), Code::type, types.subject(),
          "dloss is {}", types.has(5) ? to_text(types.input(5)) : "absent");
  std::vector<Type> out = {linear_loss(types), types.input(0), types.input(1)};
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
  const std::array<const Array *, 3> operands = {&logits, in[2], optional_input(in, 4)};
  const std::vector<Type> types = {out[0], {DType::f64, {logits.shape()[0]}}};
  return {evaluate_cross_entropy(node, operands, types)[0]};
}

std::vector<Array> evaluate_linear_gradient(const Node &node, std::span<const Array *const> in,
                                            std::span<const Type> out) {
  const Linear linear(node, in);
  const Array *weights = optional_input(in, 4), *given = optional_input(in, 5);
  const Array logits = logits_of(linear), dloss = given != nullptr ? *given : Array::scalar(DType::f64, 1);
  const std::array<const Array *, 3> operands = {&logits, in[2], weights};
  const std::vector<Type> types = {out[0], {DType::f64, {logits.shape()[0]}}};
  const std::vector<Array> forward = evaluate_cross_entropy(node, operands, types);
  const std::array<const Array *, 5> backward = {&dloss, &logits, in[2], &forward[1], weights};
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

// Emits a LinearCrossEntropyGrad, which computes the loss as well as the gradients. If the loss is the model's loss, it
// is taken from this node, and nothing needs the forward node any more.
void differentiate_linear(GradientBuilder &builder, const Node &node) {
  const bool has_bias = node.inputs.size() > 3 && node.inputs[3] != ValueId::none;
  const bool is_loss = builder.is_loss(node.outputs[0]);
  const ValueId dloss = builder.gradient_of(node.outputs[0]);
  const bool is_one = is_loss && builder.value(dloss).origin == graph::Origin::constant;
  data_of(builder, node, 2, "teacher's logits");
  data_of(builder, node, 4, "weights");
  std::vector<ValueId> inputs = node.inputs;
  if (!is_one) {
    inputs.resize(5, ValueId::none);
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
bool has_output(const Node &node, std::size_t i) { return i < node.outputs.size() && node.outputs[i] != ValueId::none; }
// The gradient multiplies once for the logits, once for dx, and once for dw. Absent outputs are not computed.
double linear_gradient_flops(const NodeTypes &types, std::span<const Type>) {
  return product_flops(types, 1 + (has_output(types.node, 1) ? 1 : 0) + (has_output(types.node, 2) ? 1 : 0));
}

// Infers the results of ONNX's losses: scores (N, C, d...), labels (N, d...)[, weights (C)] -> loss[, log
// probabilities]
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

// linear_scratch() returns the bytes of a LinearCrossEntropy's scratch, which holds a slice of float32 logits.
// linear_gradient_scratch() returns those of its gradient. With bfloat16 or float16 operands, the gradient's scratch
// also holds the gradients of the slice's logits and, on a GPU, float32 sums of dw.
std::uint64_t linear_scratch(const NodeTypes &types, bool on_gpu) {
  return std::min<std::uint64_t>(logits_bytes(types), (on_gpu ? 256 : 64) << 20);
}
std::uint64_t linear_gradient_scratch(const NodeTypes &types, bool on_gpu) {
  const std::uint64_t logits = linear_scratch(types, on_gpu);
  const Type &w = types.input(1);
  if (types.input(0).dtype == DType::f32) return logits;
  const std::uint64_t gradients = std::min<std::uint64_t>(logits_bytes(types) / 2, 128 << 20);
  const bool sums = on_gpu && has_output(types.node, 2);
  // A GPU multiplies by a copy of w in which the number of classes is padded to a multiple of 8.
  const bool trans_w = types.node.attributes.integer("trans_w", 1) != 0;
  const std::int64_t depth = w.shape.at(trans_w ? 1 : 0), classes = w.shape.at(trans_w ? 0 : 1);
  const bool copied = on_gpu && classes % 8 != 0;
  const auto elements = static_cast<std::uint64_t>(depth) * round_up(static_cast<std::uint64_t>(classes), 8);
  return logits + gradients + (copied ? elements * size_of(w.dtype) : 0) + (sums ? elements * sizeof(float) : 0);
}

}  // namespace

Family loss_family() {
  return {{.name = "SoftmaxCrossEntropyLoss", .infer = infer_loss_file_form, .optional = {2}, .file_only = true},
          {.name = "NegativeLogLikelihoodLoss", .infer = infer_loss_file_form, .optional = {2}, .file_only = true},
          {.name = "CrossEntropy",
           .infer = infer_cross_entropy,
           .evaluate = evaluate_cross_entropy,
           .gradient = differentiate_cross_entropy,
           .optional = {2},
           .always_wide = {1, 2},
           .checks_values = true},
          {.name = "CrossEntropyGrad",
           .infer = infer_cross_entropy_gradient,
           .evaluate = evaluate_cross_entropy_gradient,
           .optional = {4},
           .checks_values = true},
          {.name = "LinearCrossEntropy",
           .infer = infer_linear,
           .evaluate = evaluate_linear,
           .gradient = differentiate_linear,
           .flops = linear_flops,
           .optional = {3, 4},
           .always_wide = {2, 4},
           .checks_values = true,
           .scratch = linear_scratch},
          {.name = "LinearCrossEntropyGrad",
           .infer = infer_linear_gradient,
           .evaluate = evaluate_linear_gradient,
           .flops = linear_gradient_flops,
           .optional = {3, 4, 5},
           .checks_values = true,
           .scratch = linear_gradient_scratch}};
}

}  // namespace protrain::ops
