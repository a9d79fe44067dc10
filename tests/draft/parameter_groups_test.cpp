// Groups of parameters. The library finds norms and biases by the graph alone. In the fixtures, the names that PyTorch
// gave tell which parameters these are.
#include "draft/parameter_groups.h"

#include <gtest/gtest.h>

#include "draft/loaded_model.h"
#include "errors.h"
#include "fixtures.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::draft::parameter_groups_test {
namespace {

using test::error_of;
using Pairs = std::vector<std::pair<std::string, std::string>>;

// A model's groups, by the name of each parameter.
class Groups {
 public:
  explicit Groups(const std::string &model, const Pairs &pairs) {
    Options options;
    for (const auto &[key, value] : pairs) options.set(key, value);
    if (model.find("dynamic") != std::string::npos)
      for (const char *dim : {"batch=2", "sequence=32"}) options.set("dim", dim);
    const Settings settings = settings_of(options);
    const LoadedModel loaded = load_model(settings, test::fixture(model + ".onnx"));
    const graph::Graph &graph = loaded.prepared.graph;
    found_ = parameter_groups(settings.groups, settings.optimizer.weight_decay, graph);
    norms_ = norm_groups(settings.groups, graph);
    for (graph::ValueId id : graph.parameters) names_.push_back(graph.value(id).name);
  }

  const std::vector<std::string> &names() const { return names_; }
  const std::vector<backend::Group> &all() const { return found_.groups; }
  const backend::Group &of(const std::string &name) const { return found_.groups.at(found_.of_parameter.at(at(name))); }
  const std::string &norm_of(const std::string &name) const {
    return norms_.names.at(norms_.of_parameter.at(at(name)));
  }

 private:
  std::size_t at(const std::string &name) const {
    return static_cast<std::size_t>(std::ranges::find(names_, name) - names_.begin());
  }

  ParameterGroups found_;
  NormGroups norms_;
  std::vector<std::string> names_;
};

// Returns the names of the parameters that do not decay if no_decay names `kind`.
std::vector<std::string> that_stay(test::HandBuilt &b, graph::ValueId output, const std::string &kind) {
  b.graph.outputs = {output};
  passes::fold(b.graph);
  Options options;
  options.set("no_decay", kind);
  const ParameterGroups found = parameter_groups(settings_of(options).groups, 0.5, b.graph);
  std::vector<std::string> names;
  for (std::size_t p = 0; p < b.graph.parameters.size(); ++p)
    if (found.groups.at(found.of_parameter[p]).weight_decay == 0)
      names.push_back(b.graph.value(b.graph.parameters[p]).name);
  return names;
}

bool contains(const std::string &name, std::initializer_list<const char *> parts) {
  return std::ranges::any_of(parts, [&](const char *part) { return name.find(part) != std::string::npos; });
}

TEST(ParameterGroups, OfNoOptionsAreOne) {
  const Groups groups("gpt2-dynamic-opset18", {{"weight_decay", "0.1"}});
  EXPECT_EQ(groups.all(), std::vector<backend::Group>{{.weight_decay = 0.1}});
}

TEST(ParameterGroups, FindNormsAndBiasesByTheGraph) {
  for (const std::string &model : test::model_files()) {
    const Groups norms(model, {{"no_decay", "norms"}}), biases(model, {{"no_decay", "biases"}}),
        both(model, {{"no_decay", "biases"}, {"no_decay", "norms"}});
    for (const std::string &name : norms.names()) {
      const bool norm = contains(name, {"norm", ".ln_"}), bias = name.ends_with("bias");
      EXPECT_EQ(norms.of(name).weight_decay == 0, norm) << model << " " << name;
      EXPECT_EQ(biases.of(name).weight_decay == 0, bias) << model << " " << name;
      EXPECT_EQ(both.of(name).weight_decay == 0, norm || bias) << model << " " << name;
    }
  }
}

TEST(ParameterGroups, FindScalesOfChannels) {
  const Groups norms("rates/blocks", {{"no_decay", "norms"}});
  EXPECT_EQ(norms.of("channels.weight").weight_decay, 0);
  EXPECT_EQ(norms.of("channels.bias").weight_decay, 0);
  EXPECT_EQ(norms.of("head.bias").weight_decay, 0.01);
}

TEST(ParameterGroups, FindNormsThatUseRunningStatistics) {
  for (const double mean : {0.0, 0.5})  // a fresh model's mean is 0
    for (const auto &[kind, names] : {std::pair("norms", std::vector<std::string>{"scale", "shift"}),
                                      {"biases", std::vector<std::string>{"shift"}}}) {
      test::HandBuilt b;
      const graph::ValueId means = b.constant(graph::Array::filled({DType::f64, {3}}, mean)),
                           variances = b.constant(graph::Array::filled({DType::f64, {3}}, 1));
      const graph::ValueId y = b.add("BatchNormalization", {b.input("x", {2, 3, 4}), b.parameter("scale", {3}),
                                                            b.parameter("shift", {3}), means, variances});
      EXPECT_EQ(that_stay(b, y, kind), names) << mean;
    }
}

TEST(ParameterGroups, FindNormsWhoseStatisticsTheGraphComputes) {
  test::HandBuilt b;
  const graph::ValueId x = b.input("x", {2, 3, 4});
  const test::Attributes along = {{"axes", test::Integers{0, 2}}, {"keepdims", std::int64_t{0}}};
  const graph::ValueId mean = b.add("ReduceMean", {x}, along),
                       square = b.add("ReduceMean", {b.add("Mul", {x, x})}, along);
  const graph::ValueId y =
      b.add("BatchNormalization", {x, b.parameter("scale", {3}), b.parameter("shift", {3}), mean, square});
  EXPECT_EQ(that_stay(b, y, "norms"), (std::vector<std::string>{"scale", "shift"}));
}

TEST(ParameterGroups, TakeOneScaleAndOneShiftOfANorm) {
  test::HandBuilt b;
  const graph::ValueId y =
      b.add("InstanceNormalization", {b.input("x", {2, 3, 4}), b.parameter("scale", {3}), b.parameter("shift", {3})});
  const graph::ValueId sloped = b.add("PRelu", {y, b.parameter("slope", {3, 1})});
  EXPECT_EQ(that_stay(b, sloped, "norms"), (std::vector<std::string>{"scale", "shift"}));
}

// With constant statistics, only a product and a sum are left of a BatchNormalization. Its scale and shift must still
// be found.
TEST(ParameterGroups, FindTheNormOfOneChannel) {
  test::HandBuilt b;
  const graph::ValueId mean = b.constant(graph::Array::filled({DType::f64, {1}}, 0)),
                       variance = b.constant(graph::Array::filled({DType::f64, {1}}, 2));
  const graph::ValueId y = b.add("BatchNormalization", {b.input("x", {2, 1, 4}), b.parameter("scale", {1}),
                                                        b.parameter("shift", {1}), mean, variance});
  EXPECT_EQ(that_stay(b, y, "norms"), (std::vector<std::string>{"scale", "shift"}));
}

TEST(ParameterGroups, LetSlopesBehindANormDecay) {
  const auto ones = [](test::HandBuilt &b) { return b.constant(graph::Array::filled({DType::f64, {3}}, 1)); };
  const auto zeros = [](test::HandBuilt &b) { return b.constant(graph::Array::filled({DType::f64, {3}}, 0)); };
  test::HandBuilt instance, batch;
  graph::ValueId y =
      instance.add("InstanceNormalization", {instance.input("x", {2, 3, 4}), ones(instance), zeros(instance)});
  y = instance.add("PRelu", {y, instance.parameter("slope", {3, 1})});
  EXPECT_EQ(that_stay(instance, y, "norms"), std::vector<std::string>{});
  const graph::ValueId variance = batch.constant(graph::Array::filled({DType::f64, {3}}, 2));
  y = batch.add("BatchNormalization", {batch.input("x", {2, 3, 4}), ones(batch), zeros(batch), zeros(batch), variance});
  y = batch.add("PRelu", {y, batch.parameter("slope", {3, 1})});
  EXPECT_EQ(that_stay(batch, y, "norms"), std::vector<std::string>{});
}

TEST(ParameterGroups, LetWhatFollowsAConstantFactorDecay) {
  test::HandBuilt b;
  const graph::ValueId factors = b.constant(graph::Array::from_doubles({DType::f64, {4}}, {1, 2, 3, 4}));
  const graph::ValueId y = b.add("Mul", {b.add("Mul", {b.input("x", {2, 4}), factors}), b.parameter("scale", {4})});
  EXPECT_EQ(that_stay(b, b.add("Add", {y, b.parameter("bias", {4})}), "norms"), std::vector<std::string>{});
}

TEST(ParameterGroups, FindNormsInAnyOrderOfTheirFactors) {
  for (const int order : {0, 1, 2, 3}) {
    test::HandBuilt b;
    const graph::ValueId x = b.input("x", {2, 3, 4});
    const test::Attributes along = {{"axes", test::Integers{1}}, {"keepdims", std::int64_t{1}}};
    const graph::ValueId centred = b.add("Sub", {x, b.add("ReduceMean", {x}, along)}),
                         square = b.add("ReduceMean", {b.add("Mul", {centred, centred})}, along);
    const graph::ValueId inverse = b.add("Reciprocal", {b.add("Sqrt", {b.add("Add", {square, b.number(1e-5)})})});
    const auto product = [&](graph::ValueId left, graph::ValueId right, bool swapped) {
      return swapped ? b.add("Mul", {right, left}) : b.add("Mul", {left, right});
    };
    const graph::ValueId scale = b.parameter("scale", {3, 1}), shift = b.parameter("shift", {3, 1});
    const graph::ValueId y = product(product(centred, inverse, order % 2 == 1), scale, order > 1);
    EXPECT_EQ(that_stay(b, b.add("Add", {y, shift}), "norms"), (std::vector<std::string>{"scale", "shift"})) << order;
  }
}

// A normalization may have a scale for each head. A table of positions may be added to a normalization's result, but is
// not the normalization's shift.
TEST(ParameterGroups, FindTheScalesOfHeads) {
  test::HandBuilt b;
  const graph::ValueId x = b.input("x", {2, 3, 4, 6}), ones = b.constant(graph::Array::filled({DType::f64, {6}}, 1));
  const graph::ValueId normal = b.add_all("LayerNormalization", {x, ones}, {}, 3)[0];
  const graph::ValueId heads = b.add("Mul", {normal, b.parameter("heads", {4, 6})});
  const graph::ValueId other = b.add_all("LayerNormalization", {b.add("Exp", {x}), ones}, {}, 3)[0];
  const graph::ValueId placed = b.add("Add", {other, b.parameter("positions", {4, 6})});
  EXPECT_EQ(that_stay(b, b.add("Add", {heads, placed}), "norms"), std::vector<std::string>{"heads"});
}

TEST(ParameterGroups, FindTheBiasesOfBothDirections) {
  test::HandBuilt b;
  const graph::ValueId y = b.add_all(
      "LSTM",
      {b.input("x", {4, 2, 3}), b.parameter("w", {2, 20, 3}), b.parameter("r", {2, 20, 5}), b.parameter("b", {2, 40})},
      {{"direction", std::string("bidirectional")}}, 3)[0];
  EXPECT_EQ(that_stay(b, y, "biases"), std::vector<std::string>{"b"});
}

// A file may leave out the first output of a Split.
TEST(ParameterGroups, FollowEveryPartOfASplitThatIsThere) {
  test::HandBuilt b;
  const graph::ValueId x = b.input("x", {2, 4}), biases = b.parameter("biases", {12});
  const std::vector<graph::ValueId> parts = b.add_all("Split", {biases}, {}, 3);
  const graph::ValueId y = b.add("Add", {b.add("Exp", {x}), parts[2]});
  b.graph.node(b.graph.value(parts[0]).producer).outputs[0] = graph::ValueId::none;
  EXPECT_EQ(that_stay(b, y, "biases"), std::vector<std::string>{"biases"});
}

// The graph has 2^45 ways from the parameter to the data.
TEST(ParameterGroups, FollowAValueOnceHoweverManyWaysLeadToIt) {
  test::HandBuilt b;
  graph::ValueId many = b.parameter("bias", {4});
  for (int doubled = 0; doubled < 45; ++doubled) many = b.add("Add", {many, many});
  const graph::ValueId y = b.add("Add", {b.add("Exp", {b.input("x", {2, 4})}), many});
  EXPECT_EQ(that_stay(b, y, "biases"), std::vector<std::string>{"bias"});
}

TEST(ParameterGroups, TakeTheFirstGroupThatMatches) {
  const Groups groups("rates/blocks", {{"group", "head.*,learning_rate_scale=2"},
                                       {"group", "*.bias,weight_decay=0.5,learning_rate_scale=3"},
                                       {"no_decay", "biases"}});
  EXPECT_EQ(groups.of("head.weight"), (backend::Group{2, 0.01}));
  EXPECT_EQ(groups.of("head.bias"), (backend::Group{2, 0})) << "the group says nothing about decay";
  EXPECT_EQ(groups.of("stem.bias"), (backend::Group{3, 0.5}));
  EXPECT_EQ(groups.of("stem.weight"), (backend::Group{1, 0.01}));
}

TEST(ParameterGroups, ScaleTheRateOfEachLayer) {
  const Groups groups("rates/blocks", {{"layer_decay", "0.5"}, {"group", "stem.bias,learning_rate_scale=10"}});
  EXPECT_EQ(groups.of("head.weight").learning_rate_scale, 1);
  EXPECT_EQ(groups.of("channels.weight").learning_rate_scale, 1);
  EXPECT_EQ(groups.of("blocks.2.up.weight").learning_rate_scale, 0.5);
  EXPECT_EQ(groups.of("blocks.0.norm.weight").learning_rate_scale, 0.125);
  EXPECT_EQ(groups.of("stem.weight").learning_rate_scale, 0.0625);
  EXPECT_EQ(groups.of("stem.bias").learning_rate_scale, 0.625);
}

TEST(NormGroups, AreLayersAndWhatLiesAround) {
  const Groups groups("rates/blocks", {{"layer_decay", "0.5"}});
  EXPECT_EQ(groups.norm_of("stem.bias"), "before");
  EXPECT_EQ(groups.norm_of("blocks.0.norm.weight"), "layer 0");
  EXPECT_EQ(groups.norm_of("blocks.2.up.weight"), "layer 2");
  EXPECT_EQ(groups.norm_of("channels.weight"), "after");
  EXPECT_EQ(groups.norm_of("head.bias"), "after");
}

TEST(NormGroups, AreThePatternsOfTheOptionAndTheRest) {
  const Groups groups("rates/blocks",
                      {{"group", "head.*,learning_rate_scale=2"}, {"group", "*.bias,weight_decay=0.5"}});
  EXPECT_EQ(groups.norm_of("head.bias"), "head.*");
  EXPECT_EQ(groups.norm_of("stem.bias"), "*.bias");
  EXPECT_EQ(groups.norm_of("blocks.0.norm.weight"), "*");
}

TEST(NormGroups, AreOneInAModelWithoutLayers) { EXPECT_EQ(norm_groups({}, {}).names, std::vector<std::string>{"*"}); }

TEST(ParameterGroups, RefuseWhatMatchesNothing) {
  const auto refusal = [](const std::string &model, const Pairs &pairs) {
    return error_of([&] { Groups(model, pairs); });
  };
  EXPECT_EQ(refusal("rates/blocks", {{"group", "tail.*,weight_decay=0"}}).text,
            "no trained parameter matches 'tail.*'");
  EXPECT_EQ(refusal("rates/blocks", {{"group", "head.*,weight_decay=0"}, {"frozen", "head.*"}}).code, Code::arg);
  EXPECT_EQ(error_of([] { parameter_groups({.layer_decay = 0.5}, 0, {}); }).subject, "layer_decay");
  for (const char *text : {"head.*", ",weight_decay=0", "a,decay=1", "a,weight_decay", "a,weight_decay=-1",
                           "a,weight_decay=0,weight_decay=0", "a,weight_decay=nan"})
    EXPECT_EQ(error_of([&] { Options().set("group", text); }).code, Code::arg) << text;
}

}  // namespace
}  // namespace protrain::draft::parameter_groups_test
