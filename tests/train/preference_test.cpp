// A preference loss compares the model in training with the model as it was when training started. One session with
// adapters can compute both: with its adapters the first model, without them the second. The session gives the log
// probabilities of samples as an output.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "errors.h"
#include "train/family.h"

namespace protrain::preference_test {
namespace {

using session::Session;
using test::Json;
using test::Values;

constexpr double kBeta = 0.5;
constexpr std::size_t kSamples = 2, kTokens = 12, kClasses = 37;

class Preference : public testing::Test {
 protected:
  std::unique_ptr<Session> open(std::map<std::string, std::string> more = {}) const {
    Json golden = {{"dims", {{"batch", kSamples}}}};
    more.merge(std::map<std::string, std::string>{
        {"loss", "dpo"}, {"loss_shift", "1"}, {"dpo_beta", "0.5"}, {"lora", "onnx::MatMul_*"}, {"keep_outputs", "*"}});
    return test::open_family("objectives/tokens", golden, more);
  }
  void feed(Session &session, std::size_t step) const {
    for (const auto &[name, values] : {std::pair("ids", &ids_), std::pair("labels", &labels_)})
      session.set_input(name, values->dtype, values->batch(), values->at(step));
  }
  static std::vector<float> output(Session &session, const char *name, std::size_t count) {
    std::vector<float> values(count);
    session.predict();
    session.read_output(name, DType::f32, values.data(), values.size() * sizeof(float));
    return values;
  }
  static std::vector<float> log_probabilities(Session &session) {
    return output(session, "log_probabilities", kSamples);
  }
  std::vector<float> of_base(Session &session, std::size_t step) const {
    feed(session, step);
    session.use_adapters(false);
    std::vector<float> found = log_probabilities(session);
    session.use_adapters(true);
    return found;
  }
  static void compare_with(Session &session, const std::vector<float> &reference) {
    session.set_input("reference", DType::f32, {kSamples}, reference.data());
  }

  const Json inputs_ = [] {
    std::ifstream file(test::fixture("objectives/tokens.json"));
    return Json::parse(file)["inputs"];
  }();
  const Values ids_{inputs_["ids"]}, labels_{inputs_["labels"]};
};

TEST_F(Preference, ShowsTheLogProbabilitiesOfSamples) {
  const auto session = open();
  feed(*session, 0);
  const std::vector<float> logits = output(*session, "logits", kSamples * kTokens * kClasses),
                           found = log_probabilities(*session);
  const auto *labels = static_cast<const std::int64_t *>(labels_.at(0));
  for (std::size_t sample = 0; sample < kSamples; ++sample) {
    double sum = 0;
    for (std::size_t i = 0; i + 1 < kTokens; ++i) {
      const float *row = logits.data() + (sample * kTokens + i) * kClasses;
      const std::int64_t label = labels[sample * kTokens + i + 1];
      if (label < 0) continue;
      const double total =
          std::accumulate(row, row + kClasses, 0.0, [](double all, float x) { return all + std::exp(double(x)); });
      sum += double(row[label]) - std::log(total);
    }
    EXPECT_NEAR(found[sample], sum, 1e-4) << sample;
  }
}

TEST_F(Preference, ComparesAdaptersWithTheBaseOfTheSameSession) {
  const auto session = open();
  for (std::size_t step = 0; step < 4; ++step) {
    const std::vector<float> base = of_base(*session, step), now = log_probabilities(*session);
    compare_with(*session, base);
    const float loss = session->step().loss;
    const double gained = double(now[0] - base[0]) - double(now[1] - base[1]);
    EXPECT_NEAR(loss, std::log1p(std::exp(-kBeta * gained)), 1e-5) << step;
    if (step == 0) {
      EXPECT_FLOAT_EQ(loss, std::log(2.0F));  // adapters begin as the base
    }
  }
  const auto untouched = open({{"memory", "2MiB"}});
  EXPECT_EQ(of_base(*session, 0), of_base(*untouched, 0));
  EXPECT_NE(log_probabilities(*session), log_probabilities(*untouched));
}

TEST_F(Preference, ShowsNoLogProbabilitiesForOtherLosses) {
  const Error error = test::error_of([&] {
    open({{"loss", "cross_entropy"}, {"dpo_beta", "0.1"}, {"keep_outputs", "log_probabilities"}});
  });
  EXPECT_EQ(error.code, Code::arg);
}

}  // namespace
}  // namespace protrain::preference_test
