// StepAlarms, which judges a run step by step and raises alarms.
#include "session/step_alarms.h"

#include <gtest/gtest.h>

#include <cmath>

namespace protrain::session::step_alarms_test {
namespace {

// Judges steps one after the other. Returns the code of each alarm that a step raises.
class Trial {
 public:
  explicit Trial(std::size_t parameters = 1) : alarms_(trained(parameters), {}) {}

  std::vector<std::string> step(StepFacts facts, const std::vector<double> &squared_norms = {1}) {
    for (std::size_t p = 0; p < squared_norms.size(); ++p) alarms_.trained()[p].squared_norm = squared_norms[p];
    facts.step = ++steps_;
    const std::size_t count = alarms_.judge(facts);
    std::vector<std::string> codes;
    for (std::size_t i = alarms_.all().size() - count; i < alarms_.all().size(); ++i) {
      EXPECT_EQ(alarms_.all()[i].step, steps_);
      codes.push_back(alarms_.all()[i].alarm.code);
    }
    return codes;
  }
  std::vector<std::string> norm(double value) { return step({.norm = value, .learning_rate = 1}); }

  const draft::Alarm &last() const { return alarms_.all().back().alarm; }

 private:
  static std::vector<StepAlarms::Parameter> trained(std::size_t count) {
    std::vector<StepAlarms::Parameter> all;
    for (std::size_t p = 0; p < count; ++p) all.push_back({p, "w" + std::to_string(p)});
    return all;
  }

  std::uint64_t steps_ = 0;
  StepAlarms alarms_;
};

using Codes = std::vector<std::string>;
constexpr StepFacts kUsual = {.norm = 1, .learning_rate = 1};

TEST(StepAlarms, NameAGradientThatIsZeroTwiceInARow) {
  Trial judged(5);
  EXPECT_EQ(judged.step(kUsual, {0, 0, 1, 0, 1}), Codes());
  EXPECT_EQ(judged.step(kUsual, {0, 1, 0, 0, 1}), Codes{"gradient_zero"});
  EXPECT_EQ(judged.last().subject, "w3");
  EXPECT_NE(judged.last().sentence.find("of w0 and w3 was"), std::string::npos) << judged.last().sentence;
  EXPECT_EQ(judged.step(kUsual, {0, 1, 0, 0, 1}), Codes{"gradient_zero"});
  EXPECT_EQ(judged.last().subject, "w2");
  EXPECT_EQ(judged.step(kUsual, {0, 1, 0, 0, 1}), Codes()) << "each is named once";
}

TEST(StepAlarms, DoNotCountStepsThatChangedNothing) {
  Trial judged;
  StepFacts skipped = kUsual;
  skipped.applied = false;
  skipped.norm = NAN;
  EXPECT_EQ(judged.step(kUsual, {0}), Codes());
  EXPECT_EQ(judged.step(skipped, {0}), Codes());
  EXPECT_EQ(judged.step(kUsual, {1}), Codes());
  StepFacts unread = kUsual;
  unread.has_norms = false;
  EXPECT_EQ(judged.step(kUsual, {0}), Codes());
  EXPECT_EQ(judged.step(unread, {0}), Codes()) << "what was not read is not judged";
  EXPECT_EQ(judged.step(kUsual, {0}), Codes{"gradient_zero"});
}

TEST(StepAlarms, NameANormFarFromThoseBefore) {
  for (const double factor : {1000.0, 1 / 1000.0}) {
    Trial judged;
    double norm = 3;
    for (int step = 0; step < 20; ++step) EXPECT_EQ(judged.norm(norm *= 0.8), Codes()) << "it falls slowly";
    EXPECT_EQ(judged.norm(norm * factor), Codes{"norm_far"});
    EXPECT_EQ(judged.norm(norm / factor), Codes()) << "it is said once";
  }
}

TEST(StepAlarms, NeedANormToCompareWith) {
  Trial judged;
  EXPECT_EQ(judged.norm(1e20), Codes());
  EXPECT_EQ(judged.norm(0), Codes()) << "gradients of zero are named one by one";
  EXPECT_EQ(judged.norm(2e20), Codes());
}

TEST(StepAlarms, NameARateOfZeroAndAScaleAtItsFloor) {
  Trial judged;
  EXPECT_EQ(judged.step({.norm = 1, .learning_rate = 0, .scale_is_least = true}),
            (Codes{"rate_zero", "scale_at_floor"}));
  EXPECT_EQ(judged.step({.norm = 1, .learning_rate = 0, .scale_is_least = true}), Codes());
}

TEST(StepAlarms, BeginWithThoseOfTheDraft) {
  const draft::Alarm known = {"input_unused", "mask", "the loss does not depend on mask"};
  StepAlarms alarms({}, {known});
  ASSERT_EQ(alarms.all().size(), 1u);
  EXPECT_EQ(alarms.all()[0].step, 0u);
  EXPECT_EQ(alarms.all()[0].alarm, known);
  EXPECT_EQ(alarms.raise(3, known), 0u);
  EXPECT_EQ(alarms.raise(3, {"input_unused", "other", ""}), 1u);
}

TEST(Names, AreListedUpToThree) {
  EXPECT_EQ(draft::some_names({"a"}), "a");
  EXPECT_EQ(draft::some_names({"a", "b"}), "a and b");
  EXPECT_EQ(draft::some_names({"a", "b", "c", "d"}), "a, b, c and d");
  EXPECT_EQ(draft::some_names({"a", "b", "c", "d", "e"}), "a, b, c and 2 more");
}

}  // namespace
}  // namespace protrain::session::step_alarms_test
