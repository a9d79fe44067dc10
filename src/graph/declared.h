// A model file's own statements about its initializers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace protrain::graph {

enum class StoredKind : std::uint8_t { parameter, buffer };

struct FileDeclarations {
  // Names of the trained initializers, from a list that the model's maker wrote beside it; nothing if there is no list.
  std::optional<std::vector<std::string>> list;
  // Initializers that an ONNX training_info updates; nothing if there is no training_info.
  std::optional<std::vector<std::string>> updated;
  // By the exporter's names, which are the framework's. Includes tensors that are no longer in the file.
  std::map<std::string, StoredKind> kinds;
  // By initializer: the names of all values that the exporter computed it from.
  std::map<std::string, std::vector<std::string>> folded_from;
};

}  // namespace protrain::graph
