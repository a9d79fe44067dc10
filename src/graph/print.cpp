// The readable form of a Graph: inputs and parameters first, then one line per node.
#include <fmt/format.h>

#include <iterator>

#include "graph/graph.h"

namespace protrain::graph {

namespace {

void append_names(std::string &out, const Graph &graph, const std::vector<ValueId> &ids) {
  const char *separator = "";
  for (ValueId id : ids) {
    out += separator;
    out += id == ValueId::none ? "-" : graph.value(id).name;
    separator = ", ";
  }
}

void append_types(std::string &out, const Graph &graph, const char *what, const std::vector<ValueId> &ids) {
  for (ValueId id : ids) {
    const Value &value = graph.value(id);
    out += fmt::format("{} {} {}{}\n", what, value.name, to_text(value.type),
                       value.origin == Origin::state ? " state"
                       : value.frozen                ? " frozen"
                                                     : "");
  }
}

}  // namespace

std::string Graph::print() const {
  std::string out;
  append_types(out, *this, "input", inputs);
  append_types(out, *this, "parameter", parameters);
  for (const Node &node : nodes_) {
    append_names(out, *this, node.outputs);
    out += " = " + node.op + "(";
    append_names(out, *this, node.inputs);
    out += ")";
    if (const std::string attributes = node.attributes.print(); !attributes.empty()) out += " {" + attributes + "}";
    for (ValueId id : node.outputs)
      if (id != ValueId::none) out += " " + to_text(value(id).type);
    if (node.block >= 0) out += fmt::format(" block {}", node.block);
    out += "\n";
  }
  append_types(out, *this, "output", outputs);
  return out;
}

}  // namespace protrain::graph
