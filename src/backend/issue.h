// Runs and records steps on a device whose work a function object issues.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace protrain::backend {

// As Device::run_step(): calls issue(), and waits for all queues. Allocates nothing.
template <typename Issue>
void run_step(Device &device, Issue issue) {
  device.run_step([](void *self) { (*static_cast<Issue *>(self))(); }, &issue);
}

// As Device::record_step().
template <typename Issue>
std::unique_ptr<Recording> record_step(Device &device, Issue issue, bool timed) {
  return device.record_step([](void *self) { (*static_cast<Issue *>(self))(); }, &issue, timed);
}

}  // namespace protrain::backend
