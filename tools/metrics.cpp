#include "metrics.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
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

// Removes a last line that a full disk or a kill has cut short. The next line would become part of it.
void remove_unfinished_line(const std::string &path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return;
  std::ifstream file(path, std::ios::binary);
  std::uint64_t size = 0, whole = 0;
  for (std::string line; std::getline(file, line);) {
    size += line.size();
    if (!file.eof()) whole = ++size;
  }
  if (whole < size) std::filesystem::resize_file(path, whole, none);
}

}  // namespace

Json report_of(protrain_session *session) {
  const char *json = nullptr;
  check(protrain_session_report(session, &json));
  return Json::parse(json);
}

Metrics::Metrics(const std::string &path, bool goes_on) : path_(path) {
  if (path.empty()) return;
  if (goes_on) remove_unfinished_line(path);
  file_.reset(std::fopen(path.c_str(), goes_on ? "a" : "w"));
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
  if (const Json about = logged.empty() ? Json() : Json::parse(logged); about.contains("grad_norms"))
    line["grad_norms"] = about.at("grad_norms");
  if (step.eval_loss) line["eval_loss"] = *step.eval_loss;
  if (step.eval_loss && step.has_perplexity) line["eval_perplexity"] = std::exp(*step.eval_loss);
  fmt::print(file_.get(), "{}\n", line.dump());
  if (std::fflush(file_.get()) != 0) fail();
}

void Metrics::fail() const { throw Failure(fmt::format("{}: {}", path_, std::strerror(errno))); }

}  // namespace tool
