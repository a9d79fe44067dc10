// Plan: what was chosen. Where each chunk of parameters rests, what each block does with its activations, and in which
// order the optimizer runs. A plain value: compare it, print it, store it. It says nothing about when and at which
// address; the Program does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace protrain::plan {

enum class Tier : std::uint8_t { device, host, disk };
enum class BlockMode : std::uint8_t { keep, recompute, swap };
enum class OptimizerOrder : std::uint8_t {
  overlap,  // an update follows its gradient, beside the backward of earlier chunks
  barrier,  // updates run after the norm of all gradients is known
};

// A run of parameters in execution order that moves as one.
struct Chunk {
  std::vector<std::size_t> parameters;  // positions in graph.parameters
  std::uint64_t bytes = 0;              // of the weights alone
  Tier tier = Tier::device;
  bool operator==(const Chunk &) const = default;
};

// The paper's four integers (ProTrain, section 3) and what they expand to.
struct Plan {
  int n_persist = 0;     // chunks that stay on the device
  int n_buffer = 0;      // buffers that the others pass through
  int n_swap = 0;        // blocks that swap
  int n_checkpoint = 0;  // blocks that recompute
  std::vector<Chunk> chunks;
  std::vector<BlockMode> blocks;
  OptimizerOrder order = OptimizerOrder::overlap;
  bool operator==(const Plan &) const = default;
};

std::string to_json(const Plan &plan);

// Cuts the graph's parameters, in order of first use, into chunks of at most `chunk_bytes`, at block borders where
// that can be; a larger parameter is a chunk of its own.
std::vector<Chunk> cut_chunks(const graph::Graph &graph, std::uint64_t chunk_bytes);

// Everything on the device: every chunk persistent, every block keeps its activations.
Plan resident(const graph::Graph &graph);

}  // namespace protrain::plan
