// OptimizerArray: an array that an optimizer keeps for each parameter that it trains. Planner, Program, disk, ranks and
// checkpoints know the optimizer's state by this description alone.
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"
#include "base/shape.h"
#include "graph/shards.h"

namespace protrain::graph {

struct OptimizerArray {
  std::string name;
  DType dtype = DType::f32;
  std::uint64_t block = 1;  // weights that share an element of the array; divides kGrain, so no shard cuts a block
  bool operator==(const OptimizerArray &) const = default;

  // count() returns how many elements the array has for a parameter of `weights` weights, and bytes() how many bytes.
  std::uint64_t count(std::uint64_t weights) const { return weights / block + (weights % block != 0); }
  std::uint64_t bytes(std::uint64_t weights) const { return checked_multiply(count(weights), size_of(dtype)); }
  double bytes_each() const { return static_cast<double>(size_of(dtype)) / static_cast<double>(block); }
};

}  // namespace protrain::graph
