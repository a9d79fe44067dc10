// Saves a session, and lets a new one go on from it. Checkpoints do not depend on the plan: arrays are read and written
// by parameter, wherever they rest.
#pragma once

#include <string>

#include "session/machine.h"
#include "session/ranks.h"
#include "session/step_account.h"
#include "state/checkpoint.h"

namespace protrain::session {

// Saves a checkpoint and returns its path, on every rank. Each rank writes the elements that it owns. But rank 0 writes
// everything if some rank cannot see the directory of rank 0, or if there are more ranks than state::kMostParts.
std::string save(Machine &machine, const Counters &counters, Ranks &ranks, const std::string &directory);

// Fills the machine from the checkpoint that the option `resume` names, if it is set, and returns the counters to begin
// with. Code::mismatch if the checkpoint's parameters, optimizer, frozen base or scales of adapters differ from the
// session's. Also Code::mismatch if the option `seed` is set to another seed than the checkpoint's, or if ranks open
// different checkpoints.
Counters resume(Machine &machine);

}  // namespace protrain::session
