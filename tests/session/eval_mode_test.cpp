// Sessions of mode=eval: they compute the same losses and outputs as a session that trains, need less memory, take the
// weights of any checkpoint, and refuse everything that needs gradients or optimizer state.
#include <gtest/gtest.h>

#include "base/json.h"
#include "errors.h"
#include "fixtures.h"
#include "onnx_import/wire.h"
#include "scratch.h"
#include "session/session.h"

namespace protrain::session::eval_mode_test {
namespace {

using test::error_of;
using Pairs = std::vector<std::pair<std::string, std::string>>;

// A session, and the bytes of memory that its creation reported.
struct Made {
  std::unique_ptr<Session> session;
  std::uint64_t bytes = 0;
};

Made made(const Pairs &pairs, const std::string &model = test::fixture("gpt2-dynamic-opset18.onnx")) {
  draft::Options options;
  for (const auto &[key, value] : Pairs{{"dim", "batch=2"}, {"dim", "sequence=32"}, {"threads", "2"}})
    options.set(key, value);
  for (const auto &[key, value] : pairs) options.set(key, value);
  Made made;
  made.session = Session::create(options, model, [&](const std::string &line) {
    made.bytes = *parse_json(line, "log").find("device_peak_bytes")->whole();
  });
  made.session->set_log(nullptr);
  return made;
}

void feed(Session &session, int number) {
  static const std::vector<std::int64_t> ids = test::load_tokens("input_ids.npy"),
                                         labels = test::load_tokens("labels.npy");
  session.set_input("input_ids", DType::i64, {test::kBatch, test::kSequence}, test::batch(ids, number));
  session.set_input("labels", DType::i64, {test::kBatch, test::kSequence}, test::batch(labels, number));
}

std::vector<float> losses(Session &session) {
  std::vector<float> all;
  for (int batch = 0; batch < 2; ++batch) {
    feed(session, batch);
    all.push_back(session.evaluate());
  }
  return all;
}

class EvalMode : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Precisions, EvalMode, testing::Values("fp32", "bf16", "fp16"),
                         [](const auto &info) { return info.param; });

TEST_P(EvalMode, ComputesTheLossesOfATrainingSessionInHalfItsMemoryOrLess) {
  const Made trains = made({{"precision", GetParam()}}),
             evaluates = made({{"precision", GetParam()}, {"mode", "eval"}});
  EXPECT_EQ(losses(*evaluates.session), losses(*trains.session));
  EXPECT_LT(evaluates.bytes * 2, trains.bytes);
}

TEST_P(EvalMode, ComputesTheSameLossesWithWeightsOnADisk) {
  const test::Scratch scratch;
  const Made whole = made({{"precision", GetParam()}, {"mode", "eval"}});
  const Made on_disk = made({{"precision", GetParam()},
                             {"mode", "eval"},
                             {"memory", std::to_string(whole.bytes * 3 / 4)},
                             {"offload_dir", scratch.path()}});
  EXPECT_LT(on_disk.bytes, whole.bytes);
  EXPECT_EQ(losses(*on_disk.session), losses(*whole.session));
}

// The checkpoint is from a session of another optimizer and precision.
TEST_P(EvalMode, TakesTheWeightsOfAnyCheckpoint) {
  const test::Scratch scratch;
  const Made trained = made({{"optimizer", "lion"}, {"learning_rate", "1e-3"}});
  feed(*trained.session, 0);
  trained.session->step();
  trained.session->save(scratch / "run");
  const std::string exported = scratch / "trained.onnx";
  trained.session->export_model(exported);

  const Made evaluates = made({{"precision", GetParam()}, {"mode", "eval"}, {"resume", scratch / "run"}});
  EXPECT_EQ(evaluates.session->step_count(), 1u);
  draft::Options options;
  for (const auto &[key, value] : Pairs{{"dim", "batch=2"}, {"dim", "sequence=32"}, {"precision", GetParam()}})
    options.set(key, value);
  const std::unique_ptr<Session> anew = Session::create(options, exported, nullptr);
  EXPECT_EQ(losses(*evaluates.session), losses(*anew));
  EXPECT_NE(losses(*evaluates.session), losses(*made({{"precision", GetParam()}, {"mode", "eval"}}).session));
}

// The export of the averages is the model that eval_weights=ema evaluates.
TEST_P(EvalMode, TakesTheMovingAveragesOfACheckpoint) {
  const test::Scratch scratch;
  const Made trained = made({{"ema", "0.9"}, {"export_weights", "ema"}, {"learning_rate", "1e-2"}});
  for (int step = 0; step < 3; ++step) {
    feed(*trained.session, step);
    trained.session->step();
  }
  trained.session->save(scratch / "run");
  trained.session->export_model(scratch / "averaged.onnx");
  const Pairs eval = {{"precision", GetParam()}, {"mode", "eval"}};
  Pairs resumed = eval;
  resumed.insert(resumed.end(), {{"resume", scratch / "run"}, {"eval_weights", "ema"}});
  const std::vector<float> averaged = losses(*made(resumed).session);
  EXPECT_EQ(averaged, losses(*made(eval, scratch / "averaged.onnx").session));
  resumed.pop_back();
  EXPECT_NE(averaged, losses(*made(resumed).session)) << "the weights as they were trained";
}

// Until a step has changed the weights, they are what an average begins with.
TEST(EvalModeOnly, TakesTheWeightsOfACheckpointWhoseAveragesHaveNotBegun) {
  const test::Scratch scratch;
  const Made trained = made({{"ema", "0.9"}});
  trained.session->save(scratch / "run");
  const Pairs resumed = {{"mode", "eval"}, {"resume", scratch / "run"}, {"eval_weights", "ema"}};
  EXPECT_EQ(losses(*made(resumed).session), losses(*trained.session));
}

TEST(EvalModeOnly, RefusesAveragesThatACheckpointDoesNotHold) {
  const test::Scratch scratch;
  const Made trained = made({});
  feed(*trained.session, 0);
  trained.session->step();
  trained.session->save(scratch / "run");
  const Error error = error_of([&] { made({{"mode", "eval"}, {"resume", scratch / "run"}, {"eval_weights", "ema"}}); });
  EXPECT_EQ(error.code, Code::mismatch);
  EXPECT_NE(error.text.find("holds no moving averages"), std::string::npos) << error.text;
}

TEST(EvalModeOnly, TakesTheWeightsOfACheckpointOfAdapters) {
  const test::Scratch scratch;
  const Pairs lora = {{"lora", "*.c_attn.weight"}, {"learning_rate", "1e-2"}};
  const Made trained = made(lora);
  for (int batch = 0; batch < 2; ++batch) {
    feed(*trained.session, batch);
    trained.session->step();
  }
  trained.session->save(scratch / "run");
  Pairs eval = lora;
  eval.insert(eval.end(), {{"mode", "eval"}, {"resume", scratch / "run"}});
  EXPECT_EQ(losses(*made(eval).session), losses(*trained.session));
}

// No other session evaluates such a model, because there is nothing to train.
TEST(EvalModeOnly, EvaluatesAModelOfFrozenWeightsAndTheEffectOfRoundingThem) {
  const std::vector<float> whole = losses(*made({{"mode", "eval"}}).session);
  const Pairs frozen = {{"mode", "eval"}, {"frozen", "*"}};
  EXPECT_EQ(losses(*made(frozen).session), whole);
  Pairs rounded = frozen;
  rounded.emplace_back("base_precision", "int8");
  const std::vector<float> near = losses(*made(rounded).session);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_NE(near[i], whole[i]);
    EXPECT_NEAR(near[i], whole[i], 0.05);
  }
  EXPECT_EQ(error_of([&] { made({{"frozen", "*"}}); }).code, Code::graph);
}

// Returns what the two heads of the model compute. Its loss, `balance`, reads the weights of neither head.
std::vector<float> starts_and_ends(Pairs pairs) {
  pairs.insert(pairs.end(), {{"keep_outputs", "start"}, {"keep_outputs", "end"}, {"mode", "eval"}, {"dim", "batch=2"}});
  draft::Options options;
  for (const auto &[key, value] : pairs) options.set(key, value);
  const std::unique_ptr<Session> session = Session::create(options, test::fixture("objectives/spans.onnx"), nullptr);
  std::vector<std::int64_t> ids(24);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int64_t>(i % 7);
  session->set_input("ids", DType::i64, {2, 12}, ids.data());
  session->predict();
  std::vector<float> values(48);
  session->read_output("start", DType::f32, values.data(), 24 * sizeof(float));
  session->read_output("end", DType::f32, values.data() + 24, 24 * sizeof(float));
  return values;
}

TEST(EvalModeOnly, ComputesOutputsOfWeightsThatTheLossDoesNotRead) {
  const std::vector<float> expected =
      starts_and_ends({{"loss", "mean"}, {"loss_output", "start"}, {"also_loss", "end,loss=mean"}});
  EXPECT_EQ(starts_and_ends({}), expected);
  const test::Scratch scratch;
  const std::string plan = scratch.put("plan.json", R"({"n_persist": 0, "n_buffer": 2})");
  EXPECT_EQ(starts_and_ends({{"plan", plan}, {"offload_dir", scratch.path()}}), expected);
}

TEST(EvalModeOnly, ReportsTheTimesOfTheLastEvaluation) {
  const Made evaluates = made({{"mode", "eval"}});
  losses(*evaluates.session);
  const Json report = parse_json(evaluates.session->report_json(), "report");
  EXPECT_GT(*report.find("seconds")->number(), 0);
  EXPECT_EQ(*report.find("measured")->find("seconds")->number(), *report.find("seconds")->number());
  EXPECT_GT(*report.find("operators")->find("MatMul")->find("seconds")->number(), 0);
  EXPECT_NE(report.find("predicted"), nullptr);
}

TEST(EvalModeOnly, RefusesALossThatNoNodeComputes) {
  test::Wire wire;
  wire.initializers.push_back(test::floats("one", {}, {1}));
  wire.outputs.push_back(test::value("one", test::kFloat, {}));
  const test::Scratch scratch;
  draft::Options options;
  for (const auto &[key, value] : Pairs{{"mode", "eval"}, {"loss", "mean"}, {"loss_output", "one"}})
    options.set(key, value);
  const Error error = error_of([&] { Session::create(options, scratch.put("model.onnx", wire.bytes()), nullptr); });
  EXPECT_EQ(error.code, Code::graph);
  EXPECT_EQ(error.text, "the loss is an input or a constant; no node computes it");
}

TEST(EvalModeOnly, RefusesEverythingThatNeedsGradientsOrOptimizerState) {
  const test::Scratch scratch;
  const Made evaluates = made({{"mode", "eval"}});
  Session &session = *evaluates.session;
  feed(session, 0);
  const float loss = session.evaluate();
  const auto refusal_of = [](auto &&act) {
    const Error error = error_of(act);
    EXPECT_EQ(error.code, Code::state);
    EXPECT_EQ(error.subject, "mode");
    return error.text;
  };
  const std::string only = "the session only evaluates and ", remedy = "; create it without the option mode=eval";
  EXPECT_EQ(refusal_of([&] { session.step(); }), only + "takes no step" + remedy);
  EXPECT_EQ(refusal_of([&] { session.check_gradients(1); }), only + "has no gradients" + remedy);
  EXPECT_EQ(refusal_of([&] { session.save(scratch / "run"); }), only + "has no optimizer state to save" + remedy);
  EXPECT_EQ(refusal_of([&] { session.export_model(scratch / "model.onnx"); }), only + "exports nothing" + remedy);
  std::vector<float> gradient(1);
  EXPECT_EQ(refusal_of([&] { session.read_grad(session.parameter_name(0), gradient.data(), 1); }),
            only + "has no gradients" + remedy);
  EXPECT_EQ(error_of([] {
              made({{"mode", "eval"}, {"keep_gradients", "*"}});
            }).text,
            "a session of mode=eval has no gradients; leave one of the two options out");
  EXPECT_EQ(session.evaluate(), loss);
}

}  // namespace
}  // namespace protrain::session::eval_mode_test
