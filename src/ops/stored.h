// Stored operands: frozen weights that a product's kernel takes as they rest, and widens panel by panel. They are
// floats of 16 bits, or integers with scales and zero points.
//
// Such a node has the attribute `stored`, which names the operator that would make floats of the whole matrix (Cast or
// DequantizeLinear), and that operator's attributes. Its inputs from StoredInput::more on are that operator's inputs
// after the matrix. The floats have the type of the node's first input.
#pragma once

#include "ops/op.h"

namespace protrain::ops {

inline constexpr const char *kStored = "stored";

// The matrix among an operator's inputs that kernels can take as it is stored, and the place of the inputs that say for
// which floats it stands: behind all of the operator's own.
struct StoredInput {
  std::string_view op;
  std::size_t matrix, more;
};
const StoredInput *find_stored_input(std::string_view op);  // nullptr: kernels take floats only

// True if the operator's outputs are elements of its first input, so that a Cast may as well follow it as come before.
bool only_moves(std::string_view op);

inline bool has_stored(const Node &node) { return node.attributes.has(kStored); }

// True if the operator's kernels can take as stored what `widening` makes, which the node reads.
bool takes_stored(const graph::Graph &graph, const Node &node, const Node &widening);
// Makes the node read the inputs of `widening` instead of its result.
void take_stored(Node &node, const Node &widening);

// The types of a node's outputs, and its reference values: Op::infer and Op::evaluate, with a stored operand as the
// floats that it stands for. Code::unsupported if the operator has no reference.
std::vector<Type> infer(const NodeTypes &types);
std::vector<Array> evaluate(const Node &node, std::span<const Array *const> inputs, std::span<const Type> outputs);

// A node that makes floats of a stored operand, with the types of its operands.
struct Widening {
  explicit Widening(const NodeTypes &stored);  // of a node with a stored operand
  NodeTypes types() const { return {node, inputs}; }

  Node node;
  std::vector<const Type *> inputs;
};

}  // namespace protrain::ops
