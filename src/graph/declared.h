// Declarations that a model file or the user makes about initializers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace protrain::graph {

enum class StoredKind : std::uint8_t { parameter, buffer };

struct FileDeclarations {
  // Names of the trained initializers, as listed by the metadata entry protrain.parameters or by the user. Nothing if
  // there is no list.
  std::optional<std::vector<std::string>> list;
  // Initializers that the file's training_info updates. Nothing if there is no training_info.
  std::optional<std::vector<std::string>> updated;
  // The kind of each tensor, by its name in the framework. Some of these tensors may no longer be in the file.
  std::map<std::string, StoredKind> kinds;
  // For each initializer that the exporter computed: the names of all values that it was computed from.
  std::map<std::string, std::vector<std::string>> folded_from;
};

}  // namespace protrain::graph
