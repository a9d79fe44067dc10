// The cost model's equations, compared with figures worked out by hand. Equation numbers are those of the ProTrain
// paper. A layer takes 3 s forward and 5 s backward. A weight is uploaded in 1 s, downloaded in 2 s, and updated in 1 s
// on the host or 0.5 s on the device (layers.h).
#include "plan/cost.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "plan/layers.h"

namespace protrain::plan::cost_test {
namespace {

constexpr double kOutside = 2 * Layers::kHead;
constexpr double kSlack = 5e-3;  // relative; the closed form adds a little time for copies that compute hides

// A model of three layers, each of them a chunk, and its cost model.
class PricedModel {
 public:
  explicit PricedModel(const Choice &base = {},
                       const std::function<void(profile::Profile &, Terms &)> &change = nullptr)
      : layers_(3), machine_(layers_.machine()) {
    if (change) change(machine_, layers_.terms);
    durations_.emplace(machine_, layers_.graph, layers_.terms.optimizer);
    outline_.emplace(layers_.graph, *durations_);
    chunking.emplace(layers_.graph, *outline_, *durations_, layers_.terms, Layers::kWeight);
    footprint.emplace(*chunking, base, base.n_device_update < 0 ? 1 : base.n_device_update / 3.0);
    workload.emplace(*chunking, base);
    model.emplace(*workload, *footprint);
  }

  double seconds(std::size_t persist, std::size_t host, std::size_t buffers) const {
    return model->estimate(persist, host, buffers).seconds;
  }
  Bytes bytes(std::size_t persist, std::size_t host, std::size_t buffers) const {
    return footprint->bytes(persist, host, buffers);
  }

 private:
  Layers layers_;
  profile::Profile machine_;
  std::optional<Durations> durations_;
  std::optional<Outline> outline_;

 public:
  std::optional<Chunking> chunking;
  std::optional<Workload> workload;
  std::optional<Footprint> footprint;
  std::optional<CostModel> model;
};

void expect_seconds(double actual, double expected) { EXPECT_NEAR(actual, expected, kSlack * expected); }

const auto kSlowUpload = [](profile::Profile &machine, Terms &) { machine.upload = Layers::kWeight / 8.0; };

TEST(Chunking, GivesEachChunkTheSecondsOfTheBlocksWhoseWeightsItHolds) {
  const PricedModel priced;
  ASSERT_EQ(priced.chunking->chunks.size(), 3u);
  for (const Chunking::Weight &chunk : priced.chunking->chunks) {
    EXPECT_EQ(chunk.weights, 4096u);
    EXPECT_EQ(chunk.state, 8192u);
    EXPECT_EQ(chunk.gradient, 4096u);
    EXPECT_DOUBLE_EQ(chunk.forward, 3);
    EXPECT_DOUBLE_EQ(chunk.backward, 5);
    EXPECT_DOUBLE_EQ(chunk.device_update, 0.5);
    EXPECT_DOUBLE_EQ(chunk.host_update, 1);
  }
  EXPECT_EQ(priced.chunking->in_a_row[0], (std::vector<std::uint64_t>{0, 4096, 8192, 12288}));
  EXPECT_EQ(priced.chunking->in_a_row[2], (std::vector<std::uint64_t>{0, 4096}));
}

TEST(Chunking, OfWhatIsFrozenHasNoStateNoGradientAndNoUpdate) {
  const PricedModel priced({}, [](profile::Profile &, Terms &terms) { terms.trained[1] = false; });
  const Chunking::Weight &frozen = priced.chunking->chunks[1];
  EXPECT_EQ(frozen.weights, 4096u);
  EXPECT_EQ(frozen.state + frozen.gradient, 0u);
  EXPECT_EQ(frozen.device_update + frozen.host_update, 0);
}

TEST(CostModel, CountsComputeAndTheDevicesOptimizerWhereAllPersists) {
  // The device runs the updates during backward, so forward takes 3 x 3 s, and backward 3 x (5 + 0.5) s.
  expect_seconds(PricedModel().seconds(3, 0, 0), kOutside + 25.5);
}

TEST(CostModel, HidesTransfersBehindComputeInForward) {
  // Forward, eq. 3: nothing hides the first fetch, which takes 1 s. The 3 s of each layer hide the fetch of the next
  // chunk. Backward, eq. 5: every chunk is still on the device, and the 5 s of a layer hide its gradient's download of
  // 2 s.
  expect_seconds(PricedModel().seconds(0, 3, 3), kOutside + (1 + 3 + 3 + 3) + 15);
}

TEST(CostModel, CountsTransfersThatComputeCannotHide) {
  // A fetch takes 8 s, so forward (eq. 3) takes 8 + 8 + 8 + 3. With three buffers, backward (eq. 5) fetches nothing.
  // With two, backward fetches only the first chunk, while the second layer computes.
  const PricedModel priced({}, kSlowUpload);
  expect_seconds(priced.seconds(0, 3, 3), kOutside + 27 + 15);
  expect_seconds(priced.seconds(0, 3, 2), kOutside + 27 + 5 + 8 + 5);
}

TEST(CostModel, FetchesNothingThatPersists) {
  // Chunk 0 persists, and its update is part of its backward. Chunks 1 and 2 have a buffer each, so neither is fetched
  // twice.
  const PricedModel priced({}, kSlowUpload);
  expect_seconds(priced.seconds(1, 2, 2), kOutside + (0 + 8 + 8 + 3) + (5.5 + 5 + 5));
}

TEST(CostModel, WaitsForTheHostsOptimizerWhereItIsSlower) {
  // The host's updates take 3 x 20 s, and forward and backward together only 25 s, so the updates determine the time.
  // In the 15 s of backward, the host completes 0.75 of the 3 updates. The estimate rounds the remaining 2.25 updates
  // down to 2 deferred ones.
  const PricedModel priced({}, [](profile::Profile &machine, Terms &) { machine.host_optimizer /= 20; });
  expect_seconds(priced.seconds(0, 3, 3), kOutside + 60);
  EXPECT_EQ(priced.model->estimate(0, 3, 3).n_deferred, 2);
}

TEST(CostModel, HidesTheHostsOptimizerBehindBackwardAloneWhereNoUpdateCanBeDeferred) {
  // Eq. 2: first, forward takes 10 s. Then the host's updates take 60 s and hide backward's 15 s.
  const PricedModel priced({}, [](profile::Profile &machine, Terms &terms) {
    machine.host_optimizer /= 20;
    terms.accumulates = true;
  });
  EXPECT_GE(priced.seconds(0, 3, 3), kOutside + 10 + 60);
  EXPECT_EQ(priced.model->estimate(0, 3, 3).n_deferred, 0);
}

TEST(CostModel, HidesNothingWithOneBuffer) {
  // With one buffer, no fetch runs in parallel with compute. Forward and backward make six fetches, whose time adds to
  // compute's.
  for (const double upload : {1.0, 1 / 8.0}) {
    const PricedModel priced({},
                             [&](profile::Profile &machine, Terms &) { machine.upload = upload * Layers::kWeight; });
    EXPECT_GE(priced.seconds(0, 3, 1), kOutside + 9 + 15 + 6 / upload);
    EXPECT_GT(priced.seconds(0, 3, 1), priced.seconds(0, 3, 2));
  }
}

TEST(CostModel, ComputesForwardAgainInTheBackwardOfBlocksThatRecompute) {
  for (int again = 0; again <= 3; ++again)
    expect_seconds(PricedModel({.n_checkpoint = again}).seconds(3, 0, 0), kOutside + 25.5 + 3 * again);
}

TEST(CostModel, MovesStateWhereTheDeviceUpdatesWhatTheHostHolds) {
  // A chunk's two moments are uploaded in 2 s. Its weight and moments are downloaded in 6 s, which is longer than a
  // layer's backward of 5.5 s.
  expect_seconds(PricedModel({.n_device_update = -1}).seconds(0, 3, 3), kOutside + 10 + 3 * 6);
}

TEST(CostModel, SharesTheUpdatesBetweenHostAndDevice) {
  // The host's optimizer is 15 times slower, so the host takes 15 s per chunk: 45 s for three chunks. If the device
  // updates one chunk, the host takes 30 s. If the device updates two chunks, the host takes 15 s, less than backward.
  const auto slow = [](profile::Profile &machine, Terms &) { machine.host_optimizer /= 15; };
  expect_seconds(PricedModel({.n_device_update = 0}, slow).seconds(0, 3, 3), kOutside + 45);
  expect_seconds(PricedModel({.n_device_update = 1}, slow).seconds(0, 3, 3), kOutside + 30);
  const double most = PricedModel({.n_device_update = 2}, slow).seconds(0, 3, 3);
  EXPECT_LT(most, kOutside + 30);
  EXPECT_LT(most, PricedModel({.n_device_update = -1}, slow).seconds(0, 3, 3));
}

// A disk whose reads and writes do not slow each other.
const auto kDuplex = [](profile::Profile &machine, Terms &) {
  machine.disk_both_ways = machine.disk_read + machine.disk_write;
};

TEST(CostModel, BringsWhatRestsOnDiskThroughIt) {
  // Forward reads a chunk in 4 s, and so does backward. The host's update reads a chunk's weight and moments in 12 s.
  // With kDuplex, the update writes them back in 24 s, and meanwhile the disk makes the reads for other chunks. Without
  // kDuplex, the disk makes reads and writes one after the other, all at the rate of reads. So the write takes 12 s, in
  // addition to all reads.
  expect_seconds(PricedModel({}, kDuplex).seconds(0, 0, 3), kOutside + 3 * 4 + 3 * 24);
  expect_seconds(PricedModel().seconds(0, 0, 3), kOutside + 3 * 4 + 3 * (4 + 12 + 12));
  EXPECT_GT(PricedModel().seconds(0, 0, 3), PricedModel().seconds(0, 3, 3));
}

TEST(CostModel, LetsTheDiskWorkBesideChunksThatPersist) {
  // Two chunks rest on the disk. For each of them the disk works 6 s in backward, which is longer than a layer's 5 s.
  // But the 12 s for both chunks are less than the 15.5 s that all layers take.
  const PricedModel priced({}, [](profile::Profile &machine, Terms &terms) {
    kDuplex(machine, terms);
    for (double *rate : {&machine.disk_read, &machine.disk_write, &machine.disk_both_ways}) *rate *= 4;
  });
  expect_seconds(priced.seconds(1, 0, 2), kOutside + 9 + 15.5);
}

TEST(CostModel, RunsEverythingButTheDiskInTurnWhereCoresAreShared) {
  const auto shared = [](profile::Profile &machine, Terms &terms) {
    machine.shares_cores = machine.shares_memory = terms.shared_memory = true;
  };
  // With `shared`, device and host have the same cores and also the same memory, so nothing moves. Only compute and the
  // optimizer take time.
  expect_seconds(PricedModel({.n_device_update = -1}, shared).seconds(3, 0, 0), kOutside + 25.5);
  const auto apart = [](profile::Profile &machine, Terms &) { machine.shares_cores = true; };
  // Nothing runs in parallel with compute. Forward computes for 9 s, and fetches three chunks in 1 s each. Backward
  // takes for each of the three layers 5 s of compute, 2 s for the gradient's download and 1 s for the update. It
  // fetches nothing, because the buffers still hold all chunks.
  expect_seconds(PricedModel({}, apart).seconds(0, 3, 3), kOutside + 12 + 24);
}

struct Shape3 {
  std::size_t persist, host, buffers;
};

std::vector<Shape3> all_shapes() {
  std::vector<Shape3> all;
  for (std::size_t persist = 0; persist <= 3; ++persist)
    for (std::size_t host = 0; persist + host <= 3; ++host)
      for (std::size_t buffers = 0; persist + buffers <= 3; ++buffers) all.push_back({persist, host, buffers});
  return all;
}

TEST(CostModel, IsNeverFasterWithTheBarrierThanWithoutIt) {
  for (const int on_device : {0, 1, 2, -1})
    for (const bool shared : {false, true}) {
      if (shared && on_device >= 0) continue;
      const auto change = [&](profile::Profile &machine, Terms &terms) {
        machine.shares_memory = machine.shares_cores = terms.shared_memory = shared;
      };
      const PricedModel overlap({.n_device_update = on_device}, change);
      const PricedModel barrier({.n_device_update = on_device, .order = OptimizerOrder::barrier}, change);
      for (const auto &[persist, host, buffers] : all_shapes()) {
        if (shared && host > 0) continue;
        EXPECT_GE(barrier.seconds(persist, host, buffers), overlap.seconds(persist, host, buffers) - 1e-9)
            << persist << ' ' << host << ' ' << buffers;
      }
    }
}

TEST(CostModel, NeverRisesWithWhatPersistsOrIsBufferedWhereTransfersBind) {
  const PricedModel priced({}, kSlowUpload);
  for (std::size_t persist = 0; persist < 3; ++persist)
    for (std::size_t buffers = 1; persist + buffers < 3; ++buffers) {
      EXPECT_LE(priced.seconds(persist + 1, 2 - persist, buffers), priced.seconds(persist, 3 - persist, buffers));
      EXPECT_LE(priced.seconds(persist, 3 - persist, buffers + 1), priced.seconds(persist, 3 - persist, buffers));
    }
  EXPECT_LT(priced.seconds(3, 0, 0), priced.seconds(2, 1, 1));
}

TEST(CostModel, IsNeverFasterOnDiskThanOnTheHost) {
  const PricedModel priced;
  for (const auto &[persist, host, buffers] : all_shapes())
    if (host > 0) {
      EXPECT_LE(priced.seconds(persist, host, buffers), priced.seconds(persist, host - 1, buffers));
    }
}

TEST(Footprint, HoldsActivationsWeightsAndBuffersOnTheDevice) {
  // Eq. 8 to 11. Memory is highest in the backward of the last layer. The device then holds the activations that three
  // layers save and pass on, and the transient values of that backward.
  const std::uint64_t kept = 3 * (Layers::kInner + Layers::kStream), transient = Layers::kWeight + Layers::kStream;
  const std::uint64_t state = 3 * Layers::kWeight;  // a chunk's weights and two moments
  EXPECT_EQ(PricedModel().bytes(3, 0, 0), (Bytes{kept + transient + 3 * state, 0, 0}));
  // The device also holds two buffers, and a gradient that is being downloaded.
  EXPECT_EQ(PricedModel().bytes(1, 2, 2),
            (Bytes{kept + transient + state + Layers::kWeight + 2 * Layers::kWeight, 2 * state, 0}));
  EXPECT_EQ(PricedModel().bytes(1, 1, 2)[Tier::host], state);
  EXPECT_EQ(PricedModel().bytes(1, 1, 2)[Tier::disk], state);
  // If the device runs updates, it also holds the two moments of the chunk that is being updated.
  EXPECT_EQ(PricedModel({.n_device_update = -1}).bytes(1, 2, 2)[Tier::device],
            PricedModel().bytes(1, 2, 2)[Tier::device] + 2 * Layers::kWeight);
  // In barrier order the host also holds the gradients of its chunks.
  EXPECT_EQ(PricedModel({.order = OptimizerOrder::barrier}).bytes(1, 2, 2)[Tier::host], 2 * (state + Layers::kWeight));
}

TEST(Footprint, HoldsLessOfBlocksThatRecomputeOrSwap) {
  const std::uint64_t kept = 3 * (Layers::kInner + Layers::kStream);
  const std::uint64_t all = PricedModel().bytes(3, 0, 0)[Tier::device];
  // Memory is highest in the backward of the last block, whose values have been recomputed and take memory again. The
  // values between blocks are always kept.
  EXPECT_EQ(PricedModel({.n_checkpoint = 2}).bytes(3, 0, 0)[Tier::device], all - 2 * Layers::kInner);
  EXPECT_EQ(PricedModel({.n_checkpoint = 3}).bytes(3, 0, 0)[Tier::device], all - 2 * Layers::kInner);
  // Swapped values go to the host. Those of the second block are back on the device while the third computes backward.
  EXPECT_EQ(PricedModel({.n_swap = 2}).bytes(3, 0, 0), (Bytes{all - Layers::kInner, 2 * Layers::kInner, 0}));
  EXPECT_GT(all, kept);
}

TEST(CostModel, HoldsLessAndComputesMoreOfBlocksThatRecomputeSelectively) {
  const Layers layers(3);
  const profile::Profile machine = layers.machine();
  const Durations durations(machine, layers.graph, layers.terms.optimizer);
  Outline outline(layers.graph, durations);
  for (Outline::Block &block : outline.blocks) block.cheap = Layers::kInner / 4, block.again = 0.25;
  const Chunking chunking(layers.graph, outline, durations, layers.terms, Layers::kWeight);
  const Workload workload(chunking, {});
  const Estimate all = CostModel(workload, Footprint(chunking, {}, 0)).estimate(3, 0, 0);
  for (int selective = 1; selective <= 3; ++selective) {
    const Estimate less = CostModel(workload, Footprint(chunking, {.n_selective = selective}, 0)).estimate(3, 0, 0);
    expect_seconds(less.seconds, all.seconds + 0.25 * selective);
    // Memory is highest in the backward of the last block, whose cheap values have been recomputed and take memory
    // again.
    const auto gone = static_cast<std::uint64_t>(std::min(selective, 2)) * (Layers::kInner / 4);
    EXPECT_EQ(less.bytes[Tier::device], all.bytes[Tier::device] - gone);
  }
}

TEST(Footprint, FindsTheMostThatFits) {
  for (const OptimizerOrder order : {OptimizerOrder::overlap, OptimizerOrder::barrier}) {
    const PricedModel priced({.order = order});
    for (std::size_t persist = 0; persist < 3; ++persist) {
      for (std::size_t host = 0; host < 3 - persist; ++host) {
        const std::uint64_t more = priced.bytes(persist, host + 1, 0)[Tier::host];
        EXPECT_EQ(priced.footprint->fitting_host(persist, more), host + 1);
        EXPECT_EQ(priced.footprint->fitting_host(persist, more - 1), host);
      }
      for (std::size_t buffers = 0; buffers < 3 - persist; ++buffers) {
        const std::uint64_t more = priced.bytes(persist, 3 - persist, buffers + 1)[Tier::device];
        EXPECT_EQ(priced.footprint->fitting_buffers(persist, 0, more), buffers + 1);
        EXPECT_EQ(priced.footprint->fitting_buffers(persist, 0, more - 1), buffers);
      }
      EXPECT_EQ(priced.footprint->fitting_host(persist, ~0ull), 3 - persist) << "a budget without end";
      EXPECT_EQ(priced.footprint->fitting_buffers(persist, 0, ~0ull), 3 - persist);
      EXPECT_EQ(priced.footprint->fitting_host(persist, 0), 0u);
      EXPECT_EQ(priced.footprint->fitting_buffers(persist, 0, 0), 0u);
    }
    EXPECT_EQ(priced.footprint->fitting_buffers(3, 0, ~0ull), 0u) << "nothing is left to be buffered";
  }
}

}  // namespace
}  // namespace protrain::plan::cost_test
