// Special kinds of steps: several batches in one step, clipped gradients, numbers that are not finite, batches of
// several shapes, and a full disk.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "errors.h"
#include "fixtures.h"
#include "scratch.h"
#include "session/aftermath.h"
#include "session/session.h"

namespace protrain::session::semantics_test {
namespace {

using test::code_of;
using test::error_of;
using test::kSequence;
using Pairs = std::vector<std::pair<std::string, std::string>>;
using Bits = std::vector<std::vector<float>>;

std::unique_ptr<Session> session_of(const std::string &model, const Pairs &pairs) {
  draft::Options options;
  options.set("threads", "2");
  for (const auto &[key, value] : pairs) options.set(key, value);
  return Session::create(options, test::fixture(model + ".onnx"), nullptr);
}

std::unique_ptr<Session> gpt2(int batch, Pairs more) {
  more.insert(more.begin(), {{"dim", "batch=" + std::to_string(batch)},
                             {"dim", "sequence=32"},
                             {"optimizer", "sgd"},
                             {"learning_rate", "1"}});
  return session_of("gpt2-dynamic-opset18", more);
}

// Gives the session `rows` rows of the fixture's tokens, from row `first` on. The last ignored[r] labels of row r do
// not count.
void feed(Session &session, int first, int rows, std::vector<int> ignored) {
  static const std::vector<std::int64_t> ids = test::load_tokens("input_ids.npy");
  static const std::vector<std::int64_t> labels = test::load_tokens("labels.npy");
  const auto from = std::ptrdiff_t{first} * kSequence, to = from + std::ptrdiff_t{rows} * kSequence;
  std::vector<std::int64_t> own(labels.begin() + from, labels.begin() + to);
  for (int r = 0; r < rows; ++r)
    std::fill_n(own.begin() + (r + 1) * kSequence - ignored[static_cast<std::size_t>(r)],
                ignored[static_cast<std::size_t>(r)], -100);
  session.set_input("input_ids", DType::i64, {rows, kSequence}, ids.data() + from);
  session.set_input("labels", DType::i64, {rows, kSequence}, own.data());
}

Bits parameters(Session &session) {
  Bits all;
  for (std::size_t p = 0; p < session.parameter_count(); ++p) {
    auto &values = all.emplace_back(static_cast<std::size_t>(element_count(session.parameter_shape(p))));
    session.read_parameter(session.parameter_name(p), values.data(), values.size());
  }
  return all;
}

double largest_difference(const Bits &a, const Bits &b) {
  double largest = 0;
  for (std::size_t p = 0; p < a.size(); ++p)
    for (std::size_t i = 0; i < a[p].size(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(a[p][i]) - static_cast<double>(b[p][i])));
  return largest;
}

void expect_same_step(Session &large, const StepResult &one, Session &parts, const StepResult &last) {
  EXPECT_NEAR(last.loss, one.loss, 2e-6 * std::abs(one.loss));
  EXPECT_NEAR(last.grad_norm, one.grad_norm, 1e-5 * one.grad_norm);
  EXPECT_LT(largest_difference(parameters(large), parameters(parts)), 1e-5);
  EXPECT_EQ(parts.step_count(), 1u);
}

TEST(Accumulation, OfUnevenlyFilledBatchesIsTheStepOfOneLargeBatch) {
  const auto large = gpt2(4, {}), parts = gpt2(2, {{"accumulation", "2"}});
  feed(*large, 0, 4, {0, 3, 25, 30});
  const StepResult one = large->step();
  feed(*parts, 0, 2, {0, 3});
  parts->step();
  EXPECT_EQ(parts->step_count(), 0u);
  feed(*parts, 2, 2, {25, 30});
  expect_same_step(*large, one, *parts, parts->step());
}

TEST(Accumulation, TakesBatchesOfSeveralShapes) {
  const auto large = gpt2(3, {}), parts = gpt2(2, {{"accumulation", "2"}, {"shapes", "batch=1"}});
  feed(*large, 0, 3, {0, 0, 0});
  const StepResult one = large->step();
  feed(*parts, 0, 2, {0, 0});
  parts->step();
  feed(*parts, 2, 1, {0});
  expect_same_step(*large, one, *parts, parts->step());
}

TEST(Accumulation, ABatchWithoutTargetsCountsForNothing) {
  const auto alone = gpt2(2, {}), parts = gpt2(2, {{"accumulation", "3"}});
  feed(*alone, 0, 2, {0, 0});
  const StepResult one = alone->step();
  feed(*parts, 2, 2, {kSequence, kSequence});
  EXPECT_EQ(parts->step().loss, 0);
  feed(*parts, 0, 2, {0, 0});
  parts->step();
  feed(*parts, 2, 2, {kSequence, kSequence});
  expect_same_step(*alone, one, *parts, parts->step());
}

TEST(Accumulation, RefusesAStepInWhichNothingCounts) {
  for (const char *policy : {"stop", "skip", "rollback"})
    for (const char *clip : {"0.5", ""}) {
      Pairs pairs = {{"accumulation", "2"}, {"on_nonfinite", policy}};
      if (*clip != 0) pairs.emplace_back("clip_norm", clip);
      const auto session = gpt2(2, pairs);
      const Bits before = parameters(*session);
      feed(*session, 0, 2, {kSequence, kSequence});
      session->step();
      const bool skips = std::string(policy) == "skip";
      EXPECT_EQ(code_of([&] { session->step(); }), skips ? Code::ok : Code::nonfinite) << policy;
      EXPECT_EQ(session->step_count(), skips ? 1u : 0u);
      EXPECT_EQ(parameters(*session), before) << policy;
    }
}

// The step takes two batches. The call for the second one is cancelled, then fails for an invalid token, then succeeds.
TEST(Accumulation, ABatchThatFailedIsRepeatedAndThoseBeforeItStand) {
  const auto plain = gpt2(2, {{"accumulation", "2"}}), troubled = gpt2(2, {{"accumulation", "2"}});
  for (int half = 0; half < 2; ++half)
    for (Session *session : {plain.get(), troubled.get()}) {
      if (session == troubled.get() && half == 1) {
        feed(*session, 2, 2, {0, 3});
        session->cancel();
        EXPECT_EQ(code_of([&] { session->step(); }), Code::cancelled);
        const std::vector<std::int64_t> bad(2 * kSequence, 1 << 20);
        session->set_input("input_ids", DType::i64, {2, kSequence}, bad.data());
        EXPECT_EQ(code_of([&] { session->step(); }), Code::arg);
      }
      feed(*session, 2 * half, 2, {0, 3});
      session->step();
    }
  EXPECT_EQ(troubled->step_count(), 1u);
  EXPECT_EQ(parameters(*plain), parameters(*troubled));
}

TEST(Accumulation, TellsTheNormAndTheGradientsOfWholeStepsOnly) {
  const auto session = gpt2(2, {{"accumulation", "2"}, {"keep_gradients", "*"}});
  const std::string name = session->parameter_name(0);
  std::vector<float> gradient(static_cast<std::size_t>(element_count(session->parameter_shape(0))));
  const auto read = [&] { session->read_grad(name, gradient.data(), gradient.size()); };
  feed(*session, 0, 2, {0, 0});
  session->step();
  EXPECT_EQ(code_of([&] { session->grad_norm(); }), Code::state);
  EXPECT_EQ(code_of(read), Code::state);
  const double norm = session->step().grad_norm;
  EXPECT_EQ(code_of(read), Code::ok);
  session->step();
  EXPECT_EQ(session->grad_norm(), norm) << "between two batches it is that of the step before";
  EXPECT_EQ(code_of(read), Code::state);
}

TEST(Cancel, EndsWithTheCallThatFailedOtherwise) {
  const auto session = gpt2(2, {});
  session->cancel();
  EXPECT_EQ(code_of([&] { session->step(); }), Code::state) << "no input was set";
  feed(*session, 0, 2, {0, 0});
  EXPECT_EQ(code_of([&] { session->step(); }), Code::ok);
}

TEST(Cancel, WaitsForTheNextStepWhateverOtherCallFails) {
  const auto session = gpt2(2, {});
  feed(*session, 0, 2, {0, 0});
  session->cancel();
  EXPECT_EQ(code_of([&] { session->export_model("/nowhere/model.onnx"); }), Code::io);
  EXPECT_EQ(code_of([&] { session->step(); }), Code::cancelled);
  EXPECT_EQ(code_of([&] { session->step(); }), Code::ok);
}

TEST(Accumulation, IsNotDisturbedByAnEvaluationBetweenBatches) {
  const auto plain = gpt2(2, {{"accumulation", "2"}}), watched = gpt2(2, {{"accumulation", "2"}});
  for (int half = 0; half < 2; ++half)
    for (Session *session : {plain.get(), watched.get()}) {
      if (session == watched.get()) {
        feed(*session, 6, 2, {5, 5});
        session->evaluate();
      }
      feed(*session, 2 * half, 2, {0, 3});
      session->step();
    }
  EXPECT_EQ(plain->step_count(), 1u);
  EXPECT_EQ(parameters(*plain), parameters(*watched));
}

TEST(Accumulation, CountsTokensWhereThatIsHowItIsAsked) {
  const auto parts = gpt2(2, {{"tokens_per_step", "192"}});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(parts->step_count(), 0u);
    feed(*parts, 2 * i, 2, {0, 0});
    parts->step();
  }
  EXPECT_EQ(parts->step_count(), 1u);
  EXPECT_THROW(gpt2(2, {{"tokens_per_step", "100"}}), Error);
}

TEST(Accumulation, KeepsTheGradientOfTheWholeStep) {
  const auto large = gpt2(4, {{"keep_gradients", "*"}}),
             parts = gpt2(2, {{"accumulation", "2"}, {"keep_gradients", "*"}});
  feed(*large, 0, 4, {0, 3, 9, 9});
  large->step();
  for (int half = 0; half < 2; ++half) {
    feed(*parts, 2 * half, 2, half == 0 ? std::vector{0, 3} : std::vector{9, 9});
    parts->step();
  }
  for (std::size_t p = 0; p < large->parameter_count(); ++p) {
    std::vector<float> a(static_cast<std::size_t>(element_count(large->parameter_shape(p)))), b(a.size());
    large->read_grad(large->parameter_name(p), a.data(), a.size());
    parts->read_grad(parts->parameter_name(p), b.data(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << large->parameter_name(p);
  }
}

// The distance between two states of all parameters, such as before and after a step.
double distance(const Bits &a, const Bits &b) {
  double squares = 0;
  for (std::size_t p = 0; p < a.size(); ++p)
    for (std::size_t i = 0; i < a[p].size(); ++i) {
      const double d = static_cast<double>(a[p][i]) - static_cast<double>(b[p][i]);
      squares += d * d;
    }
  return std::sqrt(squares);
}

TEST(Clipping, ByNormShortensTheStepAndReportsTheNormBeforeIt) {
  const auto free = gpt2(2, {}), clipped = gpt2(2, {{"clip_norm", "0.5"}}), wide = gpt2(2, {{"clip_norm", "1e6"}});
  const Bits start = parameters(*free);
  for (Session *session : {free.get(), clipped.get(), wide.get()}) feed(*session, 0, 2, {0, 0});
  const StepResult one = free->step();
  ASSERT_GT(one.grad_norm, 0.6);
  EXPECT_EQ(clipped->step().grad_norm, one.grad_norm);
  EXPECT_EQ(wide->step().grad_norm, one.grad_norm);
  EXPECT_NEAR(distance(start, parameters(*free)), one.grad_norm, 1e-4 * one.grad_norm);
  EXPECT_NEAR(distance(start, parameters(*clipped)), 0.5, 1e-4);
  EXPECT_EQ(parameters(*wide), parameters(*free)) << "a limit that is not reached changes no bit";
}

TEST(Clipping, ByValueCutsEveryElement) {
  const auto free = gpt2(2, {}), cut = gpt2(2, {{"clip_value", "0.001"}}), wide = gpt2(2, {{"clip_value", "1e6"}});
  const Bits start = parameters(*free);
  for (Session *session : {free.get(), cut.get(), wide.get()}) {
    feed(*session, 0, 2, {0, 0});
    session->step();
  }
  EXPECT_GT(largest_difference(start, parameters(*free)), 0.01);
  EXPECT_NEAR(largest_difference(start, parameters(*cut)), 0.001, 1e-6);
  EXPECT_EQ(parameters(*wide), parameters(*free));
}

// A session of the model of tests/fixtures/make_root.py. With x = 0 the loss is finite and the gradient of W is NaN.
struct Root {
  explicit Root(const std::string &policy, Pairs more = {}) {
    more.insert(more.begin(), {{"dim", "batch=3"}, {"on_nonfinite", policy}, {"learning_rate", "0.01"}});
    session = session_of("root", more);
  }

  StepResult step(float x) {
    const std::vector<float> xs(12, x), us(12, 1);
    session->set_input("x", DType::f32, {3, 4}, xs.data());
    session->set_input("u", DType::f32, {3, 4}, us.data());
    return session->step();
  }

  Error error_of_step(float x) {
    return error_of([&] { step(x); });
  }

  std::unique_ptr<Session> session;
};

TEST(NonfiniteGradient, StopsAndSaysThatTheStepIsHalfApplied) {
  Root root("stop");
  const Error error = root.error_of_step(0);
  EXPECT_EQ(error.code, Code::nonfinite);
  EXPECT_EQ(error.subject, "W");
  EXPECT_EQ(aftermath_of(error.facts), Aftermath::half_applied) << error.text;
  const Bits after = parameters(*root.session);
  for (float weight : after[0]) EXPECT_TRUE(std::isfinite(weight));
  EXPECT_EQ(root.error_of_step(1).code, Code::ok) << "the session goes on";
}

TEST(NonfiniteGradient, OfTheFirstStepLeavesNoMovingAverageAtZero) {
  const test::Scratch scratch;
  Root root("stop", {{"ema", "0.9"}, {"export_weights", "ema"}});
  EXPECT_EQ(root.error_of_step(0).code, Code::nonfinite);
  root.step(1);
  root.session->export_model(scratch / "average.onnx");
  draft::Options options;
  options.set("dim", "batch=3");
  const auto exported = Session::create(options, scratch / "average.onnx", nullptr);
  EXPECT_EQ(parameters(*exported), parameters(*root.session)) << "all averages begin in the first complete step";
}

TEST(NonfiniteGradient, RollsBackToTheBytesBefore) {
  Root root("rollback"), other("rollback");
  root.step(1);
  other.step(1);
  const Bits before = parameters(*root.session);
  const Error error = root.error_of_step(0);
  EXPECT_EQ(error.code, Code::nonfinite);
  EXPECT_EQ(aftermath_of(error.facts), Aftermath::unchanged) << error.text;
  EXPECT_EQ(parameters(*root.session), before);
  EXPECT_EQ(root.session->step_count(), 1u);
  EXPECT_EQ(root.step(2).loss, other.step(2).loss);
  EXPECT_EQ(parameters(*root.session), parameters(*other.session)) << "as if the bad step had never been";
}

TEST(NonfiniteGradient, SkipsTheStepAndCountsIt) {
  Root root("skip"), other("skip");
  root.step(1);
  other.step(1);
  const Bits before = parameters(*root.session);
  EXPECT_FALSE(std::isfinite(root.step(0).grad_norm));
  EXPECT_EQ(parameters(*root.session), before);
  EXPECT_EQ(root.session->step_count(), 2u);
  EXPECT_EQ(root.step(2).loss, other.step(2).loss);
  EXPECT_EQ(parameters(*root.session), parameters(*other.session)) << "the optimizer does not count what it skipped";
}

// Simulates a full disk: while an object of this class exists, no file of this process can grow.
class NoRoomInFiles {
 public:
  NoRoomInFiles() {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NoRoomInFiles() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

// A session with all chunks on disk, in a directory that is removed with the test.
struct OnDisk {
  OnDisk()
      : session(gpt2(2, {{"plan", scratch.file("plan.json", R"({"n_persist": 0, "n_host": 0, "n_buffer": 2})")},
                         {"offload_dir", scratch.path()}})) {
    feed(*session, 0, 2, {0, 0});
  }

  test::Scratch scratch;
  std::unique_ptr<Session> session;
};

template <typename Call>
Error error_without_room(const Call &call) {
  const NoRoomInFiles none;
  return error_of(call);
}

TEST(FullDisk, UnderAParameterThatIsWrittenLosesTheSessionAndSaysSo) {
  const OnDisk on_disk;
  Session &session = *on_disk.session;
  std::vector<float> values(static_cast<std::size_t>(element_count(session.parameter_shape(0))), 1.0F);
  const Error error =
      error_without_room([&] { session.write_parameter(session.parameter_name(0), values.data(), values.size()); });
  EXPECT_EQ(error.code, Code::nospc) << error.text;
  EXPECT_EQ(aftermath_of(error.facts), Aftermath::lost);
  EXPECT_EQ(code_of([&] { session.step(); }), Code::state);
}

TEST(FullDisk, AmidUpdatesLosesTheSessionAndSaysSo) {
  const OnDisk on_disk;
  on_disk.session->step();
  const Error error = error_without_room([&] { on_disk.session->step(); });
  EXPECT_EQ(error.code, Code::nospc) << error.text;
  EXPECT_EQ(aftermath_of(error.facts), Aftermath::lost);
  EXPECT_NE(error.text.find("lost"), std::string::npos) << error.text;
  EXPECT_EQ(code_of([&] { on_disk.session->step(); }), Code::state);
}

// Overwrites a byte of each page of the spill file in a directory. The file has no name, so the function looks for it
// among the process's open files.
void damage_spill_file(const std::string &directory) {
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    if (!std::filesystem::read_symlink(entry.path(), ignored).string().starts_with(directory)) continue;
    const int file = ::open(entry.path().c_str(), O_RDWR);
    const off_t end = ::lseek(file, 0, SEEK_END);
    for (off_t at = 0; at < end; at += 4096) ASSERT_EQ(::pwrite(file, "x", 1, at + 17), 1);
    ASSERT_EQ(::fsync(file), 0);
    ::close(file);
  }
}

// A parameter can share a piece of the disk with others. A write to the parameter first reads this piece, which is
// damaged here.
TEST(DamagedDisk, UnderParametersThatAreWrittenLosesTheSessionAndSaysSo) {
  for (const bool flat : {false, true}) {
    const OnDisk on_disk;
    Session &session = *on_disk.session;
    const Bits values = parameters(session);
    damage_spill_file(on_disk.scratch.path());
    const Error error = error_of([&] {
      if (flat)
        session.write_flat_parameters(std::vector<float>(session.flat_parameters_elements()).data(),
                                      session.flat_parameters_elements());
      for (std::size_t p = 0; p < values.size(); ++p)
        session.write_parameter(session.parameter_name(p), values[p].data(), values[p].size());
    });
    EXPECT_EQ(error.code, Code::corrupt) << error.text;
    EXPECT_EQ(aftermath_of(error.facts), Aftermath::lost) << error.text;
    EXPECT_EQ(code_of([&] { session.step(); }), Code::state);
  }
}

TEST(Shapes, AreServedOverOneStateAndOthersRefusedByList) {
  const auto session = gpt2(2, {{"shapes", "batch=1"}, {"shapes", "batch=3,sequence=16"}});
  feed(*session, 0, 2, {0, 0});
  session->step();
  feed(*session, 2, 1, {0});
  session->step();
  EXPECT_EQ(session->step_count(), 2u);
  try {
    feed(*session, 0, 4, {0, 0, 0, 0});
    FAIL() << "four rows are not served";
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::shape);
    for (const char *shape : {"[2, 32]", "[1, 32]", "[3, 16]", "[4, 32]"})
      EXPECT_NE(error.text.find(shape), std::string::npos) << error.text;
  }
  EXPECT_THROW(gpt2(2, {{"shapes", "height=1"}}), Error);
}

TEST(Shapes, OfEachBatchGiveTheBitsOfASessionOfItsOwn) {
  const auto both = gpt2(2, {{"shapes", "batch=1"}}), large = gpt2(2, {}), small = gpt2(1, {});
  feed(*both, 0, 2, {0, 0});
  feed(*large, 0, 2, {0, 0});
  EXPECT_EQ(both->step().loss, large->step().loss);
  EXPECT_EQ(parameters(*both), parameters(*large));
  for (std::size_t p = 0; p < small->parameter_count(); ++p) {
    const std::vector<float> values = parameters(*large)[p];
    small->write_parameter(small->parameter_name(p), values.data(), values.size());
  }
  feed(*both, 2, 1, {0});
  feed(*small, 2, 1, {0});
  EXPECT_EQ(both->evaluate(), small->evaluate());
  EXPECT_EQ(both->step().loss, small->step().loss);
  EXPECT_EQ(parameters(*both), parameters(*small));
}

}  // namespace
}  // namespace protrain::session::semantics_test
