// Draft: every Program of a session under one plan, laid out over one state.
#pragma once

#include <memory>
#include <vector>

#include "plan/search.h"
#include "session/served.h"
#include "session/site.h"

namespace protrain::session {

struct Draft {
  struct Programs {
    program::Program step;        // the last or only micro-batch: ends in Updates
    program::Program accumulate;  // a micro-batch before the last; empty where there is none
    program::Program evaluation;
  };
  program::State state;
  std::vector<Programs> programs;  // per binding of shapes
  program::Program settlement;     // the Updates that the last step left to the next; empty: they never are
  plan::Bytes bytes{};             // of each tier: the largest that a Program needs

  // All that are not empty.
  template <typename Do>
  void each(Do &&act) const {
    const auto one = [&](const program::Program &program) {
      if (!program.instructions.empty()) act(program);
    };
    for (const Programs &binding : programs) {
      one(binding.step);
      one(binding.accumulate);
      one(binding.evaluation);
    }
    one(settlement);
  }
};

class Drafter {
 public:
  // `served` must outlive it. Asks the site for the scratch of every kernel, once.
  Drafter(const std::vector<std::unique_ptr<Served>> &served, Site &site, program::StateRequest request);

  Draft lower(const plan::Plan &plan) const;
  // Without evaluation, which needs less than the step of the same shapes: for a search.
  Draft lower_training(const plan::Plan &plan) const;

 private:
  Draft lower(const plan::Plan &plan, bool evaluates) const;

  const std::vector<std::unique_ptr<Served>> &served_;
  const program::StateRequest request_;
  std::vector<program::Workspace> training_, evaluation_;  // per binding
};

}  // namespace protrain::session
