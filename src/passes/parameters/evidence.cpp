#include "passes/parameters/evidence.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "passes/parameters/names.h"

namespace protrain::passes {

namespace {

using graph::Graph;
using graph::Node;
using graph::Origin;
using graph::StoredKind;
using graph::ValueId;

std::string in_words(const std::vector<std::string> &names) {
  constexpr std::size_t kMost = 3;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i)
    text += (i == 0 ? "" : ", ") + printable(names[i], 80);
  return names.size() > kMost ? fmt::format("{} and {} more", text, names.size() - kMost) : text;
}

}  // namespace

Declarations::Declarations(const Graph &graph, const Choices &choices, const FileFacts &facts)
    : choices_(choices), declared_(choices.declared), facts_(facts) {
  for (const graph::Value &value : graph.values()) {
    if (value.origin != Origin::initializer) continue;
    const std::string &name = in_file(value.name);
    present_.insert(name);
    present_.insert(made_from(name).begin(), made_from(name).end());
  }
  if (declared_.updated) updated_.insert(declared_.updated->begin(), declared_.updated->end());
  count_missing(graph);
  if (!declared_.list) return;
  list_.insert(declared_.list->begin(), declared_.list->end());
  for (const std::string &name : list_)
    if (!present_.contains(name)) unmatched_.push_back(name);
  require(
      unmatched_.size() < list_.size() || list_.empty(), Code::arg, "parameters_from",
      "none of the {} names in the list of parameters is one of the model's initializers ({}); list the names of the "
      "module that was exported, with its wrappers",
      list_.size(), in_words(unmatched_));
}

// Counts the declared parameters that the file lacks. Several tensors of the framework may have become one matrix of
// the file, one tensor for each lookup or product that reads the matrix. So each reader of a matrix after the first one
// accounts for one missing parameter.
void Declarations::count_missing(const Graph &graph) {
  for (const auto &[name, kind] : declared_.kinds)
    if (kind == StoredKind::parameter && !present_.contains(name)) undone_.push_back(name);
  missing_ = undone_.size();
  std::map<ValueId, std::size_t> products;
  for (const Node &node : graph.nodes()) {
    if (!one_of(node.op, {"Gather", "MatMul", "Gemm", "Transpose"})) continue;
    for (ValueId in : node.inputs) {
      if (in == ValueId::none) continue;
      const graph::Value &value = graph.value(in);
      if (value.origin == Origin::initializer && value.type.shape.size() == 2 &&
          is_declared(value.name, StoredKind::parameter) && ++products[in] > 1 && missing_ > 0)
        --missing_;
    }
  }
  const auto statistic = [&](const graph::Split &split) { return facts_.statistics.contains(split.name); };
  copies_ = static_cast<std::size_t>(std::ranges::count_if(facts_.splits, std::not_fn(statistic)));
}

bool Declarations::is_declared(const std::string &name, StoredKind kind) const {
  const auto found = declared_.kinds.find(name);
  return found != declared_.kinds.end() && found->second == kind;
}

std::vector<std::string> Declarations::unmatched() const {
  if (declared_.list || missing_ <= copies_) return unmatched_;
  return undone_;
}

const std::string &Declarations::in_file(const std::string &initializer) const {
  const auto split = std::ranges::find(facts_.splits, initializer, &graph::Split::name);
  return split == facts_.splits.end() ? initializer : split->name_in_file();
}

bool Declarations::any_name(const std::string &initializer,
                            const std::function<bool(const std::string &)> &holds) const {
  const std::string &name = in_file(initializer);
  return holds(name) || std::ranges::any_of(made_from(name), holds);
}

const Declarations::Names &Declarations::made_from(const std::string &name) const {
  static const Names none;
  const auto found = declared_.folded_from.find(name);
  return found == declared_.folded_from.end() ? none : found->second;
}

// Returns a doubt in words if the exporter computed the initializer from other stored values. In this case, training
// the initializer is not the same as training those values. Returns "" if the exporter did not compute the initializer,
// or only moved the elements of a single value.
std::string Declarations::doubt_of_fold(const std::string &name) const {
  const Names &from = made_from(name);
  if (from.empty()) return "";
  const auto is_parameter = [&](const std::string &original) { return is_declared(original, StoredKind::parameter); };
  const bool moved = names_move(name) && std::ranges::count_if(from, is_parameter) < 2 &&
                     std::ranges::all_of(from, [&](const std::string &original) {
                       return declared_.kinds.contains(original) || names_move(original);
                     });
  if (moved) return "";
  return fmt::format("the exporter computed it from {}: training it is not training those; export with optimize=False",
                     in_words(from));
}

std::string Declarations::moved_from(const std::string &initializer) const {
  const std::string &name = in_file(initializer);
  const auto is_source = [&](const std::string &original) {
    return list_.contains(original) || is_declared(original, StoredKind::parameter);
  };
  if (is_source(name) || !doubt_of_fold(name).empty()) return "";
  const Names &from = made_from(name);
  const auto source = std::ranges::find_if(from, is_source);
  return source == from.end() ? "" : *source;
}

Declarations::Claim Declarations::by_list(const std::string &name) const {
  Claim said{.verdict = Verdict::silent, .evidence = Evidence::list, .reason = "", .doubt = ""};
  const Names &from = made_from(name);
  if (list_.contains(name)) {
    said.verdict = Verdict::trained;
    said.reason = "is in the list of parameters";
  } else if (const auto at = std::ranges::find_if(from, [&](const auto &n) { return list_.contains(n); });
             at != from.end()) {
    said.verdict = Verdict::trained;
    said.reason = fmt::format("was made from {}, which is in the list of parameters", printable(*at, 80));
    said.doubt = doubt_of_fold(name);
  } else if (unmatched_.empty() || !from.empty() || declared_.kinds.contains(name) || naming_of(name) == Naming::own) {
    said.verdict = Verdict::fixed;
    said.reason = "is not in the list of parameters";
  } else {
    said.doubt =
        fmt::format("the list of parameters has {} name{} that no initializer has, and this may be one of them: {}",
                    unmatched_.size(), unmatched_.size() == 1 ? "" : "s", in_words(unmatched_));
  }
  return said;
}

Declarations::Claim Declarations::by_training_info(const std::string &name) const {
  const bool updated = updated_.contains(name);
  return {.verdict = updated ? Verdict::trained : Verdict::fixed,
          .evidence = Evidence::training_info,
          .reason = fmt::format("is {}updated by {}", updated ? "" : "not ",
                                declared_.training ? declared_.training->source : "the model's training_info"),
          .doubt = ""};
}

Declarations::Claim Declarations::by_exporter(const std::string &name) const {
  Claim said{.verdict = Verdict::silent, .evidence = Evidence::exporter, .reason = "", .doubt = ""};
  const Names &from = made_from(name);
  const auto any = [&](StoredKind kind) {
    return std::ranges::find_if(from, [&](const std::string &original) { return is_declared(original, kind); });
  };
  if (is_declared(name, StoredKind::parameter)) {
    said = {Verdict::trained, Evidence::exporter, "is a parameter by the exporter's metadata", ""};
  } else if (is_declared(name, StoredKind::buffer)) {
    said = {Verdict::fixed, Evidence::exporter, "is a buffer by the exporter's metadata", ""};
  } else if (const auto parameter = any(StoredKind::parameter); parameter != from.end()) {
    said = {Verdict::trained, Evidence::exporter,
            fmt::format("was made from the parameter {} by the exporter", printable(*parameter, 80)),
            doubt_of_fold(name)};
  } else if (const auto buffer = any(StoredKind::buffer); buffer != from.end()) {
    said = {Verdict::fixed, Evidence::exporter,
            fmt::format("was made from the buffer {} by the exporter", printable(*buffer, 80)), ""};
  } else if (declared_.kinds.empty()) {
    return said;
  } else if (!from.empty() || missing_ == 0) {
    said = {Verdict::fixed, Evidence::exporter, "is neither parameter nor buffer by the exporter's metadata", ""};
  } else {
    said.doubt =
        fmt::format("the exporter declares {} parameter{} that no initializer is made from, and this may be one",
                    missing_, missing_ == 1 ? "" : "s");
  }
  return said;
}

// Adds a doubt about an initializer that split_merged() split, or made as a copy. The exporter had stored several equal
// vectors as one initializer, and each copy stands for one more of these vectors. A copy that is a parameter must be
// one of the declared parameters that the file lacks. So if there are more copies than such parameters, some of the
// vectors are no parameters, and all of them are doubtful. If the file lacks no declared parameter, no copy is a
// parameter.
void Declarations::doubt_copies(const std::string &initializer, Claim &said) const {
  const std::string &name = in_file(initializer);
  const bool merged =
      std::ranges::any_of(facts_.splits, [&](const graph::Split &split) { return split.original == name; });
  if (!merged || said.verdict != Verdict::trained || declared_.kinds.empty() || copies_ <= missing_) return;
  if (missing_ == 0 && name != initializer) said.verdict = Verdict::fixed;
  said.doubt = "the exporter kept one of several equal vectors, not all of them parameters; export with optimize=False";
}

Declarations::Claim Declarations::about(const std::string &initializer) const {
  const std::string &name = in_file(initializer);
  Claim said;
  std::string doubt;
  if (declared_.list) {
    said = by_list(name);
    doubt = said.doubt;
  }
  if (said.verdict == Verdict::silent && declared_.updated) said = by_training_info(name);
  if (said.verdict == Verdict::silent) said = by_exporter(name);
  if (!doubt.empty() && said.verdict != Verdict::fixed) said.doubt = doubt;
  doubt_copies(initializer, said);
  const bool statistic = names_statistic(name) || present_.contains(spectral_weight(name));
  if (said.verdict == Verdict::silent && statistic)
    said = {Verdict::fixed, Evidence::name, "is named as a statistic is", ""};
  return said;
}

}  // namespace protrain::passes
