// BatchNormalization, and the operators of its training form. x is (N, C, d...), and each channel (axis 1) is
// normalized over the batch and all positions.
//
//   BatchNorm(x, scale, bias, running mean, running variance){epsilon, momentum, unbiased, running}
//       -> y, mean, variance, kept variance
//     With `running` = 1 it normalizes by the running statistics, as an evaluation does, and has no gradient. Otherwise
//     it normalizes by the batch's own mean and variance, and does not read the running statistics. The running
//     statistics are state: a step folds the batch's mean and kept variance into them. If `unbiased` is 1, the kept
//     variance is the variance times n / (n - 1), where n is the number of elements of a channel, as in PyTorch.
//     Otherwise it equals the variance.
//   FoldStatistics(state, statistics...){momentum, parts} -> the running statistic after the batches
//     Each input after the state is a statistic of the batches, with `parts` parts, one for each micro-batch. For each
//     micro-batch in turn, and for its part of each statistic, running = momentum * running + (1 - momentum) * part. If
//     a model applies a layer twice, there are two such inputs.
//   AccumulateStatistics(sum, state, statistics...) -> the running statistic after the step's batches so far
//     It replaces FoldStatistics if a step has several launches. It works in place on `sum`. The step's first launch
//     sets `sum` to the state.
// The statistics are float32 if x is float16 or bfloat16.
#include <algorithm>
#include <cmath>

#include "ops/evaluate.h"
#include "ops/families.h"

namespace protrain::ops {

namespace {

using graph::ValueId;

// The sizes of x seen as (samples, count, inner). `count` is the number of channels, and `inner` joins all axes after
// axis 1.
struct Channels {
  explicit Channels(const Shape &x)
      : samples(static_cast<std::size_t>(x[0])),
        count(static_cast<std::size_t>(x[1])),
        inner(static_cast<std::size_t>(element_count({x.begin() + 2, x.end()}))) {}

  double elements() const { return static_cast<double>(samples * inner); }  // of one channel
  // Calls act(i) for each element of a channel.
  template <typename Act>
  void each(std::size_t channel, Act &&act) const {
    for (std::size_t n = 0; n < samples; ++n)
      for (std::size_t i = 0; i < inner; ++i) act((n * count + channel) * inner + i);
  }

  std::size_t samples, count, inner;
};

// Checks that inputs `first` and `first` + 1 have one number of type `dtype` for each channel of x.
void require_channels(const NodeTypes &types, const Type &x, std::size_t first, DType dtype) {
  require(is_float(x.dtype) && x.shape.size() >= 2, Code::shape, types.subject(),
          "{} of {}; floats with an axis 1 for channels are expected", types.node.op, to_text(x));
  for (std::size_t i = first; i < first + 2; ++i)
    require(types.input(i) == Type({dtype, {x.shape[1]}}), Code::shape, types.subject(),
            "operand {} is {}, expected {} with one number for each of {} channels", i, to_text(types.input(i)),
            name_of(dtype), x.shape[1]);
}

std::vector<Type> infer_batch_norm(const NodeTypes &types) {
  const Type &x = types.input(0);
  const DType wide = sum_dtype(x.dtype);
  require_channels(types, x, 1, x.dtype);
  require_channels(types, x, 3, wide);
  require(element_count(x.shape) > 0, Code::shape, types.subject(), "{} has no statistics", to_text(x));
  const Type statistic{wide, {x.shape[1]}};
  return {x, statistic, statistic, statistic};
}

std::vector<Array> evaluate_batch_norm(const Node &node, Inputs in, Types out) {
  const Channels channels(in[0]->shape());
  const double epsilon = node.attributes.real("epsilon", 1e-5), n = channels.elements();
  const bool running = node.attributes.integer("running", 0) != 0;
  const double correction = node.attributes.integer("unbiased", 0) != 0 ? n / (n - 1) : 1;
  const std::vector<double> x = in[0]->doubles(), scale = in[1]->doubles(), bias = in[2]->doubles();
  std::vector<double> y(x.size()), means = in[3]->doubles(), variances = in[4]->doubles(), kept(channels.count);
  for (std::size_t c = 0; c < channels.count; ++c) {
    if (!running) {
      means[c] = variances[c] = 0;
      channels.each(c, [&](std::size_t i) { means[c] += x[i] / n; });
      channels.each(c, [&](std::size_t i) { variances[c] += (x[i] - means[c]) * (x[i] - means[c]) / n; });
    }
    kept[c] = variances[c] * correction;
    const double factor = scale[c] / std::sqrt(variances[c] + epsilon);
    channels.each(c, [&](std::size_t i) { y[i] = (x[i] - means[c]) * factor + bias[c]; });
  }
  return {array_of(out[0], y), array_of(out[1], means), array_of(out[2], variances), array_of(out[3], kept)};
}

// BatchNormGrad(dy, x, scale, mean, variance){epsilon} -> dx, dscale, dbias
std::vector<Type> infer_batch_norm_gradient(const NodeTypes &types) {
  const Type &x = types.input(1);
  require(types.input(0) == x, Code::shape, types.subject(), "the gradient is {}, x is {}", to_text(types.input(0)),
          to_text(x));
  require_channels(types, x, 3, sum_dtype(x.dtype));
  require(types.input(2) == Type({x.dtype, {x.shape[1]}}), Code::shape, types.subject(), "the scale is {} for {}",
          to_text(types.input(2)), to_text(x));
  return {x, types.input(2), types.input(2)};
}

// Computes dx = scale * inverse * (dy - mean(dy) - n * mean(dy n)), with inverse = 1 / sqrt(variance + epsilon) and n =
// (x - mean) * inverse. mean() is over the channel. dscale = sum(dy n), and dbias = sum(dy).
std::vector<Array> evaluate_batch_norm_gradient(const Node &node, Inputs in, Types out) {
  const Channels channels(in[1]->shape());
  const double epsilon = node.attributes.real("epsilon", 1e-5);
  const std::vector<double> dy = in[0]->doubles(), x = in[1]->doubles(), scale = in[2]->doubles();
  const std::vector<double> means = in[3]->doubles(), variances = in[4]->doubles();
  std::vector<double> dx(x.size()), dscale(channels.count), dbias(channels.count);
  for (std::size_t c = 0; c < channels.count; ++c) {
    const double inverse = 1 / std::sqrt(variances[c] + epsilon);
    const auto normal = [&](std::size_t i) { return (x[i] - means[c]) * inverse; };
    channels.each(c, [&](std::size_t i) {
      dbias[c] += dy[i];
      dscale[c] += dy[i] * normal(i);
    });
    const double mean = dbias[c] / channels.elements(), dot = dscale[c] / channels.elements();
    channels.each(c, [&](std::size_t i) { dx[i] = scale[c] * inverse * (dy[i] - mean - normal(i) * dot); });
  }
  return {array_of(out[0], dx), array_of(out[1], dscale), array_of(out[2], dbias)};
}

void differentiate_batch_norm(GradientBuilder &builder, const Node &node) {
  for (std::size_t i = 1; i < node.outputs.size(); ++i)
    require(builder.gradient_of(node.outputs[i]) == ValueId::none, Code::unsupported, node.name,
            "a loss that depends on the statistics of {} cannot be differentiated", node.op);
  const ValueId dy = builder.gradient_of(node.outputs[0]);
  if (dy == ValueId::none) return;
  const std::vector<ValueId> made =
      builder.emit("BatchNormGrad", {dy, node.inputs[0], node.inputs[1], node.outputs[1], node.outputs[2]},
                   {{"epsilon", node.attributes.real("epsilon", 1e-5)}}, 3);
  for (std::size_t i = 0; i < made.size(); ++i) builder.contribute(node.inputs[i], made[i]);
}

// Checks the statistics, which are the node's inputs from number `first` on.
void require_statistics(const NodeTypes &types, const Type &state, std::size_t first) {
  const std::int64_t parts = types.node.attributes.integer("parts", 1);
  require(types.inputs.size() > first && parts >= 1, Code::graph, types.subject(), "{} has no statistics",
          types.node.op);
  for (std::size_t i = first; i < types.inputs.size(); ++i)
    require(types.input(i).dtype == state.dtype &&
                element_count(types.input(i).shape) == parts * element_count(state.shape),
            Code::shape, types.subject(), "{} are no statistics of {} batches for {}", to_text(types.input(i)), parts,
            to_text(state));
}

std::vector<Type> infer_fold(const NodeTypes &types) {
  require_statistics(types, types.input(0), 1);
  return {types.input(0)};
}

std::vector<Type> infer_accumulated_statistics(const NodeTypes &types) {
  require(types.input(0) == types.input(1), Code::type, types.subject(), "{} cannot hold {}", to_text(types.input(0)),
          to_text(types.input(1)));
  require_statistics(types, types.input(1), 2);
  return {types.input(0)};
}

std::vector<Array> evaluate_fold(const Node &node, Inputs in, Types out) {
  const double momentum = node.attributes.real("momentum", 0.9);
  std::vector<double> running = in[0]->doubles();
  const std::size_t count = running.size();
  const auto parts = static_cast<std::size_t>(node.attributes.integer("parts", 1));
  for (std::size_t part = 0; part < parts; ++part)
    for (const Array *array : in.subspan(1)) {
      const std::vector<double> statistics = array->doubles();
      for (std::size_t i = 0; i < count; ++i)
        running[i] = momentum * running[i] + (1 - momentum) * statistics[part * count + i];
    }
  return {array_of(out[0], running)};
}

// x, scale, bias, mean, variance -> y[, running mean, running variance[, mean, variance]]. Opset 13 has the last two.
std::vector<Type> infer_batch_normalization(const NodeTypes &types) {
  const Type &mean = types.input(3), &variance = types.input(4);
  return {types.input(0), mean, variance, mean, variance};
}

double batch_norm_flops(const NodeTypes &types, Types) {
  return 8.0 * static_cast<double>(element_count(types.input(0).shape));
}

}  // namespace

// AccumulateStatistics has no reference evaluation, because its result depends on earlier micro-batches.
Family batch_norm_family() {
  return {{.name = "BatchNormalization", .infer = infer_batch_normalization, .file_only = true},
          {.name = "BatchNorm",
           .infer = infer_batch_norm,
           .evaluate = evaluate_batch_norm,
           .gradient = differentiate_batch_norm,
           .flops = batch_norm_flops,
           .states = {{3, 1}, {4, 3}}},
          {.name = "BatchNormGrad",
           .infer = infer_batch_norm_gradient,
           .evaluate = evaluate_batch_norm_gradient,
           .flops = batch_norm_flops},
          {.name = "FoldStatistics", .infer = infer_fold, .evaluate = evaluate_fold},
          {.name = "AccumulateStatistics", .infer = infer_accumulated_statistics, .storage = Storage::in_place}};
}

}  // namespace protrain::ops
