// Parameter groups and schedules must train as PyTorch's do, as fixtures/make_rates.py recorded it.
#include <gtest/gtest.h>

#include "train/family.h"

namespace protrain::groups_test {
namespace {

using test::Json;

TEST(Groups, FollowTheLossesOfPyTorch) {
  std::ifstream file(test::fixture("rates/blocks.json"));
  const Json golden = Json::parse(file);
  const test::Values x(golden["inputs"]["x"]), y(golden["inputs"]["y"]);
  std::vector<std::vector<double>> all;
  for (const Json &run : golden["runs"]) {
    draft::Options options;
    options.set("learning_rate", golden["learning_rate"].dump());
    for (const auto &[key, value] : run["options"].items()) options.set(key, value.get<std::string>());
    const auto session = session::Session::create(options, test::fixture("rates/blocks.onnx"), nullptr);
    const std::vector<double> losses = run["losses"];
    for (std::size_t step = 0; step < losses.size(); ++step) {
      session->set_input("x", x.dtype, x.batch(), x.at(step));
      session->set_input("y", y.dtype, y.batch(), y.at(step));
      EXPECT_NEAR(session->step().loss, losses[step], 1e-4 * losses[step]) << run["options"] << " step " << step + 1;
    }
    for (const std::vector<double> &other : all)
      EXPECT_GT(std::abs(other[1] - losses[1]), 1e-3 * losses[1]) << "the options must show in the losses";
    all.push_back(losses);
  }
}

}  // namespace
}  // namespace protrain::groups_test
