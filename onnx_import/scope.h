// Scope: the names and the nodes of one graph of a model, which is the main graph or the body of a control flow node.
// A body may also read names of the graphs around it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "onnx_import/channel_blocks.h"
#include "onnx_import/unbound_graph.h"

namespace protrain::onnx_import {

// The state that all scopes of a model share.
struct ScopeSources {
  const ModelProto &model;
  const Storage &storage;
  std::int64_t opset = 0;
  UnboundGraph &unbound;     // its graph is the main one
  std::size_t captured = 0;  // values that bodies read from outside
  std::int64_t block = channels_of_a_block(model.graph());
};

class Scope {
 public:
  // `graph` is the one to build. `outer` is nullptr for the main graph.
  Scope(ScopeSources &sources, const GraphProto &proto, graph::Graph &graph, Scope *outer = nullptr);

  bool is_read(const std::string &name) const { return reads_.contains(name); }  // by a node or as an output
  // Adds a value of this scope. Code::graph if its name is taken.
  graph::ValueId define(graph::Value value, const std::string &subject);
  graph::ValueId define_initializer(graph::Value value);  // of the main graph; the caller has checked its name
  // True for a stored tensor of four-bit elements that only DequantizeLinear or GatherBlockQuantized reads. Such a
  // tensor stays packed in the graph.
  bool packs(const std::string &name, const Tensor &tensor) const;
  graph::Type type_of(const std::string &name, const Tensor &tensor) const;  // of a stored tensor, in the graph
  void add_nodes();  // once all inputs and initializers are defined
  // Returns the value of that name, from this scope or those around it. Returns ValueId::none if no value has the name.
  graph::ValueId find(const std::string &name);

 private:
  void collect_reads(const GraphProto &proto);
  void require_new(const std::string &name, const std::string &subject) const;
  void add_outputs(const NodeProto &node);
  void add_constant(const NodeProto &node, const std::string &subject);
  void add_node(const NodeProto &node);
  void add_bodies(const NodeProto &proto, const std::string &subject, graph::Node &node);
  graph::Body read_body(const GraphProto &proto, const std::string &subject, std::vector<graph::ValueId> &captured);
  void add_stored(const std::string &name, const Tensor &tensor, const std::string &subject);
  void upgrade(graph::Node &node, const NodeProto &proto);
  const Tensor *stored(graph::ValueId id) const;
  void describe_four_bits(graph::Node &node, const NodeProto &proto) const;
  bool is_true(graph::ValueId value) const;
  graph::ValueId capture(graph::ValueId outside);
  graph::ValueId from_main(graph::ValueId in_main);
  graph::ValueId in_main(graph::ValueId id) const;  // none for values of this scope's own

  ScopeSources &sources_;
  const GraphProto &proto_;
  graph::Graph &graph_;
  Scope *const outer_;
  std::unordered_set<std::string_view> reads_;
  std::unordered_set<std::string_view> reads_elements_;  // those that a node reads as elements, not packed
  std::unordered_map<std::string, graph::ValueId> names_;
  std::map<graph::ValueId, graph::ValueId> captured_;  // by a value of the scope around this one: its stand-in here
  std::map<graph::ValueId, graph::ValueId> outside_;   // the reverse
};

// Returns the tensor of a Constant node's "value"; nullptr for other nodes and other forms.
const TensorProto *constant_tensor(const NodeProto &node);

// The name of a node for errors: its operator and first output if it has no name.
std::string subject_of(const NodeProto &node);

}  // namespace protrain::onnx_import
