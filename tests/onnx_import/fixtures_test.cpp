// The exported models of four families can be opened, give graphs, and return their weights unchanged.
#include <algorithm>

#include "fixtures.h"
#include "onnx_import/skeleton.h"
#include "onnx_import/wire.h"

namespace protrain::onnx_import::fixtures_test {
namespace {

using graph::Origin;

DimBindings bindings(const Model &model) {
  DimBindings dims;
  for (const std::string &name : model.symbolic_dims()) dims[name] = name == "batch" ? test::kBatch : test::kSequence;
  return dims;
}

class Fixture : public testing::TestWithParam<std::string> {
 protected:
  const std::string path = test::fixture(GetParam() + ".onnx");
};
INSTANTIATE_TEST_SUITE_P(Families, Fixture, testing::ValuesIn(test::model_files()), test::kCaseName);

TEST_P(Fixture, OpensAndGivesAGraph) {
  const auto model = Model::open(path);
  const bool dynamic = GetParam().find("dynamic") != std::string::npos;
  EXPECT_EQ(model->symbolic_dims(),
            dynamic ? (std::vector<std::string>{"batch", "sequence"}) : std::vector<std::string>{});
  ASSERT_EQ(model->inputs().size(), 2u);
  EXPECT_EQ(model->inputs()[0].name, "input_ids");
  EXPECT_EQ(model->inputs()[1].name, "labels");

  const graph::Graph graph = model->graph(bindings(*model));
  EXPECT_GT(graph.node_count(), 200u);
  ASSERT_EQ(graph.outputs.size(), 1u);
  EXPECT_EQ(graph.value(graph.outputs[0]).name, "loss");
  for (const graph::ValueId input : graph.inputs)
    EXPECT_EQ(graph.value(input).type, (graph::Type{DType::i64, {test::kBatch, test::kSequence}}));
  for (const graph::Value &value : graph.values()) {
    if (value.origin == Origin::constant) {
      EXPECT_EQ(value.array.type(), value.type) << value.name;
    } else if (value.origin == Origin::initializer) {
      EXPECT_EQ(value.type.dtype, DType::f32) << value.name;
    }
  }
}

TEST_P(Fixture, HasTheParametersOfTheGoldenRun) {
  const auto model = Model::open(path);
  const graph::Graph graph = model->graph(bindings(*model));
  std::vector<std::string> missing;
  const nlohmann::json golden = test::golden(test::family_of(GetParam()));
  EXPECT_GT(golden.at("param_l2_after").size(), 30u);
  for (const auto &item : golden.at("param_l2_after").items()) {
    const graph::ValueId id = graph.find(item.key());
    if (id == graph::ValueId::none) {
      missing.push_back(item.key());
    } else {
      EXPECT_EQ(graph.value(id).origin, Origin::initializer) << item.key();
    }
  }
  // If the embedding table is tied to the head, the file has it under the head's name.
  EXPECT_LE(missing.size(), 1u);
  if (!missing.empty()) {
    EXPECT_NE(graph.find("m.lm_head.weight"), graph::ValueId::none) << missing[0];
  }
}

TEST_P(Fixture, SkeletonLeavesTheWeightsInTheFile) {
  const File file = File::open(path);
  EXPECT_LT(read_skeleton(file).size(), file.size() / 2);
}

TEST(FixtureModel, LoadsTheBytesOfTheFile) {
  const std::string path = test::fixture("gpt2-static-opset18.onnx");
  const auto model = Model::open(path);
  const graph::Array weight = model->load("m.transformer.h.0.attn.c_attn.weight");
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  const std::string stored(reinterpret_cast<const char *>(weight.bytes()), weight.stored_bytes());
  EXPECT_NE(bytes.str().find(stored), std::string::npos);
}

}  // namespace
}  // namespace protrain::onnx_import::fixtures_test
