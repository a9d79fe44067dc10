// Shows how far a training run is: a bar on a terminal, an occasional line in a file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace tool {

class Progress {
 public:
  // The run takes `steps` steps. `before` is the number of steps of the runs that it resumes. `unit` is "tokens" or
  // "samples": what the argument `units` of step() counts. `may_draw` allows a bar on a terminal. A launcher of several
  // ranks gives them a terminal, although their output often goes to a file.
  Progress(std::FILE *out, std::uint64_t before, std::uint64_t steps, std::string unit, bool may_draw);
  ~Progress();  // ends the bar's line
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  void say(const std::string &line);  // on a line of its own
  // Shows that the run has taken `done` steps. The number shown also counts the steps of the runs that this run
  // resumes.
  void step(std::uint64_t done, float loss, double seconds, double units);

 private:
  std::string summary(std::uint64_t done, float loss) const;
  void draw_bar(std::uint64_t done, const std::string &text);

  std::FILE *out_;
  std::uint64_t before_, steps_;
  std::string unit_;
  bool bar_;
  bool drawn_ = false;
  double began_, last_shown_;                 // seconds of the steady clock
  double step_seconds_ = 0, step_units_ = 0;  // running means
  double all_seconds_ = 0;                    // of all steps; the other seconds since the beginning went to evaluations
                                              // and checkpoints
};

}  // namespace tool
