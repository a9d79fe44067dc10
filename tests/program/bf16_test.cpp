// State and pieces with bfloat16 weights: a master weight is stored in two planes, and arrays differ in element size.
#include <algorithm>

#include "hand_built.h"
#include "program/simulate.h"

namespace protrain::program::bf16_test {
namespace {

using graph::ValueId;
using plan::BlockMode;
using plan::OptimizerOrder;

constexpr std::uint64_t kHalf = 2;  // bytes of a bfloat16

// TwoBlocks with all values except the loss in bfloat16.
struct InBf16 : TwoBlocks {
  InBf16() {
    for (std::size_t i = 0; i < graph.value_count(); ++i)
      if (graph::Type &type = graph.value(static_cast<ValueId>(i)).type; type.dtype == DType::f32)
        type.dtype = DType::bf16;
    graph.value(loss).type.dtype = DType::f32;
  }
  State state(const plan::Plan &plan) const {
    const StateRequest request = {.optimizer = optimizer_arrays(DType::bf16, test::moments(2)), .kept = {false, false}};
    return lay_out_state({step(), evaluation()}, plan, request);
  }
  Program lowered(const plan::Plan &plan) const {
    return lower(step(), plan, state(plan), {.nodes = std::vector<std::uint64_t>(graph.node_count(), 0)});
  }
};

TEST(Bf16State, IsTheUpperPlaneTheLowerPlaneAndTheMoments) {
  const std::vector<OptimizerArray> arrays = {{"low", DType::u16}, {"moment1"}, {"moment2"}};
  EXPECT_EQ(optimizer_arrays(DType::bf16, test::moments(2)), arrays);
  EXPECT_EQ(optimizer_arrays(DType::f32, test::moments(2)), (std::vector<OptimizerArray>{{"moment1"}, {"moment2"}}));
  EXPECT_EQ(optimizer_arrays(DType::bf16, test::moments(0)), (std::vector<OptimizerArray>{{"low", DType::u16}}));
  EXPECT_EQ(optimizer_arrays(DType::f16, test::moments(2)),
            (std::vector<OptimizerArray>{{"master"}, {"moment1"}, {"moment2"}}));
}

// Each parameter takes a multiple of 64 bytes in every array, so no array needs padding.
TEST(Bf16State, TakesTwelveBytesForAParameterThatIsTrainedAndTwoForAFrozenOne) {
  graph::Graph graph;
  const ValueId w = add(graph, "w", graph::Origin::parameter, {64}, DType::bf16);
  const ValueId frozen = add(graph, "frozen", graph::Origin::parameter, {32}, DType::bf16);
  graph.parameters = {w, frozen};
  const ValueId gradient = run(graph, "Mul", {w, frozen}, {64}, DType::bf16);
  const LoweringInput source{
      .graph = graph, .loss = gradient, .norm = gradient, .gradients = {gradient, ValueId::none}};
  plan::Plan plan;
  plan.chunks = {{.parameters = {0, 1}}};
  const State state = lay_out_state(
      {source}, plan, {.optimizer = optimizer_arrays(DType::bf16, test::moments(2)), .kept = {false, false}});
  std::uint64_t bytes = 0;
  for (const Buffer &buffer : state.buffers) bytes += buffer.name.starts_with("chunk") ? buffer.bytes : 0;
  EXPECT_EQ(bytes, 64u * 12 + 32u * 2);
}

TEST(Bf16State, AlignsAParameterInEveryArray) {
  graph::Graph graph;
  std::vector<ValueId> gradients;
  for (const char *name : {"a", "b", "c"}) {
    graph.parameters.push_back(add(graph, name, graph::Origin::parameter, {5}, DType::bf16));
    gradients.push_back(run(graph, "Neg", {graph.parameters.back()}, {5}, DType::bf16));
  }
  const LoweringInput source{.graph = graph, .loss = gradients[0], .norm = gradients[0], .gradients = gradients};
  plan::Plan plan;
  plan.chunks = {{.parameters = {0, 1, 2}}};
  const State state = lay_out_state(
      {source}, plan, {.optimizer = optimizer_arrays(DType::bf16, test::moments(2)), .kept = {false, false, false}});
  for (std::size_t p = 0; p < 3; ++p) {
    EXPECT_EQ(state.weights(p).offset % kAlignment, 0u);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(state.optimizer(p, i).offset % kAlignment, 0u);
  }
}

TEST(Bf16State, HoldsGradientsAsTheyAreMadeAndSumsInFloat32) {
  InBf16 model;
  const plan::Plan plan = model.plan(Tier::device, BlockMode::keep, OptimizerOrder::barrier);
  const auto bytes = [](const State &state) { return state.buffers[index(state.chunks[0].gradient)].bytes; };
  EXPECT_EQ(bytes(model.state(plan)), round_up(TwoBlocks::kElements * kHalf, kAlignment));
  for (ValueId id : model.gradients) model.graph.value(id).type = {DType::f32, {64}};
  EXPECT_EQ(bytes(model.state(plan)), 64 * sizeof(float));
}

// A weight has 16 elements. A piece of the disk has 16 bytes, which are 8 elements of a plane or 4 of a moment. So an
// update of 8 elements takes one piece of each plane and two of each moment.
TEST(Bf16Pieces, AreTheSameElementsOfEveryArrayAndWholePiecesOfTheDisk) {
  const InBf16 model;
  for (const bool shared : {false, true})
    for (const OptimizerOrder order : {OptimizerOrder::overlap, OptimizerOrder::barrier}) {
      plan::Plan plan = model.plan(Tier::disk, BlockMode::keep, order);
      plan.shared_memory = shared;
      if (shared) plan.chunks[0].update = plan.chunks[1].update = Tier::device;
      plan.piece_bytes = 8 * kHalf;
      const Program program = model.lowered(plan);
      EXPECT_NO_THROW(verify(program));
      std::size_t updates = 0, reads = 0;
      for (const Instruction &i : program.instructions) {
        if (i.kind == Kind::update) {
          ++updates;
          EXPECT_EQ(i.bytes, 8 * kHalf);
          EXPECT_EQ(i.outputs.size(), 4u);
        }
        const std::string name = i.kind == Kind::read ? program.buffers[index(i.inputs[0].buffer)].name : "";
        if (name.find("moment") == std::string::npos && name.find("low") == std::string::npos) continue;
        ++reads;
        EXPECT_EQ(i.inputs[0].offset % plan.piece_bytes, 0u);
        EXPECT_EQ(i.bytes, name.ends_with("low") ? plan.piece_bytes : 2 * plan.piece_bytes);
      }
      EXPECT_EQ(updates, 4u);
      EXPECT_EQ(reads, 12u);
    }
}

TEST(Bf16Pieces, BeginWhereTheUpperPlaneIsLargerThanAPiece) {
  const InBf16 model;
  plan::Plan plan = model.plan(Tier::host, BlockMode::keep);
  plan.piece_bytes = TwoBlocks::kElements * kHalf;
  const auto updates = [](const Program &program) {
    return std::ranges::count(program.instructions, Kind::update, &Instruction::kind);
  };
  EXPECT_EQ(updates(model.lowered(plan)), 2);
  plan.piece_bytes /= 2;
  EXPECT_EQ(updates(model.lowered(plan)), 4);
}

// The state of an optimizer whose moments have one byte for each element, and one scale for each `block` elements.
std::vector<OptimizerArray> coded(std::uint64_t block) {
  return {{.name = "scale1", .block = block},
          {.name = "scale2", .block = block},
          {.name = "moment1", .dtype = DType::u8},
          {.name = "moment2", .dtype = DType::u8}};
}

TEST(CodedState, TakesABitMoreThanSixBytesForAParameter) {
  graph::Graph graph;
  const ValueId w = add(graph, "w", graph::Origin::parameter, {256, 64}, DType::bf16);
  const ValueId small = add(graph, "small", graph::Origin::parameter, {5}, DType::bf16);
  graph.parameters = {w, small};
  const ValueId gradient = run(graph, "Neg", {w}, {256, 64}, DType::bf16);
  const ValueId of_small = run(graph, "Neg", {small}, {5}, DType::bf16);
  const LoweringInput source{.graph = graph, .loss = gradient, .norm = gradient, .gradients = {gradient, of_small}};
  plan::Plan plan;
  plan.chunks = {{.parameters = {0}}, {.parameters = {1}}};
  const State state =
      lay_out_state({source}, plan, {.optimizer = optimizer_arrays(DType::bf16, coded(256)), .kept = {false, false}});
  std::uint64_t bytes = 0, of_small_chunk = 0;
  for (const Buffer &buffer : state.buffers) {
    bytes += buffer.name.starts_with("chunk0") ? buffer.bytes : 0;
    of_small_chunk += buffer.name.starts_with("chunk1") ? buffer.bytes : 0;
  }
  EXPECT_EQ(bytes, 256u * 64 * 6 + 2 * 64 * sizeof(float));
  EXPECT_EQ(of_small_chunk, 6 * kAlignment) << "no array of a small parameter is larger than what it is aligned to";
}

// A weight has 16 elements and four scales. It is updated in two pieces of 8 elements, and each update uses two of the
// scales. Even so, a single instruction must read all four scales from disk, and a single instruction must write them.
TEST(CodedPieces, ShareTheScalesThatMoveWhole) {
  const InBf16 model;
  for (const bool shared : {false, true})
    for (const OptimizerOrder order : {OptimizerOrder::overlap, OptimizerOrder::barrier}) {
      plan::Plan plan = model.plan(Tier::disk, BlockMode::keep, order);
      plan.shared_memory = shared;
      if (shared) plan.chunks[0].update = plan.chunks[1].update = Tier::device;
      plan.piece_bytes = 8;
      const StateRequest request = {.optimizer = optimizer_arrays(DType::bf16, coded(4)), .kept = {false, false}};
      const State state = lay_out_state({model.step(), model.evaluation()}, plan, request);
      const Program program =
          lower(model.step(), plan, state, {.nodes = std::vector<std::uint64_t>(model.graph.node_count(), 0)});
      EXPECT_NO_THROW(verify(program));
      std::size_t updates = 0;
      std::map<std::string, std::size_t> reads, writes;
      for (const Instruction &i : program.instructions) {
        if (i.kind == Kind::update) {
          EXPECT_EQ(i.outputs.size(), 6u);
          EXPECT_EQ(i.outputs[2].offset, updates % 2 * 2 * sizeof(float)) << "the place of the piece's scales";
          ++updates;
        }
        if (i.kind == Kind::read) ++reads[program.buffers[index(i.inputs[0].buffer)].name];
        if (i.kind == Kind::write) ++writes[program.buffers[index(i.outputs[0].buffer)].name];
      }
      EXPECT_EQ(updates, 4u);
      for (const std::string chunk : {"chunk0", "chunk1"}) {
        EXPECT_EQ(reads[chunk + "/scale1"], 1u);
        EXPECT_EQ(writes[chunk + "/scale2"], 1u);
        EXPECT_EQ(reads[chunk + "/moment1"], 2u);
        EXPECT_EQ(writes[chunk + "/moment2"], 2u);
      }
    }
}

}  // namespace
}  // namespace protrain::program::bf16_test
