// The kinds of devices. Backends say theirs, and descriptions of machines say it too.
#pragma once

#include <cstdint>

#include "base/enum_array.h"

namespace protrain {

enum class DeviceKind : std::uint8_t { cpu, gpu };

inline constexpr EnumArray<DeviceKind, 2, const char *> kDeviceKindNames = {"cpu", "gpu"};

}  // namespace protrain
