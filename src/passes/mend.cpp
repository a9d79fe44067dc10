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

// Parameters that a node of this operator reads as this input, in order of reading.
std::vector<ValueId> matrices_read(const Graph &graph, const std::string &op, std::size_t input) {
  std::vector<ValueId> found;
  std::set<ValueId> met;
  for (const Node &node : graph.nodes())
    if (node.op == op && input < node.inputs.size() && is_matrix_parameter(graph, node.inputs[input]) &&
        met.insert(node.inputs[input]).second)
      found.push_back(node.inputs[input]);
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
  const std::vector<ValueId> tables = matrices_read(graph, "Gather", 0), matrices = matrices_read(graph, "MatMul", 1);
  std::vector<Node> turned;
  for (ValueId table : tables)
    for (ValueId matrix : matrices) {
      if (!may_be_transposes(graph, table, matrix)) continue;
      const std::string &name = graph.value(matrix).name;
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
