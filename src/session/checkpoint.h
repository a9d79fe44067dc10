// Saves a session, and lets a new one go on from it. Checkpoints do not depend on the plan: arrays are read and written
// by parameter, wherever they rest.
#pragma once

#include <string>

#include "session/machine.h"
#include "session/step_account.h"
#include "state/checkpoint.h"

namespace protrain::session {

// Returns the new checkpoint's path. `read` reads parts of the parameters.
std::string save(const draft::Draft &draft, const Counters &counters, const state::Read &read,
                 const std::string &directory);

// Fills the machine from the checkpoint that the option `resume` names, if it is set. Code::mismatch if the checkpoint
// has other parameters, another optimizer, or another seed than the option gives.
Counters resume(Machine &machine);

}  // namespace protrain::session
