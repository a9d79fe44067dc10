// Updates that are deferred to the next step's forward. If parameters are read or a call fails between the two steps,
// the results must still be those of a session without a plan.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "draft/loaded_model.h"
#include "errors.h"
#include "grad/training.h"
#include "random_plan.h"
#include "session/session.h"

namespace protrain::test::deferred_test {
namespace {

constexpr int kPlans = 12;
const std::string kModel = "gpt2-dynamic-opset18";

class Deferred : public testing::TestWithParam<int> {
 protected:
  static Pairs options() {
    Pairs pairs = base_options(kModel);
    pairs.insert(pairs.end(), {{"clip_norm", "0.5"}, {"on_nonfinite", "skip"}});
    return pairs;
  }

  static std::unique_ptr<session::Session> session_of(const Pairs &more) {
    Pairs pairs = options();
    pairs.insert(pairs.end(), more.begin(), more.end());
    return session::Session::create(options_with(pairs), fixture(kModel + ".onnx"), nullptr);
  }

  static Pairs drawn(Draw &draw, const Scratch &scratch) {
    draft::LoadedModel loaded =
        draft::load_model(draft::settings_of(options_with(options())), fixture(kModel + ".onnx"));
    const graph::Graph graph = grad::build(std::move(loaded.prepared.graph), loaded.loss).graph;
    Pairs pairs = following(draw.deferring(draw.plan(graph, plan::OptimizerOrder::barrier)), scratch);
    const Pairs trial = draw.trial();
    pairs.insert(pairs.end(), trial.begin(), trial.end());
    return pairs;
  }
};

std::vector<float> parameters(session::Session &session) {
  std::vector<float> values(session.flat_parameters_elements());
  session.read_flat_parameters(values.data(), values.size());
  return values;
}

// Calls a session as a host program does, and returns all numbers that the program would see.
class Life {
 public:
  explicit Life(session::Session &session) : session_(session) {}

  std::vector<float> run(const std::string &directory) {
    step();
    step();
    look();
    step();
    session_.set_learning_rate(3e-3);
    step();
    fail();
    step();
    seen_.push_back(session_.evaluate());
    step();
    write();
    step();
    cancel();
    step();
    session_.save(directory);
    step();
    look();
    return std::move(seen_);
  }

 private:
  void step() {
    feed(session_, count_++);
    const session::StepResult result = session_.step();
    seen_.push_back(result.loss);
    seen_.push_back(static_cast<float>(result.grad_norm));
  }

  void look() {
    const std::vector<float> values = parameters(session_);
    seen_.insert(seen_.end(), values.begin(), values.end());
  }

  void fail() {
    std::vector<std::int64_t> tokens(kBatch * kSequence, 9999);
    session_.set_input("input_ids", DType::i64, {kBatch, kSequence}, tokens.data());
    const Error error = error_of([&] { session_.step(); });
    EXPECT_EQ(error.code, Code::arg);
    EXPECT_EQ(error.facts, Facts());
  }

  void write() {
    const std::string name = session_.parameter_name(1);
    std::vector<float> values(static_cast<std::size_t>(element_count(session_.parameter_shape(1))));
    session_.read_parameter(name, values.data(), values.size());
    for (float &value : values) value *= 0.5f;
    session_.write_parameter(name, values.data(), values.size());
  }

  // Repeatedly cancels a step while it runs. A cancelled step must change nothing.
  void cancel() {
    for (int i = 0; i < 8; ++i) {
      feed(session_, 3);
      const std::uint64_t before = session_.step_count();
      std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
        session_.cancel();
      });
      try {
        session_.step();
      } catch (const Error &error) {
        EXPECT_EQ(error.code, Code::cancelled) << error.text;
      }
      other.join();
      if (session_.step_count() > before) return swallow();
    }
    feed(session_, 3);
    session_.step();
  }

  // Runs an evaluation that a late cancel can stop. A cancel that comes after the end of a step would otherwise stop
  // the next step.
  void swallow() {
    try {
      session_.evaluate();
    } catch (const Error &error) {
      EXPECT_EQ(error.code, Code::cancelled) << error.text;
    }
  }

  session::Session &session_;
  std::vector<float> seen_;
  int count_ = 0;
};

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(Deferred, UpdatesShowNowhereButInTheTime) {
  const Scratch whole, scratch;
  const auto plain = session_of({});
  const std::vector<float> expected = Life(*plain).run(whole.path());
  Draw draw(static_cast<std::uint32_t>(GetParam()));
  const Pairs pairs = drawn(draw, scratch);
  const auto session = session_of(pairs);
  EXPECT_TRUE(same_bits(Life(*session).run(scratch.path()), expected)) << pairs.front().second;
}

TEST_P(Deferred, UpdatesAreInACheckpoint) {
  const Scratch scratch;
  Draw draw(static_cast<std::uint32_t>(GetParam()) + 100);
  Pairs pairs = drawn(draw, scratch);
  const auto session = session_of(pairs);
  feed(*session, 0);
  session->step();
  session->save(scratch.path());
  const auto other = session_of({{"resume", scratch.path()}});
  EXPECT_TRUE(same_bits(parameters(*other), parameters(*session)));
}

// After a skipped step its gradients are still in memory, but they must never be applied.
TEST_P(Deferred, UpdatesOfASkippedStepNeverRun) {
  const Scratch scratch;
  Draw draw(static_cast<std::uint32_t>(GetParam()) + 200);
  const auto session = session_of(drawn(draw, scratch));
  feed(*session, 0);
  session->step();
  const std::vector<float> good = parameters(*session);
  std::vector<float> bad = good;
  bad[0] = std::numeric_limits<float>::infinity();
  session->write_flat_parameters(bad.data(), bad.size());
  feed(*session, 1);
  EXPECT_FALSE(std::isfinite(session->step().loss));
  EXPECT_TRUE(same_bits(parameters(*session), bad));
  session->write_flat_parameters(good.data(), good.size());
  feed(*session, 1);
  EXPECT_TRUE(std::isfinite(session->step().loss));
}

INSTANTIATE_TEST_SUITE_P(Plans, Deferred, testing::Range(0, kPlans));

}  // namespace
}  // namespace protrain::test::deferred_test
