// The choice of a plan: what a file says, or what the search finds inside the budgets.
#pragma once

#include <optional>
#include <string>

#include "program/simulate.h"
#include "session/budget.h"
#include "session/draft.h"

namespace protrain::session {

struct Chosen {
  plan::Plan plan;
  plan::Found found;                       // best: none where a file said it, or where nothing fits
  std::optional<plan::Smallest> smallest;  // where the search found nothing
  std::optional<plan::Bytes> with_disk;    // where there is no disk: what the smallest plan needs if there is one
  double search_seconds = 0;
};

struct Ground {
  const Options &options;
  const Drafter &drafter;
  const Served &served;  // the first binding: what it takes is what counts
  const profile::Profile &profile;
  Budget budget;
  bool barrier = false;  // what the options ask for needs the barrier order
  std::uint64_t accumulation = 1;
  plan::OptimizerBytes optimizer;
};

// Code::arg, Code::format where the file's plan does not fit.
Chosen choose_plan(const Ground &ground);

// What the simulator says of the Programs that a step runs.
struct Predicted {
  program::Simulation step, accumulate;
  double seconds(std::uint64_t accumulation) const;  // of all batches of a step together
};
Predicted predict(const Draft::Programs &programs, const plan::Clock &clock);

}  // namespace protrain::session
