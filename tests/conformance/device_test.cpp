// What is no operator's: updates, checks, random numbers, sums in place, and the order between queues.
#include <cmath>
#include <cstring>

#include "conformance/arena.h"
#include "conformance/contest.h"

namespace protrain::test {
namespace {

PROTRAIN_FAMILY(UpdateKernel);
PROTRAIN_FAMILY(CheckKernel);
PROTRAIN_FAMILY(DropoutKernel);
PROTRAIN_FAMILY(AccumulateKernel);
PROTRAIN_FAMILY(Queues);

using backend::Device;
using backend::Optimizer;

struct Trained {
  std::vector<float> weights, first, second;
  bool operator==(const Trained &) const = default;
};

// Three steps; `alone`: beside the device, in the host's memory.
Trained trained(const Machine &machine, const Optimizer &optimizer, std::uint32_t status, bool alone) {
  Device &device = *machine.device;
  const auto kernel = device.compile_update(optimizer, 1003);
  Arena arena(machine);
  Trained host{wave(0.7), std::vector<float>(1003), std::vector<float>(1003)};
  std::vector<float> gradient = wave(0.3);
  float scale = 0.75F;
  const auto place = [&](auto &values) { return alone ? values.data() : arena.put(values); };
  std::vector<float> scales = {scale};
  std::vector<std::uint32_t> statuses = {status};
  std::vector<void *> inputs = {place(gradient), place(statuses), place(scales)};
  std::vector<void *> outputs = {place(host.weights), place(host.first), place(host.second)};
  outputs.resize(1 + static_cast<std::size_t>(optimizer.state_count()));
  for (int t = 1; t <= 3; ++t) {
    const backend::StepScalars scalars = numbers(optimizer, t);
    const backend::Launch launch{inputs, outputs, nullptr, &scalars};
    if (alone)
      device.launch_alone(*kernel, launch);
    else
      step(device, [&] { device.launch(Queue::compute, *kernel, launch); });
  }
  if (alone) return host;
  std::vector<float> *arrays[] = {&host.weights, &host.first, &host.second};
  for (std::size_t i = 0; i < outputs.size(); ++i) *arrays[i] = arena.take(static_cast<float *>(outputs[i]), 1003);
  return host;
}

const std::vector<Optimizer> kOptimizers = {
    {},
    {.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1, .clip_value = 0.4},
    {.kind = Optimizer::Kind::sgd, .weight_decay = 0.1},
    {.kind = Optimizer::Kind::sgd, .weight_decay = 0.01, .momentum = 0.9},
};

TEST_P(UpdateKernel, BitsAreTheCpusWhereverItRuns) {
  const Contender &cpu = contenders()[0];
  for (const Optimizer &optimizer : kOptimizers)
    for (std::uint32_t status : {0U, 5U}) {
      const Trained right = trained(*cpu.ways[0].machine, optimizer, status, false);
      EXPECT_EQ(right.weights == wave(0.7), status != 0);
      for (bool alone : {false, true})
        EXPECT_TRUE(trained(*GetParam()->ways[0].machine, optimizer, status, alone) == right) << "alone: " << alone;
    }
}

TEST_P(CheckKernel, MarksTheFirstScalarThatIsNotFinite) {
  const Machine &machine = *GetParam()->ways[0].machine;
  const auto marked = [&]<typename T>(T value, std::uint32_t status) {
    const auto kernel = machine.device->compile_check(std::is_same_v<T, float> ? DType::f32 : DType::f64, 3);
    Arena arena(machine);
    std::vector<void *> inputs = {arena.put(std::vector<T>{value})};
    auto *at = arena.put(std::vector<std::uint32_t>{status}), *copy = arena.put(std::vector<std::uint32_t>{99});
    std::vector<void *> outputs = {at, copy};
    step(*machine.device, [&] { machine.device->launch(Queue::compute, *kernel, {inputs, outputs}); });
    EXPECT_EQ(arena.take(at, 1), arena.take(copy, 1));
    return arena.take(at, 1)[0];
  };
  EXPECT_EQ(marked(1.5F, 0), 0U);
  EXPECT_EQ(marked(std::nanf(""), 0), 3U);
  EXPECT_EQ(marked(HUGE_VALF, 0), 3U);
  EXPECT_EQ(marked(-HUGE_VAL, 0), 3U);
  EXPECT_EQ(marked(-HUGE_VAL, 2), 2U);
  EXPECT_EQ(marked(1e300, 0), 0U);
}

TEST_P(DropoutKernel, NumbersAreTheCpus) {
  for (const auto &[shape, samples] : {std::pair<Shape, std::int64_t>{{6, 1031}, 6},
                                       {{6, 1031}, 2},
                                       {{6, 1031}, 0},
                                       {{300, 1}, 300},
                                       {{2, 3, 5}, 2},
                                       {{}, 0},
                                       {{0, 4}, 0}})
    for (bool wants_mask : {true, false}) {
      const OneNode one{"Dropout",
                        {{"key", std::int64_t{7}}, {"ratio", 0.3}, {"samples", samples}},
                        {random_floats(shape, 2)},
                        {true, wants_mask}};
      const auto dropped = [&](const Contender &contender) {
        Bench bench(one, *contender.ways[0].machine);
        bench.run({.step = 3, .seed = 11, .first_sample = 4});
        bench.expect_guards();
        return bench.results();
      };
      const std::vector<Array> right = dropped(contenders()[0]), found = dropped(*GetParam());
      EXPECT_TRUE(found[0].same_as(right[0])) << to_text(shape);
      if (wants_mask) {
        EXPECT_TRUE(found[1].same_as(right[1])) << to_text(shape);
      }
    }
}

TEST_P(AccumulateKernel, StartsAnewAddsWithWeightsAndLeavesOutWhatWeighsNothing) {
  const Machine &machine = *GetParam()->ways[0].machine;
  const graph::Node node{.op = "Accumulate", .name = "sum"};
  const Type vector{DType::f32, {1003}}, scalar{DType::f64, {}};
  const auto kernel = machine.device->compile({node, {vector, vector, scalar}, {vector}});
  Arena arena(machine);
  float *sum = arena.put(std::vector<float>(1003, NAN));
  const double weights[] = {0, 3, 0, 0.5};
  for (std::uint64_t batch = 0; batch < 4; ++batch) {
    std::vector<float> x = weights[batch] == 0 ? std::vector<float>(1003, NAN) : wave(0.1 * double(batch));
    std::vector<void *> inputs = {sum, arena.put(x), arena.put(std::vector<double>{weights[batch]})}, outputs = {sum};
    const backend::StepScalars scalars{.micro_batch = batch};
    step(*machine.device, [&] {
      machine.device->launch(Queue::compute, *kernel, {inputs, outputs, nullptr, &scalars});
    });
  }
  const std::vector<float> found = arena.take(sum, 1003), first = wave(0.1), second = wave(0.1 * 3);
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], 3 * first[i] + 0.5 * second[i], 1e-6);
}

// x goes up by one queue, is doubled by another and comes back by a third, which events alone keep in order.
TEST_P(Queues, EventsOrderWhatRunsBesideEachOther) {
  const Machine &machine = *GetParam()->ways[0].machine;
  Device &device = *machine.device;
  if (!device.info().asynchronous) {
    try {
      device.reserve_events(1);
      FAIL() << "events were taken";
    } catch (const Error &error) {
      EXPECT_EQ(error.code, Code::internal);
    }
    return;
  }
  constexpr std::size_t kRounds = 20, kElements = 1000;
  device.reserve_events(3 * kRounds);
  const Type type{DType::f32, {kElements}};
  const graph::Node node{.op = "Add", .name = "twice"};
  const auto kernel = device.compile({node, {type, type}, {type}});
  Arena arena(machine);
  std::vector<std::vector<float>> there(kRounds), back(kRounds, std::vector<float>(kElements));
  for (std::size_t i = 0; i < kRounds; ++i) there[i] = wave(0.1 * double(i + 1), kElements);
  float *x = arena.put(there[0]), *y = arena.put(there[0]);
  std::vector<void *> inputs = {x, x}, outputs = {y};
  const std::uint64_t bytes = kElements * sizeof(float);
  EXPECT_TRUE(device.pin(there[0].data(), bytes));
  step(device, [&] {
    for (std::size_t i = 0; i < kRounds; ++i) {
      const std::size_t event = 3 * i;
      if (i > 0) device.wait(Queue::upload, event - 2), device.wait(Queue::compute, event - 1);
      device.copy(Queue::upload, {x, there[i].data(), bytes});
      device.record(Queue::upload, event);
      device.wait(Queue::compute, event);
      device.launch(Queue::compute, *kernel, {inputs, outputs});
      device.record(Queue::compute, event + 1);
      device.wait(Queue::download, event + 1);
      device.copy(Queue::download, {back[i].data(), y, bytes});
      device.record(Queue::download, event + 2);
    }
    device.wait_here(2);
    for (std::size_t j = 0; j < kElements; ++j) ASSERT_EQ(back[0][j], 2 * there[0][j]);
  });
  device.unpin(there[0].data());
  for (std::size_t i = 0; i < kRounds; ++i)
    for (std::size_t j = 0; j < kElements; ++j) ASSERT_EQ(back[i][j], 2 * there[i][j]) << "round " << i;
}

TEST_P(Queues, AnErrorOfTheDeviceComesOutWhereSomebodyWaits) {
  const Machine &machine = *GetParam()->ways[0].machine;
  Device &device = *machine.device;
  if (!device.info().asynchronous) return;
  device.reserve_events(1);
  const graph::Node node{.op = "Gather", .name = "tokens"};
  const Type table{DType::f32, {4, 8}}, indices{DType::i64, {2}}, rows{DType::f32, {2, 8}};
  const auto kernel = device.compile({node, {table, indices}, {rows}});
  Arena arena(machine);
  std::vector<void *> inputs = {arena.put(std::vector<float>(32, 1)), arena.put(std::vector<std::int64_t>{3, 9})};
  float *to = arena.put(std::vector<float>(16));
  std::vector<void *> outputs = {to};
  step(device, [&] {
    device.launch(Queue::compute, *kernel, {inputs, outputs});
    device.record(Queue::compute, 0);
    try {
      device.wait_here(0);
      ADD_FAILURE() << "nothing came out";
    } catch (const Error &error) {
      EXPECT_EQ(error.code, Code::arg);
      EXPECT_EQ(error.subject, "tokens");
      EXPECT_EQ(error.text, "index 9 is outside 0..3");
    }
  });  // and is not told again
  const std::vector<float> found = arena.take(to, 16);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(found[i], 1);
  for (std::size_t i = 8; i < 16; ++i) EXPECT_TRUE(std::isnan(found[i]));
}

}  // namespace
}  // namespace protrain::test
