// Sessions that follow plans drawn at random.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "draft/loaded_model.h"
#include "fixtures.h"
#include "random_plans/draw.h"
#include "scratch.h"
#include "session/session.h"

namespace protrain::test {

// GPT-2, LLaMA, and models with retention, with dropout, with BatchNorm, and with weights of four bits. The running
// statistics of BatchNorm are state that forward changes.
inline const std::vector<std::string> kModels = {
    "gpt2-dynamic-opset18", "llama-dynamic-opset23", "retention-dynamic-opset18", "dropout-gpt",
    "batch-norm",           "quantised/tokens-int4"};

inline std::string model_name(const testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '/'; }, '_');
  return name;
}

inline draft::Options options_with(const Pairs &pairs) {
  draft::Options options;
  for (const auto &[key, value] : pairs) options.set(key, value);
  return options;
}

// Options that all runs of a comparison share.
inline Pairs base_options(const std::string &model) {
  Pairs pairs = {{"learning_rate", "1e-2"},
                 {"weight_decay", "0.1"},
                 {"no_decay", "norms,biases"},
                 {"threads", "2"},
                 {"seed", "7"}};
  if (model.find("static") == std::string::npos)
    pairs.insert(pairs.end(), {{"dim", "batch=2"}, {"dim", "sequence=32"}});
  return pairs;
}

// The options that make a session follow `plan`.
inline Pairs following(const plan::Plan &plan, const Scratch &scratch) {
  Pairs pairs = {{"plan", scratch.file("plan.json", plan::to_json(plan))}, {"offload_dir", scratch.path()}};
  if (!plan.shared_memory) pairs.insert(pairs.end(), {{"device_memory", "1GiB"}, {"host_memory", "1GiB"}});
  return pairs;
}

// All results of a run, to be compared bit by bit.
struct Trace {
  std::vector<std::uint32_t> losses;
  std::vector<std::uint64_t> norms;
  std::vector<std::vector<float>> parameters;

  bool operator==(const Trace &other) const {
    bool same = losses == other.losses && norms == other.norms && parameters.size() == other.parameters.size();
    for (std::size_t p = 0; same && p < parameters.size(); ++p)
      same = parameters[p].size() == other.parameters[p].size() &&
             std::memcmp(parameters[p].data(), other.parameters[p].data(), parameters[p].size() * sizeof(float)) == 0;
    return same;
  }
};

inline void feed(session::Session &session, int step) {
  static const std::vector<std::int64_t> ids = load_tokens("input_ids.npy"), labels = load_tokens("labels.npy");
  session.set_input("input_ids", DType::i64, {kBatch, kSequence}, batch(ids, step));
  session.set_input("labels", DType::i64, {kBatch, kSequence}, batch(labels, step));
}

inline Trace train(session::Session &session, int steps) {
  Trace trace;
  for (int i = 0; i < steps; ++i) {
    feed(session, i);
    session::StepResult result = session.step();
    for (int k = 1; session.step_count() == static_cast<std::uint64_t>(i); ++k) {  // if a step takes several batches
      trace.losses.push_back(std::bit_cast<std::uint32_t>(result.loss));
      feed(session, i + 5 * k);
      result = session.step();
    }
    trace.losses.push_back(std::bit_cast<std::uint32_t>(result.loss));
    trace.norms.push_back(std::bit_cast<std::uint64_t>(result.grad_norm));
    if (i == 1) trace.losses.push_back(std::bit_cast<std::uint32_t>(session.evaluate()));
  }
  for (std::size_t p = 0; p < session.parameter_count(); ++p) {
    std::vector<float> &values =
        trace.parameters.emplace_back(static_cast<std::size_t>(element_count(session.parameter_shape(p))));
    session.read_parameter(session.parameter_name(p), values.data(), values.size());
  }
  return trace;
}

}  // namespace protrain::test
