// Explain: a plan in sentences. What was chosen, where a step's time goes, what binds, what would make it faster.
#pragma once

#include <string>
#include <vector>

#include "session/blueprint.h"

namespace protrain::session {

// What another budget would give: for "with 12 GiB a step would take 3.1 s".
struct Alternative {
  std::string change;  // "device_memory=12.0 GiB"
  double seconds = 0;  // of a step; 0: nothing fits
};

std::vector<std::string> explain(const Blueprint &blueprint, const std::vector<Alternative> &alternatives);

}  // namespace protrain::session
