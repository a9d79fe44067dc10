// Models in which the cross entropy is only a part of the loss: it is scaled, or added to another head's loss
// or to penalties. The loss, and the weights after one step of plain SGD with rate 1, must agree with formulas in
// double.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "onnx_import/wire.h"
#include "session/session.h"

namespace protrain::session::loss_goes_on_test {
namespace {

using test::node;
using Values = std::map<std::string, std::vector<double>>;

constexpr int kRows = 3, kDepth = 4, kClasses = 5;

std::vector<float> numbers(std::size_t count, double seed) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(std::sin(1.7 * static_cast<double>(i * i) + seed)));
  return values;
}

// Builds one model per test, with its parameters and inputs. Also computes, in double, the loss and the gradients that
// one step must have.
class LossGoesOn : public testing::Test {
 protected:
  LossGoesOn() {
    wire.nodes.clear();
    wire.initializers.clear();
    wire.inputs = {test::value("x", test::kFloat, {"3", "4"}), test::value("labels", test::kInt64, {"3"})};
    wire.outputs = {test::value("loss", test::kFloat, {})};
  }

  void initializer(const std::string &name, const test::Dims &dims, std::size_t count, double seed) {
    const std::vector<float> values = numbers(count, seed);
    wire.initializers.push_back(test::floats(name, dims, values));
    before[name].assign(values.begin(), values.end());
    slopes[name].assign(count, 0);
  }

  // Adds a linear head Gemm(x, w, b), and the mean cross entropy of its logits.
  void head(const std::string &name, double seed) {
    initializer("w" + name, {kClasses, kDepth}, std::size_t{kClasses} * kDepth, seed);
    initializer("b" + name, {kClasses}, kClasses, seed + 1);
    add("Gemm", {"x", "w" + name, "b" + name}, "logits" + name, {test::int_attribute("transB", 1)});
    add("SoftmaxCrossEntropyLoss", {"logits" + name, "labels"}, "entropy" + name,
        {test::attribute("reduction", 3, test::field(4, "mean"))});
  }

  void add(const std::string &op, const test::Names &inputs, const std::string &output,
           const test::Names &attributes = {}) {
    wire.nodes.push_back(node(op, inputs, {output}, attributes));
  }
  std::string number(float value) {
    const std::string name = "number" + std::to_string(wire.nodes.size());
    add("Constant", {}, name, {test::tensor_attribute("value", test::floats("", {}, {value}))});
    return name;
  }
  // Adds the sum of all elements of a value. Returns the name of the sum.
  std::string sum(const std::string &name) {
    add("ReduceSum", {name}, "sum_" + name, {test::int_attribute("keepdims", 0)});
    return "sum_" + name;
  }

  double logit(const std::string &name, int row, int c) const {
    double y = before.at("b" + name)[c];
    for (int d = 0; d < kDepth; ++d)
      y += before.at("w" + name)[c * kDepth + d] * static_cast<double>(x[row * kDepth + d]);
    return y;
  }
  void expect_logit_slope(const std::string &name, int row, int c, double slope) {
    slopes["b" + name][c] += slope;
    for (int d = 0; d < kDepth; ++d)
      slopes["w" + name][c * kDepth + d] += slope * static_cast<double>(x[row * kDepth + d]);
  }
  void expect_entropy(const std::string &name, double factor) {
    for (int row = 0; row < kRows; ++row) {
      double total = 0;
      for (int c = 0; c < kClasses; ++c) total += std::exp(logit(name, row, c));
      loss += factor * (std::log(total) - logit(name, row, static_cast<int>(labels[row]))) / kRows;
      for (int c = 0; c < kClasses; ++c)
        expect_logit_slope(name, row, c,
                           factor / kRows * (std::exp(logit(name, row, c)) / total - (c == labels[row] ? 1 : 0)));
    }
  }

  void expect_step() {
    draft::Options options;
    options.set("threads", "2");
    options.set("optimizer", "sgd");
    options.set("learning_rate", "1");
    const auto session = Session::create(options, scratch.put("model.onnx", wire.bytes()), nullptr);
    session->set_input("x", DType::f32, {kRows, kDepth}, x.data());
    session->set_input("labels", DType::i64, {kRows}, labels.data());
    EXPECT_NEAR(session->step().loss, loss, 1e-5 * std::abs(loss));
    for (const auto &[name, values] : before) {
      std::vector<float> after(values.size());
      session->read_parameter(name, after.data(), after.size());
      for (std::size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(static_cast<double>(after[i]), values[i] - slopes[name][i], 1e-5) << name << " " << i;
    }
  }

  const std::vector<float> x = numbers(std::size_t{kRows} * kDepth, 0.3);
  const std::vector<std::int64_t> labels = {2, 0, 4};
  Values before, slopes;
  double loss = 0;
  test::Wire wire;
  test::Scratch scratch;
};

TEST_F(LossGoesOn, TimesANumber) {
  head("", 1);
  add("Mul", {"entropy", number(0.5f)}, "loss");
  expect_entropy("", 0.5);
  expect_step();
}

TEST_F(LossGoesOn, BesideAnotherHead) {
  head("_a", 1);
  head("_b", 2);
  add("Add", {"entropy_a", "entropy_b"}, "loss");
  expect_entropy("_a", 1);
  expect_entropy("_b", 1);
  expect_step();
}

TEST_F(LossGoesOn, BesideThePenaltiesOfItsWeights) {
  head("", 1);
  add("Abs", {"w"}, "magnitudes");
  add("Mul", {"w", "w"}, "squares");
  add("Mul", {sum("magnitudes"), number(0.01f)}, "l1");
  add("Mul", {sum("squares"), number(0.1f)}, "l2");
  add("Add", {"entropy", "l1"}, "so_far");
  add("Add", {"so_far", "l2"}, "loss");
  expect_entropy("", 1);
  for (std::size_t i = 0; i < before["w"].size(); ++i) {
    const double w = before["w"][i];
    loss += 0.01 * std::abs(w) + 0.1 * w * w;
    slopes["w"][i] += 0.01 * (w > 0 ? 1 : -1) + 0.2 * w;
  }
  expect_step();
}

// The logits have two readers, so the loss is not fused with the head. The gradients of loss and penalty are added.
TEST_F(LossGoesOn, BesideAPenaltyOfItsLogits) {
  head("", 1);
  add("Mul", {"logits", "logits"}, "squares");
  add("Mul", {sum("squares"), number(0.05f)}, "penalty");
  add("Add", {"entropy", "penalty"}, "loss");
  expect_entropy("", 1);
  for (int row = 0; row < kRows; ++row)
    for (int c = 0; c < kClasses; ++c) {
      const double y = logit("", row, c);
      loss += 0.05 * y * y;
      expect_logit_slope("", row, c, 0.1 * y);
    }
  expect_step();
}

// The loss has a penalty on the distance of the weights from their initial values. In the first step that distance is
// 0. The norm has no derivative at 0, but the gradient of the penalty must be 0 there.
TEST_F(LossGoesOn, BesideAPenaltyOfALengthThatIsZero) {
  head("", 1);
  const std::vector<float> weights(before["w"].begin(), before["w"].end());
  add("Constant", {}, "origin", {test::tensor_attribute("value", test::floats("", {kClasses, kDepth}, weights))});
  add("Sub", {"w", "origin"}, "way");
  add("ReduceL2", {"way"}, "length", {test::int_attribute("keepdims", 0)});
  add("Mul", {"length", number(0.1f)}, "penalty");
  add("Add", {"entropy", "penalty"}, "loss");
  expect_entropy("", 1);
  expect_step();
}

// A single number, normalized by its own mean and deviation, gives 0. Its gradient must be 0 too.
TEST_F(LossGoesOn, BesideNormalizedNumbersOfTheirOwnDeviation) {
  head("", 1);
  const std::vector<std::int64_t> shape = {1, kClasses, 1, 1};
  wire.initializers.push_back(test::tensor("shape", test::kInt64, {4}, test::raw_data(test::raw(shape))));
  add("Reshape", {"b", "shape"}, "channels");
  add("MeanVarianceNormalization", {"channels"}, "normal");
  add("Add", {"entropy", sum("normal")}, "loss");
  expect_entropy("", 1);
  expect_step();
}

// The model multiplies the cross entropy by 0.5. The loss of a micro-batch must be 0.5 times the mean over the
// micro-batch's own targets.
TEST_F(LossGoesOn, InMicroBatches) {
  head("", 1);
  add("Mul", {"entropy", number(0.5f)}, "loss");
  draft::Options options;
  options.set("accumulation", "2");
  const auto session = Session::create(options, scratch.put("model.onnx", wire.bytes()), nullptr);
  session->set_input("x", DType::f32, {kRows, kDepth}, x.data());
  session->set_input("labels", DType::i64, {kRows}, labels.data());
  expect_entropy("", 0.5);
  session->step();
  EXPECT_NEAR(session->step().loss, loss, 1e-5 * std::abs(loss));
}

}  // namespace
}  // namespace protrain::session::loss_goes_on_test
