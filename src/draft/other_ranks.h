// OtherRanks: computes the memory that a plan needs on the other ranks. This rank chooses the plan for all ranks, and
// another rank may need somewhat more memory, because its shards may be larger: shards are whole grains.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "draft/program_set.h"

namespace protrain::draft {

class OtherRanks {
 public:
  // `request` describes the state of this rank. Only the shards differ on the other ranks. `machine` must outlive this
  // object.
  OtherRanks(program::StateRequest request, TargetMachine &machine) : request_(std::move(request)), machine_(machine) {}

  // Adds a rank that has these graphs.
  void add(std::vector<std::unique_ptr<ShapeVariant>> variants);

  // Raises the bytes of each tier to the most that any added rank needs for the plan.
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
