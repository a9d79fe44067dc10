// The two functions that a plugin exports, under C names. Neither throws. Everything else goes through Device.
#pragma once

#include "backend/backend.h"
#include "base/error.h"

namespace protrain::backend {

// Returns the id of the build that the plugin comes from. The library refuses a plugin of another build, in which any
// type of backend.h may differ.
using BuildId = const char *();
inline constexpr const char *kBuildIdSymbol = "protrain_plugin_build_id";

// Makes a device with a team of `threads` threads; the caller owns the device. Returns nullptr and sets `error` on
// failure.
using OpenDevice = Device *(const std::string &device, int threads, bool tf32, Error &error);
inline constexpr const char *kOpenSymbol = "protrain_plugin_open";

}  // namespace protrain::backend
