// Trains models whose files have an ONNX training_info. Training must use the loss and the optimizer that the
// training_info describes, and start from the optimizer's state in the file. tests/fixtures/make_training_info.py made
// the models, and computed the losses that training must have.
#include <gtest/gtest.h>

#include <cmath>

#include "draft/check.h"
#include "errors.h"
#include "fixtures.h"
#include "scratch.h"
#include "session/session.h"

namespace protrain::training_info_test {
namespace {

using nlohmann::json;

constexpr std::int64_t kSamples = 5;

std::string path_of(const std::string &name) { return test::fixture("training_info/" + name + ".onnx"); }

json golden() {
  std::ifstream file(test::fixture("training_info/golden.json"));
  return json::parse(file);
}

void set_batch(session::Session &session, std::int64_t step) {
  std::vector<float> x;
  std::vector<std::int64_t> label;
  for (std::int64_t at = 0; at < 4 * kSamples; ++at)
    x.push_back(static_cast<float>(std::sin(0.37 * static_cast<double>(at + 1) + static_cast<double>(step))));
  for (std::int64_t at = 0; at < kSamples; ++at) label.push_back((7 * at + at * at + 3 * step) % 3);
  session.set_input("X", DType::f32, {kSamples, 4}, x.data());
  session.set_input("label", DType::i64, {kSamples}, label.data());
}

std::unique_ptr<session::Session> session_of(const std::string &path,
                                             const std::vector<std::pair<std::string, std::string>> &more = {}) {
  draft::Options options;
  options.set("dim", "N=" + std::to_string(kSamples));
  for (const auto &[key, value] : more) options.set(key, value);
  return session::Session::create(options, path, nullptr);
}

class TrainingInfo : public testing::TestWithParam<std::string> {};

TEST_P(TrainingInfo, IsFollowedForTenSteps) {
  const auto session = session_of(path_of(GetParam()));
  const std::vector<double> losses = golden()[GetParam()];
  for (std::size_t i = 0; i < losses.size(); ++i) {
    set_batch(*session, static_cast<std::int64_t>(i));
    EXPECT_NEAR(session->step().loss, losses[i], 5e-6 * losses[i]) << "step " << i + 1;
  }
}

TEST_P(TrainingInfo, GoesOnFromACheckpoint) {
  const test::Scratch scratch;
  const auto session = session_of(path_of(GetParam()));
  const auto step = [](session::Session &one, std::int64_t at) {
    set_batch(one, at);
    return one.step().loss;
  };
  for (std::int64_t i = 0; i < 3; ++i) step(*session, i);
  const auto again = session_of(path_of(GetParam()), {{"resume", session->save(scratch.path())}});
  for (std::int64_t i = 3; i < 6; ++i) EXPECT_EQ(step(*again, i), step(*session, i)) << "step " << i + 1;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, TrainingInfo,
                         testing::Values("adam", "adam-later", "momentum", "nesterov", "adagrad"), test::kCaseName);

TEST(TrainingInfoOptions, WinOverTheFile) {
  const auto losses = [](const std::vector<std::pair<std::string, std::string>> &options) {
    const auto session = session_of(path_of("momentum"), options);
    std::vector<float> found;
    for (std::int64_t i = 0; i < 3; ++i) {
      set_batch(*session, i);
      found.push_back(session->step().loss);
    }
    return found;
  };
  const std::vector<float> file = losses({});
  EXPECT_EQ(losses({{"momentum", "0.9"}, {"learning_rate", "0.2"}}), file) << "what the file says";
  EXPECT_NE(losses({{"learning_rate", "0.1"}}), file);
  EXPECT_EQ(losses({{"optimizer", "sgd"},
                    {"momentum", "0.9"},
                    {"dampening", "0.4"},
                    {"weight_decay", "0.01"},
                    {"learning_rate", "0.2"}}),
            file)
      << "the whole optimizer by options";
  EXPECT_EQ(losses({{"loss", "cross_entropy"}, {"loss_output", "Y"}, {"loss_labels", "label"}}), file)
      << "the same loss by options";
}

// The Gradient node of the file has an unknown domain, so the file's training algorithm is refused. If options give the
// optimizer and the loss instead, the model must train.
TEST(TrainingInfoOptions, TrainWhatTheFileComputesOtherwise) {
  const test::Scratch scratch;
  std::ostringstream whole;
  whole << std::ifstream(path_of("adam"), std::ios::binary).rdbuf();
  std::string bytes = whole.str();
  const std::size_t at = bytes.find("differentiate");
  ASSERT_NE(at, std::string::npos);
  const std::size_t domain = bytes.find("ai.onnx.preview.training", at);
  ASSERT_NE(domain, std::string::npos);
  bytes[domain + 23] = 'x';  // a domain without Gradient
  const std::string path = scratch.put("changed.onnx", bytes);
  EXPECT_EQ(test::code_of([&] { session_of(path); }), Code::unsupported);
  const json about = json::parse(draft::check_model({}, path));
  EXPECT_FALSE(about["trainable"].get<bool>());
  EXPECT_EQ(about["problems"][0]["subject"], "training_info");
  const auto session = session_of(
      path, {{"optimizer", "sgd"}, {"loss", "cross_entropy"}, {"loss_output", "Y"}, {"loss_labels", "label"}});
  set_batch(*session, 0);
  EXPECT_NEAR(session->step().loss, golden()["adam"][0].get<double>(), 1e-5);
}

}  // namespace
}  // namespace protrain::training_info_test
