#include "draft/budget.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace protrain::draft {

namespace {

std::uint64_t all_but_reserve(std::uint64_t free) { return free - std::min(free, profile::left_to_the_system(free)); }

void require_within(const std::optional<std::uint64_t> &budget, const char *key, std::uint64_t needed) {
  require(!budget || needed <= *budget, Code::budget, key,
          "the plan needs {} bytes ({}) and {} is {}; the smallest that works with it is {}", needed,
          bytes_text(needed), key, budget.value_or(0), needed);
}

// Returns the bytes of the device's tier that a session allocates. Frozen weights that it shares with another session
// of this process are not counted, because they are in memory already.
std::uint64_t new_device_bytes(const plan::Bytes &needed, const Settings &settings) {
  return needed[Tier::device] - std::min(needed[Tier::device], settings.base_at_hand);
}

// Returns the bytes that a session takes from the device's memory. If device and host share one memory, the bytes of
// the host's tier are included.
std::uint64_t to_be_taken(const plan::Bytes &needed, const Settings &settings, const profile::Profile &profile) {
  const std::uint64_t device = new_device_bytes(needed, settings);
  return profile.shares_memory ? checked_add(device, needed[Tier::host]) : device;
}

std::uint64_t disk_budget(const Settings &settings, const profile::Profile &profile) {
  if (!settings.hardware.empty()) return settings.disk_memory.value_or(profile.disk_memory);
  if (settings.offload_dir.empty()) return 0;
  return settings.disk_memory.value_or(profile.disk_memory / 20 * 19);
}

}  // namespace

Budget budget_of(const Settings &settings, const profile::Profile &profile) {
  const bool separate = settings.device_memory || settings.host_memory || !profile.shares_memory;
  require(!(separate && settings.memory), Code::arg, "memory",
          "memory is one budget for device and host{}; set it, or device_memory and host_memory",
          profile.shares_memory ? "" : ", which have their own on this machine");
  Budget budget{.shared_memory = !separate};
  budget.bytes[Tier::disk] = disk_budget(settings, profile);
  auto &[device, host, disk] = budget.bytes.values;
  if (!profile.shares_memory) {
    device = std::min(settings.device_memory.value_or(profile.usable_device()), profile.device_memory);
    host = settings.host_memory.value_or(profile.usable_host());
    return budget;
  }
  const std::uint64_t free = all_but_reserve(profile.device_memory);
  if (!separate) {
    device = checked_add(std::min(settings.memory.value_or(free), profile.device_memory), settings.base_at_hand);
    return budget;
  }
  // Device and host share one memory, but the options give them separate budgets. If only one of the budgets is given,
  // the other one gets the remaining free memory.
  device = settings.device_memory.value_or(free - std::min(free, settings.host_memory.value_or(0)));
  host = std::min(settings.host_memory.value_or(free - std::min(free, device)), profile.device_memory);
  device = checked_add(std::min(device, profile.device_memory), settings.base_at_hand);
  return budget;
}

bool machine_has(const plan::Bytes &needed, const Settings &settings, const profile::Profile &profile) {
  return to_be_taken(needed, settings, profile) <= profile.device_memory;
}

void require_budget(const Settings &settings, const profile::Profile &profile, const plan::Bytes &needed) {
  const std::uint64_t device = new_device_bytes(needed, settings), disk = needed[Tier::disk];
  require_within(settings.memory, "memory", device);
  require_within(settings.device_memory, "device_memory", device);
  require_within(settings.host_memory, "host_memory", needed[Tier::host]);
  require_within(settings.disk_memory, "disk_memory", disk);
  const std::uint64_t taken = to_be_taken(needed, settings, profile);
  require(machine_has(needed, settings, profile), Code::budget, "memory",
          "the plan needs {} bytes ({}) and this process may take {}", taken, bytes_text(taken), profile.device_memory);
  require(disk == 0 || !settings.offload_dir.empty() || !settings.hardware.empty(), Code::arg, "offload_dir",
          "the plan puts {} on disk; name a directory for it", bytes_text(disk));
}

}  // namespace protrain::draft
