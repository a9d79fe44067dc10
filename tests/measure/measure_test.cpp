// Measures this machine. Tests check that something was timed, but not how long it took.
#include "measure/measure.h"
#include "measure/disk.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/memory.h"
#include "errors.h"
#include "measure/described_device.h"
#include "ops/op.h"
#include "random_plans/bench.h"

namespace protrain::measure::measure_test {
namespace {

using graph::Graph;
using profile::Profile;
using test::Scratch;

constexpr const char *kModel = "gpt2-dynamic-opset18";

// A device, its kernels, and the request that a session would make to measure them.
class MeasuredKernels {
 public:
  explicit MeasuredKernels(std::vector<const Graph *> graphs, const std::string &disk = "",
                           std::uint64_t memory = 1 << 30)
      : request_{.graphs = std::move(graphs), .optimizer = optimizer_, .disk_directory = disk, .memory = memory},
        profile(describe(device_->info())) {}

  bool run(const Progress &progress = nullptr) { return measure(*device_, kernels_, request_, profile, progress); }
  const backend::DeviceInfo &info() const { return device_->info(); }

 private:
  const backend::Optimizer optimizer_;
  const std::unique_ptr<backend::Device> device_ = backend::open("cpu", 2);
  run::Kernels kernels_{*device_};
  const Request request_;

 public:
  Profile profile;
};

// Measures the kernels of a graph on a described device whose rates are known already. `choose` lets measure() choose
// among the algorithms of a kernel.
Profile measured_on(test::DescribedDevice &device, const Graph &graph, std::uint64_t memory = 8ull << 30,
                    bool choose = false) {
  run::Kernels kernels(device);
  const backend::Optimizer optimizer;
  Profile profile = profile::known_machine("h200");
  measure(device, kernels,
          {.graphs = {&graph},
           .optimizer = optimizer,
           .memory = memory,
           .variants = choose,
           .now = [&] { return device.now(); }},
          profile, nullptr);
  return profile;
}

// Measures one product on a described device. `variants` are the times of the product's algorithms. `choose` lets
// measure() choose one of the algorithms. Algorithm number `refused` fails, and number `large` needs more scratch than
// there is memory; -1: none.
Profile measured_product(const std::vector<double> &variants, bool choose, int refused = -1, int large = -1) {
  test::DescribedDevice device(profile::known_machine("h200"));
  device.variants = variants;
  device.refused = refused;
  device.large = large;
  Graph graph;
  graph::Node node{.op = "MatMul", .name = "product"};
  for (auto *ids : {&node.inputs, &node.inputs, &node.outputs})
    ids->push_back(graph.add_value({.name = "matrix", .type = {DType::bf16, {4096, 4096}}}));
  graph.add_node(node);
  return measured_on(device, graph, 8ull << 30, choose);
}

TEST(Measure, ChoosesTheQuickestAlgorithmAndTheDevicesOwnWhereNoneIsClearlyQuicker) {
  EXPECT_EQ(measured_product({1, 0.9, 0.8, 0.85}, true).variants.begin()->second, 2u);
  EXPECT_EQ(measured_product({1, 0.99, 1.5}, true).variants.begin()->second, 0u);
  EXPECT_TRUE(measured_product({1, 0.5}, false).variants.empty());
  EXPECT_TRUE(measured_product({1}, true).variants.empty());
  EXPECT_EQ(measured_product({1, 0.5, 0.8}, true, 1).variants.begin()->second, 2u) << "an algorithm may refuse to run";
  EXPECT_EQ(measured_product({1, 0.5, 0.8}, true, 0).variants.begin()->second, 1u) << "so may the first";
  const double first = measured_product({1, 0.5}, false).kernels.begin()->second,
               quickest = measured_product({1, 0.5}, true).kernels.begin()->second;
  EXPECT_LT(quickest, 0.6 * first);
}

TEST(Measure, FailsIfNoAlgorithmRuns) {
  EXPECT_EQ(measured_product({1, 0.5}, true, -1, 1).variants.begin()->second, 0u)
      << "the other one needs too much memory";
  EXPECT_EQ(test::code_of([] { measured_product({1, 0.5}, true, 0, 1); }), Code::unsupported);
}

// Measures two products of float32 on a device that is disturbed for so many seconds. Returns the first one's time.
double seconds_of_first_product(double disturbed) {
  test::DescribedDevice device(profile::known_machine("h200"));
  device.disturbed_until = disturbed;
  Graph graph;
  for (const std::int64_t side : {2048, 4096}) {
    graph::Node node{.op = "MatMul", .name = "product"};
    for (auto *ids : {&node.inputs, &node.inputs, &node.outputs})
      ids->push_back(graph.add_value({.name = "matrix", .type = {DType::f32, {side, side}}}));
    graph.add_node(node);
  }
  return measured_on(device, graph).kernels.at(ops::signature(graph, graph.nodes().front()));
}

TEST(Measure, MeasuresAKernelAgainThatTookImplausiblyLong) {
  const double undisturbed = seconds_of_first_product(0);
  EXPECT_NEAR(seconds_of_first_product(0.05), undisturbed, 0.01 * undisturbed);
}

// Measures a square product of the given side. The graph has `values` matrices of this size, of which the product uses
// three. Returns in how many places the product's output lay.
std::size_t places_of_product(std::int64_t side, int values, std::uint64_t cache_bytes, std::uint64_t memory) {
  test::DescribedDevice device(profile::known_machine("h200"));
  device.caches = cache_bytes;
  Graph graph;
  std::vector<graph::ValueId> ids;
  for (int i = 0; i < values; ++i)
    ids.push_back(graph.add_value({.name = "matrix", .type = {DType::f32, {side, side}}}));
  graph.add_node({.op = "MatMul", .name = "product", .inputs = {ids[0], ids[1]}, .outputs = {ids[2]}});
  measured_on(device, graph, memory);
  return device.written().size();
}

TEST(Measure, FindsOperandsInMemoryIfAStepTouchesMoreThanTheCachesHold) {
  constexpr std::int64_t kSide = 1024;
  constexpr std::uint64_t kMatrix = 4 << 20, kMuch = 1 << 30;
  EXPECT_EQ(places_of_product(kSide, 100, 8 * kMatrix, kMuch), 6u) << "3 matrices in 6 places: twice the caches";
  EXPECT_EQ(places_of_product(kSide, 12, 8 * kMatrix, kMuch), 4u) << "a step touches only 12 matrices";
  EXPECT_EQ(places_of_product(kSide, 3, 8 * kMatrix, kMuch), 1u);
  EXPECT_EQ(places_of_product(kSide, 100, kMatrix, kMuch), 1u) << "one place is larger than the caches";
  EXPECT_EQ(places_of_product(kSide, 100, 0, kMuch), 1u) << "the caches are not known";
  EXPECT_EQ(places_of_product(kSide, 100, 8 * kMatrix, 10 * kMatrix), 3u) << "there is memory for three";
  EXPECT_EQ(places_of_product(16, 1000, 8 * kMatrix, kMuch), 64u) << "filling many places would take long";
}

const Graph &training() {
  static const Graph graph = test::training_graph(kModel);
  return graph;
}

std::set<std::string> signatures(const Graph &graph) {
  std::set<std::string> all;
  for (const graph::Node &node : graph.nodes())
    if (node.op != "Reshape") all.insert(ops::signature(graph, node));
  return all;
}

// The whole profile of the fixture. It is measured once, for all tests that only read it.
const Profile &whole_profile() {
  static const Profile profile = [] {
    MeasuredKernels measured({&training()});
    measured.run();
    return measured.profile;
  }();
  return profile;
}

TEST(Measure, TimesEveryDistinctKernelOfAGraph) {
  std::set<std::string> timed;
  for (const auto &[signature, seconds] : whole_profile().kernels) {
    timed.insert(signature);
    EXPECT_GT(seconds, 0) << signature;
    EXPECT_TRUE(std::isfinite(seconds)) << signature;
  }
  EXPECT_EQ(timed, signatures(training()));
}

TEST(Measure, FindsEveryRateButTheDisks) {
  const Profile &profile = whole_profile();
  for (double rate : {profile.fp32_flops, profile.device_bandwidth, profile.device_optimizer, profile.host_optimizer,
                      profile.upload, profile.download, profile.both_ways, profile.host_bandwidth})
    EXPECT_GT(rate, 0);
  EXPECT_GT(profile.launch_seconds, 0);
  EXPECT_EQ(profile.disk_read, 0);
  EXPECT_EQ(profile.disk_write, 0);
  EXPECT_EQ(profile.disk_both_ways, 0);
  EXPECT_EQ(profile.compute_beside_disk, 1);
  EXPECT_EQ(profile.disk_beside_compute, 1);
}

TEST(Measure, DescribesAMachineThatOthersCanReadBack) {
  EXPECT_EQ(profile::from_json(profile::to_json(whole_profile())), whole_profile());
}

TEST(Measure, FindsTheRateOfProductsWithoutAGraphToo) {
  MeasuredKernels measured({});
  measured.run();
  EXPECT_GT(measured.profile.fp32_flops, 0);
  EXPECT_EQ(profile::from_json(profile::to_json(measured.profile)), measured.profile);
}

TEST(Measure, MeasuresNothingTwice) {
  for (const std::uint64_t memory : {1ull << 30, 64ull << 10}) {  // with little memory some kernels are never measured
    MeasuredKernels measured({&training()}, "", memory);
    if (memory == 1ull << 30) measured.profile = whole_profile();
    const bool first = measured.run();
    EXPECT_EQ(first, memory != 1ull << 30);
    const Profile before = measured.profile;
    std::size_t reports = 0;
    EXPECT_FALSE(measured.run([&](std::size_t, std::size_t) { ++reports; }));
    EXPECT_EQ(reports, 0u);
    EXPECT_EQ(measured.profile, before);
  }
}

TEST(Measure, MeasuresOnlyWhatIsNew) {
  MeasuredKernels measured({&training()});
  measured.profile = whole_profile();
  const auto taken = *measured.profile.kernels.begin();
  measured.profile.kernels.erase(taken.first);
  measured.profile.device_optimizer = 7;
  std::size_t reports = 0;
  EXPECT_TRUE(measured.run([&](std::size_t, std::size_t of) {
    ++reports;
    EXPECT_EQ(of, 1u);
  }));
  EXPECT_EQ(reports, 1u);
  EXPECT_TRUE(measured.profile.kernels.contains(taken.first));
  EXPECT_EQ(measured.profile.device_optimizer, 7);
}

TEST(Measure, TellsHowFarItIsOnceForEachThing) {
  MeasuredKernels measured({&training(), &training()});
  std::vector<std::size_t> done, of;
  measured.run([&](std::size_t so_far, std::size_t all) {
    done.push_back(so_far);
    of.push_back(all);
  });
  ASSERT_EQ(done.size(), of.front());
  for (std::size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i], i);
  EXPECT_EQ(of, std::vector<std::size_t>(of.size(), of.front()));
  EXPECT_GT(of.front(), signatures(training()).size()) << "copies and the optimizer too";
}

TEST(Measure, LeavesOutKernelsThatNeedMoreMemoryThanThereIs) {
  MeasuredKernels measured({&training()}, "", 64 << 10);
  measured.run();
  const std::set<std::string> all = signatures(training());
  EXPECT_GT(measured.profile.kernels.size(), 0u);
  EXPECT_LT(measured.profile.kernels.size(), all.size());
  for (const graph::Node &node : training().nodes()) {
    std::uint64_t bytes = 0;
    for (const auto *values : {&node.inputs, &node.outputs})
      for (graph::ValueId id : *values)
        if (id != graph::ValueId::none)
          bytes += byte_count(training().value(id).type.dtype, training().value(id).type.shape);
    if (bytes > 64 << 10) {
      EXPECT_FALSE(measured.profile.kernels.contains(ops::signature(training(), node))) << node.op;
    }
  }
  EXPECT_GT(measured.profile.fp32_flops, 0) << "or nothing could be derived for the others";
}

TEST(Measure, FindsTheDisksRatesWhereADirectoryIsNamed) {
  const Scratch scratch;
  MeasuredKernels measured({}, scratch.path());
  measured.run();
  const Profile &profile = measured.profile;
  EXPECT_GT(profile.disk_read, 0);
  EXPECT_GT(profile.disk_write, 0);
  EXPECT_GT(profile.disk_both_ways, 0);
  for (double share : {profile.compute_beside_disk, profile.disk_beside_compute})
    EXPECT_TRUE(share > 0 && share <= 1) << share;
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path())) << "nothing is left behind";
  EXPECT_FALSE(measured.run());
}

TEST(Measure, MeasuresADiskAnewOfWhichItKnowsOnlyOneWayAtATime) {
  const Scratch scratch;
  MeasuredKernels measured({}, scratch.path());
  measured.run();
  measured.profile.disk_both_ways = 0;  // as an earlier version kept it
  EXPECT_TRUE(measured.run());
  EXPECT_GT(measured.profile.disk_both_ways, 0);
}

TEST(Measure, WritesNoMoreThanHalfOfWhatADiskHasFree) {
  for (const std::uint64_t free : {0ull, 1ull << 20, 9ull << 20, 40ull << 20, 300ull << 20, 1ull << 40}) {
    const DiskFile file = disk_file_within(free);
    EXPECT_TRUE(file.region * file.regions <= free / 2 || file.region * file.regions == 4ull << 20) << free;
    EXPECT_LE(file.region * file.regions, 256ull << 20);
    EXPECT_EQ(file.regions % 2, 0u) << "one half is written while the other is read";
    EXPECT_GE(file.regions, 4u);
  }
  EXPECT_EQ(disk_file_within(1ull << 40).region, 16ull << 20);
  EXPECT_EQ(disk_file_within(40ull << 20).region, 5ull << 20);
}

// File systems at their default settings compress blocks of up to 128 KiB, each on its own.
TEST(Measure, WritesToTheDiskWhatAFileSystemCannotCompress) {
  constexpr std::size_t kBlock = 128 << 10;
  const MemoryBlock block = incompressible((1 << 20) + 24);
  EXPECT_EQ(block.size(), (1u << 20) + 24);
  for (std::size_t at = 0; at + kBlock <= block.size(); at += kBlock) {
    std::set<std::uint64_t> words;
    for (std::size_t i = 0; i < kBlock; i += sizeof(std::uint64_t)) {
      std::uint64_t word = 0;
      std::memcpy(&word, block.data() + at + i, sizeof word);
      words.insert(word);
    }
    EXPECT_GT(words.size(), kBlock / sizeof(std::uint64_t) * 99 / 100) << at;
  }
}

TEST(Measure, SaysWhichDirectoryTheDiskCannotBeMeasuredIn) {
  const Scratch scratch;
  MeasuredKernels measured({}, scratch.file("none"));
  EXPECT_NE(test::code_of([&] { measured.run(); }), Code::ok);
}

// A graph of one node. The operator infers the output's type.
Graph one_node(const std::string &op, const std::vector<graph::Type> &inputs, graph::Attributes attributes = {}) {
  Graph graph;
  std::vector<graph::ValueId> ids;
  for (const graph::Type &type : inputs) {
    ids.push_back(graph.add_value({.name = "x", .type = type, .origin = graph::Origin::input}));
    graph.inputs.push_back(ids.back());
  }
  const graph::NodeId id = graph.add_node({.op = op, .attributes = std::move(attributes), .inputs = ids}, {"y"});
  graph.value(graph.node(id).outputs[0]).type = ops::infer(graph, graph.node(id))[0];
  return graph;
}

void expect_measured(const Graph &graph) {
  MeasuredKernels measured({&graph});
  measured.run();
  EXPECT_EQ(measured.profile.kernels.size(), 1u) << graph.print();
}

TEST(Measure, ReadsTablesThatAreShorterThanEverythingElse) {
  const graph::Type indices{DType::i64, {8, 16}};
  expect_measured(one_node("Gather", {{DType::f32, {2, 32}}, indices}));
  expect_measured(one_node("Gather", {{DType::f32, {1, 32}}, indices}));
  // GatherGrad does not read the table: only its output has the table's shape.
  expect_measured(one_node("GatherGrad", {{DType::f32, {8, 16, 32}}, indices},
                           {{"axis", 0l}, {"shape", std::vector<std::int64_t>{2, 32}}}));
}

TEST(Measure, TakesTensorsWithoutElements) {
  expect_measured(one_node("Relu", {{DType::f32, {0, 4}}}));
  expect_measured(one_node("MatMul", {{DType::f32, {0, 4}}, {DType::f32, {4, 8}}}));
}

TEST(Measure, LeavesOutAKernelThatRefusesTheNumbersThatItIsTriedWith) {
  const Graph graph = one_node("Div", {{DType::i64, {64, 1}}, {DType::i64, {64, 1}}});
  MeasuredKernels measured({&graph});
  EXPECT_EQ(test::code_of([&] { measured.run(); }), Code::ok) << "the model's own numbers may suit it";
  EXPECT_TRUE(measured.profile.kernels.empty());
  const Profile before = measured.profile;
  EXPECT_FALSE(measured.run()) << "the rates are known, and the kernel refuses again";
  EXPECT_EQ(measured.profile, before);
}

}  // namespace
}  // namespace protrain::measure::measure_test
