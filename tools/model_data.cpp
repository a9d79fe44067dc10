#include "model_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace tool {

namespace {

// If the model cannot be trained with any data, throws its first problem. Without this check, the user would get errors
// about missing or unknown inputs. They would mislead the user, because the inputs can change when the problem is
// solved: a loss, for example, adds labels.
//   If the inputs are known, leaves problems of shapes to the session, because `about` assumes sizes that the data may
// not have.
void require_trainable(const nlohmann::json &about) {
  for (const nlohmann::json &problem : about.at("problems"))
    if (problem.at("code") != PROTRAIN_ERROR_SHAPE || about.at("inputs").empty())
      throw Failure(problem.at("text").get<std::string>());
}

}  // namespace

std::string names_of(const std::vector<ModelInput> &inputs) {
  std::vector<std::string> names;
  for (const ModelInput &input : inputs) names.push_back(input.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const ModelInput &find_input(const std::vector<ModelInput> &inputs, std::string_view name) {
  const auto found = std::find_if(inputs.begin(), inputs.end(), [&](const ModelInput &i) { return i.name == name; });
  if (found == inputs.end())
    throw UsageError(fmt::format("the model has no input {}; its inputs are {}", name, names_of(inputs)));
  return *found;
}

std::string dims_text(const std::vector<Dim> &dims) {
  std::vector<std::string> words;
  for (const Dim &dim : dims)
    if (const auto *name = std::get_if<std::string>(&dim))
      words.push_back(name->empty() ? "?" : *name);
    else
      words.push_back(std::to_string(std::get<std::int64_t>(dim)));
  return fmt::format("({})", fmt::join(words, ", "));
}

std::string forms_of(const ModelInput &input) {
  std::vector<Dim> dims = *input.dims;
  std::string of_samples;
  if (!dims.empty()) {
    dims.front() = "N";
    of_samples = fmt::format("{} if it holds N samples, or ", dims_text(dims));
    dims.front() = input.dims->front();
  }
  dims.insert(dims.begin(), "N");
  return fmt::format("an array for {} has the shape {}{} if it holds N batches", input.name, of_samples,
                     dims_text(dims));
}

ModelData data_of(const Options &options, const std::string &model, const DataFlags &flags) {
  if (flags.separator && value_of(options, "packed").empty())
    check(protrain_options_set(options.get(), "packed", "positions"));
  const char *json = nullptr;
  check(protrain_model_check(options.get(), model.c_str(), &json));
  const nlohmann::json about = nlohmann::json::parse(json);
  require_trainable(about);
  ModelData data{.path = model, .files = about.at("files"), .inputs = {}, .bound = {}, .batch_input = {}};
  for (const nlohmann::json &row : about.at("inputs")) {
    ModelInput &input = data.inputs.emplace_back(ModelInput{.name = row["name"], .dtype = row["dtype"], .dims = {}});
    if (row["dims"].is_null()) continue;
    input.dims.emplace();
    for (const nlohmann::json &dim : row["dims"]) {
      if (dim.is_number())
        input.dims->emplace_back(dim.get<std::int64_t>());
      else
        input.dims->emplace_back(dim.is_null() ? std::string() : dim.get<std::string>());
    }
  }
  for (const auto &[name, dim] : about.at("dims").items())
    if (!dim["default"].get<bool>()) data.bound[name] = dim["value"];
  if (const nlohmann::json &batch = about.at("batch"); !batch.is_null()) {
    data.batch_input = batch["input"];
    data.has_tokens = batch["tokens_per_sample"] > 1;  // one whole number of a sample is a class
  }
  data.loss_is_cross_entropy = about.at("loss_is_cross_entropy");
  return data;
}

std::vector<std::string> files_of(const Options &options, const std::string &model) {
  const char *json = nullptr;
  check(protrain_model_check(options.get(), model.c_str(), &json));
  return nlohmann::json::parse(json).at("files");
}

}  // namespace tool
