// Random changes to real models. Each changed model must give a legal graph or an Error, and must not crash the
// library. PROTRAIN_MUTATIONS sets the number of changed models.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "asked.h"
#include "base/error.h"
#include "fixtures.h"
#include "grad/training.h"
#include "onnx_import/mutation.h"
#include "onnx_import/wire.h"
#include "passes/passes.h"

namespace protrain::test::mutation_test {
namespace {

// Makes a training graph of the model, with the dim named `empty` bound to 0 and all other symbolic dims bound to 3.
// Returns false if the model has no loss or the library throws an Error.
bool trains(const Scratch &scratch, const std::string &bytes, const std::string &empty = "") {
  try {
    const auto file = open_bytes(scratch, bytes);
    onnx_import::DimBindings dims;
    for (const std::string &name : file->symbolic_dims()) dims[name] = name == empty ? 0 : 3;
    const auto load = [&](const std::string &name) { return file->load(name); };
    passes::Choices choices{.bodies = &file->bodies()};
    const bool has_loss = std::ranges::any_of(file->outputs(), [](const auto &o) { return o.name == "loss"; });
    if (!has_loss && !file->outputs()[0].dims.value_or(std::vector<onnx_import::Dim>()).empty())
      choices.losses = {{.kind = passes::Loss::Kind::mse, .labels = "wanted"}};
    passes::PreparedModel prepared = passes::prepare(file->graph(dims), load, choices);
    for (graph::ValueId out : prepared.graph.outputs)
      if (prepared.graph.value(out).type == graph::Type{DType::f32, {}}) {
        grad::build(std::move(prepared.graph), out);
        return true;
      }
    return false;
  } catch (const Error &error) {
    EXPECT_NE(error.code, Code::internal) << error.subject << ": " << error.text;
    return false;
  }
}

std::string contents(const std::string &name) {
  std::ostringstream model;
  model << std::ifstream(fixture(name + ".onnx"), std::ios::binary).rdbuf();
  return model.str();
}

// A node may leave out its first output and still have others. The passes must survive this, although they read the
// first output of nodes in many places.
TEST(AbsentOutputs, OfNodesThatMakeOthersAreSurvived) {
  const Names layer = {node("LayerNormalization", {"z", "s"}, {"", "part"})};
  const Names dropout = {node("Dropout", {"z", "ratio", "on"}, {"", "mask"}),
                         node("Cast", {"mask"}, {"part"}, {int_attribute("to", kFloat)})};
  const Names largest = {node("TopK", {"z", "k"}, {"", "places"}),
                         node("Cast", {"places"}, {"part"}, {int_attribute("to", kFloat)})};
  for (const Names &some : {layer, dropout, largest}) {
    Wire wire;
    wire.nodes = {node("MatMul", {"x", "w"}, {"z"})};
    wire.nodes.insert(wire.nodes.end(), some.begin(), some.end());
    wire.nodes.push_back(node("Mul", {"z", "part"}, {"y"}));
    wire.initializers.push_back(floats("s", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}));
    wire.initializers.push_back(floats("ratio", {}, {0.5}));
    wire.initializers.push_back(tensor("on", kBool, {}, raw_data("\1")));
    wire.initializers.push_back(tensor("k", kInt64, {1}, raw_data(raw<std::int64_t>({4}))));
    const bool has_gradient = some != layer;  // statistics of LayerNormalization have none
    EXPECT_EQ(trains(Scratch(), wire.bytes()), has_gradient) << some.front();
  }
}

// Each symbolic dim of a model, in turn, is bound to 0. The library must make a training graph or throw an Error.
TEST(EmptyDims, AreSurvived) {
  const Scratch scratch;
  for (const char *name :
       {"llama-dynamic-opset18", "mistral-dynamic-opset23", "families/bert.ort-all",
        "families/deberta-v2.torchscript17", "families/t5.ort-all", "control/gpt2", "control/llama"}) {
    const std::string bytes = contents(name);
    for (const std::string &dim : open_bytes(scratch, bytes)->symbolic_dims()) {
      SCOPED_TRACE(std::string(name) + " without " + dim);
      trains(scratch, bytes, dim);
    }
  }
}

class Mutated : public testing::TestWithParam<const char *> {};

TEST_P(Mutated, ModelsAreSurvived) {
  const Scratch scratch;
  const std::string model = contents(GetParam());
  ASSERT_TRUE(trains(scratch, model));
  const std::uint64_t mutations = asked("PROTRAIN_MUTATIONS", 60);
  std::uint64_t trained = 0;
  for (std::uint64_t seed = 0; seed < mutations && !HasFailure(); ++seed) {
    const std::string bytes = Mutation(static_cast<std::uint32_t>(seed)).of(model);
    trained += trains(scratch, bytes) ? 1 : 0;
    if (HasFailure()) scratch.put("failed.onnx", bytes);
  }
  std::printf("[ figures  ] %llu of %llu mutations still train\n", static_cast<unsigned long long>(trained),
              static_cast<unsigned long long>(mutations));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Mutated,
                         testing::Values("gpt2-static-opset18", "llama-dynamic-opset23", "mistral-dynamic-opset18",
                                         "torchscript-gpt2-opset13", "dropout-gpt", "root", "functions",
                                         "quantised/nbits-qdq", "quantised/nbits-uint4", "quantised/nbits-gather",
                                         "quantised/qat", "forms/blocked", "forms/sparse", "forms/offsets",
                                         "forms/offsets-script", "control/loop", "control/scan", "control/cond",
                                         "batch_norm/resnet.training", "batch_norm/convolutions.training13",
                                         "recurrent-dynamic-opset18", "types/vit.half"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::ranges::replace_if(
                               name, [](char c) { return c == '-' || c == '/' || c == '.'; }, '_');
                           return name;
                         });

}  // namespace
}  // namespace protrain::test::mutation_test
