// The simulator: runs the executor's Program with books in place of memory and a clock in place of work.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/durations.h"
#include "profile/profile.h"
#include "program/program.h"

namespace protrain::program {

// True for queues that run beside compute. Instructions of the others run on compute, in the Program's order.
using Beside = PerQueue<bool>;

// The way a machine runs queues.
struct Queues {
  Beside beside{};
  // The thread that issues also computes: an instruction of another queue starts once all compute before it in the list
  // is over.
  bool issued_in_turn = false;
  profile::Shares shares;  // the speed left to each queue beside the others

  Queues(const Beside &own = {});  // nothing slows anything; without `own` everything runs on compute
};
Queues queues_of(const profile::Profile &profile);

// The books' entry for an instruction once it and all before it in the list are over.
struct Entry {
  std::int64_t start_ns = 0, end_ns = 0;
  PerTier<std::uint64_t> live_bytes{};  // of buffers that are not released, persistent ones included
  PerTier<std::uint64_t> high_bytes{};  // the highest byte touched so far, plus one
};

struct Simulation {
  std::int64_t step_ns = 0;
  std::vector<Entry> entries;        // per instruction
  PerQueue<std::int64_t> busy_ns{};  // per queue
};

// The time of each instruction when it runs alone.
std::vector<std::int64_t> price(const Program &program, const plan::Durations &durations);

// `ns`: the result of price().
Simulation simulate(const Program &program, const std::vector<std::int64_t> &ns, const Queues &queues);

}  // namespace protrain::program
