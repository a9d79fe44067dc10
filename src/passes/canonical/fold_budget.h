// FoldBudget: limits the memory and the work of evaluating constants, and the number of nodes that take the place of
// control flow, so that no file can demand too much.
#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace protrain::passes {

// The limits of a FoldBudget. Let L be the largest dim of the graph's inputs (at most 2^24) and F the bytes of
// constants in the file. The constants that are evaluated may take 64 MiB + 64 L^2 + 4 F bytes, which allows masks over
// all pairs of positions. Evaluating them may take 2^28 + 1024 L^2 + 64 F operations. Large constants that rules write,
// such as the matrix of a DFT, count as evaluated ones. At most kMostUnrolled nodes may take the place of control flow.
inline constexpr std::size_t kMostUnrolled = 1 << 16;

struct FoldBudget {
  explicit FoldBudget(const graph::Graph &graph);

  // Raises the limits, because constants of `file_bytes` bytes were read from the file after the budget was made.
  void grant(std::uint64_t file_bytes);
  // Takes the bytes and operations from the budget and returns true. Returns false, and takes nothing, if the budget
  // has fewer left.
  bool take(std::uint64_t result_bytes, double operations);
  // Counts nodes that take the place of control flow, and returns false if there are too many.
  bool take_nodes(std::size_t count);

  std::uint64_t bytes = std::uint64_t{64} << 20;
  double work = 1 << 28;
  std::size_t nodes = kMostUnrolled;
};

}  // namespace protrain::passes
