// The choice of a plan: what a file says, or what the search finds inside the budgets.
#pragma once

#include <optional>
#include <string>

#include "draft/budget.h"
#include "draft/program_set.h"
#include "program/simulate.h"

namespace protrain::draft {

// The plan, and what led to it.
struct Decision {
  plan::Plan plan;
  plan::Found found;                       // best: none where a file said it, or where nothing fits
  std::optional<plan::Smallest> smallest;  // where the search found nothing
  std::optional<plan::Bytes> with_disk;    // where there is no disk: what the smallest plan needs if there is one
  double search_seconds = 0;
};

// What a plan is chosen for.
struct PlanningInputs {
  const Settings &settings;
  const PlanLowering &lowering;
  const ShapeVariant &variant;  // the first: what it takes is what counts
  const profile::Profile &profile;
  Budget budget;
  bool barrier = false;  // what the settings ask for needs the barrier order
  std::uint64_t accumulation = 1;
  plan::OptimizerBytes optimizer;
};

// Code::arg, Code::format where the file's plan does not fit.
Decision choose_plan(const PlanningInputs &inputs);

// What the simulator says of the Programs that a step runs.
struct Prediction {
  program::Simulation step, accumulate;
  double seconds(std::uint64_t accumulation) const;  // of all batches of a step together
};
Prediction predict(const ProgramSet::Variant &programs, const plan::Durations &durations);

}  // namespace protrain::draft
