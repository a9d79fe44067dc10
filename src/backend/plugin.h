// The functions that a backend's plugin exports under C names, besides the one that returns its build id. These
// functions do not throw. The library reaches everything else in a plugin through Device.
#pragma once

#include "backend/backend.h"
#include "base/error.h"
#include "base/plugin.h"

namespace protrain::backend {

// Makes a device with a team of `threads` threads; the caller owns the device. Returns nullptr and sets `error` on
// failure.
using OpenDevice = Device *(const std::string &device, int threads, bool tf32, Error &error);
inline constexpr const char *kOpenSymbol = "protrain_plugin_open";

// Returns the number of the backend's devices that this process sees. Returns -1 and sets `error` on failure.
using CountDevices = int(Error &error);
inline constexpr const char *kCountSymbol = "protrain_plugin_count";

}  // namespace protrain::backend
