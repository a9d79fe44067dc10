// The function that a transport's plugin exports beside its build id (base/plugin.h), under a C name: one of the two
// below.
#pragma once

#include "base/error.h"
#include "base/plugin.h"
#include "comm/channel.h"

namespace protrain::comm {

// Opens a channel; the caller owns it. Returns nullptr and sets `error` on failure. It does not throw.
using OpenChannel = Channel *(const ChannelRequest &request, Error &error);
inline constexpr const char *kOpenSymbol = "protrain_plugin_open_channel";
// The same for a channel between GPUs.
using OpenGpuChannel = Channel *(const GpuRequest &request, Error &error);
inline constexpr const char *kOpenGpuSymbol = "protrain_plugin_open_gpu_channel";

// The body of such a function, for a plugin's own channel.
template <typename Own, typename Request>
Channel *open_or_say(const Request &request, Error &error) {
  try {
    return new Own(request);
  } catch (const Error &found) {
    error = found;
  } catch (const std::exception &found) {
    error = Error(Code::internal, "comm", found.what());
  }
  return nullptr;
}

}  // namespace protrain::comm
