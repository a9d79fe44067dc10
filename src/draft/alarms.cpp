#include "draft/alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "draft/past.h"
#include "graph/dependence.h"

namespace protrain::draft {

namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;

bool is_read(const Graph &graph, const std::string &input) {
  const ValueId id = graph.find(input);
  return id != ValueId::none &&
         std::ranges::any_of(graph.nodes(), [&](const Node &node) { return std::ranges::count(node.inputs, id) > 0; });
}

void find_unused_inputs(const AlarmFacts &facts, std::vector<Alarm> &found) {
  const Graph &graph = facts.training.graph;
  std::vector<bool> loss(graph.value_count(), false);
  loss[index(facts.training.loss)] = true;
  const std::vector<bool> needed = graph::with_dependencies(graph, std::move(loss));
  for (const ModelInput &input : inputs_of(facts.file, facts.settings)) {
    const ValueId id = graph.find(input.name);
    if (id != ValueId::none && needed[index(id)]) continue;
    const bool empty = has_no_elements(input, facts.settings.dims) || holds_past(input);
    if (empty || is_read(facts.outputs, input.name)) continue;
    found.push_back({"input_unused", input.name,
                     fmt::format("the loss does not depend on the values of input {}: no operator on the way to the "
                                 "loss reads them; check loss_output and loss_labels, or what was exported",
                                 input.name)});
  }
}

void find_missing_gradients(const AlarmFacts &facts, std::vector<Alarm> &found) {
  const Graph &graph = facts.training.graph;
  std::vector<std::string> names;
  for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
    const graph::Value &value = graph.value(graph.parameters[p]);
    const bool has_one = facts.training.gradients[p] != ValueId::none;
    if (!has_one && graph::is_trained(value) && element_count(value.type.shape) > 0) names.push_back(value.name);
  }
  if (names.empty()) return;
  found.push_back(
      {"no_gradient", names.back(),
       fmt::format("the loss depends on {} not at all, or only through operators whose gradient is zero, such as Round "
                   "or detach(): {} never moved; check that branch of the model, or use the option frozen",
                   some_names(names), names.size() == 1 ? "it is" : "they are")});
}

// Adds an alarm that begins with the names of nodes, unless there are none. Its sentence goes on with a verb, `one` for
// a single node and `several` for more, and with `rest`.
void name_nodes(const char *code, const std::vector<std::string> &names, const char *one, const char *several,
                const char *rest, std::vector<Alarm> &found) {
  if (names.empty()) return;
  std::vector<std::string> nodes;
  for (const std::string &name : names) nodes.push_back(printable(name, 80));
  found.push_back(
      {code, nodes.front(), fmt::format("{} {} {}", some_names(nodes), nodes.size() == 1 ? one : several, rest)});
}

void find_lost_detach(const AlarmFacts &facts, std::vector<Alarm> &found) {
  name_nodes("detach_lost", facts.file.declared().undetached, "reads", "read",
             "a detach() that the exporter dropped, so gradients go where PyTorch stops them; export with "
             "optimize=False",
             found);
}

// Finds losses whose label_smoothing the exporter dropped. Finds none if the option `loss` attaches the loss, because
// then the option `label_smoothing` sets the smoothing.
void find_lost_smoothing(const AlarmFacts &facts, std::vector<Alarm> &found) {
  if (!facts.settings.losses.empty()) return;
  name_nodes("smoothing_lost", facts.file.declared().unsmoothed, "has", "have",
             "a label_smoothing in PyTorch that the exporter dropped; export the logits, and set the options "
             "loss=cross_entropy and label_smoothing",
             found);
}

// Finds norms that were exported in training mode, and that use running statistics in the file.
void find_lost_batch_norms(const AlarmFacts &facts, std::vector<Alarm> &found) {
  if (facts.settings.batch_norm != passes::BatchNorm::as_exported) return;
  name_nodes("batch_norm_lost", facts.file.declared().untrained_norms, "uses", "use",
             "the statistics of each batch in PyTorch, and running ones in the file, because the exporter dropped the "
             "training mode; set the option batch_norm=train, or =frozen if that is meant",
             found);
}

void find_lost_dropout(const AlarmFacts &facts, std::vector<Alarm> &found) {
  name_nodes("dropout_lost", facts.file.declared().undropped, "belongs", "belong",
             "to an attention with dropout in PyTorch, which the exporter dropped; write the attention with a Dropout "
             "of its own (attn_implementation=\"eager\" in transformers)",
             found);
}

void find_resting_groups(const AlarmFacts &facts, std::vector<Alarm> &found) {
  const Graph &graph = facts.training.graph;
  for (std::size_t g = 0; g < facts.groups.groups.size(); ++g) {
    if (facts.groups.groups[g].learning_rate_scale != 0) continue;
    std::vector<std::string> names;
    for (std::size_t p = 0; p < graph.parameters.size(); ++p)
      if (facts.groups.of_parameter[p] == g && graph::is_trained(graph.value(graph.parameters[p])))
        names.push_back(graph.value(graph.parameters[p]).name);
    if (names.empty()) continue;
    found.push_back({"group_rate_zero", names.front(),
                     fmt::format("the learning rate of {} is zero by learning_rate_scale, so {} never moved, and still "
                                 "{} memory for a gradient and optimizer state; the option frozen saves that",
                                 some_names(names), names.size() == 1 ? "it is" : "they are",
                                 names.size() == 1 ? "takes" : "take")});
  }
}

// The parts of a parameter's name before and after its first number, which counts layers: {"h.", ".attn.weight"} for
// "h.3.attn.weight". A number at the end of a name, as in "val_7", does not count layers.
struct Kind {
  std::string before, after;
  auto operator<=>(const Kind &) const = default;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Finds parameters that are frozen in one layer, but trained in some earlier layer and in some later layer. This is
// probably a mistake. Users mostly freeze the first layers, or one kind of parameter in all layers.
void find_frozen_between(const AlarmFacts &facts, std::vector<Alarm> &found) {
  std::map<Kind, std::map<std::uint64_t, const passes::Finding *>> kinds;
  for (const passes::Finding &finding : facts.findings) {
    if (!finding.parameter || finding.state) continue;
    const std::string &name = finding.initializer;
    const auto first = std::ranges::find_if(name, is_digit);
    const auto end = std::find_if_not(first, name.end(), is_digit);
    const auto layer = end != name.end() && end - first <= 6 ? parse_integer(std::string(first, end)) : std::nullopt;
    if (layer) kinds[{{name.begin(), first}, {end, name.end()}}][static_cast<std::uint64_t>(*layer)] = &finding;
  }
  for (const auto &[kind, layers] : kinds) {
    const auto is_trained = [](const auto &layer) { return !layer.second->frozen; };
    const auto first = std::ranges::find_if(layers, is_trained);
    const auto last = std::find_if(layers.rbegin(), layers.rend(), is_trained);
    if (first == layers.end()) continue;
    for (const auto &[number, finding] : layers)
      if (finding->frozen && number > first->first && number < last->first)
        found.push_back({"frozen_between", finding->initializer,
                         fmt::format("{} is frozen ({}), while {} and {} are trained; if this is not meant, change the "
                                     "patterns of the options frozen and trainable",
                                     finding->initializer, finding->reason, first->second->initializer,
                                     last->second->initializer)});
  }
}

}  // namespace

std::string some_names(const std::vector<std::string> &names) {
  constexpr std::size_t kMost = 3;
  const std::size_t shown = names.size() > kMost + 1 ? kMost : names.size();
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return shown == names.size() ? text : fmt::format("{} and {} more", text, names.size() - shown);
}

Json alarms_json(const std::vector<Alarm> &alarms) {
  Json json = Json::array();
  for (const Alarm &alarm : alarms)
    json.push_back({{"code", alarm.code}, {"subject", alarm.subject}, {"text", alarm.sentence}});
  return json;
}

std::vector<Alarm> find_alarms(const AlarmFacts &facts) {
  std::vector<Alarm> found;
  find_unused_inputs(facts, found);
  find_missing_gradients(facts, found);
  find_lost_detach(facts, found);
  find_lost_smoothing(facts, found);
  find_lost_batch_norms(facts, found);
  find_lost_dropout(facts, found);
  find_resting_groups(facts, found);
  find_frozen_between(facts, found);
  return found;
}

}  // namespace protrain::draft
