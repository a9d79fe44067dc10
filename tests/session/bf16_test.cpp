// Bfloat16 is known everywhere but to kernels: models are loaded, differentiated and checked in it, not trained.
#include <gtest/gtest.h>

#include <cmath>

#include "errors.h"
#include "fixtures.h"
#include "grad/training.h"
#include "ops/op.h"
#include "session/loaded_model.h"
#include "session/session.h"

namespace protrain::session {
namespace {

using graph::Array;
using graph::ValueId;

Options options_in(const std::string &precision) {
  Options options;
  options.set("precision", precision);
  options.set("dim", "batch=2");
  options.set("dim", "sequence=32");
  return options;
}

TEST(Bf16, IsRefusedByASessionBeforeAnythingElse) {
  const Error error = test::error_of([] { Session::create(options_in("bf16"), "no-such-file.onnx", nullptr); });
  EXPECT_EQ(error.code, Code::unsupported);
  EXPECT_EQ(error.subject, "precision");
  EXPECT_EQ(error.text, "training in bf16 is not available yet; planning and checking a model in it are");
}

TEST(Bf16, IsCheckedUpToItsKernelsWhichAreOneProblem) {
  const std::string path = test::fixture("gpt2-dynamic-opset18.onnx");
  auto json = nlohmann::json::parse(check_model(options_in("bf16"), path));
  auto wanted = nlohmann::json::parse(check_model(options_in("fp32"), path));
  ASSERT_EQ(json["problems"].size(), 1u);
  EXPECT_EQ(json["problems"][0]["subject"], "precision");
  EXPECT_EQ(json["problems"][0]["code"], static_cast<int>(Code::unsupported));
  EXPECT_EQ(json["trainable"], false);
  for (auto *report : {&json, &wanted}) {
    report->erase("problems");
    report->erase("trainable");
  }
  EXPECT_EQ(json, wanted);
}

struct Reference {
  double loss, norm;
};

// By the operators' reference values, each result rounded to its type.
Reference reference(const std::string &model, const std::string &precision) {
  LoadedModel loaded = load_model(options_in(precision), test::fixture(model + "-dynamic-opset18.onnx"));
  const grad::Training training = grad::build(loaded.prepared.graph, loaded.loss);
  std::map<ValueId, Array> bound;
  for (ValueId id : training.graph.parameters) {
    const graph::Value &value = training.graph.value(id);
    bound.emplace(id, Array::from_doubles(value.type, loaded.file->load(value.name).doubles()));
  }
  for (ValueId id : training.graph.inputs) {
    const graph::Value &value = training.graph.value(id);
    auto tokens = test::load_tokens(value.name + ".npy");
    tokens.resize(std::size_t{test::kBatch} * test::kSequence);
    bound.emplace(id, Array::from_integers(value.type, tokens));
  }
  const std::vector<Array> values = ops::interpret(training.graph, bound);
  return {values[index(training.loss)].doubles()[0], values[index(training.norm)].doubles()[0]};
}

class Bf16Model : public testing::TestWithParam<std::string> {};

TEST_P(Bf16Model, HasTheLossAndTheGradientNormOfFloat32ButForRounding) {
  const Reference wanted = reference(GetParam(), "fp32"), found = reference(GetParam(), "bf16");
  EXPECT_NEAR(found.loss, wanted.loss, 0.01 * wanted.loss);
  EXPECT_NEAR(found.norm, wanted.norm, 0.05 * wanted.norm);
  EXPECT_NE(found.loss, wanted.loss);
}

TEST_P(Bf16Model, HasGradientsAsTheirParametersAndSumsOfThemInFloat32) {
  for (const bool accumulate : {false, true}) {
    LoadedModel loaded = load_model(options_in("bf16"), test::fixture(GetParam() + "-dynamic-opset18.onnx"));
    const grad::Training training =
        grad::build(std::move(loaded.prepared.graph), loaded.loss, {.clip_norm = 1, .accumulate = accumulate});
    const graph::Graph &graph = training.graph;
    ASSERT_NO_THROW(graph::verify(graph));
    const auto dtype = [&](ValueId id) { return graph.value(id).type.dtype; };
    EXPECT_EQ(dtype(training.loss), DType::f32);
    EXPECT_EQ(dtype(training.norm), DType::f64);
    EXPECT_EQ(dtype(training.scale), DType::f32);
    for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
      EXPECT_EQ(dtype(graph.parameters[p]), DType::bf16);
      EXPECT_EQ(dtype(training.gradients[p]), accumulate ? DType::f32 : DType::bf16);
      EXPECT_EQ(dtype(training.squared_norms[p]), DType::f64);
    }
    for (const graph::Node &node : graph.nodes())
      EXPECT_TRUE(node.op != "Cast") << "gradients need no conversion: " << node.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Bf16Model, testing::Values("gpt2", "opt", "llama", "mistral"),
                         [](const auto &info) { return info.param; });

}  // namespace
}  // namespace protrain::session
