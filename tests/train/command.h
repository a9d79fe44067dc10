// Runs `protrain train` on the fixtures' inputs, and compares results with PyTorch's.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "fixtures.h"

namespace protrain::test {

using Json = nlohmann::json;

// Trains ten steps with the command and returns the lines of its metrics file.
inline std::vector<Json> train(const std::string &model, const std::string &precision = "fp32") {
  const std::filesystem::path metrics =
      std::filesystem::temp_directory_path() / ("protrain-golden-" + std::to_string(getpid()) + ".jsonl");
  const std::string command = std::string(PROTRAIN_COMMAND) + " train " + model +
                              " --steps 10 --input input_ids=" + fixture("input_ids.npy") +
                              " --input labels=" + fixture("labels.npy") +
                              " --learning-rate 1e-3 --beta1 0.9 --beta2 0.95 --epsilon 1e-8 --weight-decay 0.1" +
                              " --precision " + precision + " --metrics " + metrics.string() + " > /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::vector<Json> lines;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  std::filesystem::remove(metrics);
  return lines;
}

inline void expect_losses(const std::vector<Json> &lines, const Json &golden) {
  const std::vector<double> losses = golden["losses"];
  ASSERT_EQ(lines.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double tolerance = (i == 0 ? 2e-6 : 5e-4) * losses[i];
    EXPECT_NEAR(lines[i]["loss"].get<double>(), losses[i], tolerance) << "step " << i + 1;
  }
}

// Returns the norms of the session's last gradients in ascending order, one for each parameter whose gradient is kept.
template <typename Session>
std::vector<double> sorted_gradient_norms(Session &session) {
  std::vector<double> norms;
  for (std::size_t p = 0; p < session.parameter_count(); ++p) {
    std::size_t count = 1;
    for (std::int64_t dim : session.parameter_shape(p)) count *= static_cast<std::size_t>(dim);
    std::vector<float> gradient(count);
    try {
      session.read_grad(session.parameter_name(p), gradient.data(), count);
    } catch (const std::exception &) {
      continue;  // a frozen parameter, which has no gradient; callers check the number of norms
    }
    double sum = 0;
    for (float g : gradient) sum += static_cast<double>(g) * g;
    norms.push_back(std::sqrt(sum));
  }
  std::ranges::sort(norms);
  return norms;
}

// Compares gradient norms, and their number, with PyTorch's. Exports rename parameters, so norms cannot be compared by
// name. Both lists are compared in ascending order instead: `found` is in this order, and PyTorch's norms are sorted
// here.
inline void expect_norms(const std::vector<double> &found, const Json &golden) {
  const double global = golden["grad_norms"][0];
  std::vector<double> expected;
  for (const auto &[name, norm] : golden["step1_param_grad_norms"].items()) expected.push_back(norm);
  std::ranges::sort(expected);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], std::max(1e-4 * expected[i], 1e-6 * global)) << "norm " << i;
}

}  // namespace protrain::test
