// Load: keeps the cores busy, to measure what other work costs compute, and compute other work.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "base/memory.h"

namespace protrain::measure {

// Every member of the team copies inside its cache.
class Load {
 public:
  explicit Load(backend::Device &device);

  // Runs `work` on a thread of its own beside the load. Returns the share of its speed that the load keeps, 0.05 to 1.
  // Throws what `work` throws.
  double share_beside(const std::function<void()> &work);

 private:
  double until(const std::function<bool()> &stop);
  void loop();

  backend::Device &device_;
  MemoryBlock from_, to_;
  const std::function<bool()> *stop_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace protrain::measure
