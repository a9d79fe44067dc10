// The three memories that state and activations rest in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace protrain {

enum class Tier : std::uint8_t { device, host, disk };
inline constexpr std::size_t kTierCount = 3;
inline constexpr const char *kTierNames[kTierCount] = {"device", "host", "disk"};

// What moves between memory and disk lies at multiples of this on both sides, in bytes, so that it can pass the page
// cache by.
inline constexpr std::size_t kDiskAlignment = 4096;

}  // namespace protrain
