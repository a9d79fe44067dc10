// The metrics file of a training run: one JSON object per line and step.
#pragma once

#include <protrain.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tool {

struct Step {
  std::uint64_t number = 0;
  float loss = 0;
  double learning_rate = 0, seconds = 0, tokens = 0;
  double data_seconds = 0;          // of `seconds`: waiting for data
  std::optional<double> eval_loss;  // of an evaluation after the step
  bool has_perplexity = false;
};

nlohmann::ordered_json report_of(protrain_session *session);

// Each line is flushed, so that a reader can follow the file and a kill loses nothing.
class Metrics {
 public:
  // `before` is the number of steps that were taken before this run. If it is not 0, the lines of these steps stay, and
  // later lines of the file are replaced. If `path` is empty, nothing is written.
  Metrics(const std::string &path, std::uint64_t before);

  // `logged` is the session's log line of the step; "" if there is none.
  void write(protrain_session *session, const Step &step, const std::string &logged);

 private:
  struct Close {
    void operator()(std::FILE *file) const { std::fclose(file); }
  };
  [[noreturn]] void fail() const;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  nlohmann::ordered_json report_;  // of the first step; all steps have the same shapes, and so the same peaks
};

}  // namespace tool
