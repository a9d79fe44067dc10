// Training with artifacts of onnxruntime-training, which tests/fixtures/make_artifacts.py made. A session uses the
// optimizer that the artifacts describe, and starts from their checkpoint. Its losses must be those of onnxruntime.
#include <gtest/gtest.h>

#include <cmath>

#include "draft/check.h"
#include "errors.h"
#include "fixtures.h"
#include "scratch.h"
#include "session/session.h"
#include "train/command.h"

namespace protrain::artifacts_test {
namespace {

using test::Json;

std::string folder(const std::string &name) { return test::fixture("artifacts/" + name); }

Json golden(const std::string &name) {
  std::ifstream file(folder(name) + "/golden.json");
  return Json::parse(file);
}

// Sets every input to the values that make_artifacts.py gives it in a step.
void set_batch(session::Session &session, std::int64_t step) {
  for (std::size_t i = 0; i < session.input_count(); ++i) {
    const Shape &shape = session.input_shape(i);
    std::vector<std::int64_t> tokens;
    std::vector<float> wave;
    for (std::int64_t at = 0; at < element_count(shape); ++at) {
      tokens.push_back((7 * at + at * at + 3 * step) % 32);
      wave.push_back(static_cast<float>(std::sin(0.37 * static_cast<double>(at + 1) + static_cast<double>(step))));
    }
    const bool integers = session.input_dtype(i) == DType::i64;
    const void *values = integers ? static_cast<const void *>(tokens.data()) : wave.data();
    session.set_input(session.input_name(i), session.input_dtype(i), shape, values);
  }
}

std::unique_ptr<session::Session> session_of(const std::string &path,
                                             const std::vector<std::pair<std::string, std::string>> &more = {}) {
  draft::Options options;
  options.set("dim", path.find("text") != std::string::npos ? "batch=2" : "batch=5");
  for (const auto &[key, value] : more) options.set(key, value);
  return session::Session::create(options, path, nullptr);
}

class Artifacts : public testing::TestWithParam<std::string> {};

TEST_P(Artifacts, FollowTheLossesOfOnnxruntime) {
  const Json golden = artifacts_test::golden(GetParam());
  const auto session = session_of(folder(GetParam()), {{"learning_rate", golden["learning_rate"].dump()}});
  const std::vector<double> losses = golden["losses"];
  for (std::size_t i = 0; i < losses.size(); ++i) {
    set_batch(*session, golden["first_step"].get<std::int64_t>() + static_cast<std::int64_t>(i));
    EXPECT_NEAR(session->step().loss, losses[i], 2e-6 * losses[i]) << "step " << i + 1;
  }
}

TEST_P(Artifacts, AreExportedAsTheirEvalModelWithNewWeights) {
  const test::Scratch scratch;
  const auto session = session_of(folder(GetParam()));
  set_batch(*session, 0);
  session->step();
  const std::string exported = scratch / GetParam() + ".onnx";
  session->export_model(exported);
  EXPECT_FALSE(std::filesystem::exists(exported + ".data")) << "small enough for one file";
  const auto again = session_of(exported);
  set_batch(*again, 0);
  EXPECT_FLOAT_EQ(again->evaluate(), session->evaluate());
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Artifacts, testing::Values("text", "state", "plain"),
                         [](const auto &info) { return info.param; });

TEST(ArtifactsOptions, OneReplacesOneSettingAndOptimizerReplacesTheWhole) {
  const auto check = [](const draft::Options &options) {
    return Json::parse(draft::check_model(options, folder("state")));
  };
  const Json about = check({});
  EXPECT_TRUE(about["trainable"].get<bool>()) << about["problems"];
  EXPECT_EQ(about["training"]["steps"], 3);
  EXPECT_EQ(about["training"]["options"]["clip_norm"], "0.5");
  EXPECT_EQ(about["training"]["options"]["correction"], "rate");
  for (const Json &parameter : about["parameters"]) EXPECT_EQ(parameter["frozen"], parameter["name"] == "w1");

  draft::Settings settings;
  draft::Options options;
  options.set("beta1", "0.5");
  const auto declared = onnx_import::Model::open(folder("state"))->declared();
  draft::take_declared(settings = draft::settings_of(options), options, declared);
  EXPECT_EQ(settings.optimizer.beta1, 0.5);
  EXPECT_EQ(settings.optimizer.beta2, 0.95);
  EXPECT_EQ(settings.optimizer.earlier_steps, 3);
  EXPECT_TRUE(settings.declared_state);

  options.set("optimizer", "adamw");
  draft::take_declared(settings = draft::settings_of(options), options, declared);
  EXPECT_EQ(settings.optimizer.beta2, 0.999);
  EXPECT_EQ(settings.optimizer.earlier_steps, 0);
  EXPECT_EQ(settings.clip_norm, 0);
  EXPECT_FALSE(settings.declared_state);
}

// The artifacts hold the optimizer's state, and training goes on from it. The losses must be the same after a save and
// a resume, and if released memory is filled with NaN (trial=poison). In bfloat16 they may differ by rounding.
TEST(ArtifactsState, IsTheSameWhereverItRests) {
  const test::Scratch scratch;
  const auto losses = [](session::Session &session, std::int64_t from) {
    std::vector<float> found;
    for (std::int64_t i = 0; i < 3; ++i) {
      set_batch(session, from + i);
      found.push_back(session.step().loss);
    }
    return found;
  };
  const auto session = session_of(folder("state"));
  const std::vector<float> first = losses(*session, 3);
  const std::string checkpoint = session->save(scratch.path());
  const std::vector<float> next = losses(*session, 6);
  EXPECT_EQ(losses(*session_of(folder("state"), {{"resume", checkpoint}}), 6), next);
  EXPECT_EQ(losses(*session_of(folder("state"), {{"trial", "poison"}}), 3), first);
  const auto narrow = session_of(folder("state"), {{"precision", "bf16"}});
  const std::vector<float> rounded = losses(*narrow, 3);
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_NEAR(rounded[i], first[i], 0.02 * first[i]);
}

TEST(ArtifactsCommand, TakesTheFolderOrTheTrainingModel) {
  for (const std::string &path : {folder("plain"), folder("plain") + "/training_model.onnx"})
    EXPECT_EQ(std::system((std::string(PROTRAIN_COMMAND) + " check " + path + " > /dev/null").c_str()), 0) << path;
}

}  // namespace
}  // namespace protrain::artifacts_test
