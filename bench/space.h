// Space: all plans of a model on a machine. Each plan can be laid out and simulated as in the search, but without
// ranking. Benchmarks and tests compare the plan that the search finds with the plans of a Space.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "draft/estimate.h"

namespace protrain::bench {

struct GridPoint {
  plan::Choice choice;
  plan::PlanCost out;
};

using plan::fits;

// Space takes a session's settings and a target machine. It derives the same terms, durations and lowering from them as
// a session does for the search, so that its plans can be compared with those of the search.
class Space {
 public:
  Space(const draft::Settings &settings, const std::string &model, std::unique_ptr<draft::TargetMachine> machine)
      : machine_(std::move(machine)),
        draft_(draft::estimate(settings, model, *machine_)),
        request_{.optimizer = program::optimizer_arrays(settings.precision, settings.optimizer.state()),
                 .accumulates = draft_.accumulation > 1,
                 .kept = draft_.kept},
        lowering_(draft_.variants, *machine_, request_),
        durations_(draft_.profile, graph(), optimizer_bytes()),
        terms{.shared_memory = draft_.budget.shared_memory,
              .barrier_only = settings.clip_norm > 0 || request_.accumulates ||
                              settings.on_nonfinite != draft::NonfinitePolicy::stop,
              .accumulates = request_.accumulates,
              .optimizer = optimizer_bytes(),
              .capacity = draft_.budget.bytes} {
    for (graph::ValueId gradient : draft_.first().training.gradients)
      terms.trained.push_back(gradient != graph::ValueId::none);
  }

  const graph::Graph &graph() const { return draft_.first().training.graph; }
  const plan::Durations &durations() const { return durations_; }

  plan::PlanCost lay_out(const plan::Plan &plan) const {
    const draft::ProgramSet programs = lowering_.lower_training(plan);
    const draft::ProgramSet::Variant &first = programs.variants[0];
    return {programs.bytes, draft::simulate_step(first, durations_).seconds(draft_.accumulation),
            first.step.instructions.size()};
  }
  plan::SearchResult search() const {
    return plan::search(graph(), durations_, terms, [this](const plan::Plan &plan) { return lay_out(plan); });
  }
  plan::Smallest smallest() const {
    return plan::smallest(graph(), durations_, terms, [this](const plan::Plan &plan) { return lay_out(plan); });
  }

  // Returns the points of the space. Some integers take only a few values:
  // - n_selective: 0, or the number of all blocks that neither swap nor recompute
  // - n_host: the number of all chunks that do not persist, or 0 if the host has no memory of its own
  // - n_device_update: none, a third, two thirds or all of the chunks that do not persist; in shared memory always all
  // Other integers take every value. If `slack` is given, all points have that slack.
  std::vector<plan::Choice> points(std::optional<int> slack = std::nullopt) const {
    const plan::Outline outline(graph(), durations_);
    const plan::Space space = plan::space_of(graph(), outline, durations_, terms);
    std::vector<plan::Choice> all;
    for (std::uint64_t chunk_bytes : space.chunk_bytes)
      for (const plan::Ordering &ordering : space.orderings)
        for (int swap = 0; swap <= space.most_swap; ++swap)
          for (int again = 0; swap + again <= space.blocks; ++again)
            for (const int selective : std::set{0, space.blocks - swap - again})
              add_chunks({.n_swap = swap,
                          .n_checkpoint = again,
                          .n_selective = selective,
                          .n_deferred = ordering.n_deferred,
                          .chunk_bytes = chunk_bytes,
                          .order = ordering.order},
                         all);
    if (slack)
      for (plan::Choice &choice : all) choice.slack = *slack;
    return all;
  }

  std::vector<GridPoint> lay_out(const std::vector<plan::Choice> &choices, unsigned threads) const {
    std::vector<GridPoint> laid(choices.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < choices.size(); i = next++)
        laid[i] = {choices[i], lay_out(plan::expand(graph(), choices[i]))};
    };
    std::vector<std::thread> others;
    for (unsigned t = 1; t < threads; ++t) others.emplace_back(work);
    work();
    for (std::thread &thread : others) thread.join();
    return laid;
  }

 private:
  plan::OptimizerBytes optimizer_bytes() const {
    plan::OptimizerBytes bytes{.state = 0};
    for (const program::OptimizerArray &array : request_.optimizer) bytes.state += array.bytes_each();
    return bytes;
  }

  void add_chunks(const plan::Choice &base, std::vector<plan::Choice> &all) const {
    plan::Choice choice = plan::with_terms(base, terms);
    const auto n = static_cast<int>(plan::cut_chunks(graph(), choice.chunk_bytes).size());
    const bool host = !terms.shared_memory && terms.capacity[Tier::host] > 0;
    for (choice.n_persist = 0; choice.n_persist <= n; ++choice.n_persist) {
      choice.n_host = host ? n - choice.n_persist : 0;
      const int left = n - choice.n_persist;
      for (choice.n_buffer = left == 0 ? 0 : 1; choice.n_buffer <= left; ++choice.n_buffer)
        for (const int on_device : terms.shared_memory ? std::set{left} : std::set{0, left / 3, left * 2 / 3, left}) {
          choice.n_device_update = on_device;
          all.push_back(choice);
        }
    }
  }

  const std::unique_ptr<draft::TargetMachine> machine_;
  const draft::Draft draft_;
  const program::StateRequest request_;
  const draft::PlanLowering lowering_;
  const plan::Durations durations_;

 public:
  plan::Terms terms;  // capacities are the session's; a caller may set others
};

// The fastest plan that fits; nullptr if none does.
inline const GridPoint *fastest(const std::vector<GridPoint> &laid, const plan::Bytes &capacity) {
  const GridPoint *best = nullptr;
  for (const GridPoint &one : laid)
    if (fits(one.out.bytes, capacity) && (best == nullptr || one.out.seconds < best->out.seconds)) best = &one;
  return best;
}

}  // namespace protrain::bench
