#include "outputs.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

namespace tool {

namespace {

namespace fs = std::filesystem;
using Kind = Output::Kind;

[[noreturn]] void refuse_place(const fs::path &path, int error) {
  throw Failure(fmt::format("{}: {}", path.string(), std::strerror(error)));
}

fs::path without_slash(const fs::path &path) { return path.has_filename() ? path : path.parent_path(); }

fs::path parent_of(const fs::path &path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

bool is_there(const std::string &path) {
  std::error_code none;
  return fs::exists(path, none);
}

// True if both paths lead to the same file, even if this file does not exist yet. False for devices such as /dev/null,
// which several outputs may share.
bool same_place(const std::string &a, const std::string &b) {
  std::error_code none;
  if (fs::is_other(a, none)) return false;
  if (fs::equivalent(a, b, none)) return true;
  return fs::weakly_canonical(fs::absolute(a), none) == fs::weakly_canonical(fs::absolute(b), none);
}

// Throws unless the output can be written to its path.
void require_place(const Output &output) {
  const fs::path path = without_slash(output.path);
  std::error_code none;
  const bool there = fs::exists(path, none), is_directory = fs::is_directory(path, none);
  if (output.kind == Kind::directory && there && !is_directory) refuse_place(path, ENOTDIR);
  if (output.kind != Kind::directory && is_directory)
    throw Failure(fmt::format("{}: a directory, and {} needs the name of a file", output.path, output.flag));
  if (there && (output.kind == Kind::file || output.kind == Kind::model) && !fs::is_regular_file(path, none))
    throw Failure(fmt::format("{}: not a regular file, and {} replaces it", output.path, output.flag));
  const bool is_changed = there && (output.kind == Kind::stream || output.kind == Kind::directory);
  const fs::path written = is_changed ? path : parent_of(path);
  if (access(written.c_str(), fs::is_directory(written, none) ? W_OK | X_OK : W_OK) != 0) refuse_place(written, errno);
}

// Returns the files that an output may consist of.
std::vector<std::string> paths_of(const Output &output) {
  if (output.path.empty()) return {};
  if (output.kind == Kind::model) return {output.path, output.path + ".data"};
  return {output.path};
}

void require_not_read(const Output &output, const std::vector<Input> &inputs) {
  for (const std::string &path : paths_of(output))
    for (const Input &input : inputs)
      if (is_there(input.path) && same_place(path, input.path))
        throw Failure(fmt::format("{}: {} would replace what this run reads as {}; give another path", path,
                                  output.flag, input.flag));
}

void require_apart(const Output &one, const Output &other) {
  for (const std::string &path : paths_of(one))
    for (const std::string &same : paths_of(other))
      if (same_place(path, same))
        throw Failure(
            fmt::format("{}: both {} and {} would write it; give each a path of its own", same, one.flag, other.flag));
}

}  // namespace

std::vector<Input> model_files(const std::string &model, const std::vector<std::string> &parts,
                               const Options &options) {
  std::vector<Input> files = {{"MODEL", model}};
  for (const std::string &part : parts) files.push_back({"a part of MODEL", part});
  // `parts` was read from JSON, in which paths that are not UTF-8 are missing. In case a part has such a path, this
  // loop adds the usual names of a model's parts.
  for (const char *end : {".data", "_data"}) files.push_back({"a part of MODEL", model + end});
  for (const auto &[key, flag] : {std::pair("adapter_names", "--adapter-names"),
                                  {"plan", "--plan"},
                                  {"hardware", "--hardware"},
                                  {"parameters_from", "--parameters-from"}})
    if (const std::string path = value_of(options, key); !path.empty()) files.push_back({flag, path});
  if (const std::string path = value_of(options, "adapter"); !path.empty()) {
    const std::vector<Input> adapter = adapter_files("--adapter", path);
    files.insert(files.end(), adapter.begin(), adapter.end());
  }
  return files;
}

std::vector<Input> adapter_files(const std::string &flag, const std::string &path) {
  std::vector<Input> files = {{flag, path}};
  for (const char *name : {"adapter_config.json", "adapter_model.safetensors"})
    files.push_back({flag, (fs::path(path) / name).string()});
  return files;
}

std::vector<Input> array_files(const std::string &flag, const std::vector<std::string> &words, const ModelData &model) {
  std::vector<Input> files;
  for (const std::string &word : words) {
    const std::size_t equals = word.find('=');
    files.push_back({flag, equals == std::string::npos ? word : word.substr(equals + 1)});
    std::error_code none;
    if (equals != std::string::npos || !fs::is_directory(word, none)) continue;
    for (const ModelInput &input : model.inputs) files.push_back({flag, word + "/" + input.name + ".npy"});
  }
  return files;
}

std::vector<Input> token_files(const std::string &flag, const std::vector<std::string> &words) {
  std::vector<Input> files;
  for (const std::string &word : words) {
    files.push_back({flag, word});
    if (const std::size_t equals = word.rfind('='); equals != std::string::npos)
      files.push_back({flag, word.substr(0, equals)});
  }
  return files;
}

void require_writable(const std::vector<Output> &outputs, const std::vector<Input> &inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Output &output = outputs[i];
    if (output.path.empty()) continue;
    require_place(output);
    require_not_read(output, inputs);
    for (std::size_t j = 0; j < i; ++j) require_apart(outputs[j], output);
  }
}

void require_mergeable(const std::string &model, const Options &options) {
  if (value_of(options, "lora").empty() && value_of(options, "adapter").empty()) return;
  if (value_of(options, "export_adapters") == "inputs") return;
  const char *text = nullptr;
  check(protrain_model_check(options.get(), model.c_str(), &text));
  const nlohmann::json about = nlohmann::json::parse(text);
  std::set<std::string> adapted;
  for (const nlohmann::json &adapter : about.at("adapters")) adapted.insert(adapter.at("parameter"));

  const std::string rounded = value_of(options, "base_precision");
  for (const nlohmann::json &parameter : about.at("parameters")) {
    const std::string name = parameter.at("name"), type = parameter.at("dtype");
    if (!adapted.contains(name) || type.find("float") != std::string::npos || type == rounded) continue;
    throw Failure(fmt::format(
        "{}: the file holds it as {}, so --export cannot merge its adapter; leave --export out and write the adapter "
        "with --save-adapter",
        name, type));
  }
}

void require_adapters_writable(protrain_session *session, const std::string &path, const Rank &rank) {
  if (!rank.leads()) return check(protrain_session_export_adapters(session, path.c_str()));
  const fs::path wanted = without_slash(path);
  std::error_code none;
  const fs::path place = fs::is_directory(wanted, none) ? wanted : parent_of(wanted);
  std::string beside = place / ".protrain-XXXXXX";
  if (mkdtemp(beside.data()) == nullptr) refuse_place(place, errno);
  // `wanted` may end in "..", so the adapters are written under the name "trial". The name has the extension of
  // `wanted`, because the extension decides in which form the library writes them.
  const fs::path trial = fs::path(beside) / ("trial" + wanted.extension().string());
  const std::unique_ptr<protrain_error, Destroy> error(protrain_session_export_adapters(session, trial.c_str()));
  fs::remove_all(beside, none);
  if (error) throw LibraryFailure(error.get());
}

}  // namespace tool
