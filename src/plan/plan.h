// Plan: what was chosen. Where each chunk of parameters rests, what each block does with its activations, and in which
// order the optimizer runs. A plain value: compare it, print it, store it. It says nothing about when and at which
// address; the Program does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/tier.h"
#include "graph/graph.h"

namespace protrain::plan {

// What becomes of the values that a block makes for its own backward. selective: those are computed again that take one
// pass over what is kept (Lives::cheap), the others are kept.
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

// The paper's four integers (ProTrain, section 3), n_selective, and what they expand to.
struct Plan {
  int n_persist = 0;     // chunks that stay on the device
  int n_buffer = 0;      // buffers that the others pass through
  int n_swap = 0;        // blocks that swap
  int n_checkpoint = 0;  // blocks that recompute
  int n_selective = 0;   // blocks that recompute what is cheap, and keep the rest
  // Device and host are one memory: what would rest on the host rests in the device arena and is used in place, and
  // what leaves goes to the disk.
  bool shared_memory = false;
  OptimizerOrder order = OptimizerOrder::overlap;
  // Stages (a block's forward or backward) for which bytes that another queue than compute used last are left alone: an
  // optimizer on the host, or a copy, may fall behind by that much before compute waits for it. 0: bytes are used again
  // at once, and whoever does waits.
  int slack = 0;
  // The disk is read and written in pieces of this size, and so the optimizer goes through a chunk of one parameter
  // that is larger, rows at a time: a table's moments are never in memory as a whole. A multiple of kDiskAlignment.
  std::uint64_t piece_bytes = kPieceBytes;
  std::vector<Chunk> chunks;
  std::vector<BlockMode> blocks;
  bool operator==(const Plan &) const = default;
};

// What expand() is asked for.
struct Choice {
  int n_persist = 0, n_buffer = 0, n_swap = 0, n_checkpoint = 0, n_selective = 0;
  int n_host = -1;  // chunks after the persistent ones that rest on the host, -1: all; the others on disk
  // Chunks that do not persist, but whose optimizer runs on the device, -1: all; they are spread evenly among those
  // whose optimizer runs on the host, so that both work at once.
  int n_device_update = 0;
  // Updates on the host that are deferred, spread evenly among them; -1: all updates, those on the device too.
  int n_deferred = 0;
  int slack = 0;
  std::uint64_t chunk_bytes = 64ull << 20;  // the middle of the grid of the paper's appendix B.1
  std::uint64_t piece_bytes = kPieceBytes;
  bool shared_memory = false;
  OptimizerOrder order = OptimizerOrder::overlap;
};

// The layout that the paper gives to four integers (section 2.1, figure 2): the first chunks persist; blocks that swap
// are spread among those that recompute, and the last blocks keep, the first n_selective of them selectively. Numbers
// beyond what the graph has are cut.
Plan expand(const graph::Graph &graph, const Choice &choice);

// Everything on the device: every chunk persistent, every block keeps its activations.
Plan resident(const graph::Graph &graph, OptimizerOrder order = OptimizerOrder::overlap);

// Whether some update runs in the step after its own.
bool defers(const Plan &plan);

// Cuts the graph's parameters, in order of first use, into chunks of at most `chunk_bytes`, at block borders where
// that can be; a larger parameter is a chunk of its own.
std::vector<Chunk> cut_chunks(const graph::Graph &graph, std::uint64_t chunk_bytes);

// Swaps early and as far apart as can be, each hidden behind the recomputation of the blocks after it; blocks that keep
// come last, for backward frees them first (figure 2: of eight blocks 1 and 4 swap, 2, 3, 5 and 6 recompute); those
// that keep selectively stand before those that keep all.
std::vector<BlockMode> interleave(std::size_t blocks, std::size_t swaps, std::size_t checkpoints,
                                  std::size_t selective);

int count_blocks(const graph::Graph &graph);

// Per value: the block of the first node that reads it; -1 where no block does.
std::vector<int> block_of_first_use(const graph::Graph &graph);

// Code::arg where the plan does not fit the graph: a parameter in no chunk or in two, another number of blocks.
void check(const Plan &plan, const graph::Graph &graph);

Json as_json(const Plan &plan);
std::string to_json(const Plan &plan);
// Either what to_json gives, or the integers alone ("n_persist", "n_buffer", "n_swap", "n_checkpoint", "n_selective",
// "n_host", "n_device_update", "n_deferred", "chunk_bytes"), which are expanded. "update", a tier, says n_device_update
// in a word: none of the chunks or all. What is absent is taken from `base`. Checked against the graph; Code::format
// for text that is no plan, Code::arg for one that does not fit.
Plan from_json(const std::string &text, const graph::Graph &graph, const Choice &base);

}  // namespace protrain::plan
