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

// Prints an error, unless rank 0 prints the same one.
void say(const Rank &rank, const std::exception &failure);

// For a rank among several that cannot go on. Prints the failure, unless rank 0 prints the same. Returns the exit
// status if the failure is an error of the library. Otherwise ends the process at once. An orderly exit would never
// end: in it, MPI would wait for the other ranks, which wait for this rank.
int give_up(const Rank &rank, const std::exception &failure);

}  // namespace tool
