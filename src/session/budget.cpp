#include "session/budget.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace protrain::session {

namespace {

// What a session takes beside its arenas (code, threads, oneDNN's own, the files being read), and room for others.
std::uint64_t all_but_reserve(std::uint64_t free) {
  constexpr std::uint64_t kLeast = 96ull << 20;
  return free - std::min(free, std::max(kLeast, free / 20));
}

void require_within(const Options &options, const char *key, std::uint64_t needed) {
  require(!options.is_set(key) || needed <= options.bytes(key), Code::budget, key,
          "the plan needs {} bytes ({}) and {} is {}; the smallest that works with it is {}", needed,
          bytes_text(needed), key, options.bytes(key), needed);
}

std::uint64_t disk_budget(const Options &options, const profile::Profile &profile) {
  if (options.is_set("hardware"))
    return options.is_set("disk_memory") ? options.bytes("disk_memory") : profile.disk_memory;
  if (!options.is_set("offload_dir")) return 0;
  return options.is_set("disk_memory") ? options.bytes("disk_memory")
                                       : free_space(options.text("offload_dir")) / 20 * 19;
}

}  // namespace

Budget budget_of(const Options &options, const profile::Profile &profile) {
  const bool separate = options.is_set("device_memory") || options.is_set("host_memory") || !profile.shares_memory;
  require(!(separate && options.is_set("memory")), Code::arg, "memory",
          "memory is one budget for device and host{}; set it, or device_memory and host_memory",
          profile.shares_memory ? "" : ", which have their own on this machine");
  Budget budget{.shared_memory = !separate};
  budget.bytes[static_cast<std::size_t>(Tier::disk)] = disk_budget(options, profile);
  const auto given = [&](const char *key, std::uint64_t otherwise) {
    return options.is_set(key) ? options.bytes(key) : otherwise;
  };
  auto &[device, host, disk] = budget.bytes;
  if (!profile.shares_memory) {
    device = given("device_memory", profile.usable_device());
    host = given("host_memory", profile.usable_host());
    return budget;
  }
  const std::uint64_t free = all_but_reserve(profile.device_memory);
  if (!separate) {
    device = given("memory", free);
    return budget;
  }
  // One memory, kept apart by the options: what is not given is what the other leaves.
  device = given("device_memory", free - std::min(free, options.bytes("host_memory")));
  host = given("host_memory", free - std::min(free, device));
  return budget;
}

void require_budget(const Options &options, const profile::Profile &profile, const plan::Bytes &needed) {
  const auto [device, host, disk] = needed;
  require_within(options, "memory", device);
  require_within(options, "device_memory", device);
  require_within(options, "host_memory", host);
  require_within(options, "disk_memory", disk);
  const std::uint64_t together = profile.shares_memory ? checked_add(device, host) : device;
  require(together <= profile.device_memory, Code::budget, "memory",
          "the plan needs {} bytes ({}) and this process may take {}", together, bytes_text(together),
          profile.device_memory);
  require(disk == 0 || options.is_set("offload_dir") || options.is_set("hardware"), Code::arg, "offload_dir",
          "the plan puts {} on disk; name a directory for it", bytes_text(disk));
}

}  // namespace protrain::session
