#include "measure/contention.h"

#include <gtest/gtest.h>

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

TEST(ThreadTimes, AreThoseOfEachThread) {
  const Scratch root;
  write(root, "proc/self/task/7/schedstat", "3000000000 500000000 12\n");
  write(root, "proc/self/task/9/schedstat", "no numbers");
  const ThreadTimes times = thread_times(root.path());
  ASSERT_EQ(times.size(), 1u);
  EXPECT_EQ(times.at("7").ran, 3 * kSecond);
  EXPECT_EQ(times.at("7").waited, kSecond / 2);
}

TEST(ThreadTimes, AreNoneWhereTheSystemDoesNotTell) {
  const Scratch root;
  EXPECT_TRUE(thread_times(root.path()).empty());
  EXPECT_EQ(share_waited({}, {}), 0);
}

TEST(ShareWaited, IsThatOfTheTimeInWhichThreadsWantedACore) {
  EXPECT_EQ(share_waited({{"7", {kSecond, 0}}}, {{"7", {4 * kSecond, kSecond}}}), 0.25);
  EXPECT_EQ(share_waited({{"7", {kSecond, 0}}}, {{"7", {3 * kSecond, 0}}, {"8", {kSecond, kSecond}}}), 0.25)
      << "a thread that began meanwhile";
  EXPECT_EQ(share_waited({{"7", {0, 0}}, {"8", {90 * kSecond, 0}}}, {{"7", {3 * kSecond, kSecond}}}), 0.25)
      << "a thread that ended meanwhile";
  EXPECT_EQ(share_waited({}, {{"7", {1000, 4000}}}), 0) << "five microseconds say little";
}

// Four times as many threads as processors compute for a while, so most of them wait.
TEST(ShareWaited, IsLargeWhereThreadsComputeSideBySide) {
  const ThreadTimes start = thread_times();
  if (start.empty()) GTEST_SKIP() << "this system does not tell";
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4 * available_threads(); ++i)
    threads.emplace_back([](const std::stop_token &stop) {
      while (!stop.stop_requested()) {
      }
    });
  double share = 0;
  for (int i = 0; i < 100 && share < kMostWaited; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    share = share_waited(start, thread_times());
  }
  EXPECT_GE(share, kMostWaited);
}

TEST(CoresAreIdle, IfHardlyAnyoneWantsOneNowOrDidInTheLastMinute) {
  const Scratch root;
  EXPECT_FALSE(cores_are_idle(2, root.path())) << "the system does not tell";
  write(root, "proc/loadavg", "1.90 3.00 4.00 1/345 6789\n");
  EXPECT_TRUE(cores_are_idle(2, root.path()));
  EXPECT_FALSE(cores_are_idle(1, root.path())) << "the last minute had nearly two";
  write(root, "proc/loadavg", "0.10 3.00 4.00 3/345 6789\n");
  EXPECT_FALSE(cores_are_idle(2, root.path())) << "two others want to run";
  EXPECT_TRUE(cores_are_idle(16, root.path())) << "they have cores of their own";
}

}  // namespace
}  // namespace protrain::measure::contention_test
