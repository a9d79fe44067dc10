// The kinds of devices. A backend names its device's kind, and a description of a machine names that of its device.
#pragma once

#include <cstdint>

#include "base/enum_array.h"

namespace protrain {

enum class DeviceKind : std::uint8_t { cpu, gpu };

inline constexpr EnumArray<DeviceKind, 2, const char *> kDeviceKindNames = {"cpu", "gpu"};

}  // namespace protrain
