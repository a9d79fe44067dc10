#include "passes/rewriter.h"

#include <algorithm>

#include "base/error.h"
#include "ops/op.h"

namespace protrain::passes {

Rewriter::Rewriter(Graph &graph) : graph_(graph) {
  grow();
  for (const Node &node : graph_.nodes())
    for (ValueId in : node.inputs)
      if (in != ValueId::none) ++uses_[index(in)];
  for (ValueId out : graph_.outputs) ++uses_[index(out)];
}

void Rewriter::grow() {
  uses_.resize(graph_.value_count(), 0);
  made_by_.resize(graph_.value_count(), -1);
  forwarded_.resize(graph_.value_count(), ValueId::none);
}

void Rewriter::walk(const std::function<void(Node &)> &visit) {
  std::vector<Node> nodes = graph_.nodes();
  walk_over(nodes, visit);
  install();
}

void Rewriter::walk_over(std::vector<Node> &nodes, const std::function<void(Node &)> &visit) {
  for (Node &node : nodes) {
    for (ValueId &in : node.inputs) in = resolve(in);
    base_name_ = node.subject();
    const std::vector<ValueId> read = node.inputs;
    visit(node);
    release(read);
  }
}

void Rewriter::walk_inside(std::vector<Node> nodes, std::vector<ValueId> &results,
                           const std::function<void(Node &)> &visit) {
  const std::string outside = base_name_;
  for (const Node &node : nodes)
    for (ValueId in : node.inputs)
      if (in != ValueId::none) ++uses_[index(in)];
  std::ranges::for_each(results, [this](ValueId result) { hold(result); });
  walk_over(nodes, visit);
  for (ValueId &result : results) result = resolve(result);
  base_name_ = outside;
}

void Rewriter::keep(Node node) {
  const bool typed = std::ranges::all_of(
      node.inputs, [&](ValueId in) { return in == ValueId::none || type(in).dtype != DType::none; });
  if (typed && ops::find(node.op) != nullptr) infer_outputs(node);
  for (ValueId in : node.inputs)
    if (in != ValueId::none) ++uses_[index(in)];
  for (ValueId out : node.outputs)
    if (out != ValueId::none) made_by_[index(out)] = static_cast<int>(kept_.size());
  kept_.push_back({std::move(node)});
}

// Infers the types of a node's outputs. Drops outputs that the core operator lacks. If such an output is used, or if a
// shape depends on data, the outputs stay untyped.
void Rewriter::infer_outputs(Node &node) {
  try {
    const std::vector<Type> types = ops::infer(graph_, node);
    while (node.outputs.size() > types.size()) {
      const ValueId last = node.outputs.back();
      require(last == ValueId::none || uses(last) == 0, Code::unsupported, node.name,
              "output {} of {} is not supported", node.outputs.size() - 1, node.op);
      node.outputs.pop_back();
    }
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != ValueId::none) graph_.value(node.outputs[i]).type = types[i];
  } catch (const Error &error) {  // prepare() reports all shapes that depend on data at once
    if (error.code != Code::unsupported) throw;
  }
}

void Rewriter::become(const Node &node, const std::string &op, std::vector<ValueId> inputs, Attributes attributes) {
  changed_ = true;
  keep({.op = op,
        .name = node.name,
        .attributes = std::move(attributes),
        .inputs = std::move(inputs),
        .outputs = node.outputs,
        .block = node.block,
        .phase = node.phase});
}

std::vector<ValueId> Rewriter::emit_all(const std::string &op, std::vector<ValueId> inputs, Attributes attributes,
                                        std::size_t output_count) {
  changed_ = true;
  Node node{.op = op,
            .name = base_name_,
            .attributes = std::move(attributes),
            .inputs = std::move(inputs),
            .outputs = {},
            .block = -1,
            .phase = graph::Phase::forward};
  for (std::size_t i = 0; i < output_count; ++i) node.outputs.push_back(new_value());
  const std::vector<ValueId> outputs = node.outputs;
  keep(std::move(node));
  return outputs;
}

ValueId Rewriter::new_value() { return new_value(base_name_ + "/value"); }

ValueId Rewriter::new_value(const std::string &name) {
  const ValueId id = graph_.add_value({.name = name, .type = {}, .array = {}});
  grow();
  return id;
}

ValueId Rewriter::constant(graph::Array array) {
  const ValueId id = graph_.add_constant(base_name_ + "/constant", std::move(array));
  grow();
  return id;
}

bool Rewriter::forward(ValueId from, ValueId to) {
  if (is_output(from)) {
    if (producer(to) == nullptr || is_output(to)) return false;
    std::swap(from, to);
    take_over(from, to);
  }
  uses_[index(to)] += uses_[index(from)];
  uses_[index(from)] = 0;
  forwarded_[index(from)] = to;
  changed_ = true;
  return true;
}

// Makes the node that computes `from` compute `to` instead. `to` is an output of the graph, which so keeps its name.
void Rewriter::take_over(ValueId from, ValueId to) {
  const int maker = made_by_[index(from)];
  std::ranges::replace(kept_[static_cast<std::size_t>(maker)].node.outputs, from, to);
  made_by_[index(to)] = maker;
  made_by_[index(from)] = -1;
  graph_.value(to).type = graph_.value(from).type;
  for (Entry &kept : kept_) std::ranges::replace(kept.node.inputs, from, to);
}

ValueId Rewriter::resolve(ValueId id) const {
  while (id != ValueId::none && forwarded_[index(id)] != ValueId::none) id = forwarded_[index(id)];
  return id;
}

const Node *Rewriter::producer(ValueId id) const {
  if (id == ValueId::none || made_by_[index(id)] < 0) return nullptr;
  const Entry &kept = kept_[static_cast<std::size_t>(made_by_[index(id)])];
  return kept.alive ? &kept.node : nullptr;
}

bool Rewriter::is_read(const Node &node, std::size_t output) const {
  return output < node.outputs.size() && node.outputs[output] != ValueId::none && uses(node.outputs[output]) > 0;
}

bool Rewriter::is_output(ValueId id) const { return std::ranges::find(graph_.outputs, id) != graph_.outputs.end(); }

const graph::Array *Rewriter::constant_of(ValueId id) const {
  if (id == ValueId::none || graph_.value(id).origin != graph::Origin::constant) return nullptr;
  return &graph_.value(id).array;
}

void Rewriter::release(const std::vector<ValueId> &inputs) {
  std::vector<ValueId> pending;
  const auto drop_read = [&](ValueId id) {
    id = resolve(id);
    if (id != ValueId::none && --uses_[index(id)] == 0) pending.push_back(id);
  };
  std::ranges::for_each(inputs, drop_read);
  while (!pending.empty()) {
    const ValueId id = pending.back();
    pending.pop_back();
    if (made_by_[index(id)] < 0) continue;
    Entry &maker = kept_[static_cast<std::size_t>(made_by_[index(id)])];
    const bool read = std::ranges::any_of(maker.node.outputs,
                                          [&](ValueId out) { return out != ValueId::none && uses_[index(out)] > 0; });
    if (read || !maker.alive) continue;
    maker.alive = false;
    std::ranges::for_each(maker.node.inputs, drop_read);
  }
}

void Rewriter::install() {
  std::vector<Node> nodes;
  for (Entry &kept : kept_)
    if (kept.alive) nodes.push_back(std::move(kept.node));
  graph_.set_nodes(std::move(nodes));
  graph_.drop_dead_nodes();
}

}  // namespace protrain::passes
