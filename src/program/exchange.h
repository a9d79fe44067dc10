// Instructions between ranks.
#pragma once

#include "program/builder.h"

namespace protrain::program {

// Returns the instruction of an AllToAll or AllGather node. `inputs` and `outputs`: the places of the node's operands.
Instruction exchange_of(const graph::Graph &graph, const graph::Node &node, const std::vector<Operand> &inputs,
                        const std::vector<Operand> &outputs);

// A chunk of which every rank needs the whole weights.
struct GatheredChunk {
  const graph::Graph &graph;
  const State &state;
  const std::vector<std::size_t> &parameters;
  std::size_t chunk;
};

// Emits the all-gather of a sharded chunk's weights. `rest`: the buffer of this rank's shards. Returns the new buffer,
// on the device, that holds the whole weights.
BufferId gather_weights(const GatheredChunk &chunk, Builder &builder, BufferId rest);

// Emits the all-gather, in place, of the weights of a chunk that rests whole, after every rank has updated its shards.
void gather_updated(const GatheredChunk &chunk, Builder &builder);

}  // namespace protrain::program
