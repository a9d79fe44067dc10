// The models under tests/fixtures, their inputs, and PyTorch's results on them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace protrain::test {

inline std::string fixture(const std::string &name) { return std::string(PROTRAIN_FIXTURES) + "/" + name; }

// Golden losses and norms of a family: "gpt2", "opt", "llama", "mistral".
inline nlohmann::json golden(const std::string &family) {
  std::ifstream file(fixture(family + ".json"));
  return nlohmann::json::parse(file);
}

inline constexpr int kSteps = 10, kBatch = 2, kSequence = 32;  // axes of input_ids.npy and labels.npy

// Reads a version 1 .npy file of int64 values (kSteps, kBatch, kSequence).
inline std::vector<std::int64_t> load_tokens(const std::string &name) {
  std::ifstream file(fixture(name), std::ios::binary);
  char head[10];
  file.read(head, sizeof head);
  const int header_bytes = static_cast<unsigned char>(head[8]) + 256 * static_cast<unsigned char>(head[9]);
  file.ignore(header_bytes);
  std::vector<std::int64_t> values(std::size_t{kSteps} * kBatch * kSequence);
  file.read(reinterpret_cast<char *>(values.data()), static_cast<std::streamsize>(values.size() * sizeof values[0]));
  if (!file) throw std::runtime_error("cannot read " + fixture(name));
  return values;
}

// One step's batch, (kBatch, kSequence).
inline const std::int64_t *batch(const std::vector<std::int64_t> &values, int step) {
  return values.data() + std::ptrdiff_t{step % kSteps} * kBatch * kSequence;
}

inline const std::vector<std::string> &model_files() {
  static const std::vector<std::string> files = [] {
    std::vector<std::string> all;
    for (const char *family : {"gpt2", "opt", "llama", "mistral"})
      for (const char *form : {"static-opset18", "dynamic-opset18", "dynamic-opset23"})
        all.push_back(std::string(family) + "-" + form);
    return all;
  }();
  return files;
}

// Returns `name` with '_' for '-'. GoogleTest allows only letters, digits and '_' in the name of a case.
inline std::string case_name(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}
inline constexpr auto kCaseName = [](const auto &info) { return case_name(info.param); };

inline std::string family_of(const std::string &file) { return file.substr(0, file.find('-')); }

}  // namespace protrain::test
