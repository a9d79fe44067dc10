// Emitter: appends the nodes of a step to a forward graph. Backward nodes are named after the forward node that they
// belong to.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/op.h"

namespace protrain::grad {

class Emitter {
 public:
  explicit Emitter(graph::Graph &graph) : graph_(graph) {}

  // Sets the forward node that the next emitted nodes belong to. The overload with a name gives these nodes the name,
  // and they belong to no forward node.
  void begin(const graph::Node &node) {
    current_ = node;  // a copy, because emitting may move the list that holds `node`
    name_ = node.subject();
    phase_ = graph::Phase::backward;
  }
  void begin(const std::string &name, graph::Phase phase = graph::Phase::backward) {
    current_ = {.op = "", .name = name};
    phase_ = phase;
    name_ = name;
  }
  const graph::Node &current() const { return current_; }

  std::vector<graph::ValueId> emit(const std::string &op, std::vector<graph::ValueId> inputs,
                                   graph::Attributes attributes, std::size_t output_count) {
    const bool back = phase_ == graph::Phase::backward;
    graph::Node node{.op = op,
                     .name = current_.name + (back ? "/gradient" : "/new"),
                     .attributes = std::move(attributes),
                     .inputs = std::move(inputs),
                     .outputs = {},
                     .block = current_.block,
                     .phase = phase_};
    const std::vector<graph::Type> types = ops::infer(graph_, node);
    std::vector<std::string> names(output_count, (back ? "d/" : "new/") + name_);
    const graph::NodeId id = graph_.add_node(std::move(node), names);
    const std::vector<graph::ValueId> outputs = graph_.node(id).outputs;
    for (std::size_t i = 0; i < output_count; ++i) graph_.value(outputs[i]).type = types.at(i);
    return outputs;
  }
  graph::ValueId emit(const std::string &op, std::vector<graph::ValueId> inputs, graph::Attributes attributes = {}) {
    return emit(op, std::move(inputs), std::move(attributes), 1)[0];
  }

  graph::ValueId constant(graph::Type type, double value) {
    return graph_.add_constant("constant/" + name_, graph::Array::filled(std::move(type), value));
  }
  // Returns a new value that lasts across micro-batches.
  graph::ValueId accumulator(graph::Type type) {
    return graph_.add_value({.name = "sum/" + name_, .type = std::move(type), .origin = graph::Origin::accumulator});
  }

 private:
  graph::Graph &graph_;
  graph::Node current_;
  graph::Phase phase_ = graph::Phase::backward;
  std::string name_;
};

}  // namespace protrain::grad
