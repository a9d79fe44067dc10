// The JSON texts that a session returns.
#pragma once

#include <string>

#include "backend/backend.h"
#include "draft/draft.h"
#include "program/program.h"
#include "run/executor.h"
#include "session/group_norms.h"
#include "session/step_account.h"
#include "session/step_alarms.h"

namespace protrain::session {

// Sizes of memory, in bytes, that a plan does not contain. All are 0 if the device shares the host's memory.
struct MemoryOutsideArena {
  std::uint64_t device_free_before = 0, device_free = 0;  // when the device was opened, and now
  std::uint64_t pinned = 0, unpinned = 0;                 // of the host's memory
};

// Returns the log line of a new session. `why_not_nccl`: see Channels::why_not_nccl.
std::string created_json(const backend::DeviceInfo &device, const draft::Draft &draft, const MemoryOutsideArena &memory,
                         const std::string &why_not_nccl);
std::string warning_json(const std::string &text);
std::string alarm_json(const StepAlarms::Raised &raised);
// Returns the log line of a step. `loss_scale` is the loss scale of the step; 0: the step has none. The line leaves
// `norms` out if they belong to an earlier step.
std::string step_json(std::uint64_t step, const StepResult &result, double seconds, std::uint64_t loss_scale,
                      const GroupNorms &norms);
std::string saved_json(std::uint64_t step, const std::string &path);

// The parts of a report that are about the whole session.
struct ReportFacts {
  double seconds;  // of the whole last step, or in mode=eval of the last evaluation
  double learning_rate;
  const MemoryOutsideArena &memory;
  const std::vector<StepAlarms::Raised> &alarms;
  const GroupNorms &norms;
  bool traces;
};

// Returns the text of protrain_session_report. `report`, `program` and `graph` are about the Program that ran last.
// `simulation` is a simulated run of this Program, with workers for the same queues, or nullptr.
std::string report_json(const run::Report &report, const ReportFacts &facts, const program::Program &program,
                        const graph::Graph &graph, const program::Simulation *simulation);

}  // namespace protrain::session
