// The JSON texts a session gives away.
#pragma once

#include <string>

#include "backend/backend.h"
#include "base/json.h"
#include "program/program.h"
#include "program/summary.h"
#include "run/executor.h"
#include "session/blueprint.h"
#include "session/session.h"

namespace protrain::session {

// What the plan's bytes do not show, where the device has memory of its own; else all is 0.
struct MemoryAround {
  std::uint64_t device_free_before = 0, device_free = 0;  // when the device was opened, and now
  std::uint64_t pinned = 0, unpinned = 0;                 // of the host's slab
};

std::string created_json(const backend::DeviceInfo &device, const Blueprint &blueprint, const MemoryAround &memory);
std::string warning_json(const std::string &text);
// `loss_scale`: of the step; 0: it has none.
std::string step_json(std::uint64_t step, const StepResult &result, double seconds, std::uint64_t loss_scale);
std::string saved_json(std::uint64_t step, const std::string &path);

// What a step costs, predicted or measured: seconds, device_peak_bytes, host_peak_bytes, disk_bytes, overlap,
// busy_seconds by queue, stall_seconds by cause.
Json costs_json(const program::Summary &summary, const std::array<std::uint64_t, kTierCount> &peak_bytes);
// A simulated step's; `beside` as it was simulated.
Json costs_json(const program::Program &program, const program::Simulation &simulation, const program::Beside &beside);
// {"owners": [names], "device": [[seconds, bytes of each owner...], ...], "host": ..., "disk": ...}: a point holds
// until the next.
Json timeline_json(const program::Program &program, const std::vector<program::Span> &spans);
// {"compute": [[start, end], ...], ...}: seconds in which each queue was busy; gaps that no picture would show are left
// out.
Json queues_json(const program::Program &program, const std::vector<program::Span> &spans);

// What protrain_session_report gives. `seconds`: of the whole step, the rest is of the Program that ran last;
// `prediction`: of the same Program with the same queues beside compute, or nullptr.
std::string report_json(const run::Report &report, double seconds, const MemoryAround &memory,
                        const program::Program &program, const graph::Graph &graph,
                        const program::Simulation *prediction);

}  // namespace protrain::session
