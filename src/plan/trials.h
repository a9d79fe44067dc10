// Trials: points of the space that were laid out. They correct the estimates of their neighbours.
#pragma once

#include <deque>
#include <functional>
#include <limits>

#include "plan/cost.h"

namespace protrain::plan {

// The bytes and seconds of a plan after it was lowered to a Program.
struct PlanCost {
  Bytes bytes{};
  double seconds = 0;
  std::size_t instructions = 0;
};
using LayOut = std::function<PlanCost(const Plan &)>;
// The search calls a LookAhead with `count` tasks that it is about to do. A task calls LayOut for its plans. After the
// call, the search does the tasks in the order of their numbers, and stops after the first one that returns true. The
// LookAhead may do tasks during the call, several at the same time, so that LayOut already knows the costs of their
// plans when the search asks. LayOut must then be safe to call from several threads. The LookAhead returns when all
// tasks that it began are done.
using Task = std::function<bool(std::size_t)>;
using LookAhead = std::function<void(std::size_t count, const Task &task)>;

struct Candidate {
  Choice choice;
  Estimate estimate;  // all bytes are 0 if the closed form was not used
};

struct Trial {
  Candidate candidate;
  PlanCost cost;
  double memory_error(Tier tier) const;  // bytes by which the closed form is too low
};

// The place of the optimizer for the chunks that do not persist.
enum class Mix : std::uint8_t { host, device, both };
Mix mix_of(const Choice &choice);

// Returns the distance between two choices in block modes, chunk_bytes, n_whole and place of the optimizer. It is
// infinite if order or slack differ, or if only one of the two defers all updates (n_deferred -1), because the memory
// of such plans cannot be compared.
double mode_distance(const Choice &a, const Choice &b);
// Returns mode_distance() plus the differences of n_persist, n_host, n_device_update and n_deferred, and half the
// difference of n_buffer.
double distance(const Choice &a, const Choice &b);
bool same_integers(const Choice &a, const Choice &b);

class Trials {
 public:
  Trials(const graph::Graph &graph, const LayOut &lay_out) : graph_(graph), lay_out_(lay_out) {}

  const Trial &add(const Candidate &candidate);
  PlanCost lay_out(const Choice &choice) const { return lay_out_(expand(graph_, choice)); }
  const std::deque<Trial> &all() const { return all_; }  // references stay valid when a trial is added
  // Returns the trial of this choice; nullptr: the choice was not laid out.
  const Trial *find(const Choice &choice) const;
  std::size_t instructions() const { return instructions_; }  // laid out so far

  // Return the nearest trial that has an estimate, or nullptr if there is none. nearest() measures by distance(), and
  // nearest_in_modes() by mode_distance().
  const Trial *nearest(const Choice &choice) const;
  const Trial *nearest_in_modes(const Choice &choice) const;

 private:
  template <typename Away>
  const Trial *nearest_by(const Away &away) const {
    const Trial *found = nullptr;
    double least = std::numeric_limits<double>::infinity();
    for (const Trial &trial : all_) {
      if (trial.candidate.estimate.bytes == Bytes{}) continue;
      const double from = away(trial.candidate.choice);
      if (from >= least) continue;
      found = &trial;
      least = from;
    }
    return found;
  }

  const graph::Graph &graph_;
  const LayOut &lay_out_;
  std::deque<Trial> all_;
  std::size_t instructions_ = 0;
};

bool fits(const Bytes &bytes, const Bytes &capacity);

// Returns `bytes` plus `by`, but never less than 0.
std::uint64_t shifted(std::uint64_t bytes, double by);

}  // namespace protrain::plan
