// The JSON of what a step costs and of its pictures, the same for a step that is predicted and for one that was
// measured.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/json.h"
#include "program/program.h"
#include "program/simulate.h"
#include "program/summary.h"

namespace protrain::draft {

inline double to_seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// What a step costs, predicted or measured: seconds, device_peak_bytes, host_peak_bytes, disk_bytes, overlap,
// busy_seconds by queue, stall_seconds by cause.
Json costs_json(const program::Summary &summary, const PerTier<std::uint64_t> &peak_bytes);
// A simulated step's; `beside` as it was simulated.
Json costs_json(const program::Program &program, const program::Simulation &simulation, const program::Beside &beside);
// {"owners": [names], "device": [[seconds, bytes of each owner...], ...], "host": ..., "disk": ...}: a point holds
// until the next.
Json timeline_json(const program::Program &program, const std::vector<program::Span> &spans);
// {"compute": [[start, end], ...], ...}: seconds in which each queue was busy; gaps that no picture would show are left
// out.
Json queues_json(const program::Program &program, const std::vector<program::Span> &spans);

}  // namespace protrain::draft
