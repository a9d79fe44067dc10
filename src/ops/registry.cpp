// Every operator by name, and the questions that are the same for all of them.
#include <map>

#include "base/error.h"
#include "ops/families.h"
#include "ops/op.h"

namespace protrain::ops {

namespace {

const std::map<std::string_view, Op> &table() {
  static const std::map<std::string_view, Op> ops = [] {
    std::map<std::string_view, Op> all;
    for (auto family : {unary_family, binary_family, cast_family, reshape_family, movement_family, generator_family,
                        gather_family, reduce_family, matmul_family, softmax_family, normalization_family,
                        attention_family, rotary_family, loss_family, norm_family})
      for (Op &op : family()) all.emplace(op.name, std::move(op));
    return all;
  }();
  return ops;
}

NodeTypes types_of(const graph::Graph &graph, const Node &node) {
  NodeTypes types{.node = node, .inputs = {}};
  for (graph::ValueId in : node.inputs)
    types.inputs.push_back(in == graph::ValueId::none ? nullptr : &graph.value(in).type);
  return types;
}

const Op &require_op(const Node &node) {
  const Op *op = find(node.op);
  require(op != nullptr && op->infer != nullptr, Code::unsupported, node.name, "operator {} is not known", node.op);
  return *op;
}

}  // namespace

const Type &NodeTypes::input(std::size_t i) const {
  require(has(i), Code::graph, subject(), "{} needs an input {}", node.op, i);
  return *inputs[i];
}

const Op *find(std::string_view name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : &found->second;
}

std::vector<std::string_view> names() {
  std::vector<std::string_view> all;
  for (const auto &[name, op] : table()) all.push_back(name);
  return all;
}

std::vector<Type> infer(const graph::Graph &graph, const Node &node) {
  return require_op(node).infer(types_of(graph, node));
}

Cost cost(const graph::Graph &graph, const Node &node) {
  const Op &op = require_op(node);
  std::vector<Type> outputs;
  Cost cost;
  for (graph::ValueId out : node.outputs) {
    outputs.push_back(out == graph::ValueId::none ? Type{} : graph.value(out).type);
    cost.flops += static_cast<double>(element_count(outputs.back().shape));
    cost.bytes += static_cast<double>(byte_count(outputs.back().dtype, outputs.back().shape));
  }
  for (graph::ValueId in : node.inputs)
    if (in != graph::ValueId::none)
      cost.bytes += static_cast<double>(byte_count(graph.value(in).type.dtype, graph.value(in).type.shape));
  if (op.flops != nullptr) cost.flops = op.flops(types_of(graph, node), outputs);
  return cost;
}

std::vector<Array> interpret(const graph::Graph &graph, const std::map<graph::ValueId, Array> &bound) {
  std::vector<Array> values(graph.value_count());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = graph.values()[i].array;
  for (const auto &[id, array] : bound) values[index(id)] = array;
  for (const Node &node : graph.nodes()) {
    const Op &op = require_op(node);
    require(op.evaluate != nullptr, Code::unsupported, node.name, "operator {} has no reference values", node.op);
    std::vector<const Array *> inputs;
    for (graph::ValueId in : node.inputs) inputs.push_back(in == graph::ValueId::none ? nullptr : &values[index(in)]);
    const std::vector<Array> outputs = op.evaluate(node, inputs, infer(graph, node));
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != graph::ValueId::none) values[index(node.outputs[i])] = outputs.at(i);
  }
  return values;
}

}  // namespace protrain::ops
