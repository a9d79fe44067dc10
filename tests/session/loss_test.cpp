// Losses that options attach to a model. If the loss was cut off from a model and attached again, the model must train
// as before, bit for bit. Other losses must follow their formulas.
#include <gtest/gtest.h>

#include <cmath>

#include "cut.h"
#include "draft/check.h"
#include "draft/plan_model.h"
#include "fixtures.h"
#include "session/session.h"

namespace protrain::session::loss_test {
namespace {

using test::error_of;
using test::kBatch;
using test::kSequence;
using Pairs = std::vector<std::pair<std::string, std::string>>;

draft::Options options_with(const Pairs &pairs) {
  draft::Options options;
  options.set("threads", "2");
  for (const auto &[key, value] : pairs) options.set(key, value);
  return options;
}

const Pairs kDims = {{"dim", "batch=2"}, {"dim", "sequence=32"}};

Pairs operator+(Pairs left, const Pairs &right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

// Trains three steps. Returns their losses and norms, and the loss of an evaluation after them.
std::vector<double> trained(const std::string &model, const Pairs &pairs,
                            const std::vector<std::string> &inputs = {"input_ids", "labels"}) {
  const auto session = Session::create(options_with(pairs), model, nullptr);
  std::vector<double> numbers;
  for (int step = 0; step < 3; ++step) {
    for (const std::string &name : inputs)
      session->set_input(name, DType::i64, {kBatch, kSequence},
                         test::batch(test::load_tokens(name == "targets" ? "labels.npy" : name + ".npy"), step));
    const StepResult result = session->step();
    numbers.push_back(result.loss);
    numbers.push_back(result.grad_norm);
  }
  numbers.push_back(session->evaluate());
  return numbers;
}

struct Cut {
  std::string fixture, logits;
  bool dynamic;
};

class CutLoss : public testing::TestWithParam<Cut> {
 protected:
  std::string put(const test::Scratch &scratch, const std::string &name) const {
    const test::Names dims =
        GetParam().dynamic ? test::Names{"batch", "sequence", "512"} : test::Names{"2", "32", "512"};
    const std::string whole = test::read_file(test::fixture(GetParam().fixture + ".onnx"));
    return scratch.put(name,
                       test::cut(whole, "labels", "input_ids", test::value(GetParam().logits, test::kFloat, dims)));
  }
  Pairs dims() const { return GetParam().dynamic ? kDims : Pairs{}; }
};

TEST_P(CutLoss, TrainsAsTheLossInsideBitForBit) {
  const test::Scratch scratch;
  const std::string model = put(scratch, "logits.onnx");
  EXPECT_EQ(trained(model, dims() + Pairs{{"loss", "cross_entropy"}, {"loss_shift", "1"}}),
            trained(test::fixture(GetParam().fixture + ".onnx"), dims()));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, CutLoss,
                         testing::Values(Cut{"gpt2-dynamic-opset18", "linear", true},
                                         Cut{"llama-dynamic-opset23", "linear_28", true},
                                         Cut{"opt-static-opset18", "linear_24", false}),
                         [](const auto &info) { return test::family_of(info.param.fixture); });

class Gpt2 : public testing::Test {
 protected:
  test::Scratch scratch;
  std::string model = scratch.put(
      "logits.onnx", test::cut(test::read_file(test::fixture("gpt2-dynamic-opset18.onnx")), "labels", "input_ids",
                               test::value("linear", test::kFloat, {"batch", "sequence", "512"})));
  Pairs shifted = kDims + Pairs{{"loss", "cross_entropy"}, {"loss_shift", "1"}};
};

TEST_F(Gpt2, MayCallItsLabelsOtherwise) {
  EXPECT_EQ(
      trained(model, shifted + Pairs{{"loss_labels", "targets"}, {"loss_output", "linear"}}, {"input_ids", "targets"}),
      trained(model, shifted));
}

TEST_F(Gpt2, MayHaveItsOwnInputAsLabels) {
  const std::vector<double> numbers = trained(model, shifted + Pairs{{"loss_labels", "input_ids"}}, {"input_ids"});
  EXPECT_NEAR(numbers[0], std::log(512), 0.5);
  EXPECT_LT(numbers.back(), numbers[0]);
}

// Without the shift, labels must be shifted by hand: the test moves each label to the position before its own. The last
// position has no label and does not count.
TEST_F(Gpt2, WithoutShiftComparesPositionWithPosition) {
  const std::vector<std::int64_t> labels = test::load_tokens("labels.npy");
  std::vector<std::int64_t> moved(std::size_t{kBatch} * kSequence, -100);
  for (int row = 0; row < kBatch; ++row)
    for (int i = 0; i + 1 < kSequence; ++i) moved[row * kSequence + i] = labels[row * kSequence + i + 1];
  std::string weights = "2";
  for (int i = 1; i < 512; ++i) weights += i % 3 == 0 ? ",2" : ",0.5";
  for (const Pairs &more : {Pairs{}, Pairs{{"class_weights", weights}}}) {
    const auto session = Session::create(options_with(kDims + Pairs{{"loss", "cross_entropy"}} + more), model, nullptr);
    session->set_input("input_ids", DType::i64, {kBatch, kSequence}, test::load_tokens("input_ids.npy").data());
    session->set_input("labels", DType::i64, {kBatch, kSequence}, moved.data());
    const std::vector<double> expected = trained(model, shifted + more);
    EXPECT_NEAR(session->step().loss, expected[0], 1e-6 * expected[0]);
  }
}

TEST_F(Gpt2, CountsTheTargetsOfEachMicroBatch) {
  const auto session = Session::create(options_with({{"dim", "batch=1"},
                                                     {"dim", "sequence=32"},
                                                     {"loss", "cross_entropy"},
                                                     {"loss_shift", "1"},
                                                     {"accumulation", "2"}}),
                                       model, nullptr);
  StepResult result;
  for (int row = 0; row < kBatch; ++row) {
    for (const char *name : {"input_ids", "labels"})
      session->set_input(name, DType::i64, {1, kSequence},
                         test::load_tokens(std::string(name) + ".npy").data() + row * kSequence);
    result = session->step();
  }
  const std::vector<double> expected = trained(model, shifted);
  EXPECT_NEAR(result.loss, expected[0], 1e-6 * expected[0]);
  EXPECT_NEAR(result.grad_norm, expected[1], 1e-5 * expected[1]);
}

// The contrastive loss infonce becomes a cross entropy too, whose labels are the numbers of the rows.
TEST(Infonce, HasNoPerplexity) {
  const auto about = nlohmann::json::parse(
      draft::check_model(options_with({{"loss", "infonce"}}), test::fixture("objectives/embeddings.onnx")));
  EXPECT_TRUE(about["trainable"]) << about["problems"];
  EXPECT_FALSE(about["loss_is_cross_entropy"]);
}

TEST_F(Gpt2, IsCheckedAndPlanned) {
  const auto about = nlohmann::json::parse(draft::check_model(options_with(shifted), model));
  EXPECT_TRUE(about["trainable"]) << about["problems"];
  EXPECT_EQ(about["inputs"][1],
            (nlohmann::json{{"name", "labels"}, {"dtype", "int64"}, {"dims", {"batch", "sequence"}}}));
  EXPECT_TRUE(about["loss_is_cross_entropy"]);
  for (const auto &[key, value] : Pairs{{"z_loss", "0.1"}, {"label_smoothing", "0.1"}, {"loss_factor", "2"}}) {
    const auto other = nlohmann::json::parse(draft::check_model(options_with(shifted + Pairs{{key, value}}), model));
    EXPECT_TRUE(other["trainable"]) << other["problems"];
    EXPECT_FALSE(other["loss_is_cross_entropy"]) << key;
  }
  const auto bare = nlohmann::json::parse(draft::check_model(options_with(kDims), model));
  EXPECT_FALSE(bare["trainable"]);
  EXPECT_EQ(bare["problems"][0]["text"],
            "the model has no scalar float32 output that would be its loss, only linear float32[2, 32, 512]; set the "
            "option loss "
            "(loss=cross_entropy for logits, and loss_shift=1 if they are a language model's), or export it with its "
            "loss");
  draft::Options paper = options_with(shifted + Pairs{{"hardware", "rtx3090"}});
  EXPECT_TRUE(nlohmann::json::parse(draft::plan_model(paper, model, nullptr))["feasible"]);
}

TEST_F(Gpt2, IsExportedWithoutTheLoss) {
  const auto session = Session::create(options_with(shifted), model, nullptr);
  for (const char *name : {"input_ids", "labels"})
    session->set_input(name, DType::i64, {kBatch, kSequence}, test::load_tokens(std::string(name) + ".npy").data());
  session->step();
  session->export_model(scratch / "trained.onnx");
  const auto exported = onnx_import::Model::open(scratch / "trained.onnx");
  ASSERT_EQ(exported->inputs().size(), 1u);
  EXPECT_EQ(exported->outputs()[0].name, "linear");
  const auto again = Session::create(options_with(shifted), scratch / "trained.onnx", nullptr);
  for (const char *name : {"input_ids", "labels"})
    again->set_input(name, DType::i64, {kBatch, kSequence}, test::load_tokens(std::string(name) + ".npy").data());
  EXPECT_EQ(again->evaluate(), session->evaluate());
}

TEST_F(Gpt2, RefusesWhatDoesNotFit) {
  const auto refused = [&](const Pairs &pairs) {
    return error_of([&] { Session::create(options_with(kDims + pairs), model, nullptr); });
  };
  const Pairs ce = {{"loss", "cross_entropy"}};
  Error error = refused(ce + Pairs{{"loss_output", "logits"}});
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.subject, "loss_output");
  EXPECT_EQ(error.text, "the model has no output logits; the model's outputs are linear float32[2, 32, 512]");
  error = refused(ce + Pairs{{"loss_labels", "m.transformer.wpe.weight"}});
  EXPECT_EQ(error.code, Code::arg);
  error = refused({{"loss", "mse"}, {"loss_labels", "input_ids"}});
  EXPECT_EQ(error.code, Code::shape);
  EXPECT_EQ(error.text,
            "the model's input input_ids is int64[2, 32]; as labels it would have to be float32[2, 32, 512]");
  for (const char *key : {"loss_output", "loss_labels", "loss_shift"}) {
    error = refused({{key, "1"}});
    EXPECT_EQ(error.code, Code::arg) << key;
    EXPECT_EQ(error.subject, key);
  }
}

// A model y = x w with two rows and four columns, and its losses.
class Product : public testing::Test {
 protected:
  // Takes a step of plain SGD with rate 1. Returns the loss, and w after the step.
  std::pair<float, std::vector<float>> step(const Pairs &pairs, const std::vector<float> &labels, const Shape &shape) {
    const auto session =
        Session::create(options_with(Pairs{{"optimizer", "sgd"}, {"learning_rate", "1"}} + pairs), model, nullptr);
    session->set_input("x", DType::f32, {2, 3}, x.data());
    session->set_input("labels", DType::f32, shape, labels.data());
    const float loss = session->step().loss;
    std::vector<float> w(12);
    session->read_parameter("w", w.data(), w.size());
    return {loss, w};
  }

  double y(int row, int column) const {
    double sum = 0;
    for (int d = 0; d < 3; ++d) sum += static_cast<double>(x[row * 3 + d]) * before[d * 4 + column];
    return sum;
  }

  // Compares a step's result with formulas. of(y, label) is the loss of one element, and slope(y, label) its derivative
  // with respect to y. The loss is the mean over all elements.
  void expect(const std::pair<float, std::vector<float>> &got, const std::vector<float> &labels,
              double (*of)(double, double), double (*slope)(double, double)) {
    double loss = 0;
    std::vector<double> w(before.begin(), before.end());
    for (int row = 0; row < 2; ++row)
      for (int c = 0; c < 4; ++c) {
        const double label = labels[row * 4 + c];
        loss += of(y(row, c), label) / 8;
        for (int d = 0; d < 3; ++d) w[d * 4 + c] -= slope(y(row, c), label) / 8 * x[row * 3 + d];
      }
    EXPECT_NEAR(got.first, loss, 1e-6 * std::abs(loss));
    for (std::size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(got.second[i], w[i], 1e-5 * (1 + std::abs(w[i]))) << i;
  }

  const std::vector<float> x = {0.5f, -1, 2, 1.5f, 0.25f, -0.75f};
  const std::vector<float> before = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  test::Scratch scratch;
  std::string model = scratch.put("product.onnx", test::Wire().bytes());
};

// Returns the peak of device memory in the plan for a machine on paper, an RTX 3090.
std::uint64_t planned_peak(const Pairs &pairs, const std::string &model) {
  const draft::Options options = options_with(pairs + Pairs{{"hardware", "rtx3090"}});
  return nlohmann::json::parse(draft::plan_model(options, model, nullptr))["device_peak_bytes"];
}

// Returns the planned peak of device memory for a model y = x w with `classes` classes, the last axis of y. `rows` is
// the shape of y without this axis.
std::uint64_t planned_peak(const Pairs &pairs, test::Names rows, std::int64_t classes) {
  const test::Scratch scratch;
  test::Wire wire;
  wire.initializers = {test::floats("w", {3, classes}, std::vector<float>(static_cast<std::size_t>(3 * classes)))};
  rows.push_back("3");
  wire.inputs = {test::value("x", test::kFloat, rows)};
  rows.back() = std::to_string(classes);
  wire.outputs = {test::value("y", test::kFloat, rows)};
  return planned_peak(pairs, scratch.put("vocabulary.onnx", wire.bytes()));
}

TEST(Teacher, IsInMemoryButNoneOfTheLogitsThatAreComparedWithIt) {
  constexpr std::int64_t kRows = 8192, kClasses = 65536;
  constexpr std::uint64_t kLogits = std::uint64_t{kRows} * kClasses * sizeof(float);
  const test::Names rows = {std::to_string(kRows)};
  const std::uint64_t labelled = planned_peak({{"loss", "cross_entropy"}}, rows, kClasses);
  EXPECT_LT(labelled, kLogits / 4) << "a slice";
  EXPECT_LE(planned_peak({{"loss", "kl"}}, rows, kClasses), labelled + kLogits) << "a slice, and the teacher's logits";
}

// A step with a preference loss (dpo) and a step with cross entropy read the same samples and labels. The preference
// loss needs a few more numbers for each token and each sample. Its step may take at most 15 % more memory.
TEST(Preference, TakesLittleMoreMemoryThanTheSameBatchWithLabels) {
  const test::Names samples = {"8", "1024"};
  const auto preferred = planned_peak({{"loss", "dpo"}, {"loss_shift", "1"}}, samples, 65536);
  const auto labelled = planned_peak({{"loss", "cross_entropy"}, {"loss_shift", "1"}}, samples, 65536);
  EXPECT_LE(static_cast<double>(preferred), 1.15 * static_cast<double>(labelled));
}

TEST_F(Gpt2, PreferencesTakeLittleMoreMemoryThanLabels) {
  for (const auto &[batch, sequence] : {std::pair("batch=2", "sequence=32"), {"batch=16", "sequence=64"}}) {
    const Pairs dims = {{"dim", batch}, {"dim", sequence}, {"loss_shift", "1"}};
    const auto preferred = planned_peak(dims + Pairs{{"loss", "dpo"}}, model);
    const auto labelled = planned_peak(dims + Pairs{{"loss", "cross_entropy"}}, model);
    EXPECT_LE(static_cast<double>(preferred), 1.15 * static_cast<double>(labelled)) << batch;
  }
}

double squared(double y, double t) { return (y - t) * (y - t); }
double squared_slope(double y, double t) { return 2 * (y - t); }
double distance(double y, double t) { return std::abs(y - t); }
double distance_slope(double y, double t) { return (y > t) - (y < t); }  // 0 at the kink, as in PyTorch
double entropy(double y, double t) { return (1 - t) * y + std::log1p(std::exp(-std::abs(y))) + std::max(-y, 0.0); }
double entropy_slope(double y, double t) { return 1 / (1 + std::exp(-y)) - t; }

const std::vector<float> kNumbers = {13, 15, 20, -4, 0.5f, 1, 0, -2};

TEST_F(Product, FollowsTheMeanSquare) {
  expect(step({{"loss", "mse"}}, kNumbers, {2, 4}), kNumbers, squared, squared_slope);
}

TEST_F(Product, FollowsTheMeanDistance) {
  expect(step({{"loss", "l1"}}, kNumbers, {2, 4}), kNumbers, distance, distance_slope);
}

TEST_F(Product, FollowsTheEntropyOfLogits) {
  const std::vector<float> labels = {1, 0, 1, 0.25f, 0, 0, 1, 1};
  expect(step({{"loss", "bce"}}, labels, {2, 4}), labels, entropy, entropy_slope);
}

TEST_F(Product, ShiftsAlongTheSecondAxis) {
  const auto [loss, w] = step({{"loss", "mse"}, {"loss_shift", "1"}}, kNumbers, {2, 4});
  double expected = 0;
  for (int row = 0; row < 2; ++row)
    for (int c = 0; c < 3; ++c) expected += squared(y(row, c), kNumbers[row * 4 + c + 1]) / 6;
  EXPECT_NEAR(loss, expected, 1e-6 * expected);
}

// The cross entropy of a large logit of the right sign is tiny. It must not be rounded to zero.
TEST_F(Product, KeepsSmallEntropies) {
  const std::vector<float> labels = {1, 1, 1, 1, 1, 1, 1, 1};
  const auto [loss, w] = step({{"loss", "bce"}}, labels, {2, 4});
  double expected = 0;
  for (int row = 0; row < 2; ++row)
    for (int c = 0; c < 4; ++c) expected += std::log1p(std::exp(-y(row, c))) / 8;
  EXPECT_NEAR(loss, expected, 1e-5 * expected);
}

// A loss that the file itself computes. `nodes` compute it from logits y (batch, 6, 4) and labels (batch, 6).
struct Inside {
  const char *name;
  test::Names nodes;
};
const std::string kIgnores = test::int_attribute("ignore_index", -100);
const std::string kSwaps = test::attribute("perm", 7, test::field(8, 0) + test::field(8, 2) + test::field(8, 1));
const std::string kRowLabels = test::node("Reshape", {"labels", "all"}, {"t"});
const std::string kLogs = test::node("LogSoftmax", {"y"}, {"logs"}, {test::int_attribute("axis", -1)});
const Inside kInside[] = {
    {"cross entropy",
     {test::node("Reshape", {"y", "rows"}, {"z"}), kRowLabels,
      test::node("SoftmaxCrossEntropyLoss", {"z", "t"}, {"loss"}, {kIgnores})}},
    {"with weights",
     {test::node("Reshape", {"y", "rows"}, {"z"}), kRowLabels,
      test::node("SoftmaxCrossEntropyLoss", {"z", "t", "of_classes"}, {"loss"}, {kIgnores})}},
    {"of moved classes, with weights",
     {test::node("Transpose", {"y"}, {"z"}, {kSwaps}),
      test::node("SoftmaxCrossEntropyLoss", {"z", "labels", "of_classes"}, {"loss"}, {kIgnores})}},
    {"likelihood behind a Reshape",
     {kLogs, test::node("Reshape", {"logs", "rows"}, {"z"}), kRowLabels,
      test::node("NegativeLogLikelihoodLoss", {"z", "t"}, {"loss"}, {kIgnores})}},
    {"likelihood behind a Transpose, with weights",
     {kLogs, test::node("Transpose", {"logs"}, {"z"}, {kSwaps}),
      test::node("NegativeLogLikelihoodLoss", {"z", "labels", "of_classes"}, {"loss"}, {kIgnores})}}};

// The samples have different numbers of labels that count. A step of one large batch and a step of four micro-batches
// must be the same, except for rounding.
TEST(LossInside, CountsTheTargetsOfEachMicroBatch) {
  const auto ints = [](const char *name, const std::vector<std::int64_t> &values) {
    return test::tensor(name, test::kInt64, {static_cast<std::int64_t>(values.size())},
                        test::raw_data(test::raw(values)));
  };
  std::vector<float> x, w(12);
  for (int i = 0; i < 4 * 6 * 3; ++i) x.push_back(std::sin(static_cast<float>(i)));
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::cos(static_cast<float>(i));
  std::vector<std::int64_t> labels(4 * 6, -100);
  for (std::size_t sample = 0; sample < 4; ++sample)
    for (std::size_t i = 0; i < 6 && i < 1 + sample * 2; ++i)
      labels[sample * 6 + i] = static_cast<std::int64_t>((sample + i) % 4);
  for (const Inside &inside : kInside) {
    test::Wire wire;
    wire.initializers = {test::floats("w", {3, 4}, w), test::floats("of_classes", {4}, {0.5f, 1, 2, 3.1f}),
                         ints("rows", {-1, 4}), ints("all", {-1})};
    wire.nodes.insert(wire.nodes.end(), inside.nodes.begin(), inside.nodes.end());
    wire.inputs = {test::value("x", test::kFloat, {"batch", "6", "3"}),
                   test::value("labels", test::kInt64, {"batch", "6"})};
    wire.outputs = {test::value("loss", test::kFloat, {})};
    const test::Scratch scratch;
    const std::string model = scratch.put("loss.onnx", wire.bytes());
    const auto step = [&](std::int64_t batch, const std::string &dim) {
      const auto session = Session::create(
          options_with({{"dim", dim}, {"accumulation", std::to_string(4 / batch)}, {"optimizer", "sgd"}}), model,
          nullptr);
      StepResult result;
      for (std::int64_t at = 0; at < 4; at += batch) {
        session->set_input("x", DType::f32, {batch, 6, 3}, x.data() + at * 18);
        session->set_input("labels", DType::i64, {batch, 6}, labels.data() + at * 6);
        result = session->step();
      }
      return result;
    };
    const StepResult whole = step(4, "batch=4"), parts = step(1, "batch=1");
    EXPECT_NEAR(parts.loss, whole.loss, 1e-6 * whole.loss) << inside.name;
    EXPECT_NEAR(parts.grad_norm, whole.grad_norm, 1e-5 * whole.grad_norm) << inside.name;
  }
}

// A model y = x w, followed by nodes that compute p. y has two rows and four columns.
class Probabilities : public testing::Test {
 protected:
  std::string after(const test::Names &nodes, const test::Names &initializers = {}) const {
    test::Wire wire;
    wire.initializers = {test::floats("w", {3, 4}, w)};
    wire.nodes.insert(wire.nodes.end(), nodes.begin(), nodes.end());
    wire.initializers.insert(wire.initializers.end(), initializers.begin(), initializers.end());
    wire.outputs = {test::value("p", test::kFloat, {})};
    return scratch.put("p.onnx", wire.bytes());
  }

  // Takes a step of plain SGD with rate 1. Returns the loss, and then w after the step.
  template <typename Label>
  std::vector<float> step(const std::string &model, const Pairs &pairs, const std::vector<Label> &labels) {
    std::string created;
    const auto session = Session::create(options_with(Pairs{{"optimizer", "sgd"}, {"learning_rate", "1"}} + pairs),
                                         model, [&](const std::string &line) { created = line; });
    said = nlohmann::json::parse(created)["loss_from"];
    EXPECT_EQ(nlohmann::json::parse(draft::check_model(options_with(pairs), model))["loss_from"], said);
    session->set_input("x", DType::f32, {2, 3}, x.data());
    const std::size_t last = session->input_count() - 1;
    session->set_input("labels", session->input_dtype(last), session->input_shape(last), labels.data());
    std::vector<float> numbers = {session->step().loss};
    numbers.resize(13);
    session->read_parameter("w", numbers.data() + 1, 12);
    return numbers;
  }

  double y(int row, int column) const {
    double sum = 0;
    for (int d = 0; d < 3; ++d) sum += static_cast<double>(x[row * 3 + d]) * w[d * 4 + column];
    return sum;
  }

  const Pairs classes = {{"loss", "cross_entropy"}}, truths = {{"loss", "bce"}};
  const std::vector<std::int64_t> picked = {1, 3};
  const std::vector<float> true_or_not = {1, 0, 1, 0.25f, 0, 0, 1, 1};
  const std::vector<float> x = {0.5f, -1, 2, 1.5f, 0.25f, -0.75f};
  const std::vector<float> w = {0.1f, 0.2f, 0.3f, -0.4f, 0.5f, 0.6f, -0.7f, 0.8f, 0.9f, 1.0f, 1.1f, -1.2f};
  const std::string logits = test::node("Identity", {"y"}, {"p"});
  test::Scratch scratch;
  std::string said;
};

TEST_F(Probabilities, OfASoftmaxAreLeftForItsLogits) {
  const std::vector<float> expected = step(after({logits}), classes, picked);
  EXPECT_EQ(said, "logits");
  const test::Names ways[] = {
      {test::node("Softmax", {"y"}, {"p"})},
      {test::node("Softmax", {"y"}, {"s"}),
       test::node("Cast", {"s"}, {"d"}, {test::int_attribute("to", test::kDouble)}),
       test::node("Cast", {"d"}, {"p"}, {test::int_attribute("to", test::kFloat)})},
      {test::node("Transpose", {"y"}, {"t"}), test::node("Softmax", {"t"}, {"s"}, {test::int_attribute("axis", 0)}),
       test::node("Transpose", {"s"}, {"p"})},
      {test::node("Unsqueeze", {"y", "two"}, {"u"}),
       test::node("Softmax", {"u"}, {"s"}, {test::int_attribute("axis", 1)}),
       test::node("Squeeze", {"s", "two"}, {"p"})},
      {test::node("Concat", {"y", "y"}, {"c"}, {test::int_attribute("axis", 0)}), test::node("Softmax", {"c"}, {"s"}),
       test::node("Slice", {"s", "zero", "two"}, {"p"})}};
  const auto number = [](const char *name, std::int64_t value) {
    return test::tensor(name, test::kInt64, {1}, test::raw_data(test::raw(std::vector<std::int64_t>{value})));
  };
  const test::Names numbers = {number("zero", 0), number("two", 2)};
  for (const test::Names &way : ways) {
    EXPECT_EQ(step(after(way, numbers), classes, picked), expected);
    EXPECT_TRUE(said.starts_with("the logits before Softmax at ")) << said;
    EXPECT_EQ(step(after(way, numbers), classes + Pairs{{"loss_from", "probabilities"}}, picked), expected);
  }
  EXPECT_EQ(step(after({test::node("LogSoftmax", {"y"}, {"p"})}), classes, picked), expected);
  EXPECT_EQ(said, "the logits before LogSoftmax at make_p");
}

TEST_F(Probabilities, OfASigmoidAreLeftForItsLogits) {
  const std::vector<float> expected = step(after({logits}), truths, true_or_not);
  EXPECT_EQ(step(after({test::node("Sigmoid", {"y"}, {"p"})}), truths, true_or_not), expected);
  EXPECT_EQ(said, "the logits before Sigmoid at make_p");
}

// A binary classifier may return p = sigmoid(z) and 1 - p, in either order. They are the Softmax of the logits z and 0,
// so the loss must be computed from these logits.
TEST_F(Probabilities, OfTwoClassesAreLeftForTheLogitsOfTheSigmoid) {
  const std::vector<std::int64_t> whether = {1, 0};
  const test::Names weights = {test::floats("one", {1}, {1}), test::floats("first", {4, 1}, {1, 0, 0, 0})};
  const test::Names begin = {test::node("MatMul", {"y", "first"}, {"z"}), test::node("Sigmoid", {"z"}, {"s"}),
                             test::node("Sub", {"one", "s"}, {"rest"})};
  for (const bool first : {false, true}) {
    test::Names nodes = begin;
    const test::Names joined = first ? test::Names{"s", "rest"} : test::Names{"rest", "s"};
    nodes.push_back(test::node("Concat", joined, {"p"}, {test::int_attribute("axis", 1)}));
    double expected = 0;
    for (int row = 0; row < 2; ++row)
      expected +=
          std::log1p(std::exp((whether[static_cast<std::size_t>(row)] == 1) != first ? -y(row, 0) : y(row, 0))) / 2;
    const Pairs frozen = classes + Pairs{{"frozen", "first"}};
    EXPECT_NEAR(step(after(nodes, weights), frozen, whether)[0], expected, 1e-6);
    EXPECT_EQ(said, "the logits before Concat at make_p");
    EXPECT_NEAR(step(after(nodes, weights), frozen + Pairs{{"loss_from", "probabilities"}}, whether)[0], expected,
                1e-6);
  }
}

// With loss_from=logits, the result of the Softmax counts as logits. PyTorch's functional.cross_entropy would treat it
// in the same way.
TEST_F(Probabilities, AreLogitsWhereTheOptionSaysSo) {
  const std::string model = after({test::node("Softmax", {"y"}, {"p"})});
  const float loss = step(model, classes + Pairs{{"loss_from", "logits"}}, picked)[0];
  double expected = 0;
  for (int row = 0; row < 2; ++row) {
    double sum = 0, again = 0;
    for (int c = 0; c < 4; ++c) sum += std::exp(y(row, c));
    for (int c = 0; c < 4; ++c) again += std::exp(std::exp(y(row, c)) / sum);
    expected += (std::log(again) - std::exp(y(row, static_cast<int>(picked[row]))) / sum) / 2;
  }
  EXPECT_NEAR(loss, expected, 1e-6);
}

// The output is a sigmoid times 0.5. The graph does not show that this is a probability, so the option loss_from must
// say so.
TEST_F(Probabilities, ThatNothingShowsAreTakenAtTheOptionsWord) {
  const std::string model = after({test::node("Sigmoid", {"y"}, {"s"}), test::node("Mul", {"s", "half"}, {"p"})},
                                  {test::floats("half", {}, {0.5f})});
  const auto p = [&](int row, int c) { return 0.5 / (1 + std::exp(-y(row, c))); };
  step(model, truths, true_or_not);
  EXPECT_EQ(said, "logits");
  const Pairs from = {{"loss_from", "probabilities"}};
  double entropy = 0, classes_loss = 0;
  for (int row = 0; row < 2; ++row) {
    double sum = 0;
    for (int c = 0; c < 4; ++c) {
      const double label = true_or_not[static_cast<std::size_t>(row) * 4 + static_cast<std::size_t>(c)];
      entropy -= (label * std::log(p(row, c)) + (1 - label) * std::log(1 - p(row, c))) / 8;  // PyTorch's BCELoss
      sum += p(row, c);
    }
    classes_loss -= std::log(p(row, static_cast<int>(picked[row])) / sum) / 2;  // Keras' CategoricalCrossentropy
  }
  EXPECT_NEAR(step(model, truths + from, true_or_not)[0], entropy, 1e-6);
  EXPECT_EQ(said, "probabilities");
  EXPECT_NEAR(step(model, classes + from, picked)[0], classes_loss, 1e-6);
}

// The loss bce on a Softmax uses the Softmax's probabilities, because bce on the logits before the Softmax would be
// another loss. Probabilities of 0 and 1 count as 1e-7 and 1 - 1e-7.
TEST_F(Probabilities, OfASoftmaxStandForYesAndNoToo) {
  const std::string model = after({test::node("Mul", {"y", "many"}, {"m"}), test::node("Softmax", {"m"}, {"p"})},
                                  {test::floats("many", {}, {1000})});
  const float loss = step(model, truths, true_or_not)[0];
  EXPECT_EQ(said, "the probabilities of Softmax at make_p");
  double expected = 0;
  for (int row = 0; row < 2; ++row) {
    int largest = 0;
    for (int c = 1; c < 4; ++c)
      if (y(row, c) > y(row, largest)) largest = c;
    for (int c = 0; c < 4; ++c) {
      const double p = c == largest ? 1 - 1e-7 : 1e-7;
      const double label = true_or_not[static_cast<std::size_t>(row) * 4 + static_cast<std::size_t>(c)];
      expected -= (label * std::log(p) + (1 - label) * std::log(1 - p)) / 8;
    }
  }
  EXPECT_NEAR(loss, expected, 0.01 * expected);  // 1 - 1e-7 is rounded in float32
}

TEST_F(Probabilities, AreRefusedWhereTheyMeanNothing) {
  const std::string model = after({logits}), logarithms = after({test::node("LogSoftmax", {"y"}, {"p"})});
  Error error = error_of([&] {
    Session::create(options_with({{"loss", "mse"}, {"loss_from", "probabilities"}}), model, nullptr);
  });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.subject, "loss_from");
  error = error_of([&] {
    Session::create(options_with(truths + Pairs{{"loss_from", "probabilities"}}), logarithms, nullptr);
  });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_NE(error.text.find("LogSoftmax at make_p"), std::string::npos) << error.text;
}

TEST_F(Product, RefusesAScalarPrediction) {
  test::Wire wire;
  wire.nodes.push_back(test::node("ReduceSum", {"y"}, {"sum"}, {test::int_attribute("keepdims", 0)}));
  wire.outputs = {test::value("sum", test::kFloat, {})};
  const std::string scalar = scratch.put("scalar.onnx", wire.bytes());
  const Error error = error_of([&] { Session::create(options_with({{"loss", "mse"}}), scalar, nullptr); });
  EXPECT_EQ(error.code, Code::arg);
  EXPECT_EQ(error.text,
            "the model has no output of floats that a loss could be computed from; the model's outputs are sum "
            "float32[]");
}

}  // namespace
}  // namespace protrain::session::loss_test
