// The kinds of devices. A backend states the kind of its device, and a description of a machine states the kind of that
// machine's device.
#pragma once

#include <cstdint>

#include "base/enum_array.h"

namespace protrain {

enum class DeviceKind : std::uint8_t { cpu, gpu };

inline constexpr EnumArray<DeviceKind, 2, const char *> kDeviceKindNames = {"cpu", "gpu"};

}  // namespace protrain
