// The speed of exchanges between ranks, alone and beside compute.
#pragma once

#include "backend/backend.h"
#include "comm/channel.h"
#include "profile/profile.h"

namespace protrain::measure {

// Measures exchanges of all ranks with all. Sets the profile's link and link_seconds to those of the slowest rank, and
// on shared cores compute_beside_link and link_beside_compute to the smallest of all ranks. Every rank must call it.
void measure_link(backend::Device &device, comm::Channel &channel, profile::Profile &profile);

}  // namespace protrain::measure
