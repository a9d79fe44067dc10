// Forms that operators had in older opsets, and how they become the newest form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace protrain::onnx_import {

// An older form of an operator, which the opsets up to `until` have. A form has a row in the table if it takes fewer
// inputs than the newest form, needs attributes, or has another meaning. Attributes that became inputs in a later opset
// need no conversion, because ops::Op::absorbed turns these inputs of newer forms into attributes of the same names.
struct OlderForm {
  std::string_view op;
  std::int64_t until;
  int least, most;         // inputs
  std::string_view needs;  // the attributes that must be there, separated by spaces
  // Converts the node to the newest form. nullptr: the node has that form already.
  void (*convert)(graph::Graph &, graph::Node &);
};

// Returns the form that `op` has in `opset`; nullptr if this is the newest form.
const OlderForm *older_form(std::string_view op, std::int64_t opset);

// Converts a node whose operator has this form to the newest form. Throws Code::graph, Code::unsupported.
void convert_older(const OlderForm &form, graph::Graph &graph, graph::Node &node, const std::string &subject);

}  // namespace protrain::onnx_import
