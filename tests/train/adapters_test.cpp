// Low-rank adapters train as PEFT trains them: fixtures/make_adapters.py recorded the losses of 50 AdamW steps.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "draft/merge.h"
#include "scratch.h"
#include "session/session.h"
#include "train/adapter_start.h"
#include "train/command.h"
#include "train/family.h"

namespace protrain::adapters_test {
namespace {

namespace fs = std::filesystem;
using test::Json;

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto &entry : fs::directory_iterator(test::fixture("adapters")))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

Json read_json(const std::string &name) {
  std::ifstream file(test::fixture(name));
  return Json::parse(file);
}

std::vector<std::string> parameter_names(const session::Session &session) {
  std::vector<std::string> names;
  for (std::size_t p = 0; p < session.parameter_count(); ++p) names.push_back(session.parameter_name(p));
  std::ranges::sort(names);
  return names;
}

class Adapters : public testing::TestWithParam<std::string> {};

TEST_P(Adapters, FollowPeft) {
  const Json golden = read_json("adapters/" + GetParam() + ".json");
  const std::string file = golden["file"];
  Json family = test::golden_of(file);
  family["options"].update(golden["options"]);
  const auto session = test::open_family("families/" + file, family);
  EXPECT_EQ(parameter_names(*session), golden["names"].get<std::vector<std::string>>());
  test::start_like_peft(*session);
  std::map<std::string, test::Values> inputs;
  for (const auto &[name, values] : family["inputs"].items()) inputs.emplace(name, test::Values(values));
  const std::vector<double> losses = golden["losses"];
  double worst = 0;
  for (std::size_t step = 0; step < losses.size(); ++step) {
    for (const auto &[name, values] : inputs)
      session->set_input(name, values.dtype, values.batch(), values.at(step % test::kSteps));
    const double loss = session->step().loss;
    worst = std::max(worst, std::abs(loss - losses[step]) / losses[step]);
  }
  EXPECT_LT(worst, 1e-4);
  RecordProperty("worst", std::to_string(worst));
}

// The first batch's loss in a session with these options.
double evaluated(const std::string &model, Json family, const Json &options) {
  family["options"].update(options);
  const auto session = test::open_family(model, family);
  for (const auto &[name, json] : family["inputs"].items()) {
    const test::Values values(json);
    session->set_input(name, values.dtype, values.batch(), values.at(0));
  }
  return session->evaluate();
}

class SavedByPeft : public testing::TestWithParam<const char *> {};

TEST_P(SavedByPeft, GivesPeftsLossInASessionAndMerged) {
  const Json golden = read_json(std::string("adapters/") + GetParam() + ".json");
  const std::string model = "families/" + golden["file"].get<std::string>();
  const std::string adapter = test::fixture(std::string("adapters/") + GetParam());
  const Json family = test::golden_of(golden["file"]);
  const double after = golden["after"];
  EXPECT_NEAR(evaluated(model, family, {{"adapter", adapter}}), after, 1e-5 * after);
  EXPECT_GT(std::abs(evaluated(model, family, Json::object()) - after), 1e-3 * after);
  const test::Scratch scratch;
  draft::Options options;
  for (const auto &[dim, size] : family["dims"].items())
    options.set("dim", dim + "=" + std::to_string(size.get<int>()));
  draft::merge_adapter(options, test::fixture(model + ".onnx"), adapter, scratch / "merged.onnx");
  const std::string merged = std::filesystem::relative(scratch / "merged", test::fixture(""));
  EXPECT_NEAR(evaluated(merged, family, Json::object()), after, 1e-5 * after);
}

INSTANTIATE_TEST_SUITE_P(Cases, SavedByPeft, testing::Values("bert", "qwen3"));

INSTANTIATE_TEST_SUITE_P(Families, Adapters, testing::ValuesIn(cases()), test::kCaseName);

}  // namespace
}  // namespace protrain::adapters_test
