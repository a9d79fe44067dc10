// The executor: steps that fail or are cancelled, and steps on asynchronous devices, which are issued or replayed.
#include "run/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "comm/channel.h"
#include "errors.h"
#include "random_plans/bench.h"
#include "random_plans/devices.h"

namespace protrain::test::executor_test {
namespace {

using program::Program;

constexpr const char *kModel = "gpt2-dynamic-opset18";

// A plan that needs every kind of instruction except those of the disk: some chunks are stored on the host, one block
// swaps, and one recomputes.
plan::Plan plan_of(const graph::Graph &graph, plan::OptimizerOrder order) {
  return plan::expand(
      graph, {.n_persist = 2, .n_buffer = 1, .n_swap = 1, .n_checkpoint = 1, .chunk_bytes = 16 << 10, .order = order});
}

// A step that calls a function of the test each time an instruction ends.
class Step {
 public:
  explicit Step(plan::OptimizerOrder order)
      : bench(kModel, following(plan_of(training_graph(kModel), order), scratch_),
              std::make_unique<WatchedDevice>([this] { happen(over_++); })) {}

  // Loads the session's Program and feeds it. `at` is called with the number of each instruction that ends.
  void prepare(bool workers, std::function<void(std::size_t)> at) {
    bench.load(bench.program(), workers);
    bench.feed();
    bench.cancelled = false;
    over_ = 0;
    happen = std::move(at);
  }

  Error run() {
    return error_of([&] { bench.step(); });
  }

  // All bytes of the state in memory.
  std::vector<std::byte> state() {
    std::vector<std::byte> bytes;
    for (const Tier tier : {Tier::device, Tier::host}) {
      const std::byte *from = bench.store().at(tier, 0);
      bytes.insert(bytes.end(), from, from + bench.program().state_bytes[tier]);
    }
    return bytes;
  }

 private:
  const Scratch scratch_;
  std::size_t over_ = 0;

 public:
  std::function<void(std::size_t)> happen;
  Bench bench;
};

TEST(Executor, LeavesEveryByteAsItWasWhenCancelledBeforeTheCommit) {
  Step step(plan::OptimizerOrder::overlap);
  const std::size_t commit = step.bench.program().commit;
  ASSERT_GT(commit, 8u);
  for (const std::size_t last : {std::size_t{0}, commit / 2, commit - 1}) {
    step.prepare(false, [&](std::size_t i) { step.bench.cancelled = i == last; });
    const std::vector<std::byte> before = step.state();
    EXPECT_EQ(step.run().code, Code::cancelled) << last;
    EXPECT_EQ(step.state(), before) << last;
  }
}

TEST(Executor, LeavesEveryByteAsItWasWhenCancelledAmongWorkers) {
  Step step(plan::OptimizerOrder::overlap);
  step.prepare(true, [&](std::size_t i) { step.bench.cancelled = i >= 5; });
  const std::vector<std::byte> before = step.state();
  const Error error = step.run();
  EXPECT_EQ(error.code, Code::cancelled);
  EXPECT_EQ(error.facts, Facts());
  EXPECT_EQ(step.state(), before);
}

TEST(Executor, RunsToItsEndWhenCancelledAfterTheCommit) {
  const Trace expected = unlimited(kModel, 1);
  Step step(plan::OptimizerOrder::overlap);
  step.prepare(false, [&](std::size_t i) { step.bench.cancelled = i >= step.bench.program().commit; });
  EXPECT_EQ(step.run().code, Code::ok);
  Trace trace;
  step.bench.note_step(trace);
  step.bench.note_weights(trace);
  EXPECT_TRUE(trace == expected);
}

TEST(Executor, LeavesWeightsAndMomentsToTheNextStepWhenCancelledInEitherOrder) {
  const Trace expected = unlimited(kModel, 2);
  for (const auto order : {plan::OptimizerOrder::overlap, plan::OptimizerOrder::barrier}) {
    Step step(order);
    const std::size_t last = step.bench.program().commit - 1;
    step.prepare(false, [&](std::size_t i) { step.bench.cancelled = i == last; });
    EXPECT_EQ(step.run().code, Code::cancelled);
    step.prepare(false, [](std::size_t) {});
    EXPECT_TRUE(step.bench.train(2) == expected);
  }
}

TEST(Executor, NamesTheInstructionThatFailed) {
  Step step(plan::OptimizerOrder::overlap);
  const Program &program = step.bench.program();
  for (const std::size_t bad : {std::size_t{0}, program.commit / 2, program.instructions.size() - 1}) {
    step.prepare(false, [&](std::size_t i) {
      if (i == bad) fail(Code::device, "adder", "it cannot count");
    });
    const Error error = step.run();
    EXPECT_EQ(error.code, Code::device);
    EXPECT_EQ(error.subject, "adder");
    EXPECT_EQ(error.text, "it cannot count [at instruction " + describe(program, step.bench.graph(), bad) + "]");
    EXPECT_EQ(error.facts, Facts{.state_touched = bad >= program.commit});
  }
}

TEST(Executor, ChangesNothingThatHoldsWhenItFailsBeforeTheCommit) {
  Step step(plan::OptimizerOrder::overlap);
  step.prepare(false, [&](std::size_t i) {
    if (i + 1 == step.bench.program().commit) fail(Code::device, "adder", "it cannot count");
  });
  const std::vector<std::byte> before = step.state();
  EXPECT_EQ(step.run().facts, Facts());
  EXPECT_EQ(step.state(), before);
}

// On an asynchronous device, only events and workers keep instructions in order.
TEST(Executor, LeavesTheSameBitsOnAnAsynchronousDevice) {
  const Trace expected = unlimited(kModel, 2);
  Draw draw(11);
  for (int i = 0; i < 6; ++i) {
    const Scratch scratch;
    const plan::Plan plan = draw.plan(training_graph(kModel), std::nullopt);
    Bench bench(kModel, following(plan, scratch), std::make_unique<Streams>());
    bench.load(bench.program(), false);
    ASSERT_TRUE(bench.train(2) == expected) << plan::to_json(plan);
    const auto &spans = bench.report().timed.spans;
    EXPECT_TRUE(std::ranges::all_of(spans, [](const program::Span &span) { return span.end_ns >= span.start_ns; }));
  }
}

// A session's Program on an asynchronous device that records steps and replays them.
class RecordedStep {
 public:
  explicit RecordedStep(
      const std::string &model, const std::optional<plan::Plan> &plan = std::nullopt,
      std::function<void(backend::Kernel &)> before = [](backend::Kernel &) {},
      std::unique_ptr<backend::Device> memory = backend::open("cpu", 2))
      : streams(new Streams(std::move(before))),
        bench(model, plan ? following(*plan, scratch_) : Pairs{}, std::unique_ptr<Streams>(streams),
              std::move(memory)) {
    streams->records = true;
    bench.load(bench.program(), false);
  }

  bool uses(Queue queue) const {
    return std::ranges::any_of(bench.program().instructions, [&](const auto &i) { return i.queue == queue; });
  }

 private:
  const Scratch scratch_;

 public:
  Streams *streams;  // owned by the bench
  Bench bench;
};

TEST(Executor, LeavesTheSameBitsWhereTheDeviceReplaysWhatTheFirstRunDid) {
  for (const char *model : {kModel, "dropout-gpt"}) {
    RecordedStep recorded(model);
    EXPECT_TRUE(recorded.bench.train(4) == unlimited(model, 4)) << model;
    EXPECT_EQ(recorded.streams->recorded_steps, 1);
    EXPECT_EQ(recorded.streams->replayed_steps, 3);
    EXPECT_TRUE(recorded.bench.report().replayed);
    EXPECT_GT(recorded.bench.report().timed.spans.back().end_ns, 0);
  }
}

// Runs `steps` steps, of which the first two are timed. Returns, for each step, the number of recorded events and the
// number of events whose times were read. Also checks the bits of the results.
std::vector<std::pair<int, int>> events_of_steps(RecordedStep &recorded, int steps) {
  std::vector<std::pair<int, int>> events;
  Trace trace;
  for (int i = 0; i < steps; ++i) {
    recorded.streams->events_recorded = recorded.streams->events_asked = 0;
    recorded.bench.feed();
    recorded.bench.step(i < 2);
    recorded.bench.note_step(trace);
    events.emplace_back(recorded.streams->events_recorded, recorded.streams->events_asked);
  }
  recorded.bench.note_weights(trace);
  EXPECT_TRUE(trace == unlimited(kModel, steps));
  return events;
}

TEST(Executor, RecordsNoEventAndAsksForNoneInARunThatIsNotTimed) {
  RecordedStep recorded(kModel);
  const auto all = static_cast<int>(recorded.bench.program().instructions.size());
  using Events = std::pair<int, int>;
  EXPECT_EQ(events_of_steps(recorded, 4), (std::vector<Events>{{all, all}, {all, all}, {0, 0}, {0, 0}}));
  EXPECT_EQ(recorded.streams->recorded_steps, 2) << "with times and without";
  EXPECT_EQ(recorded.streams->replayed_steps, 3);
  const run::Report::Timed &timed = recorded.bench.report().timed;
  EXPECT_EQ(timed.step, 2u);
  EXPECT_GT(timed.seconds, 0);
  EXPECT_GT(timed.spans.back().end_ns, 0);
}

TEST(Executor, RecordsOnlyTheEventsThatOthersWaitForInARunThatIsNotTimed) {
  for (const Tier update : {Tier::device, Tier::host}) {  // device: steps are replayed; host: issued
    plan::Plan plan = plan_of(training_graph(kModel), plan::OptimizerOrder::overlap);
    for (plan::Chunk &chunk : plan.chunks) chunk.update = update;
    RecordedStep recorded(kModel, plan);
    std::set<std::size_t> awaited;
    for (const program::Instruction &instruction : recorded.bench.program().instructions)
      for (std::size_t wait : instruction.waits)
        if (recorded.bench.program().instructions[wait].queue != Queue::host) awaited.insert(wait);
    const auto events = events_of_steps(recorded, 3);
    EXPECT_GT(events[1].first, events[2].first);
    EXPECT_EQ(events[2], std::pair(static_cast<int>(awaited.size()), 0));
  }
}

TEST(Executor, ReplaysCopiesThatGoBesideCompute) {
  plan::Plan plan = plan_of(training_graph(kModel), plan::OptimizerOrder::overlap);
  for (plan::Chunk &chunk : plan.chunks) chunk.update = Tier::device;
  RecordedStep recorded(kModel, plan);
  ASSERT_TRUE(recorded.uses(Queue::upload) && recorded.uses(Queue::download) && !recorded.uses(Queue::host));
  EXPECT_TRUE(recorded.bench.train(4) == unlimited(kModel, 4));
  EXPECT_EQ(recorded.streams->replayed_steps, 3);
}

TEST(Executor, IssuesEachRunThatCopiesMemoryOfTheHostThatIsNotPinned) {
  plan::Plan plan = plan_of(training_graph(kModel), plan::OptimizerOrder::overlap);
  for (plan::Chunk &chunk : plan.chunks) chunk.update = Tier::device;
  for (const std::uint64_t pinned : {std::uint64_t{0}, std::uint64_t{4096}}) {
    RecordedStep recorded(
        kModel, plan, [](backend::Kernel &) {}, std::make_unique<UnpinnedDevice>(pinned));
    ASSERT_GT(recorded.bench.store().unpinned_bytes(), 0u);
    EXPECT_TRUE(recorded.bench.train(3) == unlimited(kModel, 3));
    EXPECT_EQ(recorded.streams->attempts, 0);
  }
}

TEST(Executor, IssuesEachRunInWhichThreadsOfTheHostHaveAPart) {
  RecordedStep recorded(kModel, plan_of(training_graph(kModel), plan::OptimizerOrder::overlap));
  ASSERT_TRUE(recorded.uses(Queue::host));
  EXPECT_TRUE(recorded.bench.train(2) == unlimited(kModel, 2));
  EXPECT_EQ(recorded.streams->recorded_steps, 0);
}

// A device can keep a core busy while it waits for its queues, but the host's work needs that core. So the host's work
// must be complete before the device begins to wait.
TEST(Executor, LetsTheDeviceWaitForItsQueuesOnlyAfterTheWorkOfTheHost) {
  RecordedStep recorded(kModel, plan_of(training_graph(kModel), plan::OptimizerOrder::overlap));
  recorded.bench.train(1);
  EXPECT_GT(recorded.streams->alone, 0);
  EXPECT_EQ(recorded.streams->alone_when_issued, recorded.streams->alone);
}

TEST(Executor, IssuesEachRunOfATrial) {
  RecordedStep recorded(kModel);
  for (const run::FaultInjection trial : {run::FaultInjection{.delays = true}, run::FaultInjection{.poison = true}}) {
    recorded.bench.load(recorded.bench.program(), false, trial);
    EXPECT_TRUE(recorded.bench.train(2) == unlimited(kModel, 2));
  }
  EXPECT_EQ(recorded.streams->recorded_steps, 0);
}

TEST(Executor, GoesOnIssuingWhereTheDeviceRefusesToRecord) {
  RecordedStep recorded(kModel);
  recorded.streams->records = false;
  EXPECT_TRUE(recorded.bench.train(3) == unlimited(kModel, 3));
  EXPECT_EQ(recorded.streams->replayed_steps, 0);
  EXPECT_FALSE(recorded.bench.report().replayed);
}

TEST(Executor, SaysWhyAStepWasNotRecordedAndTriesAgainLater) {
  RecordedStep recorded(kModel);
  recorded.streams->refuses = true;
  EXPECT_TRUE(recorded.bench.train(65) == unlimited(kModel, 65));
  EXPECT_EQ(recorded.streams->attempts, 1);
  EXPECT_EQ(recorded.bench.report().not_recorded, "they are not recorded today");
  recorded.streams->refuses = false;
  recorded.bench.train(1);
  EXPECT_EQ(recorded.streams->attempts, 2);
  EXPECT_EQ(recorded.bench.report().not_recorded, "");
  EXPECT_TRUE(recorded.bench.report().replayed);
}

// A channel between two ranks. No Program of these tests has anything to exchange.
class ChannelOfTwo final : public comm::Channel {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 2; }
  void exchange(std::span<const comm::Send>, std::span<const comm::Receive>) override { ADD_FAILURE(); }
  void abort(const std::string &reason) noexcept override { aborted = reason; }
  void throw_if_failed() override {}

  std::string aborted;
};

TEST(Executor, AbortsTheChannelWhereAStepFailsAndNotWhereItsRecordingDoes) {
  bool fails = false;
  RecordedStep recorded(kModel, std::nullopt, [&](backend::Kernel &) {
    if (fails) fail(Code::device, "adder", "it is gone");
  });
  const auto channel = std::make_shared<ChannelOfTwo>();
  recorded.bench.channel = channel;
  recorded.bench.load(recorded.bench.program(), false);
  recorded.streams->breaks = true;
  EXPECT_TRUE(recorded.bench.train(3) == unlimited(kModel, 3));
  EXPECT_EQ(recorded.bench.report().not_recorded, "a kernel is not loaded yet");
  EXPECT_EQ(channel->aborted, "");
  fails = true;
  EXPECT_EQ(error_of([&] { recorded.bench.step(); }).text, "it is gone");
  EXPECT_NE(channel->aborted.find("it is gone"), std::string::npos) << channel->aborted;
}

TEST(Executor, WarmsUpEachKernelOnceAndLeavesTheStateAsItWas) {
  std::map<const backend::Kernel *, int> launches;
  RecordedStep recorded(kModel, std::nullopt, [&](backend::Kernel &kernel) { ++launches[&kernel]; });
  std::set<const backend::Kernel *> warm;
  recorded.bench.warm_up(warm);
  EXPECT_EQ(launches.size(), warm.size());
  EXPECT_TRUE(std::ranges::all_of(launches, [](const auto &launch) { return launch.second == 1; }));
  recorded.bench.warm_up(warm);
  EXPECT_EQ(launches.begin()->second, 1) << "what is warm stays so";
  EXPECT_TRUE(recorded.bench.train(2) == unlimited(kModel, 2));
  EXPECT_EQ(launches.size(), warm.size()) << "no kernel of a step was left out";
}

TEST(Executor, StopsAReplayThatIsCancelledBeforeItBegins) {
  RecordedStep recorded(kModel);
  recorded.bench.train(1);
  recorded.bench.cancelled = true;
  EXPECT_EQ(error_of([&] { recorded.bench.step(); }).code, Code::cancelled);
  EXPECT_EQ(recorded.streams->replayed_steps, 0);
  recorded.bench.cancelled = false;
  recorded.bench.reset();
  EXPECT_TRUE(recorded.bench.train(2) == unlimited(kModel, 2));
}

TEST(Executor, RunsAReplayToItsEndWhenItIsCancelledMeanwhile) {
  std::atomic<bool> *cancelled = nullptr;
  RecordedStep recorded(kModel, std::nullopt, [&](backend::Kernel &) {
    if (cancelled != nullptr) *cancelled = true;
  });
  Trace trace = recorded.bench.train(1);
  trace.parameters.clear();
  recorded.bench.feed();
  cancelled = &recorded.bench.cancelled;
  recorded.bench.step();
  EXPECT_TRUE(recorded.bench.cancelled);
  recorded.bench.note_step(trace);
  recorded.bench.note_weights(trace);
  EXPECT_TRUE(trace == unlimited(kModel, 2));
}

TEST(Executor, SaysThatTheDeviceIsGoneWhereAReplayFails) {
  bool fails = false;
  RecordedStep recorded(kModel, std::nullopt, [&](backend::Kernel &) {
    if (fails) fail(Code::device, "adder", "it is gone");
  });
  recorded.bench.train(1);
  fails = true;
  recorded.bench.feed();
  const Error error = error_of([&] { recorded.bench.step(); });
  EXPECT_EQ(error.text, "it is gone");
  EXPECT_TRUE(error.facts.device_gone);
}

// An asynchronous device reports a failure some time after it happened, so it is unknown how far the device got. The
// error must say that the device is gone.
TEST(Executor, SaysThatAnAsynchronousDeviceThatFailsIsGone) {
  Bench bench(kModel, {},
              std::make_unique<Streams>([](backend::Kernel &) { fail(Code::device, "adder", "it is gone"); }));
  bench.load(bench.program(), false);
  bench.feed();
  const Error error = error_of([&] { bench.step(); });
  EXPECT_EQ(error.text, "it is gone");
  EXPECT_TRUE(error.facts.device_gone);
}

// On this device every launch fails, and run_step() fails again at the end of the step.
class Gone final : public Forwarding {
 public:
  void run_step(void (*issue)(void *), void *argument) override {
    Forwarding::run_step(issue, argument);
    fail(Code::device, "adder", "it is gone");
  }
  void launch(Queue, backend::Kernel &, const backend::Launch &) override { fail(Code::device, "adder", "it ails"); }
};

TEST(Executor, SaysThatADeviceIsGoneThatFailedWithinTheStepAndAtItsEnd) {
  for (bool cancelled : {false, true}) {
    Bench bench(kModel, {}, std::make_unique<Gone>());
    bench.load(bench.program(), false);
    bench.feed();
    bench.cancelled = cancelled;
    const Error error = error_of([&] { bench.step(); });
    EXPECT_EQ(error.text, "it is gone");
    EXPECT_TRUE(error.facts.device_gone);
  }
}

// A device whose first run_step() succeeds. Every later run_step() fails at its end.
class GoneLater final : public Forwarding {
 public:
  void run_step(void (*issue)(void *), void *argument) override {
    Forwarding::run_step(issue, argument);
    if (runs_++ > 0) fail(Code::device, "adder", "it is gone");
  }

 private:
  int runs_ = 0;
};

// If a step ends early, the executor starts a second run for the instructions that the previous step deferred to this
// step. Here the device fails at the end of that run.
TEST(Executor, SaysThatADeviceIsGoneThatFailsAtTheEndOfDeferredWork) {
  const Scratch scratch;
  plan::Plan plan = plan_of(training_graph(kModel), plan::OptimizerOrder::barrier);
  for (plan::Chunk &chunk : plan.chunks) chunk.deferred = true;
  Bench bench(kModel, following(plan, scratch), std::make_unique<GoneLater>());
  bench.load(bench.program(), false);
  ASSERT_TRUE(std::ranges::any_of(bench.program().instructions, &program::Instruction::earlier));
  bench.feed();
  bench.cancelled = true;
  const Error error = error_of([&] { bench.step(); });
  EXPECT_EQ(error.text, "it is gone");
  EXPECT_TRUE(error.facts.device_gone);
}

// A device on which the copies of every queue except compute fail.
class Broken final : public Forwarding {
 public:
  void copy_alone(const backend::Copy &) override { fail(Code::device, "bus", "it is gone"); }
};

TEST(Executor, NamesTheInstructionThatFailedOnAWorker) {
  const Scratch scratch;
  const plan::Plan plan = plan::expand(training_graph(kModel), {.n_buffer = 1, .chunk_bytes = 16 << 10});
  Bench bench(kModel, following(plan, scratch), std::make_unique<Broken>());
  const auto &instructions = bench.program().instructions;
  const auto first = std::ranges::find_if(instructions, [](const auto &i) { return moves(i.kind); });
  const auto at = static_cast<std::size_t>(first - instructions.begin());
  bench.load(bench.program(), true);
  bench.feed();
  const Error error = error_of([&] { bench.step(); });
  EXPECT_EQ(error.text, "it is gone [at instruction " + describe(bench.program(), bench.graph(), at) + "]");
  EXPECT_EQ(error.facts, Facts());
}

}  // namespace
}  // namespace protrain::test::executor_test
