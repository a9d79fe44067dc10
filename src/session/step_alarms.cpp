#include "session/step_alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace protrain::session {

namespace {

// An alarm is raised if a norm is kFar times larger, or smaller, than the geometric mean of the norms before it.
constexpr double kFar = 100;
constexpr double kNewest = 0.2;  // weight of the newest norm in the geometric mean

}  // namespace

StepAlarms::StepAlarms(std::vector<Parameter> trained, const std::vector<draft::Alarm> &known)
    : trained_(std::move(trained)) {
  for (const draft::Alarm &alarm : known) raised_.push_back({0, alarm});
}

std::size_t StepAlarms::raise(std::uint64_t step, draft::Alarm alarm) {
  const auto same = [&](const Raised &raised) {
    return raised.alarm.code == alarm.code && raised.alarm.subject == alarm.subject;
  };
  if (std::ranges::any_of(raised_, same)) return 0;
  raised_.push_back({step, std::move(alarm)});
  return 1;
}

std::size_t StepAlarms::judge(const StepFacts &facts) {
  std::size_t count = 0;
  if (facts.learning_rate == 0)
    count += raise(facts.step, {"rate_zero", "",
                                fmt::format("the learning rate of step {} is zero, so no weight moved; check "
                                            "learning_rate and the schedule's total_steps and final_learning_rate",
                                            facts.step)});
  if (facts.scale_is_least)
    count += raise(facts.step, {"scale_at_floor", "",
                                fmt::format("the loss scale is at its least value in step {}: gradients overflowed "
                                            "float16 at every larger one; train in bf16, or find what grows",
                                            facts.step)});
  if (!facts.applied) return count;
  if (facts.has_norms) count += judge_gradients(facts.step);
  return count + judge_norm(facts);
}

std::size_t StepAlarms::judge_gradients(std::uint64_t step) {
  bool found = false;
  for (Parameter &parameter : trained_) {
    parameter.zeros = parameter.squared_norm != 0 ? 0 : std::min(parameter.zeros + 1, kZeroSteps);
    found = found || (parameter.zeros == kZeroSteps && !parameter.said);
  }
  if (!found) return 0;
  std::vector<std::string> names;
  for (Parameter &parameter : trained_)
    if (parameter.zeros == kZeroSteps && !std::exchange(parameter.said, true)) names.push_back(parameter.name);
  const std::string whose = names.size() == trained_.size() && names.size() > 1
                                ? fmt::format("each of the {} trained parameters", names.size())
                                : draft::some_names(names);
  // The alarm's subject is the last of these parameters in the order of forward. Backward runs in the opposite order
  // and reaches this parameter first, so the cause of the zeros is probably near it.
  return raise(step, {"gradient_zero", names.back(),
                      fmt::format("the gradient of {} was exactly zero in {} steps in a row{}, so at most decay moves "
                                  "it: the loss does not react, as behind a unit that never fires, a factor of zero or "
                                  "labels that are all ignored",
                                  whose, kZeroSteps,
                                  names.size() == 1 ? "" : fmt::format(" ({} is the last of them)", names.back()))});
}

std::size_t StepAlarms::judge_norm(const StepFacts &facts) {
  if (!(facts.norm > 0)) return 0;
  const double log = std::log(facts.norm);
  const double usual = std::exp(mean_log_);
  const bool far = norms_ > 0 && std::abs(log - mean_log_) > std::log(kFar);
  mean_log_ = norms_ == 0 ? log : mean_log_ + kNewest * (log - mean_log_);
  ++norms_;
  if (!far) return 0;
  return raise(facts.step, {"norm_far", "",
                            fmt::format("the norm of all gradients is {:.3g} in step {}, and was about {:.3g} before; "
                                        "look at the batch, the learning rate and clip_norm",
                                        facts.norm, facts.step, usual)});
}

}  // namespace protrain::session
