// Schedules must follow torch.optim.lr_scheduler over 200 steps, as fixtures/make_rates.py recorded it.
#include "draft/schedule.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "draft/settings.h"
#include "fixtures.h"

namespace protrain::draft::schedule_test {
namespace {

TEST(Schedule, FollowsPyTorch) {
  std::ifstream file(test::fixture("rates/schedules.json"));
  const nlohmann::json golden = nlohmann::json::parse(file);
  const double full = golden["learning_rate"];
  for (const nlohmann::json &one : golden["schedules"]) {
    Options options;
    for (const auto &[key, value] : one["options"].items()) options.set(key, value.get<std::string>());
    const Schedule schedule = settings_of(options).schedule;
    const std::vector<double> rates = one["rates"];
    ASSERT_EQ(rates.size(), 200u);
    for (std::size_t k = 0; k < rates.size(); ++k)
      EXPECT_NEAR(schedule.rate(full, k), rates[k], 1e-9 * full) << one["options"] << " after " << k << " steps";
  }
}

TEST(Schedule, ScalesWithTheFullRateButNotTheFinalOne) {
  const Schedule linear{.kind = Schedule::Kind::linear, .total = 4, .final_rate = 1};
  EXPECT_EQ(linear.rate(5, 0), 5);
  EXPECT_EQ(linear.rate(5, 2), 3);
  EXPECT_EQ(linear.rate(9, 2), 5);
  EXPECT_EQ(linear.rate(9, 4), 1);
  EXPECT_EQ(linear.rate(9, 1000), 1);
}

}  // namespace
}  // namespace protrain::draft::schedule_test
