// Operators of the domains com.microsoft and ai.onnx.ml become core operators, as if the file had the standard
// operators. An operator that cannot be converted gives one clear error.
#include <gtest/gtest.h>

#include "base/error.h"
#include "errors.h"
#include "passes/canonical/fold_budget.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::contrib_test {

namespace {

constexpr ValueId kNone = ValueId::none;

// Adds a node as a file has it: its results have no types yet.
std::vector<ValueId> file_node(HandBuilt &b, const std::string &op, std::vector<ValueId> inputs, Attributes attributes,
                               std::vector<std::string> outputs = {"y"}) {
  const std::string domain = op.find("::") == std::string::npos ? "com.microsoft::" : "";
  graph::Node node{.op = domain + op, .name = "/n", .attributes = std::move(attributes), .inputs = {}, .outputs = {}};
  node.inputs = std::move(inputs);
  return b.graph.node(b.graph.add_node(node, outputs)).outputs;
}

void prepare(Graph &graph) {
  for (int round = 0; round < 3; ++round) {
    passes::fold(graph);
    passes::clean_up(graph);
    passes::fuse(graph);
  }
  graph::verify(graph);
}

}  // namespace

TEST(Contrib, LayersBecomeFusedOperators) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4, 6});
  const ValueId y = file_node(b, "Attention", {x, b.initializer("w", {6, 18}), b.initializer("b", {18})},
                              {{"num_heads", std::int64_t{2}}, {"unidirectional", std::int64_t{1}}})[0];
  const std::vector<ValueId> normal = file_node(
      b, "SkipLayerNormalization", {y, x, b.initializer("s", {6}), b.initializer("t", {6})}, {}, {"z", "", "", "sum"});
  const ValueId wide = b.graph
                           .node(b.graph.add_node({.op = "MatMul",
                                                   .name = "/m",
                                                   .attributes = {},
                                                   .inputs = {normal[0], b.initializer("u", {6, 8})},
                                                   .outputs = {}},
                                                  {"wide"}))
                           .outputs[0];
  b.graph.outputs = {file_node(b, "BiasGelu", {wide, b.initializer("c", {8})}, {})[0], normal[3]};
  prepare(b.graph);
  const std::map<std::string, int> expected = {
      {"Add", 1},    {"FusedAttention", 1}, {"Gelu", 1}, {"LayerNormalization", 1},
      {"MatMul", 2}, {"Reshape", 4},        {"Split", 1}};
  EXPECT_EQ(histogram(b.graph), expected) << b.graph.print();
  EXPECT_EQ(only(b.graph, "FusedAttention").attributes.integer("causal", 0), 1);
  EXPECT_EQ(only(b.graph, "FusedAttention").inputs.size(), 3u);
}

TEST(Contrib, ALocalWindowNeedsNoMask) {
  HandBuilt b;
  const ValueId q = b.input("q", {2, 5, 32}), k = b.input("k", {2, 5, 16}), v = b.input("v", {2, 5, 16});
  b.graph.outputs = {file_node(
      b, "GroupQueryAttention", {q, k, v, kNone, kNone, b.input("lengths", {2}, DType::i32), b.number(5, DType::i32)},
      {{"num_heads", std::int64_t{4}}, {"kv_num_heads", std::int64_t{2}}, {"local_window_size", std::int64_t{2}}})[0]};
  prepare(b.graph);
  const graph::Node &attention = only(b.graph, "FusedAttention");
  EXPECT_EQ(attention.inputs.size(), 3u) << b.graph.print();
  EXPECT_EQ(attention.attributes.integer("window", 0), 2);
}

// RelativePositionBias adds a learned bias to the scores. FusedAttention has no gradient to its bias, so this attention
// must become single operators.
TEST(Contrib, ALearnedBiasByDistanceHasAGradient) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4, 6});
  const ValueId bias = file_node(b, "RelativePositionBias",
                                 {b.initializer("table", {8, 2}), b.number(4, DType::i64), b.number(4, DType::i64)},
                                 {{"max_distance", std::int64_t{16}}})[0];
  b.graph.outputs = {
      file_node(b, "MultiHeadAttention", {x, x, x, kNone, kNone, bias}, {{"num_heads", std::int64_t{2}}})[0]};
  prepare(b.graph);
  EXPECT_EQ(histogram(b.graph).count("FusedAttention"), 0u);
  EXPECT_EQ(histogram(b.graph)["Softmax"], 1);
}

// scikit-learn's StandardScaler before a network. Its numbers are attributes in the file, so they become constants and
// not parameters.
TEST(Contrib, AScalerSubtractsOffsetsAndMultipliesByScales) {
  HandBuilt b;
  b.graph.outputs = {file_node(b, "ai.onnx.ml::Scaler", {b.input("x", {2, 3}, DType::f32)},
                               {{"offset", std::vector<double>{1, 2, 3}}, {"scale", std::vector<double>{0.5}}})[0]};
  prepare(b.graph);
  const std::map<std::string, int> expected = {{"Mul", 1}, {"Sub", 1}};
  EXPECT_EQ(histogram(b.graph), expected) << b.graph.print();
  const auto numbers = [&](const char *op) { return b.graph.value(only(b.graph, op).inputs.at(1)).array.doubles(); };
  EXPECT_EQ(numbers("Sub"), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(numbers("Mul"), std::vector<double>{0.5});
}

TEST(Contrib, WhatElseScikitLearnLeadsToIsRefusedWithAWayOut) {
  const std::map<std::string, std::string> ways = {
      {"ZipMap", "zipmap"}, {"ArrayFeatureExtractor", "zipmap"}, {"LinearClassifier", "a model with MatMul and Add"}};
  for (const auto &[op, way] : ways) {
    HandBuilt b;
    b.graph.outputs = {file_node(b, "ai.onnx.ml::" + op, {b.input("x", {2, 3}, DType::f32)}, {})[0]};
    const Error error = error_of([&] { passes::prepare(b.graph, [](const std::string &) { return Array(); }, {}); });
    EXPECT_NE(error.text.find(way), std::string::npos) << error.text;
  }
}

namespace {

struct Malformed {
  const char *name, *op;
  std::vector<Shape> inputs;  // {-1}: absent
  Attributes attributes;
  Code code;
  const char *text;
};

Graph graph_of(const Malformed &one) {
  HandBuilt b;
  std::vector<ValueId> inputs;
  for (const Shape &shape : one.inputs)
    inputs.push_back(shape == Shape{-1} ? kNone : b.input("x" + std::to_string(inputs.size()), shape));
  b.graph.outputs = {file_node(b, one.op, inputs, one.attributes)[0]};
  return b.graph;
}

const Attributes kTwoHeads = {{"num_heads", std::int64_t{2}}};
const Attributes kGroups = {{"num_heads", std::int64_t{4}}, {"kv_num_heads", std::int64_t{2}}};

const std::vector<Malformed> kMalformed = {
    {"GeluBias", "BiasGelu", {{2, 6}, {5}}, {}, Code::shape, "a bias of [5] for rows of [2, 6]"},
    {"SplitOdd", "BiasSplitGelu", {{2, 5}, {5}}, {}, Code::shape, "cannot be split in halves"},
    {"GemmActivation",
     "FusedGemm",
     {{2, 3}, {3, 4}},
     {{"activation", std::string("Wave")}},
     Code::unsupported,
     "the activation \"Wave\" is unknown"},
    {"ConvParameters",
     "FusedConv",
     {{1, 2, 4, 4}, {3, 2, 1, 1}},
     {{"activation", std::string("Clip")}},
     Code::graph,
     "0 parameters for Clip; expected 2"},
    {"ConvSum", "FusedConv", {{1, 2, 4, 4}, {3, 2, 1, 1}, {3}, {1, 3, 1, 1}}, {}, Code::shape, "to a result of"},
    {"MatMulScalar", "FusedMatMul", {{}, {3}}, {}, Code::shape, "operand 0 is a scalar"},
    {"SkipShape", "SkipLayerNormalization", {{2, 1, 6}, {2, 4, 6}, {6}}, {}, Code::shape, "give a sum of"},
    {"SkipMissing", "SkipLayerNormalization", {{2, 4, 6}, {2, 4, 6}}, {}, Code::graph, "lacks required inputs"},
    {"EmbedSegments",
     "EmbedLayerNormalization",
     {{2, 4}, {2, 4}, {9, 6}, {4, 6}, {-1}, {6}, {6}},
     {},
     Code::graph,
     "segment ids and a table of segments go together"},
    {"AttentionHeads", "Attention", {{2, 4, 6}, {6, 18}}, {}, Code::graph, "num_heads is 0"},
    {"AttentionWidths", "Attention", {{2, 4, 6}, {6, 20}}, kTwoHeads, Code::shape, "20 columns of weights"},
    {"AttentionPast",
     "Attention",
     {{2, 4, 6}, {6, 18}, {18}, {-1}, {2, 2, 2, 1, 3}},
     kTwoHeads,
     Code::unsupported,
     "a cache of earlier tokens"},
    {"AttentionMask",
     "Attention",
     {{2, 4, 6}, {6, 18}, {18}, {8}},
     kTwoHeads,
     Code::unsupported,
     "a mask of [8] is not supported"},
    {"HeadsPacked", "MultiHeadAttention", {{2, 4, 18}}, kTwoHeads, Code::shape, "is not (batch, sequence, heads"},
    {"HeadsBias",
     "MultiHeadAttention",
     {{2, 4, 6}, {2, 4, 6}, {2, 4, 6}, {6}},
     kTwoHeads,
     Code::shape,
     "a bias of [6] for queries"},
    {"HeadsPast",
     "MultiHeadAttention",
     {{2, 4, 6}, {2, 4, 6}, {2, 4, 6}, {-1}, {-1}, {-1}, {2, 2, 3, 3}},
     kTwoHeads,
     Code::graph,
     "go together"},
    {"GroupsPast",
     "GroupQueryAttention",
     {{2, 4, 8}, {2, 4, 4}, {2, 4, 4}, {2, 2, 3, 2}, {2, 2, 3, 2}, {2}, {}},
     kGroups,
     Code::unsupported,
     "a cache of earlier tokens"},
    {"GroupsPacked",
     "GroupQueryAttention",
     {{2, 4, 9}, {-1}, {-1}, {-1}, {-1}, {2}, {}},
     kGroups,
     Code::shape,
     "9 features do not split"},
    {"RotaryTable", "RotaryEmbedding", {{2, 4, 6}, {2, 4}, {8}, {8}}, {}, Code::shape, "with tables of [8]"},
    {"ScalerNumbers",
     "ai.onnx.ml::Scaler",
     {{2, 3}},
     {{"offset", std::vector<double>{1, 2}}, {"scale", std::vector<double>{1}}},
     Code::graph,
     "offset has 2 numbers; expected 1, or one for each of 3 features"},
    {"ScalerAxes", "ai.onnx.ml::Scaler", {{2, 3, 4}}, {}, Code::shape, "expected one or two axes"},
    {"BiasLengths", "RelativePositionBias", {{8, 2}, {}, {}}, {}, Code::unsupported, "depend on data"},
};

class MalformedContrib : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedContrib, IsOneClearError) {
  Graph graph = graph_of(GetParam());
  const std::string text = GetParam().text;
  if (GetParam().code == Code::unsupported) {  // prepare() reports all of these together
    passes::FoldBudget budget(graph);
    const auto refusals = passes::fold(graph, budget);
    ASSERT_EQ(refusals.size(), 1u);
    EXPECT_NE(refusals.begin()->second.find(text), std::string::npos) << refusals.begin()->second;
    return;
  }
  try {
    passes::fold(graph);
    FAIL() << "no error";
  } catch (const Error &error) {
    EXPECT_EQ(error.code, GetParam().code) << error.text;
    EXPECT_NE(error.text.find(text), std::string::npos) << error.text;
    EXPECT_EQ(error.subject, "/n");
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, MalformedContrib, testing::ValuesIn(kMalformed),
                         [](const auto &info) { return std::string(info.param.name); });

}  // namespace
}  // namespace protrain::test::contrib_test
