// protrain plan and profile: what training a model would take, on this machine or on one that is only described.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "model_data.h"
#include "outputs.h"
#include "pictures.h"
#include "profiling_line.h"
#include "session_flags.h"
#include "svg.h"

namespace tool {

namespace {

struct PlanFlags {
  std::string model, picture, save, devices;
  bool json = false;
  SessionFlags session;
};

void write_file(const std::string &path, const std::string &text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) throw Failure(fmt::format("{}: {}", path, std::strerror(errno)));
}

std::string bytes_text(const Json &bytes) { return byte_unit(bytes.get<double>()).text(bytes.get<double>()); }

// Prints the plan as text. `from_file` is true if the user gave the plan, `trains` if it is for steps and not only for
// evaluations.
void print_plan(const Json &plan, bool from_file, bool trains) {
  const auto devices = plan["plan"].value("ranks", 1);
  fmt::print("{} on {}{}, {}\n", plan["model"].get<std::string>(),
             devices > 1 ? fmt::format("each of {} devices: ", devices) : "", plan["hardware"].get<std::string>(),
             plan["precision"].get<std::string>());
  if (!plan["feasible"].get<bool>()) {
    fmt::print("{} needs {} on the device, {} on the host, {} on disk. {}\n",
               from_file ? "This plan does not fit. It" : "Nothing fits. The smallest plan",
               bytes_text(plan["device_peak_bytes"]), bytes_text(plan["host_peak_bytes"]),
               bytes_text(plan["disk_bytes"]),
               plan["would_fit"].empty() ? "A change of one option is not enough." : "What would fit:");
    for (const Json &change : plan["would_fit"]) fmt::print("  {}\n", change["text"].get<std::string>());
    return;
  }
  const auto tokens = plan["tokens_per_second"].get<double>(), samples = plan["samples_per_second"].get<double>();
  fmt::print("  {} {}, {:.0f} {}/s; device {}, host {}, disk {}\n", trains ? "step" : "evaluation",
             time_text(plan["step_seconds"].get<double>()), tokens > 0 ? tokens : samples,
             tokens > 0 ? "tokens" : "samples", bytes_text(plan["device_peak_bytes"]),
             bytes_text(plan["host_peak_bytes"]), bytes_text(plan["disk_bytes"]));
  fmt::print("  chunks {}: persist {}, buffers {}, host {}", plan["n_chunk"].dump(), plan["n_persist"].dump(),
             plan["n_buffer"].dump(), plan["n_host"].dump());
  if (trains)
    fmt::print(", updated on the device {}; blocks {}: checkpoint {}, swap {}, selective {}",
               plan["n_device_update"].dump(), plan["n_block"].dump(), plan["n_checkpoint"].dump(),
               plan["n_swap"].dump(), plan["n_selective"].dump());
  fmt::print("\n\n");
  for (const Json &sentence : plan["explanation"]) fmt::print("{}\n", sentence.get<std::string>());
}

int run_profile(const std::string &model, const SessionFlags &flags) {
  const Options options = flags.make_options();
  bind_defaults(options, model);
  const ProfilingLine line(options);
  const char *text = nullptr;
  check(protrain_model_profile(options.get(), model.c_str(), &text));
  fmt::print("{}\n", text);
  return kOk;
}

int run_plan(const PlanFlags &flags) {
  const Options options = flags.session.make_options();
  if (!flags.devices.empty()) check<UsageError>(protrain_options_set(options.get(), "ranks", flags.devices.c_str()));
  if (!flags.picture.empty() || !flags.save.empty())
    require_writable(
        {{Output::Kind::stream, "--picture", flags.picture}, {Output::Kind::stream, "--save-plan", flags.save}},
        model_files(flags.model, files_of(options, flags.model), options));
  bind_defaults(options, flags.model);
  const ProfilingLine line(options);
  const bool from_file = !value_of(options, "plan").empty();
  const char *text = nullptr;
  check(protrain_model_plan(options.get(), flags.model.c_str(), &text));
  const Json plan = Json::parse(text);
  if (flags.json)
    fmt::print("{}\n", text);
  else
    print_plan(plan, from_file, value_of(options, "mode") == "train");
  if (!flags.picture.empty()) write_file(flags.picture, memory_picture(plan["timeline"]));
  if (!flags.save.empty()) write_file(flags.save, plan["plan"].dump(1) + "\n");
  return plan["feasible"].get<bool>() ? kOk : kFailed;
}

}  // namespace

void add_profile(CLI::App &app, int &status) {
  CLI::App *command = app.add_subcommand("profile", "measure this machine: a description that --hardware takes");
  auto model = std::make_shared<std::string>();
  auto flags = std::make_shared<SessionFlags>();
  command->add_option("MODEL", *model, "an ONNX file; its weights may be missing")->required();
  flags->add_to(*command);
  command->callback([model, flags, &status] { status = run_profile(*model, *flags); });
}

void add_plan(CLI::App &app, int &status) {
  CLI::App *command = app.add_subcommand("plan", "say what training a model would take, here or on another machine");
  auto flags = std::make_shared<PlanFlags>();
  command->add_option("MODEL", flags->model, "an ONNX file; its weights may be missing")->required();
  command->add_option("--devices", flags->devices, "N: so many devices train together, each with a rank (--ranks)")
      ->type_name("");
  command->add_flag("--json", flags->json, "as JSON");
  command->add_option("--picture", flags->picture, "OUT.svg: memory over a step, by owner");
  command->add_option("--save-plan", flags->save, "OUT.json: the plan, for --plan");
  flags->session.add_to(*command);
  command->callback([flags, &status] { status = run_plan(*flags); });
}

}  // namespace tool
