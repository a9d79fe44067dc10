// Dropout: the conversion of the file's operator to the core operator, and its removal for evaluation.
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::random_test {

namespace {

using Histogram = std::map<std::string, int>;

constexpr ValueId kNone = ValueId::none;

struct Form {
  std::optional<double> ratio = 0.25;
  std::optional<bool> training = true;
  Attributes attributes = {};
};

// Adds a Dropout node as files have it. Returns {result, mask}.
std::vector<ValueId> file_dropout(HandBuilt &b, ValueId x, const Form &form = {}) {
  const ValueId ratio = form.ratio ? b.number(*form.ratio, DType::f32) : kNone;
  const ValueId training = form.training ? b.number(*form.training ? 1 : 0, DType::boolean) : kNone;
  graph::Node node{
      .op = "Dropout", .name = "/drop", .attributes = form.attributes, .inputs = {x, ratio, training}, .outputs = {}};
  while (node.inputs.back() == kNone) node.inputs.pop_back();
  return b.graph.node(b.graph.add_node(node, {"dropped", "mask"})).outputs;
}

// The graph exp(dropout(x)) after folding, for an x of this shape.
Graph folded(const Form &form, const Shape &shape = {4, 3}) {
  HandBuilt b;
  b.input("ids", {4, 7}, DType::i64);
  b.graph.outputs = {b.add("Exp", {file_dropout(b, b.input("x", shape), form)[0]})};
  passes::fold(b.graph);
  passes::clean_up(b.graph);
  graph::verify(b.graph);
  return b.graph;
}

Attributes core(std::int64_t key) { return {{"key", key}, {"ratio", 0.25}, {"samples", std::int64_t{0}}}; }

std::int64_t key_of(const std::string &text) { return static_cast<std::int64_t>(fnv1a(text)); }

}  // namespace

TEST(Dropout, ThatTrainsGetsItsRatioAndAKeyFromItsName) {
  const Graph graph = folded({});
  EXPECT_EQ(histogram(graph), (Histogram{{"Dropout", 1}, {"Exp", 1}}));
  const graph::Node &node = only(graph, "Dropout");
  EXPECT_EQ(node.inputs.size(), 1u);
  EXPECT_EQ(node.attributes.print(), fmt::format("key={}, ratio=0.25, samples=4", key_of("dropped")));
  EXPECT_EQ(only(folded({.ratio = {}}), "Dropout").attributes.real("ratio", 0), 0.5);
  const Graph seeded = folded({.attributes = {{"seed", std::int64_t{5}}}});
  EXPECT_EQ(only(seeded, "Dropout").attributes.integer("key", 0), key_of("dropped seed=5"));
}

TEST(Dropout, KnowsTheSamplesOfItsTensor) {
  const auto samples = [](const Shape &shape) {
    return only(folded({}, shape), "Dropout").attributes.integer("samples", -1);
  };
  EXPECT_EQ(samples({4, 7, 3}), 4);
  EXPECT_EQ(samples({28, 3}), 4);
  EXPECT_EQ(samples({7, 3}), 1);
  EXPECT_EQ(samples({1, 3}), 1);
  EXPECT_EQ(samples({}), 0);
}

TEST(SamplesDrawn, AreTheMostThatANodeDrawsFor) {
  HandBuilt b;
  const ValueId x = b.input("x", {4, 3}, DType::f32);
  EXPECT_EQ(passes::samples_drawn(b.graph), 0);
  const ValueId few = b.add("Dropout", {x}, {{"ratio", 0.5}, {"samples", std::int64_t{1}}});
  EXPECT_EQ(passes::samples_drawn(b.graph), 1);
  const ValueId noise = b.add("Uniform", {}, {{"samples", std::int64_t{4}}, {"shape", Shape{4, 3}}});
  b.graph.outputs = {b.add("Add", {few, noise})};
  EXPECT_EQ(passes::samples_drawn(b.graph), 4);
}

TEST(Dropout, ThatDoesNotTrainIsIdentity) {
  for (const Form &form :
       {Form{.training = false}, Form{.training = {}}, Form{.ratio = 0}, Form{.ratio = {}, .training = {}}})
    EXPECT_EQ(histogram(folded(form)), (Histogram{{"Exp", 1}}));
}

TEST(Dropout, ThatDoesNotTrainKeepsEverything) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3});
  const std::vector<ValueId> dropped = file_dropout(b, x, {.training = {}});
  HandBuilt expected = b;
  b.graph.outputs = {
      b.graph.node(b.graph.add_node({.op = "Where", .inputs = {dropped[1], dropped[0], b.number(9)}}, {"y"}))
          .outputs[0]};
  passes::fold(b.graph);
  graph::verify(b.graph);
  expected.graph.set_nodes({});
  expected.graph.outputs = {expected.add("Mul", {x, expected.number(1)})};
  expect_same_results(expected.graph, b.graph);
}

TEST(Dropout, RefusesARatioOutsideOfZeroToOne) {
  for (double ratio : {1.0, -0.1, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    try {
      folded({.ratio = ratio});
      ADD_FAILURE() << ratio;
    } catch (const Error &error) {
      EXPECT_EQ(error.code, Code::arg);
      EXPECT_EQ(error.subject, "/drop");
    }
    EXPECT_EQ(histogram(folded({.ratio = ratio, .training = false})), (Histogram{{"Exp", 1}}));
  }
}

TEST(Dropout, WhoseRatioIsDataCannotBeTrained) {
  HandBuilt b;
  const ValueId x = b.input("x", {}, DType::f32), w = b.initializer("w", {2, 2}, DType::f32);
  const ValueId y = b.add("MatMul", {b.input("m", {2, 2}, DType::f32), w});
  graph::Node node{.op = "Dropout", .name = "/drop", .inputs = {y, x, b.number(1, DType::boolean)}};
  const ValueId dropped = b.graph.node(b.graph.add_node(node, {"dropped"})).outputs[0];
  graph::Node sum{
      .op = "ReduceSum", .name = "/sum", .attributes = {{"keepdims", std::int64_t{0}}}, .inputs = {dropped}};
  b.graph.outputs = {b.graph.node(b.graph.add_node(sum, {"loss"})).outputs[0]};
  try {
    passes::prepare(b.graph, [](const std::string &) { return Array(); }, {});
    ADD_FAILURE();
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::unsupported);
    EXPECT_NE(error.text.find("Dropout has parameters that depend on data (/drop)"), std::string::npos) << error.text;
  }
}

TEST(Dropout, IsNeitherFoldedNorMergedWithAnother) {
  HandBuilt b;
  const ValueId ones = b.constant(Array::filled({DType::f64, {2, 3}}, 1));
  const ValueId one = file_dropout(b, ones)[0], other = file_dropout(b, ones)[0];
  b.graph.outputs = {b.graph.node(b.graph.add_node({.op = "Add", .inputs = {one, other}}, {"y"})).outputs[0]};
  passes::fold(b.graph);
  passes::clean_up(b.graph);
  passes::fold(b.graph);
  EXPECT_EQ(histogram(b.graph), (Histogram{{"Dropout", 2}, {"Add", 1}}));
  EXPECT_NE(b.graph.nodes()[0].attributes.integer("key", 0), b.graph.nodes()[1].attributes.integer("key", 0));
}

TEST(Dropout, OfProbabilitiesKeepsAttentionInPiecesOnlyWhileItTrains) {
  for (bool training : {true, false}) {
    HandBuilt b;
    const Shape shape = {2, 4, 6, 4};  // (B, H, S, D)
    const ValueId q = b.input("q", shape), k = b.input("k", shape), v = b.input("v", shape);
    const ValueId scores = b.add("MatMul", {q, b.transpose(k, {0, 1, 3, 2})});
    const ValueId p = b.add("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
    const ValueId dropped = file_dropout(b, p, {.training = training})[0];
    b.graph.outputs = {b.graph.node(b.graph.add_node({.op = "MatMul", .inputs = {dropped, v}}, {"y"})).outputs[0]};
    for (int i = 0; i < 3; ++i) {
      passes::fold(b.graph);
      passes::clean_up(b.graph);
      passes::fuse(b.graph);
    }
    EXPECT_EQ(histogram(b.graph).contains("FusedAttention"), !training) << b.graph.print();
    EXPECT_EQ(histogram(b.graph).contains("Dropout"), training);
    graph::verify(b.graph);
  }
}

TEST(Dropout, OfRepeatedLayersDoesNotKeepThemFromBeingBlocks) {
  HandBuilt b;
  ValueId x = b.input("x", {4, 8});
  for (std::int64_t i = 0; i < 4; ++i) {
    const ValueId wide = b.add("Gelu", {b.add("MatMul", {x, b.parameter("up", {8, 32})})});
    const ValueId y = b.add("MatMul", {wide, b.parameter("down", {32, 8})});
    x = b.add("Add", {x, b.add_all("Dropout", {y}, core(i), 2)[0]});
  }
  b.graph.outputs = {x};
  EXPECT_EQ(passes::find_blocks(b.graph), 4);
}

TEST(WithoutRandomness, DropoutGoesAndItsMaskIsTrue) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3});
  const ValueId plain = b.add_all("Dropout", {x}, core(1), 2)[0];
  const std::vector<ValueId> both = b.add_all("Dropout", {b.add("Exp", {plain})}, core(2), 2);
  b.graph.outputs = {b.add("Where", {both[1], both[0], plain})};
  const std::size_t values = b.graph.value_count();
  passes::for_evaluation(b.graph);
  graph::verify(b.graph);
  EXPECT_EQ(b.graph.value_count(), values);
  EXPECT_EQ(histogram(b.graph), (Histogram{{"Exp", 1}, {"Dropout", 1}, {"Where", 1}}));
  EXPECT_EQ(only(b.graph, "Exp").inputs[0], x);
  EXPECT_EQ(only(b.graph, "Dropout").attributes.real("ratio", 1), 0);
}

TEST(WithoutRandomness, AnOutputOfTheGraphStays) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3});
  b.graph.outputs = {b.add_all("Dropout", {x}, core(1), 2)[0]};
  passes::for_evaluation(b.graph);
  EXPECT_EQ(only(b.graph, "Dropout").attributes.real("ratio", 1), 0);
}

}  // namespace protrain::test::random_test
