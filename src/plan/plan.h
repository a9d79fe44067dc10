// Plan: the choices behind a step. It says where each chunk of parameters rests, what each block does with its
// activations, and in which order the optimizer runs. It is a plain value: compare it, print it, store it. Instructions
// and addresses belong to the Program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/tier.h"
#include "graph/graph.h"

namespace protrain::plan {

// The treatment of the values that a block makes for its own backward. selective: cheap values (Lives::cheap) are
// recomputed, the others are kept.
enum class BlockMode : std::uint8_t { keep, recompute, swap, selective };
enum class OptimizerOrder : std::uint8_t {
  overlap,  // an update runs as soon as its gradient is complete, while backward goes on
  barrier,  // updates run after the norm of all gradients is known
};
inline constexpr const char *kOrderNames[] = {"overlap", "barrier"};

inline constexpr std::uint64_t kPieceBytes = 16ull << 20;

// Parameters that move as one. They are in order of first use, and all or none of them are frozen.
struct Chunk {
  std::vector<std::size_t> parameters;  // positions in graph.parameters
  std::uint64_t bytes = 0;              // of the weights alone
  Tier tier = Tier::device;             // where weights and optimizer state rest
  Tier update = Tier::device;           // where the optimizer runs: on the device or on the host
  bool sharded = false;                 // with several ranks: a rank keeps only its shards of the weights
  bool deferred = false;                // the optimizer runs in the next step's forward, before the chunk is used
  bool operator==(const Chunk &) const = default;
};

// The paper's four integers (ProTrain, section 3), n_selective, and the chunks and blocks that these expand into.
struct Plan {
  int n_persist = 0;     // chunks that stay on the device
  int n_buffer = 0;      // device buffers for the weights of chunks that do not rest there whole
  int n_swap = 0;        // blocks that swap
  int n_checkpoint = 0;  // blocks that recompute
  int n_selective = 0;   // blocks that recompute cheap values and keep the rest
  int ranks = 1;         // number of ranks; each of them follows this plan
  // True: device and host share one memory. Chunks whose tier is the host lie in the device's arena and are used in
  // place. Swapped activations go to the disk.
  bool shared_memory = false;
  OptimizerOrder order = OptimizerOrder::overlap;
  // A number of stages; a stage is a block's forward or backward. A buffer whose last use is on another queue than
  // compute stays reserved for this many more stages. So a copy, or an optimizer on the host, can fall this far behind
  // before compute waits for it. With 0 a buffer is reused at once, and its next user waits.
  int slack = 0;
  // The disk is read and written in pieces of this size, a multiple of kDiskAlignment. If a chunk on host or disk holds
  // a single parameter that is larger than a piece, the parameter is also updated piece by piece. So the moments of a
  // large embedding never move as a whole.
  std::uint64_t piece_bytes = kPieceBytes;
  std::vector<Chunk> chunks;
  std::vector<BlockMode> blocks;
  bool operator==(const Plan &) const = default;
};

// The arguments of expand().
struct Choice {
  int n_persist = 0, n_buffer = 0, n_swap = 0, n_checkpoint = 0, n_selective = 0;
  int n_host = -1;  // chunks that rest on the host, of those that do not persist (-1: all); the others rest on the disk
  int ranks = 1;
  int n_whole = -1;  // with several ranks: persistent chunks whose weights every rank has whole (-1: all)
  // Number of non-persistent chunks whose optimizer runs on the device; -1: all. They are spread evenly among those
  // whose optimizer runs on the host, so that device and host work at the same time. The share of such chunks is about
  // the same among the chunks on the host and among those on the disk.
  int n_device_update = 0;
  // The number of updates on the host that are deferred to the next step. They are spread evenly over the model. -1:
  // all updates are deferred, those on the device too.
  int n_deferred = 0;
  int slack = 0;
  std::uint64_t chunk_bytes = 64ull << 20;  // the middle of the grid of the paper's appendix B.1
  std::uint64_t piece_bytes = kPieceBytes;
  bool shared_memory = false;
  OptimizerOrder order = OptimizerOrder::overlap;
};

// Returns the numbers of all chunks, in the order in which a place is chosen for them. The first n_persist chunks of
// this order persist, the next n_host chunks rest on the host, and the others rest on the disk.
//   Without a disk, the order is that of first use. So the first chunks of the model persist, because no earlier
// compute could hide their fetches (section 2.1).
//   With a disk, the last k chunks of the order are spread roughly evenly over the model, for every k. With 16 chunks,
// for example, the order is 0, 8, 4, 12, 2, ... So the disk's work is spread over all of backward, where the disk has
// much more to do than in forward. The first chunk still comes first.
std::vector<std::size_t> resting_order(std::size_t chunks, bool with_disk);

// Expands the integers into the paper's layout (section 2.1, figure 2). Chunks rest by resting_order(). Swapped blocks
// are spread among those that recompute. The last blocks keep their activations, but the first n_selective of these
// blocks recompute the cheap activations. With several ranks all chunks except the first n_whole persistent ones are
// sharded. A number that is too large for the graph's chunks or blocks is reduced to the largest that is possible.
Plan expand(const graph::Graph &graph, const Choice &choice);

// Returns the plan with everything on the device: every chunk persists, every block keeps its activations.
Plan resident(const graph::Graph &graph, OptimizerOrder order = OptimizerOrder::overlap);

// True if some update is deferred to the next step.
bool defers(const Plan &plan);

// Cuts the graph's parameters, in order of first use, into chunks of at most `chunk_bytes`, at block borders where
// possible. A larger parameter is a chunk of its own. No chunk has both frozen and other parameters, because a chunk
// that is trained is written back as a whole.
std::vector<Chunk> cut_chunks(const graph::Graph &graph, std::uint64_t chunk_bytes);

// Returns the mode of each block. Blocks that swap come early and as far apart as possible, so that their activations
// are copied while other blocks recompute. Blocks that keep come last: backward begins with them, so it frees their
// activations first. Among these, the selective blocks come before those that keep all. (Figure 2: of eight blocks
// 1 and 4 swap, 2, 3, 5 and 6 recompute.)
std::vector<BlockMode> interleave(std::size_t blocks, std::size_t swaps, std::size_t checkpoints,
                                  std::size_t selective);

int count_blocks(const graph::Graph &graph);

// Returns for each value the block of the first node that reads it. It is -1 if that node is outside of blocks, or if
// no node reads the value.
std::vector<int> block_of_first_use(const graph::Graph &graph);

// Throws Code::arg if the plan does not fit the graph. Examples are a parameter in no chunk or in two, a wrong number
// of blocks, an optimizer where none can run, and a chunk with both frozen and other parameters. With several ranks
// another example is a chunk that does not rest on the device and is not sharded.
void check(const Plan &plan, const graph::Graph &graph);

Json as_json(const Plan &plan);
std::string to_json(const Plan &plan);
// Reads a text that to_json() has written. Also reads a text with only members of a Choice, such as "n_persist" and
// "chunk_bytes", and expands this Choice. "update" may take the place of n_device_update: "host" means 0, "device"
// means -1. `base` supplies the members that the text leaves out. Throws Code::format for a text that is no plan,
// Code::arg for a plan that does not fit the graph.
Plan from_json(const std::string &text, const graph::Graph &graph, const Choice &base);

}  // namespace protrain::plan
