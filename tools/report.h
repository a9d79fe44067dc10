// The page that `protrain train --report` writes: what was run, what a step cost, and pictures of the step.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pictures.h"

namespace tool {

struct RunRecord {
  std::string model;
  std::uint64_t ranks = 1;                            // ranks that train together
  std::uint64_t before = 0;                           // steps of earlier runs
  std::uint64_t steps = 0;                            // of this run
  bool keeps_steps = false;                           // for a page: losses, rates, evaluations and seconds are kept
  std::vector<StepValue> losses, rates, evaluations;  // of this run; rates are learning rates
  std::vector<double> seconds;                        // per step of this run
  std::string unit = "tokens";                        // what `tokens` counts
  double tokens = 0;                                  // per step
  double data_seconds = 0;                            // of all steps: waiting for data
  std::string step_line;                              // the session's log line of the last step
  nlohmann::ordered_json about;                       // the session's "created" line
  nlohmann::ordered_json report;                      // protrain_session_report after the last step

  std::uint64_t last_step() const { return before + steps; }  // counted over all runs

  void add(double loss, double learning_rate, double step_seconds, double step_tokens) {
    ++steps;
    tokens = step_tokens;
    if (!keeps_steps) return;
    losses.push_back({last_step(), loss});
    rates.push_back({last_step(), learning_rate});
    seconds.push_back(step_seconds);
  }
};

// One HTML document that is also well-formed XML and refers to nothing outside itself.
std::string report_page(const RunRecord &run);

// Writes the file. Throws Failure with the path if that fails.
void write_text(const std::string &path, const std::string &text);

}  // namespace tool
