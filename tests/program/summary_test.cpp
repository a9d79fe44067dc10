#include "program/summary.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hand_built.h"

namespace protrain::program::summary_test {
namespace {

constexpr Beside kAllBeside = {false, true, true, true, true, true, true};

// A step of empty instructions, for which the test gives queues, waits and spans.
class HandMadeStep {
 public:
  HandMadeStep &ran(Kind kind, Queue queue, Span span, std::vector<std::size_t> waits = {}) {
    program.instructions.push_back({.kind = kind, .queue = queue, .waits = std::move(waits)});
    spans.push_back(span);
    return *this;
  }
  HandMadeStep &computed(Span span, std::vector<std::size_t> waits = {}) {
    return ran(Kind::run, Queue::compute, span, std::move(waits));
  }
  Summary summary(const Beside &beside = kAllBeside, std::int64_t step_ns = 0) const {
    return summarize(program, spans, beside, step_ns);
  }

  Program program;
  std::vector<Span> spans;
};

std::int64_t of(const Summary &summary, Stall stall) { return summary.stall_ns[stall]; }
std::int64_t of(const Summary &summary, Kind kind) { return summary.stall_ns[stall_of(kind)]; }
std::int64_t busy(const Summary &summary, Queue queue) { return summary.busy_ns[queue]; }

void expect_whole(const Summary &summary) {
  EXPECT_EQ(std::accumulate(summary.stall_ns.begin(), summary.stall_ns.end(), busy(summary, Queue::compute)),
            summary.step_ns);
}

TEST(Summary, OfComputeAloneHasNoStallButItsStartAndEnd) {
  const Summary summary = HandMadeStep().computed({5, 20}).computed({20, 30}).summary(kAllBeside, 37);
  EXPECT_EQ(summary.step_ns, 37);
  EXPECT_EQ(busy(summary, Queue::compute), 25);
  EXPECT_EQ(of(summary, Stall::start), 5);
  EXPECT_EQ(of(summary, Stall::end), 7);
  EXPECT_EQ(summary.overlap, 0);
  expect_whole(summary);
}

TEST(Summary, GivesAGapToTheKindThatEndedLastAmongWhatWasWaitedFor) {
  const Summary summary = HandMadeStep()
                              .computed({0, 10})
                              .ran(Kind::fetch, Queue::upload, {0, 40})
                              .ran(Kind::offload, Queue::download, {5, 30})
                              .computed({40, 50}, {1, 2})
                              .summary();
  EXPECT_EQ(of(summary, Kind::fetch), 30);
  EXPECT_EQ(of(summary, Kind::offload), 0);
  expect_whole(summary);
}

TEST(Summary, GivesWhatRemainsOfAGapAfterTheWaitToIssue) {
  const Summary summary = HandMadeStep()
                              .computed({0, 10})
                              .ran(Kind::fetch, Queue::upload, {0, 25})
                              .computed({28, 50}, {1})
                              .computed({51, 60})
                              .summary();
  EXPECT_EQ(of(summary, Kind::fetch), 15);
  EXPECT_EQ(of(summary, Stall::issue), 3 + 1);
  expect_whole(summary);
}

TEST(Summary, FollowsWaitsBackToTheReadBehindAFetch) {
  const Summary summary = HandMadeStep()
                              .computed({0, 10})
                              .ran(Kind::read, Queue::disk_read, {0, 60})
                              .ran(Kind::fetch, Queue::upload, {60, 70}, {1})
                              .computed({70, 80}, {2})
                              .summary();
  EXPECT_EQ(of(summary, Kind::read), 50);
  EXPECT_EQ(of(summary, Kind::fetch), 10);
  expect_whole(summary);
}

TEST(Summary, FollowsTheQueueBackToWhatKeptItBusy) {
  const Summary summary = HandMadeStep()
                              .computed({0, 10})
                              .ran(Kind::swap_in, Queue::upload, {0, 45})
                              .ran(Kind::fetch, Queue::upload, {45, 50})
                              .computed({50, 80}, {2})
                              .summary();
  EXPECT_EQ(of(summary, Kind::swap_in), 35);
  EXPECT_EQ(of(summary, Kind::fetch), 5);
  expect_whole(summary);
}

TEST(Summary, CountsWhatRunsInComputesPlaceAsAStallOfItsOwn) {
  HandMadeStep step;
  step.computed({0, 10}).ran(Kind::fetch, Queue::upload, {10, 30}).computed({30, 40}, {1});
  const Summary summary = step.summary({});
  EXPECT_EQ(of(summary, Stall::inlined), 20);
  EXPECT_EQ(of(summary, Kind::fetch), 0);
  EXPECT_EQ(busy(summary, Queue::upload), 20);
  EXPECT_EQ(summary.overlap, 0);
  expect_whole(summary);
}

TEST(Summary, CallsWhatLiesBeforeAndAfterComputeStartAndEndWhateverRanThen) {
  const Summary summary = HandMadeStep()
                              .ran(Kind::fetch, Queue::upload, {0, 8})
                              .computed({9, 20}, {0})
                              .ran(Kind::update, Queue::host, {20, 50}, {1})
                              .ran(Kind::write, Queue::disk_write, {50, 90}, {2})
                              .summary();
  EXPECT_EQ(of(summary, Stall::start), 9);
  EXPECT_EQ(of(summary, Stall::end), 70);
  expect_whole(summary);
}

TEST(Summary, MeasuresOverlapInTheTimeInWhichAnyOtherQueueIsBusy) {
  // Compute is busy from 0 to 25 and from 45 to 60. Other queues are busy from 10 to 50 (two of them from 20 to 30) and
  // from 60 to 70.
  const Summary summary = HandMadeStep()
                              .computed({0, 25})
                              .ran(Kind::fetch, Queue::upload, {10, 30})
                              .ran(Kind::offload, Queue::download, {20, 50})
                              .computed({45, 60})
                              .ran(Kind::write, Queue::disk_write, {60, 70})
                              .summary();
  EXPECT_DOUBLE_EQ(summary.overlap, (15.0 + 5.0) / 50.0);
  expect_whole(summary);
}

TEST(Summary, OfAStepThatNeverRanIsZero) {
  TwoBlocks two;
  const Program program = two.lowered(two.plan(Tier::host, plan::BlockMode::keep));
  const Summary summary = summarize(program, std::vector<Span>(program.instructions.size()), kAllBeside, 0);
  EXPECT_EQ(summary.step_ns, 0);
  EXPECT_EQ(summary.overlap, 0);
  expect_whole(summary);
}

TEST(Summary, OfASimulationIsTheSimulationsOwnFigures) {
  TwoBlocks two;
  for (const Tier tier : {Tier::device, Tier::host, Tier::disk})
    for (const Beside &beside : {Beside{}, kAllBeside}) {
      const Program program = two.lowered(two.plan(tier, plan::BlockMode::swap));
      std::vector<std::int64_t> ns;
      for (std::size_t i = 0; i < program.instructions.size(); ++i)
        ns.push_back(10 + static_cast<std::int64_t>(i * 7 % 5));
      const Simulation simulation = simulate(program, ns, beside);
      const Summary summary = summarize(program, spans_of(simulation), beside, simulation.step_ns);
      EXPECT_EQ(summary.step_ns, simulation.step_ns);
      EXPECT_EQ(summary.busy_ns, simulation.busy_ns);
      EXPECT_EQ(of(summary, Stall::issue), 0) << "a simulator loses no time to issuing";
      expect_whole(summary);
    }
}

TEST(BusySpans, JoinsSpansThatLieCloseTogether) {
  HandMadeStep step;
  step.computed({0, 10}).computed({10, 20}).computed({23, 30}).computed({40, 50});
  EXPECT_EQ(busy_spans(step.program, step.spans, Queue::compute), (std::vector<Span>{{0, 20}, {23, 30}, {40, 50}}));
  EXPECT_EQ(busy_spans(step.program, step.spans, Queue::compute, 3), (std::vector<Span>{{0, 30}, {40, 50}}));
  EXPECT_TRUE(busy_spans(step.program, step.spans, Queue::upload).empty());
}

}  // namespace
}  // namespace protrain::program::summary_test
