// The two functions that a plugin exports, under C names. Neither throws; everything else goes through Device.
#pragma once

#include "backend/backend.h"
#include "base/error.h"

namespace protrain::backend {

// Says which build the plugin belongs to. Another build may disagree about any type of backend.h.
using BuildId = const char *();
inline constexpr const char *kBuildIdSymbol = "protrain_plugin_build_id";

// Makes a device with a team of so many threads. The caller owns it. nullptr: `error` says why there is none.
using OpenDevice = Device *(const std::string &device, int threads, bool tf32, Error &error);
inline constexpr const char *kOpenSymbol = "protrain_plugin_open";

}  // namespace protrain::backend
