#include "passes/parameters/mend.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "passes/parameters/load.h"

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

// table_of() returns the parameter whose rows the node picks by data (not by constant positions). operand_of() returns
// the parameter that the node multiplies by. Both return ValueId::none if there is no such parameter.
ValueId table_of(const Graph &graph, const Node &node) {
  const bool by_data = node.op == "Gather" && graph.value(node.inputs.at(1)).origin != Origin::constant;
  return by_data && is_matrix_parameter(graph, node.inputs[0]) ? node.inputs[0] : ValueId::none;
}
ValueId operand_of(const Graph &graph, const Node &node) {
  return node.op == "MatMul" && is_matrix_parameter(graph, node.inputs.at(1)) ? node.inputs[1] : ValueId::none;
}

// Returns all values that `find` finds, each once, in the order of nodes.
std::vector<ValueId> all_of(const Graph &graph, ValueId (*find)(const Graph &, const Node &)) {
  std::vector<ValueId> found;
  std::set<ValueId> met = {ValueId::none};
  for (const Node &node : graph.nodes())
    if (const ValueId id = find(graph, node); met.insert(id).second) found.push_back(id);
  return found;
}

bool may_be_transposes(const graph::Type &left, const graph::Type &right) {
  return left.dtype == right.dtype && left.shape.size() == 2 && right.shape.size() == 2 &&
         left.shape[0] == right.shape[1] && left.shape[1] == right.shape[0];
}
bool may_be_transposes(const Graph &graph, ValueId a, ValueId b) {
  return a != b && may_be_transposes(graph.value(a).type, graph.value(b).type);
}

bool is_dense(const Array &array) { return array.stored() == array.shape(); }
bool is_constant_along_an_axis(const Array &array) { return !is_dense(array.compact()); }

// True if at most one axis is longer than 1. A transpose is then a reshape.
bool is_line(const Shape &shape) {
  return std::ranges::count_if(shape, [](std::int64_t extent) { return extent != 1; }) <= 1;
}

// True if the arrays hold the same elements in the same order, whatever their shapes are.
bool is_same(const Array &a, const Array &b) {
  return is_dense(a) && is_dense(b) && a.dtype() == b.dtype() && a.stored_bytes() == b.stored_bytes() &&
         std::memcmp(a.bytes(), b.bytes(), a.stored_bytes()) == 0;
}

bool is_transpose(const Array &table, const Array &matrix) {
  if (!is_dense(table) || !is_dense(matrix)) return false;
  const std::size_t size = size_of(table.dtype());
  const auto rows = static_cast<std::size_t>(table.shape()[0]), columns = static_cast<std::size_t>(table.shape()[1]);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      if (std::memcmp(table.bytes() + (i * columns + j) * size, matrix.bytes() + (j * rows + i) * size, size) != 0)
        return false;
  return true;
}

enum class Likeness : std::uint8_t {
  copy,       // the same elements in the same order, perhaps in another shape
  transpose,  // a matrix and its transpose
  neither,    // other elements, or a symmetric matrix, whose values do not tell a copy from a transpose
};

Likeness compare(const Array &original, const Array &copy) {
  const bool same = is_same(original, copy);
  const bool transposed = may_be_transposes(original.type(), copy.type()) && is_transpose(original, copy);
  if (same && (!transposed || is_line(copy.shape()))) return Likeness::copy;
  return transposed && !same ? Likeness::transpose : Likeness::neither;
}

// Ties copies to originals. The readers of a copy then read the original, its transpose, or its elements in another
// shape. New nodes at the front of the graph compute the transpose and the reshaped elements.
class Ties {
 public:
  Ties(Graph &graph, std::vector<Finding> &findings) : graph_(graph), findings_(findings) {}

  void add(ValueId original, ValueId copy, bool transposed, const std::string &reason) {
    const std::string name = graph_.value(copy).name;  // a copy, because adding values moves them
    const auto finding = std::ranges::find(findings_, name, &Finding::initializer);
    finding->parameter = finding->frozen = false;
    finding->tied_to = graph_.value(original).name;
    finding->transposed = transposed;
    finding->reason = reason + finding->tied_to;
    for (Finding &other : findings_) {  // what is tied to the copy is now tied to the original
      if (other.tied_to != name) continue;
      other.tied_to = finding->tied_to;
      other.transposed = other.transposed != transposed;
      other.reason += ", which is tied to " + finding->tied_to;
    }
    const auto reads_copy = std::ranges::find_if(
        nodes_, [&](const Node &node) { return std::ranges::find(node.inputs, copy) != node.inputs.end(); });
    ValueId again = original;
    const graph::Type type = graph_.value(copy).type;
    if (transposed || type != graph_.value(original).type) {
      again = graph_.add_value({.name = name + "/tied", .type = type, .array = {}});
      Node node{.op = "Reshape",
                .name = name,
                .attributes = {{"shape", type.shape}},
                .inputs = {original},
                .outputs = {again}};
      if (transposed) {
        node.op = "Transpose";
        node.attributes = {{"perm", std::vector<std::int64_t>{1, 0}}};
      }
      nodes_.insert(reads_copy, std::move(node));
    }
    for (Node &node : nodes_) std::ranges::replace(node.inputs, copy, again);
    graph_.replace_uses(copy, again);
    graph_.value(copy).origin = Origin::initializer;
  }

  // Puts the new nodes before the graph's other nodes. Must be called after the last add().
  void finish() {
    if (nodes_.empty()) return;
    nodes_.insert(nodes_.end(), graph_.nodes().begin(), graph_.nodes().end());
    graph_.set_nodes(std::move(nodes_));
  }

 private:
  Graph &graph_;
  std::vector<Finding> &findings_;
  std::vector<Node> nodes_;
};

}  // namespace

void tie(Graph &graph, const std::vector<std::string> &groups, std::vector<Finding> &findings) {
  Ties ties(graph, findings);
  for (const std::string &group : groups) {
    ValueId first = ValueId::none;
    std::size_t count = 0;
    for (const Finding &finding : findings) {
      if (!finding.parameter || finding.state || !any_glob(group, finding.initializer)) continue;
      const ValueId id = graph.find(finding.initializer);
      if (count++ == 0) {
        first = id;
        continue;
      }
      const graph::Type &original = graph.value(first).type, &copy = graph.value(id).type;
      const bool transposed = original != copy;
      require(!transposed || may_be_transposes(graph, first, id), Code::shape, finding.initializer,
              "tied to {}, which is {}; this is {}: they must be equal, or a matrix and its transpose",
              graph.value(first).name, to_text(original), to_text(copy));
      ties.add(first, id, transposed, transposed ? "by the option `tie` the transpose of " : "by the option `tie` ");
    }
    require(count > 1, Code::arg, "tie", "the pattern \"{}\" matches {}; it must match at least two", printable(group),
            count == 0 ? "no parameter" : "one parameter");
  }
  ties.finish();
}

void retie_transposes(Graph &graph, const LoadInitializer &load, std::vector<Finding> &findings) {
  const std::vector<ValueId> tables = all_of(graph, table_of), matrices = all_of(graph, operand_of);
  Ties ties(graph, findings);
  for (ValueId table : tables)
    for (ValueId matrix : matrices) {
      if (!is_matrix_parameter(graph, matrix) || !may_be_transposes(graph, table, matrix)) continue;
      const Array left = load_if_there(load, graph.value(table).name),
                  right = load_if_there(load, graph.value(matrix).name);
      if (left.dtype() == DType::none || right.dtype() == DType::none) continue;
      if (is_transpose(left, right) && !is_constant_along_an_axis(right))
        ties.add(table, matrix, true, "equals the transpose of ");
    }
  ties.finish();
}

void retie_moved(Graph &graph, const LoadInitializer &load,
                 const std::function<std::string(const std::string &)> &moved_from, std::vector<Finding> &findings) {
  Ties ties(graph, findings);
  std::map<std::string, ValueId> originals;
  for (Finding &finding : findings) {
    const std::string source = finding.parameter && !finding.state ? moved_from(finding.initializer) : "";
    if (source.empty()) continue;

    const ValueId copy = graph.find(finding.initializer), declared = graph.find(source);
    const bool is_read = declared != ValueId::none && graph.value(declared).origin == Origin::parameter;
    const ValueId original = originals.try_emplace(source, is_read ? declared : copy).first->second;
    if (original == copy) continue;

    const Array left = load_if_there(load, graph.value(original).name),
                right = load_if_there(load, finding.initializer);
    if (left.dtype() == DType::none || right.dtype() == DType::none) continue;
    if (!is_read && is_constant_along_an_axis(right)) continue;  // may be parts of the parameter, equal by chance
    const Likeness likeness = compare(left, right);
    if (likeness == Likeness::copy) {
      ties.add(original, copy, false, "is a copy of ");
    } else if (likeness == Likeness::transpose) {
      ties.add(original, copy, true, "is the transpose of ");
    } else if (is_read && !finding.frozen && finding.evidence != Evidence::option) {
      finding.doubt = "the exporter made it from " + printable(source, 80) +
                      ", which is also read: the two will be trained apart; export with optimize=False";
    }
  }
  ties.finish();
}

void retie_unread(const Graph &graph, const LoadInitializer &load,
                  const std::function<std::string(const std::string &)> &moved_from, bool adapted,
                  std::vector<Finding> &findings) {
  const auto source_of = [&](const Finding &finding) {
    const std::string source = moved_from(finding.initializer);
    return source.empty() ? finding.initializer : source;
  };
  std::map<std::string, ValueId> originals;
  for (const Finding &finding : findings)
    if (finding.parameter && !finding.state && (adapted || !finding.frozen))
      originals.try_emplace(source_of(finding), graph.find(finding.initializer));

  for (Finding &finding : findings) {
    const ValueId copy = finding.is_initializer ? graph.find(finding.initializer) : ValueId::none;
    const bool is_unread = copy != ValueId::none && graph.value(copy).origin == Origin::initializer;
    if (!is_unread || !finding.tied_to.empty()) continue;
    const auto original = originals.find(source_of(finding));
    if (original == originals.end()) continue;

    const std::string &name = graph.value(original->second).name;
    const Array left = load_if_there(load, name), right = load_if_there(load, finding.initializer);
    if (left.dtype() == DType::none || right.dtype() == DType::none) continue;
    const Likeness likeness = compare(left, right);
    if (likeness == Likeness::neither) {
      const bool frozen = graph.value(original->second).frozen;
      finding.doubt = "holds the elements of " + printable(name, 80) +
                      (frozen ? ", which an adapter may change" : ", which is trained") +
                      ", in an unknown order: an export keeps its old values; export with optimize=False";
      continue;
    }
    finding.tied_to = name;
    finding.transposed = likeness == Likeness::transpose;
    finding.reason =
        "is read by nothing, and is " + std::string(finding.transposed ? "the transpose of " : "a copy of ") + name;
  }
}

void tie_as_settled(Graph &graph, const std::vector<Finding> &settled, std::vector<Finding> &findings) {
  const auto is_parameter = [&](ValueId id) {
    return id != ValueId::none && graph.value(id).origin == Origin::parameter;
  };
  Ties ties(graph, findings);
  for (const Finding &finding : settled) {
    const ValueId original = graph.find(finding.tied_to), copy = graph.find(finding.initializer);
    if (is_parameter(original) && is_parameter(copy)) ties.add(original, copy, finding.transposed, "is tied to ");
  }
  ties.finish();
}

}  // namespace protrain::passes
