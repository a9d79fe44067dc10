// Rates of a machine that single kernels do not show: copies between its memories, the optimizer, large products.
#pragma once

#include "backend/backend.h"
#include "measure/stopwatch.h"
#include "profile/profile.h"

namespace protrain::measure {

// Fills every rate of `profile` except the disk's, in at most `memory` bytes. If the device has its own memory, both
// sides are measured: copies go through pinned memory, each way alone and both together, and the optimizer runs on the
// device and on the host's threads. With one shared memory both sides have equal rates.
void measure_rates(backend::Device &device, const Stopwatch &stopwatch, const backend::Optimizer &optimizer,
                   std::uint64_t memory, profile::Profile &profile);

}  // namespace protrain::measure
