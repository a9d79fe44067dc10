#include "draft/layouts.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "base/error.h"

namespace protrain::draft::layouts_test {
namespace {

plan::Plan plan_with(int buffers) {
  plan::Plan plan;
  plan.n_buffer = buffers;
  return plan;
}

TEST(Layouts, LayOutAPlanOnceIfTheyHaveThreads) {
  for (const int threads : {1, 3}) {
    std::atomic<int> laid_out = 0;
    Layouts layouts(
        [&](const plan::Plan &plan) {
          ++laid_out;
          return plan::PlanCost{.seconds = static_cast<double>(plan.n_buffer)};
        },
        threads);
    layouts.until_true(20, [&](std::size_t number) {
      layouts.cost(plan_with(static_cast<int>(number)));
      return false;
    });
    EXPECT_EQ(laid_out, threads == 1 ? 0 : 20);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(layouts.cost(plan_with(i)).seconds, i);
    EXPECT_EQ(laid_out, 20);
  }
}

TEST(Layouts, BeginNoTaskAfterOneThatIsTrue) {
  Layouts layouts([](const plan::Plan &) { return plan::PlanCost{}; }, 3);
  std::mutex mutex;
  std::set<std::size_t> done;
  layouts.until_true(10'000, [&](std::size_t number) {
    if (number > 5) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::lock_guard lock(mutex);
    done.insert(number);
    return number == 5;
  });
  for (std::size_t number = 0; number <= 5; ++number) EXPECT_TRUE(done.contains(number)) << number;
  EXPECT_LT(done.size(), 10'000u);
}

TEST(Layouts, LeaveAnErrorToWhoeverNeedsThePlan) {
  Layouts layouts(
      [](const plan::Plan &plan) -> plan::PlanCost {
        require(plan.n_buffer != 2, Code::nomem, "plan", "made up");
        return {};
      },
      3);
  std::atomic<int> tasks = 0;
  layouts.until_true(5, [&](std::size_t number) {
    ++tasks;
    layouts.cost(plan_with(static_cast<int>(number)));
    return false;
  });
  EXPECT_EQ(tasks, 5);
  layouts.cost(plan_with(1));
  EXPECT_THROW(layouts.cost(plan_with(2)), Error);
}

}  // namespace
}  // namespace protrain::draft::layouts_test
