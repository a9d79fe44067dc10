// Reverse-mode differentiation over the graph. It walks the forward nodes backwards and asks each operator for its
// rule. Every contribution to a gradient is summed as soon as it is known, in the order of creation. So at most one
// partial sum per value is alive, and a parameter's Update can follow its last contribution at once.
#include "grad/training.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "base/error.h"
#include "grad/state_changes.h"
#include "grad/step_gradients.h"
#include "graph/dependence.h"
#include "ops/op.h"

namespace protrain::grad {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::Type;
using graph::ValueId;

// Knows which values lie between a trained parameter and the loss.
class GradientPath {
 public:
  GradientPath(const Graph &graph, ValueId loss) : wanted_(graph.value_count()), needed_(graph.value_count()) {
    for (ValueId id : graph.parameters)  // a parameter without elements has nothing to train
      wanted_[index(id)] = graph::is_trained(graph.value(id)) && element_count(graph.value(id).type.shape) > 0;
    for (const Node &node : graph.nodes())
      for (ValueId out : node.outputs)
        if (out != ValueId::none && is_float(graph.value(out).type.dtype))
          wanted_[index(out)] = !ops::is_flat(node) && any(node.inputs, wanted_);
    needed_[index(loss)] = true;
    needed_ = graph::with_dependencies(graph, std::move(needed_), ops::is_flat);
  }
  // True if the value lies between a trained parameter and the loss. False for values that are newer than this object,
  // such as gradients.
  bool wants(ValueId id) const {
    return id != ValueId::none && index(id) < wanted_.size() && wanted_[index(id)] && needed_[index(id)];
  }
  bool crosses(const Node &node) const {
    return std::ranges::any_of(node.outputs, [this](ValueId id) { return wants(id); }) &&
           std::ranges::any_of(node.inputs, [this](ValueId id) { return wants(id); });
  }

 private:
  static bool any(const std::vector<ValueId> &ids, const std::vector<bool> &marks) {
    return std::ranges::any_of(ids, [&](ValueId id) { return id != ValueId::none && marks[index(id)]; });
  }

  std::vector<bool> wanted_;  // by value: a gradient of it reaches a trained parameter
  std::vector<bool> needed_;  // by value: a gradient of the loss reaches it
};

void require_gradients(const Graph &graph, const GradientPath &path) {
  std::vector<std::string> missing;
  for (const Node &node : graph.nodes()) {
    const ops::Op *op = ops::find(node.op);
    if (path.crosses(node) && (op == nullptr || op->gradient == nullptr))
      missing.push_back(fmt::format("{} ({})", node.op, node.name));
  }
  require(missing.empty(), Code::unsupported, missing.empty() ? "" : missing.front(),
          "{} operators on the way to the loss have no gradient: {}", missing.size(), fmt::join(missing, ", "));
}

// Appends the backward nodes to the training graph. Operators' rules call it as their GradientBuilder: a rule asks for
// the gradients of its node's outputs and contributes gradients of the inputs. The contributions are summed here, so
// that rules need not know which other nodes read an input.
class TrainingBuilder final : public ops::GradientBuilder {
 public:
  TrainingBuilder(Training &training, const GradientPath &path, Emitter &emitter)
      : training_(training), graph_(training.graph), path_(path), emitter_(emitter) {
    forward_readers_.resize(graph_.value_count(), 0);
    for (const Node &node : graph_.nodes())
      for (ValueId in : node.inputs)
        if (in != ValueId::none) ++forward_readers_[index(in)];
    sums_.resize(graph_.value_count(), ValueId::none);
  }

  ValueId gradient_of(ValueId output) override {
    return output != ValueId::none && index(output) < sums_.size() ? sums_[index(output)] : ValueId::none;
  }

  bool wants(ValueId input) const override { return path_.wants(input); }

  std::string trained_before(ValueId input) const override {
    while (graph_.value(input).producer != NodeId::none) {
      const std::vector<ValueId> &read = graph_.node(graph_.value(input).producer).inputs;
      const auto next = std::ranges::find_if(read, [this](ValueId id) { return wants(id); });
      if (next == read.end()) break;
      input = *next;
    }
    return graph_.value(input).name;
  }

  void contribute(ValueId input, ValueId gradient) override {
    if (!wants(input) || gradient == ValueId::none) return;
    require(type(input) == type(gradient), Code::internal, emitter_.current().name, "the gradient of {} is {}, not {}",
            graph_.value(input).name, to_text(type(gradient)), to_text(type(input)));
    ValueId &sum = sums_[index(input)];
    if (sum != ValueId::none && is_added(input, gradient))
      graph_.node(graph_.value(gradient).producer).inputs.push_back(sum);
    else if (sum != ValueId::none)
      gradient = emit("Add", {sum, gradient});
    sum = gradient;
  }

  std::vector<ValueId> emit(const std::string &op, std::vector<ValueId> inputs, graph::Attributes attributes,
                            std::size_t output_count) override {
    for (ValueId &input : inputs) input = repeated_again(input);
    return emitter_.emit(op, std::move(inputs), std::move(attributes), output_count);
  }
  ValueId constant(Type type, double value) override { return emitter_.constant(std::move(type), value); }

  const Type &type(ValueId value) const override { return graph_.value(value).type; }
  const graph::Value &value(ValueId value) const override { return graph_.value(value); }

  bool is_loss(ValueId output) const override {
    return output == training_.loss && forward_readers_[index(output)] == 0;
  }
  void replace_output(ValueId output, ValueId replacement) override {
    graph_.replace_uses(output, replacement);
    if (training_.loss == output) training_.loss = replacement;
  }

  void start_at(ValueId loss, bool scaled) {
    emitter_.begin(graph_.value(loss).name);
    if (scaled) {
      training_.loss_scale = emit("LossScale", {});
      const ValueId scale = emit("Cast", {training_.loss_scale}, {{"to", std::string(name_of(type(loss).dtype))}});
      sums_[index(loss)] = type(loss).shape.empty() ? scale : emit("Reshape", {scale}, {{"shape", type(loss).shape}});
    } else {
      sums_[index(loss)] = constant(type(loss), 1.0);
    }
  }

  // True if an output of the node has a gradient. False if every way from the node to the loss leads through an
  // operator with gradient zero, such as Round.
  bool reaches(const Node &node) {
    return std::ranges::any_of(node.outputs, [this](ValueId id) { return gradient_of(id) != ValueId::none; });
  }

  void visit(const Node &node) {
    emitter_.begin(node);
    first_of_visit_ = graph_.node_count();
    ops::find(node.op)->gradient(*this, emitter_.current());
  }

 private:
  using ops::GradientBuilder::emit;

  // Returns the value that backward reads in place of `id`. Mostly this is `id` itself. But if forward made `id` by
  // repeating a much smaller value, emits a node that repeats the small value again, so that only the small value is
  // kept for backward.
  ValueId repeated_again(ValueId id) {
    if (id == ValueId::none || graph_.value(id).producer == NodeId::none) return id;
    const Node maker = graph_.node(graph_.value(id).producer);  // a copy, because emitting may move the list of nodes
    if (maker.phase != graph::Phase::forward || maker.inputs.size() != 1) return id;
    const ValueId source = ops::is_alias(maker) ? repeated_again(maker.inputs[0]) : maker.inputs[0];
    const bool again = ops::is_alias(maker) ? source != maker.inputs[0] : repeats(maker);
    return again ? emitter_.emit(maker.op, {source}, maker.attributes) : id;
  }
  bool repeats(const Node &maker) const {
    const ops::Op *op = ops::find(maker.op);
    return op != nullptr && op->repeats &&
           element_count(type(maker.inputs[0]).shape) * 2 <= element_count(type(maker.outputs[0]).shape);
  }

  // True if the node that computes `gradient` can itself add the earlier contributions to dL/d(input), as its last
  // operand. The gradient node of a normalization can, and so can a product. But only a thin product gains by it. Then
  // the time to read and write the sum is a large part of the product's.
  bool is_added(ValueId input, ValueId gradient) const {
    constexpr std::int64_t kThin = 128;  // most terms of a sum in the product
    const NodeId producer = graph_.value(gradient).producer;
    if (producer == NodeId::none || index(producer) < first_of_visit_) return false;  // others read the gradient too
    const Node &maker = graph_.node(producer), &visited = emitter_.current();
    if (maker.op == "MatMul" && visited.op == "MatMul") {
      const Shape &a = type(maker.inputs[0]).shape;
      return a.size() >= 2 && a[a.size() - (maker.attributes.integer("trans_a", 0) != 0 ? 2 : 1)] <= kThin;
    }
    const bool normalizes = visited.op == "LayerNormalization" || visited.op == "RMSNormalization";
    return normalizes && input == visited.inputs[0] && maker.op == visited.op + "Grad" &&
           maker.outputs[0] == gradient;  // other outputs belong to scale and bias
  }

  Training &training_;
  Graph &graph_;
  const GradientPath &path_;
  Emitter &emitter_;
  std::vector<int> forward_readers_;  // per forward value
  std::vector<ValueId> sums_;         // per forward value: the sum of contributions so far
  std::size_t first_of_visit_ = 0;    // the first node that the current visit has emitted
};

// Returns for each forward node the parameters that this node is the first to read. The backward walk visits the first
// reader of a parameter after all its other readers, so the parameter's gradient is then complete.
std::vector<std::vector<std::size_t>> parameters_first_read(const Graph &graph) {
  std::vector<std::vector<std::size_t>> first(graph.node_count());
  const auto consumers = graph.consumers();
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const auto &readers = consumers[index(graph.parameters[p])];
    if (!readers.empty()) first[index(readers.front())].push_back(p);
  }
  return first;
}

constexpr const char *kAlwaysZero =
    "the gradients of all trained parameters are always zero: the loss depends on them only through operators such as "
    "Round or detach()";

void require_scalar(const graph::Value &loss) {
  require(is_float(loss.type.dtype) && element_count(loss.type.shape) == 1, Code::graph, loss.name,
          "the loss is {}, not a float scalar; name a scalar output, or export the model with its loss",
          to_text(loss.type));
}

void require_loss(const Graph &graph, ValueId loss, const GradientPath &path) {
  const graph::Value &value = graph.value(loss);
  require_scalar(value);
  std::vector<bool> needed(graph.value_count(), false);
  needed[index(loss)] = true;
  needed = graph::with_dependencies(graph, std::move(needed));
  const auto is_trained = [&](ValueId id) { return needed[index(id)] && graph::is_trained(graph.value(id)); };
  const bool depends = std::ranges::any_of(graph.parameters, is_trained);
  const bool frozen = std::ranges::any_of(graph.parameters, [&](ValueId id) { return graph.value(id).frozen; });
  require(depends, Code::graph, value.name, "the loss depends on no trained parameter{}",
          frozen ? ", only on frozen ones: those that the option frozen matches, and quantised weights; freeze fewer, "
                   "train adapters of its matrices (lora), or give the model from before quantisation"
                 : "");
  require(path.wants(loss), Code::graph, value.name, "{}", kAlwaysZero);
}

}  // namespace

Training build(Graph forward, ValueId loss, const TrainingSettings &settings) {
  Training training{.graph = std::move(forward), .loss = loss, .norm = ValueId::none};
  Graph &graph = training.graph;
  graph.outputs = {loss};
  graph.drop_dead_nodes();
  const GradientPath path(graph, loss);
  require_loss(graph, loss, path);
  require_gradients(graph, path);
  training.shards = graph::cut_shards(graph, settings.rank, settings.ranks);
  training.gradients.assign(graph.parameters.size(), ValueId::none);
  training.squared_norms.assign(graph.parameters.size(), ValueId::none);
  if (settings.ranks > 1 && !settings.accumulate) training.shard_norms.assign(graph.parameters.size(), ValueId::none);

  const auto completed_by = parameters_first_read(graph);  // by forward node
  if (settings.accumulate && !settings.sums_by_rank())
    training.accumulators.assign(graph.parameters.size(), ValueId::none);
  Emitter emitter(graph);
  TrainingBuilder builder(training, path, emitter);
  StepGradients gradients(training, emitter, settings);
  change_state(training, emitter, settings);
  if (settings.accumulate || settings.ranks > 1) gradients.weigh(loss);
  builder.start_at(loss, settings.scale_loss);
  std::int32_t block = -1;  // of the last visited forward node
  for (std::size_t i = completed_by.size(); i-- > 0;) {
    if (std::exchange(block, graph.nodes()[i].block) != block) gradients.finish_waiting();
    const Node &node = graph.nodes()[i];
    if (path.crosses(node) && builder.reaches(node)) builder.visit(node);
    for (std::size_t parameter : completed_by[i])
      if (const ValueId gradient = builder.gradient_of(graph.parameters[parameter]); gradient != ValueId::none)
        gradients.finish(parameter, gradient);
  }
  gradients.finish_waiting();

  require(std::ranges::any_of(training.gradients, [](ValueId id) { return id != ValueId::none; }), Code::graph,
          graph.value(loss).name, "{}", kAlwaysZero);
  gradients.join();
  graph.outputs = {training.loss};
  for (const auto *values : {&training.gradients, &training.shard_norms, &training.changed})
    std::ranges::copy_if(*values, std::back_inserter(graph.outputs), [](ValueId id) { return id != ValueId::none; });
  for (ValueId id : {training.norm, training.weight, training.scale})
    if (id != ValueId::none) graph.outputs.push_back(id);
  graph.drop_dead_nodes();
  prune_unread_outputs(graph);
  return training;
}

Training without_gradients(Graph forward, const WeighedLoss &weighed, int rank, int ranks) {
  const graph::Value &loss = forward.value(weighed.loss);
  require_scalar(loss);
  require(loss.producer != NodeId::none, Code::graph, loss.name,
          "the loss is an input or a constant; no node computes it");
  Training training{.graph = std::move(forward), .loss = weighed.loss, .norm = ValueId::none, .weight = weighed.weight};
  const std::size_t count = training.graph.parameters.size();
  training.shards = graph::cut_shards(training.graph, rank, ranks);
  for (auto *values : {&training.gradients, &training.squared_norms, &training.changed})
    values->assign(count, ValueId::none);
  return training;
}

void prune_unread_outputs(Graph &graph) {
  std::vector<bool> read(graph.value_count(), false);
  for (const Node &node : graph.nodes())
    for (ValueId in : node.inputs)
      if (in != ValueId::none) read[index(in)] = true;
  for (ValueId out : graph.outputs) read[index(out)] = true;
  for (std::size_t i = 0; i < graph.node_count(); ++i)
    for (ValueId &out : graph.node(static_cast<NodeId>(i)).outputs)
      if (out != ValueId::none && !read[index(out)]) out = ValueId::none;
}

}  // namespace protrain::grad
