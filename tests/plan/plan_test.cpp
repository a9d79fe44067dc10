#include "plan/plan.h"

#include <gtest/gtest.h>

#include <numeric>

namespace protrain::plan::plan_test {
namespace {

using graph::Graph;
using graph::Origin;
using graph::ValueId;

// A graph of parameters. Parameter i has elements[i] elements, and one node of block blocks[i] reads it.
Graph graph_with(const std::vector<std::int64_t> &elements, const std::vector<int> &blocks) {
  Graph graph;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const ValueId id = graph.add_value({.name = "w", .type = {DType::f32, {elements[i]}}, .origin = Origin::parameter});
    graph.parameters.push_back(id);
    graph.add_node({.op = "Relu", .inputs = {id}, .outputs = {}, .block = blocks[i]}, {"y"});
  }
  return graph;
}

std::vector<std::vector<std::size_t>> members(const std::vector<Chunk> &chunks) {
  std::vector<std::vector<std::size_t>> out;
  for (const Chunk &chunk : chunks) out.push_back(chunk.parameters);
  return out;
}

using Groups = std::vector<std::vector<std::size_t>>;
using Order = std::vector<std::size_t>;

TEST(Chunks, HoldRunsOfParametersUpToTheirSize) {
  const Graph graph = graph_with({10, 10, 10, 10}, {0, 0, 0, 0});
  EXPECT_EQ(members(cut_chunks(graph, 80)), (Groups{{0, 1}, {2, 3}}));
}

TEST(Chunks, EndAtABlockBorderOnceHalfFull) {
  const Graph graph = graph_with({10, 5, 10, 5}, {0, 0, 1, 1});
  EXPECT_EQ(members(cut_chunks(graph, 100)), (Groups{{0, 1}, {2, 3}}));
}

TEST(Chunks, GiveALargerParameterItsOwn) {
  const Graph graph = graph_with({5, 100, 5}, {-1, -1, -1});
  EXPECT_EQ(members(cut_chunks(graph, 80)), (Groups{{0}, {1}, {2}}));
  EXPECT_EQ(cut_chunks(graph, 80)[1].bytes, 400u);
}

// Frozen and trained parameters never share a chunk. A chunk of one kind skips parameters of the other kind: parameters
// 0 and 2 share a chunk although parameter 1 lies between them.
TEST(Chunks, HoldFrozenParametersApart) {
  Graph graph = graph_with({10, 2, 10, 2, 10, 2}, {0, 0, 0, 1, 1, 1});
  for (const std::size_t p : {0, 2, 4}) graph.value(graph.parameters[p]).frozen = true;
  EXPECT_EQ(members(cut_chunks(graph, 80)), (Groups{{0, 2}, {1, 3, 5}, {4}}));
}

TEST(ResidentPlan, PersistsEveryChunkAndKeepsEveryBlock) {
  const Plan plan = resident(graph_with({5, 100, 5}, {0, 1, 2}));
  EXPECT_EQ(plan.n_persist, static_cast<int>(plan.chunks.size()));
  EXPECT_EQ(plan.blocks, std::vector<BlockMode>(3, BlockMode::keep));
  EXPECT_EQ(plan.n_buffer + plan.n_swap + plan.n_checkpoint, 0);
}

// Several ranks gather the weights of a sharded chunk into a buffer, wherever its shards are stored. A chunk that is
// whole on the device needs no buffer. So n_buffer is reduced to the number of the other chunks.
TEST(Expansion, LeavesBuffersForAllChunksThatAreNotWholeOnTheDevice) {
  const Graph graph = graph_with({10, 10, 10, 10}, {0, 1, 2, 3});
  const Choice choice{.n_persist = 3, .n_buffer = 9, .ranks = 2, .chunk_bytes = 40};
  const auto buffers = [&](int whole, int ranks) {
    Choice other = choice;
    other.n_whole = whole;
    other.ranks = ranks;
    return expand(graph, other).n_buffer;
  };
  EXPECT_EQ(buffers(-1, 2), 1);
  EXPECT_EQ(buffers(2, 2), 2);
  EXPECT_EQ(buffers(0, 2), 4);
  EXPECT_EQ(buffers(0, 1), 1) << "one rank has all shards";
}

TEST(RestingOrder, IsThatOfFirstUseWithoutADisk) { EXPECT_EQ(resting_order(5, false), (Order{0, 1, 2, 3, 4})); }

TEST(RestingOrder, HalvesTheGapsAgainAndAgainWithADisk) {
  EXPECT_EQ(resting_order(8, true), (Order{0, 4, 2, 6, 1, 5, 3, 7}));
  EXPECT_EQ(resting_order(5, true), (Order{0, 4, 2, 1, 3}));
  EXPECT_EQ(resting_order(1, true), Order{0});
  EXPECT_TRUE(resting_order(0, true).empty());
}

// However many chunks rest on the disk, they must be spread over the model, so that the disk has work all through a
// step.
TEST(RestingOrder, SpreadsTheChunksOnTheDisk) {
  for (const std::size_t chunks : {7u, 59u, 200u})
    for (std::size_t persist = 1; persist < chunks; ++persist) {
      const Order order = resting_order(chunks, true);
      std::vector<bool> persists(chunks, false);
      for (std::size_t c = 0; c < persist; ++c) persists[order[c]] = true;
      EXPECT_TRUE(persists[0]) << "no compute hides its first fetch";
      // A run consists of neighbouring chunks on the disk. If all runs were equally long, each would have
      // (chunks - 1) / persist chunks. The limit is twice this length.
      std::size_t run = 0;
      for (std::size_t c = 0; c < chunks; ++c) {
        run = persists[c] ? 0 : run + 1;
        EXPECT_LE(run, 2 * ((chunks - 1) / persist)) << persist << " of " << chunks;
      }
    }
}

TEST(Expansion, GivesChunksTheirPlacesInTheRestingOrder) {
  const Graph graph = graph_with({10, 10, 10, 10, 10, 10, 10, 10}, {0, 1, 2, 3, 4, 5, 6, 7});
  const auto places = [&](int n_host) {
    std::vector<Tier> tiers;
    for (const Chunk &chunk : expand(graph, {.n_persist = 3, .n_host = n_host, .chunk_bytes = 40}).chunks)
      tiers.push_back(chunk.tier);
    return tiers;
  };
  constexpr Tier device = Tier::device, host = Tier::host, disk = Tier::disk;
  EXPECT_EQ(places(-1), (std::vector{device, device, device, host, host, host, host, host}));
  EXPECT_EQ(places(2), (std::vector{device, host, device, disk, device, disk, host, disk}));
}

TEST(Expansion, SpreadsTheDevicesUpdatesOverEachTier) {
  std::vector<int> blocks(32);
  std::iota(blocks.begin(), blocks.end(), 0);
  const Plan plan = expand(graph_with(std::vector<std::int64_t>(32, 10), blocks),
                           {.n_persist = 8, .n_host = 8, .n_device_update = 12, .chunk_bytes = 40});
  for (const Tier tier : {Tier::host, Tier::disk}) {
    std::size_t all = 0, there = 0, run = 0;
    for (const Chunk &chunk : plan.chunks) {
      if (chunk.tier != tier) continue;
      ++all;
      there += chunk.update == Tier::device;
      run = chunk.update == Tier::device ? 0 : run + 1;
      EXPECT_LE(run, 1u);
    }
    EXPECT_EQ(2 * there, all);
  }
}

TEST(ResidentPlan, HasATextFormThatTellsPlansApart) {
  const Plan a = resident(graph_with({5}, {0}));
  Plan b = a;
  EXPECT_EQ(a, b);
  EXPECT_EQ(to_json(a), to_json(b));
  b.blocks[0] = BlockMode::recompute;
  EXPECT_NE(a, b);
  EXPECT_NE(to_json(a), to_json(b));
}

}  // namespace
}  // namespace protrain::plan::plan_test
