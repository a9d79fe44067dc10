#include "program/program.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"

namespace protrain::program {
namespace {

using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::ValueId;

ValueId add(Graph &graph, const std::string &name, Origin origin, Shape shape, DType dtype = DType::f32) {
  return graph.add_value({.name = name, .type = {dtype, std::move(shape)}, .origin = origin});
}

ValueId run(Graph &graph, const std::string &op, std::vector<ValueId> inputs, Shape shape, DType dtype = DType::f32) {
  const auto id = graph.add_node({.op = op, .name = op, .inputs = std::move(inputs)}, {op});
  const ValueId out = graph.node(id).outputs[0];
  graph.value(out).type = {dtype, std::move(shape)};
  return out;
}

// y = reshape(x) * w, loss = sum(y), with hand-made gradients: small, but with an alias, a tied weight and an Update.
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

  Program lowered(const std::vector<bool> &kept = {false}) {
    const Source step{.graph = graph, .loss = loss, .norm = norm, .gradients = {gradient}, .squared_norms = {squared}};
    const Source evaluation{.graph = graph, .loss = loss, .norm = ValueId::none, .gradients = {}, .squared_norms = {}};
    const State state = lay_out_state(step, evaluation, 2, kept);
    Workspace workspace{.nodes = std::vector<std::uint64_t>(graph.node_count(), 0)};
    workspace.nodes[1] = 100;
    return lower(step, plan::resident(graph), state, workspace);
  }

  Graph graph;
  ValueId w, loss, gradient, squared, norm;
};

std::size_t position_of(const Program &program, Kind kind, std::size_t nth = 0) {
  for (std::size_t i = 0; i < program.instructions.size(); ++i)
    if (program.instructions[i].kind == kind && nth-- == 0) return i;
  return program.instructions.size();
}

Code code_of(const std::function<void()> &call) {
  try {
    call();
  } catch (const Error &error) {
    return error.code;
  }
  return Code::ok;
}

TEST(Lowering, PrintsTheGoldenProgram) {
  Example example;
  EXPECT_EQ(print(example.lowered(), example.graph),
            "program: 9 instructions, arena 1088 bytes, of which 576 hold from step to step\n"
            "compute 0 run Mul (Mul): x@448+128 w@64+128 -> Mul@576+128 using scratch@704+128\n"
            "compute 1 run ReduceSum (ReduceSum): Mul@576+128 -> ReduceSum@960+64\n"
            "compute 2 check ReduceSum: ReduceSum@960+64 -> status@0+64\n"
            "compute 3 run Scale (Scale): x@448+128 ReduceSum@960+64 -> Scale@704+128\n"
            "compute 4 run SquaredNorm (SquaredNorm): Scale@704+128 -> SquaredNorm@1024+64\n"
            "compute 5 run ReadsWeightLate (ReadsWeightLate): w@64+128 Mul@576+128 -> ReadsWeightLate@832+128\n"
            "compute 6 check SquaredNorm: SquaredNorm@1024+64 -> status@0+64\n"
            "compute 7 update w: Scale@704+128 status@0+64 -> w@64+128 w/moment1@192+128 w/moment2@320+128\n"
            "compute 8 run GlobalNorm (GlobalNorm): SquaredNorm@1024+64 -> GlobalNorm@576+64\n");
}

TEST(Lowering, UpdatesAWeightOnlyAfterItsLastReader) {
  Example example;
  const Program program = example.lowered();
  EXPECT_GT(position_of(program, Kind::update), 5u);
}

TEST(Lowering, GivesAKeptGradientBytesThatHold) {
  Example example;
  const Program program = example.lowered({true});
  const Instruction &update = program.instructions[position_of(program, Kind::update)];
  EXPECT_TRUE(program.buffers[index(update.inputs[0])].persistent);
  EXPECT_NO_THROW(verify(program));
}

TEST(Lowering, RefusesAPlanThatItCannotRun) {
  Example example;
  plan::Plan plan = plan::resident(example.graph);
  plan.chunks[0].tier = plan::Tier::host;
  const Source source{.graph = example.graph, .loss = example.loss, .gradients = {}, .squared_norms = {}};
  EXPECT_EQ(code_of([&] { lower(source, plan, {}, {}); }), Code::unsupported);
}

TEST(Verify, AcceptsWhatLowerMakes) {
  Example example;
  EXPECT_NO_THROW(verify(example.lowered()));
}

TEST(Verify, FindsALiveBufferThatWasMovedOntoAnother) {
  Example example;
  Program program = example.lowered();
  const BufferId y = program.instructions[0].outputs[0], scratch = program.instructions[0].scratch;
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
  program.arena_bytes -= kAlignment;
  EXPECT_EQ(code_of([&] { verify(program); }), Code::internal);
}

TEST(Verify, FindsAWriteOverTheState) {
  Example example;
  Program program = example.lowered();
  program.buffers[index(program.instructions[0].outputs[0])].offset = 0;
  EXPECT_EQ(code_of([&] { verify(program); }), Code::internal);
}

TEST(Verify, DemandsAWaitBetweenQueues) {
  Example example;
  Program program = example.lowered();
  program.instructions[1].queue = Queue::host;  // reads what the compute queue wrote, and nothing makes it wait
  EXPECT_EQ(code_of([&] { verify(program); }), Code::internal);
  program.instructions[1].waits = {0};
  program.instructions[2].waits = {1};
  EXPECT_NO_THROW(verify(program));
}

TEST(Verify, SeesOrderThroughAChainOfWaits) {
  Example example;
  Program program = example.lowered();
  program.instructions[1].queue = Queue::host;
  program.instructions[1].waits = {0};
  program.instructions[2].queue = Queue::download;
  program.instructions[2].waits = {1};
  program.instructions[3].waits = {2};  // after 1 as well, through 2
  EXPECT_NO_THROW(verify(program));
  program.instructions[3].waits = {};
  EXPECT_EQ(code_of([&] { verify(program); }), Code::internal);
}

}  // namespace
}  // namespace protrain::program
