// The speed of exchanges between ranks.
#pragma once

#include "backend/backend.h"
#include "comm/channel.h"
#include "profile/profile.h"

namespace protrain::measure {

// The channels and the memory that the exchanges of a step use.
struct Link {
  comm::Channel &hosts;     // lets all ranks start an exchange together, and compares their times
  comm::Channel &steps;     // moves what a step exchanges
  backend::Device *device;  // the memory of those messages; nullptr: the host's
};

// Measures exchanges in which every rank sends to all others, and sets the profile's link and link_seconds to those of
// the slowest rank. Every rank must call it.
void measure_link(const Link &link, profile::Profile &profile);

}  // namespace protrain::measure
