#include "plan/plan.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "base/error.h"

namespace protrain::plan {

namespace {

// True if `position` is one of `some` positions that are spread evenly over `all` positions.
bool is_among(std::size_t some, std::size_t position, std::size_t all) {
  return (position + 1) * some / all > position * some / all;
}

int cut(int wanted, std::size_t most) { return std::clamp(wanted, 0, static_cast<int>(most)); }

// Lets the optimizer of `some` of the tier's chunks run on the device, and the optimizer of the other chunks on the
// host. The two kinds of chunks are spread evenly over the model.
void update_on_device(Plan &plan, Tier tier, std::size_t some) {
  const auto all = static_cast<std::size_t>(std::ranges::count(plan.chunks, tier, &Chunk::tier));
  std::size_t position = 0;
  for (Chunk &chunk : plan.chunks)
    if (chunk.tier == tier) chunk.update = is_among(some, position++, all) ? Tier::device : Tier::host;
}

// Defers `wanted` of the host's updates, spread evenly, or all updates if `wanted` is -1. The next forward hides the
// deferred updates, backward hides the others.
void defer(Plan &plan, int wanted) {
  const auto on_host = [](const Chunk &chunk) { return chunk.tier != Tier::device && chunk.update == Tier::host; };
  const auto all = static_cast<std::size_t>(std::ranges::count_if(plan.chunks, on_host));
  const auto some = static_cast<std::size_t>(cut(wanted, all));
  std::size_t position = 0;
  for (Chunk &chunk : plan.chunks) chunk.deferred = wanted < 0 || (on_host(chunk) && is_among(some, position++, all));
}

}  // namespace

std::vector<int> block_of_first_use(const graph::Graph &graph) {
  std::vector<int> block(graph.value_count(), -1);
  std::vector<bool> seen(graph.value_count(), false);
  for (const graph::Node &node : graph.nodes())
    for (graph::ValueId in : node.inputs)
      if (in != graph::ValueId::none && !seen[index(in)]) {
        seen[index(in)] = true;
        block[index(in)] = node.block;
      }
  return block;
}

std::vector<BlockMode> interleave(std::size_t blocks, std::size_t swaps, std::size_t checkpoints,
                                  std::size_t selective) {
  std::vector<BlockMode> modes(blocks, BlockMode::keep);
  const std::size_t leaving = swaps + checkpoints;
  for (std::size_t b = leaving; b < leaving + selective; ++b) modes[b] = BlockMode::selective;
  for (std::size_t b = 0; b < leaving; ++b) modes[b] = BlockMode::recompute;
  for (std::size_t s = 0; s < swaps; ++s) modes[s * leaving / swaps] = BlockMode::swap;
  return modes;
}

int count_blocks(const graph::Graph &graph) {
  int blocks = 0;
  for (const graph::Node &node : graph.nodes()) blocks = std::max(blocks, node.block + 1);
  return blocks;
}

std::vector<Chunk> cut_chunks(const graph::Graph &graph, std::uint64_t chunk_bytes) {
  struct Open {
    std::size_t chunk = 0;
    int block = 0;  // of the last parameter in the chunk
  };
  const std::vector<int> blocks = block_of_first_use(graph);
  std::vector<Chunk> chunks;
  std::optional<Open> frozen, trained;
  const std::span<const graph::ValueId> weights = graph.weights();
  for (std::size_t p = 0; p < weights.size(); ++p) {
    const graph::Value &value = graph.value(weights[p]);
    const std::uint64_t bytes = byte_count(value.type.dtype, value.type.shape);
    const int block = blocks[index(weights[p])];
    std::optional<Open> &open = value.frozen ? frozen : trained;
    const std::uint64_t held = open ? chunks[open->chunk].bytes : 0;
    // A chunk that is at least half full closes at a block border, so that the next block starts a new chunk.
    const bool border = open && block != open->block && held * 2 >= chunk_bytes;
    if (!open || border || held + bytes > chunk_bytes) {
      open = Open{.chunk = chunks.size()};
      chunks.emplace_back();
    }
    chunks[open->chunk].parameters.push_back(p);
    chunks[open->chunk].bytes += bytes;
    open->block = block;
  }
  return chunks;
}

std::vector<std::size_t> resting_order(std::size_t chunks, bool with_disk) {
  std::vector<std::size_t> order(chunks);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!with_disk) return order;
  const int bits = std::bit_width(chunks);
  const auto reversed = [&](std::size_t chunk) {
    std::size_t value = 0;
    for (int bit = 0; bit < bits; ++bit) value = value * 2 + (chunk >> bit) % 2;
    return value;
  };
  std::ranges::sort(order, {}, reversed);  // 16 chunks: 0, 8, 4, 12, 2, 10, 6, 14, 1, ...
  return order;
}

Plan expand(const graph::Graph &graph, const Choice &choice) {
  Plan plan;
  plan.shared_memory = choice.shared_memory;
  plan.order = choice.order;
  plan.slack = choice.slack;
  plan.ranks = choice.ranks;
  plan.piece_bytes = choice.piece_bytes;
  plan.chunks = cut_chunks(graph, choice.chunk_bytes);
  plan.n_persist = cut(choice.n_persist, plan.chunks.size());
  const std::size_t left = plan.chunks.size() - static_cast<std::size_t>(plan.n_persist);
  const int whole = plan.ranks == 1 || choice.n_whole < 0
                        ? plan.n_persist
                        : cut(choice.n_whole, static_cast<std::size_t>(plan.n_persist));
  plan.n_buffer = cut(choice.n_buffer, plan.chunks.size() - static_cast<std::size_t>(whole));
  const auto on_host = static_cast<std::size_t>(choice.n_host < 0 ? static_cast<int>(left) : cut(choice.n_host, left));
  const bool all = choice.shared_memory || choice.n_device_update < 0;
  const auto updated = all ? left : static_cast<std::size_t>(cut(choice.n_device_update, left));
  const std::vector<std::size_t> order = resting_order(plan.chunks.size(), on_host < left);
  for (std::size_t c = 0; c < left; ++c)
    plan.chunks[order[static_cast<std::size_t>(plan.n_persist) + c]].tier = c < on_host ? Tier::host : Tier::disk;
  const std::size_t of_host = left > 0 ? updated * on_host / left : 0;
  update_on_device(plan, Tier::host, of_host);
  update_on_device(plan, Tier::disk, updated - of_host);
  for (std::size_t c = static_cast<std::size_t>(whole); c < plan.chunks.size(); ++c)
    plan.chunks[order[c]].sharded = plan.ranks > 1;
  defer(plan, choice.n_deferred);
  const auto blocks = static_cast<std::size_t>(count_blocks(graph));
  plan.n_swap = cut(choice.n_swap, blocks);
  plan.n_checkpoint = cut(choice.n_checkpoint, blocks - static_cast<std::size_t>(plan.n_swap));
  plan.n_selective = cut(choice.n_selective, blocks - static_cast<std::size_t>(plan.n_swap + plan.n_checkpoint));
  plan.blocks = interleave(blocks, static_cast<std::size_t>(plan.n_swap), static_cast<std::size_t>(plan.n_checkpoint),
                           static_cast<std::size_t>(plan.n_selective));
  return plan;
}

Plan resident(const graph::Graph &graph, OptimizerOrder order) {
  Choice choice{.order = order};
  choice.n_persist = static_cast<int>(graph.weights().size());
  return expand(graph, choice);
}

bool defers(const Plan &plan) { return std::ranges::any_of(plan.chunks, &Chunk::deferred); }

void check(const Plan &plan, const graph::Graph &graph) {
  require(plan.piece_bytes > 0 && plan.piece_bytes % kDiskAlignment == 0, Code::arg, "plan",
          "piece_bytes {} is no multiple of {}", plan.piece_bytes, kDiskAlignment);
  std::vector<int> seen(graph.weights().size(), 0);
  for (const Chunk &chunk : plan.chunks) {
    for (std::size_t p : chunk.parameters) {
      require(p < seen.size(), Code::arg, "plan", "the plan has a parameter {}, the model has {}", p, seen.size());
      ++seen[p];
    }
    const auto is_frozen = [&](std::size_t p) { return graph.value(graph.parameters[p]).frozen; };
    const auto frozen = static_cast<std::size_t>(std::ranges::count_if(chunk.parameters, is_frozen));
    require(frozen == 0 || frozen == chunk.parameters.size(), Code::arg, "plan",
            "a chunk holds {} parameters that are frozen and {} that are not; frozen ones need chunks of their own, so "
            "that nothing writes them",
            frozen, chunk.parameters.size() - frozen);
    require(chunk.update != Tier::disk, Code::arg, "plan", "an optimizer cannot run on the disk");
    require(plan.ranks == 1 || chunk.tier == Tier::device || chunk.sharded, Code::arg, "plan",
            "with {} ranks a chunk on the {} must be sharded", plan.ranks, kTierNames[chunk.tier]);
    require(!plan.shared_memory || chunk.update == Tier::device, Code::arg, "plan",
            "where device and host share their memory the optimizer runs on the device");
  }
  for (std::size_t p = 0; p < seen.size(); ++p)
    require(seen[p] == 1, Code::arg, "plan", "parameter {} ({}) is in {} chunks, not in one", p,
            graph.value(graph.parameters[p]).name, seen[p]);
  const auto blocks = static_cast<std::size_t>(count_blocks(graph));
  require(plan.blocks.size() == blocks, Code::arg, "plan", "the plan has {} blocks, the model {}", plan.blocks.size(),
          blocks);
  require(plan.ranks >= 1, Code::arg, "plan", "{} ranks", plan.ranks);
  require(plan.n_buffer >= 0, Code::arg, "plan", "{} buffers", plan.n_buffer);
}

}  // namespace protrain::plan
