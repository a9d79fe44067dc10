// The speed of exchanges between ranks.
#pragma once

#include "comm/channel.h"
#include "profile/profile.h"

namespace protrain::measure {

// Measures exchanges in which every rank sends to all others, and sets the profile's link and link_seconds to those of
// the slowest rank. Every rank must call it.
void measure_link(comm::Channel &channel, profile::Profile &profile);

}  // namespace protrain::measure
