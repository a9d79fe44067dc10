// Contention: whether other processes use the cores. Kernels that were timed meanwhile look slower than they are.
#pragma once

#include <cstdint>
#include <string>

namespace protrain::measure {

// How long the threads of this process have run on a core and have waited for one, in nanoseconds. Both are 0 where the
// system does not tell.
struct CoreTimes {
  std::uint64_t ran = 0, waited = 0;
};

// `root` is the directory above /proc: "" except in tests.
CoreTimes core_times(const std::string &root = "");
// Returns the share of the time between `start` and `end` in which threads waited for a core, of the time in which they
// ran or waited; 0 for less than kLeastSeconds of both, which says little.
double share_waited(const CoreTimes &start, const CoreTimes &end);
inline constexpr double kLeastSeconds = 0.1;
// Times measured with a larger share of waiting are too long to be kept for good.
inline constexpr double kMostWaited = 0.2;
// True if no other thread of the machine wants to run now, and few did in the last minute. False where the system does
// not tell.
bool cores_are_idle(int processors, const std::string &root = "");

}  // namespace protrain::measure
