// Reads metadata, which is text that nobody has checked. Ignores unknown parts, and uses names only to look up existing
// initializers.
#include "onnx_import/declared.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "onnx_import/merged_tensors.h"
#include "onnx_import/names.h"
#include "onnx_import/torch_calls.h"

namespace protrain::onnx_import {

namespace {

using graph::StoredKind;

constexpr std::string_view kList = "protrain.parameters";
// Keys that PyTorch's exporter writes. kSignature is on the graph and holds the signature of the exported program.
// kKind is on a value and holds the value's line of that signature. kFoldedFrom is on a value and names the values that
// it was computed from.
constexpr std::string_view kSignature = "pkg.torch.export.ExportedProgram.graph_signature";
constexpr std::string_view kKind = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr std::string_view kFoldedFrom = "pkg.onnxscript.optimizer.folded_from";

std::optional<StoredKind> stored_as(std::string_view kind) {
  if (kind == "PARAMETER") return StoredKind::parameter;
  if (kind == "BUFFER" || kind == "CONSTANT_TENSOR") return StoredKind::buffer;
  return std::nullopt;
}

// Returns the last word in capitals: "PARAMETER" of "p_weight: PARAMETER", "BUFFER" of "kind=<InputKind.BUFFER: 3>".
std::string_view last_word_in_capitals(std::string_view text) {
  const auto in_word = [](char c) { return (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto apart = [](char c) { return (c < 'a' || c > 'z') && (c < '0' || c > '9'); };
  for (std::size_t end = text.size(); end > 0; --end) {
    if (!in_word(text[end - 1]) || (end < text.size() && !apart(text[end]))) continue;
    std::size_t begin = end;
    while (begin > 0 && in_word(text[begin - 1])) --begin;
    if (end - begin > 3 && (begin == 0 || apart(text[begin - 1]))) return text.substr(begin, end - begin);
    end = begin + 1;
  }
  return {};
}

// Adds to `kinds` the kind of each tensor in the signature. PyTorch has written signatures in two forms. Both give a
// tensor's kind first, then target='NAME' with the tensor's name.
void read_signature(std::string_view text, std::map<std::string, StoredKind> &kinds) {
  constexpr std::string_view kTarget = "target='";
  for (std::size_t from = 0;;) {
    const std::size_t at = text.find(kTarget, from);
    if (at == std::string_view::npos) return;
    const std::size_t begin = at + kTarget.size(), end = text.find('\'', begin);
    if (end == std::string_view::npos) return;
    if (const auto kind = stored_as(last_word_in_capitals(text.substr(from, at - from))))
      kinds.emplace(text.substr(begin, end - begin), *kind);
    from = end + 1;
  }
}

// Returns the names in a list: "['lin.weight', 'val_3']" gives lin.weight and val_3.
std::vector<std::string> read_names(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t at = text.find('\''); at != std::string_view::npos;) {
    const std::size_t end = text.find('\'', at + 1);
    if (end == std::string_view::npos) break;
    names.emplace_back(text.substr(at + 1, end - at - 1));
    at = text.find('\'', end + 1);
  }
  return names;
}

std::vector<std::string> read_list(std::string_view text, const std::string &path) {
  std::vector<std::string> names;
  for (std::string &name : split(text, '\n')) {
    if (name.ends_with('\r')) name.pop_back();
    if (name.empty()) continue;
    check_name(name, path, "parameter in its protrain.parameters");
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace

graph::FileDeclarations read_declarations(const ModelProto &proto, const std::map<std::string, Tensor> &initializers,
                                          const std::string &path) {
  graph::FileDeclarations declared;
  for (const StringPair &entry : proto.metadata_props())
    if (entry.key() == kList) declared.list = read_list(entry.value(), path);
  for (const StringPair &entry : proto.graph().metadata_props())
    if (entry.key() == kSignature) read_signature(entry.value(), declared.kinds);
  for (const ValueNote &value : proto.graph().value_info()) {
    if (!initializers.contains(value.name())) continue;
    for (const StringPair &entry : value.metadata_props()) {
      if (entry.key() == kKind) {
        if (const auto kind = stored_as(entry.value())) declared.kinds[value.name()] = *kind;
      } else if (entry.key() == kFoldedFrom) {
        declared.folded_from[value.name()] = read_names(entry.value());
      }
    }
  }
  declared.merged = merged_tensors(proto, initializers);
  declared.untrained_norms = norms_out_of_training(proto.graph());
  declared.undropped = attentions_without_dropout(proto.graph());
  declared.unsmoothed = losses_without_smoothing(proto.graph());
  declared.undetached = readers_of_lost_detach(proto.graph(), declared.kinds);
  for (const TrainingInfo &info : proto.training_info()) {
    if (!declared.updated) declared.updated.emplace();
    for (const StringPair &binding : info.update_binding())
      if (initializers.contains(binding.key())) declared.updated->push_back(binding.key());
  }
  require(
      !declared.updated || !declared.updated->empty(), Code::unsupported, path,
      "a training_info that updates no initializer of the graph; give the model without it, gradients are built here");
  return declared;
}

void check_moments(const graph::FileTraining &training, const std::map<std::string, Tensor> &initializers) {
  for (const auto &[parameter, moments] : training.moments)
    for (const std::string &moment : moments) {
      const graph::Type &type = initializers.at(moment).type, &expected = initializers.at(parameter).type;
      require(is_float(type.dtype) && type.shape == expected.shape, Code::shape, moment,
              "a moment of {} for a parameter of {}", to_text(type), to_text(expected));
    }
}

}  // namespace protrain::onnx_import
