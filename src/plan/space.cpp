#include "plan/space.h"

#include <algorithm>
#include <cmath>

namespace protrain::plan {

namespace {

// The slack of a plan: for how many stages after its last use a buffer stays reserved, so that slower queues can fall
// that far behind compute. If device and host share their memory, only the disk can fall behind. If their memories are
// separate, copies and the host's optimizer can fall behind too, so these plans have more slack.
constexpr int kSlackShared = 1, kSlackApart = 4;

// Chunk sizes are fractions or multiples of a unit. The unit is the size of one block's weights, but at least the size
// of all weights divided by this number. This keeps the number of chunks small, because the time that a search takes to
// begin grows with the third power of the number of chunks.
constexpr std::uint64_t kMostBlocks = 512;

}  // namespace

Choice with_terms(Choice choice, const Terms &terms) {
  choice.shared_memory = terms.shared_memory;
  choice.ranks = terms.ranks;
  choice.slack = terms.shared_memory ? kSlackShared : kSlackApart;
  if (terms.barrier_only) choice.order = OptimizerOrder::barrier;
  if (terms.shared_memory) choice.n_device_update = -1;
  return choice;
}

Space space_of(const graph::Graph &graph, const Outline &outline, const Durations &durations, const Terms &terms) {
  Space space{.blocks = static_cast<int>(outline.blocks.size())};
  std::uint64_t all = 0, in_blocks = 0;
  const std::size_t weights = graph.weights().size();
  for (std::size_t p = 0; p < weights; ++p) {
    const graph::Type &type = graph.value(graph.parameters[p]).type;
    const std::uint64_t bytes = byte_count(type.dtype, type.shape);
    all += bytes;
    if (outline.block_of_parameter[p] >= 0) in_blocks += bytes;
  }
  const std::uint64_t block =
      std::max(space.blocks > 0 ? in_blocks / outline.blocks.size() : all / 16, all / kMostBlocks);
  for (std::uint64_t eighths : {5, 9, 18})
    space.chunk_bytes.push_back(round_up(std::max<std::uint64_t>(block / 8 * eighths, 1), kDiskAlignment));
  // A session that only evaluates keeps no activations for a backward, and runs no optimizer.
  const bool trains = std::ranges::find(terms.trained, true) != terms.trained.end();
  if (!trains) space.blocks = 0;
  space.host_updates = trains && !terms.shared_memory;
  // Lets several ranks shard the persistent chunks too (n_whole 0). With shared memory no plan needs this, because
  // chunks that rest on the host lie in the same memory and are always sharded.
  if (terms.ranks > 1 && !terms.shared_memory) space.n_whole.push_back(0);
  if (!terms.barrier_only) space.orderings.push_back({OptimizerOrder::overlap, 0});
  if (terms.barrier_only && terms.defer()) space.orderings.push_back({OptimizerOrder::barrier, -1});
  space.orderings.push_back({OptimizerOrder::barrier, 0});
  const Tier away = terms.shared_memory ? Tier::disk : Tier::host;
  if (space.blocks == 0 || terms.capacity[away] == 0) return space;
  const Outline::Block &middle = outline.blocks[outline.blocks.size() / 2];
  const double interval = std::ceil(durations.move(Tier::device, away, middle.saved) / middle.forward);
  space.most_swap = space.blocks / std::max(static_cast<int>(std::min(interval, 1e6)), 1);
  return space;
}

}  // namespace protrain::plan
