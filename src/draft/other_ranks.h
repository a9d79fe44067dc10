// OtherRanks: what a plan needs on the ranks other than this one, which plans for all. Shards are whole grains, so
// those of another rank may be somewhat larger.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "draft/program_set.h"

namespace protrain::draft {

class OtherRanks {
 public:
  // `request`: this rank's. `machine` must outlive it.
  OtherRanks(program::StateRequest request, TargetMachine &machine) : request_(std::move(request)), machine_(machine) {}

  // Adds a rank by its graphs.
  void add(std::vector<std::unique_ptr<ShapeVariant>> variants);

  // Raises `bytes`, of each tier, to what the rank needs that needs the most.
  void raise(plan::Bytes &bytes, const plan::Plan &plan) const;

 private:
  struct Rank {
    Rank(std::vector<std::unique_ptr<ShapeVariant>> graphs, TargetMachine &machine, program::StateRequest request);

    const std::vector<std::unique_ptr<ShapeVariant>> variants;
    const PlanLowering lowering;
  };

  const program::StateRequest request_;
  TargetMachine &machine_;
  std::deque<Rank> ranks_;
};

}  // namespace protrain::draft
