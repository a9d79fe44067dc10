// Passes simplify real exports. They must find all parameters and nothing else, fuse every pattern, and make each layer
// a block.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "fixtures.h"
#include "onnx_import/model.h"
#include "passes/hand_built.h"
#include "passes/passes.h"

namespace protrain::test::fixtures_test {

namespace {

using Histogram = std::map<std::string, int>;

passes::PreparedModel prepared(const onnx_import::Model &file) {
  onnx_import::DimBindings dims;
  for (const std::string &dim : file.symbolic_dims()) dims[dim] = dim == "batch" ? kBatch : kSequence;
  const auto load = [&](const std::string &name) { return file.load(name); };
  return passes::prepare(file.graph(dims), load, {});
}

passes::PreparedModel prepared(const std::string &name) {
  return prepared(*onnx_import::Model::open(fixture(name + ".onnx")));
}

// Counts operators, except Reshapes, which cost nothing.
Histogram without_reshapes(const Graph &graph) {
  Histogram counts = histogram(graph);
  counts.erase("Reshape");
  return counts;
}

const std::map<std::string, Histogram> kExpected = {
    {"gpt2",
     {{"Add", 9},
      {"FusedAttention", 4},
      {"Gather", 2},
      {"Gelu", 4},
      {"LayerNormalization", 9},
      {"LinearCrossEntropy", 1},
      {"MatMul", 16},
      {"Slice", 2},
      {"Split", 4}}},
    {"opt",
     {{"Add", 9},
      {"FusedAttention", 4},
      {"Gather", 2},
      {"LayerNormalization", 9},
      {"LinearCrossEntropy", 1},
      {"MatMul", 24},
      {"Relu", 4},
      {"Slice", 2}}},
    {"llama",
     {{"Add", 8},
      {"FusedAttention", 4},
      {"Gated", 4},
      {"Gather", 1},
      {"LinearCrossEntropy", 1},
      {"MatMul", 28},
      {"RMSNormalization", 9},
      {"Rotary", 8},
      {"Slice", 2}}},
    {"mistral",
     {{"Add", 8},
      {"FusedAttention", 4},
      {"Gated", 4},
      {"Gather", 1},
      {"LinearCrossEntropy", 1},
      {"MatMul", 28},
      {"RMSNormalization", 9},
      {"Rotary", 8},
      {"Slice", 2}}},
};

class Fixture : public testing::TestWithParam<std::string> {};

TEST_P(Fixture, BecomesTheShortGraphOfItsFamily) {
  const passes::PreparedModel result = prepared(GetParam());
  EXPECT_EQ(without_reshapes(result.graph), kExpected.at(family_of(GetParam()))) << result.graph.print();
  EXPECT_EQ(result.block_count, 4);
  const std::int64_t window = family_of(GetParam()) == "mistral" ? 16 : 0;
  for (const graph::Node &node : result.graph.nodes()) {
    if (node.op != "FusedAttention") continue;
    EXPECT_EQ(node.attributes.integer("causal", 0), 1);
    EXPECT_EQ(node.attributes.integer("window", -1), window);
    EXPECT_NEAR(node.attributes.real("scale", 0), 0.25, 1e-7);
    EXPECT_EQ(node.inputs.size(), 3u);
  }
}

TEST_P(Fixture, HasPyTorchsParametersAndNoOthers) {
  const nlohmann::json norms = golden(family_of(GetParam()))["step1_param_grad_norms"];
  std::set<std::string> wanted, found;
  for (const auto &[name, norm] : norms.items()) wanted.insert(name);
  const passes::PreparedModel result = prepared(GetParam());
  for (ValueId id : result.graph.parameters) found.insert(result.graph.value(id).name);
  // If the embedding table is tied to the head, the two share one initializer. Some files give this initializer the
  // head's name, while PyTorch gives the parameter the table's name.
  if (!wanted.contains("m.lm_head.weight") && found.erase("m.lm_head.weight") > 0)
    found.insert(family_of(GetParam()) == "gpt2" ? "m.transformer.wte.weight" : "m.model.decoder.embed_tokens.weight");
  EXPECT_EQ(found, wanted);
}

TEST_P(Fixture, StillGivesPyTorchsLoss) {
  const auto file = onnx_import::Model::open(fixture(GetParam() + ".onnx"));
  const Graph graph = prepared(*file).graph;
  std::map<ValueId, Array> bound;
  for (ValueId id : graph.parameters) bound[id] = file->load(graph.value(id).name);
  for (ValueId id : graph.inputs) {
    const std::vector<std::int64_t> tokens = load_tokens(graph.value(id).name + ".npy");
    bound[id] = Array::from_integers(graph.value(id).type, {batch(tokens, 0), batch(tokens, 1)});
  }
  const std::vector<Array> values = ops::interpret(graph, bound);
  const double wanted = golden(family_of(GetParam()))["losses"][0].get<double>();
  EXPECT_NEAR(values.at(index(graph.outputs[0])).doubles().at(0), wanted, 2e-6 * wanted);
}

TEST(OwnFixtures, HaveABlockForEachLayer) {
  const Histogram dropout = histogram(prepared("dropout-gpt").graph),
                  retention = histogram(prepared("retention-dynamic-opset18").graph);
  EXPECT_EQ(prepared("dropout-gpt").block_count, 4);
  EXPECT_EQ(dropout.at("Dropout"), 13);
  EXPECT_EQ(dropout.at("Softmax"), 4);
  EXPECT_EQ(prepared("retention-dynamic-opset18").block_count, 4);
  EXPECT_FALSE(retention.contains("Softmax") || retention.contains("FusedAttention"));
}

TEST(OwnFixtures, HaveTheirParametersInTheOrderOfFirstUse) {
  const passes::PreparedModel result = prepared("families/t5.torchscript17");  // its bias moves before the layers
  EXPECT_EQ(result.block_count, 2);
  std::vector<ValueId> used;
  for (const graph::Node &node : result.graph.nodes())
    for (ValueId in : node.inputs) {
      if (in == ValueId::none || result.graph.value(in).origin != Origin::parameter) continue;
      if (std::ranges::find(used, in) == used.end()) used.push_back(in);
    }
  EXPECT_EQ(result.graph.parameters, used);
}

INSTANTIATE_TEST_SUITE_P(All, Fixture, testing::ValuesIn(model_files()), kCaseName);

}  // namespace
}  // namespace protrain::test::fixtures_test
