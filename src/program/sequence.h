// The order in which a step runs the graph's nodes. Nodes whose results were dropped run a second time for backward.
#pragma once

#include <vector>

#include "program/program.h"

namespace protrain::program {

struct Item {
  graph::NodeId node;
  bool again = false;     // the second run of a forward node, in a block that recomputes all or selectively
  std::size_t stage = 0;  // number of the stage that the item belongs to
};

// The order of nodes. `block` and `mode` also say what happens to values between forward and backward, if only one
// block uses them in forward.
struct Sequence {
  std::vector<Item> items;
  std::vector<int> block;             // per storage root: the only block whose forward touches it; negative: none
  std::vector<plan::BlockMode> mode;  // per storage root: keep, recompute or swap; never selective
};

// Returns the order of a step that computes `wanted`; nodes that these values do not need are left out. `roots`: the
// storage root of each value. `blocks`: the mode of each block.
Sequence sequence(const graph::Graph &graph, const std::vector<graph::ValueId> &roots,
                  const std::vector<plan::BlockMode> &blocks, const std::vector<graph::ValueId> &wanted);

}  // namespace protrain::program
