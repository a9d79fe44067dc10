// Explain: describes a plan in sentences. They say what was chosen, where a step's time goes, what limits it, and what
// would make it faster.
#pragma once

#include <string>
#include <vector>

#include "draft/draft.h"

namespace protrain::draft {

// The result of planning again with another budget or batch.
struct Alternative {
  std::string change;  // "device_memory=12.0 GiB (x 1.5)"
  double seconds = 0;  // per step; 0: nothing fits
  double samples = 0;  // per step
};

std::vector<std::string> explain(const Draft &draft, const std::vector<Alternative> &alternatives);

}  // namespace protrain::draft
