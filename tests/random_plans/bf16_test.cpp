// Programs in bfloat16, which are made but not run. Every plan must lower to a Program that passes verify() and can be
// simulated. Its memory is compared with that of the same plan in float32.
#include "draft/loaded_model.h"
#include "grad/training.h"
#include "moments.h"
#include "program/simulate.h"
#include "random_plan.h"

namespace protrain::test::bf16_test {
namespace {

using program::Buffer;
using program::Program;
using program::State;

constexpr int kPlans = 100;
const Pairs kSmall = {{"dim", "batch=2"}, {"dim", "sequence=32"}};
const Pairs kLarge = {{"dim", "batch=16"}, {"dim", "sequence=64"}};

// A model's training graph in one precision, and its lowering under a plan.
struct Paper {
  Paper(const std::string &model, const std::string &precision, bool accumulate, const Pairs &dims = kSmall) {
    Pairs pairs = dims;
    pairs.emplace_back("precision", precision);
    draft::LoadedModel loaded = draft::load_model(draft::settings_of(options_with(pairs)), fixture(model + ".onnx"));
    weights = precision == "bf16" ? DType::bf16 : DType::f32;
    training = grad::build(std::move(loaded.prepared.graph), loaded.loss, {.accumulate = accumulate});
  }

  program::LoweringInput source(bool updates = true) const {
    return {.graph = training.graph,
            .loss = training.loss,
            .norm = training.norm,
            .gradients = training.gradients,
            .squared_norms = training.squared_norms,
            .accumulators = training.accumulators,
            .weight = training.weight,
            .scale = training.scale,
            .updates = updates};
  }
  State state(const plan::Plan &plan) const {
    return program::lay_out_state({source()}, plan,
                                  {.optimizer = program::optimizer_arrays(weights, test::moments(2)),
                                   .accumulates = !training.accumulators.empty(),
                                   .kept = std::vector<bool>(training.graph.parameters.size(), false)});
  }
  Program lowered(const plan::Plan &plan, bool updates = true) const {
    const program::Workspace none{.nodes = std::vector<std::uint64_t>(training.graph.node_count(), 0)};
    return program::lower(source(updates), plan, state(plan), none);
  }

  DType weights;
  grad::Training training;
};

program::Simulation simulated(const Program &program) {
  program::Beside beside;
  beside.fill(true);
  return program::simulate(program, std::vector<std::int64_t>(program.instructions.size(), 1), beside);
}

// The most bytes that are in use on the device at once, without the state.
std::uint64_t transient_peak(const Program &program) {
  std::uint64_t most = 0;
  for (const program::Entry &entry : simulated(program).entries) most = std::max(most, entry.live_bytes[Tier::device]);
  std::uint64_t state = 0;
  for (const Buffer &buffer : program.buffers)
    if (buffer.persistent && buffer.tier == Tier::device) state += buffer.bytes;
  return most - state;
}

class Bf16Plans : public testing::TestWithParam<std::string> {};

TEST_P(Bf16Plans, LowerProveAndSimulateUnderAHundredRandomOnes) {
  Draw draw(11);
  for (const bool accumulate : {false, true}) {
    const Paper paper(GetParam(), "bf16", accumulate);
    for (int i = 0; i < kPlans / 2; ++i) {
      const auto order = accumulate ? std::optional(plan::OptimizerOrder::barrier) : std::nullopt;
      const plan::Plan plan = draw.plan(paper.training.graph, order);
      SCOPED_TRACE(plan::to_json(plan));
      for (const bool updates : {true, false}) {
        if (!updates && !accumulate) continue;
        const Program program = paper.lowered(plan, updates);
        ASSERT_NO_THROW(program::verify(program));
        EXPECT_GT(simulated(program).step_ns, 0);
      }
    }
  }
}

TEST_P(Bf16Plans, RestInTwelveBytesForEachTrainedParameterAndPadding) {
  const Paper paper(GetParam(), "bf16", false);
  const graph::Graph &graph = paper.training.graph;
  Draw draw(12);
  for (int i = 0; i < kPlans; ++i) {
    const plan::Plan plan = draw.plan(graph, plan::OptimizerOrder::overlap);
    const State state = paper.state(plan);
    std::uint64_t bytes = 0, exact = 0;
    for (const Buffer &buffer : state.buffers) bytes += buffer.name.starts_with("chunk") ? buffer.bytes : 0;
    bool padded = false;
    for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
      const auto elements = static_cast<std::uint64_t>(element_count(graph.value(graph.parameters[p]).type.shape));
      ASSERT_TRUE(state.parameters[p].trained);
      exact += 12 * elements;
      padded = padded || elements % 32 != 0;  // a plane is padded to 64 bytes
    }
    EXPECT_GE(bytes, exact);
    EXPECT_LT(bytes, exact + graph.parameters.size() * 12 * 32);
    EXPECT_TRUE(padded || bytes == exact);
  }
}

// In both precisions, a plan gives the same kernels, updates and checks, with the same number of elements in their
// output buffers.
TEST_P(Bf16Plans, TakeBetweenHalfAndAllOfEachBufferThatFloat32Takes) {
  const Paper half(GetParam(), "bf16", false), full(GetParam(), "fp32", false);
  Draw draw(13);
  for (int i = 0; i < kPlans; ++i) {
    plan::Plan plan = draw.plan(full.training.graph);
    plan.piece_bytes = plan::kPieceBytes;  // larger than any parameter, so each update is one piece
    SCOPED_TRACE(plan::to_json(plan));
    const Program a = half.lowered(plan), b = full.lowered(plan);
    const auto kinds = [](const Program &program) {
      std::vector<program::Kind> kinds;
      for (const auto &instruction : program.instructions)
        // Instructions of other kinds differ, because the optimizer's state has one more array in bfloat16.
        if (instruction.kind == program::Kind::run || instruction.kind == program::Kind::update ||
            instruction.kind == program::Kind::check)
          kinds.push_back(instruction.kind);
      return kinds;
    };
    EXPECT_EQ(kinds(a), kinds(b));
  }
  const auto resident = [](const Paper &paper) { return paper.lowered(plan::resident(paper.training.graph)); };
  const Program a = resident(half), b = resident(full);
  ASSERT_EQ(a.instructions.size(), b.instructions.size());
  for (std::size_t i = 0; i < a.instructions.size(); ++i)
    for (std::size_t o = 0; o < std::min<std::size_t>(1, a.instructions[i].outputs.size()); ++o) {
      const program::BufferId x = a.instructions[i].outputs[o].buffer, y = b.instructions[i].outputs[o].buffer;
      if (x == program::BufferId::none) continue;
      const std::uint64_t narrow = a.buffers[index(x)].bytes, wide = b.buffers[index(y)].bytes;
      EXPECT_LE(narrow, wide);
      EXPECT_GE(2 * narrow, wide);
    }
}

TEST_P(Bf16Plans, TakeLittleMoreThanHalfOfTheActivationsOfFloat32) {
  std::array<std::uint64_t, 2> peak{};
  for (const bool narrow : {false, true}) {
    const Paper paper(GetParam(), narrow ? "bf16" : "fp32", false, kLarge);
    peak[narrow] = transient_peak(paper.lowered(plan::resident(paper.training.graph)));
  }
  const double share = static_cast<double>(peak[1]) / static_cast<double>(peak[0]);
  RecordProperty("share", std::to_string(share));
  EXPECT_GE(share, 0.5);
  EXPECT_LE(share, 0.55);
}

INSTANTIATE_TEST_SUITE_P(Models, Bf16Plans,
                         testing::Values("gpt2-dynamic-opset18", "llama-dynamic-opset23", "opt-dynamic-opset18",
                                         "mistral-dynamic-opset18", "retention-dynamic-opset18", "dropout-gpt"),
                         model_name);

}  // namespace
}  // namespace protrain::test::bf16_test
