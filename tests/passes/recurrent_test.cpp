// LSTM, GRU and RNN become products and the operators that go from step to step, and their weights are parameters.
#include <gtest/gtest.h>

#include "base/error.h"
#include "errors.h"
#include "passes/canonical/fold_budget.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::recurrent_test {

namespace {

constexpr std::int64_t kSteps = 4, kBatch = 2, kFeatures = 3, kUnits = 5;

// Adds a layer as a file has it. `more` are its inputs from the fifth on. Returns its outputs.
std::vector<ValueId> layer(HandBuilt &b, const std::string &op, Attributes attributes,
                           const std::vector<ValueId> &more = {}) {
  const std::int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
  const std::int64_t directions = attributes.text("direction", "forward") == "bidirectional" ? 2 : 1;
  std::vector<ValueId> inputs = {
      b.input("x", {kSteps, kBatch, kFeatures}), b.initializer("w", {directions, gates * kUnits, kFeatures}),
      b.initializer("r", {directions, gates * kUnits, kUnits}), b.initializer("b", {directions, 2 * gates * kUnits})};
  inputs.insert(inputs.end(), more.begin(), more.end());
  return b.add_all(op, inputs, std::move(attributes), op == "LSTM" ? 3 : 2);
}

Graph folded(HandBuilt &b, std::vector<ValueId> outputs) {
  b.graph.outputs = std::move(outputs);
  Graph graph = b.graph;
  passes::fold(graph);
  graph::verify(graph);
  return graph;
}

using Values = std::map<std::string, Array>;

std::vector<passes::Finding> findings(HandBuilt &b, ValueId output, std::uint64_t seed = 7, const Values &values = {}) {
  Graph graph = folded(b, {output});
  const auto load = [&](const std::string &name) {
    if (const auto at = values.find(name); at != values.end()) return at->second;
    const graph::Type type = graph.value(graph.find(name)).type;
    return seed == 0 ? Array::filled(type, 0) : some_values(type, seed);
  };
  return passes::find_parameters(graph, load, {}).findings;
}

}  // namespace

TEST(Recurrent, ALayerIsAProductOfAllStepsAndWhatGoesFromStepToStep) {
  HandBuilt b;
  const Graph graph = folded(b, {layer(b, "LSTM", {})[0]});
  const std::map<std::string, int> expected = {
      {"Add", 1}, {"LstmSteps", 1}, {"MatMul", 1}, {"Reshape", 4}, {"Split", 1}};
  EXPECT_EQ(histogram(graph), expected) << graph.print();
  EXPECT_EQ(only(graph, "LstmSteps").inputs.size(), 2u);
}

TEST(Recurrent, EachDirectionHasItsOwnSteps) {
  HandBuilt b;
  const std::vector<ValueId> made = layer(b, "GRU", {{"direction", std::string("bidirectional")}});
  const Graph graph = folded(b, {made[0], made[1]});
  EXPECT_EQ(histogram(graph)["GruSteps"], 2) << graph.print();
  EXPECT_EQ(only(graph, "GruSteps").attributes.integer("reverse", 0), 1);  // the last one
  EXPECT_EQ(graph.value(graph.outputs[0]).type.shape, (Shape{kSteps, 2, kBatch, kUnits}));
  EXPECT_EQ(graph.value(graph.outputs[1]).type.shape, (Shape{2, kBatch, kUnits}));
}

TEST(Recurrent, LengthsOfWholeSequencesAndFirstStatesOfZeroCostNothing) {
  HandBuilt b;
  const ValueId whole = b.constant(Array::from_integers({DType::i32, {kBatch}}, {kSteps, kSteps}));
  const ValueId zeros = b.constant(Array::filled({DType::f64, {1, kBatch, kUnits}}, 0));
  EXPECT_EQ(only(folded(b, {layer(b, "LSTM", {}, {whole, zeros, zeros})[0]}), "LstmSteps").inputs.size(), 2u);
  HandBuilt other;
  const ValueId some = other.constant(Array::from_integers({DType::i32, {kBatch}}, {kSteps, 1}));
  const Graph graph = folded(other, {layer(other, "RNN", {}, {some})[0]});
  EXPECT_EQ(only(graph, "RnnSteps").inputs.size(), 4u);
  EXPECT_EQ(histogram(graph)["Where"], 1) << "Y is zero beyond a sample's length";
}

TEST(Recurrent, WeightsAreParametersWhateverTheirValues) {
  for (const char *op : {"LSTM", "GRU", "RNN"})
    for (const std::uint64_t seed : {0, 7}) {
      HandBuilt b;
      const ValueId y =
          layer(b, op, {{"direction", std::string("bidirectional")}, {"linear_before_reset", std::int64_t{1}}})[0];
      for (const passes::Finding &finding : findings(b, y, seed)) {
        EXPECT_TRUE(finding.parameter || (seed == 0 && finding.initializer != "b")) << op << " " << finding.initializer;
        EXPECT_TRUE(finding.doubt.empty() || seed == 0) << finding.doubt;
      }
    }
}

// In ONNX, as in PyTorch, an LSTM has two biases. An LSTM of Keras has one, so tf2onnx writes zeros in the place of the
// second bias. Training would change these zeros too, so a bias that ends in zeros is doubtful.
TEST(Recurrent, ABiasThatEndsInZerosIsDoubtful) {
  for (const bool one : {false, true}) {
    HandBuilt b;
    const ValueId y = layer(b, "LSTM", {})[0];
    std::vector<double> bias(8 * kUnits, 0.5);
    if (one) std::fill(bias.begin() + 4 * kUnits, bias.end(), 0);
    const Array numbers = Array::from_doubles({DType::f64, {1, 8 * kUnits}}, bias);
    for (const passes::Finding &finding : findings(b, y, 7, {{"b", numbers}})) {
      EXPECT_TRUE(finding.parameter) << finding.initializer;
      EXPECT_EQ(!finding.doubt.empty(), one && finding.initializer == "b") << finding.initializer;
    }
  }
}

// A file may have a layer's first state as an initializer. This initializer counts as a parameter only if a module gave
// the initializer its name. The finding is doubtful in both cases.
TEST(Recurrent, AFirstStateIsAParameterIfAModuleHasNamedIt) {
  for (const bool named : {false, true}) {
    HandBuilt b;
    const ValueId first = b.initializer(named ? "m.start" : "start", {1, kBatch, kUnits});
    const ValueId y = layer(b, "GRU", {}, {ValueId::none, first})[0];
    for (const passes::Finding &finding : findings(b, y)) {
      if (!finding.initializer.ends_with("start")) continue;
      EXPECT_EQ(finding.parameter, named);
      EXPECT_FALSE(finding.doubt.empty());
    }
  }
}

TEST(Recurrent, RefusesWhatHasNoGradientOrNoMeaning) {
  const auto refused = [](const Attributes &attributes) {
    HandBuilt b;
    b.graph.outputs = {layer(b, "RNN", attributes)[0]};
    passes::FoldBudget budget(b.graph);
    const auto refusals = passes::fold(b.graph, budget);
    return refusals.empty() ? "" : refusals.begin()->second;
  };
  EXPECT_EQ(refused({{"activations", std::string("Cube")}}), "the activation \"Cube\" is unknown");
  EXPECT_EQ(refused({{"activations", std::string("Elu")}, {"activation_alpha", std::vector<double>{-1}}}),
            "the activation Elu with alpha -1; only alphas from 0 on have a gradient here");
  EXPECT_EQ(test::error_of([&] { refused({{"activations", std::string("Tanh,Tanh")}}); }).code, Code::graph);
  EXPECT_EQ(test::error_of([&] { refused({{"activations", std::string("Affine")}}); }).code, Code::graph);
}

}  // namespace protrain::test::recurrent_test
