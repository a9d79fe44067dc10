// Training with a loss scale: how a session handles gradients that are too large or too small for float16.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "arith/f16.h"
#include "errors.h"
#include "fixtures.h"
#include "onnx_import/wire.h"
#include "session/session.h"

namespace protrain::session::fp16_test {
namespace {

using test::error_of;
using Json = nlohmann::json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

// A model y = x w with two rows and four columns. The loss is the mean square of y - labels, so dL/dy is a quarter of
// y - labels.
class Fp16 : public testing::Test {
 protected:
  std::unique_ptr<Session> session_of(const Pairs &more) {
    draft::Options options;
    for (const auto &[key, value] :
         Pairs{{"precision", "fp16"}, {"optimizer", "sgd"}, {"learning_rate", "0.01"}, {"loss", "mse"}})
      options.set(key, value);
    for (const auto &[key, value] : more) options.set(key, value);
    return Session::create(options, model, [this](const std::string &line) {
      const Json json = Json::parse(line);
      if (json["event"] == "step") lines.push_back(json);
      if (json["event"] == "alarm") alarms.push_back(json);
    });
  }

  StepResult step(Session &session, const std::vector<float> &labels) {
    session.set_input("x", DType::f32, {2, 3}, x.data());
    session.set_input("labels", DType::f32, {2, 4}, labels.data());
    return session.step();
  }

  std::vector<float> weights(Session &session) const {
    std::vector<float> w(12);
    session.read_parameter("w", w.data(), w.size());
    return w;
  }
  std::vector<float> gradient(Session &session) const {
    std::vector<float> g(12);
    session.read_grad("w", g.data(), g.size());
    return g;
  }

  // Takes steps until one does not overflow. Returns the number of skipped steps.
  int step_until_applied(Session &session, const std::vector<float> &labels, StepResult &result) {
    const std::vector<float> before = weights(session);
    for (int skipped = 0; skipped < 20; ++skipped) {
      result = step(session, labels);
      if (std::isfinite(result.grad_norm)) return skipped;
      EXPECT_EQ(weights(session), before) << "a step that overflows changes nothing";
    }
    return -1;
  }

  const std::vector<float> x = {0.5f, -1, 2, 1.5f, 0.25f, -0.75f};
  const std::vector<float> near = {13, 15, 20, -4, 0.5f, 1, 0, -2}, far = {900, 15, 20, -4, 0.5f, 1, 0, -2};
  std::vector<Json> lines;   // the log lines of steps
  std::vector<Json> alarms;  // and those of alarms
  test::Scratch scratch;
  std::string model = scratch.put("product.onnx", test::Wire().bytes());
};

TEST_F(Fp16, SkipsStepsAndHalvesTheScaleUntilGradientsFit) {
  const auto session = session_of({{"keep_gradients", "w"}}), wide = session_of({{"precision", "fp32"}});
  StepResult result;
  const int skipped = step_until_applied(*session, far, result);
  EXPECT_EQ(skipped, 9);  // w's gradient, up to 2 * 890 / 4 * scale, fits at 65536 / 2^9, not at 65536 / 2^8
  EXPECT_EQ(session->step_count(), static_cast<std::uint64_t>(skipped) + 1);
  for (int i = 0; i < 30; ++i) {
    const StepResult expected = step(*wide, far);
    if (i > 0) result = step(*session, far);
    EXPECT_NEAR(result.loss, expected.loss, 0.01 * expected.loss) << i;
    EXPECT_NEAR(result.grad_norm, expected.grad_norm, 0.01 * expected.grad_norm) << i;
  }
}

TEST_F(Fp16, LogsTheScaleOfEachStep) {
  const auto session = session_of({});
  StepResult result;
  const int skipped = step_until_applied(*session, far, result);
  for (int i = 0; i <= skipped; ++i) EXPECT_EQ(lines[static_cast<std::size_t>(i)]["loss_scale"], 65536 >> i);
  EXPECT_FALSE(lines[0]["grad_norm"].is_number());
  const std::size_t logged = lines.size();
  step(*session_of({{"precision", "bf16"}}), near);
  EXPECT_FALSE(lines[logged].contains("loss_scale"));
}

TEST_F(Fp16, TrainsByGradientsThatFloat16DoesNotHold) {
  const std::vector<float> tiny(8, 1e-7f);
  const double slope = 1e-7 / 4;
  ASSERT_EQ(arith::to_f16(static_cast<float>(slope)).bits, 0) << "gone without a scale";
  const Pairs more = {{"keep_gradients", "w"}, {"learning_rate", "1"}, {"weight_decay", "0"}};
  const auto session = session_of(more);
  session->write_parameter("w", std::vector<float>(12).data(), 12);
  const StepResult result = step(*session, tiny);
  const std::vector<float> found = gradient(*session), after = weights(*session);
  double square = 0;
  for (int d = 0; d < 3; ++d)
    for (int c = 0; c < 4; ++c) {
      const auto at = static_cast<std::size_t>(d * 4 + c);
      const double expected = -slope * (x[static_cast<std::size_t>(d)] + x[static_cast<std::size_t>(3 + d)]);
      EXPECT_NEAR(found[at], expected, 2e-3 * std::abs(expected)) << at;
      EXPECT_EQ(after[at], -found[at]);
      square += expected * expected;
    }
  EXPECT_NEAR(result.grad_norm, std::sqrt(square), 2e-3 * std::sqrt(square));
}

// clip_norm and clip_value apply to gradients from which the loss scale was divided out. In the first session both
// limits lie far below the scaled gradients and far above the unscaled ones, so they must change nothing.
TEST_F(Fp16, ClipsGradientsAsTheyAreWithoutTheScale) {
  const auto limited = session_of({{"clip_norm", "1000"}, {"clip_value", "1000"}}), plain = session_of({});
  StepResult result;
  step_until_applied(*limited, near, result);
  step_until_applied(*plain, near, result);
  EXPECT_LT(result.grad_norm, 1000);
  EXPECT_EQ(weights(*limited), weights(*plain));
  const auto cut = session_of({{"clip_norm", "1"}, {"weight_decay", "0"}});
  const std::vector<float> before = weights(*cut);
  step_until_applied(*cut, near, result);
  const std::vector<float> after = weights(*cut);
  double square = 0;
  for (std::size_t i = 0; i < after.size(); ++i) square += std::pow(static_cast<double>(after[i]) - before[i], 2);
  EXPECT_NEAR(std::sqrt(square), 0.01, 1e-5);  // learning rate times clip_norm
}

TEST_F(Fp16, MeansGradientsOverMicroBatches) {
  for (const char *precision : {"fp32", "fp16"}) {
    const auto twice = session_of({{"precision", precision}, {"accumulation", "2"}, {"keep_gradients", "w"}});
    const auto wide = session_of({{"precision", "fp32"}, {"keep_gradients", "w"}});
    StepResult result;
    for (int i = 0; i < 20 && (i == 0 || !std::isfinite(result.grad_norm)); ++i) {
      step(*twice, near);
      result = step(*twice, near);
    }
    const StepResult expected = step(*wide, near);
    EXPECT_NEAR(result.loss, expected.loss, 1e-3 * expected.loss);
    EXPECT_NEAR(result.grad_norm, expected.grad_norm, 1e-3 * expected.grad_norm);
    const std::vector<float> found = gradient(*twice), right = gradient(*wide);
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], right[i], 1e-3 * expected.grad_norm) << i;
  }
}

// With these labels the gradient is too large for float16 even at the smallest scale, 1. The option on_nonfinite then
// decides: with `skip` the step is skipped, with the other policies it is an error.
TEST_F(Fp16, LeavesToThePolicyWhatTheLeastScaleDoesNotCure) {
  const std::vector<float> labels(8, 3e5f);
  for (const char *policy : {"stop", "rollback", "skip"}) {
    const auto session = session_of({{"on_nonfinite", policy}});
    const std::vector<float> before = weights(*session);
    for (int i = 0; i < 16; ++i) EXPECT_TRUE(std::isfinite(step(*session, labels).loss)) << policy;
    EXPECT_EQ(lines.back()["loss_scale"], 2);
    if (std::string(policy) == "skip") {
      step(*session, labels);
      EXPECT_EQ(session->step_count(), 17u);
      EXPECT_EQ(lines.back()["loss_scale"], 1);
    } else {
      const Error error = error_of([&] { step(*session, labels); });
      EXPECT_EQ(error.code, Code::nonfinite);
      EXPECT_EQ(error.subject, "w");
      EXPECT_EQ(session->step_count(), 16u);
    }
    EXPECT_EQ(weights(*session), before);
  }
}

// In 16 steps the scale falls from 65536 to 1, its floor, and an alarm is raised. Later steps are skipped too, but
// raise no second alarm about the floor.
TEST_F(Fp16, NamesAScaleAtItsFloorOnce) {
  const auto session = session_of({{"on_nonfinite", "skip"}});
  const auto floors = [&] {
    std::vector<std::uint64_t> steps;
    for (const Json &alarm : alarms)
      if (alarm["code"] == "scale_at_floor") steps.push_back(alarm["step"]);
    return steps;
  };
  const std::vector<float> labels(8, 3e5f);
  for (int i = 0; i < 15; ++i) step(*session, labels);
  EXPECT_TRUE(alarms.empty()) << "a scale that shrinks is none: " << Json(alarms);
  for (int i = 0; i < 4; ++i) step(*session, labels);
  EXPECT_EQ(floors(), std::vector<std::uint64_t>{16});
  const Json reported = Json::parse(session->report_json())["alarms"];
  EXPECT_EQ(reported[0]["code"], "scale_at_floor") << reported;
  EXPECT_EQ(reported[0]["step"], 16) << reported;
}

// The gradient of w is at most 0.9e5 / 2. It fits into float16 only at the least scale, 1.
TEST_F(Fp16, TrainsAtTheLeastScaleIfGradientsFitThere) {
  const auto session = session_of({{"learning_rate", "1e-9"}});
  StepResult result;
  EXPECT_EQ(step_until_applied(*session, std::vector<float>(8, 0.9e5f), result), 16);
  ASSERT_EQ(alarms.size(), 1u) << Json(alarms);
  EXPECT_EQ(alarms[0]["code"], "scale_at_floor");
  EXPECT_EQ(alarms[0]["text"],
            "the loss scale is at its least value in step 16: gradients overflowed float16 at every larger one; train "
            "in bf16, or find what grows");
}

TEST_F(Fp16, LeavesALossThatIsNotFiniteToThePolicyAndKeepsTheScale) {
  const std::vector<float> infinite(8, HUGE_VALF);
  const auto session = session_of({});
  const Error error = error_of([&] { step(*session, infinite); });
  EXPECT_EQ(error.code, Code::nonfinite);
  EXPECT_EQ(error.subject, "loss");
  step(*session, near);
  EXPECT_EQ(lines.back()["loss_scale"], 65536);
}

TEST_F(Fp16, NamesTheStepWhoseLossIsNotFinite) {
  const auto session = session_of({{"on_nonfinite", "skip"}});
  StepResult result;
  const int skipped = step_until_applied(*session, near, result);
  step(*session, std::vector<float>(8, HUGE_VALF));
  ASSERT_EQ(alarms.size(), 1u) << Json(alarms);
  EXPECT_EQ(alarms[0]["code"], "nonfinite");
  EXPECT_EQ(alarms[0]["step"], skipped + 2);
}

TEST_F(Fp16, GoesOnFromACheckpointWithItsScale) {
  const test::Scratch saved;
  const auto session = session_of({});
  step(*session, far);
  step(*session, far);
  session->save(saved.path());
  const auto resumed = session_of({{"resume", saved.path()}});
  for (int i = 0; i < 6; ++i) {
    const StepResult expected = step(*session, far), found = step(*resumed, far);
    EXPECT_EQ(found.loss, expected.loss);
    EXPECT_EQ(std::isfinite(found.grad_norm), std::isfinite(expected.grad_norm));
    EXPECT_EQ(lines[lines.size() - 1]["loss_scale"], lines[lines.size() - 2]["loss_scale"]);
    EXPECT_EQ(weights(*resumed), weights(*session));
  }
  EXPECT_LT(lines.back()["loss_scale"], 65536 / 4) << "it changed on the way";
}

TEST_F(Fp16, GoesOnFromACheckpointThatHasNoScaleWithTheFirst) {
  const test::Scratch saved;
  const auto wide = session_of({{"precision", "fp32"}});
  step(*wide, near);
  wide->save(saved.path());
  const auto session = session_of({{"resume", saved.path()}});
  EXPECT_EQ(weights(*session), weights(*wide));
  step(*session, near);
  EXPECT_EQ(lines.back()["loss_scale"], 65536);
}

}  // namespace
}  // namespace protrain::session::fp16_test
