// Rank: the place of this process among the processes that train one model together, and which of them prints.
#pragma once

#include <cstdint>
#include <exception>

#include "handles.h"

namespace tool {

struct Rank {
  std::uint64_t number = 0, count = 1;

  bool leads() const { return number == 0; }  // prints and writes what all ranks have in common
  bool alone() const { return count == 1; }
};

Rank rank_of(protrain_session *session);

// True if a signal ends the run before the next step or batch of an evaluation. With several ranks it is always false:
// the other ranks must make the same calls as this rank, and the signal may not have reached them yet. So this rank
// only cancels the next step or evaluation, which ends the run on all ranks.
bool ends_by_signal(protrain_session *session, const Rank &rank);

// Prints an error, unless rank 0 prints the same one.
void say(const Rank &rank, const std::exception &failure);

// For a rank among several that cannot go on. Prints the failure, unless rank 0 prints the same. Returns the exit
// status if the failure is an error of the library. Otherwise ends the process at once. An orderly exit would never
// end: in it, MPI would wait for the other ranks, which wait for this rank.
int give_up(const Rank &rank, const std::exception &failure);

}  // namespace tool
