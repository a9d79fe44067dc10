// Runs and records steps on a device. The caller's function object issues the work of the step.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace protrain::backend {

// Like Device::run_step(), but takes a function object: calls issue(), and waits for all queues. Allocates nothing.
template <typename Issue>
void run_step(Device &device, Issue issue) {
  device.run_step([](void *self) { (*static_cast<Issue *>(self))(); }, &issue);
}

// Like Device::record_step(), but takes a function object.
template <typename Issue>
std::unique_ptr<Recording> record_step(Device &device, Issue issue, bool timed) {
  return device.record_step([](void *self) { (*static_cast<Issue *>(self))(); }, &issue, timed);
}

}  // namespace protrain::backend
