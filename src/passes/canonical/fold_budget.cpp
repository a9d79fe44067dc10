#include "passes/canonical/fold_budget.h"

#include <algorithm>

namespace protrain::passes {

namespace {
constexpr std::int64_t kLongest = 1 << 24;  // positions; longer dims count as this many
}

FoldBudget::FoldBudget(const graph::Graph &graph) {
  std::int64_t longest = 0;
  for (graph::ValueId in : graph.inputs)
    for (std::int64_t dim : graph.value(in).type.shape) longest = std::max(longest, std::min(dim, kLongest));
  const auto pairs = static_cast<std::uint64_t>(longest) * static_cast<std::uint64_t>(longest);
  bytes += 64 * pairs;
  work += 1024 * static_cast<double>(pairs);
  for (const graph::Value &value : graph.values())
    if (value.origin == graph::Origin::constant) grant(value.array.stored_bytes());
}

void FoldBudget::grant(std::uint64_t file_bytes) {
  bytes += 4 * file_bytes;
  work += 64 * static_cast<double>(file_bytes);
}

bool FoldBudget::take(std::uint64_t result_bytes, double operations) {
  if (result_bytes > bytes || operations > work) return false;
  bytes -= result_bytes;
  work -= operations;
  return true;
}

bool FoldBudget::take_nodes(std::size_t count) {
  if (count > nodes) return false;
  nodes -= count;
  return true;
}

}  // namespace protrain::passes
