// Declarations that a model file or the user makes about initializers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace protrain::graph {

enum class StoredKind : std::uint8_t { parameter, buffer };

// The training that a file describes: the loss, the optimizer, and the optimizer's state.
struct FileTraining {
  std::string source;  // a phrase for reasons and errors, such as "the model's training_info"
  std::string loss;    // an output of the graph
  std::vector<std::pair<std::string, std::string>> options = {};  // of the optimizer, as options of a session
  std::int64_t steps = 0;                                         // updates that the optimizer has made
  // For the name of each trained initializer: the names of the initializers that hold its moments. The graph does not
  // contain the moments.
  std::map<std::string, std::vector<std::string>> moments = {};
  std::optional<Error> refusal = {};  // why a session cannot follow the optimizer
};

// A tensor that the file holds as an Identity of an equal one.
struct MergedTensor {
  std::string original;  // the initializer that the file stores
  // The names of both in the framework. If the exporter has computed them, as it transposes matrices, these are the
  // names of the modules that read them, and a last word that is the same for both.
  std::string name, original_name;
  bool operator==(const MergedTensor &) const = default;
};

struct FileDeclarations {
  // Names of the trained initializers, as listed by the metadata entry protrain.parameters or by the user. An empty
  // optional: there is no list.
  std::optional<std::vector<std::string>> list;
  // Initializers that the training in the file updates. An empty optional: there is no training in the file.
  std::optional<std::vector<std::string>> updated;
  std::optional<FileTraining> training;
  // The kind of each tensor, by its name in the framework. Some of these tensors may no longer be in the file.
  std::map<std::string, StoredKind> kinds;
  // For each initializer that the exporter computed: the names of all values that it was computed from.
  std::map<std::string, std::vector<std::string>> folded_from;
  // Tensors that the exporter did not store because they are equal to a stored one, by the outputs of the Identity
  // nodes that stand for them.
  std::map<std::string, MergedTensor> merged = {};
  // Nodes with an input that passes through detach() in PyTorch. The file lacks this detach(), because the exporter's
  // optimizer dropped it.
  std::vector<std::string> undetached = {};
  // BatchNormalization nodes that train in PyTorch, and that the exporter wrote in the form for evaluation.
  std::vector<std::string> untrained_norms = {};
  // Nodes of attentions whose dropout in PyTorch is missing in the file.
  std::vector<std::string> undropped = {};
  // Nodes that compute a cross entropy whose label smoothing in PyTorch is missing in the file.
  std::vector<std::string> unsmoothed = {};
};

}  // namespace protrain::graph
