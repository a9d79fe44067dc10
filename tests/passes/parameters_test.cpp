// Finds the trainable initializers of models that do not declare them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <set>
#include <tuple>

#include "base/error.h"
#include "errors.h"
#include "passes/hand_built.h"
#include "passes/parameters/places.h"
#include "passes/passes.h"

namespace protrain::test::parameters_test {

namespace {

struct ParameterSearch {
  Graph graph;
  std::vector<passes::Finding> findings;
  std::vector<std::string> loaded;

  std::vector<std::string> parameters() const {
    std::vector<std::string> names;
    for (const passes::Finding &finding : findings)
      if (finding.parameter) names.push_back(finding.initializer);
    return names;
  }
};

using Values = std::map<std::string, Array>;

ParameterSearch find(Graph graph, const passes::Choices &choices = {}, const Values &values = {},
                     const passes::FileFacts &facts = {}) {
  ParameterSearch found{std::move(graph), {}, {}};
  passes::fold(found.graph);
  const auto load = [&](const std::string &name) {
    found.loaded.push_back(name);
    const auto at = values.find(name);
    return at != values.end() ? at->second : some_values(found.graph.value(found.graph.find(name)).type, 7);
  };
  found.findings = passes::find_parameters(found.graph, load, choices, facts).findings;
  passes::fold(found.graph);
  graph::verify(found.graph);
  return found;
}

using Names = std::vector<std::string>;

}  // namespace

TEST(Parameters, HaveElements) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4}), narrow = b.add("MatMul", {x, b.initializer("w", {4, 3})});
  b.graph.outputs = {narrow, b.add("MatMul", {x, b.initializer("none", {4, 0})})};
  EXPECT_EQ(find(b.graph).parameters(), Names{"w"});
  EXPECT_EQ(test::error_of([&] { find(b.graph, {.trainable = {"none"}}); }).code, Code::arg);
}

TEST(Parameters, StandWhereWeightsStand) {
  HandBuilt b;
  const ValueId ids = b.input("ids", {2, 3}, DType::i64);
  ValueId x = b.add("Gather", {b.initializer("table", {9, 8}), ids}, {{"axis", std::int64_t{0}}});
  x = b.add("Add", {x, b.slice(b.initializer("positions", {7, 8}), 0, 0, 3)});
  x = b.add_all("LayerNormalization", {x, b.initializer("scale", {8}), b.initializer("bias", {8})},
                {{"axis", std::int64_t{-1}}}, 3)[0];
  x = b.add("MatMul", {x, b.transpose(b.initializer("linear", {6, 8}), {1, 0})});
  x = b.add("Mul", {x, b.add("Add", {b.number(1), b.initializer("gain", {6})})});
  const ValueId token = b.add("Expand", {b.initializer("token", {1, 1, 6})}, {{"shape", Integers{2, 1, 6}}});
  b.graph.outputs = {b.add("Concat", {token, x}, {{"axis", std::int64_t{1}}})};
  const ParameterSearch found = find(b.graph);
  EXPECT_EQ(found.parameters(), (Names{"table", "positions", "scale", "bias", "linear", "gain", "token"}));
  EXPECT_EQ(found.graph.parameters.size(), 7u);
  EXPECT_EQ(found.graph.value(found.graph.parameters[0]).name, "table");
}

TEST(Parameters, WeightsOfConvolutionsWhateverTheirGroups) {
  for (const auto &[groups, kernel, stride] : {std::tuple{1, 4, 4}, std::tuple{1, 3, 1}, std::tuple{8, 3, 2}}) {
    HandBuilt b;
    const ValueId image = b.input("image", {2, 8, 16, 16});
    const ValueId w = b.initializer("w", {8, 8 / groups, kernel, kernel});
    b.graph.outputs = {b.add("Conv", {image, w, b.initializer("bias", {8})},
                             {{"group", std::int64_t{groups}}, {"strides", Integers{stride, stride}}})};
    EXPECT_EQ(find(std::move(b.graph)).parameters(), (Names{"w", "bias"})) << groups << " groups";
  }
}

TEST(Parameters, ScalesOfChannelsButNotTheirStatistics) {
  HandBuilt b;
  ValueId x = b.input("image", {2, 8, 6, 6});
  x = b.add("GroupNormalization", {x, b.initializer("group_scale", {8}), b.initializer("group_bias", {8})},
            {{"num_groups", std::int64_t{2}}});
  b.graph.outputs = {b.add("BatchNormalization", {x, b.initializer("scale", {8}), b.initializer("bias", {8}),
                                                  b.initializer("mean", {8}), b.initializer("variance", {8})})};
  EXPECT_EQ(find(std::move(b.graph)).parameters(), (Names{"group_scale", "group_bias", "scale", "bias"}));
}

// A normalization of one channel reads single numbers as scale and shift. If a module has named the two numbers, they
// are parameters. Otherwise they may be the 1 and the 0 of a normalization without parameters, so they do not count as
// parameters.
TEST(Parameters, ScalesAndShiftsOfOneChannelHaveNames) {
  for (const char *op : {"BatchNormalization", "InstanceNormalization", "LayerNormalization"})
    for (const auto &[scale, shift, own] : {std::tuple("n.weight", "n.bias", true), {"scale", "shift", false}}) {
      HandBuilt b;
      const bool batch = std::string_view(op) == "BatchNormalization";
      std::vector<ValueId> inputs = {b.input("x", {2, 1, batch ? 4 : 1}), b.initializer(scale, {1}),
                                     b.initializer(shift, {1})};
      if (batch) inputs.insert(inputs.end(), {b.initializer("mean", {1}), b.initializer("variance", {1})});
      b.graph.outputs = {b.add(op, inputs)};
      const passes::FileFacts facts = {.splits = {}, .statistics = {"mean", "variance"}};
      const ParameterSearch found = find(b.graph, {}, {}, facts);
      EXPECT_EQ(found.parameters(), (own ? Names{scale, shift} : Names{})) << op;
      EXPECT_EQ(found.findings.at(0).doubt.empty(), own) << op;
    }
}

TEST(Parameters, MasksFrequenciesAndScalarsAreConstants) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4, 3, 6});  // (B, H, S, D)
  const ValueId positions = b.constant(some_values({DType::f64, {1, 1, 3}}, 1));
  const ValueId angles = b.transpose(
      b.add("MatMul", {b.reshape(b.initializer("inverse_frequencies", {6}), {1, 6, 1}), positions}), {0, 2, 1});
  const ValueId rotated = b.add("Mul", {x, b.reshape(b.add("Cos", {angles}), {1, 1, 3, 6})});
  const ValueId scaled = b.add("Mul", {rotated, b.initializer("scalar", {1})});
  const ValueId scores = b.add("MatMul", {scaled, b.transpose(scaled, {0, 1, 3, 2})});
  const ValueId slopes = b.add("Add", {scores, b.add("Mul", {b.initializer("slopes", {4, 1, 1}), positions})});
  const ValueId masked = b.add("Add", {slopes, b.slice(b.initializer("mask", {1, 1, 9, 3}), 2, 0, 3)});
  b.graph.outputs = {b.add("Softmax", {masked}, {{"axis", std::int64_t{-1}}})};
  const ParameterSearch found = find(b.graph);
  EXPECT_EQ(found.parameters(), Names{});
  const std::set<std::string> loaded(found.loaded.begin(), found.loaded.end());
  EXPECT_EQ(loaded, (std::set<std::string>{"inverse_frequencies", "scalar", "slopes", "mask"}));
  EXPECT_FALSE(histogram(found.graph).contains("Cos"));
}

TEST(Parameters, PositionBiasesThatCameThroughAGatherAreLearned) {
  HandBuilt b;
  const ValueId scores = b.input("scores", {2, 4, 3, 3});
  const ValueId buckets = b.constant(Array::from_integers({DType::i64, {3, 3}}, {0, 1, 2, 1, 0, 1, 2, 1, 0}));
  const ValueId bias = b.add("Gather", {b.initializer("relative_bias", {5, 4}), buckets}, {{"axis", std::int64_t{0}}});
  const ValueId added = b.add("Add", {scores, b.reshape(b.transpose(bias, {2, 0, 1}), {1, 4, 3, 3})});
  b.graph.outputs = {b.add("Softmax", {added}, {{"axis", std::int64_t{-1}}})};
  EXPECT_EQ(find(b.graph).parameters(), Names{"relative_bias"});
}

TEST(Parameters, CachesOfAnglesPickedByPositionAreConstants) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4, 3, 6}), positions = b.input("positions", {2, 3}, DType::i64);
  const ValueId cos = b.add("Gather", {b.initializer("cos_cache", {9, 6}), positions}, {{"axis", std::int64_t{0}}});
  b.graph.outputs = {b.add("Mul", {x, b.reshape(cos, {2, 1, 3, 6})})};
  EXPECT_EQ(find(b.graph).parameters(), Names{});
}

TEST(Parameters, ScaleChannelsAndHeadsThatAreThere) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4, 3, 3}), distances = b.input("distances", {2, 1, 3, 3});
  const auto along_heads = [&](const char *name) { return b.reshape(b.initializer(name, {4}), {4, 1, 1}); };
  const ValueId scaled = b.add("Mul", {x, along_heads("scale")});
  b.graph.outputs = {b.add("Add", {scaled, b.add("Mul", {along_heads("slopes"), distances})})};
  EXPECT_EQ(find(b.graph).parameters(), Names{"scale"});
}

TEST(Parameters, UnreadInitializersAreNotLoaded) {
  HandBuilt b;
  b.initializer("unread", {100});
  b.graph.outputs = {b.add("Exp", {b.input("x", {2})})};
  const ParameterSearch found = find(b.graph);
  EXPECT_TRUE(found.loaded.empty());
  EXPECT_EQ(found.findings.at(0).reason, "is read by nothing");
}

TEST(Parameters, ChoicesOverruleTheRules) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("layer.weight", {4, 4})});
  b.graph.outputs = {b.add("Mul", {x, b.initializer("layer.scale", {})})};
  const ParameterSearch found = find(b.graph, {.trainable = {"*.scale"}, .frozen = {"layer.w*"}});
  EXPECT_EQ(found.parameters(), (Names{"layer.weight", "layer.scale"}));
  EXPECT_TRUE(found.findings[0].frozen);
  EXPECT_TRUE(found.graph.value(found.graph.find("layer.weight")).frozen);
  EXPECT_THROW(find(b.graph, {.trainable = {"nothing*"}, .frozen = {}}), Error);
}

TEST(Parameters, AHeadThatEqualsTheTableTransposedIsTheTable) {
  HandBuilt b;
  const ValueId ids = b.input("ids", {3}, DType::i64);
  const ValueId x = b.add("Gather", {b.initializer("table", {9, 4}), ids}, {{"axis", std::int64_t{0}}});
  b.graph.outputs = {b.add("MatMul", {x, b.initializer("head", {4, 9})})};
  const Array table = some_values({DType::f64, {9, 4}}, 3);
  std::vector<double> transposed(36);
  for (std::size_t i = 0; i < 9; ++i)
    for (std::size_t j = 0; j < 4; ++j) transposed[j * 9 + i] = table.doubles()[i * 4 + j];
  const Array equal = Array::from_doubles({DType::f64, {4, 9}}, transposed);
  const ParameterSearch tied = find(b.graph, {}, {{"table", table}, {"head", equal}});
  EXPECT_EQ(tied.parameters(), Names{"table"});
  EXPECT_EQ(tied.findings[1].tied_to, "table");

  transposed[5] += 1e-9;
  EXPECT_EQ(find(b.graph, {}, {{"table", table}, {"head", Array::from_doubles({DType::f64, {4, 9}}, transposed)}})
                .parameters(),
            (Names{"table", "head"}));
  const Values constant = {{"table", Array::filled({DType::f64, {9, 4}}, 1)},
                           {"head", Array::filled({DType::f64, {4, 9}}, 1)}};
  EXPECT_EQ(find(b.graph, {}, constant).parameters(), (Names{"table", "head"}));
}

// An autoencoder multiplies by a weight and by its transpose. The exporter has stored the transpose as an initializer
// of its own, which must be tied to the weight.
TEST(Parameters, WhatTheExporterTransposedIsTheParameterThatIsReadToo) {
  HandBuilt b;
  const ValueId hidden = b.add("MatMul", {b.input("x", {2, 3}), b.initializer("encoder.weight", {3, 3})});
  b.graph.outputs = {b.add("MatMul", {hidden, b.initializer("t", {3, 3})})};
  const auto matrix = [](const std::vector<double> &values) {
    return Array::from_doubles({DType::f64, {3, 3}}, values);
  };
  const Array weight = matrix({1, 2, 3, 4, 5, 6, 7, 8, 9}), transposed = matrix({1, 4, 7, 2, 5, 8, 3, 6, 9});
  const Array symmetric = matrix({1, 2, 3, 2, 5, 6, 3, 6, 9});
  const auto found = [&](const Array &original, const Array &copy, const std::string &source = "encoder.weight") {
    return find(b.graph,
                {.declared = {.kinds = {{source, graph::StoredKind::parameter}}, .folded_from = {{"t", {source}}}}},
                {{"encoder.weight", original}, {"t", copy}});
  };

  const ParameterSearch tied = found(weight, transposed);
  EXPECT_EQ(tied.parameters(), Names{"encoder.weight"});
  EXPECT_EQ(tied.findings[1].tied_to, "encoder.weight");
  EXPECT_TRUE(tied.findings[1].transposed);
  EXPECT_FALSE(found(weight, weight).findings[1].transposed);
  EXPECT_EQ(found(weight, weight).parameters(), Names{"encoder.weight"});

  for (const Array &copy : {symmetric, Array::filled({DType::f64, {3, 3}}, 1)}) {
    const ParameterSearch unknown = found(copy, copy);
    EXPECT_EQ(unknown.parameters(), (Names{"encoder.weight", "t"})) << "no value tells a copy from a transpose";
    EXPECT_NE(unknown.findings[1].doubt, "");
  }
  EXPECT_NE(found(weight, symmetric).findings[1].doubt, "");
  EXPECT_EQ(found(weight, transposed, "decoder.weight").findings[1].tied_to, "") << "another parameter's copy";
}

// A model picks rows from a codebook, and also compares the codebook with data. For the comparison the exporter has
// stored a copy of shape (1, codes, features), which must be tied to the codebook.
TEST(Parameters, WhatTheExporterReshapedIsTheParameterThatIsReadToo) {
  HandBuilt b;
  const ValueId apart = b.add("Sub", {b.input("x", {3, 1, 2}), b.initializer("unsqueeze", {1, 2, 2})});
  const ValueId ids = b.input("ids", {3}, DType::i64);
  const ValueId rows = b.add("Gather", {b.initializer("book", {2, 2}), ids}, {{"axis", std::int64_t{0}}});
  b.graph.outputs = {apart, rows};
  const auto found = [&](const std::vector<double> &book, const std::vector<double> &copy) {
    return find(
        b.graph,
        {.declared = {.kinds = {{"book", graph::StoredKind::parameter}}, .folded_from = {{"unsqueeze", {"book"}}}}},
        {{"book", Array::from_doubles({DType::f64, {2, 2}}, book)},
         {"unsqueeze", Array::from_doubles({DType::f64, {1, 2, 2}}, copy)}});
  };
  const ParameterSearch tied = found({1, 2, 3, 4}, {1, 2, 3, 4});
  EXPECT_EQ(tied.parameters(), Names{"book"});
  EXPECT_EQ(tied.findings[0].tied_to, "book");
  EXPECT_EQ(tied.graph.nodes()[0].op, "Reshape");
  EXPECT_NE(found({1, 2, 3, 4}, {1, 3, 2, 4}).findings[0].doubt, "") << "another order of the elements";
}

// A file has a parameter and its transpose. The trained output reads only one of the two matrices. The matrix that it
// does not read must be tied to the other one all the same.
TEST(Parameters, WhatTheExporterMovedIsTiedThoughOnlyOtherOutputsReadIt) {
  const auto matrix = [](const Shape &shape, const std::vector<double> &values) {
    return Array::from_doubles({DType::f64, shape}, values);
  };
  const Array weight = matrix({3, 2}, {1, 2, 3, 4, 5, 6}), transposed = matrix({2, 3}, {1, 3, 5, 2, 4, 6});
  const auto found = [&](const std::string &read, const std::string &unread, const Array &copy,
                         const std::string &source = "weight") {
    HandBuilt b;
    b.graph.outputs = {b.add("MatMul", {b.input("x", {2, 3}), b.initializer(read, {3, 2})})};
    b.initializer(unread, {2, 3});
    return find(b.graph,
                {.declared = {.kinds = {{source, graph::StoredKind::parameter}}, .folded_from = {{"t", {source}}}}},
                {{read, weight}, {unread, copy}});
  };
  const ParameterSearch tied = found("weight", "t", transposed);
  EXPECT_EQ(tied.parameters(), Names{"weight"});
  EXPECT_EQ(tied.findings[1].tied_to, "weight");
  EXPECT_TRUE(tied.findings[1].transposed);
  EXPECT_EQ(found("t", "weight", transposed).findings[1].tied_to, "t") << "the copy is what is trained";
  EXPECT_EQ(found("weight", "t", transposed, "other").findings[1].tied_to, "") << "another parameter's copy";

  const ParameterSearch unlike = found("weight", "t", matrix({2, 3}, {9, 3, 5, 2, 4, 6}));
  EXPECT_EQ(unlike.findings[1].tied_to, "");
  EXPECT_NE(unlike.findings[1].doubt, "");
}

// With adapters all parameters are frozen, and an export adds the adapter's change to the parameter. So the unread copy
// of a frozen parameter must be tied to it as well.
TEST(Parameters, WhatTheExporterMovedIsTiedToWhatAnAdapterChanges) {
  HandBuilt b;
  b.graph.outputs = {b.add("MatMul", {b.input("x", {2, 3}), b.initializer("weight", {3, 2})})};
  b.initializer("t", {2, 3});
  const Values values = {{"weight", Array::from_doubles({DType::f64, {3, 2}}, {1, 2, 3, 4, 5, 6})},
                         {"t", Array::from_doubles({DType::f64, {2, 3}}, {1, 3, 5, 2, 4, 6})}};
  passes::Choices choices = {.frozen = {"weight"}};
  choices.declared = {.kinds = {{"weight", graph::StoredKind::parameter}}, .folded_from = {{"t", {"weight"}}}};
  EXPECT_EQ(find(b.graph, choices, values).findings[1].tied_to, "") << "a frozen parameter does not change";
  choices.frozen.clear();
  choices.adapters = {{.pattern = "weight"}};
  const ParameterSearch tied = find(b.graph, choices, values);
  EXPECT_TRUE(tied.findings[0].frozen);
  EXPECT_EQ(tied.findings[1].tied_to, "weight");
  EXPECT_TRUE(tied.findings[1].transposed);
  const Values unlike = {{"t", Array::from_doubles({DType::f64, {2, 3}}, {9, 3, 5, 2, 4, 6})}};
  EXPECT_NE(find(b.graph, choices, unlike).findings[1].doubt.find("an adapter may change"), std::string::npos);
}

// A plan can be made without weights. Then nothing shows which matrix is another's transpose.
TEST(Parameters, WithoutWeightsNothingIsTied) {
  HandBuilt b;
  const ValueId ids = b.input("ids", {3}, DType::i64);
  const ValueId x = b.add("Gather", {b.initializer("table", {9, 4}), ids}, {{"axis", std::int64_t{0}}});
  const ValueId y = b.add("MatMul", {x, b.initializer("head", {4, 9})});
  b.graph.outputs = {b.add("MatMul", {y, b.initializer("t", {9, 4})})};
  passes::Choices choices;
  choices.declared.kinds = {{"table", graph::StoredKind::parameter}, {"head", graph::StoredKind::parameter}};
  choices.declared.folded_from = {{"t", {"table"}}};
  const auto missing = [](const std::string &name) -> Array { fail(Code::io, name, "no such file"); };
  passes::find_parameters(b.graph, missing, choices, {});
  EXPECT_EQ(b.graph.parameters.size(), 3u);
}

TEST(Parameters, TiesMakeOneOfSeveral) {
  HandBuilt b;
  const ValueId ids = b.input("ids", {3}, DType::i64);
  const ValueId x = b.add("Gather", {b.initializer("table", {9, 4}), ids}, {{"axis", std::int64_t{0}}});
  const ValueId y = b.add("Gather", {b.initializer("decoder.table", {9, 4}), ids}, {{"axis", std::int64_t{0}}});
  b.graph.outputs = {b.add("MatMul", {b.add("Add", {x, y}), b.initializer("head", {4, 9})})};
  const ParameterSearch tied = find(b.graph, {.ties = {"*table|head"}});
  EXPECT_EQ(tied.parameters(), Names{"table"});
  EXPECT_EQ(tied.findings[1].tied_to, "table");
  EXPECT_FALSE(tied.findings[1].transposed);
  EXPECT_EQ(tied.findings[2].tied_to, "table");
  EXPECT_TRUE(tied.findings[2].transposed);
  EXPECT_EQ(tied.findings[2].reason, "by the option `tie` the transpose of table");
  EXPECT_EQ(find(b.graph, {.ties = {"table|decoder.table"}}).parameters(), (Names{"table", "head"}));
}

// The matrix c is tied to b, and then b to a. So c must follow a too. It is the transpose of a transpose.
TEST(Parameters, TiesToWhatIsTiedLaterFollowIt) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {3, 4}), b.initializer("a", {4, 9})});
  const ValueId y = b.add("MatMul", {x, b.initializer("b", {9, 4})});
  b.graph.outputs = {b.add("MatMul", {y, b.initializer("c", {4, 9})})};
  const ParameterSearch tied = find(b.graph, {.ties = {"b|c", "a|b"}});
  EXPECT_EQ(tied.parameters(), Names{"a"});
  EXPECT_EQ(tied.graph.parameters, std::vector<ValueId>{tied.graph.find("a")});
  for (const std::size_t copy : {1, 2}) EXPECT_EQ(tied.findings[copy].tied_to, "a");
  EXPECT_TRUE(tied.findings[1].transposed);
  EXPECT_FALSE(tied.findings[2].transposed);
  EXPECT_EQ(tied.findings[2].reason, "by the option `tie` the transpose of b, which is tied to a");
  for (const graph::Node &node : tied.graph.nodes())
    for (const ValueId in : node.inputs) EXPECT_NE(tied.graph.value(in).origin, Origin::initializer) << node.op;
}

TEST(Parameters, TiesOfNothingAndOfOtherShapesAreRefused) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {3, 4}), b.initializer("a", {4, 9})});
  b.graph.outputs = {b.add("Add", {x, b.initializer("b", {9})})};
  EXPECT_EQ(code_of([&] { find(b.graph, {.ties = {"a|b"}}); }), Code::shape);
  EXPECT_EQ(code_of([&] { find(b.graph, {.ties = {"a|c"}}); }), Code::arg);
  EXPECT_EQ(code_of([&] { find(b.graph, {.ties = {"c*"}}); }), Code::arg);
}

TEST(Parameters, OneNumberIsAddedToWhatHasNoShape) {
  HandBuilt b;
  const ValueId sum = b.add("Add", {b.input("x", {}), b.initializer("m.bias", {1})});
  b.graph.value(sum).type = {};
  b.graph.outputs = {b.add("Unknown", {sum})};
  EXPECT_TRUE(passes::Places(b.graph)
                  .use(passes::Places(b.graph).of(b.graph.find("m.bias"), passes::Naming::own).at(0))
                  .weights);
}

// tf2onnx unrolls a recurrent layer into nodes, and expands a single zero to the layer's first state. Such a zero is no
// parameter, unless a module has named it.
TEST(Parameters, OneNumberIsNoMatrixUnlessAModuleHasNamedIt) {
  for (const char *name : {"m/gru/zeros/Const:0", "m.state"}) {
    HandBuilt b;
    const ValueId state = b.add("Expand", {b.initializer(name, {})}, {{"shape", Integers{2, 4}}});
    const ValueId kept = b.add("MatMul", {state, b.initializer("m.u", {4, 4})});
    const ValueId x = b.add("MatMul", {b.input("x", {2, 3}), b.initializer("m.w", {3, 4})});
    const ValueId one = b.add("MatMul", {b.input("one", {2, 1}), b.initializer("m.v", {1, 1})});
    b.graph.outputs = {b.add("Add", {kept, x}), one};
    const bool named = std::string(name) == "m.state";
    const auto zero = Array::filled({DType::f64, {}}, 0);
    EXPECT_EQ(find(b.graph, {}, {{name, zero}}).parameters(),
              named ? (Names{name, "m.u", "m.w", "m.v"}) : (Names{"m.u", "m.w", "m.v"}));
  }
}

// ONNX Runtime replaces functions by their nodes, and stores their numbers, such as an epsilon, as initializers.
TEST(Parameters, AnEpsilonIsASetting) {
  HandBuilt b;
  const ValueId variance =
      b.add("ReduceMean", {b.input("x", {3, 4})}, {{"axes", Integers{1}}, {"keepdims", std::int64_t{1}}});
  const ValueId sum = b.add("Add", {variance, b.initializer("_inlfunc_Norm_Epsilon", {1})});
  b.graph.outputs = {b.add("Sqrt", {sum})};
  const passes::Places places(b.graph);
  const passes::Use use = places.use(places.of(b.graph.find("_inlfunc_Norm_Epsilon"), passes::Naming::made).at(0));
  EXPECT_FALSE(use.weights);
  EXPECT_EQ(use.doubt, "");
}

// A Where may choose between a parameter and other values, with data as the condition. T5's relative position biases
// reach the scores through a Where, and BEiT's mask token replaces hidden patches.
TEST(Parameters, ChosenByData) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 4}), shown = b.input("shown", {2, 3, 1}, DType::boolean);
  const ValueId hidden = b.add("Where", {shown, x, b.initializer("token", {1, 1, 4})});
  const ValueId bias =
      b.add("Gather", {b.initializer("by_distance", {8, 3}), b.integers({0, 1, 2})}, {{"axis", std::int64_t{0}}});
  const ValueId scores = b.add("MatMul", {hidden, b.transpose(hidden, {0, 2, 1})});
  const ValueId masked = b.add("Add", {scores, b.add("Where", {shown, bias, b.initializer("low", {3, 3})})});
  b.graph.outputs = {b.add("Softmax", {masked}, {{"axis", std::int64_t{-1}}})};
  EXPECT_EQ(find(b.graph).parameters(), (Names{"token", "by_distance"}));
}

// PyTorch expands a mask token to all patches before a Where chooses between the token and the patches.
TEST(Parameters, ChosenByDataAfterExpand) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 4}), shown = b.input("shown", {2, 3, 1}, DType::boolean);
  const ValueId tokens = b.add("Expand", {b.initializer("m.token", {1, 1, 4})}, {{"shape", Integers{2, 3, 4}}});
  const ValueId hidden = b.add("Where", {shown, x, tokens});
  b.graph.outputs = {b.add("Where", {shown, hidden, b.initializer("m.table", {3, 4})})};
  const ParameterSearch found = find(b.graph);
  EXPECT_EQ(found.parameters(), Names{"m.token"});
  EXPECT_NE(std::ranges::find(found.findings, "m.table", &passes::Finding::initializer)->doubt, "");
}

TEST(Parameters, ScalesOfHeadsStandRightAfterTheirNormalization) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 4, 6});  // (B, S, H, D)
  const ValueId ones = b.constant(Array::filled({DType::f64, {6}}, 1));
  const ValueId norm = b.add_all("RMSNormalization", {x, ones}, {{"axis", std::int64_t{-1}}}, 2)[0];
  const ValueId scaled = b.add("Mul", {norm, b.initializer("heads", {4, 6})});
  b.graph.outputs = {b.add("Mul", {scaled, b.initializer("angles", {4, 6})})};
  EXPECT_EQ(find(b.graph).parameters(), Names{"heads"});
}

// TensorFlow and JAX normalize as x * (scale / deviation) - mean * (scale / deviation), over any number of axes.
TEST(Parameters, ScalesOfSeveralAxesMeetTheInverseOfADeviation) {
  for (const bool divides : {false, true}) {
    HandBuilt b;
    const ValueId x = b.input("x", {2, 3, 4});
    const ValueId variance =
        b.add("ReduceMean", {b.add("Mul", {x, x})}, {{"axes", Integers{1, 2}}, {"keepdims", std::int64_t{1}}});
    const ValueId deviation = b.add("Sqrt", {variance});
    const ValueId inverse = divides ? b.add("Div", {b.number(1), deviation}) : b.add("Reciprocal", {deviation});
    b.graph.outputs = {b.add("Mul", {x, b.add("Mul", {inverse, b.initializer("scale", {1, 3, 4})})})};
    EXPECT_EQ(find(b.graph).parameters(), Names{"scale"});
  }
}

// Keras with JAX writes a BatchNormalization as x * (scale / deviation) + (bias - mean * (scale / deviation)).
TEST(Parameters, StatisticsOfANormalizationInPiecesAreConstants) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4});
  const ValueId deviation = b.add("Sqrt", {b.add("Add", {b.initializer("variance", {4}), b.number(1e-3)})});
  const ValueId factor = b.add("Mul", {b.add("Div", {b.number(1), deviation}), b.initializer("scale", {4})});
  const ValueId shift = b.add("Mul", {b.add("Neg", {b.initializer("mean", {4})}), factor});
  const ValueId scaled = b.add("Mul", {x, factor});
  b.graph.outputs = {b.add("Add", {scaled, b.add("Add", {shift, b.initializer("bias", {4})})})};
  EXPECT_EQ(find(b.graph).parameters(), (Names{"scale", "bias"}));
}

// onnx.compose puts the standardization of images in front of a model. The numbers of the standardization get names
// with a prefix, which look like names that a module has given.
TEST(Parameters, ScalesOfInputsAreDoubtful) {
  HandBuilt b;
  const ValueId x = b.add("Mul", {b.input("x", {2, 3, 4, 4}), b.initializer("pre.scale", {1, 3, 1, 1})});
  const ValueId y = b.add("Conv", {x, b.initializer("m.weight", {5, 3, 1, 1})});
  b.graph.outputs = {b.add("Mul", {b.add("Relu", {y}), b.initializer("m.scale", {1, 5, 1, 1})})};
  const ParameterSearch found = find(b.graph);
  EXPECT_EQ(found.parameters(), (Names{"pre.scale", "m.weight", "m.scale"}));
  for (const passes::Finding &finding : found.findings)
    EXPECT_EQ(finding.doubt.empty(), finding.initializer != "pre.scale") << finding.initializer;
}

TEST(Parameters, WeightsOfALossAreConstants) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("head", {4, 5})});
  const ValueId likely = b.add("LogSoftmax", {x}, {{"axis", std::int64_t{-1}}});
  const ValueId weighed = b.add("Mul", {likely, b.initializer("classes", {5})});
  const ValueId picked = b.add("Gather", {b.initializer("by_label", {5}), b.input("labels", {2, 1}, DType::i64)},
                               {{"axis", std::int64_t{0}}});
  b.graph.outputs = {
      b.add("ReduceMean", {b.add("Neg", {b.add("Mul", {weighed, picked})})}, {{"keepdims", std::int64_t{0}}})};
  EXPECT_EQ(find(b.graph).parameters(), Names{"head"});
}

TEST(Parameters, RowsOfZerosAndTablesOfAnglesAreNotLearned) {
  HandBuilt b;
  const ValueId ids = b.input("ids", {2, 3}, DType::i64);
  const auto table = [&](const char *name) {
    return b.add("Gather", {b.initializer(name, {5, 4}), ids}, {{"axis", std::int64_t{0}}});
  };
  ValueId x = b.add("Add", {table("learned"), b.add("Add", {table("halves"), table("turns")})});
  x = b.add("Add", {x, b.initializer("row", {1, 4})});
  x = b.add("Add", {x, b.initializer("full_row", {1, 4})});
  b.graph.outputs = {b.add("Add", {x, b.initializer("zeros", {4})})};
  std::vector<double> halves(20, 0.0), turns(20, 0.0);  // row 0 stays zero, for padding
  for (std::size_t row = 1; row < 5; ++row)
    for (std::size_t i = 0; i < 2; ++i) {
      const double angle = static_cast<double>(row) / (i == 0 ? 1 : 7);
      halves[row * 4 + i] = turns[row * 4 + 2 * i] = std::sin(angle);
      halves[row * 4 + 2 + i] = turns[row * 4 + 2 * i + 1] = std::cos(angle);
    }
  const graph::Type type = {DType::f64, {5, 4}};
  const Values values = {{"halves", Array::from_doubles(type, halves)},
                         {"turns", Array::from_doubles(type, turns)},
                         {"row", Array::filled({DType::f64, {1, 4}}, 0)},
                         {"zeros", Array::filled({DType::f64, {4}}, 0)}};
  EXPECT_EQ(find(b.graph, {}, values).parameters(), (Names{"learned", "full_row", "zeros"}));
}

// If a table's rows are multiplied by an input, such as a padding mask, the table holds embeddings. If they are
// multiplied by computed values, the table may hold cosines.
TEST(Parameters, ATableMultipliedByAMaskIsLearned) {
  HandBuilt b;
  const ValueId ids = b.input("ids", {2, 3}, DType::i64), mask = b.input("mask", {2, 3, 1});
  const ValueId x =
      b.add("Mul", {b.add("Gather", {b.initializer("table", {9, 4}), ids}, {{"axis", std::int64_t{0}}}), mask});
  const ValueId cos = b.add("Gather", {b.initializer("cos", {9, 4}), ids}, {{"axis", std::int64_t{0}}});
  b.graph.outputs = {b.add("Mul", {b.add("Tanh", {x}), cos})};
  EXPECT_EQ(find(b.graph).parameters(), Names{"table"});
}

TEST(Prepare, NamesEverythingThatCannotBeTrainedAtOnce) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("w", {4, 4}, DType::f64)});
  const ValueId values = b.constant(Array::from_doubles({DType::f64, {2}}, {0, 1}));
  const ValueId places = b.add("OneHot", {x, b.integers({3}), values});
  const ValueId strange = b.add("Wavelet", {b.add("ReduceMean", {places}, {{"keepdims", std::int64_t{0}}})});
  b.graph.outputs = {b.add("Exp", {strange})};
  try {
    passes::prepare(b.graph, [](const std::string &) { return Array(); }, {});
    FAIL() << "nothing was reported";
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::unsupported);
    EXPECT_NE(error.text.find("2 operators cannot be trained"), std::string::npos) << error.text;
    EXPECT_NE(error.text.find("OneHot has a form that is not supported on data (/OneHot)"), std::string::npos)
        << error.text;
    EXPECT_NE(error.text.find("Wavelet is unknown (/Wavelet)"), std::string::npos) << error.text;
  }
}

TEST(Prepare, LeavesOutWhatOnlyOtherOutputsNeed) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4}, DType::f32), w = b.initializer("w", {4, 4}, DType::f32);
  const ValueId y = b.add("MatMul", {x, w}), boxes = b.add("NonMaxSuppression", {y, y});
  const ValueId loss = b.add("ReduceMean", {y}, {{"keepdims", std::int64_t{0}}});
  const auto load = [](const std::string &) { return Array::filled({DType::f32, {4, 4}}, 1); };
  b.graph.outputs = {y, loss, boxes};
  const passes::PreparedModel prepared = passes::prepare(b.graph, load, {});
  EXPECT_EQ(prepared.graph.outputs, std::vector<ValueId>{loss});
  EXPECT_EQ(prepared.graph.node_count(), 2u);
  b.graph.outputs = {boxes, loss};  // the first output may be the loss
  EXPECT_THROW(passes::prepare(b.graph, load, {}), Error);
}

}  // namespace protrain::test::parameters_test
