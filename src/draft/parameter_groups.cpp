#include "draft/parameter_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace protrain::draft {

namespace {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Origin;
using graph::ValueId;

// An input of a node, at which the node reads a parameter or a value that is computed from parameters alone.
struct Place {
  NodeId node = NodeId::none;
  std::size_t input = 0;
};

// Says whether an operand of an operator is a bias, which the operator adds to each row of its result.
enum class Bias : std::uint8_t {
  no,
  yes,        // in any shape: a bidirectional RNN has one bias for each direction
  if_vector,  // only a vector is a bias, because Add may add anything
};

// The role of a parameter that is input `input` of a core operator. `norm` is true for the scale or shift of a
// normalization.
struct Role {
  std::string_view op;
  std::size_t input;
  bool norm;
  Bias bias;
};
constexpr Role kRoles[] = {{"LayerNormalization", 1, true, Bias::no},   {"LayerNormalization", 2, true, Bias::yes},
                           {"RMSNormalization", 1, true, Bias::no},     {"BatchNorm", 1, true, Bias::no},
                           {"BatchNorm", 2, true, Bias::yes},           {"MatMul", 2, false, Bias::yes},
                           {"LinearCrossEntropy", 3, false, Bias::yes}, {"Conv", 2, false, Bias::yes},
                           {"ConvTranspose", 2, false, Bias::yes},      {"Add", 0, false, Bias::if_vector},
                           {"Add", 1, false, Bias::if_vector}};

// Says how much of a normalization has been applied to a value. Division by the deviation comes first. A scale and a
// shift may follow.
enum class Normal : std::uint8_t {
  no,      // the value is not normalized, or the normalization is complete: nothing may follow
  plain,   // the value is normalized: a scale and a shift may follow
  scaled,  // the value is normalized and scaled: a shift may follow
};

bool is_vector(const Shape &shape) {
  return std::ranges::count_if(shape, [](std::int64_t dim) { return dim > 1; }) <= 1;
}

// Places finds the nodes at which a parameter meets data: values that depend on the model's inputs, or are random. For
// each such node it tells whether the parameter serves as a norm or as a bias.
class Places {
 public:
  explicit Places(const Graph &graph)
      : graph_(graph), readers_(graph.consumers()), data_(graph.value_count()), normal_(graph.value_count()) {
    for (ValueId in : graph.inputs) data_[index(in)] = true;
    for (const Node &node : graph.nodes()) {
      const bool reads_data = node.inputs.empty() || std::ranges::any_of(node.inputs, [&](ValueId in) {
                                return in != ValueId::none && data_[index(in)];
                              });
      for (ValueId out : node.outputs)
        if (out != ValueId::none) data_[index(out)] = reads_data;
      if (node.outputs[0] != ValueId::none) normal_[index(node.outputs[0])] = normal_after(node);
      if (node.block >= 0) first_block_ = std::min(first_block_, position(node));
      blocks_ = std::max(blocks_, node.block + 1);
    }
  }

  std::int32_t blocks() const { return blocks_; }

  // Returns the places where the parameter, or a value computed from it, meets data. The places are in the order of
  // execution.
  std::vector<Place> of(ValueId parameter) const {
    std::vector<Place> found;
    std::vector<ValueId> pending = {parameter};
    std::vector<bool> seen(graph_.value_count());  // a value may be computed from the parameter in many ways
    while (!pending.empty()) {
      const ValueId at = pending.back();
      pending.pop_back();
      if (seen[index(at)]) continue;
      seen[index(at)] = true;
      for (NodeId reader : readers_[index(at)]) {
        const Node &node = graph_.node(reader);
        const auto input = std::ranges::find(node.inputs, at) - node.inputs.begin();
        bool meets = false;
        for (ValueId out : node.outputs) {
          if (out == ValueId::none) continue;
          if (data_[index(out)])
            meets = true;
          else
            pending.push_back(out);
        }
        if (meets) found.push_back({reader, static_cast<std::size_t>(input)});
      }
    }
    std::ranges::sort(found, {}, &Place::node);
    return found;
  }

  bool is_norm(const Place &place, bool vector) const {
    const Node &node = graph_.node(place.node);
    const Role *role = role_of(place);
    // A scale may have any shape, because it may differ from head to head. A shift must be a vector, because a matrix
    // that is added may be a table of positions.
    const bool fits = vector || node.op == "Mul";
    return (role != nullptr && role->norm) || (fits && scales_normalized(node, place.input));
  }

  bool is_bias(const Place &place, bool vector) const {
    const Role *role = role_of(place);
    if (role == nullptr) return false;
    return role->bias == Bias::yes || (role->bias == Bias::if_vector && vector);
  }

  // Returns how many layers lie between the place and the end of the last layer. The result is 0 behind the last layer,
  // 1 inside it, and the number of layers plus 1 before the first layer.
  std::int32_t layers_after(const Place &place) const {
    const std::int32_t block = graph_.node(place.node).block;
    if (block >= 0) return blocks_ - block;
    return index(place.node) < first_block_ ? blocks_ + 1 : 0;
  }

 private:
  static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

  std::size_t position(const Node &node) const { return static_cast<std::size_t>(&node - graph_.nodes().data()); }

  const Role *role_of(const Place &place) const {
    const auto *const role = std::ranges::find_if(
        kRoles, [&](const Role &r) { return r.op == graph_.node(place.node).op && r.input == place.input; });
    return role == std::end(kRoles) ? nullptr : role;
  }

  // True if the node scales or shifts a normalized value as a part of the normalization. The scale or shift is the
  // node's input number `input`. The normalized value is the other input, and no other node reads it. Exporters write
  // GroupNorm in this way.
  bool scales_normalized(const Node &node, std::size_t input) const {
    if (node.op != "Mul" && node.op != "Add") return false;
    const Normal before = normal_if_read_once(node.inputs[1 - input]);
    return before == Normal::plain || (before == Normal::scaled && node.op == "Add");
  }

  bool is_constant(ValueId id) const { return graph_.value(id).origin == Origin::constant; }

  Normal normal_if_read_once(ValueId id) const {
    return readers_[index(id)].size() == 1 ? normal_[index(id)] : Normal::no;
  }

  // Returns how much of a normalization has been applied to the node's first output.
  Normal normal_after(const Node &node) const {
    if (std::ranges::any_of(kRoles, [&](const Role &role) { return role.norm && role.op == node.op; })) {
      if (is_constant(node.inputs[1])) return Normal::plain;
      return node.inputs.size() > 2 && node.inputs[2] != ValueId::none ? Normal::no : Normal::scaled;
    }
    if (node.op == "Reshape" || node.op == "Cast") return normal_if_read_once(node.inputs[0]);
    if (divides_by_deviation(node)) return Normal::plain;
    for (std::size_t i = 0; i < 2; ++i) {
      if (!scales_normalized(node, i) || data_[index(node.inputs[i])]) continue;
      if (is_constant(node.inputs[i])) return normal_[index(node.inputs[1 - i])];
      return node.op == "Mul" && is_vector(graph_.value(node.inputs[i]).type.shape) ? Normal::scaled : Normal::no;
    }
    return Normal::no;
  }

  // Returns the node that computes the value. If that is a Reshape, returns the node that computes the Reshape's input
  // instead, and so on. Returns nullptr if no node computes the value.
  const Node *source_of(ValueId id) const {
    for (NodeId at = graph_.value(id).producer; at != NodeId::none;
         at = graph_.value(graph_.node(at).inputs[0]).producer)
      if (graph_.node(at).op != "Reshape") return &graph_.node(at);
    return nullptr;
  }

  // True for x - mean(x).
  bool is_centred(ValueId id) const {
    const Node *difference = source_of(id);
    if (difference == nullptr || difference->op != "Sub") return false;
    const Node *mean = source_of(difference->inputs[1]);
    return mean != nullptr && mean->op == "ReduceMean";
  }

  // True if the node divides a centred value by its deviation, or multiplies it by the deviation's reciprocal. The
  // deviation is not examined: any value that depends on data counts as the deviation.
  bool divides_by_deviation(const Node &node) const {
    if (node.op != "Mul" && node.op != "Div") return false;
    const auto divides = [&](std::size_t centred) {
      return is_centred(node.inputs[centred]) && data_[index(node.inputs[1 - centred])];
    };
    return divides(0) || (node.op == "Mul" && divides(1));
  }

  const Graph &graph_;
  const std::vector<std::vector<NodeId>> readers_;
  std::vector<bool> data_;      // by value: it depends on the model's inputs, or is random
  std::vector<Normal> normal_;  // by value
  std::int32_t blocks_ = 0;
  std::size_t first_block_ = kNowhere;  // the first node of the first layer
};

// Returns the first of the settings' groups whose pattern the parameter's name matches, or the end of the groups.
std::vector<GroupBinding>::const_iterator binding_of(const GroupSettings &settings, const std::string &name) {
  return std::ranges::find_if(settings.groups,
                              [&](const GroupBinding &binding) { return glob_match(binding.pattern, name); });
}

// Returns the group of a trained parameter.
backend::Group group_of(const GroupSettings &settings, double weight_decay, const Graph &graph, const Places &places,
                        ValueId parameter) {
  const graph::Value &value = graph.value(parameter);
  const bool vector = is_vector(value.type.shape);
  const std::vector<Place> met = places.of(parameter);
  const auto group = binding_of(settings, value.name);
  const bool named = group != settings.groups.end();
  const auto stays_at = [&](const Place &place) {
    return (settings.norms_stay && places.is_norm(place, vector)) ||
           (settings.biases_stay && places.is_bias(place, vector));
  };
  const bool stays = (settings.norms_stay && value.norm) || std::ranges::any_of(met, stays_at);
  double scale = named ? group->learning_rate_scale.value_or(1) : 1;
  if (settings.layer_decay != 1 && !met.empty())
    scale *= std::pow(settings.layer_decay, places.layers_after(met.front()));
  const double decay = stays ? 0 : weight_decay;
  return {.learning_rate_scale = scale, .weight_decay = named ? group->weight_decay.value_or(decay) : decay};
}

}  // namespace

ParameterGroups parameter_groups(const GroupSettings &settings, double weight_decay, const Graph &graph) {
  const Places places(graph);
  require(settings.layer_decay == 1 || places.blocks() > 0, Code::arg, "layer_decay",
          "the model has no repeated layers that layer_decay could tell apart; use groups");
  for (const GroupBinding &binding : settings.groups)
    require(std::ranges::any_of(graph.parameters,
                                [&](ValueId id) {
                                  return graph::is_trained(graph.value(id)) &&
                                         glob_match(binding.pattern, graph.value(id).name);
                                }),
            Code::arg, "group", "no trained parameter matches '{}'", printable(binding.pattern));
  ParameterGroups found = {.groups = {{.weight_decay = weight_decay}}, .of_parameter = {}};
  for (ValueId id : graph.parameters) {
    backend::Group group = found.groups.front();
    if (graph::is_trained(graph.value(id))) group = group_of(settings, weight_decay, graph, places, id);
    const auto at = std::ranges::find(found.groups, group);
    found.of_parameter.push_back(static_cast<std::size_t>(at - found.groups.begin()));
    if (at == found.groups.end()) found.groups.push_back(group);
  }
  require(found.groups.size() <= backend::kMostGroups, Code::limit, "group",
          "the options make {} groups of parameters with different settings, more than {}", found.groups.size(),
          backend::kMostGroups);
  return found;
}

NormGroups norm_groups(const GroupSettings &settings, const Graph &graph) {
  const Places places(graph);
  const bool by_layer = settings.groups.empty() && places.blocks() > 0;
  NormGroups found;
  if (by_layer) found.names.emplace_back("before");
  for (std::int32_t layer = 0; by_layer && layer < places.blocks(); ++layer)
    found.names.push_back(fmt::format("layer {}", layer));
  for (const GroupBinding &binding : settings.groups) found.names.push_back(binding.pattern);
  found.names.emplace_back(by_layer ? "after" : "*");
  for (ValueId id : graph.parameters) {
    std::ptrdiff_t at = binding_of(settings, graph.value(id).name) - settings.groups.begin();
    if (by_layer) {
      const std::vector<Place> met = places.of(id);
      at = places.blocks() + 1 - (met.empty() ? 0 : places.layers_after(met.front()));
    }
    found.of_parameter.push_back(static_cast<std::size_t>(at));
  }
  return found;
}

}  // namespace protrain::draft
