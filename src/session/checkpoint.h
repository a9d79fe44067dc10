// Saves a session, and lets a new one go on from it. Checkpoints do not depend on the plan: arrays are read and written
// by parameter, wherever they rest.
#pragma once

#include <string>

#include "session/machine.h"
#include "session/step_account.h"

namespace protrain::session {

// Returns the new checkpoint's path.
std::string save(Machine &machine, const Counters &counters, const std::string &directory);

// Fills the machine from the checkpoint that the option `resume` names, if it is set. Code::mismatch if the checkpoint
// has other parameters, another optimizer, or another seed than the option gives.
Counters resume(Machine &machine);

}  // namespace protrain::session
