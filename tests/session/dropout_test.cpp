// A model that was exported in training mode trains with dropout, on embeddings, attention probabilities and branches.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "fixtures.h"
#include "onnx_import/wire.h"
#include "session/session.h"

namespace protrain::session::dropout_test {
namespace {

using test::kBatch;
using test::kSequence;

const std::string kModel = test::fixture("dropout-gpt.onnx");

std::unique_ptr<Session> session_of(const std::string &model, std::vector<std::pair<std::string, std::string>> more) {
  draft::Options options;
  more.insert(more.end(), {{"dim", "batch=2"}, {"dim", "sequence=32"}, {"threads", "2"}, {"learning_rate", "3e-3"}});
  for (const auto &[key, value] : more) options.set(key, value);
  return Session::create(options, model, nullptr);
}

void set_batch(Session &session, int step) {
  static const std::vector<std::int64_t> ids = test::load_tokens("input_ids.npy");
  static const std::vector<std::int64_t> labels = test::load_tokens("labels.npy");
  session.set_input("input_ids", DType::i64, {kBatch, kSequence}, test::batch(ids, step));
  session.set_input("labels", DType::i64, {kBatch, kSequence}, test::batch(labels, step));
}

// Trains ten steps. Returns their losses and then all parameters.
std::vector<float> trained(const std::string &seed) {
  const auto session = session_of(kModel, {{"seed", seed}});
  std::vector<float> bits;
  for (int i = 0; i < test::kSteps; ++i) {
    set_batch(*session, i);
    bits.push_back(session->step().loss);
  }
  for (std::size_t p = 0; p < session->parameter_count(); ++p) {
    std::vector<float> values(static_cast<std::size_t>(element_count(session->parameter_shape(p))));
    session->read_parameter(session->parameter_name(p), values.data(), values.size());
    bits.insert(bits.end(), values.begin(), values.end());
  }
  return bits;
}

// A copy of the model in which every ratio of 0.1 is 0.
class WithoutDropout {
 public:
  WithoutDropout() {
    std::ifstream file(kModel, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const std::string tenth("\x4a\x04\xcd\xcc\xcc\x3d", 6), zero("\x4a\x04\0\0\0\0", 6);  // raw_data of four bytes
    for (std::size_t at = 0; (at = bytes.find(tenth, at)) != std::string::npos; ++replaced)
      bytes.replace(at, tenth.size(), zero);
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~WithoutDropout() { std::filesystem::remove(path); }

  const std::string path =
      (std::filesystem::temp_directory_path() / ("protrain-dropout-" + std::to_string(getpid()) + ".onnx")).string();
  int replaced = 0;
};

int dropouts_in(const std::string &graph_text) {
  int count = 0;
  for (std::size_t at = 0; (at = graph_text.find("Dropout(", at)) != std::string::npos; ++at) ++count;
  return count;
}

TEST(DropoutSession, LearnsAndGivesTheSameBitsForTheSameSeed) {
  const std::vector<float> first = trained("1");
  EXPECT_LT(first[9], first[0] - 0.3f);
  EXPECT_EQ(trained("1"), first);
  const std::vector<float> other = trained("2");
  for (int i = 0; i < test::kSteps; ++i)
    EXPECT_NE(other[static_cast<std::size_t>(i)], first[static_cast<std::size_t>(i)]);
}

TEST(DropoutSession, DrawsANewMaskInEveryStep) {
  const auto session = session_of(kModel, {{"learning_rate", "0"}, {"weight_decay", "0"}});
  session->set_learning_rate(0);
  set_batch(*session, 0);
  const float first = session->step().loss, second = session->step().loss;
  EXPECT_NE(first, second);
  EXPECT_NEAR(first, second, 0.5);
}

TEST(DropoutSession, EvaluatesWithoutIt) {
  const WithoutDropout plain;
  ASSERT_GT(plain.replaced, 0);
  const auto session = session_of(kModel, {{"seed", "1"}}), other = session_of(kModel, {{"seed", "2"}});
  const auto expected = session_of(plain.path, {});
  EXPECT_EQ(dropouts_in(session->graph_text()), 26) << session->graph_text();
  EXPECT_EQ(dropouts_in(expected->graph_text()), 0);
  for (Session *one : {session.get(), other.get(), expected.get()}) set_batch(*one, 0);
  const float loss = session->evaluate();
  EXPECT_EQ(session->evaluate(), loss);
  EXPECT_EQ(other->evaluate(), loss);
  EXPECT_NEAR(expected->evaluate(), loss, 1e-5);  // its attention is fused
  EXPECT_GT(std::abs(session->step().loss - loss), 1e-4);
}

// Compares a gradient with a difference quotient of the first step's loss, taken along that gradient. The quotient must
// equal the gradient's norm, which holds only if backward uses forward's masks.
TEST(DropoutSession, TheBackwardPassUsesTheMasksOfTheForwardPass) {
  const auto at = [](double distance, std::vector<std::vector<float>> *gradients) {
    const auto session = session_of(kModel, {{"seed", "4"}, {"keep_gradients", "*"}});
    for (std::size_t p = 0; p < gradients->size(); ++p) {
      std::vector<float> weights((*gradients)[p].size());
      session->read_parameter(session->parameter_name(p), weights.data(), weights.size());
      for (std::size_t i = 0; i < weights.size(); ++i) weights[i] += static_cast<float>(distance * (*gradients)[p][i]);
      session->write_parameter(session->parameter_name(p), weights.data(), weights.size());
    }
    set_batch(*session, 0);
    const StepResult result = session->step();
    for (std::size_t p = gradients->size(); p < session->parameter_count(); ++p) {
      gradients->emplace_back(static_cast<std::size_t>(element_count(session->parameter_shape(p))));
      session->read_grad(session->parameter_name(p), gradients->back().data(), gradients->back().size());
    }
    return result;
  };
  std::vector<std::vector<float>> gradients;
  const double norm = at(0, &gradients).grad_norm, step = 1e-2 / norm;
  const double quotient = (at(step / norm, &gradients).loss - at(-step / norm, &gradients).loss) / (2 * step);
  EXPECT_NEAR(quotient, norm, 5e-3 * norm);
}

// The mask has the axes (positions, samples), so its first axis is not that of samples. Even so, each batch of a step
// must have a mask of its own.
TEST(DropoutSession, DrawsANewMaskInEachBatchWhereTheFirstAxisHasNoSamples) {
  using test::node;
  const test::Scratch scratch;
  test::Wire wire;
  wire.nodes = {node("Transpose", {"x"}, {"turned"}), node("Mul", {"turned", "factors"}, {"scaled"}),
                node("Dropout", {"scaled", "ratio", "trains"}, {"kept"}),
                node("ReduceMean", {"kept"}, {"loss"}, {test::int_attribute("keepdims", 0)})};
  wire.initializers = {test::floats("factors", {3, 2}, {1, 2, 3, 4, 5, 6}), test::floats("ratio", {}, {0.5F}),
                       test::tensor("trains", test::kBool, {}, test::raw_data("\1"))};
  wire.outputs = {test::value("loss", test::kFloat, {})};
  const std::string model = scratch.put("turned.onnx", wire.bytes());
  const std::vector<float> x = {1, 2, 3, 4, 5, 6};
  int different = 0;  // of eight seeds; two masks of six elements are the same now and then
  for (int seed = 0; seed < 8; ++seed) {
    draft::Options options;
    for (const auto &[key, value] : {std::pair<std::string, std::string>{"accumulation", "2"},
                                     {"trainable", "factors"},
                                     {"seed", std::to_string(seed)}})
      options.set(key, value);
    const auto session = Session::create(options, model, nullptr);
    session->set_input("x", DType::f32, {2, 3}, x.data());
    const float first = session->step().loss, mean = session->step().loss;
    different += mean != first ? 1 : 0;
  }
  EXPECT_GE(different, 6);
}

// The batch is counted by `places`, whose first axis has one element, and the mask has four rows. Three rows of x hold
// different powers of two, so the loss tells which of their elements the mask keeps. The second batch has these rows
// one place further up, where it would find the masks of the first batch again if its random numbers began one sample
// later.
TEST(DropoutSession, DrawsNewMasksForAllRowsOfABatchThatCountsFewerSamples) {
  using test::node;
  constexpr std::size_t kRows = 4, kWidth = 7;
  const test::Scratch scratch;
  test::Wire wire;
  wire.nodes = {node("Gather", {"table", "places"}, {"placed"}), node("Add", {"x", "placed"}, {"sum"}),
                node("Dropout", {"sum", "ratio", "trains"}, {"kept"}),
                node("ReduceMean", {"kept"}, {"loss"}, {test::int_attribute("keepdims", 0)})};
  wire.initializers = {test::floats("table", {kWidth}, std::vector<float>(kWidth)), test::floats("ratio", {}, {0.5F}),
                       test::tensor("trains", test::kBool, {}, test::raw_data("\1"))};
  wire.inputs = {test::value("x", test::kFloat, {"4", "7"}), test::value("places", test::kInt64, {"1", "7"})};
  wire.outputs = {test::value("loss", test::kFloat, {})};
  draft::Options options;
  for (const auto &[key, value] : {std::pair{"accumulation", "2"}, {"trainable", "table"}}) options.set(key, value);
  const auto session = Session::create(options, scratch.put("rows.onnx", wire.bytes()), nullptr);
  const std::vector<std::int64_t> places = {0, 1, 2, 3, 4, 5, 6};
  session->set_input("places", DType::i64, {1, kWidth}, places.data());
  const auto loss_with_rows_from = [&](std::size_t row) {
    std::vector<float> x(kRows * kWidth);
    for (std::size_t i = 0; i < 3 * kWidth; ++i) x[row * kWidth + i] = std::ldexp(1.0F, static_cast<int>(i));
    session->set_input("x", DType::f32, {kRows, kWidth}, x.data());
    return session->step().loss;
  };
  const float first = loss_with_rows_from(1), mean = loss_with_rows_from(0);
  EXPECT_NE(mean, first);
}

}  // namespace
}  // namespace protrain::session::dropout_test
