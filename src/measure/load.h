// Load: keeps the cores busy while other work runs, to measure how much compute and the other work slow each other
// down.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "base/memory.h"

namespace protrain::measure {

// The load is a copy that all members of the team repeat. The copied bytes stay in the caches of the cores.
class Load {
 public:
  explicit Load(backend::Device &device);

  // Measures the speed of the load alone, and then while `work` runs on a thread of its own, several times in turn,
  // because each of the two takes only some 50 milliseconds and anything disturbs it. Returns the median of the second
  // speeds divided by that of the first, limited to 0.05 to 1. Throws what `work` throws.
  double share_beside(const std::function<void()> &work);

 private:
  double speed_beside(const std::function<void()> &work);
  double until(const std::function<bool()> &stop);
  void loop();

  backend::Device &device_;
  MemoryBlock from_, to_;
  const std::function<bool()> *stop_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace protrain::measure
