#include "draft/binding.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <string_view>

#include "base/text.h"

namespace protrain::draft {

namespace {

constexpr double kLargestRank = 65536;  // the largest value that the option lora_rank accepts

// The keys that a value of the option also_loss can have. Beside each key is the option that sets the same for the
// first loss.
constexpr std::pair<std::string_view, std::string_view> kLossKeys[] = {{"loss", "loss"},
                                                                       {"factor", "loss_factor"},
                                                                       {"labels", "loss_labels"},
                                                                       {"from", "loss_from"},
                                                                       {"axis", "loss_axis"},
                                                                       {"shift", "loss_shift"},
                                                                       {"weights", "loss_weights"},
                                                                       {"label_smoothing", "label_smoothing"},
                                                                       {"z_loss", "z_loss"},
                                                                       {"focal", "focal"},
                                                                       {"temperature", "loss_temperature"},
                                                                       {"margin", "loss_margin"},
                                                                       {"blank", "loss_blank"},
                                                                       {"lengths", "loss_lengths"},
                                                                       {"label_length", "loss_label_length"},
                                                                       {"time_first", "loss_time_first"}};

struct PatternSettings {
  std::string pattern;
  std::map<std::string, double> settings;

  std::optional<double> find(const std::string &key) const {
    const auto found = settings.find(key);
    return found == settings.end() ? std::nullopt : std::optional(found->second);
  }
};

// Splits "GLOB,KEY=NUMBER,...". `keys` has the keys that are allowed. Returns an empty optional if the text has another
// form, or if a key is repeated or not allowed.
std::optional<PatternSettings> parse_settings(const std::string &text, std::initializer_list<std::string_view> keys) {
  const std::vector<std::string> items = split(text, ',');
  PatternSettings parsed{.pattern = items.front(), .settings = {}};
  if (parsed.pattern.empty()) return std::nullopt;
  for (auto item = items.begin() + 1; item != items.end(); ++item) {
    const std::size_t equals = item->find('=');
    if (equals == std::string::npos) return std::nullopt;
    const std::string key = item->substr(0, equals);
    const std::optional<double> number = parse_real(item->substr(equals + 1));
    if (std::ranges::find(keys, key) == keys.end() || !number) return std::nullopt;
    if (!parsed.settings.emplace(key, *number).second) return std::nullopt;
  }
  return parsed;
}

}  // namespace

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
  const std::optional<PatternSettings> parsed = parse_settings(text, {"rank", "alpha"});
  if (!parsed) return std::nullopt;
  LoraPattern lora{.pattern = parsed->pattern, .rank = {}, .alpha = parsed->find("alpha")};
  const std::optional<double> rank = parsed->find("rank");
  if (rank) lora.rank = static_cast<std::int64_t>(*rank);
  const bool whole = !rank || (*rank >= 1 && *rank <= kLargestRank && *rank == std::floor(*rank));
  const bool positive = !lora.alpha || *lora.alpha > 0;
  return whole && positive ? std::optional(lora) : std::nullopt;
}

std::optional<GroupBinding> parse_group_binding(const std::string &text) {
  const std::optional<PatternSettings> parsed = parse_settings(text, {"learning_rate_scale", "weight_decay"});
  if (!parsed || parsed->settings.empty()) return std::nullopt;
  for (const auto &[key, number] : parsed->settings)
    if (number < 0) return std::nullopt;
  return GroupBinding{.pattern = parsed->pattern,
                      .learning_rate_scale = parsed->find("learning_rate_scale"),
                      .weight_decay = parsed->find("weight_decay")};
}

std::optional<AlsoLoss> parse_also_loss(const std::string &text) {
  const std::vector<std::string> items = split(text, ',');
  AlsoLoss also{.output = items.front(), .settings = {}};
  if (also.output.empty()) return std::nullopt;
  for (auto item = items.begin() + 1; item != items.end(); ++item) {
    const std::size_t equals = std::min(item->find('='), item->size());
    const std::string key = item->substr(0, equals);
    const auto *const known = std::ranges::find(kLossKeys, key, [](const auto &row) { return row.first; });
    const bool twice = std::ranges::find(also.settings, key, &AlsoLoss::Setting::key) != also.settings.end();
    if (known == std::end(kLossKeys) || twice || equals + 1 >= item->size()) return std::nullopt;
    also.settings.push_back({key, std::string(known->second), item->substr(equals + 1)});
  }
  const bool has_loss = std::ranges::find(also.settings, "loss", &AlsoLoss::Setting::key) != also.settings.end();
  return has_loss ? std::optional(also) : std::nullopt;
}

}  // namespace protrain::draft
