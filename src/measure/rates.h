// The rates of a machine that no single kernel tells: copies between its memories, the optimizer, large products.
#pragma once

#include "backend/backend.h"
#include "measure/stopwatch.h"
#include "profile/profile.h"

namespace protrain::measure {

// Fills in every rate of `profile` but those of the disk, in at most `memory` bytes. A machine whose device has a
// memory of its own is measured on both sides: copies go through pinned memory, each way alone and both together, and
// the optimizer runs on the device and on the host's threads. Where they share one memory the sides have equal rates.
void measure_rates(backend::Device &device, const Stopwatch &stopwatch, const backend::Optimizer &optimizer,
                   std::uint64_t memory, profile::Profile &profile);

}  // namespace protrain::measure
