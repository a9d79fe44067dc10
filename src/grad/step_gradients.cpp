#include "grad/step_gradients.h"

#include <algorithm>

#include "arith/norm_tree.h"
#include "grad/targets.h"
#include "ops/op.h"

namespace protrain::grad {

namespace {

using graph::ValueId;

static_assert(graph::kGrain == arith::kNormPiece, "the kernels square gradients grain by grain");

constexpr std::size_t kMostTogether = 32;             // the most small gradients that one node squares
constexpr std::uint64_t kExchangeBytes = 4ull << 20;  // gradients wait until together they have so many bytes

}  // namespace

// Emits the weight that this micro-batch has in the gradients of the whole step. Must be called before finish().
void StepGradients::weigh(ValueId loss) {
  emitter_.begin("weight");
  weight_ = weight_of(loss);
  training_.weight = shared() ? of_all_ranks(weight_) : weight_;
  // Without accumulation, loss scale and clipping, the factor of the gradients depends on the weights alone. It is
  // emitted now, so that each Update can follow its gradient at once.
  if (settings_.accumulate || settings_.scale_loss || settings_.clip_norm > 0) return;
  factor_ = join_weights();
  scale_by(ValueId::none);
}

// Returns the weight of this rank's micro-batch.
ValueId StepGradients::weight_of(ValueId loss) {
  const std::optional<TargetCount> count = target_count(graph_, loss);
  return count ? emitter_.emit("CountTargets", count->inputs, count->attributes)
               : emitter_.constant({DType::f64, {}}, 1);
}

void StepGradients::finish(std::size_t parameter, ValueId gradient) {
  emitter_.begin(name_of(parameter));
  if (!shared()) {
    if (training_.weight != ValueId::none)
      gradient = add(parameter, type(graph_.parameters[parameter]).shape, gradient);
    return measure(parameter, gradient);
  }
  if (settings_.sums_by_rank()) gradient = add_own(parameter, gradient);
  unexchanged_.emplace_back(parameter, gradient);
  unexchanged_bytes_ += byte_count(type(gradient).dtype, type(gradient).shape);
  if (unexchanged_bytes_ >= kExchangeBytes) exchange_waiting();
}

void StepGradients::finish_waiting() {
  exchange_waiting();
  square_waiting();
}

void StepGradients::exchange_waiting() {
  if (unexchanged_.empty()) return;
  const auto waiting = std::exchange(unexchanged_, {});
  unexchanged_bytes_ = 0;
  emitter_.begin(name_of(waiting[0].first));
  std::vector<ValueId> gradients;
  std::vector<std::int64_t> bounds;
  for (const auto &[parameter, gradient] : waiting) {
    gradients.push_back(gradient);
    bounds.insert(bounds.end(), training_.shards.bounds[parameter].begin(), training_.shards.bounds[parameter].end());
  }
  const std::vector<ValueId> received = emitter_.emit("AllToAll", gradients, between_ranks(bounds), gradients.size());
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    const std::size_t parameter = waiting[i].first;
    emitter_.begin(name_of(parameter));
    measure(parameter, add(parameter, {training_.shards.elements(parameter)}, received[i]));
  }
}

// Emits the sum of `gradient` over micro-batches. With several ranks `gradient` has one part from each rank, and all
// parts are added.
ValueId StepGradients::add(std::size_t parameter, const Shape &shape, ValueId gradient) {
  if (settings_.sums_by_rank()) return sum_parts(shape, {gradient});  // the parts are weighted already
  if (!settings_.accumulate) return sum_parts(shape, {gradient, training_.weight});
  const DType dtype = type(graph_.parameters[parameter]).dtype;
  training_.accumulators[parameter] = emitter_.accumulator({ops::sum_dtype(dtype), shape});
  return emitter_.emit("Accumulate", {training_.accumulators[parameter], gradient, training_.weight}, parts());
}

// Adds the gradient of this rank's micro-batch to this rank's sum, which covers the whole parameter.
ValueId StepGradients::add_own(std::size_t parameter, ValueId gradient) {
  const graph::Type &weights = type(graph_.parameters[parameter]);
  const ValueId sum = emitter_.accumulator({ops::sum_dtype(weights.dtype), weights.shape});
  return emitter_.emit("Accumulate", {sum, gradient, weight_});
}

graph::Attributes StepGradients::parts() const {
  return shared() ? graph::Attributes{{"parts", std::int64_t{training_.shards.ranks}}} : graph::Attributes();
}

ValueId StepGradients::sum_parts(const Shape &shape, const std::vector<ValueId> &parts_and_weight) {
  graph::Attributes attributes = parts();
  attributes.set("shape", shape);
  return emitter_.emit("SumParts", parts_and_weight, attributes);
}

// Emits the squared norm of a parameter's gradient. Lets a small gradient wait for others, so that one node squares
// several.
void StepGradients::measure(std::size_t parameter, ValueId gradient) {
  training_.gradients[parameter] = gradient;
  if (!ops::goes_with_others(type(gradient))) return square({parameter});
  const bool of_others = !waiting_.empty() && type(training_.gradients.at(waiting_[0])).dtype != type(gradient).dtype;
  if (of_others || waiting_.size() == kMostTogether) square_waiting();
  waiting_.push_back(parameter);
}

void StepGradients::square_waiting() {
  if (waiting_.empty()) return;
  emitter_.begin(name_of(waiting_[0]));
  square(std::exchange(waiting_, {}));
}

// Emits the squared norms of gradients. With several ranks they are vectors with one element for each grain of this
// rank's shards, and join_squares() joins them.
void StepGradients::square(const std::vector<std::size_t> &parameters) {
  std::vector<ValueId> gradients;
  for (std::size_t p : parameters) gradients.push_back(training_.gradients.at(p));
  graph::Attributes attributes;
  if (shared()) attributes.set("piece", graph::kGrain);
  const std::vector<ValueId> norms = emitter_.emit("SquaredNorm", gradients, attributes, gradients.size());
  for (std::size_t i = 0; i < norms.size(); ++i) training_.squared_norms[parameters[i]] = norms[i];
  if (!shared() || settings_.accumulate) return;
  const std::vector<ValueId> joined = emitter_.emit("JoinSquares", norms, {}, norms.size());
  for (std::size_t i = 0; i < joined.size(); ++i) training_.shard_norms[parameters[i]] = joined[i];
}

graph::Attributes StepGradients::between_ranks(std::vector<std::int64_t> bounds) const {
  return {{"rank", std::int64_t{training_.shards.rank}}, {"bounds", std::move(bounds)}};
}

// Gathers a scalar from all ranks. Returns the vector of their values, in the order of ranks.
ValueId StepGradients::of_all_ranks(ValueId scalar) {
  std::vector<std::int64_t> bounds;
  for (std::int64_t r = 0; r <= training_.shards.ranks; ++r) bounds.push_back(r);
  return emitter_.emit("AllGather", {scalar}, between_ranks(bounds));
}

// Gathers the squared norms of all ranks' grains. Replaces each vector of this rank's norms by the squared norm of the
// whole gradient.
void StepGradients::join_squares() {
  std::vector<ValueId> grains;
  std::vector<std::int64_t> bounds;
  std::vector<std::size_t> parameters;
  for (std::size_t p = 0; p < training_.squared_norms.size(); ++p) {
    if (training_.squared_norms[p] == ValueId::none) continue;
    parameters.push_back(p);
    grains.push_back(training_.squared_norms[p]);
    for (std::int64_t bound : training_.shards.bounds[p]) bounds.push_back((bound + graph::kGrain - 1) / graph::kGrain);
  }
  const std::vector<ValueId> all = emitter_.emit("AllGather", grains, between_ranks(bounds), grains.size());
  const std::vector<ValueId> norms = emitter_.emit("JoinSquares", all, {}, all.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) training_.squared_norms[parameters[i]] = norms[i];
}

// Emits the number that summed gradients must be divided by: the sum of the micro-batches' weights, times the loss
// scale. Without weights it is the loss scale alone. Returns ValueId::none if there is neither.
ValueId StepGradients::join_weights() {
  if (training_.weight == ValueId::none) return training_.loss_scale;
  std::vector<ValueId> weighted = {training_.weight};
  if (training_.loss_scale != ValueId::none) weighted.push_back(training_.loss_scale);
  if (!settings_.accumulate) return sum_parts({}, weighted);
  weighted.insert(weighted.begin(), emitter_.accumulator({DType::f64, {}}));
  return emitter_.emit("Accumulate", weighted, parts());
}

// Emits the factor that Updates apply to gradients, unless it would always be 1. `norm` is the norm of all gradients,
// or none if gradients are not clipped.
void StepGradients::scale_by(ValueId norm) {
  if (settings_.clip_norm == 0 && factor_ == ValueId::none) return;
  std::vector<ValueId> scaled = {norm};
  if (factor_ != ValueId::none) scaled.push_back(factor_);
  training_.scale = emitter_.emit("GradientScale", scaled, {{"max_norm", settings_.clip_norm}});
}

// Emits the step's loss (with several ranks a vector of all ranks' losses), then the norm of all gradients and the
// factor to scale them by.
void StepGradients::join() {
  emitter_.begin("loss");
  if (training_.weight != ValueId::none) training_.loss = emitter_.emit("CountedLoss", {training_.loss, weight_});
  if (shared()) training_.loss = of_all_ranks(training_.loss);
  emitter_.begin("gradients");
  if (shared()) join_squares();
  std::vector<ValueId> norms;
  std::ranges::copy_if(training_.squared_norms, std::back_inserter(norms),
                       [](ValueId id) { return id != ValueId::none; });
  training_.norm = emitter_.emit("GlobalNorm", norms);
  if (factor_ == ValueId::none) factor_ = join_weights();
  if (factor_ != ValueId::none) training_.norm = emitter_.emit("ScaledNorm", {training_.norm, factor_});
  if (training_.scale == ValueId::none) scale_by(training_.norm);
}

}  // namespace protrain::grad
