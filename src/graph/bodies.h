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

// The bodies of control flow nodes. Where ONNX puts a body into an attribute of a node, the attribute here holds the
// index of the body in this list. The inputs of such a node are those that ONNX gives it, followed by the outside
// values that its bodies read. The bodies come in the order of the attributes' names.
using Bodies = std::vector<Body>;

}  // namespace protrain::graph
