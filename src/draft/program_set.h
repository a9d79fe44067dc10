// ProgramSet: every Program of a session under one plan, laid out over one state.
#pragma once

#include <memory>
#include <vector>

#include "draft/shape_variant.h"
#include "draft/target_machine.h"
#include "plan/search.h"

namespace protrain::draft {

struct ProgramSet {
  // The Programs of one shape variant.
  struct Variant {
    program::Program step;        // the last or only micro-batch: ends in Updates. In mode=eval: the evaluation
    program::Program accumulate;  // an earlier micro-batch; empty if there is none
    program::Program evaluation;  // empty in mode=eval
    program::Program prediction;  // computes the outputs that keep_outputs names; empty if there are none
  };
  program::State state;
  std::vector<Variant> variants;  // per shape variant
  // Training and evaluation of shape variant i share binding number i. The graph of the prediction has other values, so
  // the prediction has a binding of its own. Returns the number of this binding.
  std::size_t binding_of_outputs(std::size_t variant) const { return variants.size() + variant; }
  program::Program settlement;  // the Updates that the last step deferred to the next; empty if none are deferred
  plan::Bytes bytes{};          // of each tier: the largest that any Program needs

  // Calls act(program) for each Program that is not empty.
  template <typename Do>
  void each(Do &&act) const {
    const auto one = [&](const program::Program &program) {
      if (!program.instructions.empty()) act(program);
    };
    for (const Variant &binding : variants) {
      one(binding.step);
      one(binding.accumulate);
      one(binding.evaluation);
      one(binding.prediction);
    }
    one(settlement);
  }
};

// PlanLowering: makes the Programs of plans, for any number of plans over the same graphs.
class PlanLowering {
 public:
  // `variants` must outlive this object. The constructor asks the machine for the scratch of every kernel, so lower()
  // does not have to ask again.
  PlanLowering(const std::vector<std::unique_ptr<ShapeVariant>> &variants, TargetMachine &machine,
               program::StateRequest request);

  ProgramSet lower(const plan::Plan &plan) const;
  // Makes the Programs that the search for a plan needs. Leaves out evaluations, because an evaluation needs less
  // memory than the step of the same shapes.
  ProgramSet lower_training(const plan::Plan &plan) const;

 private:
  ProgramSet lower(const plan::Plan &plan, bool evaluates) const;

  const std::vector<std::unique_ptr<ShapeVariant>> &variants_;
  const program::StateRequest request_;
  std::vector<program::Workspace> training_, evaluation_, prediction_;  // per shape variant
};

}  // namespace protrain::draft
