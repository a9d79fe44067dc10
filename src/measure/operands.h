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

// All operands and the scratch of one node's kernel, laid out one after another.
class Operands {
 public:
  Operands(const graph::Graph &graph, const graph::Node &node, std::uint64_t scratch);

  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t scratch_bytes() const { return scratch_bytes_; }
  // Fills the inputs. Outputs and scratch keep the contents of `memory`.
  LaunchOperands place(DeviceMemory &memory) const;

 private:
  static constexpr std::uint64_t kAbsent = ~0ull;

  std::uint64_t take(std::uint64_t bytes);
  std::uint64_t take(const graph::Graph &graph, graph::ValueId id);
  void fill_input(DeviceMemory &memory, std::size_t input) const;

  const graph::Graph &graph_;
  const graph::Node &node_;
  std::vector<std::uint64_t> inputs_, outputs_;  // offsets
  std::uint64_t scratch_ = 0, scratch_bytes_ = 0, bytes_ = 0;
  std::uint64_t smallest_dim_ = 128;  // an index below this fits every table and every integer type
};

}  // namespace protrain::measure
