// What of a session is saved, and how a new one goes on from it. A plan leaves no trace in a checkpoint: the arrays are
// read and written by parameter, wherever they rest.
#pragma once

#include <string>

#include "session/machine.h"
#include "session/step_account.h"

namespace protrain::session {

// Returns the new checkpoint's path.
std::string save(Machine &machine, const Counters &counters, const std::string &directory);

// Fills the machine from the checkpoint that the option `resume` names, if it is set. Code::mismatch where it is of
// other parameters, another optimizer, or another seed than an option that is set.
Counters resume(Machine &machine);

}  // namespace protrain::session
