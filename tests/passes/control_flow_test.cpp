// If, Loop and Scan are replaced by the nodes of their bodies, which get new names. The number of iterations must be a
// constant. The condition of an If may be data.
#include <gtest/gtest.h>

#include "errors.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::control_flow_test {
namespace {

using graph::Body;
using graph::Node;

// Builds the body of a control flow node. The first `own` inputs are those that ONNX defines for the body. The others
// are values from outside.
struct BodyBuilder {
  explicit BodyBuilder(const std::vector<std::string> &inputs, std::size_t own) {
    body.own = own;
    for (const std::string &name : inputs) {
      ids.push_back(body.graph.add_value({.name = name, .type = {}, .origin = Origin::input, .array = {}}));
      body.graph.inputs.push_back(ids.back());
    }
  }
  ValueId add(const std::string &op, const std::vector<ValueId> &inputs, const Attributes &attributes = {}) {
    const graph::NodeId id =
        body.graph.add_node({.op = op, .name = "inner" + op, .attributes = attributes, .inputs = inputs},
                            {"v" + std::to_string(inputs.size())});
    return body.graph.node(id).outputs[0];
  }
  Body done(const std::vector<ValueId> &outputs) {
    body.graph.outputs = outputs;
    return body;
  }

  Body body;
  std::vector<ValueId> ids;
};

std::vector<ValueId> control(HandBuilt &b, const std::string &op, const std::vector<ValueId> &inputs,
                             const Attributes &attributes, std::size_t outputs = 1) {
  const graph::NodeId id = b.graph.add_node({.op = op, .name = "/" + op, .attributes = attributes, .inputs = inputs},
                                            std::vector<std::string>(outputs, "out"));
  return b.graph.node(id).outputs;
}

Graph folded(Graph graph, const graph::Bodies &bodies) {
  passes::FoldBudget budget(graph);
  passes::fold(graph, budget, &bodies);
  graph::verify(graph);
  return graph;
}

ValueId truth(HandBuilt &b, bool value) { return b.constant(Array::from_integers({DType::boolean, {}}, {value})); }

const Attributes kBody = {{"body", std::int64_t{0}}};

// The start of the Slice depends on data. For such a Slice the library makes a constant with the position of each
// element on the axis. For an axis of 2^40 elements this constant would be too large, so the model is refused.
TEST(Slice, ByDataOfALongAxisIsRefused) {
  HandBuilt b;
  const ValueId x = b.input("x", {std::int64_t{1} << 40}), start = b.input("start", {1}, DType::i64);
  const ValueId cut =
      b.graph.node(b.graph.add_node({.op = "Slice", .inputs = {x, start, b.integers({9})}}, {"cut"})).outputs[0];
  b.graph.outputs = {
      b.graph.node(b.graph.add_node({.op = "ReduceSum", .inputs = {cut, b.integers({0})}}, {"y"})).outputs[0]};
  EXPECT_EQ(error_of([&] { passes::prepare(b.graph, [](const std::string &) { return Array(); }, {}); }).code,
            Code::unsupported);
}

// If the condition is data, both branches are computed, and a Where chooses between their results.
TEST(If, ChoosesByData) {
  HandBuilt b;
  const ValueId x = b.input("x", {3}), c = b.add("Cast", {b.input("c", {1})}, {{"to", std::string("bool")}});
  BodyBuilder other({"x"}, 0), taken({"x"}, 0);
  const graph::Bodies bodies = {other.done({other.add("Neg", other.ids)}), taken.done({taken.add("Exp", taken.ids)})};
  b.graph.outputs = control(b, "If", {c, x, x}, {{"else_branch", std::int64_t{0}}, {"then_branch", std::int64_t{1}}});
  const Graph graph = folded(b.graph, bodies);
  const graph::Value &out = graph.value(graph.outputs[0]);
  EXPECT_EQ(out.type.shape, Shape{3});
  const Node &where = graph.node(out.producer);
  ASSERT_EQ(where.op, "Where");
  EXPECT_EQ(graph.node(graph.value(where.inputs[1]).producer).name, "/If/then/innerExp");
  EXPECT_EQ(graph.node(graph.value(where.inputs[2]).producer).name, "/If/else/innerNeg");
}

TEST(If, IsTheBranchThatIsTaken) {
  for (const bool condition : {true, false}) {
    HandBuilt b;
    const ValueId x = b.input("x", {3}), y = b.input("y", {2});
    BodyBuilder other({"y"}, 0), taken({"x"}, 0);
    const graph::Bodies bodies = {other.done({other.add("Neg", other.ids)}), taken.done({taken.add("Exp", taken.ids)})};
    b.graph.outputs = control(b, "If", {truth(b, condition), y, x},
                              {{"else_branch", std::int64_t{0}}, {"then_branch", std::int64_t{1}}});
    const Graph graph = folded(b.graph, bodies);
    ASSERT_EQ(graph.node_count(), 1u);
    EXPECT_EQ(graph.nodes()[0].op, condition ? "Exp" : "Neg");
    EXPECT_EQ(graph.nodes()[0].name, condition ? "/If/innerExp" : "/If/innerNeg");
    EXPECT_EQ(graph.value(graph.outputs[0]).type.shape, (condition ? Shape{3} : Shape{2}));
  }
}

// The option batch_norm holds for normalizations in bodies too, even if the graph itself has none.
TEST(If, NormalizesInTheModeThatTheUserAsksFor) {
  for (const passes::BatchNorm mode : {passes::BatchNorm::train, passes::BatchNorm::frozen}) {
    const bool trains = mode == passes::BatchNorm::train;
    BodyBuilder taken({"x", "scale", "bias", "mean", "variance"}, 0), other({"x"}, 0);
    const ValueId normal = taken.add("BatchNormalization", taken.ids, {{"training_mode", std::int64_t{!trains}}});
    const graph::Bodies bodies = {other.done({other.add("Neg", other.ids)}), taken.done({normal})};
    HandBuilt b;
    const ValueId x = b.add("MatMul", {b.input("x", {4, 3}, DType::f32), b.initializer("w", {3, 3}, DType::f32)});
    std::vector<ValueId> inputs = {truth(b, true), x, x};
    for (const char *name : {"scale", "bias", "mean", "variance"})
      inputs.push_back(b.initializer(name, {3}, DType::f32));
    b.graph.outputs = control(b, "If", inputs, {{"else_branch", std::int64_t{0}}, {"then_branch", std::int64_t{1}}});
    const auto load = [&](const std::string &name) {
      return Array::filled({DType::f32, name == "w" ? Shape{3, 3} : Shape{3}}, 1);
    };
    const passes::PreparedModel made = passes::prepare(
        b.graph, load,
        {.losses = {{.kind = passes::Loss::Kind::mse, .labels = "y"}}, .batch_norm = mode, .bodies = &bodies});
    EXPECT_EQ(histogram(made.graph).contains("BatchNorm"), trains) << made.graph.print();
  }
}

TEST(If, PassesOnWhatItsBranchDoesNotCompute) {
  HandBuilt b;
  const ValueId x = b.input("x", {3});
  BodyBuilder same({"x"}, 0);
  const graph::Bodies bodies = {same.done({same.ids[0], same.ids[0]})};
  b.graph.outputs =
      control(b, "If", {truth(b, true), x, x}, {{"else_branch", std::int64_t{0}}, {"then_branch", std::int64_t{0}}}, 2);
  const Graph graph = folded(b.graph, bodies);
  HandBuilt wanted;
  const ValueId y = wanted.input("x", {3});
  wanted.graph.outputs = {y, y};
  EXPECT_EQ(results(graph), results(wanted.graph));
}

TEST(If, MayGiveOneValueTwice) {
  HandBuilt b;
  const ValueId x = b.input("x", {3});
  BodyBuilder twice({"x"}, 0);
  const ValueId negated = twice.add("Neg", twice.ids);
  const graph::Bodies bodies = {twice.done({negated, negated})};
  b.graph.outputs = control(b, "If", {truth(b, false), x, x},
                            {{"else_branch", std::int64_t{0}}, {"then_branch", std::int64_t{0}}}, 2);
  HandBuilt wanted;
  const ValueId y = wanted.add("Neg", {wanted.input("x", {3})});
  wanted.graph.outputs = {y, y};
  EXPECT_EQ(results(folded(b.graph, bodies)), results(wanted.graph));
}

// v = v * w + i for i = 0, 1, 2, and each v is stacked.
graph::Bodies scaling() {
  BodyBuilder body({"i", "c", "v", "w"}, 3);
  const ValueId number = body.add("Cast", {body.ids[0]}, {{"to", std::string("float64")}});
  const ValueId next = body.add("Add", {body.add("Mul", {body.ids[2], body.ids[3]}), number});
  return {body.done({body.ids[1], next, next})};
}

TEST(Loop, IsItsBodyOnceForEachIteration) {
  HandBuilt b, wanted;
  for (HandBuilt *graph : {&b, &wanted}) {
    graph->input("x", {2});
    graph->parameter("w", {2});
  }
  const ValueId x = b.graph.find("x"), w = b.graph.find("w");
  b.graph.outputs = control(b, "Loop", {b.number(3, DType::i64), truth(b, true), x, w}, kBody, 2);
  const Graph graph = folded(b.graph, scaling());
  std::vector<ValueId> rows;
  ValueId v = wanted.graph.find("x");
  for (int i = 0; i < 3; ++i) {
    v = wanted.add("Add", {wanted.add("Mul", {v, wanted.graph.find("w")}), wanted.number(i)});
    rows.push_back(wanted.reshape(v, {1, 2}));
  }
  wanted.graph.outputs = {v, wanted.add("Concat", rows, {{"axis", std::int64_t{0}}})};
  EXPECT_EQ(results(graph), results(wanted.graph));
  EXPECT_EQ(histogram(graph)["Mul"], 3);
  EXPECT_EQ(graph.nodes()[0].name, "/Loop/0/innerMul");
}

TEST(Loop, OfNoIterationPassesItsValuesOn) {
  for (const bool counts : {true, false}) {
    HandBuilt b;
    const ValueId x = b.input("x", {2}), w = b.parameter("w", {2});
    const ValueId most = counts ? b.number(0, DType::i64) : ValueId::none;
    const std::vector<ValueId> out = control(b, "Loop", {most, truth(b, counts), x, w}, kBody, 2);
    b.graph.outputs = {out[0]};
    const Graph graph = folded(b.graph, scaling());
    EXPECT_EQ(graph.value(graph.outputs[0]).type.shape, Shape{2});
    EXPECT_LE(graph.node_count(), 1u) << "a copy, because outputs have their own names";
  }
}

// A while loop: it ends when its own condition, computed from constants, becomes false.
TEST(Loop, EndsWithItsCondition) {
  BodyBuilder body({"i", "c", "v", "five"}, 3);
  const ValueId more = body.add("Less", {body.ids[0], body.ids[3]});
  const graph::Bodies bodies = {body.done({more, body.add("Neg", {body.ids[2]})})};
  HandBuilt b;
  const ValueId x = b.input("x", {2});
  b.graph.outputs = control(b, "Loop", {ValueId::none, truth(b, true), x, b.number(5, DType::i64)}, kBody);
  EXPECT_EQ(histogram(folded(b.graph, bodies)), (std::map<std::string, int>{{"Neg", 6}}));
}

TEST(Loop, MayLieInALoop) {
  BodyBuilder inner({"i", "c", "v", "w"}, 3);
  BodyBuilder outer({"j", "c", "v", "w", "two"}, 3);
  const graph::Bodies bodies = {
      outer.done({outer.ids[1], outer.add("Loop", {outer.ids[4], ValueId::none, outer.ids[2], outer.ids[3]},
                                          {{"body", std::int64_t{1}}})}),
      inner.done({inner.ids[1], inner.add("Mul", {inner.ids[2], inner.ids[3]})})};
  HandBuilt b;
  const ValueId x = b.input("x", {2}), w = b.parameter("w", {2}), two = b.number(2, DType::i64);
  b.graph.outputs = control(b, "Loop", {b.number(3, DType::i64), ValueId::none, x, w, two}, kBody);
  const Graph graph = folded(b.graph, bodies);
  EXPECT_EQ(histogram(graph), (std::map<std::string, int>{{"Mul", 6}}));
  EXPECT_EQ(graph.nodes()[5].name, "/Loop/2/innerLoop/1/innerMul");
}

// For each column of x: state = state + column, and the new state becomes a column of y. With `backward` = 1 the scan
// reads the columns of x, and writes those of y, from the last to the first.
TEST(Scan, IsItsBodyForEachSlice) {
  for (const std::int64_t backward : {0, 1}) {
    BodyBuilder body({"state", "row"}, 2);
    const ValueId sum = body.add("Add", body.ids);
    const graph::Bodies bodies = {body.done({sum, sum})};
    HandBuilt b;
    const ValueId start = b.input("start", {2}), x = b.input("x", {2, 3});
    b.graph.outputs = control(b, "Scan", {start, x},
                              {{"body", std::int64_t{0}},
                               {"num_scan_inputs", std::int64_t{1}},
                               {"scan_input_axes", Integers{1}},
                               {"scan_input_directions", Integers{backward}},
                               {"scan_output_axes", Integers{-1}},
                               {"scan_output_directions", Integers{backward}}},
                              2);
    HandBuilt wanted;
    ValueId state = wanted.input("start", {2});
    const ValueId rows = wanted.input("x", {2, 3});
    std::vector<ValueId> columns;
    for (int i = 0; i < 3; ++i) {
      const std::int64_t at = backward != 0 ? 2 - i : i;
      state = wanted.add("Add", {state, wanted.reshape(wanted.slice(rows, 1, at, at + 1), {2})});
      columns.insert(backward != 0 ? columns.begin() : columns.end(), wanted.reshape(state, {2, 1}));
    }
    wanted.graph.outputs = {state, wanted.add("Concat", columns, {{"axis", std::int64_t{1}}})};
    EXPECT_EQ(results(folded(b.graph, bodies)), results(wanted.graph));
  }
}

// A loop that TorchScript exported may append to a list, which is a sequence in the file.
TEST(Loop, MayCarryASequence) {
  BodyBuilder body({"i", "c", "list", "v", "w"}, 4);
  const ValueId next = body.add("Mul", {body.ids[3], body.ids[4]});
  const graph::Bodies bodies = {body.done({body.ids[1], body.add("SequenceInsert", {body.ids[2], next}), next})};
  HandBuilt b;
  const ValueId x = b.input("x", {2}), w = b.parameter("w", {2});
  const ValueId list = control(b, "SequenceEmpty", {}, {})[0];
  const ValueId made = control(b, "Loop", {b.number(3, DType::i64), ValueId::none, list, x, w}, kBody, 2)[0];
  b.graph.outputs = {
      control(b, "ConcatFromSequence", {made}, {{"axis", std::int64_t{1}}, {"new_axis", std::int64_t{1}}})[0],
      control(b, "SequenceLength", {made}, {})[0]};
  const Graph graph = folded(b.graph, bodies);
  EXPECT_EQ(histogram(graph)["Mul"], 3);
  EXPECT_EQ(graph.value(graph.outputs[0]).type.shape, (Shape{2, 3}));
  EXPECT_EQ(graph.value(graph.outputs[1]).array.integers(), Integers{3});
}

TEST(ControlFlow, StaysWithoutItsBodies) {
  HandBuilt b;
  const ValueId x = b.input("x", {2}), w = b.parameter("w", {2});
  b.graph.outputs = control(b, "Loop", {b.number(3, DType::i64), ValueId::none, x, w}, kBody, 2);
  passes::fold(b.graph);
  EXPECT_EQ(histogram(b.graph), (std::map<std::string, int>{{"Loop", 1}}));
}

}  // namespace
}  // namespace protrain::test::control_flow_test
