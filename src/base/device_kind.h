// The kinds of devices. Backends say theirs, and descriptions of machines say it too.
#pragma once

#include <cstddef>
#include <cstdint>

namespace protrain {

enum class DeviceKind : std::uint8_t { cpu, gpu };
inline constexpr std::size_t kDeviceKindCount = 2;
inline constexpr const char *kDeviceKindNames[kDeviceKindCount] = {"cpu", "gpu"};

}  // namespace protrain
