// The simulator: the same Program that the executor runs, with books in place of memory and a clock in place of
// work.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/durations.h"
#include "profile/profile.h"
#include "program/program.h"

namespace protrain::program {

// Which queues run beside compute; the others' instructions run on it, in the Program's order.
using Beside = PerQueue<bool>;

// How a machine runs queues.
struct Queues {
  Beside beside{};
  // The thread that issues is the one that computes: what other queues run starts after all compute before it in the
  // list is over.
  bool issued_in_turn = false;
  profile::Shares shares;  // what is left to each queue's speed beside the others

  Queues(const Beside &own = {});  // nothing slows anything; without `own` everything runs on compute
};
Queues queues_of(const profile::Profile &profile);

// An instruction as the books have it once it is over, with all before it in the list.
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

// How long each instruction takes where nothing else is at work.
std::vector<std::int64_t> price(const Program &program, const plan::Durations &durations);

// `ns`: as price() gives them.
Simulation simulate(const Program &program, const std::vector<std::int64_t> &ns, const Queues &queues);

}  // namespace protrain::program
