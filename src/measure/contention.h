// Contention: tells whether other threads use the cores. A kernel looks slower than it is if it is timed while other
// threads run.
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

// Returns how long each thread of this process has run and waited, or an empty map where the system does not tell.
// `root` is the directory above /proc, and empty except in tests.
ThreadTimes thread_times(const std::string &root = "");
// Returns waited / (ran + waited): the share of the time from `start` to `end` in which threads waited for a core.
// Returns 0 if ran + waited is less than kLeastSeconds, because so short a time says little. Threads that have ended do
// not count.
double share_waited(const ThreadTimes &start, const ThreadTimes &end);
inline constexpr double kLeastSeconds = 0.1;
// If threads waited for a core for a larger share of their time than this, the measured times are too long, and a later
// session measures again.
inline constexpr double kMostWaited = 0.2;
// True if the machine's cores are nearly idle: few other threads want to run now, and the load of the last minute was
// low (contention.cpp has the limits). `processors` is the number of the machine's processors. False if the system does
// not tell.
bool cores_are_idle(int processors, const std::string &root = "");

}  // namespace protrain::measure
