#include "session/planning.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/files.h"

namespace protrain::session {

namespace {

using graph::ValueId;

plan::Plan plan_in(const std::string &file, const graph::Graph &graph, const plan::Choice &base) {
  try {
    return plan::from_json(read_text(file), graph, base);
  } catch (Error &error) {
    error.subject = file;
    throw;
  }
}

plan::Terms terms_of(const Ground &ground) {
  plan::Terms terms{.shared_memory = ground.budget.shared_memory,
                    .barrier_only = ground.barrier,
                    .accumulates = ground.accumulation > 1,
                    .optimizer = ground.optimizer,
                    .capacity = ground.budget.bytes};
  for (ValueId gradient : ground.served.training.gradients) terms.trained.push_back(gradient != ValueId::none);
  return terms;
}

plan::Plan plan_from_file(const Ground &ground) {
  const graph::Graph &graph = ground.served.training.graph;
  plan::Choice base{.n_persist = static_cast<int>(graph.parameters.size()),
                    .slack = plan::with_terms({}, terms_of(ground)).slack,
                    .shared_memory = ground.budget.shared_memory};
  base.order = ground.barrier ? plan::OptimizerOrder::barrier : plan::OptimizerOrder::overlap;
  const plan::Plan plan = plan_in(ground.options.text("plan"), graph, base);
  require(!ground.barrier || plan.order != plan::OptimizerOrder::overlap, Code::arg, "plan",
          "clipping by norm, accumulation, fp16, skip and rollback need the optimizer order barrier; the plan's is "
          "overlap");
  require(
      ground.accumulation == 1 || !plan::defers(plan), Code::arg, "plan",
      "accumulation needs every update in its own step; the plan defers some (n_deferred, or \"deferred\" of a chunk)");
  const bool separate = !ground.budget.shared_memory;
  require(plan.shared_memory == !separate, Code::arg, "plan",
          "the plan is for {} memory of device and host, the options are for {}", separate ? "one" : "separate",
          separate ? "device_memory and host_memory" : "one budget, memory");
  return plan;
}

// Which points are laid out hangs on the budgets: so that the figures of a refusal, given together, do, they are tried
// and, where the same plan is not found again, taken from what is.
plan::Smallest verified(plan::Smallest smallest, const plan::Terms &terms,
                        const std::function<plan::Smallest(const plan::Terms &)> &find) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries && smallest.lacks; ++i) {
    plan::Terms enough = terms;
    for (std::size_t t = 0; t < kTierCount; ++t)
      enough.capacity[t] = std::max(terms.capacity[t], smallest.point.laid_out.bytes[t]);
    const plan::Smallest again = find(enough);
    if (!again.lacks) break;
    smallest.point = again.point;
  }
  return smallest;
}

}  // namespace

double Predicted::seconds(std::uint64_t accumulation) const {
  return static_cast<double>(step.step_ns + static_cast<std::int64_t>(accumulation - 1) * accumulate.step_ns) * 1e-9;
}

Predicted predict(const Draft::Programs &programs, const plan::Clock &clock) {
  const program::Queues queues = program::queues_of(clock.profile());
  return {.step = simulate(programs.step, price(programs.step, clock), queues),
          .accumulate = simulate(programs.accumulate, price(programs.accumulate, clock), queues)};
}

Chosen choose_plan(const Ground &ground) {
  if (ground.options.is_set("plan")) return {.plan = plan_from_file(ground)};
  const auto start = std::chrono::steady_clock::now();
  const graph::Graph &graph = ground.served.training.graph;
  const plan::Clock clock(ground.profile, graph, ground.optimizer);
  const plan::Terms terms = terms_of(ground);
  const plan::LayOut lay_out = [&](const plan::Plan &plan) {
    const Draft draft = ground.drafter.lower_training(plan);
    return plan::LaidOut{.bytes = draft.bytes,
                         .seconds = predict(draft.programs[0], clock).seconds(ground.accumulation),
                         .instructions = draft.programs[0].step.instructions.size()};
  };
  Chosen chosen{.found = plan::search(graph, clock, terms, lay_out)};
  if (!chosen.found.best) {
    chosen.smallest = plan::smallest(graph, clock, terms, lay_out);
    if (!chosen.smallest->lacks) chosen.found.best = chosen.smallest->point;
  }
  chosen.plan = plan::expand(graph, chosen.found.best ? chosen.found.best->choice : chosen.smallest->point.choice);
  chosen.search_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (chosen.found.best) return chosen;
  const auto find = [&](const plan::Terms &other) { return plan::smallest(graph, clock, other, lay_out); };
  chosen.smallest = verified(*chosen.smallest, terms, find);
  chosen.plan = plan::expand(graph, chosen.smallest->point.choice);
  if (plan::Terms disk = terms; terms.capacity[2] == 0) {
    disk.capacity[2] = std::numeric_limits<std::int64_t>::max();
    chosen.with_disk = verified(find(disk), disk, find).point.laid_out.bytes;
  }
  return chosen;
}

}  // namespace protrain::session
