#include "measure/contention.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/threads.h"
#include "scratch.h"

namespace protrain::measure::contention_test {
namespace {

using test::Scratch;

constexpr std::uint64_t kSecond = 1'000'000'000;

void write(const Scratch &root, const std::string &path, const std::string &text) {
  std::filesystem::create_directories(std::filesystem::path(root / path).parent_path());
  root.put(path, text);
}

TEST(CoreTimes, AreTheSumsOverAllThreads) {
  const Scratch root;
  write(root, "proc/self/task/7/schedstat", "3000000000 500000000 12\n");
  write(root, "proc/self/task/8/schedstat", "1000000000 250000000 3\n");
  write(root, "proc/self/task/9/schedstat", "not three numbers");
  const CoreTimes times = core_times(root.path());
  EXPECT_EQ(times.ran, 4 * kSecond);
  EXPECT_EQ(times.waited, 750'000'000u);
}

TEST(CoreTimes, AreNoneWhereTheSystemDoesNotTell) {
  const Scratch root;
  const CoreTimes times = core_times(root.path());
  EXPECT_EQ(times.ran, 0u);
  EXPECT_EQ(times.waited, 0u);
  EXPECT_EQ(share_waited(times, times), 0);
}

TEST(ShareWaited, IsThatOfTheTimeInWhichThreadsWantedACore) {
  EXPECT_EQ(share_waited({kSecond, 0}, {4 * kSecond, kSecond}), 0.25);
  EXPECT_EQ(share_waited({kSecond, kSecond}, {4 * kSecond, 0}), 0) << "a thread that had waited has ended";
  EXPECT_EQ(share_waited({0, 0}, {1000, 4000}), 0) << "five microseconds say little";
}

// Four times as many threads as processors compute for a while, so most of them wait.
TEST(ShareWaited, IsLargeWhereThreadsComputeSideBySide) {
  const CoreTimes start = core_times();
  if (start.ran == 0) GTEST_SKIP() << "this system does not tell";
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4 * available_threads(); ++i)
    threads.emplace_back([&] {
      while (!stop) {
      }
    });
  CoreTimes end = start;
  for (int i = 0; i < 100 && share_waited(start, end) < kMostWaited; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    end = core_times();
  }
  stop = true;
  EXPECT_GE(share_waited(start, end), kMostWaited);
}

TEST(CoresAreIdle, IfNobodyElseWantsOneNowOrDidInTheLastMinute) {
  const Scratch root;
  EXPECT_FALSE(cores_are_idle(2, root.path())) << "the system does not tell";
  write(root, "proc/loadavg", "1.90 3.00 4.00 1/345 6789\n");
  EXPECT_TRUE(cores_are_idle(2, root.path()));
  EXPECT_FALSE(cores_are_idle(1, root.path())) << "the last minute had nearly two";
  write(root, "proc/loadavg", "0.10 3.00 4.00 3/345 6789\n");
  EXPECT_FALSE(cores_are_idle(2, root.path())) << "two others want to run";
}

}  // namespace
}  // namespace protrain::measure::contention_test
