// Compares the plan that the search chooses with every plan of the space, each of them laid out and simulated.
#include "plan/search.h"

#include <gtest/gtest.h>

#include <limits>

#include "bench/space.h"
#include "random_plans/bench.h"

namespace protrain::plan::search_test {
namespace {

using bench::GridPoint;
using test::options_with;
using test::Pairs;

constexpr std::uint64_t kMiB = 1 << 20;

// A machine so small that, even for the fixtures, copies and the disk limit the speed.
profile::Profile small_machine(bool shared) {
  return {.name = "small",
          .device_memory = 64 * kMiB,
          .host_memory = shared ? 64 * kMiB : 256 * kMiB,
          .disk_memory = shared ? 256 * kMiB : 0,
          .shares_memory = shared,
          .shares_cores = shared,
          .fp32_flops = 2e11,
          .bf16_flops = 4e11,
          .device_bandwidth = 3e10,
          .launch_seconds = 1e-6,
          .device_optimizer = 2e10,
          .host_optimizer = 1e10,
          .upload = 2e9,
          .download = 2e9,
          .both_ways = 3e9,
          .host_bandwidth = 2e10,
          .disk_read = 2e9,
          .disk_write = 1.5e9,
          .compute_beside_disk = shared ? 0.8 : 1,
          .disk_beside_compute = shared ? 0.9 : 1};
}

// A machine whose kernels need no scratch. Real kernels would need more scratch than all other memory of a fixture.
class SmallMachine final : public draft::TargetMachine {
 public:
  explicit SmallMachine(profile::Profile profile) : profile_(std::move(profile)) {}
  profile::Profile profile(const std::vector<const graph::Graph *> &, const backend::Optimizer &) override {
    return profile_;
  }
  program::Workspace workspace(const graph::Graph &graph) override {
    return {.nodes = std::vector<std::uint64_t>(graph.node_count(), 0)};
  }

 private:
  const profile::Profile profile_;
};

// A fixture on a machine. laid() lays out all plans that a search may choose, and keeps the results. With a `stride`,
// it lays out only every stride-th plan.
class Case {
 public:
  Case(const std::string &model, bool shared, const Pairs &more = {}) : Case(model, small_machine(shared), more) {}
  Case(const std::string &model, const profile::Profile &machine, const Pairs &more = {}, std::size_t stride = 1)
      : stride_(stride),
        space(settings(model, more), test::fixture(model + ".onnx"), std::make_unique<SmallMachine>(machine)) {}

  // The device memory of the resident plan.
  std::uint64_t resident_bytes() const { return space.search().resident.value().cost.bytes[Tier::device]; }
  const std::vector<GridPoint> &laid() {
    if (!laid_.empty()) return laid_;
    std::vector<Choice> choices;
    for (std::size_t i = 0; const Choice &choice : space.points())
      if (i++ % stride_ == 0) choices.push_back(choice);
    return laid_ = space.lay_out(choices, 2);
  }
  // The least device memory of all plans in the space that fit on the host and on the disk.
  std::uint64_t least() { return least_of(laid()); }
  // The least device memory of all plans with slack 0 that fit on the host and on the disk.
  std::uint64_t least_without_slack() { return least_of(space.lay_out(space.points(0), 2)); }

 private:
  std::uint64_t least_of(const std::vector<GridPoint> &laid) const {
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (const GridPoint &one : laid)
      if (one.out.bytes[Tier::host] <= space.terms.capacity[Tier::host] &&
          one.out.bytes[Tier::disk] <= space.terms.capacity[Tier::disk])
        least = std::min(least, one.out.bytes[Tier::device]);
    return least;
  }

  static draft::Settings settings(const std::string &model, const Pairs &more) {
    Pairs pairs = test::base_options(model);
    pairs.emplace_back("hardware", "small");  // makes the planner use the profile's disk
    pairs.insert(pairs.end(), more.begin(), more.end());
    draft::Options options = options_with(pairs);
    if (model == "root") options.clear("dim"), options.set("dim", "batch=8");
    return draft::settings_of(options);
  }

  std::size_t stride_;
  std::vector<GridPoint> laid_;

 public:
  bench::Space space;
};

void expect_near_best(Case &it) {
  const std::uint64_t least = it.least(), most = it.resident_bytes();
  ASSERT_LT(least, most);
  for (const double share : {0.1, 0.3, 0.6, 0.9}) {
    Bytes &capacity = it.space.terms.capacity;
    capacity[Tier::device] = least + static_cast<std::uint64_t>(share * static_cast<double>(most - least));
    SCOPED_TRACE(capacity[Tier::device]);
    const GridPoint *best = fastest(it.laid(), capacity);
    ASSERT_NE(best, nullptr);
    const SearchResult found = it.space.search();
    ASSERT_TRUE(found.best);
    // A step of these models takes a few milliseconds, and a single instruction can take 1 % of it. So the test allows
    // the chosen plan to be 5 % slower than the fastest plan.
    EXPECT_LE(found.best->cost.seconds, 1.05 * best->out.seconds);
    // The chosen plan, laid out again, must have the same cost and fit.
    const PlanCost again = it.space.lay_out(expand(it.space.graph(), found.best->choice));
    EXPECT_EQ(again.bytes, found.best->cost.bytes);
    EXPECT_EQ(again.seconds, found.best->cost.seconds);
    EXPECT_TRUE(bench::fits(again.bytes, capacity));
    EXPECT_LT(found.laid_out, it.laid().size());
  }
}

TEST(Search, ComesNearTheBestOfItsWholeSpaceWithADeviceOfItsOwn) {
  Case gpt2("gpt2-dynamic-opset18", small_machine(false), {}, 3);
  expect_near_best(gpt2);
}

TEST(Search, ComesNearTheBestOfItsWholeSpaceWithOneMemoryAndADisk) {
  Case llama("llama-dynamic-opset23", small_machine(true), {}, 3);
  expect_near_best(llama);
}

TEST(Search, ComesNearTheBestOfItsWholeSpaceWithTheBarrier) {
  Case retention("retention-dynamic-opset18", small_machine(false), {{"clip_norm", "1"}}, 3);
  expect_near_best(retention);
}

TEST(Search, DefersUpdatesThatWaitForTheNormWhereMemoriesAreApart) {
  const auto deferred = [](bool shared, const char *accumulation) {
    Case it("gpt2-dynamic-opset18", shared, {{"clip_norm", "1"}, {"accumulation", accumulation}});
    it.space.terms.capacity[Tier::device] = it.resident_bytes() - 1;
    return it.space.search().best.value().choice.n_deferred;
  };
  EXPECT_EQ(deferred(false, "1"), -1);
  EXPECT_EQ(deferred(false, "2"), 0);
  EXPECT_EQ(deferred(true, "1"), 0);
}

// The host's optimizer is too slow for backward to hide it. Forward and backward together hide more of the updates.
TEST(Search, DefersSomeUpdatesToTheNextForwardWhereBackwardIsTooShortForThem) {
  profile::Profile machine = small_machine(false);
  machine.host_optimizer = 4e9;
  Case it("gpt2-dynamic-opset18", machine, {}, 3);
  Bytes &capacity = it.space.terms.capacity;
  capacity[Tier::device] = it.least() + (it.resident_bytes() - it.least()) / 8;
  const SearchResult found = it.space.search();
  ASSERT_TRUE(found.best);
  EXPECT_GT(found.best->choice.n_deferred, 0);
  ASSERT_EQ(found.best->choice.order, OptimizerOrder::overlap);
  EXPECT_LT(found.best->cost.seconds, fastest(it.laid(), capacity)->out.seconds) << "the best that defers none";
}

TEST(Search, SharesTheOptimizerBetweenHostAndDeviceWhereNeitherIsFastEnough) {
  profile::Profile machine = small_machine(false);
  machine.host_optimizer = 4e9;
  machine.upload = machine.download = 6e9;
  machine.both_ways = 10e9;
  Case it("gpt2-dynamic-opset18", machine, {}, 3);
  Bytes &capacity = it.space.terms.capacity;
  capacity[Tier::device] = it.least() + (it.resident_bytes() - it.least()) / 4;
  const auto best_of = [&](int on_device) {
    std::vector<GridPoint> some;
    for (const GridPoint &one : it.laid())
      if (one.choice.n_device_update == on_device) some.push_back(one);
    return fastest(some, capacity)->out.seconds;
  };
  const SearchResult found = it.space.search();
  ASSERT_TRUE(found.best);
  EXPECT_GT(found.best->choice.n_device_update, 0);
  EXPECT_LT(found.best->cost.seconds, best_of(0));
}

TEST(Search, TakesTheResidentPlanWhereItFitsAndNoByteLess) {
  for (const bool shared : {true}) {  // if memory is not shared, updates on the host may be faster
    Case it("gpt2-dynamic-opset18", shared);
    Bytes &capacity = it.space.terms.capacity;
    capacity[Tier::device] = it.resident_bytes();
    const SearchResult found = it.space.search();
    ASSERT_TRUE(found.best && found.resident);
    EXPECT_EQ(found.laid_out, 2u) << "it, and what keeps less; no other is faster";
    EXPECT_EQ(found.resident->cost.bytes, (Bytes{capacity[Tier::device], 0, 0}));
    const Plan plan = expand(it.space.graph(), found.best->choice);
    EXPECT_EQ(plan.n_persist, static_cast<int>(plan.chunks.size()));
    EXPECT_EQ(plan.n_swap + plan.n_checkpoint, 0);
    --capacity[Tier::device];
    const SearchResult less = it.space.search();
    ASSERT_TRUE(less.best && less.resident);
    EXPECT_GE(less.best->cost.seconds, found.resident->cost.seconds);
    EXPECT_TRUE(bench::fits(less.best->cost.bytes, capacity));
    EXPECT_NE(less.best->cost.bytes, found.resident->cost.bytes);
    EXPECT_EQ(less.resident->cost.bytes, found.resident->cost.bytes) << "told whether or not it fits";
  }
}

// Searches with this device bandwidth, in bytes per second. Recomputing a cheap value costs only its memory traffic,
// because launches cost nothing here.
SearchResult found_where_memory_moves(double bandwidth) {
  profile::Profile machine = small_machine(true);
  machine.device_bandwidth = bandwidth;
  machine.launch_seconds = 0;
  Case it("gpt2-dynamic-opset18", machine);
  it.space.terms.capacity[Tier::device] = it.resident_bytes();
  return it.space.search();
}

TEST(Search, KeepsNothingThatNextToNoTimeComputesAgain) {
  const SearchResult found = found_where_memory_moves(1e13);
  ASSERT_TRUE(found.best && found.resident);
  EXPECT_GT(found.best->choice.n_selective, 0);
  EXPECT_LT(found.best->cost.bytes[Tier::device], found.resident->cost.bytes[Tier::device]);
  EXPECT_GT(found.best->cost.seconds, found.resident->cost.seconds);
  EXPECT_LE(found.best->cost.seconds, 1.02 * found.resident->cost.seconds);
}

TEST(Search, KeepsWhatItWouldTakeLongerToComputeAgain) {
  const SearchResult found = found_where_memory_moves(1e10);
  ASSERT_TRUE(found.best && found.resident);
  EXPECT_EQ(found.best->choice.n_selective, 0);
  EXPECT_EQ(found.best->cost.bytes, found.resident->cost.bytes);
}

TEST(Search, GivesTheSameAnswerTwice) {
  Case it("gpt2-dynamic-opset18", false);
  it.space.terms.capacity[Tier::device] = it.resident_bytes() / 2;
  const SearchResult a = it.space.search(), b = it.space.search();
  ASSERT_TRUE(a.best && b.best);
  EXPECT_EQ(expand(it.space.graph(), a.best->choice), expand(it.space.graph(), b.best->choice));
  EXPECT_EQ(a.best->cost.seconds, b.best->cost.seconds);
  EXPECT_EQ(a.ranked, b.ranked);
  EXPECT_EQ(a.laid_out, b.laid_out);
}

TEST(Search, LeavesNothingToMemoriesThatAreNotThere) {
  Case it("gpt2-dynamic-opset18", false);
  Bytes &capacity = it.space.terms.capacity;
  capacity = {it.resident_bytes() - 1, 0, 0};
  const SearchResult found = it.space.search();
  ASSERT_TRUE(found.best) << "recomputing is left";
  EXPECT_EQ(found.best->cost.bytes[Tier::host] + found.best->cost.bytes[Tier::disk], 0u);
  EXPECT_GT(found.best->choice.n_checkpoint + found.best->choice.n_selective, 0);
}

TEST(Search, TakesBudgetsWithoutEndForWhatTheyAre) {
  for (const bool shared : {false, true})
    for (const std::uint64_t much : {1ull << 63, ~0ull}) {
      Case it("gpt2-dynamic-opset18", shared);
      Bytes &capacity = it.space.terms.capacity;
      const std::uint64_t half = it.resident_bytes() / 2;
      capacity = {half, capacity[Tier::host] > 0 ? 1ull << 40 : 0, capacity[Tier::disk] > 0 ? 1ull << 40 : 0};
      const SearchResult expected = it.space.search();
      capacity = {half, shared ? 0 : much, much};
      if (!shared) capacity[Tier::disk] = much;
      const SearchResult found = it.space.search();
      ASSERT_TRUE(expected.best && found.best);
      EXPECT_LE(found.best->cost.seconds, 1.01 * expected.best->cost.seconds) << much;
      EXPECT_TRUE(bench::fits(found.best->cost.bytes, capacity));
      capacity = {much, much, much};
      const SearchResult all = it.space.search();
      ASSERT_TRUE(all.best);
      EXPECT_TRUE(!shared || all.laid_out == 2);
    }
}

// Checks that the smallest plan fits if the device has exactly the memory that this plan needs. With one byte less, no
// plan of the whole space may fit.
void expect_smallest(Case &it) {
  Bytes &capacity = it.space.terms.capacity;
  const Bytes there = capacity;
  capacity[Tier::device] = 1;
  const Smallest smallest = it.space.smallest();
  ASSERT_TRUE(smallest.lacks.has_value());
  EXPECT_EQ(*smallest.lacks, Tier::device);
  const std::uint64_t needed = smallest.point.cost.bytes[Tier::device];
  EXPECT_LE(needed, it.least_without_slack());
  EXPECT_EQ(it.space.lay_out(expand(it.space.graph(), smallest.point.choice)).bytes, smallest.point.cost.bytes);
  capacity[Tier::device] = needed;
  const Smallest enough = it.space.smallest();
  EXPECT_FALSE(enough.lacks.has_value()) << "it works";
  EXPECT_TRUE(bench::fits(enough.point.cost.bytes, capacity));
  capacity[Tier::device] = needed - 1;
  EXPECT_FALSE(it.space.search().best.has_value()) << "one byte less does not";
  capacity = there;
}

TEST(Smallest, IsTheLeastOfItsWholeSpaceWithADeviceOfItsOwn) {
  Case gpt2("gpt2-dynamic-opset18", false);
  expect_smallest(gpt2);
}

TEST(Smallest, IsTheLeastOfItsWholeSpaceWithOneMemoryAlone) {
  Case opt("opt-dynamic-opset23", true);
  opt.space.terms.capacity[Tier::disk] = 0;
  expect_smallest(opt);
}

TEST(Smallest, IsTheLeastOfItsWholeSpaceWithOneMemoryAndADisk) {
  Case llama("llama-dynamic-opset23", true);
  expect_smallest(llama);
}

TEST(Smallest, IsTheLeastOfItsWholeSpaceWithoutBlocks) {
  Case root("root", true);
  expect_smallest(root);
}

TEST(Smallest, IsTheLeastOfItsWholeSpaceWithTheBarrier) {
  Case retention("retention-dynamic-opset18", false, {{"clip_norm", "1"}});
  expect_smallest(retention);
}

TEST(Smallest, NamesTheMemoryThatLacks) {
  Case it("gpt2-dynamic-opset18", false);
  Bytes &capacity = it.space.terms.capacity;
  capacity[Tier::device] = 1;
  capacity = {it.space.smallest().point.cost.bytes[Tier::device], 1 << 10, 0};
  const Smallest host = it.space.smallest();
  ASSERT_TRUE(host.lacks.has_value());
  EXPECT_GT(host.point.cost.bytes[*host.lacks], capacity[*host.lacks]);
}

}  // namespace
}  // namespace protrain::plan::search_test
