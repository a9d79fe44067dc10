// Op: all that the library knows about an operator on any device. One entry per operator, one file per family.
//
// Two vocabularies share the registry. *File operators* are ONNX's, in the newest form. *Core operators* are the ones
// that gradients, plans and backends see: file operators whose parameters were absorbed into attributes (Reshape's
// shape, Slice's bounds, ReduceMean's axes), plus our own (FusedAttention, Rotary, CrossEntropy, ...Grad).
// passes/canonical turns file operators into core operators.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "ops/gradient.h"

namespace protrain::ops {

using graph::Array;
using graph::Attributes;
using graph::Node;
using graph::Type;

// A node with the types of its inputs (nullptr for absent ones). The functions of an Op take it as their argument.
struct NodeTypes {
  const Node &node;
  std::vector<const Type *> inputs;
  std::vector<const Array *> constants = {};  // values of constant inputs, nullptr for others; may be shorter

  const Type &input(std::size_t i) const;  // Code::graph if absent
  bool has(std::size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  const Array &constant(std::size_t i) const;                    // Code::unsupported if not constant
  const std::string &subject() const { return node.subject(); }  // for errors
};

// Work and memory traffic of one execution, for the cost model. `bytes` counts each input and each output once.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

// An input that canonicalization turns into an attribute if the input is constant. {1, "axes"}: input 1 becomes the
// attribute `axes`.
struct AbsorbedInput {
  std::size_t input;
  const char *attribute;
};

// An input that holds state, such as a running mean, and the number of the output from which a step computes the new
// state.
struct StateInput {
  std::size_t input, statistic;
};

// The memory that holds an operator's first output.
enum class Storage : std::uint8_t {
  own,       // the output's own
  alias,     // the first input's: the output is another shape of the same elements; nothing runs
  in_place,  // the first input's: the operator adds to that input
};

struct Op {
  std::string_view name;
  // Returns the types of the outputs. Throws Code::shape, Code::type, Code::graph with the node's name.
  std::vector<Type> (*infer)(const NodeTypes &) = nullptr;
  // Computes reference values for constant folding and for tests. Floats are computed in double, and float outputs are
  // rounded to their dtype. nullptr: never folded.
  std::vector<Array> (*evaluate)(const Node &, std::span<const Array *const>, std::span<const Type>) = nullptr;
  // Emits the gradients of the node's inputs. nullptr: the operator is flat (see below), or not differentiable (integer
  // results, comparisons, ...).
  void (*gradient)(GradientBuilder &, const Node &) = nullptr;
  // True: no gradient passes. The derivative is 0 wherever it exists (Round), or the model wants none (detach() in
  // PyTorch).
  bool flat = false;
  // Returns the flops of one execution. nullptr: one flop per output element.
  double (*flops)(const NodeTypes &, std::span<const Type> outputs) = nullptr;
  std::vector<AbsorbedInput> absorbed = {};
  // Inputs that may be absent, besides absorbed ones. Outputs need no such list: any output may be absent as long as
  // one is left, because grad::prune_unread_outputs removes those that no node reads.
  std::vector<std::size_t> optional = {};
  // Inputs that may stay float32 where a pass makes the other operands bfloat16 or float16.
  std::vector<std::size_t> wide = {};
  // Float inputs that must stay float32 where a pass makes the other operands bfloat16 or float16.
  std::vector<std::size_t> always_wide = {};
  // Inputs that hold state, such as running means. A training step changes the state. The operator itself reads these
  // inputs only in evaluations.
  std::vector<StateInput> states = {};
  // True: an element of the result depends only on the operands' elements at the same position. Operands broadcast.
  bool elementwise = false;
  // True: a kernel checks values of its inputs, such as indices, and its errors name the node. So nodes do not share a
  // kernel, even if they do equal work.
  bool checks_values = false;
  // True: the result repeats elements of the operator's input. If the result is at least twice as large as the input,
  // only the input is kept for backward, and backward runs the operator again where it needs the result.
  bool repeats = false;
  Storage storage = Storage::own;
  // Returns the bytes of scratch to assume for a kernel on a target machine that is only described, without the scratch
  // that libraries need for products. nullptr: none.
  std::uint64_t (*scratch)(const NodeTypes &, bool on_gpu) = nullptr;
  // True: passes rewrite the operator or fold it away, so it has no kernel and is in no plan.
  bool file_only = false;
  // True: the operator exchanges its operands with other ranks. A Channel does this, and no device has a kernel for it.
  bool between_ranks = false;

  bool may_lack(std::size_t input) const;
};

// The type of sums over elements of `dtype`: losses, statistics, gradients over micro-batches.
inline DType sum_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// True for small gradients (of biases and scales). A kernel that works on one small gradient takes less time than its
// launch. So the norms, checks and updates of a block's small gradients run together.
inline bool goes_with_others(const Type &gradient) {
  return gradient.shape.size() <= 1 && element_count(gradient.shape) <= std::int64_t{1} << 16;
}

const Op *find(std::string_view name);  // nullptr: unknown operator
std::vector<std::string_view> names();  // sorted
bool gates(std::string_view op);        // true if Gated accepts it as its activation

Storage storage_of(const Node &node);  // Storage::own for an unknown operator
inline bool is_alias(const Node &node) { return storage_of(node) == Storage::alias; }
inline bool works_in_place(const Node &node) { return storage_of(node) == Storage::in_place; }

bool is_flat(const Node &node);  // false for an unknown operator
bool is_between_ranks(const Node &node);
bool checks_values(const Node &node);  // false for an unknown operator
bool has_kernel(const Node &node);     // false: an alias, or between ranks

std::vector<Type> infer(const graph::Graph &graph, const Node &node);
// Returns the bytes of scratch to assume for a node's kernel on a target machine that is only described: Op::scratch,
// plus what libraries need for products.
std::uint64_t assumed_scratch(const graph::Graph &graph, const Node &node, bool on_gpu);
// Identifies a kernel: operator, attributes, types. Nodes of equal signature do equal work.
std::string signature(const graph::Graph &graph, const Node &node);
Cost cost(const graph::Graph &graph, const Node &node);

// Evaluates every node of the graph in order. `bound` gives inputs, parameters and initializers by value id. Returns
// one Array per value id (empty if unused). All values stay in memory at once, so the function is for small graphs.
std::vector<Array> interpret(const graph::Graph &graph, const std::map<graph::ValueId, Array> &bound);

// A family of operators. Each family file defines a function that returns one; registry.cpp lists these functions.
using Family = std::vector<Op>;

}  // namespace protrain::ops
