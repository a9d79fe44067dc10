// RankedMachine: the machine of one rank among several. All ranks must decide the same, and kernels must use the same
// algorithms. So rank 0 measures and chooses for all, within the memory of the rank that has the least. The other ranks
// of rank 0's machine measure beside it, because they will compute beside it, and forget what they found.
#pragma once

#include "comm/channel.h"
#include "draft/target_machine.h"

namespace protrain::draft {

class RankedMachine final : public TargetMachine {
 public:
  // Both arguments must outlive it.
  RankedMachine(TargetMachine &machine, comm::Channel &channel) : machine_(machine), channel_(channel) {}
  profile::Profile profile(const std::vector<const graph::Graph *> &graphs,
                           const backend::Optimizer &optimizer) override;
  program::Workspace workspace(const graph::Graph &graph) override { return machine_.workspace(graph); }
  std::string of_rank_0(const std::function<std::string()> &make) override;

 private:
  TargetMachine &machine_;
  comm::Channel &channel_;
  bool alone_ = false;  // inside make(): the other ranks wait for its result and take no part
};

// Throws Code::mismatch, on every rank, if the ranks' texts differ. `texts`: what each rank is to have the same, such
// as an option, by name.
void require_same(comm::Channel &channel, const std::map<std::string, std::string> &texts);

}  // namespace protrain::draft
