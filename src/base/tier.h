// The three memories that state and activations rest in.
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

// In bytes. Data that moves between memory and disk is aligned to this on both sides, so that it
// can bypass the page cache.
inline constexpr std::size_t kDiskAlignment = 4096;

}  // namespace protrain
