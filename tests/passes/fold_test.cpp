// fold() turns file operators into typed core operators and constants.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "errors.h"
#include "grad/training.h"
#include "passes/canonical/fold_budget.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::fold_test {

namespace {

using Histogram = std::map<std::string, int>;

// Folds a graph in which every value has a type. The results must not change.
Graph folded(const Graph &before) {
  Graph graph = before;
  passes::fold(graph);
  graph::verify(graph);
  expect_same_results(before, graph);
  return graph;
}

Histogram histogram_of_folded(const Graph &before) { return histogram(folded(before)); }

}  // namespace

TEST(Fold, ShapeArithmeticDisappears) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 4});
  const ValueId shape = b.add("Shape", {x});
  const ValueId batch = b.add("Gather", {shape, b.number(0, DType::i64)}, {{"axis", std::int64_t{0}}});
  const ValueId target = b.add("Concat", {b.add("Unsqueeze", {batch}, {{"axes", Integers{0}}}), b.integers({-1})},
                               {{"axis", std::int64_t{0}}});
  HandBuilt untyped = b;
  graph::Node reshape;
  reshape.op = "Reshape";
  reshape.inputs = {x, target};
  untyped.graph.outputs = {untyped.graph.node(untyped.graph.add_node(reshape, {"y"})).outputs[0]};
  passes::fold(untyped.graph);
  EXPECT_EQ(histogram(untyped.graph), (Histogram{{"Reshape", 1}}));
  EXPECT_EQ(untyped.graph.value(untyped.graph.outputs[0]).type.shape, (Shape{2, 12}));
  EXPECT_EQ(only(untyped.graph, "Reshape").inputs.size(), 1u);
}

TEST(Fold, ADetachStopsGradientsExceptThoseOfConstants) {
  HandBuilt b;
  const graph::Attributes detach = {{"detach", std::int64_t{1}}};
  const ValueId x = b.add("Identity", {b.input("x", {2, 3})}, detach), one = b.add("Identity", {b.number(1)}, detach);
  b.graph.outputs = {b.add("Add", {x, one})};
  EXPECT_EQ(histogram_of_folded(b.graph), (Histogram{{"StopGradient", 1}, {"Add", 1}}));
}

TEST(Fold, AZeroOfAFilesReshapeKeepsTheDimUnlessItIsAZero) {
  const auto shape_of = [](const Shape &x, const Integers &shape, std::int64_t allowzero) {
    HandBuilt b;
    const graph::NodeId id = b.graph.add_node(
        {.op = "Reshape", .attributes = {{"allowzero", allowzero}}, .inputs = {b.input("x", x), b.integers(shape)}},
        {"y"});
    b.graph.outputs = {b.graph.node(id).outputs[0]};
    passes::fold(b.graph);
    return b.graph.value(b.graph.outputs[0]).type.shape;
  };
  EXPECT_EQ(shape_of({2, 3, 5}, {0, -1}, 0), (Shape{2, 15}));
  EXPECT_EQ(shape_of({2, 3, 0}, {3, 0, 0}, 0), (Shape{3, 3, 0}));
  EXPECT_EQ(shape_of({2, 3, 0}, {3, 0, 0}, 1), (Shape{3, 0, 0}));
}

TEST(Fold, MasksStayCompactOverTheBatch) {
  HandBuilt b;
  const std::int64_t batch = 64, length = 32;
  const ValueId zero = b.number(0, DType::i64), one = b.number(1, DType::i64);
  const ValueId range = b.add("Range", {zero, b.number(length, DType::i64), one});
  const ValueId row = b.reshape(range, {1, 1, 1, length}), column = b.reshape(range, {1, 1, length, 1});
  const ValueId visible =
      b.add("Expand", {b.add("LessOrEqual", {row, column})}, {{"shape", Integers{batch, 1, length, length}}});
  b.graph.outputs = {b.add("Where", {visible, b.number(0), b.number(-1e30)})};
  const Graph graph = folded(b.graph);
  EXPECT_EQ(graph.node_count(), 0u);
  EXPECT_EQ(graph.value(graph.outputs[0]).array.stored(), (Shape{1, 1, length, length}));
}

TEST(Fold, SplitSequencesBecomeASplit) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 9});
  Graph &graph = b.graph;
  graph::Node split;
  split.op = "SplitToSequence";
  split.attributes = {{"axis", std::int64_t{1}}};
  split.inputs = {x, b.number(3, DType::i64)};
  const ValueId sequence = graph.node(graph.add_node(split, {"sequence"})).outputs[0];
  for (int i = 0; i < 3; ++i) {
    graph::Node at;
    at.op = "SequenceAt";
    at.inputs = {sequence, b.number(i - 1, DType::i64)};
    graph.outputs.push_back(graph.node(graph.add_node(at, {"piece"})).outputs[0]);
  }
  passes::fold(graph);
  EXPECT_EQ(histogram(graph), (Histogram{{"Split", 1}}));
  for (ValueId out : graph.outputs) EXPECT_EQ(graph.value(out).type.shape, (Shape{2, 3}));
}

TEST(Fold, ASequenceIsNoTensor) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 9}, DType::f32), w = b.initializer("w", {2, 9}, DType::f32);
  const auto sequence = [&](const char *op, const std::vector<ValueId> &inputs) {
    return b.graph.node(b.graph.add_node({.op = op, .inputs = inputs}, {"list"})).outputs[0];
  };
  const ValueId made = sequence("SequenceInsert", {sequence("SequenceEmpty", {}), b.add("Mul", {x, w})});
  const ValueId list = sequence("Identity", {made});
  b.graph.outputs = {list, b.add("Mul", {x, w})};
  const auto load = [](const std::string &) { return Array::filled({DType::f32, {2, 9}}, 1); };
  const passes::Choices choices = {.losses = {{.kind = passes::Loss::Kind::mse, .labels = "y"}}};
  EXPECT_NO_THROW(passes::prepare(b.graph, load, choices));
  const auto expect_refused = [&](const passes::Choices &with, Code code, const std::string &text) {
    const Error error = error_of([&] { passes::prepare(b.graph, load, with); });
    EXPECT_EQ(error.code, code);
    EXPECT_NE(error.text.find(text), std::string::npos) << error.text;
  };
  passes::Choices shown = choices;
  shown.shown = 2;
  expect_refused(shown, Code::unsupported, "is a sequence; only tensors can be computed");
  b.graph.outputs = {list};
  expect_refused(choices, Code::unsupported, "all outputs are sequences");
  b.graph.outputs = {sequence("Clip", {x, ValueId::none, list})};
  expect_refused(choices, Code::graph, "reads the sequence");
}

TEST(Canonical, GemmBecomesAProductWithBias) {
  HandBuilt b;
  const ValueId x = b.input("x", {4, 3}), w = b.parameter("w", {5, 4}), bias = b.parameter("b", {1, 5});
  b.graph.outputs = {
      b.add("Gemm", {x, w, bias}, {{"transA", std::int64_t{1}}, {"transB", std::int64_t{1}}, {"alpha", 0.5}})};
  EXPECT_EQ(histogram_of_folded(b.graph), (Histogram{{"MatMul", 1}, {"Reshape", 1}}));
  b.graph.node(graph::NodeId{0}).attributes.set("beta", 2.0);
  EXPECT_EQ(histogram_of_folded(b.graph), (Histogram{{"Add", 1}, {"MatMul", 1}, {"Mul", 1}}));
}

TEST(Canonical, ReductionsKeepTheirMeaning) {
  for (const char *op : {"ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"})
    for (std::int64_t keepdims : {0, 1}) {
      HandBuilt b;
      const ValueId x = b.input("x", {2, 3, 4});
      b.graph.outputs = {b.add(op, {x}, {{"axes", Integers{-1}}, {"keepdims", keepdims}})};
      EXPECT_FALSE(histogram_of_folded(b.graph).contains(op));
    }
}

TEST(Canonical, ReductionsOverNoAxisReduceNothing) {
  for (const char *op : {"ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"}) {
    HandBuilt b;
    const ValueId x = b.add("Exp", {b.input("x", {2, 3})});
    b.graph.outputs = {b.add(op, {x}, {{"axes", Integers{}}, {"noop_with_empty_axes", std::int64_t{1}}})};
    EXPECT_FALSE(histogram_of_folded(b.graph).contains(op));
  }
}

TEST(Canonical, FunctionsOfIntegersOnDataNeedNoKernels) {
  HandBuilt b;
  const ValueId signs = b.add("Sub", {b.input("x", {64}, DType::i64), b.number(2, DType::i64)});
  const ValueId x = b.add("Add", {b.add("Mul", {signs, b.number(4, DType::i64)}), b.input("rest", {64}, DType::i64)});
  for (const std::int64_t fmod : {0, 1})
    for (const double y : {3, -3})
      b.graph.outputs.push_back(b.add("Mod", {x, b.number(y, DType::i64)}, {{"fmod", fmod}}));
  for (const char *op : {"Neg", "Abs", "Sign", "Relu"}) b.graph.outputs.push_back(b.add(op, {x}));
  b.graph.outputs.push_back(b.add("Clip", {x}, {{"min", Integers{-2}}, {"max", Integers{5}}}));
  b.graph.outputs.push_back(b.add("Clip", {x}, {{"min", Integers{1}}}));
  const Histogram left = histogram_of_folded(b.graph);
  for (const char *op : {"Mod", "Neg", "Abs", "Sign", "Relu", "Clip"}) EXPECT_FALSE(left.contains(op)) << op;
}

// The remainder x - y trunc(x / y) has the sign of x. Its slope is 1 except at its jumps, and it has no jump at 0.
TEST(Canonical, TheSlopeOfARemainderIsOneAtZeroToo) {
  HandBuilt b;
  const ValueId x = b.parameter("x", {5});
  const ValueId y = b.add("Mod", {x, b.number(3)}, {{"fmod", std::int64_t{1}}});
  b.graph.outputs = {b.add("ReduceSum", {y}, {{"axes", Integers{0}}, {"keepdims", std::int64_t{0}}}), y};
  passes::fold(b.graph);
  const grad::Training training = grad::build(b.graph, b.graph.outputs[0]);
  const Array at = Array::from_doubles({DType::f64, {5}}, {-7, -1, 0, 1, 7.5});
  const auto values = ops::interpret(training.graph, {{x, at}});
  EXPECT_EQ(values[index(training.gradients.at(0))].doubles(), (std::vector<double>{1, 1, 1, 1, 1}));
  EXPECT_EQ(values[index(b.graph.outputs[1])].doubles(), (std::vector<double>{-1, -1, 0, 1, 1.5}));
}

TEST(Canonical, TestsOfFloatsNeedNoFloat64) {
  HandBuilt b;
  const ValueId wide = b.add("Cast", {b.input("x", {4}, DType::f32)}, {{"to", std::string("float64")}});
  b.graph.outputs = {b.add("IsInf", {wide}, {{"detect_negative", std::int64_t{0}}}), b.add("IsNaN", {wide})};
  const graph::Graph core = folded(b.graph);
  for (const graph::ValueId id : core.outputs) {
    const graph::Node &test = core.node(core.value(id).producer);
    EXPECT_EQ(test.inputs, core.inputs) << test.op;
    if (test.op == "IsInf") {
      EXPECT_EQ(test.attributes.integer("detect_negative", 1), 0);
    }
  }
}

TEST(Canonical, ScattersOfIntegersNeedConstantIndices) {
  for (const DType dtype : {DType::i64, DType::boolean}) {
    HandBuilt b;
    const ValueId data = b.constant(Array::filled({dtype, {2, 3}}, 1)), one = b.integers({1});
    const ValueId places = b.reshape(one, {1, 1}), update = b.constant(Array::filled({dtype, {1, 1}}, 0));
    const ValueId row = b.constant(Array::filled({dtype, {1, 3}}, 0));
    b.graph.outputs = {b.add("ScatterElements", {data, places, update}), b.add("ScatterND", {data, places, row})};
    EXPECT_EQ(folded(b.graph).node_count(), 0u);

    const ValueId input = b.input("x", {2, 3}, dtype), at = b.input("at", {1, 1}, DType::i64);
    b.graph.outputs = {b.add("ScatterElements", {input, at, update}),
                       b.add("ScatterElements", {input, places, update}, {{"reduction", std::string("add")}})};
    passes::FoldBudget budget(b.graph);
    const auto refusals = passes::fold(b.graph, budget);
    ASSERT_EQ(refusals.size(), 2u);
    for (const auto &[id, text] : refusals)
      EXPECT_NE(text.find("on the model's inputs or weights"), std::string::npos) << text;
  }
}

TEST(Canonical, LogSumExpOfInfinitiesIsInfinite) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  HandBuilt b;
  const ValueId x = b.input("x", {4, 2});
  b.graph.outputs = {b.add("ReduceLogSumExp", {x}, {{"axes", Integers{-1}}, {"keepdims", std::int64_t{0}}})};
  const graph::Graph core = folded(b.graph);
  const Array values = Array::from_doubles({DType::f64, {4, 2}}, {-kInf, -kInf, -kInf, 2, kInf, 1, 3, 3});
  const std::vector<double> found = ops::interpret(core, {{core.inputs[0], values}})[index(core.outputs[0])].doubles();
  EXPECT_EQ(found[0], -kInf);
  EXPECT_EQ(found[1], 2);
  EXPECT_EQ(found[2], kInf);
  EXPECT_NEAR(found[3], 3 + std::log(2.0), 1e-12);
}

TEST(Canonical, VariadicOperatorsBecomeChains) {
  for (const char *op : {"Max", "Min", "Sum", "Mean"}) {
    HandBuilt b;
    b.graph.outputs = {b.add(op, {b.input("x", {2, 3}), b.input("y", {3}), b.input("z", {2, 1})})};
    const graph::Graph chain = folded(b.graph);
    for (const graph::Node &node : chain.nodes()) EXPECT_LE(node.inputs.size(), 2u);
  }
}

TEST(Canonical, TileAndVectorProductsUseCoreOperators) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3});
  b.graph.outputs = {b.add("Tile", {x}, {{"repeats", Integers{2, 3}}})};
  EXPECT_EQ(histogram_of_folded(b.graph), (Histogram{{"Expand", 1}, {"Reshape", 2}}));
  HandBuilt vectors;
  vectors.graph.outputs = {vectors.add("MatMul", {vectors.input("a", {3}), vectors.input("b", {2, 3, 4})}),
                           vectors.add("MatMul", {vectors.input("c", {5, 3}), vectors.input("d", {3})})};
  folded(vectors.graph);
}

TEST(Canonical, NormalizationsGiveTheirStatistics) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 8}), scale = b.parameter("scale", {8});
  b.graph.outputs = {b.add_all("LayerNormalization", {x, scale}, {{"axis", std::int64_t{-1}}}, 1)[0],
                     b.add_all("RMSNormalization", {x, scale}, {{"axis", std::int64_t{-1}}}, 1)[0]};
  const Graph graph = folded(b.graph);
  EXPECT_EQ(only(graph, "LayerNormalization").outputs.size(), 3u);
  EXPECT_EQ(only(graph, "RMSNormalization").outputs.size(), 2u);
}

// Tests a file operator that has no reference arithmetic. Folds `file`, which uses the operator, and compares the
// results with those of `plain`, which computes the same without it.
Graph folded_like(const HandBuilt &file, const HandBuilt &plain) {
  Graph graph = file.graph;
  passes::fold(graph);
  graph::verify(graph);
  expect_same_results(plain.graph, graph);
  return graph;
}

TEST(Canonical, LossesOverPicturesBecomeCrossEntropyOverRows) {
  HandBuilt file, plain;
  for (HandBuilt *b : {&file, &plain}) {
    const ValueId scores = b->input("scores", {2, 4, 3, 5}), labels = b->input("labels", {2, 3, 5}, DType::i64);
    if (b == &file) {
      const Attributes attributes = {{"reduction", std::string("none")}};
      b->graph.outputs = {b->add_all("SoftmaxCrossEntropyLoss", {scores, labels}, attributes, 1)[0]};
      continue;
    }
    const ValueId logs = b->add("LogSoftmax", {scores}, {{"axis", std::int64_t{1}}});
    const ValueId picked =
        b->add("GatherElements", {logs, b->reshape(labels, {2, 1, 3, 5})}, {{"axis", std::int64_t{1}}});
    b->graph.outputs = {b->reshape(b->add("Neg", {picked}), {2, 3, 5})};
  }
  EXPECT_EQ(histogram(folded_like(file, plain)), (Histogram{{"CrossEntropy", 1}, {"Reshape", 3}, {"Transpose", 1}}));
}

TEST(Canonical, NegativeLogLikelihoodOfALogSoftmaxIsCrossEntropy) {
  HandBuilt file, plain;
  for (HandBuilt *b : {&file, &plain}) {
    const ValueId rows = b->input("scores", {6, 4}), labels = b->input("labels", {6}, DType::i64);
    const Attributes attributes = {{"reduction", std::string("mean")}, {"ignore_index", std::int64_t{2}}};
    const ValueId logs = b->add("LogSoftmax", {rows}, {{"axis", std::int64_t{1}}});
    b->graph.outputs = {b == &file ? b->add("NegativeLogLikelihoodLoss", {logs, labels}, attributes)
                                   : b->add_all("CrossEntropy", {logs, labels}, attributes, 2)[0]};
  }
  EXPECT_EQ(histogram(folded_like(file, plain)), (Histogram{{"CrossEntropy", 1}}));
}

// A way to move the classes of a tensor x of shape `shape`. The 4 classes lie along `axis` of x, and along axis 1 of
// moved(x). `labels` is the shape of the labels that go with moved(x).
struct Moves {
  const char *name;
  Shape shape;
  std::int64_t axis;
  ValueId (*moved)(HandBuilt &b, ValueId x);
  Shape labels;
};
const Moves kMovesOfClasses[] = {{"Reshape",
                                  {2, 5, 4},
                                  2,
                                  [](HandBuilt &b, ValueId x) {
                                    return b.reshape(x, {10, 4});
                                  },
                                  {10}},
                                 {"Transpose",
                                  {2, 5, 4},
                                  2,
                                  [](HandBuilt &b, ValueId x) {
                                    return b.transpose(x, {0, 2, 1});
                                  },
                                  {2, 5}},
                                 {"both",
                                  {4, 2, 5},
                                  0,
                                  [](HandBuilt &b, ValueId x) {
                                    return b.reshape(b.transpose(x, {1, 2, 0}), {10, 4});
                                  },
                                  {10}},
                                 {"Squeeze",
                                  {5, 4, 1},
                                  1,
                                  [](HandBuilt &b, ValueId x) {
                                    return b.add("Squeeze", {x}, {{"axes", Integers{2}}});
                                  },
                                  {5}},
                                 {"Slice",
                                  {2, 5, 4},
                                  2,
                                  [](HandBuilt &b, ValueId x) {
                                    return b.reshape(b.slice(x, 1, 0, 4), {8, 4});
                                  },
                                  {8}}};

TEST(Canonical, NegativeLogLikelihoodOfAMovedLogSoftmaxIsCrossEntropy) {
  for (const Moves &moves : kMovesOfClasses) {
    HandBuilt file, plain;
    for (HandBuilt *b : {&file, &plain}) {
      const ValueId scores = b->input("scores", moves.shape), labels = b->input("labels", moves.labels, DType::i64);
      const ValueId logs = moves.moved(*b, b->add("LogSoftmax", {scores}, {{"axis", moves.axis}}));
      const Attributes attributes = {{"reduction", std::string("mean")}, {"ignore_index", std::int64_t{2}}};
      if (b == &file) {
        b->graph.outputs = {b->add("NegativeLogLikelihoodLoss", {logs, labels}, attributes)};
        continue;
      }
      const std::int64_t count = element_count(moves.labels);
      const ValueId rows = moves.labels.size() == 1 ? logs : b->reshape(b->transpose(logs, {0, 2, 1}), {count, 4});
      b->graph.outputs = {b->add_all("CrossEntropy", {rows, b->reshape(labels, {count})}, attributes, 2)[0]};
    }
    const Histogram found = histogram(folded_like(file, plain));
    EXPECT_TRUE(found.contains("CrossEntropy") && !found.contains("LogSoftmax")) << moves.name;
  }
}

// In each case, a row of the loss's input does not hold each class of one LogSoftmax once, so the probabilities in the
// row do not sum to 1. Such a loss cannot become a CrossEntropy, and must pick numbers from the rows.
TEST(Canonical, NegativeLogLikelihoodOfPartsOfALogSoftmaxPicksFromThem) {
  const Moves parts[] = {{"other axis", {5, 4}, 0, [](HandBuilt &, ValueId x) { return x; }, {5}},
                         {"split",
                          {5, 8},
                          1,
                          [](HandBuilt &b, ValueId x) {
                            return b.reshape(x, {10, 4});
                          },
                          {10}},
                         {"some classes", {5, 6}, 1, [](HandBuilt &b, ValueId x) { return b.slice(x, 1, 0, 4); }, {5}},
                         {"Expand",
                          {5, 1},
                          1,
                          [](HandBuilt &b, ValueId x) {
                            return b.add("Expand", {x}, {{"shape", Shape{5, 4}}});
                          },
                          {5}}};
  for (const Moves &moves : parts) {
    HandBuilt file, plain;
    for (HandBuilt *b : {&file, &plain}) {
      const ValueId scores = b->input("scores", moves.shape), labels = b->input("labels", moves.labels, DType::i64);
      const ValueId logs = moves.moved(*b, b->add("LogSoftmax", {scores}, {{"axis", moves.axis}}));
      const Attributes none = {{"reduction", std::string("none")}};
      const std::int64_t count = moves.labels[0];
      const ValueId picked =
          b->add("GatherElements", {logs, b->reshape(labels, {count, 1})}, {{"axis", std::int64_t{1}}});
      b->graph.outputs = {b == &file ? b->add("NegativeLogLikelihoodLoss", {logs, labels}, none)
                                     : b->reshape(b->add("Neg", {picked}), {count})};
    }
    EXPECT_FALSE(histogram(folded_like(file, plain)).contains("CrossEntropy")) << moves.name;
  }
}

TEST(Canonical, ALossWithWeightsOfClassesIsAWeightedCrossEntropy) {
  for (const char *op : {"SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"}) {
    HandBuilt file, plain;
    for (HandBuilt *b : {&file, &plain}) {
      const ValueId rows = b->input("scores", {6, 4}), labels = b->input("labels", {6}, DType::i64);
      const ValueId weights = b->constant(Array::from_doubles({DType::f64, {4}}, {0.5, 1, 2, 3}));
      const Attributes attributes = {{"reduction", std::string("mean")}, {"ignore_index", std::int64_t{2}}};
      const ValueId logs = b->add("LogSoftmax", {rows}, {{"axis", std::int64_t{1}}});
      const bool takes_logs = std::string_view(op) == "NegativeLogLikelihoodLoss";
      b->graph.outputs = {b == &file ? b->add_all(op, {takes_logs ? logs : rows, labels, weights}, attributes, 1)[0]
                                     : b->add_all("CrossEntropy", {rows, labels, b->add("Gather", {weights, labels})},
                                                  attributes, 2)[0]};
    }
    const Graph graph = folded_like(file, plain);
    EXPECT_EQ(only(graph, "CrossEntropy").inputs.size(), 3u) << op;
    EXPECT_EQ(histogram(graph)["GatherElements"], 0) << op;
  }
}

TEST(Canonical, AttentionOfThreeAndFourAxes) {
  for (bool packed : {false, true})
    for (std::int64_t causal : {0, 1}) {
      HandBuilt file, plain;
      for (HandBuilt *b : {&file, &plain}) {
        const ValueId q = b->input("q", packed ? Shape{2, 5, 16} : Shape{2, 4, 5, 4});
        const ValueId k = b->input("k", packed ? Shape{2, 6, 8} : Shape{2, 2, 6, 4});
        const ValueId v = b->input("v", packed ? Shape{2, 6, 8} : Shape{2, 2, 6, 4}), mask = b->input("mask", {5, 6});
        const Attributes attributes = {
            {"q_num_heads", std::int64_t{4}}, {"kv_num_heads", std::int64_t{2}}, {"is_causal", causal}};
        if (b == &file) {
          b->graph.outputs = {b->add_all("Attention", {q, k, v, mask}, attributes, 1)[0]};
          continue;
        }
        const auto heads = [&](ValueId x, std::int64_t count, std::int64_t length) {
          const ValueId split = packed ? b->transpose(b->reshape(x, {2, length, count, 4}), {0, 2, 1, 3}) : x;
          const Integers apart = {2, count, 1, length, 4}, wide = {2, count, 4 / count, length, 4};
          return b->reshape(b->add("Expand", {b->reshape(split, apart)}, {{"shape", wide}}), {2, 4, length, 4});
        };
        const ValueId product = b->add("MatMul", {heads(q, 4, 5), b->transpose(heads(k, 2, 6), {0, 1, 3, 2})});
        ValueId scores = b->add("Add", {b->add("Mul", {product, b->number(0.5)}), mask});
        if (causal != 0) {
          std::vector<double> hidden;
          for (int i = 0; i < 30; ++i) hidden.push_back(i % 6 > i / 6 ? -1e300 : 0);
          scores = b->add("Add", {scores, b->constant(Array::from_doubles({DType::f64, {5, 6}}, hidden))});
        }
        const ValueId out =
            b->add("MatMul", {b->add("Softmax", {scores}, {{"axis", std::int64_t{3}}}), heads(v, 2, 6)});
        b->graph.outputs = {packed ? b->reshape(b->transpose(out, {0, 2, 1, 3}), {2, 5, 16}) : out};
      }
      EXPECT_EQ(histogram(folded_like(file, plain)).at("FusedAttention"), 1);
    }
}

TEST(Canonical, AttentionWithALearnedMaskMayBeCausal) {
  HandBuilt file, plain;
  for (HandBuilt *b : {&file, &plain}) {
    const Attributes causal = {{"is_causal", std::int64_t{b == &file}}};
    const ValueId q = b->input("q", {2, 2, 3, 4}), k = b->input("k", {2, 2, 3, 4}), v = b->input("v", {2, 2, 3, 4});
    ValueId mask = b->parameter("mask", {2, 3, 3});
    if (b == &plain) {
      std::vector<double> hidden;
      for (int i = 0; i < 9; ++i) hidden.push_back(i % 3 > i / 3 ? -1e300 : 0);
      mask = b->add("Add", {mask, b->constant(Array::from_doubles({DType::f64, {3, 3}}, hidden))});
    }
    b->graph.outputs = {b->add_all("Attention", {q, k, v, mask}, causal, 1)[0]};
    if (b == &plain) passes::fold(b->graph);
  }
  EXPECT_FALSE(histogram(folded_like(file, plain)).contains("FusedAttention"));  // it has no gradient to its mask
}

TEST(Canonical, BatchNormalizationWithoutRunningStatisticsIsWrittenOut) {
  HandBuilt file, plain;
  for (HandBuilt *b : {&file, &plain}) {
    const ValueId x = b->reshape(b->initializer("weight", {6, 2, 2}), {1, 6, 4});
    const ValueId scale = b->initializer("scale", {6}), bias = b->initializer("bias", {6});
    const Attributes along = {{"axes", Integers{0, 2}}, {"keepdims", std::int64_t{0}}};
    const ValueId mean = b->add("ReduceMean", {x}, along);
    const ValueId centred = b->add("Sub", {x, b->reshape(mean, {6, 1})});
    const ValueId variance = b->add("ReduceMean", {b->add("Mul", {centred, centred})}, along);
    if (b == &file) {
      b->graph.outputs = {b->add_all("BatchNormalization", {x, scale, bias, mean, variance},
                                     {{"training_mode", std::int64_t{1}}, {"epsilon", 1e-3}}, 3)[0]};
      continue;
    }
    const ValueId deviation = b->add("Sqrt", {b->add("Add", {variance, b->number(1e-3)})});
    const ValueId normal = b->add("Div", {centred, b->reshape(deviation, {6, 1})});
    b->graph.outputs = {b->add("Add", {b->add("Mul", {normal, b->reshape(scale, {6, 1})}), b->reshape(bias, {6, 1})})};
  }
  EXPECT_FALSE(histogram(folded_like(file, plain)).contains("BatchNorm"));
}

TEST(Canonical, BatchNormalizationKeepsRunningStatisticsThatDoNotComeFromItsInput) {
  HandBuilt b;
  const ValueId mean = b.add("Identity", {b.initializer("mean", {6})}), variance = b.add("Exp", {mean});
  b.graph.outputs = {
      b.add_all("BatchNormalization",
                {b.input("x", {3, 6}), b.initializer("scale", {6}), b.initializer("bias", {6}), mean, variance},
                {{"training_mode", std::int64_t{1}}}, 3)[0]};
  passes::fold(b.graph);
  EXPECT_TRUE(histogram(b.graph).contains("BatchNorm"));
}

// The constants that rules write take their bytes from the budget. Nodes that need equal constants share one constant.
TEST(Canonical, ConstantsOfRulesCountInTheBudget) {
  const Attributes step = {{"frame_step", Integers{2}}, {"frame_length", Integers{4}}, {"onesided", std::int64_t{0}}};
  const auto nodes_on = [&](HandBuilt &b, ValueId x) {  // x (8, 8, 2)
    const ValueId none = ValueId::none, sizes = b.integers({8, 16, 2});
    return std::vector<ValueId>{b.add("LRN", {x}, {{"size", std::int64_t{3}}}),
                                b.add("DFT", {x}, {{"axis", std::int64_t{1}}}), b.add("STFT", {x}, step),
                                b.add("Resize", {x, none, none, sizes}, {{"mode", std::string("linear")}}),
                                b.add("Einsum", {x}, {{"equation", std::string("iij->ij")}})};
  };
  for (std::size_t rule = 0; rule < 5; ++rule) {
    HandBuilt b;
    const ValueId x = b.input("x", {8, 8, 2}), y = b.input("y", {8, 8, 2});
    const ValueId first = nodes_on(b, x)[rule], second = nodes_on(b, y)[rule];
    SCOPED_TRACE(b.graph.node(b.graph.value(first).producer).op);
    const auto taken = [&](const std::vector<ValueId> &outputs) {
      Graph graph = b.graph;
      graph.outputs = outputs;
      passes::FoldBudget budget(graph);
      const std::uint64_t bytes = budget.bytes;
      passes::fold(graph, budget);
      return bytes - budget.bytes;
    };
    EXPECT_GE(taken({first}), 64u);
    EXPECT_EQ(taken({first, second}), taken({first}));
    b.graph.outputs = {first};
    passes::FoldBudget poor(b.graph);
    poor.bytes = 8;
    EXPECT_EQ(error_of([&] { passes::fold(b.graph, poor); }).code, Code::limit);
  }
}

TEST(Canonical, AnInfinityBesideADiagonalIsNotInIt) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 2});
  b.graph.outputs = {b.add("Einsum", {x}, {{"equation", std::string("ii->i")}})};
  passes::fold(b.graph);
  const Array values = Array::from_doubles({DType::f64, {2, 2}}, {1, -HUGE_VAL, 2, 3});
  EXPECT_EQ(ops::interpret(b.graph, {{x, values}}).at(index(b.graph.outputs[0])).doubles(),
            (std::vector<double>{1, 3}));
}

TEST(Canonical, ASplitWithoutALaterPartStillHasItsSizes) {
  HandBuilt b;
  const ValueId x = b.input("x", {5});
  b.graph.outputs = {b.add("Split", {x}, {{"axis", std::int64_t{0}}, {"split", Integers{2, 3}}})};
  passes::fold(b.graph);
  EXPECT_EQ(b.graph.value(b.graph.outputs[0]).type.shape, (Shape{2}));
}

TEST(Canonical, RotaryEmbeddingPicksItsPositions) {
  HandBuilt file, plain;
  for (HandBuilt *b : {&file, &plain}) {
    const ValueId x = b->input("x", {2, 3, 5, 8});  // (B, H, S, D)
    ValueId cos = b->input("cos", {9, 4}), sin = b->input("sin", {9, 4});
    const ValueId positions = b->constant(Array::from_integers({DType::i64, {2, 5}}, {0, 1, 2, 3, 4, 4, 5, 6, 7, 8}));
    if (b == &file) {
      b->graph.outputs = {b->add("RotaryEmbedding", {x, cos, sin, positions}, {{"interleaved", std::int64_t{1}}})};
      continue;
    }
    const auto picked = [&](ValueId table) {
      return b->reshape(b->add("Gather", {table, positions}, {{"axis", std::int64_t{0}}}), {2, 1, 5, 4, 1});
    };
    cos = picked(cos);
    sin = picked(sin);
    const ValueId pairs = b->reshape(x, {2, 3, 5, 4, 2});
    const ValueId even = b->slice(pairs, 4, 0, 1), odd = b->slice(pairs, 4, 1, 2);
    const ValueId first = b->add("Sub", {b->add("Mul", {even, cos}), b->add("Mul", {odd, sin})});
    const ValueId second = b->add("Add", {b->add("Mul", {odd, cos}), b->add("Mul", {even, sin})});
    b->graph.outputs = {b->reshape(b->add("Concat", {first, second}, {{"axis", std::int64_t{4}}}), {2, 3, 5, 8})};
  }
  EXPECT_EQ(histogram(folded_like(file, plain)), (Histogram{{"Gather", 2}, {"Rotary", 1}, {"Transpose", 2}}));
}

}  // namespace protrain::test::fold_test
