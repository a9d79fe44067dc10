// The simulator: the same Program that the executor runs, with books in place of memory and a clock in place of work.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace protrain::program {

// Which queues run beside compute; the others' instructions run on it, in the Program's order.
using Beside = std::array<bool, kQueueCount>;

// An instruction as the books have it once it is over, with all before it in the list.
struct Entry {
  std::int64_t start_ns = 0, end_ns = 0;
  std::array<std::uint64_t, kTierCount> live_bytes{};  // of buffers that are not released, persistent ones included
  std::array<std::uint64_t, kTierCount> high_bytes{};  // the highest byte touched so far, plus one
};

struct Simulation {
  std::int64_t step_ns = 0;
  std::vector<Entry> entries;                       // per instruction
  std::array<std::int64_t, kQueueCount> busy_ns{};  // per queue
};

// `ns`: how long each instruction takes once it starts.
Simulation simulate(const Program &program, const std::vector<std::int64_t> &ns, const Beside &beside);

}  // namespace protrain::program
