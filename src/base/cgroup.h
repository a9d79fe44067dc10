// Limits that the control groups set for this process. `root` is the directory above /proc and /sys: "" except in
// tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace protrain::cgroup {

inline constexpr std::uint64_t kUnlimited = UINT64_MAX;

// Returns how many bytes are still free below the tightest memory limit (v1 or v2). File cache that can be dropped
// counts as free.
std::uint64_t free_memory(const std::string &root = "");
// Returns the tightest processor quota, in processors, rounded up; 0 means no quota.
int processor_quota(const std::string &root = "");

// Returns the number in the line "key number ..." of a file such as meminfo. If `key` is empty, returns the first word
// of the file as a number, for files that hold nothing else. Returns an empty optional if there is no such number.
std::optional<std::uint64_t> number_in(const std::string &path, const std::string &key = "");

// Returns the whole text of a file of /proc or /sys, or "" where the system refuses it. It does not use std::ifstream,
// which mistakes a lack of memory for the end of the file.
std::string text_of(const std::string &path);
std::vector<std::string> words_of(std::string_view text);  // the words between spaces, tabs and newlines

}  // namespace protrain::cgroup
