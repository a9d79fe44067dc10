// Graph: the only model representation. Values are in static single assignment, nodes in an executable order. Imported
// graphs, training graphs and everything between have this one type.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/attributes.h"

namespace protrain::graph {

enum class ValueId : std::int32_t { none = -1 };
enum class NodeId : std::int32_t { none = -1 };
inline std::size_t index(ValueId id) { return static_cast<std::size_t>(id); }
inline std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }

// Says where a value comes from, and so who sets its elements.
enum class Origin : std::uint8_t {
  node,         // computed by a node
  input,        // set by the user before each step
  initializer,  // stored with the model; not yet known to be a parameter or a constant
  parameter,    // stored with the model and trained (or frozen)
  state,        // stored with the model and changed by forward: running statistics
  constant,     // held by Value::array
  accumulator,  // kept between micro-batches: the sum of gradients so far
};

struct Value {
  std::string name;  // unique and not empty
  Type type;
  Origin origin = Origin::node;
  NodeId producer = NodeId::none;  // if origin is node: the node that computes it
  Array array;                     // if origin is constant: the elements
  bool frozen = false;             // if origin is parameter: used, but not trained
  bool norm = false;               // the scale or shift of a normalization of channels comes from this initializer
};

inline bool is_trained(const Value &value) { return value.origin == Origin::parameter && !value.frozen; }

// The part of a step that a node belongs to.
enum class Phase : std::uint8_t { forward, backward };

struct Node {
  std::string op;    // "MatMul"; see ops/op.h
  std::string name;  // for people; may repeat
  Attributes attributes;
  std::vector<ValueId> inputs;  // ValueId::none: an optional input that is absent
  // ValueId::none: an output that is not computed. The first output is always there, until
  // grad::prune_unread_outputs removes outputs that nothing reads.
  std::vector<ValueId> outputs;
  std::int32_t block = -1;  // the repeated layer it belongs to; -1: none
  Phase phase = Phase::forward;

  // The node's name, or its operator if the node has no name: the subject of errors about the node.
  const std::string &subject() const { return name.empty() ? op : name; }
  // The operator and the name: "MatMul at layers.0.linear".
  std::string place() const { return name.empty() ? op : op + " at " + name; }
};

class Graph {
 public:
  // Adds a value and returns its id, which never changes. If the name is taken, adds a suffix to it.
  ValueId add_value(Value value);
  ValueId add_constant(const std::string &name, Array array);
  // Appends a node. Its outputs are new values named `output_names`, which have no types yet.
  NodeId add_node(Node node, const std::vector<std::string> &output_names);
  // Appends a node whose outputs were added before, with Origin::node and without a producer. The node becomes their
  // producer.
  NodeId add_node(Node node);

  const Value &value(ValueId id) const { return values_[graph::index(id)]; }
  Value &value(ValueId id) { return values_[graph::index(id)]; }
  const Node &node(NodeId id) const { return nodes_[graph::index(id)]; }
  Node &node(NodeId id) { return nodes_[graph::index(id)]; }
  std::size_t value_count() const { return values_.size(); }
  std::size_t node_count() const { return nodes_.size(); }
  ValueId find(const std::string &name) const;  // ValueId::none if there is none
  // Returns the parameters that are not state. Plans place only these, because state always rests on the device.
  std::span<const ValueId> weights() const;

  const std::vector<Value> &values() const { return values_; }
  const std::vector<Node> &nodes() const { return nodes_; }  // in execution order

  std::vector<ValueId> inputs;      // in the order of the file
  std::vector<ValueId> parameters;  // in the order of first use, once known; state comes after all others
  std::vector<ValueId> outputs;

  // Returns for each value the nodes that read it, in execution order. The graph's outputs do not count as readers.
  std::vector<std::vector<NodeId>> consumers() const;
  // Replaces the value `from` by `to` in the inputs of all nodes and among the graph's outputs.
  void replace_uses(ValueId from, ValueId to);
  // Replaces the node list (by a subset, a new order, or with new nodes in between) and sets producers again.
  void set_nodes(std::vector<Node> nodes);
  // Drops every node that no output of the graph depends on. The values of dropped nodes stay, so that ids are stable,
  // but lose their producer.
  void drop_dead_nodes();
  // Moves each node behind the producers of its inputs, and otherwise keeps the order. Code::graph if there is a cycle.
  void sort();

  std::string print() const;  // one line per node, as golden tests and `inspect` show it

 private:
  std::string unique_name(const std::string &name);
  [[noreturn]] void fail_cycle(const std::vector<int> &waiting) const;

  std::vector<Value> values_;
  std::vector<Node> nodes_;
  std::map<std::string, ValueId> by_name_;
  std::map<std::string, int> suffixes_;  // by name: the last suffix given to it
};

// Throws Code::internal unless ids are in range, each value is produced once and before it is read, and all reachable
// values are typed.
void verify(const Graph &graph);

}  // namespace protrain::graph
