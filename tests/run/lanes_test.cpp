#include "run/lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>

namespace protrain::run {
namespace {

struct Line {
  Queue queue;
  std::vector<std::size_t> waits = {};
};

// A job that writes down which instruction began when; `act` is what each does meanwhile.
class Recorded final : public Job {
 public:
  explicit Recorded(
      std::vector<Line> lines, std::function<void(std::size_t)> act = [](std::size_t) {})
      : lines_(std::move(lines)), waits_(lines_.size()), act_(std::move(act)) {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      lists_[static_cast<std::size_t>(lines_[i].queue)].push_back(i);
      for (std::size_t wait : lines_[i].waits) waits_[i].push_back({lines_[wait].queue, wait});
    }
  }

  const std::vector<std::size_t> &list(Queue queue) const override { return lists_[static_cast<std::size_t>(queue)]; }
  const std::vector<Wait> &waits(std::size_t instruction) const override { return waits_[instruction]; }
  void execute(std::size_t instruction) override {
    {
      const std::lock_guard lock(mutex_);
      begun_.push_back(instruction);
    }
    act_(instruction);
  }

  // As an executor does: workers' instructions are handed over, the others run here.
  Lanes::Outcome run(Lanes &lanes) {
    begun_.clear();
    lanes.begin(*this);
    issue_all(lanes);
    return lanes.end(lines_.size());
  }

  std::vector<std::size_t> begun() const { return begun_; }

 private:
  void issue_all(Lanes &lanes) {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (lanes.has(lines_[i].queue)) {
        lanes.issue(i);
        continue;
      }
      if (!lanes.wait(waits_[i])) return;
      try {
        execute(i);
      } catch (...) {
        return lanes.fail(i, std::current_exception());
      }
      lanes.over(i, lines_[i].queue);
    }
  }

  std::vector<Line> lines_;
  std::vector<std::vector<Wait>> waits_;
  std::array<std::vector<std::size_t>, kQueueCount> lists_;
  std::function<void(std::size_t)> act_;
  std::mutex mutex_;
  std::vector<std::size_t> begun_;
};

constexpr std::array<bool, kQueueCount> kAllBesideCompute = {false, true, true, true, true, true};

std::string text_of(const std::exception_ptr &error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception &what) {
    return what.what();
  }
  return "";
}

// Slow enough for others to overtake where nothing holds them.
void dawdle() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

TEST(Lanes, RunTheInstructionsOfAQueueInTheirOrder) {
  Lanes lanes(kAllBesideCompute);
  Recorded job(std::vector<Line>(50, {Queue::upload}));
  EXPECT_FALSE(job.run(lanes).error);
  EXPECT_TRUE(std::ranges::is_sorted(job.begun()));
  EXPECT_EQ(job.begun().size(), 50u);
}

TEST(Lanes, StartAnInstructionWhenItsWaitsAreOver) {
  std::array<std::atomic<bool>, 4> over{};
  std::atomic<int> early = 0;
  const std::vector<Line> lines = {
      {Queue::upload}, {Queue::host, {0}}, {Queue::compute, {1}}, {Queue::download, {0, 2}}};
  Recorded job(lines, [&](std::size_t i) {
    for (std::size_t wait : lines[i].waits) early += !over[wait];
    dawdle();
    over[i] = true;
  });
  Lanes lanes(kAllBesideCompute);
  for (int round = 0; round < 20; ++round) {
    for (auto &flag : over) flag = false;
    EXPECT_FALSE(job.run(lanes).error);
    EXPECT_EQ(job.begun().size(), lines.size());
  }
  EXPECT_EQ(early, 0);
}

// Each is over only once the other has begun.
TEST(Lanes, RunQueuesBesideEachOther) {
  std::atomic<int> begun = 0;
  Recorded job({{Queue::upload}, {Queue::download}}, [&](std::size_t) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
  Lanes lanes(kAllBesideCompute);
  EXPECT_FALSE(job.run(lanes).error);
}

TEST(Lanes, HaveNoWorkerWhereNoneIsAskedFor) {
  Lanes lanes({});
  for (std::size_t q = 0; q < kQueueCount; ++q) EXPECT_FALSE(lanes.has(static_cast<Queue>(q)));
  std::vector<std::thread::id> threads;
  Recorded job({{Queue::upload}, {Queue::compute, {0}}},
               [&](std::size_t) { threads.push_back(std::this_thread::get_id()); });
  EXPECT_FALSE(job.run(lanes).error);
  EXPECT_EQ(threads, std::vector<std::thread::id>(2, std::this_thread::get_id()));
}

TEST(Lanes, StopEverythingAtAFailureAndSayWhere) {
  Recorded job({{Queue::upload}, {Queue::host, {0}}, {Queue::compute, {1}}, {Queue::download, {2}}, {Queue::host}},
               [](std::size_t i) {
                 if (i == 1) throw std::runtime_error("no more paper");
               });
  Lanes lanes(kAllBesideCompute);
  const Lanes::Outcome outcome = job.run(lanes);
  EXPECT_EQ(outcome.instruction, 1u);
  EXPECT_EQ(text_of(outcome.error), "no more paper");
  EXPECT_EQ(job.begun(), (std::vector<std::size_t>{0, 1}));
}

TEST(Lanes, StopAtAFailureOfWhoIssues) {
  Recorded job({{Queue::compute}, {Queue::upload, {0}}}, [](std::size_t) { throw std::runtime_error("compute"); });
  Lanes lanes(kAllBesideCompute);
  const Lanes::Outcome outcome = job.run(lanes);
  EXPECT_EQ(outcome.instruction, 0u);
  EXPECT_EQ(job.begun(), (std::vector<std::size_t>{0}));
}

TEST(Lanes, KeepTheFirstOfSeveralFailures) {
  Recorded job({});
  Lanes lanes(kAllBesideCompute);
  lanes.begin(job);
  lanes.fail(5, std::make_exception_ptr(std::runtime_error("first")));
  lanes.fail(3, std::make_exception_ptr(std::runtime_error("second")));
  const Lanes::Outcome outcome = lanes.end(8);
  EXPECT_EQ(outcome.instruction, 5u);
  EXPECT_EQ(text_of(outcome.error), "first");
}

TEST(Lanes, RunAgainAfterAFailure) {
  bool fails = true;
  Recorded job({{Queue::upload}, {Queue::compute, {0}}}, [&](std::size_t) {
    if (fails) throw std::runtime_error("once");
  });
  Lanes lanes(kAllBesideCompute);
  EXPECT_TRUE(job.run(lanes).error);
  fails = false;
  EXPECT_FALSE(job.run(lanes).error);
  EXPECT_EQ(job.begun(), (std::vector<std::size_t>{0, 1}));
}

}  // namespace
}  // namespace protrain::run
