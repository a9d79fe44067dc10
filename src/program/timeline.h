// The timeline of memory: bytes by owner in each tier over a step, for charts.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"
#include "program/summary.h"

namespace protrain::program {

using Holdings = PerOwner<std::uint64_t>;  // bytes
std::uint64_t total(const Holdings &holdings);

// The holdings from this time to the next point.
struct TimelinePoint {
  std::int64_t at_ns = 0;
  Holdings bytes{};
};

// Points per tier. The last point is the step's end; a tier that is never used has none.
using Timeline = PerTier<std::vector<TimelinePoint>>;

// The bytes that are live while each instruction runs, in the Program's order: the simulator's books, told apart by
// owner. The largest total of a tier is therefore the largest live_bytes of a Simulation, for any spans. Padding
// between persistent buffers counts as workspace.
//   An instruction is drawn at the time at which compute reached it in the list: at its own start if it is compute's
// own or no compute instruction follows it, else together with the one before it.
//   A tier with more than `most` points (at least 4) is thinned: points between which little happens are left out, and
// the highest of each stretch stays.
Timeline timeline(const Program &program, const std::vector<Span> &spans, std::size_t most);

}  // namespace protrain::program
