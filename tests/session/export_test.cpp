// A session exports its model. A step of the exported model must then equal the session's next step, bit for bit. The
// optimizer is SGD without momentum: an export does not hold an optimizer's state, and this optimizer has none.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "draft/check.h"
#include "fixtures.h"
#include "float64_scale.h"
#include "merged.h"
#include "session/session.h"

namespace protrain::session::export_test {
namespace {

using Feed = std::function<void(Session &)>;

struct Case {
  std::vector<std::pair<std::string, std::string>> options;
  Feed feed;
};

draft::Options options_of(const Case &one) {
  draft::Options options;
  for (const auto &[key, value] : one.options) options.set(key, value);
  options.set("optimizer", "sgd");
  options.set("learning_rate", "0.1");
  options.set("threads", "2");
  return options;
}

std::vector<float> parameters(Session &session) {
  std::vector<float> values(session.flat_parameters_elements());
  session.read_flat_parameters(values.data(), values.size());
  return values;
}

float step(Session &session, const Case &one) {
  one.feed(session);
  return session.step().loss;
}

void expect_one_more_step_is_the_second(const std::string &model, const Case &one) {
  const test::Scratch scratch;
  const auto session = Session::create(options_of(one), model, nullptr);
  const float first = step(*session, one);
  session->export_model(scratch / "once.onnx");
  const float second = step(*session, one);
  EXPECT_LT(second, first);
  const auto again = Session::create(options_of(one), scratch / "once.onnx", nullptr);
  ASSERT_EQ(again->parameter_count(), session->parameter_count());
  EXPECT_EQ(step(*again, one), second);
  EXPECT_EQ(parameters(*again), parameters(*session));
}

const Case kLanguage = {{{"dim", "batch=2"}, {"dim", "sequence=32"}}, [](Session &session) {
                          for (const char *name : {"input_ids", "labels"})
                            session.set_input(name, DType::i64, {test::kBatch, test::kSequence},
                                              test::load_tokens(std::string(name) + ".npy").data());
                        }};

class ExportedModel : public testing::TestWithParam<const char *> {};

TEST_P(ExportedModel, TrainsOnAsTheSessionWould) {
  expect_one_more_step_is_the_second(test::fixture(std::string(GetParam()) + ".onnx"), kLanguage);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ExportedModel,
                         testing::Values("gpt2-dynamic-opset18", "mistral-dynamic-opset23", "torchscript-gpt2-opset13"),
                         [](const auto &info) { return test::family_of(info.param); });

// If the head is tied to the embedding table, PyTorch's older exporter writes two tensors: the table and its transpose.
// An export must write the trained weights into both.
TEST(TiedHead, IsWrittenIntoBothTensors) {
  const test::Scratch scratch;
  const auto session = Session::create(options_of(kLanguage), test::fixture("torchscript-gpt2-opset13.onnx"), nullptr);
  step(*session, kLanguage);
  session->export_model(scratch / "once.onnx");
  const auto before = onnx_import::Model::open(test::fixture("torchscript-gpt2-opset13.onnx")),
             after = onnx_import::Model::open(scratch / "once.onnx");
  const auto about = nlohmann::json::parse(draft::check_model({}, scratch / "once.onnx"));
  std::string head, table;
  for (const auto &finding : about["constants"])
    if (const std::string reason = finding["reason"]; reason.starts_with("equals the transpose of ")) {
      head = finding["name"];
      table = reason.substr(24);
    }
  ASSERT_NE(head, "");
  EXPECT_FALSE(after->load(head).same_as(before->load(head)));
  EXPECT_FALSE(after->load(table).same_as(before->load(table)));
}

// The option `tie` makes one parameter of two weights. The parameter's gradient must be the sum of the gradients that
// the two weights have without the option.
TEST(TiedByOption, AreTrainedAndExportedAsOne) {
  const std::string model = test::fixture("llama-dynamic-opset18.onnx"), table = "m.model.embed_tokens.weight",
                    head = "m.lm_head.weight";
  draft::Options apart = options_of(kLanguage), tied = options_of(kLanguage);
  apart.set("keep_gradients", "m.*d*.weight");
  tied.set("keep_gradients", table);
  tied.set("tie", table + "|" + head);
  const auto two = Session::create(apart, model, nullptr), one = Session::create(tied, model, nullptr);
  ASSERT_EQ(one->parameter_count() + 1, two->parameter_count());
  std::vector<float> weights(512 * 64), of_table = weights, of_head = weights, of_both = weights;
  two->read_parameter(table, weights.data(), weights.size());
  two->write_parameter(head, weights.data(), weights.size());
  EXPECT_EQ(step(*one, kLanguage), step(*two, kLanguage));
  two->read_grad(table, of_table.data(), of_table.size());
  two->read_grad(head, of_head.data(), of_head.size());
  one->read_grad(table, of_both.data(), of_both.size());
  for (std::size_t i = 0; i < of_both.size(); ++i) ASSERT_NEAR(of_both[i], of_table[i] + of_head[i], 1e-6) << i;

  const test::Scratch scratch;
  one->export_model(scratch / "once.onnx");
  const auto exported = onnx_import::Model::open(scratch / "once.onnx");
  EXPECT_TRUE(exported->load(head).same_as(exported->load(table)));
  one->read_parameter(table, weights.data(), weights.size());
  EXPECT_TRUE(exported->load(table).same_as(graph::Array::dense(
      {DType::f32, {512, 64}}, {reinterpret_cast<const std::byte *>(weights.data()),
                                reinterpret_cast<const std::byte *>(weights.data() + weights.size())})));
}

class MergedNorms : public testing::Test {
 protected:
  static constexpr int kCount = test::kMergedRows * test::kMergedWidth;

  static Case training() {
    return {{{"loss", "mse"}}, [](Session &session) {
              std::vector<float> x, labels;
              for (int i = 0; i < kCount; ++i) {
                x.push_back(std::cos(static_cast<float>(i * i)));
                labels.push_back(std::sin(static_cast<float>(3 * i)));
              }
              session.set_input("x", DType::f32, {test::kMergedRows, test::kMergedWidth}, x.data());
              session.set_input("labels", DType::f32, {test::kMergedRows, test::kMergedWidth}, labels.data());
            }};
  }

  test::Scratch scratch;
  std::string model = scratch.put("merged.onnx", test::merged().bytes());
  std::string apart = scratch.put("apart.onnx", test::merged(true).bytes());
};

TEST_F(MergedNorms, TrainAsThoseThatWereNeverMerged) {
  const auto session = Session::create(options_of(training()), model, nullptr);
  const auto other = Session::create(options_of(training()), apart, nullptr);
  EXPECT_EQ(session->parameter_count(), 3u * test::kMergedLayers + test::kMergedLayers + 2);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(*session, training()), step(*other, training()));
  EXPECT_EQ(parameters(*session), parameters(*other));
}

TEST_F(MergedNorms, AreExportedEachWithValuesOfItsOwn) {
  expect_one_more_step_is_the_second(model, training());
  const auto session = Session::create(options_of(training()), model, nullptr);
  step(*session, training());
  session->export_model(scratch / "once.onnx");
  const auto exported = onnx_import::Model::open(scratch / "once.onnx");
  EXPECT_FALSE(exported->load("ones/2").same_as(exported->load("ones")));
  const auto again = Session::create(options_of(training()), scratch / "once.onnx", nullptr);
  for (std::size_t p = 0; p < session->parameter_count(); ++p)
    EXPECT_EQ(again->parameter_name(p), session->parameter_name(p));
}

TEST_F(MergedNorms, AreDistinguishedByCheck) {
  const auto about = nlohmann::json::parse(draft::check_model(options_of(training()), model));
  EXPECT_TRUE(about["trainable"]) << about["problems"];
  int mentions = 0;
  for (const auto &row : about["parameters"])
    mentions += row["reason"].get<std::string>().ends_with("; split from ones, which several places read");
  EXPECT_EQ(mentions, test::kMergedLayers);
}

// An export writes frozen weights too, unchanged.
TEST_F(MergedNorms, MayBeFrozen) {
  Case frozen = training();
  frozen.options.emplace_back("frozen", "ones*");
  expect_one_more_step_is_the_second(model, frozen);
}

// float32 cannot hold the frozen weights of this model. So the session does not list them as a parameter, and an export
// has the file's bytes.
TEST(FrozenFloat64, StaysAsTheFileHasIt) {
  const test::Scratch scratch;
  const std::string model = scratch.put("scaled.onnx", test::float64_scale().bytes());
  const Case training = {{{"loss", "mse"}, {"frozen", "scale"}}, [](Session &session) {
                           const std::vector<float> x = {0.5, -1, 2, 1.5, 0.25, -0.75};
                           const std::vector<float> labels = {1, 0, 2, -1, 0.5, 1, 0, -2};
                           session.set_input("x", DType::f32, {2, 3}, x.data());
                           session.set_input("labels", DType::f32, {2, 4}, labels.data());
                         }};
  expect_one_more_step_is_the_second(model, training);
  const auto session = Session::create(options_of(training), model, nullptr);
  ASSERT_EQ(session->parameter_count(), 1u);
  EXPECT_EQ(session->parameter_name(0), "w");
  step(*session, training);
  session->export_model(scratch / "once.onnx");
  const auto before = onnx_import::Model::open(model), after = onnx_import::Model::open(scratch / "once.onnx");
  EXPECT_TRUE(after->load("scale").same_as(before->load("scale")));
  EXPECT_FALSE(after->load("w").same_as(before->load("w")));
}

}  // namespace
}  // namespace protrain::session::export_test
