// Describes one node of a file's graph, with the types of its inputs. The search for sizes of symbolic dims
// (draft/dims.h) looks at the first node at which shapes do not agree, and then at the same node with other sizes.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "graph/bodies.h"

namespace protrain::passes {

struct NodeDescription {
  struct Input {
    std::string name;
    graph::Type type;
    std::vector<std::int64_t> values;  // set for a small constant of integers, such as a shape
  };
  std::size_t position = 0;  // index of the node in the graph's order; the number of nodes if all fit
  std::string op, name;
  graph::Attributes attributes;
  std::vector<Input> inputs;   // present ones
  std::optional<Error> error;  // what does not fit; nothing if no node up to `until` fails
  double work = 0;             // operations spent on evaluating constants
  std::size_t inserted = 0;    // nodes that took the place of control flow
};

// Infers types node by node, as fold() does. Describes the first node that fails, or the node at index `until` if no
// node before it fails.
NodeDescription describe_node(graph::Graph graph, const graph::Bodies &bodies,
                              std::size_t until = std::numeric_limits<std::size_t>::max());

}  // namespace protrain::passes
