// Each fusion must replace its pattern by the fused operator without changing results. Graphs that almost have the
// pattern must stay as they are.
#include <gtest/gtest.h>

#include "grad/training.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::fuse_test {

namespace {

using Histogram = std::map<std::string, int>;

// Fuses as prepare() does. The results must not change.
Graph fused(const Graph &before) {
  Graph graph = before;
  passes::clean_up(graph);
  for (int i = 0; i < 4 && passes::fuse(graph); ++i) {
    passes::fold(graph);
    passes::clean_up(graph);
  }
  graph::verify(graph);
  expect_same_results(before, graph);
  return graph;
}

Attributes over_last(std::int64_t rank) { return {{"axes", Integers{rank - 1}}, {"keepdims", std::int64_t{1}}}; }

struct NormForm {
  bool square_by_product = false, divide = false, scale_first = false, bias = true;
};

Graph layer_norm(NormForm form) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 8}), scale = b.parameter("scale", {8}), bias = b.parameter("bias", {8});
  const ValueId d = b.add("Sub", {x, b.add("ReduceMean", {x}, over_last(3))});
  const ValueId square = form.square_by_product ? b.add("Mul", {d, d}) : b.add("Pow", {d, b.number(2)});
  const ValueId variance = b.add("Add", {b.add("ReduceMean", {square}, over_last(3)), b.number(1e-5)});
  const ValueId root = b.add("Sqrt", {variance});
  const ValueId unit = form.divide ? b.add("Div", {d, root}) : b.add("Mul", {d, b.add("Reciprocal", {root})});
  const ValueId scaled = form.scale_first ? b.add("Mul", {scale, unit}) : b.add("Mul", {unit, scale});
  b.graph.outputs = {form.bias ? b.add("Add", {scaled, bias}) : scaled};
  return b.graph;
}

Graph rms_norm(const std::string &form) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 8}), scale = b.parameter("scale", {8});
  const ValueId square = form == "product" ? b.add("Mul", {x, x}) : b.add("Pow", {x, b.number(2)});
  const ValueId mean = b.add("Add", {b.number(1e-6), b.add("ReduceMean", {square}, over_last(3))});
  ValueId unit;
  if (form == "power")
    unit = b.add("Mul", {x, b.add("Pow", {mean, b.number(-0.5)})});
  else if (form == "one_over")
    unit = b.add("Mul", {x, b.add("Div", {b.number(1), b.add("Sqrt", {mean})})});
  else
    unit = b.add("Div", {x, b.add("Sqrt", {mean})});
  const ValueId factor = form == "one_plus" ? b.add("Add", {b.number(1), scale}) : scale;
  b.graph.outputs = {form == "product" ? b.add("Mul", {factor, unit}) : b.add("Mul", {unit, factor})};
  return b.graph;
}

}  // namespace

TEST(FuseNormalization, FindsLayerNormalizationInEveryForm) {
  for (bool product : {false, true})
    for (bool divide : {false, true})
      for (bool first : {false, true})
        for (bool bias : {false, true}) {
          const Graph graph = fused(layer_norm({product, divide, first, bias}));
          EXPECT_EQ(histogram(graph), (Histogram{{"LayerNormalization", 1}})) << graph.print();
          EXPECT_EQ(only(graph, "LayerNormalization").inputs.size(), bias ? 3u : 2u);
          EXPECT_DOUBLE_EQ(only(graph, "LayerNormalization").attributes.real("epsilon", 0), 1e-5);
        }
}

TEST(FuseNormalization, FindsRmsNormalizationInEveryForm) {
  for (const char *form : {"product", "power", "one_over", "divide"}) {
    const Graph graph = fused(rms_norm(form));
    EXPECT_EQ(histogram(graph), (Histogram{{"RMSNormalization", 1}})) << graph.print();
  }
  EXPECT_EQ(histogram(fused(rms_norm("one_plus"))), (Histogram{{"Add", 1}, {"RMSNormalization", 1}}));
}

TEST(FuseNormalization, LeavesAMeanOverAnotherAxis) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 8, 8}), scale = b.parameter("scale", {8});
  const ValueId mean = b.add("ReduceMean", {b.add("Pow", {x, b.number(2)})}, over_last(2));
  const ValueId root = b.add("Sqrt", {b.add("Add", {mean, b.number(1e-6)})});
  b.graph.outputs = {b.add("Mul", {b.add("Div", {x, root}), scale})};
  EXPECT_FALSE(histogram(fused(b.graph)).contains("RMSNormalization"));
}

TEST(FuseNormalization, LeavesAVarianceThatOthersRead) {
  Graph graph = rms_norm("divide");
  graph.outputs.push_back(graph.node(static_cast<graph::NodeId>(1)).outputs[0]);
  EXPECT_FALSE(histogram(fused(graph)).contains("RMSNormalization"));
}

TEST(FuseGelu, FindsTheErrorFunctionInItsUsualOrders) {
  for (int form = 0; form < 4; ++form) {
    HandBuilt b;
    const ValueId x = b.input("x", {3, 5});
    const ValueId inner =
        form == 0 ? b.add("Div", {x, b.number(1.4142135623730951)}) : b.add("Mul", {x, b.number(0.7071067811865476)});
    const ValueId u = b.add("Add", {b.add("Erf", {inner}), b.number(1)});
    ValueId y = ValueId::none;
    if (form == 0) y = b.add("Mul", {b.add("Mul", {x, u}), b.number(0.5)});
    if (form == 1) y = b.add("Mul", {b.add("Mul", {x, b.number(0.5)}), u});
    if (form == 2) y = b.add("Mul", {x, b.add("Mul", {b.number(0.5), u})});
    if (form == 3) y = b.add("Div", {b.add("Mul", {u, x}), b.number(2)});
    b.graph.outputs = {y};
    const Graph graph = fused(b.graph);
    EXPECT_EQ(histogram(graph), (Histogram{{"Gelu", 1}})) << form << graph.print();
    EXPECT_EQ(only(graph, "Gelu").attributes.text("approximate", ""), "none");
  }
}

TEST(FuseGelu, FindsTheTanhFormInItsUsualOrders) {
  const double slope = 0.7978845608028654;
  for (int form = 0; form < 4; ++form) {
    HandBuilt b;
    const ValueId x = b.input("x", {3, 5});
    const ValueId cube = form % 2 == 0 ? b.add("Pow", {x, b.number(3)}) : b.add("Mul", {b.add("Mul", {x, x}), x});
    ValueId inner = b.add("Mul", {b.number(slope), b.add("Add", {x, b.add("Mul", {cube, b.number(0.044715)})})});
    if (form == 2) {
      const ValueId even = b.add("Add", {b.number(1), b.add("Mul", {b.number(0.044715), b.add("Mul", {x, x})})});
      inner = b.add("Mul", {b.add("Mul", {x, b.number(slope)}), even});
    }
    const ValueId u = b.add("Add", {b.number(1), b.add("Tanh", {inner})});
    const ValueId half = b.number(0.5);
    b.graph.outputs = {form == 3 ? b.add("Mul", {half, b.add("Mul", {x, u})})
                                 : b.add("Mul", {b.add("Mul", {x, half}), u})};
    const Graph graph = fused(b.graph);
    EXPECT_EQ(histogram(graph), (Histogram{{"Gelu", 1}})) << form << graph.print();
    EXPECT_EQ(only(graph, "Gelu").attributes.text("approximate", ""), "tanh");
  }
}

TEST(FuseGelu, LeavesOtherConstants) {
  HandBuilt b;
  const ValueId x = b.input("x", {3, 5});
  const ValueId u = b.add("Add", {b.add("Erf", {b.add("Mul", {x, b.number(0.7075)})}), b.number(1)});
  b.graph.outputs = {b.add("Mul", {b.add("Mul", {x, u}), b.number(0.5)})};
  EXPECT_FALSE(histogram(fused(b.graph)).contains("Gelu"));
}

TEST(FuseSilu, FindsItAndLeavesAGateThatOthersRead) {
  HandBuilt b;
  const ValueId x = b.input("x", {3, 5});
  const ValueId gate = b.add("Sigmoid", {x});
  b.graph.outputs = {b.add("Mul", {x, gate})};
  EXPECT_EQ(histogram(fused(b.graph)), (Histogram{{"Silu", 1}}));
  b.graph.outputs.push_back(gate);
  EXPECT_EQ(histogram(fused(b.graph)), (Histogram{{"Mul", 1}, {"Sigmoid", 1}}));
}

namespace {

struct LogSigmoids {
  HandBuilt b;
  ValueId x, sigmoid, logs, loss;
};

// A graph that computes the sum of log(sigmoid(x)) and log(1 - sigmoid(x)), as the binary cross entropy in exports.
LogSigmoids log_sigmoids(const Array &one, DType dtype, Shape shape) {
  LogSigmoids g;
  g.x = g.b.parameter("x", std::move(shape));
  g.b.graph.value(g.x).type.dtype = dtype;
  g.sigmoid = g.b.add("Sigmoid", {g.x});
  const ValueId rest = g.b.add("Sub", {g.b.constant(one), g.sigmoid});
  g.logs = g.b.add("Add", {g.b.add("Log", {g.sigmoid}), g.b.add("Log", {rest})});
  g.loss = g.b.add("ReduceSum", {g.logs}, {{"keepdims", std::int64_t{0}}});
  g.b.graph.outputs = {g.loss};
  return g;
}

}  // namespace

TEST(FuseLogSigmoid, LeavesNoLogarithmOfAProbability) {
  const Histogram wanted = {{"Add", 1}, {"Neg", 3}, {"ReduceSum", 1}, {"Softplus", 2}};
  for (const Array &one : {Array::scalar(DType::f64, 1), Array::filled({DType::f64, {5}}, 1),
                           Array::from_doubles({DType::f64, {1, 1}}, {1})})
    EXPECT_EQ(histogram(fused(log_sigmoids(one, DType::f64, {3, 5}).b.graph)), wanted);
}

TEST(FuseLogSigmoid, AllowsOtherReadersOfTheProbability) {
  LogSigmoids g = log_sigmoids(Array::scalar(DType::f64, 1), DType::f64, {3, 5});
  g.b.graph.outputs.push_back(g.sigmoid);
  const Histogram found = histogram(fused(g.b.graph));
  EXPECT_EQ(found.at("Sigmoid"), 1);
  EXPECT_FALSE(found.contains("Log"));
}

TEST(FuseLogSigmoid, LeavesOtherSums) {
  const LogSigmoids two = log_sigmoids(Array::scalar(DType::f64, 2), DType::f64, {3, 5});
  EXPECT_EQ(histogram(fused(two.b.graph)).at("Log"), 1);
  const LogSigmoids wider = log_sigmoids(Array::filled({DType::f64, {3, 1}}, 1), DType::f64, {1, 5});
  EXPECT_EQ(histogram(fused(wider.b.graph)).at("Log"), 1);
}

TEST(FuseLogSigmoid, IsFiniteAndExactAtLargeLogitsInFloat32) {
  const std::vector<double> logits = {-10000, -100, -17, 0, 17, 100, 10000};
  const Shape shape = {static_cast<std::int64_t>(logits.size())};
  const LogSigmoids g = log_sigmoids(Array::scalar(DType::f32, 1), DType::f32, shape);
  Graph graph = g.b.graph;
  ASSERT_TRUE(passes::fuse(graph));
  const grad::Training training = grad::build(graph, g.loss);
  const auto values = ops::interpret(training.graph, {{g.x, Array::from_doubles({DType::f32, shape}, logits)}});
  const std::vector<double> found = values[index(g.logs)].doubles();
  const std::vector<double> slopes = values[index(training.gradients.at(0))].doubles();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double x = logits[i];
    const double wanted = -std::abs(x) - 2 * std::log1p(std::exp(-std::abs(x)));
    EXPECT_NEAR(found[i], wanted, 1e-6 * std::max(1.0, std::abs(wanted))) << x;
    EXPECT_NEAR(slopes[i], -std::tanh(x / 2), 1e-6) << x;  // 1 - 2 sigmoid(x)
  }
}

namespace {

// A graph that computes op(g) * u, or u * op(g).
Graph gated(const std::string &op, Attributes attributes, bool activation_first) {
  HandBuilt b;
  const ValueId g = b.input("g", {3, 5}), u = b.input("u", {3, 5}), f = b.add(op, {g}, std::move(attributes));
  b.graph.outputs = {activation_first ? b.add("Mul", {f, u}) : b.add("Mul", {u, f})};
  return b.graph;
}

}  // namespace

TEST(FuseGated, FindsEveryActivationInEitherOrder) {
  for (const char *op : {"Silu", "Gelu", "Sigmoid", "Relu", "Tanh"})
    for (bool first : {true, false}) {
      const Graph graph = fused(gated(op, {}, first));
      ASSERT_EQ(histogram(graph), (Histogram{{"Gated", 1}})) << graph.print();
      EXPECT_EQ(only(graph, "Gated").attributes.text("activation", ""), op);
      EXPECT_EQ(graph.value(only(graph, "Gated").inputs[0]).name, "g");
    }
}

TEST(FuseGated, KeepsTheFormOfGelu) {
  const Graph graph = fused(gated("Gelu", {{"approximate", std::string("tanh")}}, true));
  EXPECT_EQ(only(graph, "Gated").attributes.text("approximate", ""), "tanh");
}

TEST(FuseGated, FindsActivationsThatAreWrittenOut) {
  HandBuilt b;
  const ValueId g = b.input("g", {3, 5}), u = b.input("u", {3, 5});
  const ValueId silu = b.add("Mul", {g, b.add("Sigmoid", {g})});
  const ValueId erf = b.add("Erf", {b.add("Mul", {g, b.number(0.7071067811865476)})});
  const ValueId gelu = b.add("Mul", {b.add("Mul", {g, b.number(0.5)}), b.add("Add", {erf, b.number(1)})});
  b.graph.outputs = {b.add("Mul", {silu, u}), b.add("Mul", {u, gelu})};
  const Graph graph = fused(b.graph);
  EXPECT_EQ(histogram(graph), (Histogram{{"Gated", 2}})) << graph.print();
}

TEST(FuseGated, TakesWhatGatesItself) {
  HandBuilt b;
  const ValueId x = b.input("x", {3, 5});
  b.graph.outputs = {b.add("Mul", {b.add("Silu", {x}), x})};
  EXPECT_EQ(histogram(fused(b.graph)), (Histogram{{"Gated", 1}}));
}

TEST(FuseGated, LeavesAnActivationThatOthersRead) {
  Graph graph = gated("Silu", {}, true);
  graph.outputs.push_back(graph.nodes()[0].outputs[0]);
  EXPECT_EQ(histogram(fused(graph)), (Histogram{{"Mul", 1}, {"Silu", 1}}));
  HandBuilt b;
  const ValueId f = b.add("Relu", {b.input("g", {3, 5})});
  b.graph.outputs = {b.add("Mul", {f, f})};
  EXPECT_EQ(histogram(fused(b.graph)), (Histogram{{"Mul", 1}, {"Relu", 1}}));
}

TEST(FuseGated, LeavesOperandsThatAreStretched) {
  for (const auto &[gate, other] : {std::pair<Shape, Shape>{{5}, {3, 5}}, {{3, 5}, {3, 1}}}) {
    HandBuilt b;
    b.graph.outputs = {b.add("Mul", {b.add("Silu", {b.input("g", gate)}), b.input("u", other)})};
    EXPECT_EQ(histogram(fused(b.graph)), (Histogram{{"Mul", 1}, {"Silu", 1}}));
  }
}

TEST(FuseGated, LeavesIntegers) {
  HandBuilt b;
  const ValueId g = b.input("g", {3}, DType::i64), u = b.input("u", {3}, DType::i64);
  b.graph.outputs = {b.add("Mul", {b.add("Relu", {g}), u})};
  EXPECT_EQ(histogram(fused(b.graph)), (Histogram{{"Mul", 1}, {"Relu", 1}}));
}

TEST(FuseLinear, BiasGoesIntoTheProductThroughAReshape) {
  HandBuilt b;
  const ValueId x = b.input("x", {6, 4}), w = b.parameter("w", {4, 5}), bias = b.parameter("b", {5});
  const ValueId product = b.reshape(b.add("MatMul", {x, w}), {2, 3, 5});
  b.graph.outputs = {b.add("Add", {bias, product})};
  EXPECT_EQ(histogram(fused(b.graph)), (Histogram{{"MatMul", 1}, {"Reshape", 1}}));
  b.graph.outputs.push_back(product);  // the product has another reader
  EXPECT_EQ(histogram(fused(b.graph)), (Histogram{{"Add", 1}, {"MatMul", 1}, {"Reshape", 1}}));
}

TEST(FuseLinear, ABiasOverColumnsIsNone) {
  HandBuilt b;
  const ValueId x = b.input("x", {5, 4}), w = b.parameter("w", {4, 5}), bias = b.parameter("b", {5, 1});
  b.graph.outputs = {b.add("Add", {b.add("MatMul", {x, w}), bias})};
  EXPECT_EQ(histogram(fused(b.graph)), (Histogram{{"Add", 1}, {"MatMul", 1}}));
}

TEST(FuseLinear, TransposedOperandsBecomeAttributes) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4, 3}), w = b.parameter("w", {5, 4});
  b.graph.outputs = {b.add("MatMul", {b.transpose(x, {0, 2, 1}), b.transpose(w, {1, 0})})};
  const Graph graph = fused(b.graph);
  EXPECT_EQ(histogram(graph), (Histogram{{"MatMul", 1}}));
  EXPECT_EQ(only(graph, "MatMul").attributes.integer("trans_a", 0), 1);
  EXPECT_EQ(only(graph, "MatMul").attributes.integer("trans_b", 0), 1);
}

TEST(FuseLoss, ShiftedLogitsAreNeverMade) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 5, 6}), w = b.parameter("w", {4, 6});
  const ValueId labels = b.input("labels", {8}, DType::i64);
  const ValueId logits = b.add("MatMul", {x, b.transpose(w, {1, 0})});
  const ValueId rows = b.reshape(b.slice(logits, 1, 0, -1), {8, 4});
  const Attributes mean = {{"reduction", std::string("mean")}, {"ignore_index", std::int64_t{3}}};
  b.graph.outputs = {b.add_all("CrossEntropy", {rows, labels}, mean, 2)[0]};
  const Graph graph = fused(b.graph);
  EXPECT_EQ(histogram(graph), (Histogram{{"LinearCrossEntropy", 1}, {"Reshape", 1}, {"Slice", 1}}));
  EXPECT_EQ(only(graph, "LinearCrossEntropy").attributes.integer("trans_w", 0), 1);
  b.graph.outputs.push_back(logits);
  EXPECT_FALSE(histogram(fused(b.graph)).contains("LinearCrossEntropy"));
}

TEST(FuseLoss, LogitsThatAreComparedWithATeachersAreNeverMade) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 5, 6}), w = b.parameter("w", {6, 4}), teacher = b.input("teacher", {2, 5, 4});
  const ValueId logits = b.add("MatMul", {x, w});
  const Attributes of_two = {{"reduction", std::string("mean")}, {"temperature", 2.0}};
  b.graph.outputs = {
      b.add_all("CrossEntropy", {b.reshape(logits, {10, 4}), b.reshape(teacher, {10, 4})}, of_two, 2)[0]};
  const Graph graph = fused(b.graph);
  EXPECT_EQ(histogram(graph), (Histogram{{"LinearCrossEntropy", 1}, {"Reshape", 2}}));
  EXPECT_EQ(only(graph, "LinearCrossEntropy").attributes.real("temperature", 1), 2);
}

TEST(FuseLoss, ACutThroughTheClassesStays) {
  HandBuilt b;
  const ValueId x = b.input("x", {8, 6}), w = b.parameter("w", {6, 5}), labels = b.input("labels", {8}, DType::i64);
  const ValueId logits = b.slice(b.add("MatMul", {x, w}), 1, 0, 4);
  b.graph.outputs = {b.add_all("CrossEntropy", {logits, labels}, {{"reduction", std::string("sum")}}, 2)[0]};
  EXPECT_FALSE(histogram(fused(b.graph)).contains("LinearCrossEntropy"));
}

}  // namespace protrain::test::fuse_test
