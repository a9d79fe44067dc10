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

std::optional<LoraPattern> parse_lora(const std::string &text) {
  const std::vector<std::string> parts = split(text, ',');
  LoraPattern found{.pattern = parts[0], .rank = {}, .alpha = {}};
  for (auto part = parts.begin() + 1; part != parts.end(); ++part) {
    const std::size_t sign = part->find('=');
    const std::string key = part->substr(0, sign), value = sign == std::string::npos ? "" : part->substr(sign + 1);
    if (key == "rank")
      found.rank = parse_integer(value);
    else if (key == "alpha")
      found.alpha = parse_real(value);
    const bool good =
        key == "rank" ? found.rank && *found.rank >= 1 : key == "alpha" && found.alpha && *found.alpha > 0;
    if (!good) return std::nullopt;
  }
  return found.pattern.empty() ? std::nullopt : std::optional(found);
}

std::optional<GroupBinding> parse_group_binding(const std::string &text) {
  const std::vector<std::string> items = split(text, ',');
  GroupBinding binding{.pattern = items.front()};
  for (auto item = items.begin() + 1; item != items.end(); ++item) {
    const std::size_t equals = item->find('=');
    if (equals == std::string::npos) return std::nullopt;
    const std::string key = item->substr(0, equals);
    const auto number = parse_real(item->substr(equals + 1));
    auto &setting = key == "weight_decay" ? binding.weight_decay : binding.learning_rate_scale;
    if ((key != "weight_decay" && key != "learning_rate_scale") || setting || !number || *number < 0)
      return std::nullopt;
    setting = number;
  }
  if (binding.pattern.empty() || items.size() == 1) return std::nullopt;
  return binding;
}

}  // namespace protrain::draft
