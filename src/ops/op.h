// Op: everything the library knows about an operator, whatever runs it. One entry per operator, one file per family.
//
// Two vocabularies share the registry. *File operators* are ONNX's, in the newest form. *Core operators* are the ones
// that gradients, plans and backends see: file operators whose parameters were absorbed into attributes (Reshape's
// shape, Slice's bounds, ReduceMean's axes), plus our own (FusedAttention, Rotary, CrossEntropy, ...Grad).
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

// A node as its rules see it: the types of its inputs, nullptr for absent ones.
struct NodeTypes {
  const Node &node;
  std::vector<const Type *> inputs;
  std::vector<const Array *> constants = {};  // values of constant inputs, nullptr for others; may be shorter

  const Type &input(std::size_t i) const;  // Code::graph if absent
  bool has(std::size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
  const Array &constant(std::size_t i) const;  // Code::unsupported if not constant
  const std::string &subject() const { return node.name.empty() ? node.op : node.name; }  // for errors
};

// Work and traffic of one execution, for the cost model. Bytes count reading inputs and writing outputs once, no more.
struct Cost {
  double flops = 0;
  double bytes = 0;
};

// An input that becomes an attribute once it is constant: {1, "axes"}.
struct AbsorbedInput {
  std::size_t input;
  const char *attribute;
};

// The memory of an operator's first output.
enum class Storage : std::uint8_t {
  own,       // its own
  alias,     // the first input's: another shape of the same elements; nothing runs
  in_place,  // the first input's, which it adds to
};

struct Op {
  std::string_view name;
  // Output types from input types and attributes. Throws Code::shape, Code::type, Code::graph with the node's name.
  std::vector<Type> (*infer)(const NodeTypes &) = nullptr;
  // Reference values, in double inside, for constant folding and as the yardstick of tests. Float outputs are rounded
  // to their dtype; with float64 inputs nothing is rounded. nullptr: never folded.
  std::vector<Array> (*evaluate)(const Node &, std::span<const Array *const>, std::span<const Type>) = nullptr;
  // Emits the gradients of the node's inputs. nullptr: not differentiable (integer results, comparisons, ...).
  void (*gradient)(GradientBuilder &, const Node &) = nullptr;
  // nullptr: one flop per output element.
  double (*flops)(const NodeTypes &, std::span<const Type> outputs) = nullptr;
  std::vector<AbsorbedInput> absorbed = {};
  // Inputs that may be absent, besides absorbed ones. Outputs need no such list: a node may lack all but one, because
  // grad::prune_unread_outputs removes any that nobody reads.
  std::vector<std::size_t> optional = {};
  Storage storage = Storage::own;
  // Bytes of scratch to assume for a kernel on a machine that cannot be asked, besides what libraries need
  // for products. nullptr: none.
  std::uint64_t (*scratch)(const NodeTypes &, bool on_gpu) = nullptr;
  // Passes rewrite it or fold it away, so it has no kernel and no plan sees it.
  bool file_only = false;

  bool may_lack(std::size_t input) const;
};

// The type that sums over elements of `dtype` are kept in: losses, statistics, gradients over micro-batches.
inline DType sum_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

// True for gradients of biases and scales, which do less work than a launch costs. Their norms, checks and updates run
// together with others of their block.
inline bool goes_with_others(const Type &gradient) {
  return gradient.shape.size() <= 1 && element_count(gradient.shape) <= std::int64_t{1} << 16;
}

const Op *find(std::string_view name);  // nullptr: unknown operator
std::vector<std::string_view> names();  // sorted
bool gates(std::string_view op);        // true if Gated accepts it as its activation

Storage storage_of(const Node &node);  // Storage::own for an unknown operator
inline bool is_alias(const Node &node) { return storage_of(node) == Storage::alias; }
inline bool works_in_place(const Node &node) { return storage_of(node) == Storage::in_place; }

std::vector<Type> infer(const graph::Graph &graph, const Node &node);
// Scratch of a node's kernel, as far as it can be known without the machine: Op::scratch, plus the
// need of matrix libraries.
std::uint64_t assumed_scratch(const graph::Graph &graph, const Node &node, bool on_gpu);
// Identifies a kernel: operator, attributes, types. Nodes of equal signature do equal work.
std::string signature(const graph::Graph &graph, const Node &node);
Cost cost(const graph::Graph &graph, const Node &node);

// Evaluates every node of the graph in order. `bound` gives inputs, parameters and initializers by value id. Each value
// stays in memory, so it is for tests and small graphs. Result: one Array per value id (empty if unused).
std::vector<Array> interpret(const graph::Graph &graph, const std::map<graph::ValueId, Array> &bound);

// Each family file defines one of these; registry.cpp lists them.
using Family = std::vector<Op>;

}  // namespace protrain::ops
