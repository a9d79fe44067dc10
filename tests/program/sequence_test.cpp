#include "program/sequence.h"

#include "hand_built.h"
#include "program/storage.h"

namespace protrain::program::sequence_test {
namespace {

using graph::ValueId;
using plan::BlockMode;

Sequence sequence_of(const TwoBlocks &model, const std::vector<BlockMode> &blocks) {
  return sequence(model.graph, storage_roots(model.graph), blocks, {model.loss, model.norm});
}

std::vector<std::string> names(const TwoBlocks &model, const Sequence &sequence) {
  std::vector<std::string> out;
  for (const Item &item : sequence.items)
    out.push_back(model.graph.node(item.node).name + (item.again ? " again" : ""));
  return out;
}

using Names = std::vector<std::string>;

TEST(Sequences, WithoutRecomputationKeepTheGraphsOrderAndLeaveOutWhatNobodyWants) {
  const TwoBlocks model;
  EXPECT_EQ(names(model, sequence_of(model, {BlockMode::keep, BlockMode::swap})),
            (Names{"mul0", "tanh0", "h1", "mul1", "tanh1", "h2", "loss", "d_h2", "d_mul1", "d_w1", "squared1", "d_h1",
                   "d_mul0", "d_w0", "squared0", "norm"}));
}

TEST(Sequences, OfALossAloneHaveNoBackward) {
  const TwoBlocks model;
  const std::vector<BlockMode> blocks(2, BlockMode::recompute);
  const Sequence forward = sequence(model.graph, storage_roots(model.graph), blocks, {model.loss, ValueId::none});
  EXPECT_EQ(names(model, forward), (Names{"mul0", "tanh0", "h1", "mul1", "tanh1", "h2", "loss"}));
}

TEST(Sequences, RunABlockAgainJustBeforeItsOwnBackward) {
  const TwoBlocks model;
  const Names order = names(model, sequence_of(model, {BlockMode::recompute, BlockMode::recompute}));
  EXPECT_EQ(order, (Names{"mul0",       "tanh0",       "h1",          "mul1",   "tanh1",    "h2",       "loss",
                          "d_h2",       "mul1 again",  "tanh1 again", "d_mul1", "d_w1",     "squared1", "d_h1",
                          "mul0 again", "tanh0 again", "d_mul0",      "d_w0",   "squared0", "norm"}));
}

TEST(Sequences, RunOnlyTheBlocksAgainThatRecompute) {
  const TwoBlocks model;
  const Names order = names(model, sequence_of(model, {BlockMode::keep, BlockMode::recompute}));
  EXPECT_EQ(std::ranges::count(order, "tanh1 again"), 1);
  EXPECT_EQ(std::ranges::count(order, "tanh0 again"), 0);
}

TEST(Sequences, LetGoOfWhatABlockMakesForItsBackwardAndOfNothingElse) {
  const TwoBlocks model;
  const Sequence order = sequence_of(model, {BlockMode::swap, BlockMode::recompute});
  EXPECT_EQ(order.mode[index(model.tanh[0])], BlockMode::swap);
  EXPECT_EQ(order.mode[index(model.tanh[1])], BlockMode::recompute);
  EXPECT_EQ(order.block[index(model.tanh[1])], 1);
  for (ValueId border : model.stream) EXPECT_EQ(order.mode[index(border)], BlockMode::keep);
  for (ValueId weight : model.graph.parameters) EXPECT_EQ(order.mode[index(weight)], BlockMode::keep);
  EXPECT_EQ(order.mode[index(model.graph.find("mul0"))], BlockMode::keep);  // backward does not read it
}

// One block computes p = x * w, g = Relu(p), s = g * v and t = -s. Backward reads p, g and t.
TEST(Sequences, RunSelectivelyAgainWhatOnePassMakesOfWhatIsKept) {
  graph::Graph graph;
  const ValueId x = add(graph, "x", graph::Origin::input, {16});
  const ValueId w = add(graph, "w", graph::Origin::parameter, {16}),
                v = add(graph, "v", graph::Origin::parameter, {16});
  graph.parameters = {w, v};
  const auto node = [](const char *op, const char *name, std::vector<ValueId> inputs, bool backward = false) {
    return graph::Node{.op = op,
                       .name = name,
                       .inputs = std::move(inputs),
                       .block = 0,
                       .phase = backward ? graph::Phase::backward : graph::Phase::forward};
  };
  const ValueId p = run(graph, node("Mul", "p", {x, w}), {16}), g = run(graph, node("Relu", "g", {p}), {16});
  const ValueId s = run(graph, node("Mul", "s", {g, v}), {16}), t = run(graph, node("Neg", "t", {s}), {16});
  const ValueId loss = run(graph, node("ReduceSum", "loss", {t}), {});
  const ValueId d_s = run(graph, node("Mul", "d_s", {t, v}, true), {16});
  const ValueId d_v = run(graph, node("Mul", "d_v", {d_s, g}, true), {16});
  const ValueId d_p = run(graph, node("Mul", "d_p", {d_s, p}, true), {16});
  const std::vector<ValueId> wanted = {loss, d_v, d_p};
  const Sequence order = sequence(graph, storage_roots(graph), {BlockMode::selective}, wanted);
  std::vector<std::string> names;
  for (const Item &item : order.items) names.push_back(graph.node(item.node).name + (item.again ? " again" : ""));
  // t is kept, because recomputing it needs s, which is freed. p is recomputed from x and w, which are kept, and g is
  // recomputed from p.
  EXPECT_EQ(names, (Names{"p", "g", "s", "t", "loss", "d_s", "p again", "g again", "d_v", "d_p"}));
  EXPECT_EQ(order.mode[index(g)], BlockMode::recompute);
  EXPECT_EQ(order.mode[index(t)], BlockMode::keep);
  EXPECT_EQ(order.mode[index(s)], BlockMode::keep) << "backward does not read it";
}

TEST(Sequences, CountAsOneStageWhatRunsOfOneBlockInOneDirection) {
  const TwoBlocks model;
  const Sequence order = sequence_of(model, {BlockMode::recompute, BlockMode::keep});
  std::vector<std::size_t> stages;
  for (const Item &item : order.items) stages.push_back(item.stage);
  // Stage 0: mul0, tanh0, h1. Stage 1: mul1, tanh1, h2, loss. Stage 2: d_h2. Stage 3: backward and norm of block 1.
  // Stage 4: recomputation, backward and norms of block 0.
  EXPECT_EQ(stages, (std::vector<std::size_t>{0, 0, 0, 1, 1, 1, 1, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4}));
}

}  // namespace
}  // namespace protrain::program::sequence_test
