// Stored operands: frozen weights that a product's kernel takes in the form in which they are stored. The kernel makes
// floats of them panel by panel. The stored form is floats of 16 bits, integers with scales and zero points, or codes
// of a table.
//
// A node with a stored operand takes the place of two nodes: a widening, which made floats of the whole matrix, and a
// product that read them. The attribute `stored` names the operator of the widening (Cast or DequantizeLinear). The
// node also has the widening's attributes, and its further inputs, such as scales, begin at input StoredInput::more.
// The node computes as if the widening's result had the type of the product's first input.
#pragma once

#include "ops/op.h"

namespace protrain::ops {

inline constexpr const char *kStored = "stored";

// The places of a stored operand among the inputs of operator `op`. Input number `matrix` holds the matrix. The
// operand's further inputs, such as scales and zero points, begin at input number `more`, after all of the operator's
// own inputs.
struct StoredInput {
  std::string_view op;
  std::size_t matrix, more;
};
const StoredInput *find_stored_input(std::string_view op);  // nullptr: kernels take floats only

// True if the operator only moves elements of its first input, so that it gives the same result before a Cast as after
// it.
bool only_moves(std::string_view op);

inline bool has_stored(const Node &node) { return node.attributes.has(kStored); }

// True if the node reads the result of `widening`, and its kernels can take the operand of `widening` as it is stored.
bool takes_stored(const graph::Graph &graph, const Node &node, const Node &widening);
// Makes the node read the inputs of `widening` instead of its result.
void take_stored(Node &node, const Node &widening);

// infer() returns the types of a node's outputs, and evaluate() their reference values. Both treat a stored operand as
// the floats that it stands for. evaluate() throws Code::unsupported if the operator has no reference.
std::vector<Type> infer(const NodeTypes &types);
std::vector<Array> evaluate(const Node &node, std::span<const Array *const> inputs, std::span<const Type> outputs);

// The widening that a node with a stored operand includes, written as a separate node, `node`. This separate node takes
// inputs of the types `inputs`, and makes floats of the operand.
struct Widening {
  explicit Widening(const NodeTypes &stored);  // `stored`: a node with a stored operand, and the types of its inputs
  NodeTypes types() const { return {node, inputs}; }

  Node node;
  std::vector<const Type *> inputs;
};

}  // namespace protrain::ops
