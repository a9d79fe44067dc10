// The timeline of memory: bytes by owner in each tier over a step, for charts.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"
#include "program/summary.h"

namespace protrain::program {

using Holdings = PerOwner<std::uint64_t>;  // bytes
std::uint64_t total(const Holdings &holdings);

// The bytes of each owner from `at_ns` to the next point.
struct TimelinePoint {
  std::int64_t at_ns = 0;
  Holdings bytes{};
};

// Points per tier. The last point is at the step's end. A tier that is never used has no points.
using Timeline = PerTier<std::vector<TimelinePoint>>;

// Returns the bytes of each owner that are live while each instruction runs, in the Program's order. The simulator
// counts the same bytes. So a tier's peak here equals the peak live_bytes of a Simulation, whatever times `spans` has.
// Padding between persistent buffers counts as workspace.
//   The point of a compute instruction has the time at which that instruction started. The point of any other
// instruction has the time of the previous point. But after the last compute instruction, each point has the time at
// which its own instruction started.
//   If a tier has more than `most` points (at least 4), the time is cut into equal stretches, and only the highest and
// the last point of each stretch are kept.
Timeline timeline(const Program &program, const std::vector<Span> &spans, std::size_t most);

}  // namespace protrain::program
