// The function that a backend's plugin exports under a C name, besides the one that returns its build id. It does not
// throw. Everything else goes through Device.
#pragma once

#include "backend/backend.h"
#include "base/error.h"
#include "base/plugin.h"

namespace protrain::backend {

// Makes a device with a team of `threads` threads; the caller owns the device. Returns nullptr and sets `error` on
// failure.
using OpenDevice = Device *(const std::string &device, int threads, bool tf32, Error &error);
inline constexpr const char *kOpenSymbol = "protrain_plugin_open";

}  // namespace protrain::backend
