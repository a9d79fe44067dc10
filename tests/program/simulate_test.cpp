// Simulated times of queues that slow each other down, compared with times worked out by hand, in nanoseconds.
#include "program/simulate.h"

#include <gtest/gtest.h>

#include "hand_built.h"
#include "ops/op.h"
#include "program/summary.h"

namespace protrain::program::simulate_test {
namespace {

struct Job {
  Queue queue;
  std::int64_t ns;
  std::vector<std::size_t> waits = {};
};

using Spans = std::vector<std::pair<std::int64_t, std::int64_t>>;

Simulation run(const std::vector<Job> &jobs, const Queues &queues) {
  Program program;
  std::vector<std::int64_t> ns;
  for (const Job &job : jobs) {
    program.instructions.push_back({.queue = job.queue, .waits = job.waits});
    ns.push_back(job.ns);
  }
  return simulate(program, ns, queues);
}

Spans spans(const std::vector<Job> &jobs, const Queues &queues) {
  Spans spans;
  for (const Entry &entry : run(jobs, queues).entries) spans.emplace_back(entry.start_ns, entry.end_ns);
  return spans;
}

// All queues run in parallel, at full speed.
Queues beside() { return Queues(Beside{false, true, true, true, true, true, true}); }

Queues slowed(Queue a, Queue b, double share) {
  Queues queues = beside();
  queues.shares[a][b] = queues.shares[b][a] = share;
  return queues;
}

TEST(Simulation, RunsQueuesBesideEachOtherAtFullSpeedWhereNothingIsShared) {
  const std::vector<Job> jobs = {{Queue::upload, 100}, {Queue::download, 60}, {Queue::compute, 30, {1}}};
  EXPECT_EQ(spans(jobs, beside()), (Spans{{0, 100}, {0, 60}, {60, 90}}));
  EXPECT_EQ(run(jobs, beside()).step_ns, 100);
}

TEST(Simulation, LetsAReadPassAWriteThatWaits) {
  EXPECT_EQ(spans({{Queue::compute, 100}, {Queue::disk_write, 30, {0}}, {Queue::disk_read, 40}}, beside()),
            (Spans{{0, 100}, {100, 130}, {0, 40}}));
}

TEST(Simulation, SlowsTwoQueuesForAsLongAsBothAreAtWork) {
  // Upload and download run at half speed together. The download ends at 120, when 40 ns of the upload are left, which
  // run at full speed.
  const Queues queues = slowed(Queue::upload, Queue::download, 0.5);
  EXPECT_EQ(spans({{Queue::upload, 100}, {Queue::download, 60}}, queues), (Spans{{0, 160}, {0, 120}}));
}

TEST(Simulation, SlowsNothingThatRunsAlone) {
  const Queues queues = slowed(Queue::upload, Queue::download, 0.5);
  EXPECT_EQ(spans({{Queue::upload, 100}, {Queue::download, 60, {0}}}, queues), (Spans{{0, 100}, {100, 160}}));
  EXPECT_EQ(spans({{Queue::upload, 100}, {Queue::host, 60}}, queues), (Spans{{0, 100}, {0, 60}}));
}

TEST(Simulation, SlowsWhatIsAtWorkFromTheMomentThatAnotherStarts) {
  // While compute runs, the upload does 40 of its 100 ns at full speed. Then it does 60 at half speed, while the
  // download does 60 of its 80.
  const Queues queues = slowed(Queue::upload, Queue::download, 0.5);
  EXPECT_EQ(spans({{Queue::upload, 100}, {Queue::compute, 40}, {Queue::download, 80, {1}}}, queues),
            (Spans{{0, 160}, {0, 40}, {40, 180}}));
}

TEST(Simulation, SlowsEachByItsOwnShare) {
  Queues queues = beside();
  queues.shares[Queue::compute][Queue::disk_read] = 0.8;
  queues.shares[Queue::disk_read][Queue::compute] = 0.5;
  // The disk works at half its speed, so compute keeps 0.9 of its own. The disk's 50 ns end at time 100, when 10 of
  // compute's 100 ns are left.
  EXPECT_EQ(spans({{Queue::compute, 100}, {Queue::disk_read, 50}}, queues), (Spans{{0, 110}, {0, 100}}));
}

TEST(Simulation, SlowsByAllThatAreAtWork) {
  Queues queues = slowed(Queue::host, Queue::upload, 0.5);
  queues.shares[Queue::host][Queue::download] = 0.5;
  // Until time 40 the host does 10 of its 45 ns, at a quarter of its speed. The other 35 run at half speed, in parallel
  // with the upload.
  EXPECT_EQ(spans({{Queue::host, 45}, {Queue::upload, 65}, {Queue::download, 40}}, queues),
            (Spans{{0, 110}, {0, 120}, {0, 40}}));
}

TEST(Simulation, RunsInComputesPlaceWhatHasNoQueueOfItsOwn) {
  const std::vector<Job> jobs = {
      {Queue::compute, 10}, {Queue::upload, 20}, {Queue::disk_read, 15}, {Queue::compute, 5}};
  EXPECT_EQ(spans(jobs, Queues()), (Spans{{0, 10}, {10, 30}, {30, 45}, {45, 50}}));
  EXPECT_EQ(spans(jobs, Queues(Beside{false, false, false, false, true, true, true})),
            (Spans{{0, 10}, {10, 30}, {0, 15}, {30, 35}}));
}

TEST(Simulation, StartsWhatIsIssuedInTurnAfterTheComputeBeforeItInTheList) {
  const std::vector<Job> jobs = {
      {Queue::compute, 10}, {Queue::disk_read, 15}, {Queue::compute, 20}, {Queue::disk_read, 5}};
  Queues queues = beside();
  EXPECT_EQ(spans(jobs, queues), (Spans{{0, 10}, {0, 15}, {10, 30}, {15, 20}}));
  queues.issued_in_turn = true;
  EXPECT_EQ(spans(jobs, queues), (Spans{{0, 10}, {10, 25}, {10, 30}, {30, 35}}));
}

TEST(Simulation, AddsUpWhatEachQueueHasToDoAtFullSpeed) {
  const Simulation simulation = run({{Queue::upload, 100}, {Queue::download, 60}, {Queue::upload, 7}},
                                    slowed(Queue::upload, Queue::download, 0.5));
  EXPECT_EQ(simulation.busy_ns[Queue::upload], 107);
  EXPECT_EQ(simulation.busy_ns[Queue::download], 60);
  EXPECT_EQ(simulation.step_ns, 167);
}

TEST(Simulation, TakesInstructionsThatTakeNoTime) {
  EXPECT_EQ(spans({{Queue::compute, 0}, {Queue::upload, 0, {0}}, {Queue::compute, 5, {1}}}, beside()),
            (Spans{{0, 0}, {0, 0}, {0, 5}}));
  EXPECT_EQ(run({}, beside()).step_ns, 0);
  EXPECT_EQ(run({{Queue::compute, 0}}, beside()).step_ns, 1) << "rates and shares are divided by it";
}

TEST(Simulation, EndsHoweverLittleSpeedOthersLeave) {
  for (const double share : {1e-100, 0.0}) {
    const std::vector<Job> jobs = {
        {Queue::upload, 1'000'000'000'000}, {Queue::download, 2'000'000'000'000}, {Queue::compute, 1, {0, 1}}};
    std::int64_t last = 0;
    for (const auto &[start, end] : spans(jobs, slowed(Queue::upload, Queue::download, share))) {
      EXPECT_LE(start, end) << share;
      EXPECT_GE(start, 0) << share;
      EXPECT_GE(end, last) << share;
      last = end;
    }
  }
}

TEST(Queues, RunAllBesideComputeOnAMachineWithADeviceOfItsOwn) {
  const Queues queues = queues_of(profile::known_machine("rtx3090"));
  EXPECT_EQ(queues.beside, (Beside{false, true, true, true, true, true, true}));
  EXPECT_FALSE(queues.issued_in_turn);
  EXPECT_LT(queues.shares[Queue::upload][Queue::download], 1);
}

TEST(Queues, RunOnlyTheDiskAndExchangesBesideComputeWhereCoresAreShared) {
  profile::Profile profile;
  profile.shares_cores = true;
  profile.disk_read = profile.disk_write = profile.disk_both_ways = 1e9;
  profile.compute_beside_disk = 0.5625;
  profile.compute_beside_link = 0.875;
  profile.link_beside_compute = 0.5;
  const Queues queues = queues_of(profile);
  EXPECT_EQ(queues.beside, (Beside{false, false, false, false, true, true, true}));
  EXPECT_TRUE(queues.issued_in_turn);
  EXPECT_EQ(queues.shares[Queue::compute][Queue::disk_read], 0.5625);
  EXPECT_EQ(queues.shares[Queue::compute][Queue::disk_write], 0.5625);
  EXPECT_EQ(queues.shares[Queue::compute][Queue::comm], 0.75) << "0.875 beside exchanges at half their speed";
  EXPECT_EQ(queues.shares[Queue::comm][Queue::compute], 0.5);
}

// The disk reads 4 and writes 2 bytes per ns alone, and moves 4 in all in both directions.
TEST(Queues, TakeTheSameFromComputeForTheSameBytesOfTheDisk) {
  profile::Profile profile;
  profile.shares_cores = true;
  profile.disk_read = profile.disk_both_ways = 4e9, profile.disk_write = 2e9;
  profile.compute_beside_disk = 0.75;
  const Queues queues = queues_of(profile);
  const Job read{Queue::disk_read, 100}, write{Queue::disk_write, 200}, later{Queue::disk_write, 200, {0}};
  const Job compute{Queue::compute, 1000};
  EXPECT_EQ(spans({read, later, compute}, queues)[2].second, 1050)
      << "200 ns in both directions take a quarter of these";
  EXPECT_NEAR(static_cast<double>(spans({read, write, compute}, queues)[2].second), 1050, 5);
}

// Prices the hand-built step on a machine where a kernel takes 1 s and copies run at a few bytes per second.
TEST(Price, IsTheClocksForEveryKindOfInstruction) {
  const TwoBlocks two;
  profile::Profile machine{.fp32_flops = 1,
                           .device_bandwidth = 1,
                           .launch_seconds = 0.25,
                           .device_optimizer = 5,
                           .host_optimizer = 5,
                           .upload = 1,
                           .download = 2,
                           .host_bandwidth = 1,
                           .disk_read = 0.5,
                           .disk_write = 0.25};
  for (const graph::Node &node : two.graph.nodes()) machine.kernels[ops::signature(two.graph, node)] = 1;
  const plan::Durations durations(machine, two.graph, {.state = 4});  // one moment: 20 bytes per element
  for (const Tier tier : {Tier::host, Tier::disk}) {
    const Program program = two.lowered(two.plan(tier, plan::BlockMode::swap));
    const std::vector<std::int64_t> ns = price(program, durations);
    ASSERT_EQ(ns.size(), program.instructions.size());
    PerKind<bool> seen{};
    for (std::size_t i = 0; i < ns.size(); ++i) {
      const Instruction &instruction = program.instructions[i];
      const auto bytes = static_cast<double>(instruction.bytes);
      seen[instruction.kind] = true;
      double expected = 0.25;
      if (instruction.kind == Kind::run) expected = 1;
      if (instruction.kind == Kind::update) expected = 5 * bytes / 5 + 0.25;
      if (instruction.kind == Kind::fetch || instruction.kind == Kind::swap_in) expected = bytes / 1;
      if (instruction.kind == Kind::offload || instruction.kind == Kind::swap_out) expected = bytes / 2;
      if (instruction.kind == Kind::read) expected = bytes / 0.5;
      if (instruction.kind == Kind::write) expected = bytes / 0.25;
      EXPECT_EQ(ns[i], static_cast<std::int64_t>(expected * 1e9)) << kKindNames[instruction.kind];
    }
    for (const Kind kind : {Kind::run, Kind::check, Kind::update, Kind::swap_out})
      EXPECT_TRUE(seen[kind]) << kKindNames[kind];
    EXPECT_EQ(seen[Kind::read], tier == Tier::disk);
  }
}

TEST(Price, OfParametersThatAreUpdatedTogetherHasOneLaunch) {
  TwoBlocks two;
  two.norm_at_once();
  profile::Profile machine{
      .device_bandwidth = 1, .launch_seconds = 0.25, .device_optimizer = 5, .host_optimizer = 5, .host_bandwidth = 1};
  for (const graph::Node &node : two.graph.nodes()) machine.kernels[ops::signature(two.graph, node)] = 1;
  const plan::Durations durations(machine, two.graph, {.state = 4});
  const Program program = two.lowered(two.plan(Tier::device, plan::BlockMode::keep));
  const std::vector<std::int64_t> ns = price(program, durations);
  for (std::size_t i = 0; i < ns.size(); ++i) {
    if (program.instructions[i].kind != Kind::update) continue;
    EXPECT_EQ(ns[i], static_cast<std::int64_t>((2 * TwoBlocks::kElements * 20 / 5.0 + 0.25) * 1e9));
  }
}

TEST(Price, OfAMachineThatIsSlowBeyondMeasureIsStillANumber) {
  const TwoBlocks two;
  profile::Profile machine{.fp32_flops = 1,
                           .device_bandwidth = 1,
                           .device_optimizer = 1e-300,
                           .host_optimizer = 1e-300,
                           .upload = 1e-300,
                           .download = 1e-300};
  for (const graph::Node &node : two.graph.nodes()) machine.kernels[ops::signature(two.graph, node)] = 1e300;
  const plan::Durations durations(machine, two.graph, {.state = 4});
  const Program program = two.lowered(two.plan(Tier::host, plan::BlockMode::keep));
  const std::vector<std::int64_t> ns = price(program, durations);
  for (std::int64_t each : ns) EXPECT_GE(each, 0);
  Queues queues = beside();
  queues.shares[Queue::compute][Queue::upload] = 1e-3;
  const Simulation simulation = simulate(program, ns, queues);
  EXPECT_GT(simulation.step_ns, 0);
  for (const Entry &entry : simulation.entries) EXPECT_LE(entry.start_ns, entry.end_ns);
  for (std::int64_t busy : simulation.busy_ns) EXPECT_GE(busy, 0);
  double all = 0;
  for (std::int64_t each : ns) all += static_cast<double>(each);
  EXPECT_LE(all, 0x1p62) << "the sum fits in an int64_t, however many instructions there are";
}

}  // namespace
}  // namespace protrain::program::simulate_test
