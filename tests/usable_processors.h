// The processors that the calling thread may use.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <set>

namespace protrain::test {

inline std::set<int> usable_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  std::set<int> ids;
  for (int id = 0; id < CPU_SETSIZE; ++id)
    if (CPU_ISSET(id, &set)) ids.insert(id);
  return ids;
}

}  // namespace protrain::test
