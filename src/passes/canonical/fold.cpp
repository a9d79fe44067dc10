// The forward walk that turns a file's graph into typed core operators and constants.
#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "base/error.h"
#include "base/text.h"
#include "ops/control_flow.h"
#include "ops/evaluate.h"
#include "ops/flops.h"
#include "passes/canonical/canonical.h"
#include "passes/passes.h"

namespace protrain::passes {

namespace {

using graph::Array;

constexpr std::uint64_t kLargestFold = std::uint64_t{1} << 30;  // bytes; larger results stay computations
constexpr std::size_t kSmallConstant = 64;                      // bytes; equal ones up to this size become one value

constexpr std::int64_t kLongestList = 1 << 16;  // elements of a constant that may become an attribute

// Operators whose result at an index depends only on the operands at that index. If all operands repeat along an axis,
// the result is stored with one element on that axis.
constexpr auto kElementwise =
    std::to_array<std::string_view>({"Abs",   "Add",     "And",  "BitwiseNot",  "Cast",  "Ceil",    "Cos",
                                     "Div",   "Equal",   "Erf",  "Exp",         "Floor", "Greater", "GreaterOrEqual",
                                     "IsInf", "IsNaN",   "Less", "LessOrEqual", "Log",   "Max",     "Min",
                                     "Mod",   "Mul",     "Neg",  "Not",         "Or",    "Pow",     "Reciprocal",
                                     "Round", "Sigmoid", "Sign", "Sin",         "Sqrt",  "Sub",     "Tanh",
                                     "Where", "Xor"});
static_assert(std::ranges::is_sorted(kElementwise));

// Returns an upper bound of the bytes of the results. A result that repeats along an axis can take fewer bytes.
std::uint64_t result_bytes(const Node &node, const std::vector<const Array *> &inputs, const std::vector<Type> &types) {
  if (node.op == "Expand") return inputs.at(0)->stored_bytes();
  if (std::ranges::binary_search(kElementwise, node.op))
    return byte_count(types.at(0).dtype, ops::stored_union(types[0].shape, inputs));
  std::uint64_t bytes = 0;
  for (const Type &type : types) bytes = checked_add(bytes, byte_count(type.dtype, type.shape));
  return bytes;
}

// Returns the number of operations that evaluating the node takes. Along an axis on which all operands repeat, an
// elementwise operator computes only one element. Other operators compute all elements.
double operations(const Graph &graph, const Node &node, const std::vector<const Array *> &inputs,
                  const std::vector<Type> &types) {
  if (node.op == "Expand") return 1;
  if (std::ranges::binary_search(kElementwise, node.op))
    return static_cast<double>(element_count(ops::stored_union(types.at(0).shape, inputs)));
  double count = ops::flops(graph, node, types);
  for (const Array *input : inputs)
    if (input != nullptr) count += static_cast<double>(element_count(input->shape()));
  return count;
}

bool has_array(const Attributes &attributes) {
  return std::ranges::any_of(attributes.items(),
                             [](const auto &item) { return std::holds_alternative<Array>(item.second); });
}

}  // namespace

void Canonical::visit(Node &node) {
  absorb(node);
  require_tensors(node);
  const bool has_bodies = ops::is_control_flow(node.op);  // control flow may read cuts
  const bool typed = std::ranges::all_of(node.inputs, [&](ValueId in) {
    return in == ValueId::none || type(in).dtype != DType::none || (has_bodies && cuts.contains(in));
  });
  if (follow_cut(*this, node)) return;
  if (!typed || !replace(node)) rewriter_.keep(std::move(node));
}

// Throws Code::graph if a node that takes tensors reads a sequence. No other check would find this, because the value
// of a sequence has the type of a tensor.
void Canonical::require_tensors(const Node &node) const {
  if (sequences.empty() || reads_sequences(node.op)) return;
  const auto found = std::ranges::find_if(node.inputs, [this](ValueId in) { return sequences.contains(in); });
  if (found == node.inputs.end()) return;
  fail(Code::graph, node.subject(), "{} reads the sequence {}; expected a tensor", node.op,
       printable(rewriter_.value(*found).name));
}

// Replaces the node by nodes that a rule emits, or by constants. Returns false if neither is possible.
bool Canonical::replace(Node &node) {
  try {
    const ops::Op *op = ops::find(node.op);
    const bool reads_empty = std::ranges::any_of(
        node.inputs, [&](ValueId in) { return in != ValueId::none && element_count(type(in).shape) == 0; });
    if (op != nullptr && reads_empty && settle_empty(node)) return true;
    const Rule rule = rule_for(node.op);
    if (rule != nullptr && rule(*this, node)) return true;
    share_small_constants(node);
    return op != nullptr && (evaluate(node, *op) || (is_core(node.op) && settle_empty(node)));
  } catch (Error &error) {
    if (error.code == Code::unsupported) {  // prepare() reports all of them at once
      if (!node.outputs.empty()) refusals[node.outputs[0]] = error.text;
      return false;
    }
    if (error.subject.empty() || error.subject == node.op) error.subject = node.subject();
    throw;
  } catch (const std::out_of_range &) {  // rules ask for operands, axes and attributes that the operator must have
    fail(Code::graph, node.subject(), "{} lacks required inputs, outputs or axes", node.op);
  }
}

// Replaces the zeros in a file's Reshape shape by the input's dims, unless allowzero is set. In a file, a 0 means the
// input's dim. In the core operator, a 0 means an axis without elements. Returns false if the input has no type yet.
bool Canonical::keep_dims_at_zeros(Node &node) const {
  std::vector<std::int64_t> shape = node.attributes.integers("shape");
  const bool keeps = node.attributes.integer("allowzero", 0) == 0 && std::ranges::find(shape, 0) != shape.end();
  if (keeps && type(node.inputs[0]).dtype == DType::none) {
    node.attributes.erase("shape");
    return false;
  }
  if (keeps) {
    const Shape x = this->shape(node.inputs[0]);
    for (std::size_t axis = 0; axis < std::min(shape.size(), x.size()); ++axis)
      if (shape[axis] == 0) shape[axis] = x[axis];
    node.attributes.set("shape", shape);
  }
  node.attributes.erase("allowzero");
  return true;
}

void Canonical::absorb(Node &node) const {
  const ops::Op *op = ops::find(node.op);
  if (op == nullptr) return;
  for (const ops::AbsorbedInput &absorbed : op->absorbed) {
    const Array *array = has(node, absorbed.input) ? constant_of(node.inputs[absorbed.input]) : nullptr;
    if (array == nullptr) continue;
    const std::string_view name = absorbed.attribute;
    const std::int64_t count = element_count(array->shape());
    if (count > kLongestList || (count != 1 && (is_float(array->dtype()) || name == "axis" || name == "k"))) continue;
    if (is_float(array->dtype()))
      node.attributes.set(absorbed.attribute, array->doubles().at(0));
    else if (name == "axis" || name == "k")
      node.attributes.set(absorbed.attribute, array->integers().at(0));
    else
      node.attributes.set(absorbed.attribute, array->integers());
    if (node.op == "Reshape" && !keep_dims_at_zeros(node)) continue;
    // Marks a `split` that was a scalar. A scalar is the size of every part, while a list gives the size of each part.
    // The attribute is a list in both cases, so it does not show the difference.
    if (node.op == "SplitToSequence" && array->shape().empty()) node.attributes.set("equal", std::int64_t{1});
    node.inputs[absorbed.input] = ValueId::none;
  }
  while (!node.inputs.empty() && node.inputs.back() == ValueId::none) node.inputs.pop_back();
}

// Replaces inputs that are small constants of equal type and bytes by one value. Exporters write a scalar again
// wherever they need it. With shared inputs, equal computations are recognizable.
void Canonical::share_small_constants(Node &node) {
  for (ValueId &in : node.inputs) {
    const Array *array = in == ValueId::none ? nullptr : constant_of(in);
    if (array == nullptr || array->stored_bytes() > kSmallConstant || array->stored_bytes() == 0) continue;
    std::string key = to_text(array->type()) + to_text(array->stored());
    key.append(reinterpret_cast<const char *>(array->bytes()), array->stored_bytes());
    in = small_constants_.emplace(std::move(key), in).first->second;
  }
}

void Canonical::make_constant(ValueId id, Array array) {
  graph::Value &value = rewriter_.graph().value(id);
  value.type = array.type();
  value.origin = graph::Origin::constant;
  value.producer = graph::NodeId::none;
  value.array = std::move(array);
}

bool Canonical::evaluate(const Node &node, const ops::Op &op) {
  std::vector<const Array *> arrays;
  std::string key = node.op + "(" + node.attributes.print() + ")";
  for (ValueId in : node.inputs) {
    arrays.push_back(in == ValueId::none ? nullptr : constant_of(in));
    if (in != ValueId::none && arrays.back() == nullptr) return false;
    key += fmt::format(" {}", static_cast<std::int32_t>(in));
  }
  if (op.evaluate == nullptr) return false;
  const std::vector<Type> types = infer(node);
  if (types.size() < node.outputs.size()) return false;  // Rewriter::keep reports the output
  const auto known = evaluated_.find(key);
  if (known != evaluated_.end() && known->second.size() == 1 && node.outputs.size() == 1 &&
      rewriter_.forward(node.outputs[0], known->second[0]))
    return true;
  const std::uint64_t bytes = result_bytes(node, arrays, types);
  if (bytes > kLargestFold || !budget_.take(bytes, operations(rewriter_.graph(), node, arrays, types))) {
    require(is_core(node.op), Code::limit, "",
            "{} of constants would take {} bytes, more than the limit for a model with these inputs", node.op, bytes);
    return false;
  }
  const std::vector<Array> results = op.evaluate(node, arrays, types);
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == ValueId::none) continue;
    make_constant(node.outputs[i], results.at(i));
  }
  if (!has_array(node.attributes)) evaluated_.insert_or_assign(key, node.outputs);
  return true;
}

// Returns true if no output of the node has any elements. In this case, makes the outputs constants, because empty
// outputs need not be computed.
bool Canonical::settle_empty(const Node &node) {
  std::vector<Type> types;
  try {
    types = infer(node);
  } catch (const Error &error) {
    if (error.code != Code::unsupported) throw;
    return false;
  }
  if (types.size() < node.outputs.size()) return false;
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] != ValueId::none && element_count(types[i].shape) > 0) return false;
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    if (node.outputs[i] != ValueId::none) make_constant(node.outputs[i], Array::filled(types[i], 0));
  return true;
}

ValueId Canonical::constant(const std::string &key, const Type &type, const std::function<Array()> &make) {
  const std::string name = key + " " + to_text(type);
  if (const auto known = rules_constants_.find(name); known != rules_constants_.end()) return known->second;
  const std::uint64_t bytes = byte_count(type.dtype, type.shape);
  require(bytes <= kLargestFold && budget_.take(bytes, static_cast<double>(element_count(type.shape))), Code::limit, "",
          "it needs a constant of {} bytes, more than the limit for a model with these inputs", bytes);
  return rules_constants_[name] = rewriter_.constant(make());
}

std::vector<ValueId> Canonical::add_all(const std::string &op, std::vector<ValueId> inputs, Attributes attributes,
                                        std::size_t output_count) {
  Node node{.op = op,
            .name = rewriter_.base_name(),
            .attributes = std::move(attributes),
            .inputs = std::move(inputs),
            .outputs = {},
            .block = -1,
            .phase = graph::Phase::forward};
  for (std::size_t i = 0; i < output_count; ++i) node.outputs.push_back(rewriter_.new_value());
  std::vector<ValueId> outputs = node.outputs;
  visit(node);
  for (ValueId &out : outputs) out = rewriter_.resolve(out);
  return outputs;
}

namespace {

// Returns how many ordinary nodes take as much memory as this one.
std::size_t weight_of(const Node &node, const graph::Graph &graph, const std::string &scope) {
  constexpr std::size_t kOrdinary = 512;  // bytes
  std::size_t bytes = node.name.size() + scope.size() + node.attributes.print().size() + 8 * node.inputs.size();
  for (ValueId out : node.outputs)
    if (out != ValueId::none) bytes += scope.size() + graph.value(out).name.size();
  return 1 + bytes / kOrdinary;
}

}  // namespace

std::vector<ValueId> Canonical::insert(const graph::Body &body, const std::vector<ValueId> &inputs,
                                       const std::string &scope) {
  std::vector<ValueId> here(body.graph.value_count(), ValueId::none);
  for (std::size_t i = 0; i < body.graph.inputs.size(); ++i) {
    require(inputs.at(i) != ValueId::none, Code::graph, "", "input {} of its body is absent", i);
    here[index(body.graph.inputs[i])] = inputs[i];
  }
  const auto find = [&](ValueId id) { return id == ValueId::none ? id : here[index(id)]; };
  std::size_t weight = 1;
  for (const Node &node : body.graph.nodes()) weight += weight_of(node, body.graph, scope);
  require(budget_.take_nodes(weight), Code::limit, "", "more than {} nodes would take the place of control flow",
          kMostUnrolled);
  std::vector<Node> nodes = body.graph.nodes();
  for (Node &node : nodes) {
    node.name = scope + "/" + node.subject();
    std::ranges::transform(node.inputs, node.inputs.begin(), find);
    for (ValueId &out : node.outputs)
      if (out != ValueId::none) out = here[index(out)] = rewriter_.new_value(scope + "/" + body.graph.value(out).name);
  }
  std::vector<ValueId> results;
  for (ValueId out : body.graph.outputs) results.push_back(find(out));
  rewriter_.walk_inside(std::move(nodes), results, [this](Node &node) { visit(node); });
  return results;
}

ValueId Canonical::reshape(ValueId x, const Shape &shape) {
  return this->shape(x) == shape ? x : add("Reshape", {x}, {{"shape", shape}});
}

ValueId Canonical::transpose(ValueId x, const std::vector<std::int64_t> &perm) {
  return add("Transpose", {x}, {{"perm", perm}});
}

ValueId Canonical::stopped_at_zero(ValueId x) {
  const ValueId zero = scalar(type(x).dtype, 0);
  return add("Where", {add("Equal", {x, zero}), zero, x});
}

void Canonical::become(const Node &node, const std::string &op, std::vector<ValueId> inputs, Attributes attributes) {
  Node next{.op = op,
            .name = node.name,
            .attributes = std::move(attributes),
            .inputs = std::move(inputs),
            .outputs = node.outputs,
            .block = node.block,
            .phase = node.phase};
  visit(next);
}

void Canonical::name_sequence(ValueId id, std::vector<ValueId> parts, const Type &type) {
  for (ValueId part : parts) rewriter_.hold(part);
  rewriter_.graph().value(id).type = type;
  sequences[id] = std::move(parts);
}

void Canonical::pass(const Node &node, ValueId x) {
  if (rewriter_.forward(node.outputs.at(0), x)) return;
  if (const graph::Array *array = constant_of(x)) return make_constant(node.outputs[0], *array);
  if (const auto sequence = sequences.find(x); sequence != sequences.end()) {
    name_sequence(node.outputs[0], std::vector<ValueId>(sequence->second), type(x));
    return;
  }
  rewriter_.become({.op = node.op,
                    .name = node.name,
                    .attributes = {},
                    .inputs = {},
                    .outputs = {node.outputs[0]},
                    .block = node.block,
                    .phase = node.phase},
                   "Reshape", {x}, {{"shape", shape(x)}});
}

bool has(const Node &node, std::size_t input) {
  return input < node.inputs.size() && node.inputs[input] != ValueId::none;
}

Node with_output(const Node &node, std::size_t output) {
  Node one = node;
  one.outputs = {node.outputs.at(output)};
  return one;
}

void fold(Graph &graph) {
  FoldBudget budget(graph);
  fold(graph, budget);
}

std::map<ValueId, std::string> fold(Graph &graph, FoldBudget &budget, const graph::Bodies *bodies) {
  graph.drop_dead_nodes();
  Rewriter rewriter(graph);
  Canonical canonical(rewriter, budget, bodies);
  rewriter.walk([&](Node &node) { canonical.visit(node); });
  return std::move(canonical.refusals);
}

}  // namespace protrain::passes
