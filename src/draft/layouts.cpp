#include "draft/layouts.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "base/error.h"

namespace protrain::draft {

Layouts::Layouts(plan::LayOut lay_out, int threads) : lay_out_(std::move(lay_out)), threads_(threads) {}

plan::PlanCost Layouts::cost(const plan::Plan &plan) {
  if (const std::optional<plan::PlanCost> cost = known(plan)) return *cost;
  const plan::PlanCost cost = lay_out_(plan);
  if (team_ == nullptr) return cost;
  const std::lock_guard lock(mutex_);
  costs_.emplace_back(plan, cost);
  return cost;
}

void Layouts::until_true(std::size_t count, const plan::Task &task) {
  if (threads_ < 2 || !start_team()) return;
  costs_.clear();
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> found = false;
  const auto succeeds = [&](std::size_t number) {
    try {
      return task(number);
    } catch (const std::exception &) {
      return false;
    }
  };
  auto work = [&](Member &) {
    while (!found) {
      const std::size_t number = next++;
      if (number >= count) return;
      if (succeeds(number)) found = true;
    }
  };
  team_->enter([&] { team_->run(work); });
}

// Starts the threads at the first call of until_true(), because many searches never make such a call. Returns false if
// the system refuses to start them.
bool Layouts::start_team() {
  if (team_ != nullptr) return true;
  try {
    team_ = std::make_unique<Team>(threads_, "plan");
    return true;
  } catch (const Error &) {
    return false;
  }
}

std::optional<plan::PlanCost> Layouts::known(const plan::Plan &plan) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(costs_, plan, &std::pair<plan::Plan, plan::PlanCost>::first);
  return found == costs_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace protrain::draft
