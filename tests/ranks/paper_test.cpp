// Programs of up to 64 ranks, which are lowered but not run. Each must pass verify(), and a rank must expect exactly
// the messages that the others send to it.
#include <gtest/gtest.h>

#include "draft/loaded_model.h"
#include "grad/training.h"
#include "moments.h"
#include "program/simulate.h"
#include "random_plans/random_plan.h"

namespace protrain::test::ranked_paper_test {
namespace {

using program::Instruction;
using program::Message;
using program::Program;

// A model's training graph on one rank, and its lowering under a plan.
struct RankOnPaper {
  RankOnPaper(const std::string &model, int rank, int ranks, bool local_sums = false, const Pairs &more = {}) {
    Pairs pairs = {{"dim", "batch=2"}, {"dim", "sequence=32"}};
    pairs.insert(pairs.end(), more.begin(), more.end());
    draft::LoadedModel loaded = draft::load_model(draft::settings_of(options_with(pairs)), fixture(model + ".onnx"));
    training =
        grad::build(std::move(loaded.prepared.graph), loaded.loss,
                    {.clip_norm = 1, .accumulate = true, .rank = rank, .ranks = ranks, .local_sums = local_sums});
  }

  // `exchanges` is the tier of the memory that a Channel can access.
  Program lowered(const plan::Plan &plan, bool updates, Tier exchanges) const {
    program::LoweringInput source = {.graph = training.graph,
                                     .loss = training.loss,
                                     .norm = training.norm,
                                     .gradients = training.gradients,
                                     .squared_norms = training.squared_norms,
                                     .shard_norms = training.shard_norms,
                                     .accumulators = training.accumulators,
                                     .weight = training.weight,
                                     .scale = training.scale,
                                     .updates = updates};
    const program::LoweringInput last = source;
    if (!updates && training.accumulators.empty()) std::ranges::fill(source.gradients, graph::ValueId::none);
    const program::State state =
        program::lay_out_state({last}, plan,
                               {.shards = training.shards,
                                .exchanges = exchanges,
                                .optimizer = program::optimizer_arrays(DType::f32, test::moments(2)),
                                .accumulates = true,
                                .kept = std::vector<bool>(training.graph.parameters.size(), false)});
    const program::Workspace none{.nodes = std::vector<std::uint64_t>(training.graph.node_count(), 0)};
    return program::lower(source, plan, state, none);
  }

  grad::Training training;
};

std::vector<const Instruction *> exchanges_of(const Program &program) {
  std::vector<const Instruction *> found;
  for (const Instruction &instruction : program.instructions)
    if (instruction.queue == Queue::comm) found.push_back(&instruction);
  return found;
}
std::vector<const Instruction *> exchanges_of(const Program &&) = delete;  // the instructions would be gone

// The sizes of the messages to or from this rank, in order.
std::vector<std::uint64_t> sizes_with(int rank, const std::vector<Message> &messages) {
  std::vector<std::uint64_t> sizes;
  for (const Message &message : messages)
    if (message.rank == rank) sizes.push_back(message.bytes);
  return sizes;
}

// In each exchange, the messages that one rank sends to another must have the sizes that the other expects from it.
void expect_matching(const std::vector<Program> &programs) {
  const auto ranks = static_cast<int>(programs.size());
  std::vector<std::vector<const Instruction *>> exchanges;
  for (const Program &program : programs) exchanges.push_back(exchanges_of(program));
  for (const auto &of_rank : exchanges) ASSERT_EQ(of_rank.size(), exchanges[0].size());
  for (std::size_t e = 0; e < exchanges[0].size(); ++e)
    for (int from = 0; from < ranks; ++from)
      for (int to = 0; to < ranks; ++to)
        ASSERT_EQ(sizes_with(to, exchanges[static_cast<std::size_t>(from)][e]->sends),
                  sizes_with(from, exchanges[static_cast<std::size_t>(to)][e]->receives))
            << "exchange " << e << " from rank " << from << " to " << to;
}

class RanksOnPaper : public testing::TestWithParam<std::string> {};

TEST_P(RanksOnPaper, SendWhatTheOthersExpect) {
  Draw draw(21);
  for (const int ranks : {2, 3, 8, 64}) {
    std::vector<RankOnPaper> group;
    const bool local_sums = ranks == 3;
    for (int rank = 0; rank < ranks; ++rank) group.emplace_back(GetParam(), rank, ranks, local_sums);
    for (int i = 0; i < (ranks == 64 ? 2 : 6); ++i) {
      plan::Plan plan = draw.plan(group[0].training.graph, plan::OptimizerOrder::barrier);
      plan.ranks = ranks;
      for (plan::Chunk &chunk : plan.chunks) chunk.sharded = chunk.tier != Tier::device || draw.chance(0.5);
      const Tier exchanges = plan.shared_memory || draw.chance(0.5) ? Tier::device : Tier::host;
      SCOPED_TRACE(plan::to_json(plan));
      for (const bool updates : {false, true}) {
        std::vector<Program> programs;
        for (const RankOnPaper &rank : group) {
          programs.push_back(rank.lowered(plan, updates, exchanges));
          ASSERT_NO_THROW(program::verify(programs.back()));
        }
        expect_matching(programs);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The bytes of gradients that a rank exchanges in a step of `accumulation` micro-batches.
std::uint64_t exchanged(const RankOnPaper &rank, const plan::Plan &plan, std::uint64_t accumulation) {
  const auto bytes_of = [&](bool updates) {
    std::uint64_t bytes = 0;
    const Program program = rank.lowered(plan, updates, Tier::device);
    for (const Instruction *exchange : exchanges_of(program))
      if (exchange->kind == program::Kind::all_to_all) bytes += exchange->bytes;
    return bytes;
  };
  return bytes_of(true) + (accumulation - 1) * bytes_of(false);
}

TEST_P(RanksOnPaper, WithSumsOfTheirOwnExchangeGradientsOnceAStep) {
  constexpr int kRanks = 3, kAccumulation = 5;
  const RankOnPaper ordered(GetParam(), 1, kRanks), local(GetParam(), 1, kRanks, true);
  plan::Plan plan = Draw(8).plan(ordered.training.graph, plan::OptimizerOrder::barrier);
  plan.ranks = kRanks;
  for (plan::Chunk &chunk : plan.chunks) chunk.sharded = chunk.tier != Tier::device;
  const std::uint64_t of_local = exchanged(local, plan, kAccumulation);
  EXPECT_GT(of_local, 0u);
  EXPECT_EQ(exchanged(ordered, plan, kAccumulation), kAccumulation * of_local);
}

// All chunks rest whole on the device. After the updates, a rank must receive those trained weights that other ranks
// own, and no frozen ones.
TEST_P(RanksOnPaper, PassOnTheWeightsThatWereUpdatedAndNoFrozenOnes) {
  constexpr int kRanks = 3;
  const RankOnPaper rank(GetParam(), 1, kRanks, false, {{"frozen", "*.0.*"}});
  const graph::Graph &graph = rank.training.graph;
  const plan::Plan plan = plan::expand(graph, {.n_persist = static_cast<int>(graph.parameters.size()),
                                               .ranks = kRanks,
                                               .chunk_bytes = 1 << 16,
                                               .shared_memory = true,
                                               .order = plan::OptimizerOrder::barrier});
  std::uint64_t expected = 0, frozen = 0, received = 0;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const graph::Type &type = graph.value(graph.parameters[p]).type;
    const std::uint64_t bytes = byte_count(type.dtype, type.shape);
    const bool trained = rank.training.gradients[p] != graph::ValueId::none;
    const auto own = static_cast<std::uint64_t>(rank.training.shards.elements(p)) * size_of(type.dtype);
    (trained ? expected : frozen) += bytes - own;
  }
  const Program program = rank.lowered(plan, true, Tier::device);
  for (const Instruction *exchange : exchanges_of(program))
    if (exchange->kind == program::Kind::all_gather && exchange->node == graph::NodeId::none)
      for (const Message &message : exchange->receives) received += message.rank == 1 ? 0 : message.bytes;
  EXPECT_GT(expected, 0u);
  EXPECT_GT(frozen, 0u);
  EXPECT_EQ(received, expected);
}

// Parameters of many grains are divided evenly, and every element has one owner.
TEST(Shards, DivideParametersIntoWholeGrains) {
  graph::Graph graph;
  const std::int64_t sizes[] = {1, 0, 768, graph::kGrain, graph::kGrain + 1, 50257 * 768, 3 * graph::kGrain - 5};
  for (const std::int64_t size : sizes)
    graph.parameters.push_back(graph.add_value(
        {.name = "w" + std::to_string(size), .type = {DType::f32, {size}}, .origin = graph::Origin::parameter}));
  for (const int ranks : {1, 2, 3, 8}) {
    std::vector<std::int64_t> owned(static_cast<std::size_t>(ranks), 0);
    for (std::size_t p = 0; p < graph.parameters.size(); ++p)
      for (int r = 0; r < ranks; ++r) {
        const graph::Shards shards = graph::cut_shards(graph, r, ranks);
        EXPECT_EQ(shards.begin(p, 0), 0);
        EXPECT_EQ(shards.begin(p, ranks), sizes[p]);
        EXPECT_TRUE(shards.begin(p) % graph::kGrain == 0 || shards.elements(p) == 0);
        EXPECT_GE(shards.elements(p), 0);
        owned[static_cast<std::size_t>(r)] += shards.elements(p);
      }
    EXPECT_LE(std::ranges::max(owned) - std::ranges::min(owned), 2 * graph::kGrain) << ranks;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RanksOnPaper,
                         testing::Values("gpt2-dynamic-opset18", "llama-dynamic-opset23", "dropout-gpt"), model_name);

}  // namespace
}  // namespace protrain::test::ranked_paper_test
