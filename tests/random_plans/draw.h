// Plans drawn at random.
#pragma once

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace protrain::test {

using Pairs = std::vector<std::pair<std::string, std::string>>;

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}

  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(random_); }

  plan::OptimizerOrder order() { return chance(0.5) ? plan::OptimizerOrder::barrier : plan::OptimizerOrder::overlap; }

  // Draws a plan that defers no updates.
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

  // Returns the plan with some or all updates deferred to the next step.
  plan::Plan deferring(plan::Plan plan) {
    const int some = below(3);
    for (plan::Chunk &chunk : plan.chunks) chunk.deferred = some == 0 || chance(0.5);
    return plan;
  }

  // Draws values of the option `trial`, which must not change any bits.
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

}  // namespace protrain::test
