// The interface between gradient rules and the graph. The rule of y = f(x) reads dL/dy, emits nodes, and gives dL/dx.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace protrain::ops {

class GradientBuilder {
 public:
  virtual ~GradientBuilder() = default;

  // Returns dL/d(output), or ValueId::none if no gradient reaches `output`.
  virtual graph::ValueId gradient_of(graph::ValueId output) = 0;
  // True if dL/d(input) is needed, because `input` depends on a trained parameter. False for ValueId::none.
  virtual bool wants(graph::ValueId input) const = 0;
  // Returns the name of a trained parameter that `input` depends on, for errors. wants(input) must be true.
  virtual std::string trained_before(graph::ValueId input) const = 0;
  // Adds a contribution to dL/d(input). Several contributions are summed in the order of the calls.
  virtual void contribute(graph::ValueId input, graph::ValueId gradient) = 0;

  // Appends a node, infers its types and returns its outputs. Names derive from the forward node's name.
  virtual std::vector<graph::ValueId> emit(const std::string &op, std::vector<graph::ValueId> inputs,
                                           graph::Attributes attributes, std::size_t output_count) = 0;
  graph::ValueId emit(const std::string &op, std::vector<graph::ValueId> inputs, graph::Attributes attributes = {}) {
    return emit(op, std::move(inputs), std::move(attributes), 1)[0];
  }
  // Returns a constant of the given type with all elements equal to `value`.
  virtual graph::ValueId constant(graph::Type type, double value) = 0;
  virtual const graph::Type &type(graph::ValueId value) const = 0;
  virtual const graph::Value &value(graph::ValueId value) const = 0;

  // These two serve operators whose gradient node computes the loss as well. is_loss() is true if `output` is the
  // graph's loss and no node reads it. replace_output() makes `replacement` the loss instead. The loss is then computed
  // only once, because nothing needs the forward node any more.
  virtual bool is_loss(graph::ValueId output) const = 0;
  virtual void replace_output(graph::ValueId output, graph::ValueId replacement) = 0;
};

// Returns dL/d(output 0) of the node if input `i` needs a gradient, else ValueId::none.
graph::ValueId gradient_for(GradientBuilder &builder, const graph::Node &node, std::size_t i = 0);

// Sums `gradient` down to `shape`, the reverse of a broadcast: ReduceSum over stretched axes, then Reshape.
graph::ValueId sum_to(GradientBuilder &builder, graph::ValueId gradient, Shape shape);

}  // namespace protrain::ops
