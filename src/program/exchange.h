// Makes the instructions by which ranks exchange data: all-to-all and all-gather.
#pragma once

#include "program/builder.h"

namespace protrain::program {

// Returns the instruction of an AllToAll or AllGather node. `inputs` and `outputs`: the places of the node's operands.
Instruction exchange_of(const graph::Graph &graph, const graph::Node &node, const std::vector<Operand> &inputs,
                        const std::vector<Operand> &outputs);

// The arguments of a gather: a chunk, and those of its parameters that every rank gets whole.
struct GatheredChunk {
  const graph::Graph &graph;
  const State &state;
  const std::vector<std::size_t> &parameters;
  std::size_t chunk;
};

// Emits the all-gather of a sharded chunk's weights. `rest`: the buffer of this rank's shards. Returns the new buffer,
// on the device, that holds the whole weights.
BufferId gather_weights(const GatheredChunk &chunk, Builder &builder, BufferId rest);

// Emits an in-place all-gather of updated weights, for a chunk of which every rank keeps all weights. It runs after
// each rank has updated its own shards.
void gather_updated(const GatheredChunk &chunk, Builder &builder);

}  // namespace protrain::program
