// Binding: "NAME=N", a symbolic dimension of a model and its size. InputBinding: "NAME=VALUE,...", an input and its
// values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace protrain::draft {

struct Binding {
  std::string name;
  std::int64_t size = 0;  // >= 0

  std::string text() const { return name + "=" + std::to_string(size); }
};

// Returns nothing if `text` is not a binding. A name may contain '='; the last '=' comes before the size.
std::optional<Binding> parse_binding(const std::string &text);

struct InputBinding {
  std::string name;
  std::vector<double> values;
};

// Returns nothing if `text` is not a binding. Values are numbers, "true" or "false", separated by ','.
std::optional<InputBinding> parse_input_binding(const std::string &text);

}  // namespace protrain::draft
