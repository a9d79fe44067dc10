// Bodies: the graphs inside control flow nodes (If, Loop, Scan). Import makes them, and folding replaces each control
// flow node by the nodes of its bodies. Later passes see neither bodies nor control flow.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/graph.h"

namespace protrain::graph {

struct Body {
  Graph graph;
  std::size_t own = 0;  // how many of the graph's inputs ONNX defines; they come first, before values from outside
};

// A list of bodies. In a control flow node, the attribute that holds a body in ONNX holds the index of the body here.
// The node's own inputs are followed by the outside values that its bodies read, body by body in the order of the
// attributes' names.
using Bodies = std::vector<Body>;

}  // namespace protrain::graph
