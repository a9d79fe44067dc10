// Rewriter: one forward walk over a graph that rebuilds the list of nodes. Passes consist of such walks. A visitor
// keeps a node, replaces it by others, or makes the readers of its output read another value. Nodes whose results are
// no longer read are removed at once, so uses() is always exact.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace protrain::passes {

using graph::Attributes;
using graph::Graph;
using graph::Node;
using graph::Type;
using graph::ValueId;

class Rewriter {
 public:
  explicit Rewriter(Graph &graph);

  // Calls visit for each node. If an earlier visit forwarded an input of the node to another value, the node reads that
  // value already. Drops nodes that visit does not keep, and installs the new list of nodes at the end.
  void walk(const std::function<void(Node &)> &visit);

  // Visits `nodes`, which take the place of the visited node. `results` are values that the caller reads afterwards, so
  // these stay alive. In the end, replaces each of them by the value to which the visits forwarded it.
  void walk_inside(std::vector<Node> nodes, std::vector<ValueId> &results, const std::function<void(Node &)> &visit);

  // Appends a node whose outputs are values of the graph already. Infers the outputs' types if all inputs are typed and
  // no shape depends on data.
  void keep(Node node);
  // Makes another operator compute the outputs of `node`, the one being visited.
  void become(const Node &node, const std::string &op, std::vector<ValueId> inputs, Attributes attributes = {});
  // Appends a node with `output_count` new outputs.
  std::vector<ValueId> emit_all(const std::string &op, std::vector<ValueId> inputs, Attributes attributes,
                                std::size_t output_count);
  ValueId emit(const std::string &op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return emit_all(op, std::move(inputs), std::move(attributes), 1)[0];
  }
  ValueId new_value();  // untyped, named after the visited node
  ValueId new_value(const std::string &name);
  ValueId constant(graph::Array array);

  // Makes all readers of `from` read `to`. An output of the graph counts as a reader. Returns false and changes nothing
  // if `from` is an output of the graph, and either `to` is another output or no node computes `to`. In this case the
  // visitor must keep the visited node.
  bool forward(ValueId from, ValueId to);
  ValueId resolve(ValueId id) const;
  // Keeps a value alive for the rest of the walk, as if one more node read it.
  void hold(ValueId id) { ++uses_[index(id)]; }

  const Node *producer(ValueId id) const;  // among the nodes kept so far; nullptr for inputs, parameters, constants
  int uses(ValueId id) const { return uses_[index(id)]; }    // reads by nodes and by the graph's outputs
  bool is_read(const Node &node, std::size_t output) const;  // false where the node has no such output
  bool is_output(ValueId id) const;
  const std::string &base_name() const { return base_name_; }  // of the visited node
  // type() and shape() return copies, because adding a value to the graph moves the graph's values in memory. Both
  // throw std::out_of_range for an absent input, so that rules need not check inputs that the operator must have.
  Type type(ValueId id) const { return graph_.values().at(index(id)).type; }
  Shape shape(ValueId id) const { return graph_.values().at(index(id)).type.shape; }
  const graph::Array *constant_of(ValueId id) const;  // nullptr if it is not constant; valid until a value is added
  const graph::Value &value(ValueId id) const { return graph_.value(id); }  // valid until a value is added
  Graph &graph() { return graph_; }
  bool changed() const { return changed_; }

 private:
  struct Entry {
    Node node;
    bool alive = true;
  };
  void grow();
  void walk_over(std::vector<Node> &nodes, const std::function<void(Node &)> &visit);
  void infer_outputs(Node &node);
  void release(const std::vector<ValueId> &inputs);
  void take_over(ValueId from, ValueId to);
  void install();

  Graph &graph_;
  std::deque<Entry> kept_;
  std::vector<int> uses_;           // per value
  std::vector<int> made_by_;        // per value: index into kept_, or -1
  std::vector<ValueId> forwarded_;  // per value: the value that its readers now read, or none
  std::string base_name_;           // of the visited node
  bool changed_ = false;
};

}  // namespace protrain::passes
