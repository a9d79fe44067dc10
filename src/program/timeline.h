// Who held the memory when: bytes by owner in each tier over a step, for pictures.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"
#include "program/summary.h"

namespace protrain::program {

using Holdings = PerOwner<std::uint64_t>;  // bytes
std::uint64_t total(const Holdings &holdings);

// From here to the next point.
struct Point {
  std::int64_t at_ns = 0;
  Holdings bytes{};
};

// Per tier. The last point is the step's end; a tier that is never used has none.
using Timeline = PerTier<std::vector<Point>>;

// What is live while each instruction runs, in the Program's order: the simulator's books, told apart by owner. So the
// largest total of a tier is the largest live_bytes of a Simulation, whatever the spans say. Padding between persistent
// buffers counts as workspace.
//   An instruction is drawn where compute was when the list came to it: at its own start if it, or nothing after it, is
// of the compute queue, else where the one before it is.
//   Of more than `most` points in a tier (at least 4), those are left out between which little happens; of any stretch
// the highest remains.
Timeline timeline(const Program &program, const std::vector<Span> &spans, std::size_t most);

}  // namespace protrain::program
