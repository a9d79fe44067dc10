// Budgets: the bytes of each tier that a session may take, from the options and from what the machine has.
#pragma once

#include "draft/settings.h"
#include "plan/search.h"

namespace protrain::draft {

struct Budget {
  plan::Bytes bytes{};         // of each tier; 0 for a tier that does not exist
  bool shared_memory = false;  // device and host share one budget, `memory`, which is the device's entry
};

// Returns the budgets. A budget for the device's memory is at most what the machine has, even if the option gives more.
// The same holds for the host's budget if device and host share one memory. Code::arg if options contradict each other
// or the machine.
Budget budget_of(const Settings &settings, const profile::Profile &profile);

// True if the device's memory can hold these bytes, whatever the options allow. Bytes of the host's tier are counted
// only if device and host share one memory.
bool machine_has(const plan::Bytes &needed, const Settings &settings, const profile::Profile &profile);

// Throws Code::budget if the plan needs more than an option allows or than the machine has. Throws Code::arg if the
// plan needs a disk and none is given.
void require_budget(const Settings &settings, const profile::Profile &profile, const plan::Bytes &needed);

}  // namespace protrain::draft
