// What the control groups above this process allow it. `root` is where /proc and /sys are found: "" but in tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace protrain::cgroup {

inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

// Bytes still free below the tightest memory limit (v1 or v2); file cache that can be dropped counts as free.
std::uint64_t free_memory(const std::string &root = "");
// Processors' worth of time per period by the tightest quota, rounded up; 0 where there is none.
int processor_quota(const std::string &root = "");

// The number in the line "key number ..." of a file such as meminfo, or the whole file's where key is empty.
std::optional<std::uint64_t> number_in(const std::string &path, const std::string &key = "");

// All of a file of /proc or /sys; "" where the system refuses it. A stream would take a lack of memory for the end of
// the file.
std::string text_of(const std::string &path);
std::vector<std::string> words_of(std::string_view text);  // what stands between spaces, tabs and newlines

}  // namespace protrain::cgroup
