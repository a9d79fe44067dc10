// RankedMachine: the machine of one rank among several. All ranks must decide the same, and kernels must use the same
// algorithms. So rank 0 measures and chooses for all, within the memory of the rank that has the least. The other ranks
// on rank 0's machine measure at the same time, so that the machine is loaded as in a step. Their results are
// discarded.
#pragma once

#include "draft/target_machine.h"
#include "measure/link.h"

namespace protrain::draft {

// Throws Code::mismatch, on every rank, if the ranks' texts differ. `texts` holds by name what must be the same on all
// ranks, such as options.
void require_same(comm::Channel &channel, const std::map<std::string, std::string> &texts);

class RankedMachine final : public TargetMachine {
 public:
  // `machine` and the channels of `link` must outlive this object.
  RankedMachine(TargetMachine &machine, const measure::Link &link)
      : machine_(machine), link_(link), channel_(link.hosts) {}
  profile::Profile profile(const std::vector<const graph::Graph *> &graphs,
                           const backend::Optimizer &optimizer) override;
  program::Workspace workspace(const graph::Graph &graph) override { return machine_.workspace(graph); }
  std::string of_rank_0(const std::function<std::string()> &make) override;
  void require_same(const std::function<Texts()> &make) override {
    if (!alone_) draft::require_same(channel_, make());
  }

 private:
  TargetMachine &machine_;
  const measure::Link link_;
  comm::Channel &channel_;
  bool alone_ = false;  // inside make(): the other ranks wait for its result and take no part
};

}  // namespace protrain::draft
