#include "session/session.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "draft/check.h"
#include "errors.h"
#include "fixtures.h"
#include "session/aftermath.h"

namespace protrain::session::session_test {
namespace {

using test::error_of;
using test::kBatch;
using test::kSequence;

draft::Options options_with(std::vector<std::pair<std::string, std::string>> more = {}) {
  draft::Options options;
  for (const char *dim : {"batch=2", "sequence=32"}) options.set("dim", dim);
  for (const auto &[key, value] : std::vector<std::pair<std::string, std::string>>{
           {"learning_rate", "1e-3"}, {"beta2", "0.95"}, {"weight_decay", "0.1"}, {"threads", "2"}})
    options.set(key, value);
  for (const auto &[key, value] : more) options.set(key, value);
  return options;
}

class TrainingRun {
 public:
  explicit TrainingRun(const std::string &file = "gpt2-dynamic-opset18", const draft::Options &options = options_with())
      : session(Session::create(options, test::fixture(file + ".onnx"), nullptr)) {}

  void set_batch(int step) {
    session->set_input("input_ids", DType::i64, {kBatch, kSequence}, test::batch(ids_, step));
    session->set_input("labels", DType::i64, {kBatch, kSequence}, test::batch(labels_, step));
  }
  StepResult step(int number) {
    set_batch(number);
    return session->step();
  }
  std::vector<float> parameter(const std::string &name, std::size_t count) {
    std::vector<float> values(count);
    session->read_parameter(name, values.data(), count);
    return values;
  }

  std::unique_ptr<Session> session;

 private:
  std::vector<std::int64_t> ids_ = test::load_tokens("input_ids.npy");
  std::vector<std::int64_t> labels_ = test::load_tokens("labels.npy");
};

constexpr const char *kBias = "m.transformer.h.0.ln_1.bias";
constexpr std::size_t kBiasCount = 64;

std::vector<float> bits_after(const std::string &threads) {
  TrainingRun trained("gpt2-dynamic-opset18", options_with({{"threads", threads}}));
  std::vector<float> bits;
  for (int i = 0; i < 5; ++i) {
    const StepResult result = trained.step(i);
    bits.push_back(result.loss);
    bits.push_back(static_cast<float>(result.grad_norm));
  }
  for (float value : trained.parameter(kBias, kBiasCount)) bits.push_back(value);
  return bits;
}

TEST(Session, GivesTheSameBitsTwiceWithOneThread) {
  const auto a = bits_after("1"), b = bits_after("1");
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

TEST(Session, GivesTheSameBitsTwiceWithTwoThreads) {
  const auto a = bits_after("2"), b = bits_after("2");
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

// The order of a sum depends on the number of threads, so results may differ in the last bits, but not by more.
TEST(Session, ComputesTheSameWithAnyNumberOfThreads) {
  const std::vector<float> one = bits_after("1");
  for (const char *threads : {"3", "8", "17", "32", "64"}) {
    const std::vector<float> several = bits_after(threads);
    for (std::size_t i = 0; i < one.size(); ++i)
      EXPECT_NEAR(several[i], one[i], 1e-4 * std::max(1.0f, std::abs(one[i]))) << threads << " threads, number " << i;
  }
}

TEST(Session, EvaluatesTheLossThatTheNextStepReports) {
  TrainingRun trained;
  trained.set_batch(0);
  const float evaluated = trained.session->evaluate();
  EXPECT_EQ(trained.session->step_count(), 0u);
  EXPECT_NEAR(trained.session->step().loss, evaluated, 1e-5);
  EXPECT_LT(trained.session->evaluate(), evaluated);
}

TEST(Session, ReadsBackWhatWasWritten) {
  TrainingRun trained;
  std::vector<float> values(kBiasCount);
  for (std::size_t i = 0; i < kBiasCount; ++i) values[i] = static_cast<float>(i) * 0.25f;
  trained.session->write_parameter(kBias, values.data(), kBiasCount);
  EXPECT_EQ(trained.parameter(kBias, kBiasCount), values);
}

TEST(Session, ChangesNothingAtALearningRateOfZero) {
  TrainingRun trained;
  trained.session->set_learning_rate(0);
  const auto before = trained.parameter(kBias, kBiasCount);
  trained.step(0);
  EXPECT_EQ(trained.parameter(kBias, kBiasCount), before);
}

TEST(Session, LeavesFrozenParametersAlone) {
  TrainingRun trained("gpt2-dynamic-opset18", options_with({{"frozen", "*ln_1.bias"}}));
  const auto before = trained.parameter(kBias, kBiasCount);
  trained.step(0);
  EXPECT_EQ(trained.parameter(kBias, kBiasCount), before);
}

TEST(Session, KeepsOnlyTheGradientsThatWereAskedFor) {
  TrainingRun trained("gpt2-dynamic-opset18", options_with({{"keep_gradients", "*h.0.ln_1*"}}));
  std::vector<float> gradient(kBiasCount);
  const auto read = [&](const std::string &name) { trained.session->read_grad(name, gradient.data(), kBiasCount); };
  EXPECT_EQ(error_of([&] { read(kBias); }).code, Code::state);
  trained.step(0);
  read(kBias);
  EXPECT_NE(gradient, std::vector<float>(kBiasCount));
  const Error error = error_of([&] { read("m.transformer.h.1.ln_1.bias"); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_NE(error.text.find("keep_gradients"), std::string::npos);
}

TEST(Session, RefusesABudgetThatIsTooSmallAndTheOneItNamesWorks) {
  const Error error = error_of([] { TrainingRun("gpt2-dynamic-opset18", options_with({{"memory", "1MiB"}})); });
  ASSERT_EQ(error.code, Code::budget);
  const std::string least = std::to_string(std::stoull(error.text.substr(error.text.find("needs ") + 6)));
  EXPECT_NO_THROW(TrainingRun("gpt2-dynamic-opset18", options_with({{"memory", least}})));
  const std::string less = std::to_string(std::stoull(least) - 1);
  EXPECT_EQ(error_of([&] {
              TrainingRun("gpt2-dynamic-opset18", options_with({{"memory", less}}));
            }).code,
            Code::budget);
}

TEST(Session, SaysWhichInputWasNeverSet) {
  TrainingRun trained;
  const Error error = error_of([&] { trained.session->step(); });
  EXPECT_EQ(error.code, Code::state);
  EXPECT_EQ(error.subject, "input_ids");
}

TEST(Session, RefusesInputsOfAnotherTypeOrShape) {
  TrainingRun trained;
  const std::vector<std::int64_t> values(100);
  EXPECT_EQ(error_of([&] { trained.session->set_input("ids", DType::i64, {2, 32}, values.data()); }).code, Code::arg);
  EXPECT_EQ(error_of([&] {
              trained.session->set_input("labels", DType::i32, {2, 32}, values.data());
            }).code,
            Code::type);
  EXPECT_EQ(error_of([&] {
              trained.session->set_input("labels", DType::i64, {2, 16}, values.data());
            }).code,
            Code::shape);
}

TEST(Session, ReportsATokenOutsideTheVocabularyAndGoesOn) {
  TrainingRun trained;
  trained.set_batch(0);
  std::vector<std::int64_t> bad(kBatch * kSequence, 9999);
  trained.session->set_input("input_ids", DType::i64, {kBatch, kSequence}, bad.data());
  const Error error = error_of([&] { trained.session->step(); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(aftermath_of(error.facts), Aftermath::unchanged);
  EXPECT_NE(error.text.find("9999"), std::string::npos);
  EXPECT_TRUE(std::isfinite(trained.step(0).loss));
}

TEST(Session, StopsOnALossThatIsNotFiniteAndChangesNothing) {
  TrainingRun trained;
  auto poisoned = trained.parameter(kBias, kBiasCount);
  const auto healthy = poisoned;
  poisoned[3] = std::numeric_limits<float>::quiet_NaN();
  trained.session->write_parameter(kBias, poisoned.data(), kBiasCount);
  const std::string other = "m.transformer.h.1.ln_1.bias";
  const auto before = trained.parameter(other, kBiasCount);
  const Error error = error_of([&] { trained.step(0); });
  EXPECT_EQ(error.code, Code::nonfinite);
  EXPECT_EQ(aftermath_of(error.facts), Aftermath::unchanged);
  EXPECT_EQ(trained.parameter(other, kBiasCount), before);
  trained.session->write_parameter(kBias, healthy.data(), kBiasCount);
  EXPECT_TRUE(std::isfinite(trained.step(0).loss));
}

TEST(Session, CancelledBeforeAStepChangesNothingAndStaysUsable) {
  TrainingRun trained;
  trained.set_batch(0);
  const auto before = trained.parameter(kBias, kBiasCount);
  trained.session->cancel();
  EXPECT_EQ(error_of([&] { trained.session->step(); }).code, Code::cancelled);
  EXPECT_EQ(trained.parameter(kBias, kBiasCount), before);
  EXPECT_EQ(trained.session->step_count(), 0u);
  EXPECT_TRUE(std::isfinite(trained.session->step().loss));
}

TEST(Session, TwoSessionsSideBySideGiveTheBitsOfOneAlone) {
  const auto alone = bits_after("2");
  std::vector<float> first, second;
  std::thread other([&] { first = bits_after("2"); });
  second = bits_after("2");
  other.join();
  EXPECT_EQ(std::memcmp(alone.data(), first.data(), alone.size() * sizeof(float)), 0);
  EXPECT_EQ(std::memcmp(alone.data(), second.data(), alone.size() * sizeof(float)), 0);
}

TEST(Session, FallsWithSgdAndMomentum) {
  TrainingRun trained("opt-dynamic-opset23",
                      options_with({{"optimizer", "sgd"}, {"momentum", "0.9"}, {"learning_rate", "0.05"}}));
  const float first = trained.step(0).loss;
  float last = first;
  for (int i = 0; i < 20; ++i) last = trained.step(0).loss;
  EXPECT_LT(last, first - 1.0f);
}

TEST(Check, ListsParametersConstantsAndBlocks) {
  const auto json =
      nlohmann::json::parse(draft::check_model(draft::Options(), test::fixture("llama-dynamic-opset18.onnx")));
  EXPECT_TRUE(json["trainable"].get<bool>()) << json["problems"];
  EXPECT_EQ(json["blocks"], 4);
  EXPECT_EQ(json["parameter_elements"], test::golden("llama")["parameters"]);
  EXPECT_EQ(json["inputs"][0]["dims"][0], "batch");
  EXPECT_TRUE(json["dims"]["sequence"]["default"].get<bool>());
}

}  // namespace
}  // namespace protrain::session::session_test
