// Plan: the choices behind a step. It says where each chunk of parameters rests, what each block does with its
// activations, and in which order the optimizer runs. It is a plain value: compare it, print it, store it. Times and
// addresses belong to the Program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/tier.h"
#include "graph/graph.h"

namespace protrain::plan {

// The way a block treats the values that it makes for its own backward. selective: values that take one pass over what
// is kept (Lives::cheap) are recomputed, the others are kept.
enum class BlockMode : std::uint8_t { keep, recompute, swap, selective };
enum class OptimizerOrder : std::uint8_t {
  overlap,  // an update follows its gradient, beside the backward of earlier chunks
  barrier,  // updates run after the norm of all gradients is known
};
inline constexpr const char *kOrderNames[] = {"overlap", "barrier"};

inline constexpr std::uint64_t kPieceBytes = 16ull << 20;

// A run of parameters in execution order that moves as one.
struct Chunk {
  std::vector<std::size_t> parameters;  // positions in graph.parameters
  std::uint64_t bytes = 0;              // of the weights alone
  Tier tier = Tier::device;             // where weights and optimizer state rest
  Tier update = Tier::device;           // where the optimizer runs: on the device, or beside it on the host
  bool deferred = false;                // it runs in the forward of the next step, before the chunk is used
  bool operator==(const Chunk &) const = default;
};

// The paper's four integers (ProTrain, section 3), n_selective, and their expansion.
struct Plan {
  int n_persist = 0;     // chunks that stay on the device
  int n_buffer = 0;      // buffers that the others pass through
  int n_swap = 0;        // blocks that swap
  int n_checkpoint = 0;  // blocks that recompute
  int n_selective = 0;   // blocks that recompute cheap values and keep the rest
  // Device and host share one memory. Chunks of the host rest in the device arena and are used in place; swapped
  // activations go to the disk.
  bool shared_memory = false;
  OptimizerOrder order = OptimizerOrder::overlap;
  // Stages (a block's forward or backward) for which bytes are left alone after a queue other than compute has used
  // them. An optimizer on the host, or a copy, may fall behind by that much before compute waits for it. 0: bytes are
  // reused at once, and their next user waits.
  int slack = 0;
  // The disk is read and written in pieces of this size, a multiple of kDiskAlignment. A parameter that is larger is a
  // chunk of its own, and the optimizer goes through it some rows at a time: a table's moments are never in memory as a
  // whole.
  std::uint64_t piece_bytes = kPieceBytes;
  std::vector<Chunk> chunks;
  std::vector<BlockMode> blocks;
  bool operator==(const Plan &) const = default;
};

// The arguments of expand().
struct Choice {
  int n_persist = 0, n_buffer = 0, n_swap = 0, n_checkpoint = 0, n_selective = 0;
  int n_host = -1;  // chunks after the persistent ones that rest on the host, the others on disk; -1: all
  // Non-persistent chunks whose optimizer runs on the device; -1: all. They are spread evenly among those whose
  // optimizer runs on the host, so that both work at once.
  int n_device_update = 0;
  // Deferred updates on the host, spread evenly; -1: all updates, those on the device too.
  int n_deferred = 0;
  int slack = 0;
  std::uint64_t chunk_bytes = 64ull << 20;  // the middle of the grid of the paper's appendix B.1
  std::uint64_t piece_bytes = kPieceBytes;
  bool shared_memory = false;
  OptimizerOrder order = OptimizerOrder::overlap;
};

// Expands the integers into the paper's layout (section 2.1, figure 2). The first chunks persist. Swapped blocks are
// spread among those that recompute. The last blocks keep, the first n_selective of these selectively. Numbers beyond
// what the graph has are cut.
Plan expand(const graph::Graph &graph, const Choice &choice);

// The plan with everything on the device: every chunk persists, every block keeps its activations.
Plan resident(const graph::Graph &graph, OptimizerOrder order = OptimizerOrder::overlap);

// True if some update runs in the step after its own.
bool defers(const Plan &plan);

// Cuts the graph's parameters, in order of first use, into chunks of at most `chunk_bytes`, at block borders where
// possible. A larger parameter is a chunk of its own.
std::vector<Chunk> cut_chunks(const graph::Graph &graph, std::uint64_t chunk_bytes);

// Swaps come early and as far apart as possible, each hidden behind the recomputation of the blocks after it. Blocks
// that keep come last, because backward frees them first (figure 2: of eight blocks 1 and 4 swap, 2, 3, 5 and 6
// recompute). Blocks that keep selectively come before those that keep all.
std::vector<BlockMode> interleave(std::size_t blocks, std::size_t swaps, std::size_t checkpoints,
                                  std::size_t selective);

int count_blocks(const graph::Graph &graph);

// The block of the first node that reads each value; -1: it is outside of blocks, or nothing reads the value.
std::vector<int> block_of_first_use(const graph::Graph &graph);

// Throws Code::arg if the plan does not fit the graph: a parameter in no chunk or in two, or another number of blocks.
void check(const Plan &plan, const graph::Graph &graph);

Json as_json(const Plan &plan);
std::string to_json(const Plan &plan);
// Reads what to_json writes, or the integers alone ("n_persist", "n_buffer", "n_swap", "n_checkpoint", "n_selective",
// "n_host", "n_device_update", "n_deferred", "chunk_bytes"), which are expanded. "update", a tier, is n_device_update
// in a word: none of the chunks or all. `base` supplies what is absent. The plan is checked against the graph. Throws
// Code::format for text that is no plan, Code::arg for a plan that does not fit.
Plan from_json(const std::string &text, const graph::Graph &graph, const Choice &base);

}  // namespace protrain::plan
