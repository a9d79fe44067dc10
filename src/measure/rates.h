// Rates of a machine that single kernels do not show: copies between its memories, the optimizer, large products.
#pragma once

#include "backend/backend.h"
#include "measure/stopwatch.h"
#include "profile/profile.h"

namespace protrain::measure {

// Fills device_optimizer and host_optimizer, in at most `memory` bytes. The optimizer runs on the device and, if cores
// are not shared, on the host.
void measure_optimizer(backend::Device &device, const Stopwatch &stopwatch, const backend::Optimizer &optimizer,
                       std::uint64_t memory, profile::Profile &profile);

// Fills every rate of `profile` except the disk's and the optimizer's, in at most `memory` bytes. The optimizer's rates
// must be known. If the device has its own memory, both sides are measured, and copies go through pinned memory, each
// way alone and both together. With one shared memory both sides have equal rates.
void measure_rates(backend::Device &device, const Stopwatch &stopwatch, const backend::Optimizer &optimizer,
                   std::uint64_t memory, profile::Profile &profile);

}  // namespace protrain::measure
