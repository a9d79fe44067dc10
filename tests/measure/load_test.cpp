// The load that keeps the cores busy while the disk or a link is measured.
#include "measure/load.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "errors.h"

namespace protrain::measure::load_test {
namespace {

TEST(Load, RunsTheWorkInSeveralTurnsOfWhichOneIsTheMedian) {
  const std::unique_ptr<backend::Device> device = backend::open("cpu", 1);
  int turns = 0;
  const double share = Load(*device).share_beside([&] {
    ++turns;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  });
  EXPECT_GE(turns, 3);
  EXPECT_EQ(turns % 2, 1);
  EXPECT_TRUE(share >= 0.05 && share <= 1) << share;
}

TEST(Load, PassesOnWhatTheWorkThrows) {
  const std::unique_ptr<backend::Device> device = backend::open("cpu", 1);
  int turns = 0;
  EXPECT_EQ(test::code_of([&] {
              Load(*device).share_beside([&] {
                if (++turns == 2) fail(Code::io, "disk", "the second turn fails");
              });
            }),
            Code::io);
}

}  // namespace
}  // namespace protrain::measure::load_test
