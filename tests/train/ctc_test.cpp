// The loss ctc: what it is computed from, what it reads, and what is refused. objectives_test.cpp compares it with
// PyTorch's.
#include <gtest/gtest.h>

#include <algorithm>

#include "draft/check.h"
#include "errors.h"
#include "onnx_import/wire.h"
#include "train/family.h"

namespace protrain::ctc_test {
namespace {

using session::Session;
using test::error_of;
using test::Json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

draft::Options options_with(const Pairs &pairs) {
  draft::Options options;
  options.set("threads", "1");
  for (const auto &[key, value] : pairs) options.set(key, value);
  return options;
}

// The model `speech` of make_objectives.py. Its outputs are logits (batch, 12, 9) and the log probabilities steps (12,
// batch, 9).
class Speech : public testing::Test {
 protected:
  Speech() {
    std::ifstream file(test::fixture("objectives/speech.json"));
    golden_ = Json::parse(file);
  }

  static draft::Options options(Pairs pairs) {
    pairs.insert(pairs.end(), {{"dim", "batch=3"}, {"loss", "ctc"}, {"loss_label_length", "5"}});
    return options_with(pairs);
  }

  // Sets the inputs to those of the first batch. Labels or lengths in `given` take the place of the batch's.
  void feed(Session &session, const std::map<std::string, std::vector<std::int64_t>> &given = {}) const {
    for (std::size_t i = 0; i < session.input_count(); ++i) {
      const std::string &name = session.input_name(i);
      const test::Values values(golden_["inputs"][name]);
      const auto other = given.find(name);
      session.set_input(name, values.dtype, values.batch(), other == given.end() ? values.at(0) : other->second.data());
    }
  }

  session::StepResult step(const Pairs &pairs) const {
    const auto session = Session::create(options(pairs), model_, nullptr);
    feed(*session);
    return session->step();
  }

  Json checked(const Pairs &pairs) const { return Json::parse(draft::check_model(options(pairs), model_)); }

  const std::string model_ = test::fixture("objectives/speech.onnx");
  const Pairs steps_ = {{"loss_output", "steps"}, {"loss_time_first", "1"}};

 private:
  Json golden_;
};

TEST_F(Speech, IsComputedFromTheLogitsBeforeALogSoftmax) {
  const session::StepResult logits = step({}), steps = step(steps_);
  EXPECT_GT(logits.loss, 0);
  EXPECT_EQ(steps.loss, logits.loss);
  EXPECT_NEAR(steps.grad_norm, logits.grad_norm, 1e-6 * logits.grad_norm);
  EXPECT_EQ(checked({})["loss_from"], "logits");
  const std::string from = checked(steps_)["loss_from"];
  EXPECT_EQ(from.substr(0, 32), "the logits before LogSoftmax at ") << from;
}

TEST_F(Speech, OfProbabilitiesIsThatOfTheirLogits) {
  // Probabilities are divided by their sum, so logits that are taken for probabilities give another loss.
  const session::StepResult taken = step({{"loss_from", "probabilities"}});
  EXPECT_TRUE(std::isfinite(taken.loss));
  EXPECT_NE(taken.loss, step({}).loss);
}

TEST_F(Speech, ReadsLabelsAndLengthsOfTheSamples) {
  Pairs steps = steps_;
  steps.emplace_back("loss_lengths", "lengths");
  for (const Pairs &pairs : {Pairs{{"loss_lengths", "lengths"}}, steps}) {
    const Json about = checked(pairs), &inputs = about["inputs"];
    EXPECT_TRUE(about["trainable"]) << about["problems"];
    ASSERT_EQ(inputs.size(), 3u) << inputs;
    EXPECT_EQ(inputs[1]["name"], "labels");
    EXPECT_EQ(inputs[1]["dims"], Json::array({"batch", 5}));
    EXPECT_EQ(inputs[2]["name"], "lengths");
    EXPECT_EQ(inputs[2]["dims"], Json::array({"batch"}));
    EXPECT_EQ(about["operators"]["CtcLoss"], 1) << about["operators"];
  }
}

TEST_F(Speech, HasNoLossAndNoGradientIfNoSampleCanBeSpelt) {
  const auto session = Session::create(options({{"loss_lengths", "lengths"}}), model_, nullptr);
  feed(*session,
       {{"labels", {1, 1, -100, -100, -100, 2, 3, 4, -100, -100, 5, -100, -100, -100, -100}}, {"lengths", {2, 2, 0}}});
  const session::StepResult result = session->step();
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.grad_norm, 0);
}

TEST_F(Speech, RefusesABatchWithAWrongLabelAndGoesOnWithTheNext) {
  const auto session = Session::create(options({{"loss_lengths", "lengths"}, {"loss_blank", "8"}}), model_, nullptr);
  std::vector<std::int64_t> labels(15, -100);
  const auto refused = [&](std::int64_t label, std::int64_t length) {
    labels[6] = label;
    const Error error = error_of([&] {
      feed(*session, {{"labels", labels}, {"lengths", {12, length, 12}}});
      session->step();
    });
    return error.text;
  };
  EXPECT_EQ(refused(9, 12),
            "input labels holds label 9 of row 6, which is outside 0..8 and not -100, the label to ignore");
  EXPECT_EQ(refused(8, 12), "input labels holds label 8 of row 6, which is the blank");
  EXPECT_EQ(refused(7, 13), "input lengths holds length 13 for sample 1, which is outside 0..12");
  feed(*session);
  EXPECT_GT(session->step().loss, 0);
}

TEST_F(Speech, RefusesWhatDoesNotFitTheModel) {
  const auto refused = [&](const std::string &model, const Pairs &pairs) {
    const Error error = error_of([&] { Session::create(options_with(pairs), test::fixture(model), nullptr); });
    return error.subject + ": " + error.text;
  };
  const std::string speech = "objectives/speech.onnx", spans = "objectives/spans.onnx",
                    tokens = "objectives/tokens.onnx";
  const Pairs ctc = {{"dim", "batch=2"}, {"loss", "ctc"}};
  const auto with = [&](Pairs pairs) {
    pairs.insert(pairs.end(), ctc.begin(), ctc.end());
    return pairs;
  };
  EXPECT_EQ(refused(speech, with({{"loss_blank", "9"}})),
            "loss_blank: the blank is class 9, and the output has 9 classes");
  EXPECT_EQ(refused(spans, with({{"loss_output", "about"}})),
            "loss_output: the output is [2, 3]; ctc takes one with three axes, for samples, times and classes");
  EXPECT_EQ(refused(tokens, with({{"loss_labels", "ids"}, {"loss_label_length", "5"}})),
            "loss_labels: the model's input ids is int64[2, 12]; as labels it would have to be int64[2, 5]");
  EXPECT_EQ(refused(tokens, with({{"loss_lengths", "ids"}})),
            "loss_lengths: the model's input ids is int64[2, 12]; as lengths it would have to be int64[2]");
}

// The model itself has an input that gives the labels. They have the shape and the type of this input.
TEST(Ctc, TakesLabelsThatTheModelHas) {
  test::Wire wire;
  wire.inputs = {test::value("x", test::kFloat, {"2", "6", "3"}), test::value("text", test::kInt32, {"2", "2"})};
  wire.outputs = {test::value("y", test::kFloat, {"2", "6", "4"})};
  const test::Scratch scratch;
  const auto session = Session::create(options_with({{"loss", "ctc"}, {"loss_labels", "text"}}),
                                       scratch.put("spelling.onnx", wire.bytes()), nullptr);
  const std::vector<float> x(36, 0);
  const std::vector<std::int32_t> text = {1, 2, 3, -100};
  session->set_input("x", DType::f32, {2, 6, 3}, x.data());
  session->set_input("text", DType::i32, {2, 2}, text.data());
  // All paths are equally likely, 4^-6 each. 70 of them spell two labels that differ, and 21 spell one label.
  EXPECT_NEAR(session->step().loss, (-std::log(70 * std::pow(0.25, 6)) / 2 - std::log(21 * std::pow(0.25, 6))) / 2,
              1e-5);
}

}  // namespace
}  // namespace protrain::ctc_test
