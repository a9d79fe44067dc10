#include "metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "handles.h"

namespace tool {

namespace {

using Json = nlohmann::ordered_json;

std::string bits_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return fmt::format("{:08x}", bits);
}

// Returns the step of a line; 0 if this command did not write the line.
std::uint64_t step_of(const std::string &line) {
  constexpr std::string_view kBegin = R"({"step":)";
  std::uint64_t step = 0;
  if (line.starts_with(kBegin)) std::from_chars(line.data() + kBegin.size(), line.data() + line.size(), step);
  return step;
}

// Removes the lines of steps after `last`. An earlier run took these steps after its last checkpoint, and this run
// takes them again. Also removes a last line that a full disk or a kill has cut short, because the next line would be
// appended to it.
void remove_lines_after(const std::string &path, std::uint64_t last) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return;
  std::ifstream file(path, std::ios::binary);
  std::uint64_t kept = 0;
  for (std::string line; std::getline(file, line) && !file.eof() && step_of(line) <= last;) kept += line.size() + 1;
  std::filesystem::resize_file(path, kept, error);
  if (error) throw Failure(fmt::format("{}: {}", path, error.message()));
}

}  // namespace

Json report_of(protrain_session *session) {
  const char *json = nullptr;
  check(protrain_session_report(session, &json));
  return Json::parse(json);
}

Metrics::Metrics(const std::string &path, std::uint64_t before) : path_(path) {
  if (path.empty()) return;
  if (before > 0) remove_lines_after(path, before);
  file_.reset(std::fopen(path.c_str(), before > 0 ? "a" : "w"));
  if (!file_) fail();
}

void Metrics::write(protrain_session *session, const Step &step, const std::string &logged) {
  if (!file_) return;
  double norm = 0;
  check(protrain_session_grad_norm(session, &norm));
  if (report_.is_null()) report_ = report_of(session);
  Json line = {{"step", step.number},
               {"loss", step.loss},
               {"grad_norm", norm},
               {"learning_rate", step.learning_rate},
               {"seconds", step.seconds},
               {"data_seconds", step.data_seconds},
               {"tokens_per_second", step.tokens / step.seconds},
               {"device_peak_bytes", report_.at("device_peak_bytes")},
               {"host_peak_bytes", report_.at("host_peak_bytes")},
               {"loss_bits", bits_of(step.loss)},
               {"grad_norm_bits", bits_of(static_cast<float>(norm))}};
  const Json about = logged.empty() ? Json() : Json::parse(logged);
  for (const char *key : {"loss_scale", "grad_norms"})  // of fp16; of the option grad_norms
    if (about.contains(key)) line[key] = about.at(key);
  if (step.eval_loss) line["eval_loss"] = *step.eval_loss;
  if (step.eval_loss && step.has_perplexity) line["eval_perplexity"] = std::exp(*step.eval_loss);
  fmt::print(file_.get(), "{}\n", line.dump());
  if (std::fflush(file_.get()) != 0) fail();
}

void Metrics::fail() const { throw Failure(fmt::format("{}: {}", path_, std::strerror(errno))); }

}  // namespace tool
