#include "plan/plan.h"

#include <gtest/gtest.h>

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

// A chunk of one kind goes on behind a chunk of the other.
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

// Several ranks gather the weights of sharded chunks into buffers, wherever the shards rest.
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
