// Measures described machines. The measured rates must be those of the description.
#include "measure/rates.h"

#include <gtest/gtest.h>

#include "errors.h"
#include "measure/described_device.h"
#include "measure/measure.h"
#include "measure/operands.h"

namespace protrain::measure::rates_test {
namespace {

using profile::Profile;
using test::DescribedDevice;

struct Rate {
  const char *name;
  double Profile::*of;
};
constexpr Rate kRates[] = {{"fp32_flops", &Profile::fp32_flops},
                           {"bf16_flops", &Profile::bf16_flops},
                           {"device_bandwidth", &Profile::device_bandwidth},
                           {"launch_seconds", &Profile::launch_seconds},
                           {"device_optimizer", &Profile::device_optimizer},
                           {"host_optimizer", &Profile::host_optimizer},
                           {"upload", &Profile::upload},
                           {"download", &Profile::download},
                           {"both_ways", &Profile::both_ways},
                           {"host_bandwidth", &Profile::host_bandwidth}};

Profile measured_on(DescribedDevice &device, const std::vector<const graph::Graph *> &graphs = {},
                    std::uint64_t memory = 0) {
  run::Kernels kernels(device);
  Profile profile = describe(device.info());
  const backend::Optimizer optimizer;
  const Request request{.graphs = graphs,
                        .optimizer = optimizer,
                        .memory = memory > 0 ? memory : device.info().memory_bytes / 2,
                        .now = [&] { return device.now(); }};
  measure(device, kernels, request, profile, nullptr);
  EXPECT_EQ(device.allocated(), 0u) << "memory was kept";
  return profile;
}

void expect_rates(const Profile &profile, const Profile &machine, double within) {
  for (const Rate &rate : kRates)
    EXPECT_NEAR(profile.*rate.of / (machine.*rate.of), 1, within) << rate.name << " of " << machine.name;
}

TEST(Rates, AreThoseOfTheDescribedMachine) {
  for (const std::string &name : profile::known_machines()) {
    const Profile machine = profile::known_machine(name);
    DescribedDevice device(machine);
    expect_rates(measured_on(device), machine, 0.05);
  }
}

TEST(Rates, OfAnotherOptimizerAreMeasuredAlone) {
  const Profile machine = profile::known_machine("rtx3090");
  DescribedDevice device(machine);
  run::Kernels kernels(device);
  const backend::Optimizer optimizer = {.kind = backend::Optimizer::Kind::sgd, .momentum = 0.9};
  Profile expected = machine, profile = machine;
  profile.device_optimizer = profile.host_optimizer = 0;
  std::size_t reports = 0;
  const Request request{
      .graphs = {}, .optimizer = optimizer, .memory = machine.device_memory / 2, .now = [&] { return device.now(); }};
  EXPECT_TRUE(measure(device, kernels, request, profile, [&](std::size_t, std::size_t) { ++reports; }));
  EXPECT_EQ(reports, 1u);
  EXPECT_NEAR(profile.device_optimizer / machine.device_optimizer, 1, 0.05);
  EXPECT_NEAR(profile.host_optimizer / machine.host_optimizer, 1, 0.05);
  expected.device_optimizer = profile.device_optimizer;
  expected.host_optimizer = profile.host_optimizer;
  EXPECT_EQ(profile, expected) << "nothing else was measured";
}

TEST(Rates, AreFoundInLittleMemoryToo) {
  const Profile machine = profile::known_machine("rtx3090");
  DescribedDevice device(machine);
  expect_rates(measured_on(device, {}, 256 << 20), machine, 0.35);  // launches take a large share for so few bytes
}

TEST(Rates, OfASlowDeviceAreFoundWithoutLargeProducts) {
  Profile machine = profile::known_machine("rtx3090");
  machine.fp32_flops = machine.bf16_flops = 1e8;
  DescribedDevice device(machine);
  expect_rates(measured_on(device), machine, 0.05);
  EXPECT_LT(device.now(), 2 * 768.0 * 768 * 768 / 1e8) << "a product of the first side was measured";
}

TEST(Rates, OfComputeAreThoseOfALongRun) {
  const Profile machine = profile::known_machine("h200");
  DescribedDevice device(machine);
  device.sustained = 0.8;
  const Profile profile = measured_on(device);
  EXPECT_NEAR(profile.sustained, 0.8, 0.05);
  EXPECT_NEAR(profile.bf16_flops / machine.bf16_flops, profile.sustained, 0.02);
  EXPECT_NEAR(profile.fp32_flops / machine.fp32_flops, 1, 0.02);
}

TEST(Rates, OfTheHostsMemoryAreMeasuredBesideCopies) {
  Profile machine = profile::known_machine("h200");
  machine.host_optimizer = 150e9;
  machine.host_bandwidth = 200e9;
  DescribedDevice device(machine);
  device.lone_update = 160e9;  // an update without moments cannot use all of the memory's speed
  EXPECT_NEAR(measured_on(device).host_bandwidth / machine.host_bandwidth, 1, 0.05);
}

TEST(Rates, LeaveThingsOutOfTheArenaRoom) {
  DescribedDevice device(profile::known_machine("h200"));
  const Profile profile = measured_on(device);
  EXPECT_EQ(profile.device_reserve, profile.device_memory / 100);
  EXPECT_EQ(profile.usable_device(), profile.device_memory - profile.device_reserve);
  EXPECT_EQ(profile.host_reserve, std::max<std::uint64_t>(96 << 20, profile.host_memory / 20));
}

TEST(Rates, OfProductsAreKeptApartByElementType) {
  const Profile machine = profile::known_machine("h200");
  graph::Graph graph;
  const graph::ValueId a = graph.add_value({.name = "a", .type = {DType::bf16, {4096, 4096}}});
  graph.add_node({.op = "MatMul", .inputs = {a, a}}, {"y"});
  graph.value(graph.node(graph::NodeId{0}).outputs[0]).type = {DType::bf16, {4096, 4096}};
  DescribedDevice device(machine);
  const Profile profile = measured_on(device, {&graph});
  EXPECT_NEAR(profile.fp32_flops / machine.fp32_flops, 1, 0.05);
  EXPECT_NEAR(profile.bf16_flops / machine.bf16_flops, 1, 0.05);
}

TEST(Rates, AreNotFoundOnADeviceThatFails) {
  const Profile machine = profile::known_machine("h200");
  graph::Graph graph;
  const graph::ValueId a = graph.add_value({.name = "a", .type = {DType::f32, {64}}});
  graph.add_node({.op = "Tanh", .inputs = {a}}, {"y"});
  graph.value(graph.node(graph::NodeId{0}).outputs[0]).type = {DType::f32, {64}};
  for (const auto &[failure, expected] : {std::pair(Code::device, Code::device), std::pair(Code::arg, Code::ok)}) {
    DescribedDevice device(machine);
    run::Kernels kernels(device);
    Profile profile = machine;  // the rates are known already
    const backend::Optimizer optimizer;
    const Request request{.graphs = {&graph}, .optimizer = optimizer, .memory = 1 << 20};
    device.failure = failure;
    EXPECT_EQ(test::code_of([&] { measure(device, kernels, request, profile, nullptr); }), expected)
        << "only a kernel that refuses its numbers is left out";
    EXPECT_EQ(device.allocated(), 0u);
  }
}

TEST(Tiles, HoldRandomNumbersOfTheirType) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    const auto count = static_cast<std::int64_t>(kTileBytes / size_of(dtype));
    const graph::Array positive = graph::Array::dense({dtype, {count}}, random_tile(dtype, kTileBytes, false));
    const graph::Array any = graph::Array::dense({dtype, {count}}, random_tile(dtype, kTileBytes, true));
    std::set<double> distinct;
    std::int64_t negative = 0, large = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = any.stored_double(i);
      EXPECT_TRUE(std::abs(value) >= 1 / 2048.0 && std::abs(value) < 1 / 64.0) << value;
      large += std::abs(value) >= 1 / 128.0 ? 1 : 0;
      EXPECT_GT(positive.stored_double(i), 0);
      distinct.insert(value);
      negative += value < 0 ? 1 : 0;
    }
    EXPECT_GT(distinct.size(), 200u) << name_of(dtype);
    EXPECT_NEAR(static_cast<double>(negative) / static_cast<double>(count), 0.5, 0.05) << name_of(dtype);
    EXPECT_NEAR(static_cast<double>(large) / static_cast<double>(count), 0.5, 0.05) << "half lies in the upper half";
  }
}

TEST(Tiles, AreNoLargerThanTheMemory) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::i64, DType::i8}) {
    EXPECT_EQ(random_tile(dtype, 24, true).size(), 24u);
    EXPECT_EQ(tile_of(dtype, 24, {1, 2}).size(), 24u);
    EXPECT_EQ(random_tile(dtype, kTileBytes + 8, true).size(), kTileBytes);
  }
}

TEST(Tiles, HoldIntegersBelowTheirBound) {
  const graph::Array indices =
      graph::Array::dense({DType::i64, {kTileBytes / 8}}, random_tile(DType::i64, kTileBytes, false, 7));
  for (std::int64_t i = 0; i < indices.stored_count(); ++i)
    EXPECT_TRUE(indices.stored_double(i) >= 0 && indices.stored_double(i) < 7);
}

}  // namespace
}  // namespace protrain::measure::rates_test
