// StepAlarms: finds mistakes that show only when steps run: gradients that are zero, a norm far from earlier norms, a
// learning rate of zero, a loss scale that cannot get smaller. It reads a few numbers that every step computes anyway,
// and raises each alarm once. It allocates nothing unless it finds a mistake.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "draft/alarm.h"

namespace protrain::session {

// The results of a complete step that judge() looks at.
struct StepFacts {
  std::uint64_t step = 0;
  bool applied = true;  // false: the step was not finite, so it changed nothing
  double norm = 0, learning_rate = 0;
  bool scale_is_least = false;  // the loss scale cannot get smaller
  bool has_norms = true;        // StepAlarms::trained() has the norms of this step
};

class StepAlarms {
 public:
  // The number of steps in a row with a zero gradient after which an alarm is raised. A single such step is no mistake.
  // In the first step, for example, the gradient of an adapter's first matrix is zero, and so are the gradients of
  // layers before a layer that begins at zero.
  static constexpr int kZeroSteps = 2;

  // An alarm, and the step that raised it. Step 0: the alarm was known before the first step.
  struct Raised {
    std::uint64_t step;
    draft::Alarm alarm;
  };
  struct Parameter {
    std::size_t position = 0;  // in the graph's list
    std::string name = {};
    double squared_norm = 0;  // of its gradient in the last step
    int zeros = 0;            // steps in a row in which the gradient was zero
    bool said = false;        // an alarm has named the parameter
  };
  // `known`: the alarms of the draft.
  StepAlarms(std::vector<Parameter> trained, const std::vector<draft::Alarm> &known);

  std::vector<Parameter> &trained() { return trained_; }  // the caller fills in squared_norm

  // Returns the number of alarms that the step has raised. These alarms are the last ones in all().
  std::size_t judge(const StepFacts &facts);
  // Adds an alarm, unless an alarm with the same code and subject was raised before. Returns the number of new alarms.
  std::size_t raise(std::uint64_t step, draft::Alarm alarm);
  const std::vector<Raised> &all() const { return raised_; }

 private:
  std::size_t judge_gradients(std::uint64_t step);
  std::size_t judge_norm(const StepFacts &facts);

  std::vector<Parameter> trained_;
  double mean_log_ = 0;  // of the norms so far, newer ones count more
  std::uint64_t norms_ = 0;
  std::vector<Raised> raised_;
};

}  // namespace protrain::session
