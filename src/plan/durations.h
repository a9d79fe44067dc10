// Durations: how long each kind of work takes on a machine when it runs alone. From these times the cost model (cost.h)
// estimates the time of a step under a plan, and the simulator (program/simulate.h) estimates the time of a laid-out
// Program.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/tier.h"
#include "graph/graph.h"
#include "profile/profile.h"

namespace protrain::plan {

// Bytes of optimizer state for each element of a parameter.
struct OptimizerBytes {
  double state = 8;  // AdamW in float32: two moments

  std::uint64_t of(std::uint64_t elements) const {
    return static_cast<std::uint64_t>(std::ceil(static_cast<double>(elements) * state));
  }
};

class Durations {
 public:
  // Finds the time of every node: the measured time if the profile has the node's kernel, else an estimate from the
  // profile's rates.
  Durations(const profile::Profile &profile, const graph::Graph &graph, const OptimizerBytes &optimizer);

  // All times are in seconds.
  double run(graph::NodeId node) const { return nodes_[index(node)]; }
  double launch() const { return profile_.launch_seconds; }
  // The time of a copy of `bytes`. A copy between device and disk goes through the host, unless device and host share
  // memory. The way to the host and the way from the host overlap, so only the slower of the two counts.
  double move(Tier from, Tier to, std::uint64_t bytes) const;
  // The time of an exchange of `bytes` with other ranks.
  double exchange(std::uint64_t bytes) const;
  // The time to update `bytes` of a parameter's weights, without the launch of the update.
  double update(Tier place, std::size_t parameter, std::uint64_t bytes) const;

  const profile::Profile &profile() const { return profile_; }

 private:
  const profile::Profile &profile_;
  std::vector<double> nodes_;
  std::vector<double> traffic_;  // per parameter: bytes that an Update reads and writes for each byte of weights
};

}  // namespace protrain::plan
