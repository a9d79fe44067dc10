// Contention: whether other threads use the cores. Kernels that were timed meanwhile look slower than they are.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace protrain::measure {

// How long a thread has run on a core and has waited for one, in nanoseconds.
struct CoreTimes {
  std::uint64_t ran = 0, waited = 0;
};
using ThreadTimes = std::map<std::string, CoreTimes>;  // by thread id

// Returns the times of this process's threads; none where the system does not tell. `root` is the directory above
// /proc, and empty except in tests.
ThreadTimes thread_times(const std::string &root = "");
// Returns how much of their time threads waited for a core between `start` and `end`: waited / (ran + waited). Returns
// 0 if ran + waited is less than kLeastSeconds, which says little. Threads that have ended do not count.
double share_waited(const ThreadTimes &start, const ThreadTimes &end);
inline constexpr double kLeastSeconds = 0.1;
// Times measured with a larger share of waiting are too long to be kept for good.
inline constexpr double kMostWaited = 0.2;
// True if the machine's cores are nearly idle: few other threads want to run now, and the load of the last minute was
// low (contention.cpp has the limits). `processors` is the number of the machine's processors. False if the system does
// not tell.
bool cores_are_idle(int processors, const std::string &root = "");

}  // namespace protrain::measure
