// Declarations about initializers, by a model file or the user.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace protrain::graph {

enum class StoredKind : std::uint8_t { parameter, buffer };

struct FileDeclarations {
  // Names of the trained initializers, from the metadata entry protrain.parameters or from a list of the user; nothing
  // if there is no list.
  std::optional<std::vector<std::string>> list;
  // Initializers that an ONNX training_info updates; nothing if there is no training_info.
  std::optional<std::vector<std::string>> updated;
  // The kinds of tensors, by the names that the framework gives them. Includes tensors that are no longer in the file.
  std::map<std::string, StoredKind> kinds;
  // For each initializer that the exporter computed: the names of all values that it was computed from.
  std::map<std::string, std::vector<std::string>> folded_from;
};

}  // namespace protrain::graph
