// Plans drawn at random, and sessions that follow them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include "fixtures.h"
#include "plan/plan.h"
#include "scratch.h"
#include "session/loaded_model.h"
#include "session/session.h"

namespace protrain::test {

using Pairs = std::vector<std::pair<std::string, std::string>>;

// Two families of fixtures, an export of our own, and one with dropout.
inline const std::vector<std::string> kModels = {"gpt2-dynamic-opset18", "llama-dynamic-opset23",
                                                 "retention-dynamic-opset18", "dropout-gpt"};

inline std::string model_name(const testing::TestParamInfo<std::string> &info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

inline session::Options options_with(const Pairs &pairs) {
  session::Options options;
  for (const auto &[key, value] : pairs) options.set(key, value);
  return options;
}

// What every run of a comparison has.
inline Pairs base_options(const std::string &model) {
  Pairs pairs = {{"learning_rate", "1e-2"}, {"weight_decay", "0.1"}, {"threads", "2"}, {"seed", "7"}};
  if (model.find("static") == std::string::npos)
    pairs.insert(pairs.end(), {{"dim", "batch=2"}, {"dim", "sequence=32"}});
  return pairs;
}

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}

  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }

  plan::Plan plan(const graph::Graph &graph, std::optional<plan::OptimizerOrder> order = std::nullopt) {
    const std::uint64_t sizes[] = {1 << 10, 16 << 10, 64 << 10, 256 << 10, 64 << 20};
    plan::Plan plan;
    plan.shared_memory = chance(0.3);
    plan.order = order.value_or(chance(0.4) ? plan::OptimizerOrder::barrier : plan::OptimizerOrder::overlap);
    plan.chunks = plan::cut_chunks(graph, sizes[below(5)]);
    plan.piece_bytes = chance(0.5) ? 4096u << below(5) : plan::kPieceBytes;
    plan.slack = below(4);
    const double leave = below(4) / 3.0, disk = below(3) / 2.0;
    for (plan::Chunk &chunk : plan.chunks) {
      if (!chance(leave)) continue;
      chunk.tier = chance(disk) ? Tier::disk : Tier::host;
      chunk.update = plan.shared_memory || chance(0.3) ? Tier::device : Tier::host;
    }
    plan.n_persist = static_cast<int>(
        std::ranges::count_if(plan.chunks, [](const plan::Chunk &chunk) { return chunk.tier == Tier::device; }));
    plan.n_buffer = below(static_cast<int>(plan.chunks.size()) - plan.n_persist + 1);
    const int favourite = below(5);
    for (int b = 0; b < plan::count_blocks(graph); ++b)
      plan.blocks.push_back(static_cast<plan::BlockMode>(favourite < 4 && chance(0.6) ? favourite : below(4)));
    for (plan::BlockMode mode : plan.blocks) {
      plan.n_swap += mode == plan::BlockMode::swap;
      plan.n_checkpoint += mode == plan::BlockMode::recompute;
      plan.n_selective += mode == plan::BlockMode::selective;
    }
    return plan;
  }

  // How it is run: where bits could depend on it they must not.
  Pairs trial() {
    Pairs pairs;
    if (chance(0.6)) pairs.emplace_back("trial", "workers");
    if (chance(0.4)) pairs.emplace_back("trial", "delays");
    if (chance(0.6)) pairs.emplace_back("trial", "poison");
    return pairs;
  }

 private:
  std::mt19937 random_;
};

// The options that make a session follow `plan`.
inline Pairs following(const plan::Plan &plan, const Scratch &scratch) {
  Pairs pairs = {{"plan", scratch.file("plan.json", plan::to_json(plan))}, {"offload_dir", scratch.path()}};
  if (!plan.shared_memory) pairs.insert(pairs.end(), {{"device_memory", "1GiB"}, {"host_memory", "1GiB"}});
  return pairs;
}

// Everything that a run leaves, as bits.
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
    for (int k = 1; session.step_count() == static_cast<std::uint64_t>(i); ++k) {  // more batches make a step
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
