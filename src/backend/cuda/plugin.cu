// The functions that libprotrain_cuda.so exports.
#include "backend/plugin.h"

#include "backend/cuda/device.h"
#include "backend/cuda/runtime.h"

#define PROTRAIN_EXPORT extern "C" __attribute__((visibility("default")))

PROTRAIN_EXPORT const char *protrain_plugin_build_id() { return PROTRAIN_BUILD_ID; }

PROTRAIN_EXPORT protrain::backend::Device *protrain_plugin_open(const std::string &device, int threads, bool tf32,
                                                                protrain::Error &error) {
  try {
    return protrain::backend::cuda::open(device, threads, tf32).release();
  } catch (const protrain::Error &found) {
    error = found;
  } catch (const std::exception &found) {
    error = protrain::Error(protrain::Code::internal, "device", found.what());
  }
  return nullptr;
}

PROTRAIN_EXPORT int protrain_plugin_count(protrain::Error &error) {
  try {
    return protrain::backend::cuda::device_count();
  } catch (const protrain::Error &found) {
    error = found;
  } catch (const std::exception &found) {
    error = protrain::Error(protrain::Code::internal, "device", found.what());
  }
  return -1;
}
