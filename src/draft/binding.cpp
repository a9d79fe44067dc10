#include "draft/binding.h"

#include "base/text.h"

namespace protrain::draft {

std::optional<Binding> parse_binding(const std::string &text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  const auto size = parse_integer(text.substr(equals + 1));
  if (!size || *size <= 0) return std::nullopt;
  return Binding{.name = text.substr(0, equals), .size = *size};
}

}  // namespace protrain::draft
