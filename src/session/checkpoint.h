// What of a session is saved, and how a new one goes on from it. A plan leaves no trace in a checkpoint: the arrays are
// read and written by parameter, wherever they rest.
#pragma once

#include <cstdint>
#include <string>

#include "session/loss_scale.h"
#include "session/machine.h"

namespace protrain::session {

// What the next step's bits depend on beside the arrays, the inputs and the options.
struct Counters {
  std::uint64_t steps = 0;    // that there were: random numbers count them
  std::uint64_t skipped = 0;  // that changed nothing: the optimizer does not count them
  std::uint64_t seed = 0;
  LossScale loss_scale;  // in float16
};

// Returns the new checkpoint's path.
std::string save(Machine &machine, const Counters &counters, const std::string &directory);

// The samples of a micro-batch that were settled when the checkpoint that the option `resume` names was made; 0: the
// options said it, or nothing is resumed.
std::int64_t micro_batch_of_checkpoint(const Options &options);

// Fills the machine from the checkpoint that the option `resume` names, if it is set. Code::mismatch where it is of
// other parameters, another optimizer, or another seed than an option that is set.
Counters resume(Machine &machine, const Options &options);

}  // namespace protrain::session
