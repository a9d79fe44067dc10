// A model with functions must train to the same bits as the flat model that ONNX's own inliner makes of it.
#include <gtest/gtest.h>

#include <cmath>

#include "fixtures.h"
#include "session/session.h"

namespace protrain::session::functions_test {
namespace {

constexpr int kRows = 4, kWidth = 8, kOut = 4;

std::vector<float> trained(const std::string &model) {
  draft::Options options;
  for (const auto &[key, value] : {std::pair("dim", "batch=4"), {"threads", "1"}}) options.set(key, value);
  const auto session = Session::create(options, test::fixture(model), nullptr);
  std::vector<float> x(kRows * kWidth), target(kRows * kOut), found;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
  for (std::size_t i = 0; i < target.size(); ++i) target[i] = std::cos(static_cast<float>(i));
  for (int step = 0; step < 5; ++step) {
    session->set_input("x", DType::f32, {kRows, kWidth}, x.data());
    session->set_input("target", DType::f32, {kRows, kOut}, target.data());
    const StepResult result = session->step();
    found.push_back(result.loss);
    found.push_back(static_cast<float>(result.grad_norm));
  }
  for (const auto &[name, count] : {std::pair("u1", 128), {"g0", 8}, {"w", 32}}) {
    std::vector<float> values(static_cast<std::size_t>(count));
    session->read_parameter(name, values.data(), values.size());
    found.insert(found.end(), values.begin(), values.end());
  }
  return found;
}

TEST(Functions, TrainToTheBitsOfTheFlatModel) {
  const std::vector<float> with = trained("functions.onnx");
  EXPECT_EQ(with, trained("functions-flat.onnx"));
  EXPECT_LT(with[8], with[0]);  // the loss falls
}

}  // namespace
}  // namespace protrain::session::functions_test
