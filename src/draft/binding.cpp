#include "draft/binding.h"

#include "base/text.h"

namespace protrain::draft {

std::optional<Binding> parse_binding(const std::string &text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  const auto size = parse_integer(text.substr(equals + 1));
  if (!size || *size < 0) return std::nullopt;
  return Binding{.name = text.substr(0, equals), .size = *size};
}

std::optional<InputBinding> parse_input_binding(const std::string &text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  InputBinding binding{.name = text.substr(0, equals), .values = {}};
  for (const std::string &item : split(text.substr(equals + 1), ',')) {
    const std::optional<double> number = item == "true" ? 1 : item == "false" ? 0 : parse_real(item);
    if (!number) return std::nullopt;
    binding.values.push_back(*number);
  }
  return binding;
}

}  // namespace protrain::draft
