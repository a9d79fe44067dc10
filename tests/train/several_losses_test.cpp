// Several losses that options attach to one model: their sum, what it is computed from, and what is refused.
// objectives_test.cpp compares sums with PyTorch.
#include <gtest/gtest.h>

#include "draft/check.h"
#include "errors.h"
#include "onnx_import/wire.h"
#include "train/family.h"

namespace protrain::several_losses_test {
namespace {

using session::Session;
using test::error_of;
using test::Json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs operator+(Pairs left, const Pairs &right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

draft::Options options_with(const Pairs &pairs) {
  draft::Options options;
  options.set("threads", "1");
  for (const auto &[key, value] : pairs) options.set(key, value);
  return options;
}

// The model `spans` of make_objectives.py: outputs start and end (batch, 12), about (batch, 3), and the scalar balance.
class Spans : public testing::Test {
 protected:
  Spans() {
    std::ifstream file(test::fixture("objectives/spans.json"));
    golden_ = Json::parse(file);
  }

  static draft::Options options(const Pairs &pairs) { return options_with(Pairs{{"dim", "batch=6"}} + pairs); }

  // Runs a step on the first batch, and returns its loss and its gradient norm. If the options add the input `weights`,
  // it is 1 for the first three samples and 0 for the others.
  std::pair<float, double> step(const Pairs &pairs) const {
    const auto session = Session::create(options(pairs), model_, nullptr);
    const std::vector<float> weights = {1, 1, 1, 0, 0, 0};
    for (std::size_t i = 0; i < session->input_count(); ++i) {
      const std::string &name = session->input_name(i);
      if (name == "weights") {
        session->set_input(name, DType::f32, {6}, weights.data());
        continue;
      }
      const test::Values values(golden_["inputs"][name]);
      session->set_input(name, values.dtype, values.batch(), values.at(0));
    }
    const session::StepResult result = session->step();
    return {result.loss, result.grad_norm};
  }

  Json checked(const Pairs &pairs) const { return Json::parse(draft::check_model(options(pairs), model_)); }
  Error refused(const Pairs &pairs) const {
    return error_of([&] { Session::create(options(pairs), model_, nullptr); });
  }

  const std::string model_ = test::fixture("objectives/spans.onnx");
  const Pairs start_ = {{"loss", "cross_entropy"}, {"loss_labels", "starts"}};
  const Pairs end_ = {{"loss", "cross_entropy"}, {"loss_output", "end"}, {"loss_labels", "stops"}};

 private:
  Json golden_;
};

TEST_F(Spans, AddLossesTimesTheirFactors) {
  const float start = step(start_).first, end = step(end_).first;
  const float balance = step({{"loss", "mean"}, {"loss_output", "balance"}}).first;
  const float sum = step(start_ + Pairs{{"loss_factor", "0.5"},
                                        {"also_loss", "end,loss=cross_entropy,labels=stops"},
                                        {"also_loss", "balance,loss=mean,factor=0.125"}})
                        .first;
  EXPECT_EQ(sum, 0.5F * start + end + 0.125F * balance);
}

TEST_F(Spans, OfOneOutputAndTheSameLabelsAreAddedToo) {
  const auto [once, norm] = step(start_);
  const auto [twice, larger] = step(start_ + Pairs{{"also_loss", "start,loss=cross_entropy,labels=starts"}});
  EXPECT_EQ(twice, once + once);
  EXPECT_NEAR(larger, 2 * norm, 1e-6 * norm);
}

TEST_F(Spans, MayShareTheFactorsOfLabels) {
  const Pairs weights = {{"loss_weights", "weights"}};
  const float start = step(start_ + weights).first, end = step(end_ + weights).first;
  EXPECT_NE(start, step(start_).first);
  const Pairs also = {{"also_loss", "end,loss=cross_entropy,labels=stops,weights=weights"}};
  EXPECT_EQ(step(start_ + weights + also).first, start + end);
}

TEST_F(Spans, TakeAScalarThatIsALossAlreadyAsItIs) {
  EXPECT_EQ(step({{"loss", "mean"}, {"loss_output", "balance"}}), step({})) << "the model's only scalar is its loss";
  EXPECT_EQ(checked({{"loss", "mean"}, {"loss_output", "balance"}})["loss"], "balance");
}

TEST_F(Spans, SayWhatEachIsComputedFromAndWhatItReads) {
  const Pairs both = start_ + Pairs{{"also_loss", "end,loss=cross_entropy,labels=stops,from=probabilities"},
                                    {"also_loss", "about,loss=mse,labels=wanted"},
                                    {"also_loss", "about,loss=l1,labels=wanted"}};
  const Json about = checked(both);
  EXPECT_TRUE(about["trainable"]) << about["problems"];
  EXPECT_EQ(about["loss_from"], "start: logits; end: probabilities");
  EXPECT_EQ(checked(start_)["loss_from"], "logits");
  std::vector<std::string> names;
  for (const Json &input : about["inputs"]) names.push_back(input["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"ids", "starts", "stops", "wanted"}));
}

TEST_F(Spans, AreRefusedByTheNameOfTheirOption) {
  const auto also = [&](const std::string &value) { return refused(start_ + Pairs{{"also_loss", value}}); };
  const std::pair<const char *, const char *> cases[] = {
      {"ends,loss=mean",
       "ends: the model has no output ends; the model's outputs are start float32[6, 12], end float32[6, 12], about "
       "float32[6, 3], balance float32[]"},
      {"about,loss=mse,labels=starts",
       "about: the model's input starts is int64[6]; as labels it would have to be float32[6, 3]"},
      {"balance,loss=cross_entropy", "balance: output balance is float32[]; this loss needs at least 2 axes"},
      {"end,loss=cross_entropy,weights=ids", "end: the model has a value ids already; name the weights otherwise"},
      {"end,loss=mean,labels=stops",
       "end: loss_labels is for cross_entropy|mse|l1|bce|dpo|kl|cosine|ctc, the loss is mean"},
      {"end,loss=cross_entropy,focal=2,z_loss=1",
       "end: focal goes neither with label_smoothing nor with z_loss; leave one of them out"}};
  for (const auto &[value, text] : cases) {
    const Error error = also(value);
    EXPECT_EQ(error.subject, "also_loss") << value;
    EXPECT_EQ(error.text, text);
  }
  EXPECT_EQ(refused({{"also_loss", "end,loss=mean"}}).text, "also_loss has no effect unless the option loss is set");
}

// The first loss could be computed, but the second is behind an unknown operator. The error must name this operator.
TEST(SeveralLosses, NameTheUnknownOperatorBeforeAnyOfThem) {
  test::Wire wire;
  wire.nodes.push_back(test::node("Wavelet", {"y"}, {"z"}));
  wire.outputs.push_back(test::value("z", test::kFloat, {}));
  const test::Scratch scratch;
  const std::string model = scratch.put("wavelet.onnx", wire.bytes());
  const Error error = error_of([&] {
    Session::create(options_with({{"loss", "mse"}, {"also_loss", "z,loss=mean"}}), model, nullptr);
  });
  EXPECT_EQ(error.code, Code::unsupported);
  EXPECT_NE(error.text.find("Wavelet is unknown (make_z)"), std::string::npos) << error.text;
}

}  // namespace
}  // namespace protrain::several_losses_test
