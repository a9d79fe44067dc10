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
  bool on_device;        // true: messages lie in the device's memory; false: in the host's
};

// Measures exchanges in which every rank sends a message to every other rank. A message has `bytes`, but at least
// 64 KiB and at most 4 MiB. Sets link and link_seconds of the profile to those of the slowest rank. On shared cores
// also sets compute_beside_link and link_beside_compute, each to the smallest value of any rank. Every rank must call
// this function with the same `bytes`.
void measure_link(backend::Device &device, const Link &link, std::uint64_t bytes, profile::Profile &profile);

}  // namespace protrain::measure
