// Bodies: the graphs inside control flow nodes (If, Loop, Scan). Import makes them, and folding replaces each control
// flow node by the nodes of its bodies. Later passes see neither bodies nor control flow.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/graph.h"

namespace protrain::graph {

struct Body {
  Graph graph;
  std::size_t own = 0;  // number of inputs that ONNX defines; the inputs after these are values from outside
};

// The bodies of all control flow nodes. In ONNX an attribute of the node holds the body. Here the attribute holds the
// index of the body in this list. The node has the inputs that ONNX defines. After them come the outside values that
// its bodies read, body by body in the order of the attributes' names.
using Bodies = std::vector<Body>;

}  // namespace protrain::graph
