#include "draft/other_ranks.h"

#include <algorithm>

namespace protrain::draft {

OtherRanks::Rank::Rank(std::vector<std::unique_ptr<ShapeVariant>> graphs, TargetMachine &machine,
                       program::StateRequest request)
    : variants(std::move(graphs)), lowering(variants, machine, std::move(request)) {}

void OtherRanks::add(std::vector<std::unique_ptr<ShapeVariant>> variants) {
  program::StateRequest request = request_;
  request.shards = variants.front()->training.shards;
  ranks_.emplace_back(std::move(variants), machine_, std::move(request));
}

void OtherRanks::raise(plan::Bytes &bytes, const plan::Plan &plan) const {
  for (const Rank &rank : ranks_) {
    const plan::Bytes needed = rank.lowering.lower_training(plan).bytes;
    for (const Tier t : kTiers) bytes[t] = std::max(bytes[t], needed[t]);
  }
}

}  // namespace protrain::draft
