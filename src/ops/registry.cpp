// The registry finds operators by name, and answers questions about a node: types, cost, scratch, signature.
#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "ops/families.h"
#include "ops/flops.h"
#include "ops/stored.h"

namespace protrain::ops {

namespace {

constexpr Family (*kFamilies[])() = {
    unary_family,      gated_family,  binary_family,    cast_family,    reshape_family,      movement_family,
    generator_family,  gather_family, reduce_family,    matmul_family,  softmax_family,      normalization_family,
    attention_family,  rotary_family, recurrent_family, loss_family,    dropout_family,      uniform_family,
    accumulate_family, conv_family,   windows_family,   topk_family,    einsum_family,       resize_family,
    sample_family,     signal_family, norm_family,      contrib_family, control_flow_family, quantize_family,
    batch_norm_family, ranks_family,  pool_family,      ctc_family};

// Returns all operators, sorted by name. They are never destroyed, because a thread may still make a session while the
// process exits.
const std::vector<Op> &all() {
  static const std::vector<Op> &ops = *new const std::vector<Op>([] {
    std::vector<Op> gathered;
    for (Family (*family)() : kFamilies) std::ranges::move(family(), std::back_inserter(gathered));
    std::ranges::sort(gathered, {}, &Op::name);
    const auto twice = std::ranges::adjacent_find(gathered, {}, &Op::name);
    require(twice == gathered.end(), Code::internal, "", "an operator is registered twice");
    return gathered;
  }());
  return ops;
}

const Op &require_op(const Node &node) {
  const Op *op = find(node.op);
  require(op != nullptr, Code::unsupported, node.name, "operator {} is not supported", node.op);
  return *op;
}

// The types of a node's operands in the form that an operator's functions, such as infer(), take. These functions do
// not know stored operands (ops/stored.h), so a stored operand gets the type of the matrix of floats that it stands
// for.
class Floats {
 public:
  explicit Floats(NodeTypes given) : types(std::move(given)) {
    if (!has_stored(types.node)) return;
    const Widening widening(types);
    matrix_ = require_op(widening.node).infer(widening.types()).at(0);
    const StoredInput &stored = *find_stored_input(types.node.op);
    types.inputs.at(stored.matrix) = &matrix_;
    types.inputs.resize(std::min(types.inputs.size(), stored.more));
    while (types.inputs.back() == nullptr) types.inputs.pop_back();
    types.constants.resize(types.inputs.size());
  }
  Floats(const Floats &) = delete;
  Floats &operator=(const Floats &) = delete;

  NodeTypes types;

 private:
  Type matrix_;
};

constexpr std::size_t kMaxRank = 64;  // the same limit as for tensors in files

// Returns the output types of `op`. Checks that no required input is absent, that no output has too many axes, and that
// every size fits 64 bits.
std::vector<Type> checked_types(const Op &op, const NodeTypes &given) {
  const Floats floats(given);
  const NodeTypes &types = floats.types;
  try {
    for (std::size_t i = 0; i < types.inputs.size(); ++i)
      require(types.has(i) || op.may_lack(i), Code::graph, "", "{} needs an input {}", types.node.op, i);
    std::vector<Type> outputs = op.infer(types);
    for (const Type &type : outputs) {
      require(type.shape.size() <= kMaxRank, Code::limit, "", "rank {}; at most {} is allowed", type.shape.size(),
              kMaxRank);
      byte_count(type.dtype, type.shape);
    }
    return outputs;
  } catch (Error &error) {
    if (error.subject.empty()) error.subject = types.subject();
    throw;
  }
}

NodeTypes types_of(const graph::Graph &graph, const Node &node) {
  NodeTypes types{node, {}};
  for (graph::ValueId in : node.inputs) {
    const graph::Value *value = in == graph::ValueId::none ? nullptr : &graph.value(in);
    types.inputs.push_back(value == nullptr ? nullptr : &value->type);
    types.constants.push_back(value != nullptr && value->origin == graph::Origin::constant ? &value->array : nullptr);
  }
  return types;
}

}  // namespace

const Type &NodeTypes::input(std::size_t i) const {
  require(has(i), Code::graph, subject(), "{} needs an input {}", node.op, i);
  require(inputs[i]->dtype != DType::none, Code::graph, subject(), "input {} of {} has no type yet", i, node.op);
  return *inputs[i];
}

const Array &NodeTypes::constant(std::size_t i) const {
  require(i < constants.size() && constants[i] != nullptr, Code::unsupported, subject(),
          "input {} of {} is computed from data; shapes that depend on data are not supported", i, node.op);
  return *constants[i];
}

bool Op::may_lack(std::size_t input) const {
  return std::ranges::find(optional, input) != optional.end() ||
         std::ranges::find(absorbed, input, &AbsorbedInput::input) != absorbed.end();
}

const Op *find(std::string_view name) {
  using ByName = std::unordered_map<std::string_view, const Op *>;
  static const ByName &by_name = *new const ByName([] {  // never destroyed, like all()
    ByName ops;
    for (const Op &op : all()) ops.emplace(op.name, &op);
    return ops;
  }());
  const auto found = by_name.find(name);
  return found != by_name.end() ? found->second : nullptr;
}

Storage storage_of(const Node &node) {
  const Op *op = find(node.op);
  return op != nullptr ? op->storage : Storage::own;
}

bool is_flat(const Node &node) {
  const Op *op = find(node.op);
  return op != nullptr && op->flat;
}

bool is_between_ranks(const Node &node) {
  const Op *op = find(node.op);
  return op != nullptr && op->between_ranks;
}

bool checks_values(const Node &node) {
  const Op *op = find(node.op);
  return op != nullptr && op->checks_values;
}

bool has_kernel(const Node &node) { return !is_alias(node) && !is_between_ranks(node); }

std::vector<std::string_view> names() {
  std::vector<std::string_view> names;
  for (const Op &op : all()) names.push_back(op.name);
  return names;
}

std::vector<Type> infer(const graph::Graph &graph, const Node &node) { return infer(types_of(graph, node)); }

std::vector<Type> infer(const NodeTypes &types) { return checked_types(require_op(types.node), types); }

std::vector<Array> evaluate(const Node &node, std::span<const Array *const> inputs, std::span<const Type> outputs) {
  const Op &op = require_op(node);
  require(op.evaluate != nullptr, Code::unsupported, node.name, "operator {} has no reference values", node.op);
  if (!has_stored(node)) return op.evaluate(node, inputs, outputs);
  NodeTypes types{node, {}};
  for (const Array *array : inputs) types.inputs.push_back(array == nullptr ? nullptr : &array->type());
  const Widening widening(types);
  const StoredInput &at = *find_stored_input(node.op);
  std::vector<const Array *> seen(inputs.begin(), inputs.end()), stored = {inputs[at.matrix]};
  if (inputs.size() > at.more) stored.insert(stored.end(), seen.begin() + at.more, seen.end());
  const Array matrix = evaluate(widening.node, stored, infer(widening.types()))[0];
  seen.resize(std::min(seen.size(), at.more));
  seen[at.matrix] = &matrix;
  return op.evaluate(node, seen, outputs);
}

std::string signature(const graph::Graph &graph, const Node &node) {
  std::string text = node.op + "{" + node.attributes.print() + "}";
  const auto add = [&](graph::ValueId id) {
    text += " " + to_text(id == graph::ValueId::none ? Type{} : graph.value(id).type);
  };
  for (graph::ValueId in : node.inputs) add(in);
  text += " ->";
  for (graph::ValueId out : node.outputs) add(out);
  return text;
}

std::uint64_t assumed_scratch(const graph::Graph &graph, const Node &node, bool on_gpu) {
  constexpr std::uint64_t kProduct = 32ull << 20;
  const Op &op = require_op(node);
  const std::uint64_t own = op.scratch == nullptr ? 0 : op.scratch(Floats(types_of(graph, node)).types, on_gpu);
  return op.flops == nullptr ? own : own + kProduct;
}

Cost cost(const graph::Graph &graph, const Node &node) {
  if (is_alias(node)) return {};
  std::vector<Type> outputs;
  Cost cost;
  const auto count = [&](graph::ValueId id) {
    const Type type = id == graph::ValueId::none ? Type{} : graph.value(id).type;
    cost.bytes += static_cast<double>(byte_count(type.dtype, type.shape));
    return type;
  };
  for (graph::ValueId in : node.inputs) count(in);
  for (graph::ValueId out : node.outputs) outputs.push_back(count(out));
  cost.flops = flops(graph, node, outputs);
  return cost;
}

double flops(const graph::Graph &graph, const Node &node, std::span<const Type> outputs) {
  const Op &op = require_op(node);
  if (op.flops != nullptr) return op.flops(Floats(types_of(graph, node)).types, outputs);
  double count = 0;
  for (const Type &type : outputs)
    if (type.dtype != DType::none) count += static_cast<double>(element_count(type.shape));
  return count;
}

std::vector<Array> interpret(const graph::Graph &graph, const std::map<graph::ValueId, Array> &bound) {
  std::vector<Array> values(graph.value_count());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (const graph::Value &value = graph.values()[i]; value.origin == graph::Origin::constant) values[i] = value.array;
  for (const auto &[id, array] : bound) values.at(index(id)) = array;
  for (const Node &node : graph.nodes()) {
    NodeTypes types{node, {}};
    for (graph::ValueId in : node.inputs) {
      const Array *array = in == graph::ValueId::none ? nullptr : &values[index(in)];
      require(array == nullptr || array->dtype() != DType::none, Code::arg, node.name, "input {} was given no value",
              array == nullptr ? "" : graph.value(in).name);
      types.inputs.push_back(array == nullptr ? nullptr : &array->type());
      types.constants.push_back(array);
    }
    std::vector<Array> results = evaluate(node, types.constants, infer(types));
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != graph::ValueId::none) values[index(node.outputs[i])] = std::move(results.at(i));
  }
  return values;
}

}  // namespace protrain::ops
