// Reverse-mode differentiation over the graph: walk the forward nodes backwards and ask each operator for its rule.
// Every contribution to a gradient is summed as soon as it is known, in the order of creation. So at most one partial
// sum per value is alive, and a parameter's Update can follow its last contribution at once.
#include "grad/training.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "arith/norm_tree.h"
#include "base/error.h"
#include "ops/op.h"

namespace protrain::grad {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::Type;
using graph::ValueId;

static_assert(graph::kGrain == arith::kNormPiece, "the kernels square gradients grain by grain");

// Knows which values lie between a trained parameter and the loss.
class GradientPath {
 public:
  GradientPath(const Graph &graph, ValueId loss) : wanted_(graph.value_count()), needed_(graph.value_count()) {
    for (ValueId id : graph.parameters)  // a parameter without elements has nothing to train
      wanted_[index(id)] = !graph.value(id).frozen && element_count(graph.value(id).type.shape) > 0;
    for (const Node &node : graph.nodes())
      for (ValueId out : node.outputs)
        if (out != ValueId::none && is_float(graph.value(out).type.dtype))
          wanted_[index(out)] = any(node.inputs, wanted_);
    needed_[index(loss)] = true;
    for (auto node = graph.nodes().rbegin(); node != graph.nodes().rend(); ++node)
      if (any(node->outputs, needed_))
        for (ValueId in : node->inputs)
          if (in != ValueId::none) needed_[index(in)] = true;
  }
  // Values created after the path was computed (gradients) are on no path.
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

  std::vector<bool> wanted_;  // by value: it depends on a trained parameter
  std::vector<bool> needed_;  // by value: the loss depends on it
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

// The node that makes the loss a mean over targets, or nullptr if none does.
const Node *mean_over_targets(const Graph &graph, ValueId loss) {
  const Node *node = nullptr;
  for (NodeId at = graph.value(loss).producer; at != NodeId::none; at = graph.value(node->inputs[0]).producer) {
    node = &graph.node(at);
    if (node->op == "CrossEntropy" || node->op == "LinearCrossEntropy")
      return node->attributes.text("reduction", "mean") == "mean" ? node : nullptr;
    if (!ops::is_alias(*node)) return nullptr;
  }
  return nullptr;
}

// Appends the backward nodes to the training graph. It is the GradientBuilder that operators' rules call: a rule gets
// the gradients of its node's outputs and contributes gradients of the inputs, which are summed here. The builder also
// emits the weights of micro-batches, norms, and the factor that Updates apply.
class TrainingBuilder final : public ops::GradientBuilder {
 public:
  TrainingBuilder(Training &training, const GradientPath &path, const TrainingSettings &settings)
      : training_(training), graph_(training.graph), path_(path), settings_(settings) {
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

  void contribute(ValueId input, ValueId gradient) override {
    if (!wants(input) || gradient == ValueId::none) return;
    require(type(input) == type(gradient), Code::internal, current_.name, "the gradient of {} is {}, not {}",
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
    Node node{.op = op,
              .name = current_.name + "/gradient",
              .attributes = std::move(attributes),
              .inputs = std::move(inputs),
              .outputs = {},
              .block = current_.block,
              .phase = graph::Phase::backward};
    const std::vector<Type> types = ops::infer(graph_, node);
    std::vector<std::string> names(output_count, "d/" + current_name_);
    const NodeId id = graph_.add_node(std::move(node), names);
    const std::vector<ValueId> outputs = graph_.node(id).outputs;
    for (std::size_t i = 0; i < output_count; ++i) graph_.value(outputs[i]).type = types.at(i);
    return outputs;
  }

  ValueId constant(Type type, double value) override {
    return graph_.add_constant("constant/" + current_name_, graph::Array::filled(std::move(type), value));
  }

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
    begin(graph_.value(loss).name);
    if (scaled) {
      training_.loss_scale = emit("LossScale", {});
      const ValueId scale = emit("Cast", {training_.loss_scale}, {{"to", std::string(name_of(type(loss).dtype))}});
      sums_[index(loss)] = type(loss).shape.empty() ? scale : emit("Reshape", {scale}, {{"shape", type(loss).shape}});
    } else {
      sums_[index(loss)] = constant(type(loss), 1.0);
    }
  }

  // True if an output has a gradient. False if only operators with gradient zero, such as Round, follow the node.
  bool reaches(const Node &node) {
    return std::ranges::any_of(node.outputs, [this](ValueId id) { return gradient_of(id) != ValueId::none; });
  }

  void visit(const Node &node) {
    current_ = node;  // a copy: emitting moves the node list
    current_name_ = node.name.empty() ? node.op : node.name;
    ops::find(node.op)->gradient(*this, current_);
  }

  // Emits the weight that this micro-batch has in the gradients of the whole batch. Must be called before finish().
  void weigh(ValueId loss) {
    begin("weight");
    weight_ = weight_of(loss);
    training_.weight = shared() ? of_all_ranks(weight_) : weight_;
    // Updates may then follow each gradient at once.
    if (settings_.accumulate || settings_.scale_loss || settings_.clip_norm > 0) return;
    factor_ = join_weights();
    scale_by(ValueId::none);
  }

  // Emits a parameter's gradient, summed over micro-batches, and the squared norm of that gradient. For small
  // gradients, finish_waiting() emits the norms later, many in one node.
  void finish(std::size_t parameter) {
    const ValueId id = graph_.parameters[parameter];
    ValueId gradient = gradient_of(id);
    if (gradient == ValueId::none) return;
    begin(graph_.value(id).name);
    if (shared()) return exchange(parameter, gradient);
    if (training_.weight != ValueId::none) gradient = add(parameter, type(id).shape, gradient);
    measure(parameter, gradient);
  }

  // Emits the exchange of the gradients that wait for it, and one node for the norms of the small gradients that wait.
  void finish_waiting() {
    exchange_waiting();
    square_waiting();
  }
  void enter(std::int32_t block) {
    if (block != block_) finish_waiting();
    block_ = block;
  }

  // Emits the norm of all gradients and the factor to scale them by.
  void join() {
    begin("loss");
    if (training_.weight != ValueId::none) training_.loss = emit("CountedLoss", {training_.loss, weight_});
    if (shared()) training_.loss = of_all_ranks(training_.loss);
    begin("gradients");
    if (shared()) join_squares();
    std::vector<ValueId> norms;
    std::ranges::copy_if(training_.squared_norms, std::back_inserter(norms),
                         [](ValueId id) { return id != ValueId::none; });
    training_.norm = emit("GlobalNorm", norms);
    if (factor_ == ValueId::none) factor_ = join_weights();
    if (factor_ != ValueId::none) training_.norm = emit("ScaledNorm", {training_.norm, factor_});
    if (training_.scale == ValueId::none) scale_by(training_.norm);
  }

 private:
  using ops::GradientBuilder::emit;

  static constexpr std::size_t kMostTogether = 32;
  static constexpr std::uint64_t kExchangeBytes = 4ull << 20;

  // True if the node that computes `gradient` can also add the sum of earlier contributions to `input`. A
  // normalization's gradient node can: the sum, which is the gradient of the residual, becomes its last operand.
  bool is_added(ValueId input, ValueId gradient) const {
    const bool normalizes = current_.op == "LayerNormalization" || current_.op == "RMSNormalization";
    return normalizes && input == current_.inputs[0] &&
           graph_.node(graph_.value(gradient).producer).op == current_.op + "Grad";
  }

  ValueId gradient_at(std::size_t parameter) const { return training_.gradients[parameter]; }

  const graph::Shards &shards() const { return training_.shards; }
  bool shared() const { return shards().ranks > 1; }

  // Returns the weight of this rank's micro-batch.
  ValueId weight_of(ValueId loss) {
    const Node *mean = mean_over_targets(graph_, loss);
    if (mean == nullptr) return constant({DType::f64, {}}, 1);
    graph::Attributes attributes;
    if (mean->attributes.has("ignore_index"))
      attributes.set("ignore_index", mean->attributes.integer("ignore_index", 0));
    return emit("CountTargets", {mean->inputs[mean->op == "CrossEntropy" ? 1 : 2]}, attributes);
  }

  // Adds the gradient of a micro-batch, or of every rank's, to the parameter's sum.
  ValueId add(std::size_t parameter, const Shape &shape, ValueId gradient) {
    if (!settings_.accumulate) return sum_parts(shape, {gradient, training_.weight});
    const DType dtype = type(graph_.parameters[parameter]).dtype;
    training_.accumulators[parameter] = accumulator({ops::sum_dtype(dtype), shape});
    return emit("Accumulate", {training_.accumulators[parameter], gradient, training_.weight}, parts());
  }
  graph::Attributes parts() const {
    return shared() ? graph::Attributes{{"parts", std::int64_t{shards().ranks}}} : graph::Attributes();
  }

  ValueId sum_parts(const Shape &shape, const std::vector<ValueId> &parts_and_weight) {
    graph::Attributes attributes = parts();
    attributes.set("shape", shape);
    return emit("SumParts", parts_and_weight, attributes);
  }

  // Emits the squared norm of a parameter's gradient, or has it wait for those of other small gradients.
  void measure(std::size_t parameter, ValueId gradient) {
    training_.gradients[parameter] = gradient;
    if (!ops::goes_with_others(type(gradient))) return square({parameter});
    const bool of_others = !waiting_.empty() && type(gradient_at(waiting_[0])).dtype != type(gradient).dtype;
    if (of_others || waiting_.size() == kMostTogether) square_waiting();
    waiting_.push_back(parameter);
  }

  void square_waiting() {
    if (waiting_.empty()) return;
    begin(graph_.value(graph_.parameters[waiting_[0]]).name);
    square(std::exchange(waiting_, {}));
  }

  // With several ranks: emits the squared norms of the grains of this rank's shards. join_squares() joins them.
  void square(const std::vector<std::size_t> &parameters) {
    std::vector<ValueId> gradients;
    for (std::size_t p : parameters) gradients.push_back(gradient_at(p));
    graph::Attributes attributes;
    if (shared()) attributes.set("piece", graph::kGrain);
    const std::vector<ValueId> norms = emit("SquaredNorm", gradients, attributes, gradients.size());
    for (std::size_t i = 0; i < norms.size(); ++i) training_.squared_norms[parameters[i]] = norms[i];
    if (!shared() || settings_.accumulate) return;
    const std::vector<ValueId> joined = emit("JoinSquares", norms, {}, norms.size());
    for (std::size_t i = 0; i < joined.size(); ++i) training_.shard_norms[parameters[i]] = joined[i];
  }

  // Small gradients are exchanged with others, because a message has its cost.
  void exchange(std::size_t parameter, ValueId gradient) {
    unexchanged_.emplace_back(parameter, gradient);
    unexchanged_bytes_ += byte_count(type(gradient).dtype, type(gradient).shape);
    if (unexchanged_bytes_ >= kExchangeBytes) exchange_waiting();
  }

  void exchange_waiting() {
    if (unexchanged_.empty()) return;
    const auto waiting = std::exchange(unexchanged_, {});
    unexchanged_bytes_ = 0;
    begin(graph_.value(graph_.parameters[waiting[0].first]).name);
    std::vector<ValueId> gradients;
    std::vector<std::int64_t> bounds;
    for (const auto &[parameter, gradient] : waiting) {
      gradients.push_back(gradient);
      bounds.insert(bounds.end(), shards().bounds[parameter].begin(), shards().bounds[parameter].end());
    }
    const std::vector<ValueId> received =
        emit("AllToAll", gradients, {{"rank", std::int64_t{shards().rank}}, {"bounds", bounds}}, gradients.size());
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const std::size_t parameter = waiting[i].first;
      begin(graph_.value(graph_.parameters[parameter]).name);
      measure(parameter, add(parameter, {shards().elements(parameter)}, received[i]));
    }
  }

  // Returns the vector of all ranks' values of a scalar.
  ValueId of_all_ranks(ValueId scalar) {
    std::vector<std::int64_t> bounds;
    for (std::int64_t r = 0; r <= shards().ranks; ++r) bounds.push_back(r);
    return emit("AllGather", {scalar}, {{"rank", std::int64_t{shards().rank}}, {"bounds", bounds}});
  }

  // Replaces the squared norms of this rank's grains by those of whole gradients.
  void join_squares() {
    std::vector<ValueId> grains;
    std::vector<std::int64_t> bounds;
    std::vector<std::size_t> parameters;
    for (std::size_t p = 0; p < training_.squared_norms.size(); ++p) {
      if (training_.squared_norms[p] == ValueId::none) continue;
      parameters.push_back(p);
      grains.push_back(training_.squared_norms[p]);
      for (std::int64_t bound : shards().bounds[p]) bounds.push_back((bound + graph::kGrain - 1) / graph::kGrain);
    }
    const std::vector<ValueId> all =
        emit("AllGather", grains, {{"rank", std::int64_t{shards().rank}}, {"bounds", bounds}}, grains.size());
    const std::vector<ValueId> norms = emit("JoinSquares", all, {}, all.size());
    for (std::size_t i = 0; i < parameters.size(); ++i) training_.squared_norms[parameters[i]] = norms[i];
  }

  // Emits the factor by which gradients are too large: the sum of the micro-batches' weights,
  // each times the loss scale.
  ValueId join_weights() {
    if (training_.weight == ValueId::none) return training_.loss_scale;
    std::vector<ValueId> weighted = {training_.weight};
    if (training_.loss_scale != ValueId::none) weighted.push_back(training_.loss_scale);
    if (!settings_.accumulate) return sum_parts({}, weighted);
    weighted.insert(weighted.begin(), accumulator({DType::f64, {}}));
    return emit("Accumulate", weighted, parts());
  }

  // Emits the factor that Updates apply to gradients, if they need one. `norm`: of all gradients; none if they are not
  // clipped.
  void scale_by(ValueId norm) {
    if (settings_.clip_norm == 0 && factor_ == ValueId::none) return;
    std::vector<ValueId> scaled = {norm};
    if (factor_ != ValueId::none) scaled.push_back(factor_);
    training_.scale = emit("GradientScale", scaled, {{"max_norm", settings_.clip_norm}});
  }

  // Nodes emitted from here on belong to no forward node.
  void begin(const std::string &name) {
    current_ = {.op = "", .name = name};
    current_name_ = name;
  }

  ValueId accumulator(Type type) {
    return graph_.add_value({.name = "sum/" + current_name_, .type = std::move(type), .origin = Origin::accumulator});
  }

  Training &training_;
  Graph &graph_;
  const GradientPath &path_;
  const TrainingSettings &settings_;
  Node current_;
  std::string current_name_;
  std::vector<int> forward_readers_;  // per forward value
  std::vector<ValueId> sums_;         // per forward value: the sum of contributions so far
  std::int32_t block_ = -1;           // block of the last visited forward node
  std::vector<std::size_t> waiting_;  // parameters of that block whose gradients have no norm yet
  ValueId weight_ = ValueId::none;    // of this rank's micro-batch
  ValueId factor_ = ValueId::none;    // by which gradients are too large
  std::vector<std::pair<std::size_t, ValueId>> unexchanged_;  // parameters whose gradients wait, and these
  std::uint64_t unexchanged_bytes_ = 0;
};

// Returns for each forward node the parameters that no earlier node reads. Visiting the node completes the gradients of
// these parameters.
std::vector<std::vector<std::size_t>> parameters_first_read(const Graph &graph) {
  std::vector<std::vector<std::size_t>> first(graph.node_count());
  const auto consumers = graph.consumers();
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const auto &readers = consumers[index(graph.parameters[p])];
    if (!readers.empty()) first[index(readers.front())].push_back(p);
  }
  return first;
}

void require_loss(const Graph &graph, ValueId loss, const GradientPath &path) {
  const graph::Value &value = graph.value(loss);
  require(is_float(value.type.dtype) && element_count(value.type.shape) == 1, Code::graph, value.name,
          "the loss is {}, not a float scalar; name a scalar output, or export the model with its loss",
          to_text(value.type));
  require(path.wants(loss), Code::graph, value.name, "the loss depends on no trained parameter");
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
  if (settings.ranks > 1 && !settings.accumulate)
    training.shard_norms.assign(graph.parameters.size(), ValueId::none);

  const auto completed_by = parameters_first_read(graph);  // by forward node
  if (settings.accumulate) training.accumulators.assign(graph.parameters.size(), ValueId::none);
  TrainingBuilder builder(training, path, settings);
  if (settings.accumulate || settings.ranks > 1) builder.weigh(loss);
  builder.start_at(loss, settings.scale_loss);
  for (std::size_t i = completed_by.size(); i-- > 0;) {
    builder.enter(graph.nodes()[i].block);
    const Node &node = graph.nodes()[i];
    if (path.crosses(node) && builder.reaches(node)) builder.visit(node);
    for (std::size_t parameter : completed_by[i]) builder.finish(parameter);
  }
  builder.finish_waiting();

  require(std::ranges::any_of(training.gradients, [](ValueId id) { return id != ValueId::none; }), Code::graph,
          graph.value(loss).name, "the gradients of all trained parameters are always zero");
  builder.join();
  graph.outputs = {training.loss};
  for (const auto *values : {&training.gradients, &training.shard_norms})
    std::ranges::copy_if(*values, std::back_inserter(graph.outputs), [](ValueId id) { return id != ValueId::none; });
  for (ValueId id : {training.norm, training.weight, training.scale})
    if (id != ValueId::none) graph.outputs.push_back(id);
  graph.drop_dead_nodes();
  prune_unread_outputs(graph);
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
