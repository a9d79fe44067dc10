#include "program/exchange.h"

#include <algorithm>

#include "ops/ranks.h"
#include "program/storage.h"

namespace protrain::program {

namespace {

// A vector cut into one part per rank, by the bounds of the parts in bytes.
struct Parts {
  std::vector<std::uint64_t> bounds;

  int ranks() const { return static_cast<int>(bounds.size()) - 1; }
  std::uint64_t begin(int rank) const { return bounds[static_cast<std::size_t>(rank)]; }
  std::uint64_t bytes(int rank) const { return begin(rank + 1) - begin(rank); }
};

Parts parts_of(const std::vector<std::int64_t> &bounds, DType dtype) {
  Parts parts;
  for (const std::int64_t bound : bounds) parts.bounds.push_back(static_cast<std::uint64_t>(bound) * size_of(dtype));
  return parts;
}

Operand beyond(Operand at, std::uint64_t offset) { return {at.buffer, at.offset + offset}; }

void add(std::vector<Message> &messages, int rank, Operand at, std::uint64_t bytes) {
  if (bytes > 0) messages.push_back({.rank = rank, .at = at, .bytes = bytes});
}

std::uint64_t bytes_with_others(const std::vector<Message> &messages, int rank) {
  std::uint64_t sum = 0;
  for (const Message &message : messages)
    if (message.rank != rank) sum += message.bytes;
  return sum;
}

// Adds the messages of an all-to-all. This rank sends part r of its `whole` to each rank r. From the `whole` of each
// rank r it receives the part that belongs to this rank, and stores the part in row r of `rows`.
void scatter(Instruction &exchange, const Parts &parts, int rank, Operand whole, Operand rows,
             std::uint64_t row_bytes) {
  for (int r = 0; r < parts.ranks(); ++r) {
    add(exchange.sends, r, beyond(whole, parts.begin(r)), parts.bytes(r));
    add(exchange.receives, r, beyond(rows, static_cast<std::uint64_t>(r) * row_bytes), parts.bytes(rank));
  }
}

// Adds the messages of an all-gather: this rank sends its part, `part`, to every rank, and receives the parts of all
// ranks into `whole`.
void gather(Instruction &exchange, const Parts &parts, int rank, Operand part, Operand whole) {
  for (int r = 0; r < parts.ranks(); ++r) {
    const Operand place = beyond(whole, parts.begin(r));
    if (r == rank && place == part) continue;
    add(exchange.sends, r, part, parts.bytes(rank));
    add(exchange.receives, r, place, parts.bytes(r));
  }
}

Instruction finished(Instruction exchange, int rank) {
  exchange.bytes = std::max(bytes_with_others(exchange.sends, rank), bytes_with_others(exchange.receives, rank));
  return exchange;
}

Instruction gather_chunk(const GatheredChunk &chunk, BufferId from, BufferId to) {
  const graph::Shards &shards = chunk.state.shards;
  Instruction exchange{.kind = Kind::all_gather, .queue = Queue::comm, .inputs = {{from, 0}}, .outputs = {{to, 0}}};
  for (std::size_t p : chunk.parameters) {
    const State::Parameter &parameter = chunk.state.parameters[p];
    const DType dtype = chunk.graph.value(chunk.graph.parameters[p]).type.dtype;
    gather(exchange, parts_of(shards.bounds[p], dtype), shards.rank, {from, parameter.weights_at},
           {to, parameter.whole_at});
  }
  return finished(std::move(exchange), shards.rank);
}

}  // namespace

Instruction exchange_of(const graph::Graph &graph, const graph::Node &node, const std::vector<Operand> &inputs,
                        const std::vector<Operand> &outputs) {
  const bool gathers = node.op == "AllGather";
  const auto rank = static_cast<int>(node.attributes.integer("rank", 0));
  Instruction exchange{.kind = gathers ? Kind::all_gather : Kind::all_to_all,
                       .queue = Queue::comm,
                       .inputs = inputs,
                       .outputs = outputs};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Parts parts = parts_of(ops::bounds_of(node, i), graph.value(node.inputs[i]).type.dtype);
    if (gathers)
      gather(exchange, parts, rank, inputs[i], outputs[i]);
    else
      scatter(exchange, parts, rank, inputs[i], outputs[i],
              bytes_of(graph, node.outputs[i]) / static_cast<std::uint64_t>(parts.ranks()));
  }
  return finished(std::move(exchange), rank);
}

BufferId gather_weights(const GatheredChunk &chunk, Builder &builder, BufferId rest) {
  const std::uint64_t bytes = chunk.state.chunks[chunk.chunk].whole_bytes;
  const Tier place = chunk.state.exchanges;
  const BufferId shards = builder.bring({rest, 0}, builder.buffer(rest).bytes, place).buffer;
  const BufferId whole = builder.add(builder.buffer(rest).name + "/whole", place, bytes, kAlignment, Owner::weights);
  builder.emit(gather_chunk(chunk, shards, whole));
  return builder.bring({whole, 0}, bytes, Tier::device).buffer;
}

void gather_updated(const GatheredChunk &chunk, Builder &builder) {
  const Operand weights = {chunk.state.chunks[chunk.chunk].weights, 0};
  const std::uint64_t bytes = builder.buffer(weights.buffer).bytes;
  const Operand near = builder.bring(weights, bytes, chunk.state.exchanges);
  builder.emit(gather_chunk(chunk, near.buffer, near.buffer));
  if (near != weights) builder.store(near, weights, bytes);
}

}  // namespace protrain::program
