#include "program/program.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "hand_built.h"

namespace protrain::program::program_test {
namespace {

using graph::Graph;
using graph::Origin;
using graph::ValueId;

// A small training graph, made by hand: y = reshape(x) * w and loss = sum(y). It has an alias, a tied weight and an
// Update.
struct Example {
  Example() {
    const ValueId x = add(graph, "x", Origin::input, {4, 8});
    w = add(graph, "w", Origin::parameter, {32});
    graph.inputs = {x};
    graph.parameters = {w};
    const ValueId flat = run(graph, "Reshape", {x}, {32});
    const ValueId y = run(graph, "Mul", {flat, w}, {32});
    loss = run(graph, "ReduceSum", {y}, {});
    gradient = run(graph, "Scale", {flat, loss}, {32});
    squared = run(graph, "SquaredNorm", {gradient}, {}, DType::f64);
    run(graph, "ReadsWeightLate", {w, y}, {32});
    norm = run(graph, "GlobalNorm", {squared}, {}, DType::f64);
    graph.outputs = {loss, gradient, norm};
  }

  Program lowered(const std::vector<bool> &kept = {false}) { return lowered(plan::resident(graph), kept); }

  Program lowered(const plan::Plan &plan, const std::vector<bool> &kept = {false}) {
    const LoweringInput step{
        .graph = graph, .loss = loss, .norm = norm, .gradients = {gradient}, .squared_norms = {squared}};
    const LoweringInput evaluation{.graph = graph, .loss = loss, .norm = ValueId::none, .updates = false};
    const StateRequest request = {.optimizer = optimizer_arrays(DType::f32, test::moments(2)), .kept = kept};
    const State state = lay_out_state({step, evaluation}, plan, request);
    Workspace workspace{.nodes = std::vector<std::uint64_t>(graph.node_count(), 0)};
    workspace.nodes[1] = 100;
    return lower(step, plan, state, workspace);
  }

  Graph graph;
  ValueId w, loss, gradient, squared, norm;
};

std::size_t position_of(const Program &program, Kind kind, std::size_t nth = 0) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    if (program.instructions[i].kind == kind && nth-- == 0) return i;
  return program.instructions.size();
}

TEST(Lowering, PrintsTheGoldenProgram) {
  Example example;
  expect_golden("resident", print(example.lowered(), example.graph));
}

TEST(Lowering, UpdatesAWeightOnlyAfterItsLastReader) {
  Example example;
  const Program program = example.lowered();
  EXPECT_GT(position_of(program, Kind::update), 5u);
}

TEST(Lowering, GivesAKeptGradientBytesThatHold) {
  Example example;
  const Program program = example.lowered(std::vector<bool>{true});
  const auto keeps = [&](const Instruction &i) {
    return !i.outputs.empty() && program.buffers[index(i.outputs[0].buffer)].name == "w/gradient";
  };
  const auto kept = std::ranges::find_if(program.instructions, keeps);
  ASSERT_NE(kept, program.instructions.end());
  EXPECT_TRUE(program.buffers[index(kept->outputs[0].buffer)].persistent);
  EXPECT_NO_THROW(verify(program));
}

TEST(Verify, AcceptsWhatLowerMakes) {
  Example example;
  EXPECT_NO_THROW(verify(example.lowered()));
}

TEST(Verify, FindsALiveBufferThatWasMovedOntoAnother) {
  Example example;
  Program program = example.lowered();
  const BufferId y = program.instructions[0].outputs[0].buffer, scratch = program.instructions[0].scratch;
  program.buffers[index(y)].offset = program.buffers[index(scratch)].offset;
  EXPECT_EQ(code_of([&] { verify(program); }), Code::internal);
}

TEST(Verify, FindsAReadOfWhatWasNeverWritten) {
  Example example;
  Program program = example.lowered();
  program.instructions.erase(program.instructions.begin());
  EXPECT_EQ(code_of([&] { verify(program); }), Code::internal);
}

TEST(Verify, FindsABufferOutsideTheArena) {
  Example example;
  Program program = example.lowered();
  program.arena_bytes[Tier::device] -= kAlignment;
  EXPECT_EQ(code_of([&] { verify(program); }), Code::internal);
}

TEST(Verify, FindsAWriteOverTheState) {
  Example example;
  Program program = example.lowered();
  program.buffers[index(program.instructions[0].outputs[0].buffer)].offset = 0;
  EXPECT_EQ(code_of([&] { verify(program); }), Code::internal);
}

TEST(Verify, DemandsAWaitBetweenQueues) {
  Example example;
  Program program = example.lowered();
  program.instructions[1].queue = Queue::comm;  // now reads compute's result without a wait
  EXPECT_EQ(code_of([&] { verify(program); }), Code::internal);
  program.instructions[1].waits = {0};
  program.instructions[2].waits = {1};
  EXPECT_NO_THROW(verify(program));
}

TEST(Verify, SeesOrderThroughAChainOfWaits) {
  Example example;
  Program program = example.lowered();
  program.instructions[1].queue = Queue::comm;
  program.instructions[1].waits = {0};
  program.instructions[2].queue = Queue::download;
  program.instructions[2].waits = {1};
  program.instructions[3].waits = {2};  // a wait for 2 implies 1
  EXPECT_NO_THROW(verify(program));
  program.instructions[3].waits = {};
  EXPECT_EQ(code_of([&] { verify(program); }), Code::internal);
}

TEST(Verify, DemandsAWaitBetweenTheDisksTwoQueues) {
  Program program;
  program.state_bytes[Tier::disk] = program.arena_bytes[Tier::disk] = 64;
  program.arena_bytes[Tier::host] = 128;
  program.buffers = {{.name = "array", .tier = Tier::disk, .bytes = 64, .persistent = true},
                     {.name = "a", .tier = Tier::host, .bytes = 64},
                     {.name = "b", .tier = Tier::host, .bytes = 64, .offset = 64}};
  const Operand array{BufferId{0}, 0}, a{BufferId{1}, 0}, b{BufferId{2}, 0};
  program.instructions = {
      {.kind = Kind::read, .queue = Queue::disk_read, .bytes = 64, .inputs = {array}, .outputs = {a}},
      {.kind = Kind::write, .queue = Queue::disk_write, .bytes = 64, .waits = {0}, .inputs = {a}, .outputs = {array}},
      {.kind = Kind::read, .queue = Queue::disk_read, .bytes = 64, .waits = {1}, .inputs = {array}, .outputs = {b}}};
  EXPECT_NO_THROW(verify(program));
  program.instructions[2].waits = {};
  EXPECT_EQ(code_of([&] { verify(program); }), Code::internal);
}

}  // namespace
}  // namespace protrain::program::program_test
