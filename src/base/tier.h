// The three memories that state and activations rest in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace protrain {

enum class Tier : std::uint8_t { device, host, disk };
inline constexpr std::size_t kTierCount = 3;
inline constexpr const char *kTierNames[kTierCount] = {"device", "host", "disk"};

// In bytes. Data that moves between memory and disk is aligned to this on both sides, so that it
// can bypass the page cache.
inline constexpr std::size_t kDiskAlignment = 4096;

}  // namespace protrain
