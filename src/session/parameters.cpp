#include "session/parameters.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "arith/planes.h"
#include "base/error.h"
#include "base/threads.h"

namespace protrain::session {

namespace {

constexpr std::size_t kBlockElements = 256 << 10;  // that pass between planes and float32 at once

// Planes of a block of masters.
struct Block {
  explicit Block(std::size_t elements) : high(elements), low(elements) {}
  void split(std::span<const std::byte> masters) {
    for (std::size_t i = 0; i < masters.size() / sizeof(float); ++i) {
      float master;
      std::memcpy(&master, &masters[i * sizeof(float)], sizeof master);
      const arith::Planes planes = arith::split(master);
      high[i].bits = planes.high.bits;
      low[i] = planes.low;
    }
  }
  void join(std::span<std::byte> masters) const {
    for (std::size_t i = 0; i < masters.size() / sizeof(float); ++i) {
      const float master = arith::joined(high[i], low[i]);
      std::memcpy(&masters[i * sizeof(float)], &master, sizeof master);
    }
  }

  std::vector<arith::bf16> high;
  std::vector<std::uint16_t> low;  // zeros where none is kept: joined, the upper plane is widened
};

template <typename T>
std::span<const std::byte> bytes_of(const std::vector<T> &values, std::size_t count) {
  return std::as_bytes(std::span(values).first(count));
}
template <typename T>
std::span<std::byte> bytes_of(std::vector<T> &values, std::size_t count) {
  return std::as_writable_bytes(std::span(values).first(count));
}

}  // namespace

const graph::Value &Parameters::value(std::size_t p) const {
  const graph::Graph &graph = blueprint_.first().training.graph;
  return graph.value(graph.parameters[p]);
}

std::size_t Parameters::planes_below() const {
  return state().optimizer_arrays.size() - static_cast<std::size_t>(blueprint_.optimizer.state_count());
}

const program::Buffer *Parameters::low_plane(std::size_t chunk) const {
  const bool there = planes_below() > 0 && !state().chunks[chunk].optimizer.empty();
  return there ? &buffer(state().chunks[chunk].optimizer[0]) : nullptr;
}

void Parameters::fill(int threads, bool reachable) {
  std::vector<std::size_t> in_place;
  for (std::size_t c = 0; c < state().chunks.size(); ++c) {
    const Tier tier = buffer(state().chunks[c].weights).tier;
    if (tier == Tier::host || (tier == Tier::device && reachable))
      in_place.push_back(c);
    else
      fill_through_memory(c);
  }
  if (!in_place.empty()) fill_in_place(in_place, threads);
}

// Memory comes zeroed from the system, which takes longer than copying a file out of its cache: chunks are shared out.
void Parameters::fill_in_place(const std::vector<std::size_t> &chunks, int threads) {
  const auto most = static_cast<int>(std::min<std::size_t>(chunks.size(), std::numeric_limits<int>::max()));
  Team readers(std::clamp(threads, 1, most), "protrain-read");
  readers.enter([&] {
    readers.run([&](Member &member) {
      const Range mine = share(static_cast<std::int64_t>(chunks.size()), 1, member);
      for (std::int64_t i = mine.begin; i < mine.end; ++i) {
        const std::size_t c = chunks[static_cast<std::size_t>(i)];
        const program::Buffer *low = low_plane(c);
        read_chunk(c, {store_.address(buffer(state().chunks[c].weights)), low ? store_.address(*low) : nullptr});
      }
    });
  });
}

// What the disk holds must have been written before it is read.
void Parameters::fill_through_memory(std::size_t c) {
  const program::State::Chunk &chunk = state().chunks[c];
  const program::Buffer &weights = buffer(chunk.weights), *low = low_plane(c);
  std::byte *at = store_.staging(weights.bytes + (low ? low->bytes : 0));
  const Planes planes = {at, low ? at + weights.bytes : nullptr};
  read_chunk(c, planes);
  if (weights.tier == Tier::device) {
    store_.write(weights, 0, planes.weights, weights.bytes);
    if (low) store_.write(*low, 0, planes.low, low->bytes);
    return;
  }
  store_.write_disk(weights.offset, planes.weights, weights.bytes);
  if (low) store_.write_disk(low->offset, planes.low, low->bytes);
  for (std::size_t i = planes_below(); i < chunk.optimizer.size(); ++i)
    store_.clear_disk(buffer(chunk.optimizer[i]).offset, buffer(chunk.optimizer[i]).bytes);
  if (chunk.gradient == program::BufferId::none) return;
  for (std::size_t p : blueprint_.chosen.plan.chunks[c].parameters) {
    if (!state().parameters[p].trained) continue;
    const grad::Training &training = blueprint_.first().training;
    const graph::Type &type = training.graph.value(training.gradients[p]).type;
    const program::Operand home = state().gradient(p);
    store_.clear_disk(buffer(home.buffer).offset + home.offset, byte_count(type.dtype, type.shape));
  }
}

void Parameters::read_chunk(std::size_t chunk, const Planes &to) const {
  for (std::size_t p : blueprint_.chosen.plan.chunks[chunk].parameters) {
    const graph::Value &parameter = value(p);
    if (is_split(p))
      read_masters(p, to);
    else
      blueprint_.file->read(
          blueprint_.in_file(parameter.name), 0,
          {to.weights + state().parameters[p].weights_at, byte_count(parameter.type.dtype, parameter.type.shape)});
  }
}

// The file holds float32.
void Parameters::read_masters(std::size_t p, const Planes &to) const {
  const program::State::Parameter &parameter = state().parameters[p];
  const std::string &name = blueprint_.in_file(value(p).name);
  const auto elements = static_cast<std::size_t>(element_count(value(p).type.shape));
  std::byte *high = to.weights + parameter.weights_at, *low = nullptr;
  if (parameter.trained) low = to.low + parameter.optimizer_at * sizeof(std::uint16_t);
  Block block(std::min(elements, kBlockElements));
  std::vector<float> masters(block.high.size());
  for (std::size_t at = 0; at < elements; at += masters.size()) {
    const std::size_t count = std::min(masters.size(), elements - at);
    blueprint_.file->read(name, at * sizeof(float), bytes_of(masters, count));
    block.split(bytes_of(masters, count));
    std::memcpy(high + at * sizeof(arith::bf16), block.high.data(), count * sizeof(arith::bf16));
    if (low) std::memcpy(low + at * sizeof(std::uint16_t), block.low.data(), count * sizeof(std::uint16_t));
  }
}

void Parameters::read_at(const program::Operand &at, std::uint64_t offset, std::span<std::byte> out) {
  store_.read(buffer(at.buffer), at.offset + offset, out.data(), out.size());
}

void Parameters::write_at(const program::Operand &at, std::uint64_t offset, std::span<const std::byte> in) {
  store_.write(buffer(at.buffer), at.offset + offset, in.data(), in.size());
}

// act(block, first, count): for as many elements of a split parameter as make `bytes` of float32.
template <typename Act>
void Parameters::each_block(std::size_t p, std::uint64_t bytes, Act &&act) {
  const std::size_t elements = bytes / sizeof(float);
  Block block(std::min(elements, kBlockElements));
  std::optional<run::Store::Sweep> sweep;  // blocks are smaller than the disk's pieces
  if (buffer(state().weights(p).buffer).tier == Tier::disk) sweep.emplace(store_);
  for (std::size_t first = 0; first < elements; first += block.high.size())
    act(block, first, std::min(block.high.size(), elements - first));
  if (sweep) sweep->finish();
}

void Parameters::read(std::size_t p, std::size_t array, std::uint64_t offset, std::span<std::byte> out) {
  if (array > 0) return read_at(state().optimizer(p, array - 1 + planes_below()), offset, out);
  if (!is_split(p)) return read_at(state().weights(p), offset, out);
  each_block(p, out.size(), [&](Block &block, std::size_t first, std::size_t count) {
    read_at(state().weights(p), offset / 2 + first * sizeof(arith::bf16), bytes_of(block.high, count));
    if (state().parameters[p].trained)
      read_at(state().optimizer(p, 0), offset / 2 + first * sizeof(std::uint16_t), bytes_of(block.low, count));
    block.join(out.subspan(first * sizeof(float), count * sizeof(float)));
  });
}

void Parameters::write(std::size_t p, std::size_t array, std::uint64_t offset, std::span<const std::byte> in) {
  if (array > 0) return write_at(state().optimizer(p, array - 1 + planes_below()), offset, in);
  if (!is_split(p)) return write_at(state().weights(p), offset, in);
  each_block(p, in.size(), [&](Block &block, std::size_t first, std::size_t count) {
    block.split(in.subspan(first * sizeof(float), count * sizeof(float)));
    write_at(state().weights(p), offset / 2 + first * sizeof(arith::bf16), bytes_of(std::as_const(block.high), count));
    if (state().parameters[p].trained)
      write_at(state().optimizer(p, 0), offset / 2 + first * sizeof(std::uint16_t),
               bytes_of(std::as_const(block.low), count));
  });
}

// Gradients on disk are arrays of their own. In bfloat16 they are read to the upper half of `out`, and widened from
// there.
void Parameters::read_gradient(std::size_t p, std::span<float> out) {
  const grad::Training &training = blueprint_.first().training;
  const bool narrow = training.graph.value(training.gradients[p]).type.dtype == DType::bf16;
  const std::size_t bytes = narrow ? out.size() * sizeof(arith::bf16) : out.size_bytes();
  std::byte *to = reinterpret_cast<std::byte *>(out.data()) + (out.size_bytes() - bytes);
  const program::BufferId kept = state().kept[p];
  const program::Operand at = kept != program::BufferId::none ? program::Operand{kept, 0} : state().gradient(p);
  if (buffer(at.buffer).tier == Tier::disk)
    store_.read_disk(buffer(at.buffer).offset + at.offset, to, bytes);
  else
    read_at(at, 0, {to, bytes});
  for (std::size_t i = 0; narrow && i < out.size(); ++i) {
    arith::bf16 g;
    std::memcpy(&g, to + i * sizeof g, sizeof g);
    out[i] = arith::widened(g);
  }
}

}  // namespace protrain::session
