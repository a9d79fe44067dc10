// Layouts: the costs of laid-out plans, for a search. Several threads may lay out plans before the search knows whether
// it needs them. The search itself goes from one plan to the next and finds their costs here, so its result does not
// depend on the number of threads.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/threads.h"
#include "plan/trials.h"

namespace protrain::draft {

class Layouts {
 public:
  // `lay_out` must be safe to call from several threads. With one thread, or if the system refuses more, until_true()
  // does nothing.
  Layouts(plan::LayOut lay_out, int threads);

  // Returns the plan's cost. Lays it out if that has not been done.
  plan::PlanCost cost(const plan::Plan &plan);
  // Calls task(0), task(1), ... task(count - 1), several of them at the same time, until one of them returns true. Some
  // tasks with higher numbers may then have been called too. Returns when all tasks that were begun are done. Drops the
  // exception of a task: if the search needs that plan, it gets the exception from cost(). Forgets the costs of earlier
  // calls.
  void until_true(std::size_t count, const plan::Task &task);

 private:
  bool start_team();
  std::optional<plan::PlanCost> known(const plan::Plan &plan);

  const plan::LayOut lay_out_;
  const int threads_;
  std::unique_ptr<Team> team_;
  std::mutex mutex_;  // guards `costs_`
  std::deque<std::pair<plan::Plan, plan::PlanCost>> costs_;
};

}  // namespace protrain::draft
