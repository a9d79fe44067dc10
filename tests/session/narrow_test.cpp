// Training in bfloat16 and float16: which numbers stay float32, and how close the results are to those of float32.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "arith/planes.h"
#include "draft/check.h"
#include "draft/loaded_model.h"
#include "fixtures.h"
#include "grad/training.h"
#include "ops/op.h"
#include "scratch.h"
#include "session/session.h"

namespace protrain::session::narrow_test {
namespace {

using graph::Array;
using graph::ValueId;
using Pairs = std::vector<std::pair<std::string, std::string>>;

draft::Options options_in(const std::string &precision) {
  draft::Options options;
  options.set("precision", precision);
  options.set("dim", "batch=2");
  options.set("dim", "sequence=32");
  return options;
}

class Narrow : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Session> session_of(const Pairs &more) const {
    draft::Options options = options_in(GetParam());
    options.set("learning_rate", "1e-3");
    for (const auto &[key, value] : more) options.set(key, value);
    return Session::create(options, test::fixture("gpt2-dynamic-opset18.onnx"), nullptr);
  }

  float rounded(float value) const {
    return GetParam() == "fp16" ? arith::widened(arith::to_f16(value))
                                : arith::widened(arith::split<arith::bf16>(value).high);
  }
};

INSTANTIATE_TEST_SUITE_P(Precisions, Narrow, testing::Values("bf16", "fp16"),
                         [](const auto &info) { return info.param; });

float step(Session &session, int number) {
  static const std::vector<std::int64_t> ids = test::load_tokens("input_ids.npy");
  static const std::vector<std::int64_t> labels = test::load_tokens("labels.npy");
  session.set_input("input_ids", DType::i64, {test::kBatch, test::kSequence}, test::batch(ids, number));
  session.set_input("labels", DType::i64, {test::kBatch, test::kSequence}, test::batch(labels, number));
  return session.step().loss;
}

std::vector<float> parameters(Session &session) {
  std::vector<float> values(session.flat_parameters_elements());
  session.read_flat_parameters(values.data(), values.size());
  return values;
}

TEST_P(Narrow, IsCheckedAsFloat32Is) {
  const std::string path = test::fixture("gpt2-dynamic-opset18.onnx");
  EXPECT_EQ(draft::check_model(options_in(GetParam()), path), draft::check_model(options_in("fp32"), path));
}

TEST_P(Narrow, MastersAreFloat32ToTheBit) {
  const auto session = session_of({});
  const auto file = onnx_import::Model::open(test::fixture("gpt2-dynamic-opset18.onnx"));
  std::vector<double> of_file;
  for (std::size_t p = 0; p < session->parameter_count(); ++p)
    for (double value : file->load(session->parameter_name(p)).doubles()) of_file.push_back(value);
  std::vector<float> values = parameters(*session);
  EXPECT_TRUE(std::ranges::equal(values, of_file));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(std::sin(1.3 * double(i)));
  session->write_flat_parameters(values.data(), values.size());
  EXPECT_EQ(parameters(*session), values);
}

// The step moves most weights by less than half the distance between neighbouring 16-bit numbers. So masters must move,
// while few of their upper planes (the 16-bit weights) do.
TEST_P(Narrow, MastersMoveWhereTheirUpperPlanesDoNot) {
  const auto session = session_of({{"learning_rate", "1e-6"}, {"weight_decay", "0"}});
  const std::vector<float> before = parameters(*session);
  step(*session, 0);
  const std::vector<float> after = parameters(*session);
  std::size_t moved = 0, visibly = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    moved += before[i] != after[i];
    visibly += rounded(before[i]) != rounded(after[i]);
  }
  EXPECT_GT(moved, before.size() / 2);
  EXPECT_LT(visibly, moved / (GetParam() == "fp16" ? 4 : 10));
}

TEST_P(Narrow, FrozenParametersAreHeldAsTheyAreComputedWith) {
  const auto free = session_of({}), held = session_of({{"frozen", "*wpe*"}});
  const auto read = [](Session &session, const std::string &name) {
    std::vector<float> values(static_cast<std::size_t>(session.flat_parameters_elements()));
    for (std::size_t p = 0; p < session.parameter_count(); ++p)
      if (session.parameter_name(p).find(name) != std::string::npos) {
        values.resize(static_cast<std::size_t>(element_count(session.parameter_shape(p))));
        session.read_parameter(session.parameter_name(p), values.data(), values.size());
        return values;
      }
    return std::vector<float>();
  };
  std::vector<float> expected = read(*free, "wpe");
  ASSERT_FALSE(expected.empty());
  for (float &value : expected) value = rounded(value);
  EXPECT_EQ(read(*held, "wpe"), expected);
  EXPECT_TRUE(std::isfinite(step(*held, 0)));
  EXPECT_EQ(read(*held, "wpe"), expected);
}

// Frozen parameters have only 16 bits. A value halfway between two neighbouring 16-bit numbers must go to the even one.
// Other frameworks round in the same way, so they and this library compute with the same frozen weights.
TEST_P(Narrow, FrozenParametersRoundTiesToEven) {
  const auto held = session_of({{"frozen", "*ln_f.bias"}});
  std::string name;
  for (std::size_t p = 0; p < held->parameter_count(); ++p)
    if (held->parameter_name(p).ends_with("ln_f.bias")) name = held->parameter_name(p);
  const float step = GetParam() == "fp16" ? 0x1p-10f : 0x1p-7f;  // between neighbouring numbers above 1
  std::vector<float> values(64, 1 + step / 2);
  values[1] = 1 + 3 * step / 2;
  values[2] = -1 - step / 2;
  held->write_parameter(name, values.data(), values.size());
  held->read_parameter(name, values.data(), values.size());
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 1 + 2 * step);
  EXPECT_EQ(values[2], -1);
}

TEST_P(Narrow, CheckpointsGoOnInAnyPrecision) {
  const test::Scratch scratch;
  const auto session = session_of({});
  for (int i = 0; i < 3; ++i) step(*session, i);
  session->save(scratch.path());
  const std::vector<float> saved = parameters(*session);
  const float next = step(*session, 3);
  const auto narrow = session_of({{"resume", scratch.path()}});
  EXPECT_EQ(parameters(*narrow), saved);
  EXPECT_EQ(step(*narrow, 3), next);
  EXPECT_EQ(parameters(*narrow), parameters(*session));
  const auto wide = session_of({{"resume", scratch.path()}, {"precision", "fp32"}});
  EXPECT_EQ(parameters(*wide), saved);
  EXPECT_NEAR(step(*wide, 3), next, 0.01 * next);
}

TEST_P(Narrow, ExportsItsMasters) {
  const test::Scratch scratch;
  const auto session = session_of({});
  step(*session, 0);
  session->export_model(scratch.path() + "/out.onnx");
  const auto file = onnx_import::Model::open(scratch.path() + "/out.onnx");
  std::vector<double> of_file;
  for (std::size_t p = 0; p < session->parameter_count(); ++p)
    for (double value : file->load(session->parameter_name(p)).doubles()) of_file.push_back(value);
  EXPECT_TRUE(std::ranges::equal(parameters(*session), of_file));
}

TEST_P(Narrow, GradientsAreReadAsFloat32) {
  for (const char *batches : {"1", "2"}) {
    std::map<std::string, std::vector<float>> of;
    for (const std::string &precision : {std::string("fp32"), GetParam()}) {
      const auto session = session_of({{"precision", precision}, {"keep_gradients", "*"}, {"accumulation", batches}});
      for (int i = 0; i < std::stoi(batches); ++i) step(*session, i);
      for (std::size_t p = 0; p < session->parameter_count(); ++p) {
        std::vector<float> gradient(static_cast<std::size_t>(element_count(session->parameter_shape(p))));
        session->read_grad(session->parameter_name(p), gradient.data(), gradient.size());
        of[precision].insert(of[precision].end(), gradient.begin(), gradient.end());
      }
    }
    double apart = 0, size = 0;
    for (std::size_t i = 0; i < of["fp32"].size(); ++i) {
      apart += std::pow(double(of["fp32"][i]) - double(of[GetParam()][i]), 2);
      size += std::pow(double(of["fp32"][i]), 2);
    }
    EXPECT_GT(apart, 0);
    EXPECT_LT(std::sqrt(apart / size), 0.05) << batches << " batches";
  }
}

struct Reference {
  double loss, norm;
};

// Computes loss and gradient norm with the operators' reference arithmetic. Each result is rounded to its type.
Reference reference(const std::string &model, const std::string &precision) {
  draft::LoadedModel loaded =
      draft::load_model(draft::settings_of(options_in(precision)), test::fixture(model + "-dynamic-opset18.onnx"));
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

// A family of models, and a precision.
class NarrowModel : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(NarrowModel, HasTheLossAndTheGradientNormOfFloat32ButForRounding) {
  const auto &[model, precision] = GetParam();
  const Reference wanted = reference(model, "fp32"), found = reference(model, precision);
  EXPECT_NEAR(found.loss, wanted.loss, 0.01 * wanted.loss);
  EXPECT_NEAR(found.norm, wanted.norm, 0.05 * wanted.norm);
  EXPECT_NE(found.loss, wanted.loss);
}

TEST_P(NarrowModel, HasGradientsAsTheirParametersAndSumsOfThemInFloat32) {
  const auto &[model, precision] = GetParam();
  const DType narrow = precision == "fp16" ? DType::f16 : DType::bf16;
  for (const bool accumulate : {false, true}) {
    draft::LoadedModel loaded =
        draft::load_model(draft::settings_of(options_in(precision)), test::fixture(model + "-dynamic-opset18.onnx"));
    const grad::Training training =
        grad::build(std::move(loaded.prepared.graph), loaded.loss, {.clip_norm = 1, .accumulate = accumulate});
    const graph::Graph &graph = training.graph;
    ASSERT_NO_THROW(graph::verify(graph));
    const auto dtype = [&](ValueId id) { return graph.value(id).type.dtype; };
    EXPECT_EQ(dtype(training.loss), DType::f32);
    EXPECT_EQ(dtype(training.norm), DType::f64);
    EXPECT_EQ(dtype(training.scale), DType::f32);
    for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
      EXPECT_EQ(dtype(graph.parameters[p]), narrow);
      EXPECT_EQ(dtype(training.gradients[p]), accumulate ? DType::f32 : narrow);
      EXPECT_EQ(dtype(training.squared_norms[p]), DType::f64);
    }
    for (const graph::Node &node : graph.nodes())
      EXPECT_TRUE(node.op != "Cast") << "gradients need no conversion: " << node.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, NarrowModel,
                         testing::Combine(testing::Values("gpt2", "opt", "llama", "mistral"),
                                          testing::Values("bf16", "fp16")),
                         [](const auto &info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param); });

}  // namespace
}  // namespace protrain::session::narrow_test
