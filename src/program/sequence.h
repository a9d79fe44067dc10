// The order in which a step computes: the graph's nodes, and once more those whose results were dropped.
#pragma once

#include <vector>

#include "program/program.h"

namespace protrain::program {

struct Item {
  graph::NodeId node;
  bool again = false;     // a forward node of a block that recomputes, all or selectively, before its backward
  std::size_t stage = 0;  // a block's forward or backward, with what lies between its items
};

// The order of nodes, and the treatment of values that a block makes for its own backward.
struct Sequence {
  std::vector<Item> items;
  std::vector<int> block;             // per storage root: the one block whose forward touches it, -1: none or several
  std::vector<plan::BlockMode> mode;  // per storage root: recompute, swap; keep for everything else, never selective
};

// Leaves out nodes that none of `wanted` needs.
Sequence sequence(const graph::Graph &graph, const std::vector<graph::ValueId> &roots,
                  const std::vector<plan::BlockMode> &blocks, const std::vector<graph::ValueId> &wanted);

}  // namespace protrain::program
