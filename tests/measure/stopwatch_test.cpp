// How a stopwatch finds the time of work that others disturb. The clock of these tests is the work's own.
#include "measure/stopwatch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "backend/backend.h"

namespace protrain::measure::stopwatch_test {
namespace {

// Work whose runs take the given seconds, one after the other. Runs after the last one take as long as that.
struct Runs {
  std::vector<double> seconds;
  std::size_t count = 0;  // runs until now
  double clock = 0;

  double quickest() {
    const std::unique_ptr<backend::Device> device = backend::open("cpu", 1);
    const Stopwatch stopwatch(*device, [this] { return clock; });
    return stopwatch.quickest_here([this] { clock += seconds[std::min(count++, seconds.size() - 1)]; });
  }
};

TEST(Stopwatch, CountsTheWarmUpOfLongWorkToo) {
  Runs second_disturbed{{0.0625, 0.125}}, first_disturbed{{0.125, 0.0625}};
  EXPECT_EQ(second_disturbed.quickest(), 0.0625);
  EXPECT_EQ(first_disturbed.quickest(), 0.0625);
  EXPECT_EQ(second_disturbed.count, 2u) << "long work runs no more than twice";
  EXPECT_EQ(first_disturbed.count, 2u);
}

TEST(Stopwatch, RepeatsShortWorkAndTakesTheQuickestOfThreeRuns) {
  Runs work{{0.0009765625}};
  EXPECT_EQ(work.quickest(), 0.0009765625);
  EXPECT_EQ(work.count, 2u + 3 * 4) << "three runs of four milliseconds, after two single ones";
}

}  // namespace
}  // namespace protrain::measure::stopwatch_test
