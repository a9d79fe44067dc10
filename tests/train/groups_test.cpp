// Parameter groups, schedules, Lion and the moving average of weights. The losses and averages must be those that
// fixtures/make_rates.py recorded in PyTorch.
#include <gtest/gtest.h>

#include "scratch.h"
#include "train/family.h"

namespace protrain::groups_test {
namespace {

using test::Json;

// Exports the moving averages. The weights of the exported model must be PyTorch's averages.
void expect_averages(session::Session &session, const Json &averages) {
  const test::Scratch scratch;
  session.export_model(scratch / "average.onnx");
  const auto exported = session::Session::create({}, scratch / "average.onnx", nullptr);
  double apart = 0;
  for (const auto &[name, values] : averages.items()) {
    const std::vector<double> right = values;
    std::vector<float> found(right.size()), trained(right.size());
    exported->read_parameter(name, found.data(), found.size());
    session.read_parameter(name, trained.data(), trained.size());
    for (std::size_t i = 0; i < right.size(); ++i) {
      EXPECT_NEAR(double(found[i]), right[i], 2e-5) << name << " " << i;
      apart = std::max(apart, std::abs(double(trained[i]) - right[i]));
    }
  }
  EXPECT_GT(apart, 1e-3) << "the averages must differ from the weights";
}

TEST(Groups, FollowTheLossesOfPyTorch) {
  std::ifstream file(test::fixture("rates/blocks.json"));
  const Json golden = Json::parse(file);
  const test::Values x(golden["inputs"]["x"]), y(golden["inputs"]["y"]);
  std::vector<std::vector<double>> all;
  for (const Json &run : golden["runs"]) {
    draft::Options options;
    options.set("learning_rate", golden["learning_rate"].dump());
    for (const auto &[key, value] : run["options"].items()) options.set(key, value.get<std::string>());
    if (run.contains("averages")) options.set("export_weights", "ema");
    const auto session = session::Session::create(options, test::fixture("rates/blocks.onnx"), nullptr);
    const std::vector<double> losses = run["losses"];
    for (std::size_t step = 0; step < losses.size(); ++step) {
      session->set_input("x", x.dtype, x.batch(), x.at(step));
      session->set_input("y", y.dtype, y.batch(), y.at(step));
      EXPECT_NEAR(session->step().loss, losses[step], 1e-4 * losses[step]) << run["options"] << " step " << step + 1;
    }
    if (run.contains("averages")) expect_averages(*session, run["averages"]);
    for (const std::vector<double> &other : all)
      EXPECT_GT(std::abs(other[1] - losses[1]), 1e-3 * losses[1]) << "the options must show in the losses";
    all.push_back(losses);
  }
}

}  // namespace
}  // namespace protrain::groups_test
