#include "plan/chunking.h"

#include <algorithm>

#include "ops/op.h"

namespace protrain::plan {

// Divides each block's seconds among the chunks that hold its parameters, in proportion to these parameters' bytes.
Chunking::Chunking(const graph::Graph &graph, const Outline &outline_, const Durations &durations_, const Terms &terms_,
                   std::uint64_t chunk_bytes)
    : outline(outline_), durations(durations_), terms(terms_) {
  const auto bytes_of = [&](std::size_t p) {
    const graph::Type &type = graph.value(graph.parameters[p]).type;
    return byte_count(type.dtype, type.shape);
  };
  std::vector<std::uint64_t> block_bytes(outline.blocks.size(), 0);
  const std::size_t weights = graph.weights().size();
  for (std::size_t p = 0; p < weights; ++p)
    if (outline.block_of_parameter[p] >= 0)
      block_bytes[static_cast<std::size_t>(outline.block_of_parameter[p])] += bytes_of(p);
  for (const Chunk &cut : cut_chunks(graph, chunk_bytes)) {
    Weight &chunk = chunks.emplace_back();
    chunk.weights = cut.bytes;
    for (std::size_t p : cut.parameters) {
      if (outline.block_of_parameter[p] >= 0) {
        const auto b = static_cast<std::size_t>(outline.block_of_parameter[p]);
        const double part = static_cast<double>(bytes_of(p)) / static_cast<double>(block_bytes[b]);
        chunk.forward += part * outline.blocks[b].forward;
        chunk.backward += part * outline.blocks[b].backward;
        if (chunk.blocks.empty() || chunk.blocks.back().first != b) chunk.blocks.emplace_back(b, 0);
        chunk.blocks.back().second += part;
      }
      if (terms.trained[p]) add_trained(graph.value(graph.parameters[p]).type, p, chunk);
    }
    chunk.weights_shard = shard_of(chunk.weights);
    chunk.gradient_shard = shard_of(chunk.gradient);
    chunk.state = shard_of(chunk.state);
  }
  order = resting_order(chunks.size(), terms.capacity[Tier::disk] > 0);
  find_neighbours();
}

std::uint64_t Chunking::shard_of(std::uint64_t bytes) const {
  const auto ranks = static_cast<std::uint64_t>(terms.ranks);
  return (bytes + ranks - 1) / ranks;
}

// Adds the gradient, the optimizer's state and the update of trained parameter number `p` to its chunk.
void Chunking::add_trained(const graph::Type &type, std::size_t p, Weight &chunk) const {
  const std::uint64_t bytes = byte_count(type.dtype, type.shape);
  chunk.state += terms.optimizer.of(static_cast<std::uint64_t>(element_count(type.shape)));
  chunk.gradient += bytes;
  // A parameter that is updated together with others has no launch of its own.
  const double launch = ops::goes_with_others(type) ? 0 : durations.launch();
  chunk.device_update += launch + durations.update(Tier::device, p, shard_of(bytes));
  if (durations.profile().host_optimizer > 0)
    chunk.host_update += launch + durations.update(Tier::host, p, shard_of(bytes));
}

// Fills in_a_row.
void Chunking::find_neighbours() {
  in_a_row.resize(chunks.size() + 1);
  for (std::size_t from = 0; from <= chunks.size(); ++from) {
    std::vector<std::size_t> left(order.begin() + static_cast<std::ptrdiff_t>(from), order.end());
    std::ranges::sort(left);
    std::vector<std::uint64_t> sums = {0};
    for (std::size_t c : left) sums.push_back(sums.back() + chunks[c].weights);
    for (std::size_t count = 0; count < sums.size(); ++count) {
      std::uint64_t most = 0;
      for (std::size_t end = count; end < sums.size(); ++end) most = std::max(most, sums[end] - sums[end - count]);
      in_a_row[from].push_back(most);
    }
  }
}

}  // namespace protrain::plan
