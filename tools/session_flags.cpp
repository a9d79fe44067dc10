// Makes one flag of each row of protrain_options_help.
#include "session_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tell.h"

namespace tool {

namespace {

Options default_options() {
  protrain_options *options = nullptr;
  check(protrain_options_create(&options));
  return Options(options);
}

void set(const Options &options, const std::string &key, const std::string &value) {
  check<UsageError>(protrain_options_set(options.get(), key.c_str(), value.c_str()));
}

std::string description_of(const nlohmann::json &row) {
  std::string text = row["sentence"];
  if (!row["range"].get<std::string>().empty()) text += fmt::format(" ({})", row["range"].get<std::string>());
  if (!row["default"].get<std::string>().empty()) text += fmt::format(" [{}]", row["default"].get<std::string>());
  return text;
}

}  // namespace

void SessionFlags::add_to(CLI::App &command) {
  const Options options = default_options();
  const char *help = nullptr;
  check(protrain_options_help(options.get(), &help));
  for (const nlohmann::json &row : nlohmann::json::parse(help)) {
    Flag &flag = flags_.emplace_back(Flag{.key = row["key"], .values = {}});
    std::string name = "--" + flag.key;
    std::replace(name.begin(), name.end(), '_', '-');
    command.add_option(name, flag.values, description_of(row))
        ->allow_extra_args(false)
        ->type_name("")
        ->group("Options of the session");
  }
  command.add_option("--set", pairs_, "key=value: any option of the session by its name in the library")
      ->allow_extra_args(false)
      ->type_name("")
      ->group("Options of the session");
}

Options SessionFlags::make_options() const {
  Options options = default_options();
  for (const Flag &flag : flags_)
    for (const std::string &value : flag.values) set(options, flag.key, value);
  for (const std::string &pair : pairs_) {
    const std::size_t equals = pair.find('=');
    if (equals == std::string::npos) throw UsageError(fmt::format("--set wants key=value, not '{}'", pair));
    set(options, pair.substr(0, equals), pair.substr(equals + 1));
  }
  return options;
}

Options copy_of(const Options &options, const std::function<bool(const std::string &, const std::string &)> &takes) {
  Options copy = default_options();
  const char *help = nullptr;
  check(protrain_options_help(copy.get(), &help));
  for (const nlohmann::json &row : nlohmann::json::parse(help)) {
    const std::string key = row["key"];
    const std::string value = value_of(options, key.c_str());
    if (value == row["default"].get<std::string>()) continue;
    std::istringstream items(value);
    for (std::string item; std::getline(items, item);)
      if (takes(key, item)) set(copy, key, item);
  }
  return copy;
}

bool is_accepted(const Options &options, const std::string &model) {
  const char *about = nullptr;
  check(protrain_model_check(options.get(), model.c_str(), &about));
  return nlohmann::json::parse(about).value("trainable", false);
}

bool can_train(const Options &options, const std::string &model, const std::map<std::string, std::int64_t> &dims) {
  const Options others = copy_of(options, [&](const std::string &key, const std::string &item) {
    return key != "shapes" && (key != "dim" || !dims.contains(item.substr(0, item.find('='))));
  });
  for (const auto &[name, size] : dims) set(others, "dim", fmt::format("{}={}", name, size));
  return is_accepted(others, model);
}

void bind_defaults(const Options &options, const std::string &model) {
  const bool batch_is_settled = !value_of(options, "tokens_per_step").empty();
  const char *text = nullptr;
  check(protrain_model_check(options.get(), model.c_str(), &text));
  const nlohmann::json about = nlohmann::json::parse(text);
  const nlohmann::json &batch = about.at("batch");
  for (const auto &[name, dim] : about.at("dims").items()) {
    if (!dim["default"].get<bool>() || (batch_is_settled && batch.at("dim") == name)) continue;
    const std::string pair = fmt::format("{}={}", name, dim["value"].dump());
    tell("protrain: --dim {} is {}\n", pair, dim["inferred"].get<bool>() ? "inferred" : "assumed");
    check(protrain_options_set(options.get(), "dim", pair.c_str()));
  }
}

}  // namespace tool
