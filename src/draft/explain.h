// Explain: a plan in sentences. What was chosen, where a step's time goes, what binds, what would make it faster.
#pragma once

#include <string>
#include <vector>

#include "draft/draft.h"

namespace protrain::draft {

// What another budget or batch would give.
struct Alternative {
  std::string change;  // "device_memory=12.0 GiB (x 1.5)"
  double seconds = 0;  // of a step; 0: nothing fits
  double samples = 0;  // of a step
};

std::vector<std::string> explain(const Draft &draft, const std::vector<Alternative> &alternatives);

}  // namespace protrain::draft
