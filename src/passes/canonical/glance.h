// A look at one node of a file's graph, with the types that its inputs have: where shapes stop fitting together, or how
// they look there under other dims.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/graph.h"

namespace protrain::passes {

struct Glance {
  struct Input {
    std::string name;
    graph::Type type;
    std::vector<std::int64_t> values;  // of a small list of integers that is known, such as a shape
  };
  std::size_t position = 0;  // of the node, in the order of the graph; the number of nodes where all fit
  std::string op, name;
  graph::Attributes attributes;
  std::vector<Input> inputs;   // present ones
  std::optional<Error> error;  // what does not fit; none where `until` came first
  double work = 0;             // operations that evaluating constants took
};

// Types nodes in order, as fold() does, up to the first that fails or the one at `until`.
Glance glance(graph::Graph graph, std::size_t until = std::numeric_limits<std::size_t>::max());

}  // namespace protrain::passes
