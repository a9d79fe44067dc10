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

// The alignment of data that moves between memory and disk, in bytes. Both its address and its place in the file are
// multiples of this, so that the move can bypass the page cache.
inline constexpr std::size_t kDiskAlignment = 4096;

}  // namespace protrain
