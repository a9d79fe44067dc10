// The three places that hold state and activations: device memory, host memory and disk.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/enum_array.h"

namespace protrain {

enum class Tier : std::uint8_t { device, host, disk };

template <typename T>
using PerTier = EnumArray<Tier, 3, T>;
inline constexpr auto kTiers = all_values<Tier, 3>();
inline constexpr PerTier<const char *> kTierNames = {"device", "host", "disk"};

// Data that moves between memory and disk begins at a multiple of this many bytes, both in memory and in the file, so
// that the move can bypass the page cache.
inline constexpr std::size_t kDiskAlignment = 4096;

}  // namespace protrain
