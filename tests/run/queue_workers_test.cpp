#include "run/queue_workers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>

namespace protrain::run::queue_workers_test {
namespace {

struct Line {
  Queue queue;
  std::vector<std::size_t> waits = {};
};

// A job that records the order in which its instructions begin. Each instruction calls `act`.
class OrderJob final : public Job {
 public:
  explicit OrderJob(
      std::vector<Line> lines, std::function<void(std::size_t)> act = [](std::size_t) {})
      : lines_(std::move(lines)), waits_(lines_.size()), act_(std::move(act)) {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      lists_[lines_[i].queue].push_back(i);
      for (std::size_t wait : lines_[i].waits) waits_[i].push_back({lines_[wait].queue, wait});
    }
  }

  const std::vector<std::size_t> &list(Queue queue) const override { return lists_[queue]; }
  const std::vector<Wait> &waits(std::size_t instruction) const override { return waits_[instruction]; }
  void execute(std::size_t instruction) override {
    {
      const std::lock_guard lock(mutex_);
      begun_.push_back(instruction);
    }
    act_(instruction);
  }

  // Issues instructions as an executor does: to the queue's worker, or on this thread if the queue has none.
  QueueWorkers::Outcome run(QueueWorkers &workers) {
    begun_.clear();
    workers.begin(*this);
    issue_all(workers);
    return workers.end(lines_.size());
  }

  std::vector<std::size_t> begun() const { return begun_; }

 private:
  void issue_all(QueueWorkers &workers) {
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (workers.has(lines_[i].queue)) {
        workers.issue(i);
        continue;
      }
      if (!workers.wait(lines_[i].queue, waits_[i])) return;
      try {
        execute(i);
      } catch (...) {
        return workers.fail(i, std::current_exception());
      }
      workers.over(i, lines_[i].queue);
    }
  }

  std::vector<Line> lines_;
  std::vector<std::vector<Wait>> waits_;
  PerQueue<std::vector<std::size_t>> lists_;
  std::function<void(std::size_t)> act_;
  std::mutex mutex_;
  std::vector<std::size_t> begun_;
};

constexpr PerQueue<bool> kAllBesideCompute = {false, true, true, true, true, true, true};

std::string text_of(const std::exception_ptr &error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception &what) {
    return what.what();
  }
  return "";
}

// Sleeps long enough for other queues to overtake, if they do not wait.
void dawdle() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

TEST(QueueWorkers, RunTheInstructionsOfAQueueInTheirOrder) {
  QueueWorkers workers(kAllBesideCompute);
  OrderJob job(std::vector<Line>(50, {Queue::upload}));
  EXPECT_FALSE(job.run(workers).error);
  EXPECT_TRUE(std::ranges::is_sorted(job.begun()));
  EXPECT_EQ(job.begun().size(), 50u);
}

TEST(QueueWorkers, StartAnInstructionWhenItsWaitsAreOver) {
  std::array<std::atomic<bool>, 4> over{};
  std::atomic<int> early = 0;
  const std::vector<Line> lines = {
      {Queue::upload}, {Queue::host, {0}}, {Queue::compute, {1}}, {Queue::download, {0, 2}}};
  OrderJob job(lines, [&](std::size_t i) {
    for (std::size_t wait : lines[i].waits) early += !over[wait];
    dawdle();
    over[i] = true;
  });
  QueueWorkers workers(kAllBesideCompute);
  for (int round = 0; round < 20; ++round) {
    for (auto &flag : over) flag = false;
    EXPECT_FALSE(job.run(workers).error);
    EXPECT_EQ(job.begun().size(), lines.size());
  }
  EXPECT_EQ(early, 0);
}

// Each of the two instructions waits until the other has begun, so the test ends only if both queues run in parallel.
TEST(QueueWorkers, RunQueuesBesideEachOther) {
  std::atomic<int> begun = 0;
  OrderJob job({{Queue::upload}, {Queue::download}}, [&](std::size_t) {
    ++begun;
    while (begun < 2) std::this_thread::yield();
  });
  QueueWorkers workers(kAllBesideCompute);
  EXPECT_FALSE(job.run(workers).error);
}

TEST(QueueWorkers, StartAnInstructionOnceItIsIssued) {
  bool computed = false, computed_before = false;
  OrderJob job({{Queue::compute}, {Queue::upload}}, [&](std::size_t i) {
    if (i == 1) computed_before = computed;
    if (i == 0) dawdle();  // the upload worker sleeps meanwhile
    if (i == 0) computed = true;
  });
  QueueWorkers workers(kAllBesideCompute);
  EXPECT_FALSE(job.run(workers).error);
  EXPECT_TRUE(computed_before);
}

TEST(QueueWorkers, HaveNoWorkerWhereNoneIsAskedFor) {
  QueueWorkers workers({});
  for (const Queue q : kQueues) EXPECT_FALSE(workers.has(q));
  std::vector<std::thread::id> threads;
  OrderJob job({{Queue::upload}, {Queue::compute, {0}}},
               [&](std::size_t) { threads.push_back(std::this_thread::get_id()); });
  EXPECT_FALSE(job.run(workers).error);
  EXPECT_EQ(threads, std::vector<std::thread::id>(2, std::this_thread::get_id()));
}

TEST(QueueWorkers, StopEverythingAtAFailureAndSayWhere) {
  OrderJob job({{Queue::upload}, {Queue::host, {0}}, {Queue::compute, {1}}, {Queue::download, {2}}, {Queue::host}},
               [](std::size_t i) {
                 if (i != 1) return;
                 dawdle();  // the issuing thread and the download worker sleep meanwhile
                 throw std::runtime_error("no more paper");
               });
  QueueWorkers workers(kAllBesideCompute);
  const QueueWorkers::Outcome outcome = job.run(workers);
  EXPECT_EQ(outcome.instruction, 1u);
  EXPECT_EQ(text_of(outcome.error), "no more paper");
  EXPECT_EQ(job.begun(), (std::vector<std::size_t>{0, 1}));
}

TEST(QueueWorkers, StopAtAFailureOfWhoIssues) {
  OrderJob job({{Queue::compute}, {Queue::upload, {0}}}, [](std::size_t) {
    dawdle();  // the upload worker sleeps meanwhile
    throw std::runtime_error("compute");
  });
  QueueWorkers workers(kAllBesideCompute);
  const QueueWorkers::Outcome outcome = job.run(workers);
  EXPECT_EQ(outcome.instruction, 0u);
  EXPECT_EQ(job.begun(), (std::vector<std::size_t>{0}));
}

TEST(QueueWorkers, KeepTheFirstOfSeveralFailures) {
  OrderJob job({});
  QueueWorkers workers(kAllBesideCompute);
  workers.begin(job);
  workers.fail(5, std::make_exception_ptr(std::runtime_error("first")));
  workers.fail(3, std::make_exception_ptr(std::runtime_error("second")));
  const QueueWorkers::Outcome outcome = workers.end(8);
  EXPECT_EQ(outcome.instruction, 5u);
  EXPECT_EQ(text_of(outcome.error), "first");
}

TEST(QueueWorkers, RunAgainAfterAFailure) {
  bool fails = true;
  OrderJob job({{Queue::upload}, {Queue::compute, {0}}}, [&](std::size_t) {
    if (fails) throw std::runtime_error("once");
  });
  QueueWorkers workers(kAllBesideCompute);
  EXPECT_TRUE(job.run(workers).error);
  fails = false;
  EXPECT_FALSE(job.run(workers).error);
  EXPECT_EQ(job.begun(), (std::vector<std::size_t>{0, 1}));
}

}  // namespace
}  // namespace protrain::run::queue_workers_test
