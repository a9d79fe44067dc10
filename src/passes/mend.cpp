#include "passes/mend.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace protrain::passes {

namespace {

using graph::Array;
using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::ValueId;

bool is_matrix_parameter(const Graph &graph, ValueId id) {
  return id != ValueId::none && graph.value(id).origin == Origin::parameter && graph.value(id).type.shape.size() == 2;
}

// The parameter that the node picks rows of by data (not by position, which is known), or multiplies by; none
// otherwise.
ValueId table_of(const Graph &graph, const Node &node) {
  const bool by_data = node.op == "Gather" && graph.value(node.inputs.at(1)).origin != Origin::constant;
  return by_data && is_matrix_parameter(graph, node.inputs[0]) ? node.inputs[0] : ValueId::none;
}
ValueId operand_of(const Graph &graph, const Node &node) {
  return node.op == "MatMul" && is_matrix_parameter(graph, node.inputs.at(1)) ? node.inputs[1] : ValueId::none;
}

// What `find` finds, each once, in the order of nodes.
std::vector<ValueId> all_of(const Graph &graph, ValueId (*find)(const Graph &, const Node &)) {
  std::vector<ValueId> found;
  std::set<ValueId> met = {ValueId::none};
  for (const Node &node : graph.nodes())
    if (const ValueId id = find(graph, node); met.insert(id).second) found.push_back(id);
  return found;
}

bool may_be_transposes(const Graph &graph, ValueId a, ValueId b) {
  const graph::Type &left = graph.value(a).type, &right = graph.value(b).type;
  return a != b && left.dtype == right.dtype && left.shape[0] == right.shape[1] && left.shape[1] == right.shape[0];
}

bool is_transpose(const Array &table, const Array &matrix) {
  if (table.stored() != table.shape() || matrix.stored() != matrix.shape()) return false;  // constant along an axis
  const std::size_t size = size_of(table.dtype());
  const auto rows = static_cast<std::size_t>(table.shape()[0]), columns = static_cast<std::size_t>(table.shape()[1]);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      if (std::memcmp(table.bytes() + (i * columns + j) * size, matrix.bytes() + (j * rows + i) * size, size) != 0)
        return false;
  return true;
}

}  // namespace

void retie_transposes(Graph &graph, const LoadInitializer &load, std::vector<Finding> &findings) {
  const std::vector<ValueId> tables = all_of(graph, table_of), matrices = all_of(graph, operand_of);
  std::vector<Node> turned;
  for (ValueId table : tables)
    for (ValueId matrix : matrices) {
      if (!is_matrix_parameter(graph, matrix) || !may_be_transposes(graph, table, matrix)) continue;
      const std::string name = graph.value(matrix).name;  // a copy: adding values moves them
      if (!is_transpose(load(graph.value(table).name), load(name).compact())) continue;
      const auto finding = std::ranges::find(findings, name, &Finding::initializer);
      finding->parameter = finding->frozen = false;
      finding->tied_to = graph.value(table).name;
      finding->reason = "equals the transpose of " + finding->tied_to;
      const ValueId again = graph.add_value({.name = name + "/tied", .type = graph.value(matrix).type, .array = {}});
      graph.replace_uses(matrix, again);
      graph.value(matrix).origin = Origin::initializer;
      turned.push_back({.op = "Transpose",
                        .name = name,
                        .attributes = {{"perm", std::vector<std::int64_t>{1, 0}}},
                        .inputs = {table},
                        .outputs = {again}});
    }
  if (turned.empty()) return;
  turned.insert(turned.end(), graph.nodes().begin(), graph.nodes().end());
  graph.set_nodes(std::move(turned));
}

}  // namespace protrain::passes
