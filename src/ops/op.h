// Op: what the library knows about an operator, whatever runs it. One entry per operator, one file per family.
//
// Two vocabularies share the registry. *File operators* are ONNX's, in the newest form. *Core operators* are what
// gradients, plans and backends see: file operators whose parameters were absorbed into attributes (Reshape's shape,
// Slice's bounds, ReduceMean's axes), plus our own (FusedAttention, Rotary, CrossEntropy, ...Grad).
// passes/canonical turns the first into the second.
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

// A node as its rules see it: types of present inputs, nullptr for absent ones.
struct NodeTypes {
  const Node &node;
  std::vector<const Type *> inputs;
  std::vector<const Array *> constants = {};  // of inputs whose values are known, else nullptr; may be shorter

  const Type &input(std::size_t i) const;  // Code::graph where absent
  bool has(std::size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  const Array &constant(std::size_t i) const;  // Code::unsupported where the value is not known
  const std::string &subject() const { return node.name.empty() ? node.op : node.name; }  // for errors
};

// Work and traffic of one execution, for the cost model; bytes beyond reading inputs and writing outputs once are not
// counted.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

// An input that, once constant, becomes an attribute: {1, "axes"}.
struct Absorbed {
  std::size_t input;
  const char *attribute;
};

// Where the first output of an operator lies.
enum class Storage : std::uint8_t {
  own,       // in memory of its own
  alias,     // in its first input's: another shape of the same elements; nothing runs
  in_place,  // in its first input's, to which it adds
};

struct Op {
  std::string_view name;
  // Output types from input types and attributes. Throws Code::shape, Code::type, Code::graph with the node's name.
  std::vector<Type> (*infer)(const NodeTypes &) = nullptr;
  // Reference values, in double inside: used by constant folding and as the yardstick of tests. Float outputs are
  // rounded to their dtype; with float64 inputs nothing is rounded. nullptr: never folded.
  std::vector<Array> (*evaluate)(const Node &, std::span<const Array *const>, std::span<const Type>) = nullptr;
  // Emits the gradients of the node's inputs. nullptr: not differentiable (integer results, comparisons, ...).
  void (*gradient)(GradientBuilder &, const Node &) = nullptr;
  // nullptr: one flop per output element.
  double (*flops)(const NodeTypes &, std::span<const Type> outputs) = nullptr;
  std::vector<Absorbed> absorbed = {};
  // Inputs that a node may lack beside absorbed ones. Outputs need no list: a node may lack any but one of them, for
  // grad::prune_unread_outputs asks no operator.
  std::vector<std::size_t> optional = {};
  Storage storage = Storage::own;
  // Bytes that a kernel is taken to need beside its operands, on a machine that nobody can ask: beside what libraries
  // need for products. nullptr: none.
  std::uint64_t (*scratch)(const NodeTypes &, bool on_gpu) = nullptr;
  // Passes rewrite it or fold it away: it has no kernel, and no plan sees it.
  bool file_only = false;

  bool may_lack(std::size_t input) const;
};

// What sums over elements of `dtype` are kept in: losses, statistics, gradients over micro-batches.
inline DType sum_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// Gradients that are normed, checked and used for updates with others of their block: biases and scales, whose work is
// less than what a launch costs.
inline bool goes_with_others(const Type &gradient) {
  return gradient.shape.size() <= 1 && element_count(gradient.shape) <= std::int64_t{1} << 16;
}

const Op *find(std::string_view name);  // nullptr: unknown operator
std::vector<std::string_view> names();  // sorted
bool gates(std::string_view op);        // Gated takes it for its activation

bool is_alias(const Node &node);
bool works_in_place(const Node &node);

std::vector<Type> infer(const graph::Graph &graph, const Node &node);
// Scratch of a node's kernel, as far as it can be said without the machine: Op::scratch, and what libraries of products
// need.
std::uint64_t assumed_scratch(const graph::Graph &graph, const Node &node, bool on_gpu);
// What tells one kernel from another: operator, attributes, types. Nodes of equal signature do equal work.
std::string signature(const graph::Graph &graph, const Node &node);
Cost cost(const graph::Graph &graph, const Node &node);

// Evaluates every node of the graph in order; `bound` gives inputs, parameters and initializers by value id.
// For tests and small graphs: each value stays in memory. Result: one Array per value id (empty where unused).
std::vector<Array> interpret(const graph::Graph &graph, const std::map<graph::ValueId, Array> &bound);

// Each family file defines one of these; registry.cpp lists them.
using Family = std::vector<Op>;

}  // namespace protrain::ops
