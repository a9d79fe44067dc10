// The norms of gradients by group, in the log and the report of sessions.
#include "session/group_norms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "fixtures.h"
#include "scratch.h"
#include "session/report.h"
#include "session/session.h"

namespace protrain::session::group_norms_test {
namespace {

using Json = nlohmann::ordered_json;
using Pairs = std::vector<std::pair<std::string, std::string>>;
using Norms = std::map<std::string, double>;

// A session of the small GPT-2, which has four layers, and the log line of its last step.
class Training {
 public:
  explicit Training(Pairs more = {}) {
    draft::Options options;
    more.insert(more.begin(),
                {{"dim", "batch=2"}, {"dim", "sequence=32"}, {"threads", "2"}, {"learning_rate", "1e-2"}});
    for (const auto &[key, value] : more) options.set(key, value);
    session_ = Session::create(options, test::fixture("gpt2-dynamic-opset18.onnx"), [this](const std::string &line) {
      if (const Json event = Json::parse(line); event["event"] == "step") step_ = event;
    });
  }

  // Takes a batch and returns the norms of the step's log line.
  Norms step(int number) {
    session_->set_input("input_ids", DType::i64, {test::kBatch, test::kSequence}, test::batch(ids_, number));
    session_->set_input("labels", DType::i64, {test::kBatch, test::kSequence}, test::batch(labels_, number));
    session_->step();
    return step_.value("grad_norms", Norms());
  }
  Json report() { return Json::parse(session_->report_json()); }
  Session &session() { return *session_; }

 private:
  const std::vector<std::int64_t> ids_ = test::load_tokens("input_ids.npy"), labels_ = test::load_tokens("labels.npy");
  Json step_ = Json::object();
  std::unique_ptr<Session> session_;
};

std::vector<std::string> names_of(const Norms &norms) {
  std::vector<std::string> names;
  for (const auto &[name, norm] : norms) names.push_back(name);
  return names;
}

double norm_of_all(const Norms &norms) {
  double sum = 0;
  for (const auto &[name, norm] : norms) sum += norm * norm;
  return std::sqrt(sum);
}

// Returns the norms of the gradients that the session shows. `group_of` gives the group of a parameter's name.
template <typename GroupOf>
Norms norms_of_gradients(Session &session, GroupOf group_of) {
  Norms norms;
  for (std::size_t p = 0; p < session.parameter_count(); ++p) {
    std::vector<float> gradient(static_cast<std::size_t>(element_count(session.parameter_shape(p))));
    session.read_grad(session.parameter_name(p), gradient.data(), gradient.size());
    double &sum = norms[group_of(session.parameter_name(p))];
    for (const float g : gradient) sum += static_cast<double>(g) * g;
  }
  for (auto &[name, norm] : norms) norm = std::sqrt(norm);
  return norms;
}

// Returns the group of a parameter: its layer, or "before" or "after" the layers. The head's weight is also the table
// of tokens, so it lies before the layers.
std::string layer_of(const std::string &name) {
  const std::string head = "m.transformer.h.";
  if (name.starts_with(head)) return "layer " + name.substr(head.size(), 1);
  return name == "m.lm_head.weight" || name == "m.transformer.wpe.weight" ? "before" : "after";
}

void expect_near(const Norms &found, const Norms &expected) {
  ASSERT_EQ(names_of(found), names_of(expected));
  for (const auto &[name, norm] : expected) {
    EXPECT_GT(norm, 0) << name;
    EXPECT_NEAR(found.at(name), norm, 1e-5 * norm) << name;
  }
}

TEST(GroupNorms, HaveSquaresWhoseSumIsThatOfAllGradients) {
  for (const Pairs &options : {Pairs{}, Pairs{{"group", "*.bias,weight_decay=0"}}, Pairs{{"clip_norm", "0.1"}},
                               Pairs{{"precision", "bf16"}}, Pairs{{"precision", "fp16"}}}) {
    Training training(options);
    for (int i = 0; i < 3; ++i) {
      const Norms norms = training.step(i);
      EXPECT_GE(norms.size(), 2u);
      const double all = training.session().grad_norm();
      EXPECT_NEAR(norm_of_all(norms), all, 1e-12 * all) << Json(options);
    }
  }
}

TEST(GroupNorms, AreThoseOfTheGradientsOfEachLayer) {
  Training training(Pairs{{"keep_gradients", "*"}});
  const Norms norms = training.step(0);
  EXPECT_EQ(names_of(norms), (std::vector<std::string>{"after", "before", "layer 0", "layer 1", "layer 2", "layer 3"}));
  expect_near(norms, norms_of_gradients(training.session(), layer_of));
}

TEST(GroupNorms, AreThoseOfTheGradientsOfEachPattern) {
  Training training(Pairs{{"keep_gradients", "*"},
                          {"group", "*.ln_?.*,weight_decay=0"},
                          {"group", "*.bias,learning_rate_scale=2"},
                          {"group", "*.ln_1.*,weight_decay=0"}});
  const Norms norms = training.step(0);
  expect_near(norms, norms_of_gradients(training.session(), [](const std::string &name) {
                return name.find(".ln_1.") != std::string::npos || name.find(".ln_2.") != std::string::npos ||
                               name.find(".ln_f.") != std::string::npos
                           ? "*.ln_?.*"
                       : name.ends_with(".bias") ? "*.bias"
                                                 : "*";
              }));
}

TEST(GroupNorms, AreOfWholeStepsThatHaveSeveralBatches) {
  Training training(Pairs{{"keep_gradients", "*"}, {"accumulation", "2"}, {"precision", "fp16"}});
  EXPECT_EQ(training.step(0), Norms()) << "the step is not complete";
  const Norms norms = training.step(1);
  EXPECT_NEAR(norm_of_all(norms), training.session().grad_norm(), 1e-12 * norm_of_all(norms));
  expect_near(norms, norms_of_gradients(training.session(), layer_of));
}

TEST(GroupNorms, OfAdaptersAreThoseOfTheLayersAlone) {
  Training training({{"lora", "*c_fc.weight"}, {"lora_rank", "4"}, {"keep_gradients", "*"}});
  training.step(0);
  const Norms norms = training.step(1);
  EXPECT_EQ(names_of(norms), (std::vector<std::string>{"layer 0", "layer 1", "layer 2", "layer 3"}));
  EXPECT_NEAR(norm_of_all(norms), training.session().grad_norm(), 1e-12 * norm_of_all(norms));
  expect_near(norms, norms_of_gradients(training.session(), layer_of));
}

TEST(GroupNorms, GoOnAfterACheckpoint) {
  const test::Scratch scratch;
  Training first;
  first.step(0);
  first.step(1);
  const std::string checkpoint = first.session().save(scratch / "run");
  Training second(Pairs{{"resume", checkpoint}});
  EXPECT_EQ(second.report()["grad_norms"], Json::object());
  EXPECT_EQ(second.report()["grad_norms_step"], 0);
  EXPECT_EQ(second.step(2), first.step(2));
  EXPECT_EQ(second.report()["grad_norms_step"], 3);
}

TEST(GroupNorms, InTheReportAreThoseOfTheLastStepInTheOrderOfForward) {
  Training training;
  training.step(0);
  const Norms norms = training.step(1);
  const Json report = training.report();
  EXPECT_EQ(report["grad_norms_step"], 2);
  EXPECT_EQ(report["grad_norms"].get<Norms>(), norms);
  std::vector<std::string> names;
  for (const auto &[name, norm] : report["grad_norms"].items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"before", "layer 0", "layer 1", "layer 2", "layer 3", "after"}));
}

TEST(GroupNorms, OfAnEarlierStepAreNotInAStepsLine) {
  GroupNorms norms({.names = {"a", "empty", "*"}, .of_parameter = {0, 2, 1, 0}}, {{0, "w0"}, {1, "w1"}, {3, "w3"}});
  norms.take(7, {{0, "w0", 36}, {1, "w1", 100}, {3, "w3", 64}}, 2);
  EXPECT_EQ(Json::parse(step_json(7, {}, 0, 0, norms))["grad_norms"], (Json{{"a", 5.0}, {"*", 5.0}}));
  EXPECT_FALSE(Json::parse(step_json(8, {}, 0, 0, norms)).contains("grad_norms"));
}

TEST(GroupNorms, ThatAreNotFiniteAreNull) {
  GroupNorms norms({.names = {"a", "b"}, .of_parameter = {0, 1}}, {{0, "w0"}, {1, "w1"}});
  norms.take(1, {{0, "w0", 4}, {1, "w1", NAN}}, 1);
  EXPECT_EQ(Json::parse(norms.json().dump()), (Json{{"a", 2.0}, {"b", nullptr}}));
}

}  // namespace
}  // namespace protrain::session::group_norms_test
