#include "session/draft.h"

#include <algorithm>

namespace protrain::session {

namespace {

program::Source training_source(const Served &served, std::size_t binding, bool updates) {
  const grad::Training &training = served.training;
  return {.graph = training.graph,
          .loss = training.loss,
          .norm = training.norm,
          .gradients = training.gradients,
          .squared_norms = training.squared_norms,
          .accumulators = training.accumulators,
          .weight = training.weight,
          .scale = training.scale,
          .updates = updates,
          .binding = binding};
}

program::Source evaluation_source(const Served &served, std::size_t binding) {
  return {.graph = served.forward, .loss = served.loss, .updates = false, .binding = binding};
}

}  // namespace

Drafter::Drafter(const std::vector<std::unique_ptr<Served>> &served, Site &site, program::StateRequest request)
    : served_(served), request_(std::move(request)) {
  for (const auto &binding : served) {
    training_.push_back(site.workspace(binding->training.graph));
    evaluation_.push_back(site.workspace(binding->forward));
  }
}

Draft Drafter::lower(const plan::Plan &plan) const { return lower(plan, true); }

Draft Drafter::lower_training(const plan::Plan &plan) const { return lower(plan, false); }

Draft Drafter::lower(const plan::Plan &plan, bool evaluates) const {
  std::vector<program::Source> sources;
  for (std::size_t b = 0; b < served_.size(); ++b) sources.push_back(training_source(*served_[b], b, true));
  for (std::size_t b = 0; b < served_.size(); ++b) sources.push_back(evaluation_source(*served_[b], b));
  Draft draft{.state = program::lay_out_state(sources, plan, request_)};
  const auto lowered = [&](const program::Source &source, const program::Workspace &workspace) {
    program::Program program = program::lower(source, plan, draft.state, workspace);
    for (std::size_t t = 0; t < kTierCount; ++t) draft.bytes[t] = std::max(draft.bytes[t], program.arena_bytes[t]);
    return program;
  };
  for (std::size_t b = 0; b < served_.size(); ++b) {
    Draft::Programs &programs = draft.programs.emplace_back();
    programs.step = lowered(sources[b], training_[b]);
    if (request_.accumulates) programs.accumulate = lowered(training_source(*served_[b], b, false), training_[b]);
    if (evaluates) programs.evaluation = lowered(sources[served_.size() + b], evaluation_[b]);
  }
  if (plan::defers(plan)) draft.settlement = lowered(program::settlement(sources[0]), training_[0]);
  return draft;
}

}  // namespace protrain::session
