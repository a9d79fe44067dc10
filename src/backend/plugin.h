// What a plugin exports: two functions with C names. Nothing is thrown through them; all else goes through Device.
#pragma once

#include "backend/backend.h"
#include "base/error.h"

namespace protrain::backend {

// The build the plugin belongs to: another one may disagree about any type of backend.h.
using BuildId = const char *();
inline constexpr const char *kBuildIdSymbol = "protrain_plugin_build_id";

// A new device with a team of so many threads, owned by the caller; nullptr with the reason in `error`.
using OpenDevice = Device *(const std::string &device, int threads, bool tf32, Error &error);
inline constexpr const char *kOpenSymbol = "protrain_plugin_open";

}  // namespace protrain::backend
