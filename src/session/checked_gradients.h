// Compares the gradients that a session computes with finite differences of the loss in float64.
#pragma once

#include <atomic>
#include <string>

#include "session/machine.h"

namespace protrain::session {

// The step whose gradients are checked: the shape variant of the inputs that are set, and the step's scalars, such as
// the loss scale.
struct CheckedStep {
  std::size_t variant = 0;
  backend::StepScalars scalars;
};

// Computes the step's gradients, changes no parameter, and returns the text of protrain_session_check_gradients.
// `samples`: the number of elements of each parameter to compare. Throws Code::cancelled once `cancelled` is set.
std::string check_gradients(Machine &machine, const CheckedStep &step, std::size_t samples,
                            const std::atomic<bool> &cancelled);

}  // namespace protrain::session
