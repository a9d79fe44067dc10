// Layouts: lays out plans for a search and returns their costs. Several threads can lay out plans before the search
// knows whether it needs them. The search itself goes from one plan to the next and asks here for the costs, so its
// result does not depend on the number of threads.
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
  // `lay_out` must be safe to call from several threads. If `threads` is 1, or if the system refuses to start threads,
  // until_true() does nothing.
  Layouts(plan::LayOut lay_out, int threads);

  // Returns the plan's cost. Lays the plan out unless its cost is stored.
  plan::PlanCost cost(const plan::Plan &plan);
  // Calls task(0), task(1), ... task(count - 1) on several threads. Once a task returns true, calls no further task.
  // Returns when all called tasks are done, which can include tasks with higher numbers than the successful one.
  // Forgets the costs that were stored before this call.
  //   A task that throws counts as one that returns false. If the search needs the plan of this task later, cost() lays
  // the plan out again and throws the same exception.
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
