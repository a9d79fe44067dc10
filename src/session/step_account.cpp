#include "session/step_account.h"

#include "base/error.h"

namespace protrain::session {

// Returns the scalars of the next micro-batch. The optimizer's step number leaves out skipped steps. The step number
// that random numbers use counts all steps.
backend::StepScalars StepAccount::scalars(const backend::Optimizer &optimizer,
                                          const std::vector<backend::Group> &groups) const {
  const auto t = static_cast<double>(counters_.steps + 1 - counters_.skipped);
  return {.update = backend::numbers_of(optimizer, groups, learning_rate(), t),
          .loss_scale = static_cast<double>(loss_scale()),
          .step = counters_.steps + 1,
          .seed = counters_.seed,
          .micro_batch = micro_batch_,
          .first_sample = samples_};
}

std::optional<StepResult> StepAccount::add(const RoundNumbers &numbers, double seconds) {
  seconds_ = (is_first() ? 0 : seconds_) + seconds;
  // Weighs the losses, so that the step's loss is the mean over all counted targets, as one large batch would give it.
  for (const RoundNumbers::Batch &batch : numbers.batches) {
    if (batch.weight != 0) loss_sum_ += batch.weight * static_cast<double>(batch.loss);
    weight_sum_ += batch.weight;
  }
  const std::uint64_t scale = loss_scale();  // the scale of these gradients
  if (!takes(numbers.status)) {
    begin_anew();
    return std::nullopt;
  }
  if (is_last()) return complete(numbers, scale);
  micro_batch_ += terms_.ranks;
  samples_ += terms_.ranks * numbers.samples;
  return StepResult{.loss = numbers.batches.back().loss};
}

// True if the session can continue after this status, false if the step must fail. It can continue if everything is
// finite, if an overflow of gradients lowers the loss scale, or if the options say to skip steps that are not finite.
bool StepAccount::takes(program::StatusWord status) {
  if (status.finite()) return true;
  if (terms_.scales_loss && status.names_gradient() && counters_.loss_scale.shrink()) return true;
  if (terms_.skips) spoilt_ = status;
  return terms_.skips;
}

StepResult StepAccount::complete(const RoundNumbers &numbers, std::uint64_t scale) {
  StepResult result{.loss = numbers.batches.back().loss, .grad_norm = numbers.norm, .learning_rate = learning_rate()};
  if (accumulates()) result.loss = static_cast<float>(loss_sum_ / weight_sum_);
  last_weight_ = (accumulates() ? weight_sum_ : 1) * static_cast<double>(scale);
  last_ = result;
  gradients_hold_ = true;
  ++counters_.steps;
  if (!numbers.status.finite()) ++counters_.skipped;
  counters_.loss_scale.count(numbers.status.finite());
  begin_anew();
  return result;
}

void StepAccount::begin_anew() {
  micro_batch_ = samples_ = 0;
  spoilt_ = {};
  loss_sum_ = weight_sum_ = 0;
}

void StepAccount::require_complete(const char *subject, const char *how) const {
  require(is_first(), Code::state, subject, "the step is not complete: {} of {} batches{}", micro_batch_,
          terms_.accumulation, how);
}

double StepAccount::grad_norm() const {
  require(last_.has_value(), Code::state, "", "there is no gradient norm before the first step");
  return last_->grad_norm;
}

double StepAccount::gradient_factor(const std::string &parameter) const {
  require(last_.has_value(), Code::state, parameter, "there is no gradient before the first step");
  require_complete(parameter.c_str(), "");
  require(gradients_hold_, Code::state, parameter,
          "the gradients of the last step are gone: a later call failed, or computed others");
  return 1 / last_weight_;
}

}  // namespace protrain::session
