// on_threads: runs independent calls on several threads, outside of steps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "base/threads.h"

namespace protrain {

// Calls act(i) for each i below `count`, on up to `threads` new threads.
template <typename Act>
void on_threads(std::size_t count, int threads, const std::string &name, Act &&act) {
  if (count == 0) return;
  const auto most = static_cast<int>(std::min<std::size_t>(count, std::numeric_limits<int>::max()));
  Team team(std::clamp(threads, 1, most), name);
  team.enter([&] {
    team.run([&](Member &member) {
      const Range mine = share(static_cast<std::int64_t>(count), 1, member);
      for (std::int64_t i = mine.begin; i < mine.end; ++i) act(static_cast<std::size_t>(i));
    });
  });
}

}  // namespace protrain
