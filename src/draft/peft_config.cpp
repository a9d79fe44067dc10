#include "draft/peft_config.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace protrain::draft {

namespace {

using passes::Adapter;
using passes::AdapterRequest;

constexpr std::string_view kSpecial = "*+?[](){}|^$\\";  // characters with a meaning in regular expressions

// Keys that must be null, false or missing. Otherwise the adapter is more than W + sBA, the weights plus a scaled
// product of the matrices B and A.
constexpr const char *kBeyondPlain[] = {"use_dora",          "lora_bias",     "use_qalora",   "alora_invocation_tokens",
                                        "layer_replication", "velora_config", "arrow_config", "kasa_config",
                                        "monteclora_config", "use_bdlora"};

// The texts of init_lora_weights that leave the base weights as they are. With other texts, PEFT changes the base
// weights whenever it loads the adapter.
constexpr std::string_view kStarts[] = {"gaussian", "eva", "orthogonal", "mica", "lora_ga"};

// Returns the key of rank_pattern or alpha_pattern that stands for this module alone.
std::string key_of(const std::string &module) {
  std::string key = "^";
  for (const char c : module) {
    if (kSpecial.find(c) != std::string_view::npos) key += '\\';
    key += c;
  }
  return key;
}

// Returns whether a key of rank_pattern or alpha_pattern stands for a module. PEFT takes a key as a regular expression
// for the last parts of a module's name, or for the whole name if the key begins with ^. Returns an empty optional if
// the key is more than a name, because regular expressions are not evaluated.
std::optional<bool> stands_for(std::string_view key, const std::string &module) {
  const bool whole = key.starts_with('^');
  if (whole) key.remove_prefix(1);
  std::string name;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const bool escape =
        key[i] == '\\' && i + 1 < key.size() && (kSpecial.find(key[i + 1]) != key.npos || key[i + 1] == '.');
    if (escape)
      ++i;
    else if (kSpecial.find(key[i]) != std::string_view::npos)
      return {};
    name += key[i];
  }
  return whole ? module == name : ("." + module).ends_with("." + name);
}

// Returns the most frequent value of get(adapter) among the adapters.
template <typename Get>
auto usual(const std::vector<Adapter> &adapters, Get get) {
  std::map<decltype(get(adapters[0])), int> counts;
  for (const Adapter &adapter : adapters) ++counts[get(adapter)];
  return std::ranges::max_element(counts, {}, [](const auto &pair) { return pair.second; })->first;
}

}  // namespace

PeftConfig::PeftConfig(const std::string &path)
    : path_(path), json_(parse_json(read_text(path), path, {.values = 1 << 20})) {
  require(json_.members() != nullptr, Code::format, path, "is no JSON object");
  require_plain();
}

void PeftConfig::require_plain() const {
  const Json *kind = json_.find("peft_type");
  require(kind != nullptr && kind->text() != nullptr && *kind->text() == "LORA", Code::unsupported, path_,
          "peft_type is {}; only LORA is read", kind == nullptr ? "missing" : printable(kind->dump()));

  for (const char *key : kBeyondPlain) {
    const Json *found = json_.find(key);
    const bool off = found == nullptr || found->is_null() || (found->truth() != nullptr && !*found->truth());
    require(
        off, Code::unsupported, path_,
        "{} is {}, so the adapter is more than W + sBA, and only W + sBA is read; train one without {}, or merge it "
        "with PEFT's merge_and_unload() and export the model again",
        key, off ? "" : printable(found->dump()), key);
  }

  const Json *start = json_.find("init_lora_weights");
  const bool keeps_base = start == nullptr || start->is_null() || start->truth() != nullptr ||
                          (start->text() != nullptr && std::ranges::find(kStarts, *start->text()) != std::end(kStarts));
  require(
      keeps_base, Code::unsupported, path_,
      "init_lora_weights is {}, so PEFT changes the base when it loads the adapter, and only W + sBA is read; convert "
      "the adapter with PEFT's save_pretrained(path_initial_model_for_weight_conversion=...), or merge it with "
      "PEFT's merge_and_unload() and export the model again",
      keeps_base ? "" : printable(start->dump()));
}

void PeftConfig::complete(AdapterRequest &request) const {
  const std::string &module = request.pattern;
  require(
      allows_rank(module, static_cast<double>(request.rank)), Code::format, path_,
      "r and rank_pattern give {} another rank than its matrices have, which is {}; take both files from one adapter",
      printable(module), request.rank);

  request.alpha = alpha_of(module);
  request.stabilised = flag("use_rslora");
  request.dropout = number("lora_dropout", 0);
  require(request.dropout >= 0 && request.dropout < 1 && request.alpha > 0, Code::format, path_,
          "alpha is {} and lora_dropout {}; expected alpha > 0 and 0 <= lora_dropout < 1", request.alpha,
          request.dropout);
}

// Returns the number that the file gives for `key`. Returns `fallback`, which is PEFT's default, if the file lacks the
// key.
double PeftConfig::number(const char *key, double fallback) const {
  const Json *found = json_.find(key);
  if (found == nullptr || found->is_null()) return fallback;
  require(found->number().has_value(), Code::format, path_, "{} is {}, which is no number", key,
          printable(found->dump()));
  return *found->number();
}

bool PeftConfig::flag(const char *key) const {
  const Json *found = json_.find(key);
  if (found == nullptr || found->is_null()) return false;
  require(found->truth() != nullptr, Code::format, path_, "{} is {}; expected true or false", key,
          printable(found->dump()));
  return *found->truth();
}

std::span<const Json::Member> PeftConfig::patterns(const char *key) const {
  const Json *found = json_.find(key);
  if (found == nullptr || found->is_null()) return {};
  require(found->members() != nullptr, Code::format, path_, "{} is no JSON object", key);
  for (const Json::Member &member : *found->members())
    require(member.value.number().has_value(), Code::format, path_, "{} has {} for {}, which is no number", key,
            printable(member.value.dump()), printable(member.key));
  return *found->members();
}

double PeftConfig::alpha_of(const std::string &module) const {
  for (const Json::Member &member : patterns("alpha_pattern")) {
    const std::optional<bool> meant = stands_for(member.key, module);
    require(meant.has_value(), Code::unsupported, path_,
            "alpha_pattern has the regular expression {}; plain names are read", printable(member.key));
    if (*meant) return *member.value.number();
  }
  return number("lora_alpha", 8);
}

// True if r and rank_pattern give the module the rank `rank`, which the module's matrices have. A key that is a regular
// expression is not evaluated. Such a key is assumed to stand for the module if its value is `rank`, and is skipped
// otherwise.
bool PeftConfig::allows_rank(const std::string &module, double rank) const {
  for (const Json::Member &member : patterns("rank_pattern")) {
    const bool equal = *member.value.number() == rank;
    const std::optional<bool> meant = stands_for(member.key, module);
    if (meant.value_or(equal)) return equal;
  }
  return number("r", rank) == rank;
}

std::string peft_config_of(const std::vector<Adapter> &adapters) {
  const auto rank_of = [](const Adapter &adapter) { return adapter.request.rank; };
  const auto alpha_of = [](const Adapter &adapter) { return adapter.request.alpha; };
  const std::int64_t rank = usual(adapters, rank_of);
  const double alpha = usual(adapters, alpha_of);
  Json modules = Json::array(), ranks = Json::object(), alphas = Json::object();
  for (const Adapter &adapter : adapters) {
    const std::string &module = adapter.name_in_file();
    modules.push_back(module);
    if (rank_of(adapter) != rank) ranks.append(key_of(module), rank_of(adapter));
    if (alpha_of(adapter) != alpha) alphas.append(key_of(module), alpha_of(adapter));
  }
  const AdapterRequest &first = adapters.front().request;
  const Json config = {{"peft_type", "LORA"},
                       {"base_model_name_or_path", Json()},
                       {"task_type", Json()},
                       {"inference_mode", true},
                       {"r", rank},
                       {"lora_alpha", alpha},
                       {"lora_dropout", first.dropout},
                       {"use_rslora", first.stabilised},
                       {"bias", "none"},
                       {"fan_in_fan_out", false},
                       {"target_modules", modules},
                       {"rank_pattern", ranks},
                       {"alpha_pattern", alphas}};
  return config.dump(2) + "\n";
}

}  // namespace protrain::draft
