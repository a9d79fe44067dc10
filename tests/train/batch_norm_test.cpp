// Models with BatchNorm, which fixtures/make_batch_norm.py exported in training mode or in evaluation mode. Sessions
// train them with the statistics of each batch for ten SGD steps. The losses must be PyTorch's. The running statistics
// at the end must be PyTorch's too, except the variances of exports in training mode: those must be as ONNX defines
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/error.h"
#include "draft/check.h"
#include "scratch.h"
#include "session/session.h"
#include "train/command.h"
#include "train/family.h"
#include "train/runtime.h"

namespace protrain::batch_norm_test {
namespace {

using session::Session;
using test::Json;
using Pairs = std::vector<std::pair<std::string, std::string>>;

// A model with its golden file and inputs.
struct Model {
  explicit Model(const std::string &name)
      : path(test::fixture("batch_norm/" + name + ".onnx")),
        in_evaluation_mode(!name.ends_with("training") && !name.ends_with("training13")) {
    std::ifstream file(test::fixture("batch_norm/" + name.substr(0, name.find('.')) + ".json"));
    golden = Json::parse(file);
    for (const auto &[input, values] : golden["inputs"].items()) inputs.emplace(input, test::Values(values));
  }

  draft::Options options(const Pairs &more = {}) const {
    draft::Options options;
    for (const auto &[key, value] : Pairs{{"threads", "1"},
                                          {"optimizer", "sgd"},
                                          {"learning_rate", "0.05"},
                                          {"momentum", "0.9"},
                                          {"weight_decay", "1e-3"}})
      options.set(key, value);
    for (const auto &[key, value] : more) options.set(key, value);
    return options;
  }
  std::unique_ptr<Session> open(const Pairs &more = {}) const { return Session::create(options(more), path, nullptr); }
  // Opens the model in the mode in which PyTorch trained it.
  std::unique_ptr<Session> open_in_training(Pairs more = {}) const {
    if (in_evaluation_mode) more.emplace_back("batch_norm", "train");
    return open(more);
  }
  void feed(Session &session, std::size_t step) const {
    for (const auto &[name, values] : inputs) session.set_input(name, values.dtype, values.batch(), values.at(step));
  }
  // Feeds a batch whose first number is infinite.
  void feed_infinity(Session &session) const {
    feed(session, 0);
    std::vector<float> x = inputs.at("x").reals;
    x[0] = std::numeric_limits<float>::infinity();
    session.set_input("x", DType::f32, inputs.at("x").batch(), x.data());
  }

  std::string path;
  bool in_evaluation_mode;
  Json golden;
  std::map<std::string, test::Values> inputs;
};

std::vector<float> read(Session &session, const std::string &name) {
  for (std::size_t p = 0; p < session.parameter_count(); ++p) {
    if (session.parameter_name(p) != name) continue;
    std::vector<float> values(static_cast<std::size_t>(element_count(session.parameter_shape(p))));
    session.read_parameter(name, values.data(), values.size());
    return values;
  }
  throw std::runtime_error("no parameter " + name);
}

// The running statistics of a session, by name: the last `count` parameters.
std::map<std::string, std::vector<float>> statistics(Session &session, std::size_t count = 4) {
  std::map<std::string, std::vector<float>> found;
  for (std::size_t p = session.parameter_count() - count; p < session.parameter_count(); ++p)
    found[session.parameter_name(p)] = read(session, session.parameter_name(p));
  return found;
}

const Model &convolutions() {
  static const Model model("convolutions.training");
  return model;
}

// Compares running statistics with PyTorch's. If `biased` is true, the variances are compared with those that ONNX
// defines instead. An exporter or this library may have renamed some statistics, and these cannot be compared by name.
// So all numbers are also compared without names, in ascending order.
void expect_statistics(const std::map<std::string, std::vector<float>> &found, const Json &golden, bool biased) {
  std::vector<double> all, right;
  for (const auto &[name, values] : golden["statistics"].items()) {
    const Json &expected = biased && name.ends_with("running_var") ? golden["biased_variances"][name] : values;
    for (const Json &value : expected) right.push_back(value);
    if (!found.contains(name)) continue;
    ASSERT_EQ(found.at(name).size(), expected.size()) << name;
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found.at(name)[i], expected[i].get<double>(), 2e-4) << name << " " << i;
  }
  for (const auto &[name, values] : found) all.insert(all.end(), values.begin(), values.end());
  ASSERT_EQ(all.size(), right.size());
  std::ranges::sort(all);
  std::ranges::sort(right);
  for (std::size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(all[i], right[i], 2e-4) << i;
}

class BatchNormExports : public testing::TestWithParam<std::string> {};

TEST_P(BatchNormExports, FollowPyTorch) {
  const Model model(GetParam());
  const auto session = model.open_in_training();
  const std::vector<double> losses = model.golden["losses"];
  for (std::size_t step = 0; step < losses.size(); ++step) {
    model.feed(*session, step);
    const session::StepResult result = session->step();
    EXPECT_NEAR(result.loss, losses[step], (step == 0 ? 2e-6 : 2e-4) * losses[step]) << "step " << step + 1;
    if (step == 0) {
      EXPECT_NEAR(result.grad_norm, model.golden["grad_norm"], 1e-4 * model.golden["grad_norm"].get<double>());
    }
  }
  const std::size_t count = model.golden["statistics"].size();
  const auto found = statistics(*session, count);
  expect_statistics(found, model.golden, !model.in_evaluation_mode);
  if (!model.in_evaluation_mode) return;
  model.feed(*session, 0);
  const double evaluation = model.golden["evaluation"];
  EXPECT_NEAR(session->evaluate(), evaluation, 1e-3 * evaluation);
  EXPECT_EQ(statistics(*session, count), found) << "an evaluation changes nothing";
}

// An exported model has the form of the file that the session opened. An inference form computes with running
// statistics, so its loss must be that of an evaluation. A training form computes with the statistics of the batch, so
// its loss must be that of the next step.
TEST_P(BatchNormExports, GiveOnnxRuntimeTheSameLoss) {
  const test::Scratch scratch;
  const Model model(GetParam());
  const auto session = model.open_in_training();
  model.feed(*session, 0);
  for (int i = 0; i < 3; ++i) session->step();
  session->export_model(scratch / "trained.onnx");
  const double loss = model.in_evaluation_mode ? session->evaluate() : session->step().loss;
  const std::optional<double> found = test::runtime_loss(scratch / "trained.onnx", model.golden["inputs"]);
  if (!found) GTEST_SKIP() << "no onnxruntime";
  EXPECT_NEAR(*found, loss, 1e-4 * loss);
}

INSTANTIATE_TEST_SUITE_P(Files, BatchNormExports,
                         testing::Values("convolutions.training", "convolutions.training13", "convolutions.inference",
                                         "resnet.merged", "resnet.training", "resnet.training13", "resnet.inference"),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

TEST(BatchNormOption, TrainsATrainingFormAsPyTorchDoesIfAskedTo) {
  const auto session = convolutions().open({{"batch_norm", "train"}});
  for (std::size_t step = 0; step < 10; ++step) {
    convolutions().feed(*session, step);
    session->step();
  }
  const std::vector<double> right = convolutions().golden["statistics"]["vectors.running_var"];
  const std::vector<float> found = read(*session, "vectors.running_var");
  for (std::size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(found[i], right[i], 2e-4);
}

// A training form with frozen statistics must train as the inference form of the same model, which holds the same
// numbers.
TEST(BatchNormOption, FreezesATrainingForm) {
  const Model other("convolutions.inference");
  const auto frozen = convolutions().open({{"batch_norm", "frozen"}}), same = other.open();
  EXPECT_EQ(frozen->parameter_count(), same->parameter_count()) << "frozen statistics are constants";
  for (std::size_t step = 0; step < 3; ++step) {
    convolutions().feed(*frozen, step);
    other.feed(*same, step);
    const float loss = frozen->step().loss;
    EXPECT_NEAR(loss, same->step().loss, 1e-5 * loss);
  }
}

TEST(BatchNormOption, NeedsABatchNormalization) {
  draft::Options options = convolutions().options({{"batch_norm", "train"}, {"dim", "batch=2"}, {"dim", "sequence=8"}});
  try {
    Session::create(options, test::fixture("gpt2-dynamic-opset18.onnx"), nullptr);
    FAIL() << "it was accepted";
  } catch (const Error &error) {
    EXPECT_EQ(error.code, Code::arg);
    EXPECT_EQ(error.subject, "batch_norm");
  }
}

TEST(RunningStatistics, AreListedByCheckAndAreNeitherTrainedNorFrozen) {
  const Json about = Json::parse(draft::check_model(convolutions().options(), convolutions().path));
  ASSERT_EQ(about["states"].size(), 4u) << about.dump(1);
  EXPECT_EQ(about["states"][0]["name"], "shared.running_mean");
  EXPECT_NE(about["states"][0]["reason"].get<std::string>().find("running statistic"), std::string::npos);
  EXPECT_FALSE(about["states"][0].contains("frozen"));
  for (const Json &row : about["parameters"])
    EXPECT_EQ(row["name"].get<std::string>().find("running_"), std::string::npos);
}

TEST(RunningStatistics, ChangeWhateverIsTrained) {
  const auto session = convolutions().open({{"frozen", "*"}, {"trainable", "head.*"}});
  const auto before = statistics(*session);
  convolutions().feed(*session, 0);
  session->step();
  for (const auto &[name, values] : statistics(*session)) EXPECT_NE(values, before.at(name)) << name;
}

TEST(RunningStatistics, StayAsTheyWereIfAStepIsSkippedOrFails) {
  for (const char *policy : {"skip", "rollback", "stop"})
    for (const char *accumulation : {"1", "2"}) {
      const auto session = convolutions().open({{"on_nonfinite", policy}, {"accumulation", accumulation}});
      const auto before = statistics(*session);
      const bool skips = std::string(policy) == "skip";
      for (int batch = 0; batch < std::stoi(accumulation); ++batch) {
        batch == 0 ? convolutions().feed_infinity(*session) : convolutions().feed(*session, 1);
        if (skips)
          session->step();
        else
          EXPECT_THROW(session->step(), Error) << policy;
        if (!skips) break;
      }
      EXPECT_EQ(session->step_count(), skips ? 1u : 0u);
      EXPECT_EQ(statistics(*session), before) << policy << ", accumulation " << accumulation;
    }
}

TEST(RunningStatistics, StayAsTheyWereIfAStepIsCancelled) {
  const auto session = convolutions().open();
  const auto before = statistics(*session);
  convolutions().feed(*session, 0);
  session->cancel();
  EXPECT_THROW(session->step(), Error);
  EXPECT_EQ(statistics(*session), before);
}

// Each micro-batch is normalized by its own statistics, and PyTorch folds them into the running statistics one after
// the other. So a step of three micro-batches must give the same running statistics as three steps of one batch each.
// With a learning rate of 0, the weights are the same in both.
TEST(RunningStatistics, FoldMicroBatchesInTheirOrder) {
  const Pairs still = {{"learning_rate", "0"}};
  const auto one = convolutions().open(still);
  for (std::size_t step = 0; step < 3; ++step) {
    convolutions().feed(*one, step);
    one->step();
  }
  const auto three = convolutions().open({{"learning_rate", "0"}, {"accumulation", "3"}});
  const auto before = statistics(*three);
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_EQ(statistics(*three), before) << "they change with the step";
    convolutions().feed(*three, step);
    three->step();
  }
  EXPECT_EQ(statistics(*three), statistics(*one));
}

TEST(RunningStatistics, AreReadWrittenExportedAndUsedByAnEvaluation) {
  const test::Scratch scratch;
  const auto session = convolutions().open();
  convolutions().feed(*session, 0);
  session->step();
  std::vector<float> variance = read(*session, "shared.running_var");
  for (float &value : variance) value *= 2;
  const float before = session->evaluate();
  session->write_parameter("shared.running_var", variance.data(), variance.size());
  EXPECT_EQ(read(*session, "shared.running_var"), variance);
  const float after = session->evaluate();
  EXPECT_NE(after, before);
  session->export_model(scratch.path() + "/out.onnx");
  const auto again = Session::create(convolutions().options(), scratch.path() + "/out.onnx", nullptr);
  EXPECT_EQ(statistics(*again), statistics(*session));
  convolutions().feed(*again, 0);
  EXPECT_EQ(again->evaluate(), after);
}

TEST(RunningStatistics, AreSavedAndResumed) {
  const test::Scratch scratch;
  const auto session = convolutions().open();
  convolutions().feed(*session, 0);
  session->step();
  session->save(scratch.path());
  const auto again = convolutions().open({{"resume", scratch.path()}});
  EXPECT_EQ(statistics(*again), statistics(*session));
  for (Session *one : {session.get(), again.get()}) {
    convolutions().feed(*one, 1);
    one->step();
  }
  EXPECT_EQ(statistics(*again), statistics(*session));
}

}  // namespace
}  // namespace protrain::batch_norm_test
