// Outputs that a session keeps. They must equal PyTorch's (fixtures/make_outputs.py), agree with the evaluated loss,
// and have the same bits under every plan. To keep outputs must not change training.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "errors.h"
#include "scratch.h"
#include "train/family.h"

namespace protrain::outputs_test {
namespace {

using session::Session;
using test::error_of;
using test::Json;
using test::Values;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Json golden() {
  std::ifstream file(test::fixture("outputs/classes.json"));
  return Json::parse(file);
}

// A session of the classifier, and its batches.
class Classifier {
 public:
  explicit Classifier(const Pairs &more = {{"keep_outputs", "*"}})
      : golden_(golden()), tokens_(golden_["tokens"]), labels_(golden_["labels"]) {
    draft::Options options;
    const Pairs own = {{"loss", "cross_entropy"}, {"loss_output", "logits"}, {"learning_rate", "0.01"},
                       {"weight_decay", "0.1"},   {"threads", "2"},          {"dim", "batch=3"}};
    for (const Pairs *pairs : {&own, &more})
      for (const auto &[key, value] : *pairs) options.set(key, value);
    session_ = Session::create(options, test::fixture("outputs/classes.onnx"), nullptr);
  }

  Session &operator*() { return *session_; }
  Session *operator->() { return session_.get(); }

  void set_tokens(std::size_t step) { session_->set_input("tokens", tokens_.dtype, tokens_.batch(), tokens_.at(step)); }
  float step(std::size_t step) {
    set_tokens(step);
    session_->set_input("labels", labels_.dtype, labels_.batch(), labels_.at(step));
    return session_->step().loss;
  }
  std::vector<float> train() {
    std::vector<float> losses;
    for (std::size_t i = 0; i < 4; ++i) losses.push_back(step(i));
    return losses;
  }

  template <typename T>
  std::vector<T> read(const std::string &name, DType dtype) {
    std::size_t i = 0;
    while (session_->output_name(i) != name) ++i;
    std::vector<T> values(static_cast<std::size_t>(element_count(session_->output_shape(i))));
    session_->read_output(name, dtype, values.data(), values.size() * sizeof(T));
    return values;
  }
  std::vector<float> floats(const std::string &name) { return read<float>(name, DType::f32); }
  // Computes the outputs of the first batch. Returns the floats among them.
  std::vector<float> predict() {
    set_tokens(0);
    session_->predict();
    std::vector<float> all = floats("logits");
    const std::vector<float> features = floats("features");
    all.insert(all.end(), features.begin(), features.end());
    return all;
  }

  void expect(const Json &wanted, double tolerance) {
    for (const char *name : {"logits", "features"}) {
      const std::vector<double> values = wanted[name];
      const std::vector<float> found = floats(name);
      ASSERT_EQ(found.size(), values.size());
      for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(found[i], values[i], tolerance) << name << " " << i;
    }
    EXPECT_EQ(read<std::int64_t>("choice", DType::i64), wanted["choice"].get<std::vector<std::int64_t>>());
  }
  const Json &wanted(const char *when) const { return golden_[when]; }

 private:
  const Json golden_;
  const Values tokens_, labels_;
  std::unique_ptr<Session> session_;
};

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Outputs, ArePyTorchsBeforeAndAfterTraining) {
  Classifier model;
  ASSERT_EQ(model->output_count(), 3u);
  EXPECT_EQ(model->output_dtype(1), DType::i64);
  model.predict();  // no labels were set
  model.expect(model.wanted("before"), 2e-6);
  model.train();
  model.predict();
  model.expect(model.wanted("after"), 2e-5);
}

TEST(Outputs, ChangeNoBitOfTraining) {
  Classifier with, without(Pairs{});
  const std::vector<float> first = without.train();
  std::vector<float> losses;
  for (std::size_t i = 0; i < 4; ++i) {
    with.predict();
    losses.push_back(with.step(i));
  }
  EXPECT_TRUE(same_bits(losses, first));
  EXPECT_EQ(with->evaluate(), without->evaluate());
}

TEST(Outputs, HaveTheSameBitsUnderOtherPlans) {
  Classifier resident;
  resident.train();
  const std::vector<float> expected = resident.predict();
  const test::Scratch scratch;
  for (const char *plan : {R"({"n_persist": 0, "n_buffer": 1, "n_checkpoint": 3, "chunk_bytes": 4096})",
                           R"({"n_persist": 1, "n_host": 1, "n_swap": 1, "n_deferred": 2, "chunk_bytes": 4096})"}) {
    Classifier moving(Pairs{{"keep_outputs", "*"},
                            {"plan", scratch.file("plan.json", plan)},
                            {"offload_dir", scratch.path()},
                            {"trial", "poison"},
                            {"device_memory", "64MiB"},
                            {"host_memory", "64MiB"}});
    moving.train();
    EXPECT_TRUE(same_bits(moving.predict(), expected)) << plan;
  }
}

// Parameters on the disk are read and written through memory that a prediction uses too. The outputs of
// the prediction must stay unchanged.
TEST(Outputs, StayWhileParametersAreReadAndWritten) {
  const test::Scratch scratch;
  for (const char *piece_bytes : {"4096", "8192", "16777216"}) {
    const std::string plan = R"({"n_persist": 0, "n_buffer": 1, "chunk_bytes": 4096, "piece_bytes": )";
    Classifier model(Pairs{{"keep_outputs", "*"},
                           {"plan", scratch.file("plan.json", plan + piece_bytes + "}")},
                           {"offload_dir", scratch.path()}});
    std::vector<float> values(model->flat_parameters_elements());
    const std::vector<float> before = model.predict();
    const auto expect_the_same = [&](const char *call) {
      std::vector<float> after = model.floats("logits");
      const std::vector<float> features = model.floats("features");
      after.insert(after.end(), features.begin(), features.end());
      EXPECT_TRUE(same_bits(after, before)) << call << " with pieces of " << piece_bytes;
    };
    model->read_flat_parameters(values.data(), values.size());
    expect_the_same("read");
    model->write_flat_parameters(values.data(), values.size());
    expect_the_same("write");
    model->export_model(scratch / "model.onnx");
    expect_the_same("export");
    model->save(scratch / "checkpoints");
    expect_the_same("save");
  }
}

TEST(Outputs, AreThoseOfTheShapesThatAreSet) {
  Classifier model(Pairs{{"keep_outputs", "logits"}, {"shapes", "batch=1"}});
  model.set_tokens(0);
  model->predict();
  const std::vector<float> all = model.floats("logits");
  EXPECT_EQ(model->output_shape(0), (Shape{3, 5}));
  const std::vector<std::int64_t> tokens = golden()["tokens"]["values"];
  model->set_input("tokens", DType::i64, {1, 6}, tokens.data() + 6);
  model->predict();
  EXPECT_EQ(model->output_shape(0), (Shape{1, 5}));
  const std::vector<float> one = model.floats("logits");
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(one[i], all[5 + i], 1e-6);
}

TEST(Outputs, AreNearInNarrowTypesAndReadAsTheFilesType) {
  Classifier model(Pairs{{"keep_outputs", "*"}, {"precision", "bf16"}});
  EXPECT_EQ(model->output_dtype(0), DType::f32);
  model.predict();
  model.expect(model.wanted("before"), 0.03);
}

TEST(Outputs, FollowAdapters) {
  Classifier model(Pairs{{"keep_outputs", "*"}, {"lora", "blocks.*up.weight"}, {"lora_rank", "2"}});
  const std::vector<float> before = model.predict();
  model.expect(model.wanted("before"), 2e-6);
  model.train();
  EXPECT_FALSE(same_bits(model.predict(), before));
}

TEST(Outputs, AreRefusedWhereThereAreNone) {
  Classifier model(Pairs{{"keep_outputs", "logits"}});
  std::vector<float> values(15);
  const auto read = [&](const char *name, DType dtype, std::size_t bytes) {
    return error_of([&] { model->read_output(name, dtype, values.data(), bytes); }).code;
  };
  EXPECT_EQ(error_of([&] { model->predict(); }).subject, "tokens") << "never set";
  model.set_tokens(0);
  EXPECT_EQ(read("logits", DType::f32, 60), Code::state) << "before the first prediction";
  model->predict();
  EXPECT_EQ(read("logits", DType::f32, 60), Code::ok);
  EXPECT_EQ(read("logits", DType::f32, 56), Code::shape);
  EXPECT_EQ(read("logits", DType::i32, 60), Code::type);
  EXPECT_EQ(read("features", DType::f32, 84), Code::arg) << "not kept";
  model.step(0);
  EXPECT_EQ(read("logits", DType::f32, 60), Code::state) << "the step has reused the memory";
  EXPECT_EQ(error_of([] {
              Classifier(Pairs{{"keep_outputs", "logit"}});
            }).text,
            "no output of the model matches 'logit'; its outputs are logits, choice, features");
  Classifier none(Pairs{});
  none.set_tokens(0);
  EXPECT_EQ(error_of([&] { none->predict(); }).code, Code::state);
}

// A budget includes the memory of outputs that are kept. If a budget is too small, the error names the smallest budget
// that works. A session with that budget must compute the right outputs.
TEST(Outputs, AreWithinTheBudget) {
  const auto smallest = [](const Pairs &more) {
    Pairs pairs = more;
    pairs.emplace_back("memory", "4096");
    const std::string text = error_of([&] { Classifier model(pairs); }).text, mark = "smallest needs ";
    return std::stoull(text.substr(text.find(mark) + mark.size()));
  };
  const auto least = smallest({{"keep_outputs", "*"}, {"dim", "batch=3"}});
  Classifier model(Pairs{{"keep_outputs", "*"}, {"memory", std::to_string(least)}});
  model.predict();
  model.expect(model.wanted("before"), 2e-6);
}

// The mean cross entropy of logits (N, C).
double cross_entropy(const std::vector<float> &logits, const std::int64_t *labels, std::size_t classes) {
  double sum = 0;
  const std::size_t rows = logits.size() / classes;
  for (std::size_t r = 0; r < rows; ++r) {
    const float *row = logits.data() + r * classes;
    double total = 0;
    for (std::size_t c = 0; c < classes; ++c) total += std::exp(static_cast<double>(row[c]));
    sum += std::log(total) - static_cast<double>(row[labels[r]]);
  }
  return sum / static_cast<double>(rows);
}

class OutputsOf : public testing::TestWithParam<std::string> {};

// A loss that an option adds is fused with the head, so training never holds all logits. A prediction must give all of
// them, and their cross entropy must be the evaluated loss.
TEST_P(OutputsOf, GiveTheEvaluatedLoss) {
  std::ifstream file(test::fixture("control/" + GetParam() + ".json"));
  const Json golden = Json::parse(file);
  const auto session = test::open_family("control/" + GetParam(), golden, {{"keep_outputs", "logits"}});
  std::map<std::string, Values> inputs;
  for (const auto &[name, values] : golden["inputs"].items()) inputs.emplace(name, Values(values));
  for (int step = 0; step < 3; ++step) {
    for (const auto &[name, values] : inputs) session->set_input(name, values.dtype, values.batch(), values.at(0));
    const float loss = session->evaluate();
    session->predict();
    const Shape shape = session->output_shape(0);
    std::vector<float> logits(static_cast<std::size_t>(element_count(shape)));
    session->read_output("logits", DType::f32, logits.data(), logits.size() * sizeof(float));
    const auto *labels = static_cast<const std::int64_t *>(inputs.at("labels").at(0));
    EXPECT_NEAR(cross_entropy(logits, labels, static_cast<std::size_t>(shape.back())), loss, 2e-5 * loss);
    session->step();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, OutputsOf, testing::Values("gpt2", "llama", "merged-t5", "loop", "cond"),
                         test::kCaseName);

}  // namespace
}  // namespace protrain::outputs_test
