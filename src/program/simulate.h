// The simulator: runs the same Program as the executor, but only counts bytes and advances a clock.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/durations.h"
#include "profile/profile.h"
#include "program/program.h"

namespace protrain::program {

// For each queue: true if the queue has a worker of its own, and so runs at the same time as compute. Instructions of
// the other queues run on compute's worker, in the Program's order.
using Beside = PerQueue<bool>;

// The way a machine runs queues.
struct Queues {
  Beside beside{};
  // true: the thread that issues instructions also computes, so an instruction of another queue starts only once all
  // compute instructions before it in the list are over.
  bool issued_in_turn = false;
  profile::Shares shares;  // the share of its speed that each queue keeps while another one works

  Queues(const Beside &own = {});  // no queue slows another; without `own` everything runs on compute
};
Queues queues_of(const profile::Profile &profile);

// The record of one instruction: when it ran, and the bytes in use at its place in the list. The bytes are counted as
// if instructions ran in the list's order.
struct Entry {
  std::int64_t start_ns = 0, end_ns = 0;
  PerTier<std::uint64_t> live_bytes{};  // of buffers in use and not yet released, persistent ones included
  PerTier<std::uint64_t> high_bytes{};  // the highest byte touched so far, plus one
};

struct Simulation {
  std::int64_t step_ns = 0;
  std::vector<Entry> entries;        // per instruction
  PerQueue<std::int64_t> busy_ns{};  // per queue
};

// Returns the time in ns of each instruction when it runs alone.
std::vector<std::int64_t> price(const Program &program, const plan::Durations &durations);

// Simulates one run of the Program, on a clock that starts at 0. `ns` is what price() returns: the time of each
// instruction.
Simulation simulate(const Program &program, const std::vector<std::int64_t> &ns, const Queues &queues);

}  // namespace protrain::program
