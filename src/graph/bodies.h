// Bodies: the graphs inside control flow nodes (If, Loop, Scan). Import makes them, and folding puts their nodes in
// place of the control flow. No later pass sees either.
#pragma once

#include <cstddef>
#include <vector>

#include "graph/graph.h"

namespace protrain::graph {

struct Body {
  Graph graph;
  std::size_t own = 0;  // the first of the graph's inputs, which ONNX defines; the others are values from outside
};

// A control flow node has the index of each body in the attribute that ONNX gives to the body. Behind its own inputs it
// reads what its bodies read from outside, body after body in the order of the attributes' names.
using Bodies = std::vector<Body>;

}  // namespace protrain::graph
