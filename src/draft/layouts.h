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
  // `lay_out` must be safe to call from several threads. With one thread, or if the system refuses more, until_true()
  // does nothing.
  Layouts(plan::LayOut lay_out, int threads);

  // Returns the plan's cost. Lays the plan out unless its cost is stored.
  plan::PlanCost cost(const plan::Plan &plan);
  // Calls task(0), task(1), ... task(count - 1) on several threads until one of them returns true. By then, tasks with
  // higher numbers can have been called too. Returns when all begun tasks are done. Forgets the costs of earlier calls.
  //   If a task throws, drops the exception. If the search needs the plan in question, cost() throws the same again.
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
