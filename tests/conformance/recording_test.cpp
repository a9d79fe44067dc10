// Recorded steps. A replay must give the bits of the same step issued call by call, and use the scalars of its own
// step.
#include <cmath>

#include "conformance/arena.h"
#include "conformance/contest.h"
#include "cuda/emulation.h"

namespace protrain::test::recording_test {
namespace {

PROTRAIN_FAMILY(Recordings);

using backend::Device;

// A small step. The weights are uploaded. Dropout is applied to the values of a wave, and the result is added to a sum.
// An update changes the weights, with the sum as their gradient. Then the weights are downloaded. Only events keep the
// queues in order.
class SmallStep {
 public:
  explicit SmallStep(const Machine &machine) : device_(*machine.device) {
    device_.reserve_events(kEvents);
    device_.pin(weights.data(), kBytes);
    Arena arena(machine);
    float *there = arena.put(std::vector<float>(kCount, NAN)), *dropped = arena.put(wave(0.3, kCount)),
          *sum = arena.put(std::vector<float>(kCount));
    add_kernel("Dropout", {{"key", std::int64_t{7}}}, {arena.put(wave(0.3, kCount))}, {dropped}, 1);
    add_kernel("Accumulate", {}, {sum, dropped}, {sum}, 2);
    Work &update = work_.emplace_back();
    update.kernel = device_.compile_update({.optimizer = optimizer_, .elements = {kCount}});
    update.inputs = {sum, arena.put(std::vector<std::uint32_t>{0})};
    update.outputs = {there, arena.put(std::vector<float>(kCount)), arena.put(std::vector<float>(kCount))};
  }
  ~SmallStep() { device_.unpin(weights.data()); }
  SmallStep(const SmallStep &) = delete;
  SmallStep &operator=(const SmallStep &) = delete;

  void issue(int t) {
    scalars_ = of_step(t);
    step(device_, [this] { append(); });
  }
  std::unique_ptr<backend::Recording> record(bool timed = true) {
    scalars_ = of_step(77);  // the scalars of a step that never runs
    return device_.record_step([](void *self) { static_cast<SmallStep *>(self)->append(); }, this, timed);
  }
  void replay(backend::Recording &recording, int t) { device_.replay_step(recording, of_step(t)); }

  static constexpr std::size_t kEvents = 4;
  std::vector<float> weights = wave(0.7, kCount);  // in the host's memory

 private:
  struct Work {
    std::unique_ptr<backend::Kernel> kernel;
    std::vector<void *> inputs, outputs;
  };
  static constexpr std::int64_t kCount = 1003;
  static constexpr std::uint64_t kBytes = kCount * sizeof(float);

  void add_kernel(const char *op, const graph::Attributes &attributes, std::vector<void *> inputs,
                  std::vector<void *> outputs, std::size_t operands) {
    const Type type{DType::f32, {kCount}};
    const graph::Node node{.op = op, .name = op, .attributes = attributes};
    work_.push_back({device_.compile({node, std::vector<Type>(operands, type), {type}}), inputs, outputs});
  }

  // The scalars of step t. Each odd step begins a new sum.
  backend::StepScalars of_step(int t) const {
    backend::StepScalars scalars = numbers(optimizer_, t);
    scalars.micro_batch = static_cast<std::uint64_t>(t + 1) % 2;
    return scalars;
  }

  void append() {
    float *there = static_cast<float *>(work_.back().outputs[0]);
    device_.copy(Queue::upload, {there, weights.data(), kBytes});
    device_.record(Queue::upload, 0);
    for (std::size_t i = 0; i < work_.size(); ++i) {
      if (i + 1 == work_.size()) device_.wait(Queue::compute, 0);
      device_.launch(Queue::compute, *work_[i].kernel, {work_[i].inputs, work_[i].outputs, nullptr, &scalars_});
      device_.record(Queue::compute, 1);
    }
    device_.record(Queue::compute, 2);
    device_.wait(Queue::download, 2);
    device_.copy(Queue::download, {weights.data(), there, kBytes});
    device_.record(Queue::download, 3);
  }

  Device &device_;
  const backend::Optimizer optimizer_;
  std::vector<Work> work_;
  backend::StepScalars scalars_;
};

// The weights after steps 1 to 5. If `recorded`, steps 2 to 5 replay a recording.
std::vector<float> trained(const Machine &machine, bool recorded) {
  SmallStep small(machine);
  small.issue(1);
  const std::vector<float> before = small.weights;
  const std::unique_ptr<backend::Recording> recording = recorded ? small.record() : nullptr;
  EXPECT_EQ(recording != nullptr, recorded);
  EXPECT_EQ(small.weights, before);
  for (int t = 2; t <= 5; ++t) recording ? small.replay(*recording, t) : small.issue(t);
  return small.weights;
}

TEST_P(Recordings, StepsLeaveTheBitsOfThoseThatAreIssued) {
  for (const Contender::Way &way : GetParam()->ways) {
    if (!way.machine->device->info().asynchronous) continue;
    if (way.prepare != nullptr) way.prepare();
    const std::vector<float> issued = trained(*way.machine, false);
    EXPECT_NE(issued, wave(0.7));
    EXPECT_EQ(trained(*way.machine, true), issued) << way.name;
  }
}

TEST_P(Recordings, NothingIsDoneWhileAStepIsRecorded) {
  const Machine &machine = *GetParam()->ways[0].machine;
  if (!machine.device->info().asynchronous) return;
  SmallStep small(machine);
  small.issue(1);
  const std::vector<float> before = small.weights;
  const std::unique_ptr<backend::Recording> recording = small.record();
  ASSERT_NE(recording, nullptr);
  step(*machine.device, [] {});
  EXPECT_EQ(small.weights, before);
  small.replay(*recording, 2);
  EXPECT_NE(small.weights, before);
}

TEST_P(Recordings, TellWhenTheirEventsWereOverInEachReplay) {
  const Machine &machine = *GetParam()->ways[0].machine;
  Device &device = *machine.device;
  if (!device.info().asynchronous) return;
  SmallStep small(machine);
  small.issue(1);
  const std::unique_ptr<backend::Recording> recording = small.record();
  ASSERT_NE(recording, nullptr);
  for (int t = 2; t <= 3; ++t) {
    small.replay(*recording, t);
    for (std::size_t event = 0; event < SmallStep::kEvents; ++event) EXPECT_GE(device.event_ns(event), 0) << event;
    EXPECT_LE(device.event_ns(1), device.event_ns(2));
    EXPECT_LE(device.event_ns(0), device.event_ns(2));
    EXPECT_LE(device.event_ns(2), device.event_ns(3));
  }
}

// A replay without timing does the same work, and the events keep the times of the last timed step.
TEST_P(Recordings, RecordNoTimesThatNobodyWants) {
  const Machine &machine = *GetParam()->ways[0].machine;
  Device &device = *machine.device;
  if (!device.info().asynchronous) return;
  const std::vector<float> issued = trained(machine, false);
  SmallStep small(machine);
  small.issue(1);
  const auto times = [&] {
    std::vector<std::int64_t> ns;
    for (std::size_t event = 0; event < SmallStep::kEvents; ++event) ns.push_back(device.event_ns(event));
    return ns;
  };
  const std::vector<std::int64_t> before = times();
  const auto timed = small.record(true), untimed = small.record(false);
  ASSERT_TRUE(timed && untimed);
  small.replay(*untimed, 2);
  EXPECT_EQ(times(), before);
  small.replay(*timed, 3);
  const std::vector<std::int64_t> after = times();
  EXPECT_NE(after, before);
  for (int t = 4; t <= 5; ++t) small.replay(*untimed, t);
  EXPECT_EQ(times(), after);
  EXPECT_EQ(small.weights, issued);
}

// Alternates between replays of two recordings and issued steps. Each step must use its own scalars.
TEST_P(Recordings, StandBesideEachOtherAndBesideStepsThatAreIssued) {
  const Machine &machine = *GetParam()->ways[0].machine;
  if (!machine.device->info().asynchronous) return;
  const std::vector<float> issued = trained(machine, false);
  SmallStep small(machine);
  small.issue(1);
  const auto first = small.record(), second = small.record();
  ASSERT_TRUE(first && second);
  small.replay(*first, 2);
  small.replay(*second, 3);
  small.issue(4);
  small.replay(*first, 5);
  EXPECT_EQ(small.weights, issued);
}

// If a recording is refused, the error gives a reason, and the device still works.
TEST_P(Recordings, AreRefusedWithoutHarm) {
  const Machine &machine = *GetParam()->ways[0].machine;
  Device &device = *machine.device;
  const auto refusal = [](auto record) -> std::string {
    try {
      EXPECT_EQ(record(), nullptr);
      return "";
    } catch (const Error &error) {
      return error.text;
    }
  };
  const auto refusal_of = [&](void (*issue)(void *)) {
    return refusal([&] { return device.record_step(issue, &device, false); });
  };
  if (!device.info().asynchronous) {
    EXPECT_EQ(refusal_of([](void *) {}), "");
    return;
  }
  const std::vector<float> issued = trained(machine, false);
  EXPECT_EQ(refusal_of([](void *) { fail(Code::device, "adder", "it cannot count"); }), "it cannot count");
  device.reserve_events(1);
  EXPECT_NE(refusal_of([](void *self) { static_cast<Device *>(self)->wait(Queue::compute, 0); }),
            "");  // an event that the recording does not own
  EXPECT_EQ(trained(machine, false), issued);
  if (GetParam()->name != "emulated") return;
  emulation::refuse_captures(true);
  SmallStep small(machine);
  EXPECT_EQ(refusal([&] { return small.record(); }), "captures are refused");
  emulation::refuse_captures(false);
  emulation::unload_kernels();
  EXPECT_NE(refusal([&] { return small.record(); }).find("is not loaded yet"), std::string::npos);
  device.unpin(small.weights.data());
  EXPECT_NE(refusal([&] { return small.record(); }).find("is not pinned"), std::string::npos);
  device.pin(small.weights.data(), small.weights.size() * sizeof(float));
  EXPECT_EQ(trained(machine, true), issued);
}

}  // namespace
}  // namespace protrain::test::recording_test
