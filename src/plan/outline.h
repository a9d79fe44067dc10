// Outline: what the cost model needs to know of a graph's blocks. It is made once and serves every choice.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "plan/durations.h"

namespace protrain::plan {

struct Outline {
  struct Block {
    double forward = 0, backward = 0;  // seconds of its nodes
    std::uint64_t saved = 0;           // bytes that only its own backward needs: kept, swapped or recomputed
    std::uint64_t cheap = 0;           // part of `saved`: bytes that little work recomputes (lives.h)
    double again = 0;                  // seconds of recomputing `cheap`
    std::uint64_t border = 0;          // bytes it makes for backward that other blocks use too: they stay in every mode
    // The most bytes that are live while one of the block's nodes runs, apart from two things: `outside`, and all that
    // this block and earlier blocks keep for backward.
    std::uint64_t transient = 0;
  };
  Outline(const graph::Graph &graph, const Durations &durations);

  std::vector<Block> blocks;
  double forward = 0, backward = 0;     // seconds of nodes outside of blocks
  std::uint64_t outside = 0;            // bytes kept for backward outside of blocks
  std::uint64_t head_transient = 0;     // as Block::transient, for nodes outside of blocks
  std::vector<int> block_of_parameter;  // block of its first use; -1: outside
};

}  // namespace protrain::plan
