// The speed of exchanges between ranks, alone and beside compute.
#pragma once

#include "backend/backend.h"
#include "comm/channel.h"
#include "profile/profile.h"

namespace protrain::measure {

// The channels and the memory that the exchanges of a step use.
struct Link {
  comm::Channel &hosts;  // lets all ranks start an exchange together, and compares their times
  comm::Channel &steps;  // moves what a step exchanges
  bool on_device;        // messages lie in the device's memory, else in the host's
};

// Measures exchanges in which every rank sends `bytes` to each other rank, but at least 64 KiB and at most 4 MiB. Sets
// the profile's link and link_seconds to those of the slowest rank, and on shared cores compute_beside_link and
// link_beside_compute to the smallest of all ranks. Every rank must call this function with the same `bytes`.
void measure_link(backend::Device &device, const Link &link, std::uint64_t bytes, profile::Profile &profile);

}  // namespace protrain::measure
