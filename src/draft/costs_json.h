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

// The costs of a step: seconds, device_peak_bytes, host_peak_bytes, disk_bytes, overlap, busy_seconds by queue,
// stall_seconds by cause.
Json costs_json(const program::Summary &summary, const PerTier<std::uint64_t> &peak_bytes);
// The costs of a simulated step. `beside`: the queues that ran beside compute in the simulation.
Json costs_json(const program::Program &program, const program::Simulation &simulation, const program::Beside &beside);
// {"owners": [names], "device": [[seconds, bytes of each owner...], ...], "host": ..., "disk": ...}: each point holds
// until the next one.
Json timeline_json(const program::Program &program, const std::vector<program::Span> &spans);
// {"compute": [[start, end], ...], ...}: the spans in which each queue was busy, in seconds. Gaps too small for a chart
// are left out.
Json queues_json(const program::Program &program, const std::vector<program::Span> &spans);
// The array "traceEvents" of Chrome's traces, which Perfetto reads: a track for each queue with its instructions, and a
// counter for each tier with the bytes of each owner. Times are in microseconds.
Json trace_events_json(const program::Program &program, const graph::Graph &graph,
                       const std::vector<program::Span> &spans);

}  // namespace protrain::draft
