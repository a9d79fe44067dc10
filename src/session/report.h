// The JSON texts a session gives away.
#pragma once

#include <string>

#include "backend/backend.h"
#include "draft/draft.h"
#include "program/program.h"
#include "run/executor.h"
#include "session/step_account.h"

namespace protrain::session {

// What the plan's bytes do not show, where the device has memory of its own; else all is 0.
struct MemoryAround {
  std::uint64_t device_free_before = 0, device_free = 0;  // when the device was opened, and now
  std::uint64_t pinned = 0, unpinned = 0;                 // of the host's slab
};

std::string created_json(const backend::DeviceInfo &device, const draft::Draft &draft, const MemoryAround &memory);
std::string warning_json(const std::string &text);
// `loss_scale`: of the step; 0: it has none.
std::string step_json(std::uint64_t step, const StepResult &result, double seconds, std::uint64_t loss_scale);
std::string saved_json(std::uint64_t step, const std::string &path);

// What protrain_session_report gives. `seconds`: of the whole step, the rest is of the Program that ran last;
// `prediction`: of the same Program with the same queues beside compute, or nullptr.
std::string report_json(const run::Report &report, double seconds, const MemoryAround &memory,
                        const program::Program &program, const graph::Graph &graph,
                        const program::Simulation *prediction);

}  // namespace protrain::session
