#include "plan/durations.h"

#include <gtest/gtest.h>

#include "plan/layers.h"

namespace protrain::plan::durations_test {
namespace {

// A graph with one product, (M x K) times (K x N), and a Reshape of its result.
struct Product {
  explicit Product(DType dtype = DType::f32) {
    a = graph.add_value({.name = "a", .type = {dtype, {kM, kK}}, .origin = graph::Origin::input});
    b = graph.add_value({.name = "b", .type = {dtype, {kK, kN}}, .origin = graph::Origin::parameter});
    c = graph.add_value({.name = "c", .type = {dtype, {kM, kN}}});
    flat = graph.add_value({.name = "flat", .type = {dtype, {kM * kN}}});
    graph.parameters = {b};
    graph.add_node({.op = "MatMul", .inputs = {a, b}, .outputs = {c}});
    graph.add_node(
        {.op = "Reshape", .attributes = {{"shape", std::vector{kM * kN}}}, .inputs = {c}, .outputs = {flat}});
  }

  static constexpr std::int64_t kM = 10, kK = 20, kN = 30;
  static constexpr double kFlops = 2.0 * kM * kK * kN, kElements = kM * kK + kK * kN + kM * kN;
  graph::Graph graph;
  graph::ValueId a, b, c, flat;
};

constexpr graph::NodeId kMatMul{0}, kReshape{1};

profile::Profile machine() {
  return {.fp32_flops = 1000,
          .bf16_flops = 4000,
          .device_bandwidth = 1e6,
          .launch_seconds = 0.5,
          .device_optimizer = 100,
          .host_optimizer = 10,
          .upload = 100,
          .download = 50,
          .host_bandwidth = 200,
          .disk_read = 20,
          .disk_write = 10};
}

TEST(Durations, TakesTheLargerOfArithmeticAndTraffic) {
  const Product product;
  profile::Profile profile = machine();
  EXPECT_DOUBLE_EQ(Durations(profile, product.graph, {}).run(kMatMul), Product::kFlops / 1000 + 0.5);
  profile.device_bandwidth = 10;
  EXPECT_DOUBLE_EQ(Durations(profile, product.graph, {}).run(kMatMul), 4 * Product::kElements / 10 + 0.5);
}

TEST(Durations, TakesProductsInBfloat16AtTheirOwnRateAndHalfTheTraffic) {
  const Product product(DType::bf16);
  profile::Profile profile = machine();
  EXPECT_DOUBLE_EQ(Durations(profile, product.graph, {}).run(kMatMul), Product::kFlops / 4000 + 0.5);
  profile.device_bandwidth = 10;
  EXPECT_DOUBLE_EQ(Durations(profile, product.graph, {}).run(kMatMul), 2 * Product::kElements / 10 + 0.5);
  profile = machine();
  profile.bf16_flops = 0;  // unknown, so bfloat16 counts as fast as float32
  EXPECT_DOUBLE_EQ(Durations(profile, product.graph, {}).run(kMatMul), Product::kFlops / 1000 + 0.5);
}

TEST(Durations, TakesProductsInFloat16AtTheRateOfBfloat16OnAGpuAndOfFloat32OnACpu) {
  const Product product(DType::f16);
  profile::Profile profile = machine();
  profile.kind = DeviceKind::gpu;
  EXPECT_DOUBLE_EQ(Durations(profile, product.graph, {}).run(kMatMul), Product::kFlops / 4000 + 0.5);
  profile.kind = DeviceKind::cpu;
  EXPECT_DOUBLE_EQ(Durations(profile, product.graph, {}).run(kMatMul), Product::kFlops / 1000 + 0.5);
}

TEST(Durations, TakesNothingForAnotherNameOfTheSameBytes) {
  const Product product;
  const profile::Profile profile = machine();
  EXPECT_EQ(Durations(profile, product.graph, {}).run(kReshape), 0);
}

TEST(Durations, BelievesWhatWasMeasured) {
  const Product product;
  profile::Profile profile = machine();
  profile.kernels[ops::signature(product.graph, product.graph.nodes()[0])] = 0.125;
  EXPECT_EQ(Durations(profile, product.graph, {}).run(kMatMul), 0.125);
  const Product other(DType::bf16);
  EXPECT_GT(Durations(profile, other.graph, {}).run(kMatMul), 0.5) << "of other types it is another kernel";
}

TEST(Durations, MovesAtTheRateOfTheWay) {
  const graph::Graph graph;
  const profile::Profile profile = machine();
  const Durations durations(profile, graph, {});
  EXPECT_DOUBLE_EQ(durations.move(Tier::host, Tier::device, 100), 1);
  EXPECT_DOUBLE_EQ(durations.move(Tier::device, Tier::host, 100), 2);
  EXPECT_DOUBLE_EQ(durations.move(Tier::disk, Tier::host, 100), 5);
  EXPECT_DOUBLE_EQ(durations.move(Tier::host, Tier::disk, 100), 10);
  // A copy reads and writes the same memory.
  EXPECT_DOUBLE_EQ(durations.move(Tier::device, Tier::device, 100), 200 / 1e6);
  EXPECT_DOUBLE_EQ(durations.move(Tier::host, Tier::host, 100), 1);
}

TEST(Durations, MovesBetweenDeviceAndDiskAtTheRateOfTheSlowerWay) {
  const graph::Graph graph;
  profile::Profile profile = machine();
  EXPECT_DOUBLE_EQ(Durations(profile, graph, {}).move(Tier::disk, Tier::device, 100), 5);
  EXPECT_DOUBLE_EQ(Durations(profile, graph, {}).move(Tier::device, Tier::disk, 100), 10);
  profile.disk_read = profile.disk_write = 1000;
  EXPECT_DOUBLE_EQ(Durations(profile, graph, {}).move(Tier::disk, Tier::device, 100), 1);
  EXPECT_DOUBLE_EQ(Durations(profile, graph, {}).move(Tier::device, Tier::disk, 100), 2);
  profile.shares_memory = true;  // only the disk takes time
  EXPECT_DOUBLE_EQ(Durations(profile, graph, {}).move(Tier::disk, Tier::device, 100), 0.1);
  EXPECT_DOUBLE_EQ(Durations(profile, graph, {}).move(Tier::device, Tier::disk, 100), 0.1);
}

TEST(Durations, CountsTwentyEightBytesForEachElementThatAdamwUpdatesInFloat32) {
  // An update reads the gradient, and reads and writes the weight and two moments.
  const Product product;
  const profile::Profile profile = machine();
  const Durations durations(profile, product.graph, {.state = 8});
  EXPECT_DOUBLE_EQ(durations.update(Tier::device, 0, 4 * 25), 28 * 25 / 100.0);
  EXPECT_DOUBLE_EQ(durations.update(Tier::host, 0, 4 * 25), 28 * 25 / 10.0);
  EXPECT_DOUBLE_EQ(durations.update(Tier::disk, 0, 4 * 25), durations.update(Tier::device, 0, 4 * 25))
      << "what rests on disk is updated where it is brought";
}

TEST(Durations, CountsTwentySixBytesForEachElementThatAdamwUpdatesInBfloat16) {
  // An update reads the gradient, and reads and writes both planes of the weight and two moments.
  const Product product(DType::bf16);
  const profile::Profile profile = machine();
  EXPECT_DOUBLE_EQ(Durations(profile, product.graph, {.state = 10}).update(Tier::device, 0, 2 * 25), 26 * 25 / 100.0);
}

TEST(Durations, CountsTwelveBytesForEachElementThatSgdUpdatesWithoutMomentum) {
  const Product product;
  const profile::Profile profile = machine();
  EXPECT_DOUBLE_EQ(Durations(profile, product.graph, {.state = 0}).update(Tier::device, 0, 4 * 25), 12 * 25 / 100.0);
}

}  // namespace
}  // namespace protrain::plan::durations_test
