#include "plan/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace protrain::plan {

namespace {

constexpr std::uint64_t kChunkBytes = 64ull << 20;  // the middle of the grid of the paper's appendix B.1

constexpr const char *kTierNames[] = {"device", "host", "disk"};
constexpr const char *kModeNames[] = {"keep", "recompute", "swap"};
constexpr const char *kOrderNames[] = {"overlap", "barrier"};

// The block of the first node that reads each value; -1 where no block does.
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

int count_blocks(const graph::Graph &graph) {
  int blocks = 0;
  for (const graph::Node &node : graph.nodes()) blocks = std::max(blocks, node.block + 1);
  return blocks;
}

}  // namespace

std::string to_json(const Plan &plan) {
  nlohmann::ordered_json json = {{"n_chunk", plan.chunks.size()},
                                 {"n_persist", plan.n_persist},
                                 {"n_buffer", plan.n_buffer},
                                 {"n_block", plan.blocks.size()},
                                 {"n_swap", plan.n_swap},
                                 {"n_checkpoint", plan.n_checkpoint},
                                 {"optimizer_order", kOrderNames[static_cast<int>(plan.order)]}};
  json["blocks"] = nlohmann::ordered_json::array();
  for (BlockMode mode : plan.blocks) json["blocks"].push_back(kModeNames[static_cast<int>(mode)]);
  json["chunks"] = nlohmann::ordered_json::array();
  for (const Chunk &chunk : plan.chunks)
    json["chunks"].push_back(
        {{"bytes", chunk.bytes}, {"tier", kTierNames[static_cast<int>(chunk.tier)]}, {"parameters", chunk.parameters}});
  return json.dump(1);
}

std::vector<Chunk> cut_chunks(const graph::Graph &graph, std::uint64_t chunk_bytes) {
  const std::vector<int> blocks = block_of_first_use(graph);
  std::vector<Chunk> chunks;
  int open_block = -2;  // of the last parameter of the open chunk
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const graph::Value &value = graph.value(graph.parameters[p]);
    const std::uint64_t bytes = byte_count(value.type.dtype, value.type.shape);
    const int block = blocks[index(graph.parameters[p])];
    // At a block border a chunk that is at least half full is closed: the next block then starts its own.
    const bool border = block != open_block && !chunks.empty() && chunks.back().bytes * 2 >= chunk_bytes;
    if (chunks.empty() || border || chunks.back().bytes + bytes > chunk_bytes) chunks.emplace_back();
    chunks.back().parameters.push_back(p);
    chunks.back().bytes += bytes;
    open_block = block;
  }
  return chunks;
}

Plan resident(const graph::Graph &graph) {
  Plan plan;
  plan.chunks = cut_chunks(graph, kChunkBytes);
  plan.n_persist = static_cast<int>(plan.chunks.size());
  plan.blocks.assign(static_cast<std::size_t>(count_blocks(graph)), BlockMode::keep);
  return plan;
}

}  // namespace protrain::plan
