// The evidence on which an initializer counts as a parameter. Declarations outweigh the rules, some declarations more
// than others. Where evidence is missing, the finding is marked as doubtful.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "base/error.h"
#include "errors.h"
#include "passes/hand_built.h"
#include "passes/parameters/names.h"
#include "passes/passes.h"

namespace protrain::test::evidence_test {

namespace {

using graph::StoredKind;
using passes::Evidence;
using passes::Finding;
using Values = std::map<std::string, Array>;

std::map<std::string, Finding> judged(Graph graph, const passes::Choices &choices = {}, const Values &values = {},
                                      const passes::FileFacts &facts = {}) {
  passes::fold(graph);
  const auto load = [&](const std::string &name) {
    const auto at = values.find(name);
    return at != values.end() ? at->second : some_values(graph.value(graph.find(name)).type, 7);
  };
  std::map<std::string, Finding> found;
  for (Finding &finding : passes::find_parameters(graph, load, choices, facts).findings)
    found.emplace(finding.initializer, finding);
  return found;
}

bool is_trained(const Finding &finding) { return finding.parameter && !finding.frozen; }
bool is_frozen(const Finding &finding) { return finding.parameter && finding.frozen; }
bool is_constant(const Finding &finding) { return !finding.parameter; }
bool is_sure(const Finding &finding) { return finding.doubt.empty(); }

// A graph that computes (x base.weight + base.bias) times the number m.scale.
Graph two_layers() {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("m.base.weight", {4, 4})});
  const ValueId y = b.add("Add", {x, b.initializer("m.base.bias", {4})});
  b.graph.outputs = {b.add("Mul", {y, b.initializer("m.scale", {})})};
  return b.graph;
}

Array counted(const Shape &shape) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < element_count(shape); ++i) values.push_back(static_cast<double>(i));
  return Array::from_doubles({DType::f64, shape}, values);
}

}  // namespace

TEST(Evidence, AListOutweighsTheExporterAndLeavesTheRestFrozenWhereWeightsStand) {
  const graph::FileDeclarations declared = {.list = {{"m.scale"}}, .kinds = {{"m.base.weight", StoredKind::parameter}}};
  const auto found = judged(two_layers(), {.declared = declared});
  EXPECT_TRUE(is_trained(found.at("m.scale")));
  EXPECT_TRUE(is_frozen(found.at("m.base.weight")));
  EXPECT_TRUE(is_frozen(found.at("m.base.bias")));
  for (const auto &[name, finding] : found) {
    EXPECT_TRUE(is_sure(finding)) << name << ": " << finding.doubt;
    EXPECT_EQ(finding.evidence, Evidence::list) << name;
  }
}

TEST(Evidence, AListOfNothingThatIsThereIsAnError) {
  const Error error = error_of([] { judged(two_layers(), {.declared = {.list = {{"base.weight", "scale"}}}}); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_NE(error.text.find("base.weight, scale"), std::string::npos) << error.text;
}

TEST(Evidence, NamesOfAListReachWhatTheExporterMadeOfThem) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("val_3", {4, 4})});
  b.graph.outputs = {b.add("Mul", {x, b.initializer("exp", {})})};
  const graph::FileDeclarations declared = {.list = {{"lin.weight", "scale"}},
                                            .folded_from = {{"val_3", {"lin.weight"}}, {"exp", {"scale"}}}};
  const auto found = judged(b.graph, {.declared = declared});
  EXPECT_TRUE(is_trained(found.at("val_3")));
  EXPECT_TRUE(is_sure(found.at("val_3")));
  EXPECT_FALSE(is_sure(found.at("exp"))) << "an exponential of a parameter is not that parameter";
}

TEST(Evidence, WhatMayBeAMissingNameOfAListIsDoubtful) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("onnx::MatMul_7", {4, 4})});
  b.graph.outputs = {b.add("Add", {x, b.initializer("lin.bias", {4})})};
  const graph::FileDeclarations declared = {.list = {{"lin.weight", "lin.bias"}}};
  const auto found = judged(b.graph, {.declared = declared});
  EXPECT_TRUE(is_trained(found.at("onnx::MatMul_7")));
  EXPECT_NE(found.at("onnx::MatMul_7").doubt.find("lin.weight"), std::string::npos);
  EXPECT_TRUE(is_sure(found.at("lin.bias")));
}

TEST(Evidence, TheExporterTellsParametersFromBuffers) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("bank", {4, 4})});
  const ValueId y = b.add("Mul", {b.add("Add", {x, b.initializer("table", {2, 4})}), b.initializer("scale", {})});
  b.graph.outputs = {b.add("Mul", {y, b.initializer("val_9", {4})})};
  const graph::FileDeclarations declared = {
      .kinds = {{"bank", StoredKind::buffer}, {"table", StoredKind::buffer}, {"scale", StoredKind::parameter}}};
  const auto found = judged(b.graph, {.declared = declared});
  EXPECT_TRUE(is_constant(found.at("bank")));
  EXPECT_TRUE(is_constant(found.at("table")));
  EXPECT_TRUE(is_trained(found.at("scale")));
  EXPECT_TRUE(is_constant(found.at("val_9"))) << "all parameters are there, and this is none";
  for (const auto &[name, finding] : found) EXPECT_TRUE(is_sure(finding)) << name << ": " << finding.doubt;
}

TEST(Evidence, AParameterThatFollowsAFormulaIsFrozenAndDoubtful) {
  HandBuilt b;
  const ValueId x = b.add("Add", {b.input("x", {2, 6, 4}), b.initializer("positions", {6, 4})});
  b.graph.outputs = {b.add("MatMul", {x, b.initializer("w", {4, 4})})};
  const graph::FileDeclarations declared = {
      .kinds = {{"positions", StoredKind::parameter}, {"w", StoredKind::parameter}}};
  const auto found = judged(b.graph, {.declared = declared}, {{"positions", counted({6, 4})}});
  EXPECT_TRUE(is_frozen(found.at("positions")));
  EXPECT_FALSE(is_sure(found.at("positions")));
  EXPECT_TRUE(is_trained(found.at("w")));
}

TEST(Evidence, TrainingInfoUpdatesParameters) {
  const auto found = judged(two_layers(), {.declared = {.updated = {{"m.base.weight"}}}});
  EXPECT_TRUE(is_trained(found.at("m.base.weight")));
  EXPECT_TRUE(is_frozen(found.at("m.base.bias")));
  EXPECT_TRUE(is_frozen(found.at("m.scale")));
  EXPECT_EQ(found.at("m.scale").evidence, Evidence::training_info);
}

TEST(Evidence, AdaptersAreTrainedAndTheirBaseIsFrozen) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 4});
  const ValueId low = b.add("MatMul", {x, b.initializer("q.lora_A.default.weight", {4, 2})});
  const ValueId high = b.add("MatMul", {low, b.initializer("q.lora_B.default.weight", {2, 4})});
  b.graph.outputs = {b.add("Add", {high, b.add("MatMul", {x, b.initializer("q.base_layer.weight", {4, 4})})})};
  const auto found = judged(b.graph);
  EXPECT_TRUE(is_trained(found.at("q.lora_A.default.weight")));
  EXPECT_TRUE(is_trained(found.at("q.lora_B.default.weight")));
  EXPECT_TRUE(is_frozen(found.at("q.base_layer.weight")));
  EXPECT_FALSE(is_sure(found.at("q.base_layer.weight")));
}

// Returns a graph that puts a `token` before the data and then computes attention. The attention's scores are
// multiplied by the number `logit_scale` and by a literal, and `rel` is added to them. The first node's result gets the
// name `result`.
Graph outermost_module(const std::string &result) {
  HandBuilt b;
  const ValueId token = b.add("Expand", {b.initializer("token", {1, 1, 4})}, {{"shape", Integers{2, 1, 4}}});
  b.graph.value(token).name = result;
  const ValueId x = b.add("Concat", {token, b.input("x", {2, 3, 4})}, {{"axis", std::int64_t{1}}});
  const ValueId query = b.add("MatMul", {x, b.initializer("rest.weight", {4, 4})});
  const ValueId scores = b.add("MatMul", {query, b.transpose(query, {0, 2, 1})});
  const ValueId scaled = b.add("Mul", {scores, b.initializer("logit_scale", {})});
  const ValueId literal = b.add("Mul", {scaled, b.initializer("onnx::Mul_12", {})});
  const ValueId biased = b.add("Add", {literal, b.initializer("rel", {4, 4})});
  b.graph.outputs = {b.add("MatMul", {b.add("Softmax", {biased}, {{"axis", std::int64_t{-1}}}), x})};
  return b.graph;
}

std::map<std::string, Finding> judged_outermost(const std::string &result, const passes::Choices &choices = {}) {
  const Values values = {{"token", Array::filled({DType::f64, {1, 1, 4}}, 0)},
                         {"logit_scale", Array::scalar(DType::f64, 2.6)},
                         {"onnx::Mul_12", Array::scalar(DType::f64, 0.3)}};
  return judged(outermost_module(result), choices, values);
}

TEST(Evidence, APlainNameIsAModulesOwnWhereTheOlderExporterNamedTheResults) {
  const auto found = judged_outermost("/Expand_output_0");
  EXPECT_TRUE(is_trained(found.at("token")));
  EXPECT_TRUE(is_trained(found.at("logit_scale")));
  EXPECT_FALSE(is_sure(found.at("logit_scale"))) << "it may be a buffer";
  EXPECT_TRUE(is_constant(found.at("onnx::Mul_12")));
}

TEST(Evidence, APlainNameSaysNothingInOtherFiles) {
  const auto found = judged_outermost("expand_1");
  EXPECT_TRUE(is_constant(found.at("token")));
  EXPECT_TRUE(is_constant(found.at("logit_scale")));
  const graph::FileDeclarations declared = {.kinds = {{"rest.weight", StoredKind::parameter}}};
  EXPECT_TRUE(is_constant(judged_outermost("/Expand_output_0", {.declared = declared}).at("logit_scale")));
}

TEST(Evidence, AnAddedTableOfScoresIsDoubtfulUnlessTheExporterNamedIt) {
  for (const char *result : {"/Expand_output_0", "expand_1"}) {
    const auto found = judged_outermost(result);
    EXPECT_TRUE(is_constant(found.at("rel"))) << result;
    EXPECT_FALSE(is_sure(found.at("rel"))) << result;
  }
}

// A model's input may be standardized by a mean and a deviation, which are initializers with plain names like those of
// parameters. The Sub and the Div that apply them to the input show that these initializers are constants.
TEST(Evidence, MeansAndDeviationsOfInputsAreConstantsWhateverTheirNames) {
  HandBuilt b;
  const ValueId centred = b.add("Sub", {b.input("x", {2, 4}), b.initializer("mean", {4})});
  b.graph.value(centred).name = "/Sub_output_0";
  const ValueId x = b.add("Div", {centred, b.initializer("std", {4})});
  b.graph.outputs = {b.add("MatMul", {x, b.initializer("rest.weight", {4, 4})})};
  const auto found = judged(b.graph);
  EXPECT_TRUE(is_constant(found.at("mean")));
  EXPECT_TRUE(is_constant(found.at("std")));
}

TEST(Evidence, TrainableWinsOverFrozenAndBothSettleDoubts) {
  const auto found = judged(two_layers(), {.trainable = {"*bias"}, .frozen = {"*"}});
  EXPECT_TRUE(is_frozen(found.at("m.base.weight")));
  EXPECT_TRUE(is_trained(found.at("m.base.bias")));
  const auto guessed = judged(two_layers()), settled = judged(two_layers(), {.trainable = {"m.scale"}});
  EXPECT_FALSE(is_sure(guessed.at("m.scale")));
  EXPECT_TRUE(is_sure(settled.at("m.scale")));
  EXPECT_TRUE(is_trained(settled.at("m.scale")));
  EXPECT_TRUE(is_trained(settled.at("m.base.weight")));
}

TEST(Evidence, PatternsReachCopies) {
  HandBuilt b;
  const ValueId x = b.add("Mul", {b.input("x", {2, 4}), b.initializer("ones", {4})});
  b.graph.outputs = {b.add("Mul", {b.add("Tanh", {x}), b.initializer("ones/2", {4})})};
  const passes::FileFacts facts = {.splits = {{.name = "ones/2", .original = "ones", .readers = {{"y", 1}}}}};
  const auto found = judged(b.graph, {.frozen = {"ones"}}, {}, facts);
  EXPECT_TRUE(is_frozen(found.at("ones")));
  EXPECT_TRUE(is_frozen(found.at("ones/2")));
  EXPECT_TRUE(is_trained(judged(b.graph, {.frozen = {"ones/2"}}, {}, facts).at("ones")));
}

// A copy without readers has its own name in the file, as an Identity of the tensor that the exporter stored.
TEST(Evidence, PatternsReachCopiesThatTheFileNamesByTheirOwnNamesAlone) {
  HandBuilt b;
  const ValueId x = b.add("Mul", {b.input("x", {2, 4}), b.initializer("first.weight", {4})});
  b.graph.outputs = {b.add("Mul", {b.add("Tanh", {x}), b.initializer("second.weight", {4})})};
  const passes::FileFacts facts = {.splits = {{.name = "second.weight", .original = "first.weight", .readers = {}}}};
  const auto first = judged(b.graph, {.frozen = {"first.*"}}, {}, facts);
  EXPECT_TRUE(is_frozen(first.at("first.weight")));
  EXPECT_TRUE(is_trained(first.at("second.weight")));
  EXPECT_TRUE(is_frozen(judged(b.graph, {.frozen = {"second.*"}}, {}, facts).at("second.weight")));
}

TEST(Evidence, EqualVectorsThatWereNotAllParametersAreDoubtful) {
  HandBuilt b;
  const ValueId x = b.add("Mul", {b.input("x", {2, 4}), b.initializer("norm.weight", {4})});
  b.graph.outputs = {b.add("Mul", {b.add("Tanh", {x}), b.initializer("norm.weight/2", {4})})};
  const passes::FileFacts facts = {
      .splits = {{.name = "norm.weight/2", .original = "norm.weight", .readers = {{"y", 1}}}}};
  graph::FileDeclarations declared = {.kinds = {{"norm.weight", StoredKind::parameter}}};
  const auto alone = judged(b.graph, {.declared = declared}, {}, facts);
  EXPECT_FALSE(is_sure(alone.at("norm.weight")));
  EXPECT_FALSE(is_sure(alone.at("norm.weight/2")));
  declared.kinds.emplace("other.weight", StoredKind::parameter);
  const auto both = judged(b.graph, {.declared = declared}, {}, facts);
  EXPECT_TRUE(is_sure(both.at("norm.weight/2"))) << both.at("norm.weight/2").doubt;
  EXPECT_TRUE(is_trained(both.at("norm.weight/2")));
}

TEST(Evidence, StatisticsOfNormalizationsAreNoParametersWhateverTheirRank) {
  HandBuilt b;
  const ValueId x = b.input("x", {4, 8});
  b.graph.outputs = {b.add("BatchNormalization", {x, b.initializer("s", {8}), b.initializer("b", {8}),
                                                  b.initializer("mean", {8}), b.initializer("variance", {8})})};
  const auto found = judged(b.graph);
  EXPECT_TRUE(is_trained(found.at("s")));
  EXPECT_TRUE(is_trained(found.at("b")));
  EXPECT_TRUE(is_constant(found.at("mean")));
  EXPECT_TRUE(is_constant(found.at("variance")));
  const auto named =
      judged(b.graph, {.declared = {.kinds = {{"variance", StoredKind::parameter}}}}, {}, {.statistics = {"variance"}});
  EXPECT_TRUE(is_constant(named.at("variance"))) << "of equal vectors the exporter may keep the parameter";
}

TEST(Evidence, BiasesBeforeASoftmaxThatIsNoAttentionAreLearned) {
  for (const Shape &shape : {Shape{5}, Shape{1, 5}}) {
    HandBuilt b;
    const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("w", {4, 5})});
    const ValueId y = b.add("Add", {x, b.initializer("bias", shape)});
    b.graph.outputs = {b.add("Softmax", {y}, {{"axis", std::int64_t{-1}}})};
    const auto found = judged(b.graph);
    EXPECT_TRUE(is_trained(found.at("bias")));
    EXPECT_TRUE(is_sure(found.at("bias")));
  }
}

TEST(Evidence, ABiasOfOneOutputIsLearned) {
  for (const Shape &shape : {Shape{}, Shape{1}, Shape{1, 1}}) {
    HandBuilt b;
    const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("w", {4, 1})});
    b.graph.outputs = {b.add("Add", {x, b.initializer("bias", shape)})};
    EXPECT_TRUE(is_trained(judged(b.graph).at("bias")));
  }
}

TEST(Evidence, UnitScalesThatTheExporterMadeAreConstants) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 8}), b.initializer("m.w", {8, 8})});
  const ValueId norm = b.add_all("LayerNormalization",
                                 {x, b.initializer("/norm/Constant_output_0", {8}), b.initializer("m.norm.bias", {8})},
                                 {{"axis", std::int64_t{-1}}}, 3)[0];
  b.graph.outputs = {norm};
  const Array ones = Array::filled({DType::f64, {8}}, 1), zeros = Array::filled({DType::f64, {8}}, 0);
  const auto found = judged(b.graph, {}, {{"/norm/Constant_output_0", ones}, {"m.norm.bias", zeros}});
  EXPECT_TRUE(is_constant(found.at("/norm/Constant_output_0")));
  EXPECT_TRUE(is_trained(found.at("m.norm.bias")));
}

TEST(Evidence, FrequenciesOfFeaturesAreConstantAndDoubtful) {
  HandBuilt b;
  const ValueId angles = b.add("MatMul", {b.input("x", {3, 2}), b.initializer("m.frequencies", {2, 8})});
  b.graph.outputs = {b.add("Concat", {b.add("Sin", {angles}), b.add("Cos", {angles})}, {{"axis", std::int64_t{1}}})};
  EXPECT_TRUE(is_constant(judged(b.graph).at("m.frequencies")));
  EXPECT_FALSE(is_sure(judged(b.graph).at("m.frequencies")));
  b.graph.outputs = {b.add("Sin", {angles})};
  b.graph.drop_dead_nodes();
  EXPECT_TRUE(is_trained(judged(b.graph).at("m.frequencies"))) << "a layer whose activation is a sine";
}

// The loss has a penalty: the squared distance of m.w from older weights, m.old, weighted by m.importance.
TEST(Evidence, WhatAPenaltyIsMadeOfIsConstant) {
  HandBuilt b;
  const ValueId w = b.initializer("m.w", {4, 4});
  const ValueId x = b.add("ReduceMean", {b.add("MatMul", {b.input("x", {2, 4}), w})}, {{"keepdims", std::int64_t{0}}});
  const ValueId apart = b.add("Sub", {w, b.initializer("m.old", {4, 4})});
  const ValueId weighed = b.add("Mul", {b.add("Mul", {apart, apart}), b.initializer("m.importance", {4, 4})});
  b.graph.outputs = {b.add("Add", {x, b.add("ReduceSum", {weighed}, {{"keepdims", std::int64_t{0}}})})};
  const auto found = judged(b.graph);
  EXPECT_TRUE(is_trained(found.at("m.w")));
  EXPECT_TRUE(is_constant(found.at("m.old")));
  EXPECT_TRUE(is_constant(found.at("m.importance")));
}

TEST(Evidence, ScalesBesideAVarianceThatNothingNormalizesWithAreFrozen) {
  for (const bool stored : {true, false}) {
    HandBuilt b;
    const ValueId scale = b.initializer("m.bn.weight", {4}), x = b.input("x", {2, 4});
    ValueId variance = ValueId::none;
    if (stored) {
      variance = b.initializer("m.bn.running_var", {4});
    } else {
      const graph::NodeId node = b.graph.add_node({.op = "Relu", .name = "", .inputs = {scale}}, {"m.bn.running_var"});
      variance = b.graph.node(node).outputs[0];
      b.graph.value(variance).type = b.graph.value(scale).type;
    }
    b.graph.outputs = {b.add("Mul", {b.add("Mul", {x, scale}), b.add("Sqrt", {variance})})};
    EXPECT_EQ(is_frozen(judged(b.graph).at("m.bn.weight")), stored) << "exporters merge equal ones";
  }
}

// Spectral normalization divides a weight by u W v. PyTorch's older exporter writes the vectors u and v of the power
// iteration as initializers, just as it writes the weight.
TEST(Evidence, VectorsOfAPowerIterationAreConstants) {
  const auto found = [](const std::string &weight, const std::string &u, const std::string &v) {
    HandBuilt b;
    const ValueId w = b.initializer(weight, {4, 4});
    const ValueId sigma = b.add("MatMul", {b.initializer(u, {1, 4}), b.add("MatMul", {w, b.initializer(v, {4, 1})})});
    b.graph.outputs = {b.add("MatMul", {b.input("x", {2, 4}), b.add("Div", {w, sigma})})};
    return judged(b.graph);
  };
  for (const auto &[weight, u, v] :
       {std::tuple("m.weight_orig", "m.weight_u", "m.weight_v"),
        {"m.parametrizations.weight.original", "m.parametrizations.weight.0._u", "m.parametrizations.weight.0._v"}}) {
    const auto all = found(weight, u, v);
    EXPECT_TRUE(is_trained(all.at(weight)));
    EXPECT_TRUE(is_constant(all.at(u)) && is_constant(all.at(v))) << u;
    EXPECT_EQ(all.at(u).evidence, Evidence::name);
  }
  EXPECT_TRUE(is_trained(found("m.weight", "m.weight_u", "m.weight_v").at("m.weight_u")));
}

// If an exporter treats the weights in a penalty as constants, it computes the penalty, or parts of it, at export. The
// file then adds a constant to the loss, so the penalty trains nothing.
TEST(Evidence, APenaltyWithoutAParameterIsDoubtfulWhateverAListSays) {
  HandBuilt b;
  const ValueId w = b.initializer("m.w", {4, 4});
  const ValueId x = b.add("ReduceMean", {b.add("MatMul", {b.input("x", {2, 4}), w})}, {{"keepdims", std::int64_t{0}}});
  const ValueId weighed = b.add("Mul", {b.initializer("onnx::Pow_3", {4, 4}), b.initializer("m.importance", {4, 4})});
  b.graph.outputs = {b.add("Add", {x, b.add("ReduceSum", {weighed}, {{"keepdims", std::int64_t{0}}})})};
  for (const passes::Choices &choices : {passes::Choices{}, passes::Choices{.declared = {.list = {{"m.w"}}}}}) {
    const auto found = judged(b.graph, choices);
    EXPECT_TRUE(is_constant(found.at("onnx::Pow_3")));
    EXPECT_FALSE(is_sure(found.at("onnx::Pow_3")));
    EXPECT_TRUE(is_sure(found.at("m.w")));
  }
  const Array ready = Array::filled({DType::f64, {}}, 0.3);
  for (const bool stored : {true, false}) {
    b.graph.outputs = {b.add("Add", {x, stored ? b.initializer("mul_2", {}) : b.graph.add_constant("mul_3", ready)})};
    const auto found = judged(b.graph, {.declared = {.list = {{"m.w"}}}});
    EXPECT_FALSE(is_sure(found.at(stored ? "mul_2" : "mul_3"))) << "computed to the end";
  }
}

TEST(Evidence, ProductsNamedAsNormalizationsHaveOneFoldedIn) {
  for (const char *made :
       {"getitem_3", "m/batch_normalization/FusedBatchNormV3:0", "/m/bn/BatchNormalization_output_0"}) {
    HandBuilt b;
    const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("m.w", {4, 4})});
    const ValueId y = b.add("Add", {x, b.initializer("m.b", {4})});
    b.graph.outputs = {b.add("Relu", {y})};
    EXPECT_TRUE(is_sure(judged(b.graph).at("m.w")));
    b.graph.value(y).name = made;
    const auto found = judged(b.graph);
    EXPECT_TRUE(is_trained(found.at("m.w")));
    EXPECT_FALSE(is_sure(found.at("m.w"))) << made;
  }
}

// tf2onnx drops biases that are zero. A layer without a bias may have lost one in this way, so the layer's weights are
// doubtful. Only names show that tf2onnx wrote the file.
TEST(Evidence, LayersOfTensorFlowWithoutABiasAreDoubtful) {
  HandBuilt b;
  const ValueId w = b.initializer("m/dense/MatMul/ReadVariableOp:0", {4, 4}), bias = b.initializer("m.b", {4});
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), w}), y = b.add("Relu", {x});
  b.graph.outputs = {b.add("Add", {b.add("MatMul", {y, b.initializer("m.w", {4, 4})}), bias})};
  EXPECT_TRUE(is_sure(judged(b.graph).at("m/dense/MatMul/ReadVariableOp:0")));
  b.graph.value(x).name = "m/dense/MatMul:0";
  b.graph.value(b.graph.outputs[0]).name = "m/dense_1/BiasAdd:0";
  const auto found = judged(b.graph);
  EXPECT_TRUE(is_trained(found.at("m/dense/MatMul/ReadVariableOp:0")));
  EXPECT_FALSE(is_sure(found.at("m/dense/MatMul/ReadVariableOp:0")));
  EXPECT_TRUE(is_sure(found.at("m.w")));
}

// In an untrained model, all special tokens and bias tables are zeros. The exporter merges equal tensors into one
// initializer, so an initializer of zeros with several readers may stand for several parameters.
TEST(Evidence, WhatSeveralPlacesReadMayBeSeveral) {
  HandBuilt b;
  const ValueId token = b.initializer("m.token", {1, 1, 4}), table = b.initializer("m.table", {5, 4});
  const ValueId x = b.add("Concat", {token, token, b.input("x", {1, 3, 4})}, {{"axis", std::int64_t{1}}});
  const ValueId ids = b.input("ids", {5}, DType::i64);
  const auto rows = [&] { return b.add("Gather", {table, ids}, {{"axis", std::int64_t{0}}}); };
  b.graph.outputs = {b.add("Add", {x, b.add("Add", {rows(), rows()})})};
  const Values zeros = {{"m.token", Array::filled({DType::f64, {1, 1, 4}}, 0)},
                        {"m.table", Array::filled({DType::f64, {5, 4}}, 0)}};
  for (const char *name : {"m.token", "m.table"}) {
    EXPECT_TRUE(is_trained(judged(b.graph, {}, zeros).at(name))) << name;
    EXPECT_FALSE(is_sure(judged(b.graph, {}, zeros).at(name))) << name;
    EXPECT_TRUE(is_sure(judged(b.graph).at(name))) << name << ": trained together";
  }
}

// If a convolution has no bias, PyTorch's exporter gives it a bias of zeros. Tools that optimize model files turn these
// zeros into an initializer.
TEST(Evidence, BiasesOfZerosThatTheExporterWroteDownAreConstants) {
  HandBuilt b;
  const ValueId w = b.initializer("m.w", {4, 4, 3, 3}), zeros = b.initializer("val_3", {4});
  const ValueId wide = b.add("Expand", {b.initializer("val_4", {})}, {{"shape", Integers{4}}});
  const ValueId x = b.add("Conv", {b.input("x", {2, 4, 5, 5}), w, zeros});
  b.graph.outputs = {b.add("Conv", {x, b.initializer("m.v", {4, 4, 3, 3}), wide})};
  const auto found = judged(b.graph, {}, {{"val_3", Array::filled({DType::f64, {4}}, 0)}});
  EXPECT_TRUE(is_constant(found.at("val_3")));
  EXPECT_TRUE(is_sure(found.at("val_3")));
  EXPECT_TRUE(is_constant(found.at("val_4")));
  EXPECT_TRUE(is_trained(judged(b.graph).at("val_3"))) << "folded from a normalization";
}

TEST(Evidence, EqualNumbersThatWereComputedAreDoubtful) {
  HandBuilt b;
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("m.w", {4, 4})});
  const std::string batchnorm = "m/batch_normalization/batchnorm/mul:0";
  const ValueId y = b.add("Mul", {b.add("Mul", {x, b.initializer(batchnorm, {4})}), b.initializer("onnx::Mul_3", {4})});
  b.graph.outputs = {b.add("Mul", {y, b.initializer("onnx::Mul_4", {4})})};
  const auto all = [](double number) { return Array::filled({DType::f64, {4}}, number); };
  const auto found =
      judged(b.graph, {}, {{batchnorm, all(0.9995)}, {"onnx::Mul_3", all(9.5)}, {"onnx::Mul_4", all(1)}});
  EXPECT_FALSE(is_sure(found.at(batchnorm)));
  EXPECT_FALSE(is_sure(found.at("onnx::Mul_3")));
  EXPECT_TRUE(is_constant(found.at("onnx::Mul_4")));
  EXPECT_TRUE(is_sure(found.at("onnx::Mul_4")));
}

TEST(Evidence, KernelsThatTheExporterNamedAreDoubtful) {
  HandBuilt b;
  const ValueId x = b.add("Conv", {b.input("x", {2, 4, 5, 5}), b.initializer("view_2", {4, 4, 3, 3})});
  b.graph.outputs = {b.add("Conv", {x, b.initializer("m.kernel", {4, 4, 3, 3})})};
  const auto found = judged(b.graph);
  EXPECT_TRUE(is_trained(found.at("view_2")));
  EXPECT_FALSE(is_sure(found.at("view_2"))) << "weights that are normalized before they are used";
  EXPECT_TRUE(is_sure(found.at("m.kernel")));
}

// Exporters fold some parameters into one matrix, for example the two parameters of a layer with weight normalization,
// and name the matrix after the last operation. The model trains the parameters and not this matrix, so the matrix is
// doubtful.
TEST(Evidence, MatricesNamedAfterArithmeticAreDoubtful) {
  HandBuilt b;
  ValueId x = b.input("x", {2, 4});
  for (const char *name :
       {"m/truediv:0", "mul_2", "add:0", "eager_tmp_1", "m/transpose:0", "onnx::MatMul_3", "m.weight"})
    x = b.add("MatMul", {x, b.initializer(name, {4, 4})});
  b.graph.outputs = {x};
  auto found = judged(b.graph);
  for (const char *name : {"m/truediv:0", "mul_2", "add:0", "eager_tmp_1"})
    EXPECT_FALSE(is_sure(found.at(name))) << name;
  for (const char *name : {"m/transpose:0", "onnx::MatMul_3", "m.weight"}) EXPECT_TRUE(is_sure(found.at(name))) << name;
  for (const auto &[name, finding] : found) EXPECT_TRUE(is_trained(finding)) << name;
}

// If a scan starts from a state of zeros, tf2onnx writes this state as a matrix, which is multiplied by the layer's
// weights. So it is doubtful whether a matrix of zeros is a parameter.
TEST(Evidence, MatricesOfZerosAreDoubtfulUnlessAModuleHasNamedThem) {
  HandBuilt b;
  const ValueId state = b.add("MatMul", {b.initializer("start", {2, 4}), b.initializer("m.w", {4, 4})});
  const ValueId x = b.add("MatMul", {b.input("x", {2, 4}), b.initializer("m.zero_head", {4, 4})});
  b.graph.outputs = {b.add("Add", {x, state})};
  const auto zeros = [](std::int64_t rows) { return Array::filled({DType::f64, {rows, 4}}, 0); };
  const auto found = judged(b.graph, {}, {{"start", zeros(2)}, {"m.zero_head", zeros(4)}});
  EXPECT_FALSE(is_sure(found.at("start")));
  EXPECT_TRUE(is_sure(found.at("m.zero_head")));
  EXPECT_TRUE(is_trained(found.at("m.zero_head")));
}

// The exporter has expanded one learned token to the batch's size, so the initializer holds equal rows. Training would
// make them differ.
TEST(Evidence, RowsThatRepeatAreDoubtful) {
  HandBuilt b;
  const ValueId x = b.input("x", {2, 3, 4}), kept = b.initializer("m.tokens", {2, 1, 4});
  b.graph.outputs = {b.add("Concat", {b.initializer("const_3", {2, 1, 4}), kept, x}, {{"axis", std::int64_t{1}}})};
  const Array rows = some_values({DType::f64, {1, 1, 4}}, 5).expanded({2, 1, 4});
  const auto found = judged(b.graph, {}, {{"const_3", rows}, {"m.tokens", rows}});
  EXPECT_TRUE(is_trained(found.at("const_3")));
  EXPECT_NE(found.at("const_3").doubt.find("repeat"), std::string::npos) << found.at("const_3").doubt;
  EXPECT_TRUE(is_sure(found.at("m.tokens")));
}

TEST(Evidence, ConstantsWhereWeightsStandAreDoubtful) {
  HandBuilt b;
  const auto constant = [&](const std::string &name, Array array) { return b.graph.add_constant(name, array); };
  const Array folded = some_values({DType::f64, {4, 4, 3, 3}}, 3), even = counted({4, 4, 3, 3});
  const ValueId x = b.add("Conv", {b.input("x", {2, 4, 7, 7}), constant("folded", folded)});
  b.graph.outputs = {b.add("Conv", {x, constant("even", even)})};
  const auto found = judged(b.graph);
  ASSERT_EQ(found.size(), 1U) << "what follows a formula is no fold of parameters";
  EXPECT_TRUE(is_constant(found.begin()->second));
  EXPECT_FALSE(is_sure(found.begin()->second));
  EXPECT_FALSE(found.begin()->second.is_initializer) << "no option makes it one";
}

TEST(Evidence, ExpectationsOverBinsAreConstant) {
  HandBuilt b;
  const ValueId x = b.add("Softmax", {b.input("x", {2, 16, 4, 5})}, {{"axis", std::int64_t{1}}});
  b.graph.outputs = {b.add("Conv", {x, b.initializer("bins", {1, 16, 1, 1})})};
  EXPECT_TRUE(is_constant(judged(b.graph, {}, {{"bins", counted({1, 16, 1, 1})}}).at("bins")));
  EXPECT_TRUE(is_trained(judged(b.graph).at("bins")));
}

// skl2onnx writes a MinMaxScaler as a Mul and an Add on the input. Each of the two nodes reads an initializer with a
// name that a parameter could have. So these initializers are trained, but doubtful.
TEST(Evidence, WhatBringsInputsToAScaleIsDoubtful) {
  HandBuilt b;
  const ValueId scaled = b.add("Mul", {b.input("x", {2, 3}), b.initializer("by", {3})});
  const ValueId shifted = b.add("Add", {scaled, b.initializer("and", {3})});
  const ValueId y = b.add("MatMul", {shifted, b.initializer("w", {3, 4})});
  b.graph.outputs = {b.add("Add", {b.add("Mul", {y, b.initializer("s", {4})}), b.initializer("t", {4})})};
  const auto found = judged(b.graph);
  EXPECT_FALSE(is_sure(found.at("by")));
  EXPECT_FALSE(is_sure(found.at("and")));
  for (const char *name : {"by", "and", "w", "s", "t"}) EXPECT_TRUE(is_trained(found.at(name))) << name;
  for (const char *name : {"w", "s", "t"}) EXPECT_TRUE(is_sure(found.at(name))) << name;
}

// A matrix that starts as the identity does nothing yet. A frozen one would never do anything.
TEST(Evidence, AMatrixThatStartsAsTheIdentityIsTrained) {
  HandBuilt b;
  b.graph.outputs = {b.add("MatMul", {b.input("x", {2, 4}), b.initializer("rnn.weight", {4, 4})})};
  std::vector<double> eye(16);
  for (std::size_t i = 0; i < 4; ++i) eye[5 * i] = 1;
  const Array values = Array::from_doubles({DType::f64, {4, 4}}, eye);
  const graph::FileDeclarations declared = {.kinds = {{"rnn.weight", StoredKind::parameter}}};
  for (const passes::Choices &choices : {passes::Choices{.declared = declared}, passes::Choices{}})
    EXPECT_TRUE(is_trained(judged(b.graph, choices, {{"rnn.weight", values}}).at("rnn.weight")));
}

TEST(Names, OfModulesAndOfExporters) {
  using passes::Naming;
  for (const char *own : {"h.0.attn.weight", "linear_0.b_0", "m/dense/MatMul/ReadVariableOp:0", "m.logit_scale"})
    EXPECT_EQ(passes::naming_of(own), Naming::own) << own;
  for (const char *made : {"val_12", "onnx::MatMul_7", "/h.0/Constant_output_0", "123", "const_fold_opt__4",
                           "m/batchnorm/mul:0", "exp", "unsqueeze_3", "index_1", "ConvBnFusion_W_m.conv.weight",
                           "mul_2_weight", "linear_1_bias_fused", "_v_30", "helper.constant.1"})
    EXPECT_EQ(passes::naming_of(made), Naming::made) << made;
  for (const char *unknown : {"scale", "w1", "coefficient2", "rows_3"})
    EXPECT_EQ(passes::naming_of(unknown), Naming::unknown) << unknown;
  EXPECT_TRUE(passes::is_plain("logit_scale"));
  for (const char *marked : {"m.logit_scale", "onnx::Mul_7", "/Mul_output_0", "12", ""})
    EXPECT_FALSE(passes::is_plain(marked)) << marked;
  EXPECT_TRUE(passes::names_scoped_result("/h.0/attn/MatMul_output_0"));
  EXPECT_FALSE(passes::names_scoped_result("matmul_1"));
  EXPECT_TRUE(passes::names_literal("m/add/y:0"));
  EXPECT_FALSE(passes::names_literal("onnx::Mul_7"));
  EXPECT_TRUE(passes::names_statistic("m.bn.running_var"));
  EXPECT_FALSE(passes::names_statistic("m.rerunning_variants"));
}

}  // namespace protrain::test::evidence_test
