// GradientCheck, which compares the gradients of a session with slopes of the loss that are computed in float64.
#include "session/gradient_check.h"

#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <nlohmann/json.hpp>

#include "draft/loaded_model.h"
#include "errors.h"
#include "fixtures.h"
#include "float64_scale.h"
#include "grad/training.h"
#include "onnx_import/wire.h"
#include "session/session.h"

namespace protrain::session::gradient_check_test {
namespace {

using graph::Array;
using test::error_of;
using Json = nlohmann::json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

draft::Options options_of(const Pairs &pairs) {
  draft::Options options;
  for (const auto &[key, value] : pairs) options.set(key, value);
  return options;
}

// The gradient of mean((x w - labels)^2) over w (3, 4), with x (2, 3) and labels (2, 4).
class SlopesOfAProduct : public testing::Test {
 protected:
  static std::vector<double> gradient() {
    std::vector<double> g(12, 0);
    for (std::size_t row = 0; row < 2; ++row)
      for (std::size_t column = 0; column < 4; ++column) {
        double y = 0;
        for (std::size_t k = 0; k < 3; ++k) y += kX[row * 3 + k] * kW[k * 4 + column];
        for (std::size_t k = 0; k < 3; ++k)
          g[k * 4 + column] += 2 * (y - kLabels[row * 4 + column]) * kX[row * 3 + k] / 8;
      }
    return g;
  }

  GradientCheck::Result compare(const std::vector<double> &gradient, const GradientCheck::Small &small = {}) const {
    const graph::Graph &graph = training_.graph;
    std::map<graph::ValueId, Array> values;
    for (const graph::ValueId id : graph.inputs)
      values[id] = Array::from_doubles(graph.value(id).type, graph.value(id).name == "x" ? kX : kLabels);
    values[graph.parameters[0]] = Array::from_doubles({DType::f64, {3, 4}}, kW);
    return GradientCheck(training_, values, cancelled_).compare(graph.parameters[0], gradient, samples_, small);
  }

  static inline const std::vector<double> kX = {0.5, -1, 2, 1.5, 0.25, -0.75}, kLabels = {1, 0, 2, -1, 0.5, 1, 0, -2},
                                          kW = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  std::atomic<bool> cancelled_ = false;
  std::size_t samples_ = 12;
  test::Scratch scratch_;
  const grad::Training training_ = [this] {
    draft::LoadedModel loaded = draft::load_model(draft::settings_of(options_of({{"loss", "mse"}})),
                                                  scratch_.put("product.onnx", test::Wire().bytes()));
    return grad::build(std::move(loaded.prepared.graph), loaded.loss);
  }();
};

TEST_F(SlopesOfAProduct, HasTheSlopesOfItsGradient) {
  const GradientCheck::Result result = compare(gradient());
  EXPECT_GE(result.elements, 5u);
  EXPECT_EQ(result.kinks, 0u);
  EXPECT_LT(result.worst_element, 1e-7);
  EXPECT_LT(result.direction, 1e-7);
}

TEST_F(SlopesOfAProduct, ComparesAllElementsIfMoreAreAskedFor) {
  samples_ = std::numeric_limits<std::size_t>::max();
  EXPECT_EQ(compare(gradient()).elements, 12u);
}

TEST_F(SlopesOfAProduct, StopsWhenItIsCancelled) {
  cancelled_ = true;
  EXPECT_EQ(error_of([&] { compare(gradient()); }).code, Code::cancelled);
}

TEST_F(SlopesOfAProduct, DiffersFromAWrongGradient) {
  std::vector<double> one_wrong = gradient(), scaled = gradient();
  const auto largest = std::ranges::max_element(one_wrong, {}, [](double g) { return std::abs(g); });
  *largest *= 1.1;
  EXPECT_NEAR(compare(one_wrong).worst_element, 0.1, 1e-6);
  EXPECT_GT(compare(one_wrong).direction, 1e-3);
  for (double &g : scaled) g *= 0.5;
  EXPECT_NEAR(compare(scaled).worst_element, 0.5, 1e-6);
}

TEST_F(SlopesOfAProduct, TakesASmallGradientAsItsSizeAtLeast) {
  std::vector<double> wrong = gradient();
  for (double &g : wrong) g *= 0.5;
  const double largest = std::abs(std::ranges::max(wrong, {}, [](double g) { return std::abs(g); }));
  EXPECT_LT(compare(wrong, {.slope = 1e3, .size = 1e3 * largest}).worst_element, 1e-2);
  EXPECT_LT(compare(wrong, {.slope = 1e3, .size = 1e3 * largest}).direction, 1e-2);
  EXPECT_NEAR(compare(wrong, {.slope = 1e3, .size = 1e-3 * largest}).worst_element, 0.5, 1e-6);
  EXPECT_NEAR(compare(wrong, {.slope = largest, .size = 1e3 * largest}).worst_element, 0.5, 1e-6) << "is not small";
}

TEST_F(SlopesOfAProduct, LeavesOutKinks) {
  const Pairs l1 = {{"loss", "l1"}};
  draft::LoadedModel loaded = draft::load_model(draft::settings_of(options_of(l1)), scratch_ / "product.onnx");
  const grad::Training training = grad::build(std::move(loaded.prepared.graph), loaded.loss);
  std::map<graph::ValueId, Array> values;
  // x w is 0 everywhere, and the labels are so near 0 that a difference quotient steps over the kink of the loss |x w -
  // labels|.
  for (const graph::ValueId id : training.graph.inputs) {
    const graph::Value &value = training.graph.value(id);
    values[id] = Array::filled({DType::f32, value.type.shape}, value.name == "x" ? 1 : -7.5e-6);
  }
  values[training.graph.parameters[0]] = Array::filled({DType::f64, {3, 4}}, 0);
  const GradientCheck::Result result = GradientCheck(training, values, cancelled_)
                                           .compare(training.graph.parameters[0], std::vector<double>(12, 0), 12, {});
  EXPECT_EQ(result.elements, 0u);
  EXPECT_GE(result.kinks, 5u);
  EXPECT_EQ(result.worst_element, 0);
}

// Few tokens, because the slopes take many evaluations in float64.
constexpr std::int64_t kFewTokens = 8;

Json checked(const std::string &model, const Pairs &more) {
  Pairs pairs = {{"dim", "batch=1"}, {"dim", "sequence=" + std::to_string(kFewTokens)}};
  pairs.insert(pairs.end(), more.begin(), more.end());
  const auto session = Session::create(options_of(pairs), test::fixture(model + ".onnx"), nullptr);
  const auto ids = test::load_tokens("input_ids.npy"), labels = test::load_tokens("labels.npy");
  const auto feed = [&](int step) {
    session->set_input("input_ids", DType::i64, {1, kFewTokens}, test::batch(ids, step));
    session->set_input("labels", DType::i64, {1, kFewTokens}, test::batch(labels, step));
  };
  feed(0);
  std::vector<float> before(session->flat_parameters_elements()), after(before.size());
  session->read_flat_parameters(before.data(), before.size());
  const Json answer = Json::parse(session->check_gradients(1));
  session->read_flat_parameters(after.data(), after.size());
  EXPECT_EQ(before, after);
  EXPECT_EQ(session->step_count(), 0u);
  return answer;
}

TEST(CheckedGradients, OfASessionPassUnderSeveralOptions) {
  for (const Pairs &options : {Pairs{}, Pairs{{"accumulation", "2"}}, Pairs{{"clip_norm", "0.1"}},
                               Pairs{{"precision", "fp16"}}, Pairs{{"precision", "bf16"}}}) {
    const Json answer = checked("gpt2-dynamic-opset18", options);
    EXPECT_TRUE(answer["passed"]) << answer << " with " << Json(options);
    EXPECT_NEAR(answer["loss"].get<double>(), answer["loss_float64"].get<double>(), options.empty() ? 1e-5 : 5e-2);
    EXPECT_EQ(answer["parameters"].size(), 52u);
  }
}

// A model whose idle.bias adds the same number to all logits of a row. That does not change their Softmax, so the true
// gradient of this bias is zero. A step computes the gradient as a sum of terms that cancel except for rounding, so its
// gradient is small but not zero.
std::string model_with_an_idle_bias() {
  std::vector<float> weight(3 * 7);
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = 0.1F * static_cast<float>(i * i % 11);
  test::Wire wire;
  wire.nodes = {test::node("MatMul", {"x", "fc.weight"}, {"y"}), test::node("Add", {"y", "idle.bias"}, {"logits"})};
  wire.initializers = {test::floats("fc.weight", {3, 7}, weight), test::floats("idle.bias", {2, 1}, {0.3F, -0.2F})};
  wire.outputs = {test::value("logits", test::kFloat, {"2", "7"})};
  return wire.bytes();
}

TEST(CheckedGradients, PassIfATrueGradientIsZero) {
  const test::Scratch scratch;
  const std::string model = scratch.put("idle.onnx", model_with_an_idle_bias());
  for (const char *precision : {"fp32", "bf16", "fp16"}) {
    const auto session =
        Session::create(options_of({{"loss", "cross_entropy"}, {"precision", precision}}), model, nullptr);
    const std::vector<float> x = {0.5, -1, 2, 1.5, 0.25, -0.75};
    const std::vector<std::int64_t> labels = {1, 6};
    session->set_input("x", DType::f32, {2, 3}, x.data());
    session->set_input("labels", DType::i64, {2}, labels.data());
    const Json answer = Json::parse(session->check_gradients(3));
    EXPECT_TRUE(answer["passed"]) << answer << " in " << precision;
    ASSERT_EQ(answer["parameters"].size(), 2u);
    const Json &idle = answer["parameters"][answer["parameters"][0]["name"] == "idle.bias" ? 0 : 1];
    EXPECT_GT(idle["norm"], 0) << precision;
    EXPECT_LT(idle["norm"], 1e-2) << precision;
  }
}

// y = e * detach(e), where e are rows of the table w, in which row 1 is padding.
std::string model_that_stops_gradients() {
  const auto called = [](const std::string &node, const std::string &call) {
    return node +
           test::field(9, test::pair("pkg.torch.onnx.fx_node", "%r : call_function[target=torch.ops.aten." + call));
  };
  test::Wire wire;
  wire.inputs = {test::value("x", test::kInt64, {"3"})};
  wire.nodes = {called(test::node("Gather", {"w", "x"}, {"e"}), "embedding.default](args = (%w, %x, 1), kwargs = {})"),
                called(test::node("Identity", {"e"}, {"d"}), "detach.default](args = (%e,), kwargs = {})"),
                test::node("Mul", {"e", "d"}, {"y"})};
  wire.outputs = {test::value("y", test::kFloat, {"3", "4"})};
  return wire.bytes();
}

// The loss is finite, but its gradient times the loss scale is too large for float16.
TEST(CheckedGradients, FailIfTheyAreNotFinite) {
  const test::Scratch scratch;
  const std::string model = scratch.put("product.onnx", test::Wire().bytes());
  const auto session = Session::create(options_of({{"loss", "mse"}, {"precision", "fp16"}}), model, nullptr);
  const std::vector<float> x = {0.5, -1, 2, 1.5, 0.25, -0.75}, labels(8, 3e5F);
  session->set_input("x", DType::f32, {2, 3}, x.data());
  session->set_input("labels", DType::f32, {2, 4}, labels.data());
  const Json answer = Json::parse(session->check_gradients(3));
  EXPECT_FALSE(answer["passed"]) << answer;
  EXPECT_FALSE(answer["parameters"][0]["passed"]) << answer;
}

TEST(CheckedGradients, KnowWhereNoGradientPasses) {
  const test::Scratch scratch;
  const auto session = Session::create(options_of({{"loss", "mse"}, {"trainable", "w"}}),
                                       scratch.put("stops.onnx", model_that_stops_gradients()), nullptr);
  const std::vector<std::int64_t> rows = {2, 1, 0};
  const std::vector<float> labels(12, 0.5F);
  session->set_input("x", DType::i64, {3}, rows.data());
  session->set_input("labels", DType::f32, {3, 4}, labels.data());
  const Json answer = Json::parse(session->check_gradients(12));
  EXPECT_TRUE(answer["passed"]) << answer;
  EXPECT_EQ(answer["parameters"][0]["elements"], 8) << "all but the row of padding: " << answer;
}

TEST(CheckedGradients, ReadFrozenFloat64AsItRests) {
  const test::Scratch scratch;
  const auto session = Session::create(options_of({{"loss", "mse"}, {"frozen", "scale"}}),
                                       scratch.put("scaled.onnx", test::float64_scale().bytes()), nullptr);
  const std::vector<float> x = {0.5, -1, 2, 1.5, 0.25, -0.75}, labels = {1, 0, 2, -1, 0.5, 1, 0, -2};
  session->set_input("x", DType::f32, {2, 3}, x.data());
  session->set_input("labels", DType::f32, {2, 4}, labels.data());
  const Json answer = Json::parse(session->check_gradients(12));
  EXPECT_TRUE(answer["passed"]) << answer;
  EXPECT_NEAR(answer["loss"].get<double>(), answer["loss_float64"].get<double>(), 1e-6);
}

TEST(CheckedGradients, RefuseWhatHasNoArithmeticInFloat64) {
  EXPECT_EQ(error_of([] { checked("dropout-gpt", {}); }).code, Code::unsupported);
}

TEST(CheckedGradients, NeedInputsAndSamples) {
  const auto session = Session::create(options_of({{"dim", "batch=2"}, {"dim", "sequence=32"}}),
                                       test::fixture("gpt2-dynamic-opset18.onnx"), nullptr);
  EXPECT_EQ(error_of([&] { session->check_gradients(1); }).code, Code::state);
  EXPECT_EQ(error_of([&] { session->check_gradients(0); }).code, Code::arg);
}

}  // namespace
}  // namespace protrain::session::gradient_check_test
