// Shared weights: what the ranks of a machine keep once for all.
#pragma once

#include "comm/channel.h"
#include "draft/draft.h"
#include "run/store.h"

namespace protrain::session {

// Has the ranks of each machine keep the same pages for frozen weights, which no step changes, where every rank keeps
// them whole in the host's memory. Every rank writes the same values there, so that none waits for another. Call it
// before the memory is filled. `reachable`: the device's arena is the host's memory. If the system does not allow it,
// each rank keeps its own. Returns the bytes that this rank shares; 0 with one rank.
std::uint64_t share_frozen_weights(const draft::Draft &draft, run::Store &store, comm::Channel &channel,
                                   bool reachable);

}  // namespace protrain::session
