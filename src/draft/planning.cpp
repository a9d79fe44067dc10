#include "draft/planning.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "draft/layouts.h"
#include "ops/op.h"

namespace protrain::draft {

namespace {

using graph::ValueId;

constexpr int kSearches = 8;  // the most searches for a plan that fits every rank
// A plan of a graph with at least this many nodes takes milliseconds to lay out, so that several threads are worth the
// time to start them.
constexpr std::size_t kLargeGraph = 500;
constexpr int kMostThreads = 16;  // each thread holds a Program

plan::Plan plan_in(const std::string &file, const graph::Graph &graph, const plan::Choice &base) {
  try {
    return plan::from_json(read_text(file), graph, base);
  } catch (Error &error) {
    error.subject = file;
    throw;
  }
}

plan::Terms terms_of(const PlanningInputs &inputs) {
  plan::Terms terms{.shared_memory = inputs.budget.shared_memory,
                    .barrier_only = inputs.barrier,
                    .accumulates = inputs.accumulation > 1,
                    .ranks = inputs.settings.ranks.count,
                    .optimizer = inputs.optimizer,
                    .capacity = inputs.budget.bytes};
  const grad::Training &training = inputs.variant.training;
  for (ValueId gradient : training.gradients) terms.trained.push_back(gradient != ValueId::none);
  if (!training.accumulators.empty()) return terms;
  for (const graph::Node &node : training.graph.nodes())
    if (ops::works_in_place(node)) {
      const graph::Type &type = training.graph.value(node.outputs[0]).type;
      terms.sums += byte_count(type.dtype, type.shape);
    }
  return terms;
}

plan::Plan plan_from_file(const PlanningInputs &inputs) {
  const graph::Graph &graph = inputs.variant.training.graph;
  plan::Choice base{.n_persist = static_cast<int>(graph.parameters.size()),
                    .ranks = inputs.settings.ranks.count,
                    .slack = plan::with_terms({}, terms_of(inputs)).slack,
                    .shared_memory = inputs.budget.shared_memory};
  base.order = inputs.barrier ? plan::OptimizerOrder::barrier : plan::OptimizerOrder::overlap;
  const plan::Plan plan = plan_in(inputs.settings.plan, graph, base);
  require(!inputs.barrier || plan.order != plan::OptimizerOrder::overlap, Code::arg, "plan",
          "clipping by norm, accumulation, fp16, skip and rollback need the optimizer order barrier; the plan's is "
          "overlap");
  require(inputs.accumulation == 1 || !plan::defers(plan), Code::arg, "plan",
          "accumulation needs every update in its own step; the plan defers some (n_deferred, or "
          "\"deferred\" of a chunk)");
  require(plan.ranks == base.ranks, Code::arg, "plan", "the plan is for {} ranks, and the session has {}", plan.ranks,
          base.ranks);
  const bool separate = !inputs.budget.shared_memory;
  require(plan.shared_memory == !separate, Code::arg, "plan",
          "the plan is for {} memory of device and host, the options are for {}", separate ? "one" : "separate",
          separate ? "device_memory and host_memory" : "one budget, memory");
  return plan;
}

// Returns a plan whose bytes a refusal can quote, because a search with budgets of these bytes finds a plan that fits.
// Tries `smallest` first: raises the budgets to its bytes and searches. Budgets decide which choices are laid out, so
// this search may find only a plan that needs still more bytes. In that case, tries the new plan in the same way. After
// kTries searches, returns the last plan without another search.
plan::Smallest verified(plan::Smallest smallest, const plan::Terms &terms,
                        const std::function<plan::Smallest(const plan::Terms &)> &find) {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries && smallest.lacks; ++i) {
    plan::Terms enough = terms;
    for (const Tier t : kTiers) enough.capacity[t] = std::max(terms.capacity[t], smallest.point.cost.bytes[t]);
    const plan::Smallest again = find(enough);
    if (!again.lacks) break;
    smallest.point = again.point;
  }
  return smallest;
}

// RanksSearch searches for a plan that fits every rank. The search itself lays out only this rank's Programs, because
// those of another rank differ by a few grains only and would take as long to lay out. Only the plan that was found is
// then laid out for all ranks.
class RanksSearch {
 public:
  RanksSearch(const PlanningInputs &inputs, const plan::Durations &durations)
      : inputs_(inputs), durations_(durations), graph_(inputs.variant.training.graph) {}

  // Searches for a plan that fits all ranks, and returns the search's result. If the plan that a search found does not
  // fit another rank, searches again, at most kSearches times in all. If the other rank needs more bytes for that plan
  // than this rank, the new search adds the difference to the bytes of every plan.
  plan::SearchResult best(const plan::Terms &terms) const {
    plan::SearchResult found;
    plan::Bytes more{};
    for (int i = 0; i < kSearches; ++i) {
      Layouts layouts([&](const plan::Plan &plan) { return cost(plan, more); }, threads());
      found = plan::search(
          graph_, durations_, terms, [&](const plan::Plan &plan) { return layouts.cost(plan); },
          [&](std::size_t count, const plan::Task &task) { layouts.until_true(count, task); });
      if (!found.best) break;
      plan::Bytes all = found.best->cost.bytes;
      for (const Tier t : kTiers) all[t] -= more[t];
      raise(all, found.best->choice);
      if (plan::fits(all, terms.capacity)) {
        found.best->cost.bytes = all;
        break;
      }
      for (const Tier t : kTiers) more[t] += all[t] - std::min(all[t], found.best->cost.bytes[t]);
      found.best.reset();
    }
    return found;
  }

  // Lays out the resident plan alone. The result has it as its best if it fits all ranks.
  plan::SearchResult resident(const plan::Terms &terms) const {
    plan::SearchResult found =
        plan::search_resident(graph_, durations_, terms, [this](const plan::Plan &plan) { return cost(plan, {}); });
    if (!found.best) return found;
    raise(found.best->cost.bytes, found.best->choice);
    if (!plan::fits(found.best->cost.bytes, terms.capacity)) found.best.reset();
    return found;
  }

  plan::Smallest smallest(const plan::Terms &terms) const {
    plan::Smallest found =
        plan::smallest(graph_, durations_, terms, [this](const plan::Plan &plan) { return cost(plan, {}); });
    raise(found.point.cost.bytes, found.point.choice);
    found.lacks = plan::first_lacking(found.point.cost.bytes, terms.capacity);
    return found;
  }

 private:
  int threads() const {
    if (graph_.node_count() < kLargeGraph) return 1;
    return std::min(inputs_.settings.threads > 0 ? inputs_.settings.threads : available_threads(), kMostThreads);
  }

  plan::PlanCost cost(const plan::Plan &plan, const plan::Bytes &more) const {
    const ProgramSet programs = inputs_.lowering.lower_training(plan);
    plan::PlanCost cost{.bytes = programs.bytes,
                        .seconds = simulate_step(programs.variants[0], durations_).seconds(inputs_.accumulation),
                        .instructions = programs.variants[0].step.instructions.size()};
    for (const Tier t : kTiers) cost.bytes[t] += more[t];
    return cost;
  }

  void raise(plan::Bytes &bytes, const plan::Choice &choice) const {
    inputs_.others.raise(bytes, plan::expand(graph_, choice));
  }

  const PlanningInputs &inputs_;
  const plan::Durations &durations_;
  const graph::Graph &graph_;
};

}  // namespace

double StepSimulation::seconds(std::uint64_t accumulation) const {
  const auto others = static_cast<double>(accumulation - 1);
  return (static_cast<double>(step.step_ns) + others * static_cast<double>(accumulate.step_ns)) * 1e-9;
}

StepSimulation simulate_step(const ProgramSet::Variant &programs, const plan::Durations &durations) {
  const program::Queues queues = program::queues_of(durations.profile());
  return {.step = simulate(programs.step, price(programs.step, durations), queues),
          .accumulate = simulate(programs.accumulate, price(programs.accumulate, durations), queues)};
}

Decision choose_plan(const PlanningInputs &inputs) {
  if (!inputs.settings.plan.empty()) return {.plan = plan_from_file(inputs)};
  const auto start = std::chrono::steady_clock::now();
  const graph::Graph &graph = inputs.variant.training.graph;
  const plan::Durations durations(inputs.profile, graph, inputs.optimizer);
  const plan::Terms terms = terms_of(inputs);
  const RanksSearch search(inputs, durations);
  Decision decision{.found = inputs.goal == Goal::any ? search.resident(terms) : search.best(terms)};
  if (!decision.found.best) {
    decision.smallest = search.smallest(terms);
    if (!decision.smallest->lacks) decision.found.best = decision.smallest->point;
  }
  decision.plan =
      plan::expand(graph, decision.found.best ? decision.found.best->choice : decision.smallest->point.choice);
  decision.search_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (decision.found.best || inputs.goal != Goal::best_or_budgets) return decision;
  const auto find = [&](const plan::Terms &other) { return search.smallest(other); };
  decision.smallest = verified(*decision.smallest, terms, find);
  decision.plan = plan::expand(graph, decision.smallest->point.choice);
  if (plan::Terms disk = terms; terms.capacity[Tier::disk] == 0) {
    disk.capacity[Tier::disk] = std::numeric_limits<std::int64_t>::max();
    decision.with_disk = verified(find(disk), disk, find).point.cost.bytes;
  }
  return decision;
}

}  // namespace protrain::draft
