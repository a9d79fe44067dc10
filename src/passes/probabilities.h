// Probabilities: finds the logits from which a graph computes a value, if it computes the value by Softmax or Sigmoid.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "passes/loss_nodes.h"
#include "passes/trail.h"

namespace protrain::passes {

class Probabilities : LossNodes {
 public:
  // `class_axis` is the axis of `value` along which the probabilities of classes add up to 1; none if each element is a
  // probability of its own.
  Probabilities(graph::Graph &graph, graph::ValueId value, std::optional<std::size_t> class_axis);

  // op() returns the operator that computes the value's elements, such as "Softmax". place() also names the node:
  // "Softmax at /softmax". Both are empty if no node computes them.
  std::string op() const { return trail_.maker ? trail_.maker->op : ""; }
  std::string place() const;

  // Returns the logits in the shape of `value`, and adds the nodes that bring them to this shape. Returns ValueId::none
  // if the graph does not show that `value` holds probabilities.
  graph::ValueId logits();

 private:
  const graph::Node *producer(graph::ValueId id) const;
  bool is_stored_number(graph::ValueId id) const;
  graph::ValueId before_moves();
  graph::ValueId of_two_classes(const graph::Node &concat);

  const bool of_classes_;
  const Trail trail_;
};

}  // namespace protrain::passes
