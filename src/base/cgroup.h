// What the control groups above this process allow it. `root` is where /proc and /sys are found: "" but in tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace protrain::cgroup {

inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

// Bytes still free below the tightest memory limit (v1 or v2); file cache that can be dropped counts as free.
std::uint64_t free_memory(const std::string &root = "");
// Processors' worth of time per period by the tightest quota, rounded up; 0 where there is none.
int processor_quota(const std::string &root = "");

// The number in the line "key number ..." of a file such as meminfo, or the whole file's where key is empty.
std::optional<std::uint64_t> number_in(const std::string &path, const std::string &key = "");

}  // namespace protrain::cgroup
