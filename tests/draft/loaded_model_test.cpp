// A loaded model has a loss: an output of floats without axes, or one with axes if the file says that it always is one
// number.
#include "draft/loaded_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "draft/check.h"
#include "draft/hostile_cases.h"
#include "session/session.h"

namespace protrain::draft::loaded_model_test {
namespace {

using test::error_of;
using test::floats;
using test::int_attribute;
using test::kFloat;
using test::node;
using test::value;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Options options_with(const Pairs &pairs) {
  Options options;
  options.set("threads", "1");
  for (const auto &[key, text] : pairs) options.set(key, text);
  return options;
}

class LoadedLoss : public testing::Test {
 protected:
  std::string put(const test::Wire &wire) { return scratch_.put("model.onnx", wire.bytes()); }
  // Loads a model of one number for each sample: (rows, 1), or (rows) if only one dim is declared. Returns the text of
  // the refusal, or "".
  std::string refusal(const std::string &rows, const test::Names &declared, const Pairs &pairs) {
    test::Wire wire;
    wire.initializers = {floats("w", {3, 1}, {1, 2, 3}), test::integers("last", {1})};
    wire.inputs = {value("x", kFloat, {rows, "3"})};
    if (declared.size() == 1) wire.nodes.push_back(node("Squeeze", {"y", "last"}, {"z"}));
    wire.outputs = {value(declared.size() == 1 ? "z" : "y", kFloat, declared)};
    const std::string path = put(wire);
    return error_of([&] { load_model(settings_of(options_with(pairs)), path); }).text;
  }

  test::Scratch scratch_;
};

// At a batch of one, the output of a regressor has one element, but it is no loss.
TEST_F(LoadedLoss, IsNotThePredictionForOneSample) {
  const std::string only = "the model has no scalar float32 output that would be its loss, only ";
  const Pairs one = {{"dim", "batch=1"}};
  EXPECT_TRUE(refusal("batch", {"batch", "1"}, one).starts_with(only + "y float32[1, 1];"));
  EXPECT_TRUE(refusal("batch", {"batch"}, one).starts_with(only + "z float32[1];"));
  EXPECT_TRUE(refusal("1", {"1", "1"}, {}).starts_with(only + "y float32[1, 1];"));
  EXPECT_TRUE(refusal("1", {"1"}, {}).starts_with(only + "z float32[1];"));
  EXPECT_EQ(refusal("batch", {"batch"}, {{"dim", "batch=1"}, {"loss", "mse"}}), "");
  EXPECT_EQ(refusal("1", {"1"}, {{"loss", "mean"}}), "");
}

// Older versions of Paddle have no tensors without axes, and write a loss as one number along one axis. A mean can keep
// its axes, and a loss can be in float64.
TEST_F(LoadedLoss, AlongAxesOfOneTrainsAsWithout) {
  const auto after_a_step = [&](const test::Integers &shape, const test::Names &declared,
                                std::int64_t element = kFloat) {
    test::Wire wire;
    wire.nodes.push_back(node("Cast", {"y"}, {"cast"}, {int_attribute("to", element)}));
    wire.nodes.push_back(node("ReduceMean", {"cast"}, {"mean"}, {int_attribute("keepdims", 0)}));
    if (!shape.empty()) {
      wire.nodes.push_back(node("Reshape", {"mean", "shape"}, {"long"}));
      wire.initializers.push_back(test::integers("shape", shape));
    }
    wire.outputs = {value(shape.empty() ? "mean" : "long", element, declared)};
    const Options options = options_with({{"optimizer", "sgd"}, {"learning_rate", "1"}});
    const auto session = session::Session::create(options, put(wire), nullptr);
    const std::vector<float> x = {0.5f, -1, 2, 1.5f, 0.25f, -0.75f};
    session->set_input("x", DType::f32, {2, 3}, x.data());
    const float loss = session->step().loss;
    std::vector<float> w(12);
    session->read_parameter("w", w.data(), w.size());
    return std::pair(loss, w);
  };
  const auto wanted = after_a_step({}, {});
  for (const std::int64_t element : {test::kFloat, test::kDouble}) {
    EXPECT_EQ(after_a_step({1}, {"1"}, element), wanted) << element;
    EXPECT_EQ(after_a_step({1, 1}, {"1", "1"}, element), wanted) << element;
  }
  EXPECT_NE(error_of([&] { after_a_step({1}, {"n"}); }).text.find("no scalar float32 output"), std::string::npos);
}

// Only the input that counts samples can show that an axis may be that of samples. A mask or a table beside it may well
// begin with a 1.
TEST_F(LoadedLoss, HasAxesOfOneIfTheInputThatCountsSamplesMayHaveSeveral) {
  const auto path_of = [&](const test::Names &inputs) {
    test::Wire wire;
    wire.inputs = inputs;
    wire.nodes = {node("Add", {"x", "beside"}, {"sum"}), node("MatMul", {"sum", "w"}, {"y"}),
                  node("ReduceMean", {"y"}, {"mean"})};
    wire.outputs = {value("mean", kFloat, {"1", "1"})};
    return put(wire);
  };
  const std::string x = value("x", kFloat, {"batch", "3"}), beside = value("beside", kFloat, {"1", "3"});
  const Options one = options_with({{"dim", "batch=1"}});
  const auto about = nlohmann::json::parse(check_model(one, path_of({x, beside})));
  EXPECT_TRUE(about["trainable"].get<bool>()) << about["problems"];
  EXPECT_EQ(about["loss"], "mean") << "the output's name in the file";
  const Error error = error_of([&] { load_model(settings_of(one), path_of({beside, x})); });
  EXPECT_NE(error.text.find("no scalar float32 output"), std::string::npos) << error.text;
}

}  // namespace
}  // namespace protrain::draft::loaded_model_test
