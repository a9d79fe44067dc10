#include "draft/program_set.h"

#include <algorithm>

namespace protrain::draft {

namespace {

program::LoweringInput training_source(const ShapeVariant &variant, std::size_t binding, bool updates) {
  const grad::Training &training = variant.training;
  program::LoweringInput source{.graph = training.graph,
                                .loss = training.loss,
                                .norm = training.norm,
                                .gradients = training.gradients,
                                .squared_norms = training.squared_norms,
                                .shard_norms = training.shard_norms,
                                .accumulators = training.accumulators,
                                .changed = training.changed,
                                .weight = training.weight,
                                .scale = training.scale,
                                .updates = updates && training.norm != graph::ValueId::none,  // not in mode=eval
                                .binding = binding};
  // If each rank keeps sums of its own, these sums become gradients only in the last micro-batch. So for an earlier
  // micro-batch the list of gradients holds only ValueId::none.
  if (!updates && training.accumulators.empty()) std::ranges::fill(source.gradients, graph::ValueId::none);
  return source;
}

program::LoweringInput evaluation_source(const ShapeVariant &variant, std::size_t binding) {
  return {
      .graph = variant.forward, .loss = variant.loss, .weight = variant.weight, .updates = false, .binding = binding};
}

program::LoweringInput prediction_source(const ShapeVariant &variant, std::size_t binding) {
  return {.graph = variant.outputs, .outputs = variant.outputs.outputs, .updates = false, .binding = binding};
}

}  // namespace

PlanLowering::PlanLowering(const std::vector<std::unique_ptr<ShapeVariant>> &variants, TargetMachine &machine,
                           program::StateRequest request)
    : variants_(variants), request_(std::move(request)) {
  for (const auto &variant : variants) {
    training_.push_back(machine.workspace(variant->training.graph));
    evaluation_.push_back(machine.workspace(variant->forward));
    prediction_.push_back(machine.workspace(variant->outputs));
  }
}

ProgramSet PlanLowering::lower(const plan::Plan &plan) const { return lower(plan, true); }

ProgramSet PlanLowering::lower_training(const plan::Plan &plan) const { return lower(plan, false); }

ProgramSet PlanLowering::lower(const plan::Plan &plan, bool evaluates) const {
  std::vector<program::LoweringInput> sources;
  const std::size_t count = variants_.size();
  ProgramSet set;
  set.variants.resize(count);
  for (std::size_t v = 0; v < count; ++v) sources.push_back(training_source(*variants_[v], v, true));
  const bool trains = variants_.front()->training.norm != graph::ValueId::none,
             predicts = variants_.front()->outputs.node_count() > 0;
  for (std::size_t v = 0; v < count && trains; ++v) sources.push_back(evaluation_source(*variants_[v], v));
  const std::size_t predictions = sources.size();
  for (std::size_t v = 0; v < count && predicts; ++v)
    sources.push_back(prediction_source(*variants_[v], set.binding_of_outputs(v)));
  set.state = program::lay_out_state(sources, plan, request_);
  const auto lowered = [&](const program::LoweringInput &source, const program::Workspace &workspace) {
    program::Program program = program::lower(source, plan, set.state, workspace);
    for (const Tier t : kTiers) set.bytes[t] = std::max(set.bytes[t], program.arena_bytes[t]);
    return program;
  };
  for (std::size_t v = 0; v < count; ++v) {
    ProgramSet::Variant &programs = set.variants[v];
    programs.step = lowered(sources[v], training_[v]);
    if (request_.accumulates) programs.accumulate = lowered(training_source(*variants_[v], v, false), training_[v]);
    if (evaluates && trains) programs.evaluation = lowered(sources[count + v], evaluation_[v]);
    // Makes the prediction's Program even if `evaluates` is false, as in the search for a plan. The plan must have
    // memory for this Program, which may need the most of all, because it holds outputs that training does not hold.
    if (predicts) programs.prediction = lowered(sources[predictions + v], prediction_[v]);
  }
  if (plan::defers(plan)) set.settlement = lowered(program::settlement(sources[0]), training_[0]);
  return set;
}

}  // namespace protrain::draft
