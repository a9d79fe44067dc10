// Stored operands: frozen weights that a product's kernel takes in the form in which they are stored, and widens panel
// by panel. They are floats of 16 bits, integers with scales and zero points, or codes of a table.
//
// A node with a stored operand has the attribute `stored`. It names the operator (Cast or DequantizeLinear) that would
// make floats of the whole matrix. The node also has that operator's attributes, and from input StoredInput::more on
// its further inputs, such as scales. The floats would have the type of the node's first input.
#pragma once

#include "ops/op.h"

namespace protrain::ops {

inline constexpr const char *kStored = "stored";

// The places of a stored operand among an operator's inputs. Input `matrix` is the matrix. The inputs from `more` on
// come after all of the operator's own inputs. They are scales and zero points, for instance.
struct StoredInput {
  std::string_view op;
  std::size_t matrix, more;
};
const StoredInput *find_stored_input(std::string_view op);  // nullptr: kernels take floats only

// True if the operator only moves elements of its first input, so that a Cast may come after it as well as before it.
bool only_moves(std::string_view op);

inline bool has_stored(const Node &node) { return node.attributes.has(kStored); }

// True if the node reads the result of `widening`, and its kernels can take the operand of `widening` as it is stored.
bool takes_stored(const graph::Graph &graph, const Node &node, const Node &widening);
// Makes the node read the inputs of `widening` instead of its result.
void take_stored(Node &node, const Node &widening);

// infer() returns the types of a node's outputs, and evaluate() its reference values. For both, the floats that a
// stored operand stands for take its place. evaluate() throws Code::unsupported if the operator has no reference.
std::vector<Type> infer(const NodeTypes &types);
std::vector<Array> evaluate(const Node &node, std::span<const Array *const> inputs, std::span<const Type> outputs);

// The node that would make floats of a stored operand, with the types of its inputs.
struct Widening {
  explicit Widening(const NodeTypes &stored);  // of a node with a stored operand
  NodeTypes types() const { return {node, inputs}; }

  Node node;
  std::vector<const Type *> inputs;
};

}  // namespace protrain::ops
