// A transport's plugin exports one of the two functions below, under the name in kOpenSymbol or kOpenGpuSymbol. It also
// exports its build id (base/plugin.h).
#pragma once

#include "base/error.h"
#include "base/plugin.h"
#include "comm/channel.h"

namespace protrain::comm {

// Opens a channel; the caller owns it. Returns nullptr and sets `error` on failure. It does not throw.
using OpenChannel = Channel *(const ChannelRequest &request, Error &error);
inline constexpr const char *kOpenSymbol = "protrain_plugin_open_channel";
// Opens a channel between GPUs; the caller owns it. Returns nullptr and sets `error` on failure. It does not throw.
using OpenGpuChannel = Channel *(const GpuRequest &request, Error &error);
inline constexpr const char *kOpenGpuSymbol = "protrain_plugin_open_gpu_channel";

// Opens a channel of class Own, or sets `error` and returns nullptr. The functions that a plugin exports call it.
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
