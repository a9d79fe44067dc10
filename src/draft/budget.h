// Budgets: how many bytes of each tier a session may take, from options and from what there is.
#pragma once

#include "draft/settings.h"
#include "plan/search.h"

namespace protrain::draft {

struct Budget {
  plan::Bytes bytes{};         // of each tier; what is not there is 0
  bool shared_memory = false;  // one budget, memory, for device and host: that of the device
};

// Options that contradict each other or the machine: Code::arg.
Budget budget_of(const Settings &settings, const profile::Profile &profile);

// Code::budget where the plan needs more than an option allows, or than there is; Code::arg where it needs a disk and
// none is named.
void require_budget(const Settings &settings, const profile::Profile &profile, const plan::Bytes &needed);

}  // namespace protrain::draft
