#include "grad/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "errors.h"
#include "ops/op.h"

namespace protrain::grad::training_test {
namespace {

using graph::Array;
using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::ValueId;
using test::error_of;

// Builds a float64 graph node by node. Parameters hold seeded random values.
class Sketch {
 public:
  ValueId parameter(const std::string &name, Shape shape, bool frozen = false) {
    const ValueId id = add(name, Origin::parameter, {DType::f64, shape});
    graph.value(id).frozen = frozen;
    graph.parameters.push_back(id);
    std::vector<double> values(static_cast<std::size_t>(element_count(shape)));
    for (double &value : values) value = std::normal_distribution<double>()(random_);
    bound[id] = Array::from_doubles({DType::f64, shape}, values);
    return id;
  }
  ValueId indices(const std::string &name, const std::vector<std::int64_t> &values) {
    const graph::Type type{DType::i64, {static_cast<std::int64_t>(values.size())}};
    const ValueId id = add(name, Origin::input, type);
    graph.inputs.push_back(id);
    bound[id] = Array::from_integers(type, values);
    return id;
  }
  ValueId run(const std::string &op, std::vector<ValueId> inputs, graph::Attributes attributes = {}) {
    Node node{.op = op, .name = op, .attributes = std::move(attributes), .inputs = std::move(inputs), .outputs = {}};
    const auto types = ops::infer(graph, node);
    const auto id = graph.add_node(std::move(node), std::vector<std::string>(types.size(), op));
    const std::vector<ValueId> outputs = graph.node(id).outputs;
    for (std::size_t i = 0; i < outputs.size(); ++i) graph.value(outputs[i]).type = types[i];
    return outputs[0];
  }
  ValueId rounded(ValueId parameter, DType dtype) {
    graph::Value &value = graph.value(parameter);
    value.type.dtype = dtype;
    bound[parameter] = Array::from_doubles(value.type, bound[parameter].doubles());
    return parameter;
  }
  ValueId sum(ValueId value) { return run("ReduceSum", {value}, {{"keepdims", std::int64_t{0}}}); }

  Graph graph;
  std::map<ValueId, Array> bound;

 private:
  ValueId add(const std::string &name, Origin origin, graph::Type type) {
    return graph.add_value({.name = name, .type = std::move(type), .origin = origin});
  }
  std::mt19937 random_{3};
};

double value_of(const Graph &graph, const std::map<ValueId, Array> &bound, ValueId id) {
  return ops::interpret(graph, bound)[index(id)].doubles().at(0);
}

// Compares every element of every gradient with central differences.
void expect_true_gradients(const Sketch &sketch, ValueId loss) {
  const Training training = build(sketch.graph, loss);
  const auto values = ops::interpret(training.graph, sketch.bound);
  constexpr double kStep = 1e-5;
  double squares = 0;
  for (std::size_t p = 0; p < training.gradients.size(); ++p) {
    if (training.gradients[p] == ValueId::none) continue;
    const ValueId parameter = sketch.graph.parameters[p];
    const auto gradient = values[index(training.gradients[p])].doubles();
    const auto at = sketch.bound.at(parameter).doubles();
    for (std::size_t i = 0; i < at.size(); ++i) {
      auto bound = sketch.bound;
      const auto shifted = [&](double by) {
        auto moved = at;
        moved[i] += by;
        bound[parameter] = Array::from_doubles(sketch.bound.at(parameter).type(), moved);
        return value_of(sketch.graph, bound, loss);
      };
      EXPECT_NEAR(gradient[i], (shifted(kStep) - shifted(-kStep)) / (2 * kStep), 1e-7 * (1 + std::abs(gradient[i])));
      squares += gradient[i] * gradient[i];
    }
  }
  EXPECT_NEAR(values[index(training.norm)].doubles()[0], std::sqrt(squares), 1e-9);
}

TEST(Training, DifferentiatesAChain) {
  Sketch s;
  const ValueId w = s.parameter("w", {3, 4}), v = s.parameter("v", {4, 2});
  expect_true_gradients(s, s.sum(s.run("Tanh", {s.run("MatMul", {s.run("Sigmoid", {w}), v})})));
}

TEST(Training, SumsTheUsesOfATiedParameter) {
  Sketch s;
  const ValueId table = s.parameter("table", {5, 3});
  const ValueId rows = s.run("Gather", {table, s.indices("ids", {1, 4, 1})});
  const ValueId logits = s.run("MatMul", {rows, table}, {{"trans_b", std::int64_t{1}}});
  expect_true_gradients(s, s.sum(s.run("Tanh", {logits})));
}

TEST(Training, SumsTheBranchesOfAResidual) {
  Sketch s;
  const ValueId w = s.parameter("w", {4});
  const ValueId a = s.run("Tanh", {w});
  expect_true_gradients(s, s.sum(s.run("Mul", {s.run("Add", {a, s.run("Exp", {a})}), a})));
}

// A normalization and other nodes read the residual stream, so the stream's gradient is a sum. The normalization's
// gradient node takes the gradient from the other readers as an input and adds its own. So this sum needs no Add node.
TEST(Training, NormalizationsAddTheGradientsOfTheirResiduals) {
  for (const char *op : {"LayerNormalization", "RMSNormalization"}) {
    Sketch s;
    const ValueId w = s.parameter("w", {3, 4}), scale = s.parameter("scale", {4});
    const ValueId x = s.run("Tanh", {w});
    const ValueId y = s.run(op, {x, scale});
    const ValueId loss = s.sum(s.run("Mul", {s.run("Add", {x, s.run("Sigmoid", {y})}), x}));
    expect_true_gradients(s, loss);
    const Training training = build(s.graph, loss);
    for (const Node &node : training.graph.nodes())
      if (node.op == std::string(op) + "Grad") {
        EXPECT_EQ(node.inputs.size(), op[0] == 'L' ? 6u : 5u);
      }
    EXPECT_EQ(std::ranges::count_if(
                  training.graph.nodes(),
                  [](const Node &node) { return node.op == "Add" && node.phase == graph::Phase::backward; }),
              1);
  }
}

// Two products read x. The gradient of the second, a thin product, adds the first one's gradient itself. A thick
// product would not.
TEST(Training, ThinProductsAddTheGradientsOfTheOtherReaders) {
  for (const std::int64_t depth : {3, 300}) {
    Sketch s;
    const ValueId x = s.run("Tanh", {s.parameter("x", {2, 4})});
    const ValueId inner = s.run("MatMul", {x, s.parameter("a", {4, depth})});
    const ValueId product = s.run("MatMul", {x, s.parameter("w", {4, 5})});
    const ValueId sum = s.run("MatMul", {inner, s.parameter("b", {depth, 5}), product});
    const ValueId loss = s.sum(s.run("Tanh", {sum}));
    expect_true_gradients(s, loss);
    const Training training = build(s.graph, loss);
    EXPECT_EQ(std::ranges::count(training.graph.nodes(), "Add", &Node::op), depth == 3 ? 0 : 1) << depth;
  }
}

// Forward repeats a small value with Expand and Reshape, as grouped attention repeats its keys. Backward needs the
// repeated value. A step must keep only the small value, and backward must repeat it again.
TEST(Training, RepeatsAValueAgainInBackwardInsteadOfKeepingIt) {
  Sketch s;
  const ValueId w = s.parameter("w", {2, 1, 3}), v = s.parameter("v", {4, 3});
  const ValueId small = s.run("Tanh", {w});
  const ValueId repeated = s.run("Expand", {small}, {{"shape", Shape{2, 2, 3}}});
  const ValueId flat = s.run("Reshape", {repeated}, {{"shape", Shape{4, 3}}});
  const ValueId loss = s.sum(s.run("Mul", {s.run("Exp", {flat}), s.run("Mul", {flat, v})}));
  expect_true_gradients(s, loss);
  const Training training = build(s.graph, loss);
  bool reads_small = false;
  for (const Node &node : training.graph.nodes()) {
    if (node.phase != graph::Phase::backward) continue;
    for (const ValueId in : node.inputs) EXPECT_TRUE(in != repeated && in != flat) << node.name << " keeps " << node.op;
    reads_small |= std::ranges::count(node.inputs, small) > 0 && node.op == "Expand";
  }
  EXPECT_TRUE(reads_small);
}

TEST(Training, SumsBothGradientsOfWhatGatesItself) {
  Sketch s;
  const ValueId x = s.parameter("x", {7});
  expect_true_gradients(s, s.sum(s.run("Gated", {x, x}, {{"activation", std::string("Silu")}})));
}

TEST(Training, AppendsTheGradientsAfterTheForwardNodes) {
  Sketch s;
  const ValueId w = s.parameter("w", {4});
  const ValueId loss = s.sum(s.run("Tanh", {w}));
  const Training training = build(s.graph, loss);
  const auto phase = [](const Node &node) { return node.phase; };
  EXPECT_TRUE(std::ranges::is_sorted(training.graph.nodes(), {}, phase));
  EXPECT_NO_THROW(verify(training.graph));
}

TEST(Training, TakesTheNormsOfABlocksSmallGradientsAtOnce) {
  Sketch s;
  ValueId x = s.parameter("x", {3, 4});
  for (const char *block : {"0", "1"}) {
    const std::size_t begin = s.graph.node_count();
    for (const char *name : {"scale", "bias"}) x = s.run("Mul", {x, s.parameter(std::string(name) + block, {4})});
    x = s.run("MatMul", {x, s.parameter(std::string("w") + block, {4, 4})});
    for (std::size_t i = begin; i < s.graph.node_count(); ++i)
      s.graph.node(static_cast<graph::NodeId>(i)).block = block[0] - '0';
  }
  const ValueId loss = s.sum(x);
  expect_true_gradients(s, loss);
  const Training training = build(s.graph, loss);
  std::vector<std::size_t> tensors;
  for (const Node &node : training.graph.nodes())
    if (node.op == "SquaredNorm") tensors.push_back(node.inputs.size());
  EXPECT_EQ(tensors, (std::vector<std::size_t>{1, 2, 1, 1, 2}));  // w1; scale1 and bias1; w0; x; scale0 and bias0
  for (ValueId norm : training.squared_norms) EXPECT_NE(norm, ValueId::none);
}

TEST(Training, SpendsNothingOnAFrozenParameter) {
  Sketch s;
  const ValueId w = s.parameter("w", {4}, true), v = s.parameter("v", {4});
  const ValueId loss = s.sum(s.run("Mul", {s.run("Tanh", {w}), v}));
  const Training training = build(s.graph, loss);
  EXPECT_EQ(training.gradients[0], ValueId::none);
  EXPECT_TRUE(std::ranges::none_of(training.graph.nodes(), [](const Node &node) { return node.op == "TanhGrad"; }));
  expect_true_gradients(s, loss);
}

TEST(Training, TrainsNoParameterWithoutElements) {
  Sketch s;
  const ValueId w = s.parameter("w", {3}), empty = s.parameter("empty", {0});
  const ValueId all = s.run("Concat", {w, empty}, {{"axis", std::int64_t{0}}}), loss = s.sum(s.run("Mul", {all, all}));
  const Training training = build(s.graph, loss);
  EXPECT_NE(training.gradients[0], ValueId::none);
  EXPECT_EQ(training.gradients[1], ValueId::none);
}

TEST(Training, GivesNoGradientToAParameterTheLossDoesNotSee) {
  Sketch s;
  const ValueId w = s.parameter("w", {4});
  s.run("Tanh", {s.parameter("unused", {4})});
  const ValueId loss = s.sum(w);
  const Training training = build(s.graph, loss);
  EXPECT_NE(training.gradients[0], ValueId::none);
  EXPECT_EQ(training.gradients[1], ValueId::none);
}

// A cross entropy loss times 1/3, on operands of the given type.
Sketch scaled_loss(DType dtype, ValueId &loss) {
  Sketch s;
  const ValueId x = s.rounded(s.parameter("x", {3, 4}), dtype), w = s.rounded(s.parameter("w", {5, 4}), dtype);
  const ValueId mean = s.run("LinearCrossEntropy", {x, w, s.indices("labels", {4, 0, 2})});
  const ValueId third = s.graph.add_constant("third", Array::scalar(s.graph.value(mean).type.dtype, 1.0 / 3));
  loss = s.run("Mul", {mean, third});
  return s;
}

// The loss is the sum of the squares of rows 1, 4 and 1 of a table, or of its columns if `axis` is 1. Index 1 is
// padding, so only row or column 4 gets a gradient.
TEST(Training, GivesNoGradientToTheRowOfPadding) {
  for (const std::int64_t axis : {0, 1}) {
    Sketch s;
    const ValueId table = s.parameter("table", {5, 5});
    const graph::Attributes attributes = {{"axis", axis}, {"padding_idx", std::int64_t{1}}};
    const ValueId rows = s.run("Gather", {table, s.indices("ids", {1, 4, 1})}, attributes);
    const ValueId loss = s.sum(s.run("Mul", {rows, rows}));
    const Training training = build(s.graph, loss);
    const std::vector<double> gradient =
        ops::interpret(training.graph, s.bound)[index(training.gradients[0])].doubles();
    const std::vector<double> values = s.bound.at(table).doubles();
    for (std::size_t i = 0; i < 5; ++i)
      for (std::size_t j = 0; j < 5; ++j) {
        const std::size_t picked = axis == 0 ? i : j, at = i * 5 + j;
        EXPECT_DOUBLE_EQ(gradient[at], picked == 4 ? 2 * values[at] : 0) << "row " << i << ", column " << j;
      }
  }
}

// The gradient of Round is zero. So a parameter that affects the loss only through Round gets no gradient, and the
// other parameters still get theirs.
TEST(Training, GoesOnBesideWhatHasNoGradient) {
  const auto loss_behind_round = [](Sketch &sketch) {
    const ValueId w = sketch.parameter("w", {2, 3}), m = sketch.parameter("m", {3, 3});
    return sketch.run("Round", {sketch.run("MatMul", {w, m})});
  };
  Sketch both;
  const ValueId rounded = loss_behind_round(both), v = both.parameter("v", {2, 3});
  const ValueId sum = both.sum(both.run("Mul", {rounded, v}));
  const Training training = build(std::move(both.graph), sum);
  EXPECT_EQ(training.gradients[0], ValueId::none);
  EXPECT_EQ(training.gradients[1], ValueId::none);
  EXPECT_NE(training.gradients[2], ValueId::none);

  Sketch alone;
  const ValueId loss = alone.sum(loss_behind_round(alone));
  const Error error = error_of([&] { build(std::move(alone.graph), loss); });
  EXPECT_EQ(error.code, Code::graph);
  EXPECT_EQ(error.subject, "ReduceSum");
}

// The loss is the sum of w * tanh(w), in which tanh(w) counts as a constant. So the gradient of w is tanh(w).
TEST(Training, SendsNoGradientThroughAStopGradient) {
  Sketch s;
  const ValueId w = s.parameter("w", {4});
  const ValueId stopped = s.run("StopGradient", {s.run("Tanh", {w})});
  const ValueId loss = s.sum(s.run("Mul", {w, stopped}));
  const Training training = build(s.graph, loss);
  const std::vector<Array> values = ops::interpret(training.graph, s.bound);
  EXPECT_EQ(values[index(training.gradients[0])].doubles(), values[index(stopped)].doubles());
}

TEST(Training, NeedsNoGradientOfWhatAStopGradientReads) {
  Sketch s;
  const ValueId w = s.parameter("w", {4});
  const ValueId product = s.run("ReduceProd", {w}, {{"keepdims", std::int64_t{0}}});
  ASSERT_EQ(ops::find("ReduceProd")->gradient, nullptr);
  const ValueId stopped = s.run("StopGradient", {product});
  const ValueId loss = s.sum(s.run("Mul", {w, stopped}));
  EXPECT_NE(build(s.graph, loss).gradients[0], ValueId::none);
}

TEST(Training, RoundsGradientsToTheTypeOfTheParameterWhereTheLossIsWider) {
  ValueId wide_loss = ValueId::none, loss = ValueId::none;
  const Sketch wide = scaled_loss(DType::f64, wide_loss), narrow = scaled_loss(DType::bf16, loss);
  EXPECT_EQ(narrow.graph.value(loss).type.dtype, DType::f32);
  const Training exact = build(wide.graph, wide_loss), training = build(narrow.graph, loss);
  const auto wanted = ops::interpret(exact.graph, wide.bound), found = ops::interpret(training.graph, narrow.bound);
  for (std::size_t p = 0; p < 2; ++p) {
    EXPECT_EQ(training.graph.value(training.gradients[p]).type.dtype, DType::bf16);
    const auto a = wanted[index(exact.gradients[p])].doubles(), b = found[index(training.gradients[p])].doubles();
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 0.005);
  }
}

TEST(Training, SumsShortGradientsOverMicroBatchesInFloat32) {
  for (const auto &[dtype, sums] : {std::pair{DType::bf16, DType::f32}, std::pair{DType::f64, DType::f64}}) {
    ValueId loss = ValueId::none;
    const Sketch s = scaled_loss(dtype, loss);
    const Training training = build(s.graph, loss, {.accumulate = true});
    for (std::size_t p = 0; p < 2; ++p) {
      EXPECT_EQ(training.graph.value(training.accumulators[p]).type.dtype, sums);
      EXPECT_EQ(training.graph.value(training.gradients[p]).type.dtype, sums);
    }
  }
}

// Backward must start with the loss scale, which multiplies all gradients. The norm, and the gradients in updates, must
// be divided by the scale again.
TEST(Training, MultipliesTheLossByItsScaleAndTellsTheNormWithoutIt) {
  for (const bool accumulate : {false, true}) {
    ValueId loss = ValueId::none;
    const Sketch s = scaled_loss(DType::f16, loss);
    const Training training = build(s.graph, loss, {.accumulate = accumulate, .scale_loss = true});
    const auto &graph = training.graph;
    const auto maker = [&](ValueId id) -> const graph::Node & { return graph.node(graph.value(id).producer); };
    EXPECT_EQ(maker(training.loss_scale).op, "LossScale");
    ASSERT_EQ(maker(training.norm).op, "ScaledNorm");
    const ValueId divisor = maker(training.norm).inputs[1];
    EXPECT_EQ(maker(training.scale).inputs[1], divisor) << "updates divide by what the norm is divided by";
    if (accumulate)
      EXPECT_EQ(maker(divisor).inputs[2], training.loss_scale);
    else
      EXPECT_EQ(divisor, training.loss_scale);
    const auto scaled = [&](const graph::Node &node) {
      return std::ranges::find(node.inputs, training.loss_scale) != node.inputs.end() && node.op == "Cast";
    };
    EXPECT_EQ(std::ranges::count_if(graph.nodes(), scaled), 1) << "backward starts with the scale";
    EXPECT_FALSE(std::ranges::any_of(
        graph.nodes(), [](const auto &node) { return node.op == "LinearCrossEntropyGrad" && node.inputs.size() < 6; }));
  }
}

TEST(Training, ListsEveryOperatorWithoutAGradient) {
  Sketch s;
  const ValueId w = s.parameter("w", {2, 2});
  const ValueId a = s.run("ReduceProd", {w}, {{"axes", std::vector<std::int64_t>{1}}, {"keepdims", std::int64_t{0}}});
  const ValueId b = s.run("ReduceProd", {w}, {{"axes", std::vector<std::int64_t>{0}}, {"keepdims", std::int64_t{0}}});
  const ValueId loss = s.sum(s.run("Add", {a, b}));
  const Error error = error_of([&] { build(s.graph, loss); });
  EXPECT_EQ(error.code, Code::unsupported);
  EXPECT_EQ(error.text.find("2 operators"), 0u) << error.text;
}

TEST(Training, NamesTheParameterThatTheWeightsOfALossDependOn) {
  for (const char *op : {"CrossEntropy", "LinearCrossEntropy"}) {
    const bool linear = std::string_view(op) == "LinearCrossEntropy";
    Sketch s;
    const ValueId x = s.parameter("x", {2, 3}), labels = s.indices("labels", {0, 2});
    const ValueId frozen = s.parameter("frozen", {2}, true), of_rows = s.parameter("of rows", {2});
    const ValueId weights = s.run("Mul", {frozen, s.run("Exp", {of_rows})});
    const ValueId loss = s.run(op, linear ? std::vector{x, s.parameter("w", {4, 3}), labels, ValueId::none, weights}
                                          : std::vector{x, labels, weights});
    const Error error = error_of([&] { build(s.graph, loss); });
    EXPECT_EQ(error.code, Code::unsupported) << op;
    EXPECT_EQ(error.text,
              "the weights of a loss depend on the trained parameter of rows; they must be data or constants, so name "
              "it in frozen");
    s.graph.value(of_rows).frozen = true;
    EXPECT_NO_THROW(build(s.graph, loss)) << op;
  }
}

TEST(Training, ANormalizationMayReadOneValueTwice) {
  Sketch s;
  const ValueId w = s.parameter("w", {4}), v = s.parameter("v", {4});
  const ValueId of_three = s.run("LayerNormalization", {w, w, w}), of_two = s.run("RMSNormalization", {v, v});
  const ValueId y = s.run("Tanh", {s.run("Add", {of_three, of_two})});
  expect_true_gradients(s, s.sum(s.run("Mul", {y, w})));
}

TEST(Training, RefusesALossThatIsNotAScalarOrDependsOnNothing) {
  Sketch s;
  const ValueId w = s.parameter("w", {4}), f = s.parameter("f", {4}, true);
  const ValueId vector = s.run("Tanh", {w}), frozen = s.sum(f);
  EXPECT_EQ(error_of([&] { build(s.graph, vector); }).code, Code::graph);
  const Error error = error_of([&] { build(s.graph, frozen); });
  EXPECT_EQ(error.code, Code::graph);
  EXPECT_NE(error.text.find("only on frozen ones: those that the option frozen matches, and quantised weights;"),
            std::string::npos)
      << error.text;
}

}  // namespace
}  // namespace protrain::grad::training_test
