// Decides the plan: reads it from a file, or takes the best one that the search finds within the budgets.
#pragma once

#include <optional>
#include <string>

#include "draft/budget.h"
#include "draft/other_ranks.h"
#include "draft/program_set.h"
#include "program/simulate.h"

namespace protrain::draft {

// The plan, and how it was found.
struct Decision {
  plan::Plan plan;
  plan::SearchResult found;                // `best` is empty if the plan comes from a file or nothing fits
  std::optional<plan::Smallest> smallest;  // set if the search found nothing
  std::optional<plan::Bytes> with_disk;    // if there is no disk: the bytes that the smallest plan would need with one
  double search_seconds = 0;
};

// Goal is the question that the caller asks.
enum class Goal : std::uint8_t {
  best_or_budgets,  // the fastest plan; if no plan fits, budgets that work too, so that the error can quote them
  best,             // the fastest plan
  any,              // whether a plan fits; takes the resident plan or else the smallest, without a search
};

// The inputs of choose_plan().
struct PlanningInputs {
  const Settings &settings;
  const PlanLowering &lowering;
  const OtherRanks &others;
  const ShapeVariant &variant;  // the first variant; the plan is chosen for its costs
  const profile::Profile &profile;
  Budget budget;
  bool barrier = false;  // the settings need the barrier order
  std::uint64_t accumulation = 1;
  plan::OptimizerBytes optimizer;
  Goal goal = Goal::best_or_budgets;
};

// Throws Code::format if the plan's file holds no plan, and Code::arg if the plan in it does not agree with the graph
// or the options.
Decision choose_plan(const PlanningInputs &inputs);

// The simulated Programs of a step.
struct StepSimulation {
  program::Simulation step, accumulate;
  double seconds(std::uint64_t accumulation) const;  // of all micro-batches of a step together
};
StepSimulation simulate_step(const ProgramSet::Variant &programs, const plan::Durations &durations);

}  // namespace protrain::draft
