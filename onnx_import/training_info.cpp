// A training_info contains an algorithm, which is a graph. The algorithm is never run. Its nodes are only read to learn
// how to train: Gradient names the loss and the trained initializers, and the optimizer (Adam, Momentum or Adagrad)
// names the rate, the count of steps, the gradients and the moments.
#include "onnx_import/training_info.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "onnx_import/attributes.h"
#include "onnx_import/parts.h"
#include "onnx_import/scope.h"

namespace protrain::onnx_import {

namespace {

constexpr std::string_view kTrainingDomain = "ai.onnx.preview.training";
constexpr const char *kInstead = "; the option optimizer trains by another algorithm than the file's";

using Options = std::vector<std::pair<std::string, std::string>>;

bool is_gradient(const NodeProto &node) { return node.domain() == kTrainingDomain && node.op_type() == "Gradient"; }

// Finds the elements of a list by name. The list must outlive this object.
template <typename Named>
class ByName {
 public:
  explicit ByName(const google::protobuf::RepeatedPtrField<Named> &list) {
    for (const Named &one : list) elements_.emplace(one.name(), &one);
  }
  const Named *find(const std::string &name) const {
    const auto found = elements_.find(name);
    return found == elements_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string_view, const Named *> elements_;
};

// Returns the algorithm's only Gradient node; nullptr if there is none or several.
const NodeProto *gradient_of(const GraphProto &algorithm) {
  const auto &nodes = algorithm.node();
  const auto found = std::ranges::find_if(nodes, is_gradient);
  return std::ranges::count_if(nodes, is_gradient) == 1 ? &*found : nullptr;
}

const AttributeProto &attribute_of(const NodeProto &node, const char *name) {
  const AttributeProto *found = ByName(node.attribute()).find(name);
  require(found != nullptr, Code::graph, subject_of(node), "{} without {}", node.op_type(), name);
  return *found;
}

// The count of steps, T, that the algorithm's optimizer nodes take as an input. `first` is its value in the first step.
struct Count {
  bool counts = true;  // false: T stays 0
  std::int64_t first = 0;
};

// An optimizer node of ONNX, expressed as options of this library.
struct Described {
  Options options;
  std::int64_t steps = 0;
  bool has_state = true;
};

Described adam(const NodeProto &node, const graph::Attributes &attributes, const Count &count) {
  require(attributes.real("norm_coefficient_post", 0) == 0, Code::unsupported, subject_of(node),
          "Adam with norm_coefficient_post, a decay that does not scale with the learning rate{}", kInstead);
  return {.options = {{"optimizer", "adam"},
                      {"beta1", text_of_float(attributes.real("alpha", 0.9))},
                      {"beta2", text_of_float(attributes.real("beta", 0.999))},
                      {"epsilon", text_of_float(attributes.real("epsilon", 1e-6))},
                      {"weight_decay", text_of_float(attributes.real("norm_coefficient", 0))},
                      {"correction", count.counts ? "rate" : "none"}},
          .steps = count.counts ? count.first - 1 : 0};
}

Described momentum(const NodeProto &node, const graph::Attributes &attributes, const Count &count) {
  const double alpha = attributes.real("alpha", 0), beta = attributes.real("beta", 1);
  require(alpha >= 0 && alpha < 1 && beta > 0 && beta <= 1 && (alpha > 0 || beta == 1), Code::unsupported,
          subject_of(node),
          "Momentum with alpha {} and beta {}; supported are alpha from 0 to 1 and beta above 0, to 1{}", alpha, beta,
          kInstead);
  Options options = {{"optimizer", "sgd"},
                     {"momentum", text_of_float(alpha)},
                     {"nesterov", alpha > 0 && attributes.text("mode", "standard") == "nesterov" ? "on" : "off"},
                     {"weight_decay", text_of_float(attributes.real("norm_coefficient", 0))}};
  // Computes 1 - beta from the decimal text of beta. For a beta of 0.6 this gives 0.4. With the float32 that is nearest
  // to 0.6, the result would differ slightly from 0.4.
  if (count.counts) options.emplace_back("dampening", text_of_float(1 - parse_real(text_of_float(beta)).value()));
  return {.options = std::move(options), .steps = count.first, .has_state = alpha > 0};
}

Described adagrad(const graph::Attributes &attributes, const Count &count) {
  Options options = {{"optimizer", "adagrad"},
                     {"epsilon", text_of_float(attributes.real("epsilon", 1e-6))},
                     {"weight_decay", text_of_float(attributes.real("norm_coefficient", 0))}};
  if (count.counts) options.emplace_back("rate_decay", text_of_float(attributes.real("decay_factor", 0)));
  return {.options = std::move(options), .steps = count.first};
}

// Reads the optimizer nodes of an algorithm. Throws Code::unsupported if the algorithm also changes initializers in
// other ways. The error names the node or value that makes such a change.
class Optimizers {
 public:
  Optimizers(const TrainingInfo &info, const GraphProto &inference, const NodeProto &gradient, const Storage &storage)
      : algorithm_(info.algorithm()),
        storage_(storage),
        inputs_(algorithm_.input()),
        own_(algorithm_.initializer()),
        weights_(inference.initializer()) {
    for (const NodeProto &node : algorithm_.node())
      for (const std::string &output : node.output()) producers_.emplace(output, &node);
    for (const StringPair &binding : info.update_binding()) {
      bindings_[binding.key()] = binding.value();
      bound_to_[binding.value()] = binding.key();
    }
    const AttributeProto &xs = attribute_of(gradient, "xs");
    require(xs.strings_size() == gradient.output_size(), Code::graph, subject_of(gradient),
            "{} outputs for {} gradients", gradient.output_size(), xs.strings_size());
    for (int i = 0; i < gradient.output_size(); ++i) gradients_.emplace(xs.strings(i), gradient.output(i));
  }

  void read(JoinedTraining &to) {
    for (const NodeProto &node : algorithm_.node())
      if (node.domain() == kTrainingDomain && !is_gradient(node)) read_node(node, to);
    require(!to.trained.empty(), Code::unsupported, "training_info", "an algorithm without an optimizer{}", kInstead);
    for (const auto &[initializer, value] : bindings_) {
      const NodeProto *made = producer(value);
      require(used_.contains(initializer), Code::unsupported, made == nullptr ? printable(value) : subject_of(*made),
              "changes {}, which is neither a weight nor the state of an optimizer{}", printable(initializer),
              kInstead);
    }
  }

 private:
  void read_node(const NodeProto &node, JoinedTraining &to);
  void read_parameter(const NodeProto &node, int count, int i, bool has_state, JoinedTraining &to);
  Count count_of(const NodeProto &node);
  Described described(const NodeProto &node, const Count &count) const;
  std::optional<double> constant(const std::string &name) const;
  bool adds_one(const NodeProto &node, const std::string &to) const;

  const NodeProto *producer(const std::string &value) const {
    const auto found = producers_.find(value);
    return found == producers_.end() ? nullptr : found->second;
  }
  bool is_bound(const std::string &initializer, const std::string &value) const {
    const auto found = bindings_.find(initializer);
    return found != bindings_.end() && found->second == value;
  }
  [[noreturn]] void refuse_computed(const NodeProto &node, const char *what, const std::string &value) const {
    const NodeProto *made = producer(value);
    fail(Code::unsupported, subject_of(made == nullptr ? node : *made), "computes {} of {}{}", what, subject_of(node),
         kInstead);
  }

  const GraphProto &algorithm_;
  const Storage &storage_;
  const ByName<ValueInfo> inputs_;
  const ByName<TensorProto> own_, weights_;  // initializers of the algorithm and of the graph
  std::map<std::string_view, const NodeProto *> producers_;
  std::map<std::string, std::string> bindings_;   // initializers and the values that replace them after a step
  std::map<std::string, std::string> bound_to_;   // the other way round
  std::map<std::string, std::string> gradients_;  // by initializer
  std::set<std::string> used_;                    // initializers whose bindings an optimizer explains
};

// Returns the value of a constant of one element.
std::optional<double> Optimizers::constant(const std::string &name) const {
  const TensorProto *proto = own_.find(name);
  if (proto == nullptr) proto = weights_.find(name);
  if (const NodeProto *made = producer(name); proto == nullptr && made != nullptr) proto = constant_tensor(*made);
  if (proto == nullptr) return std::nullopt;
  const Tensor tensor = parse_tensor(*proto, name);
  if (element_count(tensor.type.shape) != 1) return std::nullopt;
  return storage_.load(tensor).doubles().at(0);
}

bool Optimizers::adds_one(const NodeProto &node, const std::string &to) const {
  if (node.op_type() != "Add" || node.input_size() != 2) return false;
  return (node.input(0) == to && constant(node.input(1)) == 1) || (node.input(1) == to && constant(node.input(0)) == 1);
}

Count Optimizers::count_of(const NodeProto &node) {
  const std::string &t = node.input(1);
  if (const auto begin = constant(t)) {
    const auto first = static_cast<std::int64_t>(std::clamp(*begin, 0.0, 1e15));
    const auto next = bindings_.find(t);
    if (next == bindings_.end()) {
      require(first == 0, Code::unsupported, subject_of(node), "takes a count of steps that stays {}{}", first,
              kInstead);
      return {.counts = false};
    }
    const NodeProto *made = producer(next->second);
    if (made == nullptr || !adds_one(*made, t)) refuse_computed(node, "the count of steps", next->second);
    used_.insert(t);
    return {.first = first};
  }
  if (inputs_.find(t) != nullptr) return {.first = node.op_type() == "Adam" ? 1 : 0};
  const NodeProto *made = producer(t);
  const auto bound = bound_to_.find(t);
  const auto begin = bound == bound_to_.end() ? std::nullopt : constant(bound->second);
  if (!begin || made == nullptr || !adds_one(*made, bound->second)) refuse_computed(node, "the count of steps", t);
  used_.insert(bound->second);
  return {.first = static_cast<std::int64_t>(std::clamp(*begin, 0.0, 1e15)) + 1};
}

Described Optimizers::described(const NodeProto &node, const Count &count) const {
  const graph::Attributes attributes = read_attributes(node, subject_of(node), storage_);
  if (node.op_type() == "Adam") return adam(node, attributes, count);
  if (node.op_type() == "Momentum") return momentum(node, attributes, count);
  return adagrad(attributes, count);
}

// Reads one optimizer node. Its inputs are the learning rate, the count of steps, n parameters, their n gradients, and
// their moments: all first moments, then all second moments. Its outputs are the n new parameters, then their new
// moments.
void Optimizers::read_node(const NodeProto &node, JoinedTraining &to) {
  const bool known = node.op_type() == "Adam" || node.op_type() == "Momentum" || node.op_type() == "Adagrad";
  require(known, Code::unsupported, subject_of(node), "{} is unknown{}", printable(node.op_type()), kInstead);
  const int moments = node.op_type() == "Adam" ? 2 : 1;
  const int count = (node.input_size() - 2) / (2 + moments);
  require(count > 0 && node.input_size() == 2 + count * (2 + moments) && node.output_size() == count * (1 + moments),
          Code::graph, subject_of(node), "{} with {} inputs and {} outputs", node.op_type(), node.input_size(),
          node.output_size());
  Described one = described(node, count_of(node));
  if (const auto rate = constant(node.input(0)))
    one.options.emplace_back("learning_rate", text_of_float(*rate));
  else if (inputs_.find(node.input(0)) == nullptr)
    refuse_computed(node, "the learning rate", node.input(0));
  require(to.trained.empty() || (to.training.options == one.options && to.training.steps == one.steps),
          Code::unsupported, subject_of(node), "differs from another optimizer of the algorithm{}", kInstead);
  to.training.options = one.options;
  to.training.steps = one.steps;
  for (int i = 0; i < count; ++i) read_parameter(node, count, i, one.has_state, to);
}

void Optimizers::read_parameter(const NodeProto &node, int count, int i, bool has_state, JoinedTraining &to) {
  const std::string &parameter = node.input(2 + i), &gradient = node.input(2 + count + i);
  require(weights_.find(parameter) != nullptr, Code::unsupported, subject_of(node),
          "updates {}, which is no initializer of the graph{}", printable(parameter), kInstead);
  require(is_bound(parameter, node.output(i)), Code::unsupported, subject_of(node),
          "gives {} a new value that update_binding does not keep{}", printable(parameter), kInstead);
  const auto built = gradients_.find(parameter);
  if (built == gradients_.end() || built->second != gradient) refuse_computed(node, "a gradient", gradient);
  require(used_.insert(parameter).second, Code::graph, subject_of(node), "updates {} twice", printable(parameter));
  to.trained.push_back(parameter);
  for (int at = count + i; at < node.output_size(); at += count) {
    const std::string &moment = node.input(2 + count + at);
    require(own_.find(moment) != nullptr && is_bound(moment, node.output(at)), Code::unsupported, subject_of(node),
            "has a state {} that is not kept from step to step{}", printable(moment), kInstead);
    used_.insert(moment);
    if (has_state) to.training.moments[parameter].push_back(moment);
  }
}

// Adds the nodes that the loss needs, with the inputs and initializers that they read.
void join_loss(GraphProto &graph, const GraphProto &algorithm, const std::string &loss) {
  const std::vector<bool> needed = needed_nodes(algorithm, {loss});
  const ByName inputs(graph.input()), outputs(graph.output());  // before anything is added
  const ByName initializers(graph.initializer());
  std::vector<std::string> read;
  for (int n = 0; n < algorithm.node_size(); ++n) {
    if (!needed[static_cast<std::size_t>(n)]) continue;
    const NodeProto &node = algorithm.node(n);
    add_reads(node, read);
    graph.add_node()->CopyFrom(node);
  }
  const std::set<std::string> reads(read.begin(), read.end());
  for (const TensorProto &tensor : algorithm.initializer())
    if (reads.contains(tensor.name()) && initializers.find(tensor.name()) == nullptr)
      graph.add_initializer()->CopyFrom(tensor);
  for (const ValueInfo &input : algorithm.input())
    if (reads.contains(input.name()) && inputs.find(input.name()) == nullptr) graph.add_input()->CopyFrom(input);
  if (outputs.find(loss) != nullptr) return;
  const ValueInfo *declared = ByName(algorithm.output()).find(loss);
  if (declared != nullptr)
    graph.add_output()->CopyFrom(*declared);
  else
    graph.add_output()->set_name(loss);
}

void add_moments(GraphProto &graph, const GraphProto &algorithm, const graph::FileTraining &training) {
  const ByName initializers(algorithm.initializer());
  for (const auto &[parameter, moments] : training.moments)
    for (const std::string &moment : moments) graph.add_initializer()->CopyFrom(*initializers.find(moment));
}

// Reads the optimizers. If this library cannot train as they do, stores the reason in to.training.refusal.
void read_optimizers(const TrainingInfo &info, const GraphProto &inference, const NodeProto &gradient,
                     const Storage &storage, JoinedTraining &to) {
  try {
    require(info.initialization_binding_size() == 0, Code::unsupported, "training_info",
            "its initialization replaces {}; a session begins with the values in the file",
            info.initialization_binding_size() == 0 ? "" : printable(info.initialization_binding(0).key()));
    Optimizers(info, inference, gradient, storage).read(to);
  } catch (const Error &error) {
    if (error.code != Code::unsupported) throw;
    to.training = {.source = to.training.source, .loss = to.training.loss, .refusal = error};
    to.trained.clear();
  }
}

}  // namespace

std::optional<JoinedTraining> join_training(ModelProto &proto, const Storage &storage) {
  const auto &infos = proto.training_info();
  const auto trains = [](const TrainingInfo &info) { return info.algorithm().node_size() > 0; };
  const auto info = std::ranges::find_if(infos, trains);
  if (info == infos.end()) return std::nullopt;
  JoinedTraining found{.training = {.source = "the model's training_info", .loss = ""}, .trained = {}};
  const NodeProto *gradient = gradient_of(info->algorithm());
  if (std::ranges::count_if(infos, trains) != 1 || gradient == nullptr) {
    found.training.refusal = Error(Code::unsupported, "training_info",
                                   std::string("expected one algorithm with one Gradient node") + kInstead);
    return found;
  }
  found.training.loss = attribute_of(*gradient, "y").s();
  read_optimizers(*info, proto.graph(), *gradient, storage, found);
  join_loss(*proto.mutable_graph(), info->algorithm(), found.training.loss);
  add_moments(*proto.mutable_graph(), info->algorithm(), found.training);
  return found;
}

}  // namespace protrain::onnx_import
