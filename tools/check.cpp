// protrain check: says whether a model can be trained, what it lacks, and what was found in it. With --gradients it
// compares gradients with slopes of the loss.
#include <fmt/format.h>

#include <cmath>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "batches.h"
#include "commands.h"
#include "session_flags.h"

namespace tool {

namespace {

using Json = nlohmann::ordered_json;

struct CheckFlags {
  std::string model;
  bool json = false, gradients = false;
  std::optional<std::uint64_t> samples;
  DataFlags data;
  SessionFlags session;
};

// Returns the value as text: strings without quotes, null as "?", everything else as JSON.
std::string plain(const Json &value) {
  if (value.is_null()) return "?";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// A list as text: "[batch, 32]".
std::string plain_list(const Json &values) {
  std::string text;
  for (const Json &value : values) text += (text.empty() ? "" : ", ") + plain(value);
  return "[" + text + "]";
}

// Returns the reason for a dim's size, such as " (inferred from Conv at /conv1, where w is float32[64, 3, 7, 7])".
// Returns "" if the size was given.
std::string origin_of(const Json &dim) {
  if (!dim["default"].get<bool>()) return "";
  const std::string reason = plain(dim["reason"]);
  if (dim["inferred"].get<bool>()) return fmt::format(" (inferred from {})", reason);
  return reason.empty() ? " (assumed here)" : fmt::format(" (assumed here: {})", reason);
}

void print_findings(const Json &about, const char *key) {
  if (about[key].empty()) return;
  fmt::print("{}: {}\n", key, about[key].size());
  for (const Json &row : about[key])
    fmt::print("  {} {}{}  {}\n", row.value("name", ""), row.contains("shape") ? plain_list(row["shape"]) : "",
               row.value("frozen", false) ? " frozen" : "", row.value("reason", ""));
}

void print_doubtful(const Json &about, const char *settled_by, const char *what, const char *advice) {
  std::vector<Json> rows;
  for (const Json &row : about.value("doubtful", Json::array()))
    if (row.value("settled_by", "") == settled_by) rows.push_back(row);
  if (!rows.empty()) fmt::print("{}: {}; {}\n", what, rows.size(), advice);
  for (const Json &row : rows)
    fmt::print("  {} taken as {}: {}\n", row.value("name", ""), row.value("verdict", ""), row.value("doubt", ""));
}

// Prints the doubtful findings that the user can settle with an option, the doubtful Constants, which no option can
// settle, and the declared names that match no initializer.
void print_doubts(const Json &about) {
  const Json unmatched = about.value("unmatched", Json::array());
  print_doubtful(about, "option", "doubtful", "--trainable NAME or --frozen NAME settles each");
  print_doubtful(about, "export", "doubtful Constants",
                 "no option makes one a parameter: it must be an initializer of the file, so export it again");
  if (!unmatched.empty()) fmt::print("declared to be parameters, and in no initializer: {}\n", unmatched.size());
  for (const Json &name : unmatched) fmt::print("  {}\n", plain(name));
}

// Prints "batch: 2 samples of 16 tokens, of input_ids". A sample with a single integer has a class and no tokens.
void print_batch(const Json &batch) {
  if (batch.is_null() || batch["input"] == "") return;
  const std::string tokens =
      batch["tokens_per_sample"] <= 1 ? "" : fmt::format(" of {} tokens", plain(batch["tokens_per_sample"]));
  fmt::print("batch: {} samples{}, of {}\n", plain(batch["samples"]), tokens, plain(batch["input"]));
}

// Prints, for each float type of the file that the graph replaces, the type in which it is computed.
void print_replaced_floats(const Json &about) {
  for (const Json &row : about.value("replaced_floats", Json::array())) {
    const std::string name = plain(row), computed = name == "float64" ? "float32" : "the session's precision";
    fmt::print("the file's {} is computed in {}, and exported as {}\n", name, computed, name);
  }
}

// Says which training the file describes.
void print_training(const Json &training) {
  if (training.is_null()) return;
  std::string options;
  for (const auto &[key, value] : training["options"].items()) options += fmt::format(" {} {}", key, plain(value));
  fmt::print("trained as by {}: loss {},{}{}\n", plain(training["source"]), plain(training["loss"]), options,
             training["steps"] == 0 ? "" : fmt::format(", after {} steps", plain(training["steps"])));
}

// Says how much is trained, unless the option `mode` is eval, and which parameters have adapters.
void print_trained(const Json &about, const std::string &mode) {
  const auto all = about.value("parameter_elements", std::int64_t{0}),
             trained = about.value("trained_elements", std::int64_t{0});
  if (mode == "train") fmt::print("trained: {} of {} elements\n", trained, all);
  const Json adapters = about.value("adapters", Json::array());
  if (!adapters.empty()) fmt::print("adapters: {}\n", adapters.size());
  for (const Json &row : adapters)
    fmt::print("  {} rank {}, scale {}, in {} place{}\n", row.value("parameter", ""), plain(row["rank"]),
               plain(row["scale"]), plain(row["places"]), row["places"] == 1 ? "" : "s");
}

// `mode` is the option of this name.
void print_check(const Json &about, const std::string &mode) {
  fmt::print("{}: {} be {}\n", about.value("model", ""), about.value("trainable", false) ? "can" : "cannot",
             mode == "eval" ? "evaluated" : "trained");
  for (const Json &problem : about.value("problems", Json::array())) fmt::print("  {}\n", problem.value("text", ""));
  fmt::print("inputs\n");
  for (const Json &input : about.value("inputs", Json::array()))
    fmt::print("  {} {} {}\n", input.value("name", ""), input.value("dtype", ""), plain_list(input["dims"]));
  const Json dims = about.value("dims", Json::object()), operators = about.value("operators", Json::object());
  for (const auto &[name, dim] : dims.items()) fmt::print("  {} = {}{}\n", name, plain(dim["value"]), origin_of(dim));
  print_batch(about["batch"]);
  print_replaced_floats(about);
  print_training(about["training"]);
  if (!operators.empty()) fmt::print("operators\n");
  for (const auto &[name, count] : operators.items()) fmt::print("  {:5} {}\n", plain(count), name);
  if (about.value("trainable", false)) fmt::print("blocks: {}\n", plain(about["blocks"]));
  if (about.value("trainable", false)) print_trained(about, mode);
  for (const Json &alarm : about.value("alarms", Json::array())) fmt::print("alarm: {}\n", alarm.value("text", ""));
  print_doubts(about);
  print_findings(about, "parameters");
  print_findings(about, "states");
  print_findings(about, "constants");
}

// Returns the error of a gradient. If the gradient is not finite, the report has null for the error, and the result is
// NaN.
double error_in(const Json &error) { return error.is_null() ? std::nan("") : error.get<double>(); }

void print_gradients(const Json &about) {
  fmt::print("loss {:.7g}, in float64 {:.7g}\n", about["loss"].get<double>(), about["loss_float64"].get<double>());
  fmt::print("errors of gradients; up to {} passes\n", plain(about["tolerance"]));
  for (const Json &row : about["parameters"])
    fmt::print("  {} {:.1e} in {} elements{}, {:.1e} along a direction  {}\n", row["passed"] ? "ok  " : "FAIL",
               error_in(row["element_error"]), plain(row["elements"]),
               row["kinks"] == 0 ? "" : fmt::format(" ({} left out at kinks)", plain(row["kinks"])),
               error_in(row["direction_error"]), plain(row["name"]));
}

// Compares gradients on the first batch of the data.
int check_gradients(const CheckFlags &flags) {
  const Options options = flags.session.make_options();
  Batches batches(flags.data, data_of(options, flags.model, flags.data), options);
  const Session session = create_session(options, flags.model);
  batches.settle(session.get());
  batches.feed(session.get(), 0);
  const char *text = nullptr;
  check(protrain_session_check_gradients(session.get(), flags.samples.value_or(3), &text));
  const Json about = Json::parse(text);
  if (flags.json)
    fmt::print("{}\n", text);
  else
    print_gradients(about);
  return about["passed"] ? kOk : kFailed;
}

int run_check(const CheckFlags &flags) {
  if (flags.gradients) return check_gradients(flags);
  if (flags.samples || flags.data.given()) throw UsageError("--samples and data are for --gradients");
  const Options options = flags.session.make_options();
  const char *text = nullptr;
  check(protrain_model_check(options.get(), flags.model.c_str(), &text));
  const Json about = Json::parse(text);
  if (flags.json)
    fmt::print("{}\n", text);
  else
    print_check(about, value_of(options, "mode"));
  return about.value("trainable", false) ? kOk : kFailed;
}

}  // namespace

void add_check(CLI::App &app, int &status) {
  CLI::App *command = app.add_subcommand("check", "say whether a model can be trained, and what it lacks");
  auto flags = std::make_shared<CheckFlags>();
  command->add_option("MODEL", flags->model, "an ONNX file")->required();
  command->add_flag("--json", flags->json, "as JSON");
  command->add_flag(
      "--gradients", flags->gradients,
      "instead: compare the gradients of the first batch with slopes of the loss in float64; slow, for small batches");
  command
      ->add_option("--samples", flags->samples, "N: elements of each parameter to compare, with --gradients; default 3")
      ->check(positive_number());
  flags->data.add_to(*command);
  flags->session.add_to(*command);
  command->callback([flags, &status] { status = run_check(*flags); });
}

}  // namespace tool
