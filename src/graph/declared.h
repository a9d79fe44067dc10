// Declared: what a model file itself says about its initializers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace protrain::graph {

enum class Stored : std::uint8_t { parameter, buffer };

struct Declared {
  // The names of what is trained, written beside the model by its maker; none: there is no such list.
  std::optional<std::vector<std::string>> list;
  // The initializers that an ONNX training_info updates; none: there is no training_info.
  std::optional<std::vector<std::string>> updated;
  // By the exporter's names, which are those of the framework: also of tensors that the file does not hold any more.
  std::map<std::string, Stored> kinds;
  // By initializer: the names of all values that the exporter computed it from.
  std::map<std::string, std::vector<std::string>> folded_from;
};

}  // namespace protrain::graph
