// Binding: "NAME=N", a symbolic dimension of a model and its size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace protrain::draft {

struct Binding {
  std::string name;
  std::int64_t size = 0;  // > 0

  std::string text() const { return name + "=" + std::to_string(size); }
};

// Returns nothing if `text` is not a binding. A name may contain '='; the last '=' comes before the size.
std::optional<Binding> parse_binding(const std::string &text);

}  // namespace protrain::draft
