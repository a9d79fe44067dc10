// Device memory to measure in, filled with numbers like those of a model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "measure/stopwatch.h"

namespace protrain::measure {

// A block of a device's memory, released at the end of its life.
class DeviceMemory {
 public:
  DeviceMemory(backend::Device &device, std::uint64_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  std::byte *data() const { return data_; }
  // Repeats `tile` over `bytes` from `offset` on.
  void fill(std::uint64_t offset, std::uint64_t bytes, std::span<const std::byte> tile);

 private:
  backend::Device &device_;
  std::byte *data_;
};

// A tile is a run of elements that fill() repeats over memory. It has kTileBytes bytes, or only `bytes` bytes if that
// is less. random_tile() returns a tile of random elements. Floats have magnitudes from 2^-11 to 2^-6, so that none is
// zero or denormal. With `both_signs` some are negative. Integers lie below `bound`.
inline constexpr std::uint64_t kTileBytes = 256 << 10;
std::vector<std::byte> random_tile(DType dtype, std::uint64_t bytes, bool both_signs, std::uint64_t bound = 2);
// Returns a tile in which `integers` are repeated in turn.
std::vector<std::byte> tile_of(DType dtype, std::uint64_t bytes, const std::vector<std::uint64_t> &integers);

// All operands and the scratch of one node's kernel, laid out one after another. The operands may lie in several
// places, which launches take in turn. Then each launch finds its operands in memory, as most kernels of a step do, not
// in the caches, where the launch before has left its own. All places share the scratch.
class Operands {
 public:
  Operands(const graph::Graph &graph, const graph::Node &node, std::uint64_t scratch);

  // The bytes of the operands in one place.
  std::uint64_t place_bytes() const { return place_bytes_; }
  std::uint64_t bytes(std::size_t places = 1) const;
  std::uint64_t scratch_bytes() const { return scratch_bytes_; }
  // Fills the inputs. With several places also fills the outputs, so that the system gives all of them pages before any
  // launch is timed. Scratch keeps the contents of `memory`.
  std::vector<LaunchOperands> place(DeviceMemory &memory, std::size_t places = 1) const;

 private:
  static constexpr std::uint64_t kAbsent = ~0ull;

  std::uint64_t take(std::uint64_t bytes);
  std::uint64_t take(const graph::Graph &graph, graph::ValueId id);
  void fill_input(DeviceMemory &memory, std::size_t input, std::size_t places) const;
  void fill_output(DeviceMemory &memory, std::size_t output, std::size_t places) const;

  const graph::Graph &graph_;
  const graph::Node &node_;
  std::vector<std::uint64_t> inputs_, outputs_;  // offsets
  std::uint64_t place_bytes_ = 0, scratch_bytes_;
  std::uint64_t smallest_dim_ = 128;  // an index below this fits every table and every integer type
};

}  // namespace protrain::measure
