// The many model families that fixtures/export_families.py exported, each with its loss inside. They must follow
// PyTorch's losses for ten AdamW steps. They must also have PyTorch's number of parameters and gradient norms.
// Exporters rename parameters, so norms cannot be matched by name. They are compared as sorted lists.
#include <gtest/gtest.h>

#include <map>

#include "session/session.h"
#include "train/command.h"
#include "train/family.h"

namespace protrain::families_test {
namespace {

namespace fs = std::filesystem;
using test::Json;

std::vector<std::string> exports() {
  std::vector<std::string> names;
  for (const auto &entry : fs::directory_iterator(test::fixture("families")))
    if (entry.path().extension() == ".onnx") names.push_back(entry.path().stem());
  std::ranges::sort(names);
  return names;
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, FollowPyTorch) {
  const Json golden = test::golden_of(GetParam());
  const auto session = test::open_family("families/" + GetParam(), golden);
  std::map<std::string, test::Values> inputs;
  for (const auto &[name, values] : golden["inputs"].items()) inputs.emplace(name, test::Values(values));

  const std::vector<double> losses = golden["losses"];
  const double global = golden["grad_norms"][0];
  for (std::size_t step = 0; step < losses.size(); ++step) {
    for (const auto &[name, values] : inputs) session->set_input(name, values.dtype, values.batch(), values.at(step));
    const session::StepResult result = session->step();
    const double tolerance = (step == 0 ? 2e-6 : 5e-4) * std::abs(losses[step]);
    EXPECT_NEAR(result.loss, losses[step], tolerance) << "step " << step + 1;
    if (step > 0) continue;
    EXPECT_NEAR(result.grad_norm, global, 1e-4 * global);
    test::expect_norms(test::sorted_gradient_norms(*session), golden);
  }
  const Json alarms = Json::parse(session->report_json())["alarms"];
  EXPECT_TRUE(alarms.empty()) << "a sound run raises no alarm: " << alarms;
}

INSTANTIATE_TEST_SUITE_P(Exports, Families, testing::ValuesIn(exports()), [](const auto &info) {
  std::string name = info.param;
  for (char &c : name)
    if (c == '-' || c == '.') c = '_';
  return name;
});

}  // namespace
}  // namespace protrain::families_test
