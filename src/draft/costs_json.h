// JSON for the costs of a step and for charts of it, the same for predicted and for measured steps.
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

// Returns the costs of a step: seconds, device_peak_bytes, host_peak_bytes, disk_bytes, overlap, busy_seconds by queue,
// stall_seconds by cause.
Json costs_json(const program::Summary &summary, const PerTier<std::uint64_t> &peak_bytes);
// Returns the costs of a simulated step. `beside` is true for the queues that ran at the same time as compute.
Json costs_json(const program::Program &program, const program::Simulation &simulation, const program::Beside &beside);
// Returns each tier's bytes over time: {"owners": [names], "device": [[seconds, bytes of each owner...], ...], "host":
// ..., "disk": ...}. The bytes of a point hold until the next point.
Json timeline_json(const program::Program &program, const std::vector<program::Span> &spans);
// Returns the spans in which each queue was busy, in seconds: {"compute": [[start, end], ...], ...}. Gaps too small for
// a chart are left out.
Json queues_json(const program::Program &program, const std::vector<program::Span> &spans);
// Returns the array "traceEvents" of Chrome's traces, which Perfetto reads: a track for each queue with its
// instructions, and a counter for each tier with the bytes of each owner. Times are in microseconds.
Json trace_events_json(const program::Program &program, const graph::Graph &graph,
                       const std::vector<program::Span> &spans);

}  // namespace protrain::draft
